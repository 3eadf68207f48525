"""Filters made of an engine's conditions. Pure.

The engine compares the rows again, so a filter may keep more rows than are wanted, and may never keep fewer. What is
not understood keeps every row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from math import isnan
from typing import Any, Final, TypeAlias

from resilient_pq.arrow.types.field import Field

#: Of one list of terms all have to hold, and of the lists one.
Alternatives: TypeAlias = list[list[tuple[Any, ...]]]

#: Keeps every row.
ANY: Final[Alternatives] = [[]]
#: More alternatives are not worth looking up in every index.
_MOST: Final = 64
_FLOAT: Final = "g"
#: For each kind of column, the types of the values that all engines compare as we do.
_VALUES: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys("cCsSiIlL", (int,)),
    _FLOAT: (int, float),
    "b": (bool,),
    **dict.fromkeys(("u", "U", "vu"), (str,)),
    "tdD": (date,),
    "ts": (datetime,),
}
#: Engines take NaN for the largest number, and we for no number: these would keep fewer rows.
_OF_NUMBERS: Final = frozenset({"=", "<", "<=", "in"})


def both(one: Alternatives, other: Alternatives) -> Alternatives:
    """Rows that two filters keep."""
    if len(one) * len(other) > _MOST:
        return one
    return [[*terms, *more] for terms in one for more in other]


def either(one: Alternatives, other: Alternatives) -> Alternatives:
    """Rows that one of two filters keeps."""
    return ANY if [] in one or [] in other or len(one) + len(other) > _MOST else one + other


def comparison(columns: Mapping[str, Field], name: str, operator: str, value: Any) -> Alternatives:
    """Rows whose value in a column compares so with another, or with one of a list."""
    column = columns.get(name)
    types = () if column is None else _VALUES.get(column.kind, ())
    values: Sequence[Any] = value if operator == "in" else [value]
    if column is None or "." in name or not values or not all(type(each) in types for each in values):
        return ANY
    if column.kind == _FLOAT and (operator not in _OF_NUMBERS or any(map(isnan, values))):
        return ANY
    if column.kind == "ts" and any((each.tzinfo is None) == bool(column.parameter) for each in values):
        return ANY
    return [[(name, operator, value)]]


def null_test(columns: Mapping[str, Field], name: str, operator: str) -> Alternatives:
    """Rows whose value in a column is null, or is not."""
    column = columns.get(name)
    return ANY if column is None or "." in name or column.kind not in _VALUES else [[(name, operator)]]


def filters_of(alternatives: Alternatives) -> Alternatives | None:
    """The filter as a read takes it; None where every row is wanted."""
    return None if [] in alternatives else alternatives
