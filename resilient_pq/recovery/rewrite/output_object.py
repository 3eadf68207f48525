"""The object that a recovery writes: it continues the damaged file, or is a new one. An async shell."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.encryption.encryption import Encryption
from resilient_pq.errors import AlreadyExistsError, KeyMissingError, RecoveryError, StoreError, UnsupportedError, Where
from resilient_pq.format.footer import LINEAGE_KEY
from resilient_pq.format.resilience_records import RecordChain
from resilient_pq.io import MultipartSink, MultipartStore, ObjectSink, SinkOptions, WriteStore
from resilient_pq.io.location import without_query
from resilient_pq.io.output_target import Target, completing, make_folder
from resilient_pq.io.upload.copied_upload import copied_upload, parts_to_copy
from resilient_pq.io.upload.upload_start import abort_after, refuses_to_copy
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.inline_groups import InlineGroups
from resilient_pq.reader.contents import FileState
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.row_group_choice import Candidates
from resilient_pq.recovery.ledger.ledger_model import Ledger
from resilient_pq.recovery.report import Finding, LostRegion, OtherPolicy
from resilient_pq.recovery.resume.resume_layout import layout_behind, own_keys, parity_share_of
from resilient_pq.recovery.resume.resume_local import prefix_of
from resilient_pq.recovery.rewrite.output_draft import Draft, check_end, ends_well
from resilient_pq.recovery.rewrite.retained_rows import RetainedRows, RowGroupOutcome
from resilient_pq.recovery.rewrite.row_group_rewrite import RowGroupRewriter
from resilient_pq.recovery.verification.findings import Progress
from resilient_pq.recovery.verification.verification import Verification
from resilient_pq.units import MiB
from resilient_pq.writer.file_layout import FileLayout
from resilient_pq.writer.file_sealing import FileSealing
from resilient_pq.writer.protected_layout import new_layout

log = logging.getLogger("resilient_pq.recovery")

_READ_BYTES = 8 * MiB  # Bytes that are not copied by a store are read and sent so many at a time
_UNIQUE_BYTES = 8  # Bytes that no other file has in its AAD


@dataclass(frozen=True, slots=True)
class OutputContents:
    """What an output is made of, what of the damaged file is lost, and the account of both."""

    reconstruction: Reconstruction
    verification: Verification
    rows: RetainedRows
    lost: tuple[LostRegion, ...]
    ledger: Ledger
    findings: tuple[Finding, ...]
    other_policy: OtherPolicy | None = None

    @property
    def sound(self) -> bool:
        """Whether nothing at all is wrong with the file, so that it is copied as it is."""
        if self.reconstruction.error is not None or not self.ledger.is_complete:
            return False
        verification = self.verification
        return not (verification.scanned or verification.copies_damaged_at or self.reconstruction.keys_damaged)

    @property
    def lineage(self) -> str:
        """What the output says of where it comes from, as JSON."""
        source = self.reconstruction.source
        return json.dumps(
            {
                "source": os.path.basename(without_query(source.url)),
                "size": source.info.size,
                "etag": source.info.etag,
                "rows_lost": self.ledger.rows_lost,
                "lost": [[region.start, region.end, region.num_rows] for region in self.lost],
            }
        )

    @property
    def num_whole(self) -> int:
        """How many row groups from the first on can stay: they are whole, and the second copies before and in them."""
        candidates = self.reconstruction.candidates
        if candidates is None or self.reconstruction.moved:
            return 0
        damaged = min(self.verification.copies_damaged_at, default=None)
        count = 0
        for position, candidate in enumerate(candidates.row_groups):
            whole = candidate.ordinal == position and position not in self.verification.scanned
            if not whole or (damaged is not None and damaged < candidate.end):
                break
            count += 1
        return count


@dataclass(frozen=True, slots=True)
class Copied:
    """Bytes of the damaged file that an output has as they were, and those of them that the store copied unread."""

    num_bytes: int
    num_bytes_unread: int = 0


async def publish(output: OutputContents, target: Target, progress: Progress | None = None) -> Copied | None:
    """Write the output; when anything fails, nothing is left of it."""
    source = output.reconstruction.source
    await make_folder(target)
    if output.sound:
        stored = source if source.decrypt is None else source.stored
        return await _as_it_is(output, target, stored.info.size, progress)
    if source.decrypt is not None:
        return await _encrypted(output, target, progress)
    whole = await _prefix(output, target)
    if whole is None:
        return await _anew(output, target)
    candidates = output.reconstruction.candidates
    assert candidates is not None
    if candidates.cut_end is not None and output.num_whole == len(candidates.row_groups) == len(output.rows.row_groups):
        if not await ends_well(source, candidates.cut_end, output.rows.num_rows):
            return await _anew(output, target)  # the record of the footer is whole, and what it holds is no footer
        return await _as_it_is(output, target, candidates.cut_end, progress)
    return await _behind(output, target, whole, progress)


def may_be_unread(reconstruction: Reconstruction, target: Target) -> bool:
    """Whether the store would copy row groups at the beginning of a torn file by itself."""
    candidates = reconstruction.candidates
    if candidates is None or candidates.prefix_end is None or reconstruction.moved or not candidates.row_groups:
        return False
    if reconstruction.error is None and candidates.contents.state is not FileState.IN_PROGRESS:
        return False  # what is whole at its end is recovered for the sake of its data
    return bytes_copied_unread(reconstruction.source, target.store, candidates.prefix_end, target.options) > 0


async def _prefix(output: OutputContents, target: Target) -> Candidates | None:
    """The row groups that stay in their places; None where all get new ones."""
    candidates, source = output.reconstruction.candidates, output.reconstruction.source
    record = None if candidates is None else candidates.contents.footer.record
    if candidates is None or record is None:
        return None
    if _stays_whole(output, candidates):
        return candidates
    row_groups = candidates.row_groups[: output.num_whole]
    # A file that ends in a whole footer has indexes, which a prefix would leave behind: it is only worth its copy.
    if not row_groups or not bytes_copied_unread(source, target.store, row_groups[-1].end, target.options):
        return None
    try:
        return await prefix_of(source, candidates, row_groups, record.file_id)
    except RecoveryError:
        return None  # the record behind them is damaged


def _stays_whole(output: OutputContents, candidates: Candidates) -> bool:
    """Whether all row groups that are named stay, up to the last record or a footer."""
    if output.num_whole < len(candidates.row_groups) or output.verification.copies_damaged_at:
        return False
    return candidates.cut_end is not None or (candidates.prefix_end is not None and candidates.last is not None)


async def _as_it_is(output: OutputContents, target: Target, end: int, progress: Progress | None) -> Copied:
    """The bytes up to `end`, and nothing more."""
    source = output.reconstruction.source
    stored = source if source.decrypt is None else source.stored
    async with beginning_of(stored, target, end, progress):
        if stored is source or end < stored.info.size:  # else it was opened by its end
            await check_end(source, end, output.rows.num_rows)
    return Copied(end)


async def _encrypted(output: OutputContents, target: Target, progress: Progress | None) -> Copied:
    """An encrypted file: cut where that is enough, else encrypted again, as no module may move."""
    source, candidates = output.reconstruction.source, output.reconstruction.candidates
    if source.opened.encryption is None:
        raise KeyMissingError(
            "the keys of some columns are missing, and rows have to move",
            where=Where(key=source.url),
            hint="pass the keys of all columns (rpq: --keys FILE)",
        )
    end = None if source.decrypt is None or candidates is None else candidates.cut_end
    if end is not None and candidates is not None:
        named = len(candidates.row_groups)
        end = end if named == output.num_whole == len(output.rows.row_groups) else None
    return await _anew(output, target) if end is None else await _as_it_is(output, target, end, progress)


@asynccontextmanager
async def beginning_of(
    source: DamagedObject, target: Target, end: int, progress: Progress | None = None
) -> AsyncIterator[ObjectSink]:
    """A sink that holds the bytes of a file up to `end`, and is completed behind the block."""
    begun = await prefixed_sink(source, target.store, target.key, end, target.options, progress=progress)
    async with _sink_behind(source, end, target, begun) as sink:
        yield sink


async def _behind(
    output: OutputContents, target: Target, whole: Candidates, progress: Progress | None
) -> Copied | None:
    """Row groups that stay in their places, and what else is kept behind them."""
    source, end = output.reconstruction.source, whole.prefix_end
    assert end is not None
    begun = await prefixed_sink(source, target.store, target.key, end, target.options, progress=progress)
    if begun is None and output.verification.unread:
        return None
    async with _sink_behind(source, end, target, begun) as sink:
        layout = await layout_behind(source, whole)
        placed = {candidate.ordinal for candidate in whole.row_groups}
        rest = [kept for kept in output.rows.row_groups if kept.located.ordinal not in placed]
        copied = await _lay(output, sink, layout, rest)
    unread = begun.num_bytes_unread if begun is not None and output.verification.unread else 0
    return Copied(end + copied, unread)


async def _anew(output: OutputContents, target: Target) -> Copied:
    """Everything in new places, with new records."""
    contents = output.reconstruction.contents
    assert contents is not None
    share, chain = parity_share_of(contents), RecordChain(os.urandom(16))
    groups = None if share is None else InlineGroups(share)
    source, sealing, encryption = output.reconstruction.source, None, None
    if source.decrypt is not None and (encryption := source.opened.encryption) is not None:
        sealing = FileSealing(encryption, contents.schema, os.urandom(_UNIQUE_BYTES), os.urandom)
    layout = new_layout(
        contents.schema, chain, own_keys(contents), groups=groups, made_like=contents.metadata, sealing=sealing
    )
    sink = await target.store.create(target.key, target.options)
    async with completing(sink):
        return Copied(await _lay(output, sink, layout, output.rows.row_groups, from_start=True, encryption=encryption))


async def _lay(
    output: OutputContents,
    sink: ObjectSink,
    layout: FileLayout,
    row_groups: Sequence[RowGroupOutcome],
    *,
    from_start: bool = False,
    encryption: Encryption | None = None,
) -> int:
    """Lay out row groups and the final footer; returns how many bytes of the file went along as they were."""
    contents = output.reconstruction.contents
    assert contents is not None
    draft = Draft(sink, layout, created_by=contents.metadata.created_by, encryption=encryption)
    if from_start:
        await draft.start()
    rewriter = RowGroupRewriter(output.verification, contents)
    copied = 0
    for row_group in row_groups:
        leaves = iter(contents.schema.leaves)
        async with aclosing(rewriter.chunks(row_group, contents.schema.leaves)) as chunks:
            async for chunk, size in chunks:
                copied += size
                await draft.chunk(next(leaves), chunk, row_group.num_rows_kept, is_copy=size > 0)
        await draft.end_row_group(row_group.num_rows_kept, row_group.sorting_columns)
    await draft.finish({LINEAGE_KEY: output.lineage}, output.rows.num_rows)
    return copied


@asynccontextmanager
async def _sink_behind(
    source: DamagedObject, end: int, target: Target, begun: PrefixedSink | None
) -> AsyncIterator[ObjectSink]:
    """A sink that holds the first bytes of the source, which are read where the store did not copy them."""
    sink = await target.store.create(target.key, target.options) if begun is None else begun.sink
    async with completing(sink):
        await _send(source, sink, 0, end if begun is None else 0, None)
        yield sink


# -- the beginning ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PrefixedSink:
    """A sink that holds the first bytes of an object, and how many of them the store copied unread."""

    sink: ObjectSink
    num_bytes_unread: int


def bytes_copied_unread(source: DamagedObject, store: WriteStore, prefix_end: int, options: SinkOptions) -> int:
    """How many bytes of a prefix `prefixed_sink` would have the store copy, if that does not refuse; asks nothing."""
    able = isinstance(store, MultipartStore) and store.capabilities.server_side_copy
    if not able or source.info.etag is None:
        return 0
    assert isinstance(store, MultipartStore)
    if not store.copies_from(source.store):
        return 0
    parts = parts_to_copy(prefix_end, store.upload_options(options))
    return parts[-1].end if parts else 0


async def prefixed_sink(
    source: DamagedObject,
    store: WriteStore,
    key: str,
    prefix_end: int,
    options: SinkOptions,
    *,
    progress: Progress | None = None,
) -> PrefixedSink | None:
    """Begin the output with the first bytes of the source, copied by the store itself."""
    expected = bytes_copied_unread(source, store, prefix_end, options)
    if not expected:
        return None
    assert isinstance(store, MultipartStore)
    options = store.upload_options(options)
    url = store.url_of(key)
    if options.mode == "x" and await store.exists(key):
        raise AlreadyExistsError("the object exists already", where=Where(key=url))

    def copied(num_bytes: int) -> None:
        if progress is not None:
            progress(num_bytes, source.info.size)

    try:
        async with copied_upload(store, key, source.info, prefix_end, options, copied=copied) as begun:
            # Nothing is committed: what the upload holds so far is no file that could be completed.
            sink = await MultipartSink.resume(
                store, key, options, upload_id=begun.upload_id, parts=begun.parts, tail=[]
            )
    except (StoreError, UnsupportedError) as error:
        if not refuses_to_copy(error):
            raise
        log.warning("%s: %s does not copy, so its bytes are read: %s", url, store.name, error.message)
        return None
    try:
        await _send(source, sink, begun.num_bytes, prefix_end, progress)
    except BaseException as error:
        await abort_after(sink, error)
        raise
    log.info("%s: %d bytes were copied within %s", url, begun.num_bytes, store.name)
    return PrefixedSink(sink, begun.num_bytes)


async def _send(source: DamagedObject, sink: ObjectSink, start: int, end: int, progress: Progress | None) -> None:
    """Read what lies between two offsets of the source, and write it."""
    while start < end:
        stop = min(start + _READ_BYTES, end)
        await sink.write(await source.read_alike(ByteRange(start, stop)))
        start = stop
        if progress is not None:
            progress(start, source.info.size)
