"""Transforms of columns that rows are partitioned by, as the specification of Iceberg has them. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import SchemaError, Where
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.logical import DATE, STRING, Integer, Timestamp
from resilient_pq.format.physical_values import ByteArrays, LeafData, Values
from resilient_pq.format.schema_tree import Leaf, Primitive
from resilient_pq.tables.partition_key import UNITS, PartitionKey

#: The dates that readers understand as text are those of four digits of a year.
FIRST_DAY, LAST_DAY = np.datetime64("0001-01-01", "D"), np.datetime64("9999-12-31", "D")
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def check_transform(node: Primitive, key: PartitionKey) -> None:
    """Raise where a column has no such transform."""
    is_time = node.logical == DATE or isinstance(node.logical, Timestamp)
    if key.num_buckets:
        whole = node.physical_type in (Type.INT32, Type.INT64) and node.logical in (None, DATE)
        signed = isinstance(node.logical, Integer) and node.logical.signed
        text = node.physical_type is Type.BYTE_ARRAY and node.logical in (None, STRING)
        fits, wanted = is_time or whole or signed or text, "an integer, text, bytes, a date or a timestamp"
    else:
        fits = isinstance(node.logical, Timestamp) or (node.logical == DATE and key.transform != "hour")
        wanted = "a timestamp" if key.transform == "hour" else "a date or a timestamp"
    if not fits:
        raise SchemaError(
            f"column {key.column!r} has no {key.transform}: it is not {wanted}", where=Where(column=key.column)
        )


def transformed(leaf: Leaf, data: LeafData, key: PartitionKey) -> LeafData:
    """The values of a column as its transform has them."""
    if key.num_buckets:
        hashes = murmur3(_hashed(leaf.node, data.values))
        return replace(data, values=((hashes & 0x7FFFFFFF) % key.num_buckets).astype(np.int32), entries=None)
    times = _times(leaf.node, data.values)
    if len(times) and (times.min() < FIRST_DAY or times.max() >= LAST_DAY + 1):
        raise SchemaError(
            f"column {leaf.column_path!r} has a date outside of the years 1 to 9999",
            where=Where(column=leaf.column_path),
        )
    return replace(data, values=times.astype(f"M8[{UNITS[key.transform]}]").astype(np.int32), entries=None)


def _times(node: Primitive, values: Values) -> NDArray[Any]:
    assert not isinstance(values, ByteArrays)
    unit = "D" if node.logical == DATE else node.logical.unit.value if isinstance(node.logical, Timestamp) else ""
    return values.astype(f"M8[{unit}]")


def _hashed(node: Primitive, values: Values) -> ByteArrays:
    """The bytes whose hash decides: numbers as 64 bits, times in microseconds."""
    if isinstance(values, ByteArrays):
        return values
    if isinstance(node.logical, Timestamp):
        values = _times(node, values).astype("M8[us]").astype(np.int64)
    data = np.ascontiguousarray(values, "<i8").view(np.uint8)
    return ByteArrays(np.arange(0, len(data) + 1, 8), data)


def murmur3(values: ByteArrays) -> NDArray[np.uint32]:
    """The 32-bit hash (x86, seed 0) of each byte string."""
    starts = np.asarray(values.offsets[:-1], np.int64)
    lengths = np.asarray(values.offsets[1:], np.int64) - starts
    data = np.concatenate([values.data, np.zeros(4, np.uint8)]).astype(np.uint32)
    found = np.zeros(len(starts), np.uint32)
    for at in range(0, int(lengths.max(initial=0)) + 1, 4):
        here = np.flatnonzero(lengths > at)
        size = np.minimum(lengths[here] - at, 4)
        word = np.zeros(len(here), np.uint32)
        for each in range(4):
            byte = data[starts[here] + np.minimum(at + each, lengths[here])]
            word |= np.where(each < size, byte, 0).astype(np.uint32) << np.uint32(8 * each)
        mixed = found[here] ^ _rotate(word * _C1, 15) * _C2
        whole = _rotate(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        found[here] = np.where(size == 4, whole, mixed)
    found ^= lengths.astype(np.uint32)
    found = (found ^ found >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    found = (found ^ found >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return found ^ found >> np.uint32(16)


def _rotate(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)
