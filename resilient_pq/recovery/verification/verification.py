"""Reads and verifies the data of a reconstructed file, and scans row groups that are not whole. An async shell."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import field, replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.chunk_salvage import RepairSource
from resilient_pq.format.resilience_records import CHUNK_RECORD_SIZE, RecordKind
from resilient_pq.io.transfer.fetch import fetch
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.evidence.footers.contradicted_footer import correct_by_pages, find_unknown_codecs
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.records.placement import place
from resilient_pq.recovery.evidence.records.record_scan import scan_object
from resilient_pq.recovery.evidence.row_counts import find_uncounted
from resilient_pq.recovery.evidence.row_group_choice import recount
from resilient_pq.recovery.report import Finding, LostRegion
from resilient_pq.recovery.verification.checksum_checks import PagesSeen
from resilient_pq.recovery.verification.findings import Progress, Seen, examine_metadata, examine_row_groups
from resilient_pq.recovery.verification.page_scan import AlternateSource, PageScanner, SalvageOptions, ScannedRowGroup


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in the data of a file."""

    reconstruction: Reconstruction  # What is known of the file, with the numbers of rows that its pages have
    findings: tuple[Finding, ...]  # What is not as it should be
    # For each row group that is not whole in its place, by its ordinal, what is left of it
    scanned: Mapping[int, ScannedRowGroup]
    lost: tuple[LostRegion, ...]  # What is lost whatever is kept of the row groups
    copies_damaged_at: tuple[int, ...]  # Where second copies and indexes are damaged, of which nothing is lost
    options: SalvageOptions  # Where whole bytes were looked for
    unread: bool = False  # Whether the row groups that footers and records name were not read
    has_magic: bool = False  # Whether it begins with the magic; False too where `copies_damaged_at` would have it
    # Where, before chunks that no footer names, records lie whose payload is damaged
    chunk_records_damaged_at: frozenset[int] = frozenset()
    # The pages of each chunk that is whole, by the position of its row group in the footer, and the ordinal of its leaf
    seen: Mapping[tuple[int, int], PagesSeen] = field(default_factory=dict)


async def verify_data(
    reconstruction: Reconstruction, options: SalvageOptions, progress: Progress | None, *, unread: bool = False
) -> Verification:
    """Read the data of all row groups, and scan those that are not whole; `unread` skips those that footers name."""
    source, data, copies, seen = reconstruction.source, list[Finding](), list[Finding](), Seen()
    named = None if reconstruction.candidates is None else reconstruction.candidates.contents
    if named is not None and not unread:
        data = [finding async for finding in examine_row_groups(source, named, progress, seen)]
        copies = [finding async for finding in examine_metadata(source, named)]
    # The metadata that a footer of ours leads to are examined, the magic among them.
    has_own_footer = named is not None and named.footer.record is not None
    damaged = _damaged_positions(data) | find_unknown_codecs(reconstruction)
    options, scanner, scanned = await _scan_damaged(reconstruction, options, damaged)
    corrected = await correct_by_pages(reconstruction, scanned, scanner)
    scanned |= corrected.found
    chunk_records_damaged_at = await _damaged_chunk_records(reconstruction)
    positions = reconstruction.positions
    reconstruction, lost = _count_again(reconstruction, scanned)
    return Verification(
        reconstruction,
        findings=(*_costs_of(data, positions, corrected.found), *corrected.findings, *copies),
        scanned=scanned,
        lost=lost,
        copies_damaged_at=tuple(finding.start or 0 for finding in copies),
        options=options,
        unread=unread,
        has_magic=not has_own_footer and await source.begins_with_magic(),
        chunk_records_damaged_at=chunk_records_damaged_at,
        seen=seen,
    )


def _costs_of(data: Iterable[Finding], positions: Mapping[int, int], corrected: Collection[int]) -> Iterator[Finding]:
    """Findings, which cost no rows where their row group could be corrected."""
    recovered = {positions[ordinal] for ordinal in corrected if ordinal in positions}
    for finding in data:
        yield replace(finding, costs_rows=False) if finding.where.row_group in recovered else finding


