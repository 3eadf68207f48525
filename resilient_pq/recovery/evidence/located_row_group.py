"""Row groups of a damaged file, whichever strategy found them. Pure.

Each has the chunks of its columns, with the ranges of their bytes and what is known of their pages. Which of these
bytes are whole is examined later, for all strategies alike.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.page_hints import PageHints
from resilient_pq.errors import FormatError
from resilient_pq.format.file_metadata import FileMetaData, StoredSortingColumn
from resilient_pq.format.footer import CRC_KEY, HASH_KEY, ChunkSums
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.schema_tree import Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.report import Finding


class Method(StrEnum):
    """The evidence that showed where a row group lies."""

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
    """A chunk without checksums that are malformed, as damaged metadata may have them."""
    try:
        ChunkSums.of(chunk.metadata)
    except FormatError:
        pairs = [pair for pair in chunk.metadata.key_value_metadata or () if pair.key not in (CRC_KEY, HASH_KEY)]
        return replace(chunk, metadata=replace(chunk.metadata, key_value_metadata=pairs))
    return chunk


@dataclass(frozen=True, slots=True)
class LocatedChunk:
    """A column chunk: its range and metadata, hints about its pages, and where the file has its indexes."""

    read: ChunkRead
    pages: PageHints | None = None
    offset_index: ByteRange | None = None
    column_index: ByteRange | None = None


@dataclass(frozen=True, slots=True)
class LocatedRowGroup:
    """A row group."""

    ordinal: int  # Its number in the damaged file; where that is not `placed`, a number that no other has
    num_rows: int | None  # Its rows; None where it is not known to be complete
    rows_before: int | None  # Rows of all row groups before it in the damaged file; None where nobody counted them
    chunks: tuple[LocatedChunk | None, ...]  # One for each leaf of the schema; None where nothing is known of it
    method: Method  # The evidence that showed it
    start: int  # Offset of its first byte, or of what stands before it and belongs to it
    end: int  # Offset just after its last byte, its record included where there is one
    sorting_columns: tuple[StoredSortingColumn, ...] = ()  # The order of its rows
    # Whether a record of one of its chunks says `ordinal` and `rows_before`, where carving found it
    numbered: bool = False
    # Whether no row group seems to be missing within the one located before it, or between the two
    follows: bool = True
    # Whether it may be the rest of the row group located before it, so that the rows of both are the same: bytes are
    # missing between them, and nobody knows how many
    may_be_rest: bool = False
    placed: bool = True  # Whether `ordinal` is not a guess, as behind what may be the rest of another one

    def overlaps(self, other: LocatedRowGroup | ByteRange) -> bool:
        """Whether they share a byte."""
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class RebuiltFile:
    """A file that was carved: schema, metadata without row groups, row groups in order, and findings."""

    schema: Schema
    metadata: FileMetaData
    row_groups: tuple[LocatedRowGroup, ...]
    findings: tuple[Finding, ...] = ()
