"""Types of columns of text, and values of them: named, given by a schema, or taken from the first values.

A type is taken from values only where it keeps what is written: 03324, +47 and -0 are no integers, and digits that no
integer of 64 bits can have are text.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

import numpy as np

from resilient_pq.arrow.buffers import make_array, storage_dtype
from resilient_pq.arrow.python_values import array_of
from resilient_pq.arrow.types.field import PER_SECOND, Field
from resilient_pq.errors import SchemaError

#: What stands for null in columns that are no text; in text only what `--null` names does.
NULLS: Final = frozenset(
    (
        "",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "N/A",
        "NA",
        "NULL",
        "NaN",
        "n/a",
        "nan",
        "null",
    )
)
#: Numbers that keep their value and leave nothing of what is written out; RE2 of pyarrow understands them, too.
INTEGER: Final = r"0|-?[1-9][0-9]{0,18}"
_WHOLE: Final = r"(0|[1-9][0-9]*)"
_POWER: Final = r"[eE][+-]?[0-9]+"
FLOAT: Final = rf"{INTEGER}|-?(({_WHOLE}?\.[0-9]+|{_WHOLE}\.)({_POWER})?|{_WHOLE}{_POWER}|inf|Inf|INF)"
_INTEGER, _FLOAT = re.compile(INTEGER), re.compile(FLOAT)
_DIGITS = re.compile(r"[+-]?[0-9]{1,100}")
_ANY_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|Inf|INF)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", re.ASCII)
_TIMESTAMP = re.compile(
    rf"({_DAY.pattern})(?:[ T](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{{1,9}}))?)?)?(?:(Z)|([+-])(\d\d)(?::?(\d\d))?)?)?",
    re.ASCII,
)
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()

_NAMES = {
    "string": "u", "str": "u", "binary": "z", "bool": "b", "int8": "c", "uint8": "C", "int16": "s", "uint16": "S",
    "int32": "i", "uint32": "I", "int64": "l", "int": "l", "uint64": "L", "float": "f", "float32": "f", "double": "g",
    "float64": "g", "date32": "tdD", "date": "tdD", "time32[s]": "tts", "time32[ms]": "ttm", "time64[us]": "ttu",
    "time64[ns]": "ttn",
}  # fmt: skip
_TIMESTAMP_NAME = re.compile(r"timestamp\[(s|ms|us|ns)(?:, *(?:tz=)?([^\]]+))?\]")
_DECIMAL_NAME = re.compile(r"decimal(?:128)?\((\d+), *(\d+)\)")
_ONE_TYPE = re.compile(r" *([^=]+?) *= *((?:[^,\[(]|\[[^\]]*\]|\([^)]*\))+?) *(?:,|$)")
_EXAMPLE: Final = "--types zip=string,ts=timestamp[ms]"


def parse_types(text: str) -> dict[str, Field]:
    """The fields of ``zip=string,ts=timestamp[ms]``, with the names that pyarrow gives types."""
    fields, at = {}, 0
    while at < len(text):
        found = _ONE_TYPE.match(text, at)
        if found is None:
            raise ValueError(f"{text[at:]!r} does not name a column and its type; an example: {_EXAMPLE}")
        fields[found[1]] = Field(found[1], _format(found[2]))
        at = found.end()
    return fields


def _format(name: str) -> str:
    if found := _TIMESTAMP_NAME.fullmatch(name):
        return f"ts{found[1][0]}:{found[2] or ''}"
    if (found := _DECIMAL_NAME.fullmatch(name)) and 0 <= int(found[2]) <= int(found[1]) <= 38:
        return f"d:{found[1]},{found[2]}"
    if name not in _NAMES:
        known = ", ".join([*_NAMES, "timestamp[UNIT]", "timestamp[UNIT, tz=ZONE]", "decimal128(DIGITS, SCALE)"])
        raise ValueError(f"{name!r} is not a type; types are {known}")
    return _NAMES[name]


# --- types from values --------------------------------------------------------------------------------------


def inferred(name: str, texts: Collection[str], *, times_only: bool = False) -> Field:
    """The first type that keeps all texts as they are, which are not null; without any the type is null."""
    if not texts:
        return Field(name, "n")
    for format in _TIMES if times_only else _CANDIDATES:
        field = Field(name, format)
        if all(map(partial(_keeps, field), texts)):
            return field
    return Field(name, "z" if any(not text.isascii() and _is_no_text(text) for text in texts) else "u")


#: As `pyarrow.csv` tries them, and `pyarrow.json`.
_CANDIDATES = ("l", "b", "tdD", "tts", "tss:", "tss:UTC", "tsn:", "tsn:UTC", "g")
_TIMES = ("tss:",)


def _keeps(field: Field, text: str) -> bool:
    text = text.strip(" \t")
    if field.kind == "g":
        # A number of digits alone, which is among others: it may have more than a float keeps.
        return bool(_FLOAT.fullmatch(text)) and (not _DIGITS.fullmatch(text) or int(text) == float(text))
    if field.kind == "l" and not _INTEGER.fullmatch(text):
        return False
    if field.kind == "ts" and field.unit == "s" and "." in text:
        return False  # pyarrow reads no fractions as seconds, not even .000, and Python reads them far more slowly
    try:
        value_of(field, text)
    except ValueError:
        return False
    return field.kind != "b" or text in _BOOLEANS


def _is_no_text(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


# --- values -------------------------------------------------------------------------------------------------


def value_of(field: Field, text: str) -> Any:
    """What an array of the type is made of: strings, bytes, decimals, or numbers as they are stored."""
    kind = field.kind
    if kind in ("u", "U"):
        if not text.isascii() and _is_no_text(text):
            raise ValueError("it is not UTF-8")
        return text
    if kind in ("z", "Z"):
        return text.encode("utf-8", "surrogateescape")
    text = text.strip(" \t")
    if kind == "b":
        return text == "1" if text in ("0", "1") else _looked_up(text)
    if kind in ("f", "g"):
        if not _ANY_FLOAT.fullmatch(text):
            raise ValueError("it is not a number")
        return float(text)
    if kind == "d":
        try:
            return Decimal(text)
        except InvalidOperation:
            raise ValueError("it is not a decimal") from None
    number = _READ[kind](field, text) if kind in _READ else int(_matched(_DIGITS, text)[0])
    limits = np.iinfo(storage_dtype(field))
    if not limits.min <= number <= limits.max:
        raise ValueError("it is out of range")
    return number


def _looked_up(text: str) -> bool:
    if text not in _BOOLEANS:
        raise ValueError("it is neither true nor false")
    return _BOOLEANS[text]


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError("it has another form")
    return found


def _date(_field: Field, text: str) -> int:
    return dt.date.fromisoformat(_matched(_DAY, text)[0]).toordinal() - _EPOCH_DAY


def _time(field: Field, text: str) -> int:
    return _in_unit(field, 0, *_matched(_TIME, text).groups())


def _timestamp(field: Field, text: str) -> int:
    found = _matched(_TIMESTAMP, text)
    zone = found[6] or found[7]
    if bool(zone) != bool(field.parameter):
        raise ValueError("it has no time zone" if field.parameter else "it has a time zone")
    away = (int(found[8]) * 60 + int(found[9] or 0)) * (-60 if found[7] == "+" else 60) if found[7] else 0
    return _in_unit(field, _date(field, found[1]) * 86_400 + away, found[2], found[3], found[4], found[5])


def _in_unit(field: Field, seconds: int, hour: str, minute: str, second: str, fraction: str | None) -> int:
    """Seconds and a time of day as a number of the field's unit."""
    of_day = dt.time(int(hour or 0), int(minute or 0), int(second or 0))
    seconds += (of_day.hour * 60 + of_day.minute) * 60 + of_day.second
    per_second = PER_SECOND[field.unit]
    number, rest = divmod(int((fraction or "0").ljust(9, "0")) * per_second, 10**9)
    if rest:
        raise ValueError(f"it is finer than {field.unit}")
    return seconds * per_second + number


