"""Rows of a file, window by window: which blocks they need, and what these hold. Sans-io.

All columns that are wanted advance together. What is asked for first is `RowReader.next_window`, which names the blocks
to fetch; `RowReader.supply` takes them, and `RowReader.take` gives the rows. A window ends where a column begins to be
lost, or is there again, so that in each a column is there whole or not at all. Where a block turns out to be bad only
when it is decoded, nothing is given, and another window is next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError, FormatError, TornFileError
from resilient_pq.format.physical_values import LeafData
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.trevni.blocks.column_reader import (
    MAX_ELEMENTS,
    BadBlockError,
    ColumnReader,
    Gap,
    Loss,
    TooManyElementsError,
)
from resilient_pq.trevni.blocks.file_header import BlockTable, Header
from resilient_pq.trevni.blocks.record_shape import Layout, LeafSource
from resilient_pq.trevni.blocks.schema_leaves import Taken, conversion, leaf_data


@dataclass(frozen=True, slots=True)
class WantedBlock:
    """A block to fetch: its bytes are those from `start` up to `end`."""

    column: int
    block: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Window:
    """Rows to take next, from `start` up to `end`, and the blocks to supply before."""

    start: int
    end: int
    blocks: tuple[WantedBlock, ...]


@dataclass(frozen=True, slots=True)
class WindowRows:
    """The rows of a window: the data of each leaf, None if they are lost, and the losses."""

    first_row: int
    num_rows: int
    leaves: Mapping[int, LeafData | None]
    losses: Mapping[int, Loss]


class RowReader:
    """Reads rows of some leaves in order; `unverified` counts the blocks of a column with a checksum of no bytes."""

    def __init__(
        self,
        header: Header,
        tables: Mapping[int, BlockTable | FormatError],
        layout: Layout,
        leaves: Sequence[Leaf],
        *,
        size: int,
        num_rows: int,
        first_rows: Mapping[int, NDArray[np.int64]],
        start: int,
        stop: int,
        verify: bool,
    ) -> None:
        """Begin before the first row of the file; those before `start` are read and passed over."""
        self._header = header
        self._sources = {leaf.ordinal: layout.sources[leaf.ordinal] for leaf in leaves}
        self._size = size
        self._verify = verify
        self._num_rows = num_rows
        self._start = start
        self._stop = stop
        self._most_rows: int | None = None
        self.row = 0
        self.losses: list[Loss] = []
        self.unverified: dict[str, int] = {}
        self._columns: dict[int, ColumnReader] = {}
        for position in needed_columns(self._sources.values()):
            self._columns[position] = self._column(position, tables[position], first_rows.get(position))
        self._parents = self._related()
        self._prepare_values(leaves)
        for position, column in self._columns.items():
            table = tables[position]
            if isinstance(table, FormatError):
                self._lose_column(position, table)
            else:
                self._lose_what_is_cut_off(column)

    def _column(
        self, position: int, table: BlockTable | FormatError, first_rows: NDArray[np.int64] | None
    ) -> ColumnReader:
        metadata = self._header.columns[position]
        if isinstance(table, FormatError):
            none, start = np.zeros(0, np.int64), self._header.starts[position]
            table = BlockTable(metadata, none, none, none, none.astype(np.bool_), none, start, start)
        if first_rows is None:
            first_rows = np.concatenate([[0], np.cumsum(table.counts)])
        return ColumnReader(metadata, self._header.version, table, first_rows)

    def _related(self) -> dict[int, int]:
        """The parent column of each nested column; parents get their `children`."""
        by_name = {column.metadata.name: position for position, column in self._columns.items()}
        parents = {}
        for position, column in self._columns.items():
            if column.metadata.parent is not None:
                parents[position] = by_name[column.metadata.parent]
                self._columns[parents[position]].children.append(column)
        return parents

    def _prepare_values(self, leaves: Sequence[Leaf]) -> None:
        """Set the conversion of each column, and mark branches of unions."""
        for leaf in leaves:
            source = self._sources[leaf.ordinal]
            for step in source.steps:
                self._columns[step.lengths].at_most_one |= not step.is_repeated
            if source.column is not None:
                column = self._columns[source.column]
                column.leaf = leaf
                column.convert = conversion(leaf, source, column.metadata)

    # --- what to fetch --------------------------------------------------------------------------------------------

    def next_window(self, most_rows: int, most_bytes: int) -> Window | None:
        """The next rows and their missing blocks, of at most `most_bytes` decompressed besides one of each column."""
        if self.row >= self._stop:
            return None
        borders = [self.row + min(most_rows, self._most_rows or most_rows), self._stop]
        if self.row < self._start:
            borders.append(self._start)
        there = []
        for position, column in self._columns.items():
            gap = column.gap_at(self.row)
            if gap is not None:
                borders.append(gap.end)
            else:
                there.append(position)
                borders += [gap.start for gap in column.gaps if gap.start > self.row]
        end = self._affordable([self._columns[position] for position in there], min(borders), most_bytes)
        wanted = [
            WantedBlock(position, block, *self._columns[position].table.span(block))
            for position in there
            for block in self._columns[position].missing_blocks(self.row, end)
        ]
        return Window(self.row, end, tuple(wanted))

    def _affordable(self, columns: Iterable[ColumnReader], end: int, most_bytes: int) -> int:
        """The last row before `end` whose blocks have at most so many bytes."""
        begin_at, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for column in columns:
            first, last = column.block_of(self.row), column.block_of(end - 1)
            most_bytes -= int(column.table.sizes[first])
            begin_at.append(column.first_rows[first + 1 : last + 1])
            sizes.append(column.table.sizes[first + 1 : last + 1])
        later = np.concatenate(begin_at)
        order = np.argsort(later, kind="stable")
        over = np.flatnonzero(np.cumsum(np.concatenate(sizes)[order]) > most_bytes)
        return min(end, max(int(later[order[over[0]]]), self.row + 1)) if len(over) else end

    # --- what is lost ---------------------------------------------------------------------------------------------

    def _lose_what_is_cut_off(self, column: ColumnReader) -> None:
        """Give up blocks behind the end of the file."""
        table = column.table
        ends = table.offsets + table.stored_sizes + column.metadata.checksum.size
        block = int(np.searchsorted(ends, self._size, side="right"))  # each ends behind the one before it
        if block < len(table):
            what = f"the block ends at {int(ends[block]):,}, and the file has {self._size:,} bytes"
            error = TornFileError(what, where=table.where(block))
            loss = Loss(column.metadata.name, block, int(table.offsets[block]), table.end, error)
            self._lose(column, int(column.first_rows[block]), int(column.first_rows[-1]), loss)

    def _lose_column(self, position: int, error: FormatError) -> None:
        start = self._header.starts[position]
        end = min([*(other for other in self._header.starts if other > start), max(self._size, start)])
        column = self._columns[position]
        self._lose(column, 0, self._num_rows, Loss(column.metadata.name, None, start, end, error))

    def _lose_block(self, column: ColumnReader, block: int, error: FormatError) -> None:
        start, end = column.table.span(block)
        error.at(column.table.where(block))
        loss = Loss(column.metadata.name, block, start, end, error)
        first = max(int(column.first_rows[block]), self.row)
        self._lose(column, first, int(column.first_rows[block + 1]), loss)

    def _lose(self, column: ColumnReader, start: int, end: int, loss: Loss) -> None:
        """Give up rows of a column, and rows of nested columns up to the next block behind them."""
        if loss not in self.losses and end > self._start:
            self.losses.append(loss)
        column.gaps.append(Gap(start, end, loss))
        for child in column.children:
            following = child.first_row_from(end)
            self._lose(child, start, self._num_rows if following is None else following, loss)

    # --- blocks and rows ------------------------------------------------------------------------------------------

    def supply(self, wanted: WantedBlock, stored: memoryview) -> FormatError | None:
        """Take a block that was asked for, or return its error: then it may be read again, or given up."""
        column = self._columns[wanted.column]
        try:
            block, verified = column.table.unpack(wanted.block, stored, verify=self._verify)
        except FormatError as error:
            return error
        if self._verify and not verified and column.metadata.checksum.size:
            self.unverified[column.metadata.name] = self.unverified.get(column.metadata.name, 0) + 1
        column.blocks[wanted.block] = block
        return None

    def give_up(self, wanted: WantedBlock, error: FormatError) -> None:
        """Do without a block that was asked for."""
        self._lose_block(self._columns[wanted.column], wanted.block, error)

    def take(self, window: Window) -> WindowRows | None:
        """The rows of a window; None if they lie before the first one wanted, or if a block was found to be bad."""
        if any(wanted.block not in self._columns[wanted.column].blocks for wanted in window.blocks):
            return None
        before = {position: column.at for position, column in self._columns.items()}
        taken: dict[int, Taken] = {}
        for position, column in self._columns.items():
            if column.gap_at(self.row) is not None:
                continue
            parent = self._parents.get(position)
            try:
                ends = None if parent is None else taken[parent].ends
                taken[position] = column.take(self.row, window.end, ends)
            except (BadBlockError, TooManyElementsError) as error:
                for other, at in before.items():
                    self._columns[other].at = at
                self._make_do(column, window, error)
                return None
        found = None if window.start < self._start else self._rows_of(window, taken)
        self.row = window.end
        self._most_rows = None
        for column in self._columns.values():
            column.forget(self.row)
        return found

    def _make_do(self, column: ColumnReader, window: Window, error: BadBlockError | TooManyElementsError) -> None:
        """Continue without a block, or with fewer rows at a time."""
        if isinstance(error, BadBlockError):
            self._lose_block(column, error.block, error.error)
        elif window.end - window.start > 1:
            self._most_rows = (window.end - window.start) // 2
        else:
            many = EncodingError(f"row {window.start:,} is said to have more than {MAX_ELEMENTS:,} elements")
            self._lose_block(column, column.block_of(window.start), many)

    def _rows_of(self, window: Window, taken: Mapping[int, Taken]) -> WindowRows:
        num_rows = window.end - window.start
        leaves: dict[int, LeafData | None] = {}
        losses: dict[int, Loss] = {}
        for ordinal, source in self._sources.items():
            gaps = [gap for at in source.columns if (gap := self._columns[at].gap_at(window.start)) is not None]
            leaves[ordinal] = None if gaps else leaf_data(source, taken, num_rows)
            if gaps:
                losses[ordinal] = gaps[0].loss
        return WindowRows(window.start, num_rows, leaves, losses)


def needed_columns(sources: Iterable[LeafSource]) -> list[int]:
    """The columns of leaves in the order of the file, parents before nested ones."""
    return sorted({column for source in sources for column in source.columns})


def placed_rows(counts: Sequence[int | None], num_rows: int) -> NDArray[np.int64]:
    """The first row of each block of a column, and the end of the last, by the rows of each; None where it is bad.

    Rows behind the last block that is bad are counted from the end of the file. What is left between belongs to the
    first bad block, and blocks between it and the last bad one have none: nothing tells which theirs are.
    """
    bad = [block for block, count in enumerate(counts) if count is None]
    known = [count or 0 for count in counts]
    if bad:
        known[bad[0] + 1 : bad[-1]] = [0] * (bad[-1] - bad[0] - 1) if len(bad) > 1 else []
        known[bad[0]] = num_rows - sum(known)
    if sum(known) != num_rows or min(known, default=0) < 0:
        raise FormatError(f"its blocks have {sum(count or 0 for count in counts):,} rows, and the file {num_rows:,}")
    return np.concatenate([[0], np.cumsum(known)]).astype(np.int64)
