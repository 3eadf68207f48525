"""Small Parquet files of every kind whose rows are known: what the structural torture damages.

Every row has an id, and each of its values is a pure function of the id and of the version of the file. A family is what
can be mistaken for each other: a file, a sibling with other rows, an older version with the same file id, and a longer
file that was there before.
"""

from __future__ import annotations

import asyncio
import io
import random
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from page_layout import CHECKPOINT, CHUNK, FINAL, Layout, Record

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io.memory_store import MemoryStore

#: Ids are numbers below this times 16, so that the versions have the same bounds.
IDS = 4096
#: Cases that share a family.
CASES_OF_A_FAMILY = 20
#: Versions: of the file itself, a sibling, an older version, an older longer file, and a file inside of a blob.
OWN, SIBLING, OLDER, LONGER, INNER = "own", "sibling", "older", "longer", "inner"


def mixed(*key: object) -> int:
    """A number that only the key decides."""
    return zlib.crc32(repr(key).encode()) ^ zlib.adler32(repr(key[::-1]).encode()) << 7


@dataclass(frozen=True)
class Column:
    """A column: its type, whether it may be null, and its value in a version's row."""

    name: str
    type: pa.DataType
    nullable: bool
    value: Callable[[str, int], Any]


def nullable(salt: str, value: Callable[[str, int], Any], share: int = 5) -> Callable[[str, int], Any]:
    """The same rows are null in all versions, so that their pages have the same sizes."""
    return lambda version, i: None if mixed("null", salt, i) % share == 0 else value(version, i)


def columns_of(rng: random.Random, nested: bytes | None) -> list[Column]:
    """`id`, its like, and some others."""
    few = rng.choice((1, 2, 3, 9))
    pool = [
        Column("equal", pa.int32(), False, lambda version, i: mixed("equal", version, i) % few),
        Column("equal2", pa.int32(), False, lambda version, i: mixed("equal", version, i) % few),
        Column("name", pa.string(), True, nullable("name", lambda v, i: f"name {mixed('name', v, i) % 12:02d}")),
        Column("note", pa.string(), True, nullable("note", lambda v, i: f"{mixed('note', v, i) % 16**8:08x}", 9)),
        Column("note2", pa.string(), True, nullable("note2", lambda v, i: f"{mixed('2', v, i) % 16**8:08x}", 9)),
        Column("score", pa.float64(), True, nullable("score", lambda v, i: mixed("score", v, i) % 9999 / 8)),
        Column("flag", pa.bool_(), True, nullable("flag", lambda v, i: mixed("flag", v, i) % 2 == 0, 7)),
        Column("small", pa.int32(), True, nullable("small", lambda v, i: mixed("small", v, i) % 200, 11)),
        Column("same", pa.string(), False, lambda version, i: "the same"),
        Column("tags", pa.list_(pa.int32()), True, nullable("tags", tags_of, 6)),
    ]
    chosen = [column for column in pool if rng.random() < 0.5]
    if nested is not None:
        chosen.append(Column("blob", pa.binary(), True, lambda v, i: nested if i == 5 else mixed(v, i).to_bytes(6)))
    elif rng.random() < 0.2:
        chosen.append(Column("blob", pa.binary(), True, nullable("b", lambda v, i: mixed(v, i).to_bytes(6) * (i % 4))))
    ids = [Column("id", pa.int64(), False, id_of), Column("id2", pa.int64(), False, other_id_of)]
    return ids + chosen


def tags_of(version: str, i: int) -> list[int]:
    return [mixed("tag", version, i, k) % 1000 for k in range(mixed("tags", i) % 4)]


#: Which of the versions have rows with the same ids as the file itself.
SAME_IDS = {OWN: 0, SIBLING: 1, OLDER: 0, "older, other ids": 2, LONGER: 3, INNER: 4}


def id_of(version: str, i: int) -> int:
    return (IDS + i) * 16 + SAME_IDS[version]


def other_id_of(version: str, i: int) -> int:
    salt = zlib.crc32(version.encode()) % IDS
    return (IDS + ((i * 37 + 11) ^ salt) % IDS) * 16 + SAME_IDS[version]


def table_of(columns: list[Column], version: str, count: int, *, own_rows: int = 0) -> pa.Table:
    """Rows of a version; the first ones are those of the file itself, if so asked."""
    schema = pa.schema([pa.field(column.name, column.type, nullable=column.nullable) for column in columns])
    versions = [OWN if i < own_rows else version for i in range(count)]
    values = [pa.array([c.value(v, i) for i, v in enumerate(versions)], c.type) for c in columns]
    return pa.Table.from_arrays(values, schema=schema)


@dataclass(frozen=True)
class Piece:
    """A part of a file that stands for itself: a page's header or body, a record's header or payload, a footer."""

    kind: str
    place: range


