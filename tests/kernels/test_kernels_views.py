"""Views of byte strings: made of offsets and data, and made into them."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels import reference

sizes = st.one_of(st.integers(0, 14), st.sampled_from([12, 13]), st.integers(28, 40))
strings = st.lists(sizes.flatmap(lambda size: st.binary(min_size=size, max_size=size)), max_size=20)
offset_types = pytest.mark.parametrize("dtype", [np.int32, np.int64])


def arrow(values: list[bytes], dtype: type[Any], before: bytes = b"") -> tuple[np.ndarray[Any, Any], bytes]:
    return np.cumsum([len(before), *map(len, values)]).astype(dtype), before + b"".join(values)


def views_by_hand(values: list[bytes]) -> bytes:
    """By the letter of the Arrow columnar format, all in one buffer."""
    return b"".join(
        len(value).to_bytes(4, "little") + value.ljust(12, b"\0")
        if len(value) <= 12
        else len(value).to_bytes(4, "little") + value[:4] + bytes(4) + sum(map(len, values[:at])).to_bytes(4, "little")
        for at, value in enumerate(values)
    )


@offset_types
@settings(deadline=None, max_examples=20)
@given(values=strings, before=st.binary(max_size=20))
def test_views_of_values(
    kernels: ModuleType, guarded: Any, *, dtype: type[Any], values: list[bytes], before: bytes
) -> None:
    offsets, data = arrow(values, dtype, before)
    with guarded((len(values), 4), np.int32) as views:
        kernels.views_of(offsets, data, 0, views)
        found = views.tobytes()
        joined, back = kernels.views_join(views, [data[len(before) :]])
    assert found == views_by_hand(values)
    array = pa.Array.from_buffers(
        pa.binary_view(), len(values), [None, pa.py_buffer(found), pa.py_buffer(data[len(before) :])]
    )
    array.validate(full=True)
    assert array.to_pylist() == values
    assert joined.dtype == np.int32
    assert (joined.tolist(), back.tobytes()) == ((offsets - offsets[0]).tolist(), b"".join(values))


@settings(deadline=None, max_examples=20)
@given(first=strings, second=strings, order=st.randoms(use_true_random=False))
def test_join_takes_values_from_many_buffers(
    kernels: ModuleType, first: list[bytes], second: list[bytes], order: Any
) -> None:
    views = np.empty((len(first) + len(second), 4), np.int32)
    sources = []
    for number, (values, out) in enumerate([(first, views[: len(first)]), (second, views[len(first) :])]):
        offsets, data = arrow(values, np.int64)
        kernels.views_of(offsets, data, number, out)
        sources.append(np.frombuffer(data, np.uint8))
    picked = [order.randrange(len(views)) for _ in range(len(views) and 30)]
    offsets, data = kernels.views_join(views[picked], sources)
    found = [data[start:stop].tobytes() for start, stop in pairwise(offsets)]
    assert found == [(first + second)[at] for at in picked]


def test_nothing_has_no_views(kernels: ModuleType) -> None:
    none = np.empty((0, 4), np.int32)
    kernels.views_of(np.zeros(1, np.int32), b"", 0, none)
    offsets, data = kernels.views_join(none, [])
    assert (offsets.tolist(), data.size) == ([0], 0)


@pytest.mark.parametrize(
    "view",
    [
        [-1, 0, 0, 0],
        [13, 0, 1, 0],
        [13, 0, -1, 0],
        [13, 0, 0, -1],
        [13, 0, 0, 8],
        [2**31 - 1, 0, 0, 2**31 - 1],
        [-(2**31), 0, 0, 0],
    ],
)
def test_views_that_lead_astray(kernels: ModuleType, view: list[int]) -> None:
    with pytest.raises(EncodingError):
        kernels.views_join(np.array([[1, 65, 0, 0], view], np.int32), [bytes(20)])


@offset_types
@pytest.mark.parametrize("offsets", [[0, 5], [-1, 2], [2, 1], [0, 3, 2]])
def test_offsets_that_lead_astray(kernels: ModuleType, dtype: type[Any], offsets: list[int]) -> None:
    with pytest.raises(EncodingError):
        kernels.views_of(np.array(offsets, dtype), b"abcd", 0, np.empty((len(offsets) - 1, 4), np.int32))


def test_arrays_that_do_not_fit(kernels: ModuleType) -> None:
    offsets = np.zeros(3, np.int32)
    for out in (np.empty((1, 4), np.int32), np.empty((2, 3), np.int32), np.empty((2, 4), np.int64)):
        with pytest.raises(ValueError, match=r".") as raised:
            kernels.views_of(offsets, b"", 0, out)
        assert not isinstance(raised.value, EncodingError)


@settings(deadline=None, max_examples=60)
@given(
    words=st.lists(st.integers(-20, 40), max_size=16).map(lambda words: words[: len(words) // 4 * 4]),
    sources=st.lists(st.binary(max_size=50), max_size=3),
)
def test_native_answers_as_the_reference(
    native: ModuleType, outcome: Any, words: list[int], sources: list[bytes]
) -> None:
    views = np.array(words, np.int32).reshape(-1, 4)
    assert outcome(lambda: native.views_join(views, sources)) == outcome(lambda: reference.views_join(views, sources))
