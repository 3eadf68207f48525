"""Tables of any type and every way to write them, as hypothesis draws them; and what equal means."""

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
from resilient_pq.io.memory import MemoryStore

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


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    largest = 10**precision - 1
    context = decimal.Context(prec=100)
    return st.integers(-largest, largest).map(lambda n: decimal.Decimal(n).scaleb(-scale, context))


FLAT: list[Choice] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    *((kind, _range_of(kind)) for kind in INTEGERS),
    *((kind, _range_of(bits)) for kind, bits in FLOATS.items()),
    *((kind, TEXT) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, OCTETS) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    *((pa.binary(width), st.binary(min_size=width, max_size=width)) for width in (1, 7, 16, 64, 65, 80)),
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
    *((pa.decimal128(p, s), _decimals(p, s)) for p, s in ((1, 1), (9, 2), (18, 0), (19, 18), (38, 10))),
    *((pa.decimal256(p, s), _decimals(p, s)) for p, s in ((5, 3), (39, 0), (76, 38))),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "bb", "", "a longer value"])),
    (pa.dictionary(pa.uint16(), pa.int64()), st.integers(-2, 2)),
    (pa.dictionary(pa.int64(), pa.binary()), st.sampled_from([b"a", b"\xff", b""])),
]


def make_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of drawn values: integers stand for times, and for the bits of floats."""
    if pa.types.is_dictionary(kind):
        return make_array(values, kind.value_type).dictionary_encode().cast(kind)
    if kind in FLOATS:
        return pa.array(values, FLOATS[kind]).view(kind)
    if pa.types.is_time32(kind) or pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that a column of this type has when it is read back."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def bits(array: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as the integers of their bits: NaN equals nothing, and the zeros equal each other."""
    if array.type not in FLOATS:
        return array
    kind = FLOATS[array.type]
    return pa.chunked_array([chunk.view(kind) for chunk in array.chunks], kind)


@st.composite
def _flat_column(draw: st.DrawFn, length: int, choices: Sequence[Choice]) -> tuple[pa.Field, pa.ChunkedArray]:
    """A column of `length` rows, cut out of larger arrays, in one chunk or several."""
    kind, values = draw(st.sampled_from(choices))
    nullable = kind == pa.null() or draw(st.booleans())
    # Few values again and again, or all unlike: dictionaries pay or not.
    if draw(st.booleans()) and kind != pa.null():
        values = st.sampled_from(draw(st.lists(values, min_size=1, max_size=3)))
    slots = st.none() | values if nullable else values
    whole = draw(st.lists(slots, min_size=length, max_size=length))
    # What stands before and behind a slice must not leak in.
    margin = draw(st.lists(values, min_size=1, max_size=9))
    cuts = sorted({0, length, *draw(st.lists(st.integers(0, length), max_size=2))})
    chunks = []
    for start, end in pairwise(cuts):
        longer = make_array([*margin, *whole[start:end], *margin], kind)
        chunks.append(longer.slice(len(margin), end - start))
    return pa.field("c", kind, nullable), pa.chunked_array(chunks, kind)


@st.composite
def _flat_table(draw: st.DrawFn, max_rows: int, choices: Sequence[Choice]) -> pa.Table:
    length = draw(st.integers(0, max_rows))
    columns = draw(st.lists(_flat_column(length, choices), min_size=1, max_size=4))
    fields = [field.with_name(f"c{at}") for at, (field, _) in enumerate(columns)]
    return pa.table([column for _, column in columns], schema=pa.schema(fields))


# --- nested -------------------------------------------------------------------------------------------------

_LEAVES: list[Choice] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats()),
    (pa.string(), st.text(max_size=4)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.decimal128(5, 2), _decimals(5, 2)),
    (pa.null(), st.none()),
]


