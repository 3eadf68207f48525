"""zstd by `zstandard` (docs/decisions/0044-zstandard.md), which is imported where a page has this codec."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import cache
from typing import Any, Final

import numpy as np

from resilient_pq import memory_pool
from resilient_pq.units import KiB

#: Bytes from which on the pool has the room for what they are compressed to. `bytes` of that size are mapped anew for
#: each call, and faulting them in takes a third of the time in which random doubles are compressed.
_LARGE: Final = 512 * KiB


def _bound(size: int) -> int:
    """Bytes that a frame of so many takes at most: no less than ZSTD_compressBound says."""
    return size + (size >> 8) + 1024


class Zstd:
    """Compresses and decompresses in any number of threads."""

    # A context is made once, taken by one thread at a time, and dropped after an error.

    def __init__(self) -> None:
        import zstandard  # noqa: PLC0415 (few milliseconds, but not for files without it)

        self.error: type[Exception] = zstandard.ZstdError  # Raised for data that are no frames
        self._module: Any = zstandard
        self._compressors: defaultdict[int, deque[Any]] = defaultdict(deque)  # idle ones, by level
        self._decompressors: deque[Any] = deque()

    def compress(self, data: Any, level: int) -> Any:
        """One frame that says how many bytes it holds, as a buffer."""
        idle = self._compressors[level]
        try:
            context = idle.pop()
        except IndexError:
            context = self._module.ZstdCompressor(level=level)
        packed = context.compress(data) if len(data) < _LARGE else self._into_pool(context, data)
        idle.append(context)
        return packed

    @staticmethod
    def _into_pool(context: Any, data: Any) -> Any:
        out: Any = memory_pool.empty((_bound(len(data)),), np.uint8)
        frame = context.stream_reader(data, size=len(data), read_size=len(data))
        filled: int = frame.readinto(out)
        assert not frame.read(1), "there is room for all of it"
        return memory_pool.front(out, filled)

    def decompress_into(self, data: Any, out: Any) -> int:
        """Fill the front of `out`; returns how much was filled, and another number than its size where more follows."""
        try:
            context = self._decompressors.pop()
        except IndexError:
            context = self._module.ZstdDecompressor()
        # Where all of a frame fits, it is decompressed in its place: no buffer lies between.
        frames = context.stream_reader(data, read_size=max(len(data), 1), read_across_frames=True)
        filled: int = frames.readinto(out) if len(out) else 0
        more = len(frames.read(1))
        self._decompressors.append(context)
        return filled + more


@cache
def zstd() -> Zstd:
    """The contexts that all threads share."""
    return Zstd()
