"""Conditions of a filter on one leaf column, with constants in the form in which the column's values compare.

Nulls meet no condition but NULL, as in SQL: neither ``!=`` nor ``not in`` finds them. Floating point compares as
IEEE 754 has it: the two zeros are equal, and NaN equals nothing and has no order; so ``!=`` and ``not in`` find it,
and of the others only an ``in`` that names it, as with pyarrow and pandas.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, Final

import numpy as np

from resilient_pq.errors import SchemaError
from resilient_pq.format import logical
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.indexes.statistics import Order, order_of
from resilient_pq.format.indexes.trusted_bounds import ColumnStatistics
from resilient_pq.format.logical import Decimal, Integer
from resilient_pq.format.physical_values import NANOS_PER_DAY
from resilient_pq.format.scalars import MAX_DECIMAL_BYTES, from_python, to_plain
from resilient_pq.format.schema_tree import Primitive
from resilient_pq.lazy_dataclass import dataclass


class ConditionKind(StrEnum):
    """Operators of conditions."""

    IN = "in"
    NOT_IN = "not in"
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    NULL = "is null"
    NOT_NULL = "is not null"


_COMPARISONS: Final = {
    ConditionKind.LESS: lt,
    ConditionKind.LESS_EQUAL: le,
    ConditionKind.GREATER: gt,
    ConditionKind.GREATER_EQUAL: ge,
}
_KINDS: Final = {"=": ConditionKind.IN, "==": ConditionKind.IN, "!=": ConditionKind.NOT_IN} | {
    kind.value: kind for kind in ConditionKind
}
#: The operators of filters, as pyarrow and fastparquet have them, and the two that ask for nulls.
OPERATORS: Final = tuple(_KINDS)
#: INT96 has days of 32 bits; its 64 bits of nanoseconds, where they exceed a day, are less than as many days again.
_MOST_NANOS: Final = (1 << 32) * NANOS_PER_DAY


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the values of a column."""

    node: Primitive = field(repr=False)
    kind: ConditionKind
    #: None, one, or several where the kind is IN or NOT_IN, in their order. They are values that the column's
    #: type can have, so that NumPy compares without converting: ints (BOOLEAN too; DECIMAL unscaled, times and
    #: dates in the column's unit, INT96 as nanoseconds since its day 0), floats that are not NaN, or bytes,
    #: which may be of any length.
    constants: tuple[Any, ...] = ()
    nan: bool = False  # of IN and NOT_IN, whether NaN is one of the constants

    def may_hold(self, known: ColumnStatistics) -> bool:
        """Whether any value of which this is known may meet it; False is certain."""
        if self.kind is ConditionKind.NULL:
            return known.null_count != 0
        if known.all_null:
            return False
        if self.kind is ConditionKind.NOT_NULL:
            return True
        low, high = self._bounds(known)
        if self.kind is ConditionKind.IN:
            return self._has_any(low, high) or (self.nan and known.nan_count != 0)
        if self.kind is ConditionKind.NOT_IN:
            # Equal bounds are the value of all that are no NaN.
            excluded = low is not None and low == high and self._has_any(low, high)
            return not excluded or (_is_floating(self.node) and not self.nan and known.nan_count != 0)
        bound = low if self.kind in (ConditionKind.LESS, ConditionKind.LESS_EQUAL) else high
        return bound is None or bool(_COMPARISONS[self.kind](bound, self.constants[0]))

    def _has_any(self, low: Any, high: Any) -> bool:
        """Whether a constant lies between bounds, both inclusive; None is none."""
        at = 0 if low is None else bisect_left(self.constants, low)
        return at < len(self.constants) and (high is None or bool(self.constants[at] <= high))

    def _bounds(self, known: ColumnStatistics) -> tuple[Any, Any]:
        """The bounds in the form of the constants; None for what is not known, or cannot be."""
        bounds = [None if bound is None else _as_number(self.node, bound) for bound in (known.low, known.high)]
        limits = limits_of(self.node)
        if limits is not None and any(bound is not None and not limits[0] <= bound <= limits[1] for bound in bounds):
            return None, None  # of integers of fewer bits some writers store more, which are no part of the value
        return bounds[0], bounds[1]

    def to_plain(self) -> list[bytes] | None:
        """Every PLAIN encoding of the constants, as bloom filters know them; None where they cannot all be told."""
        if self.kind is not ConditionKind.IN or self.nan or self.node.physical_type in (Type.INT96, Type.BOOLEAN):
            return None
        if isinstance(self.node.logical, Integer) and self.node.logical.bits < 32:
            return None  # writers may have stored bits beyond the value's
        found: list[bytes] = []
        for constant in self.constants:
            encodings = to_plain(self.node, constant)
            if encodings is None:
                return None
            found += encodings
        return found


