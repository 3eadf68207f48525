"""One column, read block after block, row after row. Sans-io.

Arrays have the length of each, and its values behind it (Trevni, "trevni.array"). In files of the last version a
negative length begins a run: it stands for itself and for ``(1 - L) >> 1`` lengths to come, all of them
``(L + 1) & 1``. Booleans begin a new byte behind each length.

In the draft's dialect a block has values, behind them definition levels, and behind those repetition levels: integers
of as many bits as the highest has, packed from the lowest bit of the first byte on. The rows of a block are its
entries, so levels are found from the block's end backwards, and values end where they begin. Impala's writer counted as
many bytes of booleans as were needed without nulls, so that more may lie before the levels than there are values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError, FormatError
from resilient_pq.format.levels import slice_rows
from resilient_pq.format.pages.open_chunk import concatenate
from resilient_pq.format.physical_values import LeafData, Levels, Values
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.trevni.blocks.block_values import (
    STRINGS,
    Position,
    between,
    empty,
    fixed_width,
    joined,
    read_values,
    read_varint,
)
from resilient_pq.trevni.blocks.file_header import BlockTable, Version
from resilient_pq.trevni.blocks.schema_leaves import Convert, Taken
from resilient_pq.trevni.blocks.trevni_metadata import ColumnMetadata, ValueType

#: Elements of one column that are made at one time: lengths of arrays may stand for many without a byte for each.
MAX_ELEMENTS: Final = 1 << 24


@dataclass(slots=True, eq=False)
class Loss:
    """Bytes of a block, or of more; or the whole column where `block` is None, why they are lost, and what it costs."""

    column: str
    block: int | None
    start: int
    end: int
    error: FormatError
    num_rows: int = 0  # left out, and counted with this loss
    num_nulled: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows that a column lost, from `start` up to `end`."""

    start: int
    end: int
    loss: Loss


class BadBlockError(Exception):
    """A block, by its number, does not hold what it should, by an error."""

    def __init__(self, block: int, error: EncodingError) -> None:
        super().__init__(error)
        self.block = block
        self.error = error


class TooManyElementsError(Exception):
    """The rows have more elements than are made at one time."""


