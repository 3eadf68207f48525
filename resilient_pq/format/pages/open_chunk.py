"""The rows of a column chunk that is still open, gathered as they come.

Rows that wait where they were brought keep alive all that came with them: of an Arrow batch every column, until the
last one is encoded. Gathered column by column, each is free as soon as its chunk is stored, and no bytes are copied
that encoding would not have to put together anyway. Large pieces wait where they are all the same: they are few, and
when the chunk is made of one alone, nothing is copied at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.format.encodings.dictionary import joined
from resilient_pq.format.physical_values import ByteArrays, LeafData, Levels, Values, is_uniform, uniform_levels
from resilient_pq.format.schema_tree import Leaf

#: Room beyond what is expected, as a share of it: batches differ.
_SPARE: Final = 1 / 16
#: How many times the first rows room is made for at most: a row group without limits promises too much.
_MOST_EXPECTED: Final = 16
#: What a room grows by that was too small after all.
_GROWTH: Final = 3 / 2
#: Values that a dictionary begins with, of batches that have different ones.
_MOST_ENTRIES: Final = 65_536
_MAX_INT32: Final = 2**31 - 1


class Waiting(Protocol):
    """Rows of a leaf that are not in the form of pages yet."""

    @property
    def num_bytes(self) -> int:
        """About what their levels and values take in memory."""

    def joined(self, others: Any, /) -> Self | None:
        """These rows and `others`, where they follow in the same memory; None where they do not."""

    def shredded(self) -> LeafData:
        """Their levels and values."""


class OpenChunk:
    """The rows of one leaf that wait for their row group to be closed."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf
        self._num_bytes = 0
        self._pieces: list[_Gathered | Waiting | LeafData] = []
        self._last_is_large = False

    @property
    def num_bytes(self) -> int:
        """About how many bytes the rows take."""
        return self._num_bytes

    def add(self, rows: Waiting | LeafData, share: float, *, large: bool = False) -> None:
        """Take the next rows, with which a `share` (0 to 1) of the row group is full; small ones are copied later.

        Rows that are `large` stay where they are, with all that came with them.
        """
        self._num_bytes += rows.num_bytes
        last = self._pieces[-1] if self._pieces else None
        if last is not None and not isinstance(last, _Gathered | LeafData):
            both = None if isinstance(rows, LeafData) else last.joined(rows)
            if both is not None:
                self._pieces[-1], self._last_is_large = both, large or self._last_is_large
                return
        if last is not None and not self._last_is_large:
            self._gather_last(share)
        self._pieces.append(rows)
        self._last_is_large = large

    def _gather_last(self, share: float) -> None:
        """Copy the last piece behind what is gathered before it."""
        last = self._pieces.pop()
        assert not isinstance(last, _Gathered)
        gathered = self._pieces[-1] if self._pieces else None
        if isinstance(gathered, _Gathered):
            gathered.append(_shredded(last))
            return
        so_far = self._num_bytes / max(last.num_bytes, 1)
        expected = so_far * (1 + _SPARE) / max(share, 1 / _MOST_EXPECTED)
        self._pieces.append(_Gathered(self._leaf, [_shredded(last)], expected))

    def rows(self) -> LeafData:
        """All rows, of which there is at least one; those of a single `add` as they were."""
        if len(self._pieces) > 1:
            first, *others = self._pieces
            found = [_shredded(piece) for piece in others]
            if isinstance(first, _Gathered):
                for piece in found:
                    first.append(piece)
            else:
                first = _Gathered(self._leaf, [_shredded(first), *found], 1.0)
            self._pieces = [first]
        return _shredded(self._pieces[0])


def _shredded(piece: _Gathered | Waiting | LeafData) -> LeafData:
    if isinstance(piece, LeafData):
        return piece
    return piece.rows() if isinstance(piece, _Gathered) else piece.shredded()


