"""The search for file metadata at the damaged end of a file, whoever wrote it. Sans-io.

It goes back from the end and looks for a length and ``PAR1`` with file metadata before them, and for the shape of file
metadata, whole or cut. Neither proves anything, as a column may hold whole Parquet files: metadata are accepted only
where pages begin at the offsets that they name.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.partial_metadata import SHAPE, MetadataEnd, PartialMetaData, begins_metadata, partial_metadata
from resilient_pq.errors import ResilientPQError
from resilient_pq.format.footer import MAGIC, TAIL_SIZE, Footer, NeedBytes, read_footer
from resilient_pq.format.resilience_records import HEADER_SIZE
from resilient_pq.format.schema_tree import Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery.evidence.footers.footer_evidence import (
    all_chunks,
    contradicts_itself,
    find_shift,
    has_values,
    is_within,
    names_some_files,
    pages_begin,
    select_credible,
)
from resilient_pq.recovery.evidence.footers.footer_pieces import FooterPieces, find_pieces
from resilient_pq.recovery.evidence.footers.torn_footer import (
    ObjectExtent,
    TornFooter,
    describe_schema_alone,
    describe_torn,
    describe_whole,
)
from resilient_pq.recovery.evidence.search_budget import SearchBudget
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

_MAGIC = re.compile(re.escape(MAGIC))
FooterSearch = Generator[ByteRange, memoryview, TornFooter | None]


def footer_budget(size: int) -> SearchBudget:
    """The budget of a search for a footer in an object of so many bytes."""
    return SearchBudget.of(size, free=_FREE, per_byte=_PER_BYTE, most=_MOST)


def find_footer(
    size: int, *, reach: int = REACH, budget: SearchBudget | None = None, others: Sequence[ByteRange] = ()
) -> FooterSearch:
    """The last metadata in an object of `size` bytes that belong to it, within `reach` bytes of its end; None for none.

    Metadata in the ranges of `others` belong to other files.
    """
    if not size:
        return None
    head = bytes((yield ByteRange(0, min(len(MAGIC), size))))
    extent = ObjectExtent(size, (yield from _end_of_data(size)), head == MAGIC)
    search = _Search(extent, budget or footer_budget(size))
    end, window = search.extent.data_end, _FIRST_WINDOW
    # What begins before `end` may reach beyond it: a shape takes four bytes, and a magic as many.
    while end > 0 and search.extent.data_end - end < reach:
        start = max(end - window, 0)
        data = bytes((yield ByteRange(start, min(end + len(MAGIC) - 1, search.extent.data_end))))
        search.window, search.window_start = data, start
        for at, is_tail in _candidates(data):
            if any(place.start <= start + at < place.end for place in others):
                continue
            found = yield from (_by_tail if is_tail else _by_shape)(search, start + at)
            if found is not None:
                return found
            if not search.budget.allows(_ATTEMPT):
                return None
        end, window = start, min(window * 2, _LARGEST_WINDOW)
    return None


@dataclass(slots=True)
class _Search:
    """A search for a footer."""

    extent: ObjectExtent  # The object
    # Bytes that may be read for what only looks like metadata, and a fixed number for each attempt
    budget: SearchBudget
    window: bytes = b""  # The bytes that are searched, so that a few of them need not be requested again
    window_start: int = 0  # Offset of the first of them

    def few(self, start: int, end: int) -> Generator[ByteRange, memoryview, bytes]:
        """The bytes from `start` to `end`, which are often those of the window."""
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
    """Offsets at which a magic stands, or metadata may begin, from the end; and whether it is the magic."""
    # More than there will be attempts would only take memory.
    shapes = deque(((match.start(), False) for match in SHAPE.finditer(data)), maxlen=_MOST // _ATTEMPT)
    magics = deque(((match.start(), True) for match in _MAGIC.finditer(data)), maxlen=_MOST // _ATTEMPT)
    return sorted([*shapes, *magics], reverse=True)


def _by_tail(search: _Search, at: int) -> FooterSearch:
    """The footer whose magic lies at `at`; None where there is none."""
    if at < TAIL_SIZE:
        return None
    end = at + len(MAGIC)
    length = int.from_bytes((yield from search.few(at - 4, at)), "little")
    start = end - TAIL_SIZE - length
    if start < 1 or length < len(MAGIC):
        return None
    if not SHAPE.match((yield from search.few(start, start + len(MAGIC)))):
        return None
    # As if a byte were missing before: the magic at the beginning may be damaged, and is looked at elsewhere.
    begin = max(start - HEADER_SIZE, 1)
    if not search.budget.allows(end - begin):
        return None
    try:
        footer = read_footer((yield ByteRange(begin, end)), begin)
        if isinstance(footer, NeedBytes):
            return None
        contents = Contents.of(footer)
    except ResilientPQError:
        return None  # its metadata may still be read in part, by their shape
    trails = contents.footer.trailing and footer.metadata.encryption_algorithm is None and footer.record is None
    if trails or contradicts_itself(contents):
        return (yield from _by_shape(search, start))  # something within the metadata ends them, or a part, too early
    return (yield from _by_metadata(search, contents, start, end, tail_is_whole=True))


def _by_shape(search: _Search, start: int) -> FooterSearch:
    """The metadata that begin at `start`, whole or not; None where there are none."""
    if not begins_metadata((yield from search.few(start, min(start + _ROOT_BYTES, search.extent.data_end)))):
        return None
    # A page of zeros may have been laid over what follows the metadata, and the last of them are zeros too.
    limit = min(search.extent.data_end + _MOST_STOPS, search.extent.size)
    if not search.budget.allows(limit - start):
        return None
    data = yield ByteRange(start, limit)
    known = _read_partial(data, search.extent.data_end - start, start)
    if known is None:
        return None
    partial, contents, ordinals = known
    if partial.ending is MetadataEnd.WHOLE:
        end = max(start + partial.end, min(start + partial.end + TAIL_SIZE, search.extent.data_end))
        return (yield from _by_metadata(search, contents, start, end, tail_is_whole=False))
    chunks = all_chunks(partial.row_groups) + partial.columns
    if any(has_values(chunk) for chunk in chunks):
        own = yield from pages_begin(chunks, 0, start)
    else:
        own = not (yield from is_within(start))
    return describe_torn(search.extent, partial, contents, ordinals, start) if own else None


def _by_metadata(search: _Search, contents: Contents, start: int, end: int, *, tail_is_whole: bool) -> FooterSearch:
    """The footer with whole metadata, or the schema in them; None where their row groups are not there."""
    if not contents.metadata.row_groups and end < search.extent.data_end:
        return None if (yield from is_within(start)) else describe_schema_alone(search.extent, contents, start, end)
    shift = yield from find_shift(contents.metadata, start, has_magic=search.extent.has_magic)
    if shift is None:
        return None
    if shift:
        contents = Contents.of(replace(contents.footer, start=start - shift))
    return describe_whole(search.extent, contents, start, end, shift, tail_is_whole=tail_is_whole)


def _read_partial(data: memoryview, size: int, start: int) -> tuple[PartialMetaData, Contents, tuple[int, ...]] | None:
    """The credible part of the metadata at the front of `data`, and the ordinals of its row groups; None for no schema.

    The last `len(data) - size` bytes are zeros, with which the metadata may end.
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
        agrees = partial.num_rows in (0, counted) and not names_some_files(partial.row_groups)
        if partial.ending is not MetadataEnd.WHOLE or not agrees:
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
    """Metadata that seem to be cut where padding begins, with the zeros that are their own last bytes."""
    if not partial.has_schema:
        return partial  # zeros read as columns without a name, or without the rest of what is said of them
    if longer.ending is MetadataEnd.WHOLE:
        return longer
    if not longer.has_schema or len(longer.row_groups) <= len(partial.row_groups):
        return partial
    return replace(partial, row_groups=longer.row_groups, columns=[], end=longer.end)
