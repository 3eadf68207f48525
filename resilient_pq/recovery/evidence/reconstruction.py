"""What the ladder tells of a damaged file: its schema, its row groups, what is lost for good. An async shell.

`ladder` says which rung comes next; each is a piece of its own, and all end in `LocatedRowGroup`s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY, is_stored_schema
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.page_search import FoundPage
from resilient_pq.errors import FormatError, NotParquetError, RecoveryError, TornFileError, Where
from resilient_pq.format.file_metadata import ColumnChunk, FileMetaData, RowGroup, SchemaElement, Type
from resilient_pq.format.footer import MAGIC, Footer
from resilient_pq.format.quirks import Quirks
from resilient_pq.format.resilience_records import RecordHeader
from resilient_pq.format.schema_tree import Schema
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery import carve
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.byte_remap import ByteRemap, RemapSegment
from resilient_pq.recovery.evidence.footers.footer_evidence import has_values, pages_begin
from resilient_pq.recovery.evidence.footers.torn_footer import TornFooter, find_footer, footer_budget
from resilient_pq.recovery.evidence.identify import Identity, identify
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup, Method, RebuiltFile
from resilient_pq.recovery.evidence.records import chunk_records
from resilient_pq.recovery.evidence.records.placement import place
from resilient_pq.recovery.evidence.records.record_scan import FileSpan, file_spans, scan_object
from resilient_pq.recovery.evidence.records.stale_chunks import drop_stale
from resilient_pq.recovery.evidence.records.survey import Survey
from resilient_pq.recovery.evidence.row_group_choice import (
    Candidates,
    FileEnd,
    candidates_of_contents,
    candidates_of_survey,
    find_gaps,
    find_losses,
    locate_row_groups,
)
from resilient_pq.recovery.evidence.schema_source import KnownSchema, Siblings
from resilient_pq.recovery.evidence.sibling_schema import fit_siblings, match_names
from resilient_pq.recovery.evidence.strategy import Facts, Strategy, next_strategy
from resilient_pq.recovery.evidence.text_mode import undo_text_change
from resilient_pq.recovery.report import Damage, Finding, LostRegion
from resilient_pq.version import MAKER

#: What may hold pages for all that its first and last bytes look like.
_MAY_BE_PARQUET = (
    "parquet", "parquet-extended", "unknown", "zeros-around", "text-mode", "tar",
)  # fmt: skip
_TEXT_MODE = "text-mode"
#: What says no more of the bytes than that there is no footer at their end.
_NO_NEWS = ("parquet", "unknown")
#: Bytes between two row groups in which there can have been no other.
_MOST_ALIGNMENT = 8
#: A file that a transfer as text changed is read into memory to undo it, up to so many bytes.
_MOST_UNDONE = 1 << 30


@dataclass(slots=True)
class Reconstruction:
    """What is known of a file before its data are looked at.

    Attributes:
        source: The file, its parts in their places.
        climbed: The rungs that were tried, in order.
        error: Why the footer at its end cannot be used; None where it can.
        contents: Its schema, and the row groups that footers and records name; None when not even the schema is known.
        candidates: The same, with what lies around them; None where neither footer nor record names any.
        row_groups: All row groups, in order, whatever rung told of them.
        end: What is known of the end of the file; None while no row group is known.
        findings: What was found on the way.
        survey: What its records told; None where nobody asked.
        found: A footer that is not at the end; None where nobody looked for it, or there is none.
        moved: Whether `source` reads through a view, since parts of the file lie elsewhere than they were written.
        given: The schema that the caller names; None where that is left to the file.
        siblings: Files that may have the same columns.
        schema_from: Where its schema comes from, where that is not the file itself.
        footer_whole: Whether there is a footer at its end that can be used.
        identity: What its bytes look like; None where nobody asked.
        keys_damaged: Whether a key of the footer is damaged that readers need.
        lies_within: Whether the only records are of a file within the one that is meant.
    """

    source: DamagedObject
    climbed: list[Strategy] = field(default_factory=list)
    error: FormatError | None = None
    contents: Contents | None = None
    candidates: Candidates | None = None
    row_groups: tuple[LocatedRowGroup, ...] = ()
    end: FileEnd | None = None
    findings: list[Finding] = field(default_factory=list)
    survey: Survey | None = None
    found: TornFooter | None = None
    moved: bool = False
    given: KnownSchema | None = None
    siblings: Siblings = field(default_factory=Siblings)
    schema_from: str | None = None
    footer_whole: bool = False
    identity: Identity | None = None
    keys_damaged: bool = False
    lies_within: bool = False

    @property
    def positions(self) -> dict[int, int]:
        """For the ordinal of each row group that footers and records name, its position in `contents`."""
        named = () if self.candidates is None else self.candidates.row_groups
        return {candidate.ordinal: position for position, candidate in enumerate(named)}

    @property
    def headers(self) -> dict[int, RecordHeader]:
        """The record headers of the file that were found, by where they were written."""
        survey = self.survey
        if survey is None:
            return {}
        mine = survey.headers
        if self.moved:
            mine = [header for header in survey.found.values() if header.file_id == survey.file_id]
        return {header.offset: header for header in mine}

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
            footer_whole=self.footer_whole,
            records_found=survey is not None and survey.file_id is not None,
            displaced=survey is not None and survey.displaced,
            schema_known=self.contents is not None,
            row_groups_missing=bool(self.find_losses(self.row_groups)),
            metadata_found=found is not None and found.complete,
            not_parquet=self.identity is not None and self.identity.name not in _MAY_BE_PARQUET,
        )

    @property
    def num_chunks(self) -> int:
        """About how many column chunks it has, whatever told of them."""
        return len(self.row_groups) * (0 if self.contents is None else len(self.contents.schema.leaves))

    async def take(self, named: Callable[[], Candidates | None], num_chunks: int) -> bool:
        """Take what a footer, or records, name; gives whether they do."""

        def found() -> tuple[Candidates, tuple[LocatedRowGroup, ...]] | None:
            candidates = named()
            return None if candidates is None else (candidates, tuple(locate_row_groups(candidates)))

        if (taken := await off_loop(num_chunks, found)) is None:
            return False
        self.candidates, self.row_groups = taken
        self.contents, self.end = self.candidates.contents, self.candidates.end
        return True

    def find_losses(self, row_groups: Sequence[LocatedRowGroup]) -> list[LostRegion]:
        """What is lost between and behind row groups, whatever is kept of them."""
        last = self.row_groups[-1] if self.row_groups else None
        in_flight = last.ordinal if last is not None and last.num_rows is None else None
        return find_losses(self.end, row_groups, in_flight)

    def add(self, found: Iterable[LocatedRowGroup]) -> None:
        """Take row groups in besides those that are known."""
        row_groups = (*self.row_groups, *found)
        self.row_groups = tuple(sorted(row_groups, key=lambda row_group: row_group.ordinal))

    def add_in_place(self, found: Iterable[LocatedRowGroup]) -> None:
        """Take row groups in where they lie between and behind those that are known, whatever numbers they have.

        The rows before one that carving found are known where a record tells them, or it follows on the one before
        without a gap.
        """
        everything = sorted((*self.row_groups, *found), key=lambda row_group: row_group.start)
        known: list[LocatedRowGroup] = []
        ordinal, carved, end = 0, None, len(MAGIC)
        counted: int | None = 0
        for row_group, most in zip(everything, _most_ordinals(everything), strict=True):
            told = _is_numbered(row_group)
            if not told:
                following = ordinal if carved is None else ordinal + max(row_group.ordinal - carved - 1, 0)
                following = following if most is None else max(ordinal, min(following, most))
            else:
                following = max(ordinal, row_group.ordinal)
            carved = row_group.ordinal if row_group.method is Method.CARVED else carved
            before = row_group.rows_before if told else None
            if before is None and following == ordinal and row_group.start - end <= _MOST_ALIGNMENT:
                before = counted
            known.append(replace(row_group, ordinal=following, rows_before=before))
            counted = None if before is None or row_group.num_rows is None else before + row_group.num_rows
            ordinal, end = following + 1, row_group.end
        self.row_groups = tuple(known)

    def look_through(self, view: ByteRemap, message: str) -> None:
        """Begin again with the bytes where they were written."""
        self.findings.append(Finding(Damage.CORRUPT, message, costs_rows=False))
        self.begin_again(self.source.through(view))

    def begin_again(self, source: DamagedObject) -> None:
        """Climb from the ground, with other bytes."""
        self.source, self.moved = source, True
        self.climbed = [
            rung for rung in self.climbed if rung in (Strategy.PLACEMENT, Strategy.IDENTITY, Strategy.CARVING)
        ]


def _is_numbered(row_group: LocatedRowGroup) -> bool:
    return row_group.numbered or row_group.method is not Method.CARVED


def _most_ordinals(row_groups: Sequence[LocatedRowGroup]) -> list[int | None]:
    """What number each row group can have at most, by those of which something tells behind it."""
    found: list[int | None] = []
    most: int | None = None
    for row_group in reversed(row_groups):
        if _is_numbered(row_group):
            most = row_group.ordinal if most is None else min(most, row_group.ordinal)
        found.append(most)
        most = None if most is None else most - 1
    return found[::-1]


async def reconstruct(
    source: DamagedObject,
    given: KnownSchema | None = None,
    siblings: Siblings | None = None,
    *,
    only_footer: bool = False,
) -> Reconstruction:
    """Climb the ladder as far as it is needed."""
    known = Reconstruction(source, given=given, siblings=siblings or Siblings())
    while (rung := next_strategy(await off_loop(known.num_chunks, lambda: known.facts))) is not None:
        known.climbed.append(rung)
        await _RUNGS[rung](known)
        if only_footer:
            return known
    if known.error is not None:
        known.findings[:0] = await off_loop(known.num_chunks, _broken_footer, known)
    return known


async def _footer(known: Reconstruction) -> None:
    contents = await known.source.contents()
    if isinstance(contents, FormatError):
        known.error = known.error or contents  # the first tells what is wrong with the bytes as they lie
        known.footer_whole = False
    elif contents.data_files:
        known.contents, known.footer_whole = contents, True  # a summary: its row groups lie in other files
    elif contents.verified or await _leads_to_pages(known.source, contents):
        known.footer_whole = True
        await known.take(partial(candidates_of_contents, contents), contents.num_chunks)
        if not contents.verified:
            known.findings += (found := await off_loop(contents.num_chunks, _what_others_refuse, contents))
            known.keys_damaged = bool(found)
        if contents.miscounted is not None:
            message = f"the footer says {contents.miscounted:,} rows, its row groups {contents.num_rows:,}"
            where = Where(offset=contents.footer.start)
            place = contents.footer.start, contents.footer.end
            known.findings.append(Finding(Damage.CORRUPT, message, where, *place, costs_rows=False))
    else:
        message = "the footer is whole, but there are no pages where it says"
        known.error = known.error or FormatError(message, where=Where(offset=contents.footer.start))
        known.footer_whole = False


def _what_others_refuse(contents: Contents) -> list[Finding]:
    """What is damaged in a footer that costs no rows, but for which some readers refuse the file."""
    messages = []
    stored = contents.key_value.get(ARROW_SCHEMA_KEY)
    if stored is not None and not is_stored_schema(stored, len(contents.schema.columns)):
        messages.append("the Arrow schema in the footer is damaged: some readers refuse the file")
    chunks = [chunk for row_group in contents.metadata.row_groups for chunk in row_group.columns]
    named = [chunk.meta_data.path_in_schema is not None for chunk in chunks if chunk.meta_data is not None]
    if any(named) and not all(named):
        messages.append("the footer names some column chunks and not others: some readers refuse the file")
    start, end = contents.footer.start, contents.footer.end
    where = Where(offset=start)
    return [Finding(Damage.CORRUPT, message, where, start, end, costs_rows=False) for message in messages]


async def _leads_to_pages(source: DamagedObject, contents: Contents) -> bool:
    """Whether a footer that no checksum vouches for names pages, and not places beside them."""

    def chunks_with_values() -> list[ColumnChunk]:
        return [chunk for row_group in contents.metadata.row_groups for chunk in row_group.columns if has_values(chunk)]

    chunks = await off_loop(contents.num_chunks, chunks_with_values)
    return not chunks or await source.drive(pages_begin(chunks, 0, source.info.size))


async def _records(known: Reconstruction) -> None:
    known.survey = await known.source.survey()
    wanted = known.source.file_id
    if wanted is not None and all(header.file_id != wanted for header in known.survey.found.values()):
        raise RecoveryError(
            f"no record of the file {wanted.hex()} was found", hint="leave the file id out to see which files there are"
        )
    known.findings += [
        _another(other.file_id, other.start, other.end, "no anchor tells which file is meant")
        for other in known.survey.others
        if not known.moved
    ]
    survey, num_chunks = known.survey, _num_chunks(known.survey)
    if not await known.take(partial(_candidates, survey), num_chunks) and survey.row_groups:
        row_groups = [found.row_group for _, found in sorted(survey.row_groups.items())]
        schema = known.given or await match_names(known.siblings, row_groups)
        if schema is not None and await known.take(partial(_candidates, survey, schema.metadata), num_chunks):
            known.schema_from = schema.origin


def _num_chunks(survey: Survey) -> int:
    """How many column chunks the records name."""
    row_groups = [found.row_group for found in survey.row_groups.values()]
    row_groups += () if survey.footer is None else survey.footer.metadata.row_groups
    return sum(len(row_group.columns) for row_group in row_groups)


def _candidates(survey: Survey, schema: FileMetaData | None = None) -> Candidates | None:
    try:
        return candidates_of_survey(survey, schema)
    except FormatError:
        return None  # its records contradict each other


async def _placement(known: Reconstruction) -> None:
    """Put the parts back, and begin again as if nothing had been moved."""
    assert known.survey is not None
    source = known.source
    found = known.survey.found.items()
    if not known.survey.scanned:
        found = dict(await source.drive(scan_object(source.info.size))).items()
    files = file_spans(found)
    view = await source.drive(place(source.info.size, found, known.survey.file_id))
    told = {other.file_id for other in known.survey.others}
    for other in files:
        if other.file_id != known.survey.file_id and other.complete and other.file_id not in told:
            known.findings.append(_another(other.file_id, other.start, other.end, "it is not looked at"))
    if view.is_in_place and view.size == source.info.size:
        return
    base = next((file.base for file in files if file.file_id == known.survey.file_id), 0)
    if base > 0 and source.file_id is None and await source.begins_with_magic():
        # The object begins as another file does, of which no record is left.
        known.lies_within = True
        known.findings += [_another(file.file_id, file.start, file.end, "it is within this one") for file in files]
        return
    # Copies of this very file may lie in a column of it: a view is believed that tells of more of the same, or of its
    # end where nothing told of that.
    survey = await source.through(view).survey()
    candidates = await off_loop(_num_chunks(survey), _candidates, survey)
    if candidates is None or len(candidates.row_groups) < len(known.row_groups):
        return
    if len(candidates.row_groups) == len(known.row_groups) and not (survey.has_end and not known.survey.has_end):
        return
    if known.contents is None or known.contents.schema == candidates.contents.schema:
        known.look_through(view, "parts of it lie elsewhere than they were written: they are put back")


def _inner(known: Reconstruction) -> list[FileSpan]:
    """Files of ours that lie within the one that is meant, as in a column of it: they begin somewhere in the object."""
    spans = [] if known.survey is None or known.moved else file_spans(known.survey.found.items())
    mine = None if known.survey is None or known.lies_within else known.survey.file_id
    return [span for span in spans if span.file_id != mine and span.base > 0]


def _another(file_id: bytes, start: int, end: int, why: str) -> Finding:
    message = f"another file lies at {start:,} to {end:,}; {why}: --file-id {file_id.hex()} takes that one"
    return Finding(Damage.FOREIGN, message, Where(offset=start), start, end, costs_rows=False)


async def _identity(known: Reconstruction) -> None:
    source = known.source
    known.identity = await source.drive(identify(source.info.size))
    if known.identity.name != _TEXT_MODE or source.info.size > _MOST_UNDONE:
        return
    whole = undo_text_change(bytes(await source.read(ByteRange(0, source.info.size))))
    if whole is not None:
        known.findings.append(Finding(Damage.CORRUPT, known.identity.sentence, costs_rows=False))
        known.begin_again(await source.with_bytes(whole[1]))


async def _chunk_records(known: Reconstruction) -> None:
    assert known.survey is not None and known.contents is not None
    carved = [row_group for row_group in known.row_groups if row_group.method is Method.CARVED]
    named = {row_group.ordinal for row_group in known.row_groups if row_group not in carved}
    search = chunk_records.find_row_groups(
        known.source.info.size,
        known.contents.schema,
        known.survey.headers,
        named,
        strangers=known.survey.strangers,
        moved=known.moved,
        quirks=Quirks.of(known.contents.metadata.created_by),
    )
    found = await known.source.drive(search)
    found, findings = await drop_stale(known.source, found, known.row_groups, known.survey.file_id)
    known.findings += findings
    if not carved:
        known.add(found)
        return
    # Where carving found row groups, too, these have all pages that lie there.
    known.add_in_place(one for one in found if not any(one.overlaps(other) for other in carved))


async def _true_end(known: Reconstruction) -> None:
    size = known.source.info.size
    budget = footer_budget(size)
    others = [ByteRange(span.start, span.end) for span in _inner(known)]
    found = await known.source.drive(find_footer(size, budget=budget, others=others))
    if found is None and budget.ended:
        known.findings.append(budget.finding("there may be a footer that is not at the end", 0, size))
    known.found = found
    if found is None or found.contents.data_files or not _fits_records(known.survey, found.contents.schema):
        known.found = None  # a summary has no rows: it is made again of the files that it names
        return
    only_schema = not found.complete and not found.contents.metadata.row_groups
    if only_schema and (known.given is not None or not _is_credible(found.contents.schema.elements)):
        known.found = None  # it is known better, or not to be believed
        return
    known.findings += found.findings
    behind = await known.source.drive(carve.find_files(found.start, size))
    # That of a checkpoint counts no rows behind it, be it one of which not even the records are left.
    proves = not any(file.pages and not file.has_head for file in behind)
    if found.shift:
        known.source, known.moved = known.source.through(found.view), True
    if found.complete:
        await known.take(partial(candidates_of_contents, found.contents), found.contents.num_chunks)
    else:
        known.contents, known.row_groups = found.contents, found.rebuilt.row_groups
        proves = proves and found.contents.is_finished and (known.file_id is None or found.contents.unvouched)
        known.end = FileEnd(0, known.source.info.size, found.stated_rows)
    if known.end is not None and not proves:
        known.end = replace(known.end, num_rows=None, miscounted=False)


def _fits_records(survey: Survey | None, schema: Schema) -> bool:
    """Whether a schema is that of the row groups that records name; it may be of a file within a column."""
    columns = [(leaf.path, int(leaf.node.physical_type)) for leaf in schema.leaves]
    for found in () if survey is None else survey.row_groups.values():
        metadata = [chunk.meta_data for chunk in found.row_group.columns]
        if [(tuple(each.path_in_schema or ()), each.type) for each in metadata if each is not None] != columns:
            return False
    return True


def _is_credible(elements: Sequence[SchemaElement]) -> bool:
    """Whether a schema is one, and not what zeros behind a cut make of its last columns."""
    return all(
        element.name.isprintable() and element.name and (element.type is not None or element.num_children)
        for element in elements[1:]
    )


async def _carving(known: Reconstruction) -> None:
    """Search for pages where no footer and no record tells of row groups."""
    size = known.source.info.size
    files = await known.source.drive(carve.find_files(0, size))
    files = [replace(file, pages=_outside_records(file.pages, known.survey)) for file in files]
    files = [file for file in files if file.pages]
    if not files:
        return
    file = max(files, key=lambda file: file.num_bytes)
    if len(files) > 1:
        others = ", ".join(f"{other.start:,} to {other.end:,}" for other in files if other is not file)
        message = f"there are several files in it; that at {file.start:,} is taken, and not those at {others}"
        known.findings.append(Finding(Damage.FOREIGN, message, Where(offset=file.start), costs_rows=False))
    if file.metadata is not None and file.has_head and not known.row_groups:
        inside = ByteRemap(file.end - file.start, (RemapSegment(0, file.end - file.start, file.start),))
        known.look_through(inside, f"the file lies at {file.start:,} to {file.end:,} of other bytes")
        return
    if known.row_groups:
        file = replace(file, start=0, has_head=True)  # a footer names its first pages, whatever became of its head
    rebuilt = await _rebuilt(known, file)
    known.findings += rebuilt.findings
    named = [ByteRange(row_group.start, row_group.end) for row_group in known.row_groups]
    found = [
        row_group
        for row_group in rebuilt.row_groups
        if any(row_group.chunks) and not any(row_group.overlaps(place) for place in named)
    ]
    if not found:
        return
    if known.contents is None:
        known.contents = _contents(rebuilt.metadata, [], size)
    known.add_in_place(found)
    known.end = known.end or FileEnd(0, size)


def _outside_records(pages: tuple[FoundPage, ...], survey: Survey | None) -> tuple[FoundPage, ...]:
    """Pages without what only looks like some in the payload of a record: there are copies of page headers."""
    found = {} if survey is None else survey.found
    places = sorted((at, at + header.end - header.offset) for at, header in found.items())
    within = (bisect_right(places, (page.offset, page.offset)) - 1 for page in pages)
    return tuple(page for page, i in zip(pages, within, strict=True) if i < 0 or places[i][1] < page.end)


async def _rebuilt(known: Reconstruction, file: carve.FoundFile) -> RebuiltFile:
    """What the pages of a file make: by its own schema, by that which is given or that of a sibling, or by none."""
    counts = {row_group.num_rows for row_group in known.row_groups if row_group.num_rows is not None}
    given = known.given
    if known.contents is not None:
        rows = counts | (frozenset() if given is None else given.row_counts)
        return await _carved(known, file, known.contents.schema, rows)
    if given is None:
        liked = await fit_siblings(known.siblings, lambda schema: _like(known, file, schema, counts))
        known.schema_from = liked.origin
        return liked.rebuilt
    known.schema_from = given.origin
    return await _like(known, file, given, counts)


async def _like(
    known: Reconstruction, file: carve.FoundFile, given: KnownSchema | None, counts: set[int]
) -> RebuiltFile:
    """What pages make by a schema from elsewhere, with what its footer says besides; or by one made up of them."""
    if given is None:
        return await _carved(known, file, None, counts)
    rebuilt = await _carved(known, file, given.schema, counts | given.row_counts)
    return replace(rebuilt, metadata=given.metadata)


async def _carved(
    known: Reconstruction, file: carve.FoundFile, schema: Schema | None, rows: Collection[int]
) -> RebuiltFile:
    named = () if known.survey is None else _named(known.survey)
    made_by = None if known.contents is None else known.contents.metadata.created_by
    ours = (made_by or "").startswith(MAKER)  # before each chunk stands a record, or what is left of one
    rebuilt = await known.source.drive(carve.carve(file, schema, expected_rows=rows, named=named, separated=ours))
    if rows and not rebuilt.row_groups:
        rebuilt = await known.source.drive(carve.carve(file, schema, separated=ours))  # it may have others after all
    return rebuilt


def _named(survey: Survey) -> list[carve.NamedColumn]:
    """The columns as the first record of a row group names them; none where there is no record, or no such type."""
    columns = next((found.row_group.columns for _, found in sorted(survey.row_groups.items())), [])
    chunks = [chunk.meta_data for chunk in columns]
    return [
        carve.NamedColumn(tuple(chunk.path_in_schema), Type(chunk.type))
        for chunk in chunks
        if chunk is not None and chunk.path_in_schema and chunk.type in list(Type)
    ]


_RUNGS: dict[Strategy, Callable[[Reconstruction], Awaitable[None]]] = {
    Strategy.FOOTER: _footer,
    Strategy.RECORDS: _records,
    Strategy.PLACEMENT: _placement,
    Strategy.IDENTITY: _identity,
    Strategy.CHUNK_RECORDS: _chunk_records,
    Strategy.TRUE_END: _true_end,
    Strategy.CARVING: _carving,
}


def _contents(metadata: FileMetaData, row_groups: list[RowGroup], size: int) -> Contents:
    """The contents of a file whose footer is made up."""
    num_rows = sum(row_group.num_rows for row_group in row_groups)
    made = replace(metadata, row_groups=row_groups, num_rows=num_rows)
    return Contents.of(Footer(made, size, 0, None))


def _broken_footer(known: Reconstruction) -> list[Finding]:
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
    if known.identity is not None and known.identity.name not in _NO_NEWS and not known.row_groups:
        findings.insert(0, Finding(Damage.FOREIGN, known.identity.sentence, Where(offset=0), 0, size))
    for region in find_gaps(known.row_groups):
        findings.append(Finding(region.damage, region.reason, region.where, region.start, region.end))
    for gap in () if candidates is None else candidates.unaccounted:
        message = "no whole record stands here; it was a second copy, nothing is lost with it"
        where = Where(offset=gap.start)
        findings.append(Finding(Damage.CORRUPT, message, where, gap.start, gap.end, costs_rows=False))
    return findings
