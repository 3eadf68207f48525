"""The choice of the next strategy, by what the strategies before it found. Pure.

Each strategy costs more than the one before it and finds less: a footer is one read from the end, records are as many
as there are row groups, and where neither is left the whole file has to be searched.
"""

from __future__ import annotations

from enum import StrEnum

from resilient_pq.lazy_dataclass import dataclass


class Strategy(StrEnum):
    """A way to find the row groups of a file."""

    FOOTER = "footer"
    """The footer at its end."""
    RECORDS = "records"
    """The newest whole checkpoint, and the records of the row groups behind it."""
    PLACEMENT = "placement"
    """The offsets in records: parts that were swapped, repeated, or left out are put back."""
    IDENTITY = "identity"
    """The format of the bytes: another one, or a Parquet file that was transferred as text."""
    CHUNK_RECORDS = "chunk-records"
    """The records of chunks, for row groups that nothing else names."""
    TRUE_END = "true-end"
    """A footer that is not at the end, or of which only a part is left."""
    CARVING = "carving"
    """The shape of page headers."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a file so far."""

    tried: frozenset[Strategy] = frozenset()  # The strategies that were tried
    footer_whole: bool = False  # Whether the footer at its end can be used
    records_found: bool = False  # Whether it has record headers of ours, wherever they say they lie
    displaced: bool = False  # Whether one of them lies elsewhere than it says, so that parts of the file were moved
    # Whether an anchor, a checkpoint or a final footer of ours is whole, or the caller gave a schema
    schema_known: bool = False
    row_groups_missing: bool = False  # Whether row groups are known to be there, or may be, that no record names
    metadata_found: bool = False  # Whether whole file metadata were found elsewhere than at the end
    not_parquet: bool = False  # Whether the bytes are of another kind, so that there is nothing to search


def next_strategy(facts: Facts) -> Strategy | None:
    """The strategy to try next; None where nothing more can be learned."""
    if Strategy.FOOTER not in facts.tried:
        return Strategy.FOOTER
    if facts.footer_whole:
        return None
    if Strategy.RECORDS not in facts.tried:
        return Strategy.RECORDS
    if facts.records_found:
        if facts.displaced and Strategy.PLACEMENT not in facts.tried:
            return Strategy.PLACEMENT
        if facts.schema_known:
            missing = facts.row_groups_missing and Strategy.CHUNK_RECORDS not in facts.tried
            return Strategy.CHUNK_RECORDS if missing else None
    elif Strategy.IDENTITY not in facts.tried:
        return Strategy.IDENTITY
    if facts.not_parquet:
        return None
    if Strategy.TRUE_END not in facts.tried:
        return Strategy.TRUE_END
    if facts.metadata_found:
        return None
    return Strategy.CARVING if Strategy.CARVING not in facts.tried else None
