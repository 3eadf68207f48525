"""Tables of any type at any depth and every way to write them, as hypothesis draws them; and what equal means."""

from __future__ import annotations

import asyncio
import decimal
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq.arrow.types.arrow_schema import schema_from_arrow
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.writer.write_options import WRITABLE_ENCODINGS

Choice = tuple[pa.DataType, st.SearchStrategy[Any]]

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
#: Floats are drawn by their bits, so that NaNs of every payload come.
FLOATS = {pa.float16(): pa.uint16(), pa.float32(): pa.uint32(), pa.float64(): pa.uint64()}
UNITS = ("s", "ms", "us", "ns")
I64 = st.integers(-(2**63), 2**63 - 1)
#: Seconds become milliseconds on the way.
SECONDS = st.integers(-(2**63) // 1000 + 1, (2**63) // 1000 - 1)
TEXT = st.text(max_size=12) | st.sampled_from(["", "PAR1", "ä" * 40, "\U0010ffff" * 20, "x" * 70])
OCTETS = st.binary(max_size=12) | st.sampled_from([b"", b"PAR1", b"\xff" * 70, b"\x00" * 65])


def _range_of(kind: pa.DataType) -> st.SearchStrategy[int]:
    info = np.iinfo(kind.to_pandas_dtype())
    low, high = int(info.min), int(info.max)
    return st.integers(low, high) | st.sampled_from([low, high, 0, 1]) | st.integers(0, 5)


#: The zeros, infinities and NaNs among the bits of floats.
_ODD_BITS = {
    pa.float16(): [0, 1 << 15, 0x7C00, 0xFC00, 0x7E00, 0xFFFF, 1],
    pa.float32(): [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF, 1],
    pa.float64(): [0, 1 << 63, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, 2**64 - 1, 1],
}


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    largest = 10**precision - 1
    context = decimal.Context(prec=100)
    numbers = st.integers(-largest, largest) | st.sampled_from([0, largest, -largest])
    return numbers.map(lambda n: decimal.Decimal(n).scaleb(-scale, context))


FLAT: list[Choice] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    *((kind, _range_of(kind)) for kind in INTEGERS),
    *((kind, _range_of(bits) | st.sampled_from(_ODD_BITS[kind])) for kind, bits in FLOATS.items()),
    *((kind, TEXT) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, OCTETS) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    *((pa.binary(width), st.binary(min_size=width, max_size=width)) for width in (1, 5, 16, 64, 65, 80)),
    (pa.uuid(), st.binary(min_size=16, max_size=16)),
    (pa.json_(), TEXT),
    (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.date64(), st.integers(-(2**31), 2**31 - 1).map(lambda days: days * 86_400_000)),
    (pa.time32("s"), st.integers(0, 86_399)),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    *(
        (pa.timestamp(unit, zone), SECONDS if unit == "s" else I64)
        for unit in UNITS
        for zone in (None, "UTC", "Asia/Kathmandu", "+05:30")
    ),
    *((pa.duration(unit), I64) for unit in UNITS),
    *((pa.decimal32(p, s), _decimals(p, s)) for p, s in ((1, 0), (9, 9))),
    *((pa.decimal64(p, s), _decimals(p, s)) for p, s in ((3, 1), (18, 4))),
    *((pa.decimal128(p, s), _decimals(p, s)) for p, s in ((1, 1), (9, 2), (18, 0), (19, 18), (38, 10))),
    *((pa.decimal256(p, s), _decimals(p, s)) for p, s in ((5, 3), (39, 0), (76, 38))),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "bb", "", "a longer value"])),
    (pa.dictionary(pa.uint16(), pa.int64()), st.integers(-2, 2)),
    (pa.dictionary(pa.int64(), pa.binary()), st.sampled_from([b"a", b"\xff", b""])),
    (pa.dictionary(pa.int32(), pa.decimal128(5, 2)), _decimals(5, 2)),
]


# --- arrays of drawn values ---------------------------------------------------------------------------------


