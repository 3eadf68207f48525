"""A dictionary that several threads make is the one that a single thread makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from resilient_pq.format.encodings import dictionary
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.physical_values import ByteArrays, Values

RANDOM = np.random.default_rng(18)
COUNT = 4_001
NO_LIMIT = 1 << 30


class Threads:
    """Makes calls backwards, and counts them."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self.calls: list[int] = []

    def __call__(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        self.calls.append(len(calls))
        return [call() for call in reversed(calls)][::-1]


def _texts(numbers: Any) -> ByteArrays:
    texts = [b"%d" % number * (1 + number % 9) for number in numbers]
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return ByteArrays(offsets, np.frombuffer(b"".join(texts), np.uint8), known_utf8=True)


def _floats(numbers: Any) -> Any:
    values = numbers / 8
    values[::7] = np.nan
    values[1::7], values[2::7] = 0.0, -0.0
    return values


KINDS: dict[str, tuple[Type, Callable[[Any], Values]]] = {
    "text": (Type.BYTE_ARRAY, _texts),
    "int32": (Type.INT32, lambda numbers: numbers.astype(np.int32)),
    "int64": (Type.INT64, lambda numbers: numbers * 1_000_000_007),
    "double": (Type.DOUBLE, _floats),
    "rows": (
        Type.FIXED_LEN_BYTE_ARRAY,
        lambda numbers: numbers.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 3:].copy(),
    ),
}


def _same(values: Values, others: Values) -> None:
    assert type(values) is type(others) and len(values) == len(others)
    if isinstance(values, ByteArrays) and isinstance(others, ByteArrays):
        assert values.known_utf8 == others.known_utf8
        assert [values.value(at) for at in range(len(values))] == [others.value(at) for at in range(len(others))]
    else:
        assert np.asarray(values).tobytes() == np.asarray(others).tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distinct", [1, 3, 255, 256, 257, 300, 3_000, 60_000])
@pytest.mark.parametrize("num_threads", [2, 3, 7])
def test_parts_give_what_all_at_once_give(
    leaf_of: Any, monkeypatch: pytest.MonkeyPatch, kind: str, distinct: int, num_threads: int
) -> None:
    physical, make = KINDS[kind]
    node = leaf_of(physical, optional=False, length=5 if kind == "rows" else None).node
    numbers = RANDOM.integers(0, distinct, COUNT)
    numbers[: min(distinct, COUNT)] = np.arange(distinct)[:COUNT]
    values = make(RANDOM.permutation(numbers))
    monkeypatch.setattr(dictionary, "_PART", 500)
    threads = Threads(num_threads)
    expected = dictionary.build(node, values, NO_LIMIT)
    found = dictionary.build(node, values, NO_LIMIT, threads)
    assert threads.calls == [num_threads] * 2
    assert expected is not None and found is not None
    assert found.indices.dtype == expected.indices.dtype and found.all_used
    assert np.array_equal(found.indices, expected.indices)
    _same(found.values, expected.values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_threads", [2, 4])
def test_the_limit_is_that_of_all(leaf_of: Any, monkeypatch: pytest.MonkeyPatch, kind: str, num_threads: int) -> None:
    """Also where no part comes to it alone; it is met to the byte."""
    physical, make = KINDS[kind]
    node = leaf_of(physical, optional=False, length=5 if kind == "rows" else None).node
    values = make(np.arange(COUNT) // 3)
    entries = dictionary.build(node, values, NO_LIMIT)
    assert entries is not None
    distinct = entries.values
    size = distinct.num_bytes + 4 * len(distinct) if isinstance(distinct, ByteArrays) else distinct.nbytes
    monkeypatch.setattr(dictionary, "_PART", 500)
    for limit in (size, size - 1, size // 2, 40, 0):
        one, several = (dictionary.build(node, values, limit, Threads(number)) for number in (1, num_threads))
        assert (one is None) == (several is None) == (limit < size)


def test_few_values_and_a_single_thread_take_no_parts(leaf_of: Any) -> None:
    node = leaf_of(Type.INT64, optional=False).node
    for num_threads, count in ((4, 2 * dictionary._PART - 1), (1, 4 * dictionary._PART)):
        threads = Threads(num_threads)
        assert dictionary.build(node, np.arange(count) % 10, NO_LIMIT, threads) is not None
        assert not threads.calls
