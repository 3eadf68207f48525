"""The row groups that footers and records name, and the rows that are lost between and behind them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, Where
from resilient_pq.format.file_metadata import FileMetaData, RowGroup
from resilient_pq.format.footer import MAGIC, RECORD_KEY, TAIL_SIZE, Footer, key_values
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.resilience_records import CHUNK_RECORD_SIZE, RecordHeader, RecordKind
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents, chunk_range
from resilient_pq.reader.filter import index_ranges
from resilient_pq.reader.read_plan import chunk_read
from resilient_pq.recovery.evidence.located_row_group import (
    LocatedChunk,
    LocatedRowGroup,
    Method,
    without_malformed_sums,
)
from resilient_pq.recovery.evidence.records.record_scan import parity_spans
from resilient_pq.recovery.evidence.records.survey import Survey
from resilient_pq.recovery.report import Damage, LostRegion

#: Where an index of a chunk lies; None without one.
Find = Callable[[index_ranges.IndexedChunk], index_ranges.IndexPlace | None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row group that a footer or a record names."""

    ordinal: int  # Its number in the damaged file
    row_group: RowGroup  # Its metadata
    start: int  # Offset of its first byte, or of what stands before it and belongs to it
    end: int  # Offset just after its last byte, its record included where there is one
    rows_before: int  # Rows of all row groups before it in the damaged file
    method: Method  # The evidence that names it


@dataclass(frozen=True, slots=True)
class FileEnd:
    """The end of a file."""

    start: int  # Offset behind the last thing that was found whole
    size: int  # Bytes of the object
    # Rows of the whole file, as its final record or a whole footer counts them; None where nothing does
    num_rows: int | None = None
    least: int = 0  # Rows that the file has at least, as a damaged checkpoint counts them
    miscounted: bool = False  # Whether something counts them that the bytes contradict, so that only the end is known

    @property
    def proven(self) -> bool:
        """Whether the end of the file is proven; otherwise rows may have followed."""
        return self.num_rows is not None or self.miscounted


