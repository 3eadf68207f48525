"""What the ladder tells of a damaged file: its schema, its row groups, what is lost for good. An async shell.

`ladder` says which rung comes next; each is a piece of its own, and all end in `KnownRowGroup`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from resilient_pq.errors import FormatError, NotParquetError, TornFileError, Where
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery import chunk_records
from resilient_pq.recovery.choose import (
    Candidates,
    candidates_of_contents,
    candidates_of_survey,
    known_row_groups,
    losses_between,
)
from resilient_pq.recovery.examination import Examiner, Means, RowGroupFound
from resilient_pq.recovery.findings import Progress, examine_metadata, examine_row_groups
from resilient_pq.recovery.known import KnownRowGroup
from resilient_pq.recovery.ladder import Facts, Rung, next_rung
from resilient_pq.recovery.report import Damage, Finding, LostRegion
from resilient_pq.recovery.source import Source
from resilient_pq.recovery.survey import Survey
from resilient_pq.recovery.torn_footer import FoundFooter, find_footer


@dataclass(slots=True)
class Understanding:
    """What is known of a file before its data are looked at.

    Attributes:
        source: The file, its parts in their places.
        climbed: The rungs that were tried, in order.
        error: Why the footer at its end cannot be used; None where it can.
        contents: Its schema, and the row groups that footers and records name; None when not even the schema is known.
        candidates: The same, with what lies around them; None where neither footer nor record names any.
        row_groups: All row groups, in order, whatever rung told of them.
        lost: What is lost whatever is kept of these.
        findings: What was found on the way.
        survey: What its records told; None where nobody asked.
        found: A footer that is not at the end; None where nobody looked for it, or there is none.
        moved: Whether `source` reads through a view, since parts of the file lie elsewhere than they were written.
    """

    source: Source
    climbed: list[Rung] = field(default_factory=list)
    error: FormatError | None = None
    contents: Contents | None = None
    candidates: Candidates | None = None
    row_groups: tuple[KnownRowGroup, ...] = ()
    lost: tuple[LostRegion, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    survey: Survey | None = None
    found: FoundFooter | None = None
    moved: bool = False

    @property
    def positions(self) -> dict[int, int]:
        """For the ordinal of each row group that footers and records name, its position in `contents`."""
        named = () if self.candidates is None else self.candidates.row_groups
        return {candidate.ordinal: position for position, candidate in enumerate(named)}

    @property
    def file_id(self) -> bytes | None:
        """The id that its records have; None of files of others."""
        if self.survey is not None:
            return self.survey.file_id
        record = None if self.contents is None else self.contents.footer.record
        return None if record is None else record.file_id

    @property
    def facts(self) -> Facts:
        """What the choice of the next rung depends on."""
        survey, found = self.survey, self.found
        return Facts(
            climbed=frozenset(self.climbed),
            footer_whole=self.contents is not None and self.error is None,
            records_found=survey is not None and survey.file_id is not None,
            displaced=survey is not None and survey.displaced,
            schema_known=self.contents is not None,
            row_groups_missing=bool(self.lost) or bool(losses_between(self.row_groups)),
            metadata_found=found is not None and found.complete,
        )

    def take(self, candidates: Candidates) -> None:
        """Take what a footer, or records, name."""
        self.candidates, self.contents = candidates, candidates.contents
        self.row_groups = tuple(known_row_groups(candidates))
        self.lost = candidates.lost


async def understand(source: Source) -> Understanding:
    """Climb the ladder as far as it is needed.

    Raises:
        UnsupportedError: The file is whole, but this version cannot read it.
        StoreError: The store could not give the bytes.
    """
    known = Understanding(source)
    while (rung := next_rung(known.facts)) is not None:
        known.climbed.append(rung)
        match rung:
            case Rung.FOOTER:
                await _footer(known)
            case Rung.RECORDS:
                await _records(known)
            case Rung.PLACEMENT:
                pass
            case Rung.CHUNK_RECORDS:
                await _chunk_records(known)
            case Rung.TRUE_END:
                await _true_end(known)
            case Rung.CARVING:
                pass
    if known.error is not None:
        known.findings[:0] = _broken_footer(known)
    return known


async def _footer(known: Understanding) -> None:
    contents = await known.source.contents()
    if isinstance(contents, FormatError):
        known.error = contents
    elif contents.data_files:
        known.contents = contents  # a summary: its row groups lie in other files
    else:
        known.take(candidates_of_contents(contents))


async def _records(known: Understanding) -> None:
    known.survey = await known.source.survey()
    candidates = candidates_of_survey(known.survey)
    if candidates is not None:
        known.take(candidates)


async def _chunk_records(known: Understanding) -> None:
    assert known.survey is not None and known.contents is not None
    named = {row_group.ordinal for row_group in known.row_groups}
    search = chunk_records.in_flight(
        known.source.info.size, known.contents.schema, known.survey.headers, named
    )
    found = await known.source.drive(search)
    row_groups = sorted((*known.row_groups, *found), key=lambda row_group: row_group.ordinal)
    known.row_groups = tuple(row_groups)


async def _true_end(known: Understanding) -> None:
    found = await known.source.drive(find_footer(known.source.info.size))
    known.found = found
    if found is not None:
        known.findings += found.findings
        known.take(candidates_of_contents(found.contents))


def _broken_footer(known: Understanding) -> list[Finding]:
    """The findings for a file whose footer cannot be used: what is lost, and all behind the last whole record."""
    error, candidates, size = known.error, known.candidates, known.source.info.size
    assert error is not None
    kind = Damage.CORRUPT
    if isinstance(error, TornFileError):
        kind = Damage.TORN
    elif isinstance(error, NotParquetError) and candidates is None:
        kind = Damage.FOREIGN
    start = candidates.last.end if candidates is not None and candidates.last is not None else 0
    findings = [Finding(kind, error.message, error.where, start, size)]
    for region in losses_between(known.row_groups):
        findings.append(Finding(region.damage, region.reason, region.where, region.start, region.end))
    for gap in () if candidates is None else candidates.unaccounted:
        message = "no whole record stands here; it was a second copy, nothing is lost with it"
        where = Where(offset=gap.start)
        findings.append(Finding(Damage.CORRUPT, message, where, gap.start, gap.end, costs_rows=False))
    return findings


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found in the data of a file.

    Attributes:
        findings: What is not as it should be.
        found: For each row group that is not whole in its place, by its ordinal, what is left of it.
        lost: What is lost whatever is kept of the row groups.
        copies_damaged_at: Where second copies and indexes are damaged, of which nothing is lost.
    """

    findings: tuple[Finding, ...]
    found: Mapping[int, RowGroupFound]
    lost: tuple[LostRegion, ...]
    copies_damaged_at: tuple[int, ...]


