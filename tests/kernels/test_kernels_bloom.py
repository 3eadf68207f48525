"""Hashes of values and the bits of split-block bloom filters, against xxhash and the specification's own words."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels import reference

SALTS = (
    0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
)  # fmt: skip
strings = st.lists(st.binary(max_size=200), max_size=20)
hashes = st.lists(st.integers(0, 2**64 - 1), max_size=30)


def rows(count: int, width: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(width).integers(0, 256, (count, width), np.uint8)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@settings(deadline=None, max_examples=100)
@given(values=strings, before=st.binary(max_size=9), behind=st.binary(max_size=9))
def test_hashes_of_byte_arrays(
    kernels: ModuleType, dtype: type[Any], values: list[bytes], before: bytes, behind: bytes
) -> None:
    offsets = np.cumsum([len(before), *map(len, values)]).astype(dtype)
    found = kernels.byte_array_hashes(offsets, before + b"".join(values) + behind)
    assert found.dtype == np.uint64
    assert found.tolist() == [xxhash.xxh64_intdigest(value) for value in values]


@pytest.mark.parametrize("width", range(70))
def test_hashes_of_rows(kernels: ModuleType, width: int) -> None:
    """Every length takes another way through the hash."""
    values = rows(5, width)
    assert kernels.row_hashes(values).tolist() == [xxhash.xxh64_intdigest(row.tobytes()) for row in values]
    assert kernels.row_hashes(values[:0]).tolist() == []


@pytest.mark.parametrize("offsets", [[], [0, 7], [-1, 3], [0, 4, 3]])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_offsets_that_lead_out_of_the_data(kernels: ModuleType, offsets: list[int], dtype: type[Any]) -> None:
    with pytest.raises(EncodingError):
        kernels.byte_array_hashes(np.array(offsets, dtype), b"abcdef")


@settings(deadline=None, max_examples=100)
@given(added=hashes, others=hashes, num_blocks=st.sampled_from([1, 2, 3, 64, 1000]))
def test_a_filter_has_the_bits_of_what_was_added(
    kernels: ModuleType, added: list[int], others: list[int], num_blocks: int
) -> None:
    def bits(value: int) -> set[tuple[int, int, int]]:
        block = ((value >> 32) * num_blocks) >> 32
        low = value & 0xFFFFFFFF
        return {(block, word, ((low * salt) & 0xFFFFFFFF) >> 27) for word, salt in enumerate(SALTS)}

    blocks = np.zeros((num_blocks, 8), np.uint32)
    kernels.bloom_insert(blocks, np.array(added, np.uint64))
    places = np.unpackbits(blocks.view(np.uint8), axis=1, bitorder="little").reshape(num_blocks, 8, 32)
    found = {(int(block), int(word), int(bit)) for block, word, bit in np.argwhere(places)}
    assert found == set().union(*map(bits, added))
    expected = [bits(value) <= found for value in added + others]
    contained = kernels.bloom_contains(blocks, np.array(added + others, np.uint64))
    assert contained.dtype == np.bool_
    assert contained.tolist() == expected
    assert all(expected[: len(added)])


@pytest.mark.parametrize("shape", [(0, 8), (2, 7), (2, 9)])
def test_what_is_no_filter(kernels: ModuleType, shape: tuple[int, int]) -> None:
    for kernel in (kernels.bloom_insert, kernels.bloom_contains):
        with pytest.raises(ValueError, match="blocks of eight words"):
            kernel(np.zeros(shape, np.uint32), np.zeros(1, np.uint64))


def test_both_agree_on_many(native: ModuleType) -> None:
    values = rows(20_000, 12)
    found = native.row_hashes(values)
    assert (found == reference.row_hashes(values)).all()
    made = []
    for module in (native, reference):
        blocks = np.zeros((512, 8), np.uint32)
        module.bloom_insert(blocks, found[:3000])
        made.append(blocks)
    assert (made[0] == made[1]).all()
    assert (native.bloom_contains(made[0], found) == reference.bloom_contains(made[0], found)).all()
