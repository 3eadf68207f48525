"""`seal`: give a file of another writer the checksums and records that ours have. An async shell.

Pages are copied as bytes and only their headers are written again, after each page was decoded once: a checksum must
never vouch for bytes that nobody can read.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.damage.stated_values import stated_of
from resilient_pq.errors import FormatError, NotParquetError, RecoveryError, UnsupportedError, Where, located
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import ColumnIndex, OffsetIndex
from resilient_pq.format.footer import LINEAGE_KEY
from resilient_pq.format.indexes.split_block_filter import BloomFilter
from resilient_pq.format.pages.chunk_encoder import EncodedChunk
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.row_selection import leaf_data
from resilient_pq.format.resilience_records import RecordChain, RecordKind
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.io import WRITING, RetryPolicy, place_of, with_retry
from resilient_pq.io.output_target import Target, check_free, check_other, completing, permissions_of
from resilient_pq.io.resolve import Location
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.reader.decoder import decode
from resilient_pq.reader.filter import index_ranges
from resilient_pq.reader.opening import HEAD_BYTES
from resilient_pq.recovery.damaged_object import open_source
from resilient_pq.recovery.evidence.evidence_search import reconstruct
from resilient_pq.recovery.evidence.identify import not_parquet
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.recover import salvage
from resilient_pq.recovery.recover_options import RecoverOptions
from resilient_pq.recovery.report import Damage, Kept, Outcome, Report, recovered_name
from resilient_pq.recovery.resume.resume_layout import own_keys
from resilient_pq.recovery.rewrite.output_draft import Draft
from resilient_pq.recovery.rewrite.retained_rows import RowGroupOutcome, retain_rows
from resilient_pq.recovery.rewrite.row_group_rewrite import Derived, RowGroupRewriter, sealed_chunk
from resilient_pq.recovery.verification.findings import Progress
from resilient_pq.recovery.verification.page_scan import SalvageOptions
from resilient_pq.recovery.verification.verification import Verification, verify_data
from resilient_pq.shell_commands import command, in_shell
from resilient_pq.units import MiB
from resilient_pq.writer.file_layout import FileLayout

_Read = tuple[index_ranges.IndexPlace, memoryview]
_Find = Callable[[index_ranges.IndexedChunk], index_ranges.IndexPlace | None]
#: Bytes between checkpoints, unless these are large themselves.
_CHECKPOINT_BYTES = 64 * MiB


async def seal(
    src: Location,
    dst: Location,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Progress | None = None,
) -> Report:
    """Write a copy of a sound file of any writer that has a checksum on every page, and the records of our files.

    Every later change of a byte of the copy is found, and what can be recovered of ours can be of it. Values are not
    encoded again: the bytes of pages, statistics, page indexes, bloom filters, the schema and the key-value metadata
    are those of `src`. Each page is decoded once before. What is wrong in `src` already, and decodes, is not seen.

    Args:
        src: The file: a URL, a path, or a pair of a store and a key in it. It is only read.
        dst: Where the copy goes; never `src` itself.
        overwrite: Replace an object that is at `dst`.
        storage_options: Credentials, endpoint and so on for `src`, as fsspec and pandas take them.
        dst_storage_options: The same for `dst`; None means those of `src`.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s for
            reading, and 120 s for writing.
        progress: Called now and then with the bytes examined and the bytes there are.

    Returns:
        The report: its outcome is "sealed", or "sound" of a file that lacks nothing and was copied as it is. Its notes
        tell which indexes and filters were left out as they contradict the values.

    Raises:
        RecoveryError: The file is damaged or not finished, or some pages cannot be decoded; nothing was written.
        AlreadyExistsError: There is an object at `dst`, and `overwrite` is False.
        StoreError: A store refused; nothing was published.
    """
    storage_options = with_retry(storage_options, retry)
    reached = storage_options if dst_storage_options is None else with_retry(dst_storage_options, retry)
    async with await open_source(src, storage_options) as source, place_of(dst, reached, retry=WRITING) as (store, key):
        target = Target(store, key, overwrite, permissions=permissions_of([source.info]))
        await check_other(source.address, target)
        await check_free(target)
        with located(Where(key=source.url)):
            known = await reconstruct(source, only_footer=True)
            if isinstance(known.error, NotParquetError):
                head = bytes(await source.read(ByteRange(0, min(HEAD_BYTES, source.info.size))))
                raise not_parquet(head) or known.error
            contents = _whole(known)
            verification = await verify_data(known, SalvageOptions(), progress)
            if _is_sealed(contents, verification):
                place = source.store, source.key
                report = await salvage([place], (store, key), RecoverOptions(verify=True, overwrite=overwrite))
                note = "it has checksums and records already: its bytes were copied as they are"
                return replace(report, verb="seal", notes=(*report.notes, note))
            _refuse_damage(verification)
            return await _Sealing(verification, contents, target).write()


def _whole(known: Reconstruction) -> Contents:
    """What the footer says; an error where it cannot be used, or the file is not finished."""
    contents, url = known.contents, known.source.url
    if not known.footer_whole or contents is None:
        reason = "its footer cannot be used" if known.error is None else known.error.message
        raise _refused(reason, Where(), url)
    if contents.data_files:
        raise RecoveryError("it is a summary: its rows lie in other files", hint="seal those, then write it again")
    if contents.state is FileState.IN_PROGRESS:
        raise _refused("its writer did not finish it", Where(), url)
    return contents


def _refused(reason: str, where: Where, url: str) -> RecoveryError:
    hint = f"recover it first: {in_shell('recover', url, recovered_name(url))}"
    return RecoveryError(f"only a whole file can be sealed: {reason}; nothing was written", where=where, hint=hint)


def _refuse_damage(verification: Verification) -> None:
    """Raise where anything is damaged; what cannot be decoded is found when it is decoded."""
    for finding in verification.findings:
        if finding.damage is not Damage.UNVERIFIED:
            raise _refused(finding.message, finding.where, verification.reconstruction.source.url)


def _is_sealed(contents: Contents, verification: Verification) -> bool:
    record, seen = contents.footer.record, verification.seen
    if record is None or record.kind != RecordKind.FINAL or verification.findings or verification.scanned:
        return False
    return len(seen) == contents.num_chunks and all(pages.sealed for pages in seen.values())


class _Sealing:
    """A copy with checksums, on its way."""

    def __init__(self, verification: Verification, contents: Contents, target: Target) -> None:
        self._known = verification.reconstruction
        self._contents = contents
        self._target = target
        self._rewriter = RowGroupRewriter(verification, contents)
        self._notes: list[str] = []

    async def write(self) -> Report:
        """Write it, row group by row group; nothing is left of it where that fails."""
        contents, source = self._contents, self._known.source
        layout = FileLayout(
            contents.schema, RecordChain(os.urandom(16)), own_keys(contents), made_like=contents.metadata
        )
        row_groups = retain_rows(contents.schema, self._known.row_groups, {}, OnDamage.RAISE).row_groups
        num_rows = sum(row_group.num_rows_kept for row_group in row_groups)
        sink = await self._target.store.create(self._target.key, self._target.options)
        async with completing(sink):
            draft = Draft(sink, layout, created_by=contents.metadata.created_by)
            await draft.start()
            for row_group in row_groups:
                for leaf in contents.schema.leaves:
                    chunk = await self._sealed(row_group, leaf)
                    await draft.chunk(leaf, chunk, row_group.num_rows_kept, is_copy=True)
                await draft.end_row_group(row_group.num_rows_kept, row_group.sorting_columns)
                await draft.checkpoint_if_due(_CHECKPOINT_BYTES)
            lineage = contents.key_value.get(LINEAGE_KEY)
            extra = {} if lineage is None else {LINEAGE_KEY: lineage}
            await draft.finish(extra, num_rows, contents.state or FileState.COMPLETE)
        return Report(
            verb="seal",
            url=source.url,
            outcome=Outcome.SEALED,
            num_rows=num_rows,
            num_row_groups=len(row_groups),
            size=source.info.size,
            next=(command("check", self._target.url),),
            schema=str(contents.schema),
            kept=Kept(self._target.url, num_rows, layout.offset, 0),
            notes=tuple(self._notes),
        )

    async def _sealed(self, row_group: RowGroupOutcome, leaf: Leaf) -> EncodedChunk:
        """A chunk that was decoded, with its indexes and its filter as far as they fit its values."""
        located_chunk = row_group.located.chunks[leaf.ordinal]
        assert located_chunk is not None  # the footer is whole
        chunk = located_chunk.read
        data = await self._rewriter.read_again(row_group, chunk)
        of = index_ranges.IndexedChunk(self._contents, self._known.positions[row_group.located.ordinal], leaf)
        finders = (index_ranges.column_index_place, index_ranges.offset_index_place, index_ranges.bloom_filter_place)
        columns, offsets, bloom = [await self._read(of, find) for find in finders]
        try:
            return await asyncio.to_thread(self._seal_chunk, chunk, data, (columns, offsets, bloom))
        except (FormatError, UnsupportedError) as error:
            message = f"only what can be decoded can be sealed: {error.message}; nothing was written"
            raise RecoveryError(message, where=chunk.where.merged_with(error.where)) from error

    async def _read(self, of: index_ranges.IndexedChunk, find: _Find) -> _Read | None:
        """The bytes of an index or a filter with their place; None where there is none that can be read."""
        try:
            place = find(of)
            if place is None:
                return None
            data = await self._known.source.read(place.range)
            if not place.complete:
                place = index_ranges.with_length(place, data)
                data = await self._known.source.read(place.range)
            index_ranges.check_sum(place, data)
        except FormatError as error:
            self._leave_out(of.where, error.message)
            return None
        return place, data

    def _leave_out(self, where: Where, reason: str) -> None:
        self._notes.append(f"left out: {reason} ({where})")

    def _seal_chunk(self, chunk: ChunkRead, data: memoryview, read: Sequence[_Read | None]) -> EncodedChunk:
        values = leaf_data(decode(chunk, data, verify=False))
        columns, offsets, bloom = read
        index: ColumnIndex | None = None
        locations: OffsetIndex | None = None
        stored: bytes | None = None
        try:
            if offsets is not None:
                locations = index_ranges.decode_offsets(*offsets)
            if columns is not None and offsets is not None:
                index_ranges.decode_columns(*columns)
                stated = stated_of(self._contents.metadata, chunk, columns[1], offsets[1])
                if next(stated.contradicting(values), None) is not None:
                    raise FormatError("a page index that contradicts the values")
                index = compact_protocol.decode(ColumnIndex, columns[1])[0]
        except FormatError as error:
            self._leave_out(chunk.where, error.message)
        if bloom is not None:
            stored = bytes(bloom[1])
            try:
                if not BloomFilter.from_bytes(stored).may_contain(chunk.leaf.node, values.values).all():
                    raise FormatError("a bloom filter that does not have all values")
            except (FormatError, UnsupportedError) as error:
                self._leave_out(chunk.where, error.message)
                stored = None
        return sealed_chunk(chunk, data, Derived(index, locations, stored))
