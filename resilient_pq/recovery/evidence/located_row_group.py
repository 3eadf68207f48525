"""What is known of the row groups of a damaged file, whichever rung of the ladder told it. Pure.

Every rung ends in the same: row groups, each with the chunks of its columns, each with where its bytes should lie and
what is known of its pages besides. What of these bytes is whole is another question, asked of all rungs alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.page_hints import PageHints
from resilient_pq.errors import FormatError
from resilient_pq.format.file_metadata import FileMetaData, StoredSortingColumn
from resilient_pq.format.footer import CRC_KEY, HASH_KEY, ChunkSums
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.schema_tree import Schema
from resilient_pq.recovery.report import Finding


class Method(StrEnum):
    """The rung of the ladder that told where a row group lies."""

    FOOTER = "footer"
    """The footer at the end of the file."""
    CHECKPOINT = "checkpoint"
    """The newest whole anchor or checkpoint."""
    ROW_GROUP_RECORD = "row-group-record"
    """A record behind the row group."""
    CHUNK_RECORDS = "chunk-records"
    """Records before its chunks; its own record is missing or damaged, as of a row group in flight."""
    TORN_FOOTER = "torn-footer"
    """A footer of which the end is missing."""
    CARVED = "carved"
    """The shape of page headers; there is no other trace of it."""


def without_malformed_sums(chunk: ChunkRead) -> ChunkRead:
    """A chunk without the sums that are none: in metadata that are damaged themselves, they tell nothing."""
    try:
        ChunkSums.of(chunk.metadata)
    except FormatError:
        pairs = [pair for pair in chunk.metadata.key_value_metadata or () if pair.key not in (CRC_KEY, HASH_KEY)]
        return replace(chunk, metadata=replace(chunk.metadata, key_value_metadata=pairs))
    return chunk


@dataclass(frozen=True, slots=True)
class LocatedChunk:
    """A column chunk.

    Attributes:
        read: Its column, where it lies, and what is said of it. What nobody said is made up of its pages.
        pages: What is known of its pages besides what stands in the chunk; None for nothing.
        offset_index: Where the file has its OffsetIndex; None where it has none.
        column_index: Where the file has its ColumnIndex.
    """

    read: ChunkRead
    pages: PageHints | None = None
    offset_index: ByteRange | None = None
    column_index: ByteRange | None = None


@dataclass(frozen=True, slots=True)
class LocatedRowGroup:
    """A row group.

    Attributes:
        ordinal: Its number in the damaged file.
        num_rows: Its rows; None where it is not known to be complete.
        rows_before: Rows of all row groups before it in the damaged file; None where nobody counted them.
        chunks: One for each leaf of the schema; None where nothing is known of it.
        method: The rung that told.
        start: Offset of its first byte, or of what stands before it and belongs to it.
        end: Offset just after its last byte, its record included where there is one.
        sorting_columns: The order of its rows.
        numbered: Whether a record of one of its chunks says `ordinal` and `rows_before`, where carving found it.
    """

    ordinal: int
    num_rows: int | None
    rows_before: int | None
    chunks: tuple[LocatedChunk | None, ...]
    method: Method
    start: int
    end: int
    sorting_columns: tuple[StoredSortingColumn, ...] = ()
    numbered: bool = False

    def overlaps(self, other: LocatedRowGroup | ByteRange) -> bool:
        """Whether they share a byte."""
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class RebuiltFile:
    """What carving made of a file without a footer.

    Attributes:
        schema: Given, or of a torn footer, or invented of the physical columns.
        metadata: As a footer would have it, without row groups: schema, created_by, column orders, key-value pairs.
        row_groups: What was found, in order.
        findings: What was guessed, and what is odd, for people.
    """

    schema: Schema
    metadata: FileMetaData
    row_groups: tuple[LocatedRowGroup, ...]
    findings: tuple[Finding, ...] = ()
