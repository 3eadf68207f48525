"""What is known of the pages of a chunk besides what stands in the chunk: copies, indexes, what carving found. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownPage:
    """A page, as something outside of it describes it.

    Attributes:
        offset: Absolute offset of its header.
        size: Bytes of header and body together.
        header: Its header's bytes as written, from a copy that a checksum vouches for; None where there is no copy.
        body: Its body as stored, from such a copy; None where there is none.
        first_row: The row of the row group that it begins with; None for a dictionary page, or where it is not known.
    """

    offset: int
    size: int
    header: bytes | None = None
    body: bytes | None = None
    first_row: int | None = None

    @property
    def end(self) -> int:
        """Absolute offset just after the page."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class KnownPages:
    """The pages of a chunk, in order.

    Attributes:
        pages: They do not overlap.
        complete: Whether these are all pages of the chunk; otherwise others may lie between and behind them.
    """

    pages: tuple[KnownPage, ...]
    complete: bool
