"""Row groups on their way from bytes to Arrow arrays: which threads fetch, decode and assemble what. An async shell.

The unit of work is a column chunk of a row group. The thread that decodes the last chunk of a column assembles it,
while its values are still in the caches, and frees its levels. Where a store can be read from threads, each thread
reads what it decodes; elsewhere the event loop fetches all chunks in one wave (`arriving_chunks`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from resilient_pq.arrow.assemble import to_arrow
from resilient_pq.arrow.flat_columns import NO_CHUNKS, FlatChunks
from resilient_pq.arrow.leaf_arrays import layout_of
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.errors import ChecksumError, FormatError, ResilientPQError, Where, located
from resilient_pq.format.indexes.row_ranges import Rows, mask_within
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.row_selection import select_rows
from resilient_pq.format.pages.thread_count import READING
from resilient_pq.format.physical_values import ByteLayout, LeafColumn
from resilient_pq.format.quirks import Quirks
from resilient_pq.io import FetchCounters, ObjectInfo, OpenObject
from resilient_pq.io.cancellation import in_loop
from resilient_pq.off_event_loop import AT_ONCE, ONE_HOP_BYTES, off_loop
from resilient_pq.reader.arriving_chunks import ArrivedChunk, ChunkTask, decode_arriving
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.reader.decoder import DamagedChunk, DecodedRowGroup, RowGroupArrays, decode_parts
from resilient_pq.reader.read_options import ReadLimits, ReadSettings
from resilient_pq.reader.read_plan import PlannedChunks, ReadRequest, RowGroupRead
from resilient_pq.reader.read_units import ReadQueue

T = TypeVar("T")


class RowGroupReader:
    """Reads row groups of one file."""

    def __init__(self, objects: ChunkObjects, how: ReadSettings, limits: ReadLimits) -> None:
        """Read nothing yet."""
        self._objects = objects
        self._how = how
        self._max_threads = limits.max_threads
        self._threads = limits.threads

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """The result of a call, made in one of the threads."""
        await in_loop()
        async with self._threads:
            return await asyncio.to_thread(function, *args)

    async def read(self, request: ReadRequest, groups: Sequence[RowGroupRead]) -> list[RowGroupArrays]:
        """Fetch, decode and assemble row groups; damaged ones are salvaged where that is asked for."""
        num_chunks = len(groups) * sum([len(column.leaves) for column in request.plan.columns])
        flat = await off_loop(num_chunks, self._flat_chunks, request, groups)
        found = await self._at_once(flat, request, groups)
        if found is not None:
            return found
        work = await off_loop(num_chunks, RowGroupWork, request, groups, flat, self._objects, self._how)
        files = [piece.chunk.file for piece in work.pieces if piece.chunk.file is not None]
        if files:
            await in_loop()
            await self._objects.pin(files)
        opener = self._objects.opener
        if opener is None:
            await in_loop()
            await decode_arriving(work, self._objects, self.in_thread, max_waiting=2 * self._max_threads)
        else:
            await self._read_in_threads(work, opener)
        return [await self._result(request, work, i) for i in range(len(groups))]

    def _flat_chunks(self, request: ReadRequest, groups: Sequence[RowGroupRead]) -> FlatChunks:
        """The chunks that become arrays by themselves, as nothing can cost rows of all columns."""
        known = []
        by_themselves = self._how.on_damage is OnDamage.RAISE and request.flat.columns
        for i, group in enumerate(groups) if by_themselves else ():
            if group.rows is None and isinstance(group.columns, PlannedChunks) and group.columns.numbers is not None:
                known.append((i, group.num_rows, group.columns.numbers))
        if not known:
            return NO_CHUNKS
        quirks = Quirks.of(self._objects.contents.metadata.created_by)
        return FlatChunks(request.flat, known, verify=self._how.verify, zero_is_none=quirks.zero_crc_is_none)

    async def _at_once(
        self, flat: FlatChunks, request: ReadRequest, groups: Sequence[RowGroupRead]
    ) -> list[RowGroupArrays] | None:
        """All rows by one call, where the chunks are few, flat and close together; None where there is more to do."""
        opener, count = self._objects.opener, len(request.plan.columns)
        extent = None if opener is None or len(flat.numbers) < len(groups) * count else self._small_extent(flat)
        if opener is None or extent is None:
            return None
        data = self._objects.at_hand(*extent)
        if asyncio._get_running_loop() is None or (data is not None and len(flat.numbers) <= AT_ONCE):
            arrays = self._read_flat(flat, extent, data, opener)
        else:
            arrays = await self.in_thread(self._read_flat, flat, extent, data, opener)
        if None in arrays:
            return None  # whoever decodes them one by one says what is wrong
        return [RowGroupArrays(arrays[i * count : (i + 1) * count], group.num_rows) for i, group in enumerate(groups)]

    def _small_extent(self, flat: FlatChunks) -> tuple[int, int] | None:
        """Where chunks lie that one thread reads and decodes in no time; None where they are too many or apart."""
        if not flat.numbers:
            return None
        start, end = min(flat.starts), max(flat.ends)
        if end - start > min(ONE_HOP_BYTES, 2 * (sum(flat.ends) - sum(flat.starts))):
            return None
        if len(flat.sizes) == 1 and flat.sizes[0] <= ONE_HOP_BYTES:
            return start, end
        chunks = zip(flat.sizes, flat.codecs, strict=True)
        return (start, end) if min(self._max_threads, READING.threads_worth((), chunks)) == 1 else None

    def _read_flat(
        self,
        flat: FlatChunks,
        extent: tuple[int, int],
        data: memoryview | None,
        opener: Callable[[ObjectInfo], OpenObject],
    ) -> list[Any]:
        """The arrays of chunks whose bytes are at hand or read now; None for those that are damaged or uncommon."""
        if data is None:
            with closing(opener(self._objects.info)) as opened:
                data = opened.read(*extent)
            self._objects.count(FetchCounters(1, len(data), sum(flat.ends) - sum(flat.starts)))
        places = zip(flat.starts, flat.ends, strict=True)
        first, _ = extent
        return flat.decode([(number, data[start - first : end - first]) for number, (start, end) in enumerate(places)])

    async def _result(self, request: ReadRequest, work: RowGroupWork, i: int) -> RowGroupArrays:
        if work.damaged[i] and self._how.heal:
            await in_loop()
            await self._heal(work, i)
        group, damaged, done = work.groups[i], work.damaged[i], work.done[i]
        doubtful = work.doubtful[i]
        if done is not None and not doubtful:
            return done
        if not damaged and request.plan.filter is None:
            return RowGroupArrays(work.arrays[i], group.num_rows_read)
        await in_loop()
        if (damaged or doubtful) and group.rows is not None:
            # Salvage works on whole row groups; and where the index that selected rows is wrong, all rows are filtered.
            (found,) = await self.read(request, [group.whole])
            return found
        from resilient_pq.reader.damaged_row_groups import DamagedRowGroups  # noqa: PLC0415 (most files are not damaged)

        damaged_groups = DamagedRowGroups(self._objects, self._how)
        left = await damaged_groups.salvage(request.plan.columns, group, work.columns(i), damaged)
        return await self.in_thread(work.assembled, left)

    async def _heal(self, work: RowGroupWork, i: int) -> None:
        """Decode the damaged chunks of a row group from what parity makes of them."""
        objects = self._objects
        if objects.healer is None:
            from resilient_pq.reader.healing import Healer  # noqa: PLC0415 (most files are not damaged)

            objects.healer = Healer(objects, self._how.on_healed)
        work.damaged[i] = await objects.healer.heal(work, i, self.in_thread)
        if work.damaged[i] and self._how.on_damage is OnDamage.RAISE:
            raise work.damaged[i][0].error

    async def _read_in_threads(self, work: RowGroupWork, opener: Callable[[ObjectInfo], OpenObject]) -> None:
        count = len(work.pieces) + len(work.flat.numbers)
        jobs = await off_loop(count, ReadQueue, work, self._objects, opener, self._how.options.memory_budget)
        num_threads = min(self._max_threads, work.threads_worth)
        try:
            if num_threads == 1 and asyncio._get_running_loop() is None:  # this is a thread that may block
                jobs.do_all()
                return
            await in_loop()
            busy = [self.in_thread(jobs.do_all) for _ in range(num_threads)]
            # One that fails makes the others end soon; these are waited for, so that no file stays open.
            ended = await asyncio.gather(*busy, return_exceptions=True)
            for error in ended:
                if error is not None:
                    raise error
        finally:
            jobs.drop()  # threads cannot be cancelled: they end after what they are at
            self._objects.count(jobs.counters)


class RowGroupWork:
    """The chunks of a read that become arrays, decoded by any number of threads."""

    def __init__(
        self,
        request: ReadRequest,
        groups: Sequence[RowGroupRead],
        flat: FlatChunks,
        objects: ChunkObjects,
        how: ReadSettings,
    ) -> None:
        """Note where each chunk belongs; decode nothing yet. The flat ones become arrays by themselves."""
        self.groups = groups
        self.arrays: list[list[Any]] = [[None] * request.plan.num_shown for _ in groups]
        self.done: list[RowGroupArrays | None] = [None] * len(groups)
        self.damaged: list[list[DamagedChunk]] = [[] for _ in groups]
        self.doubtful = [False] * len(groups)
        self._request = request
        self._objects = objects
        self._verify = how.verify
        self._raises = how.on_damage is OnDamage.RAISE
        self._raises_at_once = self._raises and not how.heal
        # How the strings of each column come; columns that only the filter needs follow those shown.
        self._layouts = [layout_of(field) for field in request.field.children]
        self._layouts += [ByteLayout.ARRAYS] * (len(request.plan.columns) - len(self._layouts))
        self._leaves: list[dict[int, list[LeafColumn | None]]] = [{} for _ in groups]
        self.flat = flat
        apart: list[set[int]] = [set() for _ in groups]
        for number in self.flat.numbers:
            apart[self.flat.groups[number]].add(self.flat.columns[number])
        self.pieces = [
            ChunkTask(chunk, i, column, leaf)
            for i, group in enumerate(groups)
            for column in sorted(set(range(len(group.columns))) - apart[i])
            for leaf, chunk in enumerate(group.columns[column])
        ]
        self._missing = [0 if request.plan.filter is None else len(group.chunks) for group in groups]
        self._lock = threading.Lock()

    @property
    def threads_worth(self) -> int:
        """How many threads at most should decode the chunks, one or more."""
        count = len(self.pieces) + len(self.flat.numbers)
        if count <= 1:
            return 1
        sizes = [(piece.chunk.num_decoded, piece.chunk.metadata.codec) for piece in self.pieces]
        flat = [(max(self.flat.sizes[number], 0), self.flat.codecs[number]) for number in self.flat.numbers]
        return min(READING.threads_worth(sizes, flat), count)

    def decode(self, group: Sequence[tuple[ChunkTask | int, Sequence[memoryview]]]) -> list[ArrivedChunk]:
        """Decode chunks, and assemble columns after their last one; gives those whose bytes are to be read again.

        Those that become arrays by themselves are given by their numbers.
        """
        left: list[ArrivedChunk] = []
        flat = []
        for piece, parts in group:
            if isinstance(piece, int):
                flat.append((piece, parts[0]))
            else:
                left.append((piece, parts))
        arrays = self.flat.decode(flat) if flat else []
        for (number, part), array in zip(flat, arrays, strict=True):
            i, column = self.flat.groups[number], self.flat.columns[number]
            if array is not None:
                self.arrays[i][column] = array
            else:
                self.pieces.append(task := ChunkTask(self.groups[i].columns[column][0], i, column, 0))
                left.append((task, [part]))
        return [(piece, parts) for piece, parts in left if not self._decode_one(piece, parts)]

    def _decode_one(self, piece: ChunkTask, parts: Sequence[memoryview]) -> bool:
        chunk = piece.chunk
        try:
            column = self._decoded(piece, chunk, parts)
        except ResilientPQError as error:
            error.at(Where(key=self._objects.url_of(chunk.file)))
            is_damage = isinstance(error, FormatError)
            if not is_damage or (self._raises_at_once and chunk.pages is None and not isinstance(error, ChecksumError)):
                raise error from error.__cause__
            # Where only some pages are read, the index that names them may be wrong, and so may its choice of rows.
            if not isinstance(error, ChecksumError) and self._is_filtered(chunk):
                self.doubtful[piece.group] = True
            return False
        self._add(piece, column, None if chunk.pages is None else chunk.pages.covered)
        return True

    def decode_again(self, piece: ChunkTask, data: memoryview) -> None:
        """Decode a whole chunk that was read again; keep it for salvage where it is damaged and that is no error."""
        chunk = piece.chunk.whole
        with located(Where(key=self._objects.url_of(chunk.file))):
            try:
                column = self._decoded(piece, chunk, [data])
            except FormatError as error:
                no_damage = isinstance(error.__cause__, MemoryError)
                if no_damage or self._raises_at_once:
                    raise
                error.at(Where(key=self._objects.url_of(chunk.file)))
                self.damaged[piece.group].append(DamagedChunk(chunk, data, error))
                return
        self._add(piece, column, None)

    def _decoded(self, piece: ChunkTask, chunk: ChunkRead, parts: Sequence[memoryview]) -> LeafColumn:
        if self._raises:
            return decode_parts(chunk, parts, verify=self._verify, layout=self._layouts[piece.column])
        from resilient_pq.reader.damaged_row_groups import check_headers, check_statistics  # noqa: PLC0415 (as above)

        contents = self._objects.contents
        check_headers(contents, chunk, parts)
        column = decode_parts(chunk, parts, verify=self._verify, layout=self._layouts[piece.column])
        check_statistics(contents.metadata, column, chunk)
        return column

    def _is_filtered(self, chunk: ChunkRead) -> bool:
        """Whether only some pages of a chunk are read, and the filter asks for its values."""
        wanted = self._request.plan.filter
        return chunk.pages is not None and wanted is not None and chunk.leaf in wanted.leaves

    def _add(self, piece: ChunkTask, column: LeafColumn, covered: Rows | None) -> None:
        rows = self.groups[piece.group].rows
        if rows is not None:
            covered = covered or (range(self.groups[piece.group].num_rows),)
            if covered != rows:
                column = select_rows(column, mask_within(rows, covered))
        with self._lock:
            of_group = self._leaves[piece.group]
            count = len(self.groups[piece.group].columns[piece.column])
            leaves = of_group.setdefault(piece.column, [None] * count)
            leaves[piece.leaf] = column
            whole = [leaf for leaf in leaves if leaf is not None]
            self._missing[piece.group] -= 1
            missing = self._missing[piece.group]
        if self._request.plan.filter is not None:
            if not missing:
                self._select(piece.group)
            return
        if len(whole) < len(leaves):
            return
        array = self._array(self.groups[piece.group].ordinal, piece.column, whole)
        self.arrays[piece.group][piece.column] = array
        if self._raises:  # else what is damaged may cost rows of all columns
            leaves.clear()

    def _array(self, ordinal: int, column: int, leaves: Sequence[LeafColumn]) -> Any:
        branch = self._request.branches[column]
        try:
            return to_arrow(self._request.field.children[column], branch, leaves)
        except ResilientPQError as error:
            raise error.at(Where(row_group=ordinal, column=branch.node.name)) from error.__cause__

    def columns(self, i: int) -> dict[int, LeafColumn]:
        """The leaves of a row group that could be decoded, by their ordinals."""
        return {leaf.leaf.ordinal: leaf for leaf in chain(*self._leaves[i].values()) if leaf is not None}

    def _select(self, i: int) -> None:
        """Assemble the wanted rows of a row group at once, as they may be few of the decoded ones."""
        group = self.groups[i]
        self.done[i] = self.assembled(DecodedRowGroup(group, self.columns(i), group.num_rows_read))
        self._leaves[i].clear()

    def assembled(self, group: DecodedRowGroup) -> RowGroupArrays:
        """The arrays of the wanted rows of a row group."""
        wanted, columns, num_rows = self._request.plan.filter, group.columns, group.num_rows
        if wanted is not None:
            with located(Where(row_group=group.read.ordinal)):
                keep = wanted.wanted(columns, num_rows)
            if not keep.all():
                num_rows = int(np.count_nonzero(keep))
                shown = {leaf.ordinal for column in self._request.plan.shown for leaf in column.leaves}
                columns = {ordinal: select_rows(columns[ordinal], keep) for ordinal in shown}
        arrays = [
            self._array(group.read.ordinal, column, [columns[chunk.leaf.ordinal] for chunk in chunks])
            for column, chunks in enumerate(group.read.columns[: self._request.plan.num_shown])
        ]
        return RowGroupArrays(arrays, num_rows, group.lost)
