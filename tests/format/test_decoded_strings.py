"""Byte arrays of a chunk in every order of encodings, with offsets that grow."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError
from resilient_pq.format import logical
from resilient_pq.format.encodings.dictionary import encode_indices
from resilient_pq.format.file_metadata import Encoding, Repetition, Type
from resilient_pq.format.pages.decoded_strings import ByteArrayValues, ByteViewValues
from resilient_pq.format.pages.decoded_values import PageRun
from resilient_pq.format.physical_values import ByteArrays, ByteViews
from resilient_pq.format.schema_tree import Primitive

KNOWN = [b"", b"one", b"a value of the dictionary", "zwölf bytes".encode(), b"\xff"]
TEXT = Primitive("c", Repetition.OPTIONAL, Type.BYTE_ARRAY, None, logical.STRING)

value = st.one_of(st.none(), st.sampled_from(KNOWN[:4]))
run = st.tuples(st.sampled_from([Encoding.PLAIN, Encoding.RLE_DICTIONARY]), st.lists(value, max_size=8))


def plain(values: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def filled(kind: Any, runs: list[tuple[int, list[bytes | None]]], known: list[bytes] = KNOWN) -> Any:
    """What comes of runs of one page each, behind a dictionary page."""
    count = sum(len(values) for _, values in runs)
    decoded = kind(count)
    decoded.set_dictionary(memoryview(plain(known)), len(known))
    present = np.array([value is not None for _, values in runs for value in values], np.bool_)
    slot = 0
    for encoding, values in runs:
        there = [value for value in values if value is not None]
        if encoding == Encoding.PLAIN:
            body = plain(there)
        else:
            body = encode_indices(np.array([known.index(one) for one in there], np.int32), len(known)).tobytes()
        spans = np.array([[0, len(body), len(values), len(there)]], np.int64)
        decoded.add_run(PageRun(encoding, memoryview(body), spans, slot, present))
        slot += len(values)
    return decoded.finish(count)


def listed(found: ByteArrays | ByteViews) -> list[bytes]:
    strings = found.to_byte_arrays() if isinstance(found, ByteViews) else found
    return [strings.value(at) for at in range(len(strings))]


def byte_arrays(most_small: int = 2**31 - 1, num_bytes: int = 0) -> Any:
    return lambda count: ByteArrayValues(TEXT, count, num_bytes, most_small)


def byte_views(count: int) -> Any:
    return ByteViewValues(TEXT, count)


@settings(deadline=None, max_examples=40)
@given(
    runs=st.lists(run, max_size=6), most_small=st.sampled_from([0, 30, 1000]), num_bytes=st.sampled_from([0, 40, 10**6])
)
def test_runs_of_both_encodings(runs: list[Any], most_small: int, num_bytes: int) -> None:
    expected = [value or b"" for _, values in runs for value in values]
    strings = filled(byte_arrays(most_small, num_bytes), runs)
    assert listed(strings) == expected
    assert listed(filled(byte_views, runs)) == expected
    if sum(map(len, expected)) > most_small:
        assert strings.offsets.dtype == np.int64
    elif most_small == 1000:
        assert strings.offsets.dtype == np.int32


@pytest.mark.parametrize("kind", [byte_arrays(), byte_views], ids=["plain", "view"])
def test_what_is_known_of_text(kind: Any) -> None:
    """A wrong entry of a dictionary spoils nothing that does not have it: then the values are looked at."""
    pages = [(Encoding.RLE_DICTIONARY, KNOWN[:4]), (Encoding.PLAIN, KNOWN[:4])]
    assert filled(kind, pages, KNOWN[:4]).known_utf8
    unused = filled(kind, pages)
    assert not unused.known_utf8 and unused.is_utf8()
    for encoding in (Encoding.PLAIN, Encoding.RLE_DICTIONARY):
        wrong = filled(kind, [*pages, (encoding, [b"\xff"])])
        assert not wrong.known_utf8 and not wrong.is_utf8()
    assert filled(kind, pages[1:]).known_utf8


@pytest.mark.parametrize("kind", [byte_arrays(), byte_views], ids=["plain", "view"])
def test_a_run_that_fails_leaves_what_was_there(kind: Any) -> None:
    decoded = kind(4)
    decoded.set_dictionary(memoryview(plain(KNOWN)), len(KNOWN))
    present = np.empty(0, np.bool_)
    codes = encode_indices(np.array([2, 1], np.int32), len(KNOWN)).tobytes()
    good = PageRun(Encoding.RLE_DICTIONARY, memoryview(codes), np.array([[0, len(codes), 2, 2]]), 0, present)
    decoded.add_run(good)
    body = plain([b"more than twelve bytes", b"x"])
    for end in (len(body) - 1, 3):
        with pytest.raises(EncodingError):
            decoded.add_run(PageRun(Encoding.PLAIN, memoryview(body), np.array([[0, end, 2, 2]]), 2, present))
    decoded.add_run(PageRun(Encoding.PLAIN, memoryview(body), np.array([[0, len(body), 2, 2]]), 2, present))
    assert listed(decoded.finish(4)) == [KNOWN[2], KNOWN[1], b"more than twelve bytes", b"x"]
