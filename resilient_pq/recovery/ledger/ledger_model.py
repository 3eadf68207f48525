"""The ledger of a recovery (docs/json.md): what every byte of the input is, and what became of every row. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

from resilient_pq.errors import RecoveryError, Where
from resilient_pq.lazy_dataclass import dataclass

PAGES = frozenset({"page", "dictionary page", "chunk"})  # Regions that hold values, and so have a state


class ByteUse(StrEnum):
    """What a byte of the input is."""

    DATA = "data"  # Of a page whose values were kept
    METADATA = "metadata"  # Of a magic, a record, an index, a bloom filter or a footer that is whole
    DEAD = "dead"  # Of nothing that a file needs: padding, gaps, what stands behind the end, older footers
    LOST = "lost"  # Of something that was damaged, or whose rows were not kept


class Confidence(StrEnum):
    """Why what was kept is taken for what was written."""

    CHECKSUM = "checksum"  # A checksum holds that was written with it
    DECODED = "decoded"  # There is no checksum; it decodes, and fits what is said of it
    PARITY = "parity"  # Parity made it, and the checksum of its blocks holds
    REPAIRED = "repaired"  # One bit was turned back so that the checksum holds
    # The checksum of its bytes holds, but nothing proves their place; it was kept since that was asked for
    UNPLACED = "unplaced"
    UNREAD = "unread"  # It was copied within the store and not read; its checksums were copied with it


class PageState(StrEnum):
    """What became of the values of a page, the best first."""

    WHOLE = "whole"  # Its bytes are as they were written
    UNREAD = "unread"  # It was copied within the store and not read
    MENDED = "mended"  # Its bytes were put together of more than one place, and are as they were written
    REBUILT = "rebuilt"  # Some of its bytes were made from parity, and are as they were written
    REPAIRED = "repaired"  # One bit of it was turned back
    DROPPED = "dropped"  # Whole or mended, but rows of it, some or all, went with values that another column lost
    NULLED = "nulled"  # Its values are lost; its rows were kept, with nulls in their place
    LOST = "lost"  # Its values are lost, and its rows with them


_MENDED: Final = {"bit-repair": PageState.REPAIRED, "parity": PageState.REBUILT}


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of the input; a page whose bytes lie in several places has a region for each, which say the same of it."""

    source: int  # Which of the inputs, from 0
    start: int  # Absolute offset of the first byte
    end: int  # Offset after the last
    use: ByteUse  # What they are
    # In the format's words: "magic", "page", "dictionary page", "chunk" (pages that nobody told apart, or a part of a
    # chunk that is no page any more), "anchor", "chunk record", "row-group record", "checkpoint", "footer", "index",
    # "bloom filter", "parity", "padding", or "unknown"
    what: str
    row_group: int | None = None  # Ordinal in the input; None outside of row groups
    column: str | None = None  # Path of the leaf column; None outside of chunks
    page: int | None = None  # Ordinal of the page in its chunk, the dictionary page included; None outside of pages
    # How a page was made whole that is not whole where it should lie: "header-copy", "dictionary-copy", "displaced",
    # "other-copy", "parity" or "bit-repair"; None for all others
    mended: str | None = None
    # Why it is taken for what was written; None for what is damaged or dead, and for metadata that were not checked
    confidence: Confidence | None = None
    reason: str | None = None  # What was wrong with it: why it was lost, or had to be mended; None for all others
    # Row of the row group that the page begins with, 0 of a chunk that is whole; None outside of data pages, and where
    # it is not known
    first_row: int | None = None
    num_rows: int | None = None  # Rows that the page, or the chunk, holds values of; None likewise
    # How many of these are in the output, with their values or with nulls; of a lost page whose rows are not known, how
    # many rows have nulls that its chunk lost. None likewise
    rows_kept: int | None = None

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end - self.start

    @property
    def state(self) -> PageState | None:
        """What became of its values; None of what is no page."""
        if self.what not in PAGES:
            return None
        if self.confidence is None:
            return PageState.NULLED if self.rows_kept else PageState.LOST
        counted = self.rows_kept is not None and self.num_rows is not None
        if self.use is ByteUse.LOST or (counted and (self.rows_kept or 0) < (self.num_rows or 0)):
            return PageState.DROPPED
        if self.mended is not None:
            return _MENDED.get(self.mended, PageState.MENDED)
        return PageState.UNREAD if self.confidence is Confidence.UNREAD else PageState.WHOLE

    def to_json(self) -> dict[str, Any]:
        """As in docs/json.md: what does not apply is left out."""
        values = {
            "source": self.source,
            "start": self.start,
            "end": self.end,
            "use": str(self.use),
            "what": self.what,
            "row_group": self.row_group,
            "column": self.column,
            "page": self.page,
            "state": _word(self.state),
            "mended": self.mended,
            "confidence": _word(self.confidence),
            "reason": self.reason,
            "first_row": self.first_row,
            "rows": self.num_rows,
            "rows_kept": self.rows_kept,
        }
        return {name: value for name, value in values.items() if value is not None}


