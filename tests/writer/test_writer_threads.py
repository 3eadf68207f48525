"""Column chunks are encoded in several threads: side by side, but in order, and with the same bytes as in one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import resilient_pq as rpq
from resilient_pq import WriteOptions
from resilient_pq.format import kernels
from resilient_pq.format.encodings import dictionary
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.writer import file_encoder, file_writer
from resilient_pq.writer.dictionary_use import DictionaryUse

Look = Callable[..., Awaitable[Any]]
NUM_COLUMNS = 7


def _table(num_rows: int) -> pa.Table:
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {f"x{i}": rng.random(num_rows) for i in range(NUM_COLUMNS - 2)}
    columns["word"] = [f"word {number}" for number in rng.integers(0, 90, num_rows)]
    columns["list"] = [[1, 2][: number % 3] for number in range(num_rows)]
    return pa.table(columns)


@pytest.mark.usefixtures("threads_for_small_chunks")
@pytest.mark.parametrize("page_bytes", [200, 1 << 20])
@pytest.mark.parametrize("max_threads", [2, 3, 16])
async def test_the_bytes_are_those_of_one_thread(
    store: MemoryStore, bytes_of: Look, monkeypatch: pytest.MonkeyPatch, max_threads: int, page_bytes: int
) -> None:
    """Also where chunks have many pages, and dictionaries of many values, which threads without a chunk help with."""
    monkeypatch.setattr(file_writer.os, "urandom", bytes)  # the id of the file
    monkeypatch.setattr(dictionary, "_PART", 100)
    for key, threads in (("one", 1), ("several", max_threads)):
        options = WriteOptions(max_threads=threads)
        how: dict[str, Any] = {"row_group_rows": 700, "checkpoint_every": 2, "page_bytes": page_bytes}
        async with rpq.create((store, key), options=options, **how) as writer:
            for _ in range(3):
                await writer.write(_table(1000))
    assert await bytes_of(store, "one") == await bytes_of(store, "several")


@pytest.mark.usefixtures("threads_for_small_chunks")
@pytest.mark.parametrize("max_threads", [1, 2, 4])
async def test_as_many_chunks_as_asked_for_are_encoded_at_one_time(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, max_threads: int
) -> None:
    running, most, lock = 0, 0, threading.Lock()
    # Each waits for the others: with fewer threads than asked for nobody would go on.
    together = threading.Barrier(max_threads, timeout=60)
    encode = file_encoder.encode_chunk

    def counted(*arguments: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1
        return encode(*arguments)

    monkeypatch.setattr(kernels, "FlatWriter", None)
    monkeypatch.setattr(file_encoder, "encode_chunk", counted)
    options = WriteOptions(max_threads=max_threads)
    columns = {f"x{i}": [1.5] for i in range(8)}  # a multiple of all numbers of threads
    async with rpq.create((store, "file"), options=options) as writer:
        await writer.write(columns)
    assert most == max_threads


@pytest.mark.parametrize("max_threads", [2, 4])
async def test_small_row_groups_behind_large_ones(store: MemoryStore, max_threads: int) -> None:
    """One thread is enough for them, and the others are still at work when they are closed."""
    rng = np.random.default_rng(3)
    large = pa.array([rng.bytes(1000) for _ in range(500)])
    small = pa.array([b""] * 500)
    table = pa.table({name: pa.chunked_array([large, small] * 3) for name in "abcd"})
    options = WriteOptions(max_threads=max_threads)
    async with rpq.create((store, "f"), row_group_rows=500, options=options) as writer:
        async with asyncio.timeout(60):
            await writer.write(table)
    async with rpq.open((store, "f")) as file:
        assert pa.table(await file.read()).equals(table)


@pytest.mark.usefixtures("threads_for_small_chunks")
async def test_when_one_chunk_fails_the_others_have_ended_before_the_error_arrives(
    store: MemoryStore, is_there: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, failed, ended = threading.Event(), threading.Event(), threading.Event()
    encode = file_encoder.encode_chunk

    def breaking(leaf: Any, *arguments: Any) -> Any:
        if leaf.column_path == "x0":
            assert begun.wait(60)  # what has not begun is not begun any more
            failed.set()
            raise rpq.EncodingError("broken on purpose")
        begun.set()
        assert failed.wait(60)
        chunk = encode(leaf, *arguments)
        ended.set()
        return chunk

    monkeypatch.setattr(kernels, "FlatWriter", None)
    monkeypatch.setattr(file_encoder, "encode_chunk", breaking)
    with pytest.raises(rpq.EncodingError, match="broken on purpose") as caught:
        async with rpq.create((store, "file"), options=WriteOptions(max_threads=2)) as writer:
            await writer.write(_table(10))
            await writer.checkpoint()
    assert ended.is_set()
    assert caught.value.where.column == "x0" and caught.value.where.row_group == 0
    assert not await is_there(store)


@pytest.mark.parametrize("chosen", [True, False, None])
def test_a_chunk_waits_for_what_the_ones_before_choose(chosen: bool | None) -> None:
    """Else the order of threads would decide whether a column has dictionaries."""
    use = DictionaryUse(None)
    with ThreadPoolExecutor(1) as pool:
        try:
            asked = pool.submit(use.known, 1)
            assert not wait([asked], 0.02).done
            if chosen is not None:
                assert use.settle(chosen)
        finally:
            use.end(0)
        assert asked.result() is chosen
