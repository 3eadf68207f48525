"""Large room is used again when the last array in it is gone, and never before."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from resilient_pq.format import room

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
