"""`check`: read every byte that matters, compare every checksum, write nothing. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from resilient_pq.errors import (
    FormatError,
    NotFoundError,
    NotParquetError,
    ObjectChangedError,
    TornFileError,
    Where,
    located,
)
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.reader.data_file import is_summary_name, writing_again
from resilient_pq.reader.plan import ChunkRead, chunk_read
from resilient_pq.recovery.choose import Candidates, candidates_of_survey
from resilient_pq.recovery.report import Damage, Finding, Outcome, Report
from resilient_pq.recovery.source import Location, Source, open_source
from resilient_pq.recovery.verify import Expected, examine_chunk, examine_expected, expected_metadata

#: Findings in the files of a summary after which there is something to do.
_DAMAGES = (Damage.CORRUPT, Damage.MISSING, Damage.TORN)

#: Called with the bytes examined so far and the bytes there are.
Progress = Callable[[int, int], None]


async def check(
    url: Location, *, storage_options: Mapping[str, Any] | None = None, progress: Progress | None = None
) -> Report:
    """Read an object and say what is wrong with it; nothing is written.

    Of a summary the chunks and indexes that it names are read, in the files that they lie in; of what else stands
    in those files, their own check tells.

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
    return Report(
        verb="check",
        url=source.url,
        outcome=outcome,
        num_rows=num_rows,
        num_row_groups=num_row_groups,
        size=source.info.size if contents is None else source.objects(contents).num_bytes,
        findings=tuple(findings),
        next=_next_commands(source.url, contents, outcome, findings),
        schema=None if contents is None else str(contents.schema),
    )


def _next_commands(
    url: str, contents: Contents | None, outcome: Outcome, findings: list[Finding]
) -> tuple[tuple[str, ...], ...]:
    """The commands to run after a check; none where there is nothing to do."""
    if contents is not None and contents.data_files:
        commands = [_of_summary(url, finding) for finding in findings if finding.damage in _DAMAGES]
        return tuple(dict.fromkeys(commands))
    if outcome is Outcome.NOTHING and is_summary_name(url):
        return (writing_again(url),)
    # Of what a recovery made there is nothing more to be had.
    finished = outcome is Outcome.INCOMPLETE and contents is not None and contents.state is FileState.SALVAGED
    if finished or outcome not in (Outcome.DAMAGED, Outcome.INCOMPLETE):
        return ()
    return (("rpq", "recover", url, recovered_name(url)),)


def _of_summary(url: str, finding: Finding) -> tuple[str, ...]:
    """A data file that is damaged is looked at by itself; a summary that speaks of others than are there is not."""
    file = finding.where.key
    if finding.damage is not Damage.CORRUPT or file in (None, url):
        return writing_again(url)
    return ("rpq", "check", str(file))


def recovered_name(url: str) -> str:
    """A name for the recovered object beside the damaged one."""
    base = url.removesuffix(".partial")
    return f"{base.removesuffix('.parquet')}.recovered.parquet"


async def examine_row_groups(
    source: Source, contents: Contents, progress: Progress | None
) -> AsyncIterator[Finding]:
    """What is wrong with the column chunks of a file, chunk by chunk; one chunk is in memory at a time."""
    objects = source.objects(contents)
    total = _bytes_to_examine(source, contents)
    files: dict[str, Finding | None] = {}
    done = 0
    for ordinal in range(len(contents.metadata.row_groups)):
        told: set[str | None] = set()
        for leaf in contents.schema.leaves:
            try:
                chunk = chunk_read(contents, ordinal, leaf)
                unusable = await _unusable(objects, chunk.file, files)
                if unusable is None:
                    objects.place_of(chunk)
            except FormatError as error:
                yield Finding(Damage.CORRUPT, error.message, error.where)
                continue
            if unusable is not None:
                if chunk.file not in told:
                    yield replace(unusable, where=unusable.where.merged_with(Where(row_group=ordinal)))
                told.add(chunk.file)
                continue
            for finding in await _examine_twice(objects, chunk):
                yield finding
            done += chunk.range.size
            if progress is not None:
                progress(done, total)


def _bytes_to_examine(source: Source, contents: Contents) -> int:
    if not contents.data_files:
        return source.info.size
    row_groups = contents.metadata.row_groups
    chunks = [chunk.meta_data for row_group in row_groups for chunk in row_group.columns]
    return max(1, sum(chunk.total_compressed_size for chunk in chunks if chunk is not None))


async def _unusable(
    objects: ChunkObjects, file: str | None, known: dict[str, Finding | None]
) -> Finding | None:
    """What stands against reading a data file that a summary names; None where nothing does.

    Args:
        objects: They pin it.
        file: The data file; None for the file itself.
        known: What was found before, added to.
    """
    if file is None:
        return None
    if file not in known:
        known[file] = None
        try:
            await objects.pin([file])
        except (NotFoundError, ObjectChangedError) as error:
            known[file] = Finding(Damage.MISSING, error.message, error.where)
    return known[file]


async def _examine_twice(objects: ChunkObjects, chunk: ChunkRead) -> list[Finding]:
    """Examine a chunk; where it seems damaged, fetch it once more before believing it."""
    findings = await asyncio.to_thread(examine_chunk, chunk, await objects.read(chunk))
    if findings:
        findings = await asyncio.to_thread(examine_chunk, chunk, await objects.read(chunk))
    return [_in_file(finding, objects, chunk.file) for finding in findings]


async def examine_metadata(source: Source, contents: Contents) -> AsyncIterator[Finding]:
    """What is wrong with the records and indexes of a resilient file whose footer is whole."""
    async for finding in examine_places(source, contents, expected_metadata(contents)):
        yield finding


async def examine_places(
    source: Source, contents: Contents, places: Iterable[Expected]
) -> AsyncIterator[Finding]:
    """What is wrong with metadata at some places of a resilient file."""
    record = contents.footer.record
    if record is None:
        return
    objects = source.objects(contents)
    files: dict[str, Finding | None] = {}
    for expected in places:
        file = expected.file
        if await _unusable(objects, file, files) is not None:
            continue  # told with its chunks already
        try:
            finding = examine_expected(
                expected, await objects.read_range(file, expected.range), record.file_id
            )
            if finding is not None:
                data = await objects.read_range(file, expected.range)
                finding = examine_expected(expected, data, record.file_id)
        except FormatError as error:
            where = error.where.merged_with(expected.where)
            finding = Finding(Damage.CORRUPT, error.message, where, costs_rows=False)
        if finding is not None:
            yield _in_file(finding, objects, file)


def _in_file(finding: Finding, objects: ChunkObjects, file: str | None) -> Finding:
    """A finding of a data file names it."""
    if file is None:
        return finding
    return replace(finding, where=finding.where.merged_with(Where(key=objects.url_of(file))))
