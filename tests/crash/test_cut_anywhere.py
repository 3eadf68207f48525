"""A resilient file cut at any byte gives back the rows of every row group that a whole record names, and more perhaps.

Which rows of the row group that was cut come back, `test_cut_between_pages` knows.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import sampled

import resilient_pq as rpq
from resilient_pq.cli.main import run
from resilient_pq.io.memory_store import MemoryStore

ROW_GROUP, CHECKPOINT, FINAL, CHUNK = 2, 3, 4, 5


async def recovered(data: bytes) -> tuple[rpq.Report, bytes | None]:
    """The report of a recovery, and the output, if there is one."""
    store = MemoryStore()
    await store.put("torn", data)
    try:
        report = await rpq.recover((store, "torn"), (store, "out"))
    except rpq.NothingToRecoverError as error:
        with pytest.raises(rpq.NotFoundError):
            await store.head("out")
        return error.report, None
    return report, bytes((await store.read_tail("out", 1 << 30)).data)


async def checked(data: bytes) -> rpq.Report:
    store = MemoryStore()
    await store.put("torn", data)
    return await rpq.check((store, "torn"))


async def examine(file: Any, cut: int) -> bytes | None:
    """Recover the file cut at `cut`, and compare everything with what the oracle knows."""
    named = file.rows_before(cut)
    report, output = await recovered(file.data[:cut])
    check = await checked(file.data[:cut])
    wanted = report.num_rows
    assert named <= wanted == check.num_rows <= named + file.most_rows, cut
    assert (report.schema is not None) == (check.schema is not None) >= (cut >= file.anchor_end), cut
    if report.schema is not None:
        assert all(name in report.schema for name in file.table.column_names), cut
    if not wanted:
        assert output is None, cut
        assert report.exit_code == check.exit_code == 3, cut
        assert report.kept is not None and report.kept.output is None, cut
        return None
    assert output is not None, cut
    assert pq.read_table(io.BytesIO(output)).equals(file.table.slice(0, wanted)), cut
    assert report.kept is not None and report.kept.num_rows == wanted, cut
    assert report.exit_code in (0, 1) and check.exit_code == 1, cut
    if any(record.kind == FINAL and record.offset + 96 <= cut for record in file.records):
        assert (report.outcome, report.kept.rows_lost) == (rpq.Outcome.RECOVERED, 0), cut
    else:
        # Nobody knows how many rows followed, also where the cut is behind a record.
        assert (report.outcome, report.kept.rows_lost, report.exit_code) == (rpq.Outcome.PARTIAL, None, 1), cut
        assert max(region.end for region in report.kept.lost) == cut, cut
    return output


async def test_a_cut_at_a_border_or_anywhere(small: Any) -> None:
    for cut in small.cuts(around=0, samples=10, seed=1):
        await examine(small, cut)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("without_threads")
@pytest.mark.parametrize("share", range(8))
async def test_a_cut_at_every_byte(small: Any, share: int) -> None:
    for cut in range(share, len(small.data), 8):
        await examine(small, cut)


@pytest.mark.parametrize(
    "options",
    [
        {"checkpoint_every": None},
        {"row_group_rows": 1000},
    ],
    ids=["no checkpoints", "one row group"],
)
async def test_other_ways_to_write(
    options: dict[str, Any], write_file: Callable[..., Any], make_rows: Callable[[int], pa.Table]
) -> None:
    file = await write_file(make_rows(3 * 16 + 1), **options)
    for cut in file.cuts(around=0, samples=10, seed=2):
        await examine(file, cut)


async def test_the_rows_never_become_fewer_when_more_bytes_are_left(small: Any) -> None:
    rows = [(await checked(small.data[:cut])).num_rows for cut in small.cuts(around=1, samples=0, seed=3)]
    assert rows == sorted(rows)
    assert rows[0] == 0 and rows[-1] == small.table.num_rows


async def test_the_whole_file_is_copied_as_it_is(small: Any) -> None:
    report, output = await recovered(small.data)
    assert report.outcome == rpq.Outcome.SOUND and report.exit_code == 0
    assert output == small.data


async def test_the_output_goes_on_as_the_same_file_in_the_next_epoch(
    small: Any, parse_records: Callable[[bytes], list[Any]]
) -> None:
    for cut in small.cuts(around=0, samples=6, seed=4):
        output = await examine(small, cut)
        if output is None:
            continue
        before = [record for record in small.records if record.end <= cut]
        after = parse_records(output)
        taken_over = [record for record in after if record.epoch == 0]
        new = [record for record in after if record.epoch != 0]
        assert taken_over == before[: len(taken_over)]
        # Only chunk records of the row group that was being written are left behind; what is kept of it gets new ones.
        assert all(record.kind == CHUNK for record in before[len(taken_over) :])
        assert {record.file_id for record in after} == {small.records[0].file_id}
        assert [record.number for record in after] == list(range(len(after)))
        assert [record.previous for record in after] == [0, *(record.offset for record in after[:-1])]
        if any(record.kind == FINAL and record.epoch == 0 for record in after):
            assert not new
            continue
        assert {record.epoch for record in new} == {1}
        assert {record.kind for record in new[:-1]} <= {CHUNK, ROW_GROUP} and new[-1].kind == FINAL
        assert new[-1].end == len(output)


async def test_the_output_can_be_cut_and_recovered_again(small: Any, known: Callable[[bytes, pa.Table], Any]) -> None:
    rng = random.Random(5)
    first = next(record for record in small.records if record.kind == CHECKPOINT)
    for cut in (first.end + 700, small.checkpoint_ends[-1] + 1, len(small.data) - 1):
        output = await examine(small, cut)
        assert output is not None
        rows = pq.read_metadata(io.BytesIO(output)).num_rows
        again = known(output, small.table.slice(0, rows))
        places = again.cuts(around=1, samples=10, seed=cut)
        for second_cut in [*rng.sample(places, 25), len(output) - 1]:
            twice = await examine(again, second_cut)
            if second_cut == len(output) - 1:
                assert twice is not None
                report = await checked(twice)
                assert {finding.damage for finding in report.findings} == {rpq.Damage.UNFINISHED}


async def test_the_output_is_sound_but_says_that_it_is_salvaged(small: Any) -> None:
    output = await examine(small, small.checkpoint_ends[-1] + 5)
    assert output is not None
    report = await checked(output)
    assert report.outcome == rpq.Outcome.INCOMPLETE
    assert [finding.damage for finding in report.findings] == [rpq.Damage.UNFINISHED]
    assert report.next == ()  # there is nothing more to be had
    store = MemoryStore()
    await store.put("out", output)
    with pytest.warns(rpq.IncompleteFileWarning, match="salvaged"):
        file = await rpq.open((store, "out"))
    assert file.state == rpq.FileState.SALVAGED
    assert pa.table(await file.read()).num_rows == report.num_rows


async def test_a_salvaged_file_is_copied_as_it_is(small: Any) -> None:
    """Its lineage, which says what the first recovery lost, must not get lost in a second."""
    _, output = await recovered(small.data[: small.checkpoint_ends[-1] + 5])
    assert output is not None
    report, again = await recovered(output)
    assert report.outcome == rpq.Outcome.SOUND
    assert again == output


@sampled(25, 1000)
async def test_whole_copies_of_resilient_files_in_a_column_prove_nothing(
    write_file: Callable[..., Any], make_rows: Callable[[int], pa.Table], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Not even those of this very file: they lie at another offset than they say."""
    monkeypatch.setattr("os.urandom", lambda size: b"\x42" * size)
    inner = (await write_file(make_rows(40))).data
    table = pa.table({"id": pa.array(range(8)), "blob": pa.array([inner] * 8, pa.binary())})
    outer = await write_file(table, compression="none", row_group_rows=2, options=rpq.WriteOptions(dictionary_bytes=0))
    assert outer.records[0].file_id == b"\x42" * 16
    assert outer.data.count(inner) == 8
    places = outer.cuts(around=1, samples=20, seed=6)
    starts = [at for at in range(len(outer.data)) if outer.data.startswith(inner, at)]
    cuts = [*places, *(start + len(inner) for start in starts)]
    for cut in random.Random(6).sample(cuts, min(count, len(cuts))):
        await examine(outer, cut)


