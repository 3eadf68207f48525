"""Split-block bloom filters: whether a value can be in a column chunk (parquet-format, BloomFilter.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import FormatError, SchemaError, UnsupportedError
from resilient_pq.format import compact_protocol, kernels
from resilient_pq.format.annotations import Empty
from resilient_pq.format.compact_protocol import I32, field
from resilient_pq.format.encodings import plain
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.physical_values import ByteArrays, Values, fixed_width
from resilient_pq.format.schema_tree import Primitive
from resilient_pq.lazy_dataclass import dataclass

_BLOCK_BYTES = 32
_WORDS = 8
#: How many bits are set in each number of 16 bits.
_BITS_SET = np.unpackbits(np.arange(1 << 16, dtype="<u2").view(np.uint8)).reshape(-1, 16).sum(1, dtype=np.uint8)
MAX_BYTES = 128 * 1024 * 1024  # Larger filters are refused, when reading and when writing: parquet-java's limit


@compact_protocol.struct
class BloomFilterAlgorithm:
    """How values are spread: in split blocks."""

    BLOCK: Empty | None = field(1, Empty, default=None)


@compact_protocol.struct
class BloomFilterHash:
    """How values are hashed: xxh64 with seed 0."""

    XXHASH: Empty | None = field(1, Empty, default=None)


@compact_protocol.struct
class BloomFilterCompression:
    """How the bits are stored: as they are."""

    UNCOMPRESSED: Empty | None = field(1, Empty, default=None)


@compact_protocol.struct
class BloomFilterHeader:
    """What stands before the bits."""

    numBytes: int = field(1, I32)  # noqa: N815 (the specification's name)
    algorithm: BloomFilterAlgorithm = field(2, BloomFilterAlgorithm)
    hash: BloomFilterHash = field(3, BloomFilterHash)
    compression: BloomFilterCompression = field(4, BloomFilterCompression)


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """The bits of a column chunk's filter."""

    blocks: NDArray[np.uint32]  # uint32 of shape (blocks, 8)

    @classmethod
    def sized(cls, num_distinct: int, false_positives: float) -> BloomFilter:
        """An empty filter for `num_distinct` values, at most a share of `false_positives` of others passing."""
        # The size is a power of two, as parquet-java's is, and `MAX_BYTES` at most, however many pass then.
        if not 0.0 < false_positives < 1.0:
            raise SchemaError(f"false_positives is {false_positives}; it is a share, 0.01 for 1 %")
        bits = -8.0 * max(num_distinct, 1) / math.log(1.0 - false_positives ** (1.0 / 8.0))
        size = 1 << max(math.ceil(math.log2(max(bits / 8, _BLOCK_BYTES))), 5)
        return cls(np.zeros((min(size, MAX_BYTES) // _BLOCK_BYTES, _WORDS), np.uint32))

    def insert(self, node: Primitive, values: Values) -> None:
        """Add every value."""
        kernels.bloom_insert(self.blocks, hashes_of(node, values))

    def may_contain(self, node: Primitive, values: Values) -> NDArray[np.bool_]:
        """For every value, False where it is certainly not in the chunk."""
        return kernels.bloom_contains(self.blocks, hashes_of(node, values))

    def may_contain_plain(self, values: Sequence[bytes]) -> NDArray[np.bool_]:
        """For every value in PLAIN encoding, without a length, False where it is certainly not in the chunk."""
        offsets = np.zeros(len(values) + 1, np.int64)
        np.cumsum([len(value) for value in values], out=offsets[1:])
        return kernels.bloom_contains(self.blocks, kernels.byte_array_hashes(offsets, b"".join(values)))

    def false_positives(self) -> float:
        """The share of values that pass though none of them was added, by the bits that are set."""
        halves = _BITS_SET[self.blocks.view(np.uint16)].reshape(-1, _WORDS, 2)
        shares = (halves[:, :, 0] + halves[:, :, 1]) / np.float32(32)
        return float(shares.prod(axis=1).mean())

    def folded(self, false_positives: float) -> BloomFilter:
        """The smallest filter of the same values of which at most this share of other values pass."""
        # A value's block is its hash times the number of blocks: of half as many blocks each is two neighbours in one.
        smallest = self
        while len(smallest.blocks) > 1 and len(smallest.blocks) % 2 == 0:
            half = BloomFilter(smallest.blocks[0::2] | smallest.blocks[1::2])
            if half.false_positives() > false_positives:
                break
            smallest = half
        return smallest

    def to_bytes(self) -> bytes:
        """Header and bits, as they stand in a file."""
        header = BloomFilterHeader(
            numBytes=self.blocks.nbytes,
            algorithm=BloomFilterAlgorithm(BLOCK=Empty()),
            hash=BloomFilterHash(XXHASH=Empty()),
            compression=BloomFilterCompression(UNCOMPRESSED=Empty()),
        )
        return compact_protocol.encode(header) + self.blocks.astype("<u4").tobytes()

    @classmethod
    def from_bytes(cls, data: Any) -> BloomFilter:
        """Read header and bits; bytes behind them are left alone."""
        view = memoryview(data)
        header, start = compact_protocol.decode(BloomFilterHeader, view, what="bloom filter header")
        known = header.algorithm.BLOCK, header.hash.XXHASH, header.compression.UNCOMPRESSED
        if any(member is None for member in known):
            raise UnsupportedError("a bloom filter of an unknown kind")
        size = header.numBytes
        if size <= 0 or size % _BLOCK_BYTES or size > MAX_BYTES or start + size > len(view):
            raise FormatError(f"a bloom filter of {size} bytes, {len(view) - start} at hand")
        words = np.frombuffer(view, "<u4", size // 4, start)
        return cls(words.reshape(-1, _WORDS).astype(np.uint32))


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """How the filters of a column are sized."""

    ndv: int | None = None  # distinct values that a filter has room for; None sizes it by those that are there
    fpp: float = 0.05  # share of other values that pass when so many were added


def filter_of(node: Primitive, values: Values, options: FilterOptions) -> BloomFilter:
    """The filter of these values; any of them may stand more than once."""
    made = BloomFilter.sized(len(values) if options.ndv is None else options.ndv, options.fpp)
    made.insert(node, values)
    return made.folded(options.fpp) if options.ndv is None else made


def header_size(data: Any) -> tuple[int, int]:
    """Bytes of the header at the front of `data`, and of the bits behind it."""
    header, start = compact_protocol.decode(BloomFilterHeader, memoryview(data), what="bloom filter header")
    return start, header.numBytes


def hashes_of(node: Primitive, values: Values) -> NDArray[np.uint64]:
    """xxh64 of every value in PLAIN encoding, without the lengths of byte arrays."""
    if node.physical_type is Type.BOOLEAN:
        raise UnsupportedError("BOOLEAN columns have no bloom filters")
    if isinstance(values, ByteArrays):
        return kernels.byte_array_hashes(values.offsets, values.data)
    width = fixed_width(node) or 0
    return kernels.row_hashes(plain.encode(node, values).reshape(len(values), width))
