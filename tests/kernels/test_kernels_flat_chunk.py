"""What compiled code says of chunks of one page, in Thrift: as the structs do, whatever the row group it is given."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest

from resilient_pq.checksum import crc32, signed
from resilient_pq.errors import ThriftError
from resilient_pq.format.compact_protocol import decode, encode
from resilient_pq.format.file_metadata import (
    ColumnChunk,
    ColumnIndex,
    ColumnMetaData,
    DataPageHeader,
    DictionaryPageHeader,
    KeyValue,
    OffsetIndex,
    PageEncodingStats,
    PageHeader,
    PageLocation,
    RowGroup,
    SizeStatistics,
    Statistics,
)
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.pages.page_sums import PageSums, with_sums
from resilient_pq.format.resilience_records import ChunkCopies
from resilient_pq.writer.described_chunk import behind_columns, row_group_record, with_columns

#: Numbers whose varints have one byte, several, and as many as there can be.
NUMBERS = (0, 1, 63, 64, 8191, 8192, 2**31 - 1, 2**40)
SMALL = tuple(number for number in NUMBERS if number < 2**31)


@pytest.mark.parametrize("number", SMALL)
def test_the_header_of_a_page(native: ModuleType, number: int) -> None:
    about: dict[str, Any] = {"uncompressed_page_size": number, "compressed_page_size": 7}
    for crc in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        data_page = DataPageHeader(number, 8, 3, 3)
        expected = encode(PageHeader(type=0, crc=signed(crc), data_page_header=data_page, **about))
        assert native.FlatChunk.header_of_page(0, number, 7, crc, number, 8) == expected
        entries = DictionaryPageHeader(number, 2)
        expected = encode(PageHeader(type=2, crc=signed(crc), dictionary_page_header=entries, **about))
        assert native.FlatChunk.header_of_page(2, number, 7, crc, number, 2) == expected


@pytest.mark.parametrize("numbers", [(2**31, 1, 1), (1, 2**31, 1), (1, 1, 2**31), (-1, 1, 1)])
def test_more_than_a_header_can_tell(native: ModuleType, numbers: tuple[int, int, int]) -> None:
    size, stored_size, count = numbers
    with pytest.raises(OverflowError):
        native.FlatChunk.header_of_page(0, size, stored_size, 0, count, 0)


def _chunk(native: ModuleType, rng: random.Random) -> tuple[Any, Statistics, bool]:
    """A chunk of anything, and what its statistics are."""
    chunk = native.FlatChunk()
    chunk.physical_type, chunk.codec, chunk.encoding, chunk.encodings = 6, 6, 8, [0, 3, 8]
    chunk.path = b"\x19\x28\x01a\xc8\x01" + b"b" * 200  # two names
    chunk.size, chunk.uncompressed_size = 2 + rng.choice(SMALL) // 2, rng.choice(NUMBERS)
    chunk.crc, chunk.header_crcs = rng.randrange(2**32), [rng.randrange(2**32), rng.randrange(2**32)]
    chunk.page_header, chunk.sums = rng.randbytes(rng.randrange(40)), PageSums((1, 2), are_hashes=False).field
    has_dictionary = rng.random() < 0.5
    if has_dictionary:
        chunk.dictionary_header, chunk.dictionary_size, chunk.dictionary_encoding = rng.randbytes(9), 2, 2
        chunk.dictionary_copy = rng.choice((None, rng.randbytes(300)))
    chunk.num_values, chunk.null_count = 100, rng.choice((0, 5, 100))
    chunk.nan_count, chunk.byte_array_bytes = rng.choice((-1, 0, 77)), rng.choice((-1, 0, 2**33))
    statistics = Statistics(null_count=chunk.null_count, nan_count=None if chunk.nan_count < 0 else chunk.nan_count)
    if rng.random() < 0.7:
        statistics.min_value = chunk.low = rng.randbytes(rng.randrange(70))
        statistics.is_min_value_exact = chunk.low_is_exact = rng.random() < 0.5
    if rng.random() < 0.7:
        statistics.max_value = chunk.high = rng.randbytes(rng.randrange(70))
        statistics.is_max_value_exact = chunk.high_is_exact = rng.random() < 0.5
    chunk.has_column_index = chunk.null_count == 100 or None not in (chunk.low, chunk.high)
    chunk.place(rng.choice(NUMBERS))
    return chunk, statistics, has_dictionary


def _column_chunk(chunk: Any, statistics: Statistics, pairs: list[tuple[bytes, bytes]], *, dictionary: bool) -> bytes:
    stats = [PageEncodingStats(2, 2, 1)] if dictionary else []
    return encode(
        ColumnChunk(
            meta_data=ColumnMetaData(
                type=6,
                encodings=[0, 3, 8],
                path_in_schema=["a", "b" * 200],
                codec=6,
                num_values=100,
                total_uncompressed_size=chunk.uncompressed_size,
                total_compressed_size=chunk.size,
                key_value_metadata=[KeyValue(key.decode(), value.decode()) for key, value in pairs],
                data_page_offset=chunk.offset + chunk.dictionary_size,
                dictionary_page_offset=chunk.offset if dictionary else None,
                statistics=statistics,
                encoding_stats=[*stats, PageEncodingStats(0, 8, 1)],
                size_statistics=None if chunk.byte_array_bytes < 0 else SizeStatistics(chunk.byte_array_bytes),
            )
        )
    )


@pytest.mark.parametrize("seed", range(60))
def test_what_is_said_of_a_chunk(native: ModuleType, seed: int) -> None:
    rng = random.Random(seed)
    chunk, statistics, dictionary = _chunk(native, rng)
    pairs = [(b"rpq.crc32", b"0123abcd:-:-:-"), (b"key " * 40, b"\xc3\xa4" * rng.randrange(20))] * rng.choice((1, 9))
    assert chunk.with_pairs(pairs) == _column_chunk(chunk, statistics, pairs, dictionary=dictionary)
    place = PageLocation(chunk.offset + chunk.dictionary_size, chunk.size - chunk.dictionary_size, 0)
    index = OffsetIndex([place], None if chunk.byte_array_bytes < 0 else [chunk.byte_array_bytes])
    assert chunk.offset_index() == with_sums(index, PageSums((1, 2), are_hashes=False))
    copies = ChunkCopies(
        offset_index=index,
        page_headers=(chunk.dictionary_header or b"") + chunk.page_header,
        crc32=signed(chunk.crc),
        dictionary_page=PageLocation(chunk.offset, 2, 0) if dictionary else None,
        dictionary_copy=chunk.dictionary_copy,
        header_crcs=[signed(crc) for crc in chunk.header_crcs],
    )
    assert chunk.copies() == encode(copies)
    is_null = chunk.null_count == 100
    expected = ColumnIndex(
        null_pages=[is_null],
        min_values=[b"" if is_null else chunk.low],
        max_values=[b"" if is_null else chunk.high],
        boundary_order=1,
        null_counts=[chunk.null_count],
        nan_counts=None if chunk.nan_count < 0 else [chunk.nan_count],
    )
    assert chunk.column_index() == (encode(expected) if chunk.has_column_index else None)
    said = chunk.column_chunk(), chunk.copies(), chunk.column_index(), chunk.offset_index()
    assert native.FlatChunk.described([chunk, chunk]) == tuple([each, each] for each in said)


def _with_places(
    row_group: bytes, columns: list[bytes | None], offsets: list[bytes | None], column_at: int, offset_at: int
) -> bytes:
    """The same by structs."""
    found, _ = decode(RowGroup, row_group)
    for chunk, column, offset in zip(found.columns, columns, offsets, strict=True):
        if column is not None:
            chunk.column_index_offset, chunk.column_index_length = column_at, len(column)
            column_at += len(column)
        if offset is not None:
            chunk.offset_index_offset, chunk.offset_index_length = offset_at, len(offset)
            offset_at += len(offset)
        assert chunk.meta_data is not None
        for pair in chunk.meta_data.key_value_metadata or ():
            if pair.key == "rpq.crc32":
                known = ChunkSums.parse(pair.value or "")
                sums = [None if index is None else crc32(index) for index in (column, offset)]
                pair.value = str(ChunkSums(known.chunk, *sums, known.bloom))
    return encode(found)


def _row_group(native: ModuleType, rng: random.Random, count: int) -> bytes:
    pairs = [
        (b"a", b"b"),
        (b"rpq.crc32", rng.choice((b"0123abcd:-:-:-", b"-:-:00000001:fedcba98"))),
        (b"rpq.crc3", b""),
    ]
    chunks = [_chunk(native, rng)[0].with_pairs(rng.sample(pairs, rng.randrange(4))) for _ in range(count)]
    header = bytes([count << 4 | 12]) if count < 15 else b"\xfc" + bytes([count])
    return b"\x19" + header + b"".join(chunks) + encode(RowGroup([], 5, 6, file_offset=2**40, ordinal=9))[2:]


@pytest.mark.parametrize("count", [0, 1, 2, 14, 15, 100])
def test_places_of_indexes(native: ModuleType, count: int) -> None:
    rng = random.Random(count)
    row_group = _row_group(native, rng, count)
    columns = [rng.choice((None, rng.randbytes(rng.randrange(300)))) for _ in range(count)]
    offsets = [rng.choice((None, rng.randbytes(rng.randrange(300)))) for _ in range(count)]
    given = row_group, columns, offsets, rng.choice(NUMBERS), rng.choice(NUMBERS)
    assert native.FlatChunk.with_index_places(*given, crc32) == _with_places(*given)
    assert native.FlatChunk.with_index_places(row_group, columns, [*offsets, None], 4, 4, crc32) is None
    assert native.FlatChunk.with_index_places(row_group, [*columns, None], [*offsets, None], 4, 4, crc32) is None


def test_row_groups_of_anything(native: ModuleType) -> None:
    """Cut short or changed: it says that it cannot tell, raises an error of ours, or does what the structs do."""
    rng = random.Random(1)
    answers = set()
    for _ in range(3000):
        row_group = bytearray(_row_group(native, rng, 2))
        for _ in range(rng.choice((0, 1, 1, 2))):
            row_group[rng.randrange(len(row_group))] = rng.choice((0, 0x18, 0x1C, 0x7F, 0xFF, rng.randrange(256)))
        if rng.random() < 0.3:
            del row_group[rng.randrange(len(row_group)) :]
        given = bytes(row_group), [b"c", None], [b"o", b"p" * 200], 100, 200
        try:
            found = native.FlatChunk.with_index_places(*given, crc32)
        except ThriftError:
            found = ThriftError
        answers.add(type(found) if isinstance(found, bytes) else found)
    assert answers == {bytes, None, ThriftError}


@pytest.mark.parametrize(
    "value", [b"", b"0123abcd", b"0123abcd:-:-", b"0123ABCD:-:-:-", b"0123abc:-:-:-", b"a:b:c:d:e"]
)
def test_sums_that_are_written_otherwise(native: ModuleType, value: bytes) -> None:
    chunk = _chunk(native, random.Random(3))[0].with_pairs([(b"rpq.crc32", value)])
    row_group = b"\x19\x1c" + chunk + encode(RowGroup([], 5, 6))[2:]
    assert native.FlatChunk.with_index_places(row_group, [b"c"], [b"o"], 4, 5, crc32) is None


@pytest.mark.parametrize("seed", range(20))
def test_what_is_said_of_a_row_group(native: ModuleType, seed: int) -> None:
    rng = random.Random(seed)
    chunks = [_chunk(native, rng)[0] for _ in range(rng.choice((1, 3, 20)))]
    ordinal = rng.choice((None, 0, 300))
    columns, copies, column_indexes, offset_indexes = native.FlatChunk.described(chunks)
    row_group = RowGroup(
        columns=[],
        total_byte_size=sum(chunk.uncompressed_size for chunk in chunks),
        num_rows=100,
        file_offset=chunks[0].offset,
        total_compressed_size=sum(chunk.size for chunk in chunks),
        ordinal=ordinal,
    )
    behind = behind_columns(row_group)
    payload = row_group_record(behind, columns, copies)
    columns[0] = chunks[0].column_chunk(("rpq.record", f"{1 << 40}:{96 + len(payload)}"))
    expected = payload, with_columns(behind, columns), tuple(column_indexes), tuple(offset_indexes)
    assert native.FlatChunk.row_group(chunks, 100, -1 if ordinal is None else ordinal, 1 << 40, 96) == expected
    with pytest.raises(ValueError, match="has chunks"):
        native.FlatChunk.row_group([], 100, 0, 0, 96)
    with pytest.raises(TypeError):
        native.FlatChunk.row_group([None], 100, 0, 0, 96)