async def examine(
    known: Understanding, means: Means, progress: Progress | None, *, unread: bool = False
) -> Examined:
    """Read the data of all row groups, and look closely at those that are not whole.

    Args:
        known: What is known of the file.
        means: Where whole bytes are looked for.
        progress: Called now and then with the bytes examined and the bytes there are.
        unread: Whether the row groups that footers and records name are left alone, and believed to be whole.
    """
    data: list[Finding] = []
    copies: list[Finding] = []
    positions = known.positions
    if known.candidates is not None and not unread:
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
    between = losses_between(
        [
            replace(row_group, num_rows=found[row_group.ordinal].num_rows)
            if row_group.ordinal in found
            else row_group
            for row_group in known.row_groups
        ]
    )
    behind = [region for region in known.lost if not _is_explained(region, found)]
    damaged_at = tuple(finding.start or 0 for finding in copies)
    return Examined((*data, *copies), found, (*between, *behind), damaged_at)


def _is_explained(region: LostRegion, found: Mapping[int, RowGroupFound]) -> bool:
    """Whether what seemed lost behind the last record is a row group of which only the record is missing."""
    first = region.where.row_group
    behind = [] if first is None else [group for ordinal, group in found.items() if ordinal >= first]
    if not behind or any(group.known.num_rows is None for group in behind):
        return False
    if region.num_rows is not None:
        return region.num_rows == sum(group.num_rows for group in behind)
    return all(group.is_whole for group in behind) and region.end <= max(group.known.end for group in behind)


def _damaged(findings: Iterable[Finding]) -> set[int]:
    """The positions of row groups with findings that cost rows."""
    return {
        finding.where.row_group
        for finding in findings
        if finding.costs_rows and finding.where.row_group is not None
    }
