"""The rows that the demo streams: made in its writer, and made again to compare what was recovered."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.batch_sources import open_source
from resilient_pq.arrow.buffers import array_of_part
from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.field import Field
from resilient_pq.cli.demo.flights import Flights
from resilient_pq.cli.input.background import in_background
from resilient_pq.cli.input.input_rows import BLOCK_BYTES, Batches, open_rows

#: About how many times the writer is handed rows, so that it can be killed anywhere between.
PIECES = 160
_MIN_BLOCK_BYTES = 64 * 1024
#: The columns of the generated table that are read back: numbers and text, both with nulls.
_FLIGHT_COLUMNS = ("dep_delay", "tailnum")
#: Columns of these kinds are the same in NumPy whether they were written or read.
_COMPARED_KINDS = frozenset("bcCsSiIlLfguUzZd") | {"tdD", "tdm", "ts"}

#: Rows of any maker, with the share of all rows that they and those before them are.
Pieces = AsyncGenerator[tuple[Any, float], None]


@dataclass(frozen=True, slots=True)
class DemoStream:
    """The Arrow schema of rows, and the rows in order, in many small pieces."""

    schema: Any
    pieces: Pieces


@dataclass(frozen=True, slots=True)
class DemoRows:
    """The source of the rows: a generator with a seed, or the file `input`."""

    num_rows: int
    seed: int
    input: str | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[DemoStream]:
        """The rows from the first on; every call gives the same."""
        if self.input is None:
            flights = Flights(self.num_rows, self.seed)
            async with aclosing(_generated(flights)) as pieces:
                yield DemoStream(flights.schema, pieces)
            return
        size = await asyncio.to_thread(_size, self.input)
        block_bytes = min(max(size // PIECES, _MIN_BLOCK_BYTES), BLOCK_BYTES)
        async with (
            open_rows(self.input, block_bytes=block_bytes) as rows,
            aclosing(_in_pieces(rows.batches)) as pieces,
        ):
            yield DemoStream(rows.schema, pieces)


async def _generated(flights: Flights) -> Pieces:
    done = 0
    async with aclosing(in_background(flights.tables())) as tables:
        async for table in tables:
            done += table.num_rows
            yield table, done / flights.num_rows


async def _in_pieces(batches: Batches) -> Pieces:
    before = 0.0
    async for batch, share in batches:
        num_rows, after = len(batch), 1.0 if share is None else share
        step = max(int(num_rows / max((after - before) * PIECES, 1)), 1)
        for start in range(0, num_rows, step):
            end = min(start + step, num_rows)
            yield _slice(batch, start, end), before + (after - before) * end / num_rows
        before = after


def _slice(batch: Any, start: int, end: int) -> Any:
    """Some rows of what a reader gives: pyarrow's and our own tables have a method, nanoarrow's arrays do not."""
    return batch.slice(start, end - start) if hasattr(batch, "slice") else batch[start:end]


def _size(path: str) -> int:
    """Bytes of a local file; 0 for what is none."""
    return os.path.getsize(path) if os.path.exists(path) else 0


def columns_to_compare(schema: Any) -> list[str]:
    """Two columns of an Arrow schema to read back: one of text and another one, if there are such."""
    fields = [field for field in Field.of(schema).children if field.kind in _COMPARED_KINDS]
    names = [field.name for field in fields]
    if all(name in names for name in _FLIGHT_COLUMNS):
        return list(_FLIGHT_COLUMNS)
    fields = [field for field in fields if names.count(field.name) == 1]
    text = [field.name for field in fields if field.kind in ("u", "U")]
    others = [field.name for field in fields if field.kind not in ("u", "U")]
    return [*others[:1], *text[:1], *others[1:], *text[1:]][:2]


def _columns_of(batch: Any, names: list[str]) -> Table:
    """Some columns of any maker's rows as a table of ours."""
    source = open_source(batch)
    positions = [[field.name for field in source.field.children].index(name) for name in names]
    chunks, num_rows = [], 0
    for rows in source.batches:
        chunks.append([array_of_part(rows.columns[position]) for position in positions])
        num_rows += rows.length
    return Table([source.field.children[position].to_c() for position in positions], chunks, num_rows)


@dataclass(slots=True)
class Comparison:
    """The number of equal rows from the first on, and the first difference in words."""

    num_rows: int = 0
    difference: str | None = None


async def compare(kept: AsyncIterator[Table], written: Pieces, columns: list[str]) -> Comparison:
    """Compare some columns with those that were written, in order, a batch at a time."""
    result = Comparison()
    piece, at = Table([], [], 0), 0
    async for batch in kept:
        start = 0
        while start < batch.num_rows:
            while at == piece.num_rows:
                following = await anext(written, None)
                if following is None:
                    result.difference = "there are more rows than were ever written"
                    return result
                piece, at = _columns_of(following[0], columns), 0
            count = min(batch.num_rows - start, piece.num_rows - at)
            one, other = batch.slice(start, count), piece.slice(at, count)
            for name in columns:
                if not _same(one[name], other[name]):
                    rows = f"rows {result.num_rows:,} to {result.num_rows + count - 1:,}"
                    result.difference = f"column {name}: a value in {rows} is not what was written"
                    return result
            start, at = start + count, at + count
            result.num_rows += count
    return result


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two columns have the same nulls, and the same values elsewhere; NaN is NaN."""
    there = ~np.ma.getmaskarray(one)
    if not np.array_equal(there, ~np.ma.getmaskarray(other)):
        return False
    values, expected = np.asarray(one)[there], np.asarray(other)[there]
    return np.array_equal(values, expected, equal_nan=values.dtype.kind == "f")
