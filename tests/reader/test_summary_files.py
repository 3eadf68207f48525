"""Summaries: one footer that names the row groups of many files, ours and theirs, and what must not be believed."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from faulty_store import Fault, FaultyStore
from file_bytes import file_bytes
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq import ReadOptions
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.file_metadata import FileMetaData, SchemaElement
from resilient_pq.io import MemoryStore, ObjectInfo

FILES = 5
ROWS = 30
SUMMARY = "folder/_metadata"


def table_of(number: int) -> pa.Table:
    rows = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "n": pa.array(rows, pa.int64()),
            "s": [None if i % 7 == 0 else f"text {i % 11}" for i in rows],
            "l": pa.array([None if i % 5 == 0 else [i] * (i % 4) for i in rows], pa.list_(pa.int32())),
        }
    )


ALL = pa.concat_tables([table_of(number) for number in range(FILES)])


def name_of(number: int) -> str:
    return f"day={number // 2}/part {number}.parquet"


def theirs(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=20, write_page_checksum=True)
    return out.getvalue()


async def ours(table: pa.Table) -> bytes:
    return await file_bytes(table, row_group_rows=20, compression="none", encodings="PLAIN")


def summary_by_pyarrow(files: Sequence[tuple[str, bytes]]) -> bytes:
    """As dask and pyarrow make them."""
    collected = []
    for name, data in files:
        metadata = pq.read_metadata(io.BytesIO(data))
        metadata.set_file_path(name)
        collected.append(metadata)
    for metadata in collected[1:]:
        collected[0].append_row_groups(metadata)
    out = io.BytesIO()
    collected[0].write_metadata_file(out)
    return out.getvalue()


def edited(data: bytes, edit: Callable[[FileMetaData], object]) -> bytes:
    """A summary of others with its footer changed."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    metadata, _ = compact_protocol.decode(FileMetaData, data, start)
    edit(metadata)
    return data[:start] + footer.frame(compact_protocol.encode(metadata))


async def folder_of(kind: str, files: int = FILES) -> MemoryStore:
    store = MemoryStore()
    made = []
    for number in range(files):
        table = table_of(number)
        made.append((name_of(number), await ours(table) if kind == "ours" else theirs(table)))
    for name, data in made:
        await store.put(f"folder/{name}", data)
    await store.put(SUMMARY, summary_by_pyarrow(made))
    return store


@pytest.fixture(params=["ours", "theirs"])
async def store(request: pytest.FixtureRequest) -> MemoryStore:
    """A folder of five files and the summary that pyarrow makes of them."""
    return await folder_of(request.param)


async def replace_summary(store: MemoryStore, edit: Callable[[FileMetaData], object]) -> None:
    data = bytes((await store.read_tail(SUMMARY, 1 << 30)).data)
    await store.put(SUMMARY, edited(data, edit))


def set_path(path: str | None, row_group: int = 0, column: int = 0) -> Callable[[FileMetaData], object]:
    return lambda metadata: setattr(metadata.row_groups[row_group].columns[column], "file_path", path)


# --- reading --------------------------------------------------------------------------------------------------


async def test_a_summary_reads_as_one_file(store: MemoryStore) -> None:
    """Made by others of our files too: that no record vouches for its footer is no damage."""
    async with rpq.open((store, SUMMARY)) as file:
        assert (file.num_rows, file.num_row_groups) == (FILES * ROWS, FILES * 2)
        assert file.data_files == tuple(name_of(number) for number in range(FILES))
        assert not file.contents.verified and file.state is None
        assert pa.table(await file.read()).combine_chunks().equals(ALL.combine_chunks())


