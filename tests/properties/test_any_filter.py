"""Rows that any filter leaves of any table are those that pyarrow leaves, whoever wrote the file and with what indexes."""

from __future__ import annotations

import asyncio
import io
import operator
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from file_bytes import file_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore

Term = tuple[Any, ...]
quick = settings(deadline=None, suppress_health_check=list(HealthCheck))

NAN = float("nan")
#: Of each type values close to each other and at its ends, as Arrow's `pa.array` takes them.
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [False, True],
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.uint8(): [0, 1, 127, 128, 255],
    pa.int32(): [-(2**31), -1, 0, 1, 2**31 - 1],
    pa.uint32(): [0, 1, 2**31, 2**32 - 1],
    pa.int64(): [-(2**63), -1, 0, 1, 2**63 - 1],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.float32(): [-float("inf"), -1.5, -0.0, 0.0, 0.5, float("inf"), NAN],
    pa.float64(): [-float("inf"), -1.5, -0.0, 0.0, 0.5, float("inf"), NAN],
    pa.string(): ["", "a", "a\0", "ab", "abcdefgh", "abcdefghi", "b" * 70, "b" * 70 + "c", "ä"],
    pa.binary(): [b"", b"\0", b"\0\0", b"\x7f", b"\xff", b"\xff" * 70],
    pa.binary(3): [b"\0\0\0", b"abc", b"ab\0", b"\xff\xff\xff"],
    pa.date32(): [-1, 0, 1, 20_000],
    pa.time64("us"): [0, 1, 86_399_999_999],
    pa.timestamp("us"): [-1, 0, 1, 10**15],
    pa.timestamp("ms", "Asia/Kathmandu"): [-1, 0, 1, 10**12],
    pa.decimal128(4, 2): [Decimal("-99.99"), Decimal(0), Decimal("0.01"), Decimal("1.50")],
    pa.decimal128(12, 2): [Decimal("-9999999999.99"), Decimal(0), Decimal("0.01")],
    pa.decimal128(38, 2): [Decimal(-(10**35)), Decimal("-0.01"), Decimal(0), Decimal("0.01"), Decimal(10**35)],
}
ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Two columns to filter by, one of them in a struct, and others beside them; with runs, so that pages differ."""
    rows = draw(st.integers(0, 60))
    columns: dict[str, Any] = {}
    for name in ("a", "b"):
        kind = draw(st.sampled_from(list(VALUES)))
        drawn = st.none() | st.sampled_from(VALUES[kind])
        runs = draw(st.lists(st.tuples(drawn, st.integers(1, 20)), max_size=15))
        values = [value for value, length in runs for _ in range(length)][:rows]
        columns[name] = pa.array(values + [None] * (rows - len(values)), kind)
    inner = pa.StructArray.from_arrays(
        [columns.pop("b"), pa.array(range(rows))],
        ["x", "y"],
        mask=pa.array([i % 7 == 3 for i in range(rows)], pa.bool_()),
    )
    columns["s"] = inner
    columns["l"] = pa.array([None if i % 5 == 0 else [f"{i}"] * (i % 4) for i in range(rows)], pa.list_(pa.string()))
    columns["text"] = pa.array([None if i % 6 == 0 else f"row {i}" for i in range(rows)])
    columns["n"] = pa.array(range(rows))
    return pa.table(columns)


@st.composite
def terms(draw: st.DrawFn, table: pa.Table) -> Term:
    name = draw(st.sampled_from(["a", "s.x"]))
    kind = table.schema.field("a").type if name == "a" else table.schema.field("s").type.field("x").type
    values = pa.array(VALUES[kind], kind).to_pylist()
    word = draw(st.sampled_from([*ORDERED, "in", "not in", "is null", "is not null"]))
    if word.startswith("is"):
        return (name, word)
    if word.endswith("in"):
        return (name, word, draw(st.lists(st.sampled_from(values), max_size=len(values) + 4)))
    return (name, word, draw(st.sampled_from(values)))


def expression(term: Term, table: pa.Table) -> pc.Expression:
    """The same in pyarrow's terms; of what it sees otherwise, in ours: nulls, and the zeros in lists."""
    name, word, value = (*term, None)[:3]
    field = pc.field(*name.split("."))
    kind = table.schema.field("a").type if name == "a" else table.schema.field("s").type.field("x").type
    if word.startswith("is"):
        return ~field.is_valid() if word == "is null" else field.is_valid()
    if word.endswith("in"):
        several = [*value, *(-each for each in value if kind in (pa.float32(), pa.float64()) and each == 0)]
        found = field.isin(pa.array(several, kind))
        return field.is_valid() & (~found if word == "not in" else found)
    return ORDERED[word](field, pa.scalar(value, kind))


def expected(table: pa.Table, filters: list[list[Term]]) -> pa.Table:
    every = [reduce(operator.and_, (expression(term, table) for term in each)) for each in filters]
    return table.filter(reduce(operator.or_, every))


@st.composite
def files(draw: st.DrawFn, table: pa.Table) -> bytes:
    """The table written by us or by pyarrow, in row groups and pages of few rows, with indexes or without."""
    rows = draw(st.sampled_from([7, 20, 1000]))
    if draw(st.booleans()):
        out = io.BytesIO()
        pq.write_table(
            table,
            out,
            row_group_size=rows,
            write_page_index=draw(st.booleans()),
            data_page_size=draw(st.sampled_from([1, 1 << 20])),
            write_batch_size=5,
            write_statistics=draw(st.booleans()),
            use_dictionary=draw(st.booleans()),
            data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
        )
        return out.getvalue()
    kind = table.schema.field("a").type
    bloom = ["a"] if draw(st.booleans()) and kind != pa.bool_() else None
    more = rpq.WriteOptions(page_rows=draw(st.sampled_from([5, 1000])), bloom_filter_options=bloom)
    options = {"row_group_rows": rows, "page_bytes": draw(st.sampled_from([1, 1 << 20])), "options": more}
    return asyncio.run(written(table, options))


async def written(table: pa.Table, options: dict[str, Any]) -> bytes:
    return await file_bytes(table, table.schema, **options)


async def read(data: bytes, **options: Any) -> tuple[pa.Table, pa.Table]:
    """The rows at once, and those of the batches."""
    store = MemoryStore()
    await store.put("file", data)
    async with rpq.open((store, "file")) as file:
        table = pa.table(await file.read(**options))
        batches = [pa.table(batch) async for batch in file.batches(7, **options)]
        return table, pa.concat_tables(batches) if batches else table.slice(0, 0)


@quick
@given(st.data())
def test_the_rows_are_those_that_pyarrow_leaves(exact: Any, draw: st.DataObject) -> None:
    table = draw.draw(tables())
    filters = draw.draw(st.lists(st.lists(terms(table), min_size=1, max_size=2), min_size=1, max_size=2))
    limit = draw.draw(st.none() | st.integers(0, 10))
    columns = draw.draw(st.none() | st.lists(st.sampled_from(["a", "s", "l", "text", "s.y"]), unique=True))
    data = draw.draw(files(table))
    wanted = expected(table, filters).slice(0, limit)
    at_once, in_batches = asyncio.run(read(data, filters=filters, limit=limit, columns=columns))
    if columns is not None:
        wanted = wanted.select([name for name in columns if "." not in name])
        shown = [name for name in columns if "." not in name and (name != "s" or "s.y" not in columns)]
        assert at_once.num_rows == wanted.num_rows
        wanted, at_once, in_batches = (each.select(shown) for each in (wanted, at_once, in_batches))
    assert exact(at_once) == exact(in_batches) == exact(wanted)
