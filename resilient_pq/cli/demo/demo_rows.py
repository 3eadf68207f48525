"""The rows that the demo streams: made in its writer, and made again to compare what was recovered."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.batch_sources import open_source
from resilient_pq.arrow.buffers import array_of_part, make_array
from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.field import Field
from resilient_pq.cli.input.input_rows import BLOCK_BYTES, Batches, open_rows
from resilient_pq.cli.input.input_stream import in_background
from resilient_pq.lazy_dataclass import dataclass

#: Flights on a day of 2013.
ROWS_PER_DAY = 923
#: Rows that are made at a time: at most so many, and about so many times for small tables.
MAX_BATCH_ROWS = 16_384
_BATCHES = 128

_FIRST_DAY = np.datetime64("2013-01-01", "D")
_FIRST_MINUTE, _LAST_MINUTE = 300, 1439

_CARRIERS = np.array(["UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL", "AS"], "S2")
_CARRIER_SHARES = (59, 55, 54, 48, 33, 26, 20, 18, 12, 5, 3, 1)
_PLANES_PER_CARRIER = 320
_ORIGINS = np.array(["EWR", "JFK", "LGA"], "S3")
_ORIGIN_SHARES = (121, 111, 105)
#: Where to, how many miles, how often.
_ROUTES = (
    ("ORD", 733, 173), ("ATL", 762, 172), ("LAX", 2475, 162), ("BOS", 187, 155), ("MCO", 944, 141),
    ("CLT", 541, 141), ("SFO", 2586, 133), ("FLL", 1069, 121), ("MIA", 1089, 117), ("DCA", 213, 97),
    ("DTW", 502, 94), ("DFW", 1389, 87), ("RDU", 427, 82), ("TPA", 1005, 75), ("DEN", 1620, 73),
    ("IAH", 1400, 72), ("MSP", 1020, 72), ("PBI", 1028, 66), ("BNA", 764, 63), ("LAS", 2248, 60),
    ("SJU", 1598, 58), ("IAD", 228, 57), ("BUF", 301, 47), ("PHX", 2133, 47),
)  # fmt: skip
_DESTINATIONS = np.array([code for code, _, _ in _ROUTES], "S3")
_DISTANCES = np.array([miles for _, miles, _ in _ROUTES])
_DESTINATION_SHARES = tuple(share for _, _, share in _ROUTES)

_LETTERS = np.frombuffer(b"ABCDEFGHJKLMNPQRSTUVWXYZ", "S1")

Values = NDArray[Any]


class Flights:
    """The rows of one seed."""

    def __init__(self, num_rows: int, seed: int) -> None:
        """Make a table of `num_rows` rows, at least one; `seed` is not negative."""
        self.num_rows = num_rows
        self._seed = seed
        self._batch_rows = min(max(num_rows // _BATCHES, 1), MAX_BATCH_ROWS)
        self._tail_numbers = _tail_numbers(np.random.default_rng(seed))

    @property
    def schema(self) -> Any:
        """The Arrow schema of every batch."""
        return self._table(0, 1).schema

    def tables(self) -> Generator[Table, None, None]:
        """All rows in order, a batch at a time; every call gives the same."""
        for first in range(0, self.num_rows, self._batch_rows):
            yield self._table(first, min(self._batch_rows, self.num_rows - first))

    def _table(self, first: int, count: int) -> Table:
        random = np.random.default_rng((self._seed, first))
        day, minute = _schedule(np.arange(first, first + count), random)
        carrier = _choose(random, _CARRIER_SHARES, count)
        route = _choose(random, _DESTINATION_SHARES, count)
        plane = carrier * _PLANES_PER_CARRIER + random.integers(0, _PLANES_PER_CARRIER, count)
        air_time = np.maximum(_DISTANCES[route] / 7.6 + 18 + random.normal(0, 9, count), 20).astype(np.int64)
        dep_delay = _delays(random, count)
        arr_delay = dep_delay + random.normal(-6, 16, count).astype(np.int64)
        left = random.random(count) > 0.0245
        landed = left & (random.random(count) > 0.0035)
        planned = minute + air_time + 35
        columns = [
            *_dates(day),
            _number("dep_time", _clock(minute + dep_delay), left),
            _number("sched_dep_time", _clock(minute)),
            _number("dep_delay", dep_delay, left),
            _number("arr_time", _clock(planned + arr_delay), landed),
            _number("sched_arr_time", _clock(planned)),
            _number("arr_delay", arr_delay, landed),
            _text("carrier", _CARRIERS[carrier]),
            _number("flight", 1 + (carrier * 487 + route * 31 + random.integers(0, 9, count)) % 6000),
            _text("tailnum", self._tail_numbers[plane], left | (random.random(count) > 0.3)),
            _text("origin", _ORIGINS[_choose(random, _ORIGIN_SHARES, count)]),
            _text("dest", _DESTINATIONS[route]),
            _number("air_time", air_time, landed),
            _number("distance", _DISTANCES[route]),
            _number("hour", minute // 60),
            _number("minute", minute % 60),
            _hour(day, minute),
        ]
        return Table([field.to_c() for field, _ in columns], [[array for _, array in columns]], count)


def _schedule(rows: Values, random: np.random.Generator) -> tuple[Values, Values]:
    """Days, and minutes of the day on which each flight is to leave, mostly at five past something."""
    day = _FIRST_DAY + rows // ROWS_PER_DAY
    through_the_day = (rows % ROWS_PER_DAY) / ROWS_PER_DAY
    minute = _FIRST_MINUTE + through_the_day * (_LAST_MINUTE - _FIRST_MINUTE)
    minute = np.clip(minute + random.normal(0, 12, len(rows)), _FIRST_MINUTE, _LAST_MINUTE).astype(np.int64)
    return day, np.where(random.random(len(rows)) < 0.7, minute - minute % 5, minute)


def _delays(random: np.random.Generator, count: int) -> Values:
    """Most leave a little early, some late, a few very late."""
    early = random.normal(-4, 3.5, count)
    late = random.exponential(38, count)
    delays: Values = np.where(random.random(count) < 0.64, early, late).clip(-43, 1300).astype(np.int64)
    return delays


def _choose(random: np.random.Generator, shares: tuple[int, ...], count: int) -> Values:
    bounds = np.cumsum(shares)
    chosen: Values = np.searchsorted(bounds, random.integers(0, bounds[-1], count), side="right")
    return chosen


def _clock(minutes: Values) -> Values:
    """Minutes of the day as the clock shows them: 517 is 5:17, and midnight is 2400."""
    minutes = (minutes - 1) % 1440 + 1
    shown: Values = minutes // 60 * 100 + minutes % 60
    return shown


def _tail_numbers(random: np.random.Generator) -> Values:
    count = len(_CARRIERS) * _PLANES_PER_CARRIER
    numbers = random.integers(100, 1000, count).astype("S3")
    first, second = _LETTERS[random.integers(0, len(_LETTERS), (2, count))]
    found: Values = np.char.add(np.char.add(np.char.add(b"N", numbers), first), second)
    return found


# -- Arrow ---------------------------------------------------------------------------------------


def _number(name: str, values: Values, valid: Values | None = None) -> tuple[Field, Any]:
    field = Field(name, "i")
    return field, make_array(field, len(values), [values.astype(np.int32)], valid)


def _text(name: str, values: Values, valid: Values | None = None) -> tuple[Field, Any]:
    """Strings of one length each, whose bytes NumPy has back to back already."""
    field, width = Field(name, "u"), values.dtype.itemsize
    offsets = np.arange(len(values) + 1, dtype=np.int32) * width
    return field, make_array(field, len(values), [offsets, values.view(np.uint8)], valid)


def _dates(day: Values) -> list[tuple[Field, Any]]:
    month = day.astype("M8[M]")
    year = month.astype("M8[Y]")
    return [
        _number("year", year.astype(np.int64) + 1970),
        _number("month", (month - year).astype(np.int64) + 1),
        _number("day", (day - month).astype(np.int64) + 1),
    ]


def _hour(day: Values, minute: Values) -> tuple[Field, Any]:
    """The hour of the schedule, New York's winter time, in UTC."""
    field = Field("time_hour", "tsu:UTC")
    hours = day.astype("M8[h]") + minute // 60 + 5
    return field, make_array(field, len(hours), [hours.astype("M8[us]").view(np.int64)], None)


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
