"""Samples of Trevni, made and taken apart without our code: files of Avro's last version, as its writer makes them."""

from __future__ import annotations

import bz2
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count, groupby
from pathlib import Path
from typing import Any, Literal

import cramjam
import pyarrow as pa

from resilient_pq.io.memory_store import MemoryStore

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


def body(table: Sequence[tuple[int, int, int]], blocks: Sequence[bytes]) -> bytes:
    """A column: the table of its blocks, with rows, size and stored size of each, and the blocks."""
    return b"".join([struct.pack("<I", len(table)), *(struct.pack("<III", *each) for each in table), *blocks])


def assembled(
    version: int,
    num_rows: int,
    said: Mapping[str, bytes],
    columns: Sequence[tuple[Mapping[str, bytes], bytes]],
) -> bytes:
    """A file of columns, each what it says of itself and its body."""
    head = b"Trv" + bytes([version]) + struct.pack("<QI", num_rows, len(columns)) + pairs(said)
    head += b"".join(pairs(described) for described, _ in columns)
    sizes = accumulate([len(head) + 8 * len(columns), *(len(data) for _, data in columns)])
    starts = [struct.pack("<Q", start) for start, _ in zip(sizes, columns, strict=False)]
    return b"".join([head, *starts, *(data for _, data in columns)])


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
            size += sum(len(self.values(slot)) + self.is_array for slot in row)
        return [(len(rows), self.block(rows)) for rows in found]


SIMPLE = {
    pa.null(): "null", pa.bool_(): "boolean", pa.int32(): "int", pa.int64(): "long", pa.float32(): "float",
    pa.float64(): "double", pa.string(): "string", pa.binary(): "bytes",
}  # fmt: skip
#: What takes a value, or the values of a length.
Take = Callable[[Any], object]


def simple_of(kind: Any, named: str) -> tuple[str, Any] | None:
    """How values of a type are stored, and its Avro schema; None where others lie in it."""
    if pa.types.is_fixed_size_binary(kind):
        return "bytes", {"type": "fixed", "name": named, "size": kind.byte_width}
    if pa.types.is_date32(kind):
        return "int", {"type": "int", "logicalType": "date"}
    return (SIMPLE[kind], SIMPLE[kind]) if kind in SIMPLE else None


def branch_of(kind: Any, named: str) -> str:
    """What Avro calls the branch of a union: a type that has a name by that."""
    if pa.types.is_struct(kind) or pa.types.is_fixed_size_binary(kind):
        return named
    simple = simple_of(kind, named)
    return simple[0] if simple else "map" if pa.types.is_map(kind) else "array"


class Records:
    """The columns of a schema of Arrow, and its Avro schema; types are named by numbers."""

    def __init__(self, schema: Any) -> None:
        self.columns: list[Column] = []
        self.numbers = count()
        self.avro, self.take_row = self.value(pa.field("", pa.struct(list(schema)), False), "", None)

    def take(self, row: Mapping[str, Any]) -> None:
        """A row."""
        for column in self.columns:
            column.rows.append([])
        self.take_row(row)

    def value(self, node: Any, path: str, parent: str | None, named: str | None = None) -> tuple[Any, Take]:
        """The Avro schema of a value, and what takes one."""
        kind, named = node.type, named or f"T{next(self.numbers)}"
        if node.nullable and kind != pa.null():
            below = f"{path}/{branch_of(kind, named)}"
            items, take = self.elements(node.with_nullable(False), below, parent, named)
            return ["null", items], lambda value: take([] if value is None else [value])
        if simple := simple_of(kind, named):
            column = self.column(path, simple[0], parent)
            return simple[1], lambda value: column.rows[-1].append([stored(value)])
        if pa.types.is_struct(kind):
            inside = [(each.name, *self.value(each, f"{path}#{each.name}".lstrip("#"), parent)) for each in kind]
            fields = [{"name": name, "type": type_of} for name, type_of, _ in inside]
            schema = {"type": "record", "name": named, "fields": fields}
            return schema, lambda value: [take(value[name]) for name, _, take in inside]
        if pa.types.is_map(kind):
            return self.map(kind, f"{path}>", parent)
        items, take = self.elements(kind.value_field, f"{path}[]", parent)
        return {"type": "array", "items": items}, take

    def map(self, kind: Any, path: str, parent: str | None) -> tuple[Any, Take]:
        lengths, keys = self.column(path, "null", parent, True), self.column(f"{path}key", "string", path)
        values, take = self.value(kind.item_field, f"{path}value", path)

        def take_map(items: Any) -> None:
            lengths.rows[-1].append([None] * len(items))
            for key, item in items:
                keys.rows[-1].append([key])
                take(item)

        return {"type": "map", "values": values}, take_map

    def elements(self, node: Any, path: str, parent: str | None, named: str | None = None) -> tuple[Any, Take]:
        """What lies in a column with lengths: its own values where these are simple, else columns."""
        named = named or f"T{next(self.numbers)}"
        simple = None if node.nullable and node.type != pa.null() else simple_of(node.type, named)
        column = self.column(path, simple[0] if simple else "null", parent, True)
        if simple:
            return simple[1], lambda values: column.rows[-1].append(list(map(stored, values)))
        schema, take = self.value(node, path, path, named)

        def take_all(values: Any) -> None:
            column.rows[-1].append([None] * len(values))
            for value in values:
                take(value)

        return schema, take_all

    def column(self, *described: Any) -> Column:
        self.columns.append(Column(*described))
        return self.columns[-1]


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
    rows_of = data if isinstance(data, pa.Table) else pa.table(data)
    records = Records(rows_of.schema)
    for batch in rows_of.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            records.take(row)
    said = {"trevni.codec": codec.encode(), "trevni.checksum": checksum.encode()}
    said["avro.schema"] = json.dumps(records.avro, separators=(",", ":")).encode()
    columns = []
    for column in records.columns:
        blocks = [(rows, raw, CODECS[codec](raw), CHECKSUMS[checksum](raw)) for rows, raw in column.blocks(block_bytes)]
        table = [(rows, len(raw), len(packed)) for rows, raw, packed, _ in blocks]
        columns.append((column.described(), body(table, [packed + crc for *_, packed, crc in blocks])))
    return assembled(2, rows_of.num_rows, {**(metadata or {}), **said}, columns)


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