@dataclass(slots=True)
class ColumnReader:
    """Reads a column; `at` is the position in a block, `blocks` are those that were supplied."""

    metadata: ColumnMetadata
    version: Version
    table: BlockTable
    first_rows: NDArray[np.int64]
    leaf: Leaf | None = None
    children: list[ColumnReader] = field(default_factory=list)
    at: Position = field(default_factory=Position)
    blocks: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    decoded: dict[int, LeafData] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    at_most_one: bool = False
    convert: Convert | None = None

    def block_of(self, row: int) -> int:
        """The block that a row lies in."""
        return int(np.searchsorted(self.first_rows, row, side="right")) - 1

    def first_row_from(self, row: int) -> int | None:
        """The first row of the first block that begins with a row or behind it; None behind the last."""
        block = int(np.searchsorted(self.first_rows, row))
        return int(self.first_rows[block]) if block < len(self.first_rows) else None

    def gap_at(self, row: int) -> Gap | None:
        """The rows that it lost around one."""
        found = [gap for gap in self.gaps if gap.start <= row < gap.end]
        return max(found, key=lambda gap: gap.end, default=None)

    def missing_blocks(self, row: int, end: int) -> list[int]:
        """The blocks that rows need and that were not supplied."""
        return [
            block
            for block in range(self.block_of(row), self.block_of(end - 1) + 1)
            if block not in self.blocks and block not in self.decoded and self.first_rows[block + 1] > row
        ]

    def forget(self, row: int) -> None:
        """Let go of what lies before a row."""
        self.gaps = [gap for gap in self.gaps if gap.end > row]
        for block in [block for block in self.blocks if self.first_rows[block + 1] <= row]:
            del self.blocks[block]
            self.decoded.pop(block, None)

    def take(self, row: int, end: int, parent: NDArray[np.int64] | None) -> Taken:
        """Read the next rows; a BadBlockError, or a TooManyElementsError if fewer rows must be taken, spoils `at`."""
        if self.metadata.has_levels:
            return self._take_levels(row, end)
        lengths: list[NDArray[np.int64]] = []
        values: list[Values] = []
        first = row
        while row < end:
            block = self.block_of(row)
            until = min(int(self.first_rows[block + 1]), end)
            slots = until - row if parent is None else int(parent[until - first] - parent[row - first])
            if row == self.first_rows[block]:
                self.at = Position()
            if slots > MAX_ELEMENTS:
                raise TooManyElementsError
            try:
                found = self._read(self.blocks[block], slots, is_last=until == self.first_rows[block + 1])
            except EncodingError as error:
                raise BadBlockError(block, error) from None
            lengths.append(found[0])
            values.append(found[1])
            row = until
        if not self.metadata.is_array:
            return Taken(None, joined(values), None)
        all_lengths = np.concatenate(lengths)
        ends = np.concatenate([[0], np.cumsum(all_lengths)])
        if ends[-1] > MAX_ELEMENTS:
            raise TooManyElementsError
        return Taken(all_lengths, joined(values), ends if parent is None else ends[parent])

    def _read(self, data: NDArray[np.uint8], slots: int, *, is_last: bool) -> tuple[NDArray[np.int64], Values]:
        """The next slots, all of one block."""
        kind = self.metadata.type
        lengths = np.zeros(0, np.int64)
        if self.metadata.is_array:
            lengths, values, at = read_arrays(kind, self.version, data, self.at, slots)
            if self.at_most_one and len(lengths) and int(lengths.max()) > 1:
                raise EncodingError(f"a branch of a union is there {int(lengths.max()):,} times")
        else:
            values, at = read_values(kind, data, self.at, slots)
        if is_last and (at.at != len(data) or at.run_left):
            raise EncodingError(f"{len(data) - at.at:,} bytes and {at.run_left:,} lengths are left over")
        self.at = at
        return lengths, values if self.convert is None else self.convert(values)

    def _take_levels(self, row: int, end: int) -> Taken:
        assert self.leaf is not None
        pieces = []
        while row < end:
            block = self.block_of(row)
            until = min(int(self.first_rows[block + 1]), end)
            if block not in self.decoded:
                try:
                    self.decoded[block] = read_block(self.metadata, self.blocks[block], int(self.table.counts[block]))
                except EncodingError as error:
                    raise BadBlockError(block, error) from None
            first = int(self.first_rows[block])
            pieces.append(slice_rows(self.leaf, self.decoded[block], row - first, until - first))
            row = until
        data = concatenate(self.leaf, pieces)
        return Taken(None, data.values, None, data)


def read_block(column: ColumnMetadata, data: NDArray[np.uint8], count: int) -> LeafData:
    """The rows of a block of so many entries, of a column that has definition levels."""
    end = len(data)
    repetition: Levels | None = None
    if column.max_repetition_level:
        end, repetition = _levels_before(data, end, column.max_repetition_level, count)
        if count and repetition[0]:
            raise EncodingError("the block begins in the middle of a row")
    start, definition = _levels_before(data, end, column.max_definition_level, count)
    num_values = int(np.count_nonzero(definition == column.max_definition_level))
    values, position = read_values(column.type, data[:start], Position(), num_values)
    if position.at != start and column.type is not ValueType.BOOLEAN:
        raise EncodingError(f"{start - position.at:,} bytes are left over between values and levels")
    num_rows = count if repetition is None else int(np.count_nonzero(repetition == 0))
    return LeafData(num_rows, definition, repetition, values)


