"""What the kernels take: buffers and arrays, checked."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError

BytesLike: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]
Offsets: TypeAlias = NDArray[np.int32] | NDArray[np.int64]
Levels: TypeAlias = NDArray[np.uint8] | NDArray[np.int32]
Packed: TypeAlias = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.int32]  # Levels, or indices to a dictionary
Integers: TypeAlias = NDArray[np.int32] | NDArray[np.int64]

LARGEST_LENGTH = 2**31 - 1  # Of a BYTE_ARRAY value; pages and their parts count in i32


def octets(buffer: BytesLike) -> NDArray[np.uint8]:
    """The bytes of a buffer as an array, without a copy."""
    view = buffer.data if isinstance(buffer, np.ndarray) else memoryview(buffer)
    if view.ndim != 1 or view.format != "B" or not view.c_contiguous:
        raise ValueError("a buffer must be contiguous bytes")
    return np.frombuffer(view, np.uint8)


def bits_of(array: NDArray[Any]) -> NDArray[Any]:
    """The array as unsigned integers of the same size, in the same memory, or rows of bytes as they are."""
    if not array.flags.c_contiguous:
        raise ValueError("an array must be contiguous")
    if array.ndim == 2 and array.dtype == np.uint8:
        return array
    if array.ndim != 1 or array.itemsize not in (1, 2, 4, 8):
        raise ValueError("values must be one-dimensional with 1, 2, 4 or 8 bytes each, or rows of uint8")
    return array.view(f"u{array.itemsize}")


def require_types(array: NDArray[Any], *types: type[np.generic]) -> None:
    """Refuse an array of another type, shape or layout; `types` are those that it may have."""
    if array.ndim != 1 or not array.flags.c_contiguous or array.dtype.type not in types:
        names = " or ".join(wanted.__name__ for wanted in types)
        raise ValueError(f"an array must be one-dimensional, contiguous and {names}")


def check_indices(indices: NDArray[np.int32], length: int) -> None:
    """Refuse indices that are not 0 to `length` - 1."""
    require_types(indices, np.int32)
    if indices.size and (indices.min() < 0 or indices.max() >= length):
        raise EncodingError("an index lies outside of its dictionary")


def check_levels(definition: NDArray[np.uint8], repetition: NDArray[np.uint8]) -> None:
    """Refuse what are not the levels of the same entries."""
    require_types(definition, np.uint8)
    require_types(repetition, np.uint8)
    if len(definition) != len(repetition):
        raise ValueError("there must be as many repetition levels as definition levels")
