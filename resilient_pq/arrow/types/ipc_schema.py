"""Reading the schema message of Arrow IPC, whose bytes come out of files and are hostile.

The message is a flatbuffer (Arrow, format/Message.fbs and format/Schema.fbs): tables that point at each other
by offsets. Every offset is checked against the message, and what may be read in all is bounded by its size,
since hostile tables can share their parts any number of times. nanoarrow's own reader is not used: there are
messages that it does not survive.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from resilient_pq.arrow.types.field import MAX_NESTING, Field

_CONTINUATION: Final = 0xFFFFFFFF
_SCHEMA_HEADER: Final = 1
_UNITS: Final = "smun"
_FACTOR: Final = 4  # How much may be read of a message, in times its size: its parts may be shared, but not without end
_TABLE_BYTES: Final = 8
_COLUMNS: Final = 1  # The number of a schema's columns in its table
_INTEGERS: Final = {code: struct.Struct(f"<{code}") for code in "BHIhiq"}
_VERSIONS: Final = (3, 4)  # Versions of the metadata that are still read: V4 and V5
#: What a table may have, by number: an integer of `struct`, a text, a table, or a vector of tables or integers.
Shape = Mapping[int, str]
_SCALARS: Final = ("B", "h", "i", "q")
_SIZES: Final = {"B": 1, "h": 2, "i": 4, "q": 8, "t": 4, "v": 4}
_MESSAGE: Final = {0: "h", 1: "B", 2: "table", 3: "q", 4: "vt"}
_SCHEMA: Final = {0: "h", 1: "vt", 2: "vt", 3: "vq"}
_FIELD: Final = {0: "text", 1: "B", 2: "B", 3: "table", 4: "table", 5: "vt", 6: "vt"}
_DICTIONARY: Final = {0: "q", 1: "table", 2: "B", 3: "h"}
_PAIR: Final = {0: "text", 1: "text"}
_INTEGER: Final = {0: "i", 1: "B"}


class SchemaMessage:
    """A schema message, whose fields are read one by one: a file may have thousands, of which few are wanted."""

    def __init__(self, message: bytes) -> None:
        """Find the fields; a ValueError where the message is damaged as a whole."""
        start = 8 if len(message) >= 8 and int.from_bytes(message[:4], "little") == _CONTINUATION else 4
        root = _Reader(message[start:]).root()
        if root.number(1, "B") != _SCHEMA_HEADER:
            raise ValueError("the message is no schema")
        schema = root.table(2)
        if schema is None:
            raise ValueError("the message has no header")
        self._schema = schema
        #: Number of columns; each takes at least the four bytes of its offset. The flatbuffer, and where it lists them.
        self.num_columns = min(schema.count(_COLUMNS), len(message) // 4)
        self.listed = schema.reader.data, schema.target(_COLUMNS) or 0

    def column(self, position: int) -> Field | None:
        """The field of a column; None where it is damaged, or of a type that no column is written from."""
        try:
            return _field(self._schema.element(_COLUMNS, position), depth=0)
        except ValueError:
            return None


def is_whole(message: bytes) -> bool:
    """Whether a schema message is one to every library: all of it, types that no column is written from included."""
    # Libraries refuse files for a damaged one; where it is not proven to be whole, it is better left out.
    marked = int.from_bytes(message[:4], "little") == _CONTINUATION
    body, size = (message[8:], message[4:8]) if marked else (message[4:], message[:4])
    length = int.from_bytes(size, "little")
    try:
        if not 0 < length <= len(body):
            return False
        root = _Reader(body[:length]).root()
        root.verify(_MESSAGE)
        schema = root.table(2)
        if schema is None or root.number(1, "B") != _SCHEMA_HEADER or root.number(3, "q"):
            return False
        schema.verify(_SCHEMA)
        if not (root.number(0, "h") in _VERSIONS and schema.number(0, "h") in (0, 1) and schema.has(_COLUMNS)):
            return False
        _verify_pairs(root, 4)
        _verify_pairs(schema, 2)
        for field in schema.tables(_COLUMNS):
            _verify_field(field, depth=0)
    except ValueError:
        return False
    return True


class _Reader:
    """The bytes of a flatbuffer, and how much of them may still be read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = _FACTOR * len(data)

    def root(self) -> _Table:
        return _Table(self, self.unpack("I", 0))

    def unpack(self, code: str, at: int) -> int:
        """An integer at an offset."""
        integer = _INTEGERS[code]
        if not 0 <= at <= len(self.data) - integer.size:
            raise ValueError("an offset leads out of the message")
        value: int = integer.unpack_from(self.data, at)[0]
        return value

    def expect(self, start: int, size: int, alignment: int) -> None:
        """Hold that so many bytes lie where they can be read at once."""
        if start % alignment or not 0 <= start <= len(self.data) - size:
            raise ValueError("a value is not where it can be read")

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise ValueError("the message refers to more than it holds")

    def string(self, at: int) -> bytes:
        size = self.unpack("I", at)
        if size > len(self.data) - at - 4:
            raise ValueError("a string leads out of the message")
        self.spend(size)
        return self.data[at + 4 : at + 4 + size]


