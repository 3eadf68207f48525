"""Runs of pages against pages taken one by one and value by value."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels import reference
from resilient_pq.format.kernels.page_columns import PagePart, PageSpan

#: The greatest definition level, the greatest repetition level, and that from which on an entry takes a slot.
MAXIMA = [(0, 0, 0), (1, 0, 0), (3, 0, 0), (2, 1, 2), (5, 2, 3)]


def _prefixed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def _page(maxima: tuple[int, int, int], definition: Any, repetition: Any, *, version: int) -> tuple[bytes, int, int]:
    """The levels of a page and, for version 2, their sizes."""
    parts = []
    for levels, maximum in ((repetition, maxima[1]), (definition, maxima[0])):
        encoded = reference.rle_encode(np.array(levels, np.uint8), maximum.bit_length()).tobytes() if maximum else b""
        parts.append(_prefixed(encoded) if version == 1 and maximum else encoded)
    sizes = (-1, -1) if version == 1 else (len(parts[0]), len(parts[1]))
    return b"".join(parts), *sizes


def _run(
    maxima: tuple[int, int, int], pages: list[list[tuple[int, int]]], versions: list[int], values: list[bytes]
) -> tuple[bytes, NDArray[np.int64]]:
    """Pages in a buffer with something between them, and the table of their parts."""
    buffer, rows = b"??", []
    for entries, version, body in zip(pages, versions, values, strict=True):
        definition, repetition = ([e[i] for e in entries] for i in (0, 1))
        levels, first, second = _page(maxima, definition, repetition, version=version)
        start = len(buffer)
        buffer += levels + body
        rows.append([start, len(buffer), len(entries), first, second])
        buffer += b"?"
    return buffer, np.array(rows, np.int64).reshape(len(rows), PagePart.COUNT)


@st.composite
def runs(draw: st.DrawFn) -> Any:
    maxima = draw(st.sampled_from(MAXIMA))
    definition = st.integers(0, maxima[0]) if draw(st.booleans()) else st.just(maxima[0])
    entry = st.tuples(definition, st.integers(0, maxima[1]))
    pages = draw(st.lists(st.lists(entry, max_size=40), max_size=4))
    versions = draw(st.lists(st.sampled_from([1, 2]), min_size=len(pages), max_size=len(pages)))
    return maxima, pages, versions


def _levels_of(kernels: ModuleType, maxima: Any, buffer: bytes, table: Any, *, keep: bool, slot: int) -> Any:
    count = int(table[:, PagePart.NUM_VALUES].sum())
    definition = np.full(count, 99, np.uint8) if keep else None
    repetition = np.full(count, 99, np.uint8) if maxima[1] else None
    present = np.zeros(slot + count if maxima[0] else 0, np.bool_)
    spans, flagged, behind = kernels.page_levels(buffer, table, maxima, definition, repetition, present, 0, slot)
    assert behind == slot + spans[:, PageSpan.NUM_SLOTS].sum()
    present[flagged:] = True
    return spans, flagged, definition, repetition, present


@given(runs(), st.booleans(), st.integers(0, 2))
@settings(max_examples=80, deadline=None)
def test_levels_of_a_run(kernels: ModuleType, run: Any, keep: bool, slot: int) -> None:
    maxima, pages, versions = run
    bodies = [b"values"] * len(pages)
    buffer, table = _run(maxima, pages, versions, bodies)
    keep = keep and maxima[0] > 0
    spans, flagged, definition, repetition, present = _levels_of(kernels, maxima, buffer, table, keep=keep, slot=slot)
    flags = [[d == maxima[0] for d, _ in page if d >= maxima[2]] for page in pages]
    for span, page_flags in zip(spans.tolist(), flags, strict=True):
        assert buffer[span[PageSpan.START] : span[PageSpan.END]] == b"values"
        assert span[PageSpan.NUM_SLOTS :] == [len(page_flags), sum(page_flags)]
    joined = [flag for page in flags for flag in page]
    if maxima[0]:
        assert present[: slot + len(joined)].tolist() == [True] * slot + joined
    assert (flagged > 0) == (not all(joined))
    if keep:
        assert definition.tolist() == [d for page in pages for d, _ in page]
    if maxima[1]:
        assert repetition.tolist() == [r for page in pages for _, r in page]


def _changed(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    return bytes(changed)


CHANGES = st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3)


@given(runs(), CHANGES, st.booleans())
@settings(max_examples=100, deadline=None)
def test_levels_of_changed_bytes_agree(
    native: ModuleType, outcome: Callable[..., Any], run: Any, changes: list[tuple[int, int]], keep: bool
) -> None:
    maxima, pages, versions = run
    buffer, table = _run(maxima, pages, versions, [b"v"] * len(pages))
    damaged = _changed(buffer, changes)
    keep = keep and maxima[0] > 0

    def levels(kernels: ModuleType) -> Any:
        spans, flagged, definition, repetition, present = _levels_of(kernels, maxima, damaged, table, keep=keep, slot=0)
        return spans, flagged, definition, repetition, present[: int(spans[:, PageSpan.NUM_SLOTS].sum())]

    assert outcome(lambda: levels(native)) == outcome(lambda: levels(reference))


def test_levels_out_of_their_room(kernels: ModuleType) -> None:
    buffer, table = _run((1, 0, 0), [[(0, 0), (1, 0)]], [1], [b""])
    for present, definition, slot in ((1, None, 0), (2, None, 1), (2, np.zeros(1, np.uint8), 0)):
        with pytest.raises(ValueError, match="not enough room"):
            kernels.page_levels(buffer, table, (1, 0, 0), definition, None, np.zeros(present, np.bool_), 0, slot)
    for column, number in ((PagePart.END, 99), (PagePart.START, -1), (PagePart.START, 60), (PagePart.NUM_VALUES, -1)):
        wrong = table.copy()
        wrong[0, column] = number
        with pytest.raises(ValueError, match="outside of its buffer"):
            kernels.page_levels(buffer, wrong, (1, 0, 0), None, None, np.zeros(9, np.bool_), 0, 0)


def test_levels_that_go_wrong(kernels: ModuleType) -> None:
    for levels in (b"", b"\x09\0\0\0\x04\x01", b"\x02\0\0\0\x02\x01", b"\x02\0\0\0\x04\x02"):
        table = np.array([[0, len(levels), 2, -1, -1]], np.int64)
        with pytest.raises(EncodingError):
            kernels.page_levels(levels, table, (1, 0, 0), None, None, np.zeros(2, np.bool_), 0, 0)
    levels = b"\x04\x03"  # two threes where two is the greatest
    table = np.array([[0, 2, 2, 0, 2]], np.int64)
    with pytest.raises(EncodingError):
        kernels.page_levels(levels, table, (2, 0, 0), None, None, np.zeros(2, np.bool_), 0, 0)


# --- values -------------------------------------------------------------------------------------------------

SHAPES: list[tuple[str, int | None]] = [
    ("?", None), ("u1", None), ("<i2", None), ("<i4", None), ("<f8", None), ("u1", 0), ("u1", 3), ("u1", 12),
    ("u1", 5), ("u1", 16), ("u1", 17),
]  # fmt: skip


def _array(shape: tuple[str, int | None], count: int, seed: int) -> NDArray[Any]:
    kind, width = shape
    dtype = np.dtype(kind)
    rows = count if width is None else (count, width)
    if dtype == np.bool_:
        return np.random.default_rng(seed).integers(0, 2, count).astype(np.bool_)
    size = int(np.prod(rows)) * dtype.itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(size), dtype).reshape(rows)


@st.composite
def filled(draw: st.DrawFn) -> tuple[tuple[str, int | None], list[list[bool]], int, int]:
    flags = st.lists(st.booleans(), max_size=60) | st.integers(0, 3000).map(lambda count: [True] * count)
    pages = draw(st.lists(flags, max_size=3))
    return draw(st.sampled_from(SHAPES)), pages, draw(st.integers(0, 3)), draw(st.integers(0, 99))


def _expected(values: NDArray[Any], flags: list[bool]) -> NDArray[Any]:
    out = np.zeros((len(flags), *values.shape[1:]), values.dtype)
    out[np.array(flags, np.bool_)] = values
    return out


def _spans(pages: list[list[bool]], bodies: list[bytes]) -> tuple[bytes, NDArray[np.int64]]:
    buffer, rows = b"?", []
    for flags, body in zip(pages, bodies, strict=True):
        rows.append([len(buffer), len(buffer) + len(body), len(flags), sum(flags)])
        buffer += body + b"??"
    return buffer, np.array(rows, np.int64).reshape(len(rows), PageSpan.COUNT)


def _flags(pages: list[list[bool]], slot: int) -> NDArray[np.bool_]:
    return np.array([True] * slot + [flag for page in pages for flag in page], np.bool_)


@given(filled())
@settings(max_examples=80, deadline=None)
def test_plain_pages(kernels: ModuleType, guarded: Any, case: Any) -> None:
    shape, pages, slot, seed = case
    every = [_array(shape, sum(flags), seed + i) for i, flags in enumerate(pages)]
    bodies = [
        (np.packbits(values, bitorder="little") if values.dtype == np.bool_ else values).tobytes() for values in every
    ]
    buffer, spans = _spans(pages, bodies)
    present = _flags(pages, slot)
    like = _array(shape, len(present), 0)
    with guarded(like.shape, like.dtype) as out:
        kernels.plain_pages(buffer, spans, present, slot, out)
        at = slot
        for values, flags in zip(every, pages, strict=True):
            assert out[at : at + len(flags)].tobytes() == _expected(values, flags).tobytes()
            at += len(flags)
    if any(map(len, bodies)):
        last = max(i for i, body in enumerate(bodies) if body)
        spans[last, PageSpan.END] -= 1
        with pytest.raises(EncodingError):
            kernels.plain_pages(buffer, spans, present, slot, np.empty_like(like))


@given(filled(), st.integers(1, 5000), st.integers(0, 3), st.booleans())
@settings(max_examples=100, deadline=None)
def test_dictionary_pages(
    kernels: ModuleType, guarded: Any, case: Any, num_known: int, wider: int, alike: bool
) -> None:
    shape, pages, slot, seed = case
    known = _array(shape, num_known, seed)
    width = min((num_known - 1).bit_length() + wider, 32)
    rng = np.random.default_rng(seed)
    chosen = [rng.integers(0, 1 if alike else num_known, sum(flags)).astype(np.int32) for flags in pages]
    bodies = [bytes([width]) + reference.rle_encode(indices, width).tobytes() for indices in chosen]
    buffer, spans = _spans(pages, bodies)
    present = _flags(pages, slot)
    like = _array(shape, len(present), 0)
    with guarded(like.shape, like.dtype) as out:
        kernels.dictionary_pages(buffer, spans, present, slot, known, out)
        at = slot
        for indices, flags in zip(chosen, pages, strict=True):
            assert out[at : at + len(flags)].tobytes() == _expected(known[indices], flags).tobytes()
            at += len(flags)


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=3), st.integers(0, 300), st.integers(0, 60), st.integers(0, 34),
    st.sampled_from(SHAPES),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_any_bytes_agree(
    native: ModuleType, outcome: Callable[..., Any], bodies: list[bytes], num_known: int, count: int, width: int,
    shape: tuple[str, int | None],
) -> None:  # fmt: skip
    pages = [[True] * count for _ in bodies]
    buffer, spans = _spans(pages, [bytes([width]) + body for body in bodies])
    known = _array(shape, num_known, 0)

    def fill(kernel: Callable[..., None], *arguments: Any) -> NDArray[Any]:
        out = np.array(_array(shape, count * len(bodies), 1))
        kernel(buffer, spans, np.empty(0, np.bool_), 0, *arguments, out)
        return out

    found = outcome(lambda: fill(native.dictionary_pages, known))
    assert found == outcome(lambda: fill(reference.dictionary_pages, known))
    assert outcome(lambda: fill(native.plain_pages)) == outcome(lambda: fill(reference.plain_pages))


def test_indices_outside_of_the_dictionary(kernels: ModuleType) -> None:
    known, out = np.arange(3, dtype=np.int32), np.empty(8, np.int32)
    flags = np.empty(0, np.bool_)
    for body in (
        b"\x02\x03\xff\xff",
        b"\x02\x10\x03",
        b"\x08\x10\x03",
        b"\x20\x10\xff\xff\xff\xff",
        b"\x21\x10\x00",
        b"\x02\x00\x01\x10\x01",  # runs of no values, and one of eight
        b"\x02\x01\x10\x01",
        b"",
    ):
        spans = np.array([[0, len(body), 8, 8]], np.int64)
        with pytest.raises(EncodingError):
            kernels.dictionary_pages(body, spans, flags, 0, known, out)
    with pytest.raises(EncodingError):
        kernels.dictionary_pages(b"\x00", np.array([[0, 1, 8, 8]], np.int64), flags, 0, known[:0], out)
    kernels.dictionary_pages(b"\x00", np.array([[0, 1, 8, 8]], np.int64), flags, 0, known[2:], out)
    assert out.tolist() == [2] * 8


def test_values_out_of_their_room(kernels: ModuleType) -> None:
    out, flags = np.empty(2, np.int32), np.array([True, False])
    for span in ([0, 9, 1, 1], [-1, 4, 1, 1], [5, 4, 1, 1], [0, 8, 3, 2], [0, 4, 1, 2], [0, 8, 3, 3], [0, 8, 2, -1]):
        for kernel, known in ((kernels.plain_pages, ()), (kernels.dictionary_pages, (out.copy(),))):
            with pytest.raises(ValueError, match="outside of their array"):
                kernel(bytes(8), np.array([span], np.int64), flags, 0, *known, out)
    with pytest.raises(ValueError, match="another number of values than flags"):
        kernels.plain_pages(bytes(8), np.array([[0, 8, 2, 0]], np.int64), flags, 0, out)
    with pytest.raises(ValueError, match="type of the output"):
        kernels.dictionary_pages(bytes(8), np.empty((0, 4), np.int64), flags, 0, np.empty(2, np.int64), out)
