"""What is left of damaged row groups, page by page. An async shell around `damage.salvage_pipeline`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.chunk_salvage import ChunkBytes, PageFate, RepairSource, SalvagedChunk
from resilient_pq.damage.displaced_pages import begins_with_another, goes_beyond, is_displaced, without_displaced
from resilient_pq.damage.on_damage import Mask
from resilient_pq.damage.page_finder import Repair
from resilient_pq.damage.page_hints import PageHints, pages_by_index, pages_by_record, record_of_row_group, record_place
from resilient_pq.damage.page_runs import Agrees
from resilient_pq.damage.salvage_pipeline import salvage_chunk
from resilient_pq.damage.stated_values import stated_of
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.resilience_records import RowGroupRecord
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.row_shapes import contradicting_rows
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.located_row_group import LocatedChunk, LocatedRowGroup
from resilient_pq.recovery.evidence.row_counts import correct_row_count, is_doubted


@dataclass(frozen=True, slots=True)
class ScannedChunk:
    """What is left of a column chunk, without its bytes."""

    located: LocatedChunk  # Where it lies and what is stated of it
    # The fate of each page, without its bytes: one without a reason is whole. None of a chunk that is whole in its
    # place
    pages: tuple[PageFate, ...] = ()
    present: Mask | None = None  # For each row of the row group, whether its value is left; None where all are
    # The pages of a chunk that is whole in its place, where its row group is not; none of others
    intact: tuple[PageFate, ...] = ()
    checksummed: bool = False  # Whether checksums cover all pages of a chunk that is whole in its place
    is_cut: bool = False  # Whether its pages hold more than what is left of them (`SalvagedChunk.is_cut`)

    @property
    def in_place(self) -> bool:
        """Whether it is whole as it lies."""
        return not self.pages

    @property
    def is_whole(self) -> bool:
        """Whether it can be put together byte by byte as it was written."""
        return not self.is_cut and all(fate.reason is None for fate in self.pages) and self.present is None


@dataclass(frozen=True, slots=True)
class ScannedRowGroup:
    """What is left of a row group."""

    located: LocatedRowGroup  # Where it lies, with the number of rows that its pages bear out
    num_rows: int  # Its rows; of one that is not known to be complete, those of its longest column
    chunks: tuple[ScannedChunk | None, ...]  # One for each leaf; None where nothing of it was found

    @property
    def is_whole(self) -> bool:
        """Whether every chunk can be put together byte by byte as it was written."""
        return all(chunk is not None and chunk.is_whole for chunk in self.chunks)

    @property
    def present(self) -> dict[int, Mask]:
        """For each leaf that lost rows, by its ordinal, whether each row's value is left."""
        nothing = np.zeros(self.num_rows, np.bool_)
        masks = [nothing if chunk is None else chunk.present for chunk in self.chunks]
        return {leaf: mask for leaf, mask in enumerate(masks) if mask is not None}


@dataclass(frozen=True, slots=True)
class AlternateSource:
    """Where the same file can be read again."""

    source: DamagedObject  # Where
    repair_source: RepairSource  # What taking a page from there means
    # The ordinals of those that are known to be the same there; None for all. Of others a page is taken only where a
    # copy of its header, from elsewhere, has its CRC32
    row_groups: frozenset[int] | None = None

    def has(self, ordinal: int) -> bool:
        """Whether a row group is known to be the same there."""
        return self.row_groups is None or ordinal in self.row_groups


@dataclass(frozen=True, slots=True)
class SalvageOptions:
    """Where whole bytes are looked for: other sources, one flipped bit, pages whose place nothing proves."""

    alternates: tuple[AlternateSource, ...] = ()
    repair: Repair | None = None
    keep_unplaced: bool = False
    displaced_at: frozenset[int] = frozenset()  # Where row groups should begin, and something else lies


