"""`recover`: write what can be kept of a damaged object to a new one. An async shell.

The source is only read. Everything that goes into the output has been verified before the first byte of it is
written, so there is no output where nothing can be kept.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from resilient_pq.checksum import crc32
from resilient_pq.errors import (
    AlreadyExistsError,
    FormatError,
    NothingToRecoverError,
    RecoveryError,
    TransientError,
    Where,
    located,
)
from resilient_pq.format import thrift
from resilient_pq.format.footer import LINEAGE_KEY
from resilient_pq.format.metadata import ColumnIndex, OffsetIndex
from resilient_pq.format.records import RecordChain
from resilient_pq.io import ObjectSink, SinkOptions, WriteStore, resolve
from resilient_pq.io.ranges import ByteRange
from resilient_pq.reader import indexes
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.reader.data_file import writing_again
from resilient_pq.reader.decoder import verify_chunk
from resilient_pq.reader.plan import ChunkRead, chunk_read
from resilient_pq.recovery.check import Progress, broken_footer, examine_metadata, examine_row_groups
from resilient_pq.recovery.choose import (
    Candidate,
    Candidates,
    candidates_of_contents,
    candidates_of_survey,
    without,
)
from resilient_pq.recovery.continued import continued, own_keys
from resilient_pq.recovery.copied_chunk import Derived, copied_chunk
from resilient_pq.recovery.report import Damage, Finding, Kept, LostRegion, Outcome, Report, rows_lost
from resilient_pq.recovery.source import Location, Source, open_source
from resilient_pq.writer.layout import Buffers, Layout

#: Bytes copied at a time.
_COPY_BYTES = 8 * 1024 * 1024


async def recover(
    src: Location,
    dst: Location,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Write the row groups of a damaged file that are whole to a new object.

    Whole row groups are copied as bytes, never decoded and encoded again. A sound file is copied as it is.

    Args:
        src: The damaged object: a URL, a path, or a pair of a store and a key in it. It is only read.
        dst: Where the output goes; never the source itself.
        overwrite: Replace an object that is at `dst`.
        storage_options: Credentials, endpoint and so on for `src`, as fsspec and pandas take them.
        dst_storage_options: The same for `dst`; None means those of `src`.
        progress: Called now and then with the bytes examined and the bytes there are.

    Returns:
        The report: its outcome is "sound", "recovered" (nothing known is lost) or "partial".

    Raises:
        NothingToRecoverError: Not one row can be kept; nothing was written. Its report names the schema when the
            anchor is whole.
        RecoveryError: `src` and `dst` are the same object, or `src` is a summary of other files.
        AlreadyExistsError: There is an object at `dst`, and `overwrite` is False.
        StoreError: A store refused; nothing was published.
    """
    async with await open_source(src, storage_options) as source:
        options = storage_options if dst_storage_options is None else dst_storage_options
        owns_store = not isinstance(dst, tuple)
        store, key = dst if isinstance(dst, tuple) else resolve(dst, options)
        try:
            await _check_output(source, store, key, overwrite=overwrite)
            with located(Where(key=source.url)):
                return await _recover(source, store, key, overwrite=overwrite, progress=progress)
        finally:
            if owns_store:
                await store.close()


async def _check_output(source: Source, store: WriteStore, key: str, *, overwrite: bool) -> None:
    url = store.url_of(key)
    if url == source.url or await asyncio.to_thread(_same_file, url, source.url):
        raise RecoveryError(
            f"{url} is the damaged file itself", hint="a recovery writes a new file; name another output"
        )
    if not overwrite and await store.exists(key):
        raise AlreadyExistsError(
            f"{url} exists", hint="name another output, or use --overwrite (overwrite=True)"
        )


def _same_file(one: str, other: str) -> bool:
    """Whether two paths lead to one file, by links or otherwise; URLs are no paths and lead nowhere."""
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


async def _recover(
    source: Source, store: WriteStore, key: str, *, overwrite: bool, progress: Progress | None
) -> Report:
    contents = await source.contents()
    findings: list[Finding] = []
    if isinstance(contents, FormatError):
        candidates = candidates_of_survey(await source.survey())
        findings += broken_footer(source, contents, candidates)
    else:
        candidates = candidates_of_contents(contents)
    if candidates is None:
        raise _nothing(source, findings, None)
    if candidates.contents.data_files:
        raise RecoveryError(
            "it is a summary: its rows lie in other files",
            where=Where(key=source.url),
            hint=f"recover those that are damaged, then write it again: {' '.join(writing_again(source.url))}",
        )
    data = [finding async for finding in examine_row_groups(source, candidates.contents, progress)]
    copies = [finding async for finding in examine_metadata(source, candidates.contents)]
    findings += data + copies
    bad = {
        candidates.row_groups[finding.where.row_group].ordinal
        for finding in data
        if finding.costs_rows and finding.where.row_group is not None
    }
    kept, lost = without(candidates, bad)
    ended = isinstance(contents, Contents) and contents.state is not FileState.IN_PROGRESS
    if not kept and not (ended and not lost):
        raise _nothing(source, findings, candidates.contents)
    sound = ended and not lost and not copies
    # The source may well be the NAME.partial of the very name that the output should have.
    options = SinkOptions(mode="w" if overwrite else "x", private_partial=True)
    sink = await store.create(key, options)
    try:
        if sound:
            num_bytes = await _copy(source, sink, source.info.size)
        else:
            num_bytes = await _write(source, sink, candidates, kept, lost, in_place=not copies)
        await sink.complete()
    except BaseException:
        await sink.abort()
        raise
    missing = rows_lost(lost)
    outcome = Outcome.PARTIAL if lost else Outcome.SOUND if sound else Outcome.RECOVERED
    num_rows = sum(candidate.row_group.num_rows for candidate in kept)
    return Report(
        verb="recover",
        url=source.url,
        outcome=outcome,
        num_rows=num_rows,
        num_row_groups=len(kept),
        size=source.info.size,
        findings=tuple(findings),
        next=(("rpq", "check", store.url_of(key)),),
        schema=str(candidates.contents.schema),
        kept=Kept(store.url_of(key), num_rows, num_bytes, missing, tuple(lost)),
    )