async def test_a_part_of_a_summary(store: MemoryStore) -> None:
    """Columns and row groups in any order; files that are not needed are not even asked for."""
    recording = RecordingStore(store)
    async with rpq.open((recording, SUMMARY)) as file:
        table = pa.table(await file.read(columns=["s", "n"], row_groups=[9, 2]))
    expected = pa.concat_tables([table_of(4).slice(20), table_of(1).slice(0, 20)])
    assert table.combine_chunks().equals(expected.select(["s", "n"]).combine_chunks())
    touched = {call.key for call in recording.calls} - {SUMMARY}
    assert touched == {f"folder/{name_of(4)}", f"folder/{name_of(1)}"}


@pytest.mark.parametrize("batch_rows", [1, 13, 1000])
async def test_batches_of_a_summary(store: MemoryStore, batch_rows: int) -> None:
    async with rpq.open((store, SUMMARY)) as file:
        batches = [pa.table(batch) async for batch in file.batches(batch_rows, columns=["n"])]
    assert all(batch.num_rows <= batch_rows for batch in batches)
    assert pa.concat_tables(batches)["n"].to_pylist() == ALL["n"].to_pylist()


async def test_fifty_files_are_one_wave() -> None:
    """One question and one read for each file, the questions before the reads; a second read asks nothing."""
    recording = RecordingStore(await folder_of("theirs", files=50))
    async with rpq.open((recording, SUMMARY)) as file:
        assert file.counters.requests == 1
        recording.calls.clear()
        assert (await file.read()).num_rows == 50 * ROWS
        assert [call.verb for call in recording.calls] == ["head"] * 50 + ["read_range"] * 50
        assert file.counters.requests == 101
        await file.read(columns=["s"])
        assert recording.count("head") == 50
        assert recording.count("read_range") == 100


async def test_the_bound_on_requests_holds_over_all_files() -> None:
    class Watched(RecordingStore):
        running = most = 0

        async def _do(self, call: Any, action: Callable[[], Any]) -> Any:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0)
            try:
                return await super()._do(call, action)
            finally:
                self.running -= 1

    watched = Watched(await folder_of("theirs", files=20))
    options = ReadOptions(max_requests=3)
    async with rpq.open((watched, SUMMARY), options=options) as file:
        assert (await file.read()).num_rows == 20 * ROWS
    assert watched.most == 3


async def test_each_chunk_has_a_file_of_its_own(store: MemoryStore) -> None:
    """The format says where a chunk lies chunk by chunk: here each column of a row group lies elsewhere."""
    data = bytes((await store.read_tail(f"folder/{name_of(0)}", 1 << 30)).data)
    for column in ("s", "l"):
        await store.put(f"folder/columns/{column}", data)
    await store.delete(f"folder/{name_of(0)}")
    await store.put("folder/n", data)

    def spread(metadata: FileMetaData) -> None:
        for row_group in metadata.row_groups[:2]:
            for chunk, path in zip(row_group.columns, ("n", "columns/s", "columns/l"), strict=True):
                chunk.file_path = path

    await replace_summary(store, spread)
    async with rpq.open((store, SUMMARY)) as file:
        assert file.data_files[:3] == ("n", "columns/s", "columns/l")
        assert pa.table(await file.read()).combine_chunks().equals(ALL.combine_chunks())


async def test_chunks_without_a_file_path_stay_in_the_file() -> None:
    """A file with rows of its own, one of whose columns lies in another file."""
    store = MemoryStore()
    data = theirs(table_of(0))

    def move(metadata: FileMetaData) -> None:
        for ordinal in (0, 1):
            set_path("other", row_group=ordinal, column=1)(metadata)

    await store.put("folder/other", data)
    await store.put("folder/mixed", edited(data, move))
    recording = RecordingStore(store)
    async with rpq.open((recording, "folder/mixed"), options=ReadOptions(tail_bytes=8)) as file:
        assert pa.table(await file.read()).combine_chunks().equals(table_of(0).combine_chunks())
    assert {call.key for call in recording.calls if call.verb == "read_range"} == {
        "folder/mixed",
        "folder/other",
    }


