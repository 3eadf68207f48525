"""The parity of a group is that of its bytes, in whatever pieces they come."""

from __future__ import annotations

import zlib
from itertools import pairwise

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import SchemaError
from resilient_pq.format.kernels.reference.gf256 import gf256_accumulate
from resilient_pq.parity.group_encoder import EncodedGroup, GroupEncoder
from resilient_pq.parity.group_record import TABLE_OFFSET, GroupRecord
from resilient_pq.parity.group_shape import MAX_SHARD_BYTES, GroupShape, ParityShare, group_shapes
from resilient_pq.parity.reed_solomon import coefficients

SHAPE = GroupShape(5 * 2048 - 700, 3, 2048, 512)


def encoded(shape: GroupShape, data: bytes, cuts: list[int]) -> EncodedGroup:
    encoder = GroupEncoder(shape)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        encoder.add(data[start:end])
    return encoder.finish()


def record_of(group: EncodedGroup) -> GroupRecord:
    known = np.ones(len(group.block_crcs), np.bool_)
    extent = ByteRange(4096, 4096 + group.shape.num_bytes)
    return GroupRecord(group.shape, 7, (extent,), group.digest, 99, 1234, group.block_crcs, known)


@settings(max_examples=30)
@given(st.integers(0, 1 << 20), st.lists(st.integers(0, 1 << 20)))
def test_parity_does_not_depend_on_the_pieces(seed: int, cuts: list[int]) -> None:
    data = np.random.default_rng(seed).bytes(SHAPE.num_bytes)
    group = encoded(SHAPE, data, cuts)
    filled = data.ljust(SHAPE.num_data * SHAPE.shard_bytes, b"\0")
    shards = np.frombuffer(filled, np.uint8).reshape(-1, SHAPE.shard_bytes)
    parity = np.zeros((SHAPE.num_parity, SHAPE.shard_bytes), np.uint8)
    gf256_accumulate(coefficients(SHAPE.num_parity, SHAPE.num_data), shards, parity, 0)
    assert np.array_equal(group.shards, parity)
    blocks = filled + parity.tobytes()
    assert group.block_crcs.reshape(-1).tolist() == [
        zlib.crc32(blocks[at : at + 512]) for at in range(0, len(blocks), 512)
    ]
    assert group.digest == xxhash.xxh3_128_digest(data)


def test_a_group_takes_as_many_bytes_as_its_shape_says() -> None:
    encoder = GroupEncoder(SHAPE)
    with pytest.raises(ValueError, match="more bytes"):
        encoder.add(bytes(SHAPE.num_bytes + 1))
    with pytest.raises(ValueError, match="missing"):
        encoder.finish()


@pytest.mark.parametrize("size", [1, 4096, 20_000, 1 << 20, 188_000_000, 3 * 10**9, 10**12])
@pytest.mark.parametrize("parity", [0.005, "2%", "5%", 0.1, "50%", 1.0])
def test_groups_cover_all_bytes_with_the_parity_asked_for(size: int, parity: float | str) -> None:
    share = ParityShare.parse(parity)
    shapes = list(group_shapes(size, share))
    assert sum(shape.num_bytes for shape in shapes) == size
    for shape in shapes:
        assert shape.is_possible() and shape.shard_bytes <= MAX_SHARD_BYTES
        assert shape.num_parity >= min(shape.num_data * share.share, 32)
        assert shape.num_parity <= shape.num_data * share.share + 3


@pytest.mark.parametrize("parity", [0, -1, "0%", "5 %x", "", None, True, 2, "101%", float("nan")])
def test_other_shares_are_refused(parity: object) -> None:
    with pytest.raises(SchemaError, match="parity is"):
        ParityShare.parse(parity)  # type: ignore[arg-type]


def test_a_record_comes_back() -> None:
    record = record_of(_group())
    found = GroupRecord.unpack(record.pack())
    assert found is not None and np.array_equal(found.block_crcs, record.block_crcs) and found.known_shards.all()
    assert (found.shape, found.number, found.extents, found.digest) == (
        record.shape, record.number, record.extents, record.digest,
    )  # fmt: skip
    assert (found.shards_offset, found.other_copy) == (99, 1234)


def _group() -> EncodedGroup:
    return encoded(SHAPE, bytes(i * i % 251 for i in range(SHAPE.num_bytes)), [])


def test_a_changed_byte_of_a_record_is_found_or_costs_one_shard() -> None:
    record = record_of(_group())
    payload = record.pack()
    row_bytes = 4 * (SHAPE.num_columns + 1)
    for at in range(len(payload)):
        damaged = bytearray(payload)
        damaged[at] ^= 0x10
        found = GroupRecord.unpack(damaged)
        if at < 84:
            assert found is None
        elif at >= TABLE_OFFSET:
            assert found is not None
            assert np.flatnonzero(~found.known_shards).tolist() == [(at - TABLE_OFFSET) // row_bytes]
            merged = found.merged(record)
            assert merged.known_shards.all() and np.array_equal(merged.block_crcs, record.block_crcs)


@pytest.mark.parametrize("cut", [0, 1, 83, 95, 96, -1])
def test_a_record_that_is_cut_is_refused(cut: int) -> None:
    assert GroupRecord.unpack(record_of(_group()).pack()[:cut]) is None