def condition_of(node: Primitive, operator: str, value: Any = None) -> Condition:
    """A condition by one of `OPERATORS` and a value of a type of `scalars.from_python`, or several for IN and NOT_IN.

    Numbers are compared with integers and decimals exactly, fractions and numbers beyond the column's range too; for
    columns of floating point they are rounded to its type, as 0.1 is for FLOAT. Columns of nulls alone (UNKNOWN) take
    values of any type.
    """
    kind = _KINDS.get(operator) if isinstance(operator, str) else None
    if kind is None:
        raise SchemaError(f"there is no operator {operator!r}", hint=f"operators: {', '.join(OPERATORS)}")
    if kind in (ConditionKind.NULL, ConditionKind.NOT_NULL):
        if value is not None:
            raise SchemaError(f'"{operator}" takes no value, but got {value!r}')
        return Condition(node, kind)
    if isinstance(node.logical, Decimal) and (node.type_length or 0) > MAX_DECIMAL_BYTES:
        # Bounds of so many bytes would fill the memory, and no table has such decimals.
        raise SchemaError(f"decimals of {node.type_length:,} bytes cannot be compared")
    if node.logical == logical.UNKNOWN:
        for each in value if operator in (ConditionKind.IN, ConditionKind.NOT_IN) else [value]:
            _check_value(each)
        return Condition(node, ConditionKind.IN)  # no comparison finds nulls, and the column has nothing else
    if operator in (ConditionKind.IN, ConditionKind.NOT_IN):
        return _among(node, kind, [_constant(node, each) for each in value])
    constant = _constant(node, value)
    if kind in _COMPARISONS:
        return _ordered(node, kind, constant)
    if constant.is_nan:
        return Condition(node, kind)  # NaN equals nothing, itself neither
    return _among(node, kind, [constant])


@dataclass(frozen=True, slots=True)
class _Constant:
    """A constant that may still be one that no value of the column has."""

    number: Any  # as values of the column compare
    is_nan: bool = False  # whether it is NaN
    beyond: int = 0  # 1 or -1 where it is a finite number beyond all those of a floating-point column


def _check_value(value: Any) -> None:
    """Refuse a null."""
    if value is None or (isinstance(value, dt.datetime) and value != value):  # noqa: PLR0124 (pandas' NaT)
        hint = 'ask for nulls with the operators "is null" and "is not null"'
        raise SchemaError(f"{value!r} compares with nothing", hint=hint)


def _constant(node: Primitive, value: Any) -> _Constant:
    _check_value(value)
    try:
        number = _as_number(node, from_python(node, value))
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"{value!r} cannot be compared with values of column {node.name!r}") from error
    if isinstance(number, bytes):
        return _Constant(number)
    if number != number:  # noqa: PLR0124 (an int may be too large for math.isnan)
        return _Constant(number, is_nan=True)
    if _is_floating(node) and math.isinf(number) and _is_finite(value):
        return _Constant(number, beyond=1 if number > 0 else -1)
    return _Constant(number)


def _is_finite(value: Any) -> bool:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, decimal.Decimal):
        return value.is_finite()  # one beyond all floats is, too
    return isinstance(value, int) or math.isfinite(value)