async def test_a_summary_without_a_folder(store: MemoryStore) -> None:
    for name in (*(name_of(number) for number in range(FILES)), "_metadata"):
        await store.put(name, (await store.read_tail(f"folder/{name}", 1 << 30)).data)
    async with rpq.open((store, "_metadata")) as file:
        assert (await file.read()).num_rows == ALL.num_rows


async def test_a_summary_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        (tmp_path / os.path.dirname(name_of(number))).mkdir(exist_ok=True)
        (tmp_path / name_of(number)).write_bytes(theirs(table_of(number)))
    made = [(name_of(number), theirs(table_of(number))) for number in range(2)]
    (tmp_path / "_metadata").write_bytes(summary_by_pyarrow(made))
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "_metadata", str(tmp_path / "_metadata"), "_metadata", "./_metadata"):
        async with rpq.open(path) as file:
            assert pa.table(await file.read()).combine_chunks().equals(ALL.slice(0, 60).combine_chunks())


async def test_the_schema_alone() -> None:
    """``_common_metadata`` opens as a table without rows."""
    out = io.BytesIO()
    pq.write_metadata(ALL.schema, out)
    store = MemoryStore()
    await store.put("_common_metadata", out.getvalue())
    async with rpq.open((store, "_common_metadata")) as file:
        assert (file.num_rows, file.num_row_groups, file.data_files) == (0, 0, ())
        assert pa.table(await file.read()).equals(ALL.schema.empty_table())
        assert pa.table(await file.read(columns=["l"])).schema.equals(ALL.select(["l"]).schema)
        assert [batch async for batch in file.batches()] == []


async def test_a_schema_alone_that_still_counts_rows(store: MemoryStore) -> None:
    """fastparquet leaves the count of rows in it."""
    await replace_summary(store, lambda metadata: metadata.row_groups.clear())
    async with rpq.open((store, SUMMARY)) as file:
        assert file.num_rows == (await file.read()).num_rows == 0


# --- what must not be believed ----------------------------------------------------------------------------------

HOSTILE = {
    "/etc/passwd": "is an absolute path",
    "//host/share/x": "is an absolute path",
    "s3://other/x": "is a URL",
    "file:///etc/passwd": "is a URL",
    "http:x": "is a URL",
    "simplecache::s3://b/x": "is a URL",
    "C:/windows/x": "is a URL or an absolute path",
    "..": "leads out of the folder",
    "../x.parquet": "leads out of the folder",
    "a/../../x.parquet": "leads out of the folder",
    "a/..": "leads out of the folder",
    "..\\x.parquet": "has a backslash",
    "a\\b.parquet": "has a backslash",
    "a\0b": "null character",
    ".": "not in its plain form",
    "./x": "not in its plain form",
    "a//b": "not in its plain form",
    "a/": "not in its plain form",
}


@pytest.mark.parametrize("path", HOSTILE)
async def test_paths_that_lead_elsewhere_are_refused(store: MemoryStore, path: str) -> None:
    """Without a request for them, and everything else is still read."""
    await replace_summary(store, set_path(path, row_group=1, column=2))
    recording = RecordingStore(store)
    async with rpq.open((recording, SUMMARY)) as file:
        recording.calls.clear()
        with pytest.raises(rpq.FormatError, match=HOSTILE[path]) as caught:
            await file.read()
        assert repr(path) in caught.value.message
        where = caught.value.where
        assert (where.key, where.row_group, where.column) == (f"memory:{SUMMARY}", 1, "l.list.element")
        assert recording.calls == []
        assert (await file.read(columns=["n"])).num_rows == ALL.num_rows
        assert (await file.read(row_groups=[0, 2])).num_rows == 40


async def test_a_check_tells_of_paths_that_lead_elsewhere(store: MemoryStore) -> None:
    await replace_summary(store, set_path("../x", row_group=1, column=2))
    report = await rpq.check((store, SUMMARY))
    (finding,) = report.findings
    assert "leads out of the folder: '../x'" in finding.message
    assert (finding.where.row_group, finding.where.column) == (1, "l.list.element")
    assert (report.num_rows, report.num_row_groups) == (ALL.num_rows - 10, FILES * 2 - 1)
    assert report.next == (("rpq", "metadata", "memory:folder", "--overwrite"),)


