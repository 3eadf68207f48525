"""Files of other writers whose footers say something else than they did."""

from __future__ import annotations

from collections.abc import Callable

from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import ColumnMetaData, FileMetaData


def footer_of(data: bytes) -> FileMetaData:
    """The footer of a file."""
    size = int.from_bytes(data[-8:-4], "little")
    footer: FileMetaData = compact_protocol.decode(FileMetaData, memoryview(data)[-8 - size : -8])[0]
    return footer


def chunks_of(footer: FileMetaData) -> list[ColumnMetaData]:
    """The column chunks of all row groups."""
    chunks = [column.meta_data for row_group in footer.row_groups for column in row_group.columns]
    return [chunk for chunk in chunks if chunk is not None]


def ended_with(body: bytes, footer: FileMetaData) -> bytes:
    """A file of the bytes before a footer, the footer, and its length."""
    encoded = compact_protocol.encode(footer)
    return body + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"


def with_footer(data: bytes, change: Callable[[FileMetaData], object]) -> bytes:
    """The file with its footer changed."""
    footer = footer_of(data)
    change(footer)
    return ended_with(data[: len(data) - 8 - int.from_bytes(data[-8:-4], "little")], footer)


def with_bytes_behind(data: bytes, more: bytes) -> bytes:
    """The file with some more bytes at the end of each chunk, which its metadata count; without page indexes."""
    footer = footer_of(data)
    made = bytearray(b"PAR1")
    for row_group in footer.row_groups:
        for column in row_group.columns:
            column.column_index_offset = column.offset_index_offset = None
            chunk = column.meta_data
            assert chunk is not None
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            chunk.data_page_offset += len(made) - start
            if chunk.dictionary_page_offset:
                chunk.dictionary_page_offset = len(made)
            made += data[start : start + chunk.total_compressed_size] + more
            chunk.total_compressed_size += len(more)
    return ended_with(bytes(made), footer)
