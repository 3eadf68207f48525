"""Runs of pages of byte arrays: copied back to back, viewed where they lie, or chosen from a dictionary."""

from __future__ import annotations

import struct
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels import reference

value = st.one_of(
    st.none(),
    st.sampled_from([b"", b"twelve bytes", b"thirteen byte", "é".encode(), b"\xc3", b"\xa9", b"x" * 140]),
    st.binary(max_size=40),
    st.text(max_size=10).map(str.encode),
)
pages = st.lists(st.lists(value, max_size=12), max_size=4)
offset_types = pytest.mark.parametrize("dtype", [np.int32, np.int64])


def plain(values: list[bytes | None]) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values if value is not None)


class Run:
    """Pages of values behind some slots that are filled already, as the kernels take them."""

    def __init__(self, pages: list[list[bytes | None]], slot: int = 2) -> None:
        self.values = [value for page in pages for value in page]
        self.slot = slot
        self.buffer = b"\xffbefore"
        self.present = np.zeros(slot + len(self.values), np.bool_)
        rows, at = [], slot
        for page in pages:
            start = len(self.buffer)
            self.buffer += plain(page)
            there = [value is not None for value in page]
            if not all(there):
                self.present[at : at + len(page)] = there
            rows.append([start, len(self.buffer), len(page), sum(there)])
            self.buffer += b"\xff between"
            at += len(page)
        self.spans = np.array(rows, np.int64).reshape(-1, 4)

    @property
    def is_text(self) -> bool:
        try:
            return all((value or b"").decode() is not None for value in self.values)
        except UnicodeDecodeError:
            return False


@offset_types
@settings(deadline=None, max_examples=20)
@given(pages=pages, text=st.booleans())
def test_plain_values_back_to_back(
    kernels: ModuleType, guarded: Any, *, dtype: type[Any], pages: list[list[bytes | None]], text: bool
) -> None:
    run = Run(pages)
    total = sum(len(value or b"") for value in run.values)
    with guarded(len(run.present) + 1, dtype) as offsets, guarded(3 + total, np.uint8) as data:
        offsets[: run.slot + 1] = 3
        data[:3] = 7
        written, valid = kernels.plain_byte_arrays(run.buffer, run.spans, run.present, run.slot, offsets, data, 3, text)
        assert (written, valid) == (3 + total, text and run.is_text)
        bounds = offsets[run.slot :].tolist()
        assert [data[a:b].tobytes() for a, b in pairwise(bounds)] == [value or b"" for value in run.values]
        assert data[:3].tolist() == [7, 7, 7]


@settings(deadline=None, max_examples=20)
@given(pages=pages, text=st.booleans())
def test_plain_values_viewed(kernels: ModuleType, guarded: Any, pages: list[list[bytes | None]], text: bool) -> None:
    run = Run(pages)
    with guarded((len(run.present), 16), np.uint8) as views:
        used, valid = kernels.plain_views(run.buffer, run.spans, run.present, run.slot, views, 0, text)
        found = views[run.slot :].view(np.int32)
        offsets, data = kernels.views_join(found, [run.buffer])
    assert (used, valid) == (any(len(value or b"") > 12 for value in run.values), text and run.is_text)
    assert data.tobytes() == b"".join(value or b"" for value in run.values)
    assert np.diff(offsets).tolist() == [len(value or b"") for value in run.values]


@offset_types
@settings(deadline=None, max_examples=40)
@given(
    entries=st.lists(st.binary(max_size=40), min_size=1, max_size=9),
    picks=st.lists(st.integers(0, 99), max_size=40),
    before=st.binary(max_size=3),
    of_entries=st.sampled_from([np.int32, np.int64]),
)
def test_chosen_values(
    kernels: ModuleType,
    guarded: Any,
    *,
    dtype: type[Any],
    entries: list[bytes],
    picks: list[int],
    before: bytes,
    of_entries: type[Any],
) -> None:
    bounds = np.cumsum([len(before), *map(len, entries)]).astype(of_entries)
    values = [entries[pick % len(entries)] for pick in picks]
    total = sum(map(len, values))
    with guarded(len(picks), dtype) as codes, guarded(total + 2, np.uint8) as data:
        codes[:] = [pick % len(entries) for pick in picks]
        assert kernels.chosen_size(bounds, codes) == total
        assert kernels.copy_chosen_byte_arrays(bounds, before + b"".join(entries), codes, data, 2) == total + 2
        assert codes.tolist() == (2 + np.cumsum([len(value) for value in values], dtype=np.int64)).tolist()
        assert data[2:].tobytes() == b"".join(values)


