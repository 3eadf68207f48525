"""INT96: the time stamps of old writers, eight bytes of nanoseconds in the day, then four of the Julian day."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import Valid
from resilient_pq.arrow.types.field import PER_SECOND, Field
from resilient_pq.format.physical_values import INT96_WIDTH, JULIAN_DAY_OF_EPOCH, NANOS_PER_DAY

_SECONDS_PER_DAY: Final = 86_400
_NANOS_PER_MICRO: Final = 1000
#: The first and the last nanosecond that 64 bits hold, as a day and a nanosecond in it.
_FIRST_DAY, _FIRST_NANO = divmod(-(2**63), NANOS_PER_DAY)
_LAST_DAY, _LAST_NANO = divmod(2**63 - 1, NANOS_PER_DAY)


class CutTimestampWarning(UserWarning):
    """INT96 timestamps came in microseconds, as one is beyond nanoseconds, and others lost digits by that."""


def micros_of(field: Field, nanos: NDArray[np.int64], valid: Valid | None) -> NDArray[np.int64]:
    """Nanoseconds as whole microseconds; where digits are lost, a warning says so."""
    _warn_of_cuts(field, nanos if valid is None else nanos[valid])
    return nanos // _NANOS_PER_MICRO


def _warn_of_cuts(field: Field, nanos: NDArray[np.int64]) -> None:
    if (nanos % _NANOS_PER_MICRO).any():
        warnings.warn(
            f"column {field.name!r}: some INT96 timestamps are beyond nanoseconds, so all come in microseconds, and"
            ' others lost digits by that; ReadOptions(coerce_int96_timestamp_unit="us") asks for it',
            CutTimestampWarning,
            stacklevel=3,
        )


def int96_timestamps(field: Field, values: NDArray[Any], valid: Valid | None) -> tuple[Field, NDArray[Any]]:
    """The values of an INT96 leaf, counted from 1970 and cut to whole ones of the field's unit, and the field with it.

    Of nanoseconds, they come in microseconds where one is outside the years 1677 to 2262, which is all that nanoseconds
    reach. Microseconds wrap around at 64 bits, as those of Spark do, which writes years beyond 292277 so.
    """
    words = np.ascontiguousarray(values)
    nanos = words[:, :8].copy().view("<i8").ravel()
    days = words[:, 8:].copy().view("<i4").ravel().astype(np.int64) - JULIAN_DAY_OF_EPOCH
    if valid is not None:
        nanos, days = np.where(valid, nanos, 0), np.where(valid, days, 0)
    # Nanoseconds may be negative or more than a day: bring them into the day before days are multiplied.
    days, nanos = days + nanos // NANOS_PER_DAY, nanos % NANOS_PER_DAY
    if field.unit == "ns":
        outside = (days < _FIRST_DAY) | ((days == _FIRST_DAY) & (nanos < _FIRST_NANO))
        outside |= (days > _LAST_DAY) | ((days == _LAST_DAY) & (nanos > _LAST_NANO))
        if outside.any():
            _warn_of_cuts(field, nanos)
            field = replace(field, format=f"tsu:{field.parameter}")
    per_second = PER_SECOND[field.unit]
    # At either end the product alone may wrap around, and the sum then wraps back.
    return field, days * (_SECONDS_PER_DAY * per_second) + nanos // (10**9 // per_second)


def int96_rows(nanos: NDArray[Any]) -> NDArray[np.uint8]:
    """Nanoseconds since 1970 as INT96, twelve bytes a row."""
    days = nanos // NANOS_PER_DAY
    rows = np.empty((len(nanos), INT96_WIDTH), np.uint8)
    rows[:, :8] = (nanos - days * NANOS_PER_DAY).astype("<i8")[:, None].view(np.uint8)
    rows[:, 8:] = (days + JULIAN_DAY_OF_EPOCH).astype("<i4")[:, None].view(np.uint8)
    return rows
