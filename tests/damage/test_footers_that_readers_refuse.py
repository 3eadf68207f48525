"""Footers of other writers that our reader could take, and other readers refuse: a recovery leaves none behind."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.errors import ThriftError
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.io.memory_store import MemoryStore

ROWS = pa.table({"id": range(60), "name": [f"name {i % 7}" for i in range(60)]})


def pages_and_metadata(**options: Any) -> tuple[bytes, FileMetaData]:
    """A file of pyarrow: what stands before its footer, and what the footer says."""
    sink = io.BytesIO()
    pq.write_table(ROWS, sink, row_group_size=20, **options)
    data = sink.getvalue()
    start = len(data) - footer.TAIL_SIZE - footer.metadata_length(data, rpq.Where())
    metadata, _ = compact_protocol.decode(FileMetaData, data[start:])
    return data[:start], metadata


async def recovered(data: bytes, policy: str = "drop") -> rpq.Report:
    """Recover bytes, and hold that pyarrow reads all rows of what comes of them."""
    store = MemoryStore()
    await store.put("damaged", data)
    report = await rpq.recover((store, "damaged"), (store, "out"), on_damage=policy)
    assert report.kept is not None
    outputs = report.kept.outputs or {"": report.kept.output or ""}
    for name, url in outputs.items():
        table = pq.read_table(io.BytesIO((await store.read_tail(url.removeprefix("memory:"), 1 << 20)).data))
        assert table.select([name] if name else ROWS.column_names).equals(ROWS.select([name]) if name else ROWS)
    return report


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("policy", ["drop", "columns"])
async def test_other_column_orders_than_one_for_each_column(count: int, torn: bool, policy: str) -> None:
    """The end of a sibling's footer behind a cut one, or a wrong bit in the size of the list."""
    pages, metadata = pages_and_metadata()
    assert metadata.column_orders is not None
    metadata.column_orders = (metadata.column_orders * 2)[:count]
    end = footer.frame(compact_protocol.encode(metadata))
    if torn:
        end = end[:-8] + b"\7\0\0" + end[-8:]
    report = await recovered(pages + end, policy)
    assert report.outcome is rpq.Outcome.RECOVERED
    assert report.findings


async def test_metadata_that_end_behind_their_length() -> None:
    """A wrong bit makes a number a flag without bytes, and what follows is taken for fields up to the last bytes."""
    pages, metadata = pages_and_metadata()
    while len(unended := compact_protocol.encode(metadata)[:-1]) % 256 != 0x16:  # a number, and behind it 0: the end
        metadata.created_by = (metadata.created_by or "") + "."
    read, _ = compact_protocol.decode(FileMetaData, footer.frame(unended))
    assert read.num_rows == 60
    with pytest.raises(ThriftError):
        footer.read_footer(memoryview(pages + footer.frame(unended)), 0)
    report = await recovered(pages + footer.frame(unended))
    assert report.outcome is rpq.Outcome.RECOVERED


async def test_metadata_that_end_too_early() -> None:
    """A field read as the end of all: what followed is lost, here the Arrow schema, and the file is not sound."""
    pages, metadata = pages_and_metadata()
    whole = compact_protocol.encode(metadata)
    at = whole.index(b"\x19\x1c\x18\x0cARROW:schema")
    data = pages + footer.frame(whole[:at] + b"\0" + whole[at + 1 :])
    store = MemoryStore()
    await store.put("damaged", data)
    report = await rpq.check((store, "damaged"))
    assert report.outcome is rpq.Outcome.DAMAGED
    assert any("too early" in finding.message for finding in report.findings)
    assert (await recovered(data)).outcome is rpq.Outcome.RECOVERED


@pytest.mark.parametrize("lacks", [False, True])
async def test_a_chunk_without_a_size(lacks: bool) -> None:
    """A wrong bit makes another kind of number of it, which counts as unknown; a writer may state 0 all the same."""
    pages, metadata = pages_and_metadata()
    chunk = metadata.row_groups[1].columns[0].meta_data
    assert chunk is not None
    chunk.total_uncompressed_size = 0
    whole = compact_protocol.encode(metadata)
    at = whole.index(b"\x16\x28\x16\0")  # 20 values, and the size
    data = pages + footer.frame(whole[: at + 2] + (b"\x14" if lacks else b"\x16") + whole[at + 3 :])
    report = await recovered(data)
    assert report.outcome is (rpq.Outcome.RECOVERED if lacks else rpq.Outcome.SOUND)
    store = MemoryStore()
    await store.put("damaged", data)
    assert (await rpq.check((store, "damaged"))).outcome is (rpq.Outcome.DAMAGED if lacks else rpq.Outcome.SOUND)


