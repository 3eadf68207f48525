"""The reader of schema messages: what pyarrow wrote is read, what somebody made up is refused."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.arrow.types.field import Field
from resilient_pq.arrow.types.ipc_schema import SchemaMessage, is_whole

SCHEMA = pa.schema(
    [
        pa.field("a", pa.large_string(), nullable=False, metadata={"k": "v", "l": ""}),
        pa.field("", pa.list_(pa.field("x", pa.int8(), nullable=False), 3)),
        pa.field("c", pa.timestamp("us", "Europe/Berlin")),
        pa.field("d", pa.decimal256(40, 2)),
        pa.field("m", pa.map_(pa.string(), pa.uint64(), keys_sorted=True)),
        pa.field("s", pa.struct({"x": pa.duration("s"), "y": pa.float16(), "z": pa.date64()})),
        pa.field("v", pa.list_view(pa.string_view())),
        pa.field("n", pa.null()),
    ]
)
MESSAGE = SCHEMA.serialize().to_pybytes()


def read_schema_message(message: bytes) -> list[Field | None]:
    found = SchemaMessage(message)
    return [found.column(position) for position in range(found.num_columns)]


def test_a_column_is_read_without_those_before_it() -> None:
    found = SchemaMessage(MESSAGE)
    assert found.column(3) == Field.of(SCHEMA).children[3]


def test_every_field_as_pyarrow_wrote_it() -> None:
    fields = read_schema_message(MESSAGE)
    assert fields == list(Field.of(SCHEMA).children)


def test_the_older_message_without_a_continuation_marker() -> None:
    assert read_schema_message(MESSAGE[4:]) == read_schema_message(MESSAGE)


def test_dictionaries() -> None:
    message = pa.schema({"c": pa.dictionary(pa.int8(), pa.large_string(), ordered=True)}).serialize().to_pybytes()
    assert read_schema_message(message) == [Field("c", "c", dictionary=Field("", "U"), ordered=True)]


def test_types_that_no_column_is_written_from() -> None:
    schema = pa.schema(
        {
            "union": pa.dense_union([pa.field("a", pa.int8())]),
            "runs": pa.run_end_encoded(pa.int32(), pa.string()),
            "interval": pa.month_day_nano_interval(),
            "inside": pa.list_(pa.month_day_nano_interval()),
            "known": pa.int8(),
        }
    )
    assert read_schema_message(schema.serialize().to_pybytes()) == [
        None,
        None,
        Field("interval", "tin"),
        Field("inside", "+l", children=(Field("item", "tin"),)),
        Field("known", "c"),
    ]


#: Types that Parquet has no columns of, and those with parameters of their own.
OTHER_TYPES = pa.schema(
    {
        "union": pa.dense_union([pa.field("a", pa.int8())]),
        "runs": pa.run_end_encoded(pa.int32(), pa.string()),
        "interval": pa.month_day_nano_interval(),
        "dictionary": pa.dictionary(pa.int8(), pa.string()),
        "time": pa.time64("ns"),
        "fixed": pa.binary(5),
    },
    {"key": "value"},
)


@pytest.mark.parametrize(
    "schema", [SCHEMA, OTHER_TYPES, pa.schema([]), pa.schema({f"c{i}": pa.int8() for i in range(5000)})]
)
def test_what_pyarrow_wrote_is_whole(schema: pa.Schema) -> None:
    message = schema.serialize().to_pybytes()
    assert is_whole(message) and is_whole(message[4:])


@pytest.mark.parametrize("schema", [SCHEMA, OTHER_TYPES], ids=["columns", "other types"])
def test_no_message_is_whole_that_pyarrow_refuses(schema: pa.Schema) -> None:
    """Each bit is flipped, and the message cut anywhere."""
    message = schema.serialize().to_pybytes()
    damaged = [message[:size] for size in range(len(message))]
    for bit in range(8 * len(message)):
        changed = bytearray(message)
        changed[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(changed))
    whole = [each for each in damaged if is_whole(each)]
    for each in whole:
        pa.ipc.read_schema(pa.py_buffer(each))
    assert 0.1 * len(damaged) < len(whole) < 0.4 * len(damaged), "names and numbers may be others"


def test_another_kind_of_message() -> None:
    batch = pa.record_batch({"a": [1]}).serialize().to_pybytes()
    with pytest.raises(ValueError, match="no schema"):
        read_schema_message(batch)


@pytest.mark.parametrize("size", range(0, len(MESSAGE), 7))
def test_a_message_cut_short(size: int) -> None:
    try:
        fields = read_schema_message(MESSAGE[:size])
    except ValueError:
        return
    # The end may hold nothing but some columns.
    assert all(field is None or field in Field.of(SCHEMA).children for field in fields)


@given(st.lists(st.tuples(st.integers(0, len(MESSAGE) - 1), st.integers(0, 255)), min_size=1, max_size=8))
@settings(deadline=None, max_examples=400)
def test_changed_bytes_are_read_or_refused(changes: list[tuple[int, int]]) -> None:
    changed = bytearray(MESSAGE)
    for at, value in changes:
        changed[at] = value
    try:
        read_schema_message(bytes(changed))
    except ValueError:
        return


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_made_up_bytes_are_refused(data: bytes) -> None:
    try:
        assert all(field is None for field in read_schema_message(data))
    except ValueError:
        return


def shared_fields(depth: int) -> bytes:
    """A message with one column, a list that has twice the same child, and so on: a tree out of a few bytes."""
    message = bytearray(4)

    def table(fields: dict[int, tuple[str, int]]) -> int:
        """A table behind its offsets; offsets to what comes later are patched in by `point`."""
        offsets = bytearray(2 * (max(fields) + 1))
        body = bytearray(4)
        for number, (code, value) in fields.items():
            struct.pack_into("<H", offsets, 2 * number, len(body))
            places[number] = len(body)
            body += struct.pack(f"<{code}", value)
        layout = struct.pack("<HH", 4 + len(offsets), len(body)) + offsets
        at = len(message) + len(layout)
        struct.pack_into("<i", body, 0, len(layout))
        message.extend(layout + body)
        return at

    def point(place: int) -> None:
        struct.pack_into("<I", message, place, len(message) - place)

    places: dict[int, int] = {}
    struct.pack_into("<I", message, 0, 0)
    root = table({1: ("B", 1), 2: ("I", 0)})
    struct.pack_into("<I", message, 0, root)
    # Here and below: a reference is patched once it is known where the table that it names will be.
    header_place = root + places[2]
    schema = table({1: ("I", 0)})
    struct.pack_into("<I", message, header_place, schema - header_place)
    vectors = [schema + places[1]]
    entries = 1
    for _ in range(depth):
        for place in vectors:
            point(place)
        message.extend(struct.pack("<I", entries))
        starts = [len(message) + 4 * index for index in range(entries)]
        message.extend(bytes(4 * entries))
        field = table({2: ("B", 12), 3: ("I", 0), 5: ("I", 0)})
        for place in starts:
            struct.pack_into("<I", message, place, field - place)
        kind_place, vectors = field + places[3], [field + places[5]]
        kind = table({0: ("B", 0)})
        struct.pack_into("<I", message, kind_place, kind - kind_place)
        entries = 2
    point(vectors[0])
    message.extend(struct.pack("<I", 0))
    return struct.pack("<II", 0xFFFFFFFF, len(message)) + bytes(message)


def test_the_made_up_message_is_one() -> None:
    (field,) = read_schema_message(shared_fields(2))
    assert field is not None
    assert str(field) == "list<: list not null, : list not null>"


def test_shared_tables_cannot_be_read_without_end() -> None:
    assert read_schema_message(shared_fields(40)) == [None]


def test_fields_nested_too_deeply() -> None:
    kind = pa.int8()
    for _ in range(160):
        kind = pa.list_(kind)
    assert read_schema_message(pa.schema({"a": kind, "b": pa.int8()}).serialize().to_pybytes()) == [
        None,
        Field("b", "c"),
    ]
