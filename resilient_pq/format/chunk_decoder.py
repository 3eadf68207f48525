"""Column chunks, read: pages become the levels and values of one leaf, decoded into place.

The room for a chunk's values is made once, by the counts in its page headers; every page decodes into its
own slice of it. Byte arrays are copied once, when the lengths of all of them are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError, FormatError, Where, located
from resilient_pq.format import compression, kernels
from resilient_pq.format.encodings import DICTIONARY_ENCODINGS, Strings, delta, dictionary, encoding_for
from resilient_pq.format.metadata import Encoding, PageType, Type
from resilient_pq.format.page import DataPage, Page, open_data_page
from resilient_pq.format.quirks import NO_QUIRKS, Quirks
from resilient_pq.format.schema import Leaf
from resilient_pq.format.values import ByteArrays, LeafColumn, Values, empty_fixed

_DATA_PAGES = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


def decode_chunk(
    leaf: Leaf, codec: int, pages: Sequence[Page], num_rows: int, quirks: Quirks = NO_QUIRKS
) -> LeafColumn:
    """The column that the pages of a chunk hold.

    Args:
        leaf: The column.
        codec: How the pages are compressed.
        pages: All pages of the chunk, or the dictionary page and those of some rows.
        num_rows: The rows that the pages cover.
        quirks: What their writer is known to get wrong.

    Raises:
        FormatError: The pages are damaged, or do not cover `num_rows` rows.
        UnsupportedError: The pages use what this version does not read.
    """
    num_entries = sum(page.num_values for page in pages)
    if not leaf.max_repetition_level:
        _check_rows(num_entries, num_rows)  # before room is made for what a damaged header announces
    try:
        decoder = _ChunkDecoder(leaf, codec, num_entries, quirks)
        for page in pages:
            with located(Where(page=page.ordinal, offset=page.offset)):
                decoder.add(page)
        return decoder.finish(num_rows)
    except MemoryError as error:
        raise FormatError(
            f"there is not enough memory for the {num_entries:,} values of the chunk"
        ) from error


def _check_rows(found: int, num_rows: int) -> None:
    if found != num_rows:
        raise FormatError(f"the pages hold {found:,} rows instead of {num_rows:,}")


class _ChunkDecoder:
    """Levels and values of a chunk, filled page by page."""

    def __init__(self, leaf: Leaf, codec: int, num_entries: int, quirks: Quirks) -> None:
        self._leaf = leaf
        self._codec = codec
        self._quirks = quirks
        self._dictionary: Values | None = None
        self._entry = self._slot = 0
        try:
            self._definition = np.empty(num_entries if leaf.max_definition_level else 0, np.uint8)
            self._repetition = np.empty(num_entries if leaf.max_repetition_level else 0, np.uint8)
            self._present = np.empty(num_entries if leaf.max_definition_level else 0, np.bool_)
            self._values = (
                np.zeros(num_entries, np.int32)  # the lengths of byte arrays
                if leaf.node.physical_type is Type.BYTE_ARRAY
                else empty_fixed(leaf.node, num_entries)
            )
        except (MemoryError, ValueError) as error:
            raise FormatError(f"the chunk says it has {num_entries:,} values") from error
        self._strings: list[tuple[int, Strings]] = []
        self._ordinal = -1
        self._previous = b""  # the last value of DELTA_BYTE_ARRAY

    def add(self, page: Page) -> None:
        """Decode one page behind those before it; pages that hold no values are skipped."""
        if page.ordinal != self._ordinal + 1:  # pages were left out
            self._previous = b""
        self._ordinal = page.ordinal
        if page.header.dictionary_page_header is not None and page.header.type == PageType.DICTIONARY_PAGE:
            body = compression.decompress(self._codec, page.body, page.header.uncompressed_page_size)
            count = page.header.dictionary_page_header.num_values
            self._dictionary = dictionary.decode_dictionary(self._leaf.node, body, count)
        elif page.header.type in _DATA_PAGES:
            self._add_data(open_data_page(page, self._leaf, self._codec, self._quirks))

    def _add_data(self, data: DataPage) -> None:
        entries = slice(self._entry, self._entry + data.num_values)
        num_slots, num_present = self._decode_levels(data, entries)
        slots = slice(self._slot, self._slot + num_slots)
        self._decode_values(data, slice(slots.start, slots.start + num_present))
        if num_present < num_slots:
            kernels.spread(self._values[slots], self._present[slots])
        self._entry, self._slot = entries.stop, slots.stop

    def _decode_levels(self, data: DataPage, entries: slice) -> tuple[int, int]:
        """Fill the levels of a page's entries; returns its slots, and how many of them have a value."""
        leaf = self._leaf
        if data.repetition_levels is not None:
            data.repetition_levels.decode(leaf.max_repetition_level, self._repetition[entries])
        if data.definition_levels is None:
            return data.num_values, data.num_values
        levels = self._definition[entries]
        data.definition_levels.decode(leaf.max_definition_level, levels)
        if leaf.slot_definition_level:
            levels = levels[levels >= leaf.slot_definition_level]
        present = levels == leaf.max_definition_level
        self._present[self._slot : self._slot + len(levels)] = present
        return len(levels), int(np.count_nonzero(present))

    def _decode_values(self, data: DataPage, place: slice) -> None:
        """Decode a page's values to the front of its slots."""
        if place.start == place.stop:
            return
        out: NDArray[Any] = self._values[place]
        node = self._leaf.node
        strings = node.physical_type is Type.BYTE_ARRAY
        if data.encoding in DICTIONARY_ENCODINGS:
            if self._dictionary is None:
                raise EncodingError("a dictionary-encoded page stands in a chunk without a dictionary page")
            if strings:
                self._strings.append(dictionary.decode_byte_arrays(self._dictionary, data.values, out))
            else:
                dictionary.decode(self._dictionary, data.values, out)
            return
        encoding = encoding_for(data.encoding, node.physical_type)
        if data.encoding == Encoding.DELTA_BYTE_ARRAY:
            self._decode_prefixes(data.values, out)
        elif strings:
            assert encoding.decode_byte_arrays is not None
            self._strings.append(encoding.decode_byte_arrays(data.values, out))
        else:
            assert encoding.decode is not None
            encoding.decode(node, data.values, out)

    def _decode_prefixes(self, values: memoryview, out: NDArray[Any]) -> None:
        """Decode a page of DELTA_BYTE_ARRAY, which may go on from the page before it (PARQUET-246)."""
        node = self._leaf.node
        if node.physical_type is Type.BYTE_ARRAY:
            total, strings = delta.decode_prefixes(values, out, self._previous)
            self._strings.append((total, strings))
            self._previous = strings.data[total - int(out[-1]) :].tobytes()
        else:
            delta.decode_fixed_prefixes(node, values, out, self._previous)
            self._previous = out[-1].tobytes()

    def finish(self, num_rows: int) -> LeafColumn:
        """The column, when all pages have been added."""
        leaf = self._leaf
        if leaf.max_repetition_level:
            _check_rows(int(np.count_nonzero(self._repetition == 0)), num_rows)
        values = self._values[: self._slot]
        present = self._present[: self._slot] if leaf.max_definition_level else None
        nested = len(leaf.path) > 1 or leaf.max_repetition_level > 0
        return LeafColumn(
            leaf=leaf,
            num_rows=num_rows,
            values=self._join_strings(values) if leaf.node.physical_type is Type.BYTE_ARRAY else values,
            present=None if present is None or present.all() else present,
            definition_levels=self._definition if nested and leaf.max_definition_level else None,
            repetition_levels=self._repetition if leaf.max_repetition_level else None,
        )

    def _join_strings(self, lengths: NDArray[np.int32]) -> ByteArrays:
        total = sum(size for size, _ in self._strings)
        try:
            offsets = np.zeros(len(lengths) + 1, np.int32 if total < 1 << 31 else np.int64)
            data = np.empty(total, np.uint8)
        except (MemoryError, ValueError) as error:
            raise FormatError(f"the chunk's byte arrays take {total:,} bytes") from error
        np.cumsum(lengths, out=offsets[1:])
        at = 0
        for size, strings in self._strings:
            strings.copy_to(data[at : at + size])
            at += size
        return ByteArrays(offsets, data)
