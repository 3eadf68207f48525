"""The place where bytes of one part of a file end and those of another go on, so that a CRC32 holds. Pure."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from resilient_pq.checksum import combine, crc32
from resilient_pq.units import KiB, MiB

#: Sizes that pieces of a file are cut at, the likeliest first: parts of uploads, blocks, pages of memory, sectors.
BORDERS: Final = (5 * MiB, MiB, 64 * KiB, 4 * KiB, 512)
#: Of more bytes not every place is tried, but multiples of `BORDERS` alone. Where n places are tried, a seam is found
#: in bytes that have none once in 2^32 / n times.
_MOST_PLACES: Final = MiB
_POLYNOMIAL: Final = 0xEDB88320


def find_seam(first: Any, second: Any, crc: int, offset: int, shifts: tuple[int, int]) -> int | None:
    """How many bytes of `first`, with the rest of `second`, have a CRC32; None where no number does.

    Multiples of the usual sizes are tried first, other places only where the parts were not moved by such a multiple.
    """
    size = len(first)
    wanted = crc32(second) ^ crc
    before = found_first = found_second = 0
    least = BORDERS[-1]  # the others are multiples of it
    places = {at for shift in (*shifts, 0) for at in range(-(offset + shift) % least or least, size, least)}
    for at in sorted(places):
        found_first = crc32(first[before:at], found_first)
        found_second = crc32(second[before:at], found_second)
        before = at
        # Both sums go on over the same number of bytes, which changes their difference in a way that is known.
        if combine(found_first ^ found_second, 0, size - at) == wanted:
            return at
    if (shifts[0] - shifts[1]) % least == 0 or size > _MOST_PLACES:
        return None
    return _any_place(first, second, wanted)


def _any_place(first: Any, second: Any, wanted: int) -> int | None:
    """The first place at which the difference of both checksums becomes `wanted` at the end."""
    table, back = _table(), _table_back()
    change = (np.frombuffer(first, np.uint8) ^ np.frombuffer(second, np.uint8)).tolist()
    # What the difference has to be at each place, from the end to the front.
    needed = [wanted] * (len(change) + 1)
    for at in range(len(change) - 1, -1, -1):
        index = back[needed[at + 1] >> 24]
        needed[at] = (needed[at + 1] ^ table[index]) << 8 & 0xFFFFFFFF | index
    difference = 0
    for at, byte in enumerate(change):
        if at and difference == needed[at]:
            return at
        difference = table[(difference ^ byte) & 0xFF] ^ difference >> 8
    return None


@cache
def _table() -> list[int]:
    """The difference of two checksums behind another byte, by its last byte."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901 (bit by bit)
        table.append(value)
    return table


@cache
def _table_back() -> list[int]:
    """The index of each entry of `_table` by its first byte, which no two share."""
    back = [0] * 256
    for value, entry in enumerate(_table()):
        back[entry >> 24] = value
    return back
