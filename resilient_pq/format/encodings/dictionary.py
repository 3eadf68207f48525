"""RLE_DICTIONARY, and PLAIN_DICTIONARY with the same bytes: distinct values in a page of their own, indices to them."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, Final

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
from resilient_pq.format.side_by_side import SideBySide, one_by_one
from resilient_pq.lazy_dataclass import dataclass

MAX_BIT_WIDTH = 32
#: Values of a part that is looked up by itself, at least.
_PART: Final = 128 * 1024

_Numbered = tuple[NDArray[Any], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Distinct values in order of first appearance, and every value as an index to them."""

    values: Values
    indices: NDArray[Any]  # uint8, uint16 or int32, by how many entries there are
    all_used: bool = True  # whether every entry is known to be the value of something


def build(node: Primitive, values: Values, max_bytes: int, side_by_side: SideBySide = one_by_one) -> Dictionary | None:
    """The dictionary of `values`, told apart by their bits; None where it takes more than `max_bytes` in PLAIN.

    Many values are looked up in parts, where there are threads for them: what becomes of them is the same.
    """
    num_parts = min(side_by_side.num_threads, len(values) // _PART)
    if num_parts > 1:
        found = _numbered_in_parts(node, values, max_bytes, num_parts, side_by_side)
    else:
        found = _numbered(node, values, max_bytes)
    if found is None:
        return None
    indices, first = found
    return Dictionary(entries_at(values, first), indices)


def _numbered(node: Primitive, values: Values, max_bytes: int) -> _Numbered | None:
    """The index of every value, and where each distinct one stands first; None as of `build`."""
    if isinstance(values, ByteArrays):
        # Every entry takes the four bytes of its length at least.
        return kernels.dictionary_build_byte_arrays(values.offsets, values.data, max_bytes // 4, max_bytes)
    width = fixed_width(node)
    if not width or node.physical_type is Type.BOOLEAN:
        return None
    return kernels.dictionary_build(values, max_bytes // width)


def _numbered_in_parts(
    node: Primitive, values: Values, max_bytes: int, num_parts: int, side_by_side: SideBySide
) -> _Numbered | None:
    """As `_numbered`: the distinct values of the parts, one part behind the other, stand as they appear first."""
    cuts = [len(values) * part // num_parts for part in range(num_parts + 1)]
    found = side_by_side([partial(_numbered, node, values[start:end], max_bytes) for start, end in pairwise(cuts)])
    parts = [part for part in found if part is not None]
    if len(parts) < len(found):
        return None  # what a part alone has takes more
    positions = np.concatenate([first + start for (_, first), start in zip(parts, cuts, strict=False)])
    merged = _numbered(node, entries_at(values, positions), max_bytes)
    if merged is None:
        return None
    places, first = merged
    indices: NDArray[Any] = memory_pool.empty((len(values),), places.dtype)
    calls, begin = [], 0
    for (of_part, distinct), (start, end) in zip(parts, pairwise(cuts), strict=True):
        calls.append(partial(_renumber, places[begin : begin + len(distinct)], of_part, indices[start:end]))
        begin += len(distinct)
    side_by_side(calls)
    return indices, positions[first]


def _renumber(places: NDArray[Any], indices: NDArray[Any], out: NDArray[Any]) -> None:
    """The indices of a part as those of all: `places` has the index of each of its distinct values."""
    np.take(places, indices, out=out, mode="clip")  # none is beyond, and "raise" would copy


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
