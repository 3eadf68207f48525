"""What Polars asks of a scan: an IO source, and the filter in an expression of its."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import polars
from polars.io.plugins import register_io_source

from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.field import Field
from resilient_pq.engines.pushdown import ANY, Alternatives, both, comparison, either, filters_of, null_test

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

#: Gives tables of some columns, by a filter, of at most so many rows, in batches of so many.
ReadTables = Callable[[list[str] | None, Alternatives | None, int | None, int | None], Iterator[Table]]


def lazy_frame(schema: Field, read: ReadTables) -> polars.LazyFrame:
    """A LazyFrame whose rows are read when it is collected."""
    columns = {child.name: child for child in schema.children}

    def source(
        names: list[str] | None, predicate: polars.Expr | None, num_rows: int | None, batch_rows: int | None
    ) -> Iterator[polars.DataFrame]:
        # Polars counts rows before it compares them.
        compared = predicate is not None and num_rows is None
        filters = filters_of(alternatives_of(predicate, columns)) if compared else None
        for table in read(names, filters, num_rows, batch_rows):
            frame = polars.DataFrame(table)
            yield frame if predicate is None else frame.filter(predicate)

    empty = polars.DataFrame(Table(schema, [], 0))
    return register_io_source(source, schema=empty.schema, validate_schema=True)


def alternatives_of(expression: Any, columns: Mapping[str, Field]) -> Alternatives:
    """The filter that an expression is."""
    match expression.meta.pop():
        case [column] if column.meta.is_column():
            name = column.meta.output_name()
            if expression.meta.eq(column.is_null()):
                return null_test(columns, name, "is null")
            return null_test(columns, name, "is not null") if expression.meta.eq(column.is_not_null()) else ANY
        case [right, left] if left.meta.is_column() and right.meta.is_literal():
            return _comparison(expression, left, right, columns)
        case [right, left] if expression.meta.eq(left & right):
            return both(alternatives_of(left, columns), alternatives_of(right, columns))
        case [right, left] if expression.meta.eq(left | right):
            return either(alternatives_of(left, columns), alternatives_of(right, columns))
        case [high, low, column] if column.meta.is_column() and expression.meta.eq(column.is_between(low, high)):
            return both(alternatives_of(column >= low, columns), alternatives_of(column <= high, columns))
    return ANY


def _comparison(expression: Any, column: Any, literal: Any, columns: Mapping[str, Field]) -> Alternatives:
    series = polars.select(literal).to_series()
    (value,) = series.to_list()
    if not polars.Series([value], dtype=series.dtype).equals(series):
        return ANY  # Python has no such value: a time stamp with nanoseconds
    name = column.meta.output_name()
    for word, compare in _COMPARISONS.items():
        if expression.meta.eq(compare(column, literal)):
            return comparison(columns, name, word, value)
    return comparison(columns, name, "in", value) if expression.meta.eq(column.is_in(literal)) else ANY
