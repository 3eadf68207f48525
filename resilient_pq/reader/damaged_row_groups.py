"""Row groups with damaged chunks, read as far as their pages are whole. An async shell around `damage`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.chunk_salvage import ChunkBytes, RowRun, SalvagedChunk
from resilient_pq.damage.displaced_pages import goes_beyond, is_adrift, is_displaced, without_displaced
from resilient_pq.damage.exact_page import check_exact
from resilient_pq.damage.lost_region import LostRegion, RemainingRowGroup, lost_regions
from resilient_pq.damage.on_damage import OnDamage, choose_rows, rows_kept
from resilient_pq.damage.page_hints import (
    PageHints,
    pages_by_index,
    pages_by_record,
    record_of_row_group,
    record_place,
)
from resilient_pq.damage.salvage_pipeline import salvage_chunk
from resilient_pq.damage.stated_values import stated_of
from resilient_pq.errors import FormatError, UnsupportedError, Where, located
from resilient_pq.format.compression import codecs
from resilient_pq.format.file_metadata import Encoding, FileMetaData
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.open_chunk import concatenate
from resilient_pq.format.pages.page import pages_of
from resilient_pq.format.pages.row_selection import leaf_column, leaf_data, null_rows
from resilient_pq.format.physical_values import LeafColumn
from resilient_pq.format.schema_tree import Selection
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.data_file import data_file
from resilient_pq.reader.decoder import DamagedChunk, DecodedRowGroup
from resilient_pq.reader.filter import index_ranges
from resilient_pq.reader.read_options import ReadSettings
from resilient_pq.reader.read_plan import RowGroupRead

#: Damaged row groups with more rows are refused: each row takes memory.
_MAX_ROWS: Final = 1 << 28


class DamagedRowGroups:
    """Salvages damaged row groups of one file."""

    def __init__(self, objects: ChunkObjects, how: ReadSettings) -> None:
        self._objects = objects
        self._on_damage = how.on_damage
        self._verify = how.verify

    async def salvage(
        self,
        selected: Sequence[Selection],
        group: RowGroupRead,
        columns: Mapping[int, LeafColumn],
        damaged: Sequence[DamagedChunk],
    ) -> DecodedRowGroup:
        """The rows of a row group with damaged chunks; costs requests for its record, or for OffsetIndexes."""
        for chunk in damaged:
            self._check_supported(chunk.chunk)
        if group.num_rows > _MAX_ROWS:
            raise damaged[0].error
        salvaged = await self._salvage_chunks(group, damaged)
        if is_displaced(salvaged, beyond=await goes_beyond(salvaged, self._beside)):
            # A chunk that decodes may be another one of the same size: it is kept only where a checksum covers it.
            columns = {leaf: rows for leaf, rows in columns.items() if leaf in _with_sums(group)}
            salvaged = [each for each in without_displaced(salvaged) if each is not None]
        try:
            found = await asyncio.to_thread(_keep_rows, selected, group, columns, salvaged, self._on_damage)
        except MemoryError as error:
            raise FormatError(
                f"there is not enough memory for {group.num_rows:,} rows",
                where=Where(row_group=group.ordinal),
            ) from error
        return replace(found, lost=self._located(found.lost, group, salvaged))

    def _check_supported(self, chunk: ChunkRead) -> None:
        """Refuse a chunk whose codec or encodings this version does not know: not even a whole one could be read."""
        with located(chunk.where):
            codecs.check_readable(chunk.metadata.codec)
            for encoding in () if _is_counted(self._objects.contents, chunk) else chunk.metadata.encodings:
                if encoding not in list(Encoding):
                    raise UnsupportedError(f"the encoding {encoding} is not supported")

    async def _salvage_chunks(self, group: RowGroupRead, damaged: Sequence[DamagedChunk]) -> list[SalvagedChunk]:
        hints = await self._page_hints(group, [chunk.chunk for chunk in damaged])
        return [
            await asyncio.to_thread(
                salvage_chunk,
                chunk.chunk,
                [ChunkBytes(chunk.data)],
                pages,
                num_rows=group.num_rows,
                agrees=stated_of(self._objects.contents.metadata, chunk.chunk).agrees,
                verify=self._verify,
            )
            for chunk, pages in zip(damaged, hints, strict=True)
        ]

    async def _beside(self, chunk: ChunkRead, place: ByteRange) -> memoryview | None:
        end = min(place.end, self._objects.contents.data_end_in(chunk.file))
        return await self._bytes(chunk.file, ByteRange(place.start, end)) if place.start < end else None

    def _located(
        self, lost: Sequence[LostRegion], group: RowGroupRead, salvaged: Sequence[SalvagedChunk]
    ) -> tuple[LostRegion, ...]:
        """The regions with the name of the file that each lies in, and without counts that nothing confirms."""
        files = {chunk.leaf.column_path: chunk.file for chunk in group.chunks}
        unsure = self._objects.contents.miscounted is not None
        unsure = unsure or any(sum(fate.num_rows or 0 for fate in each.pages) > group.num_rows for each in salvaged)
        located_regions = []
        for region in lost:
            file = files.get(region.where.column or "", group.chunks[0].file)
            where = region.where.merged_with(Where(key=self._objects.url_of(file)))
            located_regions.append(replace(region, where=where, num_rows=None if unsure else region.num_rows))
        return tuple(located_regions)

    async def _page_hints(self, group: RowGroupRead, chunks: Sequence[ChunkRead]) -> list[PageHints | None]:
        """For each chunk the hints of the row group's record, or else of what found it, or of its OffsetIndex."""
        columns = self._objects.contents.metadata.row_groups[group.ordinal].columns
        first = columns[0].meta_data
        place = None if first is None else record_place(first)
        if place is not None:
            data = await self._bytes(data_file(columns[0].file_path or None), place)
            record = None if data is None else record_of_row_group(data, place)
            if record is not None and len(record.chunks) == len(columns):
                return [pages_by_record(record, chunk) for chunk in chunks]
        found = self._objects.contents.pages
        return [found.get((group.ordinal, chunk.leaf.ordinal)) or await self._indexed(chunk) for chunk in chunks]

    async def _indexed(self, chunk: ChunkRead) -> PageHints | None:
        try:
            place = index_ranges.offset_index_place(
                index_ranges.IndexedChunk(self._objects.contents, chunk.row_group, chunk.leaf)
            )
        except FormatError:
            return None
        data = None if place is None else await self._bytes(place.file, place.range)
        return None if data is None else pages_by_index(data, chunk)

    async def _bytes(self, file: str | None, place: ByteRange) -> memoryview | None:
        """Bytes of an object; None where they are said to lie outside of it."""
        if place.end > self._objects.contents.data_end_in(file):
            return None
        try:
            return await self._objects.read_range(file, place)
        except FormatError:
            return None


