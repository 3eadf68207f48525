"""`recover`: write what can be kept of a damaged object to a new one. An async shell.

The source is only read. Everything that goes into the output has been verified before the first byte of it is
written, so there is no output where nothing can be kept. What a store copies by itself is the exception: see `verify`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Literal

from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.encryption.keys import KeysArgument
from resilient_pq.errors import (
    KeyMissingError,
    RowsLostError,
    SchemaError,
    Where,
    located,
)
from resilient_pq.io import WRITING, RetryPolicy, WriteStore, place_of, with_retry
from resilient_pq.io.output_target import Target, check_free, check_other, permissions_of
from resilient_pq.io.resolve import Location
from resilient_pq.io.upload.upload_start import uploads_left
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.off_event_loop import off_loop
from resilient_pq.recovery.damaged_object import DamagedObject, open_source
from resilient_pq.recovery.encrypted.with_keys import opened, read_by_records, with_damaged_indexes
from resilient_pq.recovery.encrypted.without_keys import recover_ciphertext
from resilient_pq.recovery.evidence.evidence_search import reconstruct, reconstruct_if_sound
from resilient_pq.recovery.evidence.newer_version import find_newer
from resilient_pq.recovery.evidence.parity_strategy import read_through_parity
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.schema_source import Siblings, known_schema
from resilient_pq.recovery.ledger.ledger_build import build_ledger
from resilient_pq.recovery.ledger.ledger_model import Ledger
from resilient_pq.recovery.nothing_kept import OtherTry, nothing_to_recover, summary_refused
from resilient_pq.recovery.recover_options import RecoverOptions
from resilient_pq.recovery.report import Kept, Outcome, Report
from resilient_pq.recovery.rewrite.output_object import OutputContents, may_be_unread, publish
from resilient_pq.recovery.rewrite.retained_rows import better_policy, find_guessed_numbers, retain_rows
from resilient_pq.recovery.rewrite.split_columns import publish_columns, targets_of
from resilient_pq.recovery.verification.bit_repair import with_bit_turned_back
from resilient_pq.recovery.verification.findings import Progress
from resilient_pq.recovery.verification.merged_copies import merge_copies
from resilient_pq.recovery.verification.page_scan import SalvageOptions
from resilient_pq.recovery.verification.verification import Verification, verify_data
from resilient_pq.shell_commands import command

log = logging.getLogger("resilient_pq.recovery")


async def recover(
    src: Location | Sequence[Location],
    dst: Location,
    *,
    on_damage: Literal["drop", "null", "columns", "raise"] = "drop",
    schema: object | None = None,
    schema_from: Location | None = None,
    repair_bits: bool = False,
    keep_unplaced: bool = False,
    file_id: str | None = None,
    verify: bool = False,
    overwrite: bool = False,
    keys: KeysArgument | None = None,
    aad_prefix: bytes | None = None,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Progress | None = None,
) -> Report:
    """Write the rows of a damaged file that are whole to a new object.

    Row groups that are whole are copied as bytes, never decoded and encoded again. Of the others the pages that are
    whole are kept. A sound file is copied as it is.

    Args:
        src: The damaged object: a URL, a path, or a pair of a store and a key in it. It is only read. A list of
            copies of one file (replicas, versions of an object) takes each page from whichever has it whole.
        dst: Where the output goes; never the source itself.
        on_damage: What is done with rows of which a value is lost. "drop" leaves them out, in every column. "null"
            makes columns that may be null null in them. "columns" writes an output for each column, with the rows
            that it has left and their numbers: day.NAME.parquet for a `dst` of day.parquet. "raise" refuses to
            write anything.
        schema: The columns, for a file whose footer is gone and that has no records: a Parquet schema or its text, an
            Arrow schema, or Arrow data. Where neither this nor `schema_from` is given, columns of the physical types
            are made up, with a warning.
        schema_from: Another file of the same columns, of which the footer is read.
        repair_bits: Turn single bits back where that makes the CRC32 of a page hold, and the page decodes, counts and
            statistics agree. Rarely, other damage looks like a single bit: for a page of a MiB once in 512 times.
        keep_unplaced: Keep pages also where nothing proves their place: neither the checksum of the chunk, nor a copy
            of the header, nor an index. They may be of another column, of another row group or of an older version of
            the file, or contain bytes that are none of their values; the ledger marks them as "unplaced", and the
            outcome is "partial".
        file_id: 32 hexadecimal digits: which file is meant where records of several were found, as one within a column
            of another; a finding names them. None for the one that the anchor names, else for the outermost.
        verify: Whether also those bytes are read and compared that a store could copy by itself: the beginning of a
            file that is torn, when the output goes to the same store. All others always are.
        overwrite: Replace an object that is at `dst`.
        keys: Of an encrypted file, as `open` takes them. Without them it is cut at its newest whole checkpoint. With
            the footer key alone the row groups behind that are kept, too; with all keys every page that is whole, and
            the output is encrypted with the same keys.
        aad_prefix: What an encrypted file is bound to besides its keys, where it does not store it.
        storage_options: Credentials, endpoint and so on for `src`, as fsspec and pandas take them.
        dst_storage_options: The same for `dst`; None means those of `src`.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s for
            reading, and 120 s for writing.
        progress: Called now and then with the bytes examined and the bytes there are.

    Returns:
        The report: its outcome is "sound", "recovered" (all rows are kept, and nothing can have followed) or "partial".

    Raises:
        NothingToRecoverError: Not one row can be kept; nothing was written. Its report names the schema when the
            anchor is whole.
        RecoveryError: `src` and `dst` are the same object, `src` is a summary of other files, or copies are not of
            one file.
        RowsLostError: Rows or values are lost, and `on_damage` is "raise"; nothing was written.
        AlreadyExistsError: There is an object at `dst`, and `overwrite` is False.
        SchemaError: There is no such `on_damage`, or `file_id` is none.
        KeyMissingError: It is encrypted, and more of its keys are needed.
        WrongKeyError: A key opens nothing of it.
        StoreError: A store refused; nothing was published.
    """
    storage_options = with_retry(storage_options, retry)
    if dst_storage_options is not None:
        dst_storage_options = with_retry(dst_storage_options, retry)
    locations: list[Location] = list(src) if isinstance(src, list) else [src]  # type: ignore[list-item]
    options = RecoverOptions(on_damage, schema, schema_from, repair_bits, keep_unplaced, file_id, verify, overwrite)
    options = replace(options, keys=keys, aad_prefix=aad_prefix)
    return await salvage(
        locations,
        dst,
        options,
        storage_options=storage_options,
        dst_storage_options=dst_storage_options,
        progress=progress,
    )


async def salvage(
    locations: Sequence[Location],
    dst: Location,
    options: RecoverOptions,
    *,
    siblings: Sequence[Location] = (),
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Report:
    """What `recover` does, and raises."""
    policy = OnDamage.named(options.on_damage, list(OnDamage))
    if not locations:
        raise SchemaError("src is an empty list; name at least one copy")
    reached = storage_options if dst_storage_options is None else dst_storage_options
    async with AsyncExitStack() as stack:
        file_id = options.id_of_file
        sources = [
            await stack.enter_async_context(await open_source(location, storage_options, file_id))
            for location in locations
        ]
        store, key = await stack.enter_async_context(place_of(dst, reached, retry=WRITING))
        permissions = permissions_of(source.info for source in sources)
        target = Target(store, key, options.overwrite, options.make_folder, permissions)
        for source in sources:
            await check_other(source.address, target)
        if policy is not OnDamage.COLUMNS and not options.only_damaged:
            await check_free(target)
        with located(Where(key=sources[0].url)):
            try:
                copies = await _understood(sources, options, Siblings(siblings, storage_options), storage_options)
            except KeyMissingError as error:
                return await recover_ciphertext(sources, target, options, progress, error)
            reconstruction, alternates = await merge_copies(copies)
            repair = with_bit_turned_back if options.repair_bits else None
            salvage_options = SalvageOptions(alternates, repair, options.keep_unplaced)
            request = _Request(
                target, policy, options.verify, salvage_options, options.only_damaged, progress, again=options.words
            )
            report = await _recover(reconstruction, request)
            assert report is not None
            return report


async def _understood(
    sources: Sequence[DamagedObject],
    options: RecoverOptions,
    siblings: Siblings,
    storage_options: Mapping[str, Any] | None,
) -> list[Reconstruction]:
    """What is known of each copy, in the clear where there are keys."""
    if options.keys is not None:
        sources = [await opened(source, options) for source in sources]
    given = await known_schema(schema=options.schema, schema_from=options.schema_from, storage_options=storage_options)
    known = [await reconstruct(source, given, siblings) for source in sources]
    return known if options.keys is None else [await with_damaged_indexes(each) for each in known]


async def salvage_if_sound(location: Location, dst: Location, options: RecoverOptions) -> Report | None:
    """What `recover` does of an object that nothing is wrong with, found with little effort where something is."""
    policy = OnDamage.named(options.on_damage, list(OnDamage))
    async with await open_source(location, None) as source, place_of(dst, None) as (store, key):
        permissions = permissions_of([source.info])
        target = Target(store, key, options.overwrite, options.make_folder, permissions)
        await check_other(source.address, target)
        if not options.only_damaged:
            await check_free(target)
        with located(Where(key=source.url)):
            reconstruction = await reconstruct_if_sound(source)
            if reconstruction is None:
                return None
            request = _Request(target, policy, True, SalvageOptions(), options.only_damaged, only_sound=True)
            return await _recover(reconstruction, request)


@dataclass(frozen=True, slots=True)
class _Request:
    """What a caller wants of a recovery; `again` are its options as words of the command line."""

    target: Target
    on_damage: OnDamage
    verify: bool
    options: SalvageOptions
    only_damaged: bool
    progress: Progress | None = None
    only_sound: bool = False
    again: tuple[str, ...] = ()


async def _recover(reconstruction: Reconstruction, request: _Request) -> Report | None:
    """The report; None where only what is sound was to be copied, and it is not."""
    unread = not request.verify and may_be_unread(reconstruction, request.target)
    output = None
    if reconstruction.error is None:
        output = await _examine(reconstruction, request, unread=unread)
    if output is None or not output.sound:
        if request.only_sound:
            return None
        output = await _examine_closely(reconstruction, output, request, unread=unread)
    report = await _write(output, request)
    if report is None:  # it has to be read after all, and then it is compared
        return await _recover(reconstruction, replace(request, verify=True))
    return report


async def _examine_closely(
    reconstruction: Reconstruction, output: OutputContents | None, request: _Request, *, unread: bool
) -> OutputContents:
    """What can be kept of a file of which something is wrong: through its parity; if encrypted, by its records, too."""
    healed = await read_through_parity(reconstruction, only_ended=unread)
    if healed is not None or output is None:
        output = await _examine(healed or reconstruction, request, unread=unread)
    if not output.sound:
        output = await _examine_newer(output, request)
    if output.sound or reconstruction.source.decrypt is None:
        return output
    if (by_records := await read_by_records(output.reconstruction)) is None:
        return output
    other = await _examine(by_records, request, unread=False)
    return other if other.rows.num_rows > output.rows.num_rows else output


async def _examine_newer(output: OutputContents, request: _Request) -> OutputContents:
    """What can be kept of a newer version in front of the footer at the end, where there is one that decides."""
    newer = await find_newer(output.reconstruction, output.verification.scanned)
    if newer is None:
        return output
    other = await _examine(newer.known, request, unread=False)
    doubted = replace(output, findings=(*output.findings, newer.doubt))
    return other if newer.decides(other.rows.num_rows) else doubted


async def _examine(reconstruction: Reconstruction, request: _Request, *, unread: bool) -> OutputContents:
    """What of a file can be kept."""
    contents = reconstruction.contents
    if contents is None:
        raise nothing_to_recover(reconstruction, reconstruction.findings, None)
    if contents.data_files:
        raise summary_refused(reconstruction.source.url)
    unread = unread and not reconstruction.source.rebuilt
    verification = await verify_data(reconstruction, request.options, request.progress, unread=unread)
    found, num_chunks = verification.reconstruction, verification.reconstruction.num_chunks
    return await off_loop(num_chunks, _choose_output, found, verification, request.on_damage)


async def _write(output: OutputContents, request: _Request) -> Report | None:
    """Write what can be kept; None where bytes have to be read that were to be copied unread."""
    _refuse_losses(output, request)
    report = await off_loop(output.reconstruction.num_chunks, _report, output, request)
    if request.only_damaged and report.outcome is Outcome.SOUND:
        return replace(report, next=(), kept=Kept(None, 0, 0, 0))
    if request.on_damage is OnDamage.COLUMNS and not output.sound:
        return await _publish_columns(output, request.target, report)
    if request.only_damaged:
        await check_free(request.target)
    copied = await publish(output, request.target, request.progress)
    if copied is None or report.kept is None:
        return None
    kept = replace(report.kept, num_bytes=copied.num_bytes, num_bytes_unread=copied.num_bytes_unread)
    if report.size < request.target.options.part_bytes:
        return replace(report, kept=kept)  # a recovery that was killed before began no upload
    return replace(report, kept=kept, notes=await _find_open_uploads(request.target.store, {request.target.key}))


async def _publish_columns(output: OutputContents, target: Target, report: Report) -> Report:
    outputs, contents = await publish_columns(output, target), output.reconstruction.contents
    assert report.kept is not None and contents is not None
    return replace(
        report,
        kept=replace(report.kept, output=None, outputs=outputs),
        next=tuple(command("check", url) for url in outputs.values()),
        notes=await _find_open_uploads(target.store, {one.key for _, one in targets_of(contents.schema, target)}),
    )


async def _find_open_uploads(store: WriteStore, keys: Collection[str]) -> tuple[str, ...]:
    """Warn of uploads for the names of outputs, which killed recoveries leave; none is removed, as one may be alive."""
    notes = await uploads_left(store, keys)
    for note in notes:
        log.warning("%s", note)
    return notes


def _choose_output(reconstruction: Reconstruction, verification: Verification, on_damage: OnDamage) -> OutputContents:
    """Decide which rows are kept, and account for all bytes and rows."""
    assert reconstruction.contents is not None
    findings = (*reconstruction.findings, *verification.findings)
    row_groups, scanned = reconstruction.row_groups, verification.scanned
    if on_damage is OnDamage.COLUMNS:
        findings += tuple(find_guessed_numbers(row_groups, scanned))
    policy = OnDamage.DROP if on_damage is OnDamage.RAISE else on_damage
    rows = retain_rows(reconstruction.contents.schema, row_groups, scanned, policy)
    lost = tuple(sorted((*rows.lost, *verification.lost), key=lambda region: region.start))
    ledger = build_ledger(reconstruction, verification, rows, on_damage)
    schema, other = reconstruction.contents.schema, None
    if policy is OnDamage.DROP:
        other = better_policy(schema, rows, row_groups, scanned)
    return OutputContents(reconstruction, verification, rows, lost, ledger, findings, other)


def _refuse_losses(output: OutputContents, request: _Request) -> None:
    """Raise where no row group is left of a file that had some, and where losses are an error."""
    ledger, reconstruction = output.ledger, output.reconstruction
    if not output.rows.row_groups and not (reconstruction.error is None and ledger.is_complete):
        raise nothing_to_recover(reconstruction, output.findings, ledger, _other_command(output, request))
    if request.on_damage is OnDamage.RAISE and not ledger.is_complete:
        raise RowsLostError(
            f"{_describe_losses(ledger)}, and on_damage is 'raise'; nothing was written",
            where=Where(key=reconstruction.source.url),
            hint="keep all other rows: on_damage='drop' (--on-damage drop)",
        )


def _report(output: OutputContents, request: _Request) -> Report:
    """The report of what is written: its numbers and its outcome are those of the ledger."""
    reconstruction, ledger = output.reconstruction, output.ledger
    assert reconstruction.contents is not None
    source = reconstruction.source
    is_put_back = source.decrypt is not None and source.stored.is_view
    as_it_was = output.sound and not source.rebuilt and not is_put_back
    outcome = Outcome.SOUND if as_it_was else Outcome.RECOVERED
    return Report(
        verb="recover",
        url=source.url,
        outcome=outcome if ledger.is_complete else Outcome.PARTIAL,
        num_rows=ledger.rows_kept,
        num_row_groups=len(output.rows.row_groups),
        size=source.info.size,
        findings=output.findings,
        next=(command("check", request.target.url), *_other_command(output, request)[1]),
        schema=str(reconstruction.contents.schema),
        schema_from=reconstruction.schema_from,
        kept=Kept(request.target.url, ledger.rows_kept, 0, ledger.rows_lost, output.lost, ledger=ledger),
        other_policy=output.other_policy,
    )


def _other_command(output: OutputContents, request: _Request) -> OtherTry:
    """The policy that keeps far more rows, and the command that asks for it; none where there is no such policy."""
    other = output.other_policy
    if other is None:
        return None, ()
    url, target = output.reconstruction.source.url, request.target.url
    overwrite = ("--overwrite",) if output.rows.row_groups else ()
    return other, ((*command("recover", url, target), *request.again, "--on-damage", other.on_damage, *overwrite),)


def _describe_losses(ledger: Ledger) -> str:
    if ledger.rows_lost == 0:
        return "values would be lost"
    return "rows would be lost" if ledger.rows_lost is None else f"{ledger.rows_lost:,} rows would be lost"
