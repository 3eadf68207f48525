"""Which row groups are kept, and what is said to be lost with the others."""

from __future__ import annotations

from typing import Any

from resilient_pq.format.metadata import ColumnChunk, ColumnMetaData, RowGroup
from resilient_pq.format.records import Kind
from resilient_pq.recovery.choose import candidates_of_survey, known_row_groups, losses_between
from resilient_pq.recovery.report import Damage
from resilient_pq.recovery.survey import Survey


def candidates(drive: Any, data: bytes) -> Any:
    found = candidates_of_survey(drive(data).result)
    assert found is not None
    return found


def test_nothing_is_known_without_a_footer() -> None:
    assert candidates_of_survey(Survey(1000)) is None


def test_a_whole_footer_only_has_to_be_cut_off_behind(small: Any, drive: Any) -> None:
    found = candidates(drive, small.data + b"garbage")
    assert (found.cut_end, found.lost) == (len(small.data), ())
    assert [candidate.ordinal for candidate in found.row_groups] == [0, 1, 2, 3, 4]
    assert [candidate.rows_before for candidate in found.row_groups] == [0, 10, 20, 30, 40]


def test_a_torn_row_group_is_lost_with_a_number_of_rows_nobody_knows(small: Any, drive: Any) -> None:
    last = small.records(Kind.ROW_GROUP)[-1]
    found = candidates(drive, small.data[: last.offset])
    checkpoint = small.records(Kind.CHECKPOINT)[-1]
    assert (found.cut_end, found.prefix_end, found.last) == (None, checkpoint.end, checkpoint)
    (lost,) = found.lost
    assert (lost.start, lost.end, lost.num_rows) == (checkpoint.end, last.offset, None)
    assert (lost.damage, lost.where.row_group) == (Damage.TORN, 4)


def test_a_gap_is_lost_with_the_rows_that_later_records_count(small: Any, drive: Any) -> None:
    (final,) = small.records(Kind.FINAL)
    checkpoints, row_groups = small.records(Kind.CHECKPOINT), small.records(Kind.ROW_GROUP)
    places = [(header.offset, header.end) for header in (checkpoints[1], row_groups[2])]
    found = candidates(drive, small.zeroed(*places)[: final.offset])
    assert [candidate.ordinal for candidate in found.row_groups] == [0, 1, 3, 4]
    assert found.prefix_end is None
    (gap,) = losses_between(known_row_groups(found))
    assert (gap.num_rows, gap.damage, gap.where.row_group) == (10, Damage.CORRUPT, 2)
    assert gap.start <= checkpoints[0].end and gap.end > row_groups[2].offset
    # The checkpoint was a second copy: it is no loss, but it is noticed.
    assert any(place.start <= checkpoints[1].offset < place.end for place in found.unaccounted)
    assert found.contents.num_rows == 40


def test_a_footer_that_is_damaged_still_counts_what_is_missing(small: Any, drive: Any) -> None:
    (final,) = small.records(Kind.FINAL)
    last = small.records(Kind.ROW_GROUP)[-1]
    data = small.zeroed((last.offset, last.end), (final.payload_offset, final.payload_offset + 10))
    (lost,) = candidates(drive, data).lost
    assert (lost.num_rows, lost.damage) == (10, Damage.CORRUPT)


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
