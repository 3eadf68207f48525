"""CRC32 as Parquet, gzip and S3 compute it (polynomial 0x04C11DB7, reflected), by the fastest code at hand; xxh3."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Protocol

import xxhash

# Of polynomials over GF(2), bit 31 is the coefficient of x^0: so this is the polynomial above, read backwards.
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
_X_TO_THE_8 = 1 << 23


def combine_in_python(first: int, second: int, second_size: int) -> int:
    """`combine`, from the mathematics: appending n bytes multiplies the CRC of what stands before by x^(8n)."""
    shift, power, rest = _ONE, _X_TO_THE_8, second_size
    while rest:
        if rest & 1:
            shift = product(shift, power)
        power = product(power, power)
        rest >>= 1
    return product(first, shift) ^ second


def product(a: int, b: int) -> int:
    """The product of two polynomials over GF(2), modulo that of the CRC; bit 31 is the coefficient of x^0."""
    total = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            total ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)  # times x
    return total


class CRC32(Protocol):
    """Computes CRC32s."""

    def __call__(self, data: Any, start: int = 0, /) -> int:
        """Unsigned CRC32 of `data`, going on from the CRC32 `start` of what came before it."""


def _fastest() -> tuple[CRC32, Callable[[int, int, int], int]]:
    try:
        from isal import isal_zlib  # noqa: PLC0415 (has no wheel on some platforms)
    except ImportError:
        return zlib.crc32, combine_in_python
    return isal_zlib.crc32, getattr(isal_zlib, "crc32_combine", combine_in_python)


#: `combine` gives the unsigned CRC32 of two runs of bytes, one behind the other, of their own and the second's size.
crc32, combine = _fastest()


def xxh3(*parts: Any) -> int:
    """Unsigned xxh3-64 of bytes that follow one another."""
    if len(parts) == 1:
        return xxhash.xxh3_64_intdigest(parts[0])
    state = xxhash.xxh3_64()
    for part in parts:
        state.update(part)
    return state.intdigest()


def signed(value: int, bits: int = 32) -> int:
    """A CRC32, or a hash of more bits, as Thrift stores it: a signed integer."""
    return value - (1 << bits) if value >> (bits - 1) else value


def unsigned(value: int, bits: int = 32) -> int:
    """A CRC32, or a hash of more bits, as it is compared, from the signed integer that Thrift stores."""
    return value & ((1 << bits) - 1)
