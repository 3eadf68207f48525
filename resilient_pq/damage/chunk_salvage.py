"""What is salvaged of a damaged column chunk: the fate of each of its pages, and the rows that are left. Pure."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page import Page
from resilient_pq.format.physical_values import LeafData
from resilient_pq.lazy_dataclass import dataclass

#: How reasons of losses begin that `keep_unplaced` asks for.
UNPROVEN_PLACE: Final = "nothing proves its place"
MISPLACED: Final = f"{UNPROVEN_PLACE}: pages of this chunk are as they were written, and of something else"


class RepairSource(StrEnum):
    """Where a page that is damaged in its place was taken from."""

    HEADER_COPY = "header-copy"
    """Its header is damaged, and a record has a copy of it."""
    DICTIONARY_COPY = "dictionary-copy"
    """It is a dictionary page, and a record has a copy of it."""
    DISPLACED = "displaced"
    """Parts of the file were moved; it is whole where it lies now."""
    OTHER_COPY = "other-copy"
    """It is whole in another copy of the file."""
    BIT_REPAIR = "bit-repair"
    """One bit was turned back so that its CRC32 holds."""


@dataclass(frozen=True, slots=True)
class ChunkBytes:
    """The bytes of a chunk, from one of the places where they may lie."""

    data: memoryview  # As many as the chunk has; zeros where there are none
    # The repair that taking a page from here is; None for the place where the chunk should lie
    repair: RepairSource | None = None


@dataclass(frozen=True, slots=True)
class PageFate:
    """What became of a page, or of bytes that must hold pages."""

    offset: int  # Absolute offset of its header
    end: int  # Offset just after it
    page: Page | None  # The page; None where it is lost
    is_dictionary: bool = False
    # The row of the row group that its first whole row is; None where rows before it are not counted
    first_row: int | None = None
    num_rows: int | None = None  # Rows that begin in it; None where they cannot be counted, 0 of a dictionary page
    # How it was repaired; None where it lies whole in its place, and where it is lost
    repair: RepairSource | None = None
    checksummed: bool = False  # Whether a checksum of it holds
    reason: str | None = None  # Why it is lost; None where it is whole
    reading: int = 0  # Position of the reading that it is whole in; 0, the place where it should lie, for a lost page
    # CRC32 of header and body together, calculated from the header's bytes and the CRC32 in it; None where no header is
    # known, or it has no CRC32
    stated: int | None = None
    placed: bool = False  # Whether a copy of its header, or a sum in an index, proves that this is its place
    unplaced: bool = False  # Whether it was kept without such a proof

    def lost(self, reason: str) -> PageFate:
        """The same place, its page lost."""
        return replace(self, page=None, repair=None, checksummed=False, reason=reason, reading=0, placed=False)


@dataclass(frozen=True, slots=True)
class RowRun:
    """Rows of a column that follow one another."""

    first_row: int | None  # The first of them, counted in the row group; None where rows before it are not counted
    data: LeafData


@dataclass(frozen=True, slots=True)
class SalvagedChunk:
    """What is salvaged of a column chunk."""

    chunk: ChunkRead
    pages: tuple[PageFate, ...]  # The fate of each page, in order; bytes in which no page is recognized have one fate
    runs: tuple[RowRun, ...]
    # Whether its pages hold more than what is left: rows behind the last of the row group, or the end of a row before
    # its first
    is_cut: bool = False
    is_misplaced: bool = False  # Whether pages in its place are as they were written, and of something else

    @property
    def is_whole(self) -> bool:
        """Whether no page is lost, so that the chunk can be rebuilt byte by byte as it was written."""
        return not self.is_cut and all(fate.page is not None for fate in self.pages)

    @property
    def in_place(self) -> bool:
        """Whether every page is whole where it should lie."""
        return self.is_whole and all(fate.repair is None for fate in self.pages)

    @property
    def num_rows(self) -> int:
        """Rows that are left."""
        return sum(run.data.num_rows for run in self.runs)

    def bytes(self) -> memoryview:
        """The chunk as it was written; it is whole."""
        pages = [fate.page for fate in self.pages if fate.page is not None]
        return memoryview(b"".join(part for page in pages for part in (page.header_bytes, page.body)))

    def rows_present(self, num_rows: int) -> NDArray[np.bool_]:
        """For each row of the row group, whether its value is left."""
        present = np.zeros(num_rows, np.bool_)
        for run in self.runs:
            if run.first_row is not None:
                present[run.first_row : run.first_row + run.data.num_rows] = True
        return present
