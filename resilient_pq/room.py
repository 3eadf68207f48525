"""Room for what waits to be sent: large memory that is used again, or goes back to the system, when it is free.

A heap keeps what was freed, in pieces between what is smaller and lives on, and every thread has a heap of its own.
Mapped memory does not stay, but taking it anew costs a third of what compressing what goes into it does: so a little is
kept.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MiB = 1024 * 1024
#: Bytes from which on room is mapped.
_MAPPED: Final = MiB // 2
#: Mapped memory comes in multiples of this, so that what one page leaves fits the next.
_GRAIN: Final = MiB // 4
#: Mapped memory is shared with forked processes unless it is told not to be; Windows knows neither.
_PRIVATE: Final[dict[str, int]] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)
#: Bytes of free memory that are kept: a row group's, which the next one needs.
_MOST_KEPT: Final = 64 * MiB


class _Kept:
    """Free blocks, the oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: list[NDArray[np.uint8]] = []
        self._bytes = 0

    def take(self, size: int) -> NDArray[np.uint8] | None:
        """A free block of this size. Where there is none, others go back to the system, to make up for a new one."""
        with self._lock:
            for index in reversed(range(len(self._blocks))):
                if self._blocks[index].nbytes == size:
                    self._bytes -= size
                    return self._blocks.pop(index)
            self._shrink(self._bytes - size)
        return None

    def _shrink(self, most: int) -> None:
        while self._blocks and self._bytes > most:
            self._bytes -= self._blocks.pop(0).nbytes

    def give(self, block: NDArray[np.uint8]) -> None:
        # A finalizer runs anywhere, also where this very thread holds the lock: then the block is not kept.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._blocks.append(block)
            self._bytes += block.nbytes
            self._shrink(_MOST_KEPT)
        finally:
            self._lock.release()

    def clear(self) -> None:
        with self._lock:
            self._blocks, self._bytes = [], 0

    def begin_anew(self) -> None:
        """In a forked process, where the thread that held the lock is not."""
        self._lock = threading.Lock()
        self.clear()


_kept = _Kept()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_kept.begin_anew)


class _Lease:
    """What the arrays in a block have as their base: when the last of them is gone, the block is free."""

    def __init__(self, block: NDArray[np.uint8]) -> None:
        self._block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self, give: Callable[[NDArray[np.uint8]], None] = _kept.give) -> None:
        give(self._block)


def empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array whose values are not set; a large one that is new takes memory only as far as it is filled."""
    count, dtype = math.prod(shape), np.dtype(dtype)
    size = count * dtype.itemsize
    if size < _MAPPED:
        return np.empty(shape, dtype)
    whole = -(-size // _GRAIN) * _GRAIN
    block = _kept.take(whole)
    if block is None:
        try:
            block = np.frombuffer(mmap.mmap(-1, whole, **_PRIVATE), np.uint8)
        except OSError:  # a process may have only so many mappings
            return np.empty(shape, dtype)
    array: NDArray[Any] = np.asarray(_Lease(block))[:size].view(dtype).reshape(shape)
    return array


def give_back() -> None:
    """Give the memory that is kept back to the system."""
    _kept.clear()
