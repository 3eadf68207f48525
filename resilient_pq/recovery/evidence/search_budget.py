"""What a search may cost: units of work in proportion to the bytes searched. Pure."""

from __future__ import annotations

from resilient_pq.errors import FormatError, Where
from resilient_pq.recovery.report import Damage, Finding


class SearchBudget:
    """Units of work that a search may do; what it did not get to is told, and never guessed.

    Attributes:
        limit: Units in all.
        spent: Units taken so far.
        ended: Whether more were asked for than there are.
    """

    def __init__(self, limit: int) -> None:
        """Allow so many."""
        self.limit = limit
        self.spent = 0
        self.ended = False

    @classmethod
    def of(cls, size: int, *, free: int, per_byte: float, most: int) -> SearchBudget:
        """A budget in proportion to the bytes searched."""
        return cls(min(free + int(per_byte * size), most))

    def take(self, count: int = 1) -> None:
        """Take some."""
        if not self.allows(count):
            raise FormatError(
                "the search was given up: it would cost too much",
                hint="give the schema of a file of the same make: --schema-from FILE",
            )

    def allows(self, count: int = 1) -> bool:
        """Take some, if there are so many left."""
        if self.spent + count > self.limit:
            self.ended = True
            return False
        self.spent += count
        return True

    def finding(self, what: str, start: int, end: int) -> Finding:
        """What a user has to know of a search that ended too early."""
        message = f"not searched further since it would cost too much: {what}"
        return Finding(Damage.UNVERIFIED, message, Where(offset=start), start, end)
