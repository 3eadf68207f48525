"""Row groups and column chunks that become objects when they are asked for: lists like any other."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from resilient_pq.errors import ThriftError
from resilient_pq.format import compact_protocol, kernels
from resilient_pq.format.file_metadata import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup, SchemaElement


def _chunk(number: int) -> ColumnChunk:
    return ColumnChunk(meta_data=ColumnMetaData(type=1, encodings=[0], num_values=number))


PLAIN = FileMetaData(
    1,
    [SchemaElement(name="root", num_children=3)],
    60,
    [RowGroup([_chunk(10 * group + column) for column in range(3)], num_rows=group) for group in range(20)],
)
ENCODED = compact_protocol.encode(PLAIN)


def _read(data: Any = ENCODED, *, lasting: bool = False) -> FileMetaData:
    return compact_protocol.decode(FileMetaData, data, lasting=lasting)[0]


def _kept(values: Any) -> kernels.KeptStructs[Any]:
    assert isinstance(values, kernels.KeptStructs)
    return values


def test_they_are_what_was_written() -> None:
    read = _read()
    assert read == PLAIN and read.row_groups == PLAIN.row_groups and PLAIN.row_groups == read.row_groups
    assert [group.num_rows for group in read.row_groups] == list(range(20))
    assert compact_protocol.encode(read) == ENCODED
    assert repr(read.row_groups) == repr(list(read.row_groups))


def test_one_is_read_without_the_others() -> None:
    read = _read()
    group = read.row_groups[-3]
    assert group.num_rows == 17 and group.columns[1] == _chunk(171)
    assert len(_kept(read.row_groups)._made) == 1 and len(_kept(group.columns)._made) == 1


def test_a_place_behind_the_end_is_an_index_error() -> None:
    groups = _read().row_groups
    for index in (20, -21):
        with pytest.raises(IndexError):
            groups[index]


def test_slices_are_lists() -> None:
    assert _read().row_groups[18:1:-5] == PLAIN.row_groups[18:1:-5]


def test_who_changes_a_struct_changes_the_list() -> None:
    read = _read()
    metadata = read.row_groups[2].columns[1].meta_data
    assert metadata is not None
    metadata.codec = 6
    assert read.row_groups[2].columns[1].meta_data is metadata
    again = _read(compact_protocol.encode(read)).row_groups[2].columns[1].meta_data
    assert again is not None and again.codec == 6
    assert read != PLAIN


def test_structs_come_and_go_as_in_a_list() -> None:
    read = _read()
    kept = read.row_groups[1]
    read.row_groups[0].columns.append(_chunk(99))
    del read.row_groups[2:]
    read.row_groups.insert(0, RowGroup([]))
    read.row_groups[2] = kept
    assert [len(group.columns) for group in read.row_groups] == [0, 4, 3]
    assert list(_read(compact_protocol.encode(read)).row_groups) == list(read.row_groups)
    read.row_groups.clear()
    assert len(read.row_groups) == 0 and list(read.row_groups) == []


def test_copies_are_lists_of_their_own() -> None:
    read = _read()
    copied = deepcopy(read)
    copied.row_groups[0].columns[0].file_path = "elsewhere"
    assert isinstance(copied.row_groups, list) and read == PLAIN and copied != PLAIN
    assert replace(read).row_groups is read.row_groups


def test_a_buffer_that_changes_afterwards_is_not_read_again() -> None:
    buffer = bytearray(ENCODED)
    read = _read(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert read == PLAIN


def test_bytes_that_last_are_not_copied() -> None:
    whole = memoryview(ENCODED + bytes(10 * len(ENCODED)))
    assert _kept(_read(whole, lasting=True).row_groups)._data is whole
    assert _kept(_read(whole).row_groups)._data is not whole
    assert _read(whole) == _read(whole, lasting=True) == PLAIN


def test_bytes_that_change_though_they_last_are_an_error() -> None:
    buffer = bytearray(ENCODED)
    read = _read(memoryview(buffer), lasting=True)
    buffer[:] = bytes([0xFF]) * len(buffer)
    with pytest.raises(ThriftError):
        read.row_groups[0]


@pytest.mark.parametrize("number", [0, 64])
def test_numbers_that_no_reader_takes(number: int) -> None:
    class Slotted:
        __slots__ = ("a",)

    for module in _both():
        with pytest.raises(ValueError, match="must be 1 to 63"):
            module.StructReader(Slotted, [kernels.StructField(number, "a", 5)])
        with pytest.raises(ValueError, match="no slot b"):
            module.StructReader(Slotted, [kernels.StructField(1, "b", 5)])


def _both() -> list[ModuleType]:
    return [kernels.reference, pytest.importorskip("resilient_pq.format.kernels._native")]
