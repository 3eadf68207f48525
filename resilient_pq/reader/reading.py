"""The footer of a file, read and checked. An async shell."""

from __future__ import annotations

from resilient_pq.errors import FormatError, Where
from resilient_pq.format.footer import TAIL_SIZE, Footer, NeedBytes, read_footer
from resilient_pq.io import FetchCounters, ObjectInfo, ObjectTail, ReadStore, counting
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.data_file import remedy

#: Bytes from which on a footer is large.
_LARGE_FOOTER = 1 << 20
#: Bytes of a footer that are a piece of work (`off_loop`): it is walked, and little of it is made into objects.
_PIECE = 4096


async def read_contents(
    store: ReadStore, key: str, *, tail_bytes: int, counters: FetchCounters, verify: bool = True
) -> tuple[ObjectInfo, Contents]:
    """Read a footer: one request for the object's tail, one more where it is longer, and again where it is damaged."""
    tail, contents = await read_tail_and_contents(store, key, tail_bytes=tail_bytes, counters=counters, verify=verify)
    return tail.info, contents


async def read_tail_and_contents(
    store: ReadStore, key: str, *, tail_bytes: int, counters: FetchCounters, verify: bool = True
) -> tuple[ObjectTail, Contents]:
    """As `read_contents`, with the bytes that were read for it: indexes often lie in them."""
    with counting(counters):
        try:
            return await _read_contents(store, key, tail_bytes, counters, verify=verify)
        except FormatError:
            # A transfer can go wrong as well as a disk: fetch the bytes once more before believing it. Whatever they
            # seem to be then: a bit of the magic or of the length that flipped makes a torn file of a whole one.
            return await _read_contents(store, key, tail_bytes, counters, verify=verify)


async def _read_contents(
    store: ReadStore, key: str, tail_bytes: int, counters: FetchCounters, *, verify: bool
) -> tuple[ObjectTail, Contents]:
    tail, found = await _read_footer(store, key, tail_bytes, counters)
    contents = await off_loop(found.length // _PIECE, Contents.of, found)
    vouched = not verify or contents.verified
    if not vouched and await off_loop(found.length // _PIECE, lambda: contents.unvouched):
        raise FormatError(
            "the record of the footer is damaged: nothing vouches for the footer",
            where=Where(offset=found.start),
            hint=f"{remedy(store.url_of(key))}, or open it with verify=False",
        )
    return tail, contents


async def _read_footer(
    store: ReadStore, key: str, tail_bytes: int, counters: FetchCounters
) -> tuple[ObjectTail, Footer]:
    tail = await store.read_tail(key, max(tail_bytes, TAIL_SIZE))
    counters.requests += 1
    counters.bytes += len(tail.data)
    data, offset = memoryview(tail.data), tail.offset
    found = await off_loop(len(data) // _PIECE, read_footer, data, offset)
    if isinstance(found, NeedBytes):
        # To join a large footer takes longer than to read the end of it once more.
        again = offset - found.start > max(_LARGE_FOOTER, 8 * len(data))
        end = offset + len(data) if again else offset
        missing = await store.read_range(key, found.start, end, pin=tail.info)
        counters.requests += 1
        counters.bytes += len(missing)
        whole = missing if again else b"".join([missing, data])
        found = await off_loop(len(whole) // _PIECE, read_footer, memoryview(whole), found.start)
        if isinstance(found, NeedBytes):
            raise FormatError("the footer does not say where it begins")
    return tail, found
