"""Trevni files that claim what they do not have: refused before room is made for it."""

from __future__ import annotations

import bz2
import json
import struct
import tracemalloc
import zlib
from typing import Any

import cramjam
import pytest
from trevni_bytes import assembled, body, in_memory, zint

import resilient_pq as rpq
from resilient_pq.trevni.blocks import column_reader

#: What a column of Avro's dialect is here: its pairs, and its blocks as rows, size, stored bytes.
Block = tuple[int, int, bytes]


def avro(
    num_rows: int,
    columns: list[tuple[dict[str, Any], list[Block]]],
    meta: dict[str, bytes] | None = None,
    version: int = 2,
) -> bytes:
    """A file of Avro's dialect."""
    bodies = [
        (
            {f"trevni.{key}": str(value).encode() for key, value in described.items()},
            body([(rows, size, len(data)) for rows, size, data in blocks], [data for _, _, data in blocks]),
        )
        for described, blocks in columns
    ]
    return assembled(version, num_rows, meta or {}, bodies)


def plain(rows: int, data: bytes) -> Block:
    return rows, len(data), data


async def read(data: bytes, **options: Any) -> list[dict[str, Any]]:
    async with rpq.open_trevni(await in_memory(data)) as file:
        return (await file.read(**options)).to_pylist()


GOOD = avro(2, [({"name": "a", "type": "int"}, [plain(2, b"\x02\x04")])])
HEADERS = {
    "no magic": b"PAR1" + GOOD[4:],
    "empty": b"",
    "short": b"Tr",
    "a later version": b"Trv\x03" + GOOD[4:],
    "rows beyond all": GOOD[:4] + b"\xff" * 8 + GOOD[12:],
    "columns beyond all": GOOD[:12] + b"\xff" * 4 + GOOD[16:],
    "pairs beyond all": GOOD[:16] + zint(2**62) + GOOD[17:],
    "pairs below none": GOOD[:16] + zint(-1) + GOOD[17:],
    "a key beyond all": GOOD[:16] + zint(1) + zint(2**40) + GOOD[17:],
    "an endless integer": GOOD[:16] + b"\x80" * 40 + GOOD[17:],
}


@pytest.mark.parametrize("name", HEADERS)
async def test_headers(name: str) -> None:
    if name == "rows beyond all":  # the column knows better
        assert await read(HEADERS[name]) == [{"a": 1}, {"a": 2}]
        return
    with pytest.raises((rpq.FormatError, rpq.UnsupportedError)):
        await read(HEADERS[name])


INT = {"name": "a", "type": "int"}
LIST = {"name": "a", "type": "null", "array": ""}
COLUMNS: dict[str, tuple[int, list[tuple[dict[str, Any], list[Block]]]]] = {
    "no name": (1, [({"type": "int"}, [plain(1, b"\0")])]),
    "no type": (1, [({"name": "a"}, [plain(1, b"\0")])]),
    "an unknown type": (1, [({"name": "a", "type": "decimal"}, [plain(1, b"\0")])]),
    "an unknown codec": (1, [({**INT, "codec": "lzma"}, [plain(1, b"\0")])]),
    "an unknown checksum": (1, [({**INT, "checksum": "md5"}, [plain(1, b"\0")])]),
    "two of one name": (1, [(INT, [plain(1, b"\0")]), (INT, [plain(1, b"\0")])]),
    "a parent that is none": (1, [({**INT, "parent": "b"}, [plain(1, b"\0")])]),
    "a parent that is no array": (
        1,
        [(INT, [plain(1, b"\0")]), ({"name": "b", "type": "int", "parent": "a"}, [plain(1, b"\0")])],
    ),
    "levels and lengths": (1, [({**LIST, "definition": 1}, [plain(1, b"\0")])]),
    "too many levels": (1, [({**INT, "definition": 256}, [plain(1, b"\0")])]),
    "levels that are none": (1, [({**INT, "definition": "x"}, [plain(1, b"\0")])]),
    "first values of arrays": (1, [({**LIST, "values": ""}, [plain(1, b"\0")])]),
    "more rows than values": (9, [(INT, [plain(9, b"\x02\x04")])]),
    "fewer rows than values": (1, [(INT, [plain(1, b"\x02\x04")])]),
    "rows of other columns": (2, [(INT, [plain(2, b"\x02\x04")]), ({"name": "b", "type": "int"}, [plain(1, b"\0")])]),
    "an int beyond 32 bits": (1, [(INT, [plain(1, b"\xff\xff\xff\xff\x7f")])]),
    "an int of six bytes": (1, [(INT, [plain(1, b"\x80\x80\x80\x80\x80\x01")])]),
    "a long beyond 64 bits": (1, [({"name": "a", "type": "long"}, [plain(1, b"\xff" * 9 + b"\x02")])]),
    "text that is none": (1, [({"name": "a", "type": "string"}, [plain(1, b"\x02\xff")])]),
    "a string below none": (1, [({"name": "a", "type": "string"}, [plain(1, b"\x01")])]),
    "a string beyond all": (1, [({"name": "a", "type": "string"}, [plain(1, zint(2**31 - 1))])]),
    "an array beyond all": (1, [({**LIST, "type": "long"}, [plain(1, zint(2**31 - 1))])]),
    "nulls beyond all": (1, [(LIST, [plain(1, zint(2**31 - 1))])]),
    "elements beyond all": (
        1,
        [(LIST, [plain(1, zint(2**31 - 1))]), ({"name": "b", "type": "int", "parent": "a"}, [plain(1, b"\0")])],
    ),
    "arrays in nulls beyond all": (
        1,
        [(LIST, [plain(1, zint(2**31 - 1))]), ({**LIST, "name": "b", "parent": "a"}, [plain(1, zint(-(2**31)))])],
    ),
    "a run beyond its rows": (2, [(LIST, [plain(2, zint(-9))])]),
    "a run in a file without": (2, [({**LIST, "codec": "null"}, [plain(2, zint(-1) + b"\0")])]),
    "twice in a union": (1, [({"name": "u/int", "type": "int", "array": ""}, [plain(1, b"\x04\x02\x02")])]),
    "a block that is not of its size": (1, [(INT, [(1, 1 << 31, b"\x02")])]),
    "a deflated bomb": (1, [({**INT, "codec": "deflate"}, [(1, 0xFFFFFFFF, zlib.compress(bytes(9))[2:-4])])]),
    "a snappy bomb": (
        1,
        [({**INT, "codec": "snappy"}, [(1, 0xFFFFFFFF, bytes(cramjam.snappy.compress_raw(bytes(9))))])],
    ),
    "a bzip2 bomb": (1, [({**INT, "codec": "bzip2"}, [(1, 0xFFFFFFFF, bz2.compress(bytes(9)))])]),
    "deflated and longer": (1, [({**INT, "codec": "deflate"}, [(1, 1, zlib.compress(bytes(9))[2:-4])])]),
    "no deflated data": (1, [({**INT, "codec": "deflate"}, [(1, 1, b"\xff\xff")])]),
    "no bzip2 data": (1, [({**INT, "codec": "bzip2"}, [(1, 1, b"\xff\xff")])]),
}


