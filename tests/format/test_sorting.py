"""Whether rows are sorted, against Python's own comparison of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.format import file_metadata, logical
from resilient_pq.format.file_metadata import Repetition, RowGroup, Type
from resilient_pq.format.logical import Decimal, Integer, Logical
from resilient_pq.format.physical_values import ByteArrays, LeafData
from resilient_pq.format.schema_tree import Group, Leaf, Primitive, Schema
from resilient_pq.format.sorting import SortingColumn, is_sorted, sorting_columns_of

Kind = tuple[Type, Logical | None, int | None, st.SearchStrategy[Any], Callable[[Sequence[Any]], Any]]


def _byte_arrays(values: Sequence[bytes]) -> ByteArrays:
    offsets = np.cumsum([2, *map(len, values)]).astype(np.int32)
    return ByteArrays(offsets, np.frombuffer(b"??" + b"".join(values), np.uint8))


def _rows(width: int, encode: Callable[[Any], bytes]) -> Callable[[Sequence[Any]], Any]:
    return lambda values: np.frombuffer(b"".join(map(encode, values)), np.uint8).reshape(len(values), width)


#: Few values, so that neighbours are equal, or share all bytes but the last.
KINDS: dict[str, Kind] = {
    "int32": (Type.INT32, None, None, st.integers(-2, 2), lambda v: np.array(v, np.int32)),
    "uint64": (
        Type.INT64,
        Integer(64, False),
        None,
        st.sampled_from([0, 1, 2**63, 2**64 - 1]),
        lambda v: np.array(v, np.uint64).view(np.int64),
    ),
    "boolean": (Type.BOOLEAN, None, None, st.booleans(), lambda v: np.array(v, np.bool_)),
    "double": (
        Type.DOUBLE,
        None,
        None,
        st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 2.0]),
        lambda v: np.array(v, np.float64),
    ),
    "float16": (
        Type.FIXED_LEN_BYTE_ARRAY,
        logical.FLOAT16,
        2,
        st.sampled_from([-1.5, 0.0, 2.0, 300.0]),
        _rows(2, lambda v: np.float16(v).tobytes()),
    ),
    "decimal": (
        Type.FIXED_LEN_BYTE_ARRAY,
        Decimal(20, 2),
        9,
        st.sampled_from([-(10**19), -1, 0, 1, 255, 256]),
        _rows(9, lambda v: int(v).to_bytes(9, "big", signed=True)),
    ),
    "uuid": (
        Type.FIXED_LEN_BYTE_ARRAY,
        logical.UUID,
        16,
        st.sampled_from([bytes(16), bytes(15) + b"\1", b"\xff" * 16]),
        _rows(16, bytes),
    ),
    "string": (
        Type.BYTE_ARRAY,
        logical.STRING,
        None,
        st.sampled_from([b"", b"a", b"ab", b"b", b"\xc3\xa9", b"a" * 20, b"a" * 19 + b"b"]),
        _byte_arrays,
    ),
}


def _leaves(*kinds: str) -> tuple[Leaf, ...]:
    nodes = tuple(
        Primitive(f"c{at}", Repetition.OPTIONAL, KINDS[kind][0], KINDS[kind][2], KINDS[kind][1])
        for at, kind in enumerate(kinds)
    )
    return Schema(Group("schema", Repetition.REQUIRED, nodes)).leaves


def _data(kind: str, rows: Sequence[Any]) -> LeafData:
    levels = np.array([row is not None for row in rows], np.uint8)
    return LeafData(len(rows), levels, None, KINDS[kind][4]([row for row in rows if row is not None]))


def _in_order(rows: Sequence[tuple[Any, ...]], order: Sequence[SortingColumn]) -> bool:
    def comes_after(one: tuple[Any, ...], two: tuple[Any, ...]) -> bool:
        for column, first, second in zip(order, one, two, strict=True):
            if (first is None) != (second is None):
                return (second is None) == column.nulls_first
            if first is not None and first != second:
                return bool(first < second) == column.descending
        return False

    return not any(comes_after(one, two) for one, two in pairwise(rows))


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=60)
@given(data=st.data(), descending=st.booleans(), nulls_first=st.booleans())
def test_one_column_of_any_type(kind: str, data: st.DataObject, descending: bool, nulls_first: bool) -> None:
    rows = data.draw(st.lists(st.none() | KINDS[kind][3], max_size=8))
    order = SortingColumn("c0", descending, nulls_first)
    (leaf,) = _leaves(kind)
    if data.draw(st.booleans()):  # sorted ones hardly come by chance
        there = sorted((row for row in rows if row is not None), reverse=descending)
        nulls = [None] * (len(rows) - len(there))
        rows = nulls + there if nulls_first else there + nulls
        assert is_sorted([(leaf, _data(kind, rows), order)])
    found = is_sorted([(leaf, _data(kind, rows), order)])
    assert found == _in_order([(row,) for row in rows], [order])


@settings(deadline=None, max_examples=200)
@given(
    rows=st.lists(st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from([b"a", b"b"])), max_size=6),
    flags=st.tuples(*[st.booleans()] * 4),
    sort=st.booleans(),
)
def test_the_second_column_decides_where_the_first_is_equal(
    rows: list[tuple[int | None, bytes | None]], flags: tuple[bool, ...], sort: bool
) -> None:
    order = [SortingColumn("c0", *flags[:2]), SortingColumn("c1", *flags[2:])]
    if sort:
        rows = sorted(rows, key=lambda row: (row[0] is None, row[0] or 0, row[1] is None, row[1] or b""))
    kinds = ("int32", "string")
    columns = [
        (leaf, _data(kind, [row[at] for row in rows]), order[at])
        for at, (leaf, kind) in enumerate(zip(_leaves(*kinds), kinds, strict=True))
    ]
    assert is_sorted(columns) == _in_order(rows, order)
    assert is_sorted([])


@pytest.mark.parametrize(
    ("rows", "descending", "expected"),
    [
        ([1.0, 2.0, math.nan, math.nan], False, True),
        ([math.nan, 1.0, 2.0], False, True),
        ([math.nan, 2.0, 1.0], True, True),
        ([2.0, 1.0, math.nan], True, True),
        ([1.0, math.nan, 2.0], False, False),
        ([math.nan, 1.0, math.nan], False, False),
        ([2.0, math.nan, 1.0], True, False),
        ([2.0, 1.0, math.nan], False, False),
    ],
)
def test_nan_stands_at_either_end(rows: list[float], descending: bool, expected: bool) -> None:
    (leaf,) = _leaves("double")
    assert is_sorted([(leaf, _data("double", rows), SortingColumn("c0", descending))]) == expected


def test_required_columns_have_no_levels() -> None:
    node = Primitive("c", Repetition.REQUIRED, Type.INT32)
    (leaf,) = Schema(Group("schema", Repetition.REQUIRED, (node,))).leaves
    for values, expected in (([1, 1, 2], True), ([2, 1], False), ([7], True)):
        data = LeafData(len(values), None, None, np.array(values, np.int32))
        assert is_sorted([(leaf, data, SortingColumn("c"))]) == expected


def test_a_column_that_the_schema_does_not_have_ends_the_order() -> None:
    schema = Schema(
        Group("schema", Repetition.REQUIRED, tuple(Primitive(n, Repetition.OPTIONAL, Type.INT32) for n in "ab"))
    )
    columns = [
        file_metadata.StoredSortingColumn(1, True),
        file_metadata.StoredSortingColumn(-1),
        file_metadata.StoredSortingColumn(0),
    ]
    assert sorting_columns_of(schema, RowGroup([], sorting_columns=columns)) == (SortingColumn("b", True),)
    assert sorting_columns_of(schema, RowGroup([])) == ()
