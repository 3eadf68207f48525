"""The records of a damaged object: its newest whole checkpoint, and the row groups behind it. Sans-io.

Only records are read where their chain is whole; otherwise the file is read from the front.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import field

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.page_header_checks import LIMITS
from resilient_pq.errors import FormatError, ResilientPQError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import ColumnChunk, FileMetaData, RowGroup
from resilient_pq.format.footer import CRC_KEY, FILE_ID_KEY, MAGIC, STATE_KEY, TAIL_SIZE, key_values
from resilient_pq.format.pages.page import read_header
from resilient_pq.format.resilience_records import (
    CHUNK_RECORD_SIZE,
    FOOTER_KINDS,
    HEADER_SIZE,
    RecordHeader,
    RecordKind,
    begins_record,
    parse_header,
)
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import FileState
from resilient_pq.recovery.carve.range_windows import RangeWindow
from resilient_pq.recovery.evidence.records.record_scan import (
    FileSpan,
    drop_overwritten,
    file_spans,
    in_place,
    outermost_file,
    scan_headers,
    scan_object,
)
from resilient_pq.recovery.evidence.records.recorded_metadata import (
    RecordedFooter,
    RecordedRowGroup,
    data_start,
    parse_footer,
    parse_row_group,
)
from resilient_pq.units import KiB, MiB

#: A window looked through for records, when going back from the end; doubled up to the larger one.
_FIRST_WINDOW = 256 * KiB
_LARGEST_WINDOW = 8 * MiB
#: Metadata larger than this is not read into memory, whatever its header says.
_MAX_PAYLOAD = 1 << 30

Asking = Generator[ByteRange, memoryview, "Survey"]


@dataclass(slots=True)
class Survey:
    """The records of an object."""

    size: int  # Bytes of the object
    file_id: bytes | None = None  # Of the file; None when no record was found
    footer: RecordedFooter | None = None  # The newest whole footer; None when there is none
    # The row groups named by whole records after that footer, by ordinal
    row_groups: dict[int, RecordedRowGroup] = field(default_factory=dict)
    newest: RecordHeader | None = None  # The header of the newest record found, whole or not
    last: RecordHeader | None = None  # The header of the newest whole record that `footer` or `row_groups` come from
    scanned: bool = False  # Whether the whole object had to be read
    # Every record header that was come across, by where it lies, in no order: of any file, in its place or not. All
    # there are when the whole object was read; otherwise those of the chain, as far as it was followed, and those in
    # the end of the object as far back as `newest`
    found: dict[int, RecordHeader] = field(default_factory=dict)
    # The headers of all whole anchors, checkpoints and final records, when it was
    footers: list[RecordHeader] = field(default_factory=list)
    # Whether the object ends in the footer of a finished file that names these row groups and no others, though the
    # record that should vouch for it is damaged
    ended: bool = False
    has_final: bool = False  # Whether `footer` is the final one, and not that of a file to which rows were appended
    doubted: bool = False  # Whether neither an anchor nor the caller determines which file is meant

    @property
    def others(self) -> list[FileSpan]:
        """Other files of which records were found, where only the places of records show which file is meant."""
        return [span for span in file_spans(self.found.items()) if span.file_id != self.file_id] if self.doubted else []

    @property
    def headers(self) -> list[RecordHeader]:
        """The record headers of this file that lie in their places, in order, if no later writer wrote over them."""
        mine = [(at, header) for at, header in self.found.items() if header.file_id == self.file_id]
        return in_place(drop_overwritten(mine))

    @property
    def strangers(self) -> list[int]:
        """Offsets of all other record headers, in order."""
        mine = {header.offset for header in self.headers}
        return sorted(at for at in self.found if at not in mine)

    @property
    def has_end(self) -> bool:
        """Whether a whole footer ends the file, so that no row follows those that it names."""
        return self.footer is not None and (self.has_final or self.ended)

    @property
    def displaced(self) -> bool:
        """Whether a record of this file lies elsewhere than it states, as parts may have been moved or left out."""
        return any(header.offset != at and header.file_id == self.file_id for at, header in self.found.items())


def survey(size: int, file_id: bytes | None = None) -> Asking:
    """Search for the records of an object of `size` bytes, of the file with an id if one is given."""
    result = Survey(size, file_id)
    anchor = yield from _header_at(len(MAGIC), result)
    if file_id is None and anchor is not None and anchor.kind == RecordKind.ANCHOR:
        result.file_id = anchor.file_id
    sure = result.file_id is not None
    newest = yield from _newest(result)
    if newest is None:
        result.scanned = True
        result.file_id = result.file_id or (yield from _outermost(result))
        result.doubted = not sure
        return result
    result.newest = newest
    result.file_id = result.file_id or newest.file_id
    whole = yield from _follow_chain(result, newest)
    if not whole:
        yield from _scan_forward(result)
        result.doubted = not sure
    result.ended = yield from _ends_in_footer(result)
    header = None if result.footer is None else result.footer.header
    if header is not None and header.kind == RecordKind.FINAL and newest.epoch <= header.epoch:
        result.has_final = header.end == size or not (yield from _begins_torn_record(header.end, size))
    return result


def _begins_torn_record(offset: int, size: int) -> Generator[ByteRange, memoryview, bool]:
    """Whether a record whose header is cut or damaged stands at an offset: of a whole one the epoch tells."""
    data = yield from _read(offset, min(offset + HEADER_SIZE, size))
    return begins_record(data) and parse_header(data) is None


def _read(start: int, end: int) -> Generator[ByteRange, memoryview, memoryview]:
    data = yield ByteRange(start, end)
    return data


def _outermost(result: Survey) -> Generator[ByteRange, memoryview, bytes | None]:
    """The id of the outermost file: another one lies within it where a page of it reaches over that one's records."""
    taken = outermost_file(result.found.items())
    first = min((at for at, header in result.found.items() if header.file_id == taken), default=0)
    before = max((at for at in result.found if at < first), default=None)
    if before is not None and result.found[before].kind == RecordKind.CHUNK:
        at, window = before + CHUNK_RECORD_SIZE, RangeWindow(result.size)
        while at < first:
            try:
                header, size = read_header((yield from window.read(at, at + LIMITS.max_header)), 0)
            except FormatError:
                return taken
            at += size + header.compressed_page_size
        return result.found[before].file_id if at > first else taken
    return taken


