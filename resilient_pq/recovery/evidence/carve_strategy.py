"""The strategy that searches for pages where no footer and no record names row groups. An async shell."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.page_search import FoundPage
from resilient_pq.errors import Where
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.footer import Footer
from resilient_pq.format.schema_tree import Schema
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery import carve
from resilient_pq.recovery.evidence.byte_remap import ByteRemap, RemapSegment
from resilient_pq.recovery.evidence.located_row_group import RebuiltFile
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.records.survey import Survey
from resilient_pq.recovery.evidence.row_group_choice import FileEnd
from resilient_pq.recovery.evidence.schema_source import KnownSchema
from resilient_pq.recovery.evidence.sibling_schema import count_pages, fit_siblings, leaves_pages_out
from resilient_pq.recovery.report import Damage, Finding
from resilient_pq.version import MAKER


async def carve_row_groups(known: Reconstruction) -> Reconstruction:
    """The row groups that pages make up, outside of the row groups that are known."""
    size = known.source.info.size
    files = _without_copies(await known.source.drive(carve.find_files(0, size)), known)
    if not files:
        return known
    file = max(files, key=lambda file: file.num_bytes)
    known = known.with_findings(*_report_several(file, files))
    if not known.row_groups and file.metadata is not None and file.has_head:
        inside = ByteRemap(file.end - file.start, (RemapSegment(0, file.end - file.start, file.start),))
        return known.through(inside, f"the file lies at {file.start:,} to {file.end:,} of other bytes")
    if known.row_groups:
        file = replace(file, start=0, has_head=True)  # a footer names its first pages, whatever its head looks like
    rebuilt, schema_from = await _rebuild(known, file)
    known = replace(known, schema_from=schema_from).with_findings(*rebuilt.findings)
    carved = filter(lambda row_group: any(row_group.chunks), rebuilt.row_groups)
    found = [row_group for row_group in carved if not any(map(row_group.overlaps, known.row_groups))]
    if not found:
        return known
    contents = known.contents or Contents.of(Footer(rebuilt.metadata, size, 0, None))
    return replace(known, contents=contents, end=known.end or FileEnd(0, size)).with_unnumbered(found)


def _report_several(taken: carve.FoundFile, files: Sequence[carve.FoundFile]) -> Iterator[Finding]:
    others = ", ".join(f"{other.start:,} to {other.end:,}" for other in files if other is not taken)
    if others:
        message = f"there are several files in it; that at {taken.start:,} is taken, and not those at {others}"
        yield Finding(Damage.FOREIGN, message, Where(offset=taken.start), costs_rows=False)


def _without_copies(files: Sequence[carve.FoundFile], known: Reconstruction) -> list[carve.FoundFile]:
    """Files that have pages, without the copies of page headers in records, and the pages of other files."""
    found = {} if known.survey is None else known.survey.found
    inner = known.inner_files
    places = sorted((at, at + header.end - header.offset) for at, header in found.items())
    strange = list(_strange_ranges(known))
    starts = [place.start for place in strange]

    def is_copy(page: FoundPage) -> bool:
        i = bisect_right(places, (page.offset, page.offset)) - 1
        if i >= 0 and places[i][1] >= page.end:
            return True
        i = bisect_right(starts, page.offset) - 1
        if i >= 0 and page.end <= strange[i].end:
            return True
        return any(place.start <= page.offset < place.end for place in inner)

    files = [replace(file, pages=tuple(page for page in file.pages if not is_copy(page))) for file in files]
    return [file for file in files if file.pages]


def _strange_ranges(known: Reconstruction) -> Iterator[ByteRange]:
    """Between which records all pages are, or may be, of another file: it lies between this one's, or behind them."""
    found = {} if known.survey is None or known.moved or known.lies_within else known.survey.found
    size, mine = known.source.info.size, known.file_id
    records = sorted((at, header.file_id == mine) for at, header in found.items())
    last = max((at for at, is_mine in records if is_mine), default=size)
    for (start, is_mine), (end, is_next_mine) in pairwise([*records, (size, False)]):
        if not is_next_mine and (not is_mine or (start == last and end < size)):
            yield ByteRange(start, end)


async def _rebuild(known: Reconstruction, file: carve.FoundFile) -> tuple[RebuiltFile, str | None]:
    """What the pages of a file make up, and where their schema comes from if not from the file."""
    counts = {row_group.num_rows for row_group in known.row_groups if row_group.num_rows is not None}
    given = known.given
    if known.contents is not None:
        rows = counts | (frozenset() if given is None else given.row_counts)
        return await _carve(known, file, known.contents.schema, rows), known.schema_from
    if given is None:
        fit = await fit_siblings(known.siblings, lambda schema: _carve_like(known, file, schema, counts))
        return fit.rebuilt, fit.origin
    return await _carve_like(known, file, given, counts), given.origin


async def _carve_like(
    known: Reconstruction, file: carve.FoundFile, given: KnownSchema | None, counts: set[int]
) -> RebuiltFile:
    """What pages make up by a schema from elsewhere, with the metadata of its file; or by an invented schema."""
    if given is None:
        return await _carve(known, file, None, counts)
    rows = counts | given.row_counts
    rebuilt = await _carve(known, file, given.schema, rows)
    if leaves_pages_out(rebuilt):
        # What repeats tells where row groups end, as without a schema, where it tells as many columns.
        invented = await _carve(known, file, None, counts)
        more = {group.num_rows for group in invented.row_groups if group.num_rows is not None} - rows
        if more and len(invented.schema.leaves) == len(given.schema.leaves):
            other = await _carve(known, file, given.schema, rows | more)
            rebuilt = max(rebuilt, other, key=count_pages)
    return replace(rebuilt, metadata=given.metadata)


async def _carve(
    known: Reconstruction, file: carve.FoundFile, schema: Schema | None, rows: Collection[int]
) -> RebuiltFile:
    named = () if known.survey is None else _named_columns(known.survey)
    made_by = None if known.contents is None else known.contents.metadata.created_by
    ours = (made_by or "").startswith(MAKER)  # a record, or what is left of one, stands before each chunk
    rebuilt = await known.source.drive(carve.carve(file, schema, expected_rows=rows, named=named, separated=ours))
    if rows and not rebuilt.row_groups:
        rebuilt = await known.source.drive(carve.carve(file, schema, separated=ours))  # it may have other row counts
    return rebuilt


def _named_columns(survey: Survey) -> list[carve.NamedColumn]:
    """The columns in the first record of a row group; none where there is no such record."""
    columns = next((found.row_group.columns for _, found in sorted(survey.row_groups.items())), [])
    chunks = [chunk.meta_data for chunk in columns]
    return [
        carve.NamedColumn(tuple(chunk.path_in_schema), Type(chunk.type))
        for chunk in chunks
        if chunk is not None and chunk.path_in_schema and chunk.type in list(Type)
    ]
