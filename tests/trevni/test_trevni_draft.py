"""The draft's dialect, `Trv` and 1 with levels in its blocks: no file of it is at hand, so they are built here.

By its grammar alone, which is that of ``be/src/exec/trevni-def.h`` in Impala's repository of May 2012.
"""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cramjam
import pyarrow.parquet as pq
import pytest
from trevni_bytes import CHECKSUMS, assembled, blocks_of, body, string, zint

import resilient_pq as rpq

# --- what a file of the draft is made of ---------------------------------------------------------------------------


def integers(values: Sequence[int], bits: int) -> bytes:
    """Integers of so many bits, the lowest bit of the first in the lowest bit of the first byte."""
    number = sum(value << (bits * at) for at, value in enumerate(values))
    return number.to_bytes((bits * len(values) + 7) // 8, "little")


STORED = {
    "int": lambda values: b"".join(map(zint, values)),
    "long": lambda values: b"".join(map(zint, values)),
    "boolean": lambda values: integers(values, 1),
    "fixed8": lambda values: struct.pack(f"<{len(values)}b", *values),
    "fixed16": lambda values: struct.pack(f"<{len(values)}h", *values),
    "fixed32": lambda values: struct.pack(f"<{len(values)}i", *values),
    "fixed64": lambda values: struct.pack(f"<{len(values)}q", *values),
    "float": lambda values: struct.pack(f"<{len(values)}f", *values),
    "double": lambda values: struct.pack(f"<{len(values)}d", *values),
    "timestamp": lambda values: b"".join(struct.pack("<qI", nanos, day) for day, nanos in values),
    "string": lambda values: b"".join(map(string, values)),
    "bytes": lambda values: b"".join(map(string, values)),
}
COMPRESSED: dict[str, Any] = {
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "zlib": zlib.compress,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
}

#: A column: name, type, highest definition and repetition level, and blocks of entries (repetition, definition, value).
Entry = tuple[int, int, Any]
Column = tuple[str, str, int, int, list[list[Entry]]]


def draft(
    num_rows: int,
    columns: list[Column],
    codec: str | None = None,
    packed: str | None = None,
    checksum: str | None = None,
) -> bytes:
    """A file."""
    meta = {"trevni.codec": codec.encode()} if codec else {}
    if checksum:
        meta["trevni.checksum"] = checksum.encode()
    bodies = []
    for name, kind, definition, repetition, blocks in columns:
        described = {"trevni.name": name.encode(), "trevni.type": kind.encode()}
        if definition:
            described["trevni.definition"] = str(definition).encode()
        if repetition:
            described["trevni.repetition"] = str(repetition).encode()
        table, packed_blocks = [], []
        for entries in blocks:
            block = STORED[kind]([value for _, d, value in entries if d == definition])
            if definition:
                block += integers([d for _, d, _ in entries], definition.bit_length())
            if repetition:
                block += integers([r for r, _, _ in entries], repetition.bit_length())
            stored = COMPRESSED[packed or codec](block) if codec else block
            table.append((len(entries), len(block), len(stored) if codec else 0))
            packed_blocks.append(stored + CHECKSUMS[checksum or "null"](block))
        bodies.append((described, body(table, packed_blocks)))
    return assembled(1, num_rows, meta, bodies)


def flat(values: list[Any]) -> list[Entry]:
    """Entries of a column that may be null."""
    return [(0, int(value is not None), value) for value in values]


async def read(path: Path, data: bytes, **options: Any) -> list[dict[str, Any]]:
    path.write_bytes(data)
    async with rpq.open_trevni(path, **options) as file:
        found = await file.read()
        batches = [row async for batch in file.batches(2) for row in batch.to_pylist()]
        assert batches == found.to_pylist()
        return batches


# --- every type ------------------------------------------------------------------------------------------------------

DAY = 2_440_588
NOON = 12 * 3600 * 10**9
TYPES: dict[str, tuple[list[Any], list[Any]]] = {
    "int": ([0, None, -(2**31), 2**31 - 1, None], []),
    "long": ([None, -(2**63), 2**63 - 1, 5, 6], []),
    "boolean": ([None, True, False, None, True], []),
    "fixed8": ([-128, None, 127, 0, 1], []),
    "fixed16": ([-32768, None, 32767, 0, 1], []),
    "fixed32": ([-(2**31), None, 2**31 - 1, 0, 1], []),
    "fixed64": ([-(2**63), None, 2**63 - 1, 0, 1], []),
    "float": ([0.5, None, -1.25, 0.0, 3.0], []),
    "double": ([0.1, None, -1e300, 0.0, 3.0], []),
    "timestamp": (
        [(DAY, 0), None, (DAY - 1, NOON), (DAY + 18_262, 1_000), None],
        [dt.datetime(1970, 1, 1), None, dt.datetime(1969, 12, 31, 12), dt.datetime(2020, 1, 1, 0, 0, 0, 1), None],
    ),
    "string": ([b"a", None, b"", "é".encode(), b"x" * 200], ["a", None, "", "é", "x" * 200]),
    "bytes": ([b"a", None, b"", b"\xff\x00", b"x" * 200], []),
}


@pytest.mark.parametrize("codec", [None, "deflate", "snappy", "bzip2", "gzip"])
async def test_every_type(tmp_path: Path, codec: str | None) -> None:
    columns: list[Column] = [
        (f"col_{at}", kind, 1, 0, [flat(values[:2]), flat(values[2:])])
        for at, (kind, (values, _)) in enumerate(TYPES.items())
    ]
    required: list[Column] = [
        ("req", "int", 0, 0, [[(0, 0, 1), (0, 0, 2), (0, 0, 3)], [(0, 0, 4), (0, 0, 5)]]),
    ]
    found = await read(tmp_path / "old.trv", draft(5, columns + required, codec))
    for at, (values, shown) in enumerate(TYPES.values()):
        assert [row[f"col_{at}"] for row in found] == (shown or values)
    assert [row["req"] for row in found] == [1, 2, 3, 4, 5]
    report = await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet")
    assert (report.num_rows, report.exit_code) == (5, 0)
    assert pq.read_table(tmp_path / "new.parquet").to_pylist() == found


async def test_the_schema_of_every_type(tmp_path: Path) -> None:
    columns: list[Column] = [(kind, kind, 1, 0, [flat(values)]) for kind, (values, _) in TYPES.items()]
    (tmp_path / "old.trv").write_bytes(draft(5, columns))
    async with rpq.open_trevni(tmp_path / "old.trv") as file:
        assert (
            str(file.schema)
            == """message schema {
  optional int32 int;
  optional int64 long;
  optional boolean boolean;
  optional int32 fixed8 (INTEGER(8,true));
  optional int32 fixed16 (INTEGER(16,true));
  optional int32 fixed32;
  optional int64 fixed64;
  optional float float;
  optional double double;
  optional int96 timestamp;
  optional binary string (STRING);
  optional binary bytes;
}"""
        )


async def test_deflated_in_a_wrapper(tmp_path: Path) -> None:
    data = draft(3, [("a", "string", 1, 0, [flat([b"x", None, b"y" * 50])])], "deflate", "zlib")
    assert [row["a"] for row in await read(tmp_path / "old.trv", data)] == ["x", None, "y" * 50]


async def test_times_beyond_nanoseconds_are_converted_as_they_are(tmp_path: Path) -> None:
    column: Column = ("t", "timestamp", 1, 0, [flat([(DAY + 1_000_000, 123_456_789), (DAY, 1)])])
    (tmp_path / "old.trv").write_bytes(draft(2, [column]))
    await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet")
    assert pq.ParquetFile(tmp_path / "new.parquet").metadata.schema.column(0).physical_type == "INT96"
    late = dt.datetime(1970, 1, 1) + dt.timedelta(days=1_000_000, microseconds=123_456)
    found = pq.read_table(tmp_path / "new.parquet", coerce_int96_timestamp_unit="us")
    assert found["t"].to_pylist() == [late, dt.datetime(1970, 1, 1)]


async def test_text_that_is_none_is_kept_as_it_is(tmp_path: Path) -> None:
    """What Impala takes for strings is any bytes."""
    (tmp_path / "old.trv").write_bytes(draft(2, [("s", "string", 1, 0, [flat([b"\xff\xfe", b"ok"])])]))
    async with rpq.open_trevni(tmp_path / "old.trv") as file:
        assert (await file.read()).to_pydict() == {"s": [b"\xff\xfe", b"ok"]}
    assert (await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet")).num_rows == 2
    async with rpq.open(tmp_path / "new.parquet") as new:
        assert (await new.read()).to_pydict() == {"s": [b"\xff\xfe", b"ok"]}


async def test_booleans_of_which_more_bytes_were_counted(tmp_path: Path) -> None:
    """Impala's writer counts a byte for every eighth row that has a value, wherever the others are null."""
    values = [True, *[None] * 7, False, *[None] * 7, True]
    block = integers([1, 0, 1], 1) + bytes(2) + integers([int(value is not None) for value in values], 1)
    data = bytearray(draft(17, [("b", "boolean", 1, 0, [flat(values)])]))
    start = struct.unpack_from("<q", data, len(data) - 4 - 12 - 4 - 8)[0]
    data[start + 8 :] = struct.pack("<ii", len(block), 0) + block
    assert [row["b"] for row in await read(tmp_path / "old.trv", bytes(data))] == values


# --- nested ----------------------------------------------------------------------------------------------------------

#: The columns of the two records of the Dremel paper: values with repetition and definition levels.
DREMEL: list[Column] = [
    ("DocId", "long", 0, 0, [[(0, 0, 10), (0, 0, 20)]]),
    ("Links.Backward", "long", 2, 1, [[(0, 1, None), (0, 2, 10), (1, 2, 30)]]),
    ("Links.Forward", "long", 2, 1, [[(0, 2, 20), (1, 2, 40), (1, 2, 60), (0, 2, 80)]]),
    (
        "Name.Language.Code", "string", 2, 2,
        [[(0, 2, b"en-us"), (2, 2, b"en"), (1, 1, None), (1, 2, b"en-gb"), (0, 1, None)]],
    ),
    (
        "Name.Language.Country", "string", 3, 2,
        [[(0, 3, b"us"), (2, 2, None), (1, 1, None), (1, 3, b"gb"), (0, 1, None)]],
    ),
    ("Name.Url", "string", 2, 1, [[(0, 2, b"http://A"), (1, 2, b"http://B"), (1, 1, None), (0, 2, b"http://C")]]),
]  # fmt: skip
DREMEL_SCHEMA = """message Document {
  required int64 DocId;
  optional group Links { repeated int64 Backward; repeated int64 Forward; }
  repeated group Name {
    repeated group Language { required binary Code (STRING); optional binary Country (STRING); }
    optional binary Url (STRING);
  }
}"""
RECORDS = [
    {
        "DocId": 10,
        "Links": {"Backward": [], "Forward": [20, 40, 60]},
        "Name": [
            {"Language": [{"Code": "en-us", "Country": "us"}, {"Code": "en", "Country": None}], "Url": "http://A"},
            {"Language": [], "Url": "http://B"},
            {"Language": [{"Code": "en-gb", "Country": "gb"}], "Url": None},
        ],
    },
    {"DocId": 20, "Links": {"Backward": [10, 30], "Forward": [80]}, "Name": [{"Language": [], "Url": "http://C"}]},
]


def row_by_row(columns: list[Column]) -> list[Column]:
    """The same columns with a block for each row."""
    out = []
    for name, kind, definition, repetition, blocks in columns:
        rows: list[list[Entry]] = []
        for entry in (entry for block in blocks for entry in block):
            if entry[0] == 0:
                rows.append([])
            rows[-1].append(entry)
        out.append((name, kind, definition, repetition, rows))
    return out


@pytest.mark.parametrize("codec", [None, "snappy"])
@pytest.mark.parametrize("blocks", ["one block", "a block for each row"])
async def test_the_records_of_the_dremel_paper(tmp_path: Path, codec: str | None, blocks: str) -> None:
    columns = DREMEL if blocks == "one block" else row_by_row(DREMEL)
    data = draft(2, columns, codec, checksum="crc-32")
    path = tmp_path / "old.trv"
    assert await read(path, data, schema=DREMEL_SCHEMA) == RECORDS
    report = await rpq.convert(path, tmp_path / "new.parquet", schema=rpq.Schema.parse(DREMEL_SCHEMA))
    assert report.outcome == "sound"
    assert pq.read_table(tmp_path / "new.parquet").to_pylist() == RECORDS


async def test_a_part_of_the_records_of_the_dremel_paper(tmp_path: Path) -> None:
    (tmp_path / "old.trv").write_bytes(draft(2, DREMEL))
    async with rpq.open_trevni(tmp_path / "old.trv", schema=DREMEL_SCHEMA) as file:
        found = await file.read(columns=["DocId", "Name.Language.Country"])
        assert found.to_pylist() == [
            {
                "DocId": 10,
                "Name": [
                    {"Language": [{"Country": "us"}, {"Country": None}]},
                    {"Language": []},
                    {"Language": [{"Country": "gb"}]},
                ],
            },
            {"DocId": 20, "Name": [{"Language": []}]},
        ]
        assert (await file.read(offset=1)).to_pylist() == RECORDS[1:]


async def test_levels_tell_the_schema_where_they_leave_no_choice(tmp_path: Path) -> None:
    without_links = [column for column in DREMEL if not column[0].startswith("Links")]
    found = await read(tmp_path / "old.trv", draft(2, without_links))
    assert found == [{name: value for name, value in record.items() if name != "Links"} for record in RECORDS]


async def test_levels_that_leave_a_choice_need_a_schema(tmp_path: Path) -> None:
    """Whether Links is optional and Backward repeated, or the other way round, is all the same to the levels."""
    with pytest.raises(rpq.SchemaError, match=r"'Links' fit more than one schema(.|\n)*--schema"):
        await read(tmp_path / "old.trv", draft(2, DREMEL))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("message s { required int64 DocId; }", "has 1 leaves, and the file 2 columns"),
        ("message s { required int64 DocId; required binary Url; }", "has the levels 0 and 0"),
        ("message s { required int32 DocId; optional binary Url; }", "is INT32, and the column of the file long"),
    ],
)
async def test_a_schema_of_other_columns(tmp_path: Path, schema: str, words: str) -> None:
    columns: list[Column] = [("DocId", "long", 0, 0, [[(0, 0, 1)]]), ("Url", "string", 1, 0, [flat([None])])]
    with pytest.raises(rpq.SchemaError, match=words):
        await read(tmp_path / "old.trv", draft(1, columns), schema=schema)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([("a.b", "int", 0, 0, [[]]), ("a", "int", 1, 0, [[]])], "a group of other columns"),
        ([("a", "int", 1, 0, [[]]), ("a.b", "int", 0, 0, [[]])], "lies in the column 'a'"),
        ([("a", "int", 2, 0, [[]])], "fit no schema"),
    ],
)
async def test_names_and_levels_that_contradict(tmp_path: Path, columns: list[Column], words: str) -> None:
    with pytest.raises(rpq.SchemaError, match=words):
        await read(tmp_path / "old.trv", draft(0, columns))