def make_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of drawn values: integers stand for times, and for the bits of floats.

    Where a list or a struct is null, something stands in its children all the same.
    """
    if isinstance(kind, pa.ExtensionType):
        return pa.ExtensionArray.from_storage(kind, make_array(values, kind.storage_type))
    if pa.types.is_nested(kind):
        return _make_nested(values, kind)
    if pa.types.is_dictionary(kind):
        return make_array(values, kind.value_type).dictionary_encode().cast(kind)
    if kind in FLOATS:
        return pa.array(values, FLOATS[kind]).view(kind)
    if pa.types.is_time32(kind) or pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)


def _make_nested(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    mask = pa.array([value is None for value in values], pa.bool_())
    junk = next((value for value in values if value is not None), None)
    filled = [junk if value is None else value for value in values]
    if pa.types.is_struct(kind):
        children = [
            make_array([None if value is None else value[field.name] for value in filled], field.type) for field in kind
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_fixed_size_list(kind):
        blank = [None] * kind.list_size
        elements = [each for value in filled for each in (blank if value is None else value)]
        return pa.FixedSizeListArray.from_arrays(make_array(elements, kind.value_type), type=kind, mask=mask)
    lists = [value or [] for value in filled]
    sizes = np.cumsum([0, *map(len, lists)])
    elements = [element for each in lists for element in each]
    if pa.types.is_map(kind):
        keys = make_array([key for key, _ in elements], kind.key_type)
        items = make_array([item for _, item in elements], kind.item_type)
        return pa.MapArray.from_arrays(pa.array(sizes, pa.int32()), keys, items, kind, mask=mask)
    large = pa.types.is_large_list(kind)
    offsets = pa.array(sizes, pa.int64() if large else pa.int32())
    form = pa.LargeListArray if large else pa.ListArray
    return form.from_arrays(offsets, make_array(elements, kind.value_type), kind, mask=mask)


_PER_UNIT = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def values_of(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values that are equal only if they are the same, in whichever form or unit of its type an array has them.

    Floats are the integers of their bits, times nanoseconds, dates days, structs and entries of maps tuples.
    """
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in values_of(chunk)]
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return values_of(array.storage)
    if pa.types.is_dictionary(kind):
        return values_of(array.dictionary_decode())
    if pa.types.is_nested(kind):
        return _nested_values(array)
    if kind in FLOATS:
        return list(array.view(FLOATS[kind]).to_pylist())
    if pa.types.is_date(kind):
        return list(array.cast(pa.date32()).cast(pa.int32()).to_pylist())
    if pa.types.is_temporal(kind):
        counts = array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
        return [None if count is None else count * _PER_UNIT[kind.unit] for count in counts]
    return list(array.to_pylist())


def _nested_values(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_struct(kind):
        children = [values_of(array.field(position)) for position in range(kind.num_fields)]
        rows: list[Any] = list(zip(*children, strict=True))
    elif pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        elements = values_of(array.values)
        starts = range(array.offset * size, (array.offset + len(array)) * size, size or 1)
        rows = [elements[start : start + size] for start in starts] if size else [[]] * len(array)
    else:
        entries = pa.types.is_map(kind)
        elements = (
            list(zip(values_of(array.keys), values_of(array.items), strict=True))
            if entries
            else values_of(array.values)
        )
        rows = [elements[start:end] for start, end in pairwise(array.offsets.to_pylist())]
    return [row if there else None for row, there in zip(rows, array.is_valid().to_pylist(), strict=True)]


# --- columns and tables -------------------------------------------------------------------------------------

_KEYS = [
    (kind, values)
    for kind, values in FLAT
    if kind != pa.null() and not pa.types.is_dictionary(kind) and not isinstance(kind, pa.ExtensionType)
]
_NAMES = ["a", "b", "element", "item", "key", "value", "list", "array", "key_value", "ä"]


@st.composite
def _type(draw: st.DrawFn, depth: int, leaves: Sequence[Choice], unlike_keys: bool) -> Choice:
    """A type of structs, lists and maps, and its values."""
    forms = ["leaf", "leaf", "list", "large list", "fixed-size list", "struct", "struct", "map"]
    form = draw(st.sampled_from(forms)) if depth else "leaf"
    if form == "leaf":
        leaf: Choice = draw(st.sampled_from(leaves))
        return leaf
    if form == "struct":
        fields, values = [], {}
        for name in draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3, unique=True)):
            field, strategy = draw(_field(name, depth - 1, leaves, unlike_keys))
            fields.append(field)
            values[name] = strategy
        return pa.struct(fields), st.fixed_dictionaries(values)
    if form == "map":
        key, keys = draw(st.sampled_from([choice for choice in _KEYS if choice in leaves] or _KEYS))
        item, items = draw(_field("value", depth - 1, leaves, unlike_keys))
        kind = pa.map_(pa.field("key", key, nullable=False), item, keys_sorted=draw(st.booleans()))
        distinct = (lambda pair: pair[0]) if unlike_keys else None
        return kind, st.lists(st.tuples(keys, items), max_size=3, unique_by=distinct)
    field, strategy = draw(_field(draw(st.sampled_from(["element", "item"])), depth - 1, leaves, unlike_keys))
    if form == "fixed-size list":
        size = draw(st.integers(1, 3))
        return pa.list_(field, size), st.lists(strategy, min_size=size, max_size=size)
    return (pa.list_(field) if form == "list" else pa.large_list(field)), st.lists(strategy, max_size=3)


