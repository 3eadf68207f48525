"""Row groups that were laid out, described as in a footer. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.page_hints import PageHint, PageHints
from resilient_pq.format.file_metadata import ColumnMetaData, CompressionCodec, Encoding, PageType
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.carve.page_layout import PlacedGroup, PlacedSpan
from resilient_pq.recovery.carve.page_probe import ProbedPage, encoding_of
from resilient_pq.recovery.evidence.located_row_group import LocatedChunk, LocatedRowGroup, Method


@dataclass(frozen=True, slots=True)
class RowGroupBuilder:
    """The pages of a file, its columns, and the codecs of those columns that are known."""

    schema: Schema
    pages: Sequence[ProbedPage]
    codecs: dict[int, CompressionCodec]

    def row_groups(self, groups: Sequence[PlacedGroup], start: int) -> tuple[LocatedRowGroup, ...]:
        """All row groups; those without pages begin at `start` or behind the one before."""
        known: list[LocatedRowGroup] = []
        before: int | None = 0
        for ordinal, group in enumerate(groups):
            # Where the next row group does not follow, its rows may be of this one.
            has_next = ordinal < len(groups) - 1 and groups[ordinal + 1].follows
            ended = has_next or (bool(group.spans[-1]) and group.spans[-1][-1].ends_chunk)
            num_rows = group.num_rows if ended else None
            chunks = tuple(
                self._chunk(ordinal, leaf, group.spans[leaf.ordinal], group.num_rows, adrift=group.adrift)
                for leaf in self.schema.leaves
            )
            places = [chunk.read.range for chunk in chunks if chunk is not None]
            start = min((place.start for place in places), default=start)
            end = max((place.end for place in places), default=start)
            told, follows = group.first_row is not None, group.follows
            before = group.first_row if told or group.adrift or not follows else before
            located = LocatedRowGroup(ordinal, num_rows, before, chunks, Method.CARVED, start, end, numbered=told)
            known.append(replace(located, follows=follows, may_be_rest=_may_be_rest(groups, ordinal)))
            before = None if before is None or num_rows is None else before + num_rows
            start = end
        return tuple(known)

    def _chunk(
        self, row_group: int, leaf: Leaf, spans: Sequence[PlacedSpan], num_rows: int | None, *, adrift: bool
    ) -> LocatedChunk | None:
        if not spans:
            return None
        probed = [page for placed in spans for page in self.pages[placed.span.start : placed.span.end]]
        whole = len(spans) == 1 and spans[0].span.whole
        first_rows = [row for placed in spans for row in self._first_rows(leaf, placed, num_rows)]
        pages = tuple(
            PageHint(page.page.offset, page.page.end - page.page.offset, first_row=row)
            for page, row in zip(probed, first_rows, strict=True)
        )
        place = ByteRange(pages[0].offset, pages[-1].end)
        rows = num_rows if num_rows is not None else sum(placed.span.rows for placed in spans)
        metadata = self._metadata(leaf, probed, place)
        known = PageHints(
            pages, complete=whole, searched=True,
            begins=adrift or spans[0].begins_chunk, ends=adrift or spans[-1].ends_chunk,
        )  # fmt: skip
        return LocatedChunk(ChunkRead(row_group, leaf, metadata, place, rows), known)

    def _first_rows(self, leaf: Leaf, placed: PlacedSpan, num_rows: int | None) -> Iterable[int | None]:
        """The first row of each page; None for dictionaries, and where it is unknown."""
        row: int | None = None
        if placed.begins_chunk:
            row = 0
        elif placed.ends_chunk and num_rows is not None:
            row = num_rows - placed.span.rows
        kind = placed.kind
        for page in self.pages[placed.span.start : placed.span.end]:
            yield None if page.is_dictionary or page.mid_row else row
            row = None if row is None else row + page.rows[kind]

    def _metadata(self, leaf: Leaf, pages: Sequence[ProbedPage], place: ByteRange) -> ColumnMetaData:
        headers = [page.page.header for page in pages]
        encodings = {encoding for header in headers if (encoding := encoding_of(header)) is not None}
        encodings |= {h.dictionary_page_header.encoding for h in headers if h.dictionary_page_header is not None}
        data = [page.page.offset for page in pages if not page.is_dictionary]
        dictionary = next((page.page.offset for page in pages if page.is_dictionary), None)
        return ColumnMetaData(
            type=int(leaf.node.physical_type),
            encodings=sorted(encodings | {int(Encoding.RLE)}),
            path_in_schema=list(leaf.path),
            codec=int(self._codec(leaf, pages)),
            num_values=sum(page.num_values for page in pages),
            total_uncompressed_size=sum(
                page.page.header_size + page.page.header.uncompressed_page_size for page in pages
            ),
            total_compressed_size=place.size,
            data_page_offset=data[0] if data else place.end,
            dictionary_page_offset=dictionary,
        )

    def _codec(self, leaf: Leaf, pages: Sequence[ProbedPage]) -> CompressionCodec:
        """The codec that most of the pages show; else that of the column, else that of the file."""
        own = common_codec(pages)
        if own is not None:
            return own
        usual = Counter(self.codecs.values()).most_common(1)
        return self.codecs.get(leaf.ordinal, usual[0][0] if usual else _guess_codec(pages))


def _may_be_rest(groups: Sequence[PlacedGroup], ordinal: int) -> bool:
    """Whether pages behind a hole of unknown length may be of the row group before: no column has too many then."""
    group, before = groups[ordinal], groups[max(ordinal - 1, 0)]
    if group.follows or group.first_row is not None:
        return False
    last = max((leaf for leaf, spans in enumerate(before.spans) if spans), default=-1)
    first = min((leaf for leaf, spans in enumerate(group.spans) if spans), default=len(group.spans))
    if first == last:
        return not before.spans[last][-1].ends_chunk and not group.spans[first][0].begins_chunk
    return 0 <= last < first < len(group.spans)


def common_codec(pages: Iterable[ProbedPage]) -> CompressionCodec | None:
    """The codec of most pages; None where no page shows its codec."""
    votes = Counter(page.codec for page in pages if page.codec is not None)
    compressed = Counter({codec: n for codec, n in votes.items() if codec is not CompressionCodec.UNCOMPRESSED})
    # Where some pages are as large as before, it may be that they could not be made smaller.
    return (compressed or votes).most_common(1)[0][0] if votes else None


def _guess_codec(pages: Sequence[ProbedPage]) -> CompressionCodec:
    same = all(p.page.header.uncompressed_page_size == p.page.header.compressed_page_size for p in pages)
    return CompressionCodec.UNCOMPRESSED if same else CompressionCodec.SNAPPY


def data_version(pages: Iterable[ProbedPage]) -> int:
    """The format version for a footer: 2 where there are pages of version 2."""
    return 2 if any(page.page.header.type == PageType.DATA_PAGE_V2 for page in pages) else 1
