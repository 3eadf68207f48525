"""Which row groups a damaged file says that it has, and what is lost whatever is kept of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from resilient_pq.errors import FormatError, Where
from resilient_pq.format.footer import MAGIC, RECORD_KEY, TAIL_SIZE, Footer, key_values
from resilient_pq.format.metadata import FileMetaData, RowGroup
from resilient_pq.format.records import CHUNK_RECORD_SIZE, Kind, RecordHeader
from resilient_pq.format.schema import Leaf
from resilient_pq.io.ranges import ByteRange
from resilient_pq.reader import indexes
from resilient_pq.reader.contents import Contents, chunk_range
from resilient_pq.reader.plan import ChunkRead, chunk_read
from resilient_pq.recovery.known import KnownChunk, KnownRowGroup, Method, without_malformed_sums
from resilient_pq.recovery.report import Damage, LostRegion
from resilient_pq.recovery.survey import Survey

#: Where an index of a chunk lies; None without one.
Find = Callable[[indexes.Chunk], indexes.Place | None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row group that could be kept.

    Attributes:
        ordinal: Its number in the damaged file.
        row_group: Its metadata.
        start: Offset of its first byte, or of what stands before it and belongs to it.
        end: Offset just after its last byte, its record included where there is one.
        rows_before: Rows of all row groups before it in the damaged file.
        method: What told of it.
    """

    ordinal: int
    row_group: RowGroup
    start: int
    end: int
    rows_before: int
    method: Method


@dataclass(frozen=True, slots=True)
class Candidates:
    """What could be kept of a damaged object.

    Attributes:
        contents: Schema and metadata, as if the candidates were all of the file.
        row_groups: The candidates in order.
        lost: What is lost behind the last of them.
        prefix_end: Offset up to which the bytes are records and row groups of the candidates, without a gap; None
            where they are not.
        last: The header of the last record before `prefix_end`.
        cut_end: Offset at which the object only has to be cut; None where that is not enough.
        unaccounted: What is neither a row group, nor a whole record, nor lost, before the end of `last`.
    """

    contents: Contents
    row_groups: tuple[Candidate, ...]
    lost: tuple[LostRegion, ...]
    prefix_end: int | None
    last: RecordHeader | None
    cut_end: int | None = None
    unaccounted: tuple[ByteRange, ...] = ()


def candidates_of_survey(survey: Survey) -> Candidates | None:
    """What a survey leaves to keep; None when not even the schema is known."""
    if survey.footer is None or survey.last is None:
        return None
    found = _named_by(survey.footer.metadata, Method.CHECKPOINT)
    for ordinal, later in sorted(survey.row_groups.items()):
        found.append(_candidate(ordinal, later.row_group, later.rows_before, Method.ROW_GROUP_RECORD))
    metadata = _metadata(survey.footer.metadata, [candidate.row_group for candidate in found])
    contents = Contents.of(Footer(metadata, survey.size, 0, survey.footer.header))
    contiguous = [candidate.ordinal for candidate in found] == list(range(len(found)))
    tail = _tail(survey, found)
    whole = survey.footer.header.kind == Kind.FINAL and not survey.row_groups
    return Candidates(
        contents,
        tuple(found),
        tuple(tail),
        survey.last.end if contiguous and not survey.scanned else None,
        survey.last,
        survey.footer.header.end if whole else None,
        tuple(_unaccounted(survey, found)) if survey.scanned else (),
    )


def candidates_of_contents(contents: Contents) -> Candidates:
    """All row groups of a file whose footer is whole."""
    found = _named_by(contents.metadata, Method.FOOTER)
    record = contents.footer.record
    resumable = record is not None and record.kind not in (Kind.FINAL, Kind.SEAL)
    return Candidates(
        contents,
        tuple(found),
        (),
        record.end if record is not None and resumable else None,
        record,
    )


def _named_by(footer: FileMetaData, method: Method) -> list[Candidate]:
    found: list[Candidate] = []
    num_rows = 0
    for ordinal, row_group in enumerate(footer.row_groups):
        found.append(_candidate(ordinal, row_group, num_rows, method))
        num_rows += row_group.num_rows
    return found


def _candidate(ordinal: int, row_group: RowGroup, rows_before: int, method: Method) -> Candidate:
    try:
        places = [
            chunk_range(chunk.meta_data, 1 << 63)
            for chunk in row_group.columns
            if chunk.meta_data is not None
        ]
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


def _metadata(footer: FileMetaData, row_groups: list[RowGroup]) -> FileMetaData:
    return FileMetaData(
        version=footer.version,
        schema=footer.schema,
        num_rows=sum(row_group.num_rows for row_group in row_groups),
        row_groups=row_groups,
        key_value_metadata=footer.key_value_metadata,
        created_by=footer.created_by,
        column_orders=footer.column_orders,
    )


def data_starts(row_group: KnownRowGroup) -> tuple[int, ...]:
    """Where the chunks of a row group begin; -1 for those of which nothing is known."""
    return tuple(-1 if chunk is None else chunk.read.range.start for chunk in row_group.chunks)


