"""What the ladder tells of a damaged file: its schema, its row groups, what is lost for good. An async shell.

Each rung is a piece of its own, and all end in `KnownRowGroup`s. Which of them are needed, the file decides: see
`understand`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from resilient_pq.errors import FormatError
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery.choose import (
    Candidates,
    candidates_of_contents,
    candidates_of_survey,
    known_row_groups,
)
from resilient_pq.recovery.examination import Examiner, Means, RowGroupFound
from resilient_pq.recovery.findings import Progress, broken_footer, examine_metadata, examine_row_groups
from resilient_pq.recovery.known import KnownRowGroup
from resilient_pq.recovery.report import Finding, LostRegion
from resilient_pq.recovery.source import Source


@dataclass(frozen=True, slots=True)
class Understanding:
    """What is known of a file before its data are looked at.

    Attributes:
        source: The file, its parts in their places.
        error: Why its footer cannot be used; None where it can.
        contents: Its schema, and the row groups that footers and records name; None when not even the schema is known.
        candidates: The same, with what lies around them; None where neither footer nor record names any.
        row_groups: All row groups, in order, whatever rung told of them.
        lost: What is lost whatever is kept of these.
        findings: What was found on the way.
    """

    source: Source
    error: FormatError | None
    contents: Contents | None
    candidates: Candidates | None = None
    row_groups: tuple[KnownRowGroup, ...] = ()
    lost: tuple[LostRegion, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def positions(self) -> dict[int, int]:
        """For the ordinal of each row group that footers and records name, its position in `contents`."""
        named = () if self.candidates is None else self.candidates.row_groups
        return {candidate.ordinal: position for position, candidate in enumerate(named)}


async def understand(source: Source) -> Understanding:
    """Climb the ladder as far as it is needed.

    Raises:
        UnsupportedError: The file is whole, but this version cannot read it.
        StoreError: The store could not give the bytes.
    """
    contents = await source.contents()
    if isinstance(contents, Contents):
        if contents.data_files:
            return Understanding(source, None, contents)
        return _named(source, None, candidates_of_contents(contents))
    candidates = candidates_of_survey(await source.survey())
    findings = tuple(broken_footer(source, contents, candidates))
    if candidates is None:
        return Understanding(source, contents, None, findings=findings)
    return replace(_named(source, contents, candidates), findings=findings)


def _named(source: Source, error: FormatError | None, candidates: Candidates) -> Understanding:
    row_groups = tuple(known_row_groups(candidates))
    return Understanding(source, error, candidates.contents, candidates, row_groups, candidates.lost)


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found in the data of a file.

    Attributes:
        findings: What is not as it should be.
        found: For each row group that is not whole in its place, by its ordinal, what is left of it.
        copies_damaged: Whether second copies or indexes are damaged, of which nothing is lost.
    """

    findings: tuple[Finding, ...]
    found: Mapping[int, RowGroupFound]
    copies_damaged: bool


async def examine(known: Understanding, means: Means, progress: Progress | None) -> Examined:
    """Read the data of all row groups, and look closely at those that are not whole."""
    data: list[Finding] = []
    copies: list[Finding] = []
    positions = known.positions
    if known.candidates is not None:
        named = known.candidates.contents
        data = [finding async for finding in examine_row_groups(known.source, named, progress)]
        copies = [finding async for finding in examine_metadata(known.source, named)]
    bad = _damaged(data)
    examiner = Examiner(known.source, means)
    found = {}
    for row_group in known.row_groups:
        position = positions.get(row_group.ordinal)
        if position is None or position in bad:
            found[row_group.ordinal] = await examiner.row_group(row_group)
    return Examined((*data, *copies), found, bool(copies))


def _damaged(findings: Iterable[Finding]) -> set[int]:
    """The positions of row groups with findings that cost rows."""
    return {
        finding.where.row_group
        for finding in findings
        if finding.costs_rows and finding.where.row_group is not None
    }
