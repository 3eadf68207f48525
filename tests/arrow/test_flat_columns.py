"""`flat_columns`: what the compiled step makes of chunks is what all others make of them, damaged ones included."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_of_others import CORPUS, absent
from hypothesis import given, settings
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq.errors import ChecksumError, ResilientPQError
from resilient_pq.format import kernels
from resilient_pq.format.kernels import reference
from resilient_pq.io.memory_store import MemoryStore

pytestmark = pytest.mark.skipif(kernels.active == "reference", reason="it is compiled, or leaves all to others")
WORDS = ["", "a", "twelve bytes", "more than twelve bytes", "ä" * 20, "\U0010ffff"]
BUILD: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "bool": lambda rng, n: rng.random(n) < 0.4,
    "i8": lambda rng, n: rng.integers(-128, 128, n).astype("i1"),
    "u16": lambda rng, n: rng.integers(0, 2**16, n).astype("u2"),
    "i32": lambda rng, n: rng.integers(-(2**31), 2**31, n).astype("i4"),
    "u64": lambda rng, n: rng.integers(0, 2**64, n, dtype="u8"),
    "few": lambda rng, n: rng.integers(0, 9, n),
    "f32": lambda rng, n: rng.standard_normal(n).astype("f4"),
    "f64": lambda rng, n: np.round(rng.standard_normal(n), 2),
    "time": lambda rng, n: np.cumsum(rng.integers(0, 1000, n)).astype("M8[us]"),
    "text": lambda rng, n: pa.array(rng.choice(WORDS, n).tolist(), pa.string()),
    "blob": lambda rng, n: pa.array([rng.bytes(k) for k in rng.integers(0, 40, n).tolist()], pa.binary()),
    "fixed": lambda rng, n: pa.array([rng.bytes(5) for _ in range(n)], pa.binary(5)),
}


def table_of(seed: int, rows: int, share_of_nulls: float) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = {}
    for name, make in BUILD.items():
        values = make(rng, rows)
        values = pa.array(values) if isinstance(values, np.ndarray) else values
        columns[name] = values
        nulls = pa.array(rng.random(rows) < share_of_nulls)
        columns[f"{name}?"] = pa.compute.if_else(nulls, pa.scalar(None, values.type), values)
    fields = [pa.field(name, values.type, nullable=name.endswith("?")) for name, values in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


async def outcome(data: bytes, *, verify: bool = True) -> pa.Table | tuple[type, str, Any]:
    store = MemoryStore()
    await store.put("f", data)
    try:
        async with rpq.open((store, "f"), verify=verify) as file:
            return pa.table(await file.read())
    except ResilientPQError as error:
        return type(error), str(error), error.where


@contextmanager
def one_by_one() -> Iterator[None]:
    native = kernels.ChunkBatch
    kernels.ChunkBatch = reference.ChunkBatch
    try:
        yield
    finally:
        kernels.ChunkBatch = native


@contextmanager
def counted() -> Iterator[list[int]]:
    real, counts = kernels.ChunkBatch.arrays, [0, 0]

    class Counting(kernels.ChunkBatch):
        def arrays(self) -> list[Any]:
            made = real(self)
            counts[0] += len(made)
            counts[1] += made.count(None)
            return made

    native = kernels.ChunkBatch
    kernels.ChunkBatch = Counting
    try:
        yield counts
    finally:
        kernels.ChunkBatch = native


def agree(data: bytes, *, verify: bool = True) -> Any:
    found = asyncio.run(outcome(data, verify=verify))
    with one_by_one():
        expected = asyncio.run(outcome(data, verify=verify))
    if isinstance(expected, pa.Table) and isinstance(found, pa.Table):
        assert found.schema.equals(expected.schema)
        for ours, theirs in zip(found.columns, expected.columns, strict=True):
            for one, other in zip(ours.chunks, theirs.chunks, strict=True):
                one.validate(full=True)
                assert one.null_count == other.null_count
                assert _bits(one).equals(_bits(other))
    else:
        assert found == expected
    return found


def _bits(array: pa.Array) -> pa.Array:
    """A NaN equals none."""
    widths = {pa.float16(): pa.uint16(), pa.float32(): pa.uint32(), pa.float64(): pa.uint64()}
    return array.view(widths[array.type]) if array.type in widths else array


WRITERS = {
    "ours": {"compression": "zstd"},
    "ours, plain": {"compression": None, "encodings": "PLAIN"},
    "theirs": {"compression": "snappy", "data_page_size": 900, "write_page_checksum": True},
    "theirs, v2": {"compression": "zstd", "data_page_version": "2.0", "data_page_size": 2000},
    "theirs, plain": {"compression": "none", "use_dictionary": False, "data_page_size": 700},
    "theirs, plain, snappy": {
        "compression": "snappy", "use_dictionary": False, "data_page_size": 700, "write_page_checksum": True,
    },
    "theirs, plain, zstd": {"compression": "zstd", "use_dictionary": False, "data_page_size": 700},
    "theirs, plain, v2": {
        "compression": "lz4", "use_dictionary": False, "data_page_version": "2.0", "data_page_size": 700,
    },
    "theirs, v2, snappy": {"compression": "snappy", "data_page_version": "2.0", "write_page_checksum": True},
    "theirs, delta": {
        "compression": "gzip", "use_dictionary": False, "column_encoding": {
            name: "DELTA_BINARY_PACKED" if name[0] in "iuft" and name[:2] not in ("f3", "f6", "te", "fi", "i8", "u1")
            else "DELTA_LENGTH_BYTE_ARRAY" if name.strip("?") in ("text", "blob")
            else "RLE" if name.startswith("bool")
            else "BYTE_STREAM_SPLIT" if name[:2] in ("f3", "f6", "fi") else "PLAIN"
            for plain in BUILD for name in (plain, f"{plain}?")
        },
    },
}  # fmt: skip


def written(table: pa.Table, writer: str) -> bytes:
    options: dict[str, Any] = WRITERS[writer]
    if writer.startswith("ours"):
        store = MemoryStore()

        async def write() -> bytes:
            await rpq.write((store, "f"), table, row_group_rows=max(len(table) // 2, 1), **options)
            tail = await store.read_tail("f", 1 << 30)
            return bytes(tail.data)

        return asyncio.run(write())
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=max(len(table) // 2, 1), **options)
    return out.getvalue()


@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_common_is_decoded_at_once_and_right(writer: str) -> None:
    for seed, rows, share in ((1, 3000, 0.3), (2, 400, 0.0), (3, 9, 1.0)):
        table = table_of(seed, rows, share)
        data = written(table, writer)
        with counted() as counts:
            found = asyncio.run(outcome(data))
        assert isinstance(found, pa.Table)
        assert found.cast(table.schema).equals(table)
        assert counts[0] >= 2 * len(BUILD)
        # Dictionaries of others that became too large are followed by pages without.
        assert counts[1] <= (0 if writer != "theirs" else 8)
        agree(data)


@given(st.integers(0, 2**32), st.integers(1, 300), st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from(list(WRITERS)))
@settings(max_examples=15)
def test_any_numbers_of_rows_and_nulls(seed: int, rows: int, share: float, writer: str) -> None:
    agree(written(table_of(seed, rows, share), writer))


@pytest.mark.parametrize("rounds", [12, pytest.param(300, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("writer", WRITERS)
def test_damage_is_told_or_passed_over_as_ever(writer: str, verify: bool, rounds: int) -> None:
    data = written(table_of(5, 150, 0.2), writer)
    random_bytes = random.Random(f"{writer} {verify}")
    for _ in range(rounds):
        damaged = bytearray(data)
        for _ in range(random_bytes.choice((1, 1, 4, 40))):
            at = random_bytes.randrange(4, len(data) - 8)
            damaged[at] = random_bytes.choice((0, 1, 0x7F, 0x80, 0xFF, random_bytes.randrange(256)))
        agree(bytes(damaged), verify=verify)


def repeated(period: int, size: int) -> bytes:
    """Bytes that Snappy writes as copies of what lies `period` bytes before them."""
    return (np.random.default_rng(period).bytes(period) * (size // period + 1))[:size]


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_pages_of_every_size_are_compared_and_decompressed(codec: str) -> None:
    """The checksum is told whether all bytes are right, or the last one is not."""
    schema = pa.schema([pa.field("x", pa.binary(1), nullable=False), pa.field("y", pa.binary(), nullable=False)])
    out = io.BytesIO()
    options: dict[str, Any] = {"use_dictionary": False, "compression": codec, "write_page_checksum": True}
    with pq.ParquetWriter(out, schema, **options) as writer:
        for rows in range(1, 200):
            fixed = [bytes([byte]) for byte in np.random.default_rng(rows).bytes(rows)]
            periodic = [repeated(rows, 8 * rows), *[repeated(rows % 7 + 1, rows)] * (rows - 1)]
            writer.write_table(pa.table([pa.array(fixed, pa.binary(1)), periodic], schema=schema))
    data = bytearray(out.getvalue())
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    with counted() as counts:
        found = agree(bytes(data))
    assert found.equals(pq.read_table(io.BytesIO(data)))
    assert counts == [2 * metadata.num_row_groups, 0]
    for group in range(metadata.num_row_groups):
        for column in range(2):
            chunk = metadata.row_group(group).column(column)
            data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    with counted() as counts:
        assert agree(bytes(data))[0] is ChecksumError
    assert counts[0] == counts[1] >= 2 * metadata.num_row_groups


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_files_of_others() -> None:
    files = [path for path in sorted(CORPUS.rglob("*.parquet")) if path.is_file() and path.stat().st_size < 1 << 20]
    if not files:
        absent()
    for path in files:
        try:
            agree(Path(path).read_bytes())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
            continue  # what pyarrow does not take from anybody


def test_hostile_descriptions() -> None:
    """Numbers that contradict the pages, in all combinations: it declines, or decodes what there is."""
    seen: list[tuple[list[bytes], Any]] = []
    native = kernels.ChunkBatch

    class Watching(native):
        def __init__(self, parts: list[memoryview], described: Any) -> None:
            seen.append((list(map(bytes, parts)), described.copy()))
            super().__init__(parts, described)

    kernels.ChunkBatch = Watching
    try:
        for writer in ("ours", "theirs", "theirs, v2", "theirs, plain", "theirs, delta"):
            asyncio.run(outcome(written(table_of(7, 64, 0.3), writer)))
    finally:
        kernels.ChunkBatch = native
    rng = np.random.default_rng(3)
    for parts, described in seen:
        for _ in range(40):
            row, column = rng.integers(0, described.shape, 2)
            changed = described.copy()
            changed[row, column] = rng.choice([-1, 0, 1, 2, 3, 4, 6, 8, 64, 2**20, 2**31 - 1, 2**31, 2**62, -(2**63)])
            if column == 5 and changed[row, column] > 2**31:
                changed[row, column] = 2**31
            cut = [part[: rng.integers(0, len(part) + 1)] if rng.random() < 0.1 else part for part in parts]
            batch = native(cut, changed)
            rooms = [room for *_, room, _ in batch.bodies() if room is not None]
            for room in rooms:
                room[:] = rng.integers(0, 256, room.shape, dtype="u1") if rng.random() < 0.5 else 0
            assert len(batch.arrays()) == len(parts)


def test_arrays_live_as_long_as_somebody_has_them() -> None:
    table = table_of(9, 5000, 0.1)
    found = asyncio.run(outcome(written(table, "ours")))
    assert isinstance(found, pa.Table)
    kept = found.column("text?")
    del found
    assert kept.cast(pa.string()).equals(table.column("text?"))
