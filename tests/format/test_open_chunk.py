"""Rows gathered for their row group: the same rows, in memory that the one who brought them does not share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from resilient_pq import memory_pool
from resilient_pq.format.encodings import rle
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.pages import open_chunk
from resilient_pq.format.pages.open_chunk import OpenChunk, concatenate
from resilient_pq.format.physical_values import ByteArrays, LeafData, is_uniform, uniform_levels

Make = Callable[..., Any]


def _gathered(leaf: Any, pieces: Sequence[LeafData], share: float) -> LeafData:
    chunk = OpenChunk(leaf)
    for piece in pieces:
        chunk.add(piece, share)
    return chunk.rows()


def _strings(*values: bytes, offset: int = 0) -> ByteArrays:
    lengths = [offset, *map(len, values)]
    return ByteArrays(np.cumsum(lengths, dtype=np.int32), np.frombuffer(b"." * offset + b"".join(values), np.uint8))


def _texts(values: ByteArrays) -> list[bytes]:
    return [values.value(index) for index in range(len(values))]


def test_one_piece_is_not_copied(leaf_of: Make, flat: Make) -> None:
    leaf = leaf_of(Type.INT32)
    data = flat(leaf, [1, 2])
    assert concatenate(leaf, [data]) is data
    assert _gathered(leaf, [data], 0.5) is data


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 1.0], ids=str)
def test_numbers_stay_the_same_however_much_room_was_promised(leaf_of: Make, share: float) -> None:
    leaf = leaf_of(Type.INT64, optional=False)
    pieces = [np.arange(start, start + 7 * (start + 1)) for start in range(40)]
    rows = _gathered(leaf, [LeafData(len(piece), None, None, piece) for piece in pieces], share)
    assert isinstance(rows.values, np.ndarray) and rows.values.dtype == np.int64
    assert rows.values.tolist() == np.concatenate(pieces).tolist()
    assert rows.num_rows == len(rows.values)
    assert not any(np.shares_memory(rows.values, piece) for piece in pieces)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0], ids=str)
def test_strings_stay_the_same_wherever_their_bytes_begin(leaf_of: Make, share: float) -> None:
    leaf = leaf_of(Type.BYTE_ARRAY, optional=False)
    pieces = [_strings(b"a", b"", b"bcd", offset=9), _strings(), _strings(b"e" * 5000), _strings(b"f", b"")]
    rows = _gathered(leaf, [LeafData(len(piece), None, None, piece) for piece in pieces], share)
    assert isinstance(rows.values, ByteArrays)
    assert _texts(rows.values) == [b"a", b"", b"bcd", b"e" * 5000, b"f", b""]


def test_large_rows_stay_the_same_in_mapped_memory(leaf_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_pool, "_MAPPED", 100)
    numbers = [np.arange(start, start + 50.0) for start in range(9)]
    rows = _gathered(leaf_of(Type.DOUBLE, optional=False), [LeafData(50, None, None, each) for each in numbers], 0.4)
    assert isinstance(rows.values, np.ndarray) and rows.values.tolist() == np.concatenate(numbers).tolist()
    fixed = [np.full((20, 12), start, np.uint8) for start in range(3)]
    leaf = leaf_of(Type.FIXED_LEN_BYTE_ARRAY, length=12, optional=False)
    rows = _gathered(leaf, [LeafData(20, None, None, each) for each in fixed], 1.0)
    assert isinstance(rows.values, np.ndarray) and (rows.values == np.concatenate(fixed)).all()
    assert rows.values.shape == (60, 12)


def test_offsets_become_wide_when_the_bytes_outgrow_narrow_ones(leaf_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_chunk, "_MAX_INT32", 10)
    leaf = leaf_of(Type.BYTE_ARRAY, optional=False)
    pieces = [_strings(b"abcd"), _strings(b"efgh"), _strings(b"ijkl"), _strings(b"mn")]
    found: list[Any] = []
    for count in (2, 3, 4):
        rows = _gathered(leaf, [LeafData(1, None, None, piece) for piece in pieces[:count]], 1.0)
        assert isinstance(rows.values, ByteArrays)
        assert _texts(rows.values) == [b"abcd", b"efgh", b"ijkl", b"mn"][:count]
        found.append(rows.values.offsets.dtype)
    assert found == [np.int32, np.int64, np.int64]


def test_strings_far_behind_the_begin_of_their_bytes(leaf_of: Make) -> None:
    """Offsets that are wide where they were brought do not make all others wide."""
    leaf, far = leaf_of(Type.BYTE_ARRAY, optional=False), 1 << 33
    behind = ByteArrays(np.array([far, far + 3, far + 3, far + 5]), np.broadcast_to(np.uint8(ord("z")), far + 9))
    for pieces in ([_strings(b"ab"), behind], [behind, _strings(b"ab")], [behind, behind]):
        rows = _gathered(leaf, [LeafData(len(piece), None, None, piece) for piece in pieces], 1.0)
        assert isinstance(rows.values, ByteArrays) and rows.values.offsets.dtype == np.int32
        assert _texts(rows.values) == [text for piece in pieces for text in _texts(piece)]


def test_levels_follow_one_another(leaf_of: Make) -> None:
    leaf = leaf_of(Type.INT32, optional=True)
    valid = [np.array([1, 0, 1], np.uint8), np.array([0], np.uint8), np.array([1], np.uint8)]
    values = [np.array([7, 8], np.int32), np.empty(0, np.int32), np.array([9], np.int32)]
    pieces = [LeafData(len(levels), levels, None, present) for levels, present in zip(valid, values, strict=True)]
    rows = _gathered(leaf, pieces, 0.1)
    assert rows.definition_levels is not None and rows.definition_levels.tolist() == [1, 0, 1, 0, 1]
    assert isinstance(rows.values, np.ndarray) and rows.values.tolist() == [7, 8, 9]
    assert rows.num_rows == 5 and rows.repetition_levels is None


@pytest.mark.parametrize(
    ("pieces", "uniform"),
    [
        ([uniform_levels(1, 3), uniform_levels(1, 0), uniform_levels(1, 900)], True),
        ([uniform_levels(1, 3), uniform_levels(0, 2)], False),
        ([uniform_levels(1, 3), np.array([1, 1], np.uint8)], False),
        ([uniform_levels(1, 0), uniform_levels(1, 0)], False),
    ],
)
def test_levels_that_are_all_the_same_stay_in_the_memory_of_one(
    leaf_of: Make, pieces: list[Any], uniform: bool
) -> None:
    leaf = leaf_of(Type.INT32, optional=True)
    values = [np.zeros(int(np.count_nonzero(levels)), np.int32) for levels in pieces]
    data = [LeafData(len(levels), levels, None, present) for levels, present in zip(pieces, values, strict=True)]
    levels = _gathered(leaf, data, 0.1).definition_levels
    assert levels is not None and levels.tolist() == np.concatenate(pieces).tolist()
    assert is_uniform(levels) == uniform


@pytest.mark.parametrize("maximum", [1, 2, 255])
@pytest.mark.parametrize("count", [*range(20), 63, 64, 300, 70_000])
def test_uniform_levels_are_encoded_as_if_each_were_looked_at(maximum: int, count: int) -> None:
    for level in {0, 1, maximum}:
        uniform = uniform_levels(level, count)
        assert rle.encode_levels(uniform, maximum).tobytes() == rle.encode_levels(uniform.copy(), maximum).tobytes()
