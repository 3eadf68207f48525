"""The header of a file, and the tables of its columns' blocks (Trevni, "File Format")."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError, FormatError, TornFileError, UnsupportedError, Where, located
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.trevni.blocks.block_codecs import TrevniCodec, decompress
from resilient_pq.trevni.blocks.block_values import VARINTS, fixed_width, read_varint
from resilient_pq.trevni.blocks.trevni_metadata import ColumnMetadata, Pairs, ValueType

MAGIC: Final = b"Trv"
_COUNTS = struct.Struct("<QI")
_COUNTS_AT: Final = 4
_START: Final = 8
_COUNT: Final = 4
_DESCRIPTOR = struct.Struct("<III")
#: Bytes that are asked for at least where those at hand do not suffice.
_LEAST_READ: Final = 1 << 12


class Version(IntEnum):
    """The fourth byte of a file.

    1 was used twice: by the draft that Impala followed in 2012, and by Avro's writer early in 2013. What they differ in
    stands in the metadata of each column, but for blocks whose compressed size is said to be 0: they are not compressed
    in the former, and empty in the latter, where their size before compression is 0 as well.
    """

    FIRST = 0
    """Avro's first code: it has no booleans."""
    DRAFT = 1
    """The draft's, or Avro's second."""
    FINAL = 2
    """Avro's last: here alone runs of lengths are shortened."""


@dataclass(frozen=True, slots=True)
class NeedLongerPrefix:
    """More bytes are needed, at least up to `end`."""

    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """The header; `starts` are the offsets of the tables of each column's blocks, `size` is its own size."""

    version: Version
    num_rows: int
    metadata: Pairs
    columns: tuple[ColumnMetadata, ...]
    starts: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class BlockTable:
    """The blocks of a column: offsets, sizes, and rows; entries instead of rows for columns with repetition levels."""

    column: ColumnMetadata
    offsets: NDArray[np.int64]
    stored_sizes: NDArray[np.int64]
    sizes: NDArray[np.int64]
    compressed: NDArray[np.bool_]
    counts: NDArray[np.int64]
    start: int
    end: int

    def __len__(self) -> int:
        return len(self.offsets)

    def span(self, block: int) -> tuple[int, int]:
        """The start of a block, and the end of its checksum."""
        start = int(self.offsets[block])
        return start, start + int(self.stored_sizes[block]) + self.column.checksum.size

    def where(self, block: int) -> Where:
        """The place of a block, for messages."""
        return Where(column=self.column.name, page=block, offset=int(self.offsets[block]))

    def unpack(self, block: int, stored: memoryview, *, verify: bool) -> tuple[NDArray[np.uint8], bool]:
        """A block decompressed, from the bytes of its `span`, and whether its checksum was compared and holds."""
        column = self.column
        with located(self.where(block)):
            end = len(stored) - column.checksum.size
            codec = column.codec if self.compressed[block] else TrevniCodec.NULL
            data = decompress(codec, stored[:end], int(self.sizes[block]))
            verified = verify and column.checksum.verify(data, stored[end:], codec)
            return np.frombuffer(data, np.uint8), verified


def read_header(data: memoryview, size: int) -> Header | NeedLongerPrefix:
    """The header of a file, of its beginning and its size."""
    try:
        return _read_header(data, size)
    except (IndexError, struct.error):
        if len(data) < size:
            return NeedLongerPrefix(min(max(2 * len(data), _LEAST_READ), size))
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
    metadata, at = _read_pairs(data, _COUNTS_AT + _COUNTS.size, size)
    # Each column takes the count of its metadata, and its start.
    if num_columns > (size - at) // (1 + _START):
        raise TornFileError(f"{num_columns:,} columns are said to be described in {size - at:,} bytes")
    pairs = []
    for _ in range(num_columns):
        found, at = _read_pairs(data, at, size)
        pairs.append(found)
    if at + num_columns * _START > len(data):
        raise IndexError
    starts = struct.unpack_from(f"<{num_columns}Q", data, at)
    columns = tuple(ColumnMetadata.of(found, metadata) for found in pairs)
    _check_parents(columns)
    return Header(Version(version), num_rows, metadata, columns, starts, at + num_columns * _START)


