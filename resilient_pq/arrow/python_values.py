"""Lists of Python values and NumPy arrays as Arrow arrays.

Types are found by looking at the values, or given; either way nothing is converted that would lose something.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import Valid, make_array, make_null_array, storage_dtype
from resilient_pq.arrow.intervals import interval_of
from resilient_pq.arrow.types.field import PER_SECOND, Field
from resilient_pq.errors import SchemaError, Where

_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_EPOCH: Final = dt.datetime(1970, 1, 1)
_EPOCH_UTC: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_MOST_DIGITS: Final = 1000


def array_of(name: str, values: Sequence[Any], field: Field | None = None) -> tuple[Field, Any]:
    """An Arrow array of Python values of one kind; None is null, and int among float is float."""
    plain = [_plain(name, value) for value in values]
    if field is None:
        field = replace(_inferred(name, plain), name=name)
    return field, _build(name, field, plain)


def member(record: Mapping[str, Any], field: Field) -> Any:
    """What a record has for a field: None where it leaves it out, and no elements where the field is repeated."""
    return record.get(field.name, [] if field.repeated else None)


def _plain(name: str, value: Any) -> Any:
    """A NumPy scalar as the Python value that it is."""
    if not isinstance(value, np.generic):
        return value
    plain = value.item()
    if isinstance(value, (np.datetime64, np.timedelta64)) and isinstance(plain, int):
        raise misfit(name, f"{value!r} is finer than Python's times: pass a NumPy array instead of a list")
    return plain


# --- finding the type ---------------------------------------------------------------------------------------


def _inferred(name: str, values: Sequence[Any]) -> Field:
    """The type of the values; null where there are none, or all are None."""
    kinds = {_kind(name, value) for value in values if value is not None}
    if kinds == {int, float}:
        kinds = {float}
    if len(kinds) > 1:
        words = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise misfit(name, f"its values are of several kinds: {words}")
    if not kinds:
        return Field(name, "n")
    kind = kinds.pop()
    present = [value for value in values if value is not None]
    if kind in _FORMATS:
        return Field(name, _FORMATS[kind])
    return _FIELDS_BY_VALUE[kind](name, present)


def _kind(name: str, value: Any) -> type:
    # bool is an int and datetime a date: the order matters.
    for kind in (bool, int, float, str, Decimal, dt.datetime, dt.date, dt.time, dt.timedelta):
        if isinstance(value, kind):
            return kind
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes
    if isinstance(value, Mapping):
        return dict
    if isinstance(value, tuple) and hasattr(value, "months") and hasattr(value, "nanoseconds"):
        return tuple  # MonthDayNano, pyarrow's or ours
    if isinstance(value, (list, tuple, np.ndarray)):
        return list
    raise misfit(name, f"there is no Arrow type for values of type {type(value).__name__}")


_FORMATS: dict[type, str] = {
    bool: "b",
    int: "l",
    float: "g",
    str: "u",
    bytes: "z",
    dt.date: "tdD",
    dt.time: "ttu",
    tuple: "tin",
}


def _timestamp_field(name: str, values: Sequence[dt.datetime]) -> Field:
    """Of nanoseconds where a value has them, in the zone of the first value, or UTC where that has no name."""
    format = "tsn:" if any(map(_nanoseconds, values)) else "tsu:"
    if all(value.tzinfo is None for value in values):
        return Field(name, format)
    return Field(name, f"{format}{getattr(values[0].tzinfo, 'key', None) or 'UTC'}")


def _duration_field(name: str, values: Sequence[dt.timedelta]) -> Field:
    return Field(name, "tDn" if any(map(_nanoseconds, values)) else "tDu")


def _decimal_field(name: str, values: Sequence[Decimal]) -> Field:
    whole = scale = 0
    for value in values:
        _, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise misfit(name, f"{value} is no number")
        scale = max(scale, -exponent)
        whole = max(whole, len(digits) + exponent)
    precision = max(whole + scale, 1)
    if precision > 76:
        raise misfit(name, f"its decimals take {precision} digits, more than 76")
    return Field(name, f"d:{precision},{scale}" if precision <= 38 else f"d:{precision},{scale},256")


def _struct_field(name: str, values: Sequence[Mapping[str, Any]]) -> Field:
    keys = dict.fromkeys(key for value in values for key in value)
    for key in keys:
        if not isinstance(key, str):
            raise misfit(name, f"the keys of a dict are names of fields, but one is {key!r}")
    children = []
    for key in keys:
        below = [_plain(name, value.get(key)) for value in values]
        children.append(replace(_inferred(f"{name}.{key}", below), name=key))
    return Field(name, "+s", children=tuple(children))


def _list_field(name: str, values: Sequence[Sequence[Any]]) -> Field:
    elements = [_plain(name, element) for element in _flattened(values)]
    return Field(name, "+l", children=(replace(_inferred(f"{name}.element", elements), name="element"),))


_FIELDS_BY_VALUE: dict[type, Callable[[str, Sequence[Any]], Field]] = {
    dt.datetime: _timestamp_field,
    dt.timedelta: _duration_field,
    Decimal: _decimal_field,
    dict: _struct_field,
    list: _list_field,
}


def _flattened(values: Iterable[Sequence[Any] | None]) -> list[Any]:
    return [element for value in values if value is not None for element in value]


# --- building the array -------------------------------------------------------------------------------------


def _build(name: str, field: Field, values: Sequence[Any]) -> Any:
    length = len(values)
    present = [value for value in values if value is not None]
    valid = None if len(present) == length else np.fromiter((v is not None for v in values), np.bool_, length)
    if field.kind == "n":
        if present:
            raise misfit(name, f"it is null, but a value is {present[0]!r}")
        return make_null_array(field, length)
    if field.kind in ("u", "U", "z", "Z"):
        return _build_strings(name, field, values, valid)
    if field.kind in ("+s", "+l", "+L", "+w", "+m"):
        return _build_nested(name, field, values, valid)
    if field.kind == "ti":
        return make_array(field, length, [_intervals(name, field, values)], valid)
    if field.kind in ("w", "d"):
        return _build_rows(name, field, values, valid)
    if field.kind == "b":
        _require(name, field, present, bool)
        bits = np.fromiter((bool(value) for value in values), np.bool_, length)
        return make_array(field, length, [np.packbits(bits, bitorder="little")], valid)
    stored = (_floats if field.kind in ("e", "f", "g") else _integers)(name, field, present)
    if valid is not None:
        spread = np.zeros(length, stored.dtype)
        spread[valid] = stored
        stored = spread
    return make_array(field, length, [stored], valid)


def _floats(name: str, field: Field, values: Sequence[Any]) -> NDArray[Any]:
    _require(name, field, values, float, int)
    dtype = storage_dtype(field)
    out = np.array(values, np.float64)
    for value, stored in zip(values, out.tolist(), strict=True):
        if isinstance(value, int) and int(stored) != value:
            raise misfit(name, f"{value} is not exact as a float")
    with np.errstate(over="ignore"):
        narrow = out.astype(dtype)
    if (np.isinf(narrow) & ~np.isinf(out)).any():
        raise misfit(name, f"a value is too large for {field}")
    return narrow


def _integers(name: str, field: Field, values: Sequence[Any]) -> NDArray[Any]:
    """Integers, and the dates and times that are kept as such."""
    dtype = storage_dtype(field)
    numbers = [_INTEGERS.get(field.kind, _integer)(name, field, value) for value in values]
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if numbers and (min(numbers) < low or max(numbers) > high):
        index = next(i for i, number in enumerate(numbers) if not low <= number <= high)
        raise misfit(name, f"{values[index]!r} does not fit {field}")
    return np.array(numbers, dtype)


def _integer(name: str, field: Field, value: Any) -> int:
    _require(name, field, (value,), int)
    return int(value)


def _date(name: str, field: Field, value: Any) -> int:
    if isinstance(value, dt.datetime):
        raise misfit(name, f"it is {field}, but {value!r} has a time of day")
    _require(name, field, (value,), dt.date)
    days: int = value.toordinal() - _EPOCH_DAY
    return days if field.kind == "tdD" else days * 86_400_000


def _timestamp(name: str, field: Field, value: Any) -> int:
    _require(name, field, (value,), dt.datetime)
    if (value.tzinfo is None) == bool(field.parameter):
        has = "has no" if value.tzinfo is None else "has a"
        raise misfit(name, f"it is {field}, but {value!r} {has} time zone")
    since = value - (_EPOCH_UTC if field.parameter else _EPOCH)
    return _in_unit(name, field, since // _MICROSECOND * 1000 + _nanoseconds(value), value)


def _time(name: str, field: Field, value: Any) -> int:
    _require(name, field, (value,), dt.time)
    if value.tzinfo is not None:
        raise misfit(name, f"it is {field}, but {value!r} has a time zone")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return _in_unit(name, field, (seconds * 10**6 + value.microsecond) * 1000, value)


def _duration(name: str, field: Field, value: Any) -> int:
    _require(name, field, (value,), dt.timedelta)
    return _in_unit(name, field, value // _MICROSECOND * 1000 + _nanoseconds(value), value)


def _nanoseconds(value: dt.datetime | dt.timedelta) -> int:
    """What a time has beyond its microseconds: pandas' kinds of `datetime` and `timedelta` have that."""
    name = "nanosecond" if isinstance(value, dt.datetime) else "nanoseconds"
    nanoseconds: int = getattr(value, name, 0)
    return nanoseconds


