"""BIT_PACKED: levels of old data pages v1, most significant bit first (Encodings.md); written on request only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.encodings.rle import bit_width, check_maximum
from resilient_pq.format.kernels.integers import varint_bytes
from resilient_pq.format.physical_values import Levels


def encode_levels(levels: Levels, maximum: int) -> NDArray[np.uint8]:
    """Levels of 0 to `maximum`, without a length before them."""
    shifts = np.arange(bit_width(maximum) - 1, -1, -1, dtype=np.uint8)
    return np.packbits((levels[:, None] >> shifts) & 1)


def take(data: memoryview, count: int, maximum: int, what: str) -> tuple[memoryview, memoryview]:
    """Split `count` levels of 0 to `maximum` from what follows them."""
    size = (count * bit_width(maximum) + 7) // 8
    if size > len(data):
        raise EncodingError(f"the {what} take {size} bytes, but the page has {len(data)} left")
    return data[:size], data[size:]


def decode_levels(data: memoryview, maximum: int, out: Levels, *, lsb_first: bool = False) -> None:
    """Fill `out` with levels; with `lsb_first` they are packed against the specification."""
    if lsb_first:
        # As a bit-packed run of the RLE encoding, which begins at the least significant bit.
        run = varint_bytes((len(out) + 7) // 8 << 1 | 1) + bytes(data)
        kernels.rle_decode(run, bit_width(maximum), out)
    else:
        kernels.unpack_bits_msb(data, bit_width(maximum), out)
    check_maximum(out, maximum)
