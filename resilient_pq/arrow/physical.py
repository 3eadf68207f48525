"""The values of an Arrow leaf as Parquet stores them (`format.physical_values` says how they lie in memory).

Only slots that have a value are looked at, so what stands in null slots never matters. A value that Parquet
cannot hold is an error that names its column and row; nothing is rounded or cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.arrow.buffers import BufferPart, byte_arrays_of, num_bytes
from resilient_pq.arrow.int96 import int96_rows
from resilient_pq.arrow.intervals import to_intervals
from resilient_pq.format import kernels
from resilient_pq.format.encodings.dictionary import strings_at
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.physical_values import ByteArrays, Values, empty_fixed, fixed_width, room_for
from resilient_pq.format.schema_tree import Primitive

#: Slots by their numbers, or by a flag for each.
Positions: TypeAlias = NDArray[np.int64] | NDArray[np.bool_]

_MILLISECONDS_PER_DAY: Final = 86_400_000
_LARGEST_VALUE: Final = 2**31 - 1
#: The formats, or their kinds, whose values lie in memory as those of a physical type do.
SAME_FORM: Final = {
    Type.BOOLEAN: ("b",),
    Type.INT32: ("i", "I", "c", "C", "s", "S", "tdD", "ttm"),
    Type.INT64: ("l", "L", "tsm", "tsu", "tsn", "ttu", "ttn", "tDs", "tDm", "tDu", "tDn"),
    Type.FLOAT: ("f",),
    Type.DOUBLE: ("g",),
    Type.BYTE_ARRAY: ("u", "z"),
    Type.FIXED_LEN_BYTE_ARRAY: ("w", "e"),
}
#: Entries of a dictionary that are kept however few rows refer to it.
_MANY_ENTRIES: Final = 65_536


class UnstorableValueError(Exception):
    """A value, by its index, has no form in Parquet; who knows the column and the row makes a `SchemaError` of it."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index
        self.message = message


def may_fail(part: BufferPart) -> bool:
    """Whether a value of an array of this type can be one that Parquet does not hold."""
    field = part.field
    if field.dictionary is not None:
        return True
    match field.kind:
        case "ts" | "tt":
            return field.unit == "s"
        case "d" | "tdm" | "U" | "Z" | "ti":
            return True
    return False


def physical_values(node: Primitive, part: BufferPart, positions: Positions | None) -> Values:
    """The values of some slots of an array, or of those in a mask, as a leaf's `LeafData` has them."""
    field = part.field
    if field.dictionary is not None:
        return _dictionary_values(node, part, positions)
    if field.kind == "n":
        return no_values(node)
    if field.kind in _ROWS:
        return _ROWS[field.kind](node, _chosen(part.rows(), positions))
    if node.physical_type is Type.BYTE_ARRAY:
        return _checked_lengths(byte_arrays_of(part, positions))
    values = _chosen(part.booleans() if field.kind == "b" else part.fixed(), positions)
    if node.physical_type is Type.INT96:
        return int96_rows(values)
    convert = _CONVERSIONS.get(field.format[:3], _same_bits)
    return convert(values)


