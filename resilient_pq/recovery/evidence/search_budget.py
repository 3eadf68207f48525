"""Limits for the cost of a search, in proportion to the bytes searched. Pure."""

from __future__ import annotations

from resilient_pq.errors import FormatError, Where
from resilient_pq.recovery.report import Damage, Finding


class SearchBudget:
    """Units of work that a search may do: `limit` in all, `spent` so far; `ended` once more were needed."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.spent = 0
        self.ended = False

    @classmethod
    def of(cls, size: int, *, free: int, per_byte: float, most: int) -> SearchBudget:
        """So many units for each byte of a number of bytes, besides a free number, and at most so many."""
        return cls(min(free + int(per_byte * size), most))

    def take(self, count: int = 1) -> None:
        """Take some units, or raise a `FormatError` where too few are left."""
        if not self.allows(count):
            raise FormatError(
                "the search was given up: it would cost too much",
                hint="give the schema of a file of the same make: --schema-from FILE",
            )

    def allows(self, count: int = 1) -> bool:
        """Take some units if as many are left."""
        if self.spent + count > self.limit:
            self.ended = True
            return False
        self.spent += count
        return True

    def finding(self, what: str, start: int, end: int) -> Finding:
        """The finding for a search that ended too early: `what` was not searched or done in a range."""
        message = f"not searched further since it would cost too much: {what}"
        return Finding(Damage.UNVERIFIED, message, Where(offset=start), start, end)
