"""`recover` as a whole: what it refuses, what it writes, and that it writes nothing when it fails."""

from __future__ import annotations

import asyncio
import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_store import Fault, FaultyStore
from file_bytes import content
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.io import LocalStore
from resilient_pq.io.memory_store import MemoryStore


async def holding(data: bytes) -> MemoryStore:
    store = MemoryStore()
    await store.put("torn", data)
    return store


def torn(small: Any) -> bytes:
    """Cut within the fifth row group."""
    data: bytes = small.data[: small.records(RecordKind.CHUNK)[-1].end + 20]
    return data


class TestOutput:
    async def test_the_source_itself_is_refused(self, small: Any) -> None:
        store = await holding(torn(small))
        for overwrite in (False, True):
            with pytest.raises(rpq.RecoveryError, match="the file that is read"):
                await rpq.recover((store, "torn"), (store, "torn"), overwrite=overwrite)
        assert await content(store, "torn") == torn(small)

    @pytest.mark.parametrize("how", ["path", "relative", "symbolic link", "hard link", "file URL"])
    async def test_the_source_by_another_name_is_refused(
        self, small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        source, other = tmp_path / "torn.parquet", tmp_path / "other.parquet"
        source.write_bytes(torn(small))
        monkeypatch.chdir(tmp_path)
        names = {
            "path": str(source),
            "relative": "./torn.parquet",
            "symbolic link": str(other),
            "hard link": str(other),
            "file URL": source.as_uri(),
        }
        if how == "symbolic link":
            other.symlink_to(source)
        if how == "hard link":
            os.link(source, other)
        with pytest.raises(rpq.RecoveryError, match="the file that is read"):
            await rpq.recover(source, names[how], overwrite=True)
        assert source.read_bytes() == torn(small)

    async def test_the_name_that_the_writer_of_the_source_meant(self, small: Any, tmp_path: Path) -> None:
        """The output does not need the NAME.partial that is the source, nor does it touch it."""
        source = tmp_path / "day.parquet.partial"
        source.write_bytes(torn(small))
        for overwrite in (False, True):
            report = await rpq.recover(source, tmp_path / "day.parquet", overwrite=overwrite)
            assert pq.read_table(tmp_path / "day.parquet").num_rows == report.num_rows == 40
        assert sorted(os.listdir(tmp_path)) == ["day.parquet", source.name]
        assert source.read_bytes() == torn(small)

    async def test_an_existing_object_is_refused(self, small: Any) -> None:
        store = await holding(torn(small))
        await store.put("out", b"mine")
        with pytest.raises(rpq.AlreadyExistsError, match="overwrite"):
            await rpq.recover((store, "torn"), (store, "out"))
        assert await content(store, "out") == b"mine"

    async def test_an_existing_object_is_replaced_when_asked(self, small: Any) -> None:
        store = await holding(torn(small))
        await store.put("out", b"mine")
        report = await rpq.recover((store, "torn"), (store, "out"), overwrite=True)
        assert pq.read_table(io.BytesIO(await content(store, "out"))).num_rows == report.num_rows == 40

    async def test_an_existing_object_stays_when_there_is_nothing_to_recover(self, small: Any) -> None:
        store = await holding(small.data[: small.records(RecordKind.ANCHOR)[0].end + 50])
        await store.put("out", b"mine")
        with pytest.raises(rpq.NothingToRecoverError):
            await rpq.recover((store, "torn"), (store, "out"), overwrite=True)
        assert await content(store, "out") == b"mine"

    async def test_from_one_store_to_another(self, small: Any, tmp_path: Path) -> None:
        store = await holding(torn(small))
        await rpq.recover((store, "torn"), tmp_path / "out.parquet")
        assert pq.read_table(tmp_path / "out.parquet").equals(small.table.slice(0, 40))
        assert os.listdir(tmp_path) == ["out.parquet"]

    async def test_a_source_that_is_not_there(self) -> None:
        store = MemoryStore()
        with pytest.raises(rpq.NotFoundError, match="memory:torn"):
            await rpq.recover((store, "torn"), (store, "out"))


class TestWhatIsWritten:
    async def test_bytes_up_to_the_last_whole_record_stay_where_they_are(self, small: Any) -> None:
        store = await holding(torn(small))
        report = await rpq.recover((store, "torn"), (store, "out"))
        end = small.records(RecordKind.CHECKPOINT)[-1].end
        output = await content(store, "out")
        assert output.startswith(small.data[:end])
        assert report.kept is not None and report.kept.num_bytes == end

    async def test_the_lineage_says_where_it_comes_from_and_what_is_missing(self, small: Any) -> None:
        store = await holding(torn(small))
        report = await rpq.recover((store, "torn"), (store, "out"))
        keys = pq.read_metadata(io.BytesIO(await content(store, "out"))).metadata
        assert keys[b"rpq.state"] == b"salvaged"
        assert keys[b"rpq.file_id"].decode() == small.headers[0].file_id.hex()
        lineage = json.loads(keys[b"rpq.recovered_from"])
        assert (lineage["size"], lineage["rows_lost"]) == (len(torn(small)), None)
        assert lineage["source"] == "memory:torn"
        assert report.kept is not None
        assert lineage["lost"] == [[region.start, region.end, region.num_rows] for region in report.kept.lost]

    async def test_the_lineage_of_a_damaged_row_group(self, small: Any) -> None:
        chunk = next(header for header in small.records(RecordKind.CHUNK) if header.num_row_groups == 1)
        store = await holding(small.zeroed((chunk.end, chunk.end + 30)))
        report = await rpq.recover((store, "torn"), (store, "out"))
        assert (report.outcome, report.num_rows) == (rpq.Outcome.PARTIAL, 40)
        keys = pq.read_metadata(io.BytesIO(await content(store, "out"))).metadata
        lineage = json.loads(keys[b"rpq.recovered_from"])
        assert lineage["rows_lost"] == 10
        assert len(lineage["lost"]) == 1
        # Bytes have moved: it is another file now.
        assert keys[b"rpq.file_id"].decode() != small.headers[0].file_id.hex()

    async def test_keys_of_the_user_are_kept(self, write_file: Any, small: Any) -> None:
        written = await write_file(small.table, metadata={"made by": "me"})
        chunk = next(header for header in written.records(RecordKind.CHUNK) if header.num_row_groups == 1)
        for data in (torn(written), written.zeroed((chunk.end, chunk.end + 30))):
            store = await holding(data)
            await rpq.recover((store, "torn"), (store, "out"))
            assert pq.read_metadata(io.BytesIO(await content(store, "out"))).metadata[b"made by"] == b"me"

    async def test_damaged_second_copies_are_not_copied(self, small: Any) -> None:
        """Else the output would be damaged from its first day on."""
        for kind in (RecordKind.ANCHOR, RecordKind.CHUNK, RecordKind.ROW_GROUP, RecordKind.CHECKPOINT):
            record = small.records(kind)[0]
            for data in (
                small.zeroed((record.offset + 20, record.offset + 40)),
                small.zeroed((record.offset + 20, record.offset + 40))[:-5],
            ):
                store = await holding(data)
                report = await rpq.recover((store, "torn"), (store, "out"))
                assert (report.outcome, report.num_rows) == (rpq.Outcome.RECOVERED, 50)
                again = await rpq.check((store, "out"))
                assert again.outcome == rpq.Outcome.INCOMPLETE
                assert [finding.damage for finding in again.findings] == [rpq.Damage.UNFINISHED]

    async def test_progress_is_told(self, large: Any) -> None:
        seen: list[tuple[int, int]] = []
        store = await holding(large.data[:-1])
        await rpq.recover((store, "torn"), (store, "out"), progress=lambda *told: seen.append(told))
        assert seen == sorted(seen)
        assert {total for _, total in seen} == {len(large.data) - 1}


class TestFailures:
    """Whatever fails, nothing is published, and the source is as it was."""

    @pytest.mark.parametrize(
        "fault",
        [
            Fault("create", rpq.AccessDeniedError("no")),
            Fault("write", rpq.StoreError("full")),
            Fault("write", rpq.StoreError("full"), skip=1),
            Fault("complete", rpq.StoreError("refused")),
            Fault("complete", rpq.AlreadyExistsError("somebody was faster")),
            Fault("write", asyncio.CancelledError()),
        ],
        ids=["create", "first write", "second write", "complete", "exists", "cancelled"],
    )
    @pytest.mark.parametrize("in_place", [True, False])
    async def test_of_the_output(self, small: Any, fault: Fault, in_place: bool) -> None:
        chunk = next(header for header in small.records(RecordKind.CHUNK) if header.num_row_groups == 1)
        data = torn(small) if in_place else small.zeroed((chunk.end, chunk.end + 30))
        inner = await holding(data)
        recording = RecordingStore(FaultyStore(inner, [Fault(**_fields(fault))]))
        with pytest.raises(type(fault.error)):
            await rpq.recover((inner, "torn"), (recording, "out"))
        with pytest.raises(rpq.NotFoundError):
            await inner.head("out")
        if recording.count("write"):
            assert recording.calls[-1].verb == "abort"
        assert await content(inner, "torn") == data

    @pytest.mark.parametrize("verb", ["head", "read_tail", "read_range"])
    async def test_of_the_source(self, small: Any, verb: str) -> None:
        inner = await holding(torn(small))
        recording = RecordingStore(inner)
        await rpq.recover((recording, "torn"), (MemoryStore(), "out"))
        calls = recording.count(verb)
        assert calls
        for skip in range(12):
            faulty = FaultyStore(inner, [Fault(verb, rpq.StoreError("gone"), skip=skip)])
            if skip >= calls:
                break
            with pytest.raises(rpq.StoreError, match="gone"):
                await rpq.recover((faulty, "torn"), (inner, "out"))
            with pytest.raises(rpq.NotFoundError):
                await inner.head("out")
        assert await content(inner, "torn") == torn(small)

    async def test_a_bit_that_flips_once_on_the_way_is_not_believed(self, small: Any) -> None:
        """It is the transfer that was damaged, not the file."""
        inner = await holding(small.data)
        recording = RecordingStore(inner)
        await rpq.check((recording, "torn"))
        reads = [call for call in recording.calls if call.verb == "read_range"]
        assert len(reads) == 2, "one for the chunks, one for records and indexes"
        tail = [Fault("read_tail", flip_bit=8 * (len(small.data) - back)) for back in (2, 8, 50)]
        anywhere = [
            Fault("read_range", flip_bit=bit, skip=skip)
            for skip, call in enumerate(reads)
            for bit in range(13, 8 * ((call.end or 0) - (call.start or 0)), 8 * 101)
        ]
        for fault in tail + anywhere:
            report = await rpq.check((FaultyStore(inner, [fault]), "torn"))
            assert fault.times == 0
            assert (report.outcome, report.findings) == (rpq.Outcome.SOUND, ())

    async def test_a_bit_that_flips_while_chunks_get_new_places_gets_no_new_checksum(self, small: Any) -> None:
        chunk = next(header for header in small.records(RecordKind.CHUNK) if header.num_row_groups == 1)
        inner = await holding(small.zeroed((chunk.end, chunk.end + 30)))
        recording = RecordingStore(inner)
        await rpq.recover((recording, "torn"), (inner, "wanted"))
        wanted = pq.read_table(io.BytesIO(await content(inner, "wanted")))
        for skip in range(recording.count("read_range")):
            faulty = FaultyStore(inner, [Fault("read_range", flip_bit=13, skip=skip)])
            report = await rpq.recover((faulty, "torn"), (inner, "out"), overwrite=True)
            assert report.num_rows == 40
            assert pq.read_table(io.BytesIO(await content(inner, "out"))).equals(wanted)
            again = await rpq.check((inner, "out"))
            assert [finding.damage for finding in again.findings] == [rpq.Damage.UNFINISHED]

    async def test_a_chunk_that_breaks_between_two_reads(self, small: Any) -> None:
        chunk = next(header for header in small.records(RecordKind.CHUNK) if header.num_row_groups == 1)
        inner = await holding(small.zeroed((chunk.end, chunk.end + 30)))
        place = small.records(RecordKind.CHUNK)[-1].end + 10

        class Breaking(FaultyStore):
            """One byte is another one from some read of it on."""

            num_reads, num_whole = 0, 1000

            async def read_range(self, key: str, start: int, end: int, *, pin: Any) -> Any:
                data = bytearray(await super().read_range(key, start, end, pin=pin))
                if start <= place < end:
                    data[place - start] ^= self.num_reads >= self.num_whole
                    self.num_reads += 1
                return bytes(data)

        breaking = Breaking(inner)
        await rpq.recover((breaking, "torn"), (inner, "wanted"))
        breaking.num_whole, breaking.num_reads = breaking.num_reads - 1, 0
        with pytest.raises(rpq.TransientError, match="whole before"):
            await rpq.recover((breaking, "torn"), (inner, "out"))
        with pytest.raises(rpq.NotFoundError):
            await inner.head("out")

    async def test_a_source_that_is_replaced_meanwhile(self, small: Any) -> None:
        inner = await holding(torn(small))

        class Replacing(FaultyStore):
            async def read_range(self, key: str, start: int, end: int, *, pin: Any) -> Any:
                if start > 2000:
                    await inner.put("torn", small.data)
                return await super().read_range(key, start, end, pin=pin)

        with pytest.raises(rpq.ObjectChangedError):
            await rpq.recover((Replacing(inner), "torn"), (inner, "out"))
        with pytest.raises(rpq.NotFoundError):
            await inner.head("out")

    async def test_a_cancelled_recovery_leaves_nothing(self, large: Any, tmp_path: Path) -> None:
        store = await holding(large.data[:-1])
        begun = asyncio.Event()

        class Watched(LocalStore):
            async def create(self, *arguments: Any) -> Any:
                begun.set()
                return await super().create(*arguments)

        output = (Watched(), str(tmp_path / "out.parquet"))
        task = asyncio.create_task(rpq.recover((store, "torn"), output))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert os.listdir(tmp_path) == []


def _fields(fault: Fault) -> dict[str, Any]:
    """A fault is used up, so each test makes its own."""
    return {name: getattr(fault, name) for name in Fault.__slots__}


async def test_a_recovered_file_of_an_old_writer_is_read() -> None:
    """Its chunks are larger than their writer counted (PARQUET-816), but not those that the recovery laid out."""
    out = io.BytesIO()
    pq.write_table(pa.table({"n": range(100)}), out, row_group_size=20)
    data = out.getvalue()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    metadata, _ = compact_protocol.decode(FileMetaData, data, start)
    metadata.created_by = "parquet-mr version 1.2.8"
    chunk = metadata.row_groups[2].columns[0].meta_data
    assert chunk is not None
    changed = bytearray(data[:start] + footer.frame(compact_protocol.encode(metadata)))
    changed[(chunk.dictionary_page_offset or chunk.data_page_offset) + 1] ^= 0x70
    store = MemoryStore()
    await store.put("file", bytes(changed))
    report = await rpq.recover((store, "file"), (store, "out"))
    assert (report.outcome, report.num_rows) == (rpq.Outcome.PARTIAL, 80)
    with pytest.warns(rpq.IncompleteFileWarning):
        async with rpq.open((store, "out")) as file:
            assert (await file.read()).to_pydict()["n"] == [*range(40), *range(60, 100)]


@pytest.mark.parametrize("at", range(10))
async def test_sums_that_are_none_in_a_damaged_footer_do_not_stop_a_recovery(small: Any, at: int) -> None:
    """All records of metadata are damaged, the last in nothing but the sums of a chunk: it still tells of all pages."""
    metadata = [*small.records(RecordKind.ANCHOR), *small.records(RecordKind.CHECKPOINT)]
    damaged = bytearray(small.zeroed(*((header.end - 20, header.end) for header in metadata)))
    place = small.records(RecordKind.FINAL)[0].offset
    for _ in range(at + 1):
        place = damaged.index(b"rpq.crc32", place + 1)
    damaged[place + len("rpq.crc32") + 4] = ord("T")
    store = await holding(bytes(damaged))
    assert (await rpq.check((store, "torn"))).num_rows == 50
    report = await rpq.recover((store, "torn"), (store, "whole"))
    assert (report.outcome, report.kept.num_rows) == ("recovered", 50)
    assert pq.read_table(io.BytesIO(await content(store, "whole"))).equals(small.table)


async def test_a_stored_arrow_schema_that_is_damaged_is_left_out() -> None:
    """Others refuse a file with one: the output is to be read by everybody."""
    table, sink = pa.table({"n": range(60), "s": [f"text {i}" for i in range(60)]}), io.BytesIO()
    pq.write_table(table, sink, row_group_size=20)
    data = bytearray(sink.getvalue())
    data[data.rindex(b"ARROW:schema") + 40] = ord("!")
    with pytest.raises(pa.ArrowInvalid, match="base64"):
        pq.read_table(io.BytesIO(data))
    store = await holding(bytes(data[:-1]))  # the last of the magic is missing
    report = await rpq.recover((store, "torn"), (store, "whole"))
    assert (report.outcome, report.num_rows) == ("recovered", 60)
    assert pq.read_table(io.BytesIO(await content(store, "whole"))).equals(table)


@pytest.mark.parametrize("use_dictionary", [False, True])
async def test_a_row_group_without_rows_or_pages_goes_along(use_dictionary: bool) -> None:
    """Some writers make one of an empty table; a damaged one beside it makes all others move."""
    sink, table = io.BytesIO(), pa.table({"a": list(range(100)), "s": [f"{i}" for i in range(100)]})
    with pq.ParquetWriter(sink, table.schema, use_dictionary=use_dictionary) as writer:
        for rows in (table, table.slice(0, 0), table):
            writer.write_table(rows)
    data = bytearray(sink.getvalue())
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(2).column(0)
    data[chunk.data_page_offset : chunk.data_page_offset + 8] = bytes(8)
    store = await holding(bytes(data))
    report = await rpq.recover((store, "torn"), (store, "out"))
    assert (report.outcome, report.num_rows) == (rpq.Outcome.PARTIAL, 100)
    assert pq.read_table(io.BytesIO(await content(store, "out"))).equals(table)


@pytest.mark.parametrize("first", [10, 1000])
async def test_of_several_files_that_are_cut_the_one_with_most_pages_is_taken(first: int) -> None:
    tables = [pa.table({"n": list(range(rows)), "s": [f"{i}" for i in range(rows)]}) for rows in (first, 1010 - first)]
    files = []
    for table in tables:
        pq.write_table(table, sink := io.BytesIO(), use_dictionary=False)
        data = sink.getvalue()
        files.append(data[: -8 - int.from_bytes(data[-8:-4], "little")])
    larger = int(first == 10)
    store = await holding(files[0] + files[1])
    report = await rpq.recover((store, "torn"), (store, "out"))
    (told,) = [finding for finding in report.findings if "several files" in finding.message]
    assert told.where.offset == (len(files[0]) if larger else 0)
    assert pq.read_table(io.BytesIO(await content(store, "out"))).num_rows == 1000
