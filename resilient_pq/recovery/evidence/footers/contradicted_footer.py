"""Row groups that a damaged footer describes otherwise than their pages do, described by these. An async shell.

A footer of another writer has no checksum. One wrong bit may move a chunk, or change its codec or number of rows, while
every page is whole. Then the pages between the row groups before and behind show the row group as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.page_header_checks import LIMITS
from resilient_pq.damage.partial_metadata import partial_metadata
from resilient_pq.errors import FormatError, Where
from resilient_pq.format.file_metadata import CompressionCodec
from resilient_pq.format.footer import MAGIC
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.carve import FoundFile, carve
from resilient_pq.recovery.carve.carving import MOST_BETWEEN, is_between_chunks
from resilient_pq.recovery.carve.range_windows import search_pages
from resilient_pq.recovery.evidence.located_row_group import LocatedChunk, LocatedRowGroup, RebuiltFile
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.report import Damage, Finding
from resilient_pq.recovery.verification.page_scan import PageScanner, ScannedRowGroup

_CODECS = frozenset(CompressionCodec)


@dataclass(frozen=True, slots=True)
class CorrectedRowGroups:
    """Row groups as their pages describe them, by ordinal, and what is wrong with the footer."""

    found: Mapping[int, ScannedRowGroup]
    findings: tuple[Finding, ...]


async def correct_by_pages(
    known: Reconstruction, found: Mapping[int, ScannedRowGroup], examiner: PageScanner
) -> CorrectedRowGroups:
    """Describe row groups that are not whole by the pages that lie in their place."""
    if known.contents is None or known.file_id is not None:
        return CorrectedRowGroups({}, ())
    better: dict[int, ScannedRowGroup] = {}
    for run, place in _runs(known, found):
        try:
            rest = await _rest(known, run)
            rebuilt = await _rebuilt(known, place, rest)
        except FormatError:
            continue  # it would cost too much
        for one, other in _pairs(known, run, rebuilt, rest):
            left = await examiner.scan(_with_evidence(one, other))
            if left.is_whole:
                better[one.ordinal] = left
    findings = tuple(_finding(found[ordinal].located) for ordinal in sorted(better))
    return CorrectedRowGroups(better, findings)


def find_unknown_codecs(known: Reconstruction) -> set[int]:
    """The positions of row groups with a chunk of an undefined codec, where most chunks have defined ones."""
    row_groups = [] if known.candidates is None else known.candidates.contents.metadata.row_groups
    chunks = [
        (position, chunk.meta_data.codec in _CODECS)
        for position, row_group in enumerate(row_groups)
        for chunk in row_group.columns
        if chunk.meta_data is not None
    ]
    unknown = [position for position, is_known in chunks if not is_known]
    return set(unknown) if 2 * len(unknown) < len(chunks) else set()  # else it may be a codec to come


def _runs(
    known: Reconstruction, found: Mapping[int, ScannedRowGroup]
) -> Iterator[tuple[list[LocatedRowGroup], ByteRange]]:
    """Runs of row groups that are not whole, each with the range between the whole ones around it."""
    assert known.contents is not None
    start, run = len(MAGIC), list[LocatedRowGroup]()
    for row_group in known.row_groups:
        left = found.get(row_group.ordinal)
        if left is not None and not left.is_whole:
            run.append(row_group)
            continue
        if run and start < row_group.start:
            yield run, ByteRange(start, row_group.start)
        start, run = row_group.end, []
    end = min(known.contents.footer.start, known.source.info.size)
    if run and start < end:
        yield run, ByteRange(start, end)


async def _rebuilt(known: Reconstruction, place: ByteRange, rest: set[int]) -> RebuiltFile | None:
    """The row groups that pages make up which begin with a range; None where no page begins it."""
    assert known.contents is not None
    pages = await known.source.drive(search_pages(place.start, place.end, LIMITS))
    if not pages or pages[0].offset - place.start > MOST_BETWEEN:
        return None
    if not is_between_chunks(await known.source.read(ByteRange(place.start, pages[0].offset))):
        return None
    file = FoundFile(pages[0].offset - len(MAGIC), place.end, True, None, tuple(pages))
    rows = {row_group.num_rows for row_group in known.row_groups if row_group.num_rows}
    return await known.source.drive(carve(file, known.contents.schema, expected_rows=rows | rest))


async def _rest(known: Reconstruction, run: Sequence[LocatedRowGroup]) -> set[int]:
    """The rows of a single row group, where all others and those of the file are known."""
    assert known.contents is not None
    footer = known.contents.footer
    stated = partial_metadata(await known.source.read(ByteRange(footer.start, known.source.info.size))).num_rows
    others = [row_group.num_rows for row_group in known.row_groups if row_group not in run]
    counted = [rows for rows in others if rows is not None]
    rest = (stated or 0) - sum(counted)
    return {rest} if len(run) == 1 and rest > 0 and len(counted) == len(others) else set()


def _pairs(
    known: Reconstruction, run: Sequence[LocatedRowGroup], rebuilt: RebuiltFile | None, rest: set[int]
) -> Iterator[tuple[LocatedRowGroup, LocatedRowGroup]]:
    """Row groups by the footer and by their pages, where these cannot belong to another row group."""
    if rebuilt is None or rebuilt.findings or len(rebuilt.row_groups) != len(run):
        return
    for one, other in zip(run, rebuilt.row_groups, strict=True):
        whole = all(chunk is not None and chunk.pages is not None and chunk.pages.complete for chunk in other.chunks)
        if _is_moved(one, other) or _has_other_size(known, one, other):
            continue
        if whole and other.num_rows is not None and (other.num_rows in rest or _is_same(one, other)):
            yield one, other


def _with_evidence(stated: LocatedRowGroup, other: LocatedRowGroup) -> LocatedRowGroup:
    """A row group by its pages, with statistics and indexes of the footer, with which values have to agree."""
    chunks: list[LocatedChunk | None] = []
    for one, found in zip(stated.chunks, other.chunks, strict=True):
        if one is not None and found is not None:
            metadata = replace(found.read.metadata, statistics=one.read.metadata.statistics)
            read = replace(found.read, metadata=metadata)
            chunks.append(replace(found, read=read, offset_index=one.offset_index, column_index=one.column_index))
        else:
            chunks.append(found)
    return replace(other, ordinal=stated.ordinal, rows_before=stated.rows_before, chunks=tuple(chunks))


def _is_same(one: LocatedRowGroup, other: LocatedRowGroup) -> bool:
    """Whether footer and pages agree in most numbers of a row group, so that only a few bits are damaged."""
    agreed: Counter[bool] = Counter()
    for stated, found in zip(one.chunks, other.chunks, strict=True):
        if stated is None or found is None:
            agreed[False] += 1
            continue
        agreed[stated.read.range.start == found.read.range.start] += 1
        agreed[stated.read.range.end == found.read.range.end] += 1
        agreed[stated.read.metadata.num_values == found.read.metadata.num_values] += 1
    return agreed[True] > agreed[False]


def _is_moved(one: LocatedRowGroup, other: LocatedRowGroup) -> bool:
    """Whether a chunk does not end where two numbers of the footer have its end, which one bit cannot change."""
    pairs = list(zip(one.chunks, other.chunks, strict=True))
    for (stated, found), (following, _) in pairwise(pairs):
        if stated is not None and found is not None and following is not None:
            end = stated.read.range.end
            if end == following.read.range.start != found.read.range.end:
                return True
    return False


def _has_other_size(known: Reconstruction, one: LocatedRowGroup, other: LocatedRowGroup) -> bool:
    """Whether the chunks do not have the size, or do not end, where two numbers of the footer agree in it."""
    stated = {each.ordinal: each for each in (() if known.candidates is None else known.candidates.row_groups)}
    mine, following = stated.get(one.ordinal), stated.get(one.ordinal + 1)
    size = sum(chunk.read.metadata.total_compressed_size for chunk in one.chunks if chunk is not None)
    found = sum(chunk.read.range.size for chunk in other.chunks if chunk is not None)
    if mine is not None and mine.row_group.total_compressed_size == size != found:
        return True
    return following is not None and following.start == one.end != other.end


def _finding(row_group: LocatedRowGroup) -> Finding:
    message = "what the footer says of the row group is not what its pages are, which are whole: they are believed"
    where = Where(row_group=row_group.ordinal)
    return Finding(Damage.CORRUPT, message, where, row_group.start, row_group.end, costs_rows=False)
