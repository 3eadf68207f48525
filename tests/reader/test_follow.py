"""Files that are read while they are written: what comes when, and how it ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format.footer import Footer
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordHeader, RecordKind, parse_header
from resilient_pq.io import LocalStore, MemoryStore
from resilient_pq.reader.newest_footer import newest_footer

Step = Callable[[], Awaitable[object]]


def numbers(start: int, stop: int) -> dict[str, list[Any]]:
    return {"n": list(range(start, stop)), "s": [f"text {i}" for i in range(start, stop)]}


class Script:
    """What happens each time that a follower waits; then it has to end."""

    def __init__(self, *steps: Step) -> None:
        self.waited: list[float] = []
        self._steps = list(steps)

    async def __call__(self, seconds: float) -> None:
        self.waited.append(seconds)
        assert self._steps, "it waits once more than there is anything to wait for"
        await self._steps.pop(0)()

    @property
    def options(self) -> rpq.FollowOptions:
        return rpq.FollowOptions(poll_seconds=7.5, wait=self)


async def nothing() -> None:
    """A look in vain."""


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[rpq.Writer]:
    """Writes row groups of ten rows, and checkpoints when it is told to."""
    found = await new_writer(tmp_path / "f.parquet")
    yield found
    await found.abort()


async def new_writer(path: Path, **options: Any) -> rpq.Writer:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    return await rpq.create(path, schema, row_group_rows=10, checkpoint_every=None, **options)


async def taken(file: rpq.File, **options: Any) -> list[int]:
    return [n async for batch in file.batches(**options) for n in batch.to_pydict()["n"]]


@pytest.mark.filterwarnings("error::resilient_pq.IncompleteFileWarning")
async def test_rows_come_as_checkpoints_appear(writer: rpq.Writer, tmp_path: Path) -> None:
    got: list[int] = []
    seen: list[tuple[int, int, str | None]] = []

    async def no_checkpoint() -> None:
        seen.append((len(got), file.num_rows, file.state))
        await writer.write(numbers(40, 60))

    async def checkpoint() -> None:
        seen.append((len(got), file.num_rows, file.state))
        await writer.checkpoint()

    async def end() -> None:
        seen.append((len(got), file.num_rows, file.state))
        await writer.write(numbers(60, 65))
        await writer.close()

    script = Script(no_checkpoint, nothing, checkpoint, end)
    await writer.write(numbers(0, 40))
    await writer.checkpoint()
    async with rpq.open(tmp_path / "f.parquet", follow=script.options) as file:
        assert (file.num_rows, pa.schema(file.arrow_schema).names) == (40, ["n", "s"])
        assert (await file.read()).num_rows == 40
        async for batch in file.batches(7):
            got += batch.to_pydict()["n"]
        assert (file.num_rows, file.state, file.url) == (65, "complete", str(tmp_path / "f.parquet"))
    assert got == list(range(65))
    assert seen == [(40, 40, "in-progress"), (40, 40, "in-progress"), (60, 60, "in-progress")]
    assert script.waited == [7.5] * 4


async def test_columns_of_it(writer: rpq.Writer, tmp_path: Path) -> None:
    script = Script(writer.close)
    await writer.write(numbers(0, 12))
    await writer.checkpoint()
    async with rpq.open(tmp_path / "f.parquet", follow=script.options) as file:
        batches = [pa.table(batch) async for batch in file.batches(columns=["s"], strings="view")]
    table = pa.concat_tables(batches)
    assert table.column_names == ["s"] and table.num_rows == 12
    assert table.schema.field("s").type == pa.string_view()


async def test_row_groups_by_number_are_those_that_are_there(writer: rpq.Writer, tmp_path: Path) -> None:
    await writer.write(numbers(0, 30))
    await writer.checkpoint()
    async with rpq.open(tmp_path / "f.parquet", follow=Script().options) as file:
        assert await taken(file, row_groups=[2, 0]) == [*range(20, 30), *range(10)]
        with pytest.raises(rpq.SchemaError, match="no row group 3"):
            file.batches(row_groups=[3])


async def test_opening_waits_for_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    writer = await rpq.create(path)

    async def begin() -> None:
        await writer.write(numbers(0, 3))
        await writer.checkpoint()

    script = Script(nothing, begin, writer.close)
    async with rpq.open(path, follow=script.options) as file:
        assert len(script.waited) == 2
        assert await taken(file) == [0, 1, 2]


async def test_it_gets_its_name_while_row_groups_are_read(writer: rpq.Writer, tmp_path: Path) -> None:
    options = rpq.ReadOptions(memory_budget=1)
    await writer.write(numbers(0, 50))
    await writer.checkpoint()
    async with (
        rpq.open(tmp_path / "f.parquet", follow=Script().options, options=options) as file,
        file.batches() as batches,
    ):
        got = (await anext(batches)).to_pydict()["n"]
        await writer.write(numbers(50, 55))
        await writer.close()
        got += [n async for batch in batches for n in batch.to_pydict()["n"]]
    assert got == list(range(55))


async def test_a_writer_that_ends_without_completing_it(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    writer = await new_writer(path, on_error="keep")
    await writer.write(numbers(0, 20))
    await writer.checkpoint()

    async def die() -> None:
        await writer.write(numbers(20, 40))
        await writer.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)

    script = Script(die, nothing)
    got: list[int] = []
    async with rpq.open(path, follow=script.options) as file:
        with pytest.raises(rpq.TornFileError, match="its writer has ended and did not complete it") as caught:
            async for batch in file.batches():
                got += batch.to_pydict()["n"]
    # The writer makes a checkpoint of what is whole before it lets go.
    assert got == list(range(file.num_rows)) and len(got) >= 20
    assert caught.value.where.key == f"{path}.partial"
    assert caught.value.hint is not None and f"rpq recover {path}.partial" in caught.value.hint


async def test_a_writer_that_takes_it_over_is_followed_on(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    first = await new_writer(path, on_error="keep")
    await first.write(numbers(0, 20))
    await first.checkpoint()
    await first.write(numbers(20, 25))
    second: list[rpq.Writer] = []

    async def die() -> None:
        await first.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)

    async def resume() -> None:
        second.append(await rpq.resume(path, row_group_rows=10, checkpoint_every=None))

    async def end() -> None:
        await second[0].write(numbers(second[0].num_rows_stored, 45))
        await second[0].close()

    script = Script(die, resume, end)
    async with rpq.open(path, follow=script.options) as file:
        assert await taken(file) == list(range(45))


async def test_a_writer_that_gives_it_up(writer: rpq.Writer, tmp_path: Path) -> None:
    await writer.write(numbers(0, 20))
    await writer.checkpoint()
    async with rpq.open(tmp_path / "f.parquet", follow=Script(writer.abort).options) as file:
        with pytest.raises(rpq.NotFoundError, match="gave the file up"):
            await taken(file)


async def test_another_file_takes_its_place(writer: rpq.Writer, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    await writer.write(numbers(0, 20))
    await writer.checkpoint()

    async def replace() -> None:
        await writer.abort()
        pq.write_table(pa.table(numbers(0, 5)), path)

    async with rpq.open(path, follow=Script(replace).options) as file:
        with pytest.raises(rpq.ObjectChangedError, match="another file took the place"):
            await taken(file)


async def test_files_that_are_complete(tmp_path: Path) -> None:
    async with rpq.create(tmp_path / "ours.parquet") as writer:
        await writer.write(numbers(0, 5))
    pq.write_table(pa.table(numbers(0, 5)), tmp_path / "theirs.parquet")
    for name in ("ours", "theirs"):
        async with rpq.open(tmp_path / f"{name}.parquet", follow=Script().options) as file:
            assert await taken(file) == list(range(5))


async def test_a_checkpoint_without_its_writer(writer: rpq.Writer, tmp_path: Path) -> None:
    """As a copy of what was written so far, under a name of its own."""
    await writer.write(numbers(0, 20))
    await writer.checkpoint()
    (tmp_path / "copy.parquet").write_bytes((tmp_path / "f.parquet.partial").read_bytes())
    got: list[int] = []
    async with rpq.open(tmp_path / "copy.parquet", follow=Script(nothing).options) as file:
        with pytest.raises(rpq.TornFileError, match="its writer has ended"):
            async for batch in file.batches():
                got += batch.to_pydict()["n"]
    assert got == list(range(20))


async def test_where_nothing_can_be_followed(tmp_path: Path) -> None:
    with pytest.raises(rpq.UnsupportedError, match="shows no object before it is complete"):
        await rpq.open((MemoryStore(), "file"), follow=True)
    with pytest.raises(rpq.NotFoundError):
        await rpq.open(tmp_path / "nothing.parquet", follow=True)
    (tmp_path / "text.parquet.partial").write_bytes(b"no such file" * 100)
    with pytest.raises(rpq.NotParquetError, match="can be followed"):
        await rpq.open(tmp_path / "text.parquet", follow=True)
    for wrong in ("yes", 1, None):
        with pytest.raises(rpq.SchemaError, match="follow is"):
            rpq.open(tmp_path / "f.parquet", follow=wrong)  # type: ignore[arg-type]
    for options in ({"poll_seconds": 0}, {"poll_seconds": "1"}, {"wait": 1}):
        with pytest.raises(rpq.SchemaError):
            rpq.FollowOptions(**options)  # type: ignore[arg-type]


async def test_leaving_early_leaves_nothing(writer: rpq.Writer, tmp_path: Path) -> None:
    await writer.write(numbers(0, 40))
    await writer.checkpoint()
    async with rpq.open(tmp_path / "f.parquet", follow=True) as file:
        async with file.batches() as batches:
            await anext(batches)
        waiting = asyncio.ensure_future(taken(file))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_the_blocking_twin(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    writer = sync.create(path, row_group_rows=10, checkpoint_every=None)
    writer.write(numbers(0, 20))
    writer.checkpoint()

    async def end(seconds: float) -> None:
        await writer._target.write(numbers(20, 25))
        await writer._target.close()

    with sync.open(path, follow=rpq.FollowOptions(wait=end)) as file:
        reader = pa.RecordBatchReader.from_stream(file)
        assert reader.read_all().to_pydict() == numbers(0, 25)


async def test_a_writer_is_held_as_long_as_it_lives(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    sink = await store.create("f")
    assert (store.unfinished_key("f"), await store.has_writer("f.partial")) == ("f.partial", True)
    await sink.keep()
    assert await store.has_writer("f.partial") is False
    with pytest.raises(rpq.NotFoundError):
        await store.has_writer("f")


async def test_links_stay_links(tmp_path: Path) -> None:
    os.symlink(tmp_path / "real.parquet", tmp_path / "link.parquet")
    writer = await new_writer(tmp_path / "link.parquet")
    await writer.write(numbers(0, 20))
    await writer.checkpoint()
    async with rpq.open(tmp_path / "link.parquet", follow=Script(writer.close).options) as file:
        assert await taken(file) == list(range(20))


# --- the newest footer in bytes -----------------------------------------------------------------------------------


def found_in(data: bytes, since: int = 0) -> tuple[Footer | None, int]:
    """The footer, and how many bytes were read for it."""
    asking: Generator[ByteRange, memoryview, Footer | None] = newest_footer(len(data), since)
    num_bytes = 0
    try:
        wanted = next(asking)
        while True:
            assert wanted.end <= len(data)
            num_bytes += wanted.size
            wanted = asking.send(memoryview(data)[wanted.start : wanted.end])
    except StopIteration as stop:
        return stop.value, num_bytes


def footers_of(data: bytes) -> list[RecordHeader]:
    found = (parse_header(data[at : at + HEADER_SIZE]) for at in range(len(data) - HEADER_SIZE))
    kinds = (RecordKind.ANCHOR, RecordKind.CHECKPOINT, RecordKind.FINAL)
    return [header for header in found if header is not None and header.kind in kinds]


def test_the_newest_whole_one_wherever_the_file_ends(our_bytes: bytes) -> None:
    headers = footers_of(our_bytes)
    assert [header.kind for header in headers] == [1, 3, 3, 4]
    ends = sorted({end + by for header in headers for end in (header.offset, header.end) for by in (-1, 0, 1, 95, 96)})
    for size in [*range(0, len(our_bytes), 37), *ends]:
        data = our_bytes[:size]
        whole = [header for header in headers if header.end <= len(data)]
        found, _ = found_in(data)
        if not whole:
            assert found is None
            continue
        assert found is not None and found.record == whole[-1]
        for known in whole:
            newer, num_bytes = found_in(data, known.offset)
            expected = None if known == whole[-1] else whole[-1]
            assert (None if newer is None else newer.record) == expected
            assert num_bytes <= 100 + 3 * (len(data) - known.offset) + HEADER_SIZE


def test_no_more_is_read_than_is_new() -> None:
    async def make() -> bytes:
        store = MemoryStore()
        noise = os.urandom(400_000)
        async with rpq.create((store, "f"), row_group_rows=1, checkpoint_every=1, checkpoint_overhead=9) as writer:
            for _ in range(12):
                await writer.write({"noise": [noise]})
        return bytes((await store.read_tail("f", 1 << 30)).data)

    data = asyncio.run(make())
    checkpoint = footers_of(data[:2_000_000])[-1]
    found, num_bytes = found_in(data)
    assert found is not None and found.record is not None and found.record.kind == RecordKind.FINAL
    assert num_bytes < 300_000
    torn = data[: checkpoint.end + 300_000]
    nothing_new, num_bytes = found_in(torn, checkpoint.offset)
    assert nothing_new is None and num_bytes < 600_000


def test_records_that_lie_lead_to_nothing(our_bytes: bytes) -> None:
    """Sums hold, offsets do not: whoever can write records could write anything into them."""
    headers = footers_of(our_bytes)
    size = headers[1].offset
    for newest in (0, 5, size - 1, size, 1 << 60):
        lying = RecordHeader(
            kind=RecordKind.ROW_GROUP, epoch=0, file_id=headers[0].file_id, offset=size, previous=4, newest_footer=newest,
            num_rows=1, num_row_groups=1, number=9, payload_size=0, payload_hash=0, payload_crc=0,
        )  # fmt: skip
        found, _ = found_in(our_bytes[:size] + lying.pack())
        assert found is None or found.record == headers[0]
    with pytest.raises(rpq.NotParquetError):
        found_in(b"PAR1" + bytes(200))
