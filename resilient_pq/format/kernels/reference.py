"""What every kernel means, in NumPy and plain Python: the definition that the compiled ones are held to.

All are leaf functions: buffers and arrays in, arrays out, no I/O. Three rules hold for all of them and are
not repeated below:

* Bytes from outside are hostile. Whatever they hold, nothing outside a buffer is read or written: the answer
  is right, or `EncodingError` (`ThriftError` from `thrift_end`) is raised. What an output array holds after
  an error is not defined.
* A mistake of the caller, an array of the wrong type, shape or memory layout, is a `TypeError` or
  `ValueError`. Arrays are C-contiguous and native in byte order.
* The compiled kernels release the GIL. Calls may run in as many threads as one likes, as long as nobody
  changes an array that another call reads or writes.

May import NumPy, xxhash and the errors, nothing else of ours.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError, FormatError, ThriftError

__all__ = [
    "bloom_contains",
    "bloom_insert",
    "byte_array_gather",
    "byte_array_gather_lengths",
    "byte_array_hashes",
    "byte_array_join",
    "byte_array_lengths",
    "byte_array_min_max",
    "byte_array_split",
    "delta_binary_decode",
    "delta_binary_encode",
    "dictionary_build",
    "dictionary_build_byte_arrays",
    "find_all",
    "gather",
    "join_prefixes",
    "rle_decode",
    "rle_encode",
    "row_hashes",
    "shared_prefixes",
    "spread",
    "thrift_end",
    "unpack_bits_msb",
]

BytesLike: TypeAlias = bytes | bytearray | memoryview | NDArray[np.uint8]
Offsets: TypeAlias = NDArray[np.int32] | NDArray[np.int64]
Levels: TypeAlias = NDArray[np.uint8] | NDArray[np.int32]
Integers: TypeAlias = NDArray[np.int32] | NDArray[np.int64]

_LARGEST_LENGTH = 2**31 - 1  # of a BYTE_ARRAY value; pages and their parts count in i32
_LENGTH = struct.Struct("<I")
_LARGEST_DEPTH = 128

# --- the RLE / bit-packed hybrid ------------------------------------------------------------------------


def rle_decode(buffer: BytesLike, bit_width: int, out: Levels) -> int:
    """Fill `out` from runs of the RLE/bit-packed hybrid, without a length prefix (Encodings.md, RLE = 3).

    A run longer than what is wanted is read as far as it is wanted, and the last bit-packed run may be cut
    short behind the last value wanted, as old writers left it. Runs of no values are skipped.

    Args:
        buffer: The runs, and whatever follows them.
        bit_width: Bits per value, 0 to 32. With 0 every value is 0 and no byte is needed or looked at.
        out: Where the values go, uint8 or int32; its length says how many are wanted.

    Returns:
        The bytes that the runs take, as far as they are in `buffer`.

    Raises:
        EncodingError: The runs end too early, a run header has more than 32 bits, a value has more bits than
            `bit_width` or does not fit the type of `out`, or `bit_width` is not 0 to 32.
    """
    data = _octets(buffer).data
    _require_types(out, np.uint8, np.int32)
    _check_bit_width(bit_width)
    if bit_width == 0:
        out[...] = 0
        return 0
    largest = min((1 << bit_width) - 1, int(np.iinfo(out.dtype).max))
    position = filled = 0
    while filled < out.size:
        header, position = _varint(data, position, 32)
        count = header >> 1
        if header & 1:
            wanted = min(8 * count, out.size - filled)
            end = min(position + count * bit_width, len(data))
            if wanted * bit_width > 8 * (end - position):
                raise EncodingError("a bit-packed run ends behind the end of its buffer")
            values = _unpack(data[position:end], bit_width, wanted)
            if wanted and values.max() > largest:
                raise EncodingError("a bit-packed value does not fit the type of the output")
            out[filled : filled + wanted] = values
        else:
            wanted = min(count, out.size - filled)
            end = position + (bit_width + 7) // 8
            if end > len(data):
                raise EncodingError("an RLE run ends behind the end of its buffer")
            value = int.from_bytes(data[position:end], "little")
            if value > largest:
                raise EncodingError("the value of an RLE run has more bits than it may have")
            out[filled : filled + wanted] = value
        position = end
        filled += wanted
    return position


def rle_encode(values: Levels, bit_width: int) -> NDArray[np.uint8]:
    """Encode values as the RLE/bit-packed hybrid, without a length prefix (Encodings.md, RLE = 3).

    Equal values become an RLE run where that is no longer than to bit-pack them: from 8 on for most widths,
    from 24 on between bit-packed values of one bit. What lies between is one bit-packed run however long it
    is; the last one is filled up to a multiple of 8 with zeros.

    Args:
        values: uint8 or int32, none negative, fewer than 2**31.
        bit_width: Bits per value, 0 to 32.

    Raises:
        EncodingError: A value is negative or has more bits than `bit_width`, or `bit_width` is not 0 to 32.
    """
    _require_types(values, np.uint8, np.int32)
    _check_bit_width(bit_width)
    n = values.size
    if n > _LARGEST_LENGTH:
        raise ValueError("a page holds fewer than 2**31 values")
    if n and (values.min() < 0 or int(values.max()) >> bit_width):
        raise EncodingError("a value has more bits than the bit width")
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, n)
    lengths = np.diff(ends, prepend=0)
    candidates = np.flatnonzero((lengths >= 8) | (ends == n)) if n else ()
    parts: list[bytes] = []
    packed = 0  # where the values begin that no run holds so far
    for candidate in candidates:
        end = int(ends[candidate])
        begin = end - int(lengths[candidate])
        begin += (packed - begin) % 8  # a bit-packed run is whole groups of eight: the one before takes these
        if begin < end and _rle_pays(begin, end, bit_width, follows_run=begin == packed, last=end == n):
            if begin > packed:
                parts.append(_bit_packed_run(values[packed:begin], bit_width))
            value = int(values[begin])
            parts += [_varint_bytes((end - begin) << 1), value.to_bytes((bit_width + 7) // 8, "little")]
            packed = end
    if packed < n:
        parts.append(_bit_packed_run(values[packed:], bit_width))
    return np.frombuffer(bytearray().join(parts), dtype=np.uint8)


def _rle_pays(begin: int, end: int, bit_width: int, *, follows_run: bool, last: bool) -> bool:
    """Whether an RLE run is no longer than the same values bit-packed, headers counted as one byte each."""
    groups = -(-(end - begin) // 8) if last else (end - begin) // 8
    return groups * bit_width + follows_run >= 1 + (bit_width + 7) // 8 + (not last)


def _bit_packed_run(values: Levels, bit_width: int) -> bytes:
    groups = -(-values.size // 8)
    return _varint_bytes(groups << 1 | 1) + _pack(values, bit_width).tobytes()


def unpack_bits_msb(buffer: BytesLike, bit_width: int, out: Levels) -> int:
    """Fill `out` from bits packed the deprecated way, most significant bit first (Encodings.md, BIT_PACKED = 4).

    Args:
        buffer: The values back to back, and whatever follows them.
        bit_width: Bits per value, 0 to 32. With 0 every value is 0 and no byte is needed or looked at.
        out: Where the values go, uint8 or int32; its length says how many are wanted.

    Returns:
        The bytes that the values take, the last one counted whole.

    Raises:
        EncodingError: The values end behind the end of `buffer`, one does not fit the type of `out`, or
            `bit_width` is not 0 to 32.
    """
    data = _octets(buffer)
    _require_types(out, np.uint8, np.int32)
    _check_bit_width(bit_width)
    if bit_width == 0:
        out[...] = 0
        return 0
    size = -(-out.size * bit_width // 8)
    if size > data.size:
        raise EncodingError("bit-packed values end behind the end of their buffer")
    bits = np.zeros((out.size, 32), np.uint8)
    bits[:, 32 - bit_width :] = np.unpackbits(data[:size], count=out.size * bit_width).reshape(-1, bit_width)
    values = np.packbits(bits, axis=1).view(">u4").ravel()
    if values.max(initial=0) > np.iinfo(out.dtype).max:
        raise EncodingError("a bit-packed value does not fit the type of the output")
    out[:] = values
    return size


def _check_bit_width(bit_width: int) -> None:
    if not 0 <= bit_width <= 32:
        raise EncodingError(f"the bit width is {bit_width}, not 0 to 32")


def _unpack(data: memoryview, width: int, count: int) -> NDArray[np.uint64]:
    """The first `count` values of `width` bits, 1 to 64, least significant bit first; missing bits are 0."""
    groups = -(-count // 8)
    stored = min(len(data), groups * width)
    padded = np.zeros((groups + 1) * width + 9, np.uint8)
    padded[:stored] = np.frombuffer(data[:stored], np.uint8)
    out = np.empty((groups, 8), np.uint64)
    for lane in range(8):  # the same value of every group of eight at once
        byte, shift = divmod(lane * width, 8)
        word = np.ndarray((groups,), "<u8", padded, offset=byte, strides=(width,)) >> shift
        if shift + width > 64:
            ninth = np.ndarray((groups,), np.uint8, padded, offset=byte + 8, strides=(width,))
            word |= ninth.astype(np.uint64) << (64 - shift)
        out[:, lane] = word & np.uint64((1 << width) - 1)
    return out.ravel()[:count]


def _pack(values: NDArray[Any], width: int) -> NDArray[np.uint8]:
    """Values of `width` bits, least significant bit first, in whole groups of eight."""
    groups = -(-values.size // 8)
    padded = np.zeros(groups * 8, np.uint64)
    padded[: values.size] = values
    lanes = padded.reshape(groups, 8)
    out = np.zeros((groups, width), np.uint8)
    for lane in range(8):
        first, shift = divmod(lane * width, 8)
        for byte in range(first, (lane * width + width + 7) // 8):
            moved = 8 * (byte - first) - shift  # how many bits of the value went to the bytes before
            bits = lanes[:, lane] >> moved if moved >= 0 else lanes[:, lane] << -moved
            out[:, byte] |= bits.astype(np.uint8)
    return out.ravel()


# --- PLAIN byte arrays ----------------------------------------------------------------------------------


def byte_array_lengths(buffer: BytesLike, lengths: NDArray[np.int32]) -> int:
    """Fill `lengths` with the lengths of as many PLAIN BYTE_ARRAY values, and return their sum.

    What stands in `buffer` behind the last of them is the caller's business.

    Raises:
        EncodingError: A value ends behind the end of `buffer`.
    """
    data = _octets(buffer).data
    _require_types(lengths, np.int32)
    size = len(data)
    position = 0
    found = []
    for _ in range(lengths.size):
        length = _LENGTH.unpack_from(data, position)[0] if size - position >= 4 else size
        position += 4 + length
        if position > size or length > _LARGEST_LENGTH:
            raise EncodingError("a BYTE_ARRAY value ends behind the end of its buffer")
        found.append(length)
    lengths[:] = found
    return position - 4 * lengths.size


def byte_array_split(buffer: BytesLike, lengths: NDArray[np.int32], out: NDArray[np.uint8]) -> None:
    """Copy the bytes of PLAIN BYTE_ARRAY values back to back into `out`.

    Args:
        buffer: The values, each behind its length of four bytes.
        lengths: What `byte_array_lengths` found in `buffer`.
        out: As many bytes as the sum of `lengths`.

    Raises:
        EncodingError: `lengths` do not add up to the size of `out`, or lead out of `buffer`.
    """
    data = _octets(buffer)
    _require_types(lengths, np.int32)
    _require_types(out, np.uint8)
    total = int(lengths.sum(dtype=np.int64))
    if lengths.size and lengths.min() < 0:
        raise EncodingError("a BYTE_ARRAY value has a negative length")
    if total != out.size or total + 4 * lengths.size > data.size:
        raise EncodingError("the lengths of BYTE_ARRAY values do not fit their buffers")
    body = np.ones(total + 4 * lengths.size, np.bool_)
    body[_prefix_positions(lengths)] = False
    out[:] = data[: body.size][body]


def byte_array_join(offsets: Offsets, data: BytesLike) -> NDArray[np.uint8]:
    """Encode the values ``data[offsets[i]:offsets[i + 1]]`` as PLAIN BYTE_ARRAY.

    Raises:
        EncodingError: `offsets` is empty, falls, leads out of `data`, or a value has 2**31 bytes or more.
    """
    source = _octets(data)
    _check_offsets(offsets, source.size)
    lengths = np.diff(offsets)
    out = np.empty(int(offsets[-1]) - int(offsets[0]) + 4 * lengths.size, np.uint8)
    body = np.ones(out.size, np.bool_)
    prefixes = _prefix_positions(lengths)
    body[prefixes] = False
    out[prefixes] = lengths.astype("<u4").view(np.uint8)
    out[body] = source[offsets[0] : offsets[-1]]
    return out


def byte_array_gather_lengths(
    offsets: Offsets, indices: NDArray[np.int32], lengths: NDArray[np.int32]
) -> int:
    """Fill `lengths` with those of the values that `indices` choose, and return their sum.

    Only the offsets of chosen values are looked at.

    Raises:
        EncodingError: An index is negative or not below ``len(offsets) - 1``, or a chosen value has a
            negative start, a negative length or 2**31 bytes or more.
    """
    _require_types(lengths, np.int32)
    if lengths.shape != indices.shape:
        raise ValueError("there must be as many lengths as indices")
    starts, ends = _chosen(offsets, indices)
    lengths[:] = ends - starts
    return int((ends - starts).sum())


def byte_array_gather(
    offsets: Offsets, data: BytesLike, indices: NDArray[np.int32], out: NDArray[np.uint8]
) -> None:
    """Copy the values ``data[offsets[i]:offsets[i + 1]]``, for every i of `indices`, back to back into `out`.

    Raises:
        EncodingError: As of `byte_array_gather_lengths`; also a chosen value leads out of `data`, or they do
            not add up to the size of `out`.
    """
    source = _octets(data)
    _require_types(out, np.uint8)
    starts, ends = _chosen(offsets, indices)
    lengths = ends - starts
    if indices.size and ends.max() > source.size:
        raise EncodingError("an offset leads out of the data")
    if lengths.sum() != out.size:
        raise EncodingError("the chosen values do not fill the output exactly")
    moved = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    np.take(source, moved + np.arange(out.size), out=out, mode="clip")


def byte_array_min_max(offsets: Offsets, data: BytesLike) -> tuple[int, int]:
    """Positions of the smallest and the largest value, compared bytewise and unsigned; of equals, the first.

    Raises:
        EncodingError: As of `byte_array_join`.
        ValueError: There are no values.
    """
    values = _byte_arrays(offsets, data)
    if not values:
        raise ValueError("there are no values to compare")
    positions = range(len(values))
    return min(positions, key=values.__getitem__), max(positions, key=values.__getitem__)


def _check_offsets(offsets: Offsets, size: int) -> None:
    """Refuse offsets that are not ``0 <= offsets[i] <= offsets[i + 1] <= size`` throughout."""
    _require_types(offsets, np.int32, np.int64)
    if not offsets.size:
        raise EncodingError("there must be one offset more than values")
    if offsets[0] < 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any():
        raise EncodingError("offsets fall or lead out of the data")
    if np.diff(offsets).max(initial=0) > _LARGEST_LENGTH:
        raise EncodingError("a value has 2**31 bytes or more")


def _chosen(offsets: Offsets, indices: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and end of each chosen value."""
    _require_types(offsets, np.int32, np.int64)
    _check_indices(indices, max(offsets.size - 1, 0))
    starts = offsets[indices].astype(np.int64)
    ends = offsets[1:][indices].astype(np.int64)
    if ((starts < 0) | (ends < starts)).any() or (ends - starts).max(initial=0) > _LARGEST_LENGTH:
        raise EncodingError("offsets fall, or a value has 2**31 bytes or more")
    return starts, ends