@st.composite
def _field(
    draw: st.DrawFn, name: str, depth: int, leaves: Sequence[Choice], unlike_keys: bool
) -> tuple[pa.Field, st.SearchStrategy[Any]]:
    kind, values = draw(_type(depth, leaves, unlike_keys))
    nullable = kind == pa.null() or draw(st.booleans())
    # Few values again and again, or all unlike: dictionaries pay or not.
    if kind != pa.null() and draw(st.booleans()):
        values = st.sampled_from(draw(st.lists(values, min_size=1, max_size=3)))
    return pa.field(name, kind, nullable), st.none() | values if nullable else values


@st.composite
def _column(
    draw: st.DrawFn, length: int, drawn: st.SearchStrategy[tuple[pa.Field, st.SearchStrategy[Any]]]
) -> tuple[pa.Field, pa.ChunkedArray]:
    """A column of `length` rows, cut out of larger arrays, in one chunk or several."""
    field, values = draw(drawn)
    whole = draw(st.lists(values, min_size=length, max_size=length))
    # What stands before and behind a slice must not leak in.
    margin = draw(st.lists(values, max_size=2))
    cuts = sorted({0, length, *draw(st.lists(st.integers(0, length), max_size=2))})
    chunks = []
    for start, end in pairwise(cuts):
        longer = make_array([*margin, *whole[start:end], *margin], field.type)
        chunks.append(longer.slice(len(margin), end - start))
    return field, pa.chunked_array(chunks, field.type)


@st.composite
def _table(
    draw: st.DrawFn, max_rows: int, depth: int, leaves: Sequence[Choice], max_columns: int, unlike_keys: bool
) -> pa.Table:
    length = draw(st.integers(0, max_rows))
    names = [f"c{at}" for at in range(draw(st.integers(1, max_columns)))]
    columns = [draw(_column(length, _field(name, depth, leaves, unlike_keys))) for name in names]
    schema = pa.schema([field for field, _ in columns])
    return pa.Table.from_arrays([column for _, column in columns], schema=schema)


# --- ways to write ------------------------------------------------------------------------------------------

OPTIONS = st.builds(
    rpq.WriteOptions,
    data_page_version=st.sampled_from(["1.0", "2.0"]),
    page_rows=st.sampled_from([1, 3, 10, 131_072]),
    dictionary_bytes=st.sampled_from([0, 20, 1 << 20]),
    statistics=st.sampled_from([True, True, False]),
)
WAYS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "gzip", "brotli", "lz4_raw", "zstd"]),
        "row_group_rows": st.sampled_from([None, 1, 5, 16]),
        "row_group_bytes": st.sampled_from([1, 300, 1 << 26]),
        "page_bytes": st.sampled_from([1, 40, 1 << 20]),
        "checkpoint_every": st.sampled_from([None, 1, 3]),
        "checkpoint_overhead": st.just(1000.0),
        "options": OPTIONS,
    }
)


