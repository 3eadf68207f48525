"""Byte arrays as views: into buffers of bounded size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from resilient_pq.format.physical_values import ByteArrays, ByteViews

VALUES = [b"", b"twelve bytes", b"thirteen byte", b"x" * 40, b"", b"y" * 19, b"z" * 41, b"short", b""]


def byte_arrays(values: list[bytes], dtype: type[Any] = np.int32, before: bytes = b"before") -> ByteArrays:
    offsets = np.cumsum([len(before), *map(len, values)]).astype(dtype)
    return ByteArrays(offsets, np.frombuffer(before + b"".join(values) + b"behind", np.uint8))


def listed(values: ByteArrays) -> list[bytes]:
    return [values.value(at) for at in range(len(values))]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("most", [41, 42, 60, 100, 1000])
def test_buffers_are_cut_between_values(dtype: type[Any], most: int) -> None:
    views = ByteViews.of(byte_arrays(VALUES, dtype), most)
    assert len(views) == len(VALUES)
    assert all(0 < buffer.size <= most for buffer in views.buffers)
    assert sum(buffer.size for buffer in views.buffers) == sum(map(len, VALUES))
    assert listed(views.to_byte_arrays()) == VALUES
    assert (len(views.buffers) == 1) == (most == 1000)


def test_views_share_the_memory_of_the_byte_arrays() -> None:
    values = byte_arrays(VALUES)
    assert all(np.shares_memory(buffer, values.data) for buffer in ByteViews.of(values).buffers)


@pytest.mark.parametrize("values", [[], [b""], [b"", b""]])
def test_values_without_bytes_need_no_buffer(values: list[bytes]) -> None:
    views = ByteViews.of(byte_arrays(values))
    assert views.buffers == ()
    assert listed(views.to_byte_arrays()) == values


def test_what_is_known_of_text_stays_known() -> None:
    text = byte_arrays(["aé€".encode(), b"b"])
    assert not text.known_utf8 and text.is_utf8()
    known = ByteArrays(text.offsets, text.data, known_utf8=True)
    assert known[:1].known_utf8 and ByteViews.of(known).known_utf8
    assert ByteViews.of(known).to_byte_arrays().known_utf8
    assert ByteViews.of(text).is_utf8() and not ByteViews.of(text).known_utf8
    assert not ByteViews.of(byte_arrays([b"a", b"\xc3", b"\xa9"])).is_utf8()
