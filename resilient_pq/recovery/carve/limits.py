"""What carving believes and what it may cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from resilient_pq.errors import FormatError
from resilient_pq.format.page_search import SearchLimits

MiB = 1 << 20


@dataclass(frozen=True, slots=True)
class CarveLimits:
    """Bounds of carving; a file that goes beyond one costs a `FormatError`.

    Attributes:
        search: Of the search for pages, and of what one page may say of itself.
        probed_bytes: Bytes of pages, before compression, that are decompressed to see what they hold. Beyond it only
            dictionary pages, those of nested columns and the first page of each stretch are looked into.
        max_footer: Bytes of a footer found on the way that are read into memory at most.
        max_steps: Pages looked at, in all ways tried of laying pages out in columns.
        max_columns: Columns that are invented at most, where there is no schema.
    """

    search: SearchLimits = field(default_factory=SearchLimits)
    probed_bytes: int = 1024 * MiB
    max_footer: int = 64 * MiB
    max_steps: int = 20_000_000
    max_columns: int = 4096


class Steps:
    """A count of steps that ends in an error."""

    def __init__(self, limit: int) -> None:
        """Allow so many."""
        self._left = limit

    def take(self, count: int = 1) -> None:
        """Take some.

        Raises:
            FormatError: There are none left.
        """
        self._left -= count
        if self._left < 0:
            raise FormatError(
                "carving was given up: there are too many ways to lay these pages out in columns",
                hint="give the schema of a file of the same make: --schema-from SIBLING",
            )