class PageScanner:
    """Scans the pages of damaged row groups of one file."""

    def __init__(self, source: DamagedObject, options: SalvageOptions, contents: Contents | None = None) -> None:
        """Prepare to scan; without `contents` no statistics are compared."""
        self.displaced_at = options.displaced_at  # and where a row group that was scanned does not begin
        self.metadata = None if contents is None else contents.metadata
        self._columns = () if contents is None else contents.schema.columns
        self._data_end = source.info.size if contents is None else contents.footer.start
        self._source = source
        self._options = options

    async def scan(self, located: LocatedRowGroup) -> ScannedRowGroup:
        """What is left of a row group, without its bytes."""
        located, salvaged = await self._salvage_counted(located)
        num_rows = _count_rows(located, salvaged)
        contradicting = contradicting_rows(self._columns, salvaged, num_rows)
        chunks = [
            None if chunk is None or left is None else _summarize(chunk, left, num_rows, contradicting)
            for chunk, left in zip(located.chunks, salvaged, strict=True)
        ]
        if all(chunk is not None and chunk.present is None for chunk in chunks):
            chunks = [chunk and replace(chunk, intact=()) for chunk in chunks]
        return ScannedRowGroup(located, num_rows, tuple(chunks))

    async def salvage(self, located: LocatedRowGroup) -> list[SalvagedChunk | None]:
        """What is left of each chunk of a row group, with its bytes and values."""
        return (await self._salvage_counted(located))[1]

    async def _salvage_counted(self, located: LocatedRowGroup) -> tuple[LocatedRowGroup, list[SalvagedChunk | None]]:
        """What is left of a row group, and the row group with the number of rows that its pages bear out."""
        hints = await self._page_hints(located)
        salvaged = await self._salvage_chunks(located, hints)
        if is_doubted(located, salvaged):
            stated, uncounted = located.num_rows, replace(located, num_rows=None)
            free = salvaged if stated is None else await self._salvage_chunks(uncounted, hints)
            located, salvaged = correct_row_count(located, salvaged, free)
            if located.num_rows not in (None, stated):
                salvaged = await self._salvage_chunks(located, hints)
        return located, salvaged

    async def _salvage_chunks(
        self, located: LocatedRowGroup, hints: Sequence[PageHints | None]
    ) -> list[SalvagedChunk | None]:
        salvaged = [
            None if chunk is None else await self._salvage_chunk(located, chunk, pages)
            for chunk, pages in zip(located.chunks, hints, strict=True)
        ]
        stated = [chunk for chunk in located.chunks if chunk is not None and chunk.pages is None]
        return await self._without_displaced(salvaged) if stated else salvaged

    async def _without_displaced(self, salvaged: list[SalvagedChunk | None]) -> list[SalvagedChunk | None]:
        """The chunks of a row group, without pages that other pages show to lie in the places of others."""
        in_order = sorted(filter(None, salvaged), key=lambda left: left.chunk.range.start)
        if await begins_with_another(in_order[0], self._read_beside):
            self.displaced_at |= {in_order[0].chunk.range.start}
        keep_unplaced = self._options.keep_unplaced
        beyond = self._is_broken(salvaged) or await goes_beyond(salvaged, self._read_beside)
        if is_displaced(salvaged, beyond=beyond):
            return without_displaced(salvaged, keep_unplaced=keep_unplaced)
        if in_order[-1].chunk.range.end in self._options.displaced_at:
            # A page of the same size may have come before or between its own, the last of which lies behind it now.
            [doubted] = without_displaced(in_order[-1:], keep_unplaced=keep_unplaced)
            return [doubted if left is in_order[-1] else left for left in salvaged]
        return salvaged

    def _is_broken(self, salvaged: Sequence[SalvagedChunk | None]) -> bool:
        """Whether bytes may be missing before a chunk that is not whole, so that pages lie in the places of others."""
        # Where a chunk is said to end behind the data, and its pages do not, its size alone is wrong.
        found = [chunk for chunk in salvaged if chunk is not None]
        if any((self._source.is_view or c.chunk.range.end > self._data_end) and not c.is_whole for c in found):
            return True
        return any(chunk.pages[-1].end > self._data_end for chunk in found if chunk.pages)

    async def _read_beside(self, _: ChunkRead, place: ByteRange) -> memoryview:
        return await self._source.read(ByteRange(place.start, min(place.end, self._source.info.size)))

    async def _salvage_chunk(
        self, located: LocatedRowGroup, chunk: LocatedChunk, hints: PageHints | None
    ) -> SalvagedChunk:
        readings = [ChunkBytes(await _read_padded(self._source, chunk.read.range))]
        tells_apart = hints is not None and hints.tell_apart(chunk.read.metadata.codec) and chunk.pages is None
        alternates = self._options.alternates
        usable = [i for i, each in enumerate(alternates) if tells_apart or each.has(located.ordinal)]
        salvaged = await self._survivors(located, chunk, readings, hints, last=not usable)
        if salvaged.in_place or not usable:
            return salvaged
        for i in usable:
            data = await _read_padded(alternates[i].source, chunk.read.range)
            readings.append(ChunkBytes(data, alternates[i].repair_source))
        salvaged = await self._best_of(located, chunk, readings, hints)
        # Positions are those among all that can be read, whether they were asked for this chunk or not.
        places = [0, *(i + 1 for i in usable)]
        return replace(salvaged, pages=tuple(replace(fate, reading=places[fate.reading]) for fate in salvaged.pages))

    async def _best_of(
        self, located: LocatedRowGroup, chunk: LocatedChunk, readings: Sequence[ChunkBytes], hints: PageHints | None
    ) -> SalvagedChunk:
        """What all readings together have of a chunk, or one of them alone where that has more rows."""
        best = await self._survivors(located, chunk, readings, hints, last=True)
        for position, reading in enumerate(readings[1:], start=1):
            if best.is_whole:
                break
            # Without checksums a page that was taken from the first copy may not decode: another may have it all.
            alone = await self._survivors(located, chunk, [reading], hints, last=True)
            if alone.num_rows > best.num_rows:
                best = replace(alone, pages=tuple(replace(fate, reading=position) for fate in alone.pages))
        return best

    async def _agreement(self, chunk: LocatedChunk) -> Agrees | None:
        """Tells whether rows agree with what the footer and indexes state of them; None where there is no footer."""
        if self.metadata is None:
            return None
        places = (chunk.column_index, chunk.offset_index)
        columns, offsets = [None if place is None else await _read_padded(self._source, place) for place in places]
        return stated_of(self.metadata, chunk.read, columns, offsets).agrees

    async def _survivors(
        self,
        located: LocatedRowGroup,
        chunk: LocatedChunk,
        readings: Sequence[ChunkBytes],
        hints: PageHints | None,
        *,
        last: bool,
    ) -> SalvagedChunk:
        agrees = await self._agreement(chunk)
        return await asyncio.to_thread(
            salvage_chunk,
            chunk.read,
            readings,
            chunk.pages or hints,
            num_rows=located.num_rows,
            repair=self._options.repair if last else None,
            agrees=agrees,
            keep_unplaced=self._options.keep_unplaced,
        )

    # -- hints for pages -------------------------------------------------------------------------

    async def _page_hints(self, located: LocatedRowGroup) -> list[PageHints | None]:
        """What the record of the row group says of the pages of each chunk, or else its OffsetIndex."""
        alternates = self._options.alternates
        for source in (self._source, *(other.source for other in alternates)):
            record = await _read_record(source, located)
            if record is not None and len(record.chunks) == len(located.chunks):
                return [None if chunk is None else pages_by_record(record, chunk.read) for chunk in located.chunks]
        sources = [self._source, *(other.source for other in alternates if other.has(located.ordinal))]
        return [None if chunk is None else await _indexed_pages(chunk, sources) for chunk in located.chunks]


