"""zstd by the fastest library that is installed, and bytes put before the blocks of its frames (RFC 8878)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Protocol

import numpy as np

from resilient_pq import memory_pool
from resilient_pq.units import KiB

#: Bytes from which on the pool has the room for what they are compressed to. `bytes` of that size are mapped anew for
#: each call, and faulting them in takes a third of the time in which random doubles are compressed.
_LARGE: Final = 512 * KiB


class Zstd(Protocol):
    """What one of the libraries can do, in any number of threads."""

    #: What it raises for data that are no frames of zstd.
    error: type[Exception]

    def compress(self, data: Any, level: int) -> Any:
        """One frame that says how many bytes it holds, as a buffer."""

    def decompress_into(self, data: Any, out: Any) -> int:
        """Fill the front of `out`; returns how much was filled, and another number than its size where more follows."""


def _bound(size: int) -> int:
    """Bytes that a frame of so many takes at most: no less than ZSTD_compressBound says."""
    return size + (size >> 8) + 1024


class _Zstandard:
    """`zstandard`. A context is made once, taken by one thread at a time, and dropped after an error."""

    def __init__(self, module: ModuleType) -> None:
        self.error: type[Exception] = module.ZstdError
        self._module: Any = module
        self._compressors: defaultdict[int, deque[Any]] = defaultdict(deque)  # idle ones, by level
        self._decompressors: deque[Any] = deque()

    def compress(self, data: Any, level: int) -> Any:
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


class _Standard:
    """`compression.zstd` of the standard library, and its copy for older versions of Python."""

    def __init__(self, module: ModuleType) -> None:
        self.error: type[Exception] = module.ZstdError
        self._module: Any = module
        self._compressors: defaultdict[int, deque[Any]] = defaultdict(deque)

    def compress(self, data: Any, level: int) -> Any:
        idle, maker = self._compressors[level], self._module.ZstdCompressor
        try:
            context = idle.pop()
        except IndexError:
            context = maker(level=level)
        packed = context.compress(data, maker.FLUSH_FRAME)
        idle.append(context)
        return packed

    def decompress_into(self, data: Any, out: Any) -> int:
        view, filled = memoryview(data), 0
        while view:
            frame = self._module.ZstdDecompressor()
            piece = frame.decompress(view, len(out) - filled + 1)
            if not frame.eof or filled + len(piece) > len(out):
                raise self.error("the data are longer than announced, or cut short")
            memoryview(out)[filled : filled + len(piece)] = piece
            filled += len(piece)
            view = memoryview(frame.unused_data)
        return filled


class _Cramjam:
    """`cramjam`, which makes a context for each call."""

    def __init__(self, module: ModuleType) -> None:
        self.error: type[Exception] = module.DecompressionError
        self._zstd: Any = module.zstd

    def compress(self, data: Any, level: int) -> Any:
        out: Any = memory_pool.empty((_bound(len(data)),), np.uint8)
        return memory_pool.front(out, self._zstd.compress_into(data, out, level=level))

    def decompress_into(self, data: Any, out: Any) -> int:
        filled: int = self._zstd.decompress_into(data, out)
        return filled


#: By the module that is imported; docs/decisions/0044-zstandard.md has the figures.
BINDINGS: Final[dict[str, Callable[[ModuleType], Zstd]]] = {
    "zstandard": _Zstandard,
    "compression.zstd": _Standard,
    "backports.zstd": _Standard,
    "cramjam": _Cramjam,
}


@cache
def zstd() -> Zstd:
    """The fastest library that is installed."""
    for name in BINDINGS:
        try:
            return bound(name)
        except ImportError:
            continue
    raise ImportError("no library for zstd is installed: pip install zstandard")


def bound(name: str) -> Zstd:
    """One of the libraries, by its name in `BINDINGS`."""
    return BINDINGS[name](import_module(name))


_MAGIC = b"\x28\xb5\x2f\xfd"
#: Of the descriptor: whether the window is as large as the content, and has no byte of its own; and whatever is of no
#: use here, which are a checksum, a dictionary, and bits without a meaning.
_SINGLE_SEGMENT, _OTHER = 0x20, 0x1F
_TWO_BYTES_FROM: Final = 256  # Two bytes begin to count where one ends


def _size_of_size(descriptor: int) -> int:
    """Bytes of the content's size, which may be left out where there is a window."""
    return (1 if descriptor & _SINGLE_SEGMENT else 0, 2, 4, 8)[descriptor >> 6]


def frame_front(frame: memoryview, before: bytes, size: int) -> tuple[bytes, int] | None:
    """The bytes that put others before a frame's content, and how many bytes of its header they replace."""
    # The bytes before the content, at most 1 KiB, become a block of their own that is not compressed (section 3.1.1.2).
    # The other blocks stay as they are: they copy from what stands before them by the distance, and such a block
    # changes nothing else that they begin with (section 3.1.1.5). None where the header has more than a window and a
    # size.
    if frame[: len(_MAGIC)] != _MAGIC or frame[4] & _OTHER:
        return None
    window = b"" if frame[4] & _SINGLE_SEGMENT else bytes(frame[5:6])
    if size < _TWO_BYTES_FROM and not window:
        descriptor, content = 0, bytes((size,))
    elif _TWO_BYTES_FROM <= size < _TWO_BYTES_FROM + (1 << 16):
        descriptor, content = 1, (size - _TWO_BYTES_FROM).to_bytes(2, "little")
    else:
        descriptor, content = 2, size.to_bytes(4, "little")
    flags = descriptor << 6 | (0 if window else _SINGLE_SEGMENT)
    block = (len(before) << 3).to_bytes(3, "little")  # not the last one, and raw: bits that are 0
    header = 5 + len(window) + _size_of_size(frame[4])
    return b"".join((_MAGIC, bytes((flags,)), window, content, block, before)), header
