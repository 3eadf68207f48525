"""BIT_PACKED: levels of old data pages v1, most significant bit first, without a length (parquet-format, Encodings.md).

Deprecated in favour of RLE, so it is only read.
"""

from __future__ import annotations

from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.encodings.rle import bit_width, check_maximum
from resilient_pq.format.values import Levels


def take(data: memoryview, count: int, maximum: int, what: str) -> tuple[memoryview, memoryview]:
    """Split `count` levels of 0 to `maximum` from what follows them.

    Raises:
        EncodingError: The page ends before they do.
    """
    size = (count * bit_width(maximum) + 7) // 8
    if size > len(data):
        raise EncodingError(f"the {what} take {size} bytes, but the page has {len(data)} left")
    return data[:size], data[size:]


def decode_levels(data: memoryview, maximum: int, out: Levels) -> None:
    """Fill `out` with levels.

    Raises:
        EncodingError: They do not decode, or one is greater than `maximum`.
    """
    kernels.unpack_bits_msb(data, bit_width(maximum), out)
    check_maximum(out, maximum)