def _header_at(offset: int, result: Survey) -> Generator[ByteRange, memoryview, RecordHeader | None]:
    """The record header that lies at `offset` and states that offset."""
    if offset < 0 or offset + HEADER_SIZE > result.size:
        return None
    header = parse_header((yield from _read(offset, offset + HEADER_SIZE)))
    if header is not None:
        result.found[offset] = header
    return header if header is not None and header.offset == offset else None


def _newest(result: Survey) -> Generator[ByteRange, memoryview, RecordHeader | None]:
    """The last record header of the file that lies in its place, whether its payload is whole or not."""
    end, window = result.size, _FIRST_WINDOW
    mine: list[tuple[int, RecordHeader]] = []
    while end > len(MAGIC):
        start = max(end - window, 0)
        # A header that begins before `end` may reach beyond it.
        data = yield from _read(start, min(end + HEADER_SIZE - 1, result.size))
        everything = dict(scan_headers(data, start))
        result.found.update(everything)
        found = in_place(everything.items())
        wanted = result.file_id or outermost_file((header.offset, header) for header in found)
        mine = [(at, header) for at, header in (*everything.items(), *mine) if header.file_id == wanted]
        newest = [header for header in in_place(drop_overwritten(mine)) if header.offset >= start]
        if newest:
            return newest[-1]
        end, window = start, min(window * 2, _LARGEST_WINDOW)
    return None


def _payload(header: RecordHeader, size: int) -> Generator[ByteRange, memoryview, memoryview | None]:
    """The record's payload; None when it is not whole."""
    if header.end > size or header.payload_size > _MAX_PAYLOAD:
        return None
    data = yield from _read(header.payload_offset, header.end)
    return data if header.holds(data) else None


def _follow_chain(result: Survey, newest: RecordHeader) -> Generator[ByteRange, memoryview, bool]:
    """Go back from record to record to the newest whole footer; False when a link on the way is broken."""
    header: RecordHeader | None = newest
    first = True
    while header is not None:
        if header.kind in FOOTER_KINDS:
            footer = yield from _footer(header, result.size)
            if footer is not None:
                _take_footer(result, footer)
                return _is_complete(result)
            if not first:
                return False
        elif header.kind == RecordKind.ROW_GROUP:
            found = yield from _row_group(header, result)
            if found is None and not first:
                return False
            if found is not None:
                _take_row_group(result, found, header)
                # The record before the row group's first chunk record is that of the row group before it.
                header = yield from _before_row_group(found, result)
                first = False
                continue
        first = False
        previous = (yield from _header_at(header.previous, result)) if header.previous else None
        if previous is None or not _follows(previous, header):
            return False
        header = previous
    return False


def _follows(earlier: RecordHeader, later: RecordHeader) -> bool:
    """Along the chain the number rises by one, the epoch never falls, and the file stays the same."""
    return (
        earlier.file_id == later.file_id
        and earlier.number + 1 == later.number
        and earlier.epoch <= later.epoch
        and earlier.offset < later.offset
    )


def _before_row_group(found: RecordedRowGroup, result: Survey) -> Generator[ByteRange, memoryview, RecordHeader | None]:
    start = data_start(found.row_group)
    if start is None:
        return None
    chunk = yield from _header_at(start - CHUNK_RECORD_SIZE, result)
    if chunk is None or (chunk.kind, chunk.file_id) != (RecordKind.CHUNK, result.file_id):
        return None
    before = yield from _header_at(chunk.previous, result)
    return before if before is not None and _follows(before, chunk) else None


