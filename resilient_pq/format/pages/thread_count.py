"""How many threads column chunks are worth, and which of them are one piece of work. Pure.

Python runs in one thread at a time: where chunks are small, threads that wait for each other there cost more than they
bring.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Final

from resilient_pq.format.file_metadata import CompressionCodec
from resilient_pq.lazy_dataclass import dataclass

#: How many times as long as Python all else has to take before a second thread pays: measured with two processors for
#: chunks of 8 KB to 1.6 MB. With smaller ones two threads took up to twice the time of one, since each waits for the
#: other several times a chunk (`scripts/bench/thread_count.py`).
_PAYS: Final = 2.5
#: The part of Python's time that a chunk takes which is decoded with many others.
_IN_BATCHES: Final = 0.15
#: Neighbours are one piece of work up to so many bytes: less is done sooner than handed to a thread.
_TOGETHER: Final = 256 * 1024


@dataclass(slots=True)
class Cost:
    """What chunks cost."""

    python_seconds: float  # seconds of Python for each
    bytes_per_second: float  # bytes a second of what runs beside Python in any case
    bytes_per_second_of_codec: float  # bytes a second of compressing or decompressing, where that is slow
    quick: frozenset[int]  # the codecs for which it is not

    def threads_worth(self, chunks: Iterable[tuple[int, int]], in_batches: Iterable[tuple[int, int]] = ()) -> int:
        """How many threads at most should work on chunks, given the bytes of each when decompressed, and its codec.

        Those in batches, many to a call of a kernel, take a part of the time of the others.
        """
        python = beside = 0.0
        for seconds, (num_bytes, codec) in chain(
            zip(repeat(self.python_seconds), chunks), zip(repeat(_IN_BATCHES * self.python_seconds), in_batches)
        ):
            python += seconds
            beside += num_bytes / self.bytes_per_second
            if codec not in self.quick:
                beside += num_bytes / self.bytes_per_second_of_codec
        return 1 + int(beside / (_PAYS * python)) if python else 1


_QUICK: Final = frozenset((CompressionCodec.UNCOMPRESSED, CompressionCodec.SNAPPY, CompressionCodec.LZ4_RAW))
#: Reading: to compare, copy and decompress.
READING: Final = Cost(100e-6, 2.5e9, 0.8e9, _QUICK | {CompressionCodec.LZ4})
#: Writing: to encode and compress.
WRITING: Final = Cost(125e-6, 1.2e9, 0.3e9, _QUICK)


def pieces_of_work(sizes: Sequence[int]) -> Iterator[range]:
    """The indexes of chunks, small neighbours together, by the bytes of each in memory."""
    start = num_bytes = 0
    for index, size in enumerate(sizes):
        if index > start and num_bytes + size > _TOGETHER:
            yield range(start, index)
            start, num_bytes = index, 0
        num_bytes += size
    if sizes:
        yield range(start, len(sizes))
