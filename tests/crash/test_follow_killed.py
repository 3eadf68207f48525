"""A writer that is followed, and killed with SIGKILL while it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import resilient_pq as rpq

GROUP, SIZE = 50, 400


async def test_all_rows_of_checkpoints_come_and_then_an_error(
    tmp_path: Path, kill_writer: Callable[..., Any], written_rows: Callable[[int, int], dict[str, list[Any]]]
) -> None:
    path = tmp_path / "f.parquet"
    partial = tmp_path / "f.parquet.partial"
    killing = asyncio.create_task(asyncio.to_thread(kill_writer, 3, str(path), group=GROUP, size=SIZE, lines=60))
    while not partial.exists():
        assert not killing.done()
        await asyncio.sleep(0.01)
    got: dict[str, list[Any]] = {"id": [], "name": [], "noise": []}
    looked = 0

    async def wait(seconds: float) -> None:
        nonlocal looked
        looked += 1
        await asyncio.sleep(0.01)

    async with rpq.open(path, follow=rpq.FollowOptions(wait=wait)) as file:
        with pytest.raises(rpq.TornFileError, match="its writer has ended"):
            async for batch in file.batches():
                for name, values in batch.to_pydict().items():
                    got[name] += values
    killed = await killing
    num_rows = len(got["id"])
    assert num_rows >= killed.rows("checkpoint") > 0
    assert num_rows % GROUP == 0 and looked
    assert got == written_rows(num_rows, SIZE)
