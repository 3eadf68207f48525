"""The RLE / bit-packed hybrid, and BIT_PACKED levels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels.integers import varint, varint_bytes
from resilient_pq.format.kernels.reference.arrays import (
    LARGEST_LENGTH,
    BytesLike,
    Levels,
    Packed,
    octets,
    require_types,
)

_MOST_IN_FRONT = 8  # Bytes that `rle_encode` leaves free in front at most


def rle_decode(buffer: BytesLike, bit_width: int, out: Levels) -> int:
    """Fill `out` from runs of the RLE/bit-packed hybrid, without a length prefix (Encodings.md, RLE = 3)."""
    # Returns the bytes that the runs take. With a bit width of 0 every value is 0 and no byte is looked at. A run
    # longer than what is wanted is read as far as it is wanted, and the last bit-packed run may be cut short behind the
    # last value wanted, as old writers left it. A run that claims a whole group of eight behind the end is not: no
    # writer makes it, and it shows that the bytes are those of something else. So does a run of no values, at which
    # other readers stop.
    data = octets(buffer).data
    require_types(out, np.uint8, np.int32)
    _check_bit_width(bit_width)
    if bit_width == 0:
        out[...] = 0
        return 0
    largest = min((1 << bit_width) - 1, int(np.iinfo(out.dtype).max))
    position = filled = 0
    while filled < out.size:
        header, position = varint(data, position, 32)
        count = header >> 1
        if not count:
            raise EncodingError("a run of no values, which no writer makes")
        if header & 1:
            wanted = min(8 * count, out.size - filled)
            end = min(position + count * bit_width, len(data))
            if wanted * bit_width > 8 * (end - position) or count * bit_width >= end - position + bit_width:
                raise EncodingError("a bit-packed run ends behind the end of its buffer")
            values = unpack(data[position:end], bit_width, wanted)
            if values.max() > largest:
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


def rle_encode(values: Packed, bit_width: int, front: int = 0) -> NDArray[np.uint8]:
    """Encode values as the RLE/bit-packed hybrid, behind `front` zeros, 0 to 8 (Encodings.md, RLE = 3)."""
    # Equal values become an RLE run where that is no longer than to bit-pack them: from 8 on for most widths, from 24
    # on between bit-packed values of one bit. What lies between is one bit-packed run however long it is; the last one
    # is filled up to a multiple of 8 with zeros.
    require_types(values, np.uint8, np.uint16, np.int32)
    _check_bit_width(bit_width)
    n = values.size
    if n > LARGEST_LENGTH:
        raise ValueError("a page holds fewer than 2**31 values")
    if not 0 <= front <= _MOST_IN_FRONT:
        raise ValueError(f"at most {_MOST_IN_FRONT} bytes are left free")
    if n and (values.min() < 0 or int(values.max()) >> bit_width):
        raise EncodingError("a value has more bits than the bit width")
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, n)
    lengths = np.diff(ends, prepend=0)
    candidates = np.flatnonzero((lengths >= 8) | (ends == n)) if n else ()
    parts = [bytes(front)]
    packed = 0  # where the values begin that no run holds so far
    for candidate in candidates:
        end = int(ends[candidate])
        begin = end - int(lengths[candidate])
        begin += (packed - begin) % 8  # a bit-packed run is whole groups of eight: the one before takes these
        if begin < end and _rle_pays(begin, end, bit_width, follows_run=begin == packed, last=end == n):
            if begin > packed:
                parts.append(_bit_packed_run(values[packed:begin], bit_width))
            value = int(values[begin])
            parts += [varint_bytes((end - begin) << 1), value.to_bytes((bit_width + 7) // 8, "little")]
            packed = end
    if packed < n:
        parts.append(_bit_packed_run(values[packed:], bit_width))
    return np.frombuffer(bytearray().join(parts), dtype=np.uint8)


def _rle_pays(begin: int, end: int, bit_width: int, *, follows_run: bool, last: bool) -> bool:
    """Whether an RLE run is no longer than the same values bit-packed, headers counted as one byte each."""
    groups = -(-(end - begin) // 8) if last else (end - begin) // 8
    return groups * bit_width + follows_run >= 1 + (bit_width + 7) // 8 + (not last)


def _bit_packed_run(values: Packed, bit_width: int) -> bytes:
    groups = -(-values.size // 8)
    return varint_bytes(groups << 1 | 1) + pack(values, bit_width).tobytes()


def unpack_bits_msb(buffer: BytesLike, bit_width: int, out: Levels) -> int:
    """Fill `out` from bits packed most significant bit first (BIT_PACKED = 4); returns the bytes that they take."""
    # With a bit width of 0 every value is 0 and no byte is needed or looked at.
    data = octets(buffer)
    require_types(out, np.uint8, np.int32)
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


def unpack(data: memoryview, width: int, count: int) -> NDArray[np.uint64]:
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


def pack(values: NDArray[Any], width: int) -> NDArray[np.uint8]:
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
