"""Folders of files as different writers leave them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import fastparquet
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes


def _frame(number: int) -> pd.DataFrame:
    rows = range(number * 10, number * 10 + 10)
    return pd.DataFrame({"n": rows, "s": [f"text {i % 4}" for i in rows], "f": [i / 4 for i in rows]})


def _by_us(frame: pd.DataFrame) -> bytes:
    # Within a loop or not: fixtures of either kind ask for it.
    return asyncio.run(file_bytes(pa.Table.from_pandas(frame), row_group_rows=4))


def _by_pyarrow(frame: pd.DataFrame) -> bytes:
    out = io.BytesIO()
    table = pa.Table.from_pandas(frame)
    pq.write_table(table, out, row_group_size=4, write_page_index=True, bloom_filter_options={"n": True})
    return out.getvalue()


def _by_fastparquet(frame: pd.DataFrame) -> bytes:
    class Kept(io.BytesIO):
        def close(self) -> None:
            pass

    out = Kept()
    fastparquet.write("file", frame, row_group_offsets=4, open_with=lambda *_: out)
    return out.getvalue()


@pytest.fixture(scope="session")
def writers() -> dict[str, Callable[[pd.DataFrame], bytes]]:
    """Who may have written a file: the bytes of a frame."""
    return {"us": _by_us, "pyarrow": _by_pyarrow, "fastparquet": _by_fastparquet}


@pytest.fixture(scope="session")
def frames() -> list[pd.DataFrame]:
    """Three frames of ten rows."""
    return [_frame(number) for number in range(3)]


@pytest.fixture(scope="session")
def folders(writers: dict[str, Any], frames: list[pd.DataFrame]) -> dict[str, dict[str, bytes]]:
    """For each writer the files of a folder, by name: a frame each, in row groups of 4, 4 and 2 rows."""
    return {
        kind: {f"day={number}/part.parquet": write(frame) for number, frame in enumerate(frames)}
        for kind, write in writers.items()
    }
