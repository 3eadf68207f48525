"""The values of a column chunk while they come out of its pages, each in its slot: one class per kind of memory.

Both take runs of pages, which one call of a kernel decodes, and single pages of any encoding.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.encodings import (
    DICTIONARY_ENCODINGS,
    ENCODINGS,
    delta,
    dictionary,
    encoding_for,
)
from resilient_pq.format.file_metadata import Encoding
from resilient_pq.format.pages.page import DataPage
from resilient_pq.format.physical_values import DecodedStrings, Values, room_for
from resilient_pq.format.schema_tree import Primitive
from resilient_pq.lazy_dataclass import dataclass

#: The encodings whose pages come in runs, where values are byte arrays.
RUN_ENCODINGS: Final = frozenset((Encoding.PLAIN, *DICTIONARY_ENCODINGS))
#: The same for all other values: DELTA_BYTE_ARRAY may go on from the page before it.
FIXED_RUN_ENCODINGS: Final = RUN_ENCODINGS | {
    encoding for encoding, known in ENCODINGS.items() if known.decode is not None
} - {Encoding.DELTA_BYTE_ARRAY}


@dataclass(frozen=True, slots=True)
class PageRun:
    """Data pages one behind the other, decompressed, whose values have one encoding."""

    encoding: int  # one of `RUN_ENCODINGS`, or of `FIXED_RUN_ENCODINGS`
    buffer: memoryview  # what holds them. Its bytes change afterwards, unless the values say that they keep pages.
    spans: NDArray[np.int64]  # where their values lie in it, and how many: one row of `PageSpan`s per page
    slot: int  # the first slot of the run
    present: NDArray[np.bool_]  # one flag per slot of the whole chunk, set for those of pages with nulls


@dataclass(frozen=True, slots=True)
class PageValues:
    """The values of one data page."""

    data: DataPage
    slots: slice  # its slots in the chunk
    num_present: int  # how many of them have a value
    present: NDArray[np.bool_] | None  # their flags; None where all have a value
    follows: bool  # whether the page before it in the chunk is the one that was added before it


class DecodedValues(Protocol):
    """The values of a chunk, slot by slot.

    What `add_run` and `add_page` leave in the slots that they were to fill is not defined after an error; the
    same slots may be asked for again.
    """

    keeps_pages: ClassVar[bool]
    """Whether what holds the pages of a run has to stay as it is until the end."""

    @property
    def entries(self) -> Values | None:
        """The dictionary, if there is one and the values do not have it."""

    def set_dictionary(self, body: memoryview, count: int) -> None:
        """Take a dictionary page, decompressed."""

    def add_run(self, run: PageRun) -> None:
        """Fill the slots of a run; runs and pages come in the order of their slots."""

    def add_page(self, page: PageValues) -> None:
        """Fill the slots of one page, whatever its encoding."""

    def finish(self, num_slots: int) -> Values | DecodedStrings:
        """The values of the first `num_slots` slots, all of which have been filled."""


class FixedValues:
    """Values of any physical type but BYTE_ARRAY."""

    keeps_pages: ClassVar[bool] = False

    def __init__(self, node: Primitive, num_entries: int) -> None:
        self._node = node
        self._values = room_for(node, num_entries)
        self._dictionary: NDArray[Any] | None = None
        self._previous = b""  # the last value of DELTA_BYTE_ARRAY

    @property
    def entries(self) -> Values | None:
        """See `DecodedValues`."""
        return self._dictionary

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
        elif run.encoding in DICTIONARY_ENCODINGS:
            values = require_dictionary(self._dictionary)
            kernels.dictionary_pages(run.buffer, run.spans, run.present, run.slot, values, self._values)
        else:
            decode = encoding_for(run.encoding, self._node.physical_type).decode
            assert decode is not None
            slot = run.slot
            for start, end, num_slots, num_present in run.spans.tolist():
                slots = self._values[slot : slot + num_slots]
                if num_present:
                    decode(self._node, run.buffer[start:end], slots[:num_present])
                if num_present < num_slots:
                    kernels.spread(slots, run.present[slot : slot + num_slots])
                slot += num_slots

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
            dictionary.decode(require_dictionary(self._dictionary), values, out)
            return
        found = encoding_for(encoding, self._node.physical_type)
        if encoding == Encoding.DELTA_BYTE_ARRAY:
            # May go on from the page before it (PARQUET-246).
            delta.decode_fixed_prefixes(self._node, values, out, self._previous)
            self._previous = out[-1].tobytes()
            return
        assert found.decode is not None
        found.decode(self._node, values, out)

    def finish(self, num_slots: int) -> Values:
        """See `DecodedValues`."""
        return self._values[:num_slots]


def require_dictionary(values: Any) -> Any:
    """The dictionary, which a page refers to."""
    if values is None:
        raise EncodingError("a dictionary-encoded page stands in a chunk without a dictionary page")
    return values