@pytest.mark.parametrize("code", [-1, 2, 2**31 - 1])
def test_codes_outside_of_the_dictionary(kernels: ModuleType, code: int) -> None:
    codes, entries = np.array([1, code], np.int32), np.array([0, 1, 2], np.int64)
    with pytest.raises(EncodingError):
        kernels.chosen_size(entries, codes)
    with pytest.raises(EncodingError):
        kernels.copy_chosen_byte_arrays(entries, b"ab", codes, np.empty(9, np.uint8), 0)


@pytest.mark.parametrize(
    ("entries", "room"), [([0, 5], 9), ([2, 1], 9), ([-1, 1], 9), ([0, 4], 3)], ids=["behind", "fall", "before", "room"]
)
def test_dictionaries_that_lead_astray(kernels: ModuleType, entries: list[int], room: int) -> None:
    with pytest.raises(EncodingError):
        kernels.copy_chosen_byte_arrays(
            np.array(entries, np.int64), b"abcd", np.zeros(1, np.int32), np.empty(room, np.uint8), 0
        )


def test_what_does_not_fit_its_room(kernels: ModuleType) -> None:
    run = Run([[b"abc", b"de"]], 0)
    offsets = np.empty(3, np.int32)
    with pytest.raises(EncodingError):
        kernels.plain_byte_arrays(run.buffer, run.spans, run.present, 0, offsets, np.empty(4, np.uint8), 0, True)
    for written in (-1, 5):
        with pytest.raises(ValueError, match="room"):
            kernels.plain_byte_arrays(
                run.buffer, run.spans, run.present, 0, offsets, np.empty(4, np.uint8), written, True
            )
    two_pages = Run([[b"abc"], [b"de"]], 0)
    with pytest.raises(ValueError, match="outside of their array"):
        kernels.plain_byte_arrays(
            two_pages.buffer, two_pages.spans, two_pages.present, 0, offsets[:2], np.empty(9, np.uint8), 0, True
        )
    for slot in (-1, 1):
        with pytest.raises(ValueError, match=r"."):
            kernels.plain_byte_arrays(run.buffer, run.spans, run.present, slot, offsets, np.empty(9, np.uint8), 0, True)


@settings(deadline=None, max_examples=50)
@given(
    buffer=st.one_of(st.binary(max_size=60), pages.map(lambda pages: Run(pages).buffer)),
    rows=st.lists(st.tuples(*[st.integers(-1, 40)] * 2, *[st.integers(-1, 6)] * 2), max_size=3),
    flags=st.lists(st.booleans(), max_size=12),
    slot=st.integers(-1, 4),
)
def test_native_answers_as_the_reference(
    native: ModuleType, outcome: Any, *, buffer: bytes, rows: list[Any], flags: list[bool], slot: int
) -> None:
    spans = np.array(rows, np.int64).reshape(-1, 4)
    present = np.array(flags, np.bool_)

    def strings(module: ModuleType) -> Any:
        offsets, data = np.zeros(12, np.int32), np.zeros(90, np.uint8)
        found = module.plain_byte_arrays(buffer, spans, present, slot, offsets, data, 0, True)
        return (*found, offsets, data)

    def views(module: ModuleType) -> Any:
        out = np.zeros((11, 16), np.uint8)
        return (*module.plain_views(buffer, spans, present, slot, out, 0, True), out)

    for made in (strings, views):
        found = [_outcome(outcome, made, module) for module in (native, reference)]
        assert found[0] == found[1]


def _outcome(outcome: Any, made: Any, module: ModuleType) -> Any:
    try:
        return outcome(lambda: made(module))
    except ValueError as error:
        return type(error)
