"""Where a column chunk is cut into data pages. Pure."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.format import kernels
from resilient_pq.format.chunk_options import ChunkOptions
from resilient_pq.format.encoding_choice import plain_bytes
from resilient_pq.format.encodings import rle
from resilient_pq.format.encodings.dictionary import Dictionary
from resilient_pq.format.levels import row_starts
from resilient_pq.format.schema import Leaf
from resilient_pq.format.values import ByteArrays, LeafData, Levels


@dataclass(frozen=True, slots=True)
class PageCut:
    """The part of a chunk that becomes one data page: rows, entries and values, ends exclusive."""

    first_row: int
    row_end: int
    entry: int
    entry_end: int
    value: int
    value_end: int

    def levels_of(self, data: LeafData) -> tuple[Levels | None, Levels | None]:
        """The repetition and the definition levels of the page."""
        repetition, definition = data.repetition_levels, data.definition_levels
        return (
            None if repetition is None else repetition[self.entry : self.entry_end],
            None if definition is None else definition[self.entry : self.entry_end],
        )


def cut_pages(leaf: Leaf, data: LeafData, built: Dictionary | None, options: ChunkOptions) -> list[PageCut]:
    """Cut a chunk into pages, at the beginnings of rows only.

    Args:
        leaf: Its leaf.
        data: Its levels and values.
        built: Its dictionary; None where the values are written without one.
        options: How large a page may be.
    """
    num_entries = len(data.values) if data.definition_levels is None else len(data.definition_levels)
    size = _size_as_written(leaf, data, built)
    fewest = -(-data.num_rows // options.page_rows)
    count = max(-(-size // options.page_bytes), fewest, 1)
    if count == 1 or data.num_rows < 2:
        return [PageCut(0, data.num_rows, 0, num_entries, 0, len(data.values))]
    definition, repetition = data.definition_levels, data.repetition_levels
    if len(data.values) == num_entries:
        definition = None  # none lacks a value
    starts = present = byte_arrays = None
    if built is None and isinstance(data.values, ByteArrays):
        byte_arrays = data.values
        starts = None if repetition is None else row_starts(repetition, num_entries)
        present = None if definition is None else definition == leaf.max_definition_level
    rows = entries = _row_cuts(data.num_rows, byte_arrays, count, size, starts, present, options)
    if repetition is not None:
        entries = kernels.row_entries(np.ascontiguousarray(repetition), np.array(rows, np.int64)).tolist()
    cuts: list[PageCut] = []
    value = 0
    for (first, end), (entry, entry_end) in zip(pairwise(rows), pairwise(entries), strict=True):
        num_values = entry_end - entry
        if definition is not None:
            num_values = int(np.count_nonzero(definition[entry:entry_end] == leaf.max_definition_level))
        cuts.append(PageCut(first, end, entry, entry_end, value, value + num_values))
        value = cuts[-1].value_end
    return cuts


def _size_as_written(leaf: Leaf, data: LeafData, built: Dictionary | None) -> int:
    """Bytes of the values that pages are cut by: of indices to the dictionary, where there is one."""
    if built is None:
        return plain_bytes(leaf, data.values)
    return len(data.values) * rle.bit_width(len(built.values) - 1) // 8


def _row_cuts(
    num_rows: int,
    byte_arrays: ByteArrays | None,
    count: int,
    size: int,
    starts: NDArray[Any] | None,
    present: NDArray[np.bool_] | None,
    options: ChunkOptions,
) -> list[int]:
    """The rows at which pages begin, and the end of the last one.

    Args:
        num_rows: Rows of the chunk.
        byte_arrays: Its values, where the pages are to have equal shares of their bytes; None cuts by rows.
        count: How many pages there should be.
        size: Bytes of the values.
        starts: The entries at which rows begin; None where every entry is a row.
        present: Which entries have a value; None where none lacks one.
        options: How many rows a page may have.
    """
    if byte_arrays is not None:
        # Equal shares of bytes, found by the offsets, each value with its four bytes of length.
        values = np.array([_first_value_behind(byte_arrays, part * (size / count)) for part in range(1, count)])
        entries = values if present is None else _entries_of(values, present)
        rows = entries if starts is None else np.searchsorted(starts, entries)
        cuts = {0, num_rows, *(int(row) for row in rows)}
    else:
        cuts = {0, num_rows, *(num_rows * part // count for part in range(1, count))}
    ordered = sorted(cuts)
    return [
        row
        for first, end in pairwise(ordered)
        for row in range(first, end, options.page_rows)
    ] + [num_rows]


def _first_value_behind(byte_arrays: ByteArrays, size: float) -> int:
    """The first value before which the others take at least so many bytes in PLAIN encoding."""
    offsets = byte_arrays.offsets
    start = int(offsets[0])
    return bisect_left(range(len(offsets)), size, key=lambda at: int(offsets[at]) - start + 4 * at)


def _entries_of(values: NDArray[Any], present: NDArray[np.bool_]) -> NDArray[Any]:
    """The first entry before which each number of values stands."""
    before = np.zeros(len(present) + 1, np.int64)
    np.cumsum(present, out=before[1:])
    return np.searchsorted(before, values)
