"""Row groups that are kept, as column chunks to be laid out again. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial

from resilient_pq.checksum import crc32
from resilient_pq.damage.chunk_salvage import SalvagedChunk
from resilient_pq.damage.on_damage import rows_kept
from resilient_pq.errors import FormatError, TransientError
from resilient_pq.format import compact_protocol
from resilient_pq.format.compression import codecs
from resilient_pq.format.file_metadata import ColumnIndex, ColumnMetaData, CompressionCodec, OffsetIndex, PageType
from resilient_pq.format.indexes.split_block_filter import FilterOptions
from resilient_pq.format.pages.chunk_encoder import EncodedChunk, encode_chunk
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.decoder import verify_chunk
from resilient_pq.reader.filter import index_ranges
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.rewrite.copied_chunk import Derived, copied_chunk
from resilient_pq.recovery.rewrite.retained_rows import RowGroupOutcome
from resilient_pq.recovery.verification.checksum_checks import PagesSeen
from resilient_pq.recovery.verification.page_scan import PageScanner
from resilient_pq.writer.dictionary_use import has_dictionary

_copied_chunk = partial(copied_chunk, keep_empty_pages=False)


class RowGroupRewriter:
    """Takes row groups over from a damaged file."""

    def __init__(
        self,
        source: DamagedObject,
        contents: Contents,
        scanner: PageScanner,
        positions: dict[int, int],
        seen: Mapping[tuple[int, int], PagesSeen],
    ) -> None:
        """Prepare to take over; `seen` are the pages of sound chunks, as of `Verification`."""
        self._source = source
        self._contents = contents
        self._scanner = scanner
        self._positions = positions
        self._seen = seen

    async def chunks(
        self, outcome: RowGroupOutcome, leaves: Sequence[Leaf], salvaged: Sequence[SalvagedChunk | None] | None = None
    ) -> AsyncGenerator[tuple[EncodedChunk, int], None]:
        """The chunks of a row group that is kept, each with how many bytes of the input it has as they were."""
        if outcome.scanned is None:
            for leaf in leaves:
                chunk = outcome.located.chunks[leaf.ordinal]
                assert chunk is not None  # or it would not be whole
                yield await self._copied(outcome, chunk.read), chunk.read.range.size
            return
        salvaged = await self._scanner.salvage(outcome.located) if salvaged is None else salvaged
        for leaf in leaves:
            yield await self._rewritten(outcome, leaf, salvaged[leaf.ordinal])

    async def _rewritten(
        self, outcome: RowGroupOutcome, leaf: Leaf, salvaged: SalvagedChunk | None
    ) -> tuple[EncodedChunk, int]:
        choice = outcome.choice
        unchanged = choice is None or (choice.keep.all() and leaf.ordinal not in choice.nulled)
        if salvaged is not None and salvaged.is_whole and unchanged:
            # Page by page it is as it was written; indexes and filters go along as far as they are whole.
            data = salvaged.bytes()
            derived = await self._derived(outcome, salvaged.chunk)
            return await asyncio.to_thread(_copied_chunk, salvaged.chunk, data, derived), len(data)
        assert choice is not None
        options = _options_like(leaf, salvaged)
        runs = () if salvaged is None else salvaged.runs

        def encode() -> EncodedChunk:
            return encode_chunk(leaf, rows_kept(leaf, runs, choice), options)

        return await asyncio.to_thread(encode), 0

    async def _copied(self, outcome: RowGroupOutcome, chunk: ChunkRead) -> EncodedChunk:
        derived = await self._derived(outcome, chunk)
        data = await self.read_again(outcome, chunk)
        return await asyncio.to_thread(_copied_chunk, chunk, data, derived)

    async def read_again(self, outcome: RowGroupOutcome, chunk: ChunkRead) -> memoryview:
        """The bytes of a chunk that was examined before, held against its checksums: it gets new ones from them."""
        position = self._positions.get(outcome.located.ordinal, -1)
        crc = self._seen.get((position, chunk.leaf.ordinal), PagesSeen()).crc
        for again in (False, True):
            data = await self._source.read(chunk.range, again=again)
            try:
                await asyncio.to_thread(verify_chunk, chunk, data)
            except FormatError as error:
                if again:
                    raise _changed(chunk) from error
            else:
                if crc is None or await asyncio.to_thread(crc32, data) == crc:
                    return data
        raise _changed(chunk)

    async def _derived(self, outcome: RowGroupOutcome, chunk: ChunkRead) -> Derived:
        """The chunk's indexes and bloom filter, as far as their checksums hold."""
        position = self._positions.get(outcome.located.ordinal)
        if position is None:
            return Derived()
        of = index_ranges.IndexedChunk(self._contents, position, chunk.leaf)
        columns = await self._checksummed(of, index_ranges.column_index_place)
        offsets = await self._checksummed(of, index_ranges.offset_index_place)
        bloom = await self._checksummed(of, index_ranges.bloom_filter_place)
        return Derived(
            None if columns is None else compact_protocol.decode(ColumnIndex, columns)[0],
            None if offsets is None else compact_protocol.decode(OffsetIndex, offsets)[0],
            None if bloom is None else bytes(bloom),
        )

    async def _checksummed(
        self,
        chunk: index_ranges.IndexedChunk,
        find: Callable[[index_ranges.IndexedChunk], index_ranges.IndexPlace | None],
    ) -> memoryview | None:
        try:
            place = find(chunk)
        except FormatError:
            return None  # it has been reported as a finding, and readers do without
        if place is None or place.crc is None or not place.complete:
            return None
        for again in (False, True):  # it may have been damaged on the way
            data = await self._source.read(place.range, again=again)
            if crc32(data) == place.crc:
                return data
        return None


def _changed(chunk: ChunkRead) -> TransientError:
    return TransientError("a column chunk was whole before, and is not now", where=chunk.where)


def _options_like(leaf: Leaf, salvaged: SalvagedChunk | None) -> ChunkOptions:
    if salvaged is None:
        return ChunkOptions()
    pages = [fate.page for fate in salvaged.pages if fate.page is not None]
    v2 = any(page.header.type == PageType.DATA_PAGE_V2 for page in pages)
    return options_like(leaf, salvaged.chunk.metadata, v2=v2)


def options_like(leaf: Leaf, metadata: ColumnMetaData, *, v2: bool) -> ChunkOptions:
    """How a chunk is encoded again: as it was, where that can be written."""
    codec = CompressionCodec(metadata.codec) if codecs.is_written(metadata.codec) else CompressionCodec.ZSTD
    pairs = ((pair.key, pair.value) for pair in metadata.key_value_metadata or ())
    return ChunkOptions(
        codec=codec,
        # Other row groups of the column are copied as they are.
        dictionary=has_dictionary(metadata) if leaf.is_flat_text else None,
        level=codecs.check_level(codec, None),
        version=2 if v2 else 1,
        bloom_filter=None if metadata.bloom_filter_offset is None else FilterOptions(),
        key_value=tuple((key, value) for key, value in pairs if value is not None and not key.startswith("rpq.")),
    )
