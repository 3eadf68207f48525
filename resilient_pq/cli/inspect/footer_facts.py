"""The contents of a file as plain values, for text and for JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

import resilient_pq as rpq
from resilient_pq.cli.output.text_rows import plain
from resilient_pq.cli.output.verb_output import base_document
from resilient_pq.errors import SchemaError, Where, located
from resilient_pq.format.file_metadata import ColumnMetaData, CompressionCodec, Encoding, PageType
from resilient_pq.format.footer import CRC_KEY, FILE_ID_KEY, key_values
from resilient_pq.format.pages.page import Page, pages_of
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.parity.inline_parity import find_inline
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.reader.contents import Contents, chunk_range
from resilient_pq.reader.data_file import data_file
from resilient_pq.reader.filter.index_ranges import IndexedChunk, common_sorting_columns, statistics_of_chunk
from resilient_pq.reader.read_plan import chunk_read


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A leaf column over all row groups: its path with dots, its type as ``optional int32``, and so on."""

    name: str
    type: str
    codecs: list[str]
    encodings: list[str]
    num_bytes: int
    uncompressed: int
    nulls: int | None


@dataclass(frozen=True, slots=True)
class RowGroupFacts:
    """A row group: `offset` is that of its first chunk, `files` are the data files that a summary names."""

    ordinal: int
    rows: int
    offset: int
    num_bytes: int
    uncompressed: int
    files: list[str]


@dataclass(frozen=True, slots=True)
class ChunkFacts:
    """A column chunk; missing statistics are None, `min` and `max` are bounds as `rpq cat --json` prints them."""

    row_group: int
    column: str
    values: int
    nulls: int | None
    nans: int | None
    distinct: int | None
    min: Any
    max: Any
    min_exact: bool | None
    max_exact: bool | None
    num_bytes: int
    uncompressed: int
    byte_array_bytes: int | None
    column_index: bool
    offset_index: bool
    bloom_filter: bool
    metadata: list[str]


@dataclass(frozen=True, slots=True)
class PageFacts:
    """A page; `page` counts the dictionary page as well, `values` those of the dictionary."""

    row_group: int
    page: int
    kind: str
    encoding: str
    values: int
    offset: int
    num_bytes: int
    uncompressed: int
    crc32: bool


def columns_of(contents: Contents) -> list[ColumnFacts]:
    """Every leaf column."""
    return [_column(leaf, _chunks_of(contents, leaf)) for leaf in contents.schema.leaves]


def _chunks_of(contents: Contents, leaf: Leaf) -> list[ColumnMetaData]:
    chunks = [group.columns[leaf.ordinal].meta_data for group in contents.metadata.row_groups]
    return [chunk for chunk in chunks if chunk is not None]


def _column(leaf: Leaf, chunks: list[ColumnMetaData]) -> ColumnFacts:
    nulls = [chunk.statistics.null_count if chunk.statistics is not None else None for chunk in chunks]
    return ColumnFacts(
        leaf.column_path,
        type_of(leaf),
        _names(CompressionCodec, (chunk.codec for chunk in chunks)),
        _names(Encoding, (encoding for chunk in chunks for encoding in chunk.encodings)),
        sum(chunk.total_compressed_size for chunk in chunks),
        sum(chunk.total_uncompressed_size for chunk in chunks),
        None if any(count is None for count in nulls) else sum(count or 0 for count in nulls),
    )


def type_of(leaf: Leaf) -> str:
    """Type and annotation of a leaf; ``optional`` also where only something above it can be null."""
    node = leaf.node
    optional = "optional" if leaf.max_definition_level else "required"
    words = ["repeated" if leaf.max_repetition_level else optional]
    length = "" if node.type_length is None else f"({node.type_length})"
    words.append(node.physical_type.name.lower() + length)
    if node.logical is not None:
        words.append(f"({node.logical})")
    return " ".join(words)


def row_groups_of(contents: Contents) -> Iterator[RowGroupFacts]:
    """Every row group; a FormatError where a chunk lies outside of the file."""
    for ordinal, group in enumerate(contents.metadata.row_groups):
        chunks = [
            (chunk.meta_data, data_file(chunk.file_path)) for chunk in group.columns if chunk.meta_data is not None
        ]
        ranges = [chunk_range(chunk, contents.data_end_in(file)) for chunk, file in chunks]
        yield RowGroupFacts(
            ordinal,
            group.num_rows,
            min((start for start, _ in ranges), default=0),
            sum(end - start for start, end in ranges),
            sum(chunk.total_uncompressed_size for chunk, _ in chunks),
            list(dict.fromkeys(file for _, file in chunks if file is not None)),
        )


def chunks_of(contents: Contents) -> Iterator[ChunkFacts]:
    """Every column chunk, row group by row group; a FormatError where the footer does not describe one."""
    for ordinal in range(len(contents.metadata.row_groups)):
        for leaf in contents.schema.leaves:
            yield _chunk(IndexedChunk(contents, ordinal, leaf))


def _chunk(chunk: IndexedChunk) -> ChunkFacts:
    known, metadata = statistics_of_chunk(chunk), chunk.metadata
    return ChunkFacts(
        chunk.row_group,
        chunk.leaf.column_path,
        metadata.num_values,
        known.null_count,
        known.nan_count,
        known.distinct_count,
        plain(known.min),
        plain(known.max),
        known.is_min_exact,
        known.is_max_exact,
        metadata.total_compressed_size,
        metadata.total_uncompressed_size,
        known.byte_array_bytes,
        chunk.column.column_index_offset is not None,
        chunk.column.offset_index_offset is not None,
        metadata.bloom_filter_offset is not None,
        sorted(key_values(metadata.key_value_metadata)),
    )


