"""Sums of pages in the OffsetIndex, where other readers pass over them, and which pages a CRC32 does not tell apart."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from resilient_pq.checksum import signed
from resilient_pq.format import compact_protocol
from resilient_pq.format.compression import codecs
from resilient_pq.format.file_metadata import CompressionCodec, OffsetIndex, PageHeader, PageLocation, PageType
from resilient_pq.format.pages.page_sums import PageSums, needs_hashes, sums_of, with_sums
from resilient_pq.format.pages.stored_pages import ends_stored
from resilient_pq.format.resilience_records import ChunkCopies

INDEXES = st.builds(
    OffsetIndex,
    st.lists(st.builds(PageLocation, st.integers(0, 2**40), st.integers(1, 2**31 - 1), st.integers(0, 2**40))),
    st.none() | st.lists(st.integers(0, 2**40)),
)
SUMS = st.builds(PageSums, st.lists(st.integers(0, 2**32 - 1)).map(tuple), st.just(False)) | st.builds(
    PageSums, st.lists(st.integers(0, 2**64 - 1)).map(tuple), st.just(True)
)


@given(INDEXES, SUMS)
def test_sums_survive_and_the_index_reads_as_without_them(index: OffsetIndex, sums: PageSums) -> None:
    encoded = with_sums(index, sums)
    assert encoded is not None
    assert PageSums.of_index(memoryview(encoded)) == sums
    assert compact_protocol.decode(OffsetIndex, encoded) == (index, len(encoded))
    plain = with_sums(index, None)
    assert plain == compact_protocol.encode(index)
    assert PageSums.of_index(memoryview(plain or b"")) is None


@given(INDEXES, SUMS)
def test_apache_thrift_passes_over_them(index: OffsetIndex, sums: PageSums) -> None:
    """In its own protocol, as every reader that is generated from parquet.thrift does."""
    encoded = with_sums(index, sums)
    protocol = TCompactProtocol(TMemoryBuffer(encoded))
    protocol.readStructBegin()
    fields = []
    while (field := protocol.readFieldBegin())[1] != TType.STOP:
        fields.append((field[2], field[1]))
        protocol.skip(field[1])
        protocol.readFieldEnd()
    assert fields[-1] == (32767, TType.STRING)
    assert protocol.trans.read(1) == b""


@given(INDEXES, SUMS, st.data())
def test_damaged_sums_are_none_or_others_but_no_error(index: OffsetIndex, sums: PageSums, data: Any) -> None:
    encoded = bytearray(with_sums(index, sums) or b"")
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    end = data.draw(st.integers(0, len(encoded)))
    for damaged in (encoded, encoded[:end]):
        found = PageSums.of_index(memoryview(bytes(damaged)))
        assert found is None or len(found) * (8 if found.are_hashes else 4) < len(damaged)


PAGES = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=200)), max_size=5)


@given(PAGES, st.sampled_from(sorted(CompressionCodec)))
def test_the_sums_of_pages_are_those_of_their_bytes(pages: list[tuple[bytes, bytes]], codec: int) -> None:
    digest, sums = sums_of(codec, pages, [zlib.crc32(b"".join(page)) for page in pages])
    of_page, whole = [b"".join(page) for page in pages], b"".join(b"".join(page) for page in pages)
    if codec == CompressionCodec.GZIP:
        assert digest == xxhash.xxh3_64_intdigest(whole)
        assert sums.values == tuple(xxhash.xxh3_64_intdigest(page) for page in of_page)
    else:
        assert digest is None
        assert sums.values == tuple(zlib.crc32(page) for page in of_page)
    assert [sums[i].computed(*page) for i, page in enumerate(pages)] == list(sums.values)


@given(st.lists(st.binary(max_size=100)))
def test_a_record_tells_the_sums_without_the_pages(bodies: list[bytes]) -> None:
    headers = [
        compact_protocol.encode(PageHeader(PageType.INDEX_PAGE, len(body), len(body), crc=signed(zlib.crc32(body))))
        for body in bodies
    ]
    copies = ChunkCopies(page_headers=b"".join(headers))
    pages = [header + body for header, body in zip(headers, bodies, strict=True)]
    assert PageSums.of_copies(copies) == PageSums(tuple(map(zlib.crc32, pages)), are_hashes=False)
    copies.page_hashes = [signed(xxhash.xxh3_64_intdigest(page), 64) for page in pages]
    expected = PageSums(tuple(map(xxhash.xxh3_64_intdigest, pages)), are_hashes=True)
    assert PageSums.of_copies(copies) == expected


# -- which pages -------------------------------------------------------------------------------------


@given(st.data(), st.integers(0, 9), st.binary(max_size=2000))
def test_a_page_that_is_not_said_to_be_stored_has_a_crc32_of_its_own(data: Any, level: int, page: bytes) -> None:
    """A byte of the data is changed, and the trailer that goes with it: the CRC32 of a member may stay as it is."""
    body = bytes(codecs.compress(CompressionCodec.GZIP, page, level))
    if not page or (at := body.rfind(page, 0, -8)) < 0:
        return
    changed = bytearray(page)
    changed[data.draw(st.integers(0, len(page) - 1))] ^= data.draw(st.integers(1, 255))
    other = body[:at] + changed + body[at + len(page) : -8] + zlib.crc32(changed).to_bytes(4, "little") + body[-4:]
    try:
        assert zlib.decompress(other, 31) == changed
    except zlib.error:  # a short page was found in the header or in the code, and is not stored there
        return
    assert ends_stored(body) or zlib.crc32(other) != zlib.crc32(body)
    assert needs_hashes(CompressionCodec.GZIP)


@pytest.mark.parametrize("size", [1, 2, 255, 256, 65535, 65536, 65537, 200_000])
def test_a_page_that_is_stored_is_said_to_be(size: int) -> None:
    page = xxhash.xxh3_64_digest(b"seed") * (size // 8 + 1)
    made = bytes(zlib.compress(page[:size], 0, 31))
    assert ends_stored(made)
    assert not ends_stored(zlib.compress(b"ab" * (size + 100), 9, 31))


@pytest.mark.parametrize("body", [b"", b"\0" * 8, b"\0" * 13, bytes(100)])
def test_what_is_no_member_is_not_stored(body: bytes) -> None:
    assert not ends_stored(body)
