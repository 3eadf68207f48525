"""What the damaged end of a file still tells, whoever wrote it.

Sans-io: `find_footer` is a generator that asks for byte ranges and is sent the bytes. It goes back from the end and
looks for a length and ``PAR1`` with file metadata before them, and for the shape of file metadata, whole or cut.

Neither proves anything by itself: a column of blobs may hold whole Parquet files. So metadata are believed only where
pages begin at the offsets that they name.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.partial_metadata import (
    SHAPE,
    MetadataEnd,
    PartialMetaData,
    begins_metadata,
    partial_metadata,
)
from resilient_pq.errors import ResilientPQError, Where
from resilient_pq.format.file_metadata import ColumnChunk
from resilient_pq.format.footer import MAGIC, TAIL_SIZE, Footer, NeedBytes, read_footer
from resilient_pq.format.resilience_records import HEADER_SIZE
from resilient_pq.format.schema_tree import Schema
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.read_plan import chunk_read
from resilient_pq.recovery.evidence.byte_remap import ByteRemap, RemapSegment
from resilient_pq.recovery.evidence.footers.footer_evidence import (
    find_shift,
    has_values,
    is_within,
    pages_begin,
    select_credible,
)
from resilient_pq.recovery.evidence.footers.footer_pieces import FooterPieces, find_pieces
from resilient_pq.recovery.evidence.located_row_group import (
    LocatedChunk,
    LocatedRowGroup,
    Method,
    RebuiltFile,
    without_malformed_sums,
)
from resilient_pq.recovery.evidence.search_budget import SearchBudget
from resilient_pq.recovery.report import Damage, Finding
from resilient_pq.units import KiB, MiB

#: A window looked through for a footer, when going back from the end; doubled up to the larger one.
_FIRST_WINDOW = 256 * KiB
_LARGEST_WINDOW = 8 * MiB
#: How far back from the end, padding left out, a footer is looked for; larger ones are refused by readers.
REACH = 128 * MiB
#: Bytes read for what only looks like metadata: these, so many for each byte of the object besides, and no more in all.
_FREE, _PER_BYTE, _MOST = 16 * MiB, 16, 512 * MiB
#: What each attempt counts besides, so that their number is bounded, too.
_ATTEMPT = 16 * KiB
#: Bytes in which the first element of a schema ends, whatever its name.
_ROOT_BYTES = 1 * KiB
#: Bytes with which disks, file systems and downloaders fill up what was not written.
_PADDING = (b"\x00", b"\xff")
#: Zeros that metadata may end with: the ends of structs within each other.
_MOST_STOPS = 16
#: Bytes of padding that are taken for such; metadata may end with fewer zeros.
_LEAST_PADDING = 64


@dataclass(frozen=True, slots=True)
class TornFooter:
    """File metadata that were found at the damaged end of a file.

    Attributes:
        contents: The schema, and the row groups that are named in full; their offsets are those of the file as it was
            written.
        complete: Whether the metadata are whole; otherwise there may have been more row groups, keys, and a maker.
        start: Offset at which they lie.
        end: Offset at which the file truly ends: just after the magic, or after the last byte of metadata.
        shift: What is added to an offset of the file as it was written to have the one where the byte lies; other
            than 0 where bytes are missing or were added before the row groups.
        num_rows: Rows of the file as it was written; None where the metadata were cut before that.
        num_row_groups: Row groups of the file as it was written; None where the metadata were cut before that.
        ordinals: For each row group in `contents`, its number in the file as it was written.
        columns: Column chunks that are named in full of the row group after those in `contents`, where these end.
        findings: What is wrong with the end, for people.
    """

    contents: Contents
    complete: bool
    start: int
    end: int
    shift: int
    num_rows: int | None
    num_row_groups: int | None
    ordinals: tuple[int, ...]
    columns: tuple[ColumnChunk, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def stated_rows(self) -> int | None:
        """Rows of the file as it was written; None where nothing states them, or what does contradicts itself."""
        named = self.contents.num_rows
        if self.num_row_groups == len(self.ordinals):
            return named if self.num_rows in (0, named) else None  # early parquet-rs wrote 0 rows
        return None if self.num_rows is None or self.num_rows < named else self.num_rows

    @property
    def view(self) -> ByteRemap:
        """The file as it was written, up to its end: where bytes are missing or were added, all others are moved."""
        size = self.end - self.shift
        return ByteRemap(size, (RemapSegment(max(0, -self.shift), size, self.shift),))

    @property
    def rebuilt(self) -> RebuiltFile:
        """The same in the words of every rung of the ladder."""
        metadata = replace(self.contents.metadata, row_groups=[], num_rows=0)
        return RebuiltFile(self.contents.schema, metadata, tuple(locate_torn_row_groups(self)), self.findings)


def locate_torn_row_groups(found: TornFooter) -> Iterator[LocatedRowGroup]:
    """The row groups that a footer, whole or not, names."""
    contents = found.contents
    method = Method.FOOTER if found.complete else Method.TORN_FOOTER
    for position, (ordinal, rows_before) in enumerate(zip(found.ordinals, _rows_before(found), strict=True)):
        row_group = contents.metadata.row_groups[position]
        chunks: list[LocatedChunk | None] = []
        for leaf in contents.schema.leaves:
            try:
                chunk = replace(chunk_read(contents, position, leaf), row_group=ordinal)
                chunks.append(LocatedChunk(without_malformed_sums(chunk)))
            except ResilientPQError:
                chunks.append(None)
        places = [chunk.read.range for chunk in chunks if chunk is not None and chunk.read.metadata.num_values]
        start = min((place.start for place in places), default=len(MAGIC))
        end = max((place.end for place in places), default=len(MAGIC))
        sorting = tuple(row_group.sorting_columns or ())
        yield LocatedRowGroup(ordinal, row_group.num_rows, rows_before, tuple(chunks), method, start, end, sorting)


def _rows_before(found: TornFooter) -> list[int | None]:
    """Rows before each row group: counted from the front, and behind those that are missing from the end."""
    row_groups = found.contents.metadata.row_groups
    counts: list[int | None] = [None] * len(row_groups)
    num_rows = 0
    for position, ordinal in enumerate(found.ordinals):
        if position != ordinal:
            break
        counts[position] = num_rows
        num_rows += row_groups[position].num_rows
    left, following = found.num_rows or 0, found.num_row_groups
    for position in range(len(row_groups) - 1, -1, -1):
        left -= row_groups[position].num_rows
        if counts[position] is not None or found.ordinals[position] + 1 != following or left < num_rows:
            break
        counts[position], following = left, found.ordinals[position]
    return counts


_MAGIC = re.compile(re.escape(MAGIC))
Search = Generator[ByteRange, memoryview, TornFooter | None]


def footer_budget(size: int) -> SearchBudget:
    """What a search for a footer may cost in an object of so many bytes."""
    return SearchBudget.of(size, free=_FREE, per_byte=_PER_BYTE, most=_MOST)


def find_footer(
    size: int, *, reach: int = REACH, budget: SearchBudget | None = None, others: Sequence[ByteRange] = ()
) -> Search:
    """Find the metadata of a file of `size` bytes whose end, or beginning, is damaged."""
    if not size:
        return None
    head = bytes((yield ByteRange(0, min(len(MAGIC), size))))
    object_ = _Object(size, (yield from _end_of_data(size)), head == MAGIC, budget or footer_budget(size))
    end, window = object_.data_end, _FIRST_WINDOW
    # What begins before `end` may reach beyond it: a shape takes four bytes, and a magic as many.
    while end > 0 and object_.data_end - end < reach:
        start = max(end - window, 0)
        data = bytes((yield ByteRange(start, min(end + len(MAGIC) - 1, object_.data_end))))
        object_.window, object_.window_start = data, start
        for at, is_tail in _candidates(data):
            if any(place.start <= start + at < place.end for place in others):
                continue
            found = yield from (_by_tail if is_tail else _by_shape)(object_, start + at)
            if found is not None:
                return found
            if not object_.budget.allows(_ATTEMPT):
                return None
        end, window = start, min(window * 2, _LARGEST_WINDOW)
    return None


@dataclass(slots=True)
class _Object:
    """What is known of the object while it is searched.

    Attributes:
        size: Its bytes.
        data_end: Offset of the padding at its end.
        has_magic: Whether it begins with the magic.
        budget: Bytes that may be read for what only looks like metadata, and something for each attempt.
        window: The bytes that are looked through, so that a few of them need not be asked for again.
        window_start: Offset of the first of them.
    """

    size: int
    data_end: int
    has_magic: bool
    budget: SearchBudget
    window: bytes = b""
    window_start: int = 0

    def few(self, start: int, end: int) -> Generator[ByteRange, memoryview, bytes]:
        """The bytes from `start` up to `end`."""
        at = start - self.window_start
        if at >= 0 and end - self.window_start <= len(self.window):
            return self.window[at : end - self.window_start]
        return bytes((yield ByteRange(start, end)))


def _end_of_data(size: int) -> Generator[ByteRange, memoryview, int]:
    """The offset after the last byte that is no padding."""
    end, window, padding = size, 64 * KiB, b""
    while end:
        start = max(end - window, 0)
        data = bytes((yield ByteRange(start, end)))
        if not padding:
            padding = data[-1:]
            if padding not in _PADDING:
                return size
        kept = len(data.rstrip(padding))
        if kept:
            return start + kept if size - start - kept >= _LEAST_PADDING else size
        end, window = start, min(window * 2, _LARGEST_WINDOW)
    return 0


def _candidates(data: bytes) -> list[tuple[int, bool]]:
    """Where a magic stands or metadata may begin, from the end; and whether it is the magic."""
    # More than there will be attempts would only take memory.
    shapes = deque(((match.start(), False) for match in SHAPE.finditer(data)), maxlen=_MOST // _ATTEMPT)
    magics = deque(((match.start(), True) for match in _MAGIC.finditer(data)), maxlen=_MOST // _ATTEMPT)
    return sorted([*shapes, *magics], reverse=True)


def _by_tail(object_: _Object, at: int) -> Search:
    """The footer whose magic stands at `at`, if there is one."""
    if at < TAIL_SIZE:
        return None
    end = at + len(MAGIC)
    length = int.from_bytes((yield from object_.few(at - 4, at)), "little")
    start = end - TAIL_SIZE - length
    if start < 1 or length < len(MAGIC):
        return None
    if not SHAPE.match((yield from object_.few(start, start + len(MAGIC)))):
        return None
    # As if a byte were missing before: the magic at the beginning may be damaged, and is looked at elsewhere.
    begin = max(start - HEADER_SIZE, 1)
    if not object_.budget.allows(end - begin):
        return None
    try:
        footer = read_footer((yield ByteRange(begin, end)), begin)
        if isinstance(footer, NeedBytes):
            return None
        contents = Contents.of(footer)
    except ResilientPQError:
        return None  # its metadata may still be read in part, by their shape
    if contents.footer.trailing and footer.metadata.encryption_algorithm is None and footer.record is None:
        return (yield from _by_shape(object_, start))  # something within the metadata ends them too early
    return (yield from _by_metadata(object_, contents, start, end, tail_is_whole=True))


def _by_shape(object_: _Object, start: int) -> Search:
    """The metadata that begin at `start`, whole or not, if there are any."""
    if not begins_metadata((yield from object_.few(start, min(start + _ROOT_BYTES, object_.data_end)))):
        return None
    # A page of zeros may have been laid over what follows the metadata, and the last of them are zeros too.
    limit = min(object_.data_end + _MOST_STOPS, object_.size)
    if not object_.budget.allows(limit - start):
        return None
    data = yield ByteRange(start, limit)
    known = _read_partial(data, object_.data_end - start, start)
    if known is None:
        return None
    partial, contents, ordinals = known
    if partial.ending is MetadataEnd.WHOLE:
        end = max(start + partial.end, min(start + partial.end + TAIL_SIZE, object_.data_end))
        return (yield from _by_metadata(object_, contents, start, end, tail_is_whole=False))
    chunks = [chunk for row_group in partial.row_groups for chunk in row_group.columns] + partial.columns
    if any(has_values(chunk) for chunk in chunks):
        own = yield from pages_begin(chunks, 0, start)
    else:
        own = not (yield from is_within(start))
    return _torn(object_, partial, contents, ordinals, start) if own else None


def _by_metadata(object_: _Object, contents: Contents, start: int, end: int, *, tail_is_whole: bool) -> Search:
    """The footer that whole metadata are, or the schema in them; None where their row groups are not there."""
    if not contents.metadata.row_groups and end < object_.data_end:
        return None if (yield from is_within(start)) else _schema_alone(object_, contents, start, end)
    shift = yield from find_shift(contents.metadata, start, has_magic=object_.has_magic)
    if shift is None:
        return None
    if shift:
        contents = Contents.of(replace(contents.footer, start=start - shift))
    return _whole(object_, contents, start, end, shift, tail_is_whole=tail_is_whole)


def _read_partial(data: memoryview, size: int, start: int) -> tuple[PartialMetaData, Contents, tuple[int, ...]] | None:
    """The metadata at the front of `data`, what of them can be believed, and which row groups that are.

    None without a schema.
    """
    partial = partial_metadata(data[:size])
    whole_before = len(partial.row_groups)
    if partial.ending is MetadataEnd.CUT and size < len(data):
        partial = _ended_by_zeros(partial, partial_metadata(data))
    if not partial.has_schema:
        return None
    try:
        schema = Schema.from_elements(partial.schema).without_empty_groups()
        counted = sum(row_group.num_rows for row_group in partial.row_groups)
        # Early parquet-rs wrote 0 rows, whatever the row groups had.
        if partial.ending is not MetadataEnd.WHOLE or partial.num_rows not in (0, counted):
            doubtful = len(partial.row_groups) - 1 if partial.ending is not MetadataEnd.CUT else whole_before
            kept = list(select_credible(partial.row_groups, schema, start, doubtful=doubtful))
            if len(kept) < len(partial.row_groups) or partial.ending is MetadataEnd.WHOLE:
                partial = replace(partial, row_groups=kept, columns=[], ending=MetadataEnd.DAMAGED)
        ordinals = tuple(range(len(partial.row_groups)))
        if partial.ending is not MetadataEnd.WHOLE:
            # A length that is damaged leads behind the end, as if the metadata were cut.
            pieces = find_pieces(data[:size], schema, start, partial)
            partial, ordinals = _with_pieces(partial, pieces)
        return partial, Contents.of(Footer(partial.metadata(), start, min(partial.end, size), None)), ordinals
    except ResilientPQError:
        return None


def _with_pieces(partial: PartialMetaData, pieces: FooterPieces) -> tuple[PartialMetaData, tuple[int, ...]]:
    ordinals = tuple(ordinal for ordinal, _ in pieces.row_groups)
    rest = pieces.rest
    if rest is None:
        return partial, ordinals
    return replace(
        partial,
        ending=MetadataEnd.DAMAGED,
        end=rest.end,
        row_groups=[row_group for _, row_group in pieces.row_groups],
        columns=[],
        key_value_metadata=rest.key_value_metadata,
        created_by=rest.created_by,
        column_orders=rest.column_orders,
        encrypted=rest.encrypted,
    ), ordinals


def _ended_by_zeros(partial: PartialMetaData, longer: PartialMetaData) -> PartialMetaData:
    """Metadata that seem to be cut where padding begins, whose last bytes may be the first zeros of it."""
    if not partial.has_schema:
        return partial  # zeros read as columns without a name, or without the rest of what is said of them
    if longer.ending is MetadataEnd.WHOLE:
        return longer
    if not longer.has_schema or len(longer.row_groups) <= len(partial.row_groups):
        return partial
    return replace(partial, row_groups=longer.row_groups, columns=[], end=longer.end)


# -- what is said of it ----------------------------------------------------------------------------------


def _whole(
    object_: _Object, contents: Contents, start: int, end: int, shift: int, *, tail_is_whole: bool
) -> TornFooter:
    findings = list(_findings_before(object_, shift))
    if not tail_is_whole:
        message = "the footer is whole, but its length and the magic behind it are missing or damaged"
        findings.append(_finding(message, start, object_.data_end))
    if end < object_.data_end:
        message = f"{object_.data_end - end:,} bytes of something else stand behind the end of the file"
        findings.append(_finding(message, end, object_.data_end, searched=False))
    findings += _findings_behind(object_, end)
    metadata = contents.metadata
    return TornFooter(
        contents, True, start, end, shift, metadata.num_rows, len(metadata.row_groups),
        tuple(range(len(metadata.row_groups))), (), tuple(findings),
    )  # fmt: skip


def _schema_alone(object_: _Object, contents: Contents, start: int, end: int) -> TornFooter:
    """Metadata that name no row groups, with bytes behind them: what our files begin with, be it damaged."""
    message = "there is no footer; metadata without row groups, which bytes stand behind, tell the schema"
    findings = [
        *_findings_before(object_, 0),
        Finding(Damage.TORN, message, Where(offset=start), start, end),
        *_findings_behind(object_, object_.data_end),
    ]
    return TornFooter(contents, False, start, end, 0, None, None, (), (), tuple(findings))


def _torn(
    object_: _Object, partial: PartialMetaData, contents: Contents, ordinals: tuple[int, ...], start: int
) -> TornFooter:
    findings = list(_findings_before(object_, 0))
    end = min(start + partial.end, object_.data_end)
    cut = partial.ending is MetadataEnd.CUT
    how = "the file was cut inside its footer" if cut else "the footer is damaged"
    rest = "the schema is whole"
    if partial.num_row_groups is not None:
        rest += f", and {len(ordinals):,} of {partial.num_row_groups:,} row groups are named in full"
    # Early parquet-rs wrote 0 rows. A number of row groups that is damaged does not go with the number of rows.
    names_all = partial.names_all_row_groups and partial.num_rows in (0, contents.num_rows)
    if names_all:
        rest = "the schema and all row groups are whole, what follows them is not"
    elif partial.num_rows is not None:
        rest += f": {contents.num_rows:,} of {partial.num_rows:,} rows"
    where = Where(offset=end if cut else start)
    damage = Damage.TORN if cut else Damage.CORRUPT
    findings.append(Finding(damage, f"{how}; {rest}", where, where.offset, object_.size, not names_all))
    findings += _findings_behind(object_, object_.data_end)
    return TornFooter(
        contents, False, start, end, 0, partial.num_rows, partial.num_row_groups, ordinals, tuple(partial.columns),
        tuple(findings),
    )  # fmt: skip


def _findings_before(object_: _Object, shift: int) -> Iterator[Finding]:
    if shift < 0:
        message = f"{-shift:,} bytes are missing at the beginning of the file, or before its footer"
        yield Finding(Damage.MISSING, message, Where(offset=0), 0, 0)
    elif shift > 0:
        message = f"{shift:,} bytes of something else stand before the beginning of the file"
        yield _finding(message, 0, shift, searched=False)
    elif not object_.has_magic:
        yield _finding("the magic at the beginning is damaged", 0, min(len(MAGIC), object_.size))


def _findings_behind(object_: _Object, end: int) -> Iterator[Finding]:
    start = max(end, object_.data_end)
    if start < object_.size:
        yield _finding(
            f"{object_.size - start:,} bytes of padding stand behind the end of the file", start, object_.size
        )


def _finding(message: str, start: int, end: int, *, searched: bool = True) -> Finding:
    # Of bytes before and behind the file nobody knows what they hold: a second file perhaps.
    said = "nothing is lost with that" if searched else "they are no part of it, and were not searched"
    return Finding(Damage.CORRUPT, f"{message}; {said}", Where(offset=start), start, end, costs_rows=False)
