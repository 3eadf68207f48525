"""The one bit that was flipped, named by a CRC32 that does not hold. Pure."""

# A CRC32 is the remainder of a polynomial over GF(2). A flipped bit adds x^k to it modulo the polynomial, k being the
# number of bits behind it, those of the CRC32 included, whatever the other bits are. The polynomial is primitive: each
# of the 2^32 - 1 remainders but zero is one power of x. What makes a flip believable is that the exponent lies within
# the bytes at hand.

from __future__ import annotations

from functools import cache
from typing import Any, Final

from resilient_pq.checksum import crc32, product

_ONE: Final = 1 << 31
_X: Final = 1 << 30
_ORDER: Final = 2**32 - 1  # How many powers of x there are, and the prime factors of that number
_FACTORS: Final = (3, 5, 17, 257, 65537)
_CRC_BITS: Final = 32
MAX_BYTES: Final = (_ORDER - _CRC_BITS) // 8  # Of more bytes, two bits would change the sum alike (512 MiB)


def with_bit_turned_back(data: Any, stored_crc: int) -> bytes | None:
    """The bytes with the one bit turned back whose flip explains their CRC32; None where no single bit does."""
    bit = flipped_bit(crc32(data) ^ stored_crc, len(data))
    if bit is None:
        return None
    whole = bytearray(data)
    if bit < 8 * len(data):  # else it is one of the stored CRC32, and the bytes are whole
        whole[bit // 8] ^= 1 << bit % 8
    return bytes(whole)


def flipped_bit(difference: int, num_bytes: int) -> int | None:
    """The bit of some bytes, or of the CRC32 behind them, whose flip makes this difference of sums; None for none."""
    # Bit 0 is the least significant one of the first byte.
    if not difference or num_bytes > MAX_BYTES:
        return None
    bit = num_bytes * 8 + _CRC_BITS - 1 - _exponent(difference)
    return bit if bit >= 0 else None


def _exponent(power: int) -> int:
    """The k for which x^k is `power`, which is not 0, by Pohlig and Hellman: one prime factor after another."""
    exponent, modulus = 0, 1
    for prime in _FACTORS:
        remainder = _exponent_modulo(prime, _raised(power, _ORDER // prime))
        # The factors found so far and this one have no divisor in common (the Chinese remainder theorem).
        exponent += modulus * ((remainder - exponent) * pow(modulus, -1, prime) % prime)
        modulus *= prime
    return exponent


def _exponent_modulo(prime: int, power: int) -> int:
    """The k below `prime` for which the generator of the subgroup of that order, to the k, is `power`."""
    small, step, back = _steps(prime)
    for giant in range(-(-prime // step)):
        if power in small:
            return giant * step + small[power]
        power = product(power, back)
    raise AssertionError(f"not in the subgroup of order {prime}")


@cache
def _steps(prime: int) -> tuple[dict[int, int], int, int]:
    """For `_exponent_modulo`: the first powers of the generator, how many these are, and what goes back by as many."""
    generator = _raised(_X, _ORDER // prime)
    step = int(prime**0.5) + 1
    small, power = {}, _ONE
    for exponent in range(min(step, prime)):
        small[power] = exponent
        power = product(power, generator)
    return small, step, _raised(generator, prime - step % prime)


def _raised(base: int, exponent: int) -> int:
    result = _ONE
    while exponent:
        if exponent & 1:
            result = product(result, base)
        base = product(base, base)
        exponent >>= 1
    return result
