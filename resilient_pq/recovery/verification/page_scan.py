"""What is left of damaged row groups, page by page. An async shell around `damage.chunk_salvage`.

Only chunks that are not whole come here. Bytes that the damaged file does not have whole are looked for elsewhere: in
the records of the row group, where parts of the file lie that were moved, and in other copies of the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.chunk_salvage import (
    Agrees,
    ChunkBytes,
    PageFate,
    Repair,
    RepairSource,
    SalvagedChunk,
    Search,
    survivors,
)
from resilient_pq.damage.displaced_pages import goes_beyond, is_displaced, without_displaced
from resilient_pq.damage.on_damage import Mask
from resilient_pq.damage.page_hints import (
    PageHints,
    pages_by_index,
    pages_by_record,
    record_of_row_group,
    record_place,
)
from resilient_pq.damage.stated_values import stated_of
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.resilience_records import RowGroupRecord
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.row_shapes import contradicting_rows
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.located_row_group import LocatedChunk, LocatedRowGroup
from resilient_pq.recovery.evidence.row_counts import borne_out, is_doubted


@dataclass(frozen=True, slots=True)
class ScannedChunk:
    """What is left of a column chunk, without its bytes.

    Attributes:
        known: What was known of it.
        pages: The fate of each page, its bytes let go: one without a reason is whole. None of a chunk that is whole
            in its place.
        present: For each row of the row group, whether its value is left; None where all are.
        intact: The pages of a chunk that is whole in its place, where its row group is not; none of others.
        checksummed: Whether checksums vouch for all pages of a chunk that is whole in its place.
        is_cut: Whether its pages hold more than what is left of them (`SalvagedChunk.is_cut`).
    """

    known: LocatedChunk
    pages: tuple[PageFate, ...] = ()
    present: Mask | None = None
    intact: tuple[PageFate, ...] = ()
    checksummed: bool = False
    is_cut: bool = False

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
    """What is left of a row group.

    Attributes:
        known: What was known of it, with the number of rows that its pages bear out.
        num_rows: Its rows; of one that is not known to be complete, those of its longest column.
        chunks: One for each leaf; None where nothing of it was found.
    """

    known: LocatedRowGroup
    num_rows: int
    chunks: tuple[ScannedChunk | None, ...]

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
class Elsewhere:
    """Where the same file can be read again.

    Attributes:
        source: Where.
        mending: What taking a page from there means.
        row_groups: The ordinals of those that are known to be the same there; None for all. Of others a page is taken
            only where a copy of its header, from elsewhere, has its CRC32.
    """

    source: DamagedObject
    mending: RepairSource
    row_groups: frozenset[int] | None = None

    def has(self, ordinal: int) -> bool:
        """Whether a row group is known to be the same there."""
        return self.row_groups is None or ordinal in self.row_groups


@dataclass(frozen=True, slots=True)
class Means:
    """Where whole bytes are looked for beyond those that lie in their place.

    Attributes:
        others: Where the same file can be read again.
        repair: Turns single bits back; None leaves them.
        search: Finds the next page behind a damaged header; None gives up there.
        keep_unplaced: Whether pages are kept whose place nothing proves.
    """

    others: tuple[Elsewhere, ...] = ()
    repair: Repair | None = None
    search: Search | None = None
    keep_unplaced: bool = False


class PageScanner:
    """Examines row groups of one file."""

    def __init__(self, source: DamagedObject, means: Means, contents: Contents | None = None) -> None:
        """Prepare to examine."""
        self.metadata = None if contents is None else contents.metadata
        self._columns = () if contents is None else contents.schema.columns
        self._data_end = source.info.size if contents is None else contents.footer.start
        self._source = source
        self._means = means

    async def row_group(self, known: LocatedRowGroup) -> ScannedRowGroup:
        """What is left of a row group; its bytes are let go again."""
        known, chunks = await self._counted(known)
        num_rows = _num_rows(known, chunks)
        contradicting = contradicting_rows(self._columns, chunks, num_rows)
        found: list[ScannedChunk | None] = []
        for chunk, left in zip(known.chunks, chunks, strict=True):
            if chunk is None or left is None:
                found.append(None)
                continue
            present = left.rows_present(num_rows)
            if chunk.read.leaf.ordinal in contradicting:
                present &= ~contradicting[chunk.read.leaf.ordinal]
            mask = None if present.all() else present
            pages = tuple(replace(fate, page=None) for fate in left.pages)
            if left.in_place and mask is None and _is_as_written(left):
                checksummed = bool(pages) and all(fate.checksummed for fate in pages)
                found.append(ScannedChunk(chunk, intact=pages, checksummed=checksummed))
            else:
                found.append(ScannedChunk(chunk, pages, mask, is_cut=left.is_cut))
        if all(left is not None and left.present is None for left in found):
            found = [left and replace(left, intact=()) for left in found]
        return ScannedRowGroup(known, num_rows, tuple(found))

    async def chunks(self, known: LocatedRowGroup) -> list[SalvagedChunk | None]:
        """What is left of each chunk of a row group, with its bytes and values."""
        return (await self._counted(known))[1]

    async def _counted(self, known: LocatedRowGroup) -> tuple[LocatedRowGroup, list[SalvagedChunk | None]]:
        """The same, and the row group with the rows that it has, as far as its pages bear them out."""
        copies = await self._copies(known)

        async def left_of(known: LocatedRowGroup) -> list[SalvagedChunk | None]:
            left = [
                None if chunk is None else await self._chunk(known, chunk, pages)
                for chunk, pages in zip(known.chunks, copies, strict=True)
            ]
            stated = [chunk for chunk in known.chunks if chunk is not None and chunk.pages is None]
            if not stated:
                return left
            # Where bytes are missing somewhere, what is broken may be where: pages before it are in others' places.
            broken = self._source.is_view and any(one is not None and not one.is_whole for one in left)
            broken |= any(chunk.read.range.end > self._data_end for chunk in stated)
            displaced = is_displaced(left, beyond=broken or await goes_beyond(left, self._beside))
            return without_displaced(left) if displaced else left

        left = await left_of(known)
        if not is_doubted(known, left):
            return known, left
        return borne_out(known, left, await left_of(replace(known, num_rows=None)))

    async def _beside(self, _: ChunkRead, place: ByteRange) -> memoryview:
        return await self._source.read(ByteRange(place.start, min(place.end, self._source.info.size)))

    async def _chunk(self, known: LocatedRowGroup, chunk: LocatedChunk, copies: PageHints | None) -> SalvagedChunk:
        readings = [ChunkBytes(await _padded(self._source, chunk.read.range))]
        codec = chunk.read.metadata.codec
        vouched = copies is not None and copies.tell_apart(codec) and chunk.pages is None
        numbers = [i for i, other in enumerate(self._means.others) if vouched or other.has(known.ordinal)]
        others = [self._means.others[i] for i in numbers]
        left = await self._survivors(known, chunk, readings, copies, last=not others)
        if left.in_place or not others:
            return left
        for other in others:
            readings.append(ChunkBytes(await _padded(other.source, chunk.read.range), other.mending))
        left = await self._survivors(known, chunk, readings, copies, last=True)
        for position, reading in enumerate(readings[1:], start=1):
            if left.is_whole:
                break
            # Without checksums a page that was taken from the first copy may not decode: another may have it all.
            alone = await self._survivors(known, chunk, [reading], copies, last=True)
            if alone.num_rows > left.num_rows:
                pages = tuple(replace(fate, reading=position) for fate in alone.pages)
                left = replace(alone, pages=pages)
        # Positions are those among all that can be read, whether they were asked for this chunk or not.
        places = [0, *(i + 1 for i in numbers)]
        return replace(left, pages=tuple(replace(fate, reading=places[fate.reading]) for fate in left.pages))

    async def _agrees(self, chunk: LocatedChunk) -> Agrees | None:
        """Whether rows agree with what the footer and indexes state of them, where these can be believed."""
        if self.metadata is None:
            return None
        places = (chunk.column_index, chunk.offset_index)
        columns, offsets = [None if place is None else await _padded(self._source, place) for place in places]
        return stated_of(self.metadata, chunk.read, columns, offsets).agrees

    async def _survivors(
        self,
        known: LocatedRowGroup,
        chunk: LocatedChunk,
        readings: Sequence[ChunkBytes],
        copies: PageHints | None,
        *,
        last: bool,
    ) -> SalvagedChunk:
        agrees = await self._agrees(chunk)
        return await asyncio.to_thread(
            survivors,
            chunk.read,
            readings,
            chunk.pages or copies,
            num_rows=known.num_rows,
            search=self._means.search,
            repair=self._means.repair if last else None,
            agrees=agrees,
            keep_unplaced=self._means.keep_unplaced,
        )

    # -- what is known of pages ------------------------------------------------------------------

    async def _copies(self, known: LocatedRowGroup) -> list[PageHints | None]:
        """For each chunk what is known of its pages: by the row group's record, else by its OffsetIndex."""
        sources = [self._source, *(other.source for other in self._means.others)]
        for source in sources:
            record = await _record(source, known)
            if record is not None and len(record.chunks) == len(known.chunks):
                return [None if chunk is None else pages_by_record(record, chunk.read) for chunk in known.chunks]
        here = [other.source for other in self._means.others if other.has(known.ordinal)]
        return [None if chunk is None else await self._indexed(chunk, [self._source, *here]) for chunk in known.chunks]

    @staticmethod
    async def _indexed(chunk: LocatedChunk, sources: Sequence[DamagedObject]) -> PageHints | None:
        place = chunk.offset_index
        if place is None or chunk.pages is not None:
            return None
        for source in sources:
            known = pages_by_index(await _padded(source, place), chunk.read)
            if known is not None:
                return known
        return None


