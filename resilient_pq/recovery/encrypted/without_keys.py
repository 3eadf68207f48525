"""Encrypted files checked and recovered without their keys: bytes are compared and copied, and none is read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.encryption.keys import DecryptionKeys
from resilient_pq.encryption.opened_footer import FileKeys
from resilient_pq.errors import (
    AuthenticationError,
    FormatError,
    KeyMissingError,
    NothingToRecoverError,
    RowsLostError,
    Where,
)
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.crypto.file_cipher import FileCipher
from resilient_pq.format.crypto.modules import ModuleType
from resilient_pq.format.crypto.sealed_chunk import ChunkSealer
from resilient_pq.format.crypto.sealed_footer import SealedFooter, parse_sealed_footer, sealed_frame
from resilient_pq.format.file_metadata import FileMetaData, KeyValue, RowGroup
from resilient_pq.format.footer import ENCRYPTED_MAGIC, MIN_FILE_SIZE, TAIL_SIZE
from resilient_pq.format.resilience_records import RecordChain, RecordHeader, RecordKind
from resilient_pq.io.location import without_query
from resilient_pq.io.output_target import Target, check_free, make_folder
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.healed_store import HealedStore
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.encrypted.ciphertext import Ciphertext, survey_ciphertext
from resilient_pq.recovery.encrypted.plain_records import opened_record
from resilient_pq.recovery.recover_options import RecoverOptions
from resilient_pq.recovery.report import Damage, Finding, Kept, LostRegion, Outcome, Report, recovered_name
from resilient_pq.recovery.rewrite.output_object import beginning_of
from resilient_pq.recovery.verification.findings import Progress, examine_row_groups
from resilient_pq.shell_commands import command, lasts
from resilient_pq.writer.file_sealing import shown_metadata


@dataclass(frozen=True, slots=True)
class Continued:
    """Where a file is cut, and the footer for the row groups that lie whole before that."""

    end: int  # The offset
    record: bytes  # The footer, and the record around it; empty where that is there
    num_rows: int | None  # Rows that it names; None where they are not known
    num_row_groups: int  # Row groups that it names


async def continued_footer(source: DamagedObject, found: Ciphertext, options: RecoverOptions) -> Continued | None:
    """A footer that names the row groups behind the newest whole one, too; None where there are none."""
    base, later = found.newest, found.later_row_groups
    if base is None or not later or options.keys is None:
        return None
    keys = DecryptionKeys.of(options.keys, (source.store, source.key))
    sealed = parse_sealed_footer(await source.read(ByteRange(base.payload_offset, base.end)), base.payload_offset, base)
    if sealed is None:
        raise AuthenticationError("a footer in the file is not encrypted", where=Where(offset=base.offset))
    cipher = (await FileKeys.of(sealed, keys, options.aad_prefix)).cipher
    metadata = sealed.metadata(cipher)
    row_groups, last = list(metadata.row_groups), base
    for header in later:
        payload = await source.read(ByteRange(header.payload_offset, header.end))
        try:
            record = opened_record(header, payload, cipher)
        except FormatError:
            break
        if record.row_group.ordinal != len(row_groups):
            break
        row_groups.append(_as_in_footer(record.row_group, cipher, in_clear=sealed.module is None))
        last = header
    if last is base:
        return None
    return _continued(source, sealed, cipher, metadata, row_groups, (base, last))


def _as_in_footer(row_group: RowGroup, cipher: FileCipher, *, in_clear: bool) -> RowGroup:
    """A row group of a record as a footer has it: one in the clear tells no values of encrypted columns."""
    if not in_clear:
        return row_group
    columns = []
    for ordinal, known in enumerate(row_group.columns):
        chunk = known
        if chunk.crypto_metadata is not None and chunk.meta_data is not None:
            sealer = ChunkSealer(cipher.footer, cipher.file_aad, os.urandom, row_group.ordinal or 0, ordinal)
            module = sealer.sealed(compact_protocol.encode(chunk.meta_data), ModuleType.COLUMN_METADATA)
            shown = shown_metadata(chunk.meta_data)
            chunk = replace(chunk, meta_data=shown, encrypted_column_metadata=bytes(module))
        columns.append(chunk)
    return replace(row_group, columns=columns)


def _continued(
    source: DamagedObject,
    sealed: SealedFooter,
    cipher: FileCipher,
    metadata: FileMetaData,
    row_groups: Sequence[RowGroup],
    ends: tuple[RecordHeader, RecordHeader],
) -> Continued:
    base, last = ends
    num_rows = sum(row_group.num_rows for row_group in row_groups)
    said = footer.key_values(metadata.key_value_metadata)
    if base.kind == RecordKind.CHECKPOINT:
        known = said.get(footer.CHECKPOINTS_KEY)
        here = f"{base.offset}:{metadata.num_rows}"
        said[footer.CHECKPOINTS_KEY] = here if known is None else f"{known},{here}"
    name, info = os.path.basename(without_query(source.url)), source.info
    lineage = {"source": name, "size": info.size, "etag": info.etag, "rows_lost": None, "lost": []}
    said |= {footer.STATE_KEY: FileState.SALVAGED, footer.LINEAGE_KEY: json.dumps(lineage)}
    pairs = [KeyValue(key, value) for key, value in said.items()]
    written = replace(metadata, num_rows=num_rows, row_groups=list(row_groups), key_value_metadata=pairs)
    chain = RecordChain(last.file_id, last.epoch + 1, last.number + 1, last.offset, base.offset)
    chain.shows_counts = in_clear = sealed.module is None
    record = chain.record(
        RecordKind.FINAL,
        last.end,
        sealed_frame(compact_protocol.encode(written), cipher, sealed.key_metadata, os.urandom, in_clear=in_clear),
        num_rows=num_rows,
        num_row_groups=len(row_groups),
    )
    return Continued(last.end, record, num_rows, len(row_groups))


_PASS_KEYS: Final = "pass keys= (rpq: --keys FILE)"
_WHOLE: Final = "no key was given: the ciphertext was compared, and no value was read"
_UNCHECKED: Final = "no key was given, and no record vouches for the ciphertext: nothing can be checked without keys"
_CLEAR_ONLY: Final = "no key was given: only columns in the clear were checked"
_NO_END: Final = "the end of the file is missing, without which the rest cannot be decrypted, with keys or without"
_MORE: Final = (
    "without keys a file is cut at its newest whole checkpoint; with the footer key the row groups behind it are kept,"
    " too, and with all keys every page that is whole: pass keys= (--keys FILE)"
)


async def _footer_in_clear(source: DamagedObject) -> Contents | None:
    """What the footer at the end says, where it is whole and in the clear."""
    try:
        contents = await source.contents()
    except KeyMissingError:
        return None
    return contents if isinstance(contents, Contents) else None


async def check_ciphertext(source: DamagedObject, progress: Progress | None) -> Report:
    """What a check says of an encrypted file without its keys."""
    contents = await _footer_in_clear(source)
    found = await source.drive(survey_ciphertext(source.info.size, source.file_id))
    if found.file_id is None:
        return await _check_clear_columns(source, contents, progress)
    outcome, findings = Outcome.CIPHERTEXT_WHOLE, _findings(found)
    if findings:
        has_rows = bool(found.row_groups) or any(header.kind != RecordKind.ANCHOR for header in found.footers)
        outcome = Outcome.DAMAGED if has_rows else Outcome.NOTHING
    elif not found.is_finished:
        outcome = Outcome.INCOMPLETE
        message = "its writer did not finish it: it ends in a checkpoint"
        findings.append(Finding(Damage.UNFINISHED, message, Where(offset=found.size), costs_rows=False))
    damaged = outcome is not Outcome.CIPHERTEXT_WHOLE and lasts(source.url)
    following = (command("recover", source.url, recovered_name(source.url)),) if damaged else ()
    note, count = _MORE if findings else _WHOLE, len(found.row_groups)
    return replace(_checked(source, contents, outcome, findings, note), num_row_groups=count, next=following)


def _checked(
    source: DamagedObject, contents: Contents | None, outcome: Outcome, findings: Sequence[Finding], note: str
) -> Report:
    return Report(
        verb="check",
        url=source.url,
        outcome=outcome,
        num_rows=None if contents is None else contents.num_rows,
        num_row_groups=0 if contents is None else len(contents.metadata.row_groups),
        size=source.info.size,
        findings=tuple(findings),
        schema=None if contents is None else str(contents.schema),
        pages_verified=0,
        pages_decoded=0,
        notes=(note,),
    )


def _findings(found: Ciphertext) -> list[Finding]:
    findings = []
    for stretch in found.damaged:
        place = stretch.place
        torn = place.end == found.size and not (found.footers and found.footers[-1].kind == RecordKind.FINAL)
        kind = Damage.TORN if torn else Damage.CORRUPT
        where = Where(offset=place.start)
        findings.append(Finding(kind, stretch.message, where, place.start, place.end, stretch.holds_rows))
    if not findings and not found.is_whole:
        message = "the object ends behind a record that is no footer: its end is missing"
        findings.append(Finding(Damage.TORN, message, Where(offset=found.size), found.end, found.size))
    return findings


async def _check_clear_columns(source: DamagedObject, contents: Contents | None, progress: Progress | None) -> Report:
    """Check a file of another writer: pages of columns in the clear, and nothing else."""
    findings, outcome = list[Finding](), Outcome.UNCHECKED
    if contents is not None:
        findings = [finding async for finding in examine_row_groups(source, contents, progress, {})]
        outcome = Outcome.DAMAGED if findings else outcome
    elif not await _ends_in_footer(source):
        findings, outcome = [Finding(Damage.TORN, _NO_END, Where(offset=source.info.size))], Outcome.NOTHING
    return _checked(source, contents, outcome, findings, _UNCHECKED if contents is None else _CLEAR_ONLY)


async def recover_ciphertext(
    sources: Sequence[DamagedObject],
    target: Target,
    options: RecoverOptions,
    progress: Progress | None,
    missing: KeyMissingError,
) -> Report:
    """Copy an encrypted file of which keys are missing, up to its newest footer before which no page is damaged."""
    # With the footer key the row groups behind that footer are kept, too.
    if len(sources) > 1:
        raise missing
    source, found, rebuilt = await _surveyed(sources[0])
    findings, newest = (*rebuilt, *_findings(found)), found.newest
    continued = await continued_footer(source, found, options)
    if newest is None or (newest.kind == RecordKind.ANCHOR and continued is None):
        hint = f"{_PASS_KEYS}: with them row groups are recovered that no checkpoint names"
        raise _nothing(source, findings, _lost(found, 0), hint)
    ending = continued or Continued(newest.end, b"", None, found.count_row_groups(newest.end))
    return await _cut(source, found, ending, findings, target, options, progress)


async def _cut(
    source: DamagedObject,
    found: Ciphertext,
    ending: Continued,
    findings: Sequence[Finding],
    target: Target,
    options: RecoverOptions,
    progress: Progress | None,
) -> Report:
    """Copy the bytes up to the end of a footer, or of a row group with a new footer behind it."""
    end, num_rows, lost = ending.end, ending.num_rows, _lost(found, ending.end)
    if lost and options.on_damage == OnDamage.RAISE:
        message = "rows behind the newest whole checkpoint would be lost, and on_damage is 'raise'; nothing was written"
        raise RowsLostError(message, where=Where(key=source.url), hint=f"{_PASS_KEYS} to keep them")
    outcome = Outcome.RECOVERED if findings else Outcome.CIPHERTEXT_WHOLE
    outcome = Outcome.PARTIAL if lost else outcome
    if options.only_damaged and outcome is Outcome.CIPHERTEXT_WHOLE:
        return _recovered(source, outcome, findings, Kept(None, None, 0, 0))
    if options.only_damaged:
        await check_free(target)
    await make_folder(target)
    async with beginning_of(source, target, end, progress) as sink:
        if ending.record:
            await sink.write(ending.record)
    kept = Kept(target.url, num_rows, end, None if lost else 0, lost)
    return replace(_recovered(source, outcome, findings, kept, ending.num_row_groups), num_rows=num_rows)


async def _surveyed(source: DamagedObject) -> tuple[DamagedObject, Ciphertext, list[Finding]]:
    """What is whole of a file, and its bytes, rebuilt from parity as far as that is possible."""
    found = await source.drive(survey_ciphertext(source.info.size, source.file_id))
    if found.file_id is None:
        if not await _ends_in_footer(source) and await _footer_in_clear(source) is None:
            finding = Finding(Damage.TORN, _NO_END, Where(offset=found.size))
            raise _nothing(source, [finding], (), "a whole copy of the file is needed")
        raise KeyMissingError(_UNCHECKED, where=Where(key=source.url), hint=_PASS_KEYS)
    if found.is_whole or (healed := await _rebuilt(source)) is None:
        return source, found, []
    source, message = healed
    found = await source.drive(survey_ciphertext(source.info.size, source.file_id))
    return source, found, [Finding(Damage.CORRUPT, message, costs_rows=False)]


def _nothing(
    source: DamagedObject, findings: Sequence[Finding], lost: tuple[LostRegion, ...], hint: str
) -> NothingToRecoverError:
    report = _recovered(source, Outcome.NOTHING, findings, Kept(None, None, 0, None, lost))
    reason = findings[0].message if findings else "no checkpoint is in it"
    message = f"nothing to recover without keys: {reason}"
    return NothingToRecoverError(message, report=report, where=Where(key=source.url), hint=hint)


async def _ends_in_footer(source: DamagedObject) -> bool:
    """Whether the last bytes are those of an encrypted footer."""
    size = source.info.size
    last = bytes(await source.read(ByteRange(max(size - TAIL_SIZE, 0), size)))
    start = size - TAIL_SIZE - int.from_bytes(last[:4], "little")
    if size < MIN_FILE_SIZE or not last.endswith(ENCRYPTED_MAGIC) or start < len(ENCRYPTED_MAGIC):
        return False
    try:
        parse_sealed_footer(await source.read(ByteRange(start, size)), start, None)
    except FormatError:
        return False
    return True


async def _rebuilt(source: DamagedObject) -> tuple[DamagedObject, str] | None:
    """The object as its parity has it, and what that has rebuilt; None where there is none that helps."""
    view = await HealedStore.find(source.store, source.info, thorough=True)
    if view is None or not view.rebuilds(await view.examine()):
        return None
    damaged = view.file.num_damaged
    message = f"damaged blocks: {damaged:,}, of which {damaged - view.file.num_not_rebuilt:,} are rebuilt from parity"
    return await source.rebuilt_by(view), message


def _lost(found: Ciphertext, end: int) -> tuple[LostRegion, ...]:
    if end == found.size and found.is_finished:
        return ()
    reason = "it lies behind the newest whole checkpoint, and no key was given"
    if end == found.size:
        reason = "the end of the file is missing: how many rows followed is not known"
    return (LostRegion(end, found.size, None, Damage.TORN, reason),)


def _recovered(
    source: DamagedObject, outcome: Outcome, findings: Sequence[Finding], kept: Kept, num_row_groups: int = 0
) -> Report:
    return Report(
        verb="recover",
        url=source.url,
        outcome=outcome,
        num_rows=None,
        num_row_groups=num_row_groups,
        size=source.info.size,
        findings=tuple(findings),
        next=() if kept.output is None else (command("check", kept.output),),
        kept=kept,
        notes=(_WHOLE if outcome is Outcome.CIPHERTEXT_WHOLE else _MORE,),
    )
