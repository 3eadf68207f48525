"""The prefix of an unfinished file that stays in its place when it is resumed. An async shell.

The rows before the newest checkpoint that was stored are taken as they are. What was written later a loss of power may
have torn anywhere, so every byte of it is compared with its checksums first.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, KeyMissingError, NotFoundError, RecoveryError, Where
from resilient_pq.format.crypto.sealed_footer import parse_sealed_footer
from resilient_pq.format.file_metadata import RowGroup
from resilient_pq.format.footer import BASE_KEY, ENCRYPTED_MAGIC, MAGIC, key_values
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordHeader, RecordKind, parse_header
from resilient_pq.io import LocalStore
from resilient_pq.reader.contents import Contents, FileState, KnownCheckpoint
from resilient_pq.recovery.damaged_object import DamagedObject, open_source
from resilient_pq.recovery.evidence.row_group_choice import Candidate, Candidates, candidates_of_survey
from resilient_pq.recovery.report import Damage, recovered_name
from resilient_pq.recovery.verification.checksum_checks import expected_of_row_groups, record_range
from resilient_pq.recovery.verification.findings import examine_places, examine_row_groups
from resilient_pq.shell_commands import in_shell
from resilient_pq.units import MiB

log = logging.getLogger("resilient_pq.recovery")

_ANCHOR = KnownCheckpoint(0, len(MAGIC), 0)
_MOST_TORN_BYTES = 1 * MiB  # A file that was never whole is no larger than its anchor, which is as large as its schema


async def whole_prefix(source: DamagedObject) -> Candidates:
    """The row groups of an unfinished file that are whole from its beginning on, and what is known of their prefix."""
    survey = await source.survey()
    known = candidates_of_survey(survey)
    if known is None or survey.newest is None or survey.footer is None:
        raise nothing_to_resume(source)
    if known.contents.state not in (FileState.IN_PROGRESS, FileState.COMPLETE):
        raise RecoveryError("only what a writer left unfinished can be resumed", where=Where(key=source.url))
    footer = survey.footer.header
    stored = _stored_checkpoint(known.contents, survey.newest)
    magic = await source.read(ByteRange(0, len(MAGIC)))
    if footer.offset < stored.offset or magic != MAGIC:
        raise damaged(source)
    row_groups = _in_a_row(known)
    for position, candidate in enumerate(row_groups):
        if candidate.rows_before < stored.num_rows:
            continue
        if not await _is_whole(source, known.contents, candidate):
            log.warning("%s: row group %d and what follows on it is torn", source.url, candidate.ordinal)
            del row_groups[position:]
            break
    return await prefix_of(source, known, row_groups, footer.file_id)


async def refuse_encrypted(source: DamagedObject) -> None:
    """Refuse an unfinished file that is encrypted, as its magic or its anchor says."""
    magic = await source.read(ByteRange(0, min(len(MAGIC), source.info.size)))
    if magic == ENCRYPTED_MAGIC or await _is_signed(source):
        raise KeyMissingError("the file is encrypted", hint="pass encryption= as it was begun with")


async def _is_signed(source: DamagedObject) -> bool:
    size, start = source.info.size, len(MAGIC) + HEADER_SIZE
    header = parse_header(await source.read(ByteRange(len(MAGIC), min(start, size)))) if size > len(MAGIC) else None
    if header is None or header.kind != RecordKind.ANCHOR or header.end > size:
        return False
    payload = await source.read(ByteRange(start, header.end))
    return header.holds(payload) and parse_sealed_footer(payload, start, header) is not None


def _stored_checkpoint(contents: Contents, newest: RecordHeader) -> KnownCheckpoint:
    """The newest checkpoint that certainly survives a loss of power: one that was written on behind."""
    # A writer waits for each checkpoint to be stored before it goes on, and every record names the checkpoint
    # before it. The first bytes of a copy of a whole file are only there when the checkpoint behind it is stored.
    places = {known.offset: known for known in (_ANCHOR, *contents.checkpoints)}
    size, _ = base_of(contents.key_value)
    if size is not None and (known := places.get(newest.offset)) is not None:
        behind = [each for each in contents.checkpoints if size <= each.offset < newest.offset]
        return max(behind, key=lambda each: each.offset, default=known)
    if newest.offset != newest.newest_footer:
        # One that is not known, since it is damaged, is later than all that are.
        return places.get(newest.newest_footer, KnownCheckpoint(0, newest.newest_footer, 0))
    earlier = [known for known in places.values() if known.offset < newest.offset]
    return max(earlier, key=lambda known: known.offset, default=_ANCHOR)


def base_of(key_value: Mapping[str, str | None]) -> tuple[int | None, str | None]:
    """The bytes and the ETag of the version that a file was to replace whose rows are appended; None of others."""
    size, _, etag = (key_value.get(BASE_KEY) or "").partition(":")
    return (int(size), etag) if size.isdecimal() and etag else (None, None)


async def appended_version(store: LocalStore, key: str) -> str | None:
    """The ETag of the file that ``NAME.partial`` begins with, where rows were to be appended; None of other files."""
    try:
        source = await open_source((store, store.unfinished_key(key)), None)
    except NotFoundError:
        return None
    if not any(await source.read(ByteRange(0, min(len(MAGIC), source.info.size)))):
        if await store.exists(key):
            raise RecoveryError(
                "there is nothing to resume: no row was stored of what was begun",
                where=Where(key=source.url),
                hint="append again, or begin anew with overwrite_partial=True (`rpq write --overwrite-partial`)",
            )
        return None
    footer = (await source.survey()).footer
    return None if footer is None else base_of(key_values(footer.metadata.key_value_metadata))[1]


def _in_a_row(known: Candidates) -> list[Candidate]:
    """The row groups up to the first whose record is missing."""
    return [candidate for position, candidate in enumerate(known.row_groups) if candidate.ordinal == position]


async def _is_whole(source: DamagedObject, contents: Contents, candidate: Candidate) -> bool:
    """Whether the checksums of a row group hold: of its chunks, and of all that stands between them."""
    alone = _named(contents, [candidate])
    try:
        damages = [finding.damage async for finding in examine_row_groups(source, alone, None, {})]
        places = expected_of_row_groups(alone)
        damages += [finding.damage async for finding in examine_places(source, alone, places)]
    except FormatError:
        return False
    return all(damage is Damage.UNVERIFIED for damage in damages)


def _named(contents: Contents, row_groups: Sequence[Candidate]) -> Contents:
    """The contents as if these were the file's row groups."""
    named: list[RowGroup] = [candidate.row_group for candidate in row_groups]
    num_rows = sum(row_group.num_rows for row_group in named)
    metadata = replace(contents.metadata, row_groups=named, num_rows=num_rows)
    return replace(contents, footer=replace(contents.footer, metadata=metadata))


