"""The strategies that use records: row groups that they name, and parts that were moved. Async shells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.partial_metadata import partial_metadata
from resilient_pq.errors import FormatError, RecoveryError, UnsupportedError, Where
from resilient_pq.format.file_metadata import FileMetaData, RowGroup
from resilient_pq.format.footer import FILE_ID_KEY, MAGIC, TAIL_SIZE, ChunkSums, key_values, metadata_length
from resilient_pq.format.quirks import Quirks
from resilient_pq.format.resilience_records import HEADER_SIZE, parse_header
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.contents import chunk_range
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.byte_remap import ByteRemap
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup, Method
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.records.chunk_records import find_row_groups
from resilient_pq.recovery.evidence.records.placement import place
from resilient_pq.recovery.evidence.records.record_scan import FileSpan, file_spans, scan_object
from resilient_pq.recovery.evidence.records.survey import Survey
from resilient_pq.recovery.evidence.row_group_choice import Candidates, candidates_of_survey
from resilient_pq.recovery.evidence.sibling_schema import match_names
from resilient_pq.recovery.report import Damage, Finding


async def read_records(known: Reconstruction) -> Reconstruction:
    """The row groups that the newest whole checkpoint and the records behind it name."""
    survey = await known.source.survey()
    wanted = known.source.file_id
    if wanted is not None and all(header.file_id != wanted for header in survey.found.values()):
        raise RecoveryError(
            f"no record of the file {wanted.hex()} was found", hint="leave the file id out to see which files there are"
        )
    others = () if known.moved else survey.others
    known = replace(known, survey=survey).with_findings(
        *(_report_other_file(other, "no anchor tells which file is meant") for other in others)
    )
    named = await known.with_candidates(partial(_candidates, survey), _num_chunks(survey))
    return named or (await _read_schemaless(known, survey))


async def _read_schemaless(known: Reconstruction, survey: Survey) -> Reconstruction:
    """The row groups that records name, where the schema has to come from the caller or a sibling."""
    if not survey.row_groups:
        return known
    row_groups = [found.row_group for _, found in sorted(survey.row_groups.items())]
    schema = known.given or await match_names(known.siblings, row_groups)
    if schema is None:
        return known
    named = await known.with_candidates(partial(_candidates, survey, schema.metadata), _num_chunks(survey))
    return known if named is None else replace(named, schema_from=schema.origin)


def _num_chunks(survey: Survey) -> int:
    """How many column chunks the records name."""
    row_groups = [found.row_group for found in survey.row_groups.values()]
    row_groups += () if survey.footer is None else survey.footer.metadata.row_groups
    return sum(len(row_group.columns) for row_group in row_groups)


def _candidates(survey: Survey, schema: FileMetaData | None = None) -> Candidates | None:
    try:
        return candidates_of_survey(survey, schema)
    except FormatError:
        return None  # its records contradict each other


async def restore_parts(known: Reconstruction) -> Reconstruction:
    """Read the file with its parts at the offsets at which they were written, where that leads to more of it."""
    assert known.survey is not None
    source, survey = known.source, known.survey
    found = survey.found.items()
    if not survey.scanned:
        found = dict(await source.drive(scan_object(source.info.size))).items()
    files = file_spans(found)
    view = await source.drive(place(source.info.size, found, survey.file_id))
    known = known.with_findings(*_report_complete(files, survey))
    if view.is_in_place and view.size == source.info.size:
        return known
    begins_later = any(file.base > 0 for file in files if file.file_id == survey.file_id)
    if begins_later and source.file_id is None and await source.begins_with_magic():
        # The object begins as a file of which no record is left.
        within = (_report_other_file(file, "it is within this one") for file in files)
        return replace(known.with_findings(*within), lies_within=True)
    if not await _finds_more(known, view):
        return known
    return known.through(view, "parts of it lie elsewhere than they were written: they are put back")


def _report_complete(files: Sequence[FileSpan], survey: Survey) -> Iterator[Finding]:
    """The other files that are there from their first record to their last, unless they are reported already."""
    reported = {survey.file_id, *(other.file_id for other in survey.others)}
    for file in files:
        if file.complete and file.file_id not in reported:
            yield _report_other_file(file, "it is not looked at")


async def _finds_more(known: Reconstruction, view: ByteRemap) -> bool:
    """Whether records name more of the file in a view; copies of the file may lie in one of its own columns."""
    assert known.survey is not None
    survey = await known.source.through(view).survey()
    candidates = await off_loop(_num_chunks(survey), _candidates, survey)
    if candidates is None or (known.contents is not None and known.contents.schema != candidates.contents.schema):
        return False
    finds_end = survey.has_end and not known.survey.has_end
    return len(candidates.row_groups) + finds_end > len(known.row_groups)


def _report_other_file(file: FileSpan, why: str) -> Finding:
    message = (
        f"another file lies at {file.start:,} to {file.end:,}; {why}: --file-id {file.file_id.hex()} takes that one"
    )
    return Finding(Damage.FOREIGN, message, Where(offset=file.start), file.start, file.end, costs_rows=False)


async def read_chunk_records(known: Reconstruction) -> Reconstruction:
    """The row groups that only the records before their chunks name."""
    assert known.survey is not None and known.contents is not None
    carved = [row_group for row_group in known.row_groups if row_group.method is Method.CARVED]
    search = find_row_groups(
        known.source.info.size,
        known.contents.schema,
        known.survey.headers,
        {row_group.ordinal for row_group in known.row_groups if row_group not in carved},
        strangers=known.survey.strangers,
        moved=known.moved,
        quirks=Quirks.of(known.contents.metadata.created_by),
    )
    found = await known.source.drive(search)
    footer_start = await _footer_start(known.source, known.survey) if found else None
    stale = [one for one in found if _is_stale(one, known.row_groups, footer_start)]
    known = known.with_findings(*map(_report_stale, stale))
    stated = await _read_stated(known, footer_start)
    found = tuple(_with_sums(one, stated) for one in found if one not in stale)
    if not carved:
        return known.with_row_groups(found)
    # Carved row groups have all pages that lie there.
    return known.with_unnumbered(one for one in found if not any(one.overlaps(other) for other in carved))


# -- chunks of an older version, which had the same file id and may have been longer ------------------------


def _report_stale(row_group: LocatedRowGroup) -> Finding:
    message = "records of chunks are of another version of the file, by place or rows: they are left out"
    where = Where(row_group=row_group.ordinal, offset=row_group.start)
    return Finding(Damage.FOREIGN, message, where, row_group.start, row_group.end, costs_rows=False)


async def _footer_start(source: DamagedObject, survey: Survey) -> int | None:
    """The offset of the footer as the last bytes state it; None for that of a file in a column, or of an older one."""
    size = source.info.size
    try:
        length = metadata_length(await source.read(ByteRange(max(size - TAIL_SIZE, 0), size)), Where())
    except (FormatError, UnsupportedError):
        return None
    start = size - TAIL_SIZE - length
    if start < len(MAGIC) + HEADER_SIZE:
        return None
    record = parse_header(await source.read(ByteRange(start - HEADER_SIZE, start)))
    newest = max((header.epoch for header in survey.headers), default=0)
    return start if record is None or (record.file_id == survey.file_id and record.epoch >= newest) else None


async def _read_stated(known: Reconstruction, footer_start: int | None) -> list[RowGroup]:
    """The row groups that a footer names whose own checksum does not hold, up to where it is damaged."""
    file_id = known.file_id
    if footer_start is None or file_id is None:
        return []
    read = partial_metadata(await known.source.read(ByteRange(footer_start, known.source.info.size - TAIL_SIZE)))
    is_own = key_values(read.key_value_metadata).get(FILE_ID_KEY) in (None, file_id.hex())
    return read.row_groups if is_own else []


def _with_sums(found: LocatedRowGroup, stated: Sequence[RowGroup]) -> LocatedRowGroup:
    """A row group with the checksums that a damaged footer has of its chunks: nothing else tells exchanged pages."""
    columns = stated[found.ordinal].columns if found.ordinal < len(stated) else []
    chunks = list(found.chunks)
    for i, (chunk, column) in enumerate(zip(chunks, columns, strict=False)):
        metadata = column.meta_data
        if chunk is None or metadata is None or chunk.pages is None or not chunk.pages.pages:
            continue
        end = chunk.pages.pages[-1].end  # the last chunk is not known to end there, but by the footer
        try:
            place, sums = chunk_range(metadata, end), ChunkSums.of(metadata)
        except FormatError:
            continue
        if sums is not None and place == (chunk.read.range.start, end):
            pairs = ChunkSums(chunk=sums.chunk, xxh3=sums.xxh3).pairs
            size = end - chunk.read.range.start
            described = replace(chunk.read.metadata, key_value_metadata=pairs, total_compressed_size=size)
            chunks[i] = replace(chunk, read=replace(chunk.read, metadata=described, range=ByteRange(*place)))
    return replace(found, chunks=tuple(chunks))


def _is_stale(found: LocatedRowGroup, named: Sequence[LocatedRowGroup], footer_start: int | None) -> bool:
    """Whether chunks contradict this version of the file: its footer lies there, or other rows come before them."""
    if footer_start is not None and found.end > footer_start:
        return True
    before = next((one for one in named if one.ordinal == found.ordinal - 1 and one.method is not Method.CARVED), None)
    if before is None or before.rows_before is None or before.num_rows is None or found.rows_before is None:
        return False
    return before.rows_before + before.num_rows != found.rows_before