class _Gathered:
    """Rows that follow one another, copied together."""

    def __init__(self, leaf: Leaf, first: Sequence[LeafData], expected: float) -> None:
        """Begin with some rows, with room for `expected` times as many."""
        self._leaf = leaf
        self._num_rows = 0
        self._values = _room_for([rows.values for rows in first], expected)
        self._definition_levels: list[Levels] = []
        self._repetition_levels: list[Levels] = []
        self._entries: Values | None = None
        for rows in first:
            self.append(rows)

    def append(self, rows: LeafData) -> None:
        self._values.append(rows.values)
        self._num_rows += rows.num_rows
        self._entries = _with_entries(self._entries, rows.entries)
        # Levels are the ingest's own, made for this leaf alone.
        if rows.definition_levels is not None:
            self._definition_levels.append(rows.definition_levels)
        if rows.repetition_levels is not None:
            self._repetition_levels.append(rows.repetition_levels)

    def rows(self) -> LeafData:
        return LeafData(
            self._num_rows,
            _joined(self._definition_levels) if self._leaf.max_definition_level else None,
            _joined(self._repetition_levels) if self._leaf.max_repetition_level else None,
            self._values.filled,
            self._entries,
        )


def _with_entries(entries: Values | None, others: Values | None) -> Values | None:
    """What a dictionary begins with for rows that follow others; nothing more where that is too much."""
    if entries is None or others is None or _same(entries, others):
        return others if entries is None else entries
    return joined(entries, others) if len(entries) + len(others) <= _MOST_ENTRIES else entries


def _same(values: Values, others: Values) -> bool:
    if isinstance(values, ByteArrays) and isinstance(others, ByteArrays):
        return np.array_equal(values.offsets, others.offsets) and np.array_equal(values.data, others.data)
    return values is others or np.array_equal(np.asarray(values), np.asarray(others))


def concatenate(leaf: Leaf, pieces: Sequence[LeafData]) -> LeafData:
    """One `LeafData` of several that follow one another; one alone is given back as it is."""
    if len(pieces) == 1:
        return pieces[0]
    chunk = OpenChunk(leaf)
    for piece in pieces:
        chunk.add(piece, 1.0, large=True)
    return chunk.rows()


def _joined(pieces: Sequence[Levels]) -> Levels:
    """Levels that follow one another, in the memory of one where all are the same."""
    filled = [piece for piece in pieces if len(piece)]
    if filled and all(map(is_uniform, filled)) and len({int(piece[0]) for piece in filled}) == 1:
        return uniform_levels(int(filled[0][0]), sum(map(len, filled)))
    return np.concatenate(pieces)


def _room_for(pieces: Sequence[Values], expected: float) -> _Fixed | _Strings:
    """Room for values like these, `expected` times as many."""
    count = int(sum(map(len, pieces)) * expected) + 1
    strings = [piece for piece in pieces if isinstance(piece, ByteArrays)]
    if strings:
        return _Strings(count, int(sum(piece.num_bytes for piece in strings) * expected))
    first = pieces[0]
    assert isinstance(first, np.ndarray)
    return _Fixed(first, count)


class _Fixed:
    """Values of one width in an array that grows; memory that is never filled is never touched."""

    def __init__(self, like: NDArray[Any], capacity: int) -> None:
        self.size = 0
        self._array = memory_pool.empty((capacity, *like.shape[1:]), like.dtype)

    @property
    def filled(self) -> NDArray[Any]:
        """The values so far, in place."""
        return self._array[: self.size]

    def append(self, values: Any) -> None:
        """Copy values behind the others."""
        self.room(len(values))[...] = values

    def room(self, count: int) -> NDArray[Any]:
        """Count more values, and give the place where they belong."""
        start, self.size = self.size, self.size + count
        if self.size > len(self._array):
            larger = memory_pool.empty((int(self.size * _GROWTH), *self._array.shape[1:]), self._array.dtype)
            larger[:start] = self._array[:start]
            self._array = larger
        return self._array[start : self.size]


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
        room = self._offsets.room(len(values))
        wide = np.result_type(values.offsets, room).type  # the shift may not fit into a narrow one
        np.add(values.offsets[1:], wide(shift), out=room, casting="same_kind")
        self._data.append(values.data[first:last])
