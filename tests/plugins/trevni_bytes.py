"""What Trevni is written in, computed without our code."""

from __future__ import annotations


def zint(value: int) -> bytes:
    """A number as Avro and Trevni write it: its sign last, seven bits a byte, the lowest first."""
    rest = value * 2 if value >= 0 else -value * 2 - 1
    out = b""
    while rest > 127:
        out += bytes([rest % 128 + 128])
        rest //= 128
    return out + bytes([rest])
