"""DELTA encodings: differences of numbers, lengths of byte arrays, shared prefixes (parquet-format, Encodings.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.physical_values import MAX_SMALL_OFFSET, ByteArrays, Values, fixed_width
from resilient_pq.format.schema_tree import Primitive
from resilient_pq.lazy_dataclass import dataclass

# --- DELTA_BINARY_PACKED ------------------------------------------------------------------------------------


def encode_binary(node: Primitive, values: Values) -> NDArray[np.uint8]:
    """DELTA_BINARY_PACKED of INT32 or INT64 values."""
    del node
    assert isinstance(values, np.ndarray)
    return kernels.delta_binary_encode(np.ascontiguousarray(values))


def decode_binary(node: Primitive, data: memoryview, out: NDArray[Any]) -> None:
    """Fill `out` with INT32 or INT64 values of DELTA_BINARY_PACKED."""
    del node
    kernels.delta_binary_decode(data, out)


# --- DELTA_LENGTH_BYTE_ARRAY --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConsecutiveStrings:
    """Byte arrays that lie back to back already."""

    data: NDArray[np.uint8]

    def copy_to(self, out: NDArray[np.uint8]) -> None:
        """Copy the values back to back into `out`, whose size is the sum of their lengths."""
        out[:] = self.data


def encode_lengths(node: Primitive, values: Values) -> NDArray[np.uint8]:
    """DELTA_LENGTH_BYTE_ARRAY: all lengths, then all bytes."""
    del node
    assert isinstance(values, ByteArrays)
    data = values.data[values.offsets[0] : values.offsets[-1]]
    return np.concatenate([kernels.delta_binary_encode(_lengths(values)), data])


def _lengths(strings: ByteArrays) -> NDArray[np.int32]:
    lengths = np.diff(strings.offsets)
    if strings.offsets.min() < 0 or not 0 <= lengths.min(initial=0) <= lengths.max(initial=0) <= MAX_SMALL_OFFSET:
        raise EncodingError("offsets fall, or a value has 2**31 bytes or more")
    return lengths.astype(np.int32, copy=False)


def decode_lengths(data: memoryview, lengths: NDArray[np.int32]) -> tuple[int, ConsecutiveStrings]:
    """Fill `lengths` from DELTA_LENGTH_BYTE_ARRAY; returns the bytes of all values and what copies them."""
    start = kernels.delta_binary_decode(data, lengths)
    if lengths.min(initial=0) < 0:
        raise EncodingError(f"a byte array is said to have {lengths.min()} bytes")
    total = int(lengths.sum(dtype=np.int64))
    if total > len(data) - start:
        raise EncodingError(f"byte arrays take {total} bytes, but the page has {len(data) - start} left")
    return total, ConsecutiveStrings(np.frombuffer(data, np.uint8, total, start))


# --- DELTA_BYTE_ARRAY ---------------------------------------------------------------------------------------


def encode_prefixes(node: Primitive, values: Values) -> NDArray[np.uint8]:
    """DELTA_BYTE_ARRAY: how much each value shares with the one before it, then the rest of each."""
    strings = values if isinstance(values, ByteArrays) else _as_strings(node, values)
    prefixes = kernels.shared_prefixes(strings.offsets, strings.data)
    # The suffixes are every other string between the beginnings of suffixes and the ends of values.
    borders = np.empty(2 * len(strings), np.int64)
    borders[0::2] = strings.offsets[:-1] + prefixes
    borders[1::2] = strings.offsets[1:]
    small = strings.num_bytes <= MAX_SMALL_OFFSET
    ends: NDArray[Any] = np.arange(0, len(borders), 2, dtype=np.int32 if small else np.int64)
    data = np.empty(kernels.chosen_size(borders, ends), np.uint8)
    kernels.copy_chosen_byte_arrays(borders, strings.data, ends, data, 0)
    lengths = kernels.delta_binary_encode(_lengths(strings) - prefixes)
    return np.concatenate([kernels.delta_binary_encode(prefixes), lengths, data])


def _as_strings(node: Primitive, values: NDArray[Any]) -> ByteArrays:
    offsets = np.arange(len(values) + 1, dtype=np.int64) * (fixed_width(node) or 0)
    return ByteArrays(offsets, np.ascontiguousarray(values).reshape(-1))


def decode_prefixes(
    data: memoryview, lengths: NDArray[np.int32], previous: bytes = b""
) -> tuple[int, ConsecutiveStrings]:
    """Fill `lengths` from DELTA_BYTE_ARRAY; returns the bytes of all values and what copies them."""
    # In files of parquet-mr before 1.8 the first value builds on `previous`, the last one of the page before
    # (PARQUET-246).
    prefixes, suffix_lengths, suffixes = _split(data, len(lengths))
    return _join(prefixes, suffix_lengths, suffixes, lengths, previous)


def decode_fixed_prefixes(node: Primitive, data: memoryview, out: NDArray[Any], previous: bytes = b"") -> None:
    """Fill `out` with FIXED_LEN_BYTE_ARRAY values from DELTA_BYTE_ARRAY; see `decode_prefixes`."""
    prefixes, suffix_lengths, suffixes = _split(data, len(out))
    width = fixed_width(node) or 0
    # Before they are put together: then no length can ask for more room than the column has.
    if (prefixes.astype(np.int64) + suffix_lengths != width).any():
        raise EncodingError(f"a DELTA_BYTE_ARRAY value has another length than {width} bytes")
    _, joined = _join(prefixes, suffix_lengths, suffixes, np.empty(len(out), np.int32), previous)
    joined.copy_to(out.reshape(-1))


def _split(data: memoryview, count: int) -> tuple[NDArray[np.int32], NDArray[np.int32], memoryview]:
    """Lengths of prefixes and of suffixes, and the bytes from which the suffixes are taken."""
    prefixes, suffix_lengths = np.empty(count, np.int32), np.empty(count, np.int32)
    suffixes = data[kernels.delta_binary_decode(data, prefixes) :]
    return prefixes, suffix_lengths, suffixes[kernels.delta_binary_decode(suffixes, suffix_lengths) :]


def _join(
    prefixes: NDArray[np.int32],
    suffix_lengths: NDArray[np.int32],
    suffixes: memoryview,
    lengths: NDArray[np.int32],
    previous: bytes,
) -> tuple[int, ConsecutiveStrings]:
    try:
        joined = kernels.join_prefixes(prefixes, suffix_lengths, suffixes, lengths, previous)
    except MemoryError as error:
        raise EncodingError("there is not enough memory for the byte arrays of the page") from error
    return len(joined), ConsecutiveStrings(joined)
