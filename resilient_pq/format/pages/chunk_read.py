"""The bytes of a column chunk that are to be read."""

from __future__ import annotations

from dataclasses import replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import Where
from resilient_pq.format.file_metadata import ColumnMetaData
from resilient_pq.format.pages.selected_pages import SelectedPages
from resilient_pq.format.quirks import NO_QUIRKS, Quirks
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """One column chunk to fetch and decode."""

    row_group: int  # ordinal of its row group
    leaf: Leaf
    metadata: ColumnMetaData  # what the footer says of it
    range: ByteRange
    num_rows: int  # rows of its row group
    slack: int = 0  # bytes of `range` behind what the footer says, for writers that counted too few
    quirks: Quirks = NO_QUIRKS  # what is known of its writer
    #: The data file that a summary names for it, relative to the summary's folder; None where it lies in the
    #: file itself. Whether `range` lies within a data file is still to be seen.
    file: str | None = None
    pages: SelectedPages | None = None  # which of its pages to read; None for all

    @property
    def whole(self) -> ChunkRead:
        """The same chunk with all of its pages."""
        return self if self.pages is None else replace(self, pages=None)

    @property
    def ranges(self) -> tuple[ByteRange, ...]:
        """What to fetch."""
        return (self.range,) if self.pages is None else self.pages.ranges

    @property
    def num_bytes(self) -> int:
        """How many bytes that is."""
        return sum(each.size for each in self.ranges)

    @property
    def num_decoded(self) -> int:
        """The same, decompressed; of some of its pages as large a share of it as they are of its bytes."""
        size = max(self.metadata.total_uncompressed_size, 0)
        return size if self.pages is None else size * self.num_bytes // max(self.range.size, 1)

    @property
    def num_values_to_read(self) -> int:
        """Entries after which its pages end, whatever bytes lie behind them; each row has one at least."""
        return max(self.metadata.num_values, self.num_rows)

    @property
    def where(self) -> Where:
        """Its place, for errors."""
        return Where(row_group=self.row_group, column=self.leaf.column_path)
