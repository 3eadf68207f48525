"""The data of a file that is understood: which row groups are whole, and what is left of the others. An async shell."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.chunk_salvage import RepairSource
from resilient_pq.format.resilience_records import CHUNK_RECORD_SIZE, RecordKind
from resilient_pq.io.transfer.fetch import fetch
from resilient_pq.recovery.evidence.contradicted_footer import as_pages_tell, of_unknown_codecs
from resilient_pq.recovery.evidence.placement import place
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.record_scan import all_headers
from resilient_pq.recovery.evidence.row_counts import uncounted
from resilient_pq.recovery.evidence.row_group_choice import recounted
from resilient_pq.recovery.report import Finding, LostRegion
from resilient_pq.recovery.verification.checksum_checks import PagesSeen
from resilient_pq.recovery.verification.findings import Progress, Seen, examine_metadata, examine_row_groups
from resilient_pq.recovery.verification.page_scan import Elsewhere, Means, PageScanner, ScannedRowGroup


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in the data of a file.

    Attributes:
        findings: What is not as it should be.
        found: For each row group that is not whole in its place, by its ordinal, what is left of it.
        lost: What is lost whatever is kept of the row groups.
        copies_damaged_at: Where second copies and indexes are damaged, of which nothing is lost.
        means: Where whole bytes were looked for.
        unread: Whether the row groups that footers and records name were not read.
        has_magic: Whether it begins with the magic; False too where `copies_damaged_at` would tell.
        chunk_records_damaged_at: Where, before chunks that no footer names, records lie whose payload is damaged.
        seen: The pages of each chunk that is whole, by the position of its row group in the footer, and the ordinal of
            its leaf.
    """

    findings: tuple[Finding, ...]
    found: Mapping[int, ScannedRowGroup]
    lost: tuple[LostRegion, ...]
    copies_damaged_at: tuple[int, ...]
    means: Means
    unread: bool = False
    has_magic: bool = False
    chunk_records_damaged_at: frozenset[int] = frozenset()
    seen: Mapping[tuple[int, int], PagesSeen] = field(default_factory=dict)


async def examine(
    known: Reconstruction, means: Means, progress: Progress | None, *, unread: bool = False
) -> Verification:
    """Read the data of all row groups, and look closely at those that are not whole."""
    data: list[Finding] = []
    copies: list[Finding] = []
    seen: Seen = {}
    positions = known.positions
    if known.candidates is not None and not unread:
        named = known.candidates.contents
        data = [finding async for finding in examine_row_groups(known.source, named, progress, seen)]
        copies = [finding async for finding in examine_metadata(known.source, named)]
    bad = _damaged(data) | of_unknown_codecs(known)
    examiner = PageScanner(known.source, means, known.contents)
    found = {}
    for row_group in known.row_groups:
        position = positions.get(row_group.ordinal)
        if position is None or position in bad:
            found[row_group.ordinal] = await examiner.row_group(row_group)
    if not known.moved and sum(map(_pages_lost, found.values())) > 1:
        elsewhere = await _displaced(known)
        if elsewhere:
            means = replace(means, others=(*means.others, *elsewhere))
            examiner = PageScanner(known.source, means, known.contents)
            for ordinal in [ordinal for ordinal, left in found.items() if _pages_lost(left)]:
                found[ordinal] = await examiner.row_group(found[ordinal].known)
    mended = await as_pages_tell(known, found, examiner)
    found |= mended.found
    told = {positions[ordinal] for ordinal in mended.found if ordinal in positions}
    data = [replace(one, costs_rows=False) if one.where.row_group in told else one for one in data]
    data += mended.findings
    stated, borne_out = known.row_groups, {ordinal: left.known for ordinal, left in found.items()}
    known.end, known.row_groups = recounted(known.end, stated, borne_out)
    counted = [
        replace(row_group, num_rows=found[row_group.ordinal].num_rows) if row_group.ordinal in found else row_group
        for row_group in known.row_groups
    ]
    lost = known.losses(counted)
    lost += uncounted(stated, borne_out)
    damaged_at = tuple(finding.start or 0 for finding in copies)
    magic = not _is_ours(known) and await known.source.begins_with_magic()
    records = frozenset([offset async for offset in _chunk_records_damaged(known)])
    return Verification((*data, *copies), found, tuple(lost), damaged_at, means, unread, magic, records, seen)


def _is_ours(known: Reconstruction) -> bool:
    """Whether the metadata that a footer of ours leads to are examined, the magic among them."""
    return known.candidates is not None and known.candidates.contents.footer.record is not None


async def _chunk_records_damaged(known: Reconstruction) -> AsyncIterator[int]:
    """The records of chunks whose payload is damaged, where `examine_metadata` does not look."""
    named, source = known.positions, known.source
    headers = [
        header
        for header in known.headers.values()
        if header.kind == RecordKind.CHUNK and header.num_row_groups not in named and header.end <= source.info.size
    ]
    places = [
        ByteRange(header.payload_offset, header.end)
        for header in headers
        if header.end - header.offset == CHUNK_RECORD_SIZE
    ]
    sound = {header.payload_offset: header for header in headers}
    async with aclosing(fetch(source.store, source.info, places, counters=source.counters)) as reading:
        async for i, data in reading:
            if sound[places[i].start].holds(data):
                del sound[places[i].start]
    for header in sound.values():
        yield header.offset


async def _displaced(known: Reconstruction) -> list[Elsewhere]:
    """The file with its parts where they were written, where its footer is whole but parts of it were moved.

    The whole file is read for it, which one page that is lost is not worth: a part that was moved costs more.
    """
    file_id = known.file_id
    if file_id is None:
        return []
    source = known.source
    found = await source.drive(all_headers(source.info.size))
    view = await source.drive(place(source.info.size, found, file_id, search_pages=True))
    # Pages that happen to be alike look as if they had been moved, with those beside them: so no row group is known to
    # be the same there, and each page has to have the CRC32 that a copy of its header has.
    return [] if view.is_in_place else [Elsewhere(source.through(view), RepairSource.DISPLACED, frozenset())]


def _pages_lost(left: ScannedRowGroup) -> int:
    chunks = [chunk for chunk in left.chunks if chunk is not None]
    return sum(fate.reason is not None for chunk in chunks for fate in chunk.pages)


def _damaged(findings: Iterable[Finding]) -> set[int]:
    """The positions of row groups with findings that cost rows."""
    return {
        finding.where.row_group for finding in findings if finding.costs_rows and finding.where.row_group is not None
    }
