"""What the body of a page tells of its column, where neither a footer nor a schema does."""

from __future__ import annotations

import struct
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.damage.page_search import FoundPage, Proof
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import DataPageHeader, Encoding, PageHeader, Repetition, SchemaElement, Type
from resilient_pq.format.pages.page import Page
from resilient_pq.format.schema_tree import Schema
from resilient_pq.recovery.carve.page_probe import ProbedPage, kinds_of, probe_body, probe_header


def probed(data: DataPageHeader, body: bytes, repetition: Repetition) -> ProbedPage:
    """A page, looked at as one of a column of 32-bit numbers."""
    elements = [
        SchemaElement(name="root", num_children=1),
        SchemaElement(name="n", type=int(Type.INT32), repetition_type=int(repetition)),
    ]
    kinds = kinds_of(Schema.from_elements(elements).leaves)
    header = PageHeader(0, len(body), len(body), data_page_header=data)
    encoded = compact_protocol.encode(header)
    known = probe_header(FoundPage(4, header, len(encoded), Proof.NEXT), kinds)
    assert list(known.rows.values()) == [data.num_values]
    return probe_body(known, Page(0, 4, header, memoryview(encoded), memoryview(body)), kinds)


@pytest.mark.parametrize(("behind", "fits"), [(0, True), (7, True), (8, True), (9, False), (100, False)])
def test_places_in_a_dictionary_have_hardly_anything_behind_them(behind: int, fits: bool) -> None:
    """Up to eight bytes, as some writers leave them: more would be levels that were taken for them."""
    body = b"\x01\x0a\x01" + bytes(behind)  # bits for each, a run of five, its value
    data = DataPageHeader(5, int(Encoding.PLAIN_DICTIONARY), 3, 3)
    assert probed(data, body, Repetition.REQUIRED).decoded is fits


FLOATS = st.floats(0.125, 2**20, width=32) | st.floats(-(2**20), -0.125, width=32) | st.sampled_from([nan, -nan])


@given(st.lists(st.integers(-(2**20), 2**20), min_size=1), st.lists(FLOATS, min_size=1))
def test_numbers_look_like_what_they_are(integers: list[int], floats: list[float]) -> None:
    for kind, numbers in (("i", integers), ("f", floats)):
        body = struct.pack(f"<{len(numbers)}{kind}", *numbers)
        known = probed(DataPageHeader(len(numbers), int(Encoding.PLAIN), 3, 3), body, Repetition.REQUIRED)
        assert known.looks_floating is (kind == "f"), numbers
        assert known.numbers is not None
        assert kind == "f" or known.numbers == (min(integers), max(integers))


@pytest.mark.parametrize(("behind", "fits"), [(b"", True), (bytes(8), True), (bytes(3), False), (b"PAR1PAR1", False)])
def test_behind_nothing_but_nulls_are_no_values(behind: bytes, fits: bool) -> None:
    """Else any number that begins with a small byte would be nulls, told by the levels of old writers."""
    data = DataPageHeader(1, int(Encoding.PLAIN), int(Encoding.BIT_PACKED), int(Encoding.BIT_PACKED))
    assert probed(data, b"\x01" + behind, Repetition.OPTIONAL).decoded is fits