def _footer(header: RecordHeader, size: int) -> Generator[ByteRange, memoryview, RecordedFooter | None]:
    payload = yield from _payload(header, size)
    return None if payload is None else parse_footer(header, payload)


def _row_group(header: RecordHeader, result: Survey) -> Generator[ByteRange, memoryview, RecordedRowGroup | None]:
    payload = yield from _payload(header, result.size)
    return None if payload is None else parse_row_group(header, payload)


def _take_footer(result: Survey, footer: RecordedFooter) -> None:
    result.footer = footer
    if result.last is None or result.last.offset < footer.header.offset:
        result.last = footer.header
    named = len(footer.metadata.row_groups)
    result.row_groups = {k: found for k, found in result.row_groups.items() if k >= named}


def _take_row_group(result: Survey, found: RecordedRowGroup, header: RecordHeader) -> None:
    result.row_groups[found.ordinal] = found
    if result.last is None or result.last.offset < header.offset:
        result.last = header


def _is_complete(result: Survey) -> bool:
    """Whether the row groups after the footer follow on it without a gap."""
    assert result.footer is not None
    named = len(result.footer.metadata.row_groups)
    return sorted(result.row_groups) == list(range(named, named + len(result.row_groups)))


def _scan_forward(result: Survey) -> Generator[ByteRange, memoryview, None]:
    """Read the whole object for records, and take each that is whole and in its place."""
    result.scanned = True
    result.row_groups = {}
    result.found = dict((yield from scan_object(result.size)))
    row_groups: dict[int, tuple[RecordedRowGroup, RecordHeader]] = {}
    for header in result.headers:
        if header.kind in FOOTER_KINDS:
            footer = yield from _footer(header, result.size)
            if footer is None:
                continue
            result.footers.append(header)
            if _is_newer(footer, result.footer):
                result.footer = footer
        elif header.kind == RecordKind.ROW_GROUP:
            found = yield from _row_group(header, result)
            if found is not None:
                row_groups[found.ordinal] = found, header
    for found, header in row_groups.values():
        _take_row_group(result, found, header)
    if result.footer is not None:
        _take_footer(result, result.footer)


def _ends_in_footer(result: Survey) -> Generator[ByteRange, memoryview, bool]:
    """Whether the footer of this file lies at the end, directly behind the last whole record."""
    last, footer = result.last, result.footer
    if footer is None or last is None or result.newest is None or result.newest.offset > last.offset:
        return False
    earliest, end = last.end + HEADER_SIZE, result.size - TAIL_SIZE
    if end < earliest:
        return False
    tail = bytes((yield from _read(end, result.size)))
    start = end - int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or start < earliest or end - start > _MAX_PAYLOAD:
        return False
    data = yield from _read(start, end)
    try:
        metadata, _ = compact_protocol.decode(FileMetaData, data)
    except ResilientPQError:
        return False
    return _ends_file(metadata, footer, result)


def _ends_file(metadata: FileMetaData, footer: RecordedFooter, result: Survey) -> bool:
    """Whether a footer is that of the finished file, with the row groups that records name and no others."""
    later = [found.row_group for _, found in sorted(result.row_groups.items())]
    known = [*footer.metadata.row_groups, *later]
    keys = key_values(metadata.key_value_metadata)
    assert result.file_id is not None
    return (
        keys.get(FILE_ID_KEY) == result.file_id.hex()
        and keys.get(STATE_KEY) in (FileState.COMPLETE, FileState.SALVAGED)
        and len(metadata.row_groups) == len(known)
        and all(map(names_same, metadata.row_groups, known))
        and metadata.num_rows == sum(row_group.num_rows for row_group in known)
    )


def names_same(one: RowGroup, other: RowGroup) -> bool:
    """Whether a footer, damaged in a place perhaps, names the chunks of a record, and not those of another version."""
    if len(one.columns) != len(other.columns) or data_start(one) != data_start(other):
        return False
    return sum(_identity(a) != _identity(b) for a, b in zip(one.columns, other.columns, strict=True)) <= 1


def _identity(chunk: ColumnChunk) -> tuple[int, int, str] | None:
    """Where a chunk lies, and its checksum, behind which a footer has those of its indexes."""
    metadata = chunk.meta_data
    if metadata is None:
        return None
    sums = key_values(metadata.key_value_metadata).get(CRC_KEY) or ""
    return metadata.data_page_offset, metadata.total_compressed_size, sums.partition(":")[0]


def _is_newer(footer: RecordedFooter, than: RecordedFooter | None) -> bool:
    return than is None or footer.header.number > than.header.number
