"""What a request needs, worked out from the footer alone; footers that say what cannot be are refused with the place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import resilient_pq as rpq
from resilient_pq import FormatError, SchemaError
from resilient_pq.format.file_metadata import ColumnMetaData, FileMetaData, KeyValue
from resilient_pq.format.footer import Footer, read_footer
from resilient_pq.reader.contents import Contents, FileState, chunk_range
from resilient_pq.reader.read_plan import plan_read

Edit = Callable[[FileMetaData], object]
WithFooter = Callable[..., bytes]


def _contents(data: bytes) -> Contents:
    found = read_footer(memoryview(data), 0)
    assert isinstance(found, Footer)
    return Contents.of(found)


# --- requests -----------------------------------------------------------------------------------------------


def test_everything_in_the_order_of_the_file(our_bytes: bytes) -> None:
    plan = plan_read(_contents(our_bytes), None, None)
    assert tuple(column.position for column in plan.columns) == (0, 1, 2, 3)
    assert [group.ordinal for group in plan.row_groups] == [0, 1, 2, 3, 4]
    assert [group.num_rows for group in plan.row_groups] == [20, 20, 20, 20, 10]
    ranges = [chunk.range for group in plan.row_groups for chunk in group.chunks]
    assert all(one.end <= two.start for one, two in pairwise(ranges))
    assert plan.num_bytes == sum(each.size for each in ranges) < len(our_bytes)
    assert [chunk.leaf.column_path for chunk in plan.row_groups[0].chunks] == [
        "n",
        "s",
        "f",
        "l.list.element",
    ]


def test_columns_and_row_groups_in_the_order_asked_for(our_bytes: bytes) -> None:
    plan = plan_read(_contents(our_bytes), ["l", "n"], [3, 0, 3])
    assert tuple(column.position for column in plan.columns) == (3, 0)
    assert [group.ordinal for group in plan.row_groups] == [3, 0, 3]
    assert all(len(group.columns) == 2 and len(group.chunks) == 2 for group in plan.row_groups)


def test_the_place_of_a_chunk(our_bytes: bytes) -> None:
    chunk = plan_read(_contents(our_bytes), ["l"], [2]).row_groups[0].chunks[0]
    assert (chunk.where.row_group, chunk.where.column) == (2, "l.list.element")


def test_nothing_at_all(our_bytes: bytes) -> None:
    assert plan_read(_contents(our_bytes), [], []).num_bytes == 0
    assert plan_read(_contents(our_bytes), [], None).num_bytes == 0


REFUSED: list[tuple[Any, Any, str, str | None]] = [
    (["n", "x"], None, "there is no column 'x'", "columns: n, s, f, l"),
    (["N"], None, "there is no column 'N'", "columns: n, s, f, l"),
    (["l.list.item"], None, "there is no column 'l.list.item'", "columns: l.list.element"),
    ("n", None, "columns is one string", "columns=['n']"),
    (None, [5], "there is no row group 5", "the file has 5"),
    (None, [0, -1], "there is no row group -1", "the file has 5"),
    (None, 3, "row_groups is one number", "row_groups=[3]"),
]


@pytest.mark.parametrize(("columns", "row_groups", "message", "hint"), REFUSED)
def test_requests_for_what_is_not_there(
    our_bytes: bytes, columns: Any, row_groups: Any, message: str, hint: str | None
) -> None:
    with pytest.raises(SchemaError, match=message) as caught:
        plan_read(_contents(our_bytes), columns, row_groups)
    assert caught.value.hint == hint


def test_names_and_ordinals_may_come_from_anything_that_can_be_walked_once(our_bytes: bytes) -> None:
    plan = plan_read(_contents(our_bytes), (name for name in "sn"), (i for i in (4, 1)))  # type: ignore[arg-type]
    assert tuple(column.position for column in plan.columns) == (1, 0) and [
        group.ordinal for group in plan.row_groups
    ] == [4, 1]


# --- footers that say what cannot be ------------------------------------------------------------------------


def _chunk(metadata: FileMetaData, row_group: int = 1, column: int = 2) -> Any:
    return metadata.row_groups[row_group].columns[column]


def _set(path: str, value: Any) -> Edit:
    """An edit of the chunk of column f in row group 1."""

    def edit(metadata: FileMetaData) -> None:
        target = _chunk(metadata)
        *parents, name = path.split(".")
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, name, value)

    return edit


AT_OPENING: dict[str, tuple[Edit, str]] = {
    "too many rows": (lambda m: setattr(m, "num_rows", 91), "the footer says 91 rows, its row groups 90"),
    "a negative number of rows": (lambda m: setattr(m.row_groups[1], "num_rows", -1), "says it has -1 rows"),
    "a chunk too few": (lambda m: m.row_groups[1].columns.pop(), "has 3 column chunks, the schema 4 columns"),
    "a chunk too many": (
        lambda m: m.row_groups[1].columns.append(_chunk(m)), "has 5 column chunks, the schema 4 columns"),
    "no schema": (lambda m: m.schema.clear(), "the schema has no elements"),
    "half a schema": (lambda m: m.schema.pop(), "more children than there are elements"),
    "unknown types": (lambda m: setattr(m.schema[1], "type", 44), "unknown physical type 44"),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_OPENING)
@pytest.mark.parametrize("whose", ["ours", "theirs"])
async def test_refused_at_opening(
    our_bytes: bytes, their_bytes: bytes, with_footer: WithFooter, stored: Callable[[bytes], Awaitable[Any]],
    name: str, whose: str,
) -> None:  # fmt: skip
    edit, message = AT_OPENING[name]
    data = our_bytes if whose == "ours" else their_bytes
    if (name, whose) == ("too many rows", "theirs"):
        # Early parquet-rs wrote 0 there: without a record to vouch for the footer, the row groups know better.
        assert _contents(with_footer(data, edit, vouch=False)).num_rows == 90
        return
    store = await stored(with_footer(data, edit, vouch=whose == "ours"))
    with pytest.raises(FormatError, match=message) as caught:
        await rpq.open((store, "file"))
    assert caught.value.where.key == "memory:file"


def _beyond(metadata: FileMetaData) -> None:
    _set("meta_data.data_page_offset", 2**62)(metadata)
    _set("meta_data.dictionary_page_offset", 2**61)(metadata)


IN_PLANNING: dict[str, tuple[Edit, str]] = {
    "no metadata": (_set("meta_data", None), "the column chunk has no metadata"),
    "another folder": (_set("file_path", "../part-0.parquet"), "leads out of the folder"),
    "another type": (_set("meta_data.type", 1), "physical type 1, the schema DOUBLE"),
    "before the file": (_set("meta_data.data_page_offset", -5), "outside of the data"),
    "in the magic": (_set("meta_data.data_page_offset", 3), "said to lie at 3"),
    "beyond the data": (_beyond, "outside of the data"),
    "a negative size": (_set("meta_data.total_compressed_size", -1), "outside of the data"),
    "a size beyond the data": (_set("meta_data.total_compressed_size", 2**62), "outside of the data"),
    "a dictionary beyond the data": (_set("meta_data.dictionary_page_offset", 2), "said to lie at 2"),
}


@pytest.mark.parametrize("name", IN_PLANNING)
@pytest.mark.parametrize("whose", ["ours", "theirs"])
async def test_refused_in_planning_and_all_else_is_read(
    our_bytes: bytes, their_bytes: bytes, with_footer: WithFooter, stored: Callable[[bytes], Awaitable[Any]],
    rows: pa.Table, name: str, whose: str,
) -> None:  # fmt: skip
    edit, message = IN_PLANNING[name]
    data = our_bytes if whose == "ours" else their_bytes
    store = await stored(with_footer(data, edit, vouch=whose == "ours"))
    async with rpq.open((store, "file")) as file:
        with pytest.raises(FormatError, match=message) as caught:
            await file.read()
        where = caught.value.where
        assert (where.key, where.row_group, where.column) == ("memory:file", 1, "f")
        assert pa.table(await file.read(columns=["n", "s", "l"])).equals(rows.select(["n", "s", "l"]))
        assert pa.table(await file.read(row_groups=[0])).equals(rows.slice(0, 20))


CHANGED_IN_OTHERS: dict[str, Edit] = {
    "another codec": _set("meta_data.codec", 6),
    "an unknown codec": _set("meta_data.codec", 66),
    "a page further": _set("meta_data.data_page_offset", 1000),
    "shorter": _set("meta_data.total_compressed_size", 20),
    "fewer rows": lambda m: setattr(m.row_groups[1], "num_rows", 19),
    "more rows": lambda m: setattr(m.row_groups[1], "num_rows", 10**12),
    "of another column": lambda m: setattr(_chunk(m), "meta_data", m.row_groups[2].columns[1].meta_data),
}


@pytest.mark.parametrize("name", CHANGED_IN_OTHERS)
async def test_a_footer_of_others_that_lies_is_an_error_of_ours(
    their_bytes: bytes, with_footer: WithFooter, stored: Callable[[bytes], Awaitable[Any]], name: str
) -> None:
    store = await stored(with_footer(their_bytes, CHANGED_IN_OTHERS[name], vouch=False))
    async with rpq.open((store, "file")) as file:
        with pytest.raises(rpq.ResilientPQError) as caught:
            await file.read()
    assert caught.value.where.row_group == 1


# --- what a file says of itself -----------------------------------------------------------------------------


def _rekey(key: str, value: str | None) -> Edit:
    def edit(metadata: FileMetaData) -> None:
        pairs = [pair for pair in metadata.key_value_metadata or () if pair.key != key]
        metadata.key_value_metadata = pairs if value is None else [*pairs, KeyValue(key, value)]

    return edit


def test_state_and_checkpoints_of_ours(our_bytes: bytes, with_footer: WithFooter) -> None:
    contents = _contents(our_bytes)
    assert contents.state is FileState.COMPLETE and contents.verified and not contents.unvouched
    assert [(known.ordinal, known.num_rows) for known in contents.checkpoints] == [(1, 40), (2, 80)]
    for known in contents.checkpoints:
        assert our_bytes[known.offset : known.offset + 8] == bytes.fromhex("d75250510d0a1a0a")
    assert _contents(with_footer(our_bytes, _rekey("rpq.state", "finished"))).state is None
    assert _contents(with_footer(our_bytes, _rekey("rpq.state", "salvaged"))).state is FileState.SALVAGED


def test_the_keys_alone_prove_nothing(our_bytes: bytes, their_bytes: bytes, with_footer: WithFooter) -> None:
    """Other libraries copy them into their own files."""
    keys = _contents(our_bytes).key_value

    def copy_keys(metadata: FileMetaData) -> None:
        metadata.key_value_metadata = [KeyValue(key, value) for key, value in keys.items()]

    copied = _contents(with_footer(their_bytes, copy_keys, vouch=False))
    assert copied.state is None and copied.checkpoints == () and not copied.unvouched
    other_id = _contents(with_footer(our_bytes, _rekey("rpq.file_id", "00" * 16)))
    assert other_id.state is None and other_id.checkpoints == ()


@pytest.mark.parametrize("text", ["x", "1:2:3", "1", "1:a", "1:2,,3:4", "1:2,"])
def test_malformed_checkpoints(our_bytes: bytes, with_footer: WithFooter, text: str) -> None:
    with pytest.raises(FormatError, match=r"rpq\.checkpoints is malformed"):
        _contents(with_footer(our_bytes, _rekey("rpq.checkpoints", text)))


def test_a_footer_of_ours_without_its_record_is_unvouched(our_bytes: bytes, with_footer: WithFooter) -> None:
    contents = _contents(with_footer(our_bytes, lambda m: None, vouch=False))
    assert contents.verified  # nothing was changed: the record still holds
    changed = with_footer(our_bytes, lambda m: setattr(m, "created_by", "someone"), vouch=True)
    start = len(changed) - 8 - int.from_bytes(changed[-8:-4], "little")
    broken = changed[: start - 50] + b"?" + changed[start - 49 :]
    assert _contents(broken).unvouched  # its chunks have checksums of ours


def test_chunk_ranges() -> None:
    meta = ColumnMetaData(1, [0], num_values=3, data_page_offset=100, total_compressed_size=50)
    assert chunk_range(meta, 150) == (100, 150)
    with pytest.raises(FormatError):
        chunk_range(meta, 149)
    meta.dictionary_page_offset = 40
    assert chunk_range(meta, 150) == (40, 90)
    meta.dictionary_page_offset = 0  # some writers say 0 for none
    assert chunk_range(meta, 150) == (100, 150)
    meta.dictionary_page_offset = 120  # some put it behind
    assert chunk_range(meta, 150) == (100, 150)
