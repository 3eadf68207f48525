"""The header of a file, and the tables of its columns' blocks (Trevni, "File Format")."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError, FormatError, TornFileError, UnsupportedError
from resilient_pq.formats.trevni.metadata import ColumnMetadata, Pairs, ValueType, read_pairs
from resilient_pq.formats.trevni.varints import read_varint

MAGIC: Final = b"Trv"
_COUNTS = struct.Struct("<QI")
_COUNTS_AT: Final = 4
_START: Final = 8
_COUNT: Final = 4
_DESCRIPTOR = struct.Struct("<III")
#: Bytes that are asked for at least where those at hand do not suffice.
_LEAST_READ: Final = 1 << 12
#: Bytes of a first value, where all have as many.
_WIDTHS: Final = {
    ValueType.NULL: 0,
    ValueType.BOOLEAN: 1,
    ValueType.FIXED8: 1,
    ValueType.FIXED16: 2,
    ValueType.FIXED32: 4,
    ValueType.FLOAT: 4,
    ValueType.FIXED64: 8,
    ValueType.DOUBLE: 8,
    ValueType.TIMESTAMP: 12,
}

T = TypeVar("T")


class Version(IntEnum):
    """The fourth byte of a file.

    1 was used twice: by the draft that Impala followed in 2012, and by Avro's writer from January to March 2013. What
    they differ in stands in the metadata of each column: only the former has definition levels, and types as fixed8.
    Of files without any of these both dialects say the same, but for blocks whose compressed size is said to be 0,
    which are not compressed in the former, and empty in the latter: there their size before compression is 0 as well.
    """

    FIRST = 0
    """Avro's first code: it has no booleans."""
    DRAFT = 1
    """The draft's, or Avro's second."""
    FINAL = 2
    """Avro's last: here alone runs of lengths are shortened."""


@dataclass(frozen=True, slots=True)
class NeedBytes:
    """More of the file is needed than was at hand: up to `end`, which may not suffice either."""

    end: int


def _more(end: int, size: int) -> NeedBytes:
    return NeedBytes(min(end, size))


@dataclass(frozen=True, slots=True)
class Header:
    """What a file begins with.

    Attributes:
        version: Its fourth byte.
        num_rows: Rows that it is said to have.
        metadata: The pairs of the file.
        columns: Its columns, in order.
        starts: Where the table of each column's blocks begins.
        size: Bytes of the header.
    """

    version: Version
    num_rows: int
    metadata: Pairs
    columns: tuple[ColumnMetadata, ...]
    starts: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class BlockTable:
    """Where the blocks of a column lie.

    Attributes:
        column: The column.
        offsets: Where each block begins.
        stored_sizes: Bytes of each, as they are stored, without the checksum.
        sizes: Bytes of each before compression.
        compressed: Which went through the codec of the column: all, but for blocks of the draft's dialect without a
            compressed size.
        counts: For each what it is said to have of rows: with repetition levels entries, otherwise rows.
        first_values: The first value of each, as it is stored; empty where there are none.
        start: Where the table begins.
        end: Where the last block ends.
    """

    column: ColumnMetadata
    offsets: NDArray[np.int64]
    stored_sizes: NDArray[np.int64]
    sizes: NDArray[np.int64]
    compressed: NDArray[np.bool_]
    counts: NDArray[np.int64]
    first_values: tuple[bytes, ...] = field(repr=False)
    start: int
    end: int

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self.offsets)

    def span(self, block: int) -> tuple[int, int]:
        """Where a block begins, and where its checksum ends."""
        start = int(self.offsets[block])
        return start, start + int(self.stored_sizes[block]) + self.column.checksum.size


def read_header(data: memoryview, size: int) -> Header | NeedBytes:
    """The header of a file.

    Args:
        data: The beginning of the file.
        size: Bytes of the whole file.

    Raises:
        FormatError: It is no Trevni file, or its header contradicts itself.
        TornFileError: The file ends within its header.
        UnsupportedError: It is of a later version, or a column uses what is not known.
    """
    try:
        return _read_header(data, size)
    except (IndexError, struct.error):
        if len(data) < size:
            return _more(max(2 * len(data), _LEAST_READ), size)
        raise TornFileError(f"the file ends after {size:,} bytes, within its header") from None
    except EncodingError as error:
        raise FormatError(f"the header does not parse: {error.message}") from error