def _nothing(source: Source, findings: Sequence[Finding], contents: Contents | None) -> NothingToRecoverError:
    size = source.info.size
    reason = findings[0].message if findings else "no row group is whole"
    damage = findings[0].damage if findings else Damage.UNFINISHED
    lost = (LostRegion(0, size, None, damage, reason),) if size else ()
    report = Report(
        verb="recover",
        url=source.url,
        outcome=Outcome.NOTHING,
        num_rows=0,
        size=size,
        findings=tuple(findings),
        schema=None if contents is None else str(contents.schema),
        kept=Kept(None, 0, 0, None if lost else 0, lost),
    )
    hint = None if contents is None else "the schema is known: see the report"
    return NothingToRecoverError(
        f"nothing to recover: {reason}", report=report, where=Where(key=source.url), hint=hint
    )


async def _write(
    source: Source,
    sink: ObjectSink,
    candidates: Candidates,
    kept: Sequence[Candidate],
    lost: Sequence[LostRegion],
    *,
    in_place: bool,
) -> int:
    """Write the output; returns how many bytes of the source went into it as they were.

    Bytes stay `in_place`, and the file the same file, only when all its row groups and records are whole.
    """
    everything = in_place and len(kept) == len(candidates.row_groups)
    if everything and candidates.cut_end is not None:
        return await _copy(source, sink, candidates.cut_end)
    lineage = json.dumps(
        {
            "source": os.path.basename(source.url),
            "size": source.info.size,
            "etag": source.info.etag,
            "rows_lost": rows_lost(lost),
            "lost": [[region.start, region.end, region.num_rows] for region in lost],
        }
    )
    if everything and candidates.prefix_end is not None and candidates.last is not None:
        copied = await _copy(source, sink, candidates.prefix_end)
        layout = await continued(source, candidates)
    else:
        layout = Layout(
            candidates.contents.schema,
            RecordChain(os.urandom(16)),
            own_keys(candidates.contents),
            made_like=candidates.contents.metadata,
        )
        copied = 0
        await _push(sink, layout.start())
        async for buffers, size in _laid_again(source, layout, candidates, kept):
            copied += size
            await _push(sink, buffers)
    for buffers in layout.finish(state=FileState.SALVAGED, extra={LINEAGE_KEY: lineage}):
        await _push(sink, buffers)
    return copied


async def _copy(source: Source, sink: ObjectSink, end: int) -> int:
    for start in range(0, end, _COPY_BYTES):
        await sink.write(await source.read(ByteRange(start, min(start + _COPY_BYTES, end))))
    return end


async def _laid_again(
    source: Source, layout: Layout, candidates: Candidates, kept: Sequence[Candidate]
) -> AsyncIterator[tuple[Buffers, int]]:
    """The row groups kept, in new places with new records; each with how many bytes were taken over."""
    positions = {candidate.ordinal: i for i, candidate in enumerate(candidates.row_groups)}
    for candidate in kept:
        for leaf in candidates.contents.schema.leaves:
            chunk = chunk_read(candidates.contents, positions[candidate.ordinal], leaf)
            derived = await _derived(source, candidates.contents, chunk)
            data = await _read_again(source, chunk)
            yield layout.chunk(await asyncio.to_thread(copied_chunk, chunk, data, derived)), chunk.range.size
        sorting = candidate.row_group.sorting_columns
        yield layout.end_row_group(candidate.row_group.num_rows, sorting_columns=sorting), 0


async def _derived(source: Source, contents: Contents, chunk: ChunkRead) -> Derived:
    """The chunk's indexes and bloom filter, as far as checksums vouch for them; what is damaged is left behind."""
    of = indexes.Chunk(contents, chunk.row_group, chunk.leaf)
    columns = await _vouched(source, of, indexes.column_index_place)
    offsets = await _vouched(source, of, indexes.offset_index_place)
    bloom = await _vouched(source, of, indexes.bloom_filter_place)
    return Derived(
        None if columns is None else thrift.decode(ColumnIndex, columns)[0],
        None if offsets is None else thrift.decode(OffsetIndex, offsets)[0],
        None if bloom is None else bytes(bloom),
    )


async def _vouched(
    source: Source, chunk: indexes.Chunk, find: Callable[[indexes.Chunk], indexes.Place | None]
) -> memoryview | None:
    try:
        place = find(chunk)
    except FormatError:
        return None  # it has been reported as a finding, and readers do without
    if place is None or place.crc is None or not place.complete:
        return None
    for _ in range(2):  # it may have been damaged on the way
        data = await source.read(place.range)
        if crc32(data) == place.crc:
            return data
    return None


async def _read_again(source: Source, chunk: ChunkRead) -> memoryview:
    """The bytes of a chunk that was examined before, held against its checksums: it gets new ones from them."""
    for attempt in (1, 2):
        data = await source.read(chunk.range)
        try:
            await asyncio.to_thread(verify_chunk, chunk, data)
        except FormatError as error:
            if attempt == 2:
                raise TransientError(
                    "a column chunk was whole before, and is not now", where=chunk.where
                ) from error
        else:
            break
    return data


async def _push(sink: ObjectSink, buffers: Buffers) -> None:
    await sink.write(*(memoryview(buffer).cast("B") for buffer in buffers))
