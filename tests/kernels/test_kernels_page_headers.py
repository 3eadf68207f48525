"""Tables of page headers against the full reader of Thrift: what the kernel takes, that one reads the same way."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError, FormatError, ThriftError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import (
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    PageHeader,
    PageType,
    Statistics,
)
from resilient_pq.format.kernels import reference
from resilient_pq.format.kernels.page_columns import PageField
from resilient_pq.format.pages.page import pages_of
from resilient_pq.format.pages.page_table import PageTable

COUNTS = st.sampled_from([0, 1, 7, 2**31 - 1])
ENCODINGS = st.sampled_from([0, 2, 3, 4, 8, 10])
STATISTICS = st.none() | st.builds(Statistics, max=st.binary(max_size=5), null_count=st.integers(-(2**63), 2**63 - 1))
V1 = st.builds(
    DataPageHeader,
    num_values=COUNTS,
    encoding=st.integers(-(2**31), 2**31 - 1),
    definition_level_encoding=ENCODINGS,
    repetition_level_encoding=ENCODINGS,
    statistics=STATISTICS,
)
DICTIONARY = st.builds(DictionaryPageHeader, num_values=COUNTS, encoding=ENCODINGS, is_sorted=st.none() | st.booleans())
V2 = st.builds(
    DataPageHeaderV2,
    num_values=COUNTS,
    num_nulls=COUNTS,
    num_rows=COUNTS,
    encoding=ENCODINGS,
    definition_levels_byte_length=st.sampled_from([-1, 0, 3]),
    repetition_levels_byte_length=st.sampled_from([-1, 0, 3]),
    is_compressed=st.none() | st.booleans(),
    statistics=STATISTICS,
)
KINDS: list[tuple[int, dict[str, Any]]] = [
    (PageType.DATA_PAGE, {"data_page_header": V1}),
    (PageType.DICTIONARY_PAGE, {"dictionary_page_header": DICTIONARY}),
    (PageType.DATA_PAGE_V2, {"data_page_header_v2": V2}),
    (PageType.INDEX_PAGE, {"data_page_header": V1}),
    (77, {}),
]


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    """Pages one behind the other."""
    data = b""
    for kind, details in draw(st.lists(st.sampled_from(KINDS), max_size=5)):
        body = draw(st.binary(max_size=6))
        header = PageHeader(
            int(kind),
            draw(COUNTS),
            len(body),
            crc=draw(st.none() | st.integers(-(2**31), 2**31 - 1)),
            **{name: draw(detail) for name, detail in details.items()},
        )
        data += compact_protocol.encode(header) + body
    return data


def understood(data: bytes, num_values: int | None) -> Any:
    """The table by the full reader, with where the headers and bodies lie."""
    pages = list(pages_of(memoryview(data), 0, num_values))
    table = np.array(PageTable.of(pages).rows, np.int64).reshape(-1, PageField.COUNT)
    for row, page in zip(table, pages, strict=True):
        row[PageField.HEADER] = page.offset
        row[PageField.BODY] = page.offset + len(page.header_bytes)
    return table


@given(chunks(), st.none() | st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_headers_are_read_as_by_thrift(kernels: ModuleType, data: bytes, num_values: int | None) -> None:
    found = kernels.page_headers(data, -1 if num_values is None else num_values)
    assert found.dtype == np.int64
    assert found.tolist() == understood(data, num_values).tolist()


@given(chunks(), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=3), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_what_is_taken_of_changed_bytes_agrees_with_thrift(
    native: ModuleType, outcome: Callable[..., Any], data: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    changed = bytearray(data + b"\x15\x00")
    for at, byte in changes:
        changed[at % len(changed)] = byte
    damaged = bytes(changed[: len(changed) - cut])
    expected = outcome(lambda: reference.page_headers(damaged, -1))
    assert outcome(lambda: native.page_headers(damaged, -1)) == expected
    if isinstance(expected, tuple):
        assert outcome(lambda: understood(damaged, None)) == expected


def _v1(
    *, before: bytes = b"", sizes: bytes = b"\x15\x02\x15\x02", detail: bytes = b"\x15\x02\x15\x00\x15\x06\x15\x06"
) -> bytes:
    """A header in the compact protocol by hand: type, sizes, then the header of a data page as field 5, and a body."""
    return before + b"\x15\x00" + sizes + b"\x2c" + detail + b"\x00\x00" + b"x"


def test_headers_by_hand(kernels: ModuleType) -> None:
    assert kernels.page_headers(_v1(), -1).tolist() == [[0, 17, 1, 1, 0, -1, 1, 0, 3, 3, -1, -1, 1]]
    assert kernels.page_headers(b"", -1).shape == (0, PageField.COUNT)
    assert kernels.page_headers(_v1() * 3, 2)[:, PageField.HEADER].tolist() == [0, 18]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (_v1()[:-1], EncodingError),  # a page that is cut
        (_v1()[:5], ThriftError),
        (b"\x15\x00\x15\x02\x00", ThriftError),  # without the compressed size
        (_v1(sizes=b"\x15\x01\x15\x02"), ThriftError),  # -1 bytes
        (_v1(sizes=b"\x15\x02\x15\x01"), ThriftError),
        (_v1(detail=b"\x15\x01\x15\x00\x15\x06\x15\x06"), ThriftError),  # -1 values
        (_v1(detail=b"\x15\x02\x15\x00\x15\x02\x15\x06"), ThriftError),  # levels in encoding 1
        (_v1(detail=b"\x15\x02\x15\x00\x15\x06"), ThriftError),  # without an encoding of levels
        (_v1(sizes=b"\x15\x02\x15\xff\xff\xff\xff\xff\x01"), ThriftError),  # 36 bits
        (b"\x15\x00\x15\x02\x15\x02\x00x", ThriftError),  # a data page without its header
        (b"\x15\x00\x15\x02\x15\x02\x05\x06\x02" + _v1()[6:], ThriftError),  # field 3 twice
        (b"\x05\xff\xff\x07\x02", ThriftError),  # a field number of more than 16 bits
    ],
)
def test_headers_that_are_not_taken(kernels: ModuleType, data: bytes, kind: type[FormatError]) -> None:
    for num_values in (-1, 1):
        with pytest.raises(kind):
            kernels.page_headers(data, num_values)
