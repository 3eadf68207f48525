"""`filters=` and `limit=`: what they mean, what is read for them, and requests that cannot be meant."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq import SchemaError
from resilient_pq.io.memory_store import MemoryStore

Stored = Callable[[bytes], Awaitable[MemoryStore]]


async def test_both_writers_and_both_forms(our_bytes: bytes, their_bytes: bytes, stored: Stored) -> None:
    for data in (our_bytes, their_bytes):
        async with rpq.open((await stored(data), "file")) as file:
            both = await file.read(["n"], filters=[("n", ">", 20), ("s", "=", "text 5")])
            assert both["n"].tolist() == [27, 38, 60, 71, 82]
            either = await file.read(["n"], filters=[[("n", "<", 2)], [("n", ">=", 88), ("f", "<", 29.5)]])
            assert either["n"].tolist() == [0, 1, 88]
            assert (await file.read(["n"], filters=("n", "in", {3, 4})))["n"].tolist() == [3, 4]
            nulls = await file.read(["n"], filters=[("s", "is null"), ("n", "<", 20)])
            assert nulls["n"].tolist() == [0, 7, 14]
            assert (await file.read(["n"], filters=[("s", "is not null", None)], limit=1))["n"].tolist() == [1]


async def test_the_columns_are_those_asked_for(our_bytes: bytes, stored: Stored, rows: pa.Table) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        chosen = [("n", "in", [5, 41, 42])]
        expected = rows.take([5, 41, 42])
        assert pa.table(await file.read(filters=chosen)).equals(expected)
        assert pa.table(await file.read(["l"], filters=chosen)).equals(expected.select(["l"]))
        nothing = await file.read([], filters=chosen)
        assert (nothing.num_rows, nothing.num_columns) == (3, 0)
        views = pa.table(await file.read(["s", "l"], filters=[*chosen, ("s", "!=", "text 5")], strings="view"))
        assert views["s"].to_pylist() == ["text 8"]


async def test_a_filter_that_leaves_nothing(our_bytes: bytes, stored: Stored, rows: pa.Table) -> None:
    store = RecordingStore(await stored(our_bytes))
    async with rpq.open((store, "file")) as file:
        store.calls.clear()
        table = pa.table(await file.read(filters=[("n", ">", 1000)]))
        assert table.equals(rows.slice(0, 0)) and not store.calls
        assert [batch async for batch in file.batches(filters=[("n", "=", 0.5)])] == []
        assert (await file.read(filters=[("f", "=", 0.1)])).num_rows == 0


async def test_row_groups_are_left_out_by_their_statistics(
    our_bytes: bytes, their_bytes: bytes, stored: Stored
) -> None:
    for data in (our_bytes, their_bytes):
        async with rpq.open((await stored(data), "file"), options=rpq.ReadOptions(tail_bytes=8)) as file:
            (chunk,) = {file.metadata.row_groups[2].columns[0].meta_data.total_compressed_size}
            before = file.counters.useful_bytes
            table = await file.read(["n"], filters=[("n", ">=", 45), ("n", "<", 50)])
            assert table["n"].tolist() == [45, 46, 47, 48, 49]
            assert file.counters.useful_bytes - before == chunk


async def test_a_footer_that_counts_as_many_nulls_as_values(
    their_bytes: bytes, stored: Stored, with_footer: Callable[..., bytes]
) -> None:
    """But not as many as rows: it is damaged, and must not pass for one of a column of nulls."""

    def edit(metadata: Any) -> None:
        chunk = metadata.row_groups[2].columns[0].meta_data
        chunk.num_values = chunk.statistics.null_count

    for change, expected in ((lambda _: None, 1), (edit, None)):
        changed = with_footer(their_bytes, change, vouch=False)
        async with rpq.open((await stored(changed), "file")) as file:
            wanted = file.read(["n"], filters=[("n", "=", 42)])
            if expected is None:
                with pytest.raises(rpq.FormatError, match="rows"):
                    await wanted
            else:
                assert (await wanted).num_rows == expected


async def test_limits(our_bytes: bytes, stored: Stored, rows: pa.Table) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        for limit in (0, 1, 19, 20, 21, 89, 90, 1000):
            expected = rows.slice(0, limit)
            assert pa.table(await file.read(limit=limit)).equals(expected)
            batches = [pa.table(batch) async for batch in file.batches(7, limit=limit)]
            assert pa.concat_tables([rows.slice(0, 0), *batches]).equals(expected)
            odd = [("n", "in", list(range(1, 90, 2)))]
            assert (await file.read(["n"], filters=odd, limit=limit))["n"].tolist() == list(range(1, 90, 2))[:limit]
        assert (await file.read(["n"], [4, 0], limit=12))["n"].tolist() == [*range(80, 90), 0, 1]


async def test_a_limit_reads_no_row_groups_behind_it(our_bytes: bytes, stored: Stored) -> None:
    async with rpq.open((await stored(our_bytes), "file"), options=rpq.ReadOptions(tail_bytes=8)) as file:
        sizes = [group.columns[0].meta_data.total_compressed_size for group in file.metadata.row_groups]
        for limit, expected in ((0, 0), (20, sizes[0]), (21, sum(sizes[:2]))):
            before = file.counters.useful_bytes
            await file.read(["n"], limit=limit)
            assert file.counters.useful_bytes - before == expected
            before = file.counters.useful_bytes
            async for _ in file.batches(columns=["n"], limit=limit):
                pass
            # While the first is decoded the next is on its way already.
            assert file.counters.useful_bytes - before <= expected + sizes[2]


async def test_leaves_of_structs(stored: Stored) -> None:
    table = pa.table({"a": [{"x": 1, "y": "p"}, None, {"x": None, "y": "q"}, {"x": 4, "y": "r"}], "a.b": [1, 2, 3, 4]})
    out = io.BytesIO()
    pq.write_table(table, out)
    async with rpq.open((await stored(out.getvalue()), "file")) as file:
        assert (await file.read(["a.y"], filters=[("a.x", ">", 0)])).to_pylist() == [
            {"a": {"y": "p"}},
            {"a": {"y": "r"}},
        ]
        assert (await file.read(["a.b"], filters=[("a.x", "is null")])).to_pylist() == [{"a.b": 2}, {"a.b": 3}]
        assert (await file.read(["a"], filters=[("a.b", ">=", 4)])).to_pylist() == [{"a": {"x": 4, "y": "r"}}]


REFUSED: list[tuple[Any, str, str]] = [
    ([], "no filter: []", "filters="),
    ("n > 3", "no filter: 'n > 3'", "filters="),
    ([[]], "no filter: []", "filters="),
    ([("n", ">")], "no filter: ('n', '>')", "filters="),
    ([("n", ">", 1, 2)], "no filter: ('n', '>', 1, 2)", "filters="),
    ([(3, ">", 1)], "no filter: (3, '>', 1)", "filters="),
    ({"n": 3}, "no filter: {'n': 3}", "filters="),
    ([("m", ">", 1)], "'m' in filters is no column", "columns: n, s, f"),
    ([("l", "=", 1)], "'l' in filters is a column with fields inside", "columns: l.list.element"),
    ([("l.list.element", "=", 1)], "lies in a list or a map", "filter what was read"),
    ([("n", "like", 1)], "there is no operator 'like'", "operators: =, =="),
    ([("n", ">", "x")], "'x' cannot be compared with", ""),
    ([("n", ">", None)], "None compares with nothing", "is null"),
    ([("n", "=", [1, 2])], '"=" takes one value', '"in" and "not in"'),
    ([("n", "in", 3)], '"in" takes a list of values', "('n', 'in', [...])"),
    ([("s", "in", "text")], '"in" takes a list of values', "('s', 'in', [...])"),
    ([("s", "in", ["text", None])], "None compares with nothing", "is null"),
]


@pytest.mark.parametrize(("filters", "message", "hint"), REFUSED)
async def test_filters_that_cannot_be_meant(
    our_bytes: bytes, stored: Stored, filters: Any, message: str, hint: str
) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        with pytest.raises(SchemaError) as caught:
            await file.read(filters=filters)
        assert message in str(caught.value) and hint in str(caught.value.hint or "")
        with pytest.raises(SchemaError):
            await anext(file.batches(filters=filters))


async def test_a_limit_of_numpys(our_bytes: bytes, stored: Stored) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        assert (await file.read(["n"], limit=np.int64(3))).num_rows == 3
        assert [batch.num_rows async for batch in file.batches(2, ["n"], limit=np.int64(3))] == [2, 1]


@pytest.mark.parametrize("limit", [-1, 1.0, "3", True])
async def test_limits_that_cannot_be_meant(our_bytes: bytes, stored: Stored, limit: Any) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        with pytest.raises(SchemaError, match="limit is"):
            await file.read(limit=limit)
        with pytest.raises(SchemaError, match="limit is"):
            await anext(file.batches(limit=limit))


@pytest.mark.parametrize("on_damage", ["drop", "null"])
async def test_filters_are_applied_to_what_damage_leaves(
    our_bytes: bytes, stored: Stored, on_damage: Any, rows: pa.Table
) -> None:
    async with rpq.open((await stored(our_bytes), "file")) as file:
        chunk = file.metadata.row_groups[1].columns[1].meta_data
    data = bytearray(our_bytes)
    data[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 3] ^= 0xFF
    lost: list[rpq.LostRegion] = []
    opened = rpq.open((await stored(bytes(data)), "file"), on_damage=on_damage, on_lost=lost.append)
    async with opened as file:
        read = pa.table(await file.read(filters=[("s", "is null"), ("n", "<", 40)]))
        without = pa.table(await file.read(["n"], filters=[("s", "!=", "text 1")], limit=25))
    first = [n for n in range(20) if n % 7 == 0]
    assert read["n"].to_pylist() == (first if on_damage == "drop" else first + list(range(20, 40)))
    kept = [n for n in range(90) if n % 7 and n % 11 != 1 and not 20 <= n < 40]
    assert without["n"].to_pylist() == kept[:25]
    assert lost and all(region.where.row_group == 1 for region in lost)
