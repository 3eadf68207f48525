"""When row groups and checkpoints are due: pure functions of counts.

A checkpoint holds the metadata of all row groups so far, so that checkpoints every Nth row group cost the
square of the row groups. `checkpoint_due` therefore keeps them within a share of the bytes written; between
them the row-group records carry what a recovery needs.
"""

from __future__ import annotations

from dataclasses import dataclass

#: RowGroup.ordinal is an i16, and some readers count row groups in one.
MAX_ROW_GROUPS = 32_767
#: Footers beyond about 100 MB are refused by pyarrow and parquet-java.
MAX_FOOTER_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Progress:
    """What has been written so far.

    Attributes:
        row_groups_since: Row groups closed since the last checkpoint.
        bytes_written: All bytes of the file so far.
        checkpoint_bytes: Bytes of the checkpoints among them.
        next_checkpoint_bytes: Bytes that a checkpoint would take now.
    """

    row_groups_since: int
    bytes_written: int
    checkpoint_bytes: int
    next_checkpoint_bytes: int


def checkpoint_due(progress: Progress, *, every: int | None, overhead: float) -> bool:
    """Whether an automatic checkpoint should be written now.

    Args:
        progress: What has been written so far.
        every: Row groups between checkpoints, at least; None for no automatic checkpoints.
        overhead: Share of the bytes written that checkpoints may take together.
    """
    if every is None or progress.row_groups_since < every:
        return False
    spent = progress.checkpoint_bytes + progress.next_checkpoint_bytes
    return spent <= overhead * progress.bytes_written


def rows_that_fit(
    num_rows: int, num_bytes: int, *, open_rows: int, open_bytes: int, max_rows: int | None, max_bytes: int
) -> int:
    """How many rows of a batch go into the open row group; at least one when the group is empty.

    Args:
        num_rows: Rows of the batch that are left.
        num_bytes: Their bytes in memory.
        open_rows: Rows in the open row group.
        open_bytes: Their bytes in memory.
        max_rows: Rows that close a row group; None for no such limit.
        max_bytes: Bytes that close a row group.
    """
    fit = num_rows
    if max_rows is not None:
        fit = min(fit, max_rows - open_rows)
    room = max(max_bytes - open_bytes, 0)
    if num_bytes > room:
        fit = min(fit, room * num_rows // num_bytes)
    return max(fit, 0 if open_rows else 1)


def file_full(num_row_groups: int, footer_bytes: int) -> bool:
    """Whether the file should be completed before another row group is begun."""
    return num_row_groups >= MAX_ROW_GROUPS or footer_bytes >= MAX_FOOTER_BYTES
