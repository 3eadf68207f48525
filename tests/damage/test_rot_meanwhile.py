"""Bytes that go bad between two reads of one recovery, as on a disk that fails: no value is wrong, and it ends."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes

import resilient_pq as rpq
from resilient_pq.io import ObjectInfo, ObjectTail
from resilient_pq.io.memory_store import MemoryStore

ROWS = 40


class Rotting(MemoryStore):
    """A byte of an object is another one from some read of it on; the object is still said to be the same."""

    def __init__(self, place: int, after: int) -> None:
        super().__init__()
        self.place, self.left = place, after

    def _read(self, data: bytes | memoryview, start: int) -> bytes:
        spoiled = bytearray(data)
        if start <= self.place < start + len(spoiled):
            if self.left <= 0:
                spoiled[self.place - start] ^= 0xFF
            self.left -= 1
        return bytes(spoiled)

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        data = await super().read_range(key, start, end, pin=pin)
        return self._read(data, start) if key == "damaged" else data

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        tail = await super().read_tail(key, size)
        return ObjectTail(tail.info, tail.offset, self._read(tail.data, tail.offset)) if key == "damaged" else tail


async def written(table: pa.Table) -> bytes:
    options = rpq.WriteOptions(page_rows=8)
    return await file_bytes(table, row_group_rows=20, compression="none", encodings="PLAIN", options=options)


async def outputs_of(store: MemoryStore) -> Sequence[pa.Table]:
    names = [f"out/{name}" for name in await store.list_names("out")]
    return [pq.read_table(io.BytesIO((await store.read_tail(name, 1 << 20)).data)) for name in names]


@pytest.mark.parametrize("on_damage", ["drop", "null", "columns"])
@pytest.mark.parametrize("value", [3, 27, 35])
async def test_a_page_that_rots_after_some_read(on_damage: Any, value: int) -> None:
    """In its row group a page of another column is damaged already, or nothing is."""
    table = pa.table({"n": np.arange(ROWS) * 1_000_003, "other": np.arange(ROWS) * 7_000_009})
    whole = await written(table)
    data = bytearray(whole)
    data[whole.index((25 * 7_000_009).to_bytes(8, "little"))] ^= 0xFF
    place = whole.index((value * 1_000_003).to_bytes(8, "little"))
    failed = 0
    for after in range(20):
        store = Rotting(place, after)
        await store.put("damaged", bytes(data))
        try:
            report = await asyncio.wait_for(
                rpq.recover((store, "damaged"), (store, "out/f.parquet"), on_damage=on_damage), 60
            )
        except rpq.ResilientPQError:
            failed += 1
            assert await store.list_names("out") == [], "what was begun is not left"
            continue
        assert report.outcome == rpq.Outcome.PARTIAL
        for output in await outputs_of(store):
            for name in {"n", "other"} & set(output.column_names):
                assert set(output[name].to_pylist()) <= {*table[name].to_pylist(), None}
        if store.left > 0:
            break
    assert store.left > 0 and after > 1, "it was read twice, and the whole of it once"
