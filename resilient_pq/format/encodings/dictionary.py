"""RLE_DICTIONARY, and PLAIN_DICTIONARY with the same bytes: distinct values in a page of their own, indices to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.encodings import plain
from resilient_pq.format.encodings.rle import bit_width
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.physical_values import MAX_SMALL_OFFSET, ByteArrays, Values, fixed_width, room_for
from resilient_pq.format.schema_tree import Primitive

MAX_BIT_WIDTH = 32


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Distinct values in order of first appearance, and every value as an index to them."""

    values: Values
    indices: NDArray[Any]  # uint8, uint16 or int32, by how many entries there are
    all_used: bool = True  # whether every entry is known to be the value of something


def build(node: Primitive, values: Values, max_bytes: int) -> Dictionary | None:
    """The dictionary of `values`, told apart by their bits; None where it takes more than `max_bytes` in PLAIN."""
    if isinstance(values, ByteArrays):
        # Every entry takes the four bytes of its length at least.
        found = kernels.dictionary_build_byte_arrays(values.offsets, values.data, max_bytes // 4, max_bytes)
        if found is None:
            return None
        indices, first = found
        return Dictionary(entries_at(values, first), indices)
    width = fixed_width(node)
    if not width or node.physical_type is Type.BOOLEAN:
        return None
    found = kernels.dictionary_build(values, max_bytes // width)
    if found is None:
        return None
    indices, first = found
    return Dictionary(entries_at(values, first), indices)


def build_on(node: Primitive, entries: Values, values: Values, max_bytes: int) -> Dictionary | None:
    """The dictionary of `values` that begins with `entries`; as of `build`, which see."""
    built = build(node, values, max_bytes)
    begun = None if built is None else build(node, joined(entries, built.values), max_bytes)
    if built is None or begun is None:
        return None
    places = begun.indices[len(entries) :]
    return Dictionary(begun.values, places.take(built.indices), all_used=len(begun.values) == len(built.values))


def joined(values: Values, others: Values) -> Values:
    """Values of one physical type, one behind the other, copied."""
    if isinstance(values, ByteArrays) and isinstance(others, ByteArrays):
        first, start = values.num_bytes, int(values.offsets[0])
        offsets = np.concatenate(
            [values.offsets - np.int64(start), others.offsets[1:] + np.int64(first - int(others.offsets[0]))]
        )
        parts = [each.data[each.offsets[0] : each.offsets[-1]] for each in (values, others)]
        small = offsets[-1] <= MAX_SMALL_OFFSET
        return ByteArrays(offsets.astype(np.int32) if small else offsets, np.concatenate(parts))
    return np.concatenate([np.asarray(values), np.asarray(others)])


def entries_at(values: Values, positions: NDArray[np.int64]) -> Values:
    """The values at some positions, copied."""
    if not isinstance(values, ByteArrays):
        return values.take(positions, axis=0)  # far faster than indexing where a value is a row
    return strings_at(values, positions)


def strings_at(values: ByteArrays, positions: NDArray[Any]) -> ByteArrays:
    """The strings at some positions, copied back to back."""
    offsets: NDArray[Any] = memory_pool.empty((len(positions) + 1,), np.int32)
    offsets[0], offsets[1:] = 0, positions
    size = kernels.chosen_size(values.offsets, offsets[1:])
    if size > MAX_SMALL_OFFSET:
        offsets = offsets.astype(np.int64)
    data = memory_pool.empty((size,), np.uint8)
    kernels.copy_chosen_byte_arrays(values.offsets, values.data, offsets[1:], data, 0)
    return ByteArrays(offsets, data, values.known_utf8)


def encode_indices(indices: NDArray[Any], size: int) -> NDArray[np.uint8]:
    """A data page's values: the bit width in one byte, then the indices; `size` is the dictionary's."""
    width = max(bit_width(size - 1), 1) if size else 0
    encoded = kernels.rle_encode(indices, width, 1)
    encoded[0] = width
    return encoded


def decode_dictionary(node: Primitive, data: memoryview, count: int) -> Values:
    """The values of a dictionary page."""
    most = 8 * len(data) if node.physical_type is Type.BOOLEAN else len(data)
    if count < 0 or (count > most and fixed_width(node) != 0):
        raise EncodingError(f"a dictionary of {count} values does not fit in {len(data)} bytes")
    if node.physical_type is not Type.BYTE_ARRAY:
        out = room_for(node, count)
        plain.decode(node, data, out)
        return out
    small = len(data) <= MAX_SMALL_OFFSET
    offsets: NDArray[Any] = memory_pool.empty((count + 1,), np.int32 if small else np.int64)
    try:
        values = memory_pool.empty((max(len(data) - 4 * count, 0),), np.uint8)
    except (MemoryError, ValueError) as error:
        raise EncodingError(f"the dictionary's byte arrays take {len(data):,} bytes") from error
    return ByteArrays(offsets, values[: plain.split(data, offsets, values)])


def decode_indices(data: memoryview, count: int) -> NDArray[np.int32]:
    """The indices of a data page."""
    if not len(data):
        if count:
            raise EncodingError("a dictionary-encoded page has no bit width")
        return np.empty(0, np.int32)
    width = data[0]
    if width > MAX_BIT_WIDTH:
        raise EncodingError(f"dictionary indices of {width} bits")
    indices: NDArray[np.int32] = memory_pool.empty((count,), np.int32)
    kernels.rle_decode(data[1:], width, indices)
    return indices


def decode(dictionary: Values, data: memoryview, out: NDArray[Any]) -> None:
    """Fill `out`, an array of any physical type but BYTE_ARRAY."""
    assert isinstance(dictionary, np.ndarray)
    kernels.gather(dictionary, decode_indices(data, len(out)), out)
