"""INT96: the time stamps of old writers, eight bytes of nanoseconds in the day, then four of the Julian day."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import Valid
from resilient_pq.arrow.field import Field
from resilient_pq.errors import FormatError, Where
from resilient_pq.format.values import LeafColumn

_JULIAN_DAY_OF_EPOCH: Final = 2_440_588
_SECONDS_PER_DAY: Final = 86_400
#: For each unit, how many of it are a second.
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NAMES: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_HINT: Final = 'read it with ReadOptions(coerce_int96_timestamp_unit="{}")'


def int96_timestamps(
    field: Field, column: LeafColumn, values: NDArray[Any], valid: Valid | None
) -> tuple[Field, NDArray[Any]]:
    """The values of an INT96 leaf, counted from 1970.

    Args:
        field: A time stamp of any unit. Of another unit than nanoseconds, values are cut to whole ones of it.
            Of nanoseconds, they come in microseconds where one is outside the years 1677 to 2262, which is
            all that nanoseconds reach.
        column: The leaf.
        values: Twelve bytes a row.
        valid: Which rows have a value; None where all have.

    Returns:
        The field with the unit in which the values are, and the values.

    Raises:
        FormatError: A value is beyond what the unit reaches; or one is beyond nanoseconds, and another is no
            whole number of microseconds.
    """
    words = np.ascontiguousarray(values)
    nanos = words[:, :8].copy().view("<i8").ravel()
    days = words[:, 8:].copy().view("<i4").ravel().astype(np.int64) - _JULIAN_DAY_OF_EPOCH
    if valid is not None:
        nanos, days = np.where(valid, nanos, 0), np.where(valid, days, 0)
    # Nanoseconds may be negative or more than a day: bring them into the day before days are multiplied.
    nanos_per_day = _SECONDS_PER_DAY * _PER_SECOND["ns"]
    days, nanos = days + nanos // nanos_per_day, nanos % nanos_per_day
    outside = _outside(days, nanos, field.unit)
    if outside is not None and field.unit == "ns":
        if (nanos % 1000).any():
            raise _beyond(column, int(days[outside]), "ns", "us")
        field = replace(field, format=f"tsu:{field.parameter}")
        outside = _outside(days, nanos, "us")
    if outside is not None:
        raise _beyond(column, int(days[outside]), field.unit, "ms" if field.unit == "us" else "s")
    per_second = _PER_SECOND[field.unit]
    # At either end the product alone may wrap around, and the sum then wraps back.
    return field, days * (_SECONDS_PER_DAY * per_second) + nanos // (10**9 // per_second)


def _outside(days: NDArray[np.int64], nanos: NDArray[np.int64], unit: str) -> int | None:
    """The first row whose count of the unit 64 bits do not hold; None where there is none."""
    per_second = _PER_SECOND[unit]
    first_day, first_count = divmod(-(2**63), _SECONDS_PER_DAY * per_second)
    last_day, last_count = divmod(2**63 - 1, _SECONDS_PER_DAY * per_second)
    counts = nanos // (10**9 // per_second)
    before = (days < first_day) | ((days == first_day) & (counts < first_count))
    behind = (days > last_day) | ((days == last_day) & (counts > last_count))
    outside = before | behind
    return int(np.argmax(outside)) if outside.any() else None


def _beyond(column: LeafColumn, day: int, unit: str, instead: str) -> FormatError:
    path = column.leaf.column_path
    return FormatError(
        f"column {path!r}: an INT96 timestamp (day {day:,} from 1970) is beyond what {_NAMES[unit]} reach",
        where=Where(column=path),
        hint=_HINT.format(instead),
    )
