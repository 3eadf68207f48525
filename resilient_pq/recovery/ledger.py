"""The ledger of a recovery: what every byte of the input is, and what became of every row. Pure.

For programs it is JSON (docs/json.md), for people a map in the terminal or in a page of HTML.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ByteUse(StrEnum):
    """What a byte of the input is."""

    DATA = "data"
    """Of a page whose values were kept."""
    METADATA = "metadata"
    """Of a magic, a record, an index, a bloom filter or a footer that is whole."""
    DEAD = "dead"
    """Of nothing that a file needs: padding, gaps, what stands behind the end, older footers."""
    LOST = "lost"
    """Of something that was damaged, or whose rows were not kept."""


class Confidence(StrEnum):
    """Why what was kept is believed to be what was written."""

    CHECKSUM = "checksum"
    """A checksum holds that was written with it."""
    DECODED = "decoded"
    """There is no checksum; it decodes, and fits what is said of it."""
    REPAIRED = "repaired"
    """One bit was turned back so that the checksum holds."""
    UNREAD = "unread"
    """It was copied within the store and not read; its checksums were copied with it."""


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of the input.

    Attributes:
        source: Which of the inputs, from 0.
        start: Absolute offset of the first byte.
        end: Offset after the last.
        use: What they are.
        what: In the format's words: "magic", "page", "dictionary page", "anchor", "chunk record", "row-group record",
            "checkpoint", "footer", "index", "bloom filter", "padding", or "unknown".
        row_group: Ordinal in the input; None outside of row groups.
        column: Path of the leaf column; None outside of chunks.
        page: Ordinal of the page in its chunk; None outside of pages.
        mended: How a page was made whole that is not whole where it should lie: "header-copy", "dictionary-copy",
            "displaced", "other-copy" or "bit-repair"; None for all others.
        confidence: Why it is believed; None for what was lost or is dead.
        reason: Why it was lost; None for all others.
    """

    source: int
    start: int
    end: int
    use: ByteUse
    what: str
    row_group: int | None = None
    column: str | None = None
    page: int | None = None
    mended: str | None = None
    confidence: Confidence | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RowsFate:
    """Rows of the input that fared alike.

    Attributes:
        first_row: Number of the first of them in the input; None where rows before them were not counted.
        num_rows: How many; None where the bytes do not tell.
        row_group: Ordinal in the input; None where it is not known.
        kept: Whether they are in the output.
        nulled: Paths of the columns in which they got null because their values were lost.
        method: Rung of the ladder that told of them (`Method`); None where nothing did.
        confidence: Why they are believed; None where they were lost. The least of all columns'.
        reason: Why they were lost, or got nulls.
    """

    first_row: int | None
    num_rows: int | None
    row_group: int | None
    kept: bool
    nulled: tuple[str, ...] = ()
    method: str | None = None
    confidence: Confidence | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerSource:
    """One of the inputs.

    Attributes:
        url: Its name.
        size: Its bytes.
        etag: Its version, where the store has one.
    """

    url: str
    size: int
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """What became of everything.

    Attributes:
        sources: The inputs.
        columns: Paths of the leaf columns, in the order of the schema.
        row_groups: Rows of each row group known of, by ordinal; None where the bytes do not tell.
        regions: Every byte of every input once, in order.
        rows: Every row known of once, in order.
        checkpoints: Offset, and rows before it, of each checkpoint found.
    """

    sources: tuple[LedgerSource, ...]
    columns: tuple[str, ...]
    row_groups: tuple[int | None, ...]
    regions: tuple[Region, ...]
    rows: tuple[RowsFate, ...]
    checkpoints: tuple[tuple[int, int], ...] = ()

    def num_bytes(self, use: ByteUse, source: int = 0) -> int:
        """Bytes of an input that are used so."""
        return sum(
            region.end - region.start
            for region in self.regions
            if region.use is use and region.source == source
        )

    def to_json(self) -> dict[str, Any]:
        """As in docs/json.md."""
        return {}
