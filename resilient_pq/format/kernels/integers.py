"""Integers of variable length."""

from __future__ import annotations

from resilient_pq.errors import EncodingError, FormatError


def varint(data: memoryview, position: int, bits: int, error: type[FormatError] = EncodingError) -> tuple[int, int]:
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


def zigzag(data: memoryview, position: int) -> tuple[int, int]:
    """A zigzag integer of 64 bits as its two's complement, and the offset behind it."""
    value, position = varint(data, position, 64)
    return (value >> 1) ^ (0xFFFF_FFFF_FFFF_FFFF if value & 1 else 0), position


def varint_bytes(value: int) -> bytes:
    """An unsigned LEB128 integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag_bytes(value: int) -> bytes:
    """A zigzag integer."""
    return varint_bytes(value << 1 if value >= 0 else (-value << 1) - 1)