def _byte_arrays(offsets: Offsets, data: BytesLike) -> list[bytes]:
    source = _octets(data)
    _check_offsets(offsets, source.size)
    raw = source.tobytes()
    bounds = offsets.tolist()
    return [raw[start:end] for start, end in pairwise(bounds)]


def _prefix_positions(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Where the four bytes of each value's length stand among PLAIN BYTE_ARRAY values."""
    starts: NDArray[np.int64] = np.cumsum(lengths, dtype=np.int64) - lengths + 4 * np.arange(lengths.size)
    return (starts[:, None] + np.arange(4)).ravel()


# --- byte arrays that share prefixes --------------------------------------------------------------------


def shared_prefixes(offsets: Offsets, data: BytesLike) -> NDArray[np.int32]:
    """How many bytes each value ``data[offsets[i]:offsets[i + 1]]`` shares with the front of the one before.

    The first value shares none. This is what DELTA_BYTE_ARRAY leaves out (Encodings.md, 7).

    Raises:
        EncodingError: As of `byte_array_join`.
    """
    source = _octets(data)
    _check_offsets(offsets, source.size)
    shared = np.zeros(offsets.size - 1, np.int32)
    if shared.size < 2:
        return shared
    lengths = np.diff(offsets).astype(np.int64)
    limits = np.minimum(lengths[1:], lengths[:-1])
    ends = np.cumsum(limits)  # of each comparison among all of them, back to back
    within = np.arange(ends[-1]) - np.repeat(ends - limits, limits)
    here = source[within + np.repeat(offsets[1:-1], limits)]
    before = source[within + np.repeat(offsets[:-2], limits)]
    different = np.append(np.flatnonzero(here != before), ends[-1])
    first = different[np.searchsorted(different, ends - limits)]
    shared[1:] = np.minimum(first - (ends - limits), limits)
    return shared


def join_prefixes(
    prefixes: NDArray[np.int32],
    suffix_lengths: NDArray[np.int32],
    suffixes: BytesLike,
    lengths: NDArray[np.int32],
    previous: BytesLike = b"",
) -> NDArray[np.uint8]:
    """Put the values of DELTA_BYTE_ARRAY together (Encodings.md, 7), and return them back to back.

    Args:
        prefixes: How many bytes each value takes over from the front of the one before.
        suffix_lengths: How many bytes of its own follow them.
        suffixes: Those bytes, back to back, and whatever follows them.
        lengths: Filled with the length of each value.
        previous: The value before the first one.

    Raises:
        EncodingError: A number is negative, a prefix is longer than the value before, the suffixes end behind
            the end of `suffixes`, or the values have more than 2**31 - 1 bytes together.
    """
    data = _octets(suffixes).tobytes()
    value = _octets(previous).tobytes()
    for array in (prefixes, suffix_lengths, lengths):
        _require_types(array, np.int32)
    if not prefixes.shape == suffix_lengths.shape == lengths.shape:
        raise ValueError("there must be as many lengths as prefixes")
    found = prefixes.astype(np.int64) + suffix_lengths
    if min(prefixes.min(initial=0), suffix_lengths.min(initial=0)) < 0:
        raise EncodingError("a prefix or a suffix has a negative length")
    if (prefixes > np.append(len(value), found[:-1])[: prefixes.size]).any():
        raise EncodingError("a prefix is longer than the value before")
    if suffix_lengths.sum(dtype=np.int64) > len(data):
        raise EncodingError("the suffixes end behind the end of their buffer")
    if found.sum() > _LARGEST_LENGTH:
        raise EncodingError("the values of a page have 2**31 bytes or more")
    lengths[:] = found
    values = []
    position = 0
    for prefix, size in zip(prefixes.tolist(), suffix_lengths.tolist(), strict=True):
        value = value[:prefix] + data[position : position + size]
        position += size
        values.append(value)
    return np.frombuffer(bytearray().join(values), dtype=np.uint8)


# --- dictionaries, nulls --------------------------------------------------------------------------------


def gather(dictionary: NDArray[Any], indices: NDArray[np.int32], out: NDArray[Any]) -> None:
    """Copy the dictionary's values that `indices` choose, in their order, into `out`.

    Args:
        dictionary: One-dimensional with items of 1, 2, 4 or 8 bytes, or two-dimensional uint8, a value a row.
        indices: Positions in `dictionary`.
        out: As many values as `indices`, in type and width like `dictionary`.

    Raises:
        EncodingError: An index is negative or behind the end of `dictionary`.
    """
    source, target = _bits(dictionary), _bits(out)
    if out.dtype != dictionary.dtype or target.shape != (indices.size, *source.shape[1:]):
        raise ValueError("the output must have the type of the dictionary and the length of the indices")
    _check_indices(indices, len(source))
    np.take(source, indices, axis=0, out=target, mode="clip")


def dictionary_build(values: NDArray[Any], limit: int) -> tuple[NDArray[np.int32], NDArray[np.int64]] | None:
    """Number the distinct values in the order they appear; they are told apart by their bits.

    So a NaN equals only a NaN of the same bits, and 0.0 is not -0.0.

    Args:
        values: One-dimensional with items of 4 or 8 bytes, or two-dimensional uint8, a value a row.
        limit: How many distinct values there may be.

    Returns:
        The number of each value, and the position of the first value of each number; None as soon as there
        are more than `limit`.
    """
    if values.ndim == 2:
        raw, width = _bits(values).tobytes(), values.shape[1]
        return _number((raw[row * width : (row + 1) * width] for row in range(len(values))), limit)
    if values.itemsize not in (4, 8):
        raise ValueError("values must have 4 or 8 bytes")
    bits = _bits(values)
    if np.unique(bits[: 2 * limit + 2]).size > limit:  # most columns that are too varied show it early
        return None
    distinct, first, inverse = np.unique(bits, return_index=True, return_inverse=True)
    if distinct.size > limit:
        return None
    order = np.argsort(first)
    numbers = np.empty(order.size, np.int32)
    numbers[order] = np.arange(order.size, dtype=np.int32)
    return numbers[inverse], first[order].astype(np.int64, copy=False)


def dictionary_build_byte_arrays(
    offsets: Offsets, data: BytesLike, limit: int, limit_bytes: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]] | None:
    """Number the distinct values ``data[offsets[i]:offsets[i + 1]]`` in the order they appear.

    Args:
        offsets: One more than there are values.
        data: The bytes of the values.
        limit: How many distinct values there may be.
        limit_bytes: How large they may be together as a PLAIN dictionary, 4 bytes and the length of each.

    Returns:
        As `dictionary_build`; None also as soon as the distinct values exceed `limit_bytes`.

    Raises:
        EncodingError: As of `byte_array_join`.
    """
    return _number(_byte_arrays(offsets, data), limit, limit_bytes)


