"""The survey: what it finds, and how little it has to read for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from footers_of_others import with_footer

from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.format.footer import FILE_ID_KEY, STATE_KEY
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordKind
from resilient_pq.recovery.evidence.records.recorded_metadata import parse_row_group
from resilient_pq.recovery.evidence.records.survey import survey
from resilient_pq.units import KiB


def found_rows(surveyed: Any) -> int:
    result = surveyed.result
    named = sum(row_group.num_rows for row_group in result.footer.metadata.row_groups)
    return named + sum(found.row_group.num_rows for found in result.row_groups.values())


def test_of_a_whole_file_it_takes_the_final_footer(small: Any, drive: Any) -> None:
    surveyed = drive(small.data)
    assert surveyed.result.footer.header.kind == RecordKind.FINAL and surveyed.result.has_final
    assert surveyed.result.row_groups == {}
    assert not surveyed.result.scanned
    assert found_rows(surveyed) == 50


def test_of_a_cut_file_it_takes_the_newest_checkpoint_and_the_row_groups_behind_it(small: Any, drive: Any) -> None:
    (final,) = small.records(RecordKind.FINAL)
    surveyed = drive(small.data[: final.offset])
    result = surveyed.result
    assert result.footer.header == small.records(RecordKind.CHECKPOINT)[-1] and not result.has_final
    assert sorted(result.row_groups) == [4]
    assert result.row_groups[4].rows_before == 40
    assert result.last == small.records(RecordKind.ROW_GROUP)[-1]
    assert not result.scanned


def test_the_records_of_row_groups_say_what_the_footer_says(small: Any, drive: Any) -> None:
    footer = drive(small.data).result.footer.metadata.row_groups
    headers = small.records(RecordKind.ROW_GROUP)
    found = [parse_row_group(each, memoryview(small.data)[each.offset + HEADER_SIZE : each.end]) for each in headers]
    for recorded, stated in zip(found, footer, strict=True):
        for chunk, other in zip(recorded.row_group.columns, stated.columns, strict=True):
            # The footer has the checksums of indexes, too, which are written behind all row groups.
            (sums, *rest), (all_sums, *others) = chunk.meta_data.key_value_metadata, other.meta_data.key_value_metadata
            assert (sums.key, rest) == (all_sums.key, others)
            assert sums.value.partition(":")[0] == all_sums.value.partition(":")[0]
            assert replace(chunk.meta_data, key_value_metadata=None) == replace(
                other.meta_data, key_value_metadata=None
            )
    assert [(each.ordinal, each.rows_before) for each in found] == [(i, 10 * i) for i in range(5)]


def test_row_groups_behind_records_of_another_file_lead_to_none_of_its_footers(small: Any, drive: Any) -> None:
    (anchor,), (final,) = small.records(RecordKind.ANCHOR), small.records(RecordKind.FINAL)
    data = bytearray(small.data[: final.offset])
    for header in (*small.records(RecordKind.CHUNK), *small.records(RecordKind.CHECKPOINT)):
        data[header.offset : header.offset + HEADER_SIZE] = replace(header, file_id=bytes(16)).pack()
    assert drive(bytes(data)).result.footer.header == anchor


def test_of_the_anchor_alone_it_takes_the_schema(small: Any, drive: Any) -> None:
    (anchor,) = small.records(RecordKind.ANCHOR)
    result = drive(small.data[: anchor.end]).result
    assert result.footer.header == anchor
    assert result.last == anchor
    assert found_rows(drive(small.data[: anchor.end + 10])) == 0


@pytest.mark.parametrize("data", [b"", b"PAR1", b"\0" * 1000, b"PAR1" + b"\xff" * 500])
def test_where_there_is_nothing_it_finds_nothing(data: bytes, drive: Any) -> None:
    surveyed = drive(data)
    assert (surveyed.result.footer, surveyed.result.file_id) == (None, None)


def test_an_empty_object_is_asked_for_nothing() -> None:
    with pytest.raises(StopIteration):
        next(survey(0))


class TestBytesRead:
    """Of files whose row groups are larger than the window that is looked through for records."""

    def test_no_data_where_the_chain_is_whole(self, large: Any, drive: Any) -> None:
        (final,) = large.records(RecordKind.FINAL)
        surveyed = drive(large.data[: final.offset + 40])
        assert found_rows(surveyed) == 64
        assert not surveyed.result.scanned
        # The last window, and records; data only where it lies in that window.
        assert surveyed.num_bytes < 256 * KiB + 64 * KiB
        assert len(large.data) > 9_000 * KiB
        beyond = [place for place in surveyed.asked if place.start < final.offset - 300 * KiB]
        assert sum(place.size for place in beyond) < 16 * KiB

    def test_back_to_the_last_record_where_a_row_group_is_torn(self, large: Any, drive: Any) -> None:
        torn = large.records(RecordKind.ROW_GROUP)[-1]
        before = large.records(RecordKind.ROW_GROUP)[-2]
        surveyed = drive(large.data[: torn.offset - 10])
        assert found_rows(surveyed) == 56
        assert not surveyed.result.scanned
        assert min(place.start for place in surveyed.asked if place.size > KiB) > before.offset - 2048 * KiB
        assert surveyed.num_bytes < 3 * (torn.offset - before.offset)

    def test_all_of_it_where_the_chain_is_broken(self, large: Any, drive: Any) -> None:
        (final,) = large.records(RecordKind.FINAL)
        middle = large.records(RecordKind.ROW_GROUP)[6]
        assert large.records(RecordKind.CHECKPOINT)[-1].offset < middle.offset
        surveyed = drive(large.zeroed((middle.offset, middle.offset + 8), (final.offset, final.end)))
        assert surveyed.result.scanned
        assert sorted(surveyed.result.row_groups) == [7]
        assert found_rows(surveyed) == 56
        assert surveyed.num_bytes > len(large.data)


class TestHeaders:
    """What it came across on its way, for the rungs that need more than row-group records."""

    def test_all_of_the_row_group_in_flight_where_the_chain_is_whole(self, large: Any, drive: Any) -> None:
        torn = large.records(RecordKind.ROW_GROUP)[-1]
        surveyed = drive(large.data[: torn.offset - 10])
        assert not surveyed.result.scanned
        in_flight = [header for header in large.records(RecordKind.CHUNK) if header.num_row_groups == 7]
        assert [h for h in surveyed.result.headers if h.num_row_groups == 7 and h.kind == RecordKind.CHUNK] == in_flight
        assert not surveyed.result.displaced

    def test_all_there_are_where_the_chain_is_broken(self, small: Any, drive: Any) -> None:
        last, (final,) = small.records(RecordKind.CHECKPOINT)[-1], small.records(RecordKind.FINAL)
        surveyed = drive(small.zeroed((last.offset, last.offset + 1))[: final.offset])
        expected = [header for header in small.headers if header not in (last, final)]
        assert surveyed.result.scanned
        assert surveyed.result.headers == expected

    def test_a_hole_in_the_middle_shows_in_the_records_behind_it(self, small: Any, drive: Any) -> None:
        hole = small.records(RecordKind.ROW_GROUP)[2].offset
        surveyed = drive(small.data[: hole - 30] + small.data[hole - 20 :])
        assert surveyed.result.displaced
        assert all(header in small.headers for header in surveyed.result.headers)

    def test_without_a_record_in_its_place_all_are_displaced(self, small: Any, drive: Any) -> None:
        surveyed = drive(small.data[10:])
        result = surveyed.result
        assert result.scanned and result.displaced
        assert (result.footer, result.headers) == (None, [])
        assert result.file_id == small.headers[0].file_id
        assert sorted(result.found) == [header.offset - 10 for header in small.headers[1:]]


class TestBrokenRecords:
    """The final footer is gone, and something else is damaged with it."""

    def without_footer(self, small: Any, *places: tuple[int, int]) -> bytes:
        (final,) = small.records(RecordKind.FINAL)
        data: bytes = small.zeroed(*places)[: final.offset]
        return data

    def test_a_checkpoint_header(self, small: Any, drive: Any) -> None:
        last = small.records(RecordKind.CHECKPOINT)[-1]
        surveyed = drive(self.without_footer(small, (last.offset, last.offset + 1)))
        assert surveyed.result.scanned
        assert surveyed.result.footer.header == small.records(RecordKind.CHECKPOINT)[0]
        assert sorted(surveyed.result.row_groups) == [2, 3, 4]

    def test_a_checkpoint_payload(self, small: Any, drive: Any) -> None:
        last = small.records(RecordKind.CHECKPOINT)[-1]
        surveyed = drive(self.without_footer(small, (last.end - 1, last.end)))
        assert surveyed.result.footer.header == small.records(RecordKind.CHECKPOINT)[0]
        assert found_rows(surveyed) == 50

    def test_all_checkpoints(self, small: Any, drive: Any) -> None:
        places = [(header.offset, header.end) for header in small.records(RecordKind.CHECKPOINT)]
        surveyed = drive(self.without_footer(small, *places))
        assert surveyed.result.footer.header.kind == RecordKind.ANCHOR
        assert sorted(surveyed.result.row_groups) == [0, 1, 2, 3, 4]

    def test_the_anchor(self, small: Any, drive: Any) -> None:
        (anchor,) = small.records(RecordKind.ANCHOR)
        surveyed = drive(self.without_footer(small, (anchor.offset, anchor.end)))
        assert surveyed.result.file_id == anchor.file_id
        assert found_rows(surveyed) == 50

    def test_a_row_group_record_that_a_checkpoint_names(self, small: Any, drive: Any) -> None:
        first = small.records(RecordKind.ROW_GROUP)[0]
        surveyed = drive(self.without_footer(small, (first.offset, first.end)))
        assert found_rows(surveyed) == 50

    def test_a_row_group_record_that_nothing_else_names(self, small: Any, drive: Any) -> None:
        last = small.records(RecordKind.ROW_GROUP)[-1]
        surveyed = drive(self.without_footer(small, (last.offset + 100, last.offset + 110)))
        assert found_rows(surveyed) == 40

    def test_a_chunk_record_of_the_last_row_group(self, small: Any, drive: Any) -> None:
        last = small.records(RecordKind.ROW_GROUP)[-1]
        chunk = next(header for header in reversed(small.headers) if header.number == last.number - 2)
        assert chunk.kind == RecordKind.CHUNK
        surveyed = drive(self.without_footer(small, (chunk.offset, chunk.offset + 96)))
        assert found_rows(surveyed) == 50


class TestEnded:
    """A footer at the end that no record vouches for still tells that nothing was behind the row groups."""

    def test_when_only_its_record_header_is_damaged(self, small: Any, drive: Any) -> None:
        (final,) = small.records(RecordKind.FINAL)
        assert drive(small.zeroed((final.offset, final.offset + 96))).result.ended

    def test_not_when_it_names_other_row_groups(self, small: Any, drive: Any) -> None:
        (final,) = small.records(RecordKind.FINAL)
        last = small.records(RecordKind.ROW_GROUP)[-1]
        places = (final.offset, final.offset + 96), (last.offset, last.end)
        surveyed = drive(small.zeroed(*places))
        assert found_rows(surveyed) == 40
        assert not surveyed.result.ended

    @pytest.mark.parametrize("change", ["file id", "no state", "unfinished", "place", "rows", "fewer row groups"])
    def test_not_when_it_says_something_else(self, small: Any, drive: Any, change: str) -> None:
        def otherwise(footer: FileMetaData) -> None:
            keys = {one.key: one for one in footer.key_value_metadata or []}
            chunk = footer.row_groups[-1].columns[0].meta_data
            assert chunk is not None
            match change:
                case "file id":
                    keys[FILE_ID_KEY].value = "0" * 32
                case "no state":
                    keys[STATE_KEY].value = None
                case "unfinished":
                    keys[STATE_KEY].value = "in-progress"
                case "place":
                    chunk.data_page_offset += 1
                    chunk.dictionary_page_offset = chunk.dictionary_page_offset and chunk.dictionary_page_offset + 1
                case "rows":
                    footer.num_rows -= 1
                case "fewer row groups":
                    del footer.row_groups[-1]

        (final,) = small.records(RecordKind.FINAL)
        data = small.zeroed((final.offset, final.offset + 96))
        assert drive(with_footer(data, lambda footer: None)).result.ended
        assert not drive(with_footer(data, otherwise)).result.ended

    def test_not_when_it_is_not_there(self, small: Any, drive: Callable[[bytes], Any]) -> None:
        others = [header for header in small.headers if header.kind != RecordKind.FINAL]
        assert others
        for header in others:
            assert not drive(small.data[: header.offset + 1]).result.ended
