"""Row groups of a footer as numbers, against the objects that are made of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import FormatError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import ColumnChunk, FileMetaData, RowGroup, SchemaElement
from resilient_pq.format.kernels import KeptStructs
from resilient_pq.reader.contents import row_group_sizes


def footer_of(groups: Sequence[RowGroup]) -> tuple[bytes, KeptStructs[RowGroup]]:
    metadata = FileMetaData(1, [SchemaElement(name="schema")], 0, list(groups))
    data = compact_protocol.encode(metadata)
    read, _ = compact_protocol.decode(FileMetaData, data, lasting=True)
    assert isinstance(read.row_groups, KeptStructs)
    return data, read.row_groups


def sizes_of(native: ModuleType, groups: KeptStructs[RowGroup]) -> list[list[int]]:
    spans, inner = groups.spans, groups.inner
    assert spans is not None
    assert inner is not None
    found: list[list[int]] = native.row_group_sizes(*spans, *inner).tolist()
    return found


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 20), st.sampled_from([None, 7, -1]), st.booleans()),
        max_size=8,
    )
)
def test_they_are_those_of_the_objects(native: ModuleType, drawn: list[tuple[int, int, int | None, bool]]) -> None:
    groups = []
    for num_rows, num_chunks, offset, named in drawn:
        chunks = [ColumnChunk(file_offset=n, file_path="x" * n if named else None) for n in range(num_chunks)]
        groups.append(RowGroup(chunks, 1, num_rows, file_offset=offset, ordinal=None if offset is None else 1))
    _, read = footer_of(groups)
    assert sizes_of(native, read) == [[group.num_rows, len(group.columns)] for group in groups]
    assert [[group.num_rows, len(group.columns)] for group in read] == sizes_of(native, footer_of(groups)[1])


def test_a_list_of_chunks_that_stands_twice(native: ModuleType) -> None:
    """The last one counts, as it does where objects are made."""
    chunk = compact_protocol.encode(ColumnChunk(file_offset=5))
    twice = b"\x19\x2c" + chunk * 2 + b"\x09\x02\x1c" + chunk + b"\x26\x0e\x00"
    head = b"\x15\x02\x19\x1c" + compact_protocol.encode(SchemaElement(name="s")) + b"\x16\x00\x19\x1c"
    read, _ = compact_protocol.decode(FileMetaData, head + twice + b"\x00", lasting=True)
    assert isinstance(read.row_groups, KeptStructs)
    found = sizes_of(native, read.row_groups)
    assert found == [[read.row_groups[0].num_rows, len(read.row_groups[0].columns)]] == [[7, 1]]


def test_what_was_looked_at_may_have_changed() -> None:
    written = FileMetaData(1, [SchemaElement(name="schema")], 0, [RowGroup([ColumnChunk(file_offset=1)], 1, 9)])
    metadata, _ = compact_protocol.decode(FileMetaData, compact_protocol.encode(written), lasting=True)
    assert row_group_sizes(metadata) == [[9, 1]]
    metadata.row_groups[0].num_rows = 8
    metadata.row_groups[0].columns.append(ColumnChunk(file_offset=1))
    assert row_group_sizes(metadata) == [(8, 2)]


def test_hostile_places(native: ModuleType) -> None:
    groups = [RowGroup([ColumnChunk(file_offset=n) for n in range(3)], 1, 9, file_offset=4) for _ in range(4)]
    _, read = footer_of(groups)
    spans, inner = read.spans, read.inner
    assert spans is not None
    assert inner is not None
    whole = [np.asarray(each).copy() for each in (spans[1], *inner)]
    rng = random.Random(5)
    for _ in range(2000):
        changed: list[Any] = [each.copy() for each in whole]
        one = rng.choice(changed)
        one[rng.randrange(len(one))] = rng.choice([-1, 0, 1, 3, 7, 2**31, 2**62, -(2**63), rng.randrange(200)])
        try:
            found = native.row_group_sizes(bytes(spans[0]), *changed)
        except (FormatError, ValueError):
            continue
        assert found.shape == (4, 2)
    with pytest.raises(ValueError, match="another number"):
        native.row_group_sizes(spans[0], whole[0][:-1], *whole[1:])
