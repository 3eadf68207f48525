"""The rows of a column chunk that is still open, gathered as they come.

Rows that wait where they were brought keep alive all that came with them: of an Arrow batch every column, until the
last one is encoded. Gathered column by column, each is free as soon as its chunk is stored, and no bytes are copied
that encoding would not have to put together anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq import room
from resilient_pq.format.schema import Leaf
from resilient_pq.format.values import ByteArrays, LeafData, Levels, Values, is_uniform, uniform_levels

#: Room beyond what is expected, as a share of it: batches differ.
_SPARE: Final = 1 / 16
#: How many times the first rows room is made for at most: a row group without limits promises too much.
_MOST_EXPECTED: Final = 16
#: What a room grows by that was too small after all.
_GROWTH: Final = 3 / 2
_MAX_INT32: Final = 2**31 - 1


class OpenChunk:
    """The rows of one leaf that wait for their row group to be closed."""

    def __init__(self, leaf: Leaf) -> None:
        """Begin without rows."""
        self._leaf = leaf
        self._num_rows = self._num_bytes = 0
        self._alone: LeafData | None = None
        self._values: _Fixed | _Strings | None = None
        self._definition_levels: list[Levels] = []
        self._repetition_levels: list[Levels] = []

    @property
    def num_bytes(self) -> int:
        """About how many bytes the rows take."""
        return self._num_bytes

    def add(self, rows: LeafData, share: float) -> None:
        """Take the next rows. The first are kept as they are; when others follow, the values of all are copied.

        Args:
            rows: The rows.
            share: Which part of the row group is full with them, 0 to 1: room is made for what this promises.
        """
        if self._alone is None and self._values is None:
            self._alone = rows
        else:
            first, self._alone = self._alone, None
            if first is not None:
                self._values = _room_for(first.values, rows.values, share)
                self._append(first)
            self._append(rows)
        self._num_rows += rows.num_rows
        self._num_bytes += rows.num_bytes

    def _append(self, rows: LeafData) -> None:
        assert self._values is not None
        self._values.append(rows.values)
        # Levels are the ingest's own, made for this leaf alone.
        if rows.definition_levels is not None:
            self._definition_levels.append(rows.definition_levels)
        if rows.repetition_levels is not None:
            self._repetition_levels.append(rows.repetition_levels)

    def rows(self) -> LeafData:
        """All rows, of which there is at least one; those of a single `add` as they were."""
        if self._alone is not None:
            return self._alone
        assert self._values is not None
        return LeafData(
            self._num_rows,
            _joined(self._definition_levels) if self._leaf.max_definition_level else None,
            _joined(self._repetition_levels) if self._leaf.max_repetition_level else None,
            self._values.filled,
        )


def concatenate(leaf: Leaf, pieces: Sequence[LeafData]) -> LeafData:
    """One `LeafData` of several that follow one another; one alone is given back as it is."""
    if len(pieces) == 1:
        return pieces[0]
    chunk = OpenChunk(leaf)
    for number, piece in enumerate(pieces, start=1):
        chunk.add(piece, number / len(pieces))
    return chunk.rows()


def _joined(pieces: Sequence[Levels]) -> Levels:
    """Levels that follow one another, in the memory of one where all are the same."""
    filled = [piece for piece in pieces if len(piece)]
    if filled and all(map(is_uniform, filled)) and len({int(piece[0]) for piece in filled}) == 1:
        return uniform_levels(int(filled[0][0]), sum(map(len, filled)))
    return np.concatenate(pieces)


def _room_for(first: Values, second: Values, share: float) -> _Fixed | _Strings:
    expected = (1 + _SPARE) / max(share, 1 / _MOST_EXPECTED)
    if isinstance(first, ByteArrays):
        assert isinstance(second, ByteArrays)
        return _Strings(
            int((len(first) + len(second)) * expected) + 1, int((first.num_bytes + second.num_bytes) * expected)
        )
    return _Fixed(first, int((len(first) + len(second)) * expected))


class _Fixed:
    """Values of one width in an array that grows; memory that is never filled is never touched."""

    def __init__(self, like: NDArray[Any], capacity: int) -> None:
        self.size = 0
        self._array = room.empty((capacity, *like.shape[1:]), like.dtype)

    @property
    def filled(self) -> NDArray[Any]:
        """The values so far, in place."""
        return self._array[: self.size]

    def append(self, values: Any) -> None:
        """Copy values behind the others."""
        end = self.size + len(values)
        if end > len(self._array):
            larger = room.empty((int(end * _GROWTH), *self._array.shape[1:]), self._array.dtype)
            larger[: self.size] = self.filled
            self._array = larger
        self._array[self.size : end] = values
        self.size = end


class _Strings:
    """Byte strings in arrays that grow."""

    def __init__(self, capacity: int, data_capacity: int) -> None:
        self._data = _Fixed(np.empty(0, np.uint8), data_capacity)
        self._offsets = _Fixed(np.empty(0, np.int32), capacity)
        self._offsets.append(np.zeros(1, np.int32))

    @property
    def filled(self) -> ByteArrays:
        """The values so far, in place."""
        return ByteArrays(self._offsets.filled, self._data.filled)

    def append(self, values: Any) -> None:
        """Copy values behind the others."""
        first, last = int(values.offsets[0]), int(values.offsets[-1])
        shift = self._data.size - first
        if last + shift > _MAX_INT32 and self._offsets.filled.dtype != np.int64:
            narrow = self._offsets.filled
            self._offsets = _Fixed(np.empty(0, np.int64), len(narrow) + len(values))
            self._offsets.append(narrow)
        self._offsets.append(values.offsets[1:] + np.int64(shift))
        self._data.append(values.data[first:last])
