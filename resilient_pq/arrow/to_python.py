"""Arrow arrays as lists of Python values, as pyarrow's `to_pylist` gives them.

Times finer than Python's microseconds, and dates beyond its years 1 to 9999, are an error by default: nothing
is rounded. NumPy's scalars hold them, and can be asked for.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Callable
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import DTYPES, BufferPart, byte_arrays_of
from resilient_pq.arrow.intervals import MONTH_DAY_NANO, MonthDayNano
from resilient_pq.arrow.types.field import PER_SECOND, Field
from resilient_pq.errors import FormatError, SchemaError, UnsupportedError, Where
from resilient_pq.format.physical_values import ByteArrays

#: What to do with a time that Python's `datetime` cannot hold.
Inexact: TypeAlias = Literal["raise", "numpy"]

_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH: Final = dt.datetime(1970, 1, 1)
_OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)")
#: Decimals have at most 76 digits; Python's default context would round to 28.
_EXACT: Final = Context(prec=80)


def python_values(part: BufferPart, path: str, inexact: Inexact = "raise") -> list[Any]:
    """The slots as Python values, None where they are null; `inexact` is as of `Table.to_pydict`."""
    field = part.field
    valid = part.valid()
    if field.kind == "n":
        return [None] * part.length
    if field.kind == "dictionary":
        return _looked_up(part, path, inexact, valid)
    values = _values(part, path, inexact, valid)
    if valid is None:
        return values
    return [value if there else None for value, there in zip(values, valid.tolist(), strict=True)]


def _values(part: BufferPart, path: str, inexact: Inexact, valid: NDArray[np.bool_] | None) -> list[Any]:
    """A value for each slot; of null slots whatever stands there, never an error."""
    field = part.field
    values: list[Any]
    match field.kind:
        case "b":
            values = part.booleans().tolist()
            return values
        case "u" | "U" | "z" | "Z":
            return _strings(byte_arrays_of(part, None), path, text=field.kind in ("u", "U"))
        case "vu" | "vz":
            return _viewed_strings(part, path, valid)
        case "w":
            return _binaries(part)
        case "d":
            return _decimals(part)
        case "tdD" | "tdm" | "ts" | "tt" | "tD":
            return _times(part, path, inexact, valid)
        case "+s":
            return _structs(part, path, inexact)
        case "ti" if field.format == "tin":
            return [MonthDayNano(*row) for row in part.rows().view(MONTH_DAY_NANO).ravel().tolist()]
        case "+l" | "+L" | "+w" | "+m" | "+vl" | "+vL":
            return _lists(part, path, inexact)
        case kind if kind in DTYPES:
            values = part.fixed().tolist()
            return values
    raise UnsupportedError(f"column {path!r}: values of type {field}", where=Where(column=path))


def _viewed_strings(part: BufferPart, path: str, valid: NDArray[np.bool_] | None) -> list[Any]:
    there = np.arange(part.length) if valid is None else np.flatnonzero(valid)
    values: list[Any] = [None] * part.length
    found = _strings(byte_arrays_of(part, there), path, text=part.field.kind == "vu")
    for row, value in zip(there.tolist(), found, strict=True):
        values[row] = value
    return values


def _binaries(part: BufferPart) -> list[Any]:
    """Binaries of a fixed size, and UUIDs."""
    width, raw = part.field.width, part.rows().tobytes()
    values = [raw[at : at + width] for at in range(0, len(raw), width)]
    if part.field.extension == b"arrow.uuid" and width == 16:
        return [uuid.UUID(bytes=value) for value in values]
    return values


def _looked_up(part: BufferPart, path: str, inexact: Inexact, valid: NDArray[np.bool_] | None) -> list[Any]:
    """The values that the indices of a dictionary array lead to."""
    entries = part.dictionary()
    indices = part.indices()
    if valid is not None:
        indices = indices[valid]
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < entries.length:
        raise SchemaError(
            f"column {path!r}: an index leads out of a dictionary of {entries.length}",
            where=Where(column=path),
        )
    known = python_values(entries, path, inexact)
    found = iter([known[index] for index in indices.tolist()])
    return [next(found) if there else None for there in (valid if valid is not None else [True] * part.length)]


def _structs(part: BufferPart, path: str, inexact: Inexact) -> list[Any]:
    names = [child.name for child in part.field.children]
    columns = [python_values(part.child(at), f"{path}.{name}", inexact) for at, name in enumerate(names)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _strings(values: ByteArrays, path: str, *, text: bool) -> list[Any]:
    offsets = values.offsets
    first = int(offsets[0])
    raw = values.data[first : int(offsets[-1])].tobytes()
    bounds = pairwise((offsets - first).tolist())
    if not text:
        return [raw[start:end] for start, end in bounds]
    try:
        if raw.isascii():
            characters = raw.decode("ascii")
            return [characters[start:end] for start, end in bounds]
        return [raw[start:end].decode("utf-8") for start, end in bounds]
    except UnicodeDecodeError as error:
        raise FormatError(
            f"column {path!r}: text is not UTF-8: {error.object[:40]!r}",
            where=Where(column=path),
            hint="to_pyarrow() gives the bytes as they are",
        ) from None


def _decimals(part: BufferPart) -> list[Decimal]:
    rows = part.rows()
    size = rows.shape[1]
    scale = -part.field.decimal[1]
    raw = rows.tobytes()
    return [
        Decimal(int.from_bytes(raw[at : at + size], "little", signed=True)).scaleb(scale, _EXACT)
        for at in range(0, len(raw), size)
    ]


def _lists(part: BufferPart, path: str, inexact: Inexact) -> list[Any]:
    starts, lengths = part.list_extents()
    first, length = part.element_range()
    elements = part.elements(first, length)
    if part.field.kind == "+m":
        keys = python_values(elements.child(0), f"{path}.key", inexact)
        values: list[Any] = list(zip(keys, python_values(elements.child(1), f"{path}.value", inexact), strict=True))
    else:
        values = python_values(elements, f"{path}.element", inexact)
    spans = zip((starts - first).tolist(), lengths.tolist(), strict=True)
    return [values[start : start + length] for start, length in spans]


# --- dates and times ----------------------------------------------------------------------------------------


def _times(part: BufferPart, path: str, inexact: Inexact, valid: NDArray[np.bool_] | None) -> list[Any]:
    field = part.field
    stored = part.fixed()
    if valid is not None:
        stored = np.where(valid, stored, 0)
    convert = _converter(part, path)
    out = []
    for row, number in enumerate(stored.tolist()):
        value = convert(number)
        if value is None:
            if inexact == "raise":
                raise SchemaError(
                    f"column {path!r}, row {row}: {number} as {field} does not fit Python's datetime",
                    where=Where(column=path),
                    hint="table[name] gives NumPy's datetime64 or timedelta64, to_pyarrow() an Arrow table",
                )
            value = _numpy_scalar(field, number)
        out.append(value)
    return out


def _numpy_scalar(field: Field, number: int) -> Any:
    """What `datetime` cannot hold, in the unit of its column."""
    unit = {"tdD": "D", "tdm": "ms"}.get(field.kind) or field.unit
    kind = "m8" if field.kind in ("tt", "tD") else "M8"
    return np.array(number, np.int64).view(f"{kind}[{unit}]")[()]


def _converter(part: BufferPart, path: str) -> Callable[[int], Any]:
    """A function from the stored integer to the Python value, None where there is none."""
    field = part.field
    match field.kind:
        case "tdD":
            return _date
        case "tdm":
            return lambda number: _date(number // 86_400_000)
        case "ts":
            zone = _zone(field.parameter, path) if field.parameter else None
            return lambda number: _datetime(number, field.unit, zone)
        case "tt":
            return lambda number: _time(number, field.unit)
    return lambda number: _timedelta(number, field.unit)


def _date(days: int) -> dt.date | None:
    ordinal = days + _EPOCH_DAY
    return dt.date.fromordinal(ordinal) if 1 <= ordinal <= dt.date.max.toordinal() else None


def _timedelta(number: int, unit: str) -> dt.timedelta | None:
    microseconds, rest = divmod(number * 10**6, PER_SECOND[unit])
    if rest:
        return None
    try:
        return dt.timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def _datetime(number: int, unit: str, zone: dt.tzinfo | None) -> dt.datetime | None:
    since = _timedelta(number, unit)
    if since is None:
        return None
    try:
        local = _EPOCH + since
        return local if zone is None else local.replace(tzinfo=dt.UTC).astimezone(zone)
    except OverflowError:
        return None


def _time(number: int, unit: str) -> dt.time | None:
    since = _timedelta(number, unit)
    if since is None or not dt.timedelta(0) <= since < dt.timedelta(days=1):
        return None
    return (dt.datetime.min + since).time()


def _zone(name: str, path: str) -> dt.tzinfo:
    if name.upper() == "UTC":
        return dt.UTC
    offset = _OFFSET.fullmatch(name)
    try:
        if offset is not None:
            sign = -1 if offset[1] == "-" else 1
            return dt.timezone(sign * dt.timedelta(hours=int(offset[2]), minutes=int(offset[3])))
        from zoneinfo import ZoneInfo  # noqa: PLC0415 (for columns with such a zone alone)

        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such zone, no such offset, or a name that is a path
        raise UnsupportedError(
            f"column {path!r}: there is no time zone {name!r} here",
            where=Where(column=path),
            hint="install tzdata, or take table[name], whose values are in UTC",
        ) from None
