"""A pool of memory for large arrays: extents of huge pages, which are reused and returned to the system.

A heap faults its memory in by pages of 4 KiB, which costs more than decoding or copying data into it; it keeps freed
memory in pieces between smaller allocations; and every thread has a heap of its own. This pool shares a few large
mappings among all threads. An array takes the first extent that fits, and the extent is free again when the last view
of the array is gone. Free extents that were filled before are taken first: they cost no page faults, and may be in the
caches. A little free memory is kept; the system may take the rest whenever memory is short, and until then refilling it
costs no page faults either.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from resilient_pq.machine_limits import memory_limit, share_of_memory
from resilient_pq.units import KiB, MiB

T = TypeVar("T")

#: Bytes from which on an array takes an extent, which then costs less than the page faults of a heap.
_MAPPED: Final = 64 * KiB
#: Extents are whole pages of the system, so that free ones can be returned to it.
_GRAIN: Final = mmap.PAGESIZE
#: Huge pages of x86-64, and of ARM with small pages of 4 KiB; others make huge pages where they can.
_HUGE: Final = 2 * MiB
#: Forked processes get a copy of the mappings; Windows has neither fork nor these flags.
_PRIVATE: Final[dict[str, int]] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)
#: Returns a part of a mapping to the system: with MADV_FREE when memory is short, and until then refilling costs no
#: page faults; without it (Linux before 4.5) MADV_DONTNEED does it at once. Windows has neither.
_GIVE_BACK: Final[int | None] = getattr(
    mmap, "MADV_FREE", getattr(mmap, "MADV_DONTNEED", None) if sys.platform == "linux" else None
)
#: Bytes of a mapping, at least. Where no part of one can be returned, every array has its own.
_SLAB: Final = 0 if _GIVE_BACK is None else 32 * MiB
#: Bytes of free memory that are kept: those of a row group, for the next one.
_MOST_KEPT: Final = share_of_memory(16, 64 * MiB)
#: Bytes of unused mappings that stay, an eighth of the memory. The system may take it; if it does not, a second table
#: of 1 GB is read in two thirds of the time.
_MOST_MAPPED: Final = share_of_memory(8, 2048 * MiB)


#: Where a process may use less than this, the heaps of its threads return what they keep, when it has come to half of
#: the limit: they keep hundreds of MiB in pieces, which no other thread can use.
_TIGHT: Final = 2048 * MiB
#: Bytes that the pool gives between two times at which that is looked at.
_LOOKED_AT: Final = 64 * MiB
#: Seconds that a thread waits for another one, whose turn takes microseconds. Finalizers may run amid it, of any code,
#: and wait for something that waits for the pool: without an end, that would be a deadlock.
_PATIENCE: Final = 0.1


def _trim_heaps() -> None:
    """Return free memory of all heaps to the system, where these are glibc's and memory is short."""
    limit = memory_limit()
    if limit is None or limit > _TIGHT:
        return
    with suppress(OSError, ValueError, AttributeError):  # no Linux, or no glibc
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
        if resident > limit // 2:
            ctypes.CDLL(None).malloc_trim(0)


class _Slab:
    """A mapping and its free extents: `warm` ones are kept, `cold` ones were returned to the system."""

    __slots__ = ("address", "cold", "mapping", "shift", "size", "warm")

    def __init__(self, size: int) -> None:
        """Map `size` bytes; an OSError where the system refuses."""
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
        """Return a free extent, which is in neither list, to the system."""
        if _GIVE_BACK is not None:
            with suppress(OSError):  # memory that is locked stays where it is
                self.mapping.madvise(_GIVE_BACK, self.shift + start, size)
        self.cold.add(start, size)

    @property
    def unused(self) -> bool:
        """Whether all of it is free and was returned to the system."""
        return self.cold.sizes == [self.size]