def _in_unit(name: str, field: Field, nanoseconds: int, value: Any) -> int:
    number, rest = divmod(nanoseconds * PER_SECOND[field.unit], 10**9)
    if rest:
        raise misfit(name, f"{value!r} is not whole in the unit of {field}")
    return number


_INTEGERS: dict[str, Callable[[str, Field, Any], int]] = {
    "tdD": _date,
    "tdm": _date,
    "ts": _timestamp,
    "tt": _time,
    "tD": _duration,
}


def _build_strings(name: str, field: Field, values: Sequence[Any], valid: Valid | None) -> Any:
    kinds = (str,) if field.kind in ("u", "U") else (bytes, bytearray, memoryview)
    _require(name, field, [value for value in values if value is not None], *kinds)
    try:
        encoded = [b"" if v is None else v.encode() if isinstance(v, str) else bytes(v) for v in values]
    except UnicodeEncodeError as error:
        raise misfit(name, f"{error.object!r} is no text: {error.reason}") from None
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    if field.kind in ("u", "z"):
        if offsets[-1] > 2**31 - 1:
            raise misfit(name, "its values take more than 2 GiB in one batch: write fewer rows at a time")
        offsets = offsets.astype(np.int32)
    return make_array(field, len(values), [offsets, np.frombuffer(b"".join(encoded), np.uint8)], valid)