async def test_strings_of_addresses(tmp_path: Path) -> None:
    """The example of the post that announced Parquet; a repeated leaf at the top needs no schema."""
    columns: list[Column] = [
        ("owner", "string", 0, 0, [[(0, 0, b"Julien Le Dem"), (0, 0, b"A. Nonymous")]]),
        ("phones", "string", 1, 1, [[(0, 1, b"555 123 4567"), (1, 1, b"555 666 1337"), (0, 0, None)]]),
        ("contacts.name", "string", 1, 1, [[(0, 1, b"Dmitriy Ryaboy"), (1, 1, b"Chris Aniszczyk"), (0, 0, None)]]),
        ("contacts.phone", "string", 2, 1, [[(0, 2, b"555 987 6543"), (1, 1, None), (0, 0, None)]]),
    ]
    assert await read(tmp_path / "old.trv", draft(2, columns)) == [
        {
            "owner": "Julien Le Dem",
            "phones": ["555 123 4567", "555 666 1337"],
            "contacts": [
                {"name": "Dmitriy Ryaboy", "phone": "555 987 6543"},
                {"name": "Chris Aniszczyk", "phone": None},
            ],
        },
        {"owner": "A. Nonymous", "phones": [], "contacts": []},
    ]


# --- damage ----------------------------------------------------------------------------------------------------------


