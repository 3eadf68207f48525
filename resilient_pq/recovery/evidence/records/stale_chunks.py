"""Chunks that records name, and that are of another version of the file. An async shell.

An older version may have been longer, and blocks of it may lie where the end of this one was written. It has the same
file id, and its records say the truth of where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, UnsupportedError, Where
from resilient_pq.format.footer import MAGIC, TAIL_SIZE, metadata_length
from resilient_pq.format.resilience_records import HEADER_SIZE, parse_header
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup, Method
from resilient_pq.recovery.report import Damage, Finding


async def drop_stale(
    source: DamagedObject, found: Sequence[LocatedRowGroup], named: Sequence[LocatedRowGroup], file_id: bytes | None
) -> tuple[tuple[LocatedRowGroup, ...], list[Finding]]:
    """Row groups that only records of chunks name, without those of another version, and findings for these."""
    footer_start = await _footer_start(source, file_id) if found else None
    kept: list[LocatedRowGroup] = []
    findings: list[Finding] = []
    for one in found:
        if not _is_stale(one, named, footer_start):
            kept.append(one)
            continue
        message = "records of chunks are of another version of the file, by place or rows: they are left out"
        where = Where(row_group=one.ordinal, offset=one.start)
        findings.append(Finding(Damage.FOREIGN, message, where, one.start, one.end, costs_rows=False))
    return tuple(kept), findings


async def _footer_start(source: DamagedObject, file_id: bytes | None) -> int | None:
    """Where the last bytes say that the footer begins, be it damaged; None where it is that of a file in a column."""
    size = source.info.size
    try:
        length = metadata_length(await source.read(ByteRange(max(size - TAIL_SIZE, 0), size)), Where())
    except (FormatError, UnsupportedError):
        return None
    start = size - TAIL_SIZE - length
    if start < len(MAGIC) + HEADER_SIZE:
        return None
    record = parse_header(await source.read(ByteRange(start - HEADER_SIZE, start)))
    return start if record is None or record.file_id == file_id else None


def _is_stale(found: LocatedRowGroup, named: Sequence[LocatedRowGroup], footer_start: int | None) -> bool:
    """Whether chunks cannot be of this version of the file: it has other rows before them, or its footer lies there."""
    if footer_start is not None and found.end > footer_start:
        return True
    before = next((one for one in named if one.ordinal == found.ordinal - 1 and one.method is not Method.CARVED), None)
    if before is None or before.rows_before is None or before.num_rows is None or found.rows_before is None:
        return False
    return before.rows_before + before.num_rows != found.rows_before
