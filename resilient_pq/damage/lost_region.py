"""The lost regions of a damaged file, for readers that skip them and for recoveries. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

import numpy as np

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.chunk_salvage import PageFate
from resilient_pq.damage.on_damage import Mask, RowChoice
from resilient_pq.errors import Where
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.lazy_dataclass import dataclass


class Damage(StrEnum):
    """Kinds of damage."""

    TORN = "torn"
    """Cut short."""
    CORRUPT = "corrupt"
    """Bytes changed."""
    MISSING = "missing"
    """A part is not there."""
    UNFINISHED = "unfinished"
    """The writer did not get to the end."""
    UNVERIFIED = "unverified"
    """Nothing vouches for the bytes."""
    FOREIGN = "foreign"
    """No Parquet file, or one that cannot be read."""


@dataclass(frozen=True, slots=True)
class LostRegion:
    """Bytes whose rows, or values, are not in what was read, or not in the output of a recovery.

    Attributes:
        start: Absolute offset of the first byte.
        end: Offset after the last byte.
        num_rows: Rows lost with them; None where the bytes do not tell. A row that several regions cost counts with
            the first of them.
        damage: Why, in one word.
        reason: Why, in a sentence.
        where: The place, as far as it is known.
        num_nulled: Rows that were kept with a null in place of a value that was lost here; they count once, too,
            in each column.
    """

    start: int
    end: int
    num_rows: int | None
    damage: Damage
    reason: str
    where: Where = field(default_factory=Where)
    num_nulled: int = 0

    def to_json(self) -> dict[str, Any]:
        """As in docs/json.md."""
        return {
            "start": self.start,
            "end": self.end,
            "rows": self.num_rows,
            "rows_nulled": self.num_nulled,
            "damage": str(self.damage),
            "reason": self.reason,
            "file": self.where.key,
            **place_to_json(self.where),
        }


def place_to_json(where: Where) -> dict[str, Any]:
    """A place within a file, as in docs/json.md."""
    return {"row_group": where.row_group, "column": where.column, "page": where.page, "offset": where.offset}


@dataclass(frozen=True, slots=True)
class RemainingRowGroup:
    """The pages and rows that remain of a row group."""

    ordinal: int
    range: ByteRange
    # By the ordinal of each leaf of which something was found, the fates of its pages: those that are lost have a
    # reason. None of a chunk that is whole
    pages: Mapping[int, Sequence[PageFate]]
    present: Mapping[int, Mask]  # By the ordinal of each leaf that lost rows, whether each row's value is left


def lost_regions(leaves: Sequence[Leaf], left: RemainingRowGroup, choice: RowChoice) -> Iterator[LostRegion]:
    """The lost pages that cost rows or values; a row that several of them cost counts once, with the first."""
    missing = ~choice.keep
    for leaf in leaves:
        where = Where(row_group=left.ordinal, column=leaf.column_path)
        nulled = choice.nulled.get(leaf.ordinal)
        pages = left.pages.get(leaf.ordinal)
        if pages is None:
            rows, missing = int(np.count_nonzero(missing)), np.zeros_like(missing)
            reason = "nothing of the column was found"
            start, end = left.range.start, left.range.end
            yield LostRegion(start, end, rows, Damage.MISSING, reason, where, _count(nulled))
            continue
        present = left.present.get(leaf.ordinal)
        untold = None if nulled is None or present is None else nulled & ~present
        for ordinal, fate in enumerate(pages):
            if fate.reason is None:
                continue
            rows = _take(missing, fate, present)
            nulls = 0 if untold is None else _take(untold, fate, present)
            place = where.merged_with(Where(page=ordinal, offset=fate.offset))
            yield LostRegion(fate.offset, fate.end, rows, Damage.CORRUPT, fate.reason, place, nulls)
        rows = 0 if present is None else int(np.count_nonzero(missing & ~present))
        if rows or _count(untold):
            # Rows that end in a page that is lost, and those of pages of which there is no trace.
            missing &= True if present is None else present
            reason = "they lie, or end, in pages that were not found"
            start, end = left.range.start, left.range.end
            yield LostRegion(start, end, rows, Damage.MISSING, reason, where, _count(untold))


def _count(rows: Mask | None) -> int:
    return 0 if rows is None else int(np.count_nonzero(rows))


def _take(rows: Mask, fate: PageFate, present: Mask | None) -> int:
    """How many of some rows a lost page holds; they are taken out of `rows`."""
    if fate.is_dictionary or fate.first_row is None or fate.num_rows is None:
        taken = rows if present is None else rows & ~present
        count = int(np.count_nonzero(taken))
        rows &= False if present is None else present
        return count
    among = rows[max(fate.first_row, 0) : max(fate.first_row + fate.num_rows, 0)]
    count = int(np.count_nonzero(among))
    among[:] = False
    return count
