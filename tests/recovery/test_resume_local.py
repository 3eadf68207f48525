"""A local file that was left anywhere is gone on with, and is then exactly the file of all its rows."""

# ruff: noqa: ASYNC220, ASYNC221 - processes are started and killed here, while nothing else runs

from __future__ import annotations

import asyncio
import datetime
import decimal
import io
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.errors import FormatError
from resilient_pq.recovery.evidence.records.record_scan import in_place, scan_headers

ANCHOR, ROW_GROUP, CHECKPOINT, FINAL = 1, 2, 3, 4
OPTIONS: dict[str, Any] = {"row_group_rows": 10, "checkpoint_every": 2, "checkpoint_overhead": 100.0}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "day.parquet"


def partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def leave(path: Path, data: bytes) -> None:
    """What a writer left that died when this much had been written."""
    path.unlink(missing_ok=True)
    partial(path).write_bytes(data)


async def left_by_writer(path: Path, data: Any, **options: Any) -> None:
    """What a writer left that was killed, its open row group with it."""
    writer = await rpq.create(path, **{**OPTIONS, **options})
    await writer.write(data)
    await writer._sink.keep()


async def finish(path: Path, table: pa.Table, **options: Any) -> int:
    """Resume, write the rest of the rows, close; gives the rows that were in place."""
    async with rpq.resume(path, **{**OPTIONS, **options}) as writer:
        in_place = writer.num_rows_stored
        assert writer.num_rows == in_place
        await writer.write(table.slice(in_place))
    return in_place


@pytest.fixture
def assert_is(is_whole: Any) -> Any:
    """Hold that the file is complete, and exactly the file of a table's rows."""

    async def hold(path: Path, table: pa.Table) -> list[Any]:
        assert not partial(path).exists()
        headers: list[Any] = await is_whole(path, path.read_bytes(), table)
        return headers

    return hold


# --- cut anywhere


def rows_before(headers: Sequence[Any], cut: int) -> int:
    """Rows that records name which are whole before the cut."""
    kinds = (ROW_GROUP, CHECKPOINT, FINAL)
    return max((header.num_rows for header in headers if header.kind in kinds and header.end <= cut), default=0)


def cuts_of(small: Any, samples: int, around: int) -> list[int]:
    borders = [place for header in small.headers for place in (header.offset, header.end)]
    near = {border + by for border in [*borders, len(small.data)] for by in range(-around, around + 1)}
    drawn = random.Random(4).sample(range(len(small.data)), samples)
    return sorted(cut for cut in near | set(drawn) if 0 <= cut <= len(small.data))


async def resumed_at(path: Path, small: Any, cut: int, assert_is: Any) -> None:
    leave(path, small.data[:cut])
    if cut < small.headers[0].end:
        with pytest.raises(rpq.RecoveryError, match="nothing to resume") as caught:
            await rpq.resume(path)
        assert "overwrite_partial" in str(caught.value.hint)
        assert partial(path).read_bytes() == small.data[:cut]
        return
    assert await finish(path, small.table) == rows_before(small.headers, cut)
    headers = await assert_is(path, small.table)
    assert headers[-1].epoch == 1 and headers[0].file_id == small.headers[0].file_id


@pytest.mark.parametrize("share", range(4))
async def test_cut_at_sampled_bytes(small: Any, path: Path, share: int, assert_is: Any) -> None:
    """Row groups that only a record behind the newest checkpoint names are kept, too."""
    for cut in cuts_of(small, samples=12, around=0)[share::4]:
        await resumed_at(path, small, cut, assert_is)


@pytest.mark.thorough
@pytest.mark.parametrize("share", range(16))
async def test_cut_at_every_byte(small: Any, path: Path, share: int, assert_is: Any) -> None:
    for cut in range(share, len(small.data) + 1, 16):
        await resumed_at(path, small, cut, assert_is)


