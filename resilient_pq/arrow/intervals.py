"""Parquet's INTERVAL and Arrow's month_day_nano_interval: numbers that are added to a time each by itself."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Bytes of an INTERVAL: months, days and milliseconds, unsigned, of four bytes each (LogicalTypes.md).
INTERVAL_WIDTH: Final = 12
#: Bytes of a month_day_nano_interval: months and days of four bytes, nanoseconds of eight, signed.
MONTH_DAY_NANO: Final = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_STORED: Final = np.dtype([("months", "<u4"), ("days", "<u4"), ("milliseconds", "<u4")])
_NANOSECONDS: Final = 1_000_000


class MonthDayNano(NamedTuple):
    """An interval, equal to that of pyarrow."""

    months: int
    days: int
    nanoseconds: int


def interval_of(value: Any) -> bytes | None:
    """Arrow's bytes of months, days and nanoseconds, or of the 12 bytes of an INTERVAL; None where it is neither."""
    if isinstance(value, bytes) and len(value) == INTERVAL_WIDTH:
        return from_intervals(np.frombuffer(value, np.uint8))[0].tobytes()
    try:
        months, days, nanoseconds = value
        return np.array([(months, days, nanoseconds)], MONTH_DAY_NANO).tobytes()
    except (TypeError, ValueError, OverflowError):
        return None


def to_intervals(rows: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], int | None]:
    """INTERVALs of rows of Arrow's bytes, and the first that Parquet has no form for, if there is one."""
    given = np.ascontiguousarray(rows).view(MONTH_DAY_NANO).ravel()
    stored = np.zeros(len(given), _STORED)
    milliseconds, rest = np.divmod(given["nanoseconds"], _NANOSECONDS)
    wrong = (given["months"] < 0) | (given["days"] < 0) | (rest != 0)
    wrong |= (milliseconds < 0) | (milliseconds >= 1 << 32)
    stored["months"], stored["days"], stored["milliseconds"] = given["months"], given["days"], milliseconds
    first = int(np.argmax(wrong)) if wrong.any() else None
    return stored.view(np.uint8).reshape(-1, INTERVAL_WIDTH), first


def from_intervals(rows: NDArray[np.uint8]) -> tuple[NDArray[Any], int | None]:
    """Arrow's intervals of INTERVALs, and the first that Arrow has no form for, if there is one."""
    stored = np.ascontiguousarray(rows).view(_STORED).ravel()
    given = np.zeros(len(stored), MONTH_DAY_NANO)
    given["months"], given["days"] = stored["months"], stored["days"]
    given["nanoseconds"] = stored["milliseconds"].astype(np.int64) * _NANOSECONDS
    wrong = (stored["months"] >= 1 << 31) | (stored["days"] >= 1 << 31)
    return given, int(np.argmax(wrong)) if wrong.any() else None
