"""Row groups that only the records of their chunks tell of: where their chunks and pages lie, and what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import FileMetaData, PageType
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.pages.page import pages_of
from resilient_pq.format.resilience_records import CHUNK_RECORD_SIZE, RecordKind
from resilient_pq.format.schema_tree import Schema
from resilient_pq.reader.decoder import decode
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup, Method
from resilient_pq.recovery.evidence.records.chunk_records import find_row_groups
from resilient_pq.recovery.evidence.records.record_scan import in_place, scan_headers

ROWS = 400
GROUP = 100
TELLS_ITS_PLACE = 40  # bytes of a record: magic, kind, file id, offset


@pytest.fixture(scope="module", params=["1.0", "2.0"], ids=["v1", "v2"])
def file(request: Any, write_file: Callable[..., Any]) -> Any:
    """Four row groups: numbers, strings of a dictionary, lists; several pages in each chunk."""
    table = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "name": [None if i % 7 == 0 else f"name {i % 30}" for i in range(ROWS)],
            "tags": [list(range(i % 4)) for i in range(ROWS)],
            "noise": pa.array([(i * 2654435761 % 2**32).to_bytes(9, "little") for i in range(ROWS)], pa.binary()),
        }
    )
    options = rpq.WriteOptions(page_rows=30, data_page_version=request.param, bloom_filter_options=["noise"])
    return asyncio.run(write_file(table, row_group_rows=GROUP, options=options))


class Found:
    """What `find_row_groups` gave for some bytes, and how many it asked for."""

    def __init__(self, data: bytes, known: Collection[int] = ()) -> None:
        self.data = data
        self.num_bytes = 0
        headers = in_place(scan_headers(data, 0))
        asking = find_row_groups(len(data), schema_of(data), headers, known)
        try:
            wanted = next(asking)
            while True:
                assert 0 <= wanted.start < wanted.end <= len(data)
                self.num_bytes += wanted.size
                wanted = asking.send(memoryview(data)[wanted.start : wanted.end])
        except StopIteration as stop:
            self.groups: tuple[LocatedRowGroup, ...] = stop.value

    def group(self, ordinal: int) -> LocatedRowGroup:
        (found,) = (group for group in self.groups if group.ordinal == ordinal)
        return found


def schema_of(data: bytes) -> Schema:
    """That of the anchor, which no test here damages."""
    anchor = next(header for header in in_place(scan_headers(data, 0)) if header.kind == RecordKind.ANCHOR)
    return Schema.from_elements(compact_protocol.decode(FileMetaData, data, anchor.payload_offset)[0].schema)


def written(file: Any) -> FileMetaData:
    (final,) = file.records(RecordKind.FINAL)
    metadata: FileMetaData = compact_protocol.decode(FileMetaData, file.data, final.payload_offset)[0]
    return metadata


def chunk_records(file: Any, ordinal: int) -> list[Any]:
    return [header for header in file.records(RecordKind.CHUNK) if header.num_row_groups == ordinal]


def place_of(metadata: Any) -> ByteRange:
    start = metadata.dictionary_page_offset or metadata.data_page_offset
    return ByteRange(start, start + metadata.total_compressed_size)


def is_as_written(found: LocatedRowGroup, file: Any, data: bytes, columns: Collection[int] = range(4)) -> None:
    """Chunks are where the footer of the whole file has them, with the same metadata, and decode to the same."""
    row_group = written(file).row_groups[found.ordinal]
    for column in columns:
        chunk, expected = found.chunks[column], row_group.columns[column].meta_data
        assert chunk is not None and expected is not None
        said = chunk.read.metadata
        assert chunk.read.range == place_of(expected)
        for name in (
            "type", "path_in_schema", "codec", "num_values", "total_uncompressed_size", "total_compressed_size",
            "data_page_offset", "dictionary_page_offset", "encodings",
        ):  # fmt: skip
            assert getattr(said, name) == getattr(expected, name), name
        place = chunk.read.range
        values = decode(chunk.read, memoryview(data)[place.start : place.end], verify=True)
        assert values.num_rows == row_group.num_rows
        assert ChunkSums.of(said) is None


def test_a_row_group_in_flight(file: Any) -> None:
    record = file.records(RecordKind.ROW_GROUP)[3]
    found = Found(file.data[: record.offset + 10], {0, 1, 2})
    (group,) = found.groups
    assert (group.ordinal, group.num_rows, group.rows_before) == (3, GROUP, 3 * GROUP)
    assert group.method is Method.CHUNK_RECORDS
    assert group.start == chunk_records(file, 3)[0].offset
    is_as_written(group, file, found.data, [0, 1, 2])


def test_a_row_group_whose_record_is_damaged(file: Any) -> None:
    record = file.records(RecordKind.ROW_GROUP)[1]
    found = Found(file.zeroed((record.payload_offset, record.end)), {0, 2, 3})
    (group,) = found.groups
    assert (group.num_rows, group.rows_before, group.end) == (GROUP, GROUP, record.end)
    is_as_written(group, file, found.data)
    for chunk in group.chunks:
        assert chunk is not None and chunk.pages is not None and chunk.pages.complete


def test_row_groups_of_a_file_without_any_other_record(file: Any) -> None:
    places = [
        (h.offset, h.end)
        for h in file.headers
        if h.kind in (RecordKind.ROW_GROUP, RecordKind.CHECKPOINT, RecordKind.FINAL)
    ]
    found = Found(file.zeroed(*places))
    assert [group.ordinal for group in found.groups] == [0, 1, 2, 3]
    for group in found.groups:
        # The next chunk record counts the rows before it; behind the last there is none, but a chunk that is complete.
        assert group.num_rows == GROUP
        is_as_written(group, file, found.data, [0, 1, 2])


def test_pages_begin_with_the_rows_that_they_begin_with(file: Any) -> None:
    found = Found(file.data)
    for chunk in found.group(2).chunks[:2]:
        assert chunk is not None and chunk.pages is not None
        place = chunk.read.range
        pages = list(pages_of(memoryview(file.data)[place.start : place.end], place.start))
        assert [(known.offset, known.end) for known in chunk.pages.pages] == [(page.offset, page.end) for page in pages]
        data_pages = [page for page in pages if page.header.type != PageType.DICTIONARY_PAGE]
        starts = [0]
        for page in data_pages[:-1]:
            starts.append(starts[-1] + page.num_values)
        assert [known.first_row for known in chunk.pages.pages if known.first_row is not None] == starts


def test_of_nested_columns_v2_alone_tells_rows(file: Any) -> None:
    (group,) = Found(file.data, {0, 2, 3}).groups
    chunk = group.chunks[2]
    assert chunk is not None and chunk.pages is not None
    firsts = [page.first_row for page in chunk.pages.pages if page.first_row is not None]
    data_page = pages_of(memoryview(file.data)[chunk.pages.pages[-1].offset :], 0)
    is_v2 = next(data_page).header.type == PageType.DATA_PAGE_V2
    assert firsts == ([0, 25, 50, 75] if is_v2 else [])


def test_it_is_not_asked_for_what_is_known(file: Any) -> None:
    assert Found(file.data, {0, 1, 2, 3}).groups == ()
    assert Found(file.data, {0, 1, 2, 3}).num_bytes == 0


def test_cut_at_any_byte_whole_chunks_are_complete_and_pages_are_found(file: Any) -> None:
    first = chunk_records(file, 3)[0]
    end = file.records(RecordKind.ROW_GROUP)[3].offset
    expected = written(file).row_groups[3].columns
    for cut in range(first.offset + 1, end, 41):
        found = Found(file.data[:cut], {0, 1, 2})
        whole = [
            column
            for column, chunk in enumerate(expected)
            # The record behind it says that it is complete, with the file id and its offset though it be cut.
            if place_of(chunk.meta_data).end + TELLS_ITS_PLACE <= cut
        ]
        if found.groups:
            group = found.group(3)
            is_as_written(group, file, found.data, whole)
            assert group.num_rows == (GROUP if whole else None)
        else:
            assert not whole
        for column, chunk in enumerate(expected):
            place = place_of(chunk.meta_data)
            pages = pages_of(memoryview(file.data)[place.start : place.end], place.start)
            there = [(page.offset, page.end) for page in pages if page.end <= cut]
            if there:
                known = group.chunks[column]
                assert known is not None and known.pages is not None
                assert [(page.offset, page.end) for page in known.pages.pages] == there


@pytest.mark.parametrize("column", [0, 1, 2, 3])
def test_a_chunk_record_with_a_damaged_payload(file: Any, column: int) -> None:
    record = chunk_records(file, 1)[column]
    found = Found(file.zeroed((record.payload_offset, record.end)), {0, 2, 3})
    is_as_written(found.group(1), file, found.data)


@pytest.mark.parametrize("column", [0, 1, 2, 3])
def test_a_chunk_record_that_is_destroyed(file: Any, column: int) -> None:
    record = chunk_records(file, 1)[column]
    found = Found(file.zeroed((record.offset, record.end)), {0, 2, 3})
    is_as_written(found.group(1), file, found.data)


def test_a_chunk_record_that_is_damaged_in_the_last_row_group(file: Any) -> None:
    record, end = chunk_records(file, 3)[2], file.records(RecordKind.ROW_GROUP)[3].offset
    following = chunk_records(file, 3)[3]
    found = Found(file.zeroed((record.offset, record.offset + 4))[: following.offset - 1], {0, 1, 2})
    is_as_written(found.group(3), file, found.data, [0, 1])
    assert found.group(3).chunks[2] is not None
    # Nothing is left of it and nothing says that one was there: pages behind it may be any column's.
    found = Found(file.zeroed((record.offset, record.end))[: following.offset - 1], {0, 1, 2})
    assert found.group(3).chunks[2] is None
    assert following.offset < end


@pytest.mark.parametrize("destroyed", [8, 40, 60, 80])
def test_what_is_left_of_the_last_record_tells_of_it(write_file: Callable[..., Any], destroyed: int) -> None:
    """Nothing follows that says that one is missing: what it must have been is held against what is left."""
    table = pa.table({name: pa.array(range(ROWS), pa.int64()) for name in "abc"})
    options = rpq.WriteOptions(page_rows=30)
    file = asyncio.run(write_file(table, row_group_rows=GROUP, compression="none", options=options))
    _, record, following = chunk_records(file, 3)
    found = Found(file.zeroed((record.offset, record.offset + destroyed))[: following.offset - 1], {0, 1, 2})
    is_as_written(found.group(3), file, found.data, [0])
    assert found.group(3).chunks[1] is not None


@pytest.mark.parametrize("bit", [None, 0, 33, 70])
def test_what_is_left_of_records_tells_that_row_groups_were_exchanged(file: Any, bit: int | None) -> None:
    """The header of each chunk record is gone, and its payload, in which a bit may be wrong, names another chunk."""
    records = [record for ordinal in (1, 2) for record in chunk_records(file, ordinal)]
    gone = [(record.offset, record.payload_offset) for record in records]
    gone += [(record.offset, record.end) for record in file.records(RecordKind.ROW_GROUP)[1:3]]
    data = bytearray(file.zeroed(*gone))
    for record in records if bit is not None else ():
        data[record.payload_offset + (bit or 0) // 8] ^= 1 << (bit or 0) % 8
    for exchanged in (False, True):
        first, second, third = (chunk_records(file, ordinal)[0].offset for ordinal in (1, 2, 3))
        first, second = first + CHUNK_RECORD_SIZE, second + CHUNK_RECORD_SIZE
        order = [data[:first], data[second:third], data[first:second], data[third:]]
        found = Found(bytes(b"".join(order) if exchanged else data), {0, 3})
        chunks = [chunk for group in found.groups for chunk in group.chunks if chunk is not None]
        proven = [chunk for chunk in chunks if chunk.pages is None or not chunk.pages.unproven]
        assert bool(proven) is not exchanged


def test_a_page_header_that_is_destroyed(file: Any) -> None:
    expected = place_of(written(file).row_groups[1].columns[0].meta_data)
    pages = list(pages_of(memoryview(file.data)[expected.start : expected.end], expected.start))
    page = pages[2]
    found = Found(file.zeroed((page.offset, page.offset + len(page.header_bytes))), {0, 2, 3})
    chunk = found.group(1).chunks[0]
    assert chunk is not None and chunk.pages is not None
    assert chunk.read.range == expected
    assert [known.offset for known in chunk.pages.pages] == [other.offset for other in pages[:2]]
    assert not chunk.pages.complete
    assert found.group(1).num_rows == GROUP
    is_as_written(found.group(1), file, found.data, [1, 2, 3])


def test_no_more_is_read_than_the_headers_of_pages(write_file: Callable[..., Any]) -> None:
    noise = [(i * 7919 % 2**32).to_bytes(4, "little") * 25_000 for i in range(60)]
    table = pa.table({"noise": pa.array(noise, pa.binary()), "id": list(range(60))})
    large = asyncio.run(write_file(table, row_group_rows=60, compression="none"))
    (record,) = large.records(RecordKind.ROW_GROUP)
    found = Found(large.data[: record.offset])
    assert found.group(0).num_rows == 60
    assert record.offset > 6_000_000
    assert found.num_bytes < 400_000


@settings(max_examples=60)
@given(damage=st.data())
def test_no_page_is_ever_taken_for_one_of_another_chunk(damage: st.DataObject, file: Any) -> None:
    """Zeros anywhere in two row groups: what is listed as a page is one of that column, or its header is damaged."""
    start, end = chunk_records(file, 1)[0].offset, file.records(RecordKind.ROW_GROUP)[2].offset
    zeros = []
    for _ in range(damage.draw(st.integers(1, 3))):
        at = damage.draw(st.integers(start, end - 1))
        zeros.append((at, min(at + damage.draw(st.sampled_from([1, 8, 120, 512])), end)))
    found = Found(file.zeroed(*zeros)[: damage.draw(st.integers(start + 200, end))], {0})
    for group in found.groups:
        assert group.num_rows in (GROUP, None)
        for column, chunk in enumerate(group.chunks):
            if chunk is None:
                continue
            place = place_of(written(file).row_groups[group.ordinal].columns[column].meta_data)
            assert chunk.read.range.start == place.start
            # A range that goes beyond its chunk reaches into no page of another.
            assert chunk.read.range.end <= place.end + 1 or column == 3
            for page in chunk.pages.pages if chunk.pages else ():
                assert place.start <= page.offset and page.end <= place.end
