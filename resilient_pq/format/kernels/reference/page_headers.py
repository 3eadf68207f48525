"""The headers of all pages of a column chunk, and what a footer says of chunks, without an object for each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError, ThriftError
from resilient_pq.format.kernels.integers import varint
from resilient_pq.format.kernels.page_columns import ChunkNumber, PageField
from resilient_pq.format.kernels.reference.arrays import BytesLike, octets
from resilient_pq.format.kernels.reference.thrift import struct_end, value_end

_STOP, _FALSE, _I32, _STRUCT = -1, 2, 5, 12
_BOOLS = (1, _FALSE)
_MAX_DEPTH = 64
_ENCODINGS = frozenset((0, *range(2, 11)))
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
#: Ids of the fields that are looked at in a page header and in the structs within it (parquet.thrift).
_KNOWN = range(1, 9)
_V1, _DICTIONARY, _V2 = 5, 7, 8
#: Id of a struct's field in a page header: the ids of its integers, all required, and of its boolean.
_DETAILS = {_V1: (range(1, 5), 0), _DICTIONARY: (range(1, 3), 3), _V2: (range(1, 7), 7)}


def page_headers(chunk: BytesLike, num_values: int) -> NDArray[np.int64]:
    """The headers of the pages of a column chunk, as one row of `PageField`s per page."""
    # Of pages up to `num_values` entries, or of all bytes where that is -1. It takes only what cannot be misunderstood:
    # it refuses fields that stand twice and integers of more bits than they may have. Where it does, a full reader of
    # Thrift has the last word.
    data = octets(chunk).data
    rows: list[list[int]] = []
    at = found = 0
    while at < len(data) and (num_values < 0 or found < num_values):
        row = _header(data, at)
        at = row[PageField.BODY] + row[PageField.COMPRESSED_SIZE]
        if at > len(data):
            raise EncodingError("a page goes beyond its column chunk")
        if row[PageField.TYPE] in (_DATA_PAGE, _DATA_PAGE_V2):
            found += row[PageField.NUM_VALUES]
        rows.append(row)
    return np.array(rows, np.int64).reshape(len(rows), PageField.COUNT)


def _header(data: memoryview, at: int) -> list[int]:
    fields, body = _fields(data, at, _MAX_DEPTH)
    numbers, _, structs = fields
    if any(number not in numbers for number in (1, 2, 3)):
        raise ThriftError("a page header lacks what it must have")
    details = {}
    for number, (required, flag) in _DETAILS.items():
        if number in structs:
            (inner, flags, _), _ = _fields(data, structs[number], _MAX_DEPTH - 1)
            if any(field not in inner for field in required):
                raise ThriftError("a page header lacks what it must have")
            details[number] = [inner[field] for field in required], flags.get(flag, True)
    kind, uncompressed, compressed = numbers[1], numbers[2], numbers[3]
    if compressed < 0 or uncompressed < 0:
        raise ThriftError("a size in a page header is negative")
    crc = numbers[4] & 0xFFFFFFFF if 4 in numbers else -1
    return [at, body, compressed, uncompressed, kind, crc, *_detail(kind, details)]


def _detail(kind: int, details: dict[int, tuple[list[int], bool]]) -> list[int]:
    """The columns behind `CRC`."""
    wanted = {_DATA_PAGE: _V1, _DICTIONARY_PAGE: _DICTIONARY, _DATA_PAGE_V2: _V2}.get(kind)
    if wanted is None:
        return [0, -1, -1, -1, -1, -1, 1]
    if wanted not in details:
        raise ThriftError("a page header lacks that of its kind")
    numbers, flag = details[wanted]
    counts = numbers[:3] if wanted == _V2 else numbers[:1]
    encodings = {_V1: numbers[2:], _DICTIONARY: numbers[1:], _V2: []}[wanted]
    if min(counts) < 0 or not _ENCODINGS.issuperset(encodings):
        raise ThriftError("a page header says what no writer does")
    if wanted == _V1:
        count, encoding, definition, repetition = numbers
        return [count, encoding, definition, repetition, -1, -1, 1]
    if wanted == _DICTIONARY:
        return [*numbers, -1, -1, -1, -1, 1]
    count, _, _, encoding, definition, repetition = numbers
    return [count, encoding, -1, -1, definition, repetition, int(flag)]


def _fields(
    data: memoryview, position: int, depth: int
) -> tuple[tuple[dict[int, int], dict[int, bool], dict[int, int]], int]:
    """The integers of 32 bits, the booleans and the offsets of structs by their fields' ids, and the struct's end."""
    numbers: dict[int, int] = {}
    flags: dict[int, bool] = {}
    structs: dict[int, int] = {}
    number = 0
    while True:
        number, kind, position = _field_header(data, position, number)
        if kind == _STOP:
            return (numbers, flags, structs), position
        known = number in _KNOWN
        if known and (number in numbers or number in flags or number in structs):
            raise ThriftError("a field of a page header stands twice")
        if known and kind in _BOOLS:
            flags[number] = kind != _FALSE
        elif known and kind == _I32:
            coded, position = varint(data, position, 32, ThriftError)
            numbers[number] = coded >> 1 ^ -(coded & 1)
        elif known and kind == _STRUCT:
            structs[number] = position
            position = struct_end(data, position, depth - 1)
        elif kind not in _BOOLS:
            position = value_end(data, position, kind, depth - 1)


def _field_header(data: memoryview, position: int, previous: int) -> tuple[int, int, int]:
    """The id and the type of a field, `_STOP` behind the last one, and the offset of what follows."""
    if position >= len(data):
        raise ThriftError("a page header ends behind the end of its chunk")
    header, position = data[position], position + 1
    if header == 0:
        return previous, _STOP, position
    number = previous + (header >> 4)
    if not header >> 4:
        coded, position = varint(data, position, 16, ThriftError)
        number = coded >> 1 ^ -(coded & 1)
    if number > 0x7FFF:
        raise ThriftError("a field of a page header has a number that none can have")
    return number, header & 0x0F, position


def chunk_numbers(data: Any, starts: Any, ordinals: NDArray[np.int64], data_end: int) -> NDArray[np.int64]:
    """A row of `ChunkNumber`s for some of the ColumnChunks that stand back to back, and end before `data_end`."""
    # The bytes are known to be sound. Of a chunk that says more than where its pages lie, and how to read them, the
    # kind of its sum is -1: so that of all chunks here.
    if len(ordinals) and not 0 <= ordinals.min() <= ordinals.max() < len(starts) - 1:
        raise ValueError("there are fewer column chunks than that")
    numbers = np.zeros((len(ordinals), ChunkNumber.COUNT), np.int64)
    numbers[:, ChunkNumber.SUM_KIND] = -1
    return numbers
