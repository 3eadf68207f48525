"""Which row groups are kept, and what is said to be lost with the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from resilient_pq.format.file_metadata import ColumnChunk, ColumnMetaData, RowGroup
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.recovery.evidence.records.survey import Survey
from resilient_pq.recovery.evidence.row_group_choice import (
    FileEnd,
    candidates_of_survey,
    find_gaps,
    find_losses_at_end,
    locate_row_groups,
    recount,
)
from resilient_pq.recovery.report import Damage


def candidates(drive: Any, data: bytes) -> Any:
    found = candidates_of_survey(drive(data).result)
    assert found is not None
    return found


def test_nothing_is_known_without_a_footer() -> None:
    assert candidates_of_survey(Survey(1000)) is None


def test_a_whole_footer_only_has_to_be_cut_off_behind(small: Any, drive: Any) -> None:
    found = candidates(drive, small.data + b"garbage")
    assert (found.cut_end, found.end.num_rows) == (len(small.data), 50)
    assert [candidate.ordinal for candidate in found.row_groups] == [0, 1, 2, 3, 4]
    assert [candidate.rows_before for candidate in found.row_groups] == [0, 10, 20, 30, 40]


def test_a_torn_row_group_is_lost_with_a_number_of_rows_nobody_knows(small: Any, drive: Any) -> None:
    last = small.records(RecordKind.ROW_GROUP)[-1]
    found = candidates(drive, small.data[: last.offset])
    checkpoint = small.records(RecordKind.CHECKPOINT)[-1]
    assert (found.cut_end, found.prefix_end, found.last) == (None, checkpoint.end, checkpoint)
    (lost,) = find_losses_at_end(found.end, locate_row_groups(found))
    assert (lost.start, lost.end, lost.num_rows) == (checkpoint.end, last.offset, None)
    assert (lost.damage, lost.where.row_group) == (Damage.TORN, None)


def test_a_gap_is_lost_with_the_rows_that_later_records_count(small: Any, drive: Any) -> None:
    (final,) = small.records(RecordKind.FINAL)
    checkpoints, row_groups = small.records(RecordKind.CHECKPOINT), small.records(RecordKind.ROW_GROUP)
    places = [(header.offset, header.end) for header in (checkpoints[1], row_groups[2])]
    found = candidates(drive, small.zeroed(*places)[: final.offset])
    assert [candidate.ordinal for candidate in found.row_groups] == [0, 1, 3, 4]
    assert found.prefix_end is None
    (gap,) = find_gaps(locate_row_groups(found))
    assert (gap.num_rows, gap.damage, gap.where.row_group) == (10, Damage.CORRUPT, 2)
    assert gap.start <= checkpoints[0].end and gap.end > row_groups[2].offset
    # The checkpoint was a second copy: it is no loss, but it is noticed.
    assert any(place.start <= checkpoints[1].offset < place.end for place in found.unaccounted)
    assert found.contents.num_rows == 40


def test_a_footer_that_is_damaged_still_counts_what_is_missing(small: Any, drive: Any) -> None:
    (final,) = small.records(RecordKind.FINAL)
    last = small.records(RecordKind.ROW_GROUP)[-1]
    data = small.zeroed((last.offset, last.end), (final.payload_offset, final.payload_offset + 10))
    found = candidates(drive, data)
    (lost,) = find_losses_at_end(found.end, locate_row_groups(found))
    assert (lost.num_rows, lost.damage) == (10, Damage.CORRUPT)


def test_only_the_final_record_proves_the_end(small: Any, drive: Any) -> None:
    """Its header is enough; a checkpoint counts rows, too, and says nothing of those that followed."""
    (final,) = small.records(RecordKind.FINAL)
    checkpoint = small.records(RecordKind.CHECKPOINT)[-1]
    for cut, rows in ((final.payload_offset, 50), (final.payload_offset - 1, None), (final.offset, None)):
        assert candidates(drive, small.data[:cut]).end.num_rows == rows
    for header in small.records(RecordKind.CHECKPOINT):
        for cut in (header.payload_offset, header.end - 1, header.end):
            found = candidates(drive, small.data[:cut])
            assert (found.end.num_rows, found.end.least) in ((None, 0), (None, header.num_rows))
            assert find_losses_at_end(found.end, locate_row_groups(found))[-1].num_rows is None
    # From the payload of a checkpoint up to the last bytes of the footer everything is gone.
    data = small.data[: checkpoint.payload_offset + 9] + small.data[-8:]
    assert candidates(drive, data).end.num_rows is None


def test_rows_that_nobody_counted_are_never_no_rows(small: Any, drive: Any) -> None:
    known = locate_row_groups(candidates(drive, small.data))
    uncounted = [replace(row_group, rows_before=None) for row_group in known]
    (gap,) = find_gaps([known[0], *uncounted[2:]])
    assert (gap.num_rows, gap.where.row_group) == (None, 1)
    (gap,) = find_gaps(uncounted[2:])
    assert gap.num_rows is None
    # What is counted again behind the gap counts on from there.
    first, second = find_gaps([known[0], uncounted[2], known[4]])
    assert (first.num_rows, second.num_rows) == (None, None)
    first, second = find_gaps([known[0], known[2], known[4]])
    assert (first.num_rows, second.num_rows) == (10, 10)
    end = FileEnd(0, len(small.data), num_rows=50)
    assert find_losses_at_end(end, known) == []
    assert [lost.num_rows for lost in find_losses_at_end(end, known[:3])] == [20]
    assert [lost.num_rows for lost in find_losses_at_end(end, uncounted)] == [None]
    assert [lost.num_rows for lost in find_losses_at_end(replace(end, num_rows=40), known)] == [None]


def test_a_row_group_that_is_nowhere_has_no_place(small: Any, drive: Any) -> None:
    """A hostile footer; the row group is found damaged when its chunks are looked for."""
    survey = drive(small.data).result
    nowhere = ColumnMetaData(
        type=2, encodings=[], path_in_schema=["id"], codec=0, num_values=1,
        total_uncompressed_size=1, total_compressed_size=-1, data_page_offset=-5,
    )  # fmt: skip
    chunk = ColumnChunk(meta_data=nowhere)
    metadata = survey.footer.metadata
    metadata.row_groups = [RowGroup(columns=[chunk, chunk], total_byte_size=1, num_rows=1)]
    found = candidates_of_survey(survey)
    assert found is not None
    assert [(candidate.start, candidate.end) for candidate in found.row_groups] == [(0, 0)]


def test_rows_that_pages_bear_out_move_all_row_groups_behind_them(small: Any, drive: Any) -> None:
    stated = locate_row_groups(candidates(drive, small.data))
    fewer, more = replace(stated[1], num_rows=7), replace(stated[3], num_rows=12)
    end, counted = recount(FileEnd(900, 900, 50), stated, {1: fewer, 3: more})
    assert end == FileEnd(900, 900, 49)
    assert [row_group.num_rows for row_group in counted] == [10, 7, 10, 12, 10]
    assert [row_group.rows_before for row_group in counted] == [0, 10, 17, 27, 39]


def test_nothing_is_counted_behind_rows_that_nobody_knows(small: Any, drive: Any) -> None:
    stated = locate_row_groups(candidates(drive, small.data))
    end, counted = recount(FileEnd(900, 900, 50), stated, {2: replace(stated[2], num_rows=None)})
    assert end == FileEnd(900, 900, None, miscounted=True)
    assert [row_group.rows_before for row_group in counted] == [0, 10, 20, None, None]


def test_a_row_group_described_anew_takes_the_place_of_the_stated_one(small: Any, drive: Any) -> None:
    stated = locate_row_groups(candidates(drive, small.data))
    moved = replace(stated[1], start=stated[1].start + 5)
    _, counted = recount(None, stated, {1: moved})
    assert [row_group.start for row_group in counted][:3] == [stated[0].start, moved.start, stated[2].start]