def _levels_before(data: NDArray[np.uint8], end: int, max_level: int, count: int) -> tuple[int, Levels]:
    """So many levels that end at a byte, and where they begin."""
    width = max_level.bit_length()
    start = end - (count * width + 7) // 8
    if start < 0:
        raise EncodingError(f"{count:,} levels are said to be in {end:,} bytes")
    bits = np.unpackbits(data[start:end], bitorder="little", count=count * width).reshape(count, width)
    levels: Levels = np.packbits(bits, axis=1, bitorder="little").ravel()
    if count and int(levels.max()) > max_level:
        raise EncodingError(f"a level is {int(levels.max())}, and none is above {max_level}")
    return start, levels


_LONGEST_LENGTH: Final = 2**31 - 1


def read_arrays(
    kind: ValueType, version: Version, data: NDArray[np.uint8], position: Position, count: int
) -> tuple[NDArray[np.int64], Values, Position]:
    """Lengths and values of consecutive arrays of a block, and the position behind them."""
    view, size = data.data, len(data)
    skip = _skipper(kind, view)
    at, left, length = position.at, position.run_left, position.run_value
    lengths: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    try:
        while len(lengths) < count:
            if not left:
                left, length, at = _read_length(version, view, at)
            if length and kind is not ValueType.NULL:
                lengths.append(length)
                left -= 1
                starts.append(at)
                at = skip(at, length)
                if at > size:
                    raise EncodingError(f"an array of {length:,} values begins at {starts[-1]:,} of {size:,} bytes")
                ends.append(at)
            else:
                alike = min(left, count - len(lengths))
                lengths += [length] * alike
                left -= alike
    except IndexError:
        raise EncodingError("the block ends within an array") from None
    found = np.array(lengths, np.int64)
    return found, _values_of(kind, data, found, starts, ends), Position(at, 0, left, length if left else 0)


def _read_length(version: Version, view: memoryview, at: int) -> tuple[int, int, int]:
    """Read a length: how often it comes, the length, and the position behind it."""
    length, at = read_varint(view, at)
    shortest = ~_LONGEST_LENGTH if version is Version.FINAL else 0
    if not shortest <= length <= _LONGEST_LENGTH:
        raise EncodingError(f"the length of an array is {length}")
    if length < 0:
        return ((1 - length) >> 1) + 1, (length + 1) & 1, at
    return 1, length, at


def _skipper(kind: ValueType, view: memoryview) -> Callable[[int, int], int]:
    """The function that finds the end of values; it may return a position behind the block."""
    width = fixed_width(kind)
    if width is not None:
        known = width
        return lambda at, count: at + count * known
    if kind is ValueType.BOOLEAN:
        return lambda at, count: at + (count + 7) // 8
    return partial(_skip_strings if kind in STRINGS else _skip_varints, view)


def _skip_strings(view: memoryview, at: int, count: int) -> int:
    for _ in range(count):
        size, at = read_varint(view, at)
        if size < 0:
            raise EncodingError(f"a string has {size} bytes")
        at += size
    return at


def _skip_varints(view: memoryview, at: int, count: int) -> int:
    for _ in range(count):
        while view[at] >= 0x80:
            at += 1
        at += 1
    return at


def _values_of(
    kind: ValueType, data: NDArray[np.uint8], lengths: NDArray[np.int64], starts: list[int], ends: list[int]
) -> Values:
    """The values of arrays, one behind the other."""
    if not starts:
        return empty(kind)
    first = starts[0]
    places, places_end = np.array(starts) - first, np.array(ends) - first
    values = between(data[first : ends[-1]], places, places_end).data
    if kind is ValueType.BOOLEAN:
        return _booleans_of(values, lengths[lengths > 0], places_end - places)
    return read_values(kind, values, Position(), int(lengths.sum()))[0]


def _booleans_of(data: NDArray[np.uint8], counts: NDArray[np.int64], widths: NDArray[np.int64]) -> Values:
    """The booleans of arrays that begin a byte each."""
    bits = np.unpackbits(data, bitorder="little").view(np.bool_)
    before = 8 * (np.cumsum(widths) - widths) - (np.cumsum(counts) - counts)
    found: NDArray[np.bool_] = bits[np.arange(int(counts.sum())) + np.repeat(before, counts)]
    return found
