"""PLAIN: values back to back, little endian; byte arrays behind their length (parquet-format, Encodings.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.metadata import Type
from resilient_pq.format.schema import Primitive
from resilient_pq.format.values import ByteArrays, Values


def encode(node: Primitive, values: Values) -> NDArray[np.uint8]:
    """The bytes of `values`."""
    if isinstance(values, ByteArrays):
        return kernels.byte_array_join(values.offsets, values.data)
    if node.physical_type is Type.BOOLEAN:
        return np.packbits(values, bitorder="little")
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def decode(node: Primitive, data: memoryview, out: NDArray[Any]) -> None:
    """Fill `out`, an array of any physical type but BYTE_ARRAY.

    Raises:
        EncodingError: There are fewer bytes than `out` needs.
    """
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


@dataclass(frozen=True, slots=True)
class PlainStrings:
    """Byte arrays still behind their lengths in a page; copied out when their place is known."""

    data: memoryview
    lengths: NDArray[np.int32]

    def copy_to(self, out: NDArray[np.uint8]) -> None:
        """Copy the values back to back into `out`, whose size is the sum of their lengths."""
        kernels.byte_array_split(self.data, self.lengths, out)


def decode_byte_arrays(data: memoryview, lengths: NDArray[np.int32]) -> tuple[int, PlainStrings]:
    """Fill `lengths`, one per value; returns the bytes of all values and what copies them.

    Raises:
        EncodingError: A length goes beyond the page.
    """
    total = kernels.byte_array_lengths(data, lengths)
    return total, PlainStrings(data, lengths.copy())