async def _indexed_pages(chunk: LocatedChunk, sources: Sequence[DamagedObject]) -> PageHints | None:
    """What the OffsetIndex of a chunk says, in the first source that has it whole."""
    place = chunk.offset_index
    if place is None or chunk.pages is not None:
        return None
    for source in sources:
        hints = pages_by_index(await _read_padded(source, place), chunk.read)
        if hints is not None:
            return hints
    return None


async def _read_padded(source: DamagedObject, wanted: ByteRange) -> memoryview:
    """The bytes of a range, zeros for those that the source does not have."""
    end = max(min(wanted.end, source.info.size), wanted.start)
    data = await source.read(ByteRange(wanted.start, end))
    missing = wanted.size - len(data)
    return memoryview(bytes(data) + bytes(missing)) if missing else data


async def _read_record(source: DamagedObject, located: LocatedRowGroup) -> RowGroupRecord | None:
    """The record of a row group; None where it has none, or it is damaged."""
    first = located.chunks[0] if located.chunks else None
    place = None if first is None else record_place(first.read.metadata)
    if place is None or place.end > source.info.size:
        return None
    return record_of_row_group(await source.read(place), place)


def _summarize(
    chunk: LocatedChunk, salvaged: SalvagedChunk, num_rows: int, contradicting: Mapping[int, Mask]
) -> ScannedChunk:
    """What is left of a chunk without its bytes; rows that contradict another leaf count as lost."""
    present = salvaged.rows_present(num_rows)
    if chunk.read.leaf.ordinal in contradicting:
        present &= ~contradicting[chunk.read.leaf.ordinal]
    mask = None if present.all() else present
    pages = tuple(replace(fate, page=None) for fate in salvaged.pages)
    if salvaged.in_place and mask is None and _is_as_written(salvaged) and not any(fate.unplaced for fate in pages):
        checksummed = bool(pages) and all(fate.checksummed for fate in pages)
        return ScannedChunk(chunk, intact=pages, checksummed=checksummed)
    return ScannedChunk(chunk, pages, mask, is_cut=salvaged.is_cut)


def _count_rows(located: LocatedRowGroup, chunks: Iterable[SalvagedChunk | None]) -> int:
    """Rows of a row group; of one that is not complete, those of its longest column."""
    if located.num_rows is not None:
        return located.num_rows
    runs = [run for chunk in chunks if chunk is not None for run in chunk.runs]
    return max((run.first_row + run.data.num_rows for run in runs if run.first_row is not None), default=0)


def _is_as_written(salvaged: SalvagedChunk) -> bool:
    """Whether the chunk's own checksum holds, where it has one: it covers page headers too."""
    sums = ChunkSums.of(salvaged.chunk.metadata)
    return sums is None or sums.of_chunk is None or sums.computed(salvaged.bytes()) == sums.of_chunk