class _Extents:
    """Extents of one mapping that do not touch, by their start."""

    __slots__ = ("sizes", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.sizes: list[int] = []

    def take(self, size: int) -> int | None:
        """Take the front of the first extent that is large enough, and return its start."""
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
    """The mappings of a process; `here` is the pool of this one."""

    here: ClassVar[_Pool]

    def __init__(self) -> None:
        self._lock = threading.RLock()  # knows its thread, amid whose call finalizers and signal handlers may run
        self._slabs: list[_Slab] = []
        self._warm = 0
        self._given = 0  # bytes since the heaps were looked at
        self._returned: deque[tuple[_Slab, int, int]] = deque()

    def take(self, size: int) -> tuple[_Slab, int]:
        """Take an extent: its mapping, and its start; an OSError if none can be mapped, or amid another call."""
        return self._in_turn(partial(self._find, size), _PATIENCE)

    def _in_turn(self, change: Callable[[], T], patience: float) -> T:
        """What a change gives; a BlockingIOError amid another change, of this thread or one that takes long."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise BlockingIOError("this thread is changing the pool")
        try:  # before the lock is taken: an interrupt may come as soon as it is
            if not self._lock.acquire(timeout=patience):
                raise BlockingIOError("another thread is changing the pool")
            return change()
        finally:
            try:  # noqa: SIM105 (the call of `suppress` would be a moment at which an interrupt may come)
                self._lock.release()
            except RuntimeError:  # it was not taken
                pass

    def _find(self, size: int) -> tuple[_Slab, int]:
        self._sort_in()
        self._given += size
        if self._given >= _LOOKED_AT:
            self._given = 0
            _trim_heaps()
        for slab in self._slabs:
            start = slab.warm.take(size)
            if start is not None:
                self._warm -= size
                return slab, start
        self._shrink(self._warm - size)  # the new extent counts as kept memory
        for slab in self._slabs:
            start = slab.cold.take(size)
            if start is not None:
                return slab, start
        wanted = size if size > _SLAB // 2 else _SLAB
        try:
            slab = _Slab(wanted)
        except OSError:  # a process may have only so much mapped: unmap what is unused
            self._shrink(0)
            self._unmap(0)
            slab = _Slab(wanted)
        self._slabs.append(slab)
        start = slab.cold.take(size)
        assert start is not None
        return slab, start

    def give(self, slab: _Slab, start: int, size: int) -> None:
        """Take an extent back; callable anywhere, also by a finalizer of the thread that holds the lock."""
        self._returned.append((slab, start, size))
        self.shrink(_MOST_KEPT, patience=0)

    def shrink(self, most: int, *, patience: float = _PATIENCE) -> None:
        """Keep at most so many free bytes; what cannot be done now, amid another call, the next one does."""
        with suppress(BlockingIOError):
            self._in_turn(partial(self._keep, most), patience)

    def _keep(self, most: int) -> None:
        self._sort_in()
        if most < _MOST_KEPT:
            self._shrink(most)

    def _sort_in(self) -> None:
        while self._returned:
            slab, start, size = self._returned.popleft()
            slab.warm.add(start, size)
            self._warm += size
        if self._warm > _MOST_KEPT:
            self._shrink(_MOST_KEPT)

    def _shrink(self, most: int) -> None:
        """Keep at most so many free bytes: those in front, which are taken first."""
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
        """Keep at most so many bytes of unused mappings: those in front, which are taken first."""
        mapped = 0
        for slab in [slab for slab in self._slabs if slab.unused]:
            mapped += slab.size
            if _GIVE_BACK is None or mapped > most:
                self._slabs.remove(slab)

    @property
    def kept(self) -> int:
        """Bytes that are free and not returned to the system."""
        self.shrink(_MOST_KEPT)
        return self._warm


def _in_grains(size: int) -> int:
    return -(-size // _GRAIN) * _GRAIN


def _begin_anew() -> None:
    """Begin with an empty pool in a forked process, where the thread that held the lock is missing."""
    _Pool.here = _Pool()


_begin_anew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class _Lease:
    """The base of an array and all its views: when the last of them is gone, the extent is free."""

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
        """Return the memory behind the first `size` bytes to the pool."""
        slab, start, whole = self._extent
        if size < whole:
            self._extent = slab, start, size
            self._pool.give(slab, start + size, whole - size)

    def __del__(self) -> None:
        # There is no extent if none could be taken.
        if hasattr(self, "_extent"):
            self._pool.give(*self._extent)


def empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array whose values are not set, of a type without fields; a large one takes an extent of the pool."""
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
    """The first `count` items of an array of `empty`, which nothing else may use; most memory behind them is freed."""
    lease = array.base
    part = array[:count]
    if isinstance(lease, _Lease):
        lease.keep(max(_in_grains(part.nbytes), _GRAIN))
        return part
    return part if 2 * count >= len(array) else part.copy()


def give_back(keep: int = 0) -> None:
    """Return free memory to the system, all but `keep` bytes of it."""
    _Pool.here.shrink(keep)
