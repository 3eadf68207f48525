"""The footer of a file, rebuilt from its pages, which are laid out in columns and row groups. Sans-io."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

from resilient_pq.damage.page_search import FoundPage, Proof, metadata_end
from resilient_pq.format.file_metadata import CompressionCodec, FileMetaData, Repetition
from resilient_pq.format.footer import MAGIC
from resilient_pq.format.pages.page import Page
from resilient_pq.format.resilience_records import CHUNK_RECORD_SIZE, HEADER_SIZE, ChunkPlace, RecordKind, parse_header
from resilient_pq.format.schema_tree import Group, Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.carve.carve_limits import CarveLimits
from resilient_pq.recovery.carve.carved_row_groups import RowGroupBuilder, common_codec, data_version
from resilient_pq.recovery.carve.file_spans import FoundFile
from resilient_pq.recovery.carve.holes import Hole, examine_hole
from resilient_pq.recovery.carve.invented_columns import NamedColumn, candidate_kinds, invent_columns
from resilient_pq.recovery.carve.invented_columns import describe_columns as findings_of
from resilient_pq.recovery.carve.page_layout import PageLayout, Places
from resilient_pq.recovery.carve.page_probe import (
    Kinds,
    ProbedPage,
    decompress_page,
    kind_of,
    kinds_of,
    probe_body,
    probe_header,
    with_all_types,
)
from resilient_pq.recovery.carve.range_windows import RangeRequests, RangeWindow
from resilient_pq.recovery.carve.stretch_placement import StretchPlacement
from resilient_pq.recovery.evidence.located_row_group import RebuiltFile
from resilient_pq.recovery.report import Damage, Finding
from resilient_pq.units import KiB

#: What stands between two chunks is looked at where it is not larger.
MOST_BETWEEN = 64 * KiB
#: Bytes of the length of a footer and the magic behind it.
_TAIL = 8


def carve(
    file: FoundFile,
    schema: Schema | None = None,
    *,
    expected_rows: Collection[int] = (),
    limits: CarveLimits | None = None,
    named: Sequence[NamedColumn] = (),
    separated: bool = False,
) -> RangeRequests[RebuiltFile]:
    """Rebuild the footer of a file from its pages, by its schema or by invented columns.

    Pages that belong to no column, or could belong to several, are left out and reported. `expected_rows` are those of
    row groups in similar files, `named` the columns in records, and `separated` means that records lie between all
    chunks.
    """
    limits = limits or CarveLimits()
    size = sum(page.end - page.offset for page in file.pages)
    findings: list[Finding] = []
    places = yield from _recorded_places(file.pages)
    separated = separated or bool(places)
    if schema is None:
        kinds = candidate_kinds(file.pages)
        probed = yield from _probe_pages(file, kinds, limits)
        found = yield from _cut_stretches(_without_damaged_values(probed, kinds))
        pages, borders = (found.pages, found.starts) if places else (_longest_stretch(found), set())
        steps = limits.budget(size)
        begins = yield from _is_row_group_start(file, pages, places)
        invented = invent_columns(
            pages, list(kinds), steps, limits.max_columns, places, named, begins=begins, borders=borders
        )
        if steps.ended:
            findings.append(steps.finding("there may be more columns, or fewer", file.start, file.end))
        if invented is None or (len(invented.schema.leaves) == 1 and len(pages) < len(found.pages)):
            nothing = Schema(Group("schema", Repetition.REQUIRED, ()))
            findings += [_report_unknown_columns(file.pages)] if file.pages else []
            return RebuiltFile(nothing, FileMetaData(1, nothing.to_elements(), 0, []), (), tuple(findings))
        schema, expected_rows = invented.schema, invented.row_counts
        findings += findings_of(invented)
        if invented.end is not None:
            left = [page for page in file.pages if page.offset >= invented.end]
            findings.append(_report_unknown_columns(left))
            file = replace(file, pages=file.pages[: len(file.pages) - len(left)])
    probed = yield from _probe_pages(file, kinds_of(schema.leaves), limits)
    stretches = yield from _cut_stretches(probed)
    columns = [kind_of(leaf) for leaf in schema.leaves]
    budget = limits.budget(size)
    layout = PageLayout(
        stretches.pages, columns, stretches.borders, expected_rows, budget, places, separated=separated
    )  # fmt: skip
    placing = StretchPlacement(layout, stretches.ranges, _is_file_start(file, stretches.pages), stretches.holes)
    placing.run()
    rebuilding = RowGroupBuilder(schema, stretches.pages, _codecs(placing))
    metadata = FileMetaData(data_version(stretches.pages), schema.to_elements(), 0, [])
    findings += _report_strangers(probed) + _report_oddities(placing)
    return RebuiltFile(schema, metadata, rebuilding.row_groups(placing.groups, file.start), tuple(findings))


def _probe_pages(file: FoundFile, kinds: Kinds, limits: CarveLimits) -> RangeRequests[list[ProbedPage]]:
    """Examine pages within the limits; pages that fit no column, or whose end is not proven, have no kinds."""
    pages = file.pages
    window = RangeWindow(max((page.end for page in pages), default=0))
    nested = any(kind.max_repetition_level for kind in kinds)
    found: list[ProbedPage] = []
    left = limits.probed_bytes
    likely: CompressionCodec | None = None
    dictionary: Page | None = None
    end = 0
    for page in pages:
        known = probe_header(page, kinds)
        dictionary = dictionary if page.offset == end else None
        if left > 0 or _needs_body(known, found[-1] if found else None, nested=nested):
            left -= page.header.uncompressed_page_size + known.num_values
            view = yield from window.read(page.offset, page.end)
            size = page.header_size
            body = Page(0, page.offset, page.header, view[:size], view[size:])
            known = probe_body(known, body, kinds, likely, dictionary)
            likely = known.codec or likely
            if known.is_dictionary:
                codec = known.codec or CompressionCodec.UNCOMPRESSED
                dictionary = decompress_page(body, codec) if known.decoded else None
            if not known.decoded and (nested or page.proof in _WEAK):
                known = replace(known, rows={})
        found.append(known)
        end = page.end
    return (yield from _without_open_ends(found, file.end))


def _without_open_ends(found: Sequence[ProbedPage], end: int) -> RangeRequests[list[ProbedPage]]:
    """Pages, those without kinds that have an open end where bytes may be missing."""
    window = RangeWindow(end)
    largest = max((known.page.end - known.page.offset for known in found), default=0)
    judged = list(found)
    for i, (known, following) in enumerate(pairwise(found)):
        if known.has_open_end:
            hole = yield from examine_hole(window, known.page.end, following.page.offset, largest)
            judged[i] = known if hole.is_full_length else replace(known, rows={})
    if found and not found[-1].page.crc_holds:
        tail = yield from RangeWindow(end).read(max(end - _TAIL, 0), end)
        size = int.from_bytes(tail[:-4], "little") if tail[-4:] == MAGIC else 0
        # A footer that must have begun before the end of the page lacks its beginning, which is in the page.
        if end - _TAIL - size < found[-1].page.end <= end - _TAIL:
            judged[-1] = replace(found[-1], rows={})
    return judged


def _without_damaged_values(pages: list[ProbedPage], kinds: Kinds) -> list[ProbedPage]:
    """The pages, of which those whose CRC32 does not hold may be of any type, where that of another holds."""
    if all(page.page.proof is not Proof.CRC for page in pages):
        return pages
    damaged = [page.page.header.crc is not None and page.page.proof is not Proof.CRC for page in pages]
    return [with_all_types(page, kinds) if lost else page for page, lost in zip(pages, damaged, strict=True)]


def _needs_body(page: ProbedPage, before: ProbedPage | None, *, nested: bool) -> bool:
    """Whether a page has to be decompressed, whatever that costs."""
    if page.is_dictionary or page.page.proof in _WEAK:
        return True
    if before is None or before.is_dictionary or before.page.end != page.page.offset:
        return True
    return nested and page.page.header.data_page_header is not None


#: Proofs that need another one: that the page decodes.
_WEAK = (Proof.NEXT, Proof.DECOMPRESSED, Proof.PREVIOUS)


@dataclass(frozen=True, slots=True)
class _Stretches:
    """Pages of columns of the schema."""

    pages: list[ProbedPage]  # Those that may be of a column of the schema
    ranges: list[tuple[int, int]]  # Index of the first page of each stretch, and the one after its last
    borders: set[int]  # Indexes of pages before which something stands that stands between chunks only
    holes: dict[int, Hole]  # By index of the first page behind it

    @property
    def starts(self) -> set[int]:
        """Indexes of pages that do not directly follow another."""
        return self.borders.union(start for start, _ in self.ranges)


def _cut_stretches(probed: Sequence[ProbedPage]) -> RangeRequests[_Stretches]:
    """Divide pages into stretches without missing bytes."""
    window = RangeWindow(max((page.page.end for page in probed), default=0))
    pages: list[ProbedPage] = []
    starts: list[int] = []
    borders: set[int] = set()
    holes: dict[int, Hole] = {}
    largest = max((page.page.end - page.page.offset for page in probed), default=0)
    for page in probed:
        if not page.rows:
            continue
        end = pages[-1].page.end if pages else None
        if end != page.page.offset:
            between = None
            if end is not None and page.page.offset - end <= MOST_BETWEEN:
                between = yield from window.read(end, page.page.offset)
            if between is not None and is_between_chunks(between):
                borders.add(len(pages))
            else:
                starts.append(len(pages))
                if end is not None:
                    holes[len(pages)] = yield from examine_hole(window, end, page.page.offset, largest)
        pages.append(page)
    return _Stretches(pages, list(pairwise([*starts, len(pages)])), borders, holes)


def is_between_chunks(data: memoryview) -> bool:
    """Whether bytes are only metadata or records, as lie between chunks; zeros may be a hole."""
    at = 0
    while at < len(data) and (size := _record_size(data[at:]) or metadata_end(data[at:])) is not None:
        at += size
    return at == len(data)


def _record_size(data: memoryview) -> int | None:
    """Bytes of the record that bytes begin with, whose payload may be damaged; None for no record."""
    header = parse_header(data)
    return None if header is None or header.end - header.offset > len(data) else header.end - header.offset


def _recorded_places(pages: Sequence[FoundPage]) -> RangeRequests[Places]:
    """Which chunk begins with a page, by a whole record in its place before it."""
    window = RangeWindow(max((page.end for page in pages), default=0))
    found: dict[bytes, dict[int, ChunkPlace]] = {}
    for before, page in pairwise([None, *pages]):
        assert page is not None
        start = page.offset - CHUNK_RECORD_SIZE
        if start < (0 if before is None else before.end):
            continue
        data = yield from window.read(start, page.offset)
        header = parse_header(data)
        if header is None or (header.kind, header.offset, header.end) != (RecordKind.CHUNK, start, page.offset):
            continue
        if header.holds(data[HEADER_SIZE:]):
            found.setdefault(header.file_id, {})[page.offset] = ChunkPlace.unpack(data[HEADER_SIZE:])
    return max(found.values(), key=len, default={})


def _longest_stretch(found: _Stretches) -> list[ProbedPage]:
    """The longest stretch of pages where it has most of them; none otherwise, as columns would be mixed up."""
    start, end = max(found.ranges, key=lambda stretch: stretch[1] - stretch[0], default=(0, 0))
    return found.pages[start:end] if 2 * (end - start) > len(found.pages) else []


def _is_file_start(file: FoundFile, pages: Sequence[ProbedPage]) -> bool:
    return bool(pages) and file.has_head and pages[0].page.offset == file.start + len(MAGIC)


def _is_row_group_start(file: FoundFile, pages: Sequence[ProbedPage], places: Places) -> RangeRequests[bool]:
    """Whether the first page certainly begins a row group."""
    if not pages:
        return False
    start = pages[0].page.offset
    place = places.get(start)
    if place is not None:
        return place.column == 0
    head = file.start + len(MAGIC) if file.has_head else len(MAGIC)
    if not 0 <= start - head <= MOST_BETWEEN:
        return False
    return is_between_chunks((yield from RangeWindow(start).read(head, start)))


def _codecs(placing: StretchPlacement) -> dict[int, CompressionCodec]:
    """The codec of each column whose pages show it."""
    pages = placing.layout.pages
    found: dict[int, CompressionCodec] = {}
    for leaf in range(len(placing.layout.columns)):
        spans = [placed.span for group in placing.groups for placed in group.spans[leaf]]
        codec = common_codec(page for span in spans for page in pages[span.start : span.end])
        if codec is not None:
            found[leaf] = codec
    return found


def _report_unknown_columns(pages: Sequence[FoundPage]) -> Finding:
    return Finding(
        Damage.UNVERIFIED,
        f"of {len(pages)} pages nothing tells of which columns they are, or with which column a row group begins: they "
        "are left out; the schema of a file of the same make would tell (--schema-from)",
        start=pages[0].offset,
        end=pages[-1].end,
    )


def _report_strangers(probed: Sequence[ProbedPage]) -> list[Finding]:
    strangers = [page.page for page in probed if not page.rows]
    if not strangers:
        return []
    return [
        Finding(
            Damage.UNVERIFIED,
            f"{len(strangers)} of {len(probed)} pages are of no column of the schema, or damaged",
            start=strangers[0].offset,
            end=strangers[-1].end,
        )
    ]


def _report_oddities(placing: StretchPlacement) -> list[Finding]:
    pages = placing.layout.pages
    odd = [
        Finding(
            Damage.UNVERIFIED,
            f"{end - start} pages fit no column, or more than one",
            start=pages[start].page.offset,
            end=pages[end - 1].page.end,
        )
        for start, end in placing.left_out
    ]
    if placing.ended is not None:
        start, end = placing.ended
        message = f"{end - start} pages were put in no column"
        odd.append(placing.layout.steps.finding(message, pages[start].page.offset, pages[end - 1].page.end))
    if any(start <= page < end for page, _ in placing.layout.unclear for start, end in placing.left_out):
        odd.append(
            Finding(
                Damage.UNVERIFIED,
                "where a row group ends is not clear: pages without dictionaries and of equally many rows can be laid "
                "out in more than one way, in which they are of other columns; the footer of a file of the same make, "
                "whose row groups have as many rows, would tell (--schema-from)",
                start=placing.layout.pages[0].page.offset,
                end=placing.layout.pages[-1].page.end,
            )
        )
    return odd
