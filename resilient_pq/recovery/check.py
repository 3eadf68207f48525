"""`check`: read every byte that matters, compare every checksum, write nothing. An async shell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.encryption.keys import KeysArgument
from resilient_pq.errors import AuthenticationError, FormatError, KeyMissingError, Where, located
from resilient_pq.io import RetryPolicy, with_retry
from resilient_pq.io.resolve import Location
from resilient_pq.off_event_loop import off_loop
from resilient_pq.parity.healed_store import ExaminedBlocks, HealedStore, recompute_parity
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.reader.data_file import is_summary_name, writing_again
from resilient_pq.recovery.damaged_object import DamagedObject, open_source
from resilient_pq.recovery.encrypted.with_keys import (
    decrypted,
    keys_missing,
    nothing_to_open,
    read_by_records,
    with_damaged_indexes,
)
from resilient_pq.recovery.encrypted.without_keys import check_ciphertext
from resilient_pq.recovery.evidence.evidence_search import reconstruct, reconstruct_if_sound
from resilient_pq.recovery.evidence.newer_version import find_newer
from resilient_pq.recovery.evidence.parity_strategy import find_parity, read_rebuilt
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.row_group_choice import candidates_of_contents, locate_row_groups
from resilient_pq.recovery.report import Damage, Finding, Outcome, Report, recovered_name
from resilient_pq.recovery.rewrite.retained_rows import RetainedRows, RowGroupOutcome, better_policy, retain_rows
from resilient_pq.recovery.verification.checksum_checks import PagesSeen
from resilient_pq.recovery.verification.findings import Progress, Seen, examine_metadata, examine_row_groups
from resilient_pq.recovery.verification.page_scan import SalvageOptions
from resilient_pq.recovery.verification.verification import Verification, verify_data
from resilient_pq.shell_commands import command, lasts

#: Outcomes of what is as it was written.
_WHOLE = (Outcome.SOUND, Outcome.CIPHERTEXT_WHOLE)
#: Outcomes of what has no damage.
_UNHARMED = (*_WHOLE, Outcome.INCOMPLETE)
#: Outcomes of what a recovery reads through parity, where there is some.
_LOSSES = (Outcome.DAMAGED, Outcome.NOTHING)
#: Findings about what a file may be, which rebuilt bytes decide.
_GUESSES = (Damage.FOREIGN, Damage.UNVERIFIED)
#: Findings in the files of a summary after which there is something to do.
_DAMAGES = (Damage.CORRUPT, Damage.MISSING, Damage.TORN)


async def check(
    url: Location,
    *,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    require_checksums: bool = False,
    deep: bool = False,
    keys: KeysArgument | None = None,
    aad_prefix: bytes | None = None,
    progress: Progress | None = None,
) -> Report:
    """Read an object and say what is wrong with it; nothing is written.

    Of a summary the chunks and indexes that it names are read, in the files that they lie in; of what else stands
    in those files, their own check tells.

    Args:
        url: A URL, a path, or a pair of a store and a key in it.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        require_checksums: Count pages without a checksum as damage: a file that has such pages is not "sound".
        deep: Compare every byte with the sidecar beside the file, and compute the parity in it again: a sidecar that is
            damaged, or of another version of the file, is a finding.
        keys: Of an encrypted file, as `open` takes them. Without them its ciphertext is compared with the checksums
            that stand in it in the clear, and no value is read: what is whole then is not called sound.
        aad_prefix: What an encrypted file is bound to besides its keys, where it does not store it.
        progress: Called now and then with the bytes examined and the bytes there are.

    Returns:
        The report: its outcome is "sound", "incomplete", "damaged", or "nothing" when no row can be had. Pages without
        a checksum are only decoded: how many these are stands beside it, and a changed value in them is not seen. Of
        an encrypted file without keys it is "ciphertext whole", or "unchecked" where another writer's file has nothing
        that vouches for its bytes.

    Raises:
        UnsupportedError: The file is whole, but this version cannot read it.
        StoreError: The object is not there, or the store could not give its bytes.
    """
    storage_options = with_retry(storage_options, retry)
    async with await open_source(url, storage_options) as source:
        with located(Where(key=source.url)):
            if keys is not None:
                report = await _check_opened(source, keys, aad_prefix, progress, deep=deep)
                return with_checksums_required(report) if require_checksums else report
            try:
                reconstruction = await reconstruct(source)
            except KeyMissingError:
                return await _check_parity(source, await check_ciphertext(source, progress), deep=deep)
            if reconstruction.contents is not None and reconstruction.contents.data_files:
                report = await _check_summary(source, reconstruction.contents, progress)
            else:
                report = await _check_known(reconstruction, progress, deep=deep)
            return with_checksums_required(report) if require_checksums else report


async def _check_opened(
    source: DamagedObject, keys: KeysArgument, aad_prefix: bytes | None, progress: Progress | None, *, deep: bool
) -> Report:
    """Check an encrypted file with its keys: by its footer, and by its records where something is damaged."""
    try:
        opened = await decrypted(source, keys, aad_prefix)
    except AuthenticationError:
        raise
    except FormatError as error:
        report = nothing_to_open(source, "check", error).report
        assert isinstance(report, Report)
        return await _check_parity(source, report, deep=deep)
    if opened.opened.missing_keys:
        report = await check_ciphertext(source, progress)
        report = replace(
            report, notes=(*report.notes[1:], f"{keys_missing(opened)}: the ciphertext alone was compared")
        )
        return await _check_parity(source, report, deep=deep)
    return await _check_known(await with_damaged_indexes(await reconstruct(opened)), progress, deep=deep)


async def _check_known(known: Reconstruction, progress: Progress | None, *, deep: bool) -> Report:
    """Check a file as `recover` reads it: through its parity where something is wrong."""
    report = await _check_rows(known, progress)
    return await _check_parity(known.source.origin, report, deep=deep, known=known, progress=progress)


async def _check_rows(known: Reconstruction, progress: Progress | None) -> Report:
    """Check a file by its footer, and if it is encrypted, by its records where something is damaged."""
    report = await _check(known, progress)
    if known.source.decrypt is None or report.outcome not in _LOSSES:
        return report
    if (by_records := await read_by_records(known)) is None:
        return report
    other = await _check(by_records, progress)
    return other if (other.num_rows or 0) > (report.num_rows or 0) else report


async def _check_rebuilt(
    report: Report, known: Reconstruction, view: HealedStore, examined: ExaminedBlocks, progress: Progress | None
) -> Report:
    """The report of a damaged file as its parity rebuilds it, with what is wrong with the bytes that lie there."""
    if report.outcome not in _LOSSES or not view.rebuilds(examined):
        return report
    rebuilt = await _check_rows(await read_rebuilt(known, view), progress)
    left = [replace(one, costs_rows=False) for one in rebuilt.findings]
    lies = [replace(one, costs_rows=False) for one in report.findings if one.damage not in _GUESSES]
    findings = (*(one for one in lies if one not in left), *rebuilt.findings)
    return replace(rebuilt, size=report.size, findings=findings)


def with_checksums_required(report: Report) -> Report:
    """A report in which pages without a checksum are damage."""
    if not report.pages_decoded:
        return report
    missing = f"{report.pages_decoded:,} of {report.num_pages:,} pages have no checksum: a changed value is not seen"
    finding = Finding(Damage.UNVERIFIED, missing, Where(), costs_rows=False)
    outcome = Outcome.DAMAGED if report.outcome is Outcome.SOUND else report.outcome
    return replace(report, outcome=outcome, findings=(*report.findings, finding))


async def _check_parity(
    source: DamagedObject,
    report: Report,
    *,
    deep: bool,
    known: Reconstruction | None = None,
    progress: Progress | None = None,
) -> Report:
    """The report with what parity says: of rows where they are `known`, of bytes without checksums, and of a repair."""
    if report.outcome in _UNHARMED and not report.pages_decoded and not deep:
        return report
    view = await (HealedStore.find(source.store, source.info) if known is None else find_parity(known))
    if view is not None and (examined := await view.examine()).num_damaged:
        if known is not None:
            report = await _check_rebuilt(report, known, view, examined, progress)
        report = _with_parity(report, source.url, examined, is_bound=view.is_bound)
    return await _with_recomputed(source, report) if deep and report.outcome in _WHOLE else report


async def _with_recomputed(source: DamagedObject, report: Report) -> Report:
    """The report of a sound file with what its parity should be."""
    try:
        parity = await recompute_parity(source.store, source.info)
    except FormatError as error:
        wrong = f"its parity is lost: {error.message}"
    else:
        report = replace(report, parity_blocks=parity.num_blocks)
        if not parity.num_damaged:
            return report
        wrong = f"{parity.num_damaged:,} of {parity.num_blocks:,} blocks of its parity belong to other bytes"
    finding = Finding(Damage.UNVERIFIED, wrong, Where(), costs_rows=False)
    following = (*command("protect", source.url), "--overwrite")
    return replace(report, outcome=Outcome.DAMAGED, findings=(*report.findings, finding), next=(following,))


def _with_parity(report: Report, url: str, examined: ExaminedBlocks, *, is_bound: bool) -> Report:
    """The report with the blocks that parity finds damaged; `is_bound`: it was made for this version of the file."""
    num_damaged, repairable = examined.num_damaged, examined.may_be_repaired
    if report.outcome in _WHOLE:
        if not is_bound:
            return report  # the file was written anew after its sidecar
        changed = f"{num_damaged:,} blocks are not as they were when the file was protected"
        finding = Finding(Damage.CORRUPT, changed, Where(), costs_rows=True)
        report = replace(report, outcome=Outcome.DAMAGED, findings=(*report.findings, finding))
    if not is_bound and not repairable:
        return report
    following = (command("repair", url, recovered_name(url, "repaired")),) if repairable else ()
    return replace(
        report,
        outcome=Outcome.DAMAGED if repairable else report.outcome,
        blocks_damaged=num_damaged,
        blocks_repairable=examined.num_repairable,
        next=(*following, *report.next),
    )


async def check_if_sound(url: Location) -> Report | None:
    """The report of `check` where nothing is wrong with an object, found with little effort where something is."""
    async with await open_source(url, None) as source:
        with located(Where(key=source.url)):
            reconstruction = await reconstruct_if_sound(source)
            report = None if reconstruction is None else await _check(reconstruction, None)
            return report if report is not None and report.outcome is Outcome.SOUND else None


async def _check(reconstruction: Reconstruction, progress: Progress | None) -> Report:
    contents = reconstruction.contents
    if contents is None:
        return _report_nothing(reconstruction)
    verification = await verify_data(reconstruction, SalvageOptions(), progress)
    newer = await _check_newer(reconstruction, verification, progress)
    if isinstance(newer, Report):
        return newer
    reconstruction = verification.reconstruction
    findings = [*reconstruction.findings, *verification.findings, *newer]
    num_chunks, schema, found = reconstruction.num_chunks, contents.schema, reconstruction.row_groups
    rows = await off_loop(num_chunks, retain_rows, schema, found, verification.scanned, OnDamage.DROP)
    other = await off_loop(num_chunks, better_policy, schema, rows, found, verification.scanned)
    outcome = _outcome(reconstruction.source, contents, reconstruction.error, findings)
    expected = contents.num_rows or reconstruction.error is not None or contents.state is FileState.IN_PROGRESS
    if not rows.num_rows and expected:
        outcome = Outcome.NOTHING
    report = await off_loop(
        num_chunks, _report, reconstruction.source, contents, outcome, rows, findings, verification.seen
    )
    if other is None:
        return report
    source = reconstruction.source
    recovery = (*command("recover", source.url, recovered_name(source.url)), "--on-damage", other.on_damage)
    return replace(report, other_policy=other, next=(recovery,) if lasts(source.url) else ())


async def _check_newer(
    reconstruction: Reconstruction, verification: Verification, progress: Progress | None
) -> Report | list[Finding]:
    """The report of a newer version in front of the footer at the end, or what is said where none decides."""
    newer = await find_newer(reconstruction, verification.scanned)
    if newer is None:
        return []
    report = await _check(newer.known, progress)
    return report if newer.decides(report.num_rows or 0) else [newer.doubt]


def _report_nothing(reconstruction: Reconstruction) -> Report:
    """The report of a file without metadata that can be used, with advice where it is of another format."""
    findings, identity = list(reconstruction.findings), reconstruction.identity
    report = _report(reconstruction.source, None, Outcome.NOTHING, RetainedRows(()), findings, {})
    return replace(report, notes=(identity.hint,)) if identity is not None and identity.hint else report


def _outcome(source: DamagedObject, contents: Contents, error: FormatError | None, findings: list[Finding]) -> Outcome:
    """The outcome of a file with rows; adds the finding that its writer did not finish it."""
    if error is not None or any(finding.damage is not Damage.UNVERIFIED for finding in findings):
        return Outcome.DAMAGED
    if contents.state in (None, FileState.COMPLETE):
        return Outcome.SOUND
    made = "; a recovery made this copy" if contents.state is FileState.SALVAGED else ""
    message = f"its writer did not finish it{made}"
    findings.append(Finding(Damage.UNFINISHED, message, Where(offset=source.info.size), costs_rows=False))
    return Outcome.INCOMPLETE


async def _check_summary(source: DamagedObject, contents: Contents, progress: Progress | None) -> Report:
    """Check the row groups that a summary names, in the files that they lie in."""
    seen: Seen = {}
    findings = [finding async for finding in examine_row_groups(source, contents, progress, seen)]
    findings += [finding async for finding in examine_metadata(source, contents)]
    bad = {finding.where.row_group for finding in findings if finding.costs_rows}
    row_groups = await off_loop(contents.num_chunks, lambda: locate_row_groups(candidates_of_contents(contents)))
    rows = RetainedRows(tuple(RowGroupOutcome(each) for each in row_groups if each.ordinal not in bad))
    outcome = _outcome(source, contents, None, findings)
    if not rows.num_rows and contents.num_rows:
        outcome = Outcome.NOTHING
    return await off_loop(contents.num_chunks, _report, source, contents, outcome, rows, findings, seen)


def _report(
    source: DamagedObject,
    contents: Contents | None,
    outcome: Outcome,
    rows: RetainedRows,
    findings: list[Finding],
    seen: Mapping[tuple[int, int], PagesSeen],
) -> Report:
    return Report(
        verb="check",
        url=source.url,
        outcome=outcome,
        num_rows=rows.num_rows,
        num_row_groups=len(rows.row_groups),
        size=source.info.size if contents is None else source.objects(contents).num_bytes,
        findings=tuple(findings),
        next=_next_commands(source.url, contents, outcome, findings),
        schema=None if contents is None else str(contents.schema),
        pages_verified=sum(pages.verified for pages in seen.values()),
        pages_decoded=sum(pages.decoded for pages in seen.values()),
    )


def _next_commands(
    url: str, contents: Contents | None, outcome: Outcome, findings: list[Finding]
) -> tuple[tuple[str, ...], ...]:
    """The commands to run after a check; none where there is nothing to do."""
    if contents is not None and contents.data_files:
        commands = [_command_for_summary(url, finding) for finding in findings if finding.damage in _DAMAGES]
        return tuple(dict.fromkeys(commands))
    if outcome is Outcome.NOTHING and is_summary_name(url):
        return (writing_again(url),)
    # A recovery of what a recovery made finds nothing more.
    finished = outcome is Outcome.INCOMPLETE and contents is not None and contents.state is FileState.SALVAGED
    if finished or outcome not in (Outcome.DAMAGED, Outcome.INCOMPLETE):
        return ()
    return (command("recover", url, recovered_name(url)),) if lasts(url) else ()


def _command_for_summary(url: str, finding: Finding) -> tuple[str, ...]:
    """A data file that is damaged is looked at by itself; a summary that speaks of others than are there is not."""
    file = finding.where.key
    if finding.damage is not Damage.CORRUPT or file in (None, url):
        return writing_again(url)
    return command("check", str(file))
