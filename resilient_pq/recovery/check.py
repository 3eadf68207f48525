"""`check`: read every byte that matters, compare every checksum, write nothing. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from resilient_pq.errors import FormatError, NotParquetError, TornFileError, Where, located
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.reader.plan import ChunkRead, chunk_read
from resilient_pq.recovery.choose import Candidates, candidates_of_survey
from resilient_pq.recovery.report import Damage, Finding, Outcome, Report
from resilient_pq.recovery.source import Location, Source, open_source
from resilient_pq.recovery.verify import examine_chunk, examine_expected, expected_metadata

#: Called with the bytes examined so far and the bytes there are.
Progress = Callable[[int, int], None]


async def check(
    url: Location, *, storage_options: Mapping[str, Any] | None = None, progress: Progress | None = None
) -> Report:
    """Read an object and say what is wrong with it; nothing is written.

    Args:
        url: A URL, a path, or a pair of a store and a key in it.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        progress: Called now and then with the bytes examined and the bytes there are.

    Returns:
        The report: its outcome is "sound", "incomplete", "damaged", or "nothing" when no row can be had.

    Raises:
        UnsupportedError: The file is whole, but this version cannot read it.
        StoreError: The object is not there, or the store could not give its bytes.
    """
    async with await open_source(url, storage_options) as source:
        with located(Where(key=source.url)):
            contents = await source.contents()
            if isinstance(contents, Contents):
                return await _check_whole(source, contents, progress)
            return await _check_broken(source, contents, progress)


async def _check_whole(source: Source, contents: Contents, progress: Progress | None) -> Report:
    findings = [finding async for finding in examine_row_groups(source, contents, progress)]
    findings += [finding async for finding in examine_metadata(source, contents)]
    bad = {finding.where.row_group for finding in findings if finding.costs_rows}
    kept = [row_group for i, row_group in enumerate(contents.metadata.row_groups) if i not in bad]
    num_rows = sum(row_group.num_rows for row_group in kept)
    outcome = Outcome.SOUND
    if any(finding.damage is not Damage.UNVERIFIED for finding in findings):
        outcome = Outcome.DAMAGED
    elif contents.state not in (None, FileState.COMPLETE):
        outcome = Outcome.INCOMPLETE
        message = f"the file says of itself that it is {contents.state}"
        findings.append(Finding(Damage.UNFINISHED, message, Where(offset=source.info.size), costs_rows=False))
    if not num_rows and (contents.num_rows or contents.state is FileState.IN_PROGRESS):
        outcome = Outcome.NOTHING
    return _report(source, contents, outcome, num_rows, findings, num_row_groups=len(kept))


async def _check_broken(source: Source, error: FormatError, progress: Progress | None) -> Report:
    """The footer is missing or damaged: tell from the records what can be had."""
    candidates = candidates_of_survey(await source.survey())
    findings = broken_footer(source, error, candidates)
    known = len(findings)
    if candidates is None or not candidates.row_groups:
        contents = candidates.contents if candidates is not None else None
        return _report(source, contents, Outcome.NOTHING, 0, findings)
    findings += [finding async for finding in examine_row_groups(source, candidates.contents, progress)]
    findings += [finding async for finding in examine_metadata(source, candidates.contents)]
    bad = {finding.where.row_group for finding in findings[known:] if finding.costs_rows}
    kept = [row_group for i, row_group in enumerate(candidates.contents.metadata.row_groups) if i not in bad]
    num_rows = sum(row_group.num_rows for row_group in kept)
    outcome = Outcome.DAMAGED if num_rows else Outcome.NOTHING
    return _report(source, candidates.contents, outcome, num_rows, findings, num_row_groups=len(kept))


def broken_footer(source: Source, error: FormatError, candidates: Candidates | None) -> list[Finding]:
    """The findings for a file whose footer cannot be used: what is lost, and all behind the last whole record."""
    kind = Damage.CORRUPT
    if isinstance(error, TornFileError):
        kind = Damage.TORN
    elif isinstance(error, NotParquetError) and candidates is None:
        kind = Damage.FOREIGN
    start = candidates.last.end if candidates is not None and candidates.last is not None else 0
    findings = [Finding(kind, error.message, error.where, start, source.info.size)]
    if candidates is None:
        return findings
    for region in candidates.lost:
        if region.end <= start:
            findings.append(Finding(region.damage, region.reason, region.where, region.start, region.end))
    for gap in candidates.unaccounted:
        message = "no whole record stands here; it was a second copy, nothing is lost with it"
        where = Where(offset=gap.start)
        findings.append(Finding(Damage.CORRUPT, message, where, gap.start, gap.end, costs_rows=False))
    return findings


def _report(
    source: Source,
    contents: Contents | None,
    outcome: Outcome,
    num_rows: int,
    findings: list[Finding],
    *,
    num_row_groups: int = 0,
) -> Report:
    # Of what a recovery made there is nothing more to be had.
    finished = outcome is Outcome.INCOMPLETE and contents is not None and contents.state is FileState.SALVAGED
    return Report(
        verb="check",
        url=source.url,
        outcome=outcome,
        num_rows=num_rows,
        num_row_groups=num_row_groups,
        size=source.info.size,
        findings=tuple(findings),
        next=() if finished else next_commands(source.url, outcome),
        schema=None if contents is None else str(contents.schema),
    )


def next_commands(url: str, outcome: Outcome) -> tuple[tuple[str, ...], ...]:
    """The command to run after a check; none where there is nothing to do."""
    if outcome not in (Outcome.DAMAGED, Outcome.INCOMPLETE):
        return ()
    return (("rpq", "recover", url, recovered_name(url)),)


def recovered_name(url: str) -> str:
    """A name for the recovered object beside the damaged one."""
    base = url.removesuffix(".partial")
    return f"{base.removesuffix('.parquet')}.recovered.parquet"


async def examine_row_groups(
    source: Source, contents: Contents, progress: Progress | None
) -> AsyncIterator[Finding]:
    """What is wrong with the column chunks of a file, chunk by chunk; one chunk is in memory at a time."""
    done = 0
    for ordinal in range(len(contents.metadata.row_groups)):
        for leaf in contents.schema.leaves:
            try:
                chunk = chunk_read(contents, ordinal, leaf)
            except FormatError as error:
                yield Finding(Damage.CORRUPT, error.message, error.where)
                continue
            for finding in await examine_twice(source, chunk):
                yield finding
            done += chunk.range.size
            if progress is not None:
                progress(done, source.info.size)


async def examine_twice(source: Source, chunk: ChunkRead) -> list[Finding]:
    """Examine a chunk; where it seems damaged, fetch it once more before believing it."""
    findings = await asyncio.to_thread(examine_chunk, chunk, await source.read(chunk.range))
    if findings:
        findings = await asyncio.to_thread(examine_chunk, chunk, await source.read(chunk.range))
    return findings


async def examine_metadata(source: Source, contents: Contents) -> AsyncIterator[Finding]:
    """What is wrong with the records and indexes of a resilient file whose footer is whole."""
    record = contents.footer.record
    if record is None:
        return
    for expected in expected_metadata(contents):
        finding = examine_expected(expected, await source.read(expected.range), record.file_id)
        if finding is not None:
            finding = examine_expected(expected, await source.read(expected.range), record.file_id)
        if finding is not None:
            yield finding
