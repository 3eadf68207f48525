"""Dictionaries: built, and looked up in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels.reference.arrays import (
    BytesLike,
    Offsets,
    Packed,
    bits_of,
    check_indices,
    octets,
    require_types,
)
from resilient_pq.format.kernels.reference.byte_arrays import byte_arrays, check_offsets


def gather(dictionary: NDArray[Any], indices: NDArray[np.int32], out: NDArray[Any]) -> None:
    """Copy the dictionary's values, of 1, 2, 4 or 8 bytes or rows, that `indices` choose, in order, into `out`."""
    source, target = bits_of(dictionary), bits_of(out)
    if out.dtype != dictionary.dtype or target.shape != (indices.size, *source.shape[1:]):
        raise ValueError("the output must have the type of the dictionary and the length of the indices")
    check_indices(indices, len(source))
    np.take(source, indices, axis=0, out=target, mode="clip")


def dictionary_build(values: NDArray[Any], limit: int) -> tuple[Packed, NDArray[np.int64]] | None:
    """Number the distinct values in the order they appear; they are told apart by their bits."""
    # So a NaN equals only a NaN of the same bits, and 0.0 is not -0.0. Values have 4 or 8 bytes, or are rows. Returns
    # the number of each value, uint8 where there are at most 256, uint16 up to 65,536, else int32, and the position of
    # the first value of each number; None as soon as there are more than `limit`.
    if values.ndim == 2:
        raw, width = bits_of(values).tobytes(), values.shape[1]
        return _number((raw[row * width : (row + 1) * width] for row in range(len(values))), limit)
    if values.itemsize not in (4, 8):
        raise ValueError("values must have 4 or 8 bytes")
    bits = bits_of(values)
    if np.unique(bits[: 2 * limit + 2]).size > limit:  # most columns that are too varied show it early
        return None
    distinct, first, inverse = np.unique(bits, return_index=True, return_inverse=True)
    if distinct.size > limit:
        return None
    order = np.argsort(first)
    numbers = np.empty(order.size, np.int32)
    numbers[order] = np.arange(order.size, dtype=np.int32)
    return _narrow(numbers[inverse], order.size), first[order].astype(np.int64, copy=False)


def dictionary_build_byte_arrays(
    offsets: Offsets, data: BytesLike, limit: int, limit_bytes: int
) -> tuple[Packed, NDArray[np.int64]] | None:
    """The same for values ``data[offsets[i]:offsets[i + 1]]``, of at most `limit_bytes` as a PLAIN dictionary."""
    return _number(byte_arrays(offsets, data), limit, limit_bytes)


def distinct_in_runs(values: NDArray[Any], starts: NDArray[np.int64], run: int) -> tuple[int, int, int, int, int]:
    """Count the distinct values of a sample, by how many of its runs of neighbours they stand in."""
    # Runs begin at `starts`, and no two share a value. Returns how many distinct values each run has, summed up over
    # the runs; how many values stand in exactly one run; in exactly two; in any; and how many bytes those of any have
    # together.
    _check_runs(starts, run, len(values))
    width = values.itemsize * (values.shape[1] if values.ndim == 2 else 1)
    rows = bits_of(values).view(np.uint8).reshape(len(values), width)
    return _in_runs([[row.tobytes() for row in rows[start : start + run]] for start in starts.tolist()])


def distinct_in_runs_byte_arrays(
    offsets: Offsets, data: BytesLike, starts: NDArray[np.int64], run: int
) -> tuple[int, int, int, int, int]:
    """The same of the values ``data[offsets[i]:offsets[i + 1]]``. Only the offsets of the runs are looked at."""
    if not len(offsets):
        raise ValueError("there must be one offset more than values")
    _check_runs(starts, run, len(offsets) - 1)
    source = octets(data)
    runs = []
    for start in starts.tolist():
        bounds = offsets[start : start + run + 1]
        check_offsets(bounds, source.size)
        runs.append([source[begin:end].tobytes() for begin, end in pairwise(bounds.tolist())])
    return _in_runs(runs)


def _check_runs(starts: NDArray[np.int64], run: int, count: int) -> None:
    if run < 0 or len(starts) * run > count:
        raise ValueError("the runs have more values than there are")
    if len(starts) and not 0 <= starts.min() <= starts.max() <= count - run:
        raise ValueError("a run lies outside of the values")


def _in_runs(runs: Sequence[Sequence[bytes]]) -> tuple[int, int, int, int, int]:
    counts = Counter(value for run in runs for value in set(run))
    found = list(counts.values())
    return sum(found), found.count(1), found.count(2), len(found), sum(map(len, counts))


def _number(
    values: Iterable[bytes], limit: int, limit_bytes: int | None = None
) -> tuple[Packed, NDArray[np.int64]] | None:
    # The keys are bytes because their hash is keyed by a secret of the process: nobody can choose values
    # that collide.
    numbers: dict[bytes, int] = {}
    indices: list[int] = []
    first: list[int] = []
    num_bytes = 0
    for position, value in enumerate(values):
        number = numbers.setdefault(value, len(numbers))
        indices.append(number)
        if number == len(first):
            first.append(position)
            num_bytes += 4 + len(value)
            if len(first) > limit or (limit_bytes is not None and num_bytes > limit_bytes):
                return None
    return _narrow(np.array(indices, np.int32), len(first)), np.array(first, np.int64)


def _narrow(numbers: NDArray[np.int32], count: int) -> Packed:
    if count <= 1 << 8:
        return numbers.astype(np.uint8)
    return numbers.astype(np.uint16) if count <= 1 << 16 else numbers


def mark_used(indices: Packed, marks: NDArray[np.uint8]) -> None:
    """Set ``marks[index]`` to 1 for every index."""
    require_types(indices, np.uint8, np.uint16, np.int32)
    require_types(marks, np.uint8)
    if indices.size and (indices.min() < 0 or indices.max() >= marks.size):
        raise EncodingError("an index lies outside of its dictionary")
    marks[indices] = 1
