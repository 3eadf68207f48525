"""Files whose parts were moved: what is put together is what was written, wherever its bytes lie."""

from __future__ import annotations

import asyncio
import io
import random
import zlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.format.pages.page import Page, pages_of
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.recovery.evidence.byte_remap import ByteRemap, RemapSegment
from resilient_pq.recovery.evidence.records.crc_seam import find_seam
from resilient_pq.recovery.evidence.records.placement import place
from resilient_pq.recovery.evidence.records.record_scan import file_spans, scan_object
from resilient_pq.recovery.evidence.records.survey import survey
from resilient_pq.units import KiB


def drive(asking: Generator[ByteRange, memoryview, Any], data: bytes) -> Any:
    try:
        wanted = next(asking)
        while True:
            assert 0 <= wanted.start < wanted.end <= len(data)
            wanted = asking.send(memoryview(data)[wanted.start : wanted.end])
    except StopIteration as stop:
        return stop.value


def placed(data: bytes, file_id: bytes | None = None, **options: Any) -> ByteRemap:
    view: ByteRemap = drive(place(len(data), drive(scan_object(len(data)), data), file_id, **options), data)
    ends = [0]
    for segment in view.segments:
        assert ends[-1] <= segment.start < segment.end <= view.size
        assert segment.start + segment.shift >= 0 and segment.end + segment.shift <= len(data)
        ends.append(segment.end)
    return view


def together(data: bytes, view: ByteRemap) -> bytes:
    return bytes(drive(view.read(ByteRange(0, view.size)), data))


@pytest.fixture(scope="module")
def file(write_file: Callable[..., Any]) -> Any:
    """About 1 MiB in five row groups; pages of up to 20 KiB, also alike ones."""
    noise = random.Random(5)
    table = pa.table(
        {
            "id": pa.array(range(5000), pa.int64()),
            "noise": pa.array([noise.randbytes(180) for _ in range(5000)], pa.binary()),
            "tags": [[i % 3] * (i % 4) for i in range(5000)],
            "alike": pa.array([7] * 5000, pa.int32()),
        }
    )
    options = rpq.WriteOptions(page_rows=100)
    return asyncio.run(write_file(table, row_group_rows=1000, compression="none", options=options))


def pages(file: Any) -> list[tuple[int, int]]:
    """Where each page lies in the file as it was written."""
    return [(page.offset, page.end) for page in _pages(file)]


def headers(file: Any) -> list[tuple[int, int]]:
    """Where the header of each page lies."""
    return [(page.offset, page.offset + len(page.header_bytes)) for page in _pages(file)]


def _pages(file: Any) -> list[Page]:
    (final,) = file.records(RecordKind.FINAL)
    metadata = compact_protocol.decode(FileMetaData, file.data, final.payload_offset)[0]
    found: list[Page] = []
    for row_group in metadata.row_groups:
        for column in row_group.columns:
            said = column.meta_data
            start = said.dictionary_page_offset or said.data_page_offset
            chunk = memoryview(file.data)[start : start + said.total_compressed_size]
            found += pages_of(chunk, start)
    return found


