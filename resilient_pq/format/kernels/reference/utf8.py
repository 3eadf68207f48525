"""Text looked at."""

from __future__ import annotations

import codecs

from resilient_pq.format.kernels.reference.arrays import BytesLike, Offsets, octets
from resilient_pq.format.kernels.reference.byte_arrays import check_offsets

#: How many bytes are decoded at one time, to see whether they can be.
_BITE = 1 << 18


def utf8_valid(offsets: Offsets, data: BytesLike) -> bool:
    """Whether each of the values ``data[offsets[i]:offsets[i + 1]]`` is well-formed UTF-8 by itself.

    Raises:
        EncodingError: As of `byte_array_join`.
    """
    source = octets(data)
    check_offsets(offsets, source.size)
    first, last = int(offsets[0]), int(offsets[-1])
    text = source[first:last]
    if text.max(initial=0) < 0x80:
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, text.size, _BITE):
            decoder.decode(text[start : start + _BITE].data)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    # All of it is. So is each value, unless one begins within a character: with one of its further bytes.
    starts = offsets[:-1]
    beginnings = source[starts[starts < last]]
    return not bool(((beginnings & 0xC0) == 0x80).any())