@pytest.mark.parametrize("name", ["at=2020-01-01 12:30:00", "12:30", "a..b", "..a", "x.", "köln 東京", "a%2F..", "~"])
async def test_odd_names_are_names(store: MemoryStore, name: str) -> None:
    data = bytes((await store.read_tail(f"folder/{name_of(0)}", 1 << 30)).data)
    await store.put(f"folder/{name}/x", data)

    def move(metadata: FileMetaData) -> None:
        for column in range(3):
            set_path(f"{name}/x", column=column)(metadata)

    await replace_summary(store, move)
    async with rpq.open((store, SUMMARY)) as file:
        assert pa.table(await file.read()).combine_chunks().equals(ALL.combine_chunks())


async def test_a_data_file_that_is_missing_is_named(store: MemoryStore) -> None:
    await store.delete(f"folder/{name_of(3)}")
    async with rpq.open((store, SUMMARY)) as file:
        with pytest.raises(rpq.NotFoundError, match="a data file that the summary names is not there") as caught:
            await file.read()
        assert caught.value.where.key == f"memory:folder/{name_of(3)}"
        assert "rpq metadata" in str(caught.value.hint)
        assert (await file.read(row_groups=[0])).num_rows == 20
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_data_file_that_is_shorter_than_its_chunks(store: MemoryStore) -> None:
    await store.put(f"folder/{name_of(3)}", b"PAR1" + bytes(100))
    async with rpq.open((store, SUMMARY)) as file:
        with pytest.raises(rpq.FormatError, match="a data file that has 104 bytes") as caught:
            await file.read()
    assert caught.value.where.key == f"memory:folder/{name_of(3)}"
    assert caught.value.where.column is not None


@pytest.mark.parametrize("size", [2**62, 2**63 - 10])
async def test_offsets_beyond_any_file(store: MemoryStore, size: int) -> None:
    def move(metadata: FileMetaData) -> None:
        chunk = metadata.row_groups[0].columns[0].meta_data
        assert chunk is not None
        chunk.total_compressed_size = size

    await replace_summary(store, move)
    async with rpq.open((store, SUMMARY)) as file:
        with pytest.raises(rpq.FormatError, match="said to lie"):
            await file.read(row_groups=[0])


async def test_a_data_file_replaced_while_it_is_read(store: MemoryStore) -> None:
    """Pinned when it is first wanted: bytes of two versions never mix, not even between two reads."""
    async with rpq.open((store, SUMMARY)) as file:
        await file.read(columns=["n"])
        data = bytes((await store.read_tail(f"folder/{name_of(2)}", 1 << 30)).data)
        await store.put(f"folder/{name_of(2)}", data)
        with pytest.raises(rpq.ObjectChangedError) as caught:
            await file.read(columns=["s"])
    assert caught.value.where.key == f"memory:folder/{name_of(2)}"


async def test_replaced_between_the_question_and_the_read(store: MemoryStore) -> None:
    class Replacing(RecordingStore):
        async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> Any:
            await store.put(key, theirs(table_of(0)))
            return await super().read_range(key, start, end, pin=pin)

    async with rpq.open((Replacing(store), SUMMARY)) as file:
        with pytest.raises(rpq.ObjectChangedError):
            await file.read()


async def test_damage_names_the_data_file(store: MemoryStore) -> None:
    key = f"folder/{name_of(2)}"
    async with rpq.open((store, SUMMARY)) as file:
        chunk = file.metadata.row_groups[5].columns[1].meta_data
    assert chunk is not None
    data = bytearray((await store.read_tail(key, 1 << 30)).data)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start + chunk.total_compressed_size - 1] ^= 0x10
    await store.put(key, bytes(data))
    async with rpq.open((store, SUMMARY)) as file:
        with pytest.raises(rpq.FormatError) as caught:
            await file.read()
        where = caught.value.where
        assert (where.key, where.row_group, where.column) == (f"memory:{key}", 5, "s")
        assert (await file.read(columns=["n", "l"])).num_rows == ALL.num_rows