def page_of(row_group: int, page: Page) -> PageFacts:
    """One page."""
    header = page.header
    detail = header.data_page_header or header.data_page_header_v2 or header.dictionary_page_header
    return PageFacts(
        row_group,
        page.ordinal,
        _name(PageType, header.type),
        "" if detail is None else _name(Encoding, detail.encoding),
        0 if detail is None else detail.num_values,
        page.offset,
        page.end - page.offset,
        header.uncompressed_page_size,
        header.crc is not None,
    )


def has_chunk_sums(contents: Contents) -> bool:
    """Whether the footer holds a checksum for every column chunk, as those of resilient files do."""
    chunks = [chunk.meta_data for group in contents.metadata.row_groups for chunk in group.columns]
    return all(
        chunk is not None and any(pair.key == CRC_KEY for pair in chunk.key_value_metadata or ()) for chunk in chunks
    )


def summary_of(contents: Contents, size: int) -> dict[str, Any]:
    """The file as a whole, as `rpq inspect --json` has it."""
    return {
        "row_groups": len(contents.metadata.row_groups),
        "size": size,
        "state": None if contents.state is None else str(contents.state),
        "file_id": contents.key_value.get(FILE_ID_KEY) if contents.state is not None else None,
        "created_by": contents.metadata.created_by,
        "data_files": len(contents.data_files),
        "footer_verified": contents.verified,
        "chunks_checksummed": contents.verified and has_chunk_sums(contents),
        "key_value_metadata": sorted(contents.key_value),
        "sorting_columns": [asdict(column) for column in common_sorting_columns(contents)],
    }


def _names(kinds: type[IntEnum], numbers: Iterable[int]) -> list[str]:
    """Names of the numbers, each once, in the order they first come."""
    return [_name(kinds, number) for number in dict.fromkeys(numbers)]


def _name(kinds: type[IntEnum], number: int) -> str:
    """The specification's name; the number itself where this version does not know it."""
    try:
        return kinds(number).name
    except ValueError:
        return str(number)


@dataclass(frozen=True, slots=True)
class Sections:
    """The sections asked for instead of the summary."""

    schema: bool
    row_groups: bool
    chunks: bool
    pages: str | None
    checkpoints: bool
    parity: bool

    @property
    def nothing(self) -> bool:
        """Whether only the summary is asked for."""
        listed = self.schema or self.row_groups or self.chunks or self.checkpoints or self.parity
        return not listed and self.pages is None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A parity group inside a file: its bytes, those of its parity, and how many in a row that rebuilds anywhere."""

    group: int
    num_bytes: int
    parity_bytes: int
    burst_bytes: int


async def groups_of(file: rpq.File) -> list[GroupFacts]:
    """The parity groups inside a file."""
    store, key = file.place
    found = await find_inline(PinnedObject(store, key, file.info))
    return [
        GroupFacts(group.number, group.shape.num_bytes, group.shape.parity_bytes, group.shape.inline_burst_bytes)
        for group in (() if found is None else found.groups)
    ]


async def pages_of_column(file: rpq.File, name: str) -> AsyncIterator[PageFacts]:
    """The pages of a column, chunk by chunk."""
    leaf = file.schema.leaf_named(name)
    if leaf is None:
        names = [leaf.column_path for leaf in file.schema.leaves]
        raise SchemaError(
            f"there is no column {name!r}", where=Where(key=file.url), hint=f"columns: {', '.join(names)}"
        )
    with located(Where(key=file.url)):
        chunks = [chunk_read(file.contents, ordinal, leaf) for ordinal in range(file.num_row_groups)]
        await file.objects.pin(chunk.file for chunk in chunks)
        places = [file.objects.place_of(chunk) for chunk in chunks]
        async with aclosing(file.objects.fetch_places(places, in_order=True)) as arriving:
            async for ordinal, data in arriving:
                chunk = chunks[ordinal]
                with located(chunk.where.merged_with(Where(key=file.objects.url_of(chunk.file)))):
                    for page in pages_of(data, chunk.range.start):
                        yield page_of(ordinal, page)


def document_of(
    file: rpq.File,
    sections: Sections,
    pages: Sequence[PageFacts] | None,
    groups: Sequence[GroupFacts] | None = None,
) -> dict[str, Any]:
    """The document of a file (docs/json.md), with the sections, the pages and the parity groups asked for."""
    document = base_document("inspect", "read", rows=file.num_rows, url=file.url)
    document |= summary_of(file.contents, file.info.size)
    document["schema"] = str(file.schema)
    document["columns"] = [asdict(column) for column in columns_of(file.contents)]
    document["checkpoints"] = [asdict(checkpoint) for checkpoint in file.checkpoints]
    if sections.row_groups:
        document["row_group_list"] = [asdict(group) for group in row_groups_of(file.contents)]
    if sections.chunks:
        document["chunks"] = [asdict(chunk) for chunk in chunks_of(file.contents)]
    if pages is not None:
        document["pages"] = [asdict(page) for page in pages]
    if groups is not None:
        document["parity"] = [asdict(group) for group in groups]
    return document
