"""PLAIN: values back to back, little endian; byte arrays behind their length (parquet-format, Encodings.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.physical_values import ByteArrays, Values
from resilient_pq.format.schema_tree import Primitive
from resilient_pq.lazy_dataclass import dataclass

_NO_FLAGS: Final = np.empty(0, np.bool_)


def encode(node: Primitive, values: Values) -> NDArray[np.uint8]:
    """The bytes of `values`."""
    if isinstance(values, ByteArrays):
        return encode_behind((), values)
    if node.physical_type is Type.BOOLEAN:
        return np.packbits(values, bitorder="little")
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def encode_behind(before: Sequence[NDArray[np.uint8]], values: ByteArrays) -> NDArray[np.uint8]:
    """The bytes of `values` behind other bytes, in one piece without being copied for it."""
    if not 0 <= values.num_bytes <= len(values.data):  # before room is made for them
        raise EncodingError("offsets fall or lead out of the data")
    front = sum(map(len, before))
    out: NDArray[np.uint8] = memory_pool.empty((front + values.num_bytes + 4 * len(values),), np.uint8)
    if before:
        np.concatenate(before, out=out[:front])
    kernels.byte_array_join(values.offsets, values.data, out[front:])
    return out


def decode(node: Primitive, data: memoryview, out: NDArray[Any]) -> None:
    """Fill `out`, an array of any physical type but BYTE_ARRAY."""
    if node.physical_type is Type.BOOLEAN:
        needed = (len(out) + 7) // 8
        _check(data, needed)
        bits = np.frombuffer(data, np.uint8, needed)
        out[:] = np.unpackbits(bits, count=len(out), bitorder="little").view(np.bool_)
        return
    _check(data, out.nbytes)
    out.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8, out.nbytes)


def _check(data: memoryview, needed: int) -> None:
    if len(data) < needed:
        raise EncodingError(f"PLAIN values take {needed} bytes, but the page has {len(data)}")


def split(data: memoryview, offsets: NDArray[Any], out: NDArray[np.uint8]) -> int:
    """Copy byte arrays back to back into `out`, fill `offsets`, one more than there are, and return their bytes."""
    count = len(offsets) - 1
    span = np.array([[0, len(data), count, count]], np.int64)
    return kernels.plain_byte_arrays(data, span, _NO_FLAGS, 0, offsets, out, 0, False)[0]


@dataclass(frozen=True, slots=True)
class PlainStrings:
    """Byte arrays still behind their lengths in a page; copied out when their place is known."""

    data: memoryview
    count: int

    def copy_to(self, out: NDArray[np.uint8]) -> None:
        """Copy the values back to back into `out`, whose size is the sum of their lengths."""
        split(self.data, memory_pool.empty((self.count + 1,), np.int64), out)


def decode_byte_arrays(data: memoryview, lengths: NDArray[np.int32]) -> tuple[int, PlainStrings]:
    """Fill `lengths`, one per value; returns the bytes of all values and what copies them."""
    return kernels.byte_array_lengths(data, lengths), PlainStrings(data, len(lengths))
