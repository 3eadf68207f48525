"""Any Parquet schema is written as it is given, and gives back the records that were written under it."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import io
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampled import in_both_suites

import resilient_pq as rpq
from resilient_pq.arrow.intervals import MonthDayNano
from resilient_pq.format import logical
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.logical import Decimal, Integer, Time, Timestamp, TimeUnit
from resilient_pq.format.schema_tree import Group, Node, Primitive, Schema
from resilient_pq.io.memory_store import MemoryStore

Drawn = tuple[Node, st.SearchStrategy[Any]]
quick = settings(deadline=None, suppress_health_check=list(HealthCheck))

REQUIRED, OPTIONAL, REPEATED = Repetition.REQUIRED, Repetition.OPTIONAL, Repetition.REPEATED
FIXED = Type.FIXED_LEN_BYTE_ARRAY
DAY = dt.datetime(1970, 1, 1)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    largest, context = 10**precision - 1, decimal.Context(prec=100)
    numbers = st.integers(-largest, largest) | st.sampled_from([0, 1, -1, 127, 128, -128, -129, largest, -largest])
    return numbers.filter(lambda n: abs(n) <= largest).map(lambda n: decimal.Decimal(n).scaleb(-scale, context))


def _times(step: int) -> st.SearchStrategy[dt.time]:
    """Times of day in whole `step` microseconds."""
    counts = st.integers(0, 86_400 * 10**6 // step - 1)
    return counts.map(lambda n: (DAY + dt.timedelta(microseconds=n * step)).time())


def _moments(step: int, zone: dt.tzinfo | None = None) -> st.SearchStrategy[dt.datetime]:
    """Within the reach of nanoseconds, in whole `step` microseconds."""
    most = 9 * 10**15 // step
    return st.integers(-most, most).map(lambda n: (DAY + dt.timedelta(microseconds=n * step)).replace(tzinfo=zone))


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _octets(width: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=width, max_size=width)


_BYTES = st.binary(max_size=5) | st.sampled_from([b"", b"\xff" * 70])
_TEXT = st.text(max_size=5) | st.sampled_from(["", "ä" * 40])
_INTERVALS = st.builds(
    MonthDayNano,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**32 - 1).map(lambda milliseconds: milliseconds * 10**6),
)
_MILLIS, _MICROS, _NANOS = TimeUnit.MILLIS, TimeUnit.MICROS, TimeUnit.NANOS

#: Every physical type under every annotation that it may carry, with values.
LEAVES: list[tuple[Type, int | None, logical.Logical | None, st.SearchStrategy[Any]]] = [
    (Type.BOOLEAN, None, None, st.booleans()),
    (Type.INT32, None, None, _signed(32)),
    *((Type.INT32, None, Integer(bits, True), _signed(bits)) for bits in (8, 16, 32)),
    *((Type.INT32, None, Integer(bits, False), st.integers(0, 2**bits - 1)) for bits in (8, 16, 32)),
    (Type.INT32, None, logical.DATE, st.dates()),
    *((Type.INT32, None, Time(_MILLIS, utc), _times(1000)) for utc in (True, False)),
    *((Type.INT32, None, Decimal(p, s), _decimals(p, s)) for p, s in ((1, 0), (5, 5), (9, 2))),
    (Type.INT64, None, None, _signed(64)),
    (Type.INT64, None, Integer(64, True), _signed(64)),
    (Type.INT64, None, Integer(64, False), st.integers(0, 2**64 - 1)),
    *((Type.INT64, None, Time(unit, False), _times(1)) for unit in (_MICROS, _NANOS)),
    *((Type.INT64, None, Timestamp(unit, False), _moments(step)) for unit, step in (
        (_MILLIS, 1000), (_MICROS, 1), (_NANOS, 1))),
    *((Type.INT64, None, Timestamp(unit, True), _moments(step, dt.UTC)) for unit, step in (
        (_MILLIS, 1000), (_MICROS, 1), (_NANOS, 1))),
    *((Type.INT64, None, Decimal(p, s), _decimals(p, s)) for p, s in ((3, 1), (10, 0), (18, 9))),
    (Type.INT96, None, None, _moments(1)),
    (Type.FLOAT, None, None, st.floats(width=32)),
    (Type.DOUBLE, None, None, st.floats()),
    *((Type.BYTE_ARRAY, None, annotation, _BYTES) for annotation in (None, logical.BSON)),
    *((Type.BYTE_ARRAY, None, each, _TEXT) for each in (logical.STRING, logical.ENUM, logical.JSON)),
    *((Type.BYTE_ARRAY, None, Decimal(p, s), _decimals(p, s)) for p, s in ((1, 1), (19, 2), (38, 0), (76, 40))),
    *((FIXED, width, None, _octets(width)) for width in (1, 5, 80)),
    (FIXED, 12, logical.INTERVAL, _INTERVALS),
    (FIXED, 2, logical.FLOAT16, st.floats(width=16)),
    *((FIXED, width, Decimal(p, s), _decimals(p, s)) for width, p, s in (
        (1, 2, 0), (4, 9, 3), (5, 9, 3), (8, 18, 0), (9, 18, 0), (16, 38, 10), (20, 38, 1), (32, 76, 76))),
]  # fmt: skip


@st.composite
def _leaf(draw: st.DrawFn, name: str, repetition: Repetition) -> Drawn:
    physical, length, annotation, values = draw(st.sampled_from(LEAVES))
    return Primitive(name, repetition, physical, length, annotation), values


@st.composite
def _node(draw: st.DrawFn, name: str, repetition: Repetition, depth: int) -> Drawn:
    """A node, and the values that it has where it is there once."""
    forms = ["leaf", "leaf", "group", "list", "list of two levels", "map"] if depth else ["leaf"]
    match draw(st.sampled_from(forms)):
        case "group":
            return draw(_group(name, repetition, depth))
        case "list":
            element, values = draw(_field("element", depth - 1, (REQUIRED, OPTIONAL)))
            repeated = Group("list", REPEATED, (element,))
            return Group(name, repetition, (repeated,), logical.LIST), st.lists(values, max_size=3)
        case "list of two levels":
            if draw(st.booleans()):
                element, values = draw(_leaf(name, REPEATED))
            else:  # a name by which readers know that it is no group around the element
                element, values = draw(_group("array", REPEATED, depth))
            return Group(name, repetition, (element,), logical.LIST), st.lists(values, max_size=3)
        case "map":
            key, keys = draw(_leaf("key", REQUIRED))
            value, values = draw(_field("value", depth - 1, (REQUIRED, OPTIONAL)))
            repeated = Group("key_value", REPEATED, (key, value))
            pairs = st.lists(st.tuples(keys, values), max_size=3)
            return Group(name, repetition, (repeated,), logical.MAP), pairs
        case _:
            return draw(_leaf(name, repetition))


@st.composite
def _group(draw: st.DrawFn, name: str, repetition: Repetition, depth: int) -> Drawn:
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))
    pairs = [draw(_field(child, depth - 1)) for child in names]
    children = tuple(node for node, _ in pairs)
    values = {node.name: values for node, values in pairs}
    return Group(name, repetition, children), st.fixed_dictionaries(values)


@st.composite
def _field(draw: st.DrawFn, name: str, depth: int, repetitions: tuple[Repetition, ...] = tuple(Repetition)) -> Drawn:
    """A node of a group, and what a record has for it."""
    repetition = draw(st.sampled_from(repetitions))
    node, values = draw(_node(name, repetition, depth))
    if repetition is REPEATED:
        return node, st.lists(values, max_size=3)
    return node, st.none() | values if repetition is OPTIONAL else values


@st.composite
def _records(draw: st.DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    root, values = draw(_group("any", REQUIRED, 3))
    assert isinstance(root, Group)
    return Schema(root), draw(st.lists(values, max_size=12))


async def _written(schema: Schema, records: list[dict[str, Any]], way: dict[str, Any], cut: int) -> MemoryStore:
    store = MemoryStore()
    async with rpq.create((store, "file"), schema, **way) as writer:
        for part in (records[:cut], records[cut:]):
            await writer.write(part)
    return store


async def _round_trip(draw: st.DataObject, ways: Any, encodings: Any) -> None:
    schema, records = draw.draw(_records())
    assert Schema.parse(str(schema)) == schema
    way = {**draw.draw(ways), "encodings": draw.draw(encodings(schema))}
    store = await _written(schema, records, way, draw.draw(st.integers(0, len(records))))
    async with rpq.open((store, "file")) as file:
        assert file.schema == schema
        found = await file.read()
    expected = _exact(records)
    assert _exact(found.to_pylist()) == expected
    # What was read goes into a file of the same schema again, as Arrow data now.
    async with rpq.create((store, "again"), file.schema) as writer:
        await writer.write(found)
    async with rpq.open((store, "again")) as again:
        assert again.schema == schema
        assert _exact((await again.read()).to_pylist()) == expected
    data = bytes((await store.read_tail("file", 1 << 40)).data)
    if not any(_beyond_pyarrow(node) for node in schema.root.children):
        theirs = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
        # It gives bytes where we give text, of an ENUM.
        assert _exact(theirs.read().to_pylist(), str.encode) == _exact(records, str.encode)


def _exact(value: Any, text: Callable[[str], Any] = str) -> Any:
    """A value that equals another only if they are the same: the zeros are two, and NaN equals itself."""
    if isinstance(value, dict):
        return {name: _exact(below, text) for name, below in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [_exact(below, text) for below in value]
    if isinstance(value, pd.Timestamp):  # what pyarrow makes of nanoseconds
        value = value.to_pydatetime()
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC)
    return repr(text(value) if isinstance(value, str) else value)


def _beyond_pyarrow(node: Node) -> bool:
    """Whether pyarrow refuses the node: a list or map that is repeated itself, which LogicalTypes.md forbids,
    and small decimals of more than sixteen bytes; or gives other values: bytes for an interval.
    """
    if isinstance(node, Primitive):
        decimal128 = isinstance(node.logical, Decimal) and node.logical.precision <= 38
        return node.logical == logical.INTERVAL or (decimal128 and (node.type_length or 0) > 16)
    repeated = node.repetition is REPEATED and node.logical is not None
    return repeated or any(map(_beyond_pyarrow, node.children))


@in_both_suites
@given(draw=st.data())
@settings(quick, max_examples=max(60, quick.max_examples))
def test_records_of_any_schema(draw: st.DataObject, ways: Any, encodings: Any) -> None:
    asyncio.run(_round_trip(draw, ways, encodings))
