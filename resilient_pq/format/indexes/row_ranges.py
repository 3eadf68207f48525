"""Sets of rows of a row group, as ranges: ascending, apart from each other, none of them empty."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = tuple[range, ...]


def rows_of(ranges: Iterable[range]) -> Rows:
    """The rows of any ranges of step 1."""
    found: list[range] = []
    for each in sorted((each for each in ranges if each), key=lambda each: each.start):
        if found and each.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, each.stop))
        else:
            found.append(each)
    return tuple(found)


def intersection(one: Rows, other: Rows) -> Rows:
    """The rows that are in both."""
    found: list[range] = []
    i = j = 0
    while i < len(one) and j < len(other):
        start, stop = max(one[i].start, other[j].start), min(one[i].stop, other[j].stop)
        if start < stop:
            found.append(range(start, stop))
        if one[i].stop < other[j].stop:
            i += 1
        else:
            j += 1
    return tuple(found)


def count(rows: Rows) -> int:
    """How many rows."""
    return sum(map(len, rows))


def first(rows: Rows, num_rows: int) -> Rows:
    """The first of them, at most so many."""
    found: list[range] = []
    for each in rows:
        if num_rows <= 0:
            break
        found.append(each[:num_rows])
        num_rows -= len(found[-1])
    return tuple(found)


def mask_within(rows: Rows, covered: Rows) -> NDArray[np.bool_]:
    """For each of the rows covered, in order, whether it is one of `rows`, all of which are covered."""
    keep = np.zeros(count(covered), np.bool_)
    before, at = 0, 0  # rows covered before the range, and which range that is
    for each in rows:
        while at < len(covered) and covered[at].stop <= each.start:
            before += len(covered[at])
            at += 1
        if at == len(covered) or each.start < covered[at].start or each.stop > covered[at].stop:
            raise ValueError(f"rows {each.start} to {each.stop} are not covered")
        start = before + each.start - covered[at].start
        keep[start : start + len(each)] = True
    return keep