def _among(node: Primitive, kind: ConditionKind, constants: Sequence[_Constant]) -> Condition:
    """IN or NOT_IN; of the constants those are left that a value can equal."""
    nan = any(each.is_nan for each in constants)
    numbers = [each.number for each in constants if not each.is_nan and not each.beyond]
    limits = limits_of(node)
    if limits is not None:
        numbers = [int(each) for each in numbers if limits[0] <= each <= limits[1] and each == math.floor(each)]
    return Condition(node, kind, tuple(sorted(set(numbers))), nan)


def _ordered(node: Primitive, kind: ConditionKind, constant: _Constant) -> Condition:
    if order_of(node) is Order.UNDEFINED and node.physical_type is not Type.INT96:
        raise SchemaError(
            f'values of {node.logical} have no order: there is no "{kind}"', hint="operators: =, !=, in, not in"
        )
    if constant.is_nan:
        return Condition(node, ConditionKind.IN)
    below = kind in (ConditionKind.LESS, ConditionKind.LESS_EQUAL)
    if constant.beyond:
        # All finite numbers lie on one side of it, and the infinity of its sign on the other.
        strictly = constant.beyond > 0 if below else constant.beyond < 0
        kinds = (
            (ConditionKind.LESS, ConditionKind.LESS_EQUAL)
            if below
            else (ConditionKind.GREATER, ConditionKind.GREATER_EQUAL)
        )
        return Condition(node, kinds[0] if strictly else kinds[1], (constant.number,))
    limits = limits_of(node)
    if limits is None:
        return Condition(node, kind, (constant.number,))
    return _ordered_integers(node, kind, constant.number, limits)


def _ordered_integers(node: Primitive, kind: ConditionKind, number: Any, limits: tuple[int, int]) -> Condition:
    """The same as <= or >= with a constant in the range of the column; or everything, or nothing."""
    low, high = limits
    below = kind in (ConditionKind.LESS, ConditionKind.LESS_EQUAL)
    if number < low or (number == low and kind is ConditionKind.LESS):
        return Condition(node, ConditionKind.IN if below else ConditionKind.NOT_IN)
    if number > high or (number == high and kind is ConditionKind.GREATER):
        return Condition(node, ConditionKind.NOT_IN if below else ConditionKind.IN)
    if below:
        whole = math.floor(number)
        if kind is ConditionKind.LESS and whole == number:
            whole -= 1
        return Condition(node, ConditionKind.LESS_EQUAL, (whole,))
    whole = math.ceil(number)
    if kind is ConditionKind.GREATER and whole == number:
        whole += 1
    return Condition(node, ConditionKind.GREATER_EQUAL, (whole,))


# --- what values of a column can be -----------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def limits_of(node: Primitive) -> tuple[int, int] | None:
    """Smallest and largest of the integers that values of a column compare as; None where they are no integers."""
    match node.physical_type:
        case Type.BOOLEAN:
            return 0, 1
        case Type.INT32 | Type.INT64:
            bits, signed = (32 if node.physical_type is Type.INT32 else 64), True
            if isinstance(node.logical, Integer):
                bits, signed = min(bits, node.logical.bits), node.logical.signed
            return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        case Type.INT96:
            return -_MOST_NANOS, _MOST_NANOS
        case Type.BYTE_ARRAY | Type.FIXED_LEN_BYTE_ARRAY if isinstance(node.logical, Decimal):
            width = MAX_DECIMAL_BYTES if node.type_length is None else node.type_length
            return (-(1 << (8 * width - 1)), (1 << (8 * width - 1)) - 1) if width else (0, 0)
    return None


def _is_floating(node: Primitive) -> bool:
    half = node.physical_type is Type.FIXED_LEN_BYTE_ARRAY and node.logical == logical.FLOAT16
    return half or node.physical_type in (Type.FLOAT, Type.DOUBLE)


def _as_number(node: Primitive, comparable: Any) -> Any:
    """A comparable (`scalars`) as one number, or bytes."""
    if node.physical_type is Type.INT96:
        days, nanos = comparable
        return days * NANOS_PER_DAY + nanos
    return comparable