@st.composite
def _nested(draw: st.DrawFn, depth: int) -> Choice:
    """A type of structs, lists and maps, and its values."""
    form = (
        draw(st.sampled_from(["leaf", "list", "large list", "pairs", "struct", "map"])) if depth else "leaf"
    )
    if form == "leaf":
        leaf: Choice = draw(st.sampled_from(_LEAVES))
        return leaf
    if form == "struct":
        names = draw(
            st.lists(
                st.sampled_from(["a", "b", "element", "key", "list"]), min_size=1, max_size=3, unique=True
            )
        )
        fields, values = [], {}
        for name in names:
            field, strategy = draw(_field(name, depth - 1))
            fields.append(field)
            values[name] = strategy
        return pa.struct(fields), st.fixed_dictionaries(values)
    if form == "map":
        kind, strategy = draw(_nested(depth - 1))
        pairs = st.tuples(st.text(max_size=2), st.none() | strategy)
        return pa.map_(pa.string(), kind), st.lists(pairs, max_size=3, unique_by=lambda pair: pair[0])
    field, strategy = draw(_field("element", depth - 1))
    if form == "pairs":
        return pa.list_(field, 2), st.lists(strategy, min_size=2, max_size=2)
    kind = pa.list_(field) if form == "list" else pa.large_list(field)
    return kind, st.lists(strategy, max_size=3)


@st.composite
def _field(draw: st.DrawFn, name: str, depth: int) -> tuple[pa.Field, st.SearchStrategy[Any]]:
    kind, strategy = draw(_nested(depth))
    # pyarrow cannot read back a required list of fixed size below a struct that is null.
    nullable = kind == pa.null() or pa.types.is_fixed_size_list(kind) or draw(st.booleans())
    return pa.field(name, kind, nullable), st.none() | strategy if nullable else strategy


@st.composite
def _nested_table(draw: st.DrawFn, max_rows: int) -> pa.Table:
    length = draw(st.integers(0, max_rows))
    drawn = draw(st.lists(_field("c", 3), min_size=1, max_size=2))
    fields, arrays = [], []
    for at, (field, values) in enumerate(drawn):
        margin = draw(st.integers(0, 3))
        rows = draw(st.lists(values, min_size=length + 2 * margin, max_size=length + 2 * margin))
        fields.append(field.with_name(f"c{at}"))
        arrays.append(pa.array(rows, field.type).slice(margin, length))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


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


async def _write(batches: Sequence[pa.Table], schema: pa.Schema, way: dict[str, Any]) -> bytes:
    store = MemoryStore()
    async with rpq.create((store, "file"), schema, **way) as writer:
        for batch in batches:
            await writer.write(batch)
    return bytes((await store.read_tail("file", 1 << 40)).data)


@pytest.fixture(scope="session")
def flat_tables() -> Callable[..., st.SearchStrategy[pa.Table]]:
    """Tables of flat columns of any type, or of the types that are given."""

    def strategy(max_rows: int = 40, choices: Sequence[Choice] = FLAT) -> st.SearchStrategy[pa.Table]:
        return _flat_table(max_rows, choices)

    return strategy


@pytest.fixture(scope="session")
def nested_tables() -> Callable[..., st.SearchStrategy[pa.Table]]:
    """Tables of structs, lists and maps, three deep."""
    return _nested_table


@pytest.fixture(scope="session")
def ways() -> st.SearchStrategy[dict[str, Any]]:
    """Options of `create`."""
    return WAYS


@pytest.fixture(scope="session")
def written() -> Callable[..., bytes]:
    """The bytes of a file of some batches."""

    def write(batches: Sequence[pa.Table], schema: pa.Schema, way: dict[str, Any]) -> bytes:
        return asyncio.run(_write(batches, schema, way))

    return write


@pytest.fixture(scope="session")
def read() -> Callable[..., pa.Table]:
    """Our reader's table of some bytes; the options are those of `File.read`."""

    async def read_bytes(data: bytes, options: dict[str, Any]) -> pa.Table:
        store = MemoryStore()
        await store.put("file", data)
        async with rpq.open((store, "file")) as file:
            return pa.table(await file.read(**options))

    def read_and_validate(data: bytes, **options: Any) -> pa.Table:
        table = asyncio.run(read_bytes(data, options))
        table.validate(full=True)
        return table

    return read_and_validate


@pytest.fixture(scope="session")
def assert_same() -> Callable[[pa.Table, pa.Table], None]:
    """Equal to the last bit, and of the types that are expected back."""

    def check(found: pa.Table, expected: pa.Table) -> None:
        plain = pa.schema([field.with_type(plain_type(field.type)) for field in expected.schema])
        assert found.schema.equals(plain)
        assert found.num_rows == expected.num_rows
        for name in expected.column_names:
            wanted = expected[name]
            if wanted.type != found[name].type:
                wanted = wanted.cast(found[name].type)
            assert bits(found[name]).equals(bits(wanted)), name

    return check
