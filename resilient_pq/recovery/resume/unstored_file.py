"""A local file whose writer died before its first record was whole: no row of it was stored. An async shell."""

from __future__ import annotations

from typing import Final

from resilient_pq.format.footer import MAGIC
from resilient_pq.format.resilience_records import HEADER_SIZE, parse_header
from resilient_pq.io import LocalStore

#: A file that was never whole is no larger than its anchor, which is as large as its schema.
_MOST_TORN_BYTES: Final = 1 << 20


async def was_torn_at_once(store: LocalStore, key: str) -> bool:
    """Whether a ``NAME.partial`` ends within its anchor, the first thing that is written: no row was stored."""
    tail = await store.read_tail(store.unfinished_key(key), _MOST_TORN_BYTES)
    data = bytes(tail.data)
    if tail.offset or not any(data):
        return not tail.offset
    header = parse_header(memoryview(data)[len(MAGIC) :])
    short = len(data) < len(MAGIC) + HEADER_SIZE
    return data[: len(MAGIC)] == MAGIC[: len(data)] and (short or (header is not None and header.end > len(data)))
