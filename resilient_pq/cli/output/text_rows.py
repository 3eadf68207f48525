"""Rows as text: JSON lines and CSV. Nothing is printed here.

| value | JSON | CSV |
|---|---|---|
| null | null | nothing |
| date, time, timestamp | ISO 8601, with its offset where the column has a time zone | the same |
| duration | ISO 8601 (PT1.5S) | the same |
| decimal | text with all its digits | the same |
| UUID | its 36 characters | the same |
| bytes | base64 | the same |
| NaN, infinity | null, for JSON has neither | nan, inf |
| list, struct | array, object | JSON |
| map | array of [key, value] | JSON |
"""

from __future__ import annotations

import base64
import csv
import datetime as dt
import io
import json
import math
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.field import Field


def records_of(table: Table) -> list[dict[str, Any]]:
    """The rows as dicts; times that Python cannot hold are NumPy's, those of columns with a time zone are text."""
    records = table.to_pylist(inexact="numpy")
    for name in _zoned(table):
        for record in records:
            if isinstance(record[name], np.datetime64):
                record[name] = f"{record[name]}+00:00"
    return records


def _zoned(table: Table) -> list[str]:
    """The columns whose times NumPy gives in UTC, without saying so."""
    fields = Field.of(table.schema).children
    return [field.name for field in fields if field.kind == "ts" and field.parameter]


def json_lines(table: Table) -> str:
    """A JSON object per line."""
    return "".join(f"{json_text(record)}\n" for record in records_of(table))


def json_text(value: Any) -> str:
    """A value as JSON."""
    try:
        return _ENCODER.encode(value)
    except ValueError:  # NaN or an infinity somewhere in it
        return _ENCODER.encode(plain(value))


def csv_header(names: Sequence[str]) -> str:
    """The line with the names of the columns."""
    return _csv([names])


def csv_lines(table: Table) -> str:
    """A line of CSV (RFC 4180, but lines end as Unix has them) per row."""
    return _csv([[_cell(value) for value in record.values()] for record in records_of(table)])


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    match value:
        case bool() | dict() | list():
            return json_text(value)
        case None | str() | int() | float():
            return value
    return _text(value)


def plain(value: Any) -> Any:
    """The value with nothing in it that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | int):
        return value
    return _text(value)


def _text(value: Any) -> str:
    """The text of a value that JSON has no form for."""
    match value:
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case Decimal():
            return format(value, "f")
        case uuid.UUID():
            return str(value)
        case dt.date() | dt.time():  # a datetime is a date
            return value.isoformat()
        case dt.timedelta():
            microseconds = value // dt.timedelta(microseconds=1)
            return _duration(microseconds, 6)
        case np.datetime64():
            return str(value)
        case np.timedelta64():
            unit, _ = np.datetime_data(value.dtype)
            return _duration(int(value.astype(np.int64)), {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit])
    raise TypeError(f"{type(value).__name__} is no value of a column")


def _duration(count: int, digits: int) -> str:
    """A count of 10^-digits seconds as ISO 8601 has durations."""
    seconds = format(Decimal(abs(count)).scaleb(-digits), "f")
    if "." in seconds:
        seconds = seconds.rstrip("0").rstrip(".")
    return f"{'-' if count < 0 else ''}PT{seconds}S"


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_text, separators=(", ", ": "))