def check_headers(contents: Contents, chunk: ChunkRead, parts: Sequence[memoryview]) -> None:
    """Refuse a chunk with a page whose header contradicts it, where only these headers tell what the chunk has."""
    if chunk.pages is not None or not _is_counted(contents, chunk):
        return
    codec, encodings = chunk.metadata.codec, chunk.metadata.encodings
    for page in pages_of(memoryview(b"".join(parts)), chunk.range.start, chunk.num_values_to_read):
        with located(replace(chunk.where, page=page.ordinal, offset=page.offset)):
            try:
                check_exact(page, chunk.leaf, codec, encodings, chunk.quirks)
            except UnsupportedError as error:
                raise FormatError(error.message) from error


def check_statistics(metadata: FileMetaData, column: LeafColumn, chunk: ChunkRead) -> None:
    """Refuse a whole chunk without a checksum of its own that decodes to other values than its statistics tell of."""
    if chunk.pages is None and is_adrift(chunk) and not stated_of(metadata, chunk).agrees(leaf_data(column), None):
        message = "its values are not those of which the statistics of the chunk tell"
        raise FormatError(message, where=chunk.where)


def _is_counted(contents: Contents, chunk: ChunkRead) -> bool:
    """Whether only the headers of its pages tell what a chunk has."""
    hints = contents.pages.get((chunk.row_group, chunk.leaf.ordinal))
    return hints is not None and hints.counted


def _with_sums(group: RowGroupRead) -> set[int]:
    """The ordinals of the leaves whose chunks have checksums."""
    return {chunk.leaf.ordinal for chunk in group.chunks if not is_adrift(chunk)}


def _keep_rows(
    selected: Sequence[Selection],
    group: RowGroupRead,
    columns: Mapping[int, LeafColumn],
    damaged: Sequence[SalvagedChunk],
    on_damage: OnDamage,
) -> DecodedRowGroup:
    """Choose among the rows of a row group, and take those chosen of every leaf."""
    leaves = list(dict.fromkeys(chunk.leaf for chunk in group.chunks))
    runs = {left.chunk.leaf.ordinal: left.runs for left in damaged}
    masks = {leaf.ordinal: np.zeros(group.num_rows, np.bool_) for leaf in leaves if leaf.ordinal not in columns}
    masks |= {left.chunk.leaf.ordinal: left.rows_present(group.num_rows) for left in damaged}
    present = {ordinal: mask for ordinal, mask in masks.items() if not mask.all()}
    choice = choose_rows(selected, present, group.num_rows, on_damage, keep_empty=True)
    kept: dict[int, LeafColumn] = {}
    for leaf in leaves:
        whole = columns.get(leaf.ordinal)
        if whole is not None:
            if choice.num_rows == group.num_rows and leaf.ordinal not in choice.nulled:
                kept[leaf.ordinal] = whole
                continue
            runs[leaf.ordinal] = (RowRun(0, leaf_data(whole)),)
        pieces = rows_kept(leaf, runs.get(leaf.ordinal, ()), choice) or [null_rows(leaf, 0)]
        kept[leaf.ordinal] = leaf_column(leaf, concatenate(leaf, pieces))
    pages = {leaf.ordinal: () for leaf in leaves} | {left.chunk.leaf.ordinal: left.pages for left in damaged}
    place = ByteRange(min(chunk.range.start for chunk in group.chunks), max(chunk.range.end for chunk in group.chunks))
    lost = lost_regions(leaves, RemainingRowGroup(group.ordinal, place, pages, present), choice)
    in_order = tuple(sorted(lost, key=lambda region: region.start))
    return DecodedRowGroup(group, kept, choice.num_rows, in_order)
