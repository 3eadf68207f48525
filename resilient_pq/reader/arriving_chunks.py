"""Chunks that the event loop fetches, decoded in threads while others still arrive. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import Where, located
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.io.transfer.rereads import read_again
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.chunk_objects import ChunkObjects

if TYPE_CHECKING:
    from resilient_pq.reader.row_groups import RowGroupWork


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """A chunk, and the positions of its row group, its column, and its leaf within the column."""

    chunk: ChunkRead
    group: int
    column: int
    leaf: int


#: A chunk, and the bytes of its ranges.
ArrivedChunk: TypeAlias = tuple[ChunkTask, Sequence[memoryview]]


async def decode_arriving(
    work: RowGroupWork, objects: ChunkObjects, in_thread: Callable[..., Awaitable[Any]], *, max_waiting: int
) -> None:
    """Fetch all chunks of some work in one wave, and decode them; `max_waiting` groups wait for a thread at most."""
    # Chunks that wait for a thread are held beside the budget of the fetch: so there are few of them.
    waiting = asyncio.Semaphore(max_waiting)
    threads = asyncio.Semaphore(work.threads_worth)

    async def decode_group(group: Sequence[tuple[ChunkTask | int, Sequence[memoryview]]]) -> None:
        try:
            async with threads:
                damaged = await in_thread(work.decode, group)
            for piece, parts in damaged:
                before = parts[0] if piece.chunk.pages is None else None
                await _read_again(work, objects, in_thread, piece, before)
        finally:
            waiting.release()

    flat = work.flat
    tasks_of: list[ChunkTask | int] = [*work.pieces, *flat.numbers]
    ranges = [ByteRange(flat.starts[number], flat.ends[number]) for number in flat.numbers]
    wave = objects.fetch([*(piece.chunk for piece in work.pieces), *ranges])
    first: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks, aclosing(wave) as arriving:
            async for group in arriving:
                await waiting.acquire()
                tasks.create_task(decode_group([(tasks_of[position], parts) for position, parts in group]))
    except BaseExceptionGroup as group:
        first = group.exceptions[0]  # each of them names its own place; one is enough
    if first is not None:  # raised here, as in the clause its context would be the group that it is in
        raise first


async def _read_again(
    work: RowGroupWork,
    objects: ChunkObjects,
    in_thread: Callable[..., Awaitable[Any]],
    piece: ChunkTask,
    before: memoryview | None,
) -> None:
    """Read a damaged chunk until it is whole, or is known to be stored so."""
    whole = replace(piece, chunk=piece.chunk.whole)

    async def read() -> memoryview:
        with located(Where(key=objects.url_of(piece.chunk.file))):
            return await objects.read(whole.chunk)

    async def is_whole(data: memoryview) -> bool:
        return not await in_thread(work.decode, [(whole, [data])])

    damaged = await read_again(objects.store, read, is_whole, before)
    if damaged is not None:
        await in_thread(work.decode_again, piece, damaged)
