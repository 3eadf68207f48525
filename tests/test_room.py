"""Large room is used again when the last array in it is gone, and never before."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from resilient_pq import room

MiB = 1024 * 1024


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    room.give_back()
    yield
    room.give_back()


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("shape", [(0,), (3,), (MiB,), (MiB // 4, 12), (5 * MiB + 1,)], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int32, np.float64], ids=str)
def test_room_has_the_shape_asked_for_and_can_be_filled(shape: tuple[int, ...], dtype: type) -> None:
    array = room.empty(shape, dtype)
    assert array.shape == shape and array.dtype == dtype and array.flags.c_contiguous and array.flags.writeable
    array[:] = 1
    assert (array == 1).all()


def test_room_is_used_again_once_no_view_of_it_is_left() -> None:
    first = room.empty((MiB,), np.uint8)
    address, view = _address(first), memoryview(first[1000:2000])
    view[:] = bytes(range(250)) * 4
    del first
    gc.collect()
    other = room.empty((MiB,), np.uint8)
    other[:] = 7
    assert _address(other) != address and bytes(view) == bytes(range(250)) * 4
    del view
    assert _address(room.empty((MiB,), np.uint8)) == address


def test_no_more_is_kept_than_a_little() -> None:
    arrays = [room.empty((4 * MiB,), np.uint8) for _ in range(40)]
    addresses = {_address(array) for array in arrays}
    arrays.clear()
    again = [room._kept.take(4 * MiB) for _ in range(40)]
    kept = [block for block in again if block is not None]
    assert sum(block.nbytes for block in kept) == room._MOST_KEPT
    assert {_address(block) for block in kept} <= addresses


def test_threads_never_share_room() -> None:
    faults: list[str] = []

    def use(mark: int) -> None:
        for _ in range(200):
            array = room.empty((MiB // 2,), np.uint8)
            array[:: 4096] = mark
            if (array[:: 4096] != mark).any():
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
def test_a_forked_process_has_room_of_its_own() -> None:
    held = room.empty((MiB,), np.uint8)
    held[:] = 1

    def write() -> None:
        held[:] = 2

    assert _in_fork(write) == 0
    assert (held == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_process_forked_at_any_moment_gets_room() -> None:
    with room._kept._lock:
        assert _in_fork(lambda: room.empty((MiB,), np.uint8).fill(1)) == 0
