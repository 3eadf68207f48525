"""Single values: between PLAIN bytes, the form in which a column's values compare, and Python's own types.

A *comparable* is an int, float or bytes, or for INT96 a pair of days and nanoseconds; two of one column compare as
the column's order asks (`statistics.order_of`). DECIMAL is its unscaled integer, times and dates are integers in
the unit of their column.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
import uuid
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np

from resilient_pq.errors import FormatError, SchemaError
from resilient_pq.format import logical
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.logical import Decimal, Integer, Time, Timestamp, TimeUnit
from resilient_pq.format.physical_values import INT96_WIDTH, JULIAN_DAY_OF_EPOCH, NANOS_PER_DAY
from resilient_pq.format.schema_tree import Primitive

#: No decimal of any use has more bytes, and turning digits to text takes time that grows with their square.
MAX_DECIMAL_BYTES: Final = 64
_TEXT = (logical.STRING, logical.ENUM, logical.JSON)
_FLOATS: Final[dict[Type, np.dtype[Any]]] = {Type.FLOAT: np.dtype("<f4"), Type.DOUBLE: np.dtype("<f8")}
_HALF: Final[np.dtype[Any]] = np.dtype("<f2")
_WIDTHS: Final = {
    Type.BOOLEAN: 1,
    Type.INT32: 4,
    Type.INT64: 8,
    Type.INT96: INT96_WIDTH,
    Type.FLOAT: 4,
    Type.DOUBLE: 8,
}
_PER_SECOND: Final = {TimeUnit.MILLIS: 10**3, TimeUnit.MICROS: 10**6, TimeUnit.NANOS: 10**9}
_SECONDS: Final = {"W": 604_800, "D": 86_400, "h": 3600, "m": 60}
_PARTS: Final = {"ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
_EXACT: Final = decimal.Context(prec=1000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_EPOCH: Final = dt.datetime(1970, 1, 1)


def from_plain(node: Primitive, data: bytes) -> Any:
    """The comparable of a value in PLAIN encoding, byte arrays without their length; bounds may be cut shorter."""
    width = _WIDTHS.get(node.physical_type)
    if _is_half(node):
        width = _HALF.itemsize
    if width is not None and len(data) != width:
        raise FormatError(f"{len(data)} bytes are no {node.physical_type.name} value")
    match node.physical_type:
        case Type.BOOLEAN:
            return data != b"\0"
        case Type.INT32 | Type.INT64:
            return int.from_bytes(data, "little", signed=not _is_unsigned(node))
        case Type.FLOAT | Type.DOUBLE:
            return float(np.frombuffer(data, _FLOATS[node.physical_type])[0])
        case Type.INT96:
            nanos, days = struct.unpack("<qi", data)
            return days, nanos
    if _is_half(node):
        return float(np.frombuffer(data, _HALF)[0])
    length = node.type_length
    if isinstance(node.logical, Decimal):
        if len(data) > MAX_DECIMAL_BYTES or (length is not None and len(data) != length):
            raise FormatError(f"{len(data)} bytes are no value of {node.logical}")
        return int.from_bytes(data, "big", signed=True)
    if length is not None and len(data) > length:
        raise FormatError(f"{len(data)} bytes are more than the {length} of the column's values")
    return data


def _is_half(node: Primitive) -> bool:
    return node.logical == logical.FLOAT16 and node.physical_type is Type.FIXED_LEN_BYTE_ARRAY


def _is_unsigned(node: Primitive) -> bool:
    return isinstance(node.logical, Integer) and not node.logical.signed


# --- to Python --------------------------------------------------------------------------------------------------


def to_python(node: Primitive, comparable: Any) -> Any:
    """A comparable as the Python value that it stands for, as tables give it."""
    # Text is bytes where it is not UTF-8, as a bound may be that was cut within a character. Dates and times that
    # `datetime` cannot hold are NumPy's datetime64 and timedelta64, which stand for UTC where the column does.
    if comparable is None:
        return None
    match node.logical:
        case Decimal(_, scale):
            return decimal.Decimal(comparable).scaleb(-scale, _EXACT)
        case Time(unit, _):
            return _time(comparable, unit)
        case Timestamp(unit, utc):
            return _datetime(comparable, unit, utc=utc)
        case logical.DATE:
            return _date(comparable)
        case annotation if annotation in _TEXT:
            try:
                return comparable.decode("utf-8")
            except UnicodeDecodeError:
                return comparable
    if node.physical_type is Type.INT96:
        days, nanos = comparable
        return _datetime((days - JULIAN_DAY_OF_EPOCH) * NANOS_PER_DAY + nanos, TimeUnit.NANOS, utc=False)
    return comparable


def _date(days: int) -> Any:
    ordinal = days + _EPOCH.toordinal()
    if 1 <= ordinal <= dt.date.max.toordinal():
        return dt.date.fromordinal(ordinal)
    return np.datetime64(days, "D")


def _since(number: int, unit: TimeUnit) -> dt.timedelta | None:
    microseconds, rest = divmod(number * 10**6, _PER_SECOND[unit])
    try:
        return None if rest else dt.timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def _time(number: int, unit: TimeUnit) -> Any:
    since = _since(number, unit)
    if since is None or not dt.timedelta(0) <= since < dt.timedelta(days=1):
        return np.timedelta64(number, unit.value)
    return (_EPOCH + since).time()


def _datetime(number: int, unit: TimeUnit, *, utc: bool) -> Any:
    since = _since(number, unit)
    try:
        if since is not None:
            return (_EPOCH + since).replace(tzinfo=dt.UTC if utc else None)
    except OverflowError:
        pass
    if -(2**63) < number < 2**63:
        return np.datetime64(number, unit.value)
    return np.datetime64(number // _PER_SECOND[unit], "s")  # INT96 reaches further than nanoseconds in 64 bits


# --- from Python ------------------------------------------------------------------------------------------------


def from_python(node: Primitive, value: Any) -> Any:
    """The comparable of a Python or NumPy value, of a datetime with a time zone exactly where the column is in UTC."""
    # It may be one that no value of the column can have: a number beyond its range, a fraction between two of its steps
    # (a float or `Fraction`), a string of another length. That compares rightly all the same, and `to_plain` has no
    # bytes for it. Numbers for a column of floating point are rounded to its type, as 0.1 is for FLOAT.
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        value = value.item()
    match node.logical:
        case Decimal(_, scale):
            _require(node, value, int, decimal.Decimal)
            return _whole(decimal.Decimal(value).scaleb(scale, _EXACT))
        case Time(unit, _):
            return _from_time(node, value, unit)
        case Timestamp(unit, utc):
            return _from_datetime(node, value, _PER_SECOND[unit], utc=utc)
        case logical.DATE:
            return _from_date(node, value)
    match node.physical_type:
        case Type.BOOLEAN:
            _require(node, value, bool)
            return value
        case Type.INT32 | Type.INT64:
            _require(node, value, int, float, decimal.Decimal)
            return _whole(value)
        case Type.FLOAT | Type.DOUBLE:
            return _float(node, value, _FLOATS[node.physical_type])
        case Type.INT96:
            days, nanos = divmod(_from_datetime(node, value, 10**9, utc=False), NANOS_PER_DAY)
            return int(days) + JULIAN_DAY_OF_EPOCH, nanos
    return _float(node, value, _HALF) if _is_half(node) else _octets(node, value)


def to_plain(node: Primitive, comparable: Any) -> list[bytes] | None:
    """Every PLAIN encoding, without a length, that a value equal to this one may have been stored in."""
    # The list is empty where the column cannot hold such a value, and has both zeros of floating point. None where they
    # cannot all be listed: of NaN, INT96, and DECIMAL in byte arrays of any length.
    match node.physical_type:
        case Type.BOOLEAN:
            return [bytes([comparable])]
        case Type.INT32 | Type.INT64:
            return _integer_bytes(comparable, _WIDTHS[node.physical_type], "little", _is_unsigned(node))
        case Type.INT96:
            return None
    if isinstance(comparable, float):
        dtype = _HALF if _is_half(node) else _FLOATS[node.physical_type]
        if math.isnan(comparable):
            return None
        zeros = (comparable,) if comparable else (0.0, -0.0)
        return [np.array(zero, dtype).tobytes() for zero in zeros]
    length = node.type_length
    if isinstance(node.logical, Decimal):
        return None if length is None else _integer_bytes(comparable, length, "big", False)
    return [comparable] if length in (None, len(comparable)) else []


def _integer_bytes(number: Any, width: int, order: Literal["little", "big"], unsigned: bool) -> list[bytes]:
    if not isinstance(number, int):
        return []
    try:
        return [number.to_bytes(width, order, signed=not unsigned)]
    except OverflowError:
        return []


def _require(node: Primitive, value: Any, *kinds: type) -> None:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        kind = node.physical_type.name if node.logical is None else str(node.logical)
        raise SchemaError(f"{value!r} cannot be compared with {kind} values")


def _whole(number: Any) -> Any:
    """The number as an int where it is one; a Decimal of more digits than any column holds stays what it is."""
    if isinstance(number, int) or not math.isfinite(number):
        return number
    if isinstance(number, decimal.Decimal):
        is_whole = number.adjusted() < 3 * MAX_DECIMAL_BYTES and number == number.to_integral_value()
    else:
        is_whole = number % 1 == 0
    return int(number) if is_whole else number


def _float(node: Primitive, value: Any, dtype: np.dtype[Any]) -> float:
    _require(node, value, int, float, decimal.Decimal)
    try:
        with np.errstate(over="ignore"):
            return float(np.float64(value).astype(dtype))
    except OverflowError:  # an int beyond all floats
        return math.inf if value > 0 else -math.inf


def _octets(node: Primitive, value: Any) -> bytes:
    if isinstance(value, uuid.UUID) and node.type_length == 16:
        return value.bytes
    if isinstance(value, str) and node.physical_type is Type.BYTE_ARRAY:
        return value.encode("utf-8", "surrogatepass")
    _require(node, value, bytes, bytearray, memoryview)
    return bytes(value)


def _from_date(node: Primitive, value: Any) -> Any:
    if isinstance(value, np.datetime64):
        ticks = _numpy_ticks(node, value, "M8", 1)
        return _whole(Fraction(ticks) / 86_400)
    if isinstance(value, dt.datetime):
        _require(node, value)
    _require(node, value, dt.date)
    return int(value.toordinal()) - _EPOCH.toordinal()


def _from_time(node: Primitive, value: Any, unit: TimeUnit) -> Any:
    if isinstance(value, np.timedelta64):
        return _numpy_ticks(node, value, "m8", _PER_SECOND[unit])
    if not isinstance(value, dt.time) or value.tzinfo is not None:
        _require(node, value)
    return _ticks(dt.datetime.combine(_EPOCH, value) - _EPOCH, _PER_SECOND[unit])


def _from_datetime(node: Primitive, value: Any, per_second: int, *, utc: bool) -> Any:
    if isinstance(value, np.datetime64):
        return _numpy_ticks(node, value, "M8", per_second)
    if not isinstance(value, dt.datetime) or (value.tzinfo is not None) != utc:
        _require(node, value)
    since = value - (_EPOCH.replace(tzinfo=dt.UTC) if utc else _EPOCH)
    nanos = getattr(value, "nanosecond", 0)  # beyond the microseconds, which only those of pandas have
    return _ticks(since, per_second, nanos)


def _ticks(since: dt.timedelta, per_second: int, nanos: int = 0) -> Any:
    return _whole(Fraction((since // dt.timedelta(microseconds=1) * 1000 + nanos) * per_second, 10**9))


def _numpy_ticks(node: Primitive, value: np.datetime64 | np.timedelta64, kind: str, per_second: int) -> Any:
    """A time of NumPy's in another unit; by Python's integers, which do not overflow."""
    if np.isnat(value):
        _require(node, value)
    unit, count = np.datetime_data(value.dtype)
    if unit in ("Y", "M"):
        value, unit, count = value.astype(f"{kind}[D]"), "D", 1
    number = int(value.astype(np.int64)) * count * _SECONDS.get(unit, 1) * per_second
    return _whole(Fraction(number, _PARTS.get(unit, 1)))
