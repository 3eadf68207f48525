"""Row groups of which only chunks are known, described as a footer would describe them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.page_hints import PageHint, PageHints
from resilient_pq.format.file_metadata import ColumnMetaData, Encoding, PageHeader, PageType
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.quirks import Quirks
from resilient_pq.format.resilience_records import RecordHeader, RecordKind
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.evidence.located_row_group import LocatedChunk, LocatedRowGroup, Method

DATA_PAGES = (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


@dataclass(frozen=True, slots=True)
class ChainedPage:
    """A page whose header was read; `end` is just after its body."""

    offset: int
    body: int
    end: int
    header: PageHeader

    @property
    def num_values(self) -> int:
        """Entries of a data page; 0 of a dictionary page."""
        detail = self.header.data_page_header or self.header.data_page_header_v2
        return 0 if detail is None or self.header.type not in DATA_PAGES else detail.num_values

    def num_rows(self, leaf: Leaf) -> int | None:
        """Rows that begin in it, 0 of a dictionary page; None where the header does not state them."""
        if self.header.type not in DATA_PAGES:
            return 0
        v2 = self.header.data_page_header_v2
        if v2 is not None and self.header.type == PageType.DATA_PAGE_V2:
            return v2.num_rows
        return None if leaf.max_repetition_level else self.num_values


@dataclass(slots=True)
class RecordedChunk:
    """A chunk behind its record, whose header is made up where the record is destroyed."""

    record: RecordHeader  # The header
    column: int  # Position of its leaf
    codec: int | None  # How its pages are compressed; None where no record says
    start: int  # Offset of its first page
    end: int  # Offset after its last byte, or after the last that is certainly part of it
    pages: list[ChainedPage]  # Those found, each following directly on the one before it
    complete: bool  # Whether these are all of them
    # Whether bytes follow that belong neither to a page nor to a record, so that nothing proves the pages
    unproven: bool = False


def describe_row_group(
    ordinal: int, chunks: list[RecordedChunk], headers: Sequence[RecordHeader], schema: Schema, quirks: Quirks
) -> LocatedRowGroup:
    """A row group with the chunks that were found of it."""
    first = chunks[0].record
    record = next((h for h in headers if h.kind == RecordKind.ROW_GROUP and h.num_row_groups == ordinal + 1), None)
    num_rows = _row_group_rows(ordinal, chunks, headers, schema)
    chunks = max(_linked_runs(chunks, schema, num_rows), key=len)
    codecs = Counter(chunk.codec for chunk in chunks if chunk.codec is not None)
    codec = codecs.most_common(1)[0][0] if codecs else 0
    known: list[LocatedChunk | None] = [None] * len(schema.leaves)
    for chunk in chunks:
        if chunk.end > chunk.start:
            leaf = schema.leaves[chunk.column]
            used = codec if chunk.codec is None else chunk.codec
            known[chunk.column] = _describe_chunk(chunk, leaf, ordinal, used, num_rows, quirks)
    return LocatedRowGroup(
        ordinal=ordinal,
        num_rows=num_rows,
        rows_before=first.num_rows,
        chunks=tuple(known),
        method=Method.CHUNK_RECORDS,
        start=chunks[0].record.offset,
        end=max(chunk.end for chunk in chunks) if record is None else record.end,
    )


def _linked_runs(
    chunks: Sequence[RecordedChunk], schema: Schema, num_rows: int | None
) -> Iterator[list[RecordedChunk]]:
    """Chunks of a row group whose records do not contradict each other: others are of another version of the file."""
    run = [chunks[0]]
    for one, other in pairwise(chunks):
        before, missing = other.record.previous, other.record.number - one.record.number - 1
        end = one.pages[-1].end if one.pages else one.start
        has_all = num_rows is not None and _count_rows(one.pages, schema.leaves[one.column]) == num_rows
        linked = before >= end if missing else before == one.record.offset
        if not linked or (missing == 1 and has_all and before != end):
            yield run
            run = []
        run.append(other)
    yield run


def _row_group_rows(
    ordinal: int, chunks: Sequence[RecordedChunk], headers: Sequence[RecordHeader], schema: Schema
) -> int | None:
    """Rows of a row group by later records, or by those of its chunks that are complete."""
    before = chunks[0].record.num_rows
    for header in headers:
        if header.num_row_groups == ordinal + 1 and header.num_rows >= before:
            return header.num_rows - before
    counts = {_count_rows(chunk.pages, schema.leaves[chunk.column]) for chunk in chunks if chunk.complete}
    counts.discard(None)
    return counts.pop() if len(counts) == 1 else None


def _count_rows(pages: Sequence[ChainedPage], leaf: Leaf) -> int | None:
    total = 0
    for page in pages:
        rows = page.num_rows(leaf)
        if rows is None:
            return None
        total += rows
    return total


def _describe_chunk(
    chunk: RecordedChunk, leaf: Leaf, ordinal: int, codec: int, num_rows: int | None, quirks: Quirks
) -> LocatedChunk:
    found = _count_rows(chunk.pages, leaf)
    complete = chunk.complete or (num_rows is not None and num_rows > 0 and found == num_rows)
    end = chunk.pages[-1].end if complete else chunk.end
    counted = num_rows if num_rows is not None else found or 0
    metadata, place = _metadata(chunk, leaf, codec, end), ByteRange(chunk.start, end)
    read = ChunkRead(ordinal, leaf, metadata, place, counted, quirks=quirks)
    hints = PageHints(tuple(_page_hints(chunk.pages, leaf)), complete, unproven=chunk.unproven, counted=True)
    return LocatedChunk(read, hints)


def _page_hints(pages: Sequence[ChainedPage], leaf: Leaf) -> list[PageHint]:
    known: list[PageHint] = []
    row: int | None = 0
    for page in pages:
        is_data = page.header.type in DATA_PAGES
        rows = page.num_rows(leaf)
        # Pages of a nested v1 column need not begin with a row: not even the first is said to.
        first_row = row if is_data and rows is not None else None
        known.append(PageHint(page.offset, page.end - page.offset, first_row=first_row))
        row = None if row is None or rows is None else row + rows
    return known


def _metadata(chunk: RecordedChunk, leaf: Leaf, codec: int, end: int) -> ColumnMetaData:
    """The metadata that a footer would have, without what only the writer knew."""
    data = [page for page in chunk.pages if page.header.type in DATA_PAGES]
    dictionary = [page for page in chunk.pages if page.header.type == PageType.DICTIONARY_PAGE]
    return ColumnMetaData(
        type=int(leaf.node.physical_type),
        encodings=sorted(_encodings(chunk.pages, leaf)),
        path_in_schema=list(leaf.path),
        codec=codec,
        num_values=sum(page.num_values for page in data),
        total_uncompressed_size=sum(
            page.body - page.offset + page.header.uncompressed_page_size for page in chunk.pages
        ),
        total_compressed_size=end - chunk.start,
        data_page_offset=data[0].offset if data else end,
        dictionary_page_offset=dictionary[0].offset if dictionary else None,
    )


def _encodings(pages: Sequence[ChainedPage], leaf: Leaf) -> set[int]:
    used: set[int] = set()
    for page in pages:
        v1, v2 = page.header.data_page_header, page.header.data_page_header_v2
        dictionary = page.header.dictionary_page_header
        if page.header.type == PageType.DICTIONARY_PAGE and dictionary is not None:
            used.add(dictionary.encoding)
        elif page.header.type == PageType.DATA_PAGE and v1 is not None:
            used.add(v1.encoding)
            used |= {v1.definition_level_encoding} if leaf.max_definition_level else set()
            used |= {v1.repetition_level_encoding} if leaf.max_repetition_level else set()
        elif v2 is not None:
            used.add(v2.encoding)
            used |= {int(Encoding.RLE)} if leaf.max_definition_level or leaf.max_repetition_level else set()
    return used