def _intervals(name: str, field: Field, values: Sequence[Any]) -> NDArray[np.uint8]:
    rows = bytearray()
    for value in values:
        interval = interval_of((0, 0, 0) if value is None else value)
        if interval is None:
            raise misfit(name, f"it is {field}, but a value is {value!r}")
        rows += interval
    return np.frombuffer(rows, np.uint8)


def _build_rows(name: str, field: Field, values: Sequence[Any], valid: Valid | None) -> Any:
    """Fixed-size binaries and decimals."""
    rows = bytearray()
    if field.kind == "w":
        if field.width == 16:
            values = [value.bytes if isinstance(value, uuid.UUID) else value for value in values]
        _require(name, field, [v for v in values if v is not None], bytes, bytearray, memoryview)
        for value in values:
            if value is not None and len(value) != field.width:
                raise misfit(name, f"it is {field}, but a value has {len(value)} bytes")
            rows += bytes(field.width) if value is None else bytes(value)
    else:
        _require(name, field, [v for v in values if v is not None], Decimal, int)
        precision, scale, bits = field.decimal
        for value in values:
            unscaled = 0 if value is None else _unscaled(name, field, Decimal(value), precision, scale)
            rows += unscaled.to_bytes(bits // 8, "little", signed=True)
    return make_array(field, len(values), [np.frombuffer(rows, np.uint8)], valid)


def _unscaled(name: str, field: Field, value: Decimal, precision: int, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise misfit(name, f"{value} is no number")
    if not any(digits):
        return 0
    power = exponent + scale
    # An exponent can be in the millions: powers of ten, and digits, are bounded before they are taken.
    if 0 < len(digits) + power <= precision and len(digits) <= _MOST_DIGITS:
        unscaled = int("".join(map(str, digits)))
        shift: int = 10 ** abs(power)
        whole, rest = (unscaled * shift, 0) if power >= 0 else divmod(unscaled, shift)
        if not rest:
            return -whole if sign else whole
    raise misfit(name, f"{value} does not fit {field}")


def _build_nested(name: str, field: Field, values: Sequence[Any], valid: Valid | None) -> Any:
    present = [value for value in values if value is not None]
    if field.kind == "+s":
        return make_array(field, len(values), [], valid, _build_children(name, field, values, present))
    child = field.children[0]
    if field.kind == "+m":
        present = [list(value.items()) if isinstance(value, Mapping) else value for value in present]
    _require(name, field, present, list, tuple, np.ndarray)
    if field.kind == "+w":
        slots = _fixed_size_slots(name, field, values)
        return make_array(field, len(values), [], valid, [array_of(f"{name}.element", slots, child)[1]])
    if field.kind == "+m":
        elements = _build(name, child, [_entry(name, child, pair) for pair in _flattened(present)])
    else:
        elements = array_of(f"{name}.element", _flattened(present), child)[1]
    lengths = np.zeros(len(values), np.int64)
    lengths[slice(None) if valid is None else valid] = [len(value) for value in present]
    offsets = np.zeros(len(values) + 1, np.int64 if field.kind == "+L" else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return make_array(field, len(values), [offsets], valid, [elements])


def _build_children(name: str, field: Field, values: Sequence[Any], present: Sequence[Any]) -> list[Any]:
    """The columns of a struct."""
    _require(name, field, present, Mapping)
    known = {child.name for child in field.children}
    unknown = next((key for value in present for key in value if key not in known), None)
    if unknown is not None:
        raise misfit(name, f"it has no field {unknown!r}")
    children = []
    for child in field.children:
        below = [None if value is None else member(value, child) for value in values]
        children.append(array_of(f"{name}.{child.name}", below, child)[1])
    return children


def _fixed_size_slots(name: str, field: Field, values: Sequence[Any]) -> list[Any]:
    """The elements of lists of one size; those of a null are nulls."""
    if any(value is not None and len(value) != field.width for value in values):
        raise misfit(name, f"it is {field}, but a list has another length")
    blank = [None] * field.width
    return _flattened(blank if value is None else value for value in values)


def _entry(name: str, field: Field, pair: Any) -> dict[str, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise misfit(name, f"an entry of a map is a pair of key and value, not {pair!r}")
    return {child.name: value for child, value in zip(field.children, pair, strict=True)}


def _require(name: str, field: Field, values: Iterable[Any], *kinds: type) -> None:
    """Refuse values of other kinds; a bool is no int here."""
    for value in values:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise misfit(name, f"it is {field}, but a value is {value!r}")


def misfit(name: str, what: str) -> SchemaError:
    """The error of a column that does not fit."""
    return SchemaError(f"column {name!r}: {what}", where=Where(column=name))