def _number(
    values: Iterable[bytes], limit: int, limit_bytes: int | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int64]] | None:
    # The keys are bytes because their hash is keyed by a secret of the process: nobody can choose values
    # that collide.
    numbers: dict[bytes, int] = {}
    indices: list[int] = []
    first: list[int] = []
    num_bytes = 0
    for position, value in enumerate(values):
        number = numbers.setdefault(value, len(numbers))
        indices.append(number)
        if number == len(first):
            first.append(position)
            num_bytes += 4 + len(value)
            if len(first) > limit or (limit_bytes is not None and num_bytes > limit_bytes):
                return None
    return np.array(indices, np.int32), np.array(first, np.int64)


def spread(values: NDArray[Any], present: NDArray[np.bool_] | NDArray[np.uint8]) -> None:
    """Move the first values, in their order, to where `present` is true, and put zeros everywhere else.

    Works in place, to make an array with room for nulls of one that was filled from the front.

    Args:
        values: One-dimensional with items of 1, 2, 4 or 8 bytes, or two-dimensional uint8, a value a row. As
            many at its front as `present` is true are taken.
        present: bool, or uint8 where everything but 0 is true; one per value.
    """
    slots = _bits(values)
    mask = present.view(np.uint8) != 0
    if mask.shape != slots.shape[:1]:
        raise ValueError("there must be one flag per value")
    kept = slots[: np.count_nonzero(mask)].copy()
    slots[...] = 0
    slots[mask] = kept