async def test_a_file_that_only_lacked_its_name(small: Any, path: Path, assert_is: Any) -> None:
    """Its final footer makes room for more rows; without any it is written once more."""
    more = pa.concat_tables([small.table, small.table])
    leave(path, small.data)
    assert await finish(path, more) == 50
    await assert_is(path, more)
    leave(path, small.data)
    assert await finish(path, small.table) == 50
    await assert_is(path, small.table)


async def test_of_a_resume_of_a_resume(small: Any, path: Path, assert_is: Any) -> None:
    """Each time a little further, killed at some byte of what was written since."""
    rng = random.Random(7)
    data = small.data[: small.headers[0].end]
    for _ in range(8):
        leave(path, data)
        writer = await rpq.resume(path, **OPTIONS)
        start = writer.num_rows_stored
        await writer.write(small.table.slice(start, rng.randint(0, 25)))
        if rng.random() < 0.5:
            await writer.checkpoint()
        await writer._sink.keep()
        whole = partial(path).read_bytes()
        headers = in_place(scan_headers(whole, 0))
        assert {header.file_id for header in headers} == {small.headers[0].file_id}
        data = whole[: rng.randint(min(len(data), len(whole)), len(whole))]
    leave(path, data)
    await finish(path, small.table)
    headers = await assert_is(path, small.table)
    assert headers[-1].epoch > 3  # one that came to no record of its own leaves its number to the next


# --- what a loss of power leaves


async def test_bytes_that_never_reached_the_disk(small: Any, path: Path, assert_is: Any) -> None:
    """Behind the newest checkpoint that was stored any block may be missing; nothing torn is taken for whole."""
    rng = random.Random(11)
    checkpoints = small.records(CHECKPOINT)
    seen = set()
    for _ in range(30):
        stored = rng.choice([small.headers[0], *checkpoints])
        # The next checkpoint may have been written, but then nothing behind it: it was waited for.
        later = [header.end for header in checkpoints if header.offset > stored.offset]
        cut = rng.randint(stored.end, min(later, default=len(small.data)))
        data = bytearray(small.data[:cut])
        for _ in range(rng.randint(1, 3)):
            at = rng.randint(stored.end, cut)
            size = min(rng.choice([1, 32, 200]), cut - at)
            data[at : at + size] = bytes(size)
        leave(path, bytes(data))
        in_place = await finish(path, small.table)
        assert stored.num_rows <= in_place <= rows_before(small.headers, cut)
        await assert_is(path, small.table)
        seen.add(in_place)
    assert len(seen) > 3  # torn at many places


async def test_a_torn_row_group_takes_those_behind_it_along(small: Any, path: Path, assert_is: Any) -> None:
    """Rows have an order: the source goes on with the first that is missing."""
    first, second = small.records(ROW_GROUP)[:2]
    data = bytearray(small.data[: second.end])
    data[small.headers[1].end + 20] ^= 1
    leave(path, bytes(data))
    assert await finish(path, small.table) == 0
    await assert_is(path, small.table)
    assert first.num_rows == 10


async def test_a_row_group_whose_metadata_cannot_be_is_torn(
    small: Any, path: Path, monkeypatch: pytest.MonkeyPatch, assert_is: Any
) -> None:
    """As of a record that somebody made up: the checksums of ours say that it is whole."""

    def refused(contents: Any) -> Any:
        raise FormatError("the footer says what cannot be")

    leave(path, small.data[: small.records(ROW_GROUP)[2].end])
    monkeypatch.setattr("resilient_pq.recovery.resume.resume_local.expected_of_row_groups", refused)
    assert await finish(path, small.table) == 20
    monkeypatch.undo()
    await assert_is(path, small.table)
    leave(path, small.data[: small.records(ROW_GROUP)[2].end])
    assert await finish(path, small.table, overwrite=True) == 30


async def test_a_newest_checkpoint_whose_row_groups_are_torn(small: Any, path: Path, assert_is: Any) -> None:
    """It is whole itself, but nothing stands behind it: it may never have been stored."""
    checkpoint = small.records(CHECKPOINT)[1]
    data = bytearray(small.data[: checkpoint.end])
    data[small.records(ROW_GROUP)[3].offset - 10] ^= 1
    leave(path, bytes(data))
    assert await finish(path, small.table) == 30
    await assert_is(path, small.table)


