"""What is known of a damaged file before its data are read: schema, row groups, and what is lost for good."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import partial

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, KeyMissingError, Where
from resilient_pq.format.resilience_records import RecordHeader
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.byte_remap import ByteRemap
from resilient_pq.recovery.evidence.footers.torn_footer import TornFooter
from resilient_pq.recovery.evidence.identify import MAY_BE_PARQUET, Identity
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup
from resilient_pq.recovery.evidence.numbering import join_halves, number_row_groups
from resilient_pq.recovery.evidence.records.record_scan import file_spans
from resilient_pq.recovery.evidence.records.survey import Survey
from resilient_pq.recovery.evidence.row_group_choice import (
    Candidates,
    FileEnd,
    candidates_of_contents,
    find_losses,
    locate_row_groups,
)
from resilient_pq.recovery.evidence.schema_source import KnownSchema, Siblings
from resilient_pq.recovery.evidence.strategy import Facts, Strategy
from resilient_pq.recovery.report import Damage, Finding, LostRegion

#: Formats whose bytes may contain pages, whatever their first and last bytes look like.
#: Strategies that are not tried again when the file is read from other bytes.
_ONCE = (Strategy.PLACEMENT, Strategy.IDENTITY, Strategy.CARVING)


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """What is known of a file; each strategy returns a new one with what it found."""

    source: DamagedObject  # The file, with moved parts put back
    tried: tuple[Strategy, ...] = ()  # The strategies that were tried, in order
    error: FormatError | None = None  # Why the footer at the end cannot be used; None where it can
    # The schema, and the row groups that footers and records name; None while the schema is not known
    contents: Contents | None = None
    # The same row groups with their surroundings; None where no footer or record names any
    candidates: Candidates | None = None
    row_groups: tuple[LocatedRowGroup, ...] = ()  # All row groups, in order, whichever strategy found them
    end: FileEnd | None = None  # The end of the file; None while no row group is known
    findings: tuple[Finding, ...] = ()  # What is wrong with the file
    survey: Survey | None = None  # Its records; None where nobody searched for them
    # A footer that is not at the end; None where there is none, or nobody searched for it
    torn_footer: TornFooter | None = None
    moved: bool = False  # Whether `source` is not read from the bytes as they lie
    given: KnownSchema | None = None  # The schema that the caller gives; None where the file has to contain it
    siblings: Siblings = field(default_factory=Siblings)  # Files that may have the same columns
    schema_from: str | None = None  # Where the schema comes from, where that is not the file itself
    footer_whole: bool = False  # Whether the footer at the end can be used
    identity: Identity | None = None  # The format of the bytes; None where nobody asked
    # Whether a key of the footer that readers need is damaged, a name in it, or an index of an encrypted file
    keys_damaged: bool = False
    lies_within: bool = False  # Whether the only records are those of a file within the one that is meant

    @property
    def positions(self) -> dict[int, int]:
        """The position in `contents` of each row group that footers and records name, by its ordinal."""
        named = () if self.candidates is None else self.candidates.row_groups
        return {candidate.ordinal: position for position, candidate in enumerate(named)}

    @property
    def headers(self) -> dict[int, RecordHeader]:
        """The record headers of the file that were found, by the offset at which they were written."""
        survey = self.survey
        if survey is None:
            return {}
        mine = survey.headers
        if self.moved:
            mine = [header for header in survey.found.values() if header.file_id == survey.file_id]
        return {header.offset: header for header in mine}

    @property
    def file_id(self) -> bytes | None:
        """The id in its records; None for files of other writers."""
        if self.survey is not None:
            return self.survey.file_id
        record = None if self.contents is None else self.contents.footer.record
        return None if record is None else record.file_id

    @property
    def inner_files(self) -> list[ByteRange]:
        """Where resilient files lie within the one that is meant, as in values of a column."""
        spans = [] if self.survey is None or self.moved else file_spans(self.survey.found.items())
        mine = None if self.lies_within else self.file_id
        return [ByteRange(span.start, span.end) for span in spans if span.file_id != mine and span.base > 0]

    @property
    def facts(self) -> Facts:
        """What the choice of the next strategy depends on."""
        survey, found = self.survey, self.torn_footer
        return Facts(
            tried=frozenset(self.tried),
            footer_whole=self.footer_whole,
            records_found=survey is not None and survey.file_id is not None,
            displaced=survey is not None and survey.displaced,
            schema_known=self.contents is not None,
            row_groups_missing=bool(self.find_losses(self.row_groups)),
            metadata_found=found is not None and found.complete,
            not_parquet=self.identity is not None and self.identity.name not in MAY_BE_PARQUET,
        )

    @property
    def num_chunks(self) -> int:
        """About how many column chunks it has."""
        return len(self.row_groups) * (0 if self.contents is None else len(self.contents.schema.leaves))

    def find_losses(self, row_groups: Sequence[LocatedRowGroup]) -> list[LostRegion]:
        """What is lost between and behind row groups, given with the rows that were found of them."""
        last = self.row_groups[-1] if self.row_groups else None
        in_flight = last.ordinal if last is not None and last.num_rows is None else None
        return find_losses(self.end, row_groups, in_flight)

    def with_findings(self, *findings: Finding) -> Reconstruction:
        """The same with more findings."""
        return replace(self, findings=(*self.findings, *findings))

    async def with_footer(self, contents: Contents) -> Reconstruction:
        """The same with the row groups of a whole footer."""
        return await self.with_candidates(partial(candidates_of_contents, contents), contents.num_chunks) or self

    async def with_candidates(self, choose: Callable[[], Candidates | None], num_chunks: int) -> Reconstruction | None:
        """The same with the row groups of about so many chunks that a footer or records name; None where none do."""

        def locate() -> tuple[Candidates, tuple[LocatedRowGroup, ...]] | None:
            candidates = choose()
            return None if candidates is None else (candidates, tuple(locate_row_groups(candidates)))

        if (located := await off_loop(num_chunks, locate)) is None:
            return None
        candidates, row_groups = located
        if candidates.contents.metadata.encryption_algorithm is not None and self.source.decrypt is None:
            raise KeyMissingError("the file is encrypted, and its keys are missing", where=Where(key=self.source.url))
        return replace(
            self, candidates=candidates, row_groups=row_groups, contents=candidates.contents, end=candidates.end
        )

    def with_row_groups(self, found: Iterable[LocatedRowGroup]) -> Reconstruction:
        """The same with more row groups, whose ordinals are known."""
        row_groups = sorted((*self.row_groups, *found), key=lambda row_group: row_group.ordinal)
        return replace(self, row_groups=tuple(row_groups))

    def with_unnumbered(self, found: Iterable[LocatedRowGroup]) -> Reconstruction:
        """The same with more row groups, which are numbered by their offsets."""
        row_groups = sorted((*self.row_groups, *found), key=lambda row_group: row_group.start)
        count = None if self.torn_footer is None else self.torn_footer.num_row_groups
        return replace(self, row_groups=number_row_groups(join_halves(row_groups, count)))

    def through(self, view: ByteRemap, message: str) -> Reconstruction:
        """The same, to be searched again with each byte at the offset at which it was written."""
        finding = Finding(Damage.CORRUPT, message, costs_rows=False)
        return self.with_findings(finding).read_from(self.source.through(view))

    def read_from(self, source: DamagedObject) -> Reconstruction:
        """The same, to be searched again in other bytes."""
        return replace(self, source=source, moved=True, tried=tuple(one for one in self.tried if one in _ONCE))
