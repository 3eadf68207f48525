"""When a file of a data set is full: a pure function of counts."""

from __future__ import annotations

from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.writer.option_checks import seconds, whole_number


@dataclass(frozen=True, slots=True)
class Filled:
    """What is in a file so far."""

    num_rows: int  # rows taken
    num_bytes: int  # bytes of the file
    open_bytes: int  # bytes in memory of the rows that are in no row group yet
    #: Bytes of a file for each byte that its rows take in memory, as far as is known; above 0, and at most 1.
    share: float

    @property
    def expected_bytes(self) -> float:
        """Bytes of the file when it is completed now, about."""
        return self.num_bytes + self.open_bytes * self.share


@dataclass(frozen=True, slots=True)
class Roll:
    """When a file is full; None for no such limit."""

    rows: int | None = None  # rows of a file, exactly
    num_bytes: int | None = None  # bytes of a file, about
    seconds: float | None = None  # seconds after its first row was written

    def __post_init__(self) -> None:
        for name, value in (("roll_rows", self.rows), ("roll_bytes", self.num_bytes)):
            if value is not None:
                whole_number(name, value)
        if self.seconds is not None:
            seconds("roll_seconds", self.seconds)

    def rows_that_fit(self, num_rows: int, num_bytes: int, filled: Filled) -> int:
        """How many rows of a batch go into a file that is not full; at least one."""
        fit = num_rows
        if self.rows is not None:
            fit = min(fit, self.rows - filled.num_rows)
        if self.num_bytes is not None:
            room = max(0.0, self.num_bytes - filled.expected_bytes)
            if num_bytes * filled.share > room:
                fit = min(fit, int(room * num_rows / (num_bytes * filled.share)))
        return max(fit, 1)

    def full(self, filled: Filled) -> bool:
        """Whether a file is complete."""
        return (self.rows is not None and filled.num_rows >= self.rows) or (
            self.num_bytes is not None and filled.expected_bytes >= self.num_bytes
        )