@pytest.mark.parametrize("name", COLUMNS)
async def test_columns(name: str) -> None:
    num_rows, columns = COLUMNS[name]
    data = avro(num_rows, columns, version=1 if name == "a run in a file without" else 2)
    tracemalloc.start()
    try:
        with pytest.raises((rpq.FormatError, rpq.UnsupportedError)):
            await read(data)
        assert tracemalloc.get_traced_memory()[1] < 600 << 20
    finally:
        tracemalloc.stop()


async def test_tables_of_blocks_that_lead_nowhere() -> None:
    for start in (0, 3, len(GOOD), 2**40, 2**64 - 1):
        at = len(GOOD) - 2 - 12 - 4 - 8
        with pytest.raises(rpq.FormatError):
            await read(GOOD[:at] + struct.pack("<Q", start) + GOOD[at + 8 :])
    with pytest.raises(rpq.TornFileError, match="blocks are said to be described"):
        await read(GOOD[:-18] + b"\xff\xff\xff\x7f" + GOOD[-14:])


async def test_nulls_without_number_are_read_where_they_are_asked_for() -> None:
    """A block of nulls takes no bytes, however many rows it has: what is made of it is what is wanted."""
    rows = 2**32 - 1
    data = avro(2 * rows, [({"name": "n", "type": "null"}, [plain(rows, b""), plain(rows, b"")])])
    async with rpq.open_trevni(await in_memory(data)) as file:
        assert file.num_rows == 2 * rows
        assert (await file.read(limit=3)).to_pylist() == [{"n": None}] * 3


async def test_long_runs_are_taken_in_parts() -> None:
    """A run of a billion lengths takes five bytes."""
    count = 2**30
    columns = [({"name": "u/int", "type": "int", "array": ""}, [plain(count, zint(3 - 2 * count))])]
    async with rpq.open_trevni(await in_memory(avro(count, columns))) as file:
        assert (await file.read(limit=4)).to_pylist() == [{"u": None}] * 4
        async with file.batches() as batches:
            first = await anext(batches)
        assert (first.num_rows, first["u"].mask.all()) == (65_536, True)


async def test_many_elements_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of many nulls each take a few bytes: there are batches of fewer rows."""
    monkeypatch.setattr(column_reader, "MAX_ELEMENTS", 5_000)
    lengths = b"".join(zint(1 + row % 900) for row in range(1000))
    data = avro(1000, [({"name": "a", "type": "null", "array": ""}, [plain(1000, lengths)])])
    async with rpq.open_trevni(await in_memory(data)) as file:
        batches = [batch.to_pydict()["a"] async for batch in file.batches()]
    assert [len(row) for batch in batches for row in batch] == [1 + row % 900 for row in range(1000)]
    assert max(sum(map(len, batch)) for batch in batches) <= 5_000


SCHEMAS = {
    "no json": b"{",
    "deep json": b"[" * 100_000,
    "no schema": b"7",
    "a union in a union": b'[["int"]]',
    "a record that contains itself": b'{"type":"record","name":"r","fields":[{"name":"a","type":"r"}]}',
    "no fields": b'{"type":"record","name":"r"}',
    "no symbols": json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "enum", "name": "e"}}]}
    ).encode(),
    "two fields of one name": b'{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
    "another type": b'{"type":"record","name":"r","fields":[{"name":"a","type":"long"}]}',
    "an unknown type": b'{"type":"record","name":"r","fields":[{"name":"a","type":"x"}]}',
    "one column more": b'{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}',
    "one column less": b'{"type":"record","name":"r","fields":[]}',
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("name", SCHEMAS)
async def test_schemas_that_are_none(name: str) -> None:
    data = avro(2, [(INT, [plain(2, b"\x02\x04")])], {"avro.schema": SCHEMAS[name]})
    async with rpq.open_trevni(await in_memory(data)) as file:
        assert len(file.notes) == 1
        assert (await file.read()).to_pylist() == [{"a": 1}, {"a": 2}]
