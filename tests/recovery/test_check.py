"""`check` as a whole: its outcomes, its exit codes, and the command to run next."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq.format import kernels
from resilient_pq.format.levels import slice_rows
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.writer import file_encoder


async def checked(data: bytes) -> rpq.Report:
    store = MemoryStore()
    await store.put("file", data)
    return await rpq.check((store, "file"))


async def test_sound(small: Any) -> None:
    report = await checked(small.data)
    assert (report.verb, report.outcome, report.exit_code) == ("check", rpq.Outcome.SOUND, 0)
    assert (report.num_rows, report.num_row_groups, report.size) == (50, 5, len(small.data))
    assert (report.findings, report.next, report.kept) == ((), (), None)
    assert report.schema is not None and "name" in report.schema


async def test_incomplete(small: Any) -> None:
    report = await checked(small.data[: small.records(RecordKind.CHECKPOINT)[-1].end])
    assert (report.outcome, report.exit_code, report.num_rows) == (rpq.Outcome.INCOMPLETE, 1, 40)
    (finding,) = report.findings
    assert (finding.damage, finding.costs_rows) == (rpq.Damage.UNFINISHED, False)
    assert report.next == (("rpq", "recover", "memory:file", "memory:file.recovered.parquet"),)


async def test_torn(small: Any) -> None:
    report = await checked(small.data[:-1])
    assert (report.outcome, report.exit_code, report.num_rows) == (rpq.Outcome.DAMAGED, 1, 50)
    assert report.findings[0].damage == rpq.Damage.TORN
    assert report.next


async def test_no_command_is_given_for_what_another_process_cannot_open(small: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(small.data[:-1])
    with (tmp_path / "file").open("rb") as file:
        report = await rpq.check(f"/dev/fd/{file.fileno()}")
    assert (report.outcome, report.next) == (rpq.Outcome.DAMAGED, ())


async def test_a_page(small: Any) -> None:
    chunk = next(header for header in small.records(RecordKind.CHUNK) if header.num_row_groups == 2)
    changed = bytearray(small.data)
    changed[chunk.end + 40] ^= 1
    report = await checked(bytes(changed))
    assert (report.outcome, report.num_rows, report.num_row_groups) == (rpq.Outcome.DAMAGED, 40, 4)
    (finding,) = report.findings
    assert (finding.where.row_group, finding.where.column, finding.costs_rows) == (2, "id", True)
    assert report.next


@pytest.mark.parametrize("data", [b"", b"PAR1", b"hello, world" * 100], ids=["empty", "magic", "text"])
async def test_nothing(data: bytes) -> None:
    report = await checked(data)
    assert (report.outcome, report.exit_code, report.num_rows) == (rpq.Outcome.NOTHING, 3, 0)
    assert (report.next, report.schema) == ((), None)
    assert report.findings


async def test_what_this_version_cannot_read_is_not_called_damaged() -> None:
    """Of a whole file whose footer has another form nothing is known."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2]}), sink)
    data = sink.getvalue()[:-4] + b"PARX"
    with pytest.raises(rpq.UnsupportedError, match="the footer"):
        await checked(data)
    store = MemoryStore()
    await store.put("file", data)
    with pytest.raises(rpq.UnsupportedError, match="the footer"):
        await rpq.recover((store, "file"), (store, "out"))
    assert not await store.exists("out")


async def test_all_row_groups_damaged(small: Any) -> None:
    places = [(header.end, header.end + 40) for header in small.records(RecordKind.CHUNK)]
    report = await checked(small.zeroed(*places))
    assert (report.outcome, report.exit_code) == (rpq.Outcome.NOTHING, 3)


async def test_a_file_without_rows_is_sound(write_file: Any, small: Any) -> None:
    written = await write_file(small.table.slice(0, 0))
    report = await checked(written.data)
    assert (report.outcome, report.num_rows) == (rpq.Outcome.SOUND, 0)


async def test_what_cannot_be_decoded_is_not_called_damaged(small: Any) -> None:
    """A codec that is not known here says nothing about the file."""
    sink = io.BytesIO()
    pq.write_table(small.table, sink, compression="none")
    contents = pq.read_metadata(io.BytesIO(sink.getvalue()))
    assert contents.row_group(0).column(0).compression == "UNCOMPRESSED"
    # The codec is a thrift i32 behind the path in the schema; 63 is one of the future.
    data = sink.getvalue()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:]
    for name in (b"id", b"name"):
        place = b"\x18" + bytes([len(name)]) + name + b"\x15\x00"  # list of one string, then codec 0
        assert footer.count(place) == 1
        footer = footer.replace(place, place[:-1] + b"\x7e")
    report = await checked(data[:start] + footer)
    assert {finding.damage for finding in report.findings} == {rpq.Damage.UNVERIFIED}
    assert (report.outcome, report.exit_code) == (rpq.Outcome.SOUND, 0)


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("day.parquet", "day.recovered.parquet"),
        ("day.parquet.partial", "day.recovered.parquet"),
        ("day", "day.recovered.parquet"),
    ],
)
async def test_the_next_command_names_both_files(small: Any, tmp_path: Path, name: str, output: str) -> None:
    path = tmp_path / name
    path.write_bytes(small.data[:-1])
    report = await rpq.check(path)
    (command,) = report.next
    assert command == ("rpq", "recover", str(path), str(tmp_path / output))
    report = await rpq.recover(*command[2:])
    assert report.next == (("rpq", "check", str(tmp_path / output)),)
    assert (await rpq.check(report.next[0][2])).num_rows == 50


