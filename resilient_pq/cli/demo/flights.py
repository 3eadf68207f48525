"""Flights for the demo: a table of the shape of nycflights13, as many rows as wanted, the same for the same seed.

Departures from New York go on day after day in the order of their schedule. Delays have a long tail, cancelled
flights have nulls where something did not happen, planes fly for one carrier.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import make_array
from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.field import Field

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
