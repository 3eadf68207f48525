"""An upload whose first parts are copied by the store itself, from an object that lies in it already."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.io.cancellation import GRACE_SECONDS, finish_first
from resilient_pq.io.multipart_store import MultipartStore, Part
from resilient_pq.io.object_sink import SinkOptions
from resilient_pq.io.stored_object import ObjectInfo
from resilient_pq.io.upload.lease import Lease
from resilient_pq.io.upload.part_layout import part_size
from resilient_pq.io.upload.upload_start import begin_upload, drop_upload, refuse_changed
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import MiB

#: Where copies may have any size: so many of an object, unless they reach these bytes; and no more in any case.
_FEW_COPIES, _COPIED_BYTES = 100, 256 * MiB
_MOST_COPIES = 5_000
#: Copies under way at one time, within what the store lets be under way of all requests; their bytes do not pass
#: through here.
_MAX_COPIES = 16


@dataclass(frozen=True, slots=True)
class CopiedUpload:
    """An open upload, and its first parts."""

    upload_id: str
    parts: tuple[Part, ...]  # Parts 1, 2, ... in full: whole numbers of MiB
    num_bytes: int  # Bytes in them


def parts_to_copy(end: int, options: SinkOptions) -> list[ByteRange]:
    """The parts of an upload to copy from the first `end` bytes of an object."""
    # Where parts may be unequal, the last reaches to the last whole MiB: so less than a MiB is left to be read and
    # sent. Those of a large object are long then, and leave numbers of parts for what is written behind them. None
    # where the bytes do not fill one part.
    places: list[ByteRange] = []
    start, least = 0, 0
    if not options.equal_parts:
        least = max(min(end // _FEW_COPIES, _COPIED_BYTES), end // _MOST_COPIES) // MiB * MiB
    while (stop := start + max(part_size(len(places) + 1, options), min(least, (end - start) // MiB * MiB))) <= end:
        places.append(ByteRange(start, stop))
        start = stop
    if places and not options.equal_parts:
        places[-1] = ByteRange(places[-1].start, end // MiB * MiB)
    return places


@asynccontextmanager
async def copied_upload(
    store: MultipartStore,
    key: str,
    source: ObjectInfo,
    end: int,
    options: SinkOptions,
    *,
    copied: Callable[[int], None] | None = None,
    lease: Lease | None = None,
) -> AsyncIterator[CopiedUpload]:
    """Begin an upload with copies of the first `end` bytes of another object, as far as they make parts."""
    # The upload is the caller's when the block ends well, and is removed when it does not. That all copies are of one
    # version is known before the block is entered: not every store heeds which version was to be copied, so what the
    # source is is asked before the first copy and after the last.
    places = parts_to_copy(end, options)
    await refuse_changed(store, source, end)
    drop = partial(drop_upload, store, key)
    upload_id = await finish_first(begin_upload(store, key, lease), undo=drop, patience=GRACE_SECONDS)
    try:
        parts = await _copies(store, key, upload_id, source, places, copied or (lambda _: None))
        await refuse_changed(store, source, end)
        yield CopiedUpload(upload_id, tuple(parts), places[-1].end if places else 0)
    except BaseException as error:
        await finish_first(drop(upload_id, error))
        raise


async def _copies(
    store: MultipartStore,
    key: str,
    upload_id: str,
    source: ObjectInfo,
    places: Sequence[ByteRange],
    copied: Callable[[int], None],
) -> list[Part]:
    """The parts, several of them under way at one time; afterwards none is, however it ends."""
    waiting = deque(enumerate(places, start=1))
    parts: dict[int, Part] = {}
    num_bytes = 0

    async def copy() -> None:
        nonlocal num_bytes
        while waiting:
            number, place = waiting.popleft()
            parts[number] = await store.copy_part(
                key, upload_id, number, source.key, place.start, place.end, source.etag
            )
            num_bytes += place.size
            copied(num_bytes)

    copying = [asyncio.create_task(copy()) for _ in range(min(_MAX_COPIES, len(places)))]
    try:
        if copying:
            await asyncio.wait(copying, return_when=asyncio.FIRST_EXCEPTION)
        for task in copying:
            if task.done():
                task.result()
    finally:
        waiting.clear()
        await finish_first(_ended(copying))
    return [parts[number] for number in range(1, len(places) + 1)]


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for copies, for a while: one carried out when its upload was aborted stays. Then they are broken off."""
    if tasks:
        await asyncio.wait(tasks, timeout=GRACE_SECONDS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