def physical_bytes(node: Primitive, part: BufferPart) -> int:
    """About what `physical_values` of all slots take in memory."""
    if node.physical_type is not Type.BYTE_ARRAY:
        return part.length * (1 if node.physical_type is Type.BOOLEAN else fixed_width(node) or 0)
    if part.field.dictionary is None:
        return num_bytes(part)
    dictionary = part.dictionary()
    return part.length * (4 + num_bytes(dictionary) // max(dictionary.length, 1))


def no_values(node: Primitive) -> Values:
    """No values at all, as a leaf's `LeafData` has them."""
    if node.physical_type is Type.BYTE_ARRAY:
        return ByteArrays(np.zeros(1, np.int32), np.zeros(0, np.uint8))
    return empty_fixed(node, 0)


def _chosen(values: NDArray[Any], positions: Positions | None) -> NDArray[Any]:
    if positions is None:
        return values
    if positions.dtype == np.bool_:
        return kernels.compact(values, positions.view(np.bool_))
    return values.take(positions, axis=0)


def _dictionary_values(node: Primitive, part: BufferPart, positions: Positions | None) -> Values:
    indices = _chosen(part.indices(), positions)
    dictionary = part.dictionary()
    size = dictionary.length
    outside = _outside(indices, size)
    if outside.any():
        index = int(np.argmax(outside))
        raise UnstorableValueError(index, f"index {indices[index]} leads out of a dictionary of {size}")
    # Nulls of the dictionary are not among the indices, but they may be among its values: leave them out.
    used = np.zeros(size, np.bool_)
    used[indices] = True
    entries = np.flatnonzero(used)
    numbers = np.cumsum(used, dtype=np.int32) - np.int32(1)
    places = numbers[indices]
    try:
        values = physical_values(node, dictionary, entries)
    except UnstorableValueError as error:
        raise UnstorableValueError(int(np.argmax(places == error.index)), error.message) from None
    if isinstance(values, ByteArrays):
        return strings_at(values, places)
    out = memory_pool.empty((len(places), *values.shape[1:]), values.dtype)
    kernels.gather(values, places, out)
    return out


def dictionary_entries(node: Primitive, part: BufferPart) -> Values | None:
    """All values of a dictionary array's dictionary, used or not, in their order; None where that is no dictionary.

    A dictionary that is far larger than what refers to it is passed over: batches may share it.
    """
    if part.field.dictionary is None:
        return None
    dictionary = part.dictionary()
    if not 0 < dictionary.length <= max(part.length, _MANY_ENTRIES):
        return None
    valid = dictionary.valid()
    try:
        return physical_values(node, dictionary, None if valid is None else np.flatnonzero(valid))
    except UnstorableValueError:
        return None  # it is used by nothing: what is used was converted


def _outside(indices: NDArray[Any], length: int) -> NDArray[np.bool_]:
    outside: NDArray[np.bool_] = (indices < 0) | (indices >= length)
    return outside


def _checked_lengths(values: ByteArrays) -> ByteArrays:
    if values.num_bytes > _LARGEST_VALUE:
        lengths = np.diff(values.offsets)
        if lengths.max() > _LARGEST_VALUE:
            longest = int(lengths.argmax())
            raise UnstorableValueError(longest, f"a value of {lengths[longest]:,} bytes is too long")
    return values


def _decimals(node: Primitive, rows: NDArray[np.uint8]) -> Values:
    """Little-endian rows as the carrier has them that the schema chose (LogicalTypes.md, DECIMAL)."""
    if node.physical_type is Type.BYTE_ARRAY:
        return _shortest(rows[:, ::-1])
    out = room_for(node, len(rows))
    wrong = kernels.decimals_narrow(np.ascontiguousarray(rows), out)
    if wrong >= 0:
        raise UnstorableValueError(wrong, "a decimal has more digits than its type")
    return out


def _intervals(node: Primitive, rows: NDArray[np.uint8]) -> Values:
    values, wrong = to_intervals(rows)
    if wrong is not None:
        raise UnstorableValueError(
            wrong, "Parquet has no form for an interval that is negative, or has a part of a millisecond"
        )
    return values


def _shortest(rows: NDArray[np.uint8]) -> ByteArrays:
    """Big-endian rows without the bytes at their beginning that are nothing but sign."""
    count, width = rows.shape
    sign = np.where(rows[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0))
    # A byte can go where the next one says the same sign by itself.
    spare = (rows[:, :-1] == sign) & ((rows[:, 1:] & 0x80) == (sign & 0x80))
    spared = np.logical_and.accumulate(spare, axis=1).sum(axis=1)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(width - spared, out=offsets[1:])
    return ByteArrays(offsets, rows[np.arange(width) >= spared[:, None]])


def _seconds_to_millis(values: NDArray[Any]) -> NDArray[Any]:
    limit = np.iinfo(values.dtype).max // 1000
    outside = (values > limit) | (values < -limit)
    if outside.any():
        index = int(np.argmax(outside))
        raise UnstorableValueError(index, f"{values[index]} seconds are too many in milliseconds")
    millis: NDArray[Any] = values * values.dtype.type(1000)
    return millis


def _date64_to_days(values: NDArray[Any]) -> NDArray[Any]:
    days = values // _MILLISECONDS_PER_DAY
    wrong = days * _MILLISECONDS_PER_DAY != values
    if wrong.any():
        index = int(np.argmax(wrong))
        raise UnstorableValueError(index, f"date64 {values[index]} ms is not a whole day")
    outside = _outside(days + 2**31, 2**32)
    if outside.any():
        raise UnstorableValueError(int(np.argmax(outside)), "a date64 is too far from 1970")
    return days.astype(np.int32)


def _halves_to_rows(values: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, 2)


def _same_bits(values: NDArray[Any]) -> NDArray[Any]:
    """Unsigned integers keep their bits, and those of less than 32 bits are widened."""
    if values.dtype.kind not in "iu":
        return values
    if values.dtype.itemsize < 4:
        return values.astype(np.int32)
    return values.view(f"<i{values.dtype.itemsize}")


def _same_rows(node: Primitive, rows: NDArray[np.uint8]) -> Values:
    return rows


_ROWS: dict[str, Callable[[Primitive, NDArray[np.uint8]], Values]] = {
    "w": _same_rows,
    "d": _decimals,
    "ti": _intervals,
}
_CONVERSIONS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "tss": _seconds_to_millis,
    "tts": _seconds_to_millis,
    "tdm": _date64_to_days,
    "e": _halves_to_rows,
}
