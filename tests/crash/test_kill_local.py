"""A writer killed with SIGKILL at a random moment leaves every row group it had written in NAME.parquet.partial."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sampled import either

import resilient_pq as rpq

GROUP, SIZE = 50, 400


async def kill_and_recover(
    seed: int,
    folder: Path,
    kill_writer: Callable[..., Any],
    written_rows: Callable[[int, int], dict[str, list[Any]]],
    parse_records: Callable[[bytes], list[Any]],
    lines: int,
) -> int:
    """How many rows came back."""
    name = folder / f"{seed}.parquet"
    killed = kill_writer(seed, str(name), group=GROUP, size=SIZE, lines=lines)
    assert not name.exists()
    partial = folder / f"{seed}.parquet.partial"
    promised = max(killed.rows("written"), killed.rows("stored"), killed.logged)
    assert killed.logged >= killed.rows("checkpoint")
    assert killed.rows("checkpoint") == killed.rows("checkpoint", "stored")
    if not partial.exists():
        assert not killed.lines
        return 0
    whole = [record for record in parse_records(partial.read_bytes()) if record.kind in (2, 3)]
    wanted = max((record.num_rows for record in whole), default=0)
    assert wanted >= promised
    output = folder / f"{seed}.recovered.parquet"
    try:
        report = await rpq.recover(partial, output)
    except rpq.NothingToRecoverError:
        assert not wanted
        assert not output.exists()
        return 0
    assert report.num_rows == wanted
    assert pq.read_table(output).to_pydict() == written_rows(wanted, SIZE)
    assert sorted(name for name in os.listdir(folder) if name.startswith(f"{seed}.")) == [
        partial.name,
        output.name,
    ]
    return wanted


@pytest.mark.parametrize("lines", either([[0, 4, 50]], [random.Random(1).choices(range(75), k=20)], 900))
async def test_killed_at_a_random_moment(
    tmp_path: Path, kill_writer: Any, written_rows: Any, parse_records: Any, lines: list[int]
) -> None:
    rows = [
        await kill_and_recover(seed, tmp_path, kill_writer, written_rows, parse_records, count)
        for seed, count in enumerate(lines)
    ]
    assert sum(map(bool, rows)) >= len(lines) // 2