async def _padded(source: DamagedObject, wanted: ByteRange) -> memoryview:
    """The bytes of a range, zeros for those that the source does not have."""
    end = max(min(wanted.end, source.info.size), wanted.start)
    data = await source.read(ByteRange(wanted.start, end))
    missing = wanted.size - len(data)
    return memoryview(bytes(data) + bytes(missing)) if missing else data


async def _record(source: DamagedObject, known: LocatedRowGroup) -> RowGroupRecord | None:
    """The record of a row group; None where it has none, or it is damaged."""
    first = known.chunks[0] if known.chunks else None
    place = None if first is None else record_place(first.read.metadata)
    if place is None or place.end > source.info.size:
        return None
    return record_of_row_group(await source.read(place), place)


def _num_rows(known: LocatedRowGroup, chunks: Iterable[SalvagedChunk | None]) -> int:
    """Rows of a row group; of one that is not complete, those of its longest column."""
    if known.num_rows is not None:
        return known.num_rows
    ends = [
        run.first_row + run.data.num_rows
        for chunk in chunks
        if chunk is not None
        for run in chunk.runs
        if run.first_row is not None
    ]
    return max(ends, default=0)


def _is_as_written(left: SalvagedChunk) -> bool:
    """Whether the chunk's own checksum holds, where it has one: it covers page headers too."""
    sums = ChunkSums.of(left.chunk.metadata)
    return sums is None or sums.of_chunk is None or sums.computed(left.bytes()) == sums.of_chunk
