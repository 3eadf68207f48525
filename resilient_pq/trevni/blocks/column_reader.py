"""One column, read block after block, row after row. Sans-io."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError, FormatError
from resilient_pq.format.levels import slice_rows
from resilient_pq.format.pages.open_chunk import concatenate
from resilient_pq.format.physical_values import LeafData, Values
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.trevni.blocks import block_levels
from resilient_pq.trevni.blocks.array_lengths import read_arrays
from resilient_pq.trevni.blocks.block_values import Position, joined, read_values
from resilient_pq.trevni.blocks.file_header import BlockTable, Version
from resilient_pq.trevni.blocks.schema_leaves import Convert, Taken
from resilient_pq.trevni.blocks.trevni_metadata import ColumnMetadata

#: Elements of one column that are made at one time: lengths of arrays may stand for many without a byte for each.
MAX_ELEMENTS: Final = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """Bytes of a block, or of more; or the whole column where `block` is None, and why its rows are lost with them."""

    column: str
    block: int | None
    start: int
    end: int
    error: FormatError


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
                    self.decoded[block] = block_levels.read_block(
                        self.metadata, self.blocks[block], int(self.table.counts[block])
                    )
                except EncodingError as error:
                    raise BadBlockError(block, error) from None
            first = int(self.first_rows[block])
            pieces.append(slice_rows(self.leaf, self.decoded[block], row - first, until - first))
            row = until
        data = concatenate(self.leaf, pieces)
        return Taken(None, data.values, None, data)
