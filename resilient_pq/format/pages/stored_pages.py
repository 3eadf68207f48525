"""Pages that gzip only stores: their CRC32 does not tell them apart.

A gzip member ends with the CRC32 of its data (RFC 1952). Where its last deflate block stores bytes as they are (RFC
1951, section 3.2.4), a change to these changes the CRC32 of all before that trailer as it changes the trailer, so that
both add up to nothing: members that differ in such bytes alone have one CRC32. So have their pages, and a chunk in
which such pages are exchanged. No other codec puts a CRC32 of this polynomial into what it makes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

#: What ends a member: the CRC32 of its data, and their size.
_TRAILER_SIZE: Final = 8
#: A stored block begins with its length, and with that inverted; it is no longer than two bytes can say.
_LENGTHS_SIZE: Final = 4
_MAX_STORED: Final = 65535


def ends_stored(body: Any) -> bool:
    """Whether a page's body, compressed with gzip, ends with a member whose last block stores its bytes."""
    data = np.frombuffer(body, np.uint8)
    end = len(data) - _TRAILER_SIZE
    longest = min(_MAX_STORED, end - _LENGTHS_SIZE)
    if longest < 1:
        return False
    # Of each length that the block could have, its four bytes would lie just so far from the end.
    near = data[end - longest - _LENGTHS_SIZE : end - 1].astype(np.uint16)
    words = near[:-1] | near[1:] << 8
    lengths, inverted = words[:longest], words[2 : longest + 2]
    expected = np.arange(longest, 0, -1, dtype=np.uint16)
    return bool(((lengths == expected) & (inverted == ~expected)).any())
