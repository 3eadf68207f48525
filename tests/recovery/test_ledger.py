"""The ledger: every byte once, every row once, and sums that agree."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_check import check_ledger

from resilient_pq import sync as rpq
from resilient_pq.errors import RecoveryError
from resilient_pq.recovery.ledger.ledger_model import (
    ByteUse,
    Confidence,
    Ledger,
    LedgerSource,
    PageState,
    Region,
    RowsFate,
    complete_regions,
)

PAGE = Region(0, 0, 100, ByteUse.DATA, "page", 0, "a", 0, None, Confidence.CHECKSUM, None, 0, 10, 10)


@st.composite
def stretches(draw: st.DrawFn) -> tuple[int, list[Region]]:
    """A size, and regions that do not overlap, in any order."""
    size = draw(st.integers(0, 60))
    edges = sorted(draw(st.sets(st.integers(0, size), max_size=20)))
    regions = [
        replace(PAGE, start=start, end=end, page=start)
        if draw(st.booleans())
        else Region(0, start, end, draw(st.sampled_from([ByteUse.DEAD, ByteUse.METADATA])), "padding")
        for start, end in pairwise(edges)
        if draw(st.booleans())
    ]
    return size, draw(st.permutations(regions))


@given(stretches())
def test_every_byte_is_told_of_once(known: tuple[int, list[Region]]) -> None:
    size, regions = known
    complete = complete_regions(size, regions)
    told = [region for region in complete for _ in range(region.size)]
    assert len(told) == size
    assert [region.start for region in complete] == [0, *[region.end for region in complete[:-1]]][: len(complete)]
    for at in range(size):
        given_here = [region for region in regions if region.start <= at < region.end]
        if given_here:
            assert replace(told[at], start=0, end=0) == replace(given_here[0], start=0, end=0)
        else:
            assert (told[at].use, told[at].what) == (ByteUse.DEAD, "unknown")
    for one, two in pairwise(complete):
        assert replace(one, start=0, end=0) != replace(two, start=0, end=0)
    assert [region for region in regions if region.page is not None and region not in complete] == []


@given(stretches(), st.data())
def test_bytes_told_of_twice_are_refused(known: tuple[int, list[Region]], data: st.DataObject) -> None:
    size, regions = known
    if not regions:
        return
    victim = data.draw(st.sampled_from(regions))
    start = data.draw(st.integers(victim.start, victim.end - 1))
    with pytest.raises(RecoveryError):
        complete_regions(size, [*regions, replace(PAGE, start=start, end=start + 1)])
    with pytest.raises(RecoveryError):
        complete_regions(victim.end - 1, [victim])
    with pytest.raises(RecoveryError):
        complete_regions(size, [replace(victim, source=1)])


@pytest.mark.parametrize(
    ("region", "state"),
    [
        (PAGE, PageState.WHOLE),
        (replace(PAGE, confidence=Confidence.UNREAD), PageState.UNREAD),
        (replace(PAGE, mended="header-copy"), PageState.MENDED),
        (replace(PAGE, mended="bit-repair", confidence=Confidence.REPAIRED), PageState.REPAIRED),
        (replace(PAGE, rows_kept=3), PageState.DROPPED),
        (replace(PAGE, use=ByteUse.LOST, rows_kept=0), PageState.DROPPED),
        (replace(PAGE, use=ByteUse.LOST, confidence=None), PageState.NULLED),
        (replace(PAGE, use=ByteUse.LOST, confidence=None, rows_kept=0), PageState.LOST),
        (replace(PAGE, use=ByteUse.LOST, confidence=None, num_rows=None, rows_kept=None), PageState.LOST),
        (Region(0, 0, 4, ByteUse.METADATA, "magic", confidence=Confidence.CHECKSUM), None),
    ],
)
def test_what_became_of_a_page(region: Region, state: PageState | None) -> None:
    assert region.state is state


@pytest.mark.parametrize("on_damage", ["drop", "null"])
def test_a_damaged_file_adds_up(sample_ledgers: Any, on_damage: str) -> None:
    ledger = sample_ledgers.damaged(on_damage)
    assert check_ledger(ledger) == []
    states = {region.state for region in ledger.pages()}
    assert {PageState.WHOLE, PageState.MENDED, PageState.REPAIRED, PageState.LOST} <= states
    assert (PageState.NULLED if on_damage == "null" else PageState.DROPPED) in states
    assert ledger.missing
    assert ledger.rows_kept + ledger.rows_lost == 24_000
    assert bool(ledger.rows_nulled) == (on_damage == "null")
    document = ledger.to_json()
    assert json.loads(json.dumps(document)) == document
    assert sum(document["sources"][0]["bytes"].values()) == document["sources"][0]["size"]
    assert len(document["regions"]) == len(ledger.regions)
    kept = sum(fate["rows"] for fate in document["rows"] if fate["kept"])
    assert (document["rows_kept"], document["rows_lost"]) == (kept, 24_000 - kept)


def _whole() -> Ledger:
    regions = (PAGE, replace(PAGE, start=100, end=150, page=1, first_row=10, num_rows=5, rows_kept=5))
    fate = RowsFate(0, 15, 0, True, method="footer", confidence=Confidence.CHECKSUM)
    return Ledger((LedgerSource("f", 150),), ("a",), (15,), regions, (fate,))


def test_nothing_wrong_with_what_is_whole() -> None:
    assert check_ledger(_whole()) == []


ONE, TWO = _whole().regions
FATE = _whole().rows[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"regions": (ONE,)}, "told of up to 100 of 150"),
        ({"regions": (ONE, ONE, TWO)}, "follows on 100"),
        ({"regions": (TWO, ONE)}, "follows on 0"),
        ({"regions": (replace(ONE, source=1), TWO)}, "not in the order of the sources"),
        ({"missing": (ONE,)}, "is not missing"),
        ({"regions": (replace(ONE, what="leaf"), TWO)}, "no word of the format"),
        ({"regions": (replace(ONE, row_group=1), TWO)}, "no such row group"),
        ({"regions": (replace(ONE, column="b"), TWO)}, "no such column"),
        ({"regions": (replace(ONE, use=ByteUse.LOST, confidence=None, rows_kept=0), TWO)}, "lost for no reason"),
        ({"regions": (replace(ONE, reason="why"), TWO)}, "nothing wrong"),
        ({"regions": (replace(ONE, what="footer"), TWO)}, "no page, and has rows"),
        ({"regions": (replace(ONE, page=None), TWO)}, "in no place"),
        ({"regions": (replace(ONE, use=ByteUse.METADATA), TWO)}, "its bytes are metadata"),
        ({"regions": (ONE, replace(TWO, first_row=9))}, "its rows are told of twice"),
        ({"regions": (replace(ONE, rows_kept=4), TWO)}, "keeps 4 rows, the rows say 10"),
        ({"rows": (replace(FATE, confidence=None),)}, "kept or lost"),
        ({"rows": (replace(FATE, kept=False, confidence=None),)}, "kept or lost"),
        ({"rows": (replace(FATE, nulled=("a",)),)}, "how many and how"),
        ({"rows": (replace(FATE, nulled=("b",), reason="why"),)}, "no such column"),
        ({"rows": (replace(FATE, num_rows=14),)}, "are told of, it has 15"),
        ({"rows": (replace(FATE, num_rows=10), replace(FATE, first_row=9, num_rows=5))}, "told of twice"),
    ],
)
def test_what_does_not_add_up_is_said(change: dict[str, Any], said: str) -> None:
    wrong = check_ledger(replace(_whole(), **change))
    assert any(said in words for words in wrong), wrong


def test_a_page_that_several_inputs_have_is_counted_once() -> None:
    ledger = _whole()
    copy = tuple(replace(region, source=1) for region in ledger.regions)
    mended = replace(ONE, mended="other-copy", reason="its checksum does not hold")
    merged = replace(ledger, sources=(*ledger.sources, LedgerSource("g", 150)), regions=(mended, TWO, *copy))
    assert check_ledger(merged) == []
    assert [region.state for region in merged.pages()] == [PageState.MENDED, PageState.WHOLE]
    assert merged.num_bytes(ByteUse.DATA, 1) == 150


def test_rows_that_nobody_counted() -> None:
    lost = RowsFate(None, None, None, False, reason="the bytes do not tell")
    ledger = replace(_whole(), rows=(FATE, lost))
    assert check_ledger(ledger) == []
    assert ledger.uncounted
    assert ledger.to_json()["rows_lost"] is None


def test_a_footer_without_its_end_is_lost_in_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "torn.parquet"
    pq.write_table(pa.table({"a": list(range(1000)), "b": ["x"] * 1000}), path, row_group_size=500)
    data = path.read_bytes()
    path.write_bytes(data[:-60])
    report = rpq.recover(path, tmp_path / "out.parquet")
    assert report.kept is not None and report.kept.ledger is not None
    (footer,) = [region for region in report.kept.ledger.regions if region.what == "footer"]
    assert (footer.use, footer.reason) == (ByteUse.LOST, "its end is missing")