# --- Thrift ---------------------------------------------------------------------------------------------

_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)
_VARINTS = (_I16, _I32, _I64)
_FIXED_SIZES = {_TRUE: 1, _FALSE: 1, _I8: 1, _DOUBLE: 8, _UUID: 16}


def thrift_end(buffer: BytesLike, start: int, max_depth: int) -> int:
    """Walk the Thrift compact-protocol struct at `start` and return the offset just behind its stop byte.

    Args:
        buffer: The struct, and whatever stands around it.
        start: Offset of the struct's first byte.
        max_depth: How deep structs, lists, sets and maps may lie within each other, 1 to 128; the struct
            itself counts as 1.

    Raises:
        ThriftError: The struct is not whole in `buffer`, lies deeper than `max_depth`, or has a type that the
            protocol does not know or an integer of more than 64 bits.
        ValueError: `max_depth` is not 1 to 128.
    """
    data = _octets(buffer).data
    if not 1 <= max_depth <= _LARGEST_DEPTH:
        raise ValueError(f"max_depth must be 1 to {_LARGEST_DEPTH}")
    if not 0 <= start <= len(data):
        raise ThriftError("a struct starts outside of its buffer")
    return _struct_end(data, start, max_depth)


def _struct_end(data: memoryview, position: int, depth: int) -> int:
    """The offset behind a struct that may be `depth` levels deep."""
    if depth == 0:
        raise ThriftError("structs lie too deep within each other")
    while True:
        header, position = _byte(data, position)
        if header == 0:
            return position
        kind = header & 0x0F
        if header >> 4 == 0:  # no difference to the last field id: the id follows
            _, position = _varint(data, position, 64, ThriftError)
        if kind not in (_TRUE, _FALSE):  # the type of a field says all of a bool, that of an element does not
            position = _value_end(data, position, kind, depth - 1)


