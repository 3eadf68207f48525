"""Whole records of row groups and footers, read as the metadata that a footer would have. Pure."""

from __future__ import annotations

from resilient_pq.errors import FormatError, ResilientPQError
from resilient_pq.format import compact_protocol
from resilient_pq.format.crypto.sealed_footer import SIGNATURE_SIZE
from resilient_pq.format.file_metadata import FileMetaData, KeyValue, RowGroup
from resilient_pq.format.footer import MAGIC, RECORD_KEY, TAIL_SIZE, ChunkSums
from resilient_pq.format.resilience_records import RecordHeader, RowGroupRecord
from resilient_pq.format.schema_tree import Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import chunk_range


@dataclass(frozen=True, slots=True)
class RecordedFooter:
    """A whole anchor, checkpoint or final record: its header and file metadata."""

    header: RecordHeader
    metadata: FileMetaData


@dataclass(frozen=True, slots=True)
class RecordedRowGroup:
    """A row group that a whole record names."""

    row_group: RowGroup  # Its metadata, with the keys that a footer has
    ordinal: int  # Its number in the file
    rows_before: int  # Rows of all row groups before it
    end: int  # Offset just after its record


def parse_footer(header: RecordHeader, payload: memoryview) -> RecordedFooter | None:
    """The file metadata of a whole footer record; None when they contradict themselves."""
    try:
        metadata, end = compact_protocol.decode(FileMetaData, payload)
        schema = Schema.from_elements(metadata.schema)
        limit = len(MAGIC)
        for row_group in metadata.row_groups:
            limit = check_row_group(row_group, schema, limit, header.offset)
    except ResilientPQError:
        return None
    between = len(payload) - TAIL_SIZE - end
    is_signature = between == SIGNATURE_SIZE and metadata.encryption_algorithm is not None
    return RecordedFooter(header, metadata) if between == 0 or is_signature else None


def parse_row_group(header: RecordHeader, payload: memoryview) -> RecordedRowGroup | None:
    """The row group that a whole record names, with the key that only footers have; None when it is malformed."""
    try:
        record, _ = compact_protocol.decode(RowGroupRecord, payload)
        row_group = record.row_group
        _check_ranges(row_group, len(MAGIC), header.offset)
        sums = [ChunkSums.of(chunk.meta_data) for chunk in row_group.columns if chunk.meta_data is not None]
    except ResilientPQError:
        return None
    if len(sums) != len(row_group.columns) or header.num_row_groups < 1:
        return None
    if row_group.columns:
        metadata = row_group.columns[0].meta_data
        assert metadata is not None
        place = KeyValue(RECORD_KEY, f"{header.offset}:{header.end - header.offset}")
        metadata.key_value_metadata = [*(metadata.key_value_metadata or ()), place]
    rows_before = header.num_rows - row_group.num_rows
    return RecordedRowGroup(row_group, header.num_row_groups - 1, rows_before, header.end)


def check_row_group(row_group: RowGroup, schema: Schema, start: int, end: int) -> int:
    """Where the chunks of a row group end, if they fit the schema, lie in `start` to `end`, and do not overlap."""
    if len(row_group.columns) != len(schema.leaves):
        raise FormatError("the row group has another number of columns than the schema")
    for leaf, chunk in zip(schema.leaves, row_group.columns, strict=True):
        if chunk.meta_data is None or chunk.meta_data.type != leaf.node.physical_type:
            raise FormatError(f"the chunk of column {leaf.column_path} does not fit the schema")
    return _check_ranges(row_group, start, end)


def _check_ranges(row_group: RowGroup, start: int, end: int) -> int:
    if row_group.num_rows < 0:
        raise FormatError("a row group cannot have less than no rows")
    for chunk in row_group.columns:
        if chunk.meta_data is None:
            raise FormatError("a column chunk has no metadata")
        first, last = chunk_range(chunk.meta_data, end)
        if first < start:
            raise FormatError("column chunks overlap")
        start = last
    return start


def data_start(row_group: RowGroup) -> int | None:
    """Offset of the first page of a row group; None where it has no chunks."""
    metadata = row_group.columns[0].meta_data if row_group.columns else None
    return None if metadata is None else metadata.dictionary_page_offset or metadata.data_page_offset