def _read_pairs(data: memoryview, at: int, size: int) -> tuple[dict[str, bytes], int]:
    """Pairs of keys and values, of those with the same key the last one, and where the next thing begins."""
    count, at = read_varint(data, at)
    # Each pair takes two bytes at least.
    if not 0 <= count <= (size - at) // 2:
        raise FormatError(f"{count:,} pairs of metadata are said to be in {size - at:,} bytes")
    pairs = {}
    for _ in range(count):
        key, at = _read_bytes(data, at, size)
        value, at = _read_bytes(data, at, size)
        pairs[key.decode("utf-8", "backslashreplace")] = value
    return pairs, at


def _read_bytes(data: memoryview, at: int, size: int) -> tuple[bytes, int]:
    length, at = read_varint(data, at)
    if not 0 <= length <= size - at:
        raise FormatError(f"{length:,} bytes of metadata are said to be in {size - at:,}")
    if at + length > len(data):
        raise IndexError
    return bytes(data[at : at + length]), at + length


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
) -> BlockTable | NeedLongerPrefix:
    """Read the table of the blocks of a column from bytes that begin at `offset` of the file."""
    column, start = header.columns[position], header.starts[position]
    if not header.size <= start <= size - _COUNT:
        raise TornFileError(f"the column begins at {start:,}, and the file has {size:,} bytes", where=column.where)
    try:
        return _read_block_table(data, start - offset, header.version, column, start, size)
    except (IndexError, struct.error):
        end = offset + len(data)
        if end < size:
            return NeedLongerPrefix(min(max(end + len(data), start + _LEAST_READ), size))
        raise TornFileError("the file ends within the table of the column's blocks", where=column.where) from None
    except EncodingError as error:
        raise FormatError(f"the table of blocks does not parse: {error.message}", where=column.where) from error


def _read_block_table(
    data: memoryview, at: int, version: Version, column: ColumnMetadata, start: int, size: int
) -> BlockTable:
    (count,) = struct.unpack_from("<I", data, at)
    at += _COUNT
    if count > (size - start - _COUNT) // _DESCRIPTOR.size:
        raise TornFileError(
            f"{count:,} blocks are said to be described in {size - start - _COUNT:,} bytes",
            where=column.where,
        )
    described, end = _descriptors(data, at, count, column)
    counts, sizes, stored = described.astype(np.int64).T
    compressed = (stored != 0) | (version is not Version.DRAFT)
    stored = np.where(compressed, stored, sizes)
    spans = stored + column.checksum.size
    ends = start + _COUNT + (end - at) + np.cumsum(spans)
    last = int(ends[-1]) if count else start + _COUNT + (end - at)
    return BlockTable(column, ends - spans, stored, sizes, compressed, counts, start, last)


def _descriptors(data: memoryview, at: int, count: int, column: ColumnMetadata) -> tuple[NDArray[Any], int]:
    """Counts, sizes and stored sizes of the blocks, and where the next thing begins; first values are passed over."""
    if not column.has_first_values:
        end = at + count * _DESCRIPTOR.size
        if end > len(data):
            raise IndexError
        return np.frombuffer(data[at:end], "<u4").reshape(-1, 3), end
    described = []
    for _ in range(count):
        described.append(_DESCRIPTOR.unpack_from(data, at))
        at = _end_of_value(data, at + _DESCRIPTOR.size, column.type)
    if at > len(data):
        raise IndexError
    return np.array(described, np.uint32).reshape(-1, 3), at


def _end_of_value(data: memoryview, at: int, kind: ValueType) -> int:
    """Where a value ends that stands by itself."""
    width = {ValueType.NULL: 0, ValueType.BOOLEAN: 1}.get(kind, fixed_width(kind))
    if width is not None:
        return at + width
    value, at = read_varint(data, at)
    if kind in VARINTS:
        return at
    if value < 0:
        raise EncodingError(f"a value is said to have {value} bytes")
    return at + value
