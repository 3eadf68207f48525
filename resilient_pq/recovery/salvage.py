"""`recover`: write what can be kept of a damaged object to a new one. An async shell.

The source is only read. Everything that goes into the output has been verified before the first byte of it is
written, so there is no output where nothing can be kept.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from resilient_pq.errors import (
    AlreadyExistsError,
    NothingToRecoverError,
    RecoveryError,
    Where,
    located,
)
from resilient_pq.format.footer import LINEAGE_KEY
from resilient_pq.format.records import RecordChain
from resilient_pq.io import ObjectSink, SinkOptions, WriteStore, resolve
from resilient_pq.io.ranges import ByteRange
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.reader.data_file import writing_again
from resilient_pq.reader.on_damage import OnDamage
from resilient_pq.recovery.continued import continued, own_keys
from resilient_pq.recovery.examination import Examiner, Means, next_page
from resilient_pq.recovery.findings import Progress
from resilient_pq.recovery.kept import KeptRows, keep
from resilient_pq.recovery.relaid import Relaying
from resilient_pq.recovery.report import Damage, Finding, Kept, LostRegion, Outcome, Report, rows_lost
from resilient_pq.recovery.source import Location, Source, open_source
from resilient_pq.recovery.understanding import Examined, Understanding, examine, understand
from resilient_pq.writer.layout import Buffers, Layout

#: Bytes copied at a time.
_COPY_BYTES = 8 * 1024 * 1024


async def recover(
    src: Location,
    dst: Location,
    *,
    on_damage: Literal["drop", "null", "raise"] = "drop",
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Write the rows of a damaged file that are whole to a new object.

    Row groups that are whole are copied as bytes, never decoded and encoded again. Of the others the pages that are
    whole are kept. A sound file is copied as it is.

    Args:
        src: The damaged object: a URL, a path, or a pair of a store and a key in it. It is only read.
        dst: Where the output goes; never the source itself.
        on_damage: What is done with rows of which a value is lost: "drop" leaves them out, in every column; "null"
            makes columns that may be null null in them; "raise" refuses to write anything.
        overwrite: Replace an object that is at `dst`.
        storage_options: Credentials, endpoint and so on for `src`, as fsspec and pandas take them.
        dst_storage_options: The same for `dst`; None means those of `src`.
        progress: Called now and then with the bytes examined and the bytes there are.

    Returns:
        The report: its outcome is "sound", "recovered" (nothing known is lost) or "partial".

    Raises:
        NothingToRecoverError: Not one row can be kept; nothing was written. Its report names the schema when the
            anchor is whole.
        RecoveryError: `src` and `dst` are the same object, or `src` is a summary of other files; or rows are lost,
            and `on_damage` is "raise".
        AlreadyExistsError: There is an object at `dst`, and `overwrite` is False.
        SchemaError: There is no such `on_damage`.
        StoreError: A store refused; nothing was published.
    """
    policy = OnDamage.named(on_damage, [OnDamage.DROP, OnDamage.NULL, OnDamage.RAISE])
    async with await open_source(src, storage_options) as source:
        options = storage_options if dst_storage_options is None else dst_storage_options
        owns_store = not isinstance(dst, tuple)
        store, key = dst if isinstance(dst, tuple) else resolve(dst, options)
        try:
            await _check_output(source, store, key, overwrite=overwrite)
            with located(Where(key=source.url)):
                known = await understand(source)
                request = _Request(store, key, policy, overwrite)
                return await _recover(known, request, progress)
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


@dataclass(frozen=True, slots=True)
class _Request:
    """What a caller wants of a recovery."""

    store: WriteStore
    key: str
    on_damage: OnDamage
    overwrite: bool