async def test_rows_behind_a_bad_block_are_counted_from_the_end(tmp_path: Path) -> None:
    """How many rows a bad block of a repeated column has, nothing tells but the rows around it."""
    blocks = [[(0, 1, r), *[(1, 1, r)] * (r % 3)] for r in range(9)]
    columns: list[Column] = [
        ("id", "int", 0, 0, [[(0, 0, r) for r in range(9)]]),
        ("x", "fixed64", 1, 1, [[*blocks[0], *blocks[1]], [*blocks[2], *blocks[3]], *blocks[4:]]),
    ]
    data = bytearray(draft(9, columns, checksum="crc-32"))
    path = tmp_path / "old.trv"
    path.write_bytes(data)
    async with rpq.open_trevni(path) as file:
        whole = (await file.read()).to_pylist()
    offsets = [block.offset for block in blocks_of(bytes(data))["x"]]
    assert whole == [{"id": r, "x": [r] * (1 + r % 3)} for r in range(9)]
    for bad, lost in (([1], {2, 3}), ([0], {0, 1}), ([6], {8}), ([1, 4], {2, 3, 4, 5, 6})):
        spoilt = bytearray(data)
        for block in bad:
            spoilt[offsets[block]] ^= 1
        path.write_bytes(spoilt)
        report = await rpq.convert(path, tmp_path / "new.parquet", overwrite=True)
        kept = pq.read_table(tmp_path / "new.parquet").to_pylist()
        assert kept == [row for row in whole if row["id"] not in lost]
        assert report.kept is not None and report.kept.rows_lost == len(lost)


async def test_a_block_that_begins_in_a_row_is_bad(tmp_path: Path) -> None:
    column: Column = ("x", "int", 1, 1, [[(0, 1, 1)], [(1, 1, 2), (0, 1, 3)]])
    with pytest.raises(rpq.EncodingError, match="in the middle of a row"):
        await read(tmp_path / "old.trv", draft(2, [column]))
