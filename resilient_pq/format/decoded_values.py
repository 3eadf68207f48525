"""The values of a column chunk while they come out of its pages, each in its slot: one class per kind of memory.

Both take runs of pages, which one call of a kernel decodes, and single pages of any encoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from resilient_pq import room
from resilient_pq.errors import EncodingError, FormatError
from resilient_pq.format import kernels
from resilient_pq.format.encodings import (
    DICTIONARY_ENCODINGS,
    Strings,
    delta,
    dictionary,
    encoding_for,
    plain,
)
from resilient_pq.format.metadata import Encoding, Type
from resilient_pq.format.page import DataPage
from resilient_pq.format.schema import Primitive
from resilient_pq.format.values import ByteArrays, Values, room_for

#: The encodings whose pages come in runs.
RUN_ENCODINGS = (Encoding.PLAIN, *DICTIONARY_ENCODINGS)


@dataclass(frozen=True, slots=True)
class PageRun:
    """Data pages one behind the other, decompressed, whose values have one encoding.

    Attributes:
        encoding: One of `RUN_ENCODINGS`.
        buffer: What holds them. Its bytes change afterwards, unless the values say that they keep pages.
        spans: Where their values lie in it, and how many: one row of `PageSpan`s per page.
        slot: The first slot of the run.
        present: One flag per slot of the whole chunk, set for those of pages with nulls.
    """

    encoding: int
    buffer: memoryview
    spans: NDArray[np.int64]
    slot: int
    present: NDArray[np.bool_]

@dataclass(frozen=True, slots=True)
class PageValues:
    """The values of one data page.

    Attributes:
        data: The page.
        slots: Its slots in the chunk.
        num_present: How many of them have a value.
        present: Their flags; None where all have a value.
        follows: Whether the page before it in the chunk is the one that was added before it.
    """

    data: DataPage
    slots: slice
    num_present: int
    present: NDArray[np.bool_] | None
    follows: bool


class DecodedValues(Protocol):
    """The values of a chunk, slot by slot.

    What `add_run` and `add_page` leave in the slots that they were to fill is not defined after an error; the
    same slots may be asked for again.
    """

    keeps_pages: ClassVar[bool]
    """Whether what holds the pages of a run has to stay as it is until the end."""

    def set_dictionary(self, body: memoryview, count: int) -> None:
        """Take a dictionary page, decompressed."""

    def add_run(self, run: PageRun) -> None:
        """Fill the slots of a run.

        Raises:
            FormatError: Some page of it is damaged.
        """

    def add_page(self, page: PageValues) -> None:
        """Fill the slots of one page, whatever its encoding.

        Raises:
            FormatError: It is damaged.
            UnsupportedError: This version does not read its encoding.
        """

    def finish(self, num_slots: int) -> Values:
        """The values of the first `num_slots` slots, all of which have been filled."""


class FixedValues:
    """Values of any physical type but BYTE_ARRAY."""

    keeps_pages: ClassVar[bool] = False

    def __init__(self, node: Primitive, num_entries: int) -> None:
        """Make room for the values of so many entries."""
        self._node = node
        self._values = room_for(node, num_entries)
        self._dictionary: NDArray[Any] | None = None
        self._previous = b""  # the last value of DELTA_BYTE_ARRAY

    def set_dictionary(self, body: memoryview, count: int) -> None:
        """See `DecodedValues`."""
        values = dictionary.decode_dictionary(self._node, body, count)
        assert isinstance(values, np.ndarray)
        self._dictionary = values

    def add_run(self, run: PageRun) -> None:
        """See `DecodedValues`."""
        self._previous = b""
        if run.encoding == Encoding.PLAIN:
            kernels.plain_pages(run.buffer, run.spans, run.present, run.slot, self._values)
        else:
            known = _known(self._dictionary)
            kernels.dictionary_pages(run.buffer, run.spans, run.present, run.slot, known, self._values)

    def add_page(self, page: PageValues) -> None:
        """See `DecodedValues`."""
        slots = self._values[page.slots]
        if not page.follows or page.data.encoding != Encoding.DELTA_BYTE_ARRAY:
            self._previous = b""
        if page.num_present:
            self._decode(page, slots[: page.num_present])
        if page.present is not None:
            kernels.spread(slots, page.present)

    def _decode(self, page: PageValues, out: NDArray[Any]) -> None:
        encoding, values = page.data.encoding, page.data.values
        if encoding in DICTIONARY_ENCODINGS:
            dictionary.decode(_known(self._dictionary), values, out)
            return
        known = encoding_for(encoding, self._node.physical_type)
        if encoding == Encoding.DELTA_BYTE_ARRAY:
            # May go on from the page before it (PARQUET-246).
            delta.decode_fixed_prefixes(self._node, values, out, self._previous)
            self._previous = out[-1].tobytes()
            return
        assert known.decode is not None
        known.decode(self._node, values, out)

    def finish(self, num_slots: int) -> Values:
        """See `DecodedValues`."""
        return self._values[:num_slots]


class ByteArrayValues:
    """Values of the physical type BYTE_ARRAY: lengths first, and one copy when all of them are known."""

    keeps_pages: ClassVar[bool] = True

    def __init__(self, node: Primitive, num_entries: int) -> None:
        """Make room for the lengths of so many entries."""
        self._node = node
        self._lengths: NDArray[np.int32] = room.empty((num_entries,), np.int32)
        self._dictionary: ByteArrays | None = None
        self._strings: list[tuple[int, Strings]] = []
        self._previous = b""  # the last value of DELTA_BYTE_ARRAY

    def set_dictionary(self, body: memoryview, count: int) -> None:
        """See `DecodedValues`."""
        values = dictionary.decode_dictionary(self._node, body, count)
        assert isinstance(values, ByteArrays)
        self._dictionary = values

    def add_run(self, run: PageRun) -> None:
        """See `DecodedValues`."""
        self._previous = b""
        found: list[tuple[int, Strings]] = []
        slot = run.slot
        for start, end, num_slots, num_present in run.spans.tolist():
            values, slots = run.buffer[start:end], self._lengths[slot : slot + num_slots]
            if num_present and run.encoding == Encoding.PLAIN:
                found.append(plain.decode_byte_arrays(values, slots[:num_present]))
            elif num_present:
                known = _known(self._dictionary)
                found.append(dictionary.decode_byte_arrays(known, values, slots[:num_present]))
            if num_present < num_slots:
                kernels.spread(slots, run.present[slot : slot + num_slots])
            slot += num_slots
        self._strings += found

    def add_page(self, page: PageValues) -> None:
        """See `DecodedValues`."""
        slots = self._lengths[page.slots]
        if not page.follows or page.data.encoding != Encoding.DELTA_BYTE_ARRAY:
            self._previous = b""
        if page.num_present:
            self._strings.append(self._decode(page, slots[: page.num_present]))
        if page.present is not None:
            kernels.spread(slots, page.present)

    def _decode(self, page: PageValues, lengths: NDArray[np.int32]) -> tuple[int, Strings]:
        encoding, values = page.data.encoding, page.data.values
        if encoding in DICTIONARY_ENCODINGS:
            return dictionary.decode_byte_arrays(_known(self._dictionary), values, lengths)
        known = encoding_for(encoding, Type.BYTE_ARRAY)
        if encoding == Encoding.DELTA_BYTE_ARRAY:  # may go on from the page before it (PARQUET-246)
            total, strings = delta.decode_prefixes(values, lengths, self._previous)
            self._previous = strings.data[total - int(lengths[-1]) :].tobytes()
            return total, strings
        assert known.decode_byte_arrays is not None
        return known.decode_byte_arrays(values, lengths)

    def finish(self, num_slots: int) -> Values:
        """See `DecodedValues`."""
        total = sum(size for size, _ in self._strings)
        try:
            offsets = room.empty((num_slots + 1,), np.int32 if total < 1 << 31 else np.int64)
            data = room.empty((total,), np.uint8)
        except (MemoryError, ValueError) as error:
            raise FormatError(f"the chunk's byte arrays take {total:,} bytes") from error
        offsets[0] = 0
        np.cumsum(self._lengths[:num_slots], out=offsets[1:])
        at = 0
        for size, strings in self._strings:
            strings.copy_to(data[at : at + size])
            at += size
        return ByteArrays(offsets, data)


def _known(values: Any) -> Any:
    """The dictionary, which a page refers to."""
    if values is None:
        raise EncodingError("a dictionary-encoded page stands in a chunk without a dictionary page")
    return values


def values_for(node: Primitive, num_entries: int) -> DecodedValues:
    """Room for the values of a chunk.

    Raises:
        FormatError: There is no such room.
    """
    kind = ByteArrayValues if node.physical_type is Type.BYTE_ARRAY else FixedValues
    try:
        return kind(node, num_entries)
    except (MemoryError, ValueError, OverflowError) as error:
        raise FormatError(f"the chunk says it has {num_entries:,} values") from error
