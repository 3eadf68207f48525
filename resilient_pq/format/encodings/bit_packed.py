"""BIT_PACKED: levels of old data pages v1, most significant bit first, without a length (parquet-format, Encodings.md).

Deprecated in favour of RLE, and written on request only, for readers of that time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.encodings.rle import bit_width, check_maximum
from resilient_pq.format.values import Levels


def encode_levels(levels: Levels, maximum: int) -> NDArray[np.uint8]:
    """Levels of 0 to `maximum`, without a length before them."""
    shifts = np.arange(bit_width(maximum) - 1, -1, -1, dtype=np.uint8)
    return np.packbits((levels[:, None] >> shifts) & 1)


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
