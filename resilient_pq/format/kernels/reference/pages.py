"""Runs of data pages of one encoding, decompressed: their levels, and values that become numbers or rows of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels.page_columns import PageSpan
from resilient_pq.format.kernels.reference.arrays import BytesLike, octets, require_types
from resilient_pq.format.kernels.reference.dictionary import gather
from resilient_pq.format.kernels.reference.nulls import spread
from resilient_pq.format.kernels.reference.rle import rle_decode

_LENGTH = 4


def page_levels(
    buffer: BytesLike,
    pages: NDArray[np.int64],
    maxima: tuple[int, int, int],
    definition: NDArray[np.uint8] | None,
    repetition: NDArray[np.uint8] | None,
    present: NDArray[np.bool_],
    flagged: int,
    slot: int,
) -> tuple[NDArray[np.int64], int, int]:
    """Read the levels of a run of pages, `PagePart`s, which are encoded as RLE, and find its values."""
    # `maxima` are the greatest definition level, the greatest repetition level, and the definition level from which on
    # an entry takes a slot; where a maximum is 0, pages have no such levels. `definition` and `repetition` are room for
    # levels that are wanted. `present` has a flag per slot of the whole chunk, of which `flagged` are set: the slots
    # behind them, up to `slot`, the run's first, have values, so that flags cost nothing while there are no nulls.
    # Returns a row of `PageSpan`s per page, how many flags are set now, and the slot behind the run's last.
    data = octets(buffer).data
    max_definition, max_repetition, slot_level = maxima
    spans = np.empty((len(pages), PageSpan.COUNT), np.int64)
    entry = 0
    for row, (begin, end, count, repetition_bytes, definition_bytes) in zip(spans, pages.tolist(), strict=True):
        if not 0 <= begin <= end <= len(data) or count < 0:
            raise ValueError("a page lies outside of its buffer")
        start = begin
        if max_repetition:
            assert repetition is not None
            levels = _room(repetition, entry, count)
            start = _levels(data, start, end, repetition_bytes, max_repetition, levels)
        num_slots = num_present = count
        if max_definition:
            levels = np.empty(count, np.uint8) if definition is None else _room(definition, entry, count)
            start = _levels(data, start, end, definition_bytes, max_definition, levels)
            flags = levels[levels >= slot_level] == max_definition
            num_slots, num_present = len(flags), int(np.count_nonzero(flags))
            if num_present < num_slots:
                _room(present, slot, num_slots)[:] = flags
                present[flagged:slot] = True
                flagged = slot + num_slots
        row[:] = start, end, num_slots, num_present
        entry, slot = entry + count, slot + num_slots
    return spans, flagged, slot


def _room(array: NDArray[Any], start: int, count: int) -> NDArray[Any]:
    if start < 0 or start + count > len(array):
        raise ValueError("there is not enough room for the levels of the pages")
    return array[start : start + count]


def _levels(data: memoryview, start: int, end: int, size: int, maximum: int, out: NDArray[np.uint8]) -> int:
    """Decode the levels that begin at `start`; returns the offset behind them."""
    if size < 0:
        if end - start < _LENGTH:
            raise EncodingError("a page ends before the length of its levels")
        size = int.from_bytes(data[start : start + _LENGTH], "little")
        start += _LENGTH
    if size > end - start:
        raise EncodingError("levels go beyond their page")
    rle_decode(data[start : start + size], maximum.bit_length(), out)
    if out.max(initial=0) > maximum:
        raise EncodingError("a level is greater than it may be")
    return start + size


def plain_pages(
    buffer: BytesLike, spans: NDArray[np.int64], present: NDArray[np.bool_], slot: int, out: NDArray[Any]
) -> None:
    """Fill the slots of a run of pages from PLAIN values."""
    # `spans` has a row of `PageSpan`s per page, `present` one flag per slot of the whole chunk, set for those of pages
    # with nulls, and `out` its slots: bool, whose values take one bit each; items of 1, 2, 4 or 8 bytes; or rows of
    # bytes. `slot` is the run's first. Slots without a value become 0.
    data = octets(buffer)
    for values, count, place in _places(data, spans, present, slot, out):
        if out.dtype == np.bool_:
            if 8 * len(values) < count:
                raise EncodingError("a page has fewer bytes than its values need")
            place[:count] = np.unpackbits(values[: (count + 7) // 8], count=count, bitorder="little")
        else:
            front = place[:count].reshape(-1).view(np.uint8)
            if len(values) < len(front):
                raise EncodingError("a page has fewer bytes than its values need")
            front[:] = values[: len(front)]
    _spread(spans, present, slot, out)


def dictionary_pages(
    buffer: BytesLike,
    spans: NDArray[np.int64],
    present: NDArray[np.bool_],
    slot: int,
    dictionary: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """Fill the slots of a run of pages from indices to a dictionary, each page's behind their bit width."""
    # As `plain_pages`; `out` has the type and width of `dictionary`.
    if dictionary.dtype != out.dtype or dictionary.shape[1:] != out.shape[1:]:
        raise ValueError("a dictionary must have the type of the output")
    data = octets(buffer)
    for values, count, place in _places(data, spans, present, slot, out):
        if count:
            if not len(values):
                raise EncodingError("a page of indices has no bit width")
            indices = np.empty(count, np.int32)
            rle_decode(values[1:], int(values[0]), indices)
            gather(dictionary, indices, place[:count])
    _spread(spans, present, slot, out)