async def test_nothing_is_written(small: Any) -> None:
    store = RecordingStore(MemoryStore())
    await store.put("file", small.data[:-1])
    store.calls.clear()
    await rpq.check((store, "file"))
    assert {call.verb for call in store.calls} <= {"head", "read_tail", "read_range"}


async def test_json(small: Any) -> None:
    document = (await checked(small.data[:-1])).to_json()
    assert list(document) == [
        "schema_version",
        "verb",
        "url",
        "outcome",
        "rows",
        "row_groups",
        "size",
        "findings",
        "next",
        "schema",
        "other_policy",
        "pages_verified",
        "pages_decoded",
        "blocks_damaged",
        "blocks_repairable",
        "parity_blocks",
    ]
    assert document["schema_version"] == 1
    assert list(document["findings"][0]) == [
        "damage",
        "message",
        "file",
        "row_group",
        "column",
        "page",
        "offset",
        "start",
        "end",
        "costs_rows",
    ]


async def test_json_of_a_recovery(small: Any) -> None:
    store = MemoryStore()
    await store.put("file", small.data[: small.records(RecordKind.CHUNK)[-1].end + 20])
    document = (await rpq.recover((store, "file"), (store, "out"))).to_json()
    added = [
        "rows_kept",
        "rows_lost",
        "bytes_kept",
        "bytes_unread",
        "lost",
        "output",
        "outputs",
        "ledger",
        "schema_from",
    ]
    added.append("notes")
    assert list(document)[-len(added) :] == added
    assert (document["verb"], document["outcome"], document["output"]) == ("recover", "partial", "memory:out")
    assert (document["rows_kept"], document["rows_lost"]) == (40, None)
    (lost,) = (region for region in document["lost"] if region["damage"] == "torn")
    places = ["file", "row_group", "column", "page", "offset"]
    assert list(lost) == ["start", "end", "rows", "rows_nulled", "damage", "reason", *places]
    assert (lost["damage"], lost["rows"], lost["row_group"]) == ("torn", None, None)


async def test_json_of_nothing(small: Any) -> None:
    store = MemoryStore()
    await store.put("file", small.data[: small.records(RecordKind.ANCHOR)[0].end + 50])
    with pytest.raises(rpq.NothingToRecoverError) as caught:
        await rpq.recover((store, "file"), (store, "out"))
    document = caught.value.report.to_json()
    assert (document["outcome"], document["rows_kept"], document["output"]) == ("nothing", 0, None)
    assert "optional int64 id" in document["schema"]
    assert caught.value.hint is not None


async def test_a_missing_object() -> None:
    with pytest.raises(rpq.NotFoundError, match="memory:none"):
        await rpq.check((MemoryStore(), "none"))


async def test_tables_without_columns_and_rows_without_bytes(write_file: Any) -> None:
    written = await write_file(pa.table({"nothing": pa.nulls(25)}))
    assert (await checked(written.data)).outcome == rpq.Outcome.SOUND
    report = await checked(written.data[:-1])
    assert report.num_rows == 25


async def test_a_large_object_that_is_no_parquet_file_is_called_so() -> None:
    """Larger than the tail that is read first: its beginning has to be looked at."""
    report = await checked(b"not parquet" * 50_000)
    assert report.outcome is rpq.Outcome.NOTHING
    assert {finding.damage for finding in report.findings} == {rpq.Damage.FOREIGN}
    assert report.findings[0].message == "this is a text file, not Parquet"


async def test_a_column_that_was_written_with_too_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """All checksums hold, and no reader can read it."""
    encode, store = file_encoder.encode_chunk, MemoryStore()

    def short(leaf: Any, rows: Any, *how: Any) -> Any:
        return encode(leaf, [slice_rows(leaf, rows[0], 0, 7)] if leaf.column_path == "b" else rows, *how)

    monkeypatch.setattr(kernels, "FlatWriter", None)
    monkeypatch.setattr(file_encoder, "encode_chunk", short)
    async with rpq.create((store, "file")) as writer:
        await writer.write({"a": range(10), "b": range(10)})
    report = await rpq.check((store, "file"))
    assert report.outcome is not rpq.Outcome.SOUND
    (finding,) = report.findings
    assert finding.costs_rows and finding.where.column == "b" and "7 rows instead of 10" in finding.message


async def test_that_a_file_is_empty_is_said_once() -> None:
    store = MemoryStore()
    await store.put("empty", b"")
    report = await rpq.check((store, "empty"))
    assert [finding.message for finding in report.findings] == ["it is empty: 0 bytes"]