class _Table:
    """A table of a flatbuffer: fields by number, any of which may be left out."""

    def __init__(self, reader: _Reader, at: int) -> None:
        reader.spend(_TABLE_BYTES)
        self.reader = reader
        self.at = at
        self.offsets_at = at - reader.unpack("i", at)
        self.offsets_size = reader.unpack("H", self.offsets_at)

    def verify(self, shape: Shape) -> None:
        """Check that a generic reader of FlatBuffers can read the table and what it points at."""
        reader = self.reader
        reader.expect(self.at, 4, 4)
        reader.expect(self.offsets_at, 4, 2)
        reader.expect(self.offsets_at, self.offsets_size, 2)
        if self.offsets_size % 2:
            raise ValueError("the offsets of a table end within one")
        for number, kind in shape.items():
            place = self._place(number)
            if place is None:
                continue
            reader.expect(place, size := _SIZES[kind[0]], size)
            if kind in _SCALARS:
                continue
            target = place + reader.unpack("I", place)
            if target == place:
                raise ValueError("an offset leads to itself")
            if kind == "text":
                reader.expect(target, 4, 4)
                length = len(reader.string(target))
                reader.expect(target + 4 + length, 1, 1)
                if reader.data[target + 4 + length]:
                    raise ValueError("a string does not end")
            elif kind != "table":
                width = _SIZES[kind[1]]
                reader.expect(target, 4, 4)
                reader.expect(target + 4, width * reader.unpack("I", target), 1)

    def _place(self, number: int) -> int | None:
        entry = 4 + 2 * number
        if entry + 2 > self.offsets_size:
            return None
        offset = self.reader.unpack("H", self.offsets_at + entry)
        return self.at + offset if offset else None

    def target(self, number: int) -> int | None:
        place = self._place(number)
        return None if place is None else place + self.reader.unpack("I", place)

    def has(self, number: int) -> bool:
        return self._place(number) is not None

    def number(self, number: int, code: str, default: int = 0) -> int:
        """An integer, `code` being that of `struct`."""
        place = self._place(number)
        return default if place is None else self.reader.unpack(code, place)

    def string(self, number: int) -> bytes:
        """A string; empty where there is none."""
        target = self.target(number)
        return b"" if target is None else self.reader.string(target)

    def table(self, number: int) -> _Table | None:
        """A table, or the table of a union."""
        target = self.target(number)
        return None if target is None else _Table(self.reader, target)

    def tables(self, number: int) -> Iterator[_Table]:
        """The tables of a vector."""
        for index in range(self.count(number)):
            yield self.element(number, index)

    def count(self, number: int) -> int:
        """How many tables a vector says it has."""
        target = self.target(number)
        return 0 if target is None else self.reader.unpack("I", target)

    def integers(self, number: int) -> list[int]:
        """The integers of a vector of those of four bytes."""
        target = self.target(number) or 0
        return [self.reader.unpack("I", target + 4 + 4 * index) for index in range(self.count(number))]

    def element(self, number: int, index: int) -> _Table:
        """One table of a vector that has it."""
        target = self.target(number)
        assert target is not None
        place = target + 4 + 4 * index
        return _Table(self.reader, place + self.reader.unpack("I", place))


def _field(table: _Table, depth: int) -> Field:
    if depth > MAX_NESTING:
        raise ValueError("the schema is nested too deeply")
    kind = table.table(3)
    format_of = _FORMATS.get(table.number(2, "B"))
    if kind is None or format_of is None:
        raise ValueError("the type of a field is missing or unknown")
    format = format_of(kind)
    field = Field(
        name=table.string(0).decode(),
        format=format,
        nullable=bool(table.number(1, "B")),
        children=tuple(_field(child, depth + 1) for child in table.tables(5)),
        metadata=tuple((pair.string(0), pair.string(1)) for pair in table.tables(6)),
        keys_sorted=format == "+m" and bool(kind.number(0, "B")),
    )
    encoding = table.table(4)
    if encoding is None:
        return field
    indices, ordered = encoding.table(1), bool(encoding.number(2, "B"))
    values = replace(field, name="", metadata=())
    format = "i" if indices is None else _integer(indices)  # Schema.fbs: without a type they are of 32 bits
    return replace(field, format=format, children=(), dictionary=values, keys_sorted=False, ordered=ordered)


def _verify_field(table: _Table, depth: int) -> None:
    """Hold that a field is one to every library."""
    if depth > MAX_NESTING:
        raise ValueError("the schema is nested too deeply")
    table.verify(_FIELD)
    number, kind, dictionary = table.number(2, "B"), table.table(3), table.table(4)
    if kind is None or number not in _SHAPES:
        raise ValueError("the type of a field is missing or unknown")
    kind.verify(_SHAPES[number])
    if number in _FORMATS:
        _FORMATS[number](kind)
    if dictionary is not None:
        dictionary.verify(_DICTIONARY)
        indices = dictionary.table(1)
        if indices is None:
            raise ValueError("the indices of a dictionary have no type")
        indices.verify(_INTEGER)
        _integer(indices)
    _verify_pairs(table, 6)
    children = list(table.tables(5))
    for child in children:
        _verify_field(child, depth + 1)
    if len(children) != _CHILDREN.get(number, len(children)) or not _may_be(number, kind, children):
        raise ValueError("a type has parameters that it cannot have")