async def _recover(known: Understanding, request: _Request, progress: Progress | None) -> Report:
    source, contents = known.source, known.contents
    if contents is None:
        raise _nothing(source, known.findings, None)
    if contents.data_files:
        again = " ".join(writing_again(source.url))
        raise RecoveryError(
            "it is a summary: its rows lie in other files",
            where=Where(key=source.url),
            hint=f"recover those that are damaged, then write it again: {again}",
        )
    means = Means(search=next_page)
    examined = await examine(known, means, progress)
    findings = (*known.findings, *examined.findings)
    policy = OnDamage.DROP if request.on_damage is OnDamage.RAISE else request.on_damage
    rows = keep(contents.schema, known.row_groups, examined.found, policy)
    lost = tuple(sorted((*rows.lost, *examined.lost), key=lambda region: region.start))
    ended = known.error is None and contents.state is not FileState.IN_PROGRESS
    if not rows.row_groups and not (ended and not lost):
        raise _nothing(source, findings, contents)
    if lost and request.on_damage is OnDamage.RAISE:
        raise RecoveryError(
            f"{_in_words(lost)}, and on_damage is 'raise'; nothing was written",
            where=Where(key=source.url),
            hint="on_damage='drop' keeps all other rows",
        )
    sound = ended and not lost and not examined.found and not examined.copies_damaged
    output = _Output(known, examined, rows, lost)
    num_bytes = await _publish(output, request, means, sound=sound)
    url = request.store.url_of(request.key)
    return Report(
        verb="recover",
        url=source.url,
        outcome=Outcome.PARTIAL if lost else Outcome.SOUND if sound else Outcome.RECOVERED,
        num_rows=rows.num_rows,
        num_row_groups=len(rows.row_groups),
        size=source.info.size,
        findings=findings,
        next=(("rpq", "check", url),),
        schema=str(contents.schema),
        kept=Kept(url, rows.num_rows, num_bytes, rows_lost(lost), lost),
    )


def _in_words(lost: Sequence[LostRegion]) -> str:
    """What would be lost."""
    count = rows_lost(lost)
    return "rows would be lost" if count is None else f"{count:,} rows would be lost"


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


@dataclass(frozen=True, slots=True)
class _Output:
    """What an output is made of."""

    known: Understanding
    examined: Examined
    rows: KeptRows
    lost: tuple[LostRegion, ...]

    @property
    def lineage(self) -> str:
        """What the output says of where it comes from, as JSON."""
        source = self.known.source
        return json.dumps(
            {
                "source": os.path.basename(source.url),
                "size": source.info.size,
                "etag": source.info.etag,
                "rows_lost": rows_lost(self.lost),
                "lost": [[region.start, region.end, region.num_rows] for region in self.lost],
            }
        )

    @property
    def named_are_whole(self) -> bool:
        """Whether all row groups that footers and records name are whole, and their second copies too."""
        named = self.known.positions
        return not self.examined.copies_damaged and not any(
            ordinal in named for ordinal in self.examined.found
        )


async def _publish(output: _Output, request: _Request, means: Means, *, sound: bool) -> int:
    """Write the output; returns how many bytes of the source went into it as they were."""
    source = output.known.source
    # The source may well be the NAME.partial of the very name that the output should have.
    options = SinkOptions(mode="w" if request.overwrite else "x", private_partial=True)
    sink = await request.store.create(request.key, options)
    try:
        if sound:
            num_bytes = await _copy(source, sink, source.info.size)
        else:
            num_bytes = await _write(output, sink, means)
        await sink.complete()
    except BaseException:
        await sink.abort()
        raise
    return num_bytes


async def _write(output: _Output, sink: ObjectSink, means: Means) -> int:
    """Write an output that is not the source as it is; returns how many bytes went into it as they were.

    Bytes stay in their place, and the file the same file, when all row groups and records that have one are whole.
    """
    source, kept = output.known.source, output.rows.row_groups
    contents = output.known.contents
    assert contents is not None
    whole = output.known.candidates if output.named_are_whole else None
    if whole is not None and whole.cut_end is not None and not output.examined.found:
        return await _copy(source, sink, whole.cut_end)
    if whole is not None and whole.prefix_end is not None and whole.last is not None:
        copied = await _copy(source, sink, whole.prefix_end)
        layout = await continued(source, whole)
        kept = tuple(row_group for row_group in kept if row_group.known.ordinal not in output.known.positions)
    else:
        copied = 0
        layout = Layout(
            contents.schema,
            RecordChain(os.urandom(16)),
            own_keys(contents),
            made_like=contents.metadata,
        )
        await _push(sink, layout.start())
    relaying = Relaying(source, contents, Examiner(source, means), output.known.positions)
    for row_group in kept:
        async for chunk, size in relaying.chunks(row_group, contents.schema.leaves):
            copied += size
            await _push(sink, layout.chunk(chunk))
        sorting = list(row_group.known.sorting_columns) or None
        await _push(sink, layout.end_row_group(row_group.num_rows, sorting_columns=sorting))
    for buffers in layout.finish(state=FileState.SALVAGED, extra={LINEAGE_KEY: output.lineage}):
        await _push(sink, buffers)
    return copied


async def _copy(source: Source, sink: ObjectSink, end: int) -> int:
    for start in range(0, end, _COPY_BYTES):
        await sink.write(await source.read(ByteRange(start, min(start + _COPY_BYTES, end))))
    return end


async def _push(sink: ObjectSink, buffers: Buffers) -> None:
    await sink.write(*(memoryview(buffer).cast("B") for buffer in buffers))