_READ: dict[str, Callable[[Field, str], int]] = {"tdD": _date, "tt": _time, "ts": _timestamp}


def array_of_texts(field: Field, texts: Sequence[str | None], inferred: bool) -> Any:
    """An Arrow array of texts, None being null; of a type that was `inferred` each must keep what is written."""
    values: list[Any] = []
    for row, text in enumerate(texts):
        try:
            if inferred and text is not None and field.kind in ("l", "g") and not _keeps(field, text):
                raise ValueError("it would be changed")
            if field.kind == "n" and text is not None:
                raise ValueError("it is not null")
            values.append(None if text is None else value_of(field, text))
        except ValueError as error:
            raise TextError(field, row, text, str(error)) from None
    if field.kind in ("u", "U", "z", "Z", "d", "b", "n", "f", "g"):
        return array_of(field.name, values, field)[1]
    valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
    stored = np.array([value or 0 for value in values], storage_dtype(field))
    return make_array(field, len(values), [stored], None if valid.all() else valid)


class TextError(Exception):
    """A value that is not of the type of its column; rows are counted from 0 in what was given."""

    def __init__(self, field: Field, row: int, value: Any, reason: str) -> None:
        super().__init__(reason)
        self.field, self.row, self.value, self.reason = field, row, value, reason


def typed(fields: Iterable[Field], types: dict[str, Field], *, whole: bool) -> list[Field]:
    """The fields with the types that were asked for; `whole` are those of a schema, which has all columns."""
    found = list(fields)
    names = {field.name for field in found}
    for name in types.keys() - names:
        raise SchemaError(f"there is no column {name!r}", hint=f"columns: {', '.join(sorted(names))}")
    for field in found:
        if whole and field.name not in types:
            raise SchemaError(f"the schema has no column {field.name!r}", hint=f"its columns: {', '.join(types)}")
    return [replace(types[field.name], name=field.name) if field.name in types else field for field in found]