def _repeatable(way: dict[str, Any]) -> dict[str, Any]:
    """A way that makes the same bytes of the same rows each time, which ISA-L's gzip does not: zlib's instead."""
    return {**way, "compression_level": 6} if way["compression"] == "gzip" else way


def _encodings(schema: pa.Schema | rpq.Schema) -> st.SearchStrategy[dict[str, str]]:
    """An encoding for every leaf, of those that may hold its physical type."""
    leaves = schema.leaves if isinstance(schema, rpq.Schema) else schema_from_arrow(schema).leaves
    return st.fixed_dictionaries(
        {
            leaf.column_path: st.sampled_from(
                [
                    "auto",
                    *(each.name for each, types in WRITABLE_ENCODINGS.items() if leaf.node.physical_type in types),
                ]
            )
            for leaf in leaves
        }
    )


async def _write(batches: Sequence[Any], schema: pa.Schema, way: dict[str, Any]) -> bytes:
    store = MemoryStore()
    async with rpq.create((store, "file"), schema, **way) as writer:
        for batch in batches:
            await writer.write(batch)
    return bytes((await store.read_tail("file", 1 << 40)).data)


@pytest.fixture(scope="session")
def tables() -> Callable[..., st.SearchStrategy[pa.Table]]:
    """Tables of columns of any type, nested up to `depth`; `leaves` are pairs of a type and its values."""

    def strategy(
        max_rows: int = 20,
        *,
        depth: int = 3,
        leaves: Sequence[Choice] = FLAT,
        max_columns: int = 2,
        unlike_keys: bool = False,
    ) -> st.SearchStrategy[pa.Table]:
        return _table(max_rows, depth, leaves, max_columns, unlike_keys)

    return strategy


@pytest.fixture(params=FLAT, ids=lambda choice: str(choice[0]))
def leaf(request: pytest.FixtureRequest) -> Choice:
    """Each type that is not nested, and its values, in turn."""
    chosen: Choice = request.param
    return chosen


@pytest.fixture(scope="session")
def leaf_of() -> Callable[[pa.DataType], Choice]:
    """A type that is not nested, with its values."""
    return lambda kind: next(choice for choice in FLAT if choice[0] == kind)


@pytest.fixture(scope="session")
def ways() -> st.SearchStrategy[dict[str, Any]]:
    """Options of `create`."""
    return WAYS


@pytest.fixture(scope="session")
def repeatable_ways() -> st.SearchStrategy[dict[str, Any]]:
    """Options of `create` with which the same rows become the same bytes."""
    return WAYS.map(_repeatable)


@pytest.fixture(scope="session")
def encodings() -> Callable[[pa.Schema | rpq.Schema], st.SearchStrategy[dict[str, str]]]:
    """The option of `create`, for a schema."""
    return _encodings


@pytest.fixture(scope="session")
def written() -> Callable[..., bytes]:
    """The bytes of a file of some batches."""

    def write(batches: Sequence[Any], schema: pa.Schema, way: dict[str, Any]) -> bytes:
        return asyncio.run(_write(batches, schema, way))

    return write


@pytest.fixture(scope="session")
def exact() -> Callable[[pa.Table], dict[str, list[Any]]]:
    """The columns as values that are equal only if they are the same; see `values_of`."""

    def values(table: pa.Table) -> dict[str, list[Any]]:
        return {name: values_of(table[name]) for name in table.column_names}

    return values


@pytest.fixture(scope="session")
def assert_same() -> Callable[[pa.Table, pa.Table], None]:
    """Equal to the last bit, and of the same types."""

    def check(found: pa.Table, expected: pa.Table) -> None:
        assert found.schema.equals(expected.schema)
        assert found.num_rows == expected.num_rows
        for name in expected.column_names:
            assert values_of(found[name]) == values_of(expected[name]), name

    return check
