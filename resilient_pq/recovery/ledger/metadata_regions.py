"""What the bytes besides pages are in a ledger: magic, records, indexes, footers, and areas that are lost. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from resilient_pq.errors import FormatError
from resilient_pq.format.footer import MAGIC
from resilient_pq.format.resilience_records import RecordHeader, RecordKind
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.records.record_scan import parity_spans
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Confidence, Region
from resilient_pq.recovery.ledger.region_overlaps import Rank
from resilient_pq.recovery.verification.checksum_checks import expected_metadata
from resilient_pq.recovery.verification.verification import Verification

_RECORDS: Final = {
    RecordKind.ANCHOR: "anchor",
    RecordKind.CHECKPOINT: "checkpoint",
    RecordKind.FINAL: "footer",
    RecordKind.SEAL: "footer",
    RecordKind.CHUNK: "chunk record",
    RecordKind.ROW_GROUP: "row-group record",
    RecordKind.PARITY: "parity",
}
#: In the words of `Expected`; all others are indexes.
_OTHERS: Final = {"bloom filter": "bloom filter", "the magic at the beginning": "magic"}
_DAMAGED: Final = "its payload is damaged"

RankedRegion = tuple[Rank, Region]


def regions_of_metadata(
    reconstruction: Reconstruction, verification: Verification, numbers: Mapping[int, int]
) -> Iterator[RankedRegion]:
    """Magic, records, indexes, filters and footers, as if they lay where they were written."""
    headers = reconstruction.headers
    placed: set[int] = set()
    for rank, region in _expected(reconstruction, verification, headers, numbers):
        placed.add(region.start)
        yield rank, region
    if verification.has_magic:
        magic = Region(0, 0, len(MAGIC), ByteUse.METADATA, "magic", confidence=Confidence.DECODED)
        yield Rank.METADATA, magic
    for region in _footer(reconstruction):
        placed.add(region.start)
        yield (Rank.METADATA if region.use is ByteUse.METADATA else Rank.HARMED), region
    if reconstruction.contents is not None and reconstruction.contents.footer.record is None:
        yield from _indexes_of_others(reconstruction.contents, reconstruction.source.info.size)
    whole = _whole_records(reconstruction)
    for span in parity_spans(headers.values()):
        if span.start not in placed:
            yield Rank.METADATA, Region(0, span.start, span.end, ByteUse.METADATA, "parity")
    for offset, header in headers.items():
        if offset not in placed and header.kind != RecordKind.PARITY:
            checked = header.kind == RecordKind.CHUNK and offset not in verification.chunk_records_damaged_at
            yield _record(header, whole=offset in whole or checked)


def _expected(
    reconstruction: Reconstruction,
    verification: Verification,
    headers: Mapping[int, RecordHeader],
    numbers: Mapping[int, int],
) -> Iterator[RankedRegion]:
    """What the footer of a resilient file leads to, and whether it was found damaged there."""
    candidates = reconstruction.candidates
    if candidates is None:
        return
    damaged = {
        finding.start: finding.message
        for finding in verification.findings
        if not finding.costs_rows and finding.start is not None
    }
    confidence = Confidence.UNREAD if verification.unread else Confidence.CHECKSUM
    ordinals = [numbers[candidate.ordinal] for candidate in candidates.row_groups]
    try:
        for expected in expected_metadata(candidates.contents):
            start, end = expected.range.start, expected.range.end
            header = headers.get(start)
            if header is not None and expected.kind not in (None, RecordKind.PARITY):
                end = header.end
            what = _OTHERS.get(expected.what, "index") if expected.kind is None else _RECORDS[expected.kind]
            position = expected.where.row_group
            where = (None if position is None else ordinals[position], expected.where.column)
            if start in damaged:
                lost = Region(0, start, end, ByteUse.LOST, what, *where, reason=damaged[start])
                yield Rank.HARMED, lost
            else:
                yield (Rank.METADATA, Region(0, start, end, ByteUse.METADATA, what, *where, None, None, confidence))
    except FormatError:
        return  # then only the records that were found count


def _whole_records(reconstruction: Reconstruction) -> set[int]:
    """Where records lie whose payload was compared with its sums."""
    survey = reconstruction.survey
    if survey is None:
        return set()
    whole = {header.offset for header in survey.footers}
    newest = None if survey.footer is None else survey.footer.header
    whole |= {header.offset for header in (newest, survey.last) if header is not None}
    ends = {found.end for found in survey.row_groups.values()}
    return whole | {header.offset for header in survey.found.values() if header.end in ends}


def _record(header: RecordHeader, *, whole: bool) -> RankedRegion:
    what = _RECORDS.get(RecordKind(header.kind), "unknown") if header.kind in list(RecordKind) else "unknown"
    if whole:
        region = Region(0, header.offset, header.end, ByteUse.METADATA, what, confidence=Confidence.CHECKSUM)
        return Rank.METADATA, region
    return Rank.HARMED, Region(0, header.offset, header.end, ByteUse.LOST, what, reason=_DAMAGED)


def _footer(reconstruction: Reconstruction) -> Iterator[Region]:
    """The footer that was used, where it is no record that a survey found."""
    found, contents, size = reconstruction.torn_footer, reconstruction.contents, reconstruction.source.info.size
    if reconstruction.footer_whole and contents is not None:
        record = contents.footer.record
        if record is None:
            yield Region(0, contents.footer.start, size, ByteUse.METADATA, "footer", confidence=Confidence.DECODED)
        else:
            start = min(contents.footer.start, record.offset)
            what = _RECORDS[RecordKind(record.kind)]
            yield Region(0, start, size, ByteUse.METADATA, what, confidence=Confidence.CHECKSUM)
    elif found is not None:
        start, end = found.start - found.shift, found.end - found.shift
        if found.complete:
            yield Region(0, start, end, ByteUse.METADATA, "footer", confidence=Confidence.DECODED)
        else:
            yield Region(0, start, end, ByteUse.LOST, "footer", reason="its end is missing")


def _indexes_of_others(contents: Contents, size: int) -> Iterator[RankedRegion]:
    """Indexes and filters that no checksum covers, which were not checked."""
    for row_group in contents.metadata.row_groups:
        for column in row_group.columns:
            metadata = column.meta_data
            places = [
                ("index", column.column_index_offset, column.column_index_length),
                ("index", column.offset_index_offset, column.offset_index_length),
            ]
            if metadata is not None:
                places.append(("bloom filter", metadata.bloom_filter_offset, metadata.bloom_filter_length))
            for what, offset, length in places:
                if offset is not None and length is not None and 0 < offset < offset + length <= size:
                    yield Rank.METADATA, Region(0, offset, offset + length, ByteUse.METADATA, what)


def lost_areas(reconstruction: Reconstruction, verification: Verification) -> Iterator[RankedRegion]:
    """Bytes in which something unknown was lost."""
    for region in verification.lost:
        if region.start < region.end:
            yield Rank.AREA, Region(0, region.start, region.end, ByteUse.LOST, "unknown", reason=region.reason)
    candidates, size = reconstruction.candidates, reconstruction.source.info.size
    for gap in () if candidates is None else candidates.unaccounted:
        reason = "a record that is damaged"
        yield Rank.AREA, Region(0, gap.start, gap.end, ByteUse.LOST, "unknown", reason=reason)
    complete = reconstruction.footer_whole or (
        reconstruction.torn_footer is not None and reconstruction.torn_footer.complete
    )
    if reconstruction.error is None or complete:
        return
    start = 0
    if candidates is not None:
        start = 0 if candidates.last is None else candidates.last.end
    if start < size:
        yield Rank.REST, Region(0, start, size, ByteUse.LOST, "unknown", reason=reconstruction.error.message)
