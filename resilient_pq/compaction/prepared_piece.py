"""A row group of an output, made of the row groups of sources: copied, or decoded and encoded again. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.compaction.compaction_plan import Piece, SourceGroup
from resilient_pq.compaction.source_listing import Agreement, SourceFile
from resilient_pq.errors import FormatError, SchemaError, Where, located
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import ColumnIndex, PageType, StoredSortingColumn
from resilient_pq.format.indexes.split_block_filter import BloomFilter
from resilient_pq.format.pages.chunk_encoder import EncodedChunk, encode_chunk
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.open_chunk import concatenate
from resilient_pq.format.pages.row_selection import leaf_data, take_rows
from resilient_pq.format.physical_values import LeafData
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.format.sorting import SortingColumn, is_sorted, rows_in_order
from resilient_pq.io import ObjectInfo, ReadStore
from resilient_pq.io.shared_clients import new_connections
from resilient_pq.io.transfer.fetch import fetch
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.decoder import decode, verify_chunk
from resilient_pq.reader.filter import index_ranges
from resilient_pq.reader.read_plan import chunk_read
from resilient_pq.recovery.report import recovered_name
from resilient_pq.recovery.rewrite.row_group_rewrite import Derived, copied_chunk, options_like
from resilient_pq.shell_commands import in_shell
from resilient_pq.units import MiB
from resilient_pq.writer.column_options import sorting_columns

T = TypeVar("T")
#: Bytes of a row group whose chunks are all looked at in one thread: a hop to one takes as long as a few of them.
_ONE_HOP_BYTES = 4 * MiB


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk to be laid out; where its bytes lie in a source, if they are copied."""

    leaf: Leaf
    chunk: EncodedChunk
    origin: tuple[ReadStore, ObjectInfo, int] | None = None


@dataclass(frozen=True, slots=True)
class PreparedPiece:
    """A row group to be laid out."""

    piece: Piece
    chunks: Sequence[PreparedChunk]
    sorting_columns: Sequence[StoredSortingColumn]


