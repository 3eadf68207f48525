"""Samples of Trevni, made and taken apart without our code: files of Avro's last version, as its writer makes them."""

from __future__ import annotations

import bz2
import json
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from pathlib import Path
from typing import Any, Literal

import cramjam
import pyarrow as pa

from resilient_pq.io.memory import MemoryStore

CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
    "bzip2": bz2.compress,
}
CHECKSUMS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda _: b"",
    "crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "crc-32": lambda data: zlib.crc32(data).to_bytes(4, "little"),
}


def zint(value: int) -> bytes:
    """A number as Avro and Trevni write it: its sign last, seven bits a byte, the lowest first."""
    rest = value * 2 if value >= 0 else -value * 2 - 1
    out = b""
    while rest > 127:
        out += bytes([rest % 128 + 128])
        rest //= 128
    return out + bytes([rest])


def pairs(found: Mapping[str, bytes]) -> bytes:
    """Pairs of metadata."""
    return zint(len(found)) + b"".join(zint(len(k)) + k.encode() + zint(len(v)) + v for k, v in found.items())


def string(value: bytes) -> bytes:
    """Bytes with their length before them."""
    return zint(len(value)) + value


def packed(values: Sequence[bool]) -> bytes:
    """Booleans, the first in the lowest bit of the first byte."""
    return sum(value << at for at, value in enumerate(values)).to_bytes((len(values) + 7) // 8, "little")


@dataclass
class Column:
    """What a column says of itself, and of each row its lengths, and the values of each length or of the row."""

    name: str
    type: str
    parent: str | None = None
    is_array: bool = False
    rows: list[list[list[Any]]] = field(default_factory=list)

    def described(self) -> dict[str, bytes]:
        found = {"trevni.name": self.name.encode(), "trevni.type": self.type.encode()}
        if self.parent is not None:
            found["trevni.parent"] = self.parent.encode()
        return found | {"trevni.array": b""} if self.is_array else found

    def values(self, values: Sequence[Any]) -> bytes:
        """Values one behind the other."""
        match self.type:
            case "null":
                return b""
            case "boolean":
                return packed(values)
            case "int" | "long":
                return b"".join(map(zint, values))
            case "string" | "bytes":
                return b"".join(string(v.encode() if isinstance(v, str) else v) for v in values)
        return struct.pack(f"<{len(values)}{self.type[0]}", *values)

    def block(self, rows: Sequence[list[list[Any]]]) -> bytes:
        """Some rows; lengths of 0 and of 1 with nothing behind them are runs."""
        slots = [slot for row in rows for slot in row]
        if not self.is_array:
            return self.values([value for slot in slots for value in slot])
        written = ((len(slot), self.values(slot)) for slot in slots)
        out = b""
        for (length, data), alike in groupby(written):
            times = len(list(alike))
            if length > 1 or data:
                out += (zint(length) + data) * times
            else:
                out += zint(length if times == 1 else 3 - length - 2 * times)
        return out

    def blocks(self, block_bytes: int) -> list[tuple[int, bytes]]:
        """Blocks of so many bytes, a length being one, and their rows."""
        found: list[list[list[list[Any]]]] = []
        size = block_bytes
        for row in self.rows:
            if size >= block_bytes:
                found.append([])
                size = 0
            found[-1].append(row)
            plain = self.type != "boolean" or self.is_array
            size += sum(len(self.values(slot)) if plain else 0 for slot in row) + len(row) * self.is_array
        return [(len(rows), self.block(rows)) for rows in found]


class Records:
    """The columns of a schema of Arrow, its Avro schema, and what takes the values of rows."""

    SIMPLE = (
        (pa.types.is_null, "null"), (pa.types.is_boolean, "boolean"), (pa.types.is_int32, "int"),
        (pa.types.is_int64, "long"), (pa.types.is_float32, "float"), (pa.types.is_float64, "double"),
        (pa.types.is_string, "string"), (pa.types.is_binary, "bytes"), (pa.types.is_date32, "int"),
        (pa.types.is_fixed_size_binary, "bytes"),
    )  # fmt: skip

    def __init__(self, schema: Any) -> None:
        self.columns: list[Column] = []
        self.names: dict[str, str] = {}
        fields = [(each, self.value(each, each.name, None)) for each in schema]
        self.avro = {
            "type": "record",
            "name": "Row",
            "fields": [{"name": f.name, "type": v[0]} for f, v in fields],
        }
        self.takes = [(each.name, take) for each, (_, take) in fields]

    def take(self, row: Mapping[str, Any]) -> None:
        """A row."""
        for column in self.columns:
            column.rows.append([])
        for name, take in self.takes:
            take(row[name])

    def column(self, *described: Any) -> Column:
        self.columns.append(Column(*described))
        return self.columns[-1]

    def value(self, node: Any, path: str, parent: str | None) -> tuple[Any, Callable[[Any], None]]:
        """The Avro schema of a value, and what takes one."""
        if node.nullable and not pa.types.is_null(node.type):
            node = node.with_nullable(False)
            items, take = self.elements(node, f"{path}/{self.branch(node, path)}", parent)
            return ["null", items], lambda value: take([] if value is None else [value])
        if (simple := self.simple(node.type, path)) is not None:
            column = self.column(path, simple[0], parent)
            return simple[1], lambda value: column.rows[-1].append([stored(value)])
        if pa.types.is_struct(node.type):
            inside = [(child.name, *self.value(child, f"{path}#{child.name}", parent)) for child in node.type]
            schema = {"type": "record", "name": self.named(path)}
            schema["fields"] = [{"name": name, "type": kind} for name, kind, _ in inside]
            return schema, lambda value: [take(value[name]) for name, _, take in inside] and None
        if pa.types.is_map(node.type):
            lengths = self.column(f"{path}>", "null", parent, True)
            keys = self.column(f"{path}>key", "string", f"{path}>")
            kind, take = self.value(node.type.item_field, f"{path}>value", f"{path}>")

            def take_map(value: Any) -> None:
                lengths.rows[-1].append([None] * len(value))
                for key, item in value:
                    keys.rows[-1].append([key])
                    take(item)

            return {"type": "map", "values": kind}, take_map
        items, take = self.elements(node.type.value_field, f"{path}[]", parent)
        return {"type": "array", "items": items}, take

    def elements(self, node: Any, path: str, parent: str | None) -> tuple[Any, Callable[[Any], Any]]:
        """What lies in a column with lengths: its own values where these are simple, else columns."""
        simple = None if node.nullable and not pa.types.is_null(node.type) else self.simple(node.type, path)
        if simple is not None:
            column = self.column(path, simple[0], parent, True)
            return simple[1], lambda values: column.rows[-1].append(list(map(stored, values)))
        lengths = self.column(path, "null", parent, True)
        schema, take = self.value(node, path, path)

        def take_all(values: Any) -> None:
            lengths.rows[-1].append([None] * len(values))
            for value in values:
                take(value)

        return schema, take_all

    def simple(self, kind: Any, path: str) -> tuple[str, Any] | None:
        """How values of a type are stored, and its Avro schema; None where others lie in it."""
        stored_as = next((name for is_it, name in self.SIMPLE if is_it(kind)), None)
        if pa.types.is_fixed_size_binary(kind):
            return "bytes", {"type": "fixed", "name": self.named(path), "size": kind.byte_width}
        if pa.types.is_date32(kind):
            return "int", {"type": "int", "logicalType": "date"}
        return None if stored_as is None else (stored_as, stored_as)

    def branch(self, node: Any, path: str) -> str:
        """What Avro calls the branch of a union."""
        if pa.types.is_struct(node.type) or pa.types.is_fixed_size_binary(node.type):
            return self.named(path)
        simple = self.simple(node.type, path)
        return "map" if pa.types.is_map(node.type) else "array" if simple is None else simple[0]

    def named(self, path: str) -> str:
        """A name for a type by its place, unlike all others; a branch of a union is called by its type's name."""
        head, _, tail = path.rpartition("/")
        place = head if self.names.get(head) == tail else path
        name, taken = re.sub(r"[^A-Za-z0-9_]+", "_", place), {"Row", *self.names.values()}
        numbered = (f"{name}_{number}" if number else name for number in count())
        return self.names.setdefault(place, next(each for each in numbered if each not in taken))


def stored(value: Any) -> Any:
    """A value as a column has it: dates are days."""
    return value.toordinal() - 719_163 if hasattr(value, "toordinal") else value


def trevni(
    data: Any,
    *,
    codec: Literal["null", "deflate", "snappy", "bzip2"] = "deflate",
    checksum: Literal["null", "crc32", "crc-32"] = "crc32",
    block_bytes: int = 65_536,
    metadata: Mapping[str, bytes] | None = None,
) -> bytes:
    """A file of the rows of a table of Arrow, or of a dict of columns."""
    table = data if isinstance(data, pa.Table) else pa.table(data)
    records = Records(table.schema)
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            records.take(row)
    said = {"trevni.codec": codec.encode(), "trevni.checksum": checksum.encode()}
    said["avro.schema"] = json.dumps(records.avro, separators=(",", ":")).encode()
    head = (
        b"Trv\x02"
        + struct.pack("<QI", table.num_rows, len(records.columns))
        + pairs({**(metadata or {}), **said})
    )
    bodies = []
    for column in records.columns:
        head += pairs(column.described())
        descriptors, blocks = [], []
        for rows, raw in column.blocks(block_bytes):
            blocks += [CODECS[codec](raw), CHECKSUMS[checksum](raw)]
            descriptors.append(struct.pack("<III", rows, len(raw), len(blocks[-2])))
        bodies.append(b"".join([struct.pack("<I", len(descriptors)), *descriptors, *blocks]))
    start = len(head) + 8 * len(bodies)
    for body in bodies:
        head += struct.pack("<Q", start)
        start += len(body)
    return head + b"".join(bodies)


def write_trevni(path: Path, data: Any, **options: Any) -> None:
    """As `trevni`, into a local file."""
    path.write_bytes(trevni(data, **options))


async def in_memory(data: bytes, store: MemoryStore | None = None) -> tuple[MemoryStore, str]:
    """A file in a store."""
    store = MemoryStore() if store is None else store
    sink = await store.create("f.trv")
    await sink.write(data)
    await sink.complete()
    return store, "f.trv"


@dataclass(frozen=True)
class Block:
    """A block of a column: its rows, or entries, and where its bytes lie, without the checksum."""

    first_row: int
    num_rows: int
    offset: int
    stored_size: int


def blocks_of(data: bytes | bytearray) -> dict[str, list[Block]]:
    """The blocks of each column of a file, by the grammar of the format."""
    at = 16
    (num_columns,) = struct.unpack_from("<I", data, 12)

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (value >> 1) ^ -(value & 1)

    def text() -> bytes:
        nonlocal at
        size = number()
        at += size
        return bytes(data[at - size : at])

    said, *described = [{text(): text() for _ in range(number())} for _ in range(num_columns + 1)]
    found = {}
    for column, start in zip(described, struct.unpack_from(f"<{num_columns}Q", data, at), strict=True):
        at = start + 4
        table = []
        for _ in range(*struct.unpack_from("<I", data, start)):
            table.append(struct.unpack_from("<III", data, at))
            at += 12
            if b"trevni.values" in column:
                number()  # the samples have first values of ints alone
        first, blocks = 0, []
        for rows, size, packed_size in table:
            blocks.append(Block(first, rows, at, packed_size or size))
            first += rows
            at += (packed_size or size) + 4 * (said.get(b"trevni.checksum", b"null") != b"null")
        found[column[b"trevni.name"].decode()] = blocks
    return found