async def _scan_damaged(
    reconstruction: Reconstruction, options: SalvageOptions, damaged: Collection[int]
) -> tuple[SalvageOptions, PageScanner, dict[int, ScannedRowGroup]]:
    """Scan the row groups at damaged positions, and those that no footer names; again where parts were displaced."""
    source, contents, positions = reconstruction.source, reconstruction.contents, reconstruction.positions
    scanner, scanned = PageScanner(source, options, contents), {}
    for row_group in reconstruction.row_groups:
        position = positions.get(row_group.ordinal)
        if position is None or position in damaged:
            scanned[row_group.ordinal] = await scanner.scan(row_group)
    if scanner.displaced_at:
        options = replace(options, displaced_at=scanner.displaced_at)
        scanner = PageScanner(source, options, contents)
        scanned |= await _scan_before(reconstruction, options.displaced_at, scanner)
    if not reconstruction.moved and sum(map(_count_lost_pages, scanned.values())) > 1:
        displaced = await _displaced_parts(reconstruction)
        if displaced is not None:
            options = replace(options, alternates=(*options.alternates, displaced))
            scanner = PageScanner(source, options, contents)
            for ordinal in [ordinal for ordinal, left in scanned.items() if _count_lost_pages(left)]:
                scanned[ordinal] = await scanner.scan(scanned[ordinal].located)
    return options, scanner, scanned


async def _scan_before(
    reconstruction: Reconstruction, offsets: Container[int], scanner: PageScanner
) -> dict[int, ScannedRowGroup]:
    """Scan the row groups that end at some offsets."""
    before = [row_group for row_group in reconstruction.row_groups if row_group.end in offsets]
    return {row_group.ordinal: await scanner.scan(row_group) for row_group in before}


def _count_again(
    reconstruction: Reconstruction, scanned: Mapping[int, ScannedRowGroup]
) -> tuple[Reconstruction, tuple[LostRegion, ...]]:
    """Replace the stated numbers of rows by those of the pages; also gives what is lost between row groups."""
    stated, borne_out = reconstruction.row_groups, {ordinal: left.located for ordinal, left in scanned.items()}
    end, row_groups = recount(reconstruction.end, stated, borne_out)
    reconstruction = replace(reconstruction, end=end, row_groups=row_groups)
    counted = [
        replace(row_group, num_rows=scanned[row_group.ordinal].num_rows) if row_group.ordinal in scanned else row_group
        for row_group in reconstruction.row_groups
    ]
    return reconstruction, (*reconstruction.find_losses(counted), *find_uncounted(stated, borne_out))


async def _damaged_chunk_records(reconstruction: Reconstruction) -> frozenset[int]:
    """The records of chunks whose payload is damaged, where `examine_metadata` does not look."""
    named, source = reconstruction.positions, reconstruction.source
    headers = {
        header.payload_offset: header
        for header in reconstruction.headers.values()
        if header.kind == RecordKind.CHUNK and header.num_row_groups not in named and header.end <= source.info.size
    }
    places = [
        ByteRange(offset, header.end)
        for offset, header in headers.items()
        if header.end - header.offset == CHUNK_RECORD_SIZE
    ]
    async with aclosing(fetch(source.store, source.info, places, counters=source.counters)) as reading:
        async for i, data in reading:
            if headers[places[i].start].holds(data):
                del headers[places[i].start]
    return frozenset(header.offset for header in headers.values())


async def _displaced_parts(reconstruction: Reconstruction) -> AlternateSource | None:
    """The file with its parts where they were written, where its footer is whole but parts of it were moved."""
    # The whole file is read for it, which one page that is lost is not worth: a part that was moved costs more.
    file_id, source = reconstruction.file_id, reconstruction.source
    if file_id is None:
        return None
    headers = await source.drive(scan_object(source.info.size))
    view = await source.drive(place(source.info.size, headers, file_id, search_pages=True))
    if view.is_in_place:
        return None
    # Pages that happen to be alike look as if they had been moved, with those beside them: so no row group is known to
    # be the same there, and each page has to have the CRC32 that a copy of its header has.
    return AlternateSource(source.through(view), RepairSource.DISPLACED, frozenset())


def _count_lost_pages(scanned: ScannedRowGroup) -> int:
    chunks = [chunk for chunk in scanned.chunks if chunk is not None]
    return sum(fate.reason is not None for chunk in chunks for fate in chunk.pages)


def _damaged_positions(findings: Iterable[Finding]) -> set[int]:
    """The positions of row groups with findings that cost rows."""
    return {
        finding.where.row_group for finding in findings if finding.costs_rows and finding.where.row_group is not None
    }