@dataclass(frozen=True)
class File:
    """A whole file, its rows, and where everything lies."""

    version: str
    data: bytes = field(repr=False)
    table: pa.Table = field(repr=False)
    layout: Layout = field(repr=False)
    file_id: bytes = b""

    @property
    def ours(self) -> bool:
        return bool(self.layout.records)

    def pages(self) -> list[Any]:
        return [page for chunk in self.chunks() for page in chunk.pages]

    def chunks(self) -> list[Any]:
        return [chunk for row_group in self.layout.row_groups for chunk in row_group.chunks]

    def page_places(self) -> list[range]:
        return [range(page.header.start, page.body.stop) for page in self.pages()]

    def records(self, *kinds: int) -> list[Record]:
        return [record for record in self.layout.records if not kinds or record.kind in kinds]

    def pieces(self) -> list[Piece]:
        """Everything that has a border, in order."""
        found = [Piece("magic", range(4))]
        for page in self.pages():
            found += [Piece("page header", page.header), Piece("page body", page.body)]
        for record in self.layout.records:
            name = {1: "anchor", 2: "row-group record", 3: "checkpoint", 4: "final", 5: "chunk record"}[record.kind]
            head = range(record.place.start, record.place.start + 96)
            found += [Piece(name, head), Piece(f"{name} payload", range(head.stop, record.place.stop))]
        if not self.ours:
            found.append(Piece("footer", self.layout.footer))
        return sorted(found, key=lambda piece: piece.place.start)

    def borders(self) -> list[int]:
        """Where pieces begin, and the end."""
        return [piece.place.start for piece in self.pieces()] + [len(self.data)]


@dataclass(frozen=True)
class Family:
    """Files that can be mistaken for each other."""

    kind: str  # Who wrote them, and how
    files: dict[str, File]  # By version; the file itself is `OWN`
    checksummed: bool  # Whether each page has a checksum

    @property
    def own(self) -> File:
        return self.files[OWN]

    @property
    def ours(self) -> bool:
        return self.own.ours

    @property
    def nested(self) -> bool:
        return INNER in self.files


def write_ours(table: pa.Table, file_id: bytes, options: dict[str, Any]) -> bytes:
    """A resilient file with this file id."""

    async def write() -> bytes:
        store = MemoryStore()
        async with rpq.create((store, "file"), table.schema, checkpoint_overhead=1e9, **options) as writer:
            await writer.write(table)
        return bytes((await store.read_tail("file", 1 << 40)).data)

    with mock.patch("os.urandom", lambda size: (file_id * size)[:size]):
        return asyncio.run(write())


