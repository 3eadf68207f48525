"""One output of a compaction: written, or found as another run has written it. An async shell."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from resilient_pq.bulk.bounded_jobs import fetch_ahead
from resilient_pq.compaction.compaction_plan import CompactionPlan, Piece
from resilient_pq.compaction.prepared_piece import Preparation, PreparedPiece
from resilient_pq.errors import AlreadyExistsError, FormatError, StoreError, Where, WriterFencedError
from resilient_pq.format.footer import COMPACTION_KEY
from resilient_pq.format.resilience_records import RecordChain
from resilient_pq.io import FetchCounters, WriteStore
from resilient_pq.io.output_target import Target, completing, make_folder, permissions_of
from resilient_pq.parity.group_shape import ParityShare
from resilient_pq.parity.inline_groups import InlineGroups
from resilient_pq.reader.contents import FileState
from resilient_pq.reader.opening import read_contents
from resilient_pq.recovery.damaged_object import TAIL_BYTES
from resilient_pq.recovery.rewrite.output_draft import Draft
from resilient_pq.units import MiB
from resilient_pq.writer.protected_layout import new_layout

#: Bytes between checkpoints, unless these are large themselves.
_CHECKPOINT_BYTES = 64 * MiB
#: Row groups that are read and prepared while one is written.
_AHEAD = 2


class OutputFile:
    """An output of a plan, by its position."""

    def __init__(self, store: WriteStore, key: str, plan: CompactionPlan, position: int) -> None:
        self.store = store
        self.key = key
        self._plan = plan
        self._position = position

    @property
    def url(self) -> str:
        """Its name for people."""
        return self.store.url_of(self.key)

    async def size(self) -> int | None:
        """Its bytes, where it is there as the plan has it; None where it is not there."""
        if not await self.store.exists(self.key):
            return None
        try:
            info, contents = await read_contents(self.store, self.key, tail_bytes=TAIL_BYTES, counters=FetchCounters())
            mark = contents.key_value.get(COMPACTION_KEY), contents.num_rows
        except FormatError:
            mark = None, 0
        if mark != (self._plan.mark_of(self._position), self._plan.outputs[self._position].num_rows):
            raise AlreadyExistsError(
                "this is not what the plan of the compaction has there",
                where=Where(key=self.url),
                hint="name another folder for the outputs, or remove this one and compact again",
            )
        return info.size

    async def write(
        self, pieces: Sequence[Piece], preparation: Preparation, written: Callable[[int], None]
    ) -> dict[str, int]:
        """Write it, unless another process is first; gives what became of its bytes, as in a `Compaction`."""
        try:
            return await self._write(pieces, preparation, written)
        except (StoreError, WriterFencedError):
            # Another process that carries out the plan may have published it, and removed the sources by now.
            if await self.size() is None:
                raise
            return {}

    async def _write(
        self, pieces: Sequence[Piece], preparation: Preparation, written: Callable[[int], None]
    ) -> dict[str, int]:
        limits, sources, agreed = self._plan.limits, preparation.sources, preparation.agreed
        share = agreed.parity if limits.parity is None else ParityShare.parse(limits.parity)
        groups = None if share is None else InlineGroups(share)
        chain = RecordChain(os.urandom(16))
        made_like = agreed.made_like(sources[0].file.metadata)
        layout = new_layout(agreed.schema, chain, agreed.keys, groups=groups, made_like=made_like)
        files = {group.file for piece in pieces for group in piece.groups}
        permissions = permissions_of(sources[file].file.info for file in files)
        target = Target(self.store, self.key, overwrite=False, make_folder=True, permissions=permissions)
        await make_folder(target)
        sink = await self.store.create(self.key, target.options)
        moved = {"bytes_copied": 0, "bytes_decoded": 0}
        async with completing(sink):
            draft = Draft(sink, layout, created_by=agreed.created_by)
            await draft.start()
            async with aclosing(fetch_ahead(_prepared(pieces, preparation), _AHEAD)) as prepared:
                async for each in prepared:
                    for chunk in each.chunks:
                        num_rows, is_copy = each.piece.num_rows, chunk.origin is not None
                        await draft.chunk(chunk.leaf, chunk.chunk, num_rows, is_copy=is_copy, origin=chunk.origin)
                    await draft.end_row_group(each.piece.num_rows, each.sorting_columns)
                    await draft.checkpoint_if_due(_CHECKPOINT_BYTES)
                    size = each.piece.num_bytes
                    moved["bytes_copied" if each.piece.is_copy else "bytes_decoded"] += size
                    written(size)
            num_rows = self._plan.outputs[self._position].num_rows
            mark = {COMPACTION_KEY: self._plan.mark_of(self._position)}
            await draft.finish(mark, num_rows, FileState.COMPLETE)
        by_store = sink.num_bytes_copied
        return {**moved, "bytes_copied": moved["bytes_copied"] - by_store, "bytes_by_store": by_store}


async def _prepared(pieces: Sequence[Piece], preparation: Preparation) -> AsyncGenerator[PreparedPiece, None]:
    for piece in pieces:
        yield await preparation.prepare(piece)
