"""A newer and shorter version of a file, written over the beginning of one whose footer still stands at the end.

An async shell. Its footer lies where row groups of the older version are damaged, since it was written over them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, Where
from resilient_pq.format.footer import MAGIC, TAIL_SIZE
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordHeader, parse_header
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.byte_remap import ByteRemap
from resilient_pq.recovery.evidence.evidence_search import reconstruct
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.records.survey import names_same
from resilient_pq.recovery.report import Damage, Finding
from resilient_pq.recovery.verification.page_scan import ScannedRowGroup
from resilient_pq.units import MiB

#: Bytes that are read and looked through at a time.
_WINDOW: Final = 8 * MiB
#: What may be the length of a footer and the magic behind it is looked at so many times.
_MOST_ENDS: Final = 64


@dataclass(frozen=True, slots=True)
class NewerVersion:
    """A version of the file that ends in front of the footer at the end."""

    known: Reconstruction  # What its own footer tells
    proven: bool  # Whether a record proves that it is newer; otherwise it is newer only if all of its bytes are there

    def decides(self, rows_kept: int) -> bool:
        """Whether it is the file that is meant, where so many of its rows can be kept."""
        contents = self.known.contents
        return self.proven or (contents is not None and rows_kept == contents.num_rows)

    @property
    def doubt(self) -> Finding:
        """What is wrong where it does not decide."""
        end = self.known.source.info.size
        message = (
            f"another version ends at {end:,} in a whole footer, and nothing proves which of both is newer: that with "
            "the footer at the end is taken"
        )
        return Finding(Damage.FOREIGN, message, Where(offset=end), end, end, costs_rows=False)


async def find_newer(known: Reconstruction, scanned: Mapping[int, ScannedRowGroup]) -> NewerVersion | None:
    """A newer version of a file whose footer is whole and whose row groups are not; None where there is none."""
    place = _overwritten(known, scanned)
    if place is None:
        return None
    header = parse_header(await known.source.read(ByteRange(len(MAGIC), len(MAGIC) + HEADER_SIZE)))
    doubtful: NewerVersion | None = None
    async with aclosing(_ends_of_footers(known.source, place)) as ends:
        async for end in ends:
            found = await _version_up_to(known, end, header)
            if found is not None and found.proven:
                return found
            doubtful = doubtful or found
    return doubtful


def _overwritten(known: Reconstruction, scanned: Mapping[int, ScannedRowGroup]) -> ByteRange | None:
    """The bytes from the first damaged row group up to the first whole one behind the last; None where none is."""
    contents = known.contents
    damaged = [one for one in known.row_groups if one.ordinal in scanned and not scanned[one.ordinal].is_whole]
    if contents is None or not damaged or not _is_told_by_footer(known):
        return None
    start, last = min(one.start for one in damaged), max(one.start for one in damaged)
    end = min((one.start for one in known.row_groups if one.start > last), default=contents.footer.start)
    end = min(end, known.source.info.size)
    return ByteRange(start, end) if len(MAGIC) + HEADER_SIZE <= end and 0 <= start < end else None


def _is_told_by_footer(known: Reconstruction) -> bool:
    """Whether a whole footer tells of the row groups, and all lies in the clear where it was written."""
    has_footer = known.footer_whole or (known.torn_footer is not None and known.torn_footer.complete)
    return has_footer and not known.moved and known.source.decrypt is None


async def _ends_of_footers(source: DamagedObject, place: ByteRange) -> AsyncGenerator[int, None]:
    """Where footers may end, by the magic at the end and the length before it."""
    found = 0
    for start in range(place.start, place.end, _WINDOW):
        end = min(start + _WINDOW + len(MAGIC) - 1, place.end)
        data = bytes(await source.read(ByteRange(start, end)))
        at = data.find(MAGIC)
        while at >= 0 and found < _MOST_ENDS:
            behind = start + at + len(MAGIC)
            if behind >= 2 * TAIL_SIZE:
                tail = await source.read(ByteRange(behind - TAIL_SIZE, behind))
                if 0 < int.from_bytes(tail[:4], "little") <= behind - TAIL_SIZE - len(MAGIC):
                    found += 1
                    yield behind
            at = data.find(MAGIC, at + 1)


async def _version_up_to(known: Reconstruction, end: int, first: RecordHeader | None) -> NewerVersion | None:
    """The version that ends at an offset, where `first` is the first record of the object; None where there is none."""
    found = await reconstruct(
        known.source.through(ByteRemap.in_place(end)), known.given, known.siblings, only_footer=True
    )
    contents, other = found.contents, known.contents
    if contents is None or other is None or not found.footer_whole or not _is_other_version(contents, other):
        return None
    proven = _is_later(contents.footer.record, other.footer.record, first)
    if proven is None:
        return None
    size = known.source.info.size
    message = (
        f"it was written over the beginning of an older version, of which {size - end:,} bytes and the footer stand "
        "behind its end: they are not looked at"
    ) + _how_to_take(other.footer.record, contents.footer.record)
    behind = Finding(Damage.FOREIGN, message, Where(offset=end), end, size, costs_rows=False)
    error = FormatError(
        "the footer at the end is that of an older version", where=Where(key=known.source.url, offset=end)
    )
    return NewerVersion(replace(found.with_findings(behind), error=error), proven)


def _how_to_take(older: RecordHeader | None, newer: RecordHeader | None) -> str:
    """Words for the option that takes the older version; none where no option does."""
    if older is None or newer is None or older.file_id == newer.file_id:
        return ""
    return f"; --file-id {older.file_id.hex()} takes that one"


def _is_other_version(contents: Contents, other: Contents) -> bool:
    """Whether a footer is that of a finished file, to which no rows were appended that another one names besides."""
    if not contents.is_finished or not contents.num_rows or contents.data_files:
        return False
    mine, theirs = contents.metadata.row_groups, other.metadata.row_groups
    if other.footer.record is None or len(mine) > len(theirs):
        return True
    return not all(names_same(one, another) for one, another in zip(mine, theirs, strict=False))


def _is_later(mine: RecordHeader | None, theirs: RecordHeader | None, first: RecordHeader | None) -> bool | None:
    """Whether records prove that one footer is newer than another; None where they prove that it is older.

    The file that was written last begins with its anchor.
    """
    if mine is None:
        return False
    if theirs is None or mine.file_id != theirs.file_id:
        return first is not None and (first.offset, first.file_id) == (len(MAGIC), mine.file_id)
    return None if mine.epoch < theirs.epoch else mine.epoch > theirs.epoch