async def test_cut_at_a_checkpoint_it_is_an_ordinary_file(small: Any) -> None:
    for end in small.checkpoint_ends:
        data, wanted = small.data[:end], small.table.slice(0, small.rows_before(end))
        assert wanted.num_rows
        assert pq.read_table(io.BytesIO(data)).equals(wanted)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            store = MemoryStore()
            await store.put("cut", data)
            async with rpq.open((store, "cut")) as file:
                assert pa.table(await file.read()).equals(wanted)
                assert file.state == rpq.FileState.IN_PROGRESS
        assert [warning.category for warning in warned] == [rpq.IncompleteFileWarning]
        report = await checked(data)
        assert (report.outcome, report.exit_code) == (rpq.Outcome.INCOMPLETE, 1)
        assert report.num_rows == wanted.num_rows
        assert report.next[0][:2] == ("rpq", "recover")
        report, output = await recovered(data)
        assert (report.outcome, report.exit_code) == (rpq.Outcome.PARTIAL, 1)
        assert report.kept is not None and report.kept.rows_lost is None
        assert [(lost.start, lost.end, lost.num_rows) for lost in report.kept.lost] == [(end, end, None)]
        assert output is not None and output.startswith(data)
        assert pq.read_table(io.BytesIO(output)).equals(wanted)