def _value_end(data: memoryview, position: int, kind: int, depth: int) -> int:
    """The offset behind one value, which may lie `depth` levels deep."""
    if kind in _VARINTS:
        return _varint(data, position, 64, ThriftError)[1]
    if kind in _FIXED_SIZES:
        return _advance(data, position, _FIXED_SIZES[kind])
    if kind == _BINARY:
        size, position = _varint(data, position, 64, ThriftError)
        return _advance(data, position, size)
    if kind == _STRUCT:
        return _struct_end(data, position, depth)
    if kind in (_LIST, _SET):
        return _list_end(data, position, depth)
    if kind == _MAP:
        return _map_end(data, position, depth)
    raise ThriftError(f"the Thrift compact protocol has no type {kind}")


def _list_end(data: memoryview, position: int, depth: int) -> int:
    if depth == 0:
        raise ThriftError("lists lie too deep within each other")
    header, position = _byte(data, position)
    count = header >> 4
    if count == 0x0F:
        count, position = _varint(data, position, 64, ThriftError)
    _advance(data, position, count)  # every element takes at least a byte
    for _ in range(count):
        position = _value_end(data, position, header & 0x0F, depth - 1)
    return position


def _map_end(data: memoryview, position: int, depth: int) -> int:
    if depth == 0:
        raise ThriftError("maps lie too deep within each other")
    count, position = _varint(data, position, 64, ThriftError)
    if count == 0:
        return position
    kinds, position = _byte(data, position)
    _advance(data, position, count)
    for _ in range(count):
        position = _value_end(data, position, kinds >> 4, depth - 1)
        position = _value_end(data, position, kinds & 0x0F, depth - 1)
    return position


