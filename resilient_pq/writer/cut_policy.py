"""When row groups and checkpoints are due: pure functions of counts.

A checkpoint holds the metadata of all row groups so far, so that checkpoints every Nth row group cost the
square of the row groups. `checkpoint_due` therefore keeps them within a share of the bytes written; between
them the row-group records carry what a recovery needs.
"""

from __future__ import annotations

from dataclasses import replace

from resilient_pq.lazy_dataclass import dataclass

#: As many as all readers take: parquet-rs before version 59 counts row groups in an i16.
MAX_ROW_GROUPS = 32_767
#: Footers beyond about 100 MB are refused by pyarrow and parquet-java.
MAX_FOOTER_BYTES = 64 * 1024 * 1024
#: Where there are automatic checkpoints, how long a complete row group waits for one, and that for being stored.
PATIENCE_SECONDS = 60.0
#: A row group is closed early for a checkpoint when it has this share of its bytes: one eighth.
MIN_SHARE = 8


@dataclass(frozen=True, slots=True)
class WriteProgress:
    """What has been written so far."""

    row_groups_since: int  # row groups closed since the last checkpoint
    bytes_written: int  # all bytes of the file so far
    checkpoint_bytes: int  # bytes of the checkpoints among them
    next_checkpoint_bytes: int  # bytes that a checkpoint would take now
    bytes_since: int = 0  # bytes of the file since the end of the last checkpoint
    seconds_since: float = 0.0  # seconds since the last checkpoint, or since the first row
    open_bytes: int = 0  # bytes in memory of the rows that are in no row group yet


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often checkpoints are wanted; each wish stands by itself, and None wishes for none."""

    every: int | None = None  # row groups between checkpoints; `PATIENCE_SECONDS` go with it
    num_bytes: int | None = None  # bytes of the file between checkpoints
    overhead: float = 0.02  # share of the bytes written that checkpoints may take together, whatever is wished for


def checkpoint_due(progress: WriteProgress, cadence: Cadence) -> bool:
    """Whether an automatic checkpoint should be written now."""
    counted = cadence.every is not None and (
        progress.row_groups_since >= cadence.every or progress.seconds_since >= PATIENCE_SECONDS
    )
    wanted = progress.row_groups_since > 0 and (counted or enough_bytes(progress, cadence))
    return wanted and _affordable(progress, cadence)


def _affordable(progress: WriteProgress, cadence: Cadence) -> bool:
    spent = progress.checkpoint_bytes + progress.next_checkpoint_bytes
    return spent <= cadence.overhead * progress.bytes_written


def enough_bytes(progress: WriteProgress, cadence: Cadence) -> bool:
    """Whether a checkpoint is wanted by the bytes that have been written since the last one."""
    return cadence.num_bytes is not None and progress.bytes_since >= cadence.num_bytes


def row_group_due(progress: WriteProgress, cadence: Cadence, *, row_group_bytes: int) -> bool:
    """Whether the open row group should be closed before it is full, for the sake of a checkpoint.

    Only when it has an eighth of its size: many small row groups would cost every reader more than they protect.
    """
    large_enough = progress.open_bytes >= max(1, row_group_bytes // MIN_SHARE)
    # What the row group will take in the file is not known; no more than it takes in memory, most of the time.
    written = replace(progress, bytes_written=progress.bytes_written + progress.open_bytes)
    return large_enough and enough_bytes(progress, cadence) and _affordable(written, cadence)


def commit_due(cost: int, resent: int, bytes_written: int, overhead: float, *, seconds_since: float = 0.0) -> bool:
    """Whether a checkpoint that nobody asked for is worth sending bytes twice."""
    return resent + cost <= overhead * bytes_written or seconds_since >= PATIENCE_SECONDS


def rows_that_fit(
    num_rows: int, num_bytes: int, *, open_rows: int, open_bytes: int, max_rows: int | None, max_bytes: int
) -> int:
    """How many rows of a batch go into the open row group; at least one when the group is empty."""
    fit = num_rows
    if max_rows is not None:
        fit = min(fit, max_rows - open_rows)
    room = max(max_bytes - open_bytes, 0)
    if num_bytes > room:
        fit = min(fit, room * num_rows // num_bytes)
    return max(fit, 0 if open_rows else 1)


def file_full(num_row_groups: int, footer_bytes: int, *, another_follows: bool) -> bool:
    """Whether the file should be completed before another row group is begun.

    A file that another one follows never has more row groups than all readers take.
    """
    return footer_bytes >= MAX_FOOTER_BYTES or (another_follows and num_row_groups >= MAX_ROW_GROUPS)


def soon_full(num_row_groups: int, footer_bytes: int) -> bool:
    """Whether a quarter of the row groups that all readers take is there: early enough to do something."""
    return file_full(4 * num_row_groups, 4 * footer_bytes, another_follows=True)
