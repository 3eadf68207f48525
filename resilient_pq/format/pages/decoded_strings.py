"""Byte arrays of a column chunk as its pages are decoded: as offsets and data, or as views."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels, logical
from resilient_pq.format.encodings import DICTIONARY_ENCODINGS, Strings, delta, dictionary, encoding_for
from resilient_pq.format.file_metadata import Encoding, Type
from resilient_pq.format.kernels.page_columns import PageSpan
from resilient_pq.format.pages.decoded_values import PageRun, PageValues, require_dictionary
from resilient_pq.format.physical_values import MAX_SMALL_OFFSET, ByteArrays, ByteCodes, ByteViews
from resilient_pq.format.schema_tree import Primitive

_TEXTS: Final = (logical.STRING, logical.ENUM, logical.JSON)


class ByteArrayValues:
    """Byte arrays back to back.

    Those of PLAIN pages are copied as the pages come, into room for as much as all pages hold. Of a dictionary's,
    codes stand in the place of offsets until the bytes of all of them are known: 0 for a slot without a value, else
    the index and 1.
    """

    keeps_pages: ClassVar[bool] = False
    entries: ByteArrays | None = None
    """See `DecodedValues`."""

    def __init__(self, node: Primitive, num_entries: int, num_bytes: int, most_small: int = MAX_SMALL_OFFSET) -> None:
        """Make room for entries of data pages with `num_bytes`; offsets have 64 bits beyond `most_small` bytes."""
        self._offsets: NDArray[Any] = memory_pool.empty((num_entries + 1,), np.int32)
        self._offsets[0] = 0
        self._num_bytes = num_bytes
        self._most_small = most_small
        self._data: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._written = self._filled = self._coded = 0  # bytes; slots; the first of those that have codes still
        self._dictionary: _Entries | None = None
        self._pages = _SinglePages(node)
        self._text = self._known_utf8 = node.logical in _TEXTS

    def set_dictionary(self, body: memoryview, count: int) -> None:
        """See `DecodedValues`."""
        self._place_coded()
        self._dictionary = _Entries(self._pages.dictionary_of(body, count), self._text)

    def add_run(self, run: PageRun) -> None:
        """See `DecodedValues`."""
        self._pages.forget()
        spans = run.spans
        stop = run.slot + int(spans[:, PageSpan.NUM_SLOTS].sum())
        size = int((spans[:, PageSpan.END] - spans[:, PageSpan.START]).sum())
        if run.encoding == Encoding.PLAIN:
            self._place_coded()
            self._make_room(size, self._num_bytes)
            self._written, valid = kernels.plain_byte_arrays(
                run.buffer, spans, run.present, run.slot, self._offsets, self._data, self._written, self._text
            )
            self._coded = stop
        else:
            entries: _Entries = require_dictionary(self._dictionary)
            codes, out = entries.codes(self._offsets.dtype), self._offsets[1:]
            kernels.dictionary_pages(run.buffer, spans, run.present, run.slot, codes, out)
            valid = entries.known_utf8
        self._filled = stop
        self._num_bytes = max(0, self._num_bytes - size)
        self._known_utf8 &= valid

    def add_page(self, page: PageValues) -> None:
        """See `DecodedValues`."""
        self._pages.look_at(page)
        slots = self._offsets[page.slots.start + 1 : page.slots.stop + 1]
        if page.data.encoding in DICTIONARY_ENCODINGS and page.num_present:
            entries: _Entries = require_dictionary(self._dictionary)
            indices = dictionary.decode_indices(page.data.values, page.num_present)
            kernels.gather(entries.codes(slots.dtype), indices, slots[: page.num_present])
            if page.present is not None:
                kernels.spread(slots, page.present)
            self._known_utf8 &= entries.known_utf8
        else:
            self._copy_page(page)
            self._coded = page.slots.stop
        self._filled = page.slots.stop

    def _copy_page(self, page: PageValues) -> None:
        lengths = np.zeros(page.slots.stop - page.slots.start, np.int32)
        self._place_coded()
        if page.num_present:
            total, strings = self._pages.decode(page, lengths[: page.num_present])
            self._make_room(total)
            strings.copy_to(self._data[self._written : self._written + total])
            self._known_utf8 = False
            if page.present is not None:
                kernels.spread(lengths, page.present)
        ends = np.cumsum(lengths, dtype=np.int64) + self._written
        self._offsets[page.slots.start + 1 : page.slots.stop + 1] = ends
        self._written += int(lengths.sum(dtype=np.int64))

    def _place_coded(self) -> None:
        """Copy the values of which there are only codes, and put their offsets in the place of these."""
        if self._coded == self._filled:
            return
        entries: _Entries = require_dictionary(self._dictionary)
        coded = slice(self._coded + 1, self._filled + 1)
        self._make_room(kernels.chosen_size(entries.offsets, self._offsets[coded]))
        self._written = kernels.copy_chosen_byte_arrays(
            entries.offsets, entries.data, self._offsets[coded], self._data, self._written
        )
        self._coded = self._filled

    def _make_room(self, size: int, expected: int = 0) -> None:
        """Room for `size` more bytes; where there is none, for `expected` ones, if these are more."""
        needed = self._written + size
        if needed > self._most_small and self._offsets.dtype == np.int32:
            wide = memory_pool.empty(self._offsets.shape, np.int64)
            wide[: self._filled + 1] = self._offsets[: self._filled + 1]
            self._offsets = wide
        if needed > len(self._data):
            most = self._most_small if self._offsets.dtype == np.int32 else needed + expected
            data = memory_pool.empty((max(needed, min(self._written + expected, most)),), np.uint8)
            data[: self._written] = self._data[: self._written]
            self._data = data

    def finish(self, num_slots: int) -> ByteArrays | ByteCodes:
        """See `DecodedValues`."""
        self._place_coded()
        return ByteArrays(self._offsets[: num_slots + 1], self._data[: self._written], self._known_utf8)


class ByteCodeValues(ByteArrayValues):
    """Byte arrays as numbers of a dictionary's entries, as long as all pages refer to it."""

    def finish(self, num_slots: int) -> ByteArrays | ByteCodes:
        """See `DecodedValues`."""
        if self._dictionary is None:
            return super().finish(num_slots)
        if not self._coded:
            return ByteCodes(self._offsets[1 : num_slots + 1], self._dictionary.values)
        self.entries = self._dictionary.values
        return super().finish(num_slots)