@pytest.mark.parametrize("nameless", [range(1), range(5), range(6)])
async def test_chunks_without_the_name_of_their_column(nameless: range) -> None:
    """A writer may leave them all out; where some have one, the others have lost it."""
    pages, metadata = pages_and_metadata()
    chunks = [chunk.meta_data for row_group in metadata.row_groups for chunk in row_group.columns]
    for number in nameless:
        chunk = chunks[number]
        assert chunk is not None
        chunk.path_in_schema = None
    store = MemoryStore()
    await store.put("damaged", pages + footer.frame(compact_protocol.encode(metadata)))
    report = await rpq.check((store, "damaged"))
    some = len(nameless) < len(chunks)
    assert report.outcome is (rpq.Outcome.DAMAGED if some else rpq.Outcome.SOUND)
    assert any("names some column chunks" in finding.message for finding in report.findings) == some


@pytest.mark.parametrize("lacks", [False, True])
async def test_a_chunk_without_an_offset(lacks: bool) -> None:
    """A wrong bit makes a field of it that nobody knows; a writer may state 0 all the same."""
    pages, metadata = pages_and_metadata()
    for number, chunk in enumerate(chunk for row_group in metadata.row_groups for chunk in row_group.columns):
        chunk.file_offset = 4 if number != 3 else 0
    whole = compact_protocol.encode(metadata)
    (at,) = [at for at in range(len(whole)) if whole.startswith(b"\x26\0\x1c\x15", at)]  # offset 0, and the metadata
    data = pages + footer.frame(whole[:at] + (b"\xa6\0\x0c\x06" if lacks else whole[at : at + 3]) + whole[at + 3 :])
    report = await recovered(data)
    assert report.outcome is (rpq.Outcome.RECOVERED if lacks else rpq.Outcome.SOUND)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("codec", [3, 14])  # LZO, and one that nobody has defined
async def test_a_codec_that_no_page_is_compressed_with(codec: int, torn: bool) -> None:
    """A wrong bit in the footer, where the pages say themselves that they are stored as they are."""
    pages, metadata = pages_and_metadata(compression="none", data_page_version="2.0", use_dictionary=False)
    chunk = metadata.row_groups[1].columns[0].meta_data
    assert chunk is not None
    chunk.codec = codec
    end = footer.frame(compact_protocol.encode(metadata))
    report = await recovered(pages + (end[:-8] + b"\7\0\0" + end[-8:] if torn else end))
    assert report.outcome is rpq.Outcome.RECOVERED
    assert report.kept is not None and report.kept.rows_lost == 0


@pytest.mark.parametrize("stored", [b"\xee", "\ufffd".encode()])
async def test_a_name_that_is_not_utf8(stored: bytes) -> None:
    """pyarrow reads no names from such a file; a name may well have the sign that stands for bytes like these."""
    pages, metadata = pages_and_metadata()
    metadata.schema[2].name = "n" * len(stored)
    metadata.key_value_metadata = None
    for row_group in metadata.row_groups:
        assert row_group.columns[1].meta_data is not None
        row_group.columns[1].meta_data.path_in_schema = ["n" * len(stored)]
    whole = compact_protocol.encode(metadata).replace(
        bytes((0x18, len(stored))) + b"n" * len(stored), b"\x18" + bytes((len(stored),)) + stored
    )
    store = MemoryStore()
    await store.put("damaged", pages + footer.frame(whole))
    report = await rpq.recover((store, "damaged"), (store, "out"))
    table = pq.read_table(io.BytesIO((await store.read_tail("out", 1 << 20)).data))
    assert table.column_names == ["id", "\ufffd"]
    assert table.columns == ROWS.columns
    assert any("not UTF-8" in finding.message for finding in report.findings) is (len(stored) == 1)


async def test_an_annotation_that_its_type_cannot_have() -> None:
    """A wrong bit makes text a time of day, beside other damage: the output has the bytes, without any meaning."""
    pages, metadata = pages_and_metadata()
    text = metadata.schema[2]
    assert text.name == "name"
    text.converted_type, text.logicalType, metadata.key_value_metadata = 8, None, None
    store = MemoryStore()
    await store.put("damaged", pages + footer.frame(compact_protocol.encode(metadata))[:-8])
    await rpq.recover((store, "damaged"), (store, "out"))
    table = pq.read_table(io.BytesIO((await store.read_tail("out", 1 << 20)).data))
    assert table["name"].to_pylist() == [name.encode() for name in ROWS["name"].to_pylist()]


async def test_a_chunk_of_many_that_lies_in_another_file() -> None:
    """In a summary all do: here a wrong bit makes a field the name of a file."""
    pages, metadata = pages_and_metadata()
    metadata.row_groups[2].columns[1].file_path = "\1"
    data = pages + footer.frame(compact_protocol.encode(metadata))
    store = MemoryStore()
    await store.put("damaged", data)
    report = await rpq.recover((store, "damaged"), (store, "out"))
    table = pq.read_table(io.BytesIO((await store.read_tail("out", 1 << 20)).data))
    assert table.equals(ROWS.slice(0, table.num_rows)) and table.num_rows >= 40
    check = await rpq.check((store, "damaged"))
    assert check.num_rows == report.num_rows == table.num_rows
