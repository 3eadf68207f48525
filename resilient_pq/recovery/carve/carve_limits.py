"""The limits of carving."""

from __future__ import annotations

from dataclasses import field

from resilient_pq.damage.page_header_checks import SearchLimits
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.evidence.search_budget import SearchBudget
from resilient_pq.units import MiB


@dataclass(frozen=True, slots=True)
class CarveLimits:
    """The limits of carving; a search for pages beyond them is a `FormatError`, more steps are a finding."""

    # Of the search for pages, and of what one page may say of itself
    search: SearchLimits = field(default_factory=SearchLimits)
    # Bytes of pages, before compression, that are decompressed to see what they hold. Beyond it only dictionary pages,
    # those of nested columns and the first page of each stretch are looked into
    probed_bytes: int = 1024 * MiB
    max_footer: int = 64 * MiB  # Bytes of a footer found on the way that are read into memory at most
    # Pages looked at, in all ways tried of laying pages out in columns, however few bytes there are
    free_steps: int = 250_000
    steps_per_byte: int = 2  # The same for each byte besides
    max_steps: int = 20_000_000  # The same at most
    max_columns: int = 4096  # Columns that are invented at most, where there is no schema

    def budget(self, size: int) -> SearchBudget:
        """The budget of steps for pages in so many bytes."""
        return SearchBudget.of(size, free=self.free_steps, per_byte=self.steps_per_byte, most=self.max_steps)
