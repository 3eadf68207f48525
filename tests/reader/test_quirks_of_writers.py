"""Files as other writers leave them, put together by hand: each quirk that no file at hand has, or that is easily lost.

The specification is that of parquet-format; the quirks are those of its issues, and of the data that others test with.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import resilient_pq as rpq
from resilient_pq.checksum import signed
from resilient_pq.format import compact_protocol, footer, kernels
from resilient_pq.format.annotations import DecimalType, Empty, LogicalType, TimeType, TimeUnitUnion
from resilient_pq.format.file_metadata import (
    ColumnChunk,
    ColumnCryptoMetaData,
    ColumnMetaData,
    CompressionCodec,
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    Encoding,
    EncryptionAlgorithm,
    FileMetaData,
    PageHeader,
    PageType,
    RowGroup,
    SchemaElement,
)
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io.memory_store import MemoryStore

RLE, BIT_PACKED, PLAIN, RLE_DICTIONARY = (
    Encoding.RLE, Encoding.BIT_PACKED, Encoding.PLAIN, Encoding.RLE_DICTIONARY,
)  # fmt: skip
Edit = Callable[[Any], object]


# --- files by hand ------------------------------------------------------------------------------------------


def ints(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def prefixed(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def levels(maximum: int, *values: int) -> bytes:
    """RLE, as they stand in data pages v1."""
    return prefixed(kernels.rle_encode(np.array(values, np.uint8), maximum.bit_length()).tobytes())


def page(body: bytes, kind: int, *, crc: int | None = None, size: int | None = None, **detail: Any) -> bytes:
    stored = len(body) if size is None else size
    return compact_protocol.encode(PageHeader(int(kind), stored, len(body), crc=crc, **detail)) + body


def data_page(body: bytes, count: int, encoding: int = PLAIN, *, level: int = RLE, **rest: Any) -> bytes:
    detail = DataPageHeader(count, int(encoding), int(level), int(level))
    return page(body, PageType.DATA_PAGE, data_page_header=detail, **rest)


def dictionary_page(body: bytes, count: int, encoding: int = PLAIN) -> bytes:
    detail = DictionaryPageHeader(count, int(encoding))
    return page(body, PageType.DICTIONARY_PAGE, dictionary_page_header=detail)


@dataclass(frozen=True)
class Chunk:
    """The pages of a column, and what the footer says of them beside their place."""

    pages: Sequence[bytes]
    num_values: int
    codec: int = CompressionCodec.UNCOMPRESSED
    edit: Edit = lambda metadata: None
    dictionary: bool = field(default=False)


def file_of(
    schema: str, num_rows: int, *chunks: Chunk, edit: Edit = lambda metadata: None, created_by: str | None = None
) -> bytes:  # fmt: skip
    parsed = Schema.parse(f"message m {{ {schema} }}")
    data = b"PAR1"
    columns = []
    for leaf, chunk in zip(parsed.leaves, chunks, strict=True):
        content = b"".join(chunk.pages)
        first = len(data) + (len(chunk.pages[0]) if chunk.dictionary else 0)
        metadata = ColumnMetaData(
            int(leaf.node.physical_type), [], list(leaf.path), int(chunk.codec), chunk.num_values,
            len(content), len(content), data_page_offset=first,
            dictionary_page_offset=len(data) if chunk.dictionary else None,
        )  # fmt: skip
        chunk.edit(metadata)
        columns.append(ColumnChunk(meta_data=metadata))
        data += content
    groups = [RowGroup(columns, len(data), num_rows)]
    metadata = FileMetaData(1, parsed.to_elements(), num_rows, groups, created_by=created_by)
    edit(metadata)
    return data + footer.frame(compact_protocol.encode(metadata))


async def read(data: bytes, *, columns: list[str] | None = None, full: bool = True, **options: Any) -> pa.Table:
    store = MemoryStore()
    await store.put("file", data)
    async with rpq.open((store, "file"), **options) as file:
        table = pa.table(await file.read(columns))
    table.validate(full=full)
    return table


async def column(data: bytes, name: str = "a", **options: Any) -> list[Any]:
    values: list[Any] = (await read(data, **options))[name].to_pylist()
    return values


def set_to(**values: Any) -> Edit:
    def edit(struct: Any) -> None:
        for name, value in values.items():
            setattr(struct, name, value)

    return edit


ONE_TWO = Chunk([data_page(ints(1, 2), 2)], 2)
WITH_DICTIONARY = [dictionary_page(ints(7, 8), 2), data_page(b"\x01\x03\x01", 2, RLE_DICTIONARY)]


async def test_the_simplest_file() -> None:
    assert await column(file_of("required int32 a;", 2, ONE_TWO)) == [1, 2]


# --- framing, and what Thrift may hold ------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 7])
async def test_the_version_says_nothing(version: int) -> None:
    assert await column(file_of("required int32 a;", 2, ONE_TWO, edit=set_to(version=version))) == [1, 2]


async def test_chunks_that_do_not_say_their_path() -> None:
    # parquet-rs can leave it out, and it is to become optional.
    chunk = replace(ONE_TWO, edit=set_to(path_in_schema=None))
    assert await column(file_of("required int32 a;", 2, chunk)) == [1, 2]


@pytest.mark.parametrize("number", [b"\xff\xff\x01", b"\xfe\xff\x03"], ids=["negative", "32767"])
async def test_fields_of_extensions(number: bytes) -> None:
    # Field 32767 of every struct is reserved: a binary before the end of the struct.
    def extended(encoded: bytes) -> bytes:
        assert encoded.endswith(b"\0")
        return encoded[:-1] + b"\x08" + number + b"\x05bytes\0"

    header = compact_protocol.encode(PageHeader(0, 8, 8, data_page_header=DataPageHeader(2, int(PLAIN), 3, 3)))
    plain = file_of("required int32 a;", 2, Chunk([extended(header) + ints(1, 2)], 2))
    length = int.from_bytes(plain[-8:-4], "little")
    metadata = plain[-8 - length : -8]
    assert await column(plain[: -8 - length] + footer.frame(extended(metadata))) == [1, 2]


async def test_created_by_and_offsets_of_row_groups_mean_nothing() -> None:
    # parquet-mr 1.12.0 writes wrong ones (PARQUET-2078).
    def edit(metadata: FileMetaData) -> None:
        metadata.row_groups[0].file_offset = 4711
        metadata.row_groups[0].columns[0].file_offset = -5

    assert await column(file_of("required int32 a;", 2, ONE_TWO, edit=edit)) == [1, 2]


async def test_names_that_are_empty_or_the_same() -> None:
    def edit(metadata: FileMetaData) -> None:
        for element in metadata.schema[1:]:
            element.name = ""

    table = await read(file_of("required int32 a; required int32 b;", 2, ONE_TWO, ONE_TWO, edit=edit))
    assert table.column_names == ["", ""]
    assert [values.to_pylist() for values in table.columns] == [[1, 2], [1, 2]]


# --- what cannot be read --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("magic", "message"), [(b"PARE", "the footer is encrypted"), (b"PARX", "the extended form PARX")]
)
async def test_footers_of_another_form(magic: bytes, message: str) -> None:
    plain = file_of("required int32 a;", 2, ONE_TWO)
    begin = b"PARE" if magic == b"PARE" else b"PAR1"
    with pytest.raises(rpq.UnsupportedError, match=message):
        await read(begin + plain[4:-4] + magic)


async def test_encrypted_columns() -> None:
    def edit(metadata: FileMetaData) -> None:
        metadata.encryption_algorithm = EncryptionAlgorithm()
        first, second, _ = metadata.row_groups[0].columns
        first.crypto_metadata = ColumnCryptoMetaData(ENCRYPTION_WITH_FOOTER_KEY=Empty())
        second.meta_data, second.encrypted_column_metadata = None, b"secret"

    schema = "required int32 a; required int32 b; required int32 c;"
    data = file_of(schema, 2, ONE_TWO, ONE_TWO, ONE_TWO, edit=edit)
    for name in ("a", "b"):
        with pytest.raises(rpq.KeyMissingError, match=f"the column {name} is encrypted") as caught:
            await read(data, columns=[name])
        assert caught.value.where.column == name
        assert "keys=" in str(caught.value.hint)
    assert await column(data, "c", columns=["c"]) == [1, 2]
    store = MemoryStore()
    await store.put("file", data)
    assert (await rpq.check((store, "file"))).outcome == "unchecked"
    with pytest.raises(rpq.KeyMissingError, match="nothing can be checked without keys"):
        await rpq.recover((store, "file"), (store, "out"))


async def test_a_chunk_alone_does_not_say_that_it_is_encrypted() -> None:
    """A file with encrypted columns says how; what a damaged footer says of one chunk is no news of its pages."""

    def edit(metadata: FileMetaData) -> None:
        first, second = metadata.row_groups[0].columns
        first.crypto_metadata = ColumnCryptoMetaData(ENCRYPTION_WITH_FOOTER_KEY=Empty())
        second.encrypted_column_metadata = b"secret"

    data = file_of("required int32 a; required int32 b;", 2, ONE_TWO, ONE_TWO, edit=edit)
    for name in ("a", "b"):
        assert await column(data, name) == [1, 2]
    store = MemoryStore()
    await store.put("file", data[:-1])
    assert (await rpq.recover((store, "file"), (store, "out"))).num_rows == 2


@pytest.mark.parametrize("codec", [8, 100, -1])
async def test_codecs_of_the_future(codec: int) -> None:
    data = file_of("required int32 a; required int32 b;", 2, replace(ONE_TWO, codec=codec), ONE_TWO)
    with pytest.raises(rpq.UnsupportedError, match=f"unknown compression codec {codec}") as caught:
        await read(data)
    assert caught.value.where.column == "a"
    assert caught.value.hint is not None and "pip install" in caught.value.hint
    assert (await read(data, columns=["b"]))["b"].to_pylist() == [1, 2]


@pytest.mark.parametrize("encoding", [1, 11, 15, 99, -1])
async def test_encodings_of_the_future(encoding: int) -> None:
    data = file_of("required int32 a;", 2, Chunk([data_page(ints(1, 2), 2, encoding)], 2))
    with pytest.raises(rpq.UnsupportedError, match=f"the encoding {encoding} of INT32 values"):
        await read(data)


# --- types ----------------------------------------------------------------------------------------------


def with_element(**values: Any) -> Edit:
    def edit(metadata: FileMetaData) -> None:
        set_to(**values)(metadata.schema[1])

    return edit


EMPTY_UNIT = TimeType(isAdjustedToUTC=True, unit=TimeUnitUnion())


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        # Of an annotation of the future not even the name is known; the older one beside it is.
        ({"logicalType": LogicalType()}, pa.int32()),
        ({"logicalType": LogicalType(), "converted_type": 6}, pa.date32()),
        ({"logicalType": LogicalType(UNKNOWN=Empty()), "converted_type": 6}, pa.date32()),
        ({"logicalType": LogicalType(TIME=EMPTY_UNIT)}, pa.int32()),
        ({"logicalType": LogicalType(GEOMETRY=None, VARIANT=None)}, pa.int32()),
        # 22 and 99 are of nobody; 24 was that of nulls in old parquet-cpp, but here are values.
        *(({"converted_type": number}, pa.int32()) for number in (22, 24, 99, -1)),
        # What belongs to another physical type is passed over.
        ({"converted_type": 0}, pa.int32()),
        ({"logicalType": LogicalType(UUID=Empty())}, pa.int32()),
        # Decimals: without a scale it is 0; without a precision, or with more digits than Arrow has, it is none.
        ({"converted_type": 5, "precision": 5}, pa.decimal128(5, 0)),
        ({"logicalType": LogicalType(DECIMAL=DecimalType(0, 0)), "converted_type": 5, "precision": 5, "scale": 1},
         pa.decimal128(5, 1)),
        ({"converted_type": 5}, pa.int32()),
        ({"converted_type": 5, "precision": 77, "scale": 1}, pa.int32()),
        ({"converted_type": 5, "precision": 4, "scale": -2}, pa.int32()),
        # The length is of FIXED_LEN_BYTE_ARRAY alone.
        ({"type_length": 12}, pa.int32()),
    ],
)  # fmt: skip
async def test_annotations(element: dict[str, Any], expected: pa.DataType) -> None:
    table = await read(file_of("required int32 a;", 2, ONE_TWO, edit=with_element(**element)))
    assert table["a"].type == expected
    assert len(table["a"]) == 2


async def test_the_annotation_of_nulls_of_old_parquet_cpp() -> None:
    chunk = Chunk([data_page(levels(1, 0, 0), 2)], 2)
    table = await read(file_of("optional int32 a;", 2, chunk, edit=with_element(converted_type=24)))
    assert table["a"].type == pa.null()
    assert table["a"].to_pylist() == [None, None]


async def test_decimals_in_more_digits_than_there_are_keep_their_bytes() -> None:
    body = prefixed(b"\x01\x02") + prefixed(b"")
    edit = with_element(converted_type=5, precision=78, scale=0)
    assert await column(file_of("required binary a;", 2, Chunk([data_page(body, 2)], 2), edit=edit)) == [
        b"\x01\x02",
        b"",
    ]


async def test_decimals_of_one_digit_more_than_arrow_has() -> None:
    # BigQuery says so of its BIGNUMERIC, and bigdecimal.parquet of DuckDB has such.
    largest = 2**255 - 1
    schema = "required fixed_len_byte_array(32) a;"
    edit = with_element(converted_type=5, precision=77, scale=38)
    body = largest.to_bytes(32) + (-1).to_bytes(32, signed=True)
    found = await read(file_of(schema, 2, Chunk([data_page(body, 2)], 2), edit=edit), full=False)
    assert found["a"].type == pa.decimal256(76, 38)
    assert found["a"].to_pylist() == [Decimal(f"{largest}E-38"), Decimal("-1E-38")]


async def test_groups_without_leaves_are_passed_over() -> None:
    def edit(metadata: FileMetaData) -> None:
        group = SchemaElement(name="nothing", repetition_type=1, num_children=0)
        metadata.schema[1].num_children = 2
        metadata.schema.insert(3, group)
        metadata.schema.append(group)
        metadata.schema[0].num_children = 2

    table = await read(file_of("required group a { required int32 x; }", 2, ONE_TWO, edit=edit))
    assert table.to_pylist() == [{"a": {"x": 1}}, {"a": {"x": 2}}]


@pytest.mark.parametrize("depth", [100, 149])
async def test_groups_nested_deeply(depth: int) -> None:
    # max_nesting_depth.parquet of Impala has a hundred.
    schema = "optional int32 x;"
    for level in range(depth):
        schema = f"optional group g{level} {{ {schema} }}"
    chunk = Chunk([data_page(levels(depth + 1, depth + 1, 1, 0) + ints(7), 3)], 3)
    store = MemoryStore()
    await store.put("file", file_of(schema, 3, chunk))
    async with rpq.open((store, "file")) as file:
        first, second, third = (await file.read()).to_pylist()
    for level in reversed(range(depth)):
        first = first[f"g{level}"]
    assert first == {"x": 7}
    assert second == {f"g{depth - 1}": {f"g{depth - 2}": None}}
    assert third == {f"g{depth - 1}": None}


@pytest.mark.parametrize("depth", [200, 240])
async def test_groups_nested_too_deeply(depth: int) -> None:
    schema = "optional int32 x;"
    for level in range(depth):
        schema = f"optional group g{level} {{ {schema} }}"
    chunk = Chunk([data_page(levels(depth + 1, 0), 1)], 1)
    with pytest.raises(rpq.UnsupportedError, match="nested more than 150 levels deep"):
        await read(file_of(schema, 1, chunk))


# --- pages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PageType.INDEX_PAGE, 4, 77])
async def test_pages_of_other_kinds_are_passed_over(kind: int) -> None:
    other = page(b"whatever", kind)
    pages = [other, dictionary_page(ints(7, 8), 2), other, WITH_DICTIONARY[1], other]
    assert await column(file_of("required int32 a;", 2, Chunk(pages, 2))) == [8, 7]


@pytest.mark.parametrize("offset", [None, 0, "data", "beyond"])
async def test_dictionaries_that_the_footer_does_not_tell(offset: int | str | None) -> None:
    # data_page_offset is then that of the dictionary: what a page is says its header.
    size = sum(map(len, WITH_DICTIONARY))
    offsets = {"data": 4, "beyond": 4 + size}
    edit = set_to(dictionary_page_offset=offsets[offset] if isinstance(offset, str) else offset)
    assert await column(file_of("required int32 a;", 2, Chunk(WITH_DICTIONARY, 2, edit=edit))) == [8, 7]


async def test_pages_without_values() -> None:
    chunk = Chunk([data_page(b"", 0), data_page(ints(1, 2), 2), data_page(b"", 0)], 2)
    assert await column(file_of("required int32 a;", 2, chunk)) == [1, 2]
    empty = Chunk([data_page(b"", 0, RLE_DICTIONARY)], 0)
    assert await column(file_of("required int32 a;", 0, empty)) == []


async def test_rows_that_go_on_in_the_next_page() -> None:
    # Pages v1 need not end with a row.
    pages = [
        data_page(levels(1, 0, 1) + levels(1, 1, 1) + ints(1, 2), 2),
        data_page(levels(1, 1, 1, 0) + levels(1, 1, 1, 0) + ints(3, 4), 3),
        data_page(levels(1, 0, 1) + levels(1, 1, 1) + ints(5, 6), 2),
    ]
    assert await column(file_of("repeated int32 a;", 3, Chunk(pages, 7))) == [[1, 2, 3, 4], [], [5, 6]]


async def test_dictionary_indices_of_no_bits() -> None:
    # All are 0, and no byte follows the width (ARROW-GH-43605).
    pages = [dictionary_page(ints(7), 1), data_page(levels(1, 1, 0, 1) + b"\x00", 3, RLE_DICTIONARY)]
    assert await column(file_of("optional int32 a;", 3, Chunk(pages, 3, dictionary=True))) == [7, None, 7]


async def test_a_page_of_nulls_without_a_width() -> None:
    pages = [dictionary_page(b"", 0), data_page(levels(1, 0, 0), 2, RLE_DICTIONARY)]
    assert await column(file_of("optional int32 a;", 2, Chunk(pages, 2, dictionary=True))) == [None, None]


async def test_old_names_of_dictionary_encoding() -> None:
    old = int(Encoding.PLAIN_DICTIONARY)
    pages = [dictionary_page(ints(7, 8), 2, old), data_page(b"\x01\x03\x01", 2, old)]
    assert await column(file_of("required int32 a;", 2, Chunk(pages, 2, dictionary=True))) == [8, 7]


async def test_a_chunk_that_gives_its_dictionary_up() -> None:
    pages = [*WITH_DICTIONARY, data_page(ints(9), 1)]
    assert await column(file_of("required int32 a;", 3, Chunk(pages, 3, dictionary=True))) == [8, 7, 9]


async def test_a_dictionary_that_nobody_uses() -> None:
    pages = [dictionary_page(ints(7, 8), 2), data_page(ints(1, 2), 2)]
    assert await column(file_of("required int32 a;", 2, Chunk(pages, 2, dictionary=True))) == [1, 2]


@pytest.mark.parametrize("encoding", [RLE_DICTIONARY, Encoding.PLAIN_DICTIONARY])
async def test_a_dictionary_of_booleans(encoding: Encoding) -> None:
    pages = [dictionary_page(b"\x01", 2), data_page(b"\x01\x03\x06", 4, encoding)]  # true, false
    chunk = Chunk(pages, 4, dictionary=True)
    assert await column(file_of("required boolean a;", 4, chunk)) == [True, False, False, True]


@pytest.mark.parametrize("version", [1, 2])
async def test_booleans_in_runs_stand_behind_their_length(version: int) -> None:
    body = prefixed(b"\x03\x05")
    if version == 1:
        chunk = Chunk([data_page(body, 3, RLE)], 3)
    else:
        detail = DataPageHeaderV2(3, 0, 3, int(RLE), 0, 0, False)
        chunk = Chunk([page(body, PageType.DATA_PAGE_V2, data_page_header_v2=detail)], 3)
    assert await column(file_of("required boolean a;", 3, chunk)) == [True, False, True]


async def test_pages_of_both_versions_in_a_chunk() -> None:
    detail = DataPageHeaderV2(2, 1, 2, int(PLAIN), 2, 0, False)
    second = page(b"\x03\x02" + ints(2), PageType.DATA_PAGE_V2, data_page_header_v2=detail)
    chunk = Chunk([data_page(levels(1, 1, 0) + ints(1), 2), second], 4)
    assert await column(file_of("optional int32 a;", 4, chunk)) == [1, None, None, 2]


# --- levels ---------------------------------------------------------------------------------------------

TEN = [1, 0, 0, 1, 1, 1, 0, 1, 0, 1]


def packed(bits: Sequence[int], order: str) -> bytes:
    return np.packbits(np.array(bits, np.uint8), bitorder=order).tobytes()  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    ("created_by", "order"),
    [
        (None, "big"),
        ("parquet-mr version 1.0.0", "big"),
        # The other way round, against the specification (IMPALA-3006).
        ("impala version 2.5.0-cdh5.7.0 (build x)", "little"),
    ],
)
async def test_levels_in_bits(created_by: str | None, order: str) -> None:
    chunk = Chunk([data_page(packed(TEN, order) + ints(*range(6)), 10, level=BIT_PACKED)], 10)
    expected = iter(range(6))
    rows = [next(expected) if bit else None for bit in TEN]
    assert await column(file_of("optional int32 a;", 10, chunk, created_by=created_by)) == rows


async def test_wide_levels_in_bits_of_impala() -> None:
    # Three levels in two bits each: 1, 2, 0, 2, 2, from the least significant bit on.
    bits = [bit for level in (1, 2, 0, 2, 2) for bit in (level & 1, level >> 1)]
    chunk = Chunk([data_page(packed(bits, "little") + ints(5, 6, 7), 5, level=BIT_PACKED)], 5)
    data = file_of("optional group a { optional int32 x; }", 5, chunk, created_by="impala version 2.5")
    assert await column(data) == [{"x": None}, {"x": 5}, None, {"x": 6}, {"x": 7}]


async def test_the_encoding_of_levels_that_are_not_there() -> None:
    # parquet-mr names BIT_PACKED for the levels of required columns.
    chunk = Chunk([data_page(ints(1, 2), 2, level=BIT_PACKED)], 2)
    assert await column(file_of("required int32 a;", 2, chunk)) == [1, 2]


async def test_levels_in_an_encoding_that_there_is_not() -> None:
    # No writer names one, and neither pyarrow nor parquet-java reads it: the header is damaged.
    chunk = Chunk([data_page(ints(1, 2), 2, level=99)], 2)
    with pytest.raises(rpq.FormatError, match="levels are encoded as 99"):
        await column(file_of("required int32 a;", 2, chunk))


async def test_more_levels_than_values() -> None:
    # too_many_def_levels.parquet of Impala: what is behind the last value means nothing.
    chunk = Chunk([data_page(levels(1, 1, 0, 1, 1, 0, 1) + ints(1, 2), 3)], 3)
    assert await column(file_of("optional int32 a;", 3, chunk)) == [1, None, 2]


async def test_the_last_group_of_bits_may_be_cut_short() -> None:
    # Twelve levels in a run of two groups, of which the second has its first bits alone.
    body = prefixed(b"\x05\xff\x0f") + ints(*range(12))
    chunk = Chunk([data_page(body, 12)], 12)
    assert await column(file_of("optional int32 a;", 12, chunk)) == list(range(12))


# --- checksums ------------------------------------------------------------------------------------------


async def test_a_crc_of_zero_by_parquet_jl() -> None:
    chunk = Chunk([data_page(ints(1, 2), 2, crc=0)], 2)
    assert await column(file_of("required int32 a;", 2, chunk, created_by="Parquet.jl 0.6.0")) == [1, 2]
    for created_by in (None, "parquet-mr version 1.8.0"):
        with pytest.raises(rpq.ChecksumError, match="stored 00000000"):
            await read(file_of("required int32 a;", 2, chunk, created_by=created_by))
    wrong = Chunk([data_page(ints(1, 2), 2, crc=1)], 2)
    with pytest.raises(rpq.ChecksumError, match="stored 00000001"):
        await read(file_of("required int32 a;", 2, wrong, created_by="Parquet.jl 0.6.0"))


async def test_a_file_of_parquet_jl_is_sound() -> None:
    chunk = Chunk([data_page(ints(1, 2), 2, crc=0)], 2)
    store = MemoryStore()
    await store.put("file", file_of("required int32 a;", 2, chunk, created_by="Parquet.jl 0.6.0"))
    assert (await rpq.check((store, "file"))).outcome == rpq.Outcome.SOUND


async def test_a_crc_covers_the_page_as_it_is_stored() -> None:
    body = zlib.compress(ints(1, 2), wbits=31)
    stored = data_page(body, 2, crc=signed(zlib.crc32(body)), size=8)
    chunk = Chunk([stored], 2, CompressionCodec.GZIP)
    assert await column(file_of("required int32 a;", 2, chunk)) == [1, 2]


# --- sizes that do not hold -----------------------------------------------------------------------------


async def test_chunks_of_old_parquet_mr_are_longer_than_they_say() -> None:
    # Up to 1.2.8 the header of the dictionary page was not counted (PARQUET-816).
    header = len(WITH_DICTIONARY[0]) - 8
    size = sum(map(len, WITH_DICTIONARY)) - header
    first = Chunk(WITH_DICTIONARY, 2, edit=set_to(total_compressed_size=size), dictionary=True)
    data = file_of("required int32 a; required int32 b;", 2, first, ONE_TWO, created_by="parquet-mr version 1.2.8")
    assert (await read(data)).to_pydict() == {"a": [8, 7], "b": [1, 2]}
    newer = file_of("required int32 a; required int32 b;", 2, first, ONE_TWO, created_by="parquet-mr version 1.2.9")
    with pytest.raises(rpq.FormatError):
        await read(newer)


@pytest.mark.parametrize("num_values", [1, 3])
async def test_the_footers_number_of_values_means_nothing(num_values: int) -> None:
    # bad_column_metadata.parquet of Impala has wrong ones: the pages know better.
    assert await column(file_of("required int32 a;", 2, replace(ONE_TWO, num_values=num_values))) == [1, 2]


async def test_pages_that_say_that_they_are_not_compressed() -> None:
    # parquet-cpp before Arrow 3 compressed them all the same: the size tells (ARROW-17100).
    body = b"\x04\x01" + zlib.compress(ints(1, 2), wbits=31)
    detail = DataPageHeaderV2(2, 0, 2, int(PLAIN), 2, 0, False)
    stored = page(body, PageType.DATA_PAGE_V2, data_page_header_v2=detail, size=2 + 8)
    chunk = Chunk([stored], 2, CompressionCodec.GZIP)
    assert await column(file_of("optional int32 a;", 2, chunk)) == [1, 2]


@pytest.mark.parametrize("codec", [CompressionCodec.SNAPPY, CompressionCodec.GZIP, CompressionCodec.ZSTD,
                                   CompressionCodec.BROTLI, CompressionCodec.LZ4, CompressionCodec.LZ4_RAW,
                                   CompressionCodec.LZO])  # fmt: skip
async def test_pages_without_any_bytes_are_not_decompressed(codec: CompressionCodec) -> None:
    chunk = Chunk([data_page(b"", 0)], 0, codec)
    detail = DataPageHeaderV2(2, 2, 2, int(PLAIN), 2, 0, True)
    nulls = page(b"\x04\x00", PageType.DATA_PAGE_V2, data_page_header_v2=detail)
    assert await column(file_of("required int32 a;", 0, chunk)) == []
    assert await column(file_of("optional int32 a;", 2, Chunk([nulls], 2, codec))) == [None, None]


@pytest.mark.parametrize("count", [2**31 - 1, 10**6])
async def test_values_that_are_announced_and_not_there(count: int) -> None:
    chunk = Chunk([data_page(ints(1, 2), count)], count)
    for schema in ("required int32 a;", "repeated int32 a;"):
        with pytest.raises(rpq.FormatError):
            await read(file_of(schema, 2, chunk))


@pytest.mark.parametrize(
    ("codec", "size"),
    [
        (CompressionCodec.SNAPPY, 1000),
        (CompressionCodec.GZIP, 31_000),
        (CompressionCodec.LZO, 10_000),
        (CompressionCodec.LZ4, 10_000),
        (CompressionCodec.LZ4_RAW, 10_000),
    ],
)
async def test_sizes_that_compression_does_not_reach(codec: CompressionCodec, size: int) -> None:
    for announced in (size, 2**31 - 1):
        chunk = Chunk([data_page(bytes(30), 2, size=announced)], 2, codec)
        with pytest.raises(rpq.FormatError, match=f"30 bytes of {codec.name} data cannot become {announced:,}"):
            await read(file_of("required int32 a;", 2, chunk))


@pytest.mark.parametrize("place", ["resilient_pq.format.pages.chunk_decoder._ChunkDecoder.add",
                                   "resilient_pq.arrow.assemble.leaf_array"])  # fmt: skip
async def test_memory_that_does_not_suffice(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(place, fail)
    monkeypatch.setattr(kernels, "ChunkBatch", fail)
    with pytest.raises(rpq.FormatError, match="there is not enough memory for the 2 ") as caught:
        await read(file_of("required int32 a;", 2, ONE_TWO))
    assert isinstance(caught.value.__cause__, MemoryError)
    assert (caught.value.where.row_group, caught.value.where.column) == (0, "a")
