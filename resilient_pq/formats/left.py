"""What of a window of rows is kept, and what its losses cost. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from resilient_pq.errors import TornFileError, Where
from resilient_pq.format.open_chunk import concatenate
from resilient_pq.format.row_selection import null_rows
from resilient_pq.format.schema import Selection
from resilient_pq.format.values import LeafData
from resilient_pq.formats.trevni.column_reader import Loss
from resilient_pq.formats.trevni.rows import WindowRows
from resilient_pq.reader.lost import Damage, LostRegion
from resilient_pq.reader.on_damage import OnDamage, RowChoice, choose_rows, rows_kept
from resilient_pq.reader.surviving import Run


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows that are kept of a window.

    Attributes:
        num_rows: How many.
        leaves: By the ordinal of each leaf, its rows.
    """

    num_rows: int
    leaves: Mapping[int, LeafData]


class Losses:
    """What losses cost, counted window by window: every row once, with the first column that lost it."""

    def __init__(self, url: str) -> None:
        """Count nothing yet."""
        self._url = url
        self._rows: dict[Loss, int] = {}
        self._nulled: dict[Loss, int] = {}

    def count(self, rows: WindowRows, choice: RowChoice) -> None:
        """Count what a window lost."""
        dropped = rows.num_rows - choice.num_rows
        for ordinal, loss in sorted(rows.losses.items()):
            self._rows[loss] = self._rows.get(loss, 0) + dropped
            dropped = 0
            nulled = choice.nulled.get(ordinal)
            if nulled is not None:
                self._nulled[loss] = self._nulled.get(loss, 0) + int(np.count_nonzero(nulled))

    @property
    def num_rows(self) -> int:
        """Rows that were left out."""
        return sum(self._rows.values())

    @property
    def num_nulled(self) -> int:
        """Values that became null."""
        return sum(self._nulled.values())

    def regions(self, losses: Sequence[Loss]) -> tuple[LostRegion, ...]:
        """The bytes that were lost, in their order, and what that cost."""
        found = [
            LostRegion(
                loss.start,
                loss.end,
                self._rows.get(loss, 0),
                Damage.TORN if isinstance(loss.error, TornFileError) else Damage.CORRUPT,
                loss.error.message,
                Where(key=self._url, column=loss.column, page=loss.block, offset=loss.start),
                self._nulled.get(loss, 0),
            )
            for loss in losses
        ]
        return tuple(sorted(found, key=lambda region: (region.start, region.end)))


def kept_rows(
    selected: Sequence[Selection], rows: WindowRows, on_damage: OnDamage, losses: Losses, *, keep_empty: bool
) -> KeptRows | None:
    """The rows of a window that are kept.

    Args:
        selected: The columns wanted.
        rows: The window; a leaf is there in all of its rows, or in none.
        on_damage: DROP or NULL.
        losses: Counts what is lost.
        keep_empty: As of `choose_rows`.

    Returns:
        The rows; None where there are none.
    """
    if not rows.losses:
        return KeptRows(rows.num_rows, {at: data for at, data in rows.leaves.items() if data is not None})
    nothing = np.zeros(rows.num_rows, np.bool_)
    present = dict.fromkeys(rows.losses, nothing)
    choice = choose_rows(selected, present, rows.num_rows, on_damage, keep_empty=keep_empty)
    losses.count(rows, choice)
    if not choice.num_rows:
        return None
    kept = {}
    for leaf in (leaf for column in selected for leaf in column.leaves):
        data = rows.leaves[leaf.ordinal]
        pieces = rows_kept(leaf, () if data is None else (Run(0, data),), choice)
        kept[leaf.ordinal] = concatenate(leaf, pieces or [null_rows(leaf, 0)])
    return KeptRows(choice.num_rows, kept)
