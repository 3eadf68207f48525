"""What is wrong with the bytes of a file: its chunks, its records, its indexes. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace

from resilient_pq.errors import (
    FormatError,
    NotFoundError,
    ObjectChangedError,
    Where,
)
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.plan import ChunkRead, chunk_read
from resilient_pq.recovery.report import Damage, Finding
from resilient_pq.recovery.source import Source
from resilient_pq.recovery.verify import Expected, examine_chunk, examine_expected, expected_metadata

#: Called with the bytes examined so far and the bytes there are.
Progress = Callable[[int, int], None]


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