class ByteViewValues:
    """Byte arrays as views: of dictionaries, and of the pages themselves, which stay in memory for that."""

    keeps_pages: ClassVar[bool] = True
    entries: ClassVar[ByteArrays | None] = None
    """See `DecodedValues`."""

    def __init__(self, node: Primitive, num_entries: int) -> None:
        self._views: NDArray[np.uint8] = memory_pool.empty((num_entries, 16), np.uint8)
        self._buffers: list[NDArray[np.uint8]] = []
        self._dictionary: NDArray[np.uint8] | None = None
        self._pages = _SinglePages(node)
        self._text = self._known_utf8 = node.logical in _TEXTS
        self._known_dictionary = False

    def set_dictionary(self, body: memoryview, count: int) -> None:
        """See `DecodedValues`."""
        values = self._pages.dictionary_of(body, count)
        self._dictionary = self._views_of(values)
        self._known_dictionary = self._text and values.is_utf8()

    def add_run(self, run: PageRun) -> None:
        """See `DecodedValues`."""
        self._pages.forget()
        if run.encoding == Encoding.PLAIN:
            used, valid = kernels.plain_views(
                run.buffer, run.spans, run.present, run.slot, self._views, len(self._buffers), self._text
            )
            if used:
                self._buffers.append(np.frombuffer(run.buffer, np.uint8))
        else:
            entries = require_dictionary(self._dictionary)
            kernels.dictionary_pages(run.buffer, run.spans, run.present, run.slot, entries, self._views)
            valid = self._known_dictionary
        self._known_utf8 &= valid

    def add_page(self, page: PageValues) -> None:
        """See `DecodedValues`."""
        self._pages.look_at(page)
        slots = self._views[page.slots]
        if page.num_present and page.data.encoding in DICTIONARY_ENCODINGS:
            indices = dictionary.decode_indices(page.data.values, page.num_present)
            kernels.gather(require_dictionary(self._dictionary), indices, slots[: page.num_present])
            self._known_utf8 &= self._known_dictionary
        elif page.num_present:
            slots[: page.num_present] = self._views_of(self._copied(page))
            self._known_utf8 = False
        if page.present is not None:
            kernels.spread(slots, page.present)

    def _copied(self, page: PageValues) -> ByteArrays:
        lengths = memory_pool.empty((page.num_present,), np.int32)
        total, strings = self._pages.decode(page, lengths)
        if total > MAX_SMALL_OFFSET:
            raise EncodingError(f"a page with {total:,} bytes of values is too large for views")
        data = memory_pool.empty((total,), np.uint8)
        strings.copy_to(data)
        return ByteArrays(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), data)

    def _views_of(self, values: ByteArrays) -> NDArray[np.uint8]:
        """The views of values that are kept from now on."""
        views = memory_pool.empty((len(values), 4), np.int32)
        kernels.views_of(values.offsets, values.data, len(self._buffers), views)
        if values.num_bytes:
            self._buffers.append(values.data)
        return views.view(np.uint8)

    def finish(self, num_slots: int) -> ByteViews:
        """See `DecodedValues`."""
        views = self._views[:num_slots].view(np.int32)
        return ByteViews(views, tuple(self._buffers), self._known_utf8)


