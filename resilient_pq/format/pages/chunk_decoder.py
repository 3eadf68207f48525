"""Column chunks, read: pages become the levels and values of one leaf, decoded into place.

The room for a chunk's values is made once, by the counts in its page headers. Pages are decoded in runs: those that
stand behind each other and whose values have the same encoding are decompressed into one buffer, small enough to stay
in the processor's cache; kernels read the levels of all of them at once, and most values, into their slots.
What is encoded otherwise is decoded page by page; and so is a run that does not decode, to find the page at fault.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.errors import FormatError, UnsupportedError, Where, located
from resilient_pq.format import kernels
from resilient_pq.format.compression import codecs
from resilient_pq.format.file_metadata import PageType, Type
from resilient_pq.format.kernels.page_columns import PageField
from resilient_pq.format.pages.decoded_strings import ByteArrayValues, ByteCodeValues, ByteViewValues
from resilient_pq.format.pages.decoded_values import DecodedValues, FixedValues, PageRun, PageValues
from resilient_pq.format.pages.page import DataPage, Page, open_data_page
from resilient_pq.format.pages.page_table import DATA_PAGES, PageTable, RunBodies, runs_of
from resilient_pq.format.physical_values import ByteLayout, LeafColumn
from resilient_pq.format.quirks import NO_QUIRKS, Quirks
from resilient_pq.format.schema_tree import Leaf

_NO_FLAGS = np.empty(0, np.bool_)


def decode_chunk(
    leaf: Leaf,
    codec: int,
    pages: PageTable | Sequence[Page],
    num_rows: int,
    quirks: Quirks = NO_QUIRKS,
    *,
    layout: ByteLayout = ByteLayout.ARRAYS,
) -> LeafColumn:
    """The column in the pages of a chunk: all of them, or the dictionary page and those that cover `num_rows` rows.

    Byte arrays come in a `layout`; where they are views, the pages stay in memory.
    """
    table = pages if isinstance(pages, PageTable) else PageTable.of(pages)
    num_entries = table.num_entries
    if not leaf.max_repetition_level:
        _check_rows(num_entries, num_rows)  # before room is made for what a damaged header announces
    try:
        decoder = _ChunkDecoder(leaf, codec, table, num_entries, quirks, layout=layout)
        for rows, together in runs_of(leaf, codec, table):
            decoder.add(rows, together=together)
        return decoder.finish(num_rows)
    except MemoryError as error:
        raise FormatError(f"there is not enough memory for the {num_entries:,} values of the chunk") from error


def _check_rows(found: int, num_rows: int) -> None:
    if found != num_rows:
        raise FormatError(f"the pages hold {found:,} rows instead of {num_rows:,}")


def _values_for(leaf: Leaf, table: PageTable, num_entries: int, *, layout: ByteLayout) -> DecodedValues:
    """Room for the values of a chunk."""
    try:
        if leaf.node.physical_type is not Type.BYTE_ARRAY:
            return FixedValues(leaf.node, num_entries)
        if layout is ByteLayout.VIEWS:
            return ByteViewValues(leaf.node, num_entries)
        sizes = (row[PageField.UNCOMPRESSED_SIZE] for row in table.rows if row[PageField.TYPE] in DATA_PAGES)
        values = ByteCodeValues if layout is ByteLayout.CODES else ByteArrayValues
        return values(leaf.node, num_entries, sum(sizes))
    except (MemoryError, ValueError, OverflowError) as error:
        raise FormatError(f"the chunk says it has {num_entries:,} values") from error


class _ChunkDecoder:
    """Levels and values of a chunk, filled run by run."""

    def __init__(
        self, leaf: Leaf, codec: int, table: PageTable, num_entries: int, quirks: Quirks, *, layout: ByteLayout
    ) -> None:
        self._leaf = leaf
        self._layout = layout
        self._codec = codec
        self._quirks = quirks
        self._table = table
        self._maxima = leaf.max_definition_level, leaf.max_repetition_level, leaf.slot_definition_level
        self._entry = self._slot = 0
        self._flagged = 0  # slots whose flags are set; those behind them have values, as far as they are filled
        self._ordinal = -1  # of the page that was added last
        self._values = _values_for(leaf, table, num_entries, layout=layout)
        self._bodies = RunBodies(codec, table, keeps_pages=self._values.keeps_pages)
        try:
            self._present = memory_pool.empty((num_entries,), np.bool_) if leaf.max_definition_level else _NO_FLAGS
            nested = len(leaf.path) > 1 or leaf.max_repetition_level > 0
            self._definition = _levels(num_entries) if nested and leaf.max_definition_level else None
            self._repetition = _levels(num_entries) if leaf.max_repetition_level else None
        except (MemoryError, ValueError, OverflowError) as error:
            raise FormatError(f"the chunk says it has {num_entries:,} values") from error

    def add(self, rows: range, *, together: bool) -> None:
        """Decode pages behind those before them; pages that hold no values are skipped."""
        if together:
            try:
                self._add_run(rows)
                return
            except (FormatError, UnsupportedError, MemoryError):
                pass  # decoded once more page by page, to find the one at fault and what is wrong with it
        for row in rows:
            with located(Where(page=self._table.ordinal(row), offset=self._table.offset(row))):
                self._add_page(row)
            self._ordinal = self._table.ordinal(row)

    def _add_run(self, rows: range) -> None:
        headers = self._table.rows[rows.start : rows.stop]
        start, end = self._entry, self._entry + sum([page[PageField.NUM_VALUES] for page in headers])
        buffer, pages = self._bodies.open(rows)
        spans, flagged, slot = kernels.page_levels(
            buffer,
            pages,
            self._maxima,
            None if self._definition is None else self._definition[start:end],
            None if self._repetition is None else self._repetition[start:end],
            self._present,
            self._flagged,
            self._slot,
        )
        self._values.add_run(PageRun(headers[0][PageField.ENCODING], buffer, spans, self._slot, self._present))
        self._entry, self._flagged, self._slot = end, flagged, slot
        self._ordinal = self._table.ordinal(rows[-1])

    def _add_page(self, row: int) -> None:
        """Decode one page of any kind and encoding."""
        kind = self._table.rows[row][PageField.TYPE]
        if kind == PageType.DICTIONARY_PAGE:
            size = self._table.rows[row][PageField.UNCOMPRESSED_SIZE]
            body = codecs.decompress(self._codec, self._table.body(row), size)
            self._values.set_dictionary(body, self._table.rows[row][PageField.NUM_VALUES])
        elif kind in DATA_PAGES:
            data = open_data_page(self._table.page(row), self._leaf, self._codec, self._quirks)
            self._add_data(data, follows=self._table.ordinal(row) == self._ordinal + 1)

    def _add_data(self, data: DataPage, *, follows: bool) -> None:
        num_slots, flags = self._decode_levels(data)
        num_present = num_slots if flags is None else int(np.count_nonzero(flags))
        slots = slice(self._slot, self._slot + num_slots)
        if num_present == num_slots:
            flags = None
        self._values.add_page(PageValues(data, slots, num_present, flags, follows))
        if flags is not None:
            self._present[self._flagged : slots.start] = True
            self._present[slots] = flags
            self._flagged = slots.stop
        self._entry, self._slot = self._entry + data.num_values, slots.stop

    def _decode_levels(self, data: DataPage) -> tuple[int, NDArray[np.bool_] | None]:
        """Fill the levels of a page's entries; returns its slots, and which of them have a value."""
        leaf = self._leaf
        entries = slice(self._entry, self._entry + data.num_values)
        if data.repetition_levels is not None and self._repetition is not None:
            data.repetition_levels.decode(leaf.max_repetition_level, self._repetition[entries])
        if data.definition_levels is None:
            return data.num_values, None
        levels = np.empty(data.num_values, np.uint8) if self._definition is None else self._definition[entries]
        data.definition_levels.decode(leaf.max_definition_level, levels)
        if leaf.slot_definition_level:
            levels = levels[levels >= leaf.slot_definition_level]
        return len(levels), levels == leaf.max_definition_level

    def finish(self, num_rows: int) -> LeafColumn:
        """The column, when all pages have been added."""
        if self._repetition is not None:
            _check_rows(int(np.count_nonzero(self._repetition == 0)), num_rows)
        present = None
        if self._flagged:
            present = self._present[: self._slot]
            present[self._flagged :] = True
        values = self._values.finish(self._slot)
        return LeafColumn(
            leaf=self._leaf,
            num_rows=num_rows,
            values=values,
            present=present,
            definition_levels=self._definition,
            repetition_levels=self._repetition,
            entries=self._values.entries if self._layout is ByteLayout.CODES else None,
        )


def _levels(count: int) -> NDArray[np.uint8]:
    return memory_pool.empty((count,), np.uint8)