def _word(value: StrEnum | None) -> str | None:
    return None if value is None else str(value)


@dataclass(frozen=True, slots=True)
class RowsFate:
    """Rows of the input that fared alike."""

    first_row: int | None  # Number of the first of them in the input; None where rows before them were not counted
    num_rows: int | None  # How many; None where the bytes do not tell
    # Ordinal in the input; None where it is not known, though pages are told of with a number that tells them apart
    row_group: int | None
    kept: bool  # Whether they are in the output; in one of them, where each column has its own
    # Paths of the columns that lost their values of these rows: they got nulls there, or, where each column has its own
    # output, are not in that column's
    nulled: tuple[str, ...] = ()
    method: str | None = None  # How their row group was located (`Method`); None where it was not
    # Why they are taken for what was written, the least of all columns; None where they were lost
    confidence: Confidence | None = None
    reason: str | None = None  # Why they were lost, or got nulls
    # Whether they may be those before them: bytes are missing between values of some columns and of others
    may_repeat: bool = False

    def to_json(self) -> dict[str, Any]:
        """As in docs/json.md."""
        return {
            "first_row": self.first_row,
            "rows": self.num_rows,
            "row_group": self.row_group,
            "kept": self.kept,
            "nulled": list(self.nulled),
            "method": self.method,
            "confidence": _word(self.confidence),
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class LedgerSource:
    """One of the inputs."""

    url: str  # Its name
    size: int  # Its bytes
    etag: str | None = None  # Its version, where the store has one


@dataclass(frozen=True, slots=True)
class Ledger:
    """What became of everything."""

    sources: tuple[LedgerSource, ...]  # The inputs, that of which most is known first
    columns: tuple[str, ...]  # Paths of the leaf columns, in the order of the schema
    row_groups: tuple[int | None, ...]  # Rows of each row group known of, by ordinal; None where the bytes do not tell
    # Every byte of every input once, in order: of the first input from its first byte to its last, of the second
    # likewise. Of a page that several inputs have, the region in the first of them has its fate
    regions: tuple[Region, ...]
    rows: tuple[RowsFate, ...]  # Every row known of once, in order
    checkpoints: tuple[tuple[int, int], ...] = ()  # Offset, and rows before it, of each checkpoint found
    # Pages of which no byte is in any input, each as an empty region of the first input where it should begin
    missing: tuple[Region, ...] = ()
    on_damage: str = "drop"  # What was asked for: "drop", "null", "columns" or "raise"
    num_rows: int | None = None  # Rows of the whole file; None where nothing proves where it ends

    def num_bytes(self, use: ByteUse, source: int = 0) -> int:
        """Bytes of an input that are used so."""
        return sum(region.size for region in self.regions if region.use is use and region.source == source)

    @property
    def rows_kept(self) -> int:
        """Rows that are in the output, those with nulls in place of lost values included."""
        return sum(fate.num_rows or 0 for fate in self.rows if fate.kept)

    @property
    def rows_nulled(self) -> int:
        """Rows among these that lost the values of a column."""
        return sum(fate.num_rows or 0 for fate in self.rows if fate.kept and fate.nulled)

    @property
    def rows_lost(self) -> int | None:
        """Rows that are not in the output; None where there may be more than those that were counted."""
        if any(fate.kept and fate.may_repeat for fate in self.rows):
            return None
        if self.num_rows is not None and self.num_rows >= self.rows_kept:
            return self.num_rows - self.rows_kept
        return None if self.uncounted else sum(fate.num_rows or 0 for fate in self.rows if not fate.kept)

    @property
    def rows_lost_at_least(self) -> int:
        """Rows known of that are not in the output; where `rows_lost` is None there may be more."""
        counted = sum(fate.num_rows or 0 for fate in self.rows if not fate.kept)
        return counted if self.rows_lost is None else self.rows_lost

    @property
    def is_complete(self) -> bool:
        """Whether every row of the file is in the output with all its values, each proven to belong there."""
        whole = all(fate.kept and not fate.nulled for fate in self.rows) and self.rows_lost == 0
        return whole and all(fate.confidence is not Confidence.UNPLACED for fate in self.rows)

    @property
    def uncounted(self) -> bool:
        """Whether rows were lost that cannot be counted."""
        return any(fate.num_rows is None for fate in self.rows)

    def pages(self) -> Iterator[Region]:
        """Every page once, with the region that has its fate, missing pages last."""
        seen: set[tuple[int | None, str | None, int]] = set()
        chunks: dict[tuple[int | None, str | None], int] = {}
        for region in (*self.regions, *self.missing):
            chunk = (region.row_group, region.column)
            if region.what not in PAGES or chunks.get(chunk, region.source) < region.source:
                continue
            if region.page is not None:
                name = (*chunk, region.page)
                if name in seen:
                    continue
                seen.add(name)
            elif region.confidence is not None:
                if chunk in chunks:
                    continue  # another piece of it
                chunks[chunk] = region.source
            yield region

    def to_json(self) -> dict[str, Any]:
        """As in docs/json.md."""
        return {
            "on_damage": self.on_damage,
            "sources": [
                {"url": source.url, "size": source.size, "etag": source.etag}
                | {"bytes": {str(use): self.num_bytes(use, number) for use in ByteUse}}
                for number, source in enumerate(self.sources)
            ],
            "columns": list(self.columns),
            "row_groups": list(self.row_groups),
            "checkpoints": [{"offset": offset, "rows": rows} for offset, rows in self.checkpoints],
            "num_rows": self.num_rows,
            "rows_kept": self.rows_kept,
            "rows_nulled": self.rows_nulled,
            "rows_lost": self.rows_lost,
            "rows": [fate.to_json() for fate in self.rows],
            "regions": [region.to_json() for region in self.regions],
            "missing": [region.to_json() for region in self.missing],
        }


def complete_regions(size: int, regions: Iterable[Region], *, source: int = 0) -> tuple[Region, ...]:
    """The regions of an input in order, gaps between them filled as "unknown", and neighbours that are alike as one."""
    pieces: list[Region] = []
    end = 0
    for region in sorted((region for region in regions if region.end != region.start), key=attrgetter("start", "end")):
        if region.source != source or not end <= region.start < region.end <= size:
            what = f"bytes {region.start} to {region.end} of source {region.source} ({region.what})"
            raise RecoveryError(
                f"{what} are told of twice, or are not there: {size} bytes, told of up to {end}",
                where=Where(offset=region.start),
            )
        if end < region.start:
            pieces.append(Region(source, end, region.start, ByteUse.DEAD, "unknown"))
        pieces.append(region)
        end = region.end
    if end < size:
        pieces.append(Region(source, end, size, ByteUse.DEAD, "unknown"))
    complete = pieces[:1]
    for piece in pieces[1:]:
        before = complete[-1]
        alike = before.what == piece.what and before.column == piece.column
        if alike and before.page is None and before.num_rows is None:
            joined = replace(before, end=piece.end)
            if joined == replace(piece, start=before.start):
                complete[-1] = joined
                continue
        complete.append(piece)
    return tuple(complete)