def _places(
    data: NDArray[np.uint8], spans: NDArray[np.int64], present: NDArray[np.bool_], slot: int, out: NDArray[Any]
) -> list[tuple[NDArray[np.uint8], int, NDArray[Any]]]:
    """The bytes of each page's values, how many they are, and the page's slots."""
    require_types(present, np.bool_)
    places = []
    for start, end, num_slots, num_present in spans.tolist():
        inside = 0 <= start <= end <= len(data) and slot >= 0 and 0 <= num_present <= num_slots
        most = len(out) if num_present == num_slots else min(len(out), len(present))
        if not inside or slot + num_slots > most:
            raise ValueError("the values of a page lie outside of their array")
        places.append((data[start:end], num_present, out[slot : slot + num_slots]))
        slot += num_slots
    return places


def _spread(spans: NDArray[np.int64], present: NDArray[np.bool_], slot: int, out: NDArray[Any]) -> None:
    for _, _, num_slots, num_present in spans.tolist():
        if num_present < num_slots:
            flags = present[slot : slot + num_slots]
            if np.count_nonzero(flags) != num_present:
                raise ValueError("a page has another number of values than flags")
            spread(out[slot : slot + num_slots], flags)
        slot += num_slots


# --- batches of chunks ------------------------------------------------------------------------------------------------


class ArrowStruct(Protocol):
    """An `ArrowArray` of the C data interface, which is released with this object unless somebody moved it away."""

    @property
    def address(self) -> int:
        """Where it lies."""


#: A page that is to be compared with its CRC32, decompressed, or both: the number of its chunk; where its body begins
#: therein, how many of its bytes are not compressed, and where it ends; its CRC32, -1 where nothing is to be compared;
#: where it is to be decompressed to, None where it is not; and what that must begin with then.
PageBody = tuple[int, int, int, int, int, NDArray[np.uint8] | None, bytes]


class ChunkBatch:
    """Column chunks without nesting that are decoded together; this one declines all."""

    # First the pages in `bodies` are compared and decompressed, in this order; then `arrays` decodes all chunks but
    # those that were declined: by the batch, for something that is damaged or uncommon, or by the caller. What a chunk
    # that is declined says, and what is wrong with it, is for others to find out.

    def __init__(self, parts: Sequence[Any], described: NDArray[np.int64]) -> None:
        """Take the bytes of each chunk, and a row of `ChunkField`s for it."""
        if described.ndim != 2 or len(described) != len(parts):
            raise ValueError("there must be a row of numbers for the bytes of each chunk")
        self._count = len(parts)

    def bodies(self) -> list[PageBody]:
        """What is to be done before the values are decoded, and was not done by this; it may be called once."""
        return []

    def decline(self, chunk: int) -> None:
        """Leave a chunk out."""
        if not 0 <= chunk < self._count:
            raise IndexError(chunk)

    def arrays(self) -> list[ArrowStruct | None]:
        """The values of each chunk, None where it was declined; it may be called once."""
        return [None] * self._count