async def test_other_readers_read_a_file_cut_at_a_checkpoint(small: Any, tmp_path: Any) -> None:
    import duckdb
    import polars

    end = small.checkpoint_ends[-1]
    wanted = small.table.slice(0, small.rows_before(end))
    path = tmp_path / "cut.parquet"
    path.write_bytes(small.data[:end])
    assert polars.read_parquet(path).to_arrow().cast(wanted.schema).equals(wanted)
    rows = duckdb.sql(f"select * from read_parquet('{path}')").fetchall()
    assert rows == [tuple(row.values()) for row in wanted.to_pylist()]


async def test_cut_behind_the_anchor_it_is_an_empty_file(small: Any) -> None:
    data = small.data[: small.anchor_end]
    assert pq.read_table(io.BytesIO(data)).equals(small.table.slice(0, 0))
    report = await checked(data)
    assert (report.outcome, report.exit_code, report.next) == (rpq.Outcome.NOTHING, 3, ())


def test_the_command_line_says_so_with_its_exit_status(
    small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn, output = tmp_path / "torn.parquet", tmp_path / "out.parquet"
    row_groups = [record for record in small.records if record.kind == ROW_GROUP]
    for cut, status in (
        (3, 3),
        (row_groups[0].offset - 1, 3),
        (row_groups[0].end + 1, 1),
        (row_groups[1].end, 1),
        (len(small.data) - 1, 0),
    ):
        torn.write_bytes(small.data[:cut])
        output.unlink(missing_ok=True)
        assert run(["recover", str(torn), str(output), "--json"]) == status
        assert output.exists() == (status != 3)
        document = json.loads(capsys.readouterr().out)
        assert document["rows"] >= small.rows_before(cut)
        assert (document["schema"] is not None) == (cut >= small.anchor_end)


def test_the_exit_status_is_that_of_the_process(small: Any, tmp_path: Path) -> None:
    (tmp_path / "torn.parquet").write_bytes(small.data[:3])
    command = [sys.executable, "-m", "resilient_pq", "recover", "torn.parquet", "out.parquet"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 3
