"""How many threads writing a row group is worth, and which of its chunks are one piece of work. Pure.

Python runs in one thread at a time, and threads that wait for each other there cost more than they bring where chunks
are small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from resilient_pq.format.metadata import CompressionCodec

#: Seconds of Python for each chunk, and how many times as long all else has to take before a second thread pays:
#: measured with two processors for chunks of 8 KB to 800 KB (`scripts/bench/thread_count.py`).
_PYTHON_SECONDS: Final = 125e-6
_PAYS: Final = 2.5
#: Bytes a second of what runs beside Python: encoding; and compressing, where that is slow.
_ENCODED: Final = 1.2e9
_COMPRESSED: Final = 0.3e9
_QUICK: Final = frozenset((CompressionCodec.UNCOMPRESSED, CompressionCodec.SNAPPY, CompressionCodec.LZ4_RAW))
#: Neighbours are one piece of work up to so many bytes: less is done sooner than handed to a thread.
_TOGETHER: Final = 256 * 1024


def threads_worth(chunks: Iterable[tuple[int, CompressionCodec]]) -> int:
    """How many threads at most should encode the chunks of a row group, one or more."""
    python = beside = 0.0
    for num_bytes, codec in chunks:
        python += _PYTHON_SECONDS
        beside += num_bytes / _ENCODED
        if codec not in _QUICK:
            beside += num_bytes / _COMPRESSED
    return 1 + int(beside / (_PAYS * python)) if python else 1


def pieces_of_work(sizes: Sequence[int]) -> Iterator[range]:
    """Chunks in their order, small neighbours together."""
    start = num_bytes = 0
    for index, size in enumerate(sizes):
        if index > start and num_bytes + size > _TOGETHER:
            yield range(start, index)
            start, num_bytes = index, 0
        num_bytes += size
    if sizes:
        yield range(start, len(sizes))