class Preparation:
    """Makes row groups of outputs of those of sources; `decode_unsummed` decodes what no checksum covers, too."""

    def __init__(self, sources: Sequence[SourceFile], agreed: Agreement, *, decode_unsummed: bool) -> None:
        self.sources = sources
        self.agreed = agreed
        self._decode_unsummed = decode_unsummed

    async def prepare(self, piece: Piece) -> PreparedPiece:
        """The chunks of a row group."""
        leaves, order = self.agreed.schema.leaves, []
        with suppress(SchemaError):  # by a column that rows cannot be sorted by: nothing is said of their order then
            order = sorting_columns(self.agreed.schema, piece.order)
        if piece.is_copy:
            chunks = await self._copied(piece.groups[0])
        else:
            parts = [await self._decoded(group) for group in piece.groups]
            rows: Sequence[LeafData] = await _in_threads(
                partial(concatenate, leaf, [part[leaf.ordinal] for part in parts]) for leaf in leaves
            )
            rows = await asyncio.to_thread(_in_order, leaves, rows, order)
            options = [self._options(piece, leaf) for leaf in leaves]
            made = await _in_threads(
                partial(encode_chunk, leaf, [data], chosen)
                for leaf, data, chosen in zip(leaves, rows, options, strict=True)
            )
            chunks = [PreparedChunk(leaf, chunk) for leaf, chunk in zip(leaves, made, strict=True)]
        return PreparedPiece(piece, chunks, [column.to_thrift(leaf) for leaf, column in order])

    async def _copied(self, group: SourceGroup) -> list[PreparedChunk]:
        """The chunks of a row group as they are, each held against its checksums."""
        source = self.sources[group.file]
        indexes = [self._index_places(source, group, leaf) for leaf in source.leaves or ()]
        found = await self._read(source, [place.range for places in indexes for place in places if place is not None])
        by_place = dict(found)
        chunks: list[PreparedChunk] = []

        def copied(target: Leaf, chunk: ChunkRead, data: memoryview) -> EncodedChunk:
            if not verify_chunk(chunk, data) and self._decode_unsummed:
                decode(chunk, data, verify=False)
            derived = _derived(indexes[target.ordinal], by_place)
            return copied_chunk(replace(chunk, leaf=target), data, derived)

        for target, chunk, made in await self._of_chunks(group, copied):
            chunks.append(PreparedChunk(target, made, (source.file.place[0], source.file.info, chunk.range.start)))
        return chunks

    async def _decoded(self, group: SourceGroup) -> list[LeafData]:
        """The rows of a row group, by the leaves of the output."""
        source = self.sources[group.file]
        if source.leaves is not None:
            found = await self._of_chunks(group, lambda _, chunk, data: leaf_data(decode(chunk, data, verify=True)))
            return [data for _, _, data in found]
        table = await source.file.read(row_groups=[group.ordinal])
        with located(Where(key=source.file.url, row_group=group.ordinal)):
            batches = await asyncio.to_thread(lambda: [batch.leaves for batch in self.agreed.ingest.batches(table)])
        return [concatenate(leaf, [batch[leaf.ordinal] for batch in batches]) for leaf in self.agreed.schema.leaves]

    async def _of_chunks(
        self, group: SourceGroup, make: Callable[[Leaf, ChunkRead, memoryview], T]
    ) -> list[tuple[Leaf, ChunkRead, T]]:
        """What is made of each chunk of a row group; one that is damaged is read again first."""
        source = self.sources[group.file]
        file = source.file
        chunks = [chunk_read(file.contents, group.ordinal, leaf) for leaf in source.leaves or ()]
        data = dict(await self._read(source, [chunk.range for chunk in chunks]))

        pairs = list(zip(self.agreed.schema.leaves, chunks, strict=True))

        def tried(target: Leaf, chunk: ChunkRead) -> T | FormatError:
            try:
                return make(target, chunk, data[chunk.range])
            except FormatError as error:
                return error

        calls = [partial(tried, *pair) for pair in pairs]
        if group.num_bytes <= _ONE_HOP_BYTES:
            results = await asyncio.to_thread(lambda: [call() for call in calls])
        else:
            results = await _in_threads(calls)
        found: list[tuple[Leaf, ChunkRead, T]] = []
        for (target, chunk), result in zip(pairs, results, strict=True):
            if isinstance(result, FormatError):
                async with new_connections():
                    data.update(await self._read(source, [chunk.range]))
                result = await asyncio.to_thread(tried, target, chunk)  # noqa: PLW2901 (what is meant)
            if isinstance(result, FormatError):
                result.where = result.where.merged_with(chunk.where).merged_with(Where(key=file.url))
                result.hint = f"recover it first: {in_shell('recover', file.url, recovered_name(file.url))}"
                raise result
            found.append((target, chunk, result))
        return found

    async def _read(self, source: SourceFile, ranges: Sequence[ByteRange]) -> list[tuple[ByteRange, memoryview]]:
        store, _ = source.file.place
        async with aclosing(fetch(store, source.file.info, ranges)) as reading:
            return [(ranges[number], data) async for number, data in reading]

    def _index_places(
        self, source: SourceFile, group: SourceGroup, leaf: Leaf
    ) -> tuple[index_ranges.IndexPlace | None, ...]:
        """Where the page indexes and the bloom filter of a chunk lie."""
        of = index_ranges.IndexedChunk(source.file.contents, group.ordinal, leaf)
        places: list[index_ranges.IndexPlace | None] = []
        for find in (index_ranges.column_index_place, index_ranges.offset_index_place, index_ranges.bloom_filter_place):
            try:
                place = find(of)
            except FormatError:
                place = None  # readers do without
            places.append(place if place is not None and place.complete else None)
        return tuple(places)

    def _options(self, piece: Piece, leaf: Leaf) -> ChunkOptions:
        """How a chunk is encoded: as the first one that it is made of."""
        for group in piece.groups:
            source = self.sources[group.file]
            if source.leaves is not None:
                own = source.leaves[leaf.ordinal]
                metadata = source.file.metadata.row_groups[group.ordinal].columns[own.ordinal].meta_data
                assert metadata is not None  # or it could not have been planned
                kinds = {stats.page_type for stats in metadata.encoding_stats or ()}
                return options_like(leaf, metadata, v2=PageType.DATA_PAGE_V2 in kinds)
        return ChunkOptions()


async def _in_threads(calls: Iterable[Callable[[], T]]) -> list[T]:
    return await asyncio.gather(*[asyncio.to_thread(call) for call in calls])


def _in_order(
    leaves: Sequence[Leaf], rows: Sequence[LeafData], order: Sequence[tuple[Leaf, SortingColumn]]
) -> Sequence[LeafData]:
    """The rows in the order that all that they are made of had."""
    columns = [(leaf, rows[leaf.ordinal], column) for leaf, column in order]
    if not columns or is_sorted(columns):
        return rows
    numbers = rows_in_order(columns)
    return [take_rows(leaf, data, numbers) for leaf, data in zip(leaves, rows, strict=True)]


def _derived(places: Sequence[index_ranges.IndexPlace | None], data: dict[ByteRange, memoryview]) -> Derived:
    """The indexes and the filter of a chunk, without those that are damaged: nothing is lost with them."""
    columns, offsets, bloom = places
    found = Derived()
    with suppress(FormatError):
        if offsets is not None:
            index_ranges.check_sum(offsets, data[offsets.range])
            found = replace(found, offset_index=index_ranges.decode_offsets(offsets, data[offsets.range]))
    with suppress(FormatError):
        if columns is not None and found.offset_index is not None:
            index_ranges.check_sum(columns, data[columns.range])
            index_ranges.decode_columns(columns, data[columns.range])
            found = replace(found, column_index=compact_protocol.decode(ColumnIndex, data[columns.range])[0])
    with suppress(FormatError):
        if bloom is not None:
            index_ranges.check_sum(bloom, data[bloom.range])
            BloomFilter.from_bytes(data[bloom.range])
            found = replace(found, bloom_filter=bytes(data[bloom.range]))
    return found
