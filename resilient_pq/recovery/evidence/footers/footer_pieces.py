"""Row groups that damaged file metadata still name behind the damage. Pure.

Thrift has no marks from which to continue, but each row group begins with a list of as many column chunks as the schema
has leaves. Where the metadata end well behind the last of them, their ordinals are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from resilient_pq.damage.partial_metadata import MetadataEnd, PartialMetaData, partial_metadata
from resilient_pq.errors import ThriftError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import RowGroup
from resilient_pq.format.schema_tree import Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.evidence.footers.footer_evidence import select_credible

#: Field 4 of `FileMetaData` are the row groups.
_ROW_GROUPS = 4
_SHORT_LIST = 15


@dataclass(frozen=True, slots=True)
class FooterPieces:
    """What damaged metadata still name: row groups with their ordinals, and the fields behind them if whole."""

    row_groups: tuple[tuple[int, RowGroup], ...]
    rest: PartialMetaData | None = None


def find_pieces(data: Any, schema: Schema, end: int, front: PartialMetaData) -> FooterPieces:
    """The row groups before and behind the damage in file metadata."""
    before, total = front.row_groups, front.num_row_groups
    known = tuple(enumerate(before))
    # One of them has the damage in it. Where nobody says how many there are, none behind it can be counted.
    missing = 0 if total is None else total - len(before) - 1
    if total is None or missing <= 0:
        return FooterPieces(known)
    run: list[RowGroup] = []
    run_end = 0
    for start, row_group, following in _row_groups(memoryview(data), len(schema.leaves)):
        run = [*run, row_group] if start == run_end else [row_group]
        run_end = following
    rest = partial_metadata(data, run_end, after=_ROW_GROUPS) if run else None
    # A zero would end the metadata as well; but all writers say more of the file, if only who they are.
    if rest is None or rest.ending is not MetadataEnd.WHOLE or not (rest.created_by or rest.key_value_metadata):
        return FooterPieces(known)
    run = run[-missing:]
    first = total - len(run)
    run = list(select_credible(run, schema, end, doubtful=0, after=before))
    if front.num_rows and sum(row_group.num_rows for row_group in (*before, *run)) > front.num_rows:
        return FooterPieces(known)
    return FooterPieces((*known, *((first + position, row_group) for position, row_group in enumerate(run))), rest)


def _row_groups(view: memoryview, num_leaves: int) -> Iterator[tuple[int, RowGroup, int]]:
    """Every whole row group with so many chunks, without overlaps, and where it begins and ends."""
    at = 0
    # Of a chunk the first field is its offset, field 2, or the name of its file, field 1.
    pattern = re.compile(re.escape(_first_field(num_leaves)) + rb"[\x26\x18]", re.DOTALL)
    while (match := pattern.search(view, at)) is not None:
        try:
            row_group, following = compact_protocol.decode(RowGroup, view, match.start())
        except ThriftError:
            at = match.start() + 1
            continue
        yield match.start(), row_group, following
        at = following


def _first_field(num_leaves: int) -> bytes:
    """The encoding of field 1 as a list of so many structs."""
    if num_leaves < _SHORT_LIST:
        return bytes([0x19, num_leaves << 4 | 0x0C])
    size = bytearray([0x19, _SHORT_LIST << 4 | 0x0C])
    while num_leaves >= 0x80:
        size.append(num_leaves & 0x7F | 0x80)
        num_leaves >>= 7
    size.append(num_leaves)
    return bytes(size)
