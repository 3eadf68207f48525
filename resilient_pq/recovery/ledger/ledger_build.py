"""The ledger of a recovery, filled: what every byte of the inputs is, and what became of every row. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.chunk_salvage import PageFate, RepairSource
from resilient_pq.damage.lost_region import LostRegion
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Confidence, Ledger, LedgerSource, Region, RowsFate
from resilient_pq.recovery.ledger.metadata_regions import lost_areas, regions_of_metadata
from resilient_pq.recovery.ledger.region_overlaps import Rank, RegionOverlaps
from resilient_pq.recovery.ledger.row_fates import fates_of_rows, number_row_groups, regions_of_row_group
from resilient_pq.recovery.rewrite.retained_rows import RetainedRows, RowGroupOutcome
from resilient_pq.recovery.verification.verification import Verification

_CHANGED: Final = "its bytes were changed, and could be changed back; which of them lie where was not followed"
_REBUILT: Final = "bytes of it were damaged"
#: Pages that lie whole in one of the inputs, but not where they should in the first.
_ELSEWHERE = frozenset({RepairSource.OTHER_COPY, RepairSource.DISPLACED})


def build_ledger(
    reconstruction: Reconstruction, verification: Verification, rows: RetainedRows, on_damage: OnDamage
) -> Ledger:
    """Account for every byte of the inputs and for every row."""
    assert reconstruction.contents is not None
    leaves = tuple(reconstruction.contents.schema.leaves)
    row_groups = number_row_groups(reconstruction.positions, verification, rows, on_damage)
    readings = [reconstruction.source, *(other.source for other in verification.options.alternates)]
    sources = list({id(reading.origin): reading.origin for reading in readings}.values())
    numbers = {row_group.located.ordinal: row_group.number for row_group in row_groups}
    claims = RegionOverlaps(sources)
    pages = list(_claim_pages(claims, readings, row_groups, leaves))
    for rank, region in (
        *regions_of_metadata(reconstruction, verification, numbers),
        *lost_areas(reconstruction, verification),
    ):
        claims.add(rank, region, reconstruction.source)
    if reconstruction.source.is_changed:
        size = sources[0].info.size
        changed = Region(0, 0, size, ByteUse.DATA, "unknown", confidence=Confidence.DECODED, reason=_CHANGED)
        claims.add(Rank.REST, changed, sources[0])
    rebuilt = () if reconstruction.source.is_changed else reconstruction.source.rebuilt
    regions = tuple(_rebuilt(claims.regions(), rebuilt))
    num_rows, fates = _rows(reconstruction, row_groups, verification.lost)
    return Ledger(
        sources=tuple(LedgerSource(source.url, source.info.size, source.info.etag) for source in sources),
        columns=tuple(dict.fromkeys(leaf.column_path for leaf in leaves)),
        row_groups=num_rows,
        regions=regions,
        rows=fates,
        checkpoints=_checkpoints(reconstruction),
        missing=_missing(regions, pages),
        on_damage=str(on_damage),
        num_rows=None if reconstruction.end is None else reconstruction.end.num_rows,
    )


def _rebuilt(regions: Sequence[Region], rebuilt: Sequence[ByteRange]) -> Iterator[Region]:
    """The regions, with those told apart that have bytes which parity made."""
    places = sorted(rebuilt)
    for region in regions:
        at = bisect_right(places, region.start, key=attrgetter("end"))
        kept = region.source == 0 and region.use in (ByteUse.DATA, ByteUse.METADATA)
        if kept and at < len(places) and places[at].start < region.end:
            yield replace(region, mended="parity", confidence=Confidence.PARITY, reason=_REBUILT)
        else:
            yield region


def build_empty_ledger(source: DamagedObject, reason: str) -> Ledger:
    """The ledger of a file in which nothing was found."""
    origin = source.origin
    size = origin.info.size
    regions = (Region(0, 0, size, ByteUse.LOST, "unknown", reason=reason),) if size else ()
    rows = (RowsFate(None, None, None, False, reason=reason),)
    return Ledger((LedgerSource(origin.url, size, origin.info.etag),), (), (), regions, rows)


# -- pages -----------------------------------------------------------------------------------------


def _claim_pages(
    claims: RegionOverlaps,
    readings: Sequence[DamagedObject],
    row_groups: Iterable[RowGroupOutcome],
    leaves: tuple[Leaf, ...],
) -> Iterator[Region]:
    """Say where all pages lie; gives those that may lie nowhere."""
    for row_group in row_groups:
        for region, fate in regions_of_row_group(row_group, leaves):
            if row_group.scanned is None:
                claims.add(Rank.PAGES, region, readings[0])
                continue
            _claim_page(claims, readings, region, fate)
            yield region


def _claim_page(
    claims: RegionOverlaps, readings: Sequence[DamagedObject], region: Region, fate: PageFate | None
) -> None:
    if fate is None:
        whole = region.reason is None or region.confidence is not None
        claims.add(Rank.PAGES if whole else Rank.HARMED, region, readings[0])
    elif fate.reason is not None or fate.repair is RepairSource.DICTIONARY_COPY:
        for reading in readings:
            claims.add(Rank.HARMED, region, reading)
    else:
        claims.add(Rank.PAGES, region, readings[fate.reading])
        if fate.repair in _ELSEWHERE or fate.reading:
            claims.add(Rank.HARMED, region, readings[0])


def _missing(regions: Sequence[Region], pages: Iterable[Region]) -> tuple[Region, ...]:
    """The pages that lie nowhere, in order."""
    there = {(region.row_group, region.column, region.page) for region in regions if region.column is not None}
    missing = [
        replace(region, end=region.start)
        for region in pages
        if (region.row_group, region.column, region.page) not in there
        and (region.size > 0 or region.confidence is None)  # chunks of rows that there are none of have no bytes
    ]
    return tuple(sorted(missing, key=lambda region: region.start))


# -- rows ------------------------------------------------------------------------------------------


def _rows(
    reconstruction: Reconstruction, row_groups: Sequence[RowGroupOutcome], lost: Sequence[LostRegion]
) -> tuple[tuple[int | None, ...], tuple[RowsFate, ...]]:
    """The rows of each row group by its number, and what became of all rows."""
    assert reconstruction.contents is not None
    gaps = {region.where.row_group: region for region in lost if region.where.row_group is not None}
    behind = [region for region in lost if region.where.row_group is None]
    counts: list[int | None] = []
    fates: list[RowsFate] = []
    counted: int | None = 0
    goes_on = False  # whether the row group before may have had more rows, which lie in the gap, too
    for row_group in row_groups:
        missing = row_group.number - len(counts)
        if missing > 0:
            gap = gaps.pop(row_group.located.ordinal - missing, None)
            rows = None if gap is None else gap.num_rows
            single = len(counts) if missing == 1 and not goes_on else None
            reason = "nothing names it" if gap is None else gap.reason
            fates.append(RowsFate(counted, rows, single, False, reason=reason))
            counts += [rows if single is not None else None] * missing
        first_row, goes_on = row_group.located.rows_before, row_group.located.num_rows is None
        rest = gaps.pop(row_group.located.ordinal, None)
        counts.append(row_group.num_rows if rest is None and row_group.located.placed else None)
        fates += fates_of_rows(reconstruction.contents.schema, row_group, first_row)
        counted = None if first_row is None else first_row + row_group.num_rows
        if rest is not None:
            fates.append(RowsFate(counted, rest.num_rows, row_group.number, False, reason=rest.reason))
            counted = None
    for region in (*gaps.values(), *behind):
        fates.append(RowsFate(None, region.num_rows, None, False, reason=region.reason))
    return tuple(counts), tuple(fates)


def _checkpoints(reconstruction: Reconstruction) -> tuple[tuple[int, int], ...]:
    """Where the checkpoints lie that were found, or that a footer names, and the rows before each."""
    assert reconstruction.contents is not None
    found = {place.offset: place.num_rows for place in reconstruction.contents.checkpoints}
    found |= {h.offset: h.num_rows for h in reconstruction.headers.values() if h.kind == RecordKind.CHECKPOINT}
    places = []
    for offset, num_rows in found.items():
        pieces = list(reconstruction.source.lies_at(ByteRange(offset, offset + 1)))
        places += [(piece.start, num_rows) for piece in pieces]
    return tuple(sorted(places))