def parts_of(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def has_all_that_is_there(file: Any, data: bytes, order: Sequence[int], size: int) -> None:
    """Every page whose bytes are all somewhere is whole in the view, if those of its row group's record are too."""
    view = placed(data, search_pages=True)
    got = together(data, view)

    def is_there(start: int, end: int) -> bool:
        return set(order).issuperset(range(start // size, (end - 1) // size + 1))

    records = file.records(RecordKind.ROW_GROUP)
    for start, end in pages(file):
        record = next(record for record in records if record.offset >= end)
        if is_there(start, end) and is_there(record.offset, record.end):
            assert got[start:end] == file.data[start:end], (start, end, order, view)


def test_in_place(file: Any) -> None:
    assert placed(file.data) == ByteRemap.in_place(len(file.data))
    assert placed(file.data, search_pages=True) == ByteRemap.in_place(len(file.data))


def test_where_there_is_no_record_there_is_no_file() -> None:
    assert placed(b"PAR1" + bytes(1000)) == ByteRemap(0, ())
    assert placed(b"") == ByteRemap(0, ())


@pytest.mark.parametrize(
    "order",
    [
        [0, 2, 1, 3],
        [0, 1, 2, 2, 3],
        [0, 2, 3],
        [1, 2, 3],
        [3, 0, 1, 2],
        [3, 2, 1, 0],
        [0, 1, 1, 2, 0, 3],
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [256 * KiB + 512, 300_001])
def test_parts(file: Any, order: list[int], size: int) -> None:
    parts = parts_of(file.data, size)
    assert len(parts) == 4
    data = b"".join(parts[part] for part in order)
    has_all_that_is_there(file, data, order, size)
    if set(order) == {0, 1, 2, 3}:
        view = placed(data)
        assert together(data, view) == file.data
        surveyed = drive(view.through(survey(view.size)), data)
        assert surveyed.footer.header.kind == RecordKind.FINAL
        assert pq.read_table(io.BytesIO(together(data, view))).equals(file.table)


@settings(max_examples=20, deadline=None)
@given(draw=st.data())
def test_any_order_of_64_kib_parts(draw: st.DataObject, file: Any) -> None:
    """The first and the last are left in most cases, so that there is something to be put together."""
    size = 64 * KiB
    parts = parts_of(file.data, size)
    order = list(range(len(parts)))
    for _ in range(draw.draw(st.integers(1, 4))):
        at, other = (draw.draw(st.integers(0, len(order) - 1)) for _ in range(2))
        match draw.draw(st.sampled_from(["swap", "drop", "duplicate", "overwrite", "move"])):
            case "swap":
                order[at], order[other] = order[other], order[at]
            case "drop":
                del order[at]
            case "duplicate":
                order.insert(other, order[at])
            case "overwrite":
                order[at] = order[other]
            case "move":
                order.insert(other, order.pop(at))
    has_all_that_is_there(file, b"".join(parts[part] for part in order), order, size)


@pytest.mark.thorough
@settings(max_examples=400, deadline=None)
@given(draw=st.data(), size=st.sampled_from([32 * KiB, 64 * KiB, 50_001, 65 * KiB + 512]))
def test_any_order_of_parts_of_any_size(draw: st.DataObject, size: int, file: Any) -> None:
    parts = parts_of(file.data, size)
    order = draw.draw(st.lists(st.integers(0, len(parts) - 1), min_size=1, max_size=len(parts) + 4))
    has_all_that_is_there(file, b"".join(parts[part] for part in order), order, size)


def test_pieces_without_a_record_are_found_by_their_pages(write_file: Callable[..., Any]) -> None:
    noise = [random.Random(i).randbytes(1000) for i in range(600)]
    table = pa.table({"noise": pa.array(noise, pa.binary())})
    options = rpq.WriteOptions(page_rows=10)
    file = asyncio.run(write_file(table, row_group_rows=600, compression="none", options=options))
    parts = parts_of(file.data, 64 * KiB)
    parts[2], parts[5] = parts[5], parts[2]
    data = b"".join(parts)
    assert placed(data).is_in_place
    assert together(data, placed(data, search_pages=True)) == file.data


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 99, 100, 101, 4096, 65_536, 200_001, 900_000])
def test_the_head_is_gone(file: Any, cut: int) -> None:
    data = file.data[cut:]
    view = placed(data)
    assert view == ByteRemap(len(file.data), (RemapSegment(cut, len(file.data), -cut),))
    assert together(data, view)[cut:] == data
    surveyed = drive(view.through(survey(view.size)), data)
    assert surveyed.footer.header.kind == RecordKind.FINAL


@pytest.mark.parametrize("size", [1, 700, 70_001])
def test_bytes_are_inserted_at_a_page_header(file: Any, size: int) -> None:
    """Its copy tells where they begin: before it, within it, or behind it."""
    for start, body in headers(file)[7::60]:
        for cut in (start, start + 1, (start + body) // 2, body - 1, body):
            data = file.data[:cut] + random.Random(cut).randbytes(size) + file.data[cut:]
            assert together(data, placed(data)) == file.data, (start, cut)


def test_the_record_that_tells_of_a_page_lies_across_a_border_too(file: Any) -> None:
    """It is whole only where its parts are put together; then it tells where the bytes before it begin."""
    for record in file.records(RecordKind.ROW_GROUP)[1:4]:
        start, _ = [place for place in headers(file) if place[0] < record.offset][-20]
        cuts = start + 2, record.payload_offset + record.payload_size // 2
        noise = [random.Random(cut).randbytes(size) for cut, size in zip(cuts, (700, 70_001), strict=True)]
        data = b"".join([file.data[: cuts[0]], noise[0], file.data[cuts[0] : cuts[1]], noise[1], file.data[cuts[1] :]])
        assert together(data, placed(data)) == file.data, cuts


def test_within_something_else(file: Any) -> None:
    noise = random.Random(6)
    before, behind = noise.randbytes(70_001), noise.randbytes(50_000)
    view = placed(before + file.data + behind)
    assert view == ByteRemap(len(file.data), (RemapSegment(0, len(file.data), len(before)),))


def test_two_files_whose_pieces_lie_between_one_another(file: Any, write_file: Callable[..., Any]) -> None:
    table = pa.table({"other": [random.Random(i).randbytes(500) for i in range(1200)]})
    other = asyncio.run(
        write_file(table, row_group_rows=200, compression="none", options=rpq.WriteOptions(page_rows=20))
    )
    cuts = [0, 4096 * 20, 4096 * 55, 4096 * 90]
    pieces: list[bytes] = [random.Random(9).randbytes(4096 * 3)]
    for start, end in zip(cuts, [*cuts[1:], None], strict=True):
        pieces += [file.data[start:end], bytes(-len(file.data[start:end]) % 4096)]
        pieces += [other.data[start:end], bytes(-len(other.data[start:end]) % 4096)]
    data = b"".join(pieces)
    found = drive(scan_object(len(data)), data)
    assert all(span.complete for span in file_spans(found))
    for written in (file, other):
        view = placed(data, written.headers[0].file_id)
        got = together(data, view)
        assert pq.read_table(io.BytesIO(got)).equals(written.table)
        assert got == written.data


def test_files_are_listed_with_where_they_lie(file: Any, small: Any) -> None:
    data = bytes(100) + small.data + bytes(11) + file.data[50:]
    first, second = file_spans(drive(scan_object(len(data)), data))
    assert (first.file_id, first.base, first.start) == (small.headers[0].file_id, 100, 104)
    assert first.complete
    assert (second.file_id, second.base) == (file.headers[0].file_id, 100 + len(small.data) + 11 - 50)
    assert (second.end, second.complete) == (len(data), False)
    assert file_spans([]) == []


class TestPlanted:
    """A file of ours within a column of a file of ours."""

    def holding(self, inner: bytes, write_file: Callable[..., Any]) -> Any:
        noise = random.Random(8)
        rows = [noise.randbytes(3000) for _ in range(120)]
        rows[60] = inner
        return asyncio.run(
            write_file(
                pa.table({"blob": pa.array(rows, pa.binary()), "id": list(range(120))}),
                row_group_rows=40,
                compression="none",
                encodings="PLAIN",
                options=rpq.WriteOptions(page_rows=5),
            )
        )

    def test_another_file_is_not_taken_for_the_one_that_holds_it(
        self, small: Any, write_file: Callable[..., Any]
    ) -> None:
        outer = self.holding(small.data, write_file)
        parts = parts_of(outer.data, 64 * KiB)
        data = b"".join([parts[1], parts[0], *parts[2:]])
        assert together(data, placed(data, outer.headers[0].file_id)) == outer.data

    def test_an_older_version_of_the_file_itself_moves_nothing(self, write_file: Callable[..., Any]) -> None:
        outer = self.holding(bytes(3000), write_file)
        # As if a column held the beginning of the very file: same id, same records, elsewhere.
        prefix = outer.data[: 40 * KiB]
        target = next(s for s, e in pages(outer) if s > 200 * KiB and e - s > 14_000)
        data = bytearray(outer.data)
        data[target + 100 : target + 100 + 14_000] = prefix[:14_000]
        got = together(bytes(data), placed(bytes(data)))
        assert got == bytes(data)

    def test_of_what_is_destroyed_in_its_place_the_copy_is_taken(self, file: Any) -> None:
        copy = file.data[: 30 * KiB]
        data = bytes(30 * KiB) + file.data[30 * KiB :] + copy
        assert together(data, placed(data)) == file.data


class TestSeam:
    @given(st.integers(1, 3000), st.data())
    def test_any_place_is_found(self, size: int, draw: st.DataObject) -> None:
        cut = draw.draw(st.integers(1, size))
        noise = random.Random(size)
        first, second = noise.randbytes(size), noise.randbytes(size)
        whole = first[:cut] + second[cut:]
        found = find_seam(first, second, zlib.crc32(whole), 17, (3, 8))
        if cut == size:
            assert found in (None, size)
        else:
            assert found == cut

    def test_multiples_of_a_sector_in_large_pages(self) -> None:
        noise = random.Random(1)
        first, second = noise.randbytes(3 << 20), noise.randbytes(3 << 20)
        cut = 512 * 1000 - 100
        whole = first[:cut] + second[cut:]
        assert find_seam(first, second, zlib.crc32(whole), 100, (512, 1024)) == cut

    def test_where_there_is_none(self) -> None:
        noise = random.Random(2)
        assert find_seam(noise.randbytes(5000), noise.randbytes(5000), 1, 0, (0, 1)) is None
        assert find_seam(noise.randbytes(5000), noise.randbytes(5000), 1, 0, (0, 512)) is None
