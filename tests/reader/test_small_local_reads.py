"""Small files of this machine: read in one go by the thread of a caller that blocks, or in one hop to a thread."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq import loop_portal, sync

TABLE = pa.table({f"{name}": np.arange(400_000) for name in "nopq"} | {"text": [f"text {n}" for n in range(400_000)]})


def test_a_small_file_is_read_in_the_thread_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    pq.write_table(TABLE, large, compression="none", use_dictionary=False)
    sync.write(small, TABLE.slice(0, 500), compression=None, encodings="PLAIN")
    with monkeypatch.context() as patched:
        patched.setattr(loop_portal.portal, "run", lambda coroutine: pytest.fail("it asks for the loop"))
        assert pa.table(sync.read(small)).num_rows == 500
        with sync.open(small) as file:
            assert pa.table(file.read(["text", "n"])).equals(TABLE.slice(0, 500).select(["text", "n"]))
        with pytest.raises(rpq.NotFoundError):
            sync.read(tmp_path / "none.parquet")
    # What needs threads, or several steps, goes on in the loop.
    assert sync.read(small, filters=[("n", "<", 10)]).num_rows == 10
    assert pa.table(sync.read(large)).equals(TABLE)
    data = bytearray(small.read_bytes())
    data[data.index(b"text 7") + 1] ^= 1
    small.write_bytes(data)
    with pytest.raises(rpq.ChecksumError):
        sync.read(small)
    small.write_bytes(data[:-9])
    with pytest.raises(rpq.TornFileError):
        sync.read(small)


async def test_a_small_file_is_read_in_one_hop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, hops = tmp_path / "small.parquet", []
    await rpq.write(small, TABLE.slice(0, 500))
    loop = asyncio.get_running_loop()
    run = loop.run_in_executor

    def counted(*args: Any) -> Any:
        hops.append(args)
        return run(*args)

    monkeypatch.setattr(loop, "run_in_executor", counted)
    assert (await rpq.read(small)).num_rows == 500
    assert len(hops) == 1
