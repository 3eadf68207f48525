"""Masks of the rows of a leaf column whose values meet a condition."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import FormatError
from resilient_pq.format import kernels, logical
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.indexes.condition import Condition, ConditionKind
from resilient_pq.format.logical import Decimal, Integer
from resilient_pq.format.physical_values import NANOS_PER_DAY, ByteArrays, DecodedStrings, LeafColumn, Values
from resilient_pq.format.scalars import MAX_DECIMAL_BYTES
from resilient_pq.format.schema_tree import Primitive

Mask = NDArray[np.bool_]
_FEW: Final = 8  # Constants up to which each is compared by itself
_WORD: Final = 8


def matching_rows(condition: Condition, column: LeafColumn) -> Mask:
    """Which rows of a column, which has no repetition, meet a condition."""
    present, count = column.present, column.num_rows
    if condition.kind is ConditionKind.NULL:
        return np.zeros(count, np.bool_) if present is None else ~present
    if condition.kind is ConditionKind.NOT_NULL:
        return np.ones(count, np.bool_) if present is None else present.copy()
    values = column.values.to_byte_arrays() if isinstance(column.values, DecodedStrings) else column.values
    found = _found(condition, values)
    return found if present is None else found & present


def _found(condition: Condition, values: Values) -> Mask:
    node = condition.node
    if isinstance(node.logical, Decimal) and node.physical_type in (Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY):
        rows = _extended(values) if isinstance(values, ByteArrays) else values
        width = rows.shape[1]
        constants = [_sortable(each, width) for each in condition.constants]
        if any(each is None for each in constants):
            raise FormatError(f"a decimal has more than {MAX_DECIMAL_BYTES} bytes")
        flipped = rows.copy()
        flipped[:, :1] ^= 0x80  # so that negative numbers come first
        return _compare_bytes(condition.kind, _byte_arrays(flipped), [each for each in constants if each is not None])
    if node.physical_type is Type.INT96:
        return _compare_timestamps96(condition, np.asarray(values))
    if isinstance(values, ByteArrays):
        return _compare_bytes(condition.kind, values, list(condition.constants))
    if values.ndim == 2 and node.logical != logical.FLOAT16:
        return _compare_bytes(condition.kind, _byte_arrays(values), list(condition.constants))
    return _compare_numbers(condition, _numbers(node, values))


# --- numbers ----------------------------------------------------------------------------------------------------


def _numbers(node: Primitive, values: NDArray[Any]) -> NDArray[Any]:
    """Values as NumPy has their type; of integers of 8 and 16 bits the lowest bits, as in tables."""
    if node.logical == logical.FLOAT16:
        return np.ascontiguousarray(values).view("<f2").reshape(-1)
    if node.physical_type is Type.BOOLEAN:
        return values.view(np.uint8)
    if isinstance(node.logical, Integer):
        width = min(node.logical.bits // 8, values.dtype.itemsize)
        kind = np.dtype(f"{'i' if node.logical.signed else 'u'}{width}")
        return values.astype(kind) if width < values.dtype.itemsize else values.view(kind)
    return values


def _compare_numbers(condition: Condition, numbers: NDArray[Any]) -> Mask:
    constants = np.array(condition.constants, numbers.dtype)
    found: Mask
    match condition.kind:
        case ConditionKind.LESS:
            return np.asarray(numbers < constants[0])
        case ConditionKind.LESS_EQUAL:
            return np.asarray(numbers <= constants[0])
        case ConditionKind.GREATER:
            return np.asarray(numbers > constants[0])
        case ConditionKind.GREATER_EQUAL:
            return np.asarray(numbers >= constants[0])
    if len(constants) > _FEW:
        found = np.isin(numbers, constants)
    else:
        found = np.zeros(len(numbers), np.bool_)
        for constant in constants:
            found |= numbers == constant
    if condition.nan:
        found |= np.isnan(numbers)
    return ~found if condition.kind is ConditionKind.NOT_IN else found


def _compare_timestamps96(condition: Condition, rows: NDArray[np.uint8]) -> Mask:
    """By days and nanoseconds: both in one number would take more than 64 bits."""
    words = np.ascontiguousarray(rows).view("<u4").reshape(-1, 3)
    nanos = np.ascontiguousarray(words[:, :2]).view("<i8").reshape(-1)
    over, within = np.divmod(nanos, NANOS_PER_DAY)
    days = words[:, 2].view("<i4").astype(np.int64) + over
    found = np.zeros(len(rows), np.bool_)
    for constant in condition.constants:
        day, nano = divmod(constant, NANOS_PER_DAY)
        same = days == day
        match condition.kind:
            case ConditionKind.LESS_EQUAL:
                return np.asarray((days < day) | (same & (within <= nano)))
            case ConditionKind.GREATER_EQUAL:
                return np.asarray((days > day) | (same & (within >= nano)))
        found |= same & (within == nano)
    return ~found if condition.kind is ConditionKind.NOT_IN else found


# --- strings of bytes -------------------------------------------------------------------------------------------


def _byte_arrays(rows: NDArray[np.uint8]) -> ByteArrays:
    count, width = rows.shape
    return ByteArrays(np.arange(count + 1, dtype=np.int64) * width, np.ascontiguousarray(rows).reshape(-1))


def _extended(values: ByteArrays) -> NDArray[np.uint8]:
    """Big-endian two's complement of any length as rows of the longest decimal's, with the sign before them."""
    lengths = np.diff(values.offsets)
    rows = np.zeros((len(values), MAX_DECIMAL_BYTES), np.uint8)
    for length in np.unique(lengths).tolist():
        if length > MAX_DECIMAL_BYTES:
            raise FormatError(f"a decimal has {length:,} bytes")
        alike = np.flatnonzero(lengths == length)
        taken = values.data[values.offsets[:-1][alike].astype(np.int64)[:, None] + np.arange(length)]
        if length:
            rows[alike] = np.where(taken[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0))
            rows[alike, MAX_DECIMAL_BYTES - length :] = taken
    return rows


def _sortable(number: int, width: int) -> bytes | None:
    """A decimal as bytes that compare as numbers do; None where it does not fit."""
    try:
        encoded = bytearray(number.to_bytes(width, "big", signed=True)) if width else bytearray()
    except OverflowError:
        return None
    encoded[:1] = bytes(byte ^ 0x80 for byte in encoded[:1])
    return bytes(encoded)


def _compare_bytes(kind: ConditionKind, values: ByteArrays, constants: list[bytes]) -> Mask:
    if kind in (ConditionKind.IN, ConditionKind.NOT_IN):
        found = _among_bytes(values, constants)
        return ~found if kind is ConditionKind.NOT_IN else found
    order = _order(values, np.arange(len(values)), constants[0])
    match kind:
        case ConditionKind.LESS:
            return np.asarray(order < 0)
        case ConditionKind.LESS_EQUAL:
            return np.asarray(order <= 0)
        case ConditionKind.GREATER:
            return np.asarray(order > 0)
    return np.asarray(order >= 0)


def _among_bytes(values: ByteArrays, constants: list[bytes]) -> Mask:
    """Which values are one of the constants; with many, hashes tell which of them each could only be."""
    found = np.zeros(len(values), np.bool_)
    if len(constants) <= _FEW:
        lengths = np.diff(values.offsets)
        for constant in constants:
            rows = np.flatnonzero(lengths == len(constant))
            found[rows[_order(values, rows, constant) == 0]] = True
        return found
    offsets = np.zeros(len(constants) + 1, np.int64)
    np.cumsum([len(constant) for constant in constants], out=offsets[1:])
    wanted = kernels.byte_array_hashes(offsets, b"".join(constants))
    hashes = kernels.byte_array_hashes(values.offsets, values.data)
    candidates = np.flatnonzero(np.isin(hashes, wanted))
    candidates = candidates[np.argsort(hashes[candidates], kind="stable")]
    in_order = hashes[candidates]
    firsts, ends = np.searchsorted(in_order, wanted, "left"), np.searchsorted(in_order, wanted, "right")
    for constant, first, end in zip(constants, firsts, ends, strict=True):
        rows = candidates[first:end]
        found[rows[_order(values, rows, constant) == 0]] = True
    return found


def _order(values: ByteArrays, rows: NDArray[np.int64], constant: bytes) -> NDArray[np.int8]:
    """-1, 0 or 1 for each value that is less than, equal to or greater than a constant, byte by byte."""
    starts = values.offsets[:-1][rows].astype(np.int64)
    lengths = values.offsets[1:][rows].astype(np.int64) - starts
    order: NDArray[np.int8] = np.sign(lengths - len(constant)).astype(np.int8)
    tied = np.arange(len(rows))
    for at in range(0, len(constant), _WORD):
        if not len(tied):
            break
        word = np.uint64(int.from_bytes(constant[at : at + _WORD].ljust(_WORD, b"\0"), "big"))
        found = _words(values.data, starts[tied] + at, lengths[tied] - at)
        order[tied[found < word]] = -1
        order[tied[found > word]] = 1
        tied = tied[found == word]
    return order


def _words(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Eight bytes from each start on as a big-endian number, zeros in place of those behind the length."""
    if len(data) < _WORD:
        data = np.concatenate([data, np.zeros(_WORD - len(data), np.uint8)])
    everywhere = np.ndarray((len(data) - _WORD + 1,), ">u8", np.ascontiguousarray(data), strides=(1,))
    # Near the end of the data a word begins earlier, and the bytes before it are shifted out.
    places = np.clip(starts, 0, len(everywhere) - 1)
    kept = np.clip(lengths, 0, _WORD)
    out_at_front = np.where(kept > 0, starts - places, 0).astype(np.uint64) * np.uint64(8)
    words: NDArray[np.uint64] = everywhere[places].astype(np.uint64) << out_at_front
    dropped = (_WORD - kept).astype(np.uint64) * np.uint64(8)
    empty = kept == 0
    dropped[empty] = 0
    words = (words >> dropped) << dropped
    words[empty] = 0
    return words