@pytest.mark.parametrize("what", ["checkpoint", "magic"])
async def test_damage_before_a_stored_checkpoint_is_no_torn_end(small: Any, path: Path, what: str) -> None:
    """Cutting there would lose rows that somebody was promised, and may have no more."""
    stored = small.records(CHECKPOINT)[1]
    end = small.records(ROW_GROUP)[4].end
    data = bytearray(small.data[:end])
    data[stored.offset + 120 if what == "checkpoint" else 0] ^= 1
    leave(path, bytes(data))
    with pytest.raises(rpq.RecoveryError, match="damaged before a checkpoint") as caught:
        await rpq.resume(path)
    assert "rpq recover" in str(caught.value.hint)
    assert partial(path).read_bytes() == bytes(data)


async def test_a_second_copy_that_is_damaged_costs_an_index(small: Any, path: Path) -> None:
    """The footer behind it names the row group; only where its pages lie stood nowhere else."""
    record = small.records(ROW_GROUP)[0]
    data = bytearray(small.data[: small.records(ROW_GROUP)[2].end])
    data[record.offset + 120] ^= 1
    leave(path, bytes(data))
    assert await finish(path, small.table) == 30
    assert pq.read_table(path).equals(small.table)
    async with rpq.open(path) as file:
        assert await file.offset_index(0, "id") is None
        assert await file.offset_index(1, "id") is not None


# --- processes that are killed

PROGRAM = """
import asyncio, os, sys
import resilient_pq as rpq

async def main(path):
    begin = rpq.resume if os.path.exists(path + ".partial") else rpq.create
    writer = await begin(path, row_group_rows=50, checkpoint_every=3, checkpoint_overhead=100.0)
    start = writer.num_rows_stored
    while True:
        await writer.write({"n": list(range(start, start + 20)), "text": [f"row {i}" for i in range(start, start + 20)]})
        start += 20
        print(writer.num_rows_stored, flush=True)

asyncio.run(main(sys.argv[1]))
"""


async def test_killed_again_and_again(path: Path, assert_is: Any) -> None:
    promised = 0
    rng = random.Random(3)
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(rng.randint(1, 40))]
        process.kill()
        lines += process.stdout.readlines()
        process.wait()
        told = [int(line) for line in lines if line.endswith("\n")]
        assert told == sorted(told) and told[0] >= promised
        promised = told[-1]
    async with rpq.resume(path) as writer:
        count = writer.num_rows_stored
        assert count >= promised > 0
        await writer.write({"n": [count], "text": [f"row {count}"]})
    rows = range(count + 1)
    table = pa.table({"n": pa.array(rows, pa.int64()), "text": [f"row {i}" for i in rows]})
    headers = await assert_is(path, table)
    assert headers[-1].epoch == 2