def _verify_pairs(table: _Table, number: int) -> None:
    """Hold that key-value metadata can be read."""
    for pair in table.tables(number):
        pair.verify(_PAIR)
        if not (pair.has(0) and pair.has(1)):
            raise ValueError("metadata have no key, or no value")


def _may_be(number: int, kind: _Table, children: Sequence[_Table]) -> bool:
    """Whether a type, whose parts are whole, is one."""
    match number:
        case 7:
            most = {32: 9, 64: 18, 128: 38, 256: 76}.get(kind.number(2, "i", 128), 0)
            return 1 <= kind.number(0, "i") <= most
        case 9:
            return kind.number(1, "i", 32) == (32 if kind.number(0, "h", 1) < 2 else 64)
        case 11:
            return kind.number(0, "h") in (0, 1, 2)
        case 14:
            ids = kind.integers(1)
            return kind.number(0, "h") in (0, 1) and len(ids) == len(children) and max(ids, default=0) < 128
        case 15:
            return kind.number(0, "i") < 2**28
        case 17:
            entries = children[0]
            return entries.number(2, "B") == 13 and entries.count(5) == 2 and not entries.number(1, "B")
        case 22:
            ends = children[0].table(3)
            return children[0].number(2, "B") == 2 and ends is not None and _integer(ends) in "sil"
    return True


def _constant(format: str) -> Callable[[_Table], str]:
    return lambda _: format


def _integer(table: _Table) -> str:
    letters = {8: "c", 16: "s", 32: "i", 64: "l"}
    letter = letters.get(table.number(0, "i"))
    if letter is None:
        raise ValueError("an integer has an unknown width")
    return letter if table.number(1, "B") else letter.upper()


def _decimal(table: _Table) -> str:
    precision, scale, bits = table.number(0, "i"), table.number(1, "i"), table.number(2, "i", 128)
    return f"d:{precision},{scale}" if bits == 128 else f"d:{precision},{scale},{bits}"


def _with_unit(head: str, letters: str, default: int = 0) -> Callable[[_Table], str]:
    """A format that ends with the letter of a unit or a precision, the first field of the type."""

    def format_of(table: _Table) -> str:
        index = table.number(0, "h", default)
        if not 0 <= index < len(letters):
            raise ValueError("a unit is unknown")
        return head + letters[index]

    return format_of


def _timestamp(table: _Table) -> str:
    return f"{_with_unit('ts', _UNITS)(table)}:{table.string(1).decode()}"


def _with_size(head: str) -> Callable[[_Table], str]:
    """A format that ends with a size, the first field of the type."""

    def format_of(table: _Table) -> str:
        if (size := table.number(0, "i")) < 0:
            raise ValueError("a size is negative")
        return f"{head}:{size}"

    return format_of


#: By the number of a type in the union `Type` of Schema.fbs; unions and run-end encoding are not here.
_FORMATS: dict[int, Callable[[_Table], str]] = {
    1: _constant("n"),
    2: _integer,
    3: _with_unit("", "efg"),
    4: _constant("z"),
    5: _constant("u"),
    6: _constant("b"),
    7: _decimal,
    8: _with_unit("td", "Dm", 1),
    9: _with_unit("tt", _UNITS, 1),
    10: _timestamp,
    11: _with_unit("ti", "MDn"),
    12: _constant("+l"),
    13: _constant("+s"),
    15: _with_size("w"),
    16: _with_size("+w"),
    17: _constant("+m"),
    18: _with_unit("tD", _UNITS, 1),
    19: _constant("Z"),
    20: _constant("U"),
    21: _constant("+L"),
    23: _constant("vz"),
    24: _constant("vu"),
    25: _constant("+vl"),
    26: _constant("+vL"),
}
#: What the tables of types have, by the same numbers.
_SHAPES: Final[Mapping[int, Shape]] = {
    **{number: {} for number in range(1, 27)},
    2: _INTEGER, 3: {0: "h"}, 7: {0: "i", 1: "i", 2: "i"}, 8: {0: "h"}, 9: {0: "h", 1: "i"}, 10: {0: "h", 1: "text"},
    11: {0: "h"}, 14: {0: "h", 1: "vi"}, 15: {0: "i"}, 16: {0: "i"}, 17: {0: "B"}, 18: {0: "h"},
}  # fmt: skip
#: How many children types have that do not take any number of them.
_CHILDREN: Final = {12: 1, 16: 1, 17: 1, 21: 1, 22: 2, 25: 1, 26: 1}
