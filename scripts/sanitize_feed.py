"""Files that are damaged, read in all ways, for as long as one likes: what ``scripts/sanitize.py`` feeds the kernels.

Every error of ours is an answer; any other one ends it with status 1.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import random
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import resilient_pq as rpq
from resilient_pq import memory_pool
from resilient_pq.io.memory_store import MemoryStore

#: Larger files of others are left out: what damage does to them it does to small ones as well.
LARGEST = 256 * 1024
STRINGS: tuple[Literal["plain", "view"], ...] = ("plain", "view")
#: What Arrow says of numbers that a file may hold though its types do not mean them: hours beyond the day's.
OF_THE_FILE = ("acceptable range", "does not fit in precision")
EDGE_BYTES = (0, 1, 0x7F, 0x80, 0xFF)
#: Said, as a single row of nulls would have no type.
INTEGERS = pa.list_(pa.int64())
ENTRIES = pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())]))


def tables(rng: np.random.Generator) -> Iterator[pa.Table]:
    """Small tables with nulls, strings, lists and numbers of all widths."""
    for rows in (1, 700, 5000):
        numbers = rng.integers(0, 40, rows)
        words = [None if n % 7 == 0 else f"word {n} " + "ä" * (n % 9) for n in numbers.tolist()]
        yield pa.table(
            {
                "i32": pa.array(numbers.astype("i4")),
                "i64": pa.array(np.cumsum(numbers), mask=numbers % 5 == 0),
                "f64": rng.standard_normal(rows),
                "f32": pa.array(rng.standard_normal(rows).astype("f4"), mask=numbers % 3 == 0),
                "flag": numbers > 20,
                "word": pa.array(words, pa.string()),
                "blob": pa.array([str(n).encode() * (n % 4) for n in numbers.tolist()], pa.binary()),
                "list": pa.array([None if n % 11 == 0 else list(range(n % 5)) for n in numbers.tolist()], INTEGERS),
                "entries": pa.array(
                    [[{"key": w, "value": n}] for w, n in zip(words, numbers.tolist(), strict=True)], ENTRIES
                ),
            }
        )


def by_pyarrow(table: pa.Table) -> Iterator[bytes]:
    """The table in the ways that pyarrow can write it."""
    ways = (
        {"compression": "none", "write_page_checksum": True},
        {"compression": "snappy", "data_page_version": "2.0"},
        {"compression": "zstd", "use_dictionary": False},
        {
            "compression": "none",
            "use_dictionary": False,
            "column_encoding": {"i32": "DELTA_BINARY_PACKED", "f64": "BYTE_STREAM_SPLIT", "word": "DELTA_BYTE_ARRAY"},
        },
    )
    for way in ways:
        out = io.BytesIO()
        pq.write_table(table, out, max_rows_per_page=256, **way)
        yield out.getvalue()


async def by_us(table: pa.Table) -> bytes:
    """The table as we write it, with checkpoints."""
    store = MemoryStore()
    async with rpq.create((store, "file"), compression="snappy", row_group_rows=1000) as writer:
        await writer.write(table)
    return bytes(await store.read_range("file", 0, (info := await store.head("file")).size, pin=info))


def damaged(data: bytes, rng: random.Random) -> bytes:
    """A copy with a few bytes that are others, sometimes with some missing."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        changed[rng.randrange(len(changed))] = rng.choice((*EDGE_BYTES, rng.randrange(256)))
    if rng.random() < 0.1:
        del changed[rng.randrange(len(changed)) :]
    return bytes(changed)


def look_at(table: rpq.Table) -> None:
    """See to it that offsets and views do not lead out of their buffers, and that text is text."""
    try:
        pa.table(table).validate(full=True)
    except pa.ArrowInvalid as error:
        if not any(said in str(error) for said in OF_THE_FILE):
            raise


async def answer(data: bytes) -> None:
    """Read it in all ways; errors of ours are as good as rows."""
    store = MemoryStore()
    await store.put("file", data)
    for verify, on_damage in ((True, "raise"), (False, "raise"), (True, "null"), (True, "drop")):
        for strings in STRINGS:
            try:
                async with rpq.open((store, "file"), verify=verify, on_damage=on_damage) as file:
                    look_at(await file.read(strings=strings))
                    columns = file.schema.names[::2]
                    async for batch in file.batches(batch_rows=300, strings=strings, columns=columns):
                        look_at(batch)
            except rpq.ResilientPQError as error:
                str(error)
    try:
        await rpq.check((store, "file"))
    except rpq.ResilientPQError as error:
        str(error)


def survives(data: bytes) -> bool:
    """Whether all that came of a file was rows, or errors of ours; else the file is kept."""
    try:
        asyncio.run(answer(data))
    except Exception:
        Path("sanitize.failed").write_bytes(data)
        traceback.print_exc()
        print("an error that is none of ours; the file is in sanitize.failed")
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--corpus", type=Path, help="a folder of Parquet files to read as well")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    # The sanitizer watches the ends of what malloc gives; arrays in one mapping lie side by side.
    memory_pool._MAPPED = sys.maxsize
    rng = random.Random(arguments.seed)
    files = []
    for table in tables(np.random.default_rng(arguments.seed)):
        files += [*by_pyarrow(table), asyncio.run(by_us(table))]
    if arguments.corpus is not None:
        found = (path for path in sorted(arguments.corpus.rglob("*")) if path.is_file())
        files += [path.read_bytes() for path in found if 12 <= path.stat().st_size <= LARGEST]
    rng.shuffle(files)
    begun, whole, broken = time.monotonic(), 0, 0
    while (share := (time.monotonic() - begun) / arguments.seconds) < 1:
        if whole < len(files) and share < 0.5:  # half of the time for files as they are
            data = files[whole]
            whole += 1
        else:
            data = damaged(rng.choice(files), rng)
            broken += 1
        if not survives(data):
            return 1
    print(f"{whole} of {len(files)} files read, and {broken} damaged ones")
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    raise SystemExit(main())
