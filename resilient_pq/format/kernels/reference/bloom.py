"""Bloom filters, and the hashes they hold."""

from __future__ import annotations

import numpy as np
import xxhash
from numpy.typing import NDArray

from resilient_pq.format.kernels.reference.arrays import BytesLike, Offsets, require_types
from resilient_pq.format.kernels.reference.byte_arrays import byte_arrays

#: The odd constants of BloomFilter.md, one for each word of a block.
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)


def byte_array_hashes(offsets: Offsets, data: BytesLike) -> NDArray[np.uint64]:
    """xxh64, with seed 0, of each value ``data[offsets[i]:offsets[i + 1]]``."""
    values = byte_arrays(offsets, data)
    return np.fromiter(map(xxhash.xxh64_intdigest, values), np.uint64, len(values))


def row_hashes(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """xxh64, with seed 0, of each row."""
    if rows.ndim != 2 or rows.dtype != np.uint8 or not rows.flags.c_contiguous:
        raise ValueError("rows must be a contiguous two-dimensional array of uint8")
    return np.fromiter((xxhash.xxh64_intdigest(row) for row in rows), np.uint64, len(rows))


def bloom_insert(blocks: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> None:
    """Set the bits of each hash in a split-block bloom filter, whose blocks have eight words each."""
    places, masks = _bloom_places(blocks, hashes)
    np.bitwise_or.at(blocks, places, masks)


def bloom_contains(blocks: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """For each hash, whether a split-block bloom filter has all of its bits."""
    places, masks = _bloom_places(blocks, hashes)
    found: NDArray[np.bool_] = ((blocks[places] & masks) == masks).all(axis=1)
    return found


def _bloom_places(
    blocks: NDArray[np.uint32], hashes: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """The block of each hash, and the bit that it has in each of the block's words."""
    require_types(hashes, np.uint64)
    if blocks.ndim != 2 or blocks.shape[1] != 8 or not 0 < len(blocks) < 2**31 or blocks.dtype != np.uint32:
        raise ValueError("a filter has blocks of eight words, and one block at least")
    places = ((hashes >> np.uint64(32)) * np.uint64(len(blocks))) >> np.uint64(32)
    bits = (hashes.astype(np.uint32)[:, None] * _SALTS[None, :]) >> np.uint32(27)
    return places.astype(np.int64), np.uint32(1) << bits
