"""Several copies of one file, of which each page is taken from whichever has it whole. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from resilient_pq.errors import RecoveryError, Where
from resilient_pq.reader.surviving import Mending
from resilient_pq.recovery.choose import data_starts
from resilient_pq.recovery.known import KnownRowGroup
from resilient_pq.recovery.source import Source
from resilient_pq.recovery.understanding import Understanding


def merged(copies: Sequence[Understanding]) -> tuple[Understanding, tuple[tuple[Source, Mending], ...]]:
    """What all copies together tell of the file, and where else its pages can be read.

    The copy that knows most comes first; row groups that only another knows of are added.

    Raises:
        RecoveryError: Two of them are not of the same file.
    """
    if len(copies) == 1:
        return copies[0], ()
    best = max(copies, key=_worth)
    others = [copy for copy in copies if copy is not best]
    for other in others:
        if not _same_file(best, other):
            raise RecoveryError(
                f"{other.source.url} is no copy of {best.source.url}: nothing shows that they are one file",
                where=Where(key=other.source.url),
                hint="recover each by itself",
            )
    known = {row_group.ordinal for row_group in best.row_groups}
    added: dict[int, KnownRowGroup] = {}
    for row_group in (row_group for other in others for row_group in other.row_groups):
        if row_group.ordinal not in known:
            added.setdefault(row_group.ordinal, row_group)
    if added:
        rows = (*best.row_groups, *added.values())
        best.row_groups = tuple(sorted(rows, key=lambda row_group: row_group.ordinal))
    return best, tuple((other.source, Mending.OTHER_COPY) for other in others)


def _worth(copy: Understanding) -> tuple[bool, bool, int, int]:
    """A footer that can be used counts most, then what is known, then bytes."""
    return (
        copy.contents is not None and copy.error is None,
        copy.contents is not None,
        len(copy.row_groups),
        copy.source.info.size,
    )


def _same_file(one: Understanding, other: Understanding) -> bool:
    """Whether two objects are copies of one file: by the id in its records, or by where its row groups lie.

    Of a copy in which neither is left nothing is taken that a checksum does not vouch for.
    """
    if one.file_id is not None and other.file_id is not None:
        return one.file_id == other.file_id
    if one.contents is not None and other.contents is not None:
        if str(one.contents.schema) != str(other.contents.schema):
            return False
        first, second = _starts(one.row_groups), _starts(other.row_groups)
        return all(second[ordinal] == start for ordinal, start in first.items() if ordinal in second)
    return one.contents is not None or other.contents is not None


def _starts(row_groups: Iterable[KnownRowGroup]) -> dict[int, tuple[int, ...]]:
    return {row_group.ordinal: data_starts(row_group) for row_group in row_groups}
