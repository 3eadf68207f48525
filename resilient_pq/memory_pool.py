"""Room for large arrays: memory that is mapped in huge pages, used again when it is free, and given back.

A heap faults its memory in page by page of 4 KiB, which costs more than decoding or copying what goes into it; it
keeps what was freed in pieces between what is smaller and lives on; and every thread has a heap of its own. Here all
threads share a few large mappings. Arrays take extents of them, first fit, and an extent is free again when the last
view of its array is gone: nothing keeps memory alive but the arrays that lie in it. What is free and was filled before
is taken first (it costs no faults, and may be in the caches). Of that a little is kept; the rest the system may take
whenever memory is short, and where it did not, what is filled again costs no faults either.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import threading
from bisect import bisect_left
from collections import deque
from contextlib import suppress
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.units import KiB, MiB

#: Bytes from which on room is mapped: what a heap's page faults would cost is then more than what an extent does.
_MAPPED: Final = 64 * KiB
#: Extents are whole pages of the system: what is free can go back to it.
_GRAIN: Final = mmap.PAGESIZE
#: Huge pages of x86-64, and of ARM with small pages of 4 KiB; others make huge pages where they can.
_HUGE: Final = 2 * MiB
#: Mapped memory is shared with forked processes unless it is told not to be; Windows knows neither.
_PRIVATE: Final[dict[str, int]] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)
#: How a part of a mapping goes back to the system: with MADV_FREE it takes it when memory is short, and until then what
#: is filled again costs no faults. Where there is none (Linux before 4.5, Windows) MADV_DONTNEED does it at once.
_GIVE_BACK: Final[int | None] = getattr(
    mmap, "MADV_FREE", getattr(mmap, "MADV_DONTNEED", None) if sys.platform == "linux" else None
)
#: Bytes of a mapping, at least. Where no part of one can be given back, every array has its own.
_SLAB: Final = 0 if _GIVE_BACK is None else 32 * MiB
#: Bytes of free memory that are kept: a row group's, which the next one needs.
_MOST_KEPT: Final = 64 * MiB
#: Bytes of mappings that stay though nothing lives in them, between these two: an eighth of the machine's memory. The
#: system may have them whenever it wants; a second table of 1 GB is read in two thirds of the time where it did not.
_MAPPED_BETWEEN: Final = (512 * MiB, 2048 * MiB)


def _most_mapped() -> int:
    least, most = _MAPPED_BETWEEN
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # it does not say
        return least
    return min(max(memory // 8, least), most)


_MOST_MAPPED: Final = _most_mapped()


class _Slab:
    """A mapping, and which of its extents are free: `warm` ones are kept, `cold` ones the system may have."""

    __slots__ = ("address", "cold", "mapping", "shift", "size", "warm")

    def __init__(self, size: int) -> None:
        """Map `size` bytes.

        Raises:
            OSError: There is not that much, or a process may have only so many mappings.
        """
        self.mapping = mmap.mmap(-1, size + (_HUGE if size >= _HUGE else 0), **_PRIVATE)
        address = int(np.frombuffer(self.mapping, np.uint8).__array_interface__["data"][0])
        self.shift = -address % _HUGE if size >= _HUGE else 0
        self.address, self.size = address + self.shift, size
        self.warm = _Extents()
        self.cold = _Extents()
        self.cold.add(0, size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a system without huge pages
                self.mapping.madvise(mmap.MADV_HUGEPAGE)

    def cool(self, start: int, size: int) -> None:
        """Give a free extent that is in neither list back to the system."""
        if _GIVE_BACK is not None:
            with suppress(OSError):  # memory that is locked stays where it is
                self.mapping.madvise(_GIVE_BACK, self.shift + start, size)
        self.cold.add(start, size)

    @property
    def unused(self) -> bool:
        """Whether all of it is free, and the system may have its memory."""
        return self.cold.sizes == [self.size]


class _Extents:
    """Extents of one mapping that do not touch, by their start."""

    __slots__ = ("sizes", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.sizes: list[int] = []

    def take(self, size: int) -> int | None:
        """Take the front of the first extent that is large enough; gives where it starts."""
        for at, found in enumerate(self.sizes):
            if found >= size:
                start = self.starts[at]
                if found == size:
                    del self.starts[at], self.sizes[at]
                else:
                    self.starts[at], self.sizes[at] = start + size, found - size
                return start
        return None

    def take_last(self, most: int) -> tuple[int, int]:
        """Take the end of the last extent, at most so many bytes."""
        size = min(most, self.sizes[-1])
        if size == self.sizes[-1]:
            return self.starts.pop(), self.sizes.pop()
        self.sizes[-1] -= size
        return self.starts[-1] + self.sizes[-1], size

    def add(self, start: int, size: int) -> None:
        """Add an extent, which becomes one with its neighbours."""
        at = bisect_left(self.starts, start)
        if at and self.starts[at - 1] + self.sizes[at - 1] == start:
            at -= 1
            self.sizes[at] += size
        else:
            self.starts.insert(at, start)
            self.sizes.insert(at, size)
        if at + 1 < len(self.starts) and self.starts[at] + self.sizes[at] == self.starts[at + 1]:
            self.sizes[at] += self.sizes.pop(at + 1)
            del self.starts[at + 1]


class _Pool:
    """The mappings of this process.

    Attributes:
        here: The one that gives room now.
    """

    here: ClassVar[_Pool]

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changing = False  # by a thread that has the lock: what it interrupts itself with may have it again
        self._slabs: list[_Slab] = []
        self._warm = 0
        self._returned: deque[tuple[_Slab, int, int]] = deque()

    def take(self, size: int) -> tuple[_Slab, int]:
        """An extent of `size` bytes: its mapping, and where in it it starts.

        Raises:
            OSError: There is none, and none can be mapped; or a finalizer or a signal handler asks amid this.
        """
        with self._lock:
            if self._changing:
                raise BlockingIOError("this thread is taking or giving room")
            self._changing = True
            try:
                return self._found(size)
            finally:
                self._changing = False

    def _found(self, size: int) -> tuple[_Slab, int]:
        self._sort_in()
        for slab in self._slabs:
            start = slab.warm.take(size)
            if start is not None:
                self._warm -= size
                return slab, start
        self._shrink(self._warm - size)  # what is filled anew is made up for by what is kept
        for slab in self._slabs:
            start = slab.cold.take(size)
            if start is not None:
                return slab, start
        wanted = size if size > _SLAB // 2 else _SLAB
        try:
            slab = _Slab(wanted)
        except OSError:  # a process may have only so much mapped: what nothing lives in gives way
            self._shrink(0)
            self._unmap(0)
            slab = _Slab(wanted)
        self._slabs.append(slab)
        start = slab.cold.take(size)
        assert start is not None
        return slab, start

    def give(self, slab: _Slab, start: int, size: int) -> None:
        """Take an extent back. May be called anywhere, also by a finalizer where this very thread holds the lock."""
        self._returned.append((slab, start, size))
        if self._lock.acquire(blocking=False):  # else it is sorted in when room is next taken or given
            try:
                self._tidy(_MOST_KEPT)
            finally:
                self._lock.release()

    def _tidy(self, most: int) -> None:
        """Keep at most so much of what is free; with the lock, and not where this interrupts a change."""
        if self._changing:
            return
        self._changing = True
        try:
            self._sort_in()
            if most < _MOST_KEPT:
                self._shrink(most)
        finally:
            self._changing = False

    def _sort_in(self) -> None:
        while self._returned:
            slab, start, size = self._returned.popleft()
            slab.warm.add(start, size)
            self._warm += size
        if self._warm > _MOST_KEPT:
            self._shrink(_MOST_KEPT)

    def _shrink(self, most: int) -> None:
        """Keep at most so much: what lies in front stays, for there room is looked for first."""
        most = max(most, 0)
        if self._warm <= most:
            return
        for slab in reversed(self._slabs):
            while self._warm > most and slab.warm.sizes:
                start, size = slab.warm.take_last(_in_grains(self._warm - most))
                self._warm -= size
                slab.cool(start, size)
        self._unmap(_MOST_MAPPED)

    def _unmap(self, most: int) -> None:
        """Of the mappings that nothing lives in keep some: those in front, for there room is looked for first."""
        mapped = 0
        for slab in [slab for slab in self._slabs if slab.unused]:
            mapped += slab.size
            if _GIVE_BACK is None or mapped > most:
                self._slabs.remove(slab)

    def shrink(self, most: int) -> None:
        with self._lock:
            self._tidy(most)

    @property
    def kept(self) -> int:
        """Bytes that are free and not given back."""
        with self._lock:
            self._tidy(_MOST_KEPT)
            return self._warm


def _in_grains(size: int) -> int:
    return -(-size // _GRAIN) * _GRAIN


def _begin_anew() -> None:
    """In a forked process the thread is missing that may have held the lock: its lists are what it left behind."""
    _Pool.here = _Pool()


_begin_anew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class _Lease:
    """What an array and all its views have as their base: when the last of them is gone, the extent is free."""

    __slots__ = ("__array_interface__", "_extent", "_pool")

    def __init__(self, size: int, shape: tuple[int, ...], typestr: str) -> None:
        self._pool = pool = _Pool.here
        slab, start = pool.take(size)
        self._extent = slab, start, size
        self.__array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (slab.address + start, False),
            "version": 3,
        }

    def keep(self, size: int) -> None:
        """Give back what lies behind the first `size` bytes."""
        slab, start, whole = self._extent
        if size < whole:
            self._extent = slab, start, size
            self._pool.give(slab, start + size, whole - size)

    def __del__(self) -> None:
        # Without an extent where none could be taken.
        if hasattr(self, "_extent"):
            self._pool.give(*self._extent)


def empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array whose values are not set: memory that is filled once and kept, or scratch that is soon let go of.

    A large one takes an extent of mapped memory, which is free again when the array and all its views are gone.

    Args:
        shape: Its shape.
        dtype: Its type, one without fields.

    Raises:
        MemoryError: There is not so much.
        ValueError: No array has that shape.
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    if size < _MAPPED:
        return np.empty(shape, dtype)
    try:
        array: NDArray[Any] = np.asarray(_Lease(_in_grains(size), shape, dtype.str))
    except (OSError, OverflowError, ValueError):  # a process may have only so many mappings
        return np.empty(shape, dtype)
    return array


def front(array: NDArray[Any], count: int) -> NDArray[Any]:
    """The first `count` items of an array that `empty` gave, without holding on to much memory behind them.

    For what had to be given more room than it took. Nothing else may look at the array.
    """
    lease = array.base
    part = array[:count]
    if isinstance(lease, _Lease):
        lease.keep(max(_in_grains(part.nbytes), _GRAIN))
        return part
    return part if 2 * count >= len(array) else part.copy()


def give_back(keep: int = 0) -> None:
    """Give free memory back to the system, all but `keep` bytes of it."""
    _Pool.here.shrink(keep)