def losses_between(row_groups: Sequence[KnownRowGroup]) -> list[LostRegion]:
    """What lies between row groups that are known: others, of which nothing is left that names them.

    Args:
        row_groups: In order; the rows before each that has any before it are counted.
    """
    gaps: list[LostRegion] = []
    ordinal, end, num_rows = 0, 0, 0
    for known in row_groups:
        if known.ordinal > ordinal:
            missing = known.ordinal - ordinal
            what = f"{missing} row group{'s' if missing > 1 else ''}"
            reason = f"what names {what} is damaged"
            where = Where(row_group=ordinal)
            rows = None if known.rows_before is None else known.rows_before - num_rows
            gaps.append(LostRegion(end, max(known.start, end), rows, Damage.CORRUPT, reason, where))
        ordinal, end = known.ordinal + 1, known.end
        num_rows = (known.rows_before or 0) + (known.num_rows or 0)
    return gaps


def _unaccounted(survey: Survey, found: list[Candidate]) -> Iterator[ByteRange]:
    """What is left of the bytes up to the last whole record, when all that is known of is taken away."""
    assert survey.last is not None
    known = [(candidate.start - CHUNK_RECORD_SIZE, candidate.end) for candidate in found]
    for earlier, later in pairwise([None, *found]):
        ordinal, end = (0, len(MAGIC)) if earlier is None else (earlier.ordinal + 1, earlier.end)
        if later is not None and later.ordinal > ordinal:
            known.append((end, later.start))  # row groups that nothing names: they are told as such
    known += [(header.offset, header.end) for header in survey.footers]
    at = len(MAGIC)
    for start, end in sorted([*known, (survey.last.end, survey.last.end)]):
        if at < start:
            yield ByteRange(at, start)
        at = max(at, end)


def _tail(survey: Survey, found: list[Candidate]) -> list[LostRegion]:
    """What stands behind the last record that is whole."""
    assert survey.last is not None and survey.footer is not None
    start = survey.last.end
    if start >= survey.size or survey.has_end:
        return []
    newest = survey.newest
    where = Where(row_group=found[-1].ordinal + 1 if found else 0)
    if newest is not None and newest.offset >= start and newest.kind in (Kind.FINAL, Kind.CHECKPOINT):
        # A footer stands there that is damaged; its header still counts the rows before it.
        known = found[-1].rows_before + found[-1].row_group.num_rows if found else 0
        missing = newest.num_rows - known
        if missing <= 0:
            return [] if newest.kind == Kind.FINAL else _unknown(start, survey.size, newest)
        reason = "row groups whose records are damaged stand before the last footer"
        return [LostRegion(start, survey.size, missing, Damage.CORRUPT, reason, where)]
    reason = "a row group was not complete when the file ends"
    return [LostRegion(start, survey.size, None, Damage.TORN, reason, where)]


def _unknown(start: int, end: int, newest: RecordHeader) -> list[LostRegion]:
    if newest.end >= end:
        return []  # nothing but the damaged checkpoint stands there
    return [
        LostRegion(start, end, None, Damage.CORRUPT, "what stands behind a damaged checkpoint is not known")
    ]


def known_row_groups(candidates: Candidates) -> list[KnownRowGroup]:
    """The candidates as the examination of their pages takes them.

    Raises:
        UnsupportedError: A chunk is encrypted.
    """
    return [_known(candidates.contents, i, candidate) for i, candidate in enumerate(candidates.row_groups)]


def _index(contents: Contents, position: int, leaf: Leaf, find: Find) -> ByteRange | None:
    try:
        place = find(indexes.Chunk(contents, position, leaf))
    except FormatError:
        return None  # where it is said to lie cannot be; recoveries do without
    return None if place is None else place.range


def _chunk_read(contents: Contents, position: int, leaf: Leaf) -> ChunkRead:
    """A chunk; one that is said to go on behind the end of the file is cut there.

    Raises:
        FormatError: It does not even begin in the file, or nothing is said of it.
    """
    try:
        return chunk_read(contents, position, leaf)
    except FormatError:
        footer = contents.footer
        behind = footer.length + footer.trailing + TAIL_SIZE if footer.length else 0
        return chunk_read(contents, position, leaf, cut_at=footer.start + behind)


def _known(contents: Contents, position: int, candidate: Candidate) -> KnownRowGroup:
    chunks: list[KnownChunk | None] = []
    for leaf in contents.schema.leaves:
        try:
            chunk = _chunk_read(contents, position, leaf)
        except FormatError:
            chunks.append(None)
            continue
        chunk = without_malformed_sums(chunk)
        offsets = _index(contents, position, leaf, indexes.offset_index_place)
        columns = _index(contents, position, leaf, indexes.column_index_place)
        chunks.append(KnownChunk(chunk, None, offsets, columns))
    return KnownRowGroup(
        ordinal=candidate.ordinal,
        num_rows=candidate.row_group.num_rows,
        rows_before=candidate.rows_before,
        chunks=tuple(chunks),
        method=candidate.method,
        start=candidate.start,
        end=candidate.end,
        sorting_columns=tuple(candidate.row_group.sorting_columns or ()),
    )
