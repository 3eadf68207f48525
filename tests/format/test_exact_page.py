"""Headers that nothing vouches for: sound pages of ours and of others fit theirs to the byte, and no other count does."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.damage.exact_page import check_exact
from resilient_pq.errors import FormatError
from resilient_pq.format import compact_protocol, kernels
from resilient_pq.format.encodings import rle
from resilient_pq.format.file_metadata import (
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    Encoding,
    PageType,
)
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page import Page, pages_of
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.reader.read_plan import chunk_read

COUNT = 700


def rows() -> pa.Table:
    """Columns of many types, flat and nested, with and without nulls, of few values and of many."""
    lists = [None if i % 6 == 2 else [None if j == 2 else i + j for j in range(i % 4)] for i in range(COUNT)]
    return pa.table(
        {
            "number": pa.array(range(COUNT), pa.int64()),
            "kind": pa.array([f"kind {i % 5}" for i in range(COUNT)]),
            "one": pa.array(["always the same"] * COUNT),
            "town": pa.array([None if i % 7 == 0 else f"town {i}" for i in range(COUNT)]),
            "small": pa.array([None if i % 90 > 50 else i % 11 for i in range(COUNT)], pa.int32()),
            "real": pa.array([None if i % 11 == 0 else i / 3 for i in range(COUNT)]),
            "flag": pa.array([None if i % 5 == 3 else i % 3 == 0 for i in range(COUNT)]),
            "fixed": pa.array([bytes([i % 256]) * 3 for i in range(COUNT)], pa.binary(3)),
            "nothing": pa.array([None] * COUNT, pa.int32()),
            "lists": pa.array(lists, pa.list_(pa.int32())),
            "point": pa.array([None if i % 8 == 5 else {"x": i % 4} for i in range(COUNT)]),
        }
    )


async def ours(**options: Any) -> bytes:
    chosen = rpq.WriteOptions(page_rows=150, **options.pop("options", {}))
    return await file_bytes(rows(), rows().schema, options=chosen, **options)


def theirs(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows(), sink, write_page_checksum=True, write_batch_size=50, data_page_size=200, **options)
    return sink.getvalue()


async def pages(data: bytes) -> Iterator[tuple[ChunkRead, Page]]:
    store = MemoryStore()
    await store.put("file", data)
    async with await rpq.open((store, "file")) as file:
        contents = file.contents
    chunks = [chunk_read(contents, 0, leaf) for leaf in contents.schema.leaves]
    return iter(
        [
            (chunk, page)
            for chunk in chunks
            for page in pages_of(memoryview(data)[chunk.range.start : chunk.range.end], chunk.range.start)
        ]
    )


def check(chunk: ChunkRead, page: Page) -> None:
    check_exact(page, chunk.leaf, chunk.metadata.codec, chunk.metadata.encodings, chunk.quirks)


def with_detail(page: Page, **changed: Any) -> Page:
    """The page, its header written anew with other things in it."""
    header = page.header
    for name in ("data_page_header", "data_page_header_v2", "dictionary_page_header"):
        detail: DataPageHeader | DataPageHeaderV2 | DictionaryPageHeader | None = getattr(header, name)
        if detail is not None:
            header = replace(header, **{name: replace(detail, **changed)})
    return replace(page, header=header, header_bytes=memoryview(compact_protocol.encode(header)))


def count_of(page: Page) -> int:
    detail = page.data_header or page.header.dictionary_page_header
    assert detail is not None
    return detail.num_values


OURS = [
    {"compression": codec, "options": {"data_page_version": version}, "encodings": encodings}
    for codec in ("none", "zstd")
    for version in ("1.0", "2.0")
    for encodings in ("auto", "PLAIN")
] + [
    {"encodings": {"number": "DELTA_BINARY_PACKED", "town": "DELTA_BYTE_ARRAY", "kind": "DELTA_LENGTH_BYTE_ARRAY"}},
    {"encodings": {"real": "BYTE_STREAM_SPLIT", "flag": "RLE", "fixed": "BYTE_STREAM_SPLIT"}},
]
THEIRS = [
    {"compression": codec, "data_page_version": version, "use_dictionary": dictionary}
    for codec in ("none", "snappy")
    for version in ("1.0", "2.0")
    for dictionary in (True, False)
]


@pytest.mark.parametrize("options", OURS, ids=str)
async def test_every_page_of_ours_is_exact_and_of_no_other_count(options: dict[str, Any]) -> None:
    await hold_to_its_count(await ours(**options))


@pytest.mark.parametrize("options", THEIRS, ids=str)
async def test_every_page_of_pyarrow_is_exact_and_of_no_other_count(options: dict[str, Any]) -> None:
    await hold_to_its_count(theirs(**options))


async def hold_to_its_count(data: bytes) -> None:
    seen = 0
    for chunk, page in await pages(data):
        check(chunk, page)
        seen += 1
        for other in (count_of(page) + 8, count_of(page) - 8):
            if other < 0:
                continue
            with pytest.raises(FormatError):
                check(chunk, with_detail(page, num_values=other))
    assert seen > 11


@pytest.mark.parametrize("changed", ["num_nulls", "num_rows", "definition_levels_byte_length", "encoding"])
async def test_what_else_a_header_says(changed: str) -> None:
    """Of columns with nulls and lists: every count, every length, and an encoding that the chunk does not have."""
    for chunk, page in await pages(await ours(compression="none", options={"data_page_version": "2.0"})):
        if page.data_header is None:
            continue
        said = getattr(page.data_header, changed)
        with pytest.raises(FormatError):
            check(chunk, with_detail(page, **{changed: said + 1}))


async def test_levels_that_a_column_does_not_have() -> None:
    seen = 0
    for chunk, page in await pages(await ours(compression="none", options={"data_page_version": "1.0"})):
        if page.data_header is not None and not chunk.leaf.max_repetition_level:
            check(chunk, with_detail(page, repetition_level_encoding=int(Encoding.BIT_PACKED)))  # parquet-mr's
            with pytest.raises(FormatError):
                check(chunk, with_detail(page, repetition_level_encoding=int(Encoding.PLAIN)))
            seen += 1
    assert seen


@pytest.mark.parametrize("name", ["repetition_level_encoding", "definition_level_encoding"])
async def test_levels_that_a_column_without_nulls_does_not_have(name: str) -> None:
    """Nothing is encoded by what its header names: so no writer names anything but what encodes levels."""
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    store = MemoryStore()
    options = rpq.WriteOptions(data_page_version="1.0")
    async with rpq.create((store, "file"), schema, options=options) as writer:
        await writer.write({"n": range(COUNT)})
    seen = 0
    for chunk, page in await pages(bytes((await store.read_tail("file", 1 << 30)).data)):
        if page.data_header is None:
            continue
        for encoding in (Encoding.RLE, Encoding.BIT_PACKED):  # parquet-mr's is the latter
            check(chunk, with_detail(page, **{name: int(encoding)}))
        for encoding in (Encoding.PLAIN, Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY):
            with pytest.raises(FormatError, match="encodings that no levels have"):
                check(chunk, with_detail(page, **{name: int(encoding)}))
        seen += 1
    assert seen


async def test_pages_that_no_writer_makes() -> None:
    chunk, page = next(await pages(await ours()))
    header = replace(page.header, type=int(PageType.INDEX_PAGE))
    with pytest.raises(FormatError, match="another kind"):
        check(chunk, replace(page, header=header, header_bytes=memoryview(compact_protocol.encode(header))))


async def test_other_bytes_that_say_the_same() -> None:
    """No writer makes them: what says so twice, or in more bytes than it takes, was something else."""
    chunk, page = next(await pages(await ours()))
    longer = bytes(page.header_bytes[:1]) + bytes([page.header_bytes[1] | 0x80, 0]) + bytes(page.header_bytes[2:])
    with pytest.raises(FormatError, match="other bytes"):
        check(chunk, replace(page, header_bytes=memoryview(longer)))


# --- runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 7, 9])
def test_runs_end_with_their_last_value(width: int) -> None:
    rng = np.random.default_rng(width)
    for size in (1, 7, 8, 9, 40, 333):
        for values in (rng.integers(0, 1 << width, size), rng.integers(0, 2, size).repeat(9), np.zeros(size)):
            encoded = memoryview(kernels.rle_encode(values.astype(np.int32), width))
            assert rle.ends_with(encoded, width, len(values), zeros=True)
            assert not rle.ends_with(encoded, width, len(values) + 8)
            assert not rle.ends_with(encoded, width, len(values) - 8) or len(values) <= 8
            assert not rle.ends_with(memoryview(bytes(encoded) + b"\0"), width, len(values))


def test_a_run_that_is_longer_than_its_values() -> None:
    assert rle.ends_with(memoryview(b"\x14\x01"), 1, 10)
    assert not rle.ends_with(memoryview(b"\x14\x01"), 1, 9)
    assert not rle.ends_with(memoryview(b"\x14"), 1, 10)


def test_a_last_group_that_is_cut_short() -> None:
    """As old writers left it: behind the last value, not before it."""
    assert rle.ends_with(memoryview(b"\x05\xff\x01"), 1, 9)
    assert rle.ends_with(memoryview(b"\x03\xff\xff"), 8, 2)
    assert not rle.ends_with(memoryview(b"\x03\xff\xff"), 8, 3)


def test_values_that_fill_up_the_last_group() -> None:
    """Three values of one bit and of three, and others than zeros where nothing should be behind two."""
    for encoded, width in ((b"\x03\x07", 1), (b"\x03\xff\x01\x00", 3)):
        assert rle.ends_with(memoryview(encoded), width, 3, zeros=True)
        assert rle.ends_with(memoryview(encoded), width, 4, zeros=True)
        assert rle.ends_with(memoryview(encoded), width, 2)
        assert not rle.ends_with(memoryview(encoded), width, 2, zeros=True)


def test_nothing_for_values_that_take_no_bits() -> None:
    assert rle.ends_with(memoryview(b""), 0, 12)
    assert rle.ends_with(memoryview(b"\x18"), 0, 12)
    assert not rle.ends_with(memoryview(b"\x18\x18"), 0, 12)


def test_a_run_of_no_values() -> None:
    """No writer makes one, and readers stop there."""
    assert not rle.ends_with(memoryview(b"\x01\x18"), 0, 12)
    assert not rle.ends_with(memoryview(b"\x00\x01\x18\x01"), 1, 12)


def test_recover_keeps_no_page_that_claims_more_bytes_than_it_has(tmp_path: Path) -> None:
    """Of a page without a checksum: pyarrow refuses a whole column for it."""
    values = [*range(20)] * 2
    source = tmp_path / "source.parquet"
    pq.write_table(pa.table({"id": pa.array(values, pa.int64())}), source, compression="none", row_group_size=20)
    data = bytearray(source.read_bytes())
    chunk = pq.ParquetFile(source).metadata.row_group(1).column(0)
    run = chunk.dictionary_page_offset + chunk.total_compressed_size - 16
    assert data[run] == 3 << 1 | 1  # three groups of five bits
    data[run] = 13 << 1 | 1
    source.write_bytes(data)
    sync.recover(source, tmp_path / "output.parquet", on_damage="drop")
    assert pq.read_table(tmp_path / "output.parquet")["id"].to_pylist() == values[:20]


def test_carving_keeps_no_page_with_a_run_of_no_values(tmp_path: Path) -> None:
    """The width of its values is 0, so that nothing has to be decoded; pyarrow refuses a whole column for it."""
    source, sibling = tmp_path / "source.parquet", tmp_path / "sibling.parquet"
    table = pa.table({"id": range(40), "same": pa.array([7] * 40, pa.int32())})
    pq.write_table(table, sibling, compression="none", row_group_size=20)
    data = bytearray(sibling.read_bytes())
    chunk = pq.ParquetFile(sibling).metadata.row_group(1).column(1)
    body = chunk.dictionary_page_offset + chunk.total_compressed_size - 3
    assert bytes(data[body : body + 3]) == bytes([1, 20 << 1, 0])  # a width, and a run of twenty times the first value
    data[body : body + 3] = bytes([0, 0 << 1 | 1, 20 << 1])
    source.write_bytes(data[: -8 - int.from_bytes(data[-8:-4], "little")])
    sync.recover(source, tmp_path / "output.parquet", schema_from=sibling)
    assert pq.read_table(tmp_path / "output.parquet").equals(table.slice(0, 20))