def write_resumed(table: pa.Table, begun: File, options: dict[str, Any]) -> bytes:
    """What a writer makes that goes on behind the first checkpoint of another, with the same file id."""
    checkpoint = begun.records(CHECKPOINT)[0]
    rows = begun.layout.row_groups[checkpoint.num_row_groups - 1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.parquet"
        path.with_name("file.parquet.partial").write_bytes(begun.data[: checkpoint.place.stop])
        with sync.resume(path, checkpoint_overhead=1e9, **options) as writer:
            writer.write(table.slice(rows.first_row + rows.num_rows))
        return path.read_bytes()


def write_theirs(table: pa.Table, writer: str, options: dict[str, Any]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.parquet"
        match writer:
            case "pyarrow":
                pq.write_table(table, path, **options)
            case "Polars":
                import polars

                polars.from_arrow(table).write_parquet(path, **options)
            case "DuckDB":
                import duckdb

                with duckdb.connect() as connection:
                    connection.register("given", table)
                    connection.sql(f"copy given to '{path}' (format parquet, {options['options']})")
            case "fastparquet":
                import fastparquet

                fastparquet.write(str(path), table.to_pandas(), write_index=False, **options)
        return path.read_bytes()


def made(version: str, data: bytes, file_id: bytes = b"") -> File:
    table = pq.read_table(io.BytesIO(data))
    return File(version, data, table, Layout(data), file_id)


@lru_cache(maxsize=6)
def family_of(number: int) -> Family:
    """The family of a number."""
    rng = random.Random(f"family {number}")
    return our_family(rng) if rng.random() < 0.68 else their_family(rng)


def our_family(rng: random.Random) -> Family:
    codec = rng.choice(("none", "none", "gzip", "gzip", "zstd", "snappy"))
    own_id, other_id, longer_id = (bytes(rng.randrange(1, 256) for _ in range(16)) for _ in range(3))
    options: dict[str, Any] = {
        "compression": codec,
        "encodings": rng.choice(("auto", "auto", "PLAIN", "compact")),
        "row_group_rows": rng.choice((16, 30, 40, 60)),
        "checkpoint_every": rng.choice((1, 2, 3, None)),
    }
    write: dict[str, Any] = {
        "page_rows": rng.choice((5, 8, 15, 20)),
        "data_page_version": rng.choice(("1.0", "1.0", "2.0")),
        "statistics": rng.random() < 0.8,
        "dictionary_bytes": rng.choice((0, 1 << 20, 1 << 20)),
    }
    if rng.random() < 0.2:
        write["bloom_filter_options"] = ["id"]
    options["options"] = rpq.WriteOptions(**write)
    nested, files = None, {}
    if rng.random() < 0.2:
        columns = columns_of(random.Random(1), None)[:3]
        small = options | {"compression": "none", "row_group_rows": 3, "checkpoint_every": 4}
        nested = write_ours(table_of(columns, INNER, 40), longer_id, small)
        files[INNER] = made(INNER, nested, longer_id)
    columns, resumed = columns_of(rng, nested), ""
    row_groups = rng.choice((2, 3, 4, 5))
    if rng.random() < 0.06:  # larger, so that searches that take too long show
        row_groups, options["row_group_rows"] = 12, 150
    count = row_groups * options["row_group_rows"] - rng.choice((0, 0, 3))
    older = rng.choice((OLDER, OLDER, "older, other ids"))
    for version, rows, file_id in (
        (OWN, count, own_id),
        (SIBLING, count, other_id),
        (older, count, own_id),
        (LONGER, count + options["row_group_rows"] * 2, rng.choice((own_id, longer_id))),
    ):
        files[version] = made(version, write_ours(table_of(columns, version, rows), file_id, options), file_id)
    if options["checkpoint_every"] is not None and rng.random() < 0.2:  # the older one had been cut, and gone on with
        begun = options["checkpoint_every"] * options["row_group_rows"]
        table = table_of(columns, OLDER, count, own_rows=begun)
        files.pop(older)
        files[OLDER] = made(OLDER, write_ours(table, own_id, options), own_id)
        if files[OLDER].records(CHECKPOINT):
            data = write_resumed(files[OWN].table, files[OLDER], options)
            files[OWN] = made(OWN, data, own_id)
            resumed = ", resumed"
    words = f"resilient_pq {codec} {options['encodings']}, {write['page_rows']} rows a page"
    return Family(words + (", nested" if nested else "") + resumed, files, True)


def their_family(rng: random.Random) -> Family:
    writer = rng.choice(("pyarrow", "pyarrow", "pyarrow", "Polars", "DuckDB", "fastparquet"))
    columns = columns_of(rng, None)
    checksummed = False
    group, count = rng.choice((20, 40)), rng.choice((100, 150, 200))
    options: dict[str, Any]
    match writer:
        case "pyarrow":
            checksummed = rng.random() < 0.6
            codec = rng.choice(("none", "gzip", "zstd", "snappy"))
            options = {
                "compression": codec, "row_group_size": group, "write_page_checksum": checksummed,
                "write_page_index": rng.random() < 0.5, "data_page_version": rng.choice(("1.0", "2.0")),
                "use_dictionary": rng.random() < 0.5, "data_page_size": 64, "write_batch_size": rng.choice((5, 10)),
            }  # fmt: skip
        case "Polars":
            codec = rng.choice(("uncompressed", "gzip", "zstd", "snappy"))
            options = {"compression": codec, "row_group_size": group, "data_page_size": 100}
        case "DuckDB":
            codec, count = rng.choice(("uncompressed", "gzip", "zstd", "snappy")), rng.choice((4100, 5000))
            columns = columns[:4]
            options = {"options": f"row_group_size 2048, compression {codec}"}
        case _:
            codec = rng.choice(("UNCOMPRESSED", "GZIP", "ZSTD", "SNAPPY"))
            plain = ("id", "id2", "equal", "equal2", "same", "name", "note", "note2")
            columns = [column for column in columns if column.name in plain]
            options = {"compression": codec, "row_group_offsets": group}
    files = {}
    for version, rows in ((OWN, count), (SIBLING, count), (OLDER, count), (LONGER, count + 2 * group)):
        files[version] = made(version, write_theirs(table_of(columns, version, rows), writer, options))
    words = f"{writer} {codec}" + (", page checksums" if checksummed else "")
    return Family(words, files, checksummed)


def destroyable(file: File) -> Iterator[tuple[str, list[range]]]:
    """Kinds of records, with the places of all of a kind."""
    for name, kind in (("row-group record", 2), ("chunk record", CHUNK), ("checkpoint", CHECKPOINT), ("final", FINAL)):
        places = [record.place for record in file.records(kind)]
        if places:
            yield name, places
            yield f"{name} header", [range(place.start, place.start + 96) for place in places]
    yield "footer", [file.layout.footer]