KILLED = """
import asyncio, os, signal, sys
import resilient_pq as rpq

path, name, when = sys.argv[1:]
real = getattr(os, name)

def killed(*arguments):
    if when == "after":
        real(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    setattr(os, name, killed)
    async with rpq.resume(path) as writer:
        await writer.write({"id": [0], "name": ["never"]})

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("name", "when"),
    [
        pytest.param("ftruncate", "before", marks=pytest.mark.thorough),
        ("ftruncate", "after"),
        pytest.param("fsync", "before", marks=pytest.mark.thorough),
        pytest.param("fsync", "after", marks=pytest.mark.thorough),
        ("writev", "after"),
    ],
)
async def test_killed_while_it_resumes(name: str, when: str, path: Path, small: Any, assert_is: Any) -> None:
    leave(path, small.data[:-20])
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), name, when], check=False)
    assert done.returncode == -signal.SIGKILL
    in_place = await finish(path, small.table)
    # All of a small row group may go out in the first write.
    assert in_place == 50 or (name == "writev" and in_place == 51)
    written = pa.table({"id": [0], "name": ["never"]}, schema=small.table.schema)
    await assert_is(path, pa.concat_tables([small.table, written.slice(0, in_place - 50)]).combine_chunks())


# --- what may be written behind


def tables() -> dict[str, pa.Table]:
    """Tables of fifty rows whose Arrow types Parquet alone does not tell."""
    n = range(50)
    zone = datetime.timezone(datetime.timedelta(hours=2))
    moments = [datetime.datetime(2020, 1, 1, tzinfo=zone) + datetime.timedelta(hours=i) for i in n]
    words = pa.array([None if i % 7 == 0 else f"word {i % 5}" for i in n])
    return {
        "times": pa.table(
            {
                "zoned": pa.array(moments, pa.timestamp("us", "Europe/Berlin")),
                "seconds": pa.array(list(n), pa.timestamp("s")),
                "span": pa.array(list(n), pa.duration("ms")),
                "day": pa.array([moment.date() for moment in moments], pa.date64()),
                "time": pa.array(list(n), pa.time32("s")),
            }
        ),
        "nested": pa.table(
            {
                "list": pa.array([None if i % 5 == 0 else [i, None][: i % 3] for i in n], pa.list_(pa.int16())),
                "fixed": pa.array([[i, -i] for i in n], pa.list_(pa.int8(), 2)),
                "struct": pa.array([None if i % 4 == 0 else {"a": i, "b": {"c": "x" * (i % 3)}} for i in n]),
                "map": pa.array([[(f"k{j}", j) for j in range(i % 3)] for i in n], pa.map_(pa.string(), pa.int64())),
                "deep": pa.array([[[j] * j for j in range(i % 4)] for i in n], pa.large_list(pa.list_(pa.int32()))),
            }
        ),
        "values": pa.table(
            {
                "large": pa.array([f"{i}" for i in n], pa.large_string()),
                "money": pa.array([decimal.Decimal(i) / 100 for i in n], pa.decimal128(12, 2)),
                "wide": pa.array([decimal.Decimal(i) for i in n], pa.decimal256(50, 0)),
                "fixed": pa.array([bytes([i] * 3) for i in n], pa.binary(3)),
                "half": pa.array([float(i) for i in n], pa.float16()),
                "none": pa.nulls(50),
                "small": pa.array(list(n), pa.uint8()),
            }
        ),
        "required": pa.table(
            {"n": pa.array(list(n), pa.int32()), "words": words},
            schema=pa.schema([pa.field("n", pa.int32(), nullable=False), pa.field("words", pa.string())]),
        ),
    }


@pytest.mark.parametrize("name", sorted(tables()))
async def test_the_same_batches_fit_as_before(name: str, path: Path, records_in_order: Any) -> None:
    table = tables()[name]
    whole = path.with_name("whole.parquet")
    async with rpq.create(whole, **OPTIONS) as writer:
        await writer.write(table)
    await left_by_writer(path, table.slice(0, 37))
    assert await finish(path, table) == 30
    found, expected = pq.read_table(path), pq.read_table(whole)
    assert found.schema == expected.schema and found.equals(expected)
    keys = [pq.read_metadata(place).metadata for place in (path, whole)]
    assert keys[0][b"ARROW:schema"] == keys[1][b"ARROW:schema"]
    assert pq.ParquetFile(path).schema == pq.ParquetFile(whole).schema
    records_in_order(path.read_bytes())
    assert (await rpq.check(path)).outcome is rpq.Outcome.SOUND


async def test_dictionaries_and_python_values(path: Path) -> None:
    words = pa.array([f"word {i % 3}" for i in range(50)]).dictionary_encode()
    table = pa.table({"word": words, "n": range(50)})
    await left_by_writer(path, table.slice(0, 25))
    async with rpq.resume(path) as writer:
        assert writer.num_rows_stored == 20
        await writer.write(table.slice(20, 15))
        await writer.write({"word": [f"word {i % 3}" for i in range(35, 45)], "n": list(range(35, 45))})
        await writer.write([{"n": i, "word": f"word {i % 3}"} for i in range(45, 50)])
    assert pq.read_table(path).to_pydict() == table.to_pydict()


async def test_a_parquet_schema_that_was_given_stays_what_it_is(path: Path, records_in_order: Any) -> None:
    schema = rpq.Schema.parse(
        """message m {
             required int64 id;
             repeated int32 codes;
             optional group tags (LIST) { repeated group bag { optional binary array_element (STRING); } }
             optional fixed_len_byte_array(5) price (DECIMAL(9, 2));
             optional int96 at;
           }"""
    )
    rows = [
        {
            "id": i,
            "codes": list(range(i % 3)),
            "tags": None if i % 4 == 0 else [f"t{i}", None],
            "price": decimal.Decimal(i) / 4,
            "at": datetime.datetime(2021, 1, 1) + datetime.timedelta(seconds=i),
        }
        for i in range(30)
    ]
    whole = path.with_name("whole.parquet")
    async with rpq.create(whole, schema, **OPTIONS) as writer:
        await writer.write(rows)
    writer = await rpq.create(path, schema, **OPTIONS)
    await writer.write(rows[:15])
    await writer._sink.keep()
    async with rpq.resume(path) as writer:
        assert writer.num_rows_stored == 10
        assert str(writer.schema) == str(schema)
        await writer.write(rows[10:])
    async with rpq.open(path) as file, rpq.open(whole) as expected:
        assert str(file.schema) == str(schema)
        assert pa.table(await file.read()).equals(pa.table(await expected.read()))
    records_in_order(path.read_bytes())
    assert (await rpq.check(path)).outcome is rpq.Outcome.SOUND


async def test_metadata_of_the_file_stay(path: Path) -> None:
    frame = pytest.importorskip("pandas").DataFrame({"n": range(20)}, index=[f"r{i}" for i in range(20)])
    await left_by_writer(path, frame, metadata={"source": "buoy 7"})
    async with rpq.resume(path) as writer:
        assert writer.num_rows_stored == 20
    found = pq.read_metadata(path).metadata
    assert found[b"source"] == b"buoy 7"
    assert pq.read_table(path).to_pandas().equals(frame)


async def test_a_batch_of_another_schema_is_refused_and_nothing_of_it_taken(path: Path, assert_is: Any) -> None:
    table = pa.table({"n": range(40)})
    await left_by_writer(path, table.slice(0, 20))
    async with rpq.resume(path) as writer:
        for wrong in ({"m": [1]}, {"n": ["text"]}, {"n": [1], "more": [2]}):
            with pytest.raises(rpq.SchemaError):
                await writer.write(wrong)
        assert writer.num_rows == 20
        await writer.write(table.slice(20))
    await assert_is(path, table)


async def test_row_groups_are_encoded_as_is_said_anew(path: Path, assert_is: Any) -> None:
    table = pa.table({"n": range(40)})
    await left_by_writer(path, table.slice(0, 20), compression="zstd")
    options = rpq.WriteOptions(data_page_version="2.0", bloom_filter_options=["n"])
    await finish(path, table, compression="snappy", encodings="PLAIN", row_group_rows=5, options=options)
    await assert_is(path, table)
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(i).num_rows for i in range(6)] == [10, 10, 5, 5, 5, 5]
    codecs = [metadata.row_group(i).column(0).compression for i in range(6)]
    assert codecs == ["ZSTD", "ZSTD", "SNAPPY", "SNAPPY", "SNAPPY", "SNAPPY"]


async def test_indexes_of_what_was_in_place(path: Path, assert_is: Any) -> None:
    """Where pages lie is known from the records; what is in them, only of the row groups written since."""
    table = pa.table({"n": range(60)})
    options = rpq.WriteOptions(page_rows=4)
    await left_by_writer(path, table.slice(0, 30), options=options)
    await finish(path, table, options=options)
    await assert_is(path, table)
    async with rpq.open(path) as file:
        for ordinal in range(6):
            assert len((await file.offset_index(ordinal, "n")).page_locations) == 3
            assert (await file.column_index(ordinal, "n") is None) == (ordinal < 3)
        assert (await file.read(columns=["n"], row_groups=[1, 4])).num_rows == 20
    assert pq.read_table(path, filters=[("n", ">=", 25)])["n"].to_pylist() == list(range(25, 60))


# --- the writer that goes on


async def test_what_it_knows_of_checkpoints(path: Path, assert_is: Any) -> None:
    table = pa.table({"n": range(60)})
    await left_by_writer(path, table.slice(0, 30))
    before = in_place(scan_headers(partial(path).read_bytes(), 0))
    async with rpq.resume(path, **OPTIONS) as writer:
        (checkpoint,) = [header for header in before if header.kind == CHECKPOINT]
        assert writer.last_checkpoint == rpq.Checkpoint(1, 20, checkpoint.end, rpq.StoredState.STORED)
        assert (await writer.checkpoint()).num_rows == 30  # a row group stood behind it
        known = writer.num_bytes
        assert (await writer.checkpoint()).ordinal == 2 and writer.num_bytes == known
        await writer.write(table.slice(30))
        assert writer.last_checkpoint.ordinal == 3 and writer.last_checkpoint.num_rows == 50
    await assert_is(path, table)


async def test_it_counts_as_the_first_writer_did(path: Path) -> None:
    """At every checkpoint, and behind row groups that none names: what decides when the next one is due."""

    def counts(writer: rpq.Writer) -> dict[str, int]:
        assert writer._encoder is not None
        layout = writer._encoder.layout
        names = ("offset", "num_rows", "num_checkpoints", "checkpoint_bytes", "checkpoint_end", "serialized_bytes")
        more = ("next_checkpoint_bytes", "num_row_groups_since_checkpoint")
        return {name: getattr(layout, name) for name in (*names, *more)}

    options = {**OPTIONS, "checkpoint_every": None}
    seen: list[tuple[dict[str, int], rpq.Checkpoint]] = []
    writer = await rpq.create(path, pa.schema([("n", pa.int64()), ("s", pa.string())]), **options)
    for step, due in enumerate([False, True, True, False, True, False, False]):
        await writer.write({"n": range(10), "s": [f"{step} {i}" for i in range(10)]})
        if due:
            await writer.checkpoint()
        while counts(writer)["num_rows"] < writer.num_rows:  # noqa: ASYNC110 - it is encoded by a thread
            await asyncio.sleep(0.01)
        seen.append((counts(writer), writer.last_checkpoint))
    await writer._sink.keep()
    data = partial(path).read_bytes()
    for expected, checkpoint in seen:
        leave(path, data[: expected["offset"]])
        resumed = await rpq.resume(path, **options)
        assert (counts(resumed), resumed.last_checkpoint) == (expected, checkpoint)
        await resumed._sink.keep()


async def test_an_error_keeps_what_was_in_place_and_what_came(path: Path, assert_is: Any) -> None:
    table = pa.table({"n": range(60)})
    await left_by_writer(path, table.slice(0, 20))
    with pytest.raises(KeyError, match="mine") as caught:
        async with rpq.resume(path, **OPTIONS) as writer:
            await writer.write(table.slice(20, 20))
            raise KeyError("mine")
    assert "40 rows are kept" in caught.value.__notes__[0]
    assert await finish(path, table) == 40
    await assert_is(path, table)


async def test_aborting_removes_all_of_it(path: Path) -> None:
    await left_by_writer(path, {"n": list(range(20))})
    writer = await rpq.resume(path)
    await writer.abort()
    assert not path.exists() and not partial(path).exists()


async def test_closed_with_no_row_more(path: Path, assert_is: Any) -> None:
    table = pa.table({"n": range(20)})
    await left_by_writer(path, table)
    async with rpq.resume(path):
        pass
    await assert_is(path, table)


# --- what cannot be resumed


async def test_a_living_writer(path: Path) -> None:
    async with rpq.create(path, **OPTIONS) as writer:
        await writer.write({"n": list(range(20))})
        with pytest.raises(rpq.AlreadyExistsError, match="another writer is writing"):
            await rpq.resume(path)
        await writer.write({"n": list(range(20, 40))})
    assert pq.read_table(path)["n"].to_pylist() == list(range(40))


async def test_nothing_there(path: Path) -> None:
    with pytest.raises(rpq.NotFoundError, match="no unfinished file") as caught:
        await rpq.resume(path)
    assert caught.value.hint is not None and str(path) in str(caught.value)


async def test_a_complete_file(path: Path) -> None:
    async with rpq.create(path) as writer:
        await writer.write({"n": [1]})
    with pytest.raises(rpq.RecoveryError, match="complete"):
        await rpq.resume(path)
    assert pq.read_table(path).num_rows == 1


@pytest.mark.parametrize("what", ["nothing", "noise", "zeros", "a file of others"])
async def test_a_partial_file_that_is_none_of_ours(what: str, path: Path) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": [1]}), sink)
    data = {"nothing": b"", "noise": random.Random(1).randbytes(5000), "zeros": bytes(9000)}.get(what, sink.getvalue())
    partial(path).write_bytes(data)
    with pytest.raises(rpq.RecoveryError, match="nothing to resume") as caught:
        await rpq.resume(path)
    assert "overwrite_partial=True" in str(caught.value.hint)
    assert partial(path).read_bytes() == data


async def test_what_a_recovery_made(path: Path, small: Any) -> None:
    """Its rows have gaps; a source could not tell where to go on."""
    place = path.with_name("torn.parquet")
    place.write_bytes(small.data[: small.records(ROW_GROUP)[2].end])
    await rpq.recover(place, path)
    path.rename(partial(path))
    with pytest.raises(rpq.RecoveryError, match="only what a writer left unfinished"):
        await rpq.resume(path)


async def test_the_name_is_taken(path: Path, small: Any, assert_is: Any) -> None:
    leave(path, small.data[:-20])
    path.write_bytes(b"something else")
    with pytest.raises(rpq.AlreadyExistsError) as caught:
        await rpq.resume(path)
    assert "overwrite=True" in str(caught.value.hint)
    assert path.read_bytes() == b"something else" and partial(path).read_bytes() == small.data[:-20]
    await finish(path, small.table, overwrite=True)
    await assert_is(path, small.table)


async def test_the_name_is_taken_meanwhile(path: Path, small: Any) -> None:
    leave(path, small.data[:-20])
    writer = await rpq.resume(path)
    path.write_bytes(b"something else")
    with pytest.raises(rpq.AlreadyExistsError):
        await writer.close()
    assert path.read_bytes() == b"something else" and partial(path).exists()


async def test_settings_that_do_not_fit_are_told_before_anything_is_cut(path: Path, small: Any) -> None:
    leave(path, small.data[:-20])
    with pytest.raises(rpq.SchemaError, match="nosuch"):
        await rpq.resume(path, encodings={"nosuch": "PLAIN"})
    with pytest.raises(rpq.SchemaError):
        rpq.resume(path, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(rpq.RecoveryError, match="no uploads"):
        await rpq.resume(path, upload_id="1")
    assert partial(path).read_bytes() == small.data[:-20]
    await finish(path, small.table)  # nobody holds the lock


async def test_stores_that_keep_nothing() -> None:
    with pytest.raises(rpq.UnsupportedError, match="keeps nothing") as caught:
        await rpq.resume("memory://bucket/day.parquet")
    assert caught.value.hint is not None


async def test_cancelled_while_it_resumes(path: Path, small: Any, assert_is: Any) -> None:
    """The lock is let go of, and what was left can be resumed again."""
    for turns in (0, 1, 3, 6, 10):
        leave(path, small.data[:-20])
        task = asyncio.ensure_future(_resumed(path))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await finish(path, small.table)
        await assert_is(path, small.table)
        os.unlink(path)


async def _resumed(path: Path) -> rpq.Writer:
    return await rpq.resume(path)
