"""The map of a ledger in the terminal, and what a recovery prints."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from resilient_pq.cli.ledger.terminal import ledger_map
from resilient_pq.cli.output import report_lines
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.recovery.ledger.account import headline, share
from resilient_pq.recovery.ledger.grid import bands, grid
from resilient_pq.recovery.ledger.ledger_model import Ledger, PageState, RowsFate
from resilient_pq.recovery.report import Kept, Outcome, Report


def _plain(ledger: Ledger, width: int = 100) -> list[str]:
    return [line.plain for line in ledger_map(ledger, width=width, plain=True)]


def test_the_map_of_a_damaged_file(sample_ledgers: Any) -> None:
    lines = _plain(sample_ledgers.damaged())
    assert lines[0].split() == [
        "row", "group", "event_id", "~curred_at", "~stomer.id", "~r.country", "price", "quantity", "note", "refunded",
    ]  # fmt: skip
    cells = {line.split()[0]: line.split()[1:] for line in lines if line[:10].strip().isdecimal()}
    assert list(cells) == [str(number) for number in range(12)]
    assert cells["2"] == ["....", "....", "....", ".....", ".M..", "....", "....", "...."]
    assert cells["4"] == ["DDDD", "DDDD", "DDDD", ".DDDD", "DDDD", "DDDD", "DDLL", "LLLL"]
    assert cells["6"] == ["DDDD", "DDDD", "DDDD", "LLLLL", "DDDD", "DDDD", "DDDD", "DDDD"]
    assert cells["8"][5] == "...R"
    assert cells["11"] == ["DDDD", "DDDD", "DDDD", ".DDDD", "DDLL", "LLLL", "LLLL", "LLLL"]
    checkpoints = [number for number, line in enumerate(lines) if "checkpoint" in line]
    assert [lines[number - 1].split()[0] for number in checkpoints] == ["2", "5", "8"]
    assert lines[checkpoints[0]].strip() == "-- checkpoint, 6,000 rows"
    assert lines[-1] == ". whole   M mended   R repaired   D dropped   L lost"


def test_nulls_are_told_apart(sample_ledgers: Any) -> None:
    lines = _plain(sample_ledgers.damaged("null"))
    assert next(line for line in lines if line.startswith("        6 ")).split()[4] == "LNNNN"
    assert "N nulled" in lines[-1]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_it_fits_and_shows_what_is_lost(sample_ledgers: Any, width: int) -> None:
    for ledger in (
        sample_ledgers.damaged(),
        sample_ledgers.made_up([f"c{i}" for i in range(200)], 50, 2, lost=30, seed=1),
    ):
        lines = _plain(ledger, width)
        drawn = lines[: lines.index("")]
        assert max(map(len, drawn)) <= width
        assert len(drawn) < 80
        assert any(letter in "".join(drawn[1:]) for letter in "LN")
        assert "".join(lines).isascii()


def test_what_is_folded_is_said(sample_ledgers: Any) -> None:
    wide = sample_ledgers.made_up([f"c{i}" for i in range(200)], 50, 2, lost=2, seed=1)
    lines = _plain(wide)
    assert "200 columns and 50 row groups" in lines[-2]
    assert lines[0].split()[2:] == ["c0", "c1", "2+", "c125", "126+"]
    assert len(lines) < 12


def test_names_and_a_ledger_of_nothing_do_no_harm(sample_ledgers: Any) -> None:
    names = ["\x1b[2J\x07", "a\u202eb", "\u00e9\u4e2d", "", "new\nline"]
    lines = _plain(sample_ledgers.made_up(names, 2, 2))
    assert all(line.isprintable() for line in lines)
    nothing = Ledger((), (), (), (), ())
    assert ledger_map(nothing, width=80, plain=True) == []
    no_page = replace(nothing, columns=("a",), row_groups=(10,))
    assert "".join(_plain(no_page)).split() == ["row", "group", "a", "0"]


@given(st.lists(st.booleans(), max_size=200), st.integers(1, 40))
def test_bands_hold_everything_once(harmed: list[bool], limit: int) -> None:
    made = bands(harmed, limit)
    assert [number for band in made for number in range(band.first, band.last + 1)] == list(range(len(harmed)))
    assert len(made) <= max(limit, 0)
    alone = {band.first for band in made if band.count == 1}
    if len(harmed) <= limit:
        assert len(alone) == len(harmed)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 9), st.data())
def test_no_page_is_left_out(sample_ledgers: Any, columns: int, row_groups: int, pages: int, data: Any) -> None:
    count = columns * row_groups * pages
    lost = data.draw(st.integers(0, count))
    limits = {name: data.draw(st.integers(1, 14)) for name in ("max_columns", "max_row_groups", "max_segments")}
    ledger = sample_ledgers.made_up([f"c{i}" for i in range(columns)], row_groups, pages, lost=lost)
    made = grid(ledger, **limits)
    cells = [cell for row in made.cells for cell in row]
    assert sum(sum(cell.counts.values()) for cell in cells) == count
    assert sum(cell.counts.get(PageState.NULLED, 0) for cell in cells) == lost
    for cell in cells:
        assert len(cell.segments) <= limits["max_segments"]
        assert (PageState.NULLED in cell.counts) == any(s.state is PageState.NULLED for s in cell.segments)


def test_colours_where_they_are_wanted(sample_ledgers: Any) -> None:
    def printed(**options: Any) -> str:
        console = Console(file=io.StringIO(), width=100, **options)
        for line in ledger_map(sample_ledgers.damaged(), width=100, plain=False):
            console.print(line)
        text: str = console.file.getvalue()  # type: ignore[attr-defined]
        return text

    assert "\x1b[1;37;41mLLLLL\x1b" in printed(force_terminal=True, color_system="standard")
    without = printed(force_terminal=True, color_system="standard", no_color=True)
    assert "41m" not in without and "L" in without
    assert "\x1b" not in printed(force_terminal=False)


@pytest.mark.parametrize(
    ("terminal", "letter"),
    [
        ({"force_terminal": True, "_environ": {"TERM": "xterm-256color"}}, "\N{BLACK SQUARE}"),
        ({"force_terminal": True, "_environ": {"TERM": "dumb"}}, "."),
        ({"force_terminal": False}, "."),
    ],
)
def test_a_terminal_gets_squares(
    sample_ledgers: Any, capsys: pytest.CaptureFixture[str], terminal: dict[str, Any], letter: str
) -> None:
    output = Output("recover")
    output._out = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), width=100, **terminal)
    output.map(sample_ledgers.damaged())
    out = capsys.readouterr().out
    assert f"{letter * 4}" in out
    assert ("\x1b[" in out) == (letter != ".")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(10, True, ())], "All 10 rows kept"),
        ([], "There were no rows"),
        ([(10, True, ()), (5, False, ())], "10 of 15 rows kept, 5 lost"),
        ([(10, True, ()), (None, False, ())], "10 rows kept, and an unknown number of rows lost"),
        (
            [(1, True, ()), (5, False, ()), (None, False, ())],
            "1 row kept, and at least 5 rows lost",
        ),
        ([(10, True, ()), (5, True, ("a",))], "All 15 rows kept; 5 of those kept have nulls where values were lost"),
    ],
)
def test_the_headline(rows: list[tuple[int | None, bool, tuple[str, ...]]], said: str) -> None:
    fates = tuple(RowsFate(None, count, None, kept, nulled) for count, kept, nulled in rows)
    assert headline(Ledger((), ("a",), (), (), fates)) == said


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (1, 1, "100 %"),
        (99_999, 100_000, "99.99 %"),
        (1, 100_000, "less than 0.01 %"),
        (0, 5, "0 %"),
        (0, 0, "0 %"),
        (1, 8, "12.5 %"),
    ],
)
def test_shares_are_rounded_down(part: int, whole: int, said: str) -> None:
    assert share(part, whole) == said


def _report(ledger: Ledger) -> Report:
    kept = Kept("out.parquet", ledger.rows_kept, 1000, ledger.rows_lost, ledger=ledger)
    return Report(
        "recover", "torn.parquet", Outcome.PARTIAL, ledger.rows_kept, 9, 5000,
        next=(("rpq", "check", "out.parquet"),), kept=kept,
    )  # fmt: skip


def test_what_a_recovery_prints(sample_ledgers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    report_lines.show_recovery(Output("recover"), _report(sample_ledgers.damaged()))
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == "kept        16,000 of 24,000 rows in 9 row groups; 1,000 bytes copied as they were"
    assert lines[1] == "lost        8,000 rows"
    assert lines[2].startswith("mended      2 pages: ")
    assert lines[3].startswith("repaired    1 page: ")
    assert lines[5].startswith("row group ")
    table = next(number for number, line in enumerate(lines) if line.startswith("rows "))
    assert lines[table + 1].split()[:6] == ["8,000", "to", "9,000", "4", "1,000", "lost:"]
    assert lines[-2:] == ["written     out.parquet", "next        rpq check out.parquet"]
    assert out.isascii() and "\x1b" not in out


def test_a_long_list_of_losses_is_cut(sample_ledgers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = sample_ledgers.made_up([f"c{i}" for i in range(20)], 40, 4, lost=200, seed=2)
    report_lines.show_recovery(Output("recover"), _report(ledger))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("kept        1,600 rows in")
    assert lines[2].startswith("nulled      ")
    table = next(number for number, line in enumerate(lines) if line.startswith("rows "))
    (more,) = [number for number, line in enumerate(lines) if "more, which --json lists" in line]
    assert more == table + report_lines.MAX_LISTED + 1


def test_nothing_lost_needs_no_map(sample_ledgers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    report_lines.show_recovery(Output("recover"), _report(sample_ledgers.made_up(["a"], 3, 2)))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["kept", "lost", "written", "next"]


def test_as_json_the_ledger_is_all_there_is(sample_ledgers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = sample_ledgers.damaged()
    report_lines.show_recovery(Output("recover", as_json=True), _report(ledger))
    assert json.loads(capsys.readouterr().out)["ledger"] == ledger.to_json()
