"""Strings as views: the values of plain ones, in every shape, as every library takes them."""

from __future__ import annotations

import gc
import io
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.loop_portal import portal

ROWS = 300


def text(number: int) -> str:
    """Of every length about the twelve bytes that fit into a view, and of more; some of it is not ASCII."""
    return ("é" if number % 5 == 0 else "x") * (number % 17) + "y" * (number % 2)


TABLE = pa.table(
    {
        "text": [None if i % 7 == 0 else text(i) for i in range(ROWS)],
        "few": pa.array([f"one of a few values, {i % 3}" for i in range(ROWS)]),
        "bytes": [None if i % 3 == 0 else b"\xff" * (i % 20) for i in range(ROWS)],
        "large": pa.array([text(i) for i in range(ROWS)], pa.large_string()),
        "list": [None if i % 5 == 0 else [text(i + j) for j in range(i % 4)] for i in range(ROWS)],
        "fixed": pa.array([None if i % 6 == 0 else [text(i), None] for i in range(ROWS)], pa.list_(pa.string(), 2)),
        "map": pa.array(
            [None if i % 11 == 0 else [(f"key {j}", text(i)) for j in range(i % 3)] for i in range(ROWS)],
            pa.map_(pa.string(), pa.string()),
        ),
        "struct": [None if i % 4 == 0 else {"a": text(i), "n": i, "b": {"c": text(i + 1)}} for i in range(ROWS)],
        "number": range(ROWS),
    }
)


def ours(compression: str, encodings: dict[str, str]) -> bytes:
    return _bytes(TABLE, compression=compression, row_group_rows=70, page_bytes=500, encodings=encodings)


def _bytes(table: pa.Table, **options: Any) -> bytes:
    store = MemoryStore()
    with sync.create((store, "file"), table.schema, **options) as writer:
        writer.write(table)
    tail: Any = portal.run(store.read_tail("file", 1 << 40))
    return bytes(tail.data)


def theirs() -> bytes:
    out = io.BytesIO()
    pq.write_table(TABLE, out, row_group_size=70, data_page_size=300, data_page_version="2.0", compression="zstd")
    return out.getvalue()


def opened(data: bytes, **options: Any) -> Any:
    store = MemoryStore()
    portal.run(store.put("file", data))
    return sync.open((store, "file"), **options)


@pytest.fixture(scope="module", params=["ours", "plain", "delta", "theirs"])
def data(request: pytest.FixtureRequest) -> bytes:
    """The table in row groups and pages of every way that strings are encoded in."""
    leaves = ("text", "few", "bytes", "large", "list.list.element", "struct.a")
    if request.param == "theirs":
        return theirs()
    if request.param == "ours":
        return ours("zstd", {})
    encoding = {"plain": "PLAIN", "delta": "DELTA_BYTE_ARRAY"}[request.param]
    return ours("none", dict.fromkeys(leaves, encoding))


def with_views(kind: pa.DataType) -> pa.DataType:
    """The type with views for its strings, by pyarrow's own constructors."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.string_view()
    if pa.types.is_binary(kind):
        return pa.binary_view()
    if pa.types.is_map(kind):
        return pa.map_(with_views(kind.key_type), with_views(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_views(field.type)) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(with_views(kind.value_type)), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_views(kind.value_type)))
    return kind


def test_views_have_the_values_of_plain_strings(data: bytes) -> None:
    with opened(data) as file:
        plain, views = file.read(), file.read(strings="view")
    assert pa.table(plain).equals(TABLE)
    found = pa.table(views)
    found.validate(full=True)
    expected = pa.schema([field.with_type(with_views(field.type)) for field in TABLE.schema])
    assert found.schema.equals(expected)
    assert pa.schema(views).equals(expected)
    assert found.cast(TABLE.schema).equals(TABLE)
    assert views.to_pylist() == TABLE.to_pylist()
    for name in ("text", "bytes", "number"):
        assert views[name].tolist() == plain[name].tolist()


def test_other_libraries_take_them(data: bytes) -> None:
    with opened(data) as file:
        views = file.read(strings="view")
    frame = pl.DataFrame(views)
    assert frame.drop("map").rows() == pl.DataFrame(TABLE.drop(["map"])).rows()
    assert views.to_polars().height == ROWS
    rows = duckdb.sql("select text, bytes, list, struct.b.c from views").fetchall()
    assert [(row["text"], row["bytes"], row["list"], (row["struct"] or {"b": {"c": None}})["b"]["c"])
            for row in TABLE.to_pylist()] == rows  # fmt: skip


def test_slices_share_the_pages(data: bytes) -> None:
    with opened(data) as file:
        views = file.read(strings="view")
    for offset, length in ((0, 0), (0, 1), (69, 3), (33, 170), (299, 5), (300, 1)):
        part = pa.table(views.slice(offset, length))
        part.validate(full=True)
        assert part.cast(TABLE.schema).equals(TABLE.slice(offset, length))
        assert views.slice(offset, length).slice(1).to_pylist() == TABLE.slice(offset, length).slice(1).to_pylist()


async def test_batches(data: bytes) -> None:
    store = MemoryStore()
    await store.put("file", data)
    async with rpq.open((store, "file")) as file:
        batches = [pa.table(batch) async for batch in file.batches(33, strings="view")]
        some = await file.read(["struct.b", "list"], [1], strings="view")
    for batch in batches:
        batch.validate(full=True)
    assert pa.concat_tables(batches).cast(TABLE.schema).equals(TABLE)
    assert pa.table(some)["struct"].to_pylist() == [
        row and {"b": row["b"]} for row in TABLE["struct"].to_pylist()[70:140]
    ]


def test_pages_live_as_long_as_their_views(data: bytes) -> None:
    with opened(data) as file:
        taken = pa.table(file.read(strings="view"))["text"]
    gc.collect()
    overwriting = [b"\xee" * 4096 for _ in range(2000)]
    assert taken.to_pylist() == TABLE["text"].to_pylist()
    assert len(overwriting) == 2000


def test_no_rows() -> None:
    with opened(_bytes(TABLE.slice(0, 0))) as file:
        empty = file.read(strings="view")
    found = pa.table(empty)
    assert (found.num_rows, found["text"].type, empty.to_pylist()) == (0, pa.string_view(), [])


def test_text_that_is_not_utf8_comes_as_binary_views() -> None:
    values = [b"right", b"more than twelve bytes", b"wrong \xff", b"more than twelve, wrong \xff"]
    table = pa.table({"t": pa.array(values * 2).cast(pa.binary()), "u": ["text"] * 8})
    binary = table["t"].chunk(0)
    text = pa.Array.from_buffers(pa.string(), 8, binary.buffers())
    out = io.BytesIO()
    pq.write_table(pa.table({"t": text, "u": table["u"]}), out, row_group_size=2)
    with opened(out.getvalue()) as file:
        views = pa.table(file.read(strings="view"))
        first = pa.table(file.read(row_groups=[0], strings="view"))
    views.validate(full=True)
    assert views.schema.types == [pa.binary_view(), pa.string_view()]
    assert views["t"].to_pylist() == values * 2
    assert first.schema.types == [pa.string_view(), pa.string_view()]


@pytest.mark.parametrize("strings", ["views", "", None, b"view"])
async def test_other_words_are_refused(stored: Any, our_bytes: bytes, strings: Any) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        with pytest.raises(rpq.SchemaError, match="strings") as raised:
            await file.read(strings=strings)
        assert raised.value.hint == "strings='stored' or 'plain' or 'view'"
        with pytest.raises(rpq.SchemaError, match="strings"):
            await anext(file.batches(strings=strings))
