"""Whole files as bytes, by way of a store in memory."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore


async def content(store: Any, key: str = "file") -> bytes:
    """The bytes of an object."""
    return bytes((await store.read_tail(key, 1 << 40)).data)


async def file_bytes(rows: Any, schema: Any = None, **options: Any) -> bytes:
    """A file of these rows, written with these options."""
    store = MemoryStore()
    async with rpq.create((store, "file"), schema, **options) as writer:
        await writer.write(rows)
    return await content(store)


async def recovered(data: bytes, **options: Any) -> tuple[rpq.Report, pa.Table]:
    """The report of the recovery of a file, and the rows that pyarrow finds in what came of it."""
    store = MemoryStore()
    await store.put("in", data)
    report = await rpq.recover((store, "in"), (store, "out"), **options)
    return report, pq.read_table(io.BytesIO(await content(store, "out")))


def with_flips(data: bytes, *bits: int) -> bytes:
    """The bytes, and of each of these bits the opposite."""
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