def _byte(data: memoryview, position: int) -> tuple[int, int]:
    if position >= len(data):
        raise ThriftError("a struct ends behind the end of its buffer")
    return data[position], position + 1


def _advance(data: memoryview, position: int, size: int) -> int:
    if size > len(data) - position:
        raise ThriftError("a struct ends behind the end of its buffer")
    return position + size


# --- DELTA_BINARY_PACKED --------------------------------------------------------------------------------

_BLOCK, _MINIBLOCK = 128, 32  # what we write, and everybody else
_WIDEST = 64


def delta_binary_decode(buffer: BytesLike, out: Integers) -> int:
    """Fill `out` from DELTA_BINARY_PACKED (Encodings.md, 5); arithmetic wraps around in the type of `out`.

    The last miniblock may be cut short behind its last value. The miniblocks of int32, too, may have up to 64
    bits: DuckDB does not let its differences wrap around at 32.

    Args:
        buffer: The encoded values, and whatever follows them.
        out: int32 or int64, exactly as many as the header names.

    Returns:
        The bytes that the values take, as far as they are in `buffer`.

    Raises:
        EncodingError: The header names another number of values or impossible blocks, a miniblock that is
            needed is wider than 64 bits, or the blocks end too early.
    """
    data = _octets(buffer).data
    _require_types(out, np.int32, np.int64)
    (block_size, miniblocks, count, first), position = _delta_header(data)
    if count != out.size:
        raise EncodingError(f"{count} values are encoded where {out.size} are expected")
    if count == 0:
        return position
    steps = np.empty(count, np.uint64)  # the first value, then the deltas
    steps[0] = first
    filled = 1
    places = defaultdict[tuple[int, int], list[tuple[int, int]]](list)  # of miniblocks by width and count
    while filled < count:
        minimum, position = _zigzag(data, position)
        widths = data[position : position + miniblocks]
        if len(widths) < miniblocks:
            raise EncodingError("a block ends behind the end of its buffer")
        position += miniblocks
        steps[filled : filled + block_size] = minimum
        for width in widths:
            wanted = min(block_size // miniblocks, count - filled)
            if wanted == 0:
                break
            end = min(position + block_size // miniblocks * width // 8, len(data))
            if width > _WIDEST or wanted * width > 8 * (end - position):
                raise EncodingError("a miniblock is wider than 64 bits or ends behind the end of its buffer")
            if width:
                places[width, wanted].append((position, filled))
            position = end
            filled += wanted
    for (width, wanted), alike in places.items():
        _add_miniblocks(data, width, wanted, alike, steps)
    out[:] = np.cumsum(steps, dtype=np.uint64).astype(f"u{out.itemsize}").view(out.dtype)
    return position


def _delta_header(data: memoryview) -> tuple[tuple[int, int, int, int], int]:
    """Values per block, miniblocks per block, values in all and the first one, and where the blocks start."""
    block_size, position = _varint(data, 0, 32)
    miniblocks, position = _varint(data, position, 32)
    count, position = _varint(data, position, 32)
    first, position = _zigzag(data, position)
    if not block_size or block_size % 128 or block_size > _LARGEST_LENGTH:
        raise EncodingError(f"blocks of {block_size} values are not a multiple of 128")
    if not miniblocks or block_size % miniblocks or block_size // miniblocks % 32:
        raise EncodingError(f"{miniblocks} miniblocks to {block_size} values are not multiples of 32")
    return (block_size, miniblocks, count, first), position


def _add_miniblocks(
    data: memoryview, width: int, wanted: int, places: list[tuple[int, int]], steps: NDArray[np.uint64]
) -> None:
    """Unpack all miniblocks of one width at once and add them where they belong."""
    offsets, indices = np.array(places, np.int64).T
    row_size = -(-wanted // 8) * width
    rows = np.take(np.frombuffer(data, np.uint8), offsets[:, None] + np.arange(row_size), mode="clip")
    deltas = _unpack(memoryview(rows.ravel()), width, rows.size // width * 8).reshape(len(places), -1)
    steps[indices[:, None] + np.arange(wanted)] += deltas[:, :wanted]


def delta_binary_encode(values: Integers) -> NDArray[np.uint8]:
    """Encode int32 or int64 as DELTA_BINARY_PACKED (Encodings.md, 5): blocks of 128, in 4 miniblocks of 32.

    The last miniblock is whole, filled up with zeros; miniblocks without values have width 0 and no bytes.
    """
    _require_types(values, np.int32, np.int64)
    n = values.size
    unsigned = values.view(f"u{values.itemsize}")
    first = _zigzag_bytes(int(values[0]) if n else 0)
    header = _varint_bytes(_BLOCK) + _varint_bytes(_BLOCK // _MINIBLOCK) + _varint_bytes(n) + first
    if n < 2:
        return np.frombuffer(bytearray(header), dtype=np.uint8)
    blocks = -(-(n - 1) // _BLOCK)
    deltas = np.full(blocks * _BLOCK, np.iinfo(values.dtype).max, values.dtype)  # the filling is no minimum
    deltas[: n - 1] = (unsigned[1:] - unsigned[:-1]).view(values.dtype)
    minimums = deltas.reshape(blocks, _BLOCK).min(axis=1)
    above = deltas.view(unsigned.dtype).reshape(blocks, _BLOCK) - minimums.view(unsigned.dtype)[:, None]
    above.ravel()[n - 1 :] = 0
    miniblocks = above.reshape(-1, _MINIBLOCK)
    highest = miniblocks.max(axis=1)
    widths = np.zeros(highest.size, np.uint8)
    for bit in range(8 * values.itemsize):
        widths[highest >> bit != 0] = bit + 1
    packed = [b""] * widths.size
    for width in np.unique(widths[widths > 0]).tolist():
        alike = np.flatnonzero(widths == width)
        rows = _pack(miniblocks[alike].ravel(), width).reshape(alike.size, -1)
        for miniblock, row in zip(alike.tolist(), rows, strict=True):
            packed[miniblock] = row.tobytes()
    parts = [header]
    for block, minimum in enumerate(minimums.tolist()):
        own = slice(4 * block, 4 * block + 4)
        parts += [_zigzag_bytes(minimum), widths[own].tobytes(), *packed[own]]
    return np.frombuffer(bytearray().join(parts), dtype=np.uint8)


# --- what they share ------------------------------------------------------------------------------------


def _varint(
    data: memoryview, position: int, bits: int, error: type[FormatError] = EncodingError
) -> tuple[int, int]:
    """An unsigned LEB128 integer of at most `bits` bits, and the offset behind it."""
    value = 0
    for shift in range(0, bits, 7):
        if position >= len(data):
            raise error("an integer ends behind the end of its buffer")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return value, position
    raise error(f"an integer has more than {bits} bits")


def _zigzag(data: memoryview, position: int) -> tuple[int, int]:
    """A zigzag integer of 64 bits as its two's complement, and the offset behind it."""
    value, position = _varint(data, position, 64)
    return (value >> 1) ^ (0xFFFF_FFFF_FFFF_FFFF if value & 1 else 0), position


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag_bytes(value: int) -> bytes:
    return _varint_bytes(value << 1 if value >= 0 else (-value << 1) - 1)


# --- bloom filters ---------------------------------------------------------------------------------------

#: The odd constants of BloomFilter.md, one for each word of a block.
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31],
    np.uint32,
)


def byte_array_hashes(offsets: Offsets, data: BytesLike) -> NDArray[np.uint64]:
    """xxh64, with seed 0, of each value ``data[offsets[i]:offsets[i + 1]]``.

    Raises:
        EncodingError: As of `byte_array_join`.
    """
    values = _byte_arrays(offsets, data)
    return np.fromiter(map(xxhash.xxh64_intdigest, values), np.uint64, len(values))


def row_hashes(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """xxh64, with seed 0, of each row."""
    if rows.ndim != 2 or rows.dtype != np.uint8 or not rows.flags.c_contiguous:
        raise ValueError("rows must be a contiguous two-dimensional array of uint8")
    return np.fromiter((xxhash.xxh64_intdigest(row) for row in rows), np.uint64, len(rows))


def bloom_insert(blocks: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> None:
    """Set the bits of each hash in a split-block bloom filter, whose blocks have eight words each."""
    places, masks = _bloom_places(blocks, hashes)
    np.bitwise_or.at(blocks, places, masks)


def bloom_contains(blocks: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """For each hash, whether a split-block bloom filter has all of its bits."""
    places, masks = _bloom_places(blocks, hashes)
    found: NDArray[np.bool_] = ((blocks[places] & masks) == masks).all(axis=1)
    return found


def _bloom_places(
    blocks: NDArray[np.uint32], hashes: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """The block of each hash, and the bit that it has in each of the block's words."""
    _require_types(hashes, np.uint64)
    if blocks.ndim != 2 or blocks.shape[1] != 8 or not 0 < len(blocks) < 2**31 or blocks.dtype != np.uint32:
        raise ValueError("a filter has blocks of eight words, and one block at least")
    places = ((hashes >> np.uint64(32)) * np.uint64(len(blocks))) >> np.uint64(32)
    bits = (hashes.astype(np.uint32)[:, None] * _SALTS[None, :]) >> np.uint32(27)
    return places.astype(np.int64), np.uint32(1) << bits


def _octets(buffer: BytesLike) -> NDArray[np.uint8]:
    """The bytes of a buffer as an array, without a copy."""
    view = buffer.data if isinstance(buffer, np.ndarray) else memoryview(buffer)
    if view.ndim != 1 or view.format != "B" or not view.c_contiguous:
        raise ValueError("a buffer must be contiguous bytes")
    return np.frombuffer(view, np.uint8)


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """The array as unsigned integers of the same size, in the same memory, or rows of bytes as they are."""
    if not array.flags.c_contiguous:
        raise ValueError("an array must be contiguous")
    if array.ndim == 2 and array.dtype == np.uint8:
        return array
    if array.ndim != 1 or array.itemsize not in (1, 2, 4, 8):
        raise ValueError("values must be one-dimensional with 1, 2, 4 or 8 bytes each, or rows of uint8")
    return array.view(f"u{array.itemsize}")


def _require_types(array: NDArray[Any], *types: type[np.generic]) -> None:
    if array.ndim != 1 or not array.flags.c_contiguous or array.dtype.type not in types:
        names = " or ".join(wanted.__name__ for wanted in types)
        raise ValueError(f"an array must be one-dimensional, contiguous and {names}")


def _check_indices(indices: NDArray[np.int32], length: int) -> None:
    _require_types(indices, np.int32)
    if indices.size and (indices.min() < 0 or indices.max() >= length):
        raise EncodingError("an index lies outside of its dictionary")


def find_all(buffer: BytesLike, needle: bytes) -> NDArray[np.int64]:
    """Every place where some bytes stand in others.

    Python's own search takes three times as long as computing a CRC32 does, and this one less.

    Args:
        buffer: The bytes searched.
        needle: At least two bytes.

    Returns:
        The offsets where they begin, ascending; of places that overlap, all.

    Raises:
        ValueError: `needle` has less than two bytes.
    """
    length = len(needle)
    if length < 2:
        raise ValueError("what is searched for has at least two bytes")
    data = _octets(buffer)
    starts = data.size - length + 1
    if starts <= 0:
        return np.zeros(0, np.int64)
    # Two bytes at once are compared in words, at even offsets and then at odd ones.
    word = np.frombuffer(needle, np.uint16, 1)[0]
    found = [
        2 * np.flatnonzero(data[odd : odd + (starts + 1 - odd) // 2 * 2].view(np.uint16) == word) + odd
        for odd in (0, 1)
    ]
    offsets = np.sort(np.concatenate(found)).astype(np.int64, copy=False)
    for i in range(2, length):
        offsets = offsets[data[offsets + i] == needle[i]]
    return offsets
