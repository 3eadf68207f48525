"""Whole numbers of variable length, as Parquet has them in many places."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """Seven bits in each byte, the lowest first."""
    out = []
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])