class _Entries:
    """A dictionary for codes: value 0 is empty and stands for none."""

    def __init__(self, values: ByteArrays, text: bool) -> None:
        self.values = values
        self.offsets = np.concatenate([values.offsets[:1], values.offsets])
        self.data = values.data
        # That a value is none which no slot has says nothing of the column: then all that it has are looked at.
        self.known_utf8 = text and values.is_utf8()
        self._codes = np.arange(1, len(values) + 1, dtype=np.int32)

    def codes(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The code of each value."""
        if self._codes.dtype != dtype:
            self._codes = self._codes.astype(dtype)
        return self._codes


class _SinglePages:
    """Decodes dictionary pages, and data pages one by one, of any encoding."""

    def __init__(self, node: Primitive) -> None:
        self._node = node
        self._previous = b""  # the last value of DELTA_BYTE_ARRAY

    def dictionary_of(self, body: memoryview, count: int) -> ByteArrays:
        values = dictionary.decode_dictionary(self._node, body, count)
        assert isinstance(values, ByteArrays)
        return values

    def forget(self) -> None:
        """What follows does not go on from the last page."""
        self._previous = b""

    def look_at(self, page: PageValues) -> None:
        """Keep the last value only for a page that may go on from it."""
        if not page.follows or page.data.encoding != Encoding.DELTA_BYTE_ARRAY:
            self._previous = b""

    def decode(self, page: PageValues, lengths: NDArray[np.int32]) -> tuple[int, Strings]:
        encoding, values = page.data.encoding, page.data.values
        found = encoding_for(encoding, Type.BYTE_ARRAY)
        if encoding == Encoding.DELTA_BYTE_ARRAY:  # may go on from the page before it (PARQUET-246)
            total, strings = delta.decode_prefixes(values, lengths, self._previous)
            self._previous = strings.data[total - int(lengths[-1]) :].tobytes()
            return total, strings
        assert found.decode_byte_arrays is not None
        return found.decode_byte_arrays(values, lengths)
