"""The table of structs, against parquet.thrift as fastparquet ships it and against what pyarrow reads and writes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastparquet  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from thrift.Thrift import TType

from resilient_pq.format import annotations, compact_protocol, file_metadata

#: The classes of the structs and enumerations by their names.
DECLARED = vars(annotations) | vars(file_metadata)

#: Where our name is not the specification's.
ENUMS = {"FieldRepetitionType": "Repetition"}
STRUCTS = {"TimestampType": "TimeType", "TimeUnit": "TimeUnitUnion", "SortingColumn": "StoredSortingColumn"}
#: Structs that carry nothing but their number, or that this version does not use.
UNUSED = {
    "BloomFilterHeader", "BloomFilterAlgorithm", "BloomFilterHash", "BloomFilterCompression", "AesGcmV1",
    "AesGcmCtrV1", "EncryptionAlgorithm", "FileCryptoMetaData",
}  # fmt: skip
WIRE_TYPES = {
    "bool": TType.BOOL, "i8": TType.BYTE, "byte": TType.BYTE, "i16": TType.I16, "i32": TType.I32,
    "i64": TType.I64, "double": TType.DOUBLE, "binary": TType.STRING, "string": TType.STRING,
}  # fmt: skip


def _specification() -> str:
    text = Path(fastparquet.__file__).with_name("parquet.thrift").read_text()
    return re.sub(r"//.*|#.*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))


def _declared(kind: str) -> Iterator[tuple[str, str]]:
    for found, name, body in re.findall(r"(struct|union|enum)\s+(\w+)\s*\{(.*?)\}", _specification(), flags=re.S):
        if found in kind:
            yield name, body


def test_enumerations_have_the_specifications_numbers() -> None:
    compared = 0
    for name, body in _declared("enum"):
        ours = DECLARED[ENUMS.get(name, name)]
        for member, number in re.findall(r"(\w+)\s*=\s*(\d+)", body):
            if member in ours.__members__:
                assert ours[member] == int(number), (name, member)
                compared += 1
    assert compared > 50


def test_fields_have_the_specifications_numbers_names_and_types() -> None:
    compared = 0
    enums = {name for name, _ in _declared("enum")}
    for name, body in _declared("struct union"):
        fields = re.findall(r"(\d+):\s*(?:required|optional)?\s*(list<\w+>|\w+)\s+(\w+)", body)
        if not fields or name in UNUSED:
            continue
        ours = DECLARED[STRUCTS.get(name, name)]
        for number, kind, field in fields:
            at, wire_type, found, arguments, _ = ours.thrift_spec[int(number)]
            assert (at, found) == (int(number), field), name
            inner = kind.removeprefix("list<").removesuffix(">")
            if kind.startswith("list<"):
                assert wire_type == TType.LIST, (name, field)
                wire_type = arguments[0]
            expected = WIRE_TYPES.get(inner, TType.I32 if inner in enums else TType.STRUCT)
            assert wire_type == expected, (name, field)
            compared += 1
    assert compared > 100


def _arrow_file() -> bytes:
    table = pa.table(
        {
            "a": pa.array([1, None, 3], pa.int32()),
            "b": pa.array(["x", "y", None]),
            "c": pa.array([[1.5], [], None], pa.list_(pa.float64())),
        },
        metadata={"who": "pyarrow"},
    )
    out = io.BytesIO()
    pq.write_table(
        table, out, compression="snappy", write_page_index=True, row_group_size=2,
        sorting_columns=[pq.SortingColumn(0, descending=True)],
    )  # fmt: skip
    return out.getvalue()


@pytest.fixture(scope="module")
def both() -> tuple[file_metadata.FileMetaData, pq.FileMetaData]:
    """A footer of pyarrow's, as we read it and as it does."""
    data = _arrow_file()
    length = int.from_bytes(data[-8:-4], "little")
    return compact_protocol.decode(file_metadata.FileMetaData, data[-8 - length : -8])[0], pq.read_metadata(
        io.BytesIO(data)
    )


def test_pyarrows_footer_says_the_same(both: tuple[file_metadata.FileMetaData, pq.FileMetaData]) -> None:
    ours, theirs = both
    assert ours.num_rows == theirs.num_rows and ours.created_by == theirs.created_by
    assert len(ours.row_groups) == theirs.num_row_groups
    keys = {pair.key: pair.value for pair in ours.key_value_metadata or ()}
    assert keys["who"] == "pyarrow" and len(keys) == 2
    for ordinal, group in enumerate(ours.row_groups):
        expected = theirs.row_group(ordinal)
        assert (group.num_rows, group.total_byte_size) == (expected.num_rows, expected.total_byte_size)
        assert group.sorting_columns and group.sorting_columns[0].descending
        for position, chunk in enumerate(group.columns):
            _assert_same_chunk(chunk, expected.column(position))


def _assert_same_chunk(chunk: file_metadata.ColumnChunk, expected: Any) -> None:
    meta = chunk.meta_data
    assert meta is not None and meta.path_in_schema is not None and meta.statistics is not None
    assert ".".join(meta.path_in_schema) == expected.path_in_schema
    assert file_metadata.Type(meta.type).name == expected.physical_type
    assert file_metadata.CompressionCodec(meta.codec).name == expected.compression
    assert {file_metadata.Encoding(value).name for value in meta.encodings} == set(expected.encodings)
    assert (meta.num_values, meta.data_page_offset, meta.dictionary_page_offset) == (
        expected.num_values, expected.data_page_offset, expected.dictionary_page_offset,
    )  # fmt: skip
    assert meta.total_compressed_size == expected.total_compressed_size
    assert meta.total_uncompressed_size == expected.total_uncompressed_size
    assert meta.statistics.null_count == expected.statistics.null_count
    assert (chunk.column_index_offset is not None) == expected.has_column_index
    assert (chunk.offset_index_offset is not None) == expected.has_offset_index


def test_a_footer_encoded_again_is_the_same_to_pyarrow(
    both: tuple[file_metadata.FileMetaData, pq.FileMetaData],
) -> None:
    ours, theirs = both
    encoded = compact_protocol.encode(ours)
    again = pq.read_metadata(io.BytesIO(b"PAR1" + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"))
    assert again.equals(theirs)


def test_values_that_no_enumeration_has_yet_are_kept() -> None:
    chunk = file_metadata.ColumnMetaData(type=99, encodings=[98], codec=97)
    assert compact_protocol.decode(file_metadata.ColumnMetaData, compact_protocol.encode(chunk))[0] == chunk