async def prefix_of(
    source: DamagedObject, known: Candidates, row_groups: Sequence[Candidate], file_id: bytes
) -> Candidates:
    """What stays in place with these row groups, up to the last record that speaks of them."""
    num_rows = sum(candidate.row_group.num_rows for candidate in row_groups)
    checkpoints = tuple(place for place in known.contents.checkpoints if place.num_rows <= num_rows)
    places = [_ANCHOR.offset, *(place.offset for place in checkpoints)]
    if row_groups and row_groups[-1].end > known.contents.records_begin:
        record = record_range(row_groups[-1].row_group, source.info.size)
        if record is None:
            raise damaged(source)
        places.append(record.start)
    last = await _header_at(source, max(places), file_id)
    contents = replace(_named(known.contents, row_groups), checkpoints=checkpoints)
    return Candidates(contents, tuple(row_groups), known.end, last.end, last)


async def _header_at(source: DamagedObject, offset: int, file_id: bytes) -> RecordHeader:
    """The header of a record that must be there, since what follows was found by it."""
    if offset + HEADER_SIZE > source.info.size:
        raise damaged(source)
    header = parse_header(await source.read(ByteRange(offset, offset + HEADER_SIZE)))
    whole = header is not None and header.offset == offset and header.file_id == file_id
    if header is None or not whole or header.kind == RecordKind.FINAL or header.end > source.info.size:
        raise damaged(source)
    return header


def nothing_to_resume(source: DamagedObject) -> RecoveryError:
    """The error of a file without a whole anchor."""
    return RecoveryError(
        "there is nothing to resume: not even the schema is whole in it",
        where=Where(key=source.url),
        hint="begin anew: `rpq write --overwrite-partial` (create with overwrite_partial=True)",
    )


def damaged(source: DamagedObject) -> RecoveryError:
    """The error of a file that lost what was stored."""
    return RecoveryError(
        "it is damaged before a checkpoint that was stored: going on would lose rows",
        where=Where(key=source.url),
        hint=f"keep what is whole: {in_shell('recover', source.url, recovered_name(source.url))}",
    )


async def was_torn_at_once(store: LocalStore, key: str) -> bool:
    """Whether a ``NAME.partial`` ends within its anchor, the first thing that is written: no row was stored."""
    tail = await store.read_tail(store.unfinished_key(key), _MOST_TORN_BYTES)
    data = bytes(tail.data)
    if tail.offset or not any(data):
        return not tail.offset
    header = parse_header(memoryview(data)[len(MAGIC) :])
    short = len(data) < len(MAGIC) + HEADER_SIZE
    begins = any(data[: len(magic)] == magic[: len(data)] for magic in (MAGIC, ENCRYPTED_MAGIC))
    return begins and (short or (header is not None and header.end > len(data)))