def _read_header(data: memoryview, size: int) -> Header:
    magic = bytes(data[:_COUNTS_AT])
    if not magic.startswith(MAGIC[: len(magic)]):
        raise FormatError("it is no Trevni file: it does not begin with Trv")
    version = data[len(MAGIC)]
    if version not in list(Version):
        raise UnsupportedError(f"it is of version {version} of Trevni; 0, 1 and 2 are known")
    num_rows, num_columns = _COUNTS.unpack_from(data, _COUNTS_AT)
    metadata, at = read_pairs(data, _COUNTS_AT + _COUNTS.size, size)
    # Each column takes the count of its metadata, and its start.
    if num_columns > (size - at) // (1 + _START):
        raise TornFileError(f"{num_columns:,} columns are said to be described in {size - at:,} bytes")
    pairs = []
    for _ in range(num_columns):
        found, at = read_pairs(data, at, size)
        pairs.append(found)
    if at + num_columns * _START > len(data):
        raise IndexError
    starts = struct.unpack_from(f"<{num_columns}Q", data, at)
    columns = tuple(ColumnMetadata.of(found, metadata) for found in pairs)
    _check_parents(columns)
    return Header(Version(version), num_rows, metadata, columns, starts, at + num_columns * _START)


def _check_parents(columns: Sequence[ColumnMetadata]) -> None:
    """Refuse columns of the same name, and those whose parent is not an array before them."""
    seen: dict[str, ColumnMetadata] = {}
    for column in columns:
        if column.name in seen:
            raise FormatError("two columns have the same name", where=column.where)
        if column.parent is not None:
            parent = seen.get(column.parent)
            if parent is None or not parent.is_array:
                raise FormatError(f"no array before the column has the name {column.parent!r}", where=column.where)
            if parent.type is not ValueType.NULL:
                raise FormatError(f"the column {column.parent!r} has values besides columns", where=column.where)
        seen[column.name] = column


def read_block_table(
    data: memoryview, offset: int, header: Header, position: int, size: int
) -> BlockTable | NeedBytes:
    """Where the blocks of a column lie.

    Args:
        data: Bytes of the file from the beginning of the table on, or from before it.
        offset: Absolute offset of the first of them.
        header: The file's header.
        position: Of the column among the columns.
        size: Bytes of the whole file.

    Raises:
        TornFileError: The table goes on behind the end of the file.
        FormatError: It does not parse.
    """
    column, start = header.columns[position], header.starts[position]
    if not header.size <= start <= size - _COUNT:
        raise TornFileError(
            f"the column begins at {start:,}, and the file has {size:,} bytes", where=column.where
        )
    try:
        return _read_block_table(data, start - offset, header.version, column, start, size)
    except (IndexError, struct.error):
        end = offset + len(data)
        if end < size:
            return _more(max(end + len(data), start + _LEAST_READ), size)
        raise TornFileError("the file ends within the table of the column's blocks", where=column.where) from None
    except EncodingError as error:
        raise FormatError(f"the table of blocks does not parse: {error.message}", where=column.where) from error


def _read_block_table(
    data: memoryview, at: int, version: Version, column: ColumnMetadata, start: int, size: int
) -> BlockTable:
    (count,) = struct.unpack_from("<I", data, at)
    at += _COUNT
    least = _DESCRIPTOR.size + (_first_value_size(column) if column.has_first_values else 0)
    if count > (size - start - _COUNT) // least:
        raise TornFileError(
            f"{count:,} blocks are said to be described in {size - start - _COUNT:,} bytes", where=column.where
        )
    described, first_values, end = _descriptors(data, at, count, column)
    counts, sizes, stored = described.astype(np.int64).T
    compressed = (stored != 0) | (version is not Version.DRAFT)
    stored = np.where(compressed, stored, sizes)
    spans = stored + column.checksum.size
    ends = start + _COUNT + (end - at) + np.cumsum(spans)
    last = int(ends[-1]) if count else start + _COUNT + (end - at)
    return BlockTable(column, ends - spans, stored, sizes, compressed, counts, first_values, start, last)


def _first_value_size(column: ColumnMetadata) -> int:
    return _WIDTHS.get(column.type, 1)


def _descriptors(
    data: memoryview, at: int, count: int, column: ColumnMetadata
) -> tuple[NDArray[Any], tuple[bytes, ...], int]:
    """Counts, sizes and stored sizes of the blocks, their first values, and where the next thing begins."""
    if not column.has_first_values:
        end = at + count * _DESCRIPTOR.size
        if end > len(data):
            raise IndexError
        return np.frombuffer(data[at:end], "<u4").reshape(-1, 3), (), end
    described = np.empty((count, 3), np.uint32)
    first_values = []
    for block in range(count):
        described[block] = _DESCRIPTOR.unpack_from(data, at)
        at += _DESCRIPTOR.size
        end = _end_of_value(data, at, column.type)
        if end > len(data):
            raise IndexError
        first_values.append(bytes(data[at:end]))
        at = end
    return described, tuple(first_values), at


def _end_of_value(data: memoryview, at: int, kind: ValueType) -> int:
    """Where a value ends."""
    if kind in _WIDTHS:
        return at + _WIDTHS[kind]
    value, at = read_varint(data, at)
    if kind in (ValueType.INT, ValueType.LONG):
        return at
    if value < 0:
        raise EncodingError(f"a value is said to have {value} bytes")
    return at + value
