"""What another policy would keep, where the one that was asked for keeps little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.format.schema_tree import Schema
from resilient_pq.recovery.report import OtherPolicy
from resilient_pq.recovery.rewrite.retained_rows import RetainedRows

_WORTH_NAMING: Final = 10  # Another policy is named where it keeps more than so many times as many rows


def better_policy(schema: Schema, chosen: RetainedRows, with_nulls: RetainedRows) -> OtherPolicy | None:
    """`on_damage="null"`, where it keeps far more rows than were chosen."""
    if with_nulls.num_rows <= chosen.num_rows * _WORTH_NAMING:
        return None
    shares = {leaf.column_path: _share(with_nulls, leaf.ordinal) for leaf in schema.leaves}
    return OtherPolicy(str(OnDamage.NULL), with_nulls.num_rows, shares)


def _share(rows: RetainedRows, leaf: int) -> float:
    nulled: Sequence[int] = [each.rows_nulled(leaf, 0, each.num_rows) for each in rows.row_groups]
    return 1 - sum(nulled) / rows.num_rows
