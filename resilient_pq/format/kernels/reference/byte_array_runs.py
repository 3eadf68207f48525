"""Runs of data pages whose values are byte arrays: into offsets and data, or as views of the pages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels.reference.arrays import LARGEST_LENGTH, BytesLike, Offsets, octets, require_types
from resilient_pq.format.kernels.reference.byte_arrays import utf8_valid
from resilient_pq.format.kernels.reference.views import INLINE_VIEW, views_of

_LENGTH = 4


def plain_byte_arrays(
    buffer: BytesLike,
    spans: NDArray[np.int64],
    present: NDArray[np.bool_],
    slot: int,
    offsets: Offsets,
    data: NDArray[np.uint8],
    written: int,
    text: bool,
) -> tuple[int, bool]:
    """Copy the PLAIN values of a run of pages back to back, and set the offsets of its slots."""
    # `spans` and `present` as of `plain_pages`. `offsets` and `data` are of the whole chunk, of at most 2**31 - 1 bytes
    # where offsets are int32, of which `written` are taken; slots without a value are empty. Returns how many bytes are
    # taken now, and whether each value was seen to be well-formed UTF-8, which `text` asks for.
    require_types(offsets, np.int32, np.int64)
    if not 0 <= written <= data.size or (offsets.itemsize == 4 and data.size > LARGEST_LENGTH):
        raise ValueError("the values do not fit their room")
    valid = text
    _check_spans(spans, octets(buffer).size, slot, offsets.size - 1, present.size)
    for at, start, end in _values(octets(buffer).data, spans, present, slot):
        offsets[at] = written
        if end - start > data.size - written:
            raise EncodingError("BYTE_ARRAY values do not fit their room")
        value = octets(buffer)[start:end]
        data[written : written + value.size] = value
        valid = valid and utf8_valid(np.array([0, value.size]), value)
        written += value.size
        offsets[at + 1] = written
    if len(spans):
        offsets[slot + int(spans[:, 2].sum())] = written
    return written, valid


def plain_views(
    buffer: BytesLike,
    spans: NDArray[np.int64],
    present: NDArray[np.bool_],
    slot: int,
    views: NDArray[np.uint8],
    number: int,
    text: bool,
) -> tuple[bool, bool]:
    """Set the views of a run of pages to its PLAIN values, where they lie; see `plain_byte_arrays`."""
    # `views` are those of the whole chunk, rows of 16 bytes, and lead into `buffer` as the one of this `number`.
    # Returns whether any does, and whether each value was seen to be well-formed UTF-8.
    source = octets(buffer)
    if views.dtype != np.uint8 or views.shape[1:] != (16,):
        raise ValueError("a view has 16 bytes")
    _check_spans(spans, source.size, slot, len(views), present.size)
    if source.size > LARGEST_LENGTH:
        raise EncodingError("values of 2**31 bytes or more do not fit one buffer of views")
    valid, used = text, False
    one = np.empty((1, 4), np.int32)
    for at, start, end in _values(source.data, spans, present, slot):
        views_of(np.array([start, end]), source, number, one)
        if end - start > INLINE_VIEW:
            one[0, 3] = start
            used = True
        views[at] = one.view(np.uint8) if end >= start else 0
        valid = valid and utf8_valid(np.array([start, end]), source)
    return used, valid


def _check_spans(spans: NDArray[np.int64], size: int, slot: int, num_slots: int, num_flags: int) -> None:
    if slot < 0:
        raise ValueError("the values of a page lie outside of their array")
    for start, end, slots, values in spans.tolist():
        most = num_slots if values == slots else min(num_slots, num_flags)
        if not (0 <= start <= end <= size and 0 <= values <= slots <= most - slot):
            raise ValueError("the values of a page lie outside of their array")
        slot += slots


def _values(
    data: memoryview, spans: NDArray[np.int64], present: NDArray[np.bool_], slot: int
) -> Iterator[tuple[int, int, int]]:
    """For each slot its number, and where its value begins and ends; an empty one stands for none."""
    for start, end, num_slots, num_present in spans.tolist():
        position, left = start, num_present
        for at in range(slot, slot + num_slots):
            if num_present < num_slots and not present[at]:
                yield at, position, position
                continue
            size = int.from_bytes(data[position : position + _LENGTH], "little")
            if end - position < _LENGTH or size > min(LARGEST_LENGTH, end - position - _LENGTH):
                raise EncodingError("a BYTE_ARRAY value ends behind the end of its page")
            position += _LENGTH
            yield at, position, position + size
            position += size
            left -= 1
        if left:
            raise EncodingError("a page has another number of values than flags")
        slot += num_slots


def chosen_size(entries: Offsets, codes: Offsets) -> int:
    """The bytes of the values that `codes` choose of those with the offsets `entries`; no other offsets are read."""
    starts, ends = _chosen(entries, codes)
    if (ends - starts > LARGEST_LENGTH).any():
        raise EncodingError("a value has 2**31 bytes or more")
    return int((ends - starts).sum())


def copy_chosen_byte_arrays(
    entries: Offsets, values: BytesLike, codes: Offsets, data: NDArray[np.uint8], written: int
) -> int:
    """Copy the values that `codes` choose back to back, and put in the place of each code where its value ends."""
    # As `plain_byte_arrays`, it takes and returns how many bytes of `data` are `written`.
    source = octets(values)
    if not 0 <= written <= data.size or (codes.itemsize == 4 and data.size > LARGEST_LENGTH):
        raise ValueError("the values do not fit their room")
    starts, ends = _chosen(entries, codes)
    if codes.size and (ends.max() > source.size or int((ends - starts).sum()) > data.size - written):
        raise EncodingError("an offset leads out of the data, or the chosen values do not fit their room")
    for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        data[written : written + end - start] = source[start:end]
        written += end - start
        codes[at] = written
    return written


def _chosen(entries: Offsets, codes: Offsets) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    for each in (entries, codes):
        require_types(each, np.int32, np.int64)
    if codes.size and (codes.min() < 0 or codes.max() >= entries.size - 1):
        raise EncodingError("an index lies outside of its dictionary")
    starts, ends = entries[codes].astype(np.int64), entries[1:][codes].astype(np.int64)
    if ((starts < 0) | (ends < starts)).any():
        raise EncodingError("offsets fall")
    return starts, ends