async def test_a_bit_that_flipped_on_the_way_is_fetched_again(store: MemoryStore) -> None:
    faulty = FaultyStore(store)
    async with rpq.open((faulty, SUMMARY)) as file:
        await file.read(row_groups=[0])
        before = file.counters.requests
        faulty.faults.append(Fault("read_range", flip_bit=8 * 60))
        assert pa.table(await file.read(["n"], [0])).equals(table_of(0).select(["n"]).slice(0, 20))
        assert file.counters.requests == before + 2


async def test_a_torn_summary_is_to_be_written_again(store: MemoryStore) -> None:
    data = bytes((await store.read_tail(SUMMARY, 1 << 30)).data)
    await store.put(SUMMARY, data[:-5])
    with pytest.raises(rpq.TornFileError) as caught:
        await rpq.open((store, SUMMARY))
    assert caught.value.hint == "rpq metadata memory:folder --overwrite"


async def test_old_writers_that_counted_too_few_bytes() -> None:
    """Of theirs a little more is read than the footer says, but no more than the data file has (PARQUET-816)."""
    store = await folder_of("theirs")
    cut = bytes((await store.read_tail(f"folder/{name_of(0)}", 1 << 30)).data)
    async with rpq.open((store, SUMMARY)) as file:
        last = file.metadata.row_groups[1].columns[2].meta_data
    assert last is not None
    start = min(last.data_page_offset, last.dictionary_page_offset or last.data_page_offset)
    await store.put(f"folder/{name_of(0)}", cut[: start + last.total_compressed_size + 7])
    await replace_summary(store, lambda metadata: setattr(metadata, "created_by", "parquet-mr version 1.2.8"))
    recording = RecordingStore(store)
    async with rpq.open((recording, SUMMARY)) as file:
        assert pa.table(await file.read()).combine_chunks().equals(ALL.combine_chunks())
    ends = [call.end for call in recording.calls if call.key == f"folder/{name_of(0)}" and call.end]
    assert max(ends) == start + last.total_compressed_size + 7


@pytest.mark.parametrize("files", ["[]", "{", '{"a": "1"}', '{"a": true}', "[" * 100_000])
async def test_sizes_that_are_none(files: str) -> None:
    keys = {"rpq.files": files, "rpq.state": "complete", "rpq.file_id": bytes(16).hex()}
    metadata = footer.serialize(
        [SchemaElement(name="schema", num_children=0)],
        [],
        num_rows=0,
        column_orders=None,
        key_value=keys,
        created_by=None,
    )
    store = MemoryStore()
    await store.put(SUMMARY, footer.sealed(metadata, bytes(16), num_rows=0, num_row_groups=0))
    with pytest.raises(rpq.FormatError, match=r"rpq\.files is malformed"):
        await rpq.open((store, SUMMARY))
    # Keys that others copied say nothing.
    await store.put(SUMMARY, b"PAR1" + footer.frame(metadata))
    async with rpq.open((store, SUMMARY)) as file:
        assert file.contents.file_sizes == {}


async def test_on_a_web_server(tmp_path: Path) -> None:
    """Names become parts of URLs."""
    names = ["a b/c%20d?e#f.parquet", "köln/x=1&y.parquet"]
    made = [(name, theirs(table_of(number))) for number, name in enumerate(names)]
    for name, data in made:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    (tmp_path / "_metadata").write_bytes(summary_by_pyarrow(made))
    application = web.Application()
    application.router.add_static("/data", tmp_path)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        async with rpq.open(f"http://127.0.0.1:{port}/data/_metadata") as file:
            assert pa.table(await file.read()).combine_chunks().equals(ALL.slice(0, 60).combine_chunks())
    finally:
        await runner.cleanup()
