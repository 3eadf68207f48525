"""The strategies that read a footer: at the end of the file, or cut, damaged or elsewhere. Async shells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY, is_stored_schema
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, Where
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import ColumnChunk, CompressionCodec, FileMetaData, SchemaElement
from resilient_pq.format.footer import MAGIC, TAIL_SIZE
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordKind, begins_record
from resilient_pq.format.schema_tree import Schema
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery import carve
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.footers.footer_evidence import (
    all_chunks,
    contradicts_itself,
    has_values,
    names_some_files,
    other_names,
    pages_begin,
)
from resilient_pq.recovery.evidence.footers.footer_search import find_footer, footer_budget
from resilient_pq.recovery.evidence.footers.torn_footer import TornFooter
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.records.survey import Survey
from resilient_pq.recovery.evidence.row_group_choice import (
    FileEnd,
    candidates_of_survey,
    end_of_survey,
    locate_row_groups,
)
from resilient_pq.recovery.report import Damage, Finding

_CODECS: Final = frozenset(CompressionCodec) - {CompressionCodec.LZO}  # LZO is beside no other codec
_ERASED_BYTES: Final = 64  # So many bytes at the end of an object that are all the same are padding
_NOT_UTF8: Final = "\ufffd"  # What stands for bytes of a name that are no UTF-8


async def read_footer(known: Reconstruction) -> Reconstruction:
    """The row groups that the footer at the end names, or why it cannot be used."""
    contents = await known.source.contents()
    if isinstance(contents, FormatError):
        return _without_footer(known, contents)
    if await off_loop(contents.num_chunks, _is_summary, contents):
        return replace(known, contents=contents, footer_whole=True)
    if not (contents.verified or await _names_pages(known.source, contents)):
        message = "the footer is whole, but there are no pages where it says"
        return _without_footer(known, FormatError(message, where=Where(offset=contents.footer.start)))
    if await off_loop(contents.num_chunks, contradicts_itself, contents):
        message = "the footer is damaged: its row groups contradict its schema, or themselves"
        return _without_footer(known, FormatError(message, where=Where(offset=contents.footer.start)))
    known = replace(await known.with_footer(contents), footer_whole=True)
    if not contents.verified:
        refused = await off_loop(contents.num_chunks, _describe_refused, contents)
        refused += await _find_refused(known.source, contents)
        renamed = await off_loop(contents.num_chunks, _few_are_renamed, contents)
        known = replace(known.with_findings(*refused), keys_damaged=bool(refused) or renamed)
    if contents.miscounted is not None:
        message = f"the footer says {contents.miscounted:,} rows, its row groups {contents.num_rows:,}"
        known = known.with_findings(_footer_finding(contents, message))
    return known


def _is_summary(contents: Contents) -> bool:
    """Whether the row groups lie in other files."""
    return bool(contents.data_files) and not names_some_files(contents.metadata.row_groups)


def _without_footer(known: Reconstruction, error: FormatError) -> Reconstruction:
    # The first error describes the bytes as they lie.
    return replace(known, error=known.error or error, footer_whole=False)


def _describe_refused(contents: Contents) -> list[Finding]:
    """What is damaged in a footer that costs no rows, but keys, or for which some readers refuse the file."""
    messages = []
    if contents.footer.trailing and contents.metadata.encryption_algorithm is None:
        messages.append(f"something within the footer ends it {contents.footer.trailing:,} bytes too early")
    stored = contents.key_value.get(ARROW_SCHEMA_KEY) or ""
    if ARROW_SCHEMA_KEY in contents.key_value and not is_stored_schema(stored, len(contents.schema.columns)):
        messages.append("the Arrow schema in the footer is damaged: some readers refuse the file")
    orders = contents.metadata.column_orders
    if orders is not None and len(orders) != len(contents.schema.leaves):
        messages.append("the footer has other column orders than one for each column: some readers refuse the file")
    chunks = all_chunks(contents.metadata.row_groups)
    named = [chunk.meta_data.path_in_schema is not None for chunk in chunks if chunk.meta_data is not None]
    if any(named) and not all(named):
        messages.append("the footer names some column chunks and not others: some readers refuse the file")
    strange = [chunk.meta_data.codec not in _CODECS for chunk in chunks if chunk.meta_data is not None]
    if 0 < 2 * sum(strange) < len(strange):  # else it may be a codec to come
        messages.append("the footer gives a column chunk a codec that most readers do not know: they refuse the file")
    return [_footer_finding(contents, message) for message in messages]


def _few_are_renamed(contents: Contents) -> bool:
    """Whether most row groups vouch for the name that the schema gives a column, and others name it otherwise."""
    row_groups = contents.metadata.row_groups
    return any(2 * names.total() < len(row_groups) for _, names in other_names(contents))


async def _find_refused(source: DamagedObject, contents: Contents) -> list[Finding]:
    """What readers refuse, and only the bytes of a footer show: fields that it lacks, and names that are not UTF-8."""
    suspects = await off_loop(contents.num_chunks, _suspects, contents)
    if not any(suspects):
        return []
    footer = contents.footer
    stored = bytes(await source.read(ByteRange(footer.start, footer.start + footer.length)))
    messages = []
    may_lack, names = suspects
    # A field that is stated as 0 is there, as some writers do.
    if may_lack and await off_loop(contents.num_chunks, compact_protocol.encode, contents.metadata) != stored:
        messages.append("the footer lacks the size or the offset of a column chunk: some readers refuse the file")
    if any(name.encode() not in stored for name in names):
        messages.append("the name of a column is not UTF-8: some readers refuse the file")
    return [_footer_finding(contents, message) for message in messages]


def _suspects(contents: Contents) -> tuple[bool, list[str]]:
    """Whether column chunks may lack their size or offset, and names that may have been read from other than UTF-8."""
    chunks = all_chunks(contents.metadata.row_groups)
    sized = [chunk.meta_data for chunk in chunks if has_values(chunk) and chunk.meta_data is not None]
    without_offset = sum(not chunk.file_offset for chunk in chunks)
    may_lack = any(not metadata.total_uncompressed_size for metadata in sized) or 0 < without_offset < len(chunks)
    return may_lack, [element.name for element in contents.metadata.schema if _NOT_UTF8 in element.name]


def _footer_finding(contents: Contents, message: str) -> Finding:
    start, end = contents.footer.start, contents.footer.end
    return Finding(Damage.CORRUPT, message, Where(offset=start), start, end, costs_rows=False)


async def _names_pages(source: DamagedObject, contents: Contents) -> bool:
    """Whether pages lie where a footer without a checksum has its column chunks."""

    def chunks_with_values() -> list[ColumnChunk]:
        return list(filter(has_values, all_chunks(contents.metadata.row_groups)))

    chunks = await off_loop(contents.num_chunks, chunks_with_values)
    return not chunks or await source.drive(pages_begin(chunks, 0, source.info.size))


async def find_true_end(known: Reconstruction) -> Reconstruction:
    """The row groups that a footer names which is cut, damaged, or not at the end."""
    size = known.source.info.size
    budget = footer_budget(size)
    found = await known.source.drive(find_footer(size, budget=budget, others=known.inner_files))
    if found is None and budget.ended:
        known = known.with_findings(budget.finding("there may be a footer that is not at the end", 0, size))
    old = await _find_old_footer(known, found)
    if old is not None:
        return await _with_old_footer(known, old, found)
    if found is None or not _is_usable(known, found):
        return replace(known, torn_footer=None)
    return await _with_last_footer(known, found)


async def _with_last_footer(known: Reconstruction, found: TornFooter) -> Reconstruction:
    """The row groups of the last footer, whole or not."""
    known = replace(known, torn_footer=found).with_findings(*found.findings)
    proves = await _proves_end(known, found)
    if found.shift:
        known = replace(known, source=known.source.through(found.view), moved=True)
    if found.complete:
        known = await known.with_footer(found.contents)
    else:
        end = FileEnd(0, known.source.info.size, found.stated_rows)
        known = replace(known, contents=found.contents, row_groups=found.rebuilt.row_groups, end=end)
        known = await _prefer_records(known, found.contents.metadata)
    if known.end is not None and not proves:
        return replace(known, end=replace(known.end, num_rows=None, miscounted=False))
    return known


async def _find_old_footer(known: Reconstruction, last: TornFooter | None) -> TornFooter | None:
    """The footer directly before the first record of a file to which rows were appended; None where there is none.

    It is the `last` one where the file is cut inside that record.
    """
    if last is not None and last.complete:
        end = last.end if await _is_followed(known, last) else None
    else:
        end = _first_checkpoint(known)
    if end is None:
        return None
    found = await known.source.drive(find_footer(end, budget=footer_budget(end)))
    if found is None or not found.complete or (found.end, found.shift) != (end, 0):
        return None
    return found if _is_usable(known, found) else None


async def _is_followed(known: Reconstruction, found: TornFooter) -> bool:
    """Whether a record begins behind a footer, as where rows are appended."""
    end = max(found.end, min(found.end + HEADER_SIZE, known.source.info.size))
    return begins_record(await known.source.read(ByteRange(found.end, end)))


def _first_checkpoint(known: Reconstruction) -> int | None:
    """The offset of the first record of the file where that is a checkpoint; None where it is none."""
    headers = [] if known.survey is None or known.moved else known.survey.headers
    begins = bool(headers) and headers[0].kind == RecordKind.CHECKPOINT and not headers[0].previous
    return headers[0].offset if begins else None


async def _with_old_footer(known: Reconstruction, old: TornFooter, torn: TornFooter | None) -> Reconstruction:
    """The row groups of a file to which rows were appended: of its old footer, a cut one behind it, and records."""
    survey, size = known.survey, known.source.info.size
    assert survey is not None
    message = "rows were appended behind a whole footer, and no footer behind it is whole"
    finding = Finding(Damage.TORN, message, Where(offset=old.end), old.end, size)
    known = await replace(known, torn_footer=old).with_findings(*old.findings, finding).with_footer(old.contents)
    if torn is not None and torn.contents.schema == old.contents.schema:
        more = (one for one in torn.rebuilt.row_groups if one.ordinal >= len(old.ordinals))
        known = known.with_row_groups(more)
    return replace(await _prefer_records(known, old.contents.metadata), end=end_of_survey(survey))


async def _prefer_records(known: Reconstruction, schema: FileMetaData) -> Reconstruction:
    """The same with the row groups as whole records describe them, which a cut footer gave the schema for."""
    survey = known.survey
    if survey is None or not survey.row_groups or known.moved:
        return known

    def locate() -> list[LocatedRowGroup]:
        candidates = candidates_of_survey(survey, schema)
        return [] if candidates is None else locate_row_groups(candidates)

    recorded = await off_loop(known.num_chunks, locate)
    ordinals = {one.ordinal for one in recorded}
    others = [one for one in known.row_groups if one.ordinal not in ordinals]
    return replace(known, row_groups=tuple(others)).with_row_groups(recorded)


def _is_of_checkpoint(known: Reconstruction, found: TornFooter) -> bool:
    """Whether a footer is that of a checkpoint, which counts no rows behind it, whatever is left of the checkpoint."""
    headers = [] if known.survey is None else known.survey.headers
    return any(header.kind == RecordKind.CHECKPOINT and header.payload_offset == found.start for header in headers)


async def _proves_end(known: Reconstruction, found: TornFooter) -> bool:
    """Whether no row can stand behind those that a footer counts."""
    if _is_of_checkpoint(known, found) or await _is_followed(known, found) or await _is_erased(known.source, found):
        return False
    behind = await known.source.drive(carve.find_files(found.start, known.source.info.size))
    if any(file.pages and not file.has_head for file in behind):
        return False
    return found.complete or (found.contents.is_finished and (known.file_id is None or found.contents.unvouched))


async def _is_erased(source: DamagedObject, found: TornFooter) -> bool:
    """Whether padding was laid over the end of a footer, and may have been over more of the file behind it."""
    size = source.info.size
    last = bytes(await source.read(ByteRange(max(size - _ERASED_BYTES, 0), size)))
    if last.strip(last[:1]):
        return False
    if not found.complete:
        return True
    magic = bytes(await source.read(ByteRange(found.end - len(MAGIC), found.end)))
    return magic != MAGIC and size > found.end + TAIL_SIZE


def _is_usable(known: Reconstruction, found: TornFooter) -> bool:
    """Whether a footer names row groups of this file, or its schema where nothing better does."""
    if found.contents.data_files:  # the rows of a summary lie in other files, from which it can be written again
        return False
    if not _fits_records(known.survey, found.contents.schema):
        return False
    only_schema = not found.complete and not found.contents.metadata.row_groups
    return not only_schema or (known.given is None and _is_credible(found.contents.schema.elements))


def _fits_records(survey: Survey | None, schema: Schema) -> bool:
    """Whether a schema is that of the row groups in records, and not of a file within a column."""
    columns = [(leaf.path, int(leaf.node.physical_type)) for leaf in schema.leaves]
    for found in () if survey is None else survey.row_groups.values():
        metadata = [chunk.meta_data for chunk in found.row_group.columns]
        if [(tuple(each.path_in_schema or ()), each.type) for each in metadata if each is not None] != columns:
            return False
    return True


def _is_credible(elements: Sequence[SchemaElement]) -> bool:
    """Whether all columns of a schema have names and types; zeros behind a cut read as columns without them."""
    return all(
        element.name.isprintable() and element.name and (element.type is not None or element.num_children)
        for element in elements[1:]
    )
