"""Memory of large arrays is reused when the last view of the array is gone, and never before."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from resilient_pq import memory_pool
from resilient_pq.units import MiB


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    memory_pool.give_back()
    yield
    memory_pool.give_back()


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("shape", [(0,), (3,), (MiB,), (MiB // 4, 12), (5 * MiB + 1,)], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int32, np.float64], ids=str)
def test_memory_has_the_shape_asked_for_and_can_be_filled(shape: tuple[int, ...], dtype: type) -> None:
    array = memory_pool.empty(shape, dtype)
    assert array.shape == shape and array.dtype == dtype and array.flags.c_contiguous and array.flags.writeable
    array[:] = 1
    assert (array == 1).all()


def test_memory_is_reused_once_no_view_of_it_is_left() -> None:
    first = memory_pool.empty((MiB,), np.uint8)
    address, view = _address(first), memoryview(first[1000:2000])
    view[:] = bytes(range(250)) * 4
    del first
    gc.collect()
    other = memory_pool.empty((MiB,), np.uint8)
    other[:] = 7
    assert _address(other) != address and bytes(view) == bytes(range(250)) * 4
    del view
    assert _address(memory_pool.empty((MiB,), np.uint8)) == address


def test_memory_between_live_arrays_is_reused() -> None:
    arrays = [memory_pool.empty((MiB,), np.uint8) for _ in range(12)]
    held = {_address(array): array for array in arrays[::2]}
    for mark, array in enumerate(held.values()):
        array[:] = mark
    free = {_address(array) for array in arrays[1::2]}
    del arrays, array
    again = [memory_pool.empty((MiB,), np.uint8) for _ in free]
    for other in again:
        other[:] = 255
    assert {_address(other) for other in again} == free
    assert all((array == mark).all() for mark, array in enumerate(held.values()))


def test_free_neighbours_are_joined_for_larger_arrays() -> None:
    arrays = [memory_pool.empty((MiB,), np.uint8) for _ in range(6)]
    first = min(_address(array) for array in arrays)
    arrays.clear()
    assert _address(memory_pool.empty((6 * MiB,), np.uint8)) == first


def test_no_more_is_kept_than_a_little() -> None:
    arrays = [memory_pool.empty((4 * MiB,), np.uint8) for _ in range(40)]
    assert memory_pool._Pool.here.kept == 0
    arrays.clear()
    assert memory_pool._Pool.here.kept == memory_pool._MOST_KEPT
    memory_pool.give_back(keep=3 * MiB)
    assert memory_pool._Pool.here.kept == 3 * MiB
    memory_pool.give_back()
    assert memory_pool._Pool.here.kept == 0


def test_what_is_given_back_the_system_may_have() -> None:
    held, large = memory_pool.empty((MiB,), np.uint8), memory_pool.empty((5 * MiB,), np.uint8)
    held[:], large[:] = 1, 2
    address, before = _address(large), _taken_when_memory_is_short()
    del large
    memory_pool.give_back()
    if sys.platform == "linux":
        assert _taken_when_memory_is_short() - before >= 4 * MiB
    again = memory_pool.empty((5 * MiB,), np.uint8)
    assert _address(again) == address and (held == 1).all()


def _taken_when_memory_is_short() -> int:
    rollup = Path("/proc/self/smaps_rollup")
    lines = rollup.read_text().splitlines() if rollup.exists() else []
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("LazyFree:"))


def test_mappings_without_arrays_are_not_kept_without_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_pool, "_MOST_MAPPED", 40 * MiB)
    arrays = [memory_pool.empty((20 * MiB,), np.uint8) for _ in range(5)]
    arrays.clear()
    memory_pool.give_back()
    slabs = memory_pool._Pool.here._slabs
    assert slabs and sum(slab.size for slab in slabs if slab.unused) <= 40 * MiB


def test_mappings_without_arrays_give_way_where_no_more_can_be_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    memory_pool.empty((40 * MiB,), np.uint8)
    pool, refused, slab = memory_pool._Pool.here, [], memory_pool._Slab
    assert pool._slabs

    def limited(size: int) -> memory_pool._Slab:
        if any(known.size == 40 * MiB for known in pool._slabs):
            refused.append(size)
            raise OSError("Cannot allocate memory")
        return slab(size)

    monkeypatch.setattr(memory_pool, "_Slab", limited)
    array = memory_pool.empty((100 * MiB,), np.uint8)
    assert refused and isinstance(array.base, memory_pool._Lease), "it lies in a mapping"
    assert all(known.size != 40 * MiB for known in pool._slabs)


def test_what_kept_memory_cannot_serve_is_made_up_for_by_it() -> None:
    small = [memory_pool.empty((MiB,), np.uint8) for _ in range(8)]
    del small[::2]
    assert memory_pool._Pool.here.kept == 4 * MiB
    large = memory_pool.empty((3 * MiB,), np.uint8)
    assert memory_pool._Pool.here.kept == MiB and len(large) == 3 * MiB


def test_what_an_array_did_not_take_is_free() -> None:
    array = memory_pool.empty((3 * MiB,), np.uint8)
    address = _address(array)
    part = memory_pool.front(array, MiB + 10)
    del array
    part[:] = 7
    other = memory_pool.empty((MiB,), np.uint8)
    other[:] = 8
    assert len(part) == MiB + 10 and (part == 7).all()
    assert address + MiB < _address(other) < address + 2 * MiB
    assert len(memory_pool.front(np.zeros(5), 3)) == 3


def test_rows_of_several_items_are_cut_as_well() -> None:
    array = memory_pool.empty((MiB, 12), np.uint8)
    array[:1000] = 3
    part = memory_pool.front(array, 1000)
    assert part.shape == (1000, 12) and (part == 3).all()
    assert len(memory_pool.front(part, 0)) == 0


def test_memory_freed_during_an_allocation_is_not_lost() -> None:
    array = memory_pool.empty((MiB,), np.uint8)
    with memory_pool._Pool.here._lock:  # as when the collector runs in the midst of it
        del array
    assert memory_pool._Pool.here.kept == MiB


@pytest.mark.parametrize(
    "change", [lambda: memory_pool.empty((MiB,), np.uint8), memory_pool.give_back, lambda: memory_pool._Pool.here.kept]
)
def test_memory_is_allocated_amid_a_change(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """By a finalizer or a signal handler, which run anywhere: it waits for nobody, as its own thread would never go on."""
    interrupted: list[np.ndarray] = []
    sort_in = memory_pool._Pool._sort_in

    def interrupt(pool: memory_pool._Pool) -> None:
        if len(interrupted) < 3:
            interrupted.append(memory_pool.empty((MiB,), np.uint8))
            memory_pool.give_back()
            assert memory_pool._Pool.here.kept >= 0
        sort_in(pool)

    monkeypatch.setattr(memory_pool._Pool, "_sort_in", interrupt)
    worker = threading.Thread(target=change, daemon=True)
    worker.start()
    worker.join(30)
    assert not worker.is_alive()
    assert interrupted[0].shape == (MiB,)
    interrupted.clear()
    monkeypatch.undo()
    assert memory_pool._Pool.here.kept <= 2 * MiB and not memory_pool._Pool.here._lock._is_owned()


@pytest.mark.parametrize(
    "change", [lambda: memory_pool.empty((MiB,), np.uint8), memory_pool.give_back, lambda: memory_pool._Pool.here.kept]
)
def test_a_thread_does_not_wait_for_another_without_end(change: Callable[[], object]) -> None:
    """A finalizer may run amid the turn of the other, and wait for this one."""
    worker = threading.Thread(target=change, daemon=True)
    with memory_pool._Pool.here._lock:
        worker.start()
        worker.join(30)
        assert not worker.is_alive()


@pytest.mark.parametrize("change", [lambda: memory_pool.empty((MiB,), np.uint8), memory_pool.give_back])
def test_an_interrupt_leaves_nothing_locked(change: Callable[[], object]) -> None:
    """At any line: else every large array of the other threads would wait from then on."""
    function = memory_pool._Pool._in_turn
    text, first = inspect.getsourcelines(function)
    lines = range(first + 1, first + next(at for at, line in enumerate(text) if line.strip() == "finally:"))

    def interrupt(line: int, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not function.__code__:
            return None
        if event == "line" and frame.f_lineno == line:
            raise KeyboardInterrupt
        return partial(interrupt, line)

    interrupted, free = [], []
    before = sys.gettrace()
    for line in lines:
        sys.settrace(partial(interrupt, line))
        try:
            change()
        except KeyboardInterrupt:
            interrupted.append(line)
        finally:
            sys.settrace(before)
        lock = memory_pool._Pool.here._lock
        other = threading.Thread(
            target=lambda lock=lock: free.append(lock.acquire(blocking=False) and not lock.release())
        )
        other.start()
        other.join()
    assert len(interrupted) >= 2 and all(free)


def test_threads_never_share_memory() -> None:
    faults: list[str] = []

    def use(mark: int) -> None:
        for _ in range(200):
            array = memory_pool.empty((MiB // 2,), np.uint8)
            array[::4096] = mark
            if (array[::4096] != mark).any():
                faults.append(f"thread {mark} found other bytes")

    threads = [threading.Thread(target=use, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def _in_fork(call: Callable[[], None]) -> int:
    """What a forked process ends with that makes this call: 0 when it came to its end."""
    child = os.fork()
    if not child:
        signal.alarm(10)
        call()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_a_pool_of_its_own() -> None:
    held = memory_pool.empty((MiB,), np.uint8)
    held[:] = 1

    def write() -> None:
        held[:] = 2

    assert _in_fork(write) == 0
    assert (held == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_process_forked_at_any_moment_gets_memory() -> None:
    with memory_pool._Pool.here._lock:
        assert _in_fork(lambda: memory_pool.empty((MiB,), np.uint8).fill(1)) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_lets_go_of_what_it_inherited() -> None:
    held = [memory_pool.empty((MiB,), np.uint8)]
    held[0][:] = 5

    def let_go() -> None:
        held.clear()
        assert memory_pool._Pool.here.kept == 0
        memory_pool.empty((MiB,), np.uint8)[:] = 6
        assert memory_pool._Pool.here.kept == MiB

    assert _in_fork(let_go) == 0
    assert (held[0] == 5).all()
