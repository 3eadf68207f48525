"""The contents of a file as plain values, for text and for JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import asdict
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
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.inline_parity import find_inline
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.reader.contents import Contents, chunk_range
from resilient_pq.reader.data_file import data_file
from resilient_pq.reader.filter.index_ranges import IndexedChunk, common_sorting_columns, statistics_of_chunk
from resilient_pq.reader.read_plan import chunk_read

#: What is told of something, by the keys of the JSON document (docs/json.md).
Facts = dict[str, Any]


def columns_of(contents: Contents) -> list[Facts]:
    """Every leaf column over all row groups: its path with dots, its type as ``optional int32``, and so on."""
    return [_column(leaf, _chunks_of(contents, leaf)) for leaf in contents.schema.leaves]


def _chunks_of(contents: Contents, leaf: Leaf) -> list[ColumnMetaData]:
    chunks = [group.columns[leaf.ordinal].meta_data for group in contents.metadata.row_groups]
    return [chunk for chunk in chunks if chunk is not None]


def _column(leaf: Leaf, chunks: list[ColumnMetaData]) -> Facts:
    nulls = [chunk.statistics.null_count if chunk.statistics is not None else None for chunk in chunks]
    return {
        "name": leaf.column_path,
        "type": type_of(leaf),
        "codecs": _names(CompressionCodec, (chunk.codec for chunk in chunks)),
        "encodings": _names(Encoding, (encoding for chunk in chunks for encoding in chunk.encodings)),
        "num_bytes": sum(chunk.total_compressed_size for chunk in chunks),
        "uncompressed": sum(chunk.total_uncompressed_size for chunk in chunks),
        "nulls": None if any(count is None for count in nulls) else sum(count or 0 for count in nulls),
    }


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


def row_groups_of(contents: Contents) -> Iterator[Facts]:
    """Every row group, and the data files that a summary names; a FormatError where a chunk lies outside."""
    for ordinal, group in enumerate(contents.metadata.row_groups):
        chunks = [
            (chunk.meta_data, data_file(chunk.file_path)) for chunk in group.columns if chunk.meta_data is not None
        ]
        ranges = [chunk_range(chunk, contents.data_end_in(file)) for chunk, file in chunks]
        yield {
            "ordinal": ordinal,
            "rows": group.num_rows,
            "offset": min((start for start, _ in ranges), default=0),
            "num_bytes": sum(end - start for start, end in ranges),
            "uncompressed": sum(chunk.total_uncompressed_size for chunk, _ in chunks),
            "files": list(dict.fromkeys(file for _, file in chunks if file is not None)),
        }


def chunks_of(contents: Contents) -> Iterator[Facts]:
    """Every column chunk, row group by row group; a FormatError where the footer does not describe one."""
    for ordinal in range(len(contents.metadata.row_groups)):
        for leaf in contents.schema.leaves:
            yield _chunk(IndexedChunk(contents, ordinal, leaf))


def _chunk(chunk: IndexedChunk) -> Facts:
    known, metadata = statistics_of_chunk(chunk), chunk.metadata
    return {
        "row_group": chunk.row_group,
        "column": chunk.leaf.column_path,
        "values": metadata.num_values,
        "nulls": known.null_count,
        "nans": known.nan_count,
        "distinct": known.distinct_count,
        "min": plain(known.min),
        "max": plain(known.max),
        "min_exact": known.is_min_exact,
        "max_exact": known.is_max_exact,
        "num_bytes": metadata.total_compressed_size,
        "uncompressed": metadata.total_uncompressed_size,
        "byte_array_bytes": known.byte_array_bytes,
        "column_index": chunk.column.column_index_offset is not None,
        "offset_index": chunk.column.offset_index_offset is not None,
        "bloom_filter": metadata.bloom_filter_offset is not None,
        "metadata": sorted(key_values(metadata.key_value_metadata)),
    }


def page_of(row_group: int, page: Page) -> Facts:
    """One page; `page` counts the dictionary page as well, `values` those of the dictionary."""
    header = page.header
    detail = header.data_page_header or header.data_page_header_v2 or header.dictionary_page_header
    return {
        "row_group": row_group,
        "page": page.ordinal,
        "kind": _name(PageType, header.type),
        "encoding": "" if detail is None else _name(Encoding, detail.encoding),
        "values": 0 if detail is None else detail.num_values,
        "offset": page.offset,
        "num_bytes": page.end - page.offset,
        "uncompressed": header.uncompressed_page_size,
        "crc32": header.crc is not None,
    }


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


async def groups_of(file: rpq.File) -> list[Facts]:
    """The parity groups inside a file: their bytes, those of parity, and how many in a row that rebuilds anywhere."""
    store, key = file.place
    found = await find_inline(PinnedObject(store, key, file.info))
    return [
        {
            "group": group.number,
            "num_bytes": group.shape.num_bytes,
            "parity_bytes": group.shape.parity_bytes,
            "burst_bytes": group.shape.inline_burst_bytes,
        }
        for group in (() if found is None else found.groups)
    ]


async def pages_of_column(file: rpq.File, name: str) -> AsyncIterator[Facts]:
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


async def document_of(file: rpq.File, sections: Sections, *, groups: bool) -> Facts:
    """The document of a file (docs/json.md), with the sections asked for, and with its parity `groups`."""
    pages = None
    if sections.pages is not None:
        pages = [page async for page in pages_of_column(file, sections.pages)]
    parity = await groups_of(file) if groups else None
    with located(Where(key=file.url)):
        document = base_document("inspect", "read", rows=file.num_rows, url=file.url)
        document |= summary_of(file.contents, file.info.size)
        document["schema"] = str(file.schema)
        document["columns"] = columns_of(file.contents)
        document["checkpoints"] = [asdict(checkpoint) for checkpoint in file.checkpoints]
        if sections.row_groups:
            document["row_group_list"] = list(row_groups_of(file.contents))
        if sections.chunks:
            document["chunks"] = list(chunks_of(file.contents))
    if pages is not None:
        document["pages"] = pages
    if parity is not None:
        document["parity"] = parity
    return document