def recount(
    end: FileEnd | None, stated: Sequence[LocatedRowGroup], found: Mapping[int, LocatedRowGroup]
) -> tuple[FileEnd | None, tuple[LocatedRowGroup, ...]]:
    """The end of a file and its row groups, with the numbers of rows that the pages support."""
    more: int | None = 0
    row_groups = []
    for known in stated:
        now = found.get(known.ordinal, known)
        before = None if known.rows_before is None or more is None else known.rows_before + more
        row_groups.append(replace(now, rows_before=before))
        if known.num_rows is not None:
            more = None if now.num_rows is None or more is None else more + now.num_rows - known.num_rows
    if end is not None and end.num_rows is not None:
        miscounted = more is None
        end = replace(end, num_rows=None if more is None else end.num_rows + more, miscounted=miscounted)
    return end, tuple(row_groups)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The row groups that could be kept of a damaged object."""

    contents: Contents  # Schema and metadata, as if the candidates were all of the file
    row_groups: tuple[Candidate, ...]  # The candidates in order
    end: FileEnd  # What is known of the end of the file
    # Offset up to which the bytes are records and row groups of the candidates, without a gap; None where they are not
    prefix_end: int | None
    last: RecordHeader | None  # The header of the last record before `prefix_end`
    cut_end: int | None = None  # Offset at which the object only has to be cut; None where that is not enough
    # What is neither a row group, nor a whole record, nor lost, before the end of `last`
    unaccounted: tuple[ByteRange, ...] = ()


def candidates_of_survey(survey: Survey, schema: FileMetaData | None = None) -> Candidates | None:
    """The row groups that records name; None when the schema is not known."""
    footer, last = survey.footer, survey.last
    named = None if schema is None else replace(schema, row_groups=[])
    named = named if footer is None else footer.metadata
    if named is None or last is None:
        return None
    found = _footer_candidates(named, Method.CHECKPOINT)
    for ordinal, later in sorted(survey.row_groups.items()):
        found.append(_candidate(ordinal, later.row_group, later.rows_before, Method.ROW_GROUP_RECORD))
    row_groups = [candidate.row_group for candidate in found]
    num_rows = sum(row_group.num_rows for row_group in row_groups)
    metadata = replace(named, row_groups=row_groups, num_rows=num_rows)
    header = None if footer is None else footer.header
    contents = Contents.of(Footer(metadata, survey.size, 0, header))
    candidates = Candidates(contents, tuple(found), end_of_survey(survey), None, last)
    if header is None:
        return candidates
    whole = survey.has_final and not survey.row_groups
    candidates = replace(candidates, cut_end=header.end if whole else None)
    if survey.scanned:
        return replace(candidates, unaccounted=tuple(_unaccounted(survey, found)))
    contiguous = [candidate.ordinal for candidate in found] == list(range(len(found)))
    return replace(candidates, prefix_end=last.end if contiguous else None)


def candidates_of_contents(contents: Contents) -> Candidates:
    """All row groups of a file whose footer is whole."""
    found = _footer_candidates(contents.metadata, Method.FOOTER)
    record = contents.footer.record
    resumable = record is not None and record.kind not in (RecordKind.FINAL, RecordKind.SEAL)
    return Candidates(
        contents,
        tuple(found),
        _end_of_footer(contents),
        record.end if record is not None and resumable else None,
        record,
    )


def _end_of_footer(contents: Contents) -> FileEnd:
    end = contents.footer.end
    if contents.miscounted is not None:
        return FileEnd(end, end, miscounted=True)
    return FileEnd(end, end, contents.num_rows if contents.is_finished else None)


def _footer_candidates(footer: FileMetaData, method: Method) -> list[Candidate]:
    found: list[Candidate] = []
    num_rows = 0
    for ordinal, row_group in enumerate(footer.row_groups):
        found.append(_candidate(ordinal, row_group, num_rows, method))
        num_rows += row_group.num_rows
    return found


def _candidate(ordinal: int, row_group: RowGroup, rows_before: int, method: Method) -> Candidate:
    try:
        places = [chunk_range(chunk.meta_data, 1 << 63) for chunk in row_group.columns if chunk.meta_data is not None]
    except FormatError:
        places = []  # they are nowhere in the file: the row group will be found damaged
    start = min((first for first, _ in places), default=0)
    end = max((last for _, last in places), default=0)
    first = row_group.columns[0].meta_data if row_group.columns else None
    place = key_values(first.key_value_metadata).get(RECORD_KEY) if first is not None else None
    if place:
        offset, _, size = place.partition(":")
        if offset.isdecimal() and size.isdecimal():
            end = max(end, int(offset) + int(size))
    return Candidate(ordinal, row_group, start, end, rows_before, method)


def data_starts(row_group: LocatedRowGroup) -> tuple[int, ...]:
    """Where the chunks of a row group begin; -1 for unknown chunks."""
    return tuple(-1 if chunk is None else chunk.read.range.start for chunk in row_group.chunks)


def find_gaps(row_groups: Sequence[LocatedRowGroup]) -> list[LostRegion]:
    """The rows lost between row groups, and the row groups lost there."""
    gaps: list[LostRegion] = []
    ordinal, end = 0, 0
    counted: int | None = 0
    for known in row_groups:
        before = known.rows_before
        rows = None if before is None or counted is None or before < counted else before - counted
        missing = known.ordinal - ordinal
        if missing > 0:
            what = f"{missing} row group{'s' if missing > 1 else ''}"
            reason = f"what names {what} is damaged"
            gaps.append(LostRegion(end, max(known.start, end), rows, Damage.CORRUPT, reason, Where(row_group=ordinal)))
            counted = None
        elif rows:
            reason = "the row group had more rows than were found of it"
            where = Where(row_group=ordinal - 1)
            gaps.append(LostRegion(end, max(known.start, end), rows, Damage.CORRUPT, reason, where))
        elif known.may_be_rest:
            reason = "bytes are missing: whether the rows behind them are those before them is not known"
            where = Where(row_group=ordinal - 1)
            gaps.append(LostRegion(end, max(known.start, end), None, Damage.MISSING, reason, where))
            counted = None
        ordinal, end = known.ordinal + 1, known.end
        before = counted if before is None else before
        counted = None if before is None or known.num_rows is None else before + known.num_rows
    return gaps


def find_losses(
    end: FileEnd | None, row_groups: Sequence[LocatedRowGroup], in_flight: int | None = None
) -> list[LostRegion]:
    """The rows lost between and behind row groups; a single gap has those that the whole file is counted to have."""
    gaps = find_gaps(row_groups)
    if end is None:
        return gaps
    found = [*gaps, *find_losses_at_end(end, row_groups, in_flight)]
    if end.num_rows is None or _may_repeat(row_groups):
        return found
    return _with_rest(found, end.num_rows - sum(known.num_rows or 0 for known in row_groups))


def _with_rest(found: list[LostRegion], num_rows: int) -> list[LostRegion]:
    """Lost regions, which have so many rows together, with the rows of the only one of which they are not known."""
    uncounted = [region for region in found if region.num_rows is None]
    rest = num_rows - sum(region.num_rows or 0 for region in found)
    if rest == 0:
        return [region for region in found if region.num_rows is not None]
    if rest > 0 and len(uncounted) == 1:
        return [replace(region, num_rows=rest) if region is uncounted[0] else region for region in found]
    return found


def _may_repeat(row_groups: Sequence[LocatedRowGroup]) -> bool:
    """Whether two of them may be parts of one, so that their rows are counted twice."""
    return any(known.may_be_rest for known in row_groups)


def find_losses_at_end(
    end: FileEnd, row_groups: Sequence[LocatedRowGroup], in_flight: int | None = None
) -> list[LostRegion]:
    """What may be lost behind the last row group that is known; where the end of the file is proven, nothing."""
    known, start, ordinal = _count_rows(row_groups)
    start, where = min(max(end.start, start), end.size), Where(row_group=ordinal)
    stated = end.least if end.num_rows is None else end.num_rows
    lost: list[LostRegion] = []
    if known is not None and stated > known:
        reason = "row groups that nothing names stand before the last footer"
        lost.append(LostRegion(start, end.size, stated - known, Damage.CORRUPT, reason, where))
    elif end.num_rows is not None and (known is None or stated < known):
        reason = "the footer counts other rows than the row groups that were found have"
        lost.append(LostRegion(start, end.size, None, Damage.CORRUPT, reason, where))
    if end.miscounted:
        reason = "what counts the rows of the file contradicts its row groups"
        lost.append(LostRegion(start, end.size, None, Damage.CORRUPT, reason))
    if not end.proven:
        reason, where = "the end of the file is missing: how many rows followed is not known", Where()
        if in_flight is not None:
            reason, where = "a row group was not complete when the file ends", Where(row_group=in_flight)
        lost.append(LostRegion(end.size if lost else start, end.size, None, Damage.TORN, reason, where))
    return lost


def _count_rows(row_groups: Sequence[LocatedRowGroup]) -> tuple[int | None, int, int]:
    """The rows up to the end of the last row group, the offset behind it, and the ordinal of the next one."""
    if not row_groups:
        return 0, 0, 0
    last = row_groups[-1]
    known = None if last.rows_before is None or last.num_rows is None else last.rows_before + last.num_rows
    return known, last.end, last.ordinal + 1


def _unaccounted(survey: Survey, found: list[Candidate]) -> Iterator[ByteRange]:
    """The bytes up to the last whole record that belong to no row group and no whole record."""
    assert survey.last is not None
    known = [(candidate.start - CHUNK_RECORD_SIZE, candidate.end) for candidate in found]
    for earlier, later in pairwise([None, *found]):
        ordinal, end = (0, len(MAGIC)) if earlier is None else (earlier.ordinal + 1, earlier.end)
        if later is not None and later.ordinal > ordinal:
            known.append((end, later.start))  # row groups that nothing names are reported as such
    known += [(header.offset, header.end) for header in survey.footers]
    known += [(span.start, span.end) for span in parity_spans(survey.headers)]
    at = len(MAGIC)
    for start, end in sorted([*known, (survey.last.end, survey.last.end)]):
        if at < start:
            yield ByteRange(at, start)
        at = max(at, end)


def end_of_survey(survey: Survey) -> FileEnd:
    """The end of a file by its records: proven by the header of its final record, or by a footer that ends it."""
    footer, newest = survey.footer, survey.newest
    start = 0 if survey.last is None else survey.last.end
    if footer is not None and survey.has_final:
        return FileEnd(start, survey.size, footer.metadata.num_rows)
    if footer is not None and survey.ended:
        later = sum(found.row_group.num_rows for found in survey.row_groups.values())
        return FileEnd(start, survey.size, footer.metadata.num_rows + later)
    if newest is None or newest.offset < start:
        return FileEnd(start, survey.size)
    # The record is damaged; its header still counts the rows before it. What stands behind it may have been the file's.
    proven = newest.num_rows if newest.kind == RecordKind.FINAL and survey.size <= newest.end else None
    return FileEnd(start, survey.size, proven, newest.num_rows)


def locate_row_groups(candidates: Candidates) -> list[LocatedRowGroup]:
    """The candidates as located row groups, whose pages can be examined."""
    return [_locate(candidates.contents, i, candidate) for i, candidate in enumerate(candidates.row_groups)]


def _index(contents: Contents, position: int, leaf: Leaf, find: Find) -> ByteRange | None:
    try:
        place = find(index_ranges.IndexedChunk(contents, position, leaf))
    except FormatError:
        return None  # where it is said to lie cannot be; recoveries do without
    return None if place is None else place.range


def _chunk_read(contents: Contents, position: int, leaf: Leaf) -> ChunkRead:
    """A chunk, cut at the end of the file where it is said to go on behind it."""
    try:
        return chunk_read(contents, position, leaf)
    except FormatError:
        footer = contents.footer
        behind = footer.length + footer.trailing + TAIL_SIZE if footer.length else 0
        return chunk_read(contents, position, leaf, cut_at=footer.start + behind)


def _locate(contents: Contents, position: int, candidate: Candidate) -> LocatedRowGroup:
    chunks: list[LocatedChunk | None] = []
    for leaf in contents.schema.leaves:
        try:
            chunk = _chunk_read(contents, position, leaf)
        except FormatError:
            chunks.append(None)
            continue
        chunk = without_malformed_sums(chunk)
        offsets = _index(contents, position, leaf, index_ranges.offset_index_place)
        columns = _index(contents, position, leaf, index_ranges.column_index_place)
        chunks.append(LocatedChunk(chunk, None, offsets, columns))
    return LocatedRowGroup(
        ordinal=candidate.ordinal,
        num_rows=candidate.row_group.num_rows,
        rows_before=candidate.rows_before,
        chunks=tuple(chunks),
        method=candidate.method,
        start=candidate.start,
        end=candidate.end,
        sorting_columns=tuple(candidate.row_group.sorting_columns or ()),
    )
