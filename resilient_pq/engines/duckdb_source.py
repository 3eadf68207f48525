"""What DuckDB asks of a scan: a pyarrow data set, whose `scanner` it gives columns and an expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import duckdb
import nanoarrow
import pyarrow
import pyarrow.dataset

from resilient_pq.arrow.types.field import Field
from resilient_pq.engines.pushdown import ANY, Alternatives, both, comparison, either, filters_of, null_test
from resilient_pq.lazy_dataclass import dataclass

_COMPARISONS: Final = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}

#: Gives an Arrow stream of some columns, by a filter.
ReadStream = Callable[[list[str] | None, Alternatives | None], Any]


def relation(connection: duckdb.DuckDBPyConnection | None, schema: Any, read: ReadStream) -> duckdb.DuckDBPyRelation:
    """A relation whose rows are read when a query asks for them; DuckDB's default connection is None."""
    dataset = ScannedDataset(schema, read)
    return duckdb.from_arrow(dataset) if connection is None else connection.from_arrow(dataset)


class ScannedDataset(pyarrow.dataset.FileSystemDataset):  # type: ignore[misc]
    """A pyarrow data set whose scanners read through us, and which fails where pyarrow reads it without one."""

    def __init__(self, schema: Any, read: ReadStream) -> None:
        # Its one file is empty, which is an error for Parquet.
        form = pyarrow.dataset.ParquetFileFormat()
        super().__init__([form.make_fragment(pyarrow.py_buffer(b""))], pyarrow.schema(schema), form)
        self._columns = {child.name: child for child in Field.of(schema).children}
        self._read = read

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any
    ) -> pyarrow.dataset.Scanner:
        """What reads the columns, and those that the expression is about; pyarrow compares rows by it once more."""
        wanted = None if columns is None else list(columns)
        names, filters = wanted, None
        if filter is not None:
            calls = Calls.of(filter)
            filters = None if calls is None else filters_of(alternatives_of(calls, self._columns))
            if wanted is not None:
                asked = {*wanted, *(self._columns if calls is None else calls.names)}
                names = [name for name in self._columns if name in asked]
        reader = pyarrow.RecordBatchReader.from_stream(self._read(names, filters))
        return pyarrow.dataset.Scanner.from_batches(reader, columns=wanted, filter=filter, **options)


@dataclass(frozen=True, slots=True)
class Calls:
    """A node of an expression: a call of a function, a field (``field_ref``) or a value (``literal``)."""

    kind: str
    name: str = ""
    arguments: tuple[Calls, ...] = ()
    value: Any = None

    @classmethod
    def of(cls, expression: Any) -> Calls | None:
        """An expression as pyarrow pickles it: an Arrow file whose metadata are its nodes, with values in one row."""
        try:
            _, (pickled,) = expression.__reduce__()
            batch = pyarrow.ipc.open_file(pickled).get_batch(0)
            parts = [(key.decode(), text.decode()) for key, text in nanoarrow.c_schema(batch.schema).metadata.items()]
            return cls._next(iter(parts), [column[0] for column in batch.columns])
        except (pyarrow.ArrowException, ValueError, LookupError, TypeError, RuntimeError):
            return None  # another version of pyarrow has another form, and pyarrow alone compares the rows

    @classmethod
    def _next(cls, parts: Iterator[tuple[str, str]], values: Sequence[Any]) -> Calls:
        kind, text = next(parts)
        if kind in ("literal", "options"):
            return cls(kind, value=values[int(text)])
        if kind == "nested_field_ref":
            return cls(kind, arguments=tuple(cls._next(parts, values) for _ in range(int(text))))
        if kind != "call":
            return cls(kind, text)
        arguments = tuple(iter(lambda: cls._next(parts, values), cls("end", text)))
        return cls(kind, text, arguments)

    @property
    def names(self) -> set[str]:
        """The names of all fields in it."""
        found = {self.name} if self.kind == "field_ref" else set()
        return found.union(*(argument.names for argument in self.arguments))


def alternatives_of(call: Calls, columns: Mapping[str, Field]) -> Alternatives:
    """The filter that a condition is."""
    match call.name, call.arguments:
        case "and_kleene", (left, right):
            return both(alternatives_of(left, columns), alternatives_of(right, columns))
        case "or_kleene", (left, right):
            return either(alternatives_of(left, columns), alternatives_of(right, columns))
        case "if_else", (test, then, Calls("literal")):
            if call.arguments[2].value.is_valid:
                return ANY
            return both(alternatives_of(test, columns), alternatives_of(then, columns))
        case "is_valid", (Calls("field_ref", name),):
            return null_test(columns, name, "is not null")
        case "is_null", (Calls("field_ref", name), *_):
            return null_test(columns, name, "is null")
        case "is_in", (Calls("field_ref", name), Calls("options", value=options)):
            return _comparison(columns, name, "in", options["value_set"])
        case compared, (Calls("field_ref", name), Calls("literal", value=scalar)) if compared in _COMPARISONS:
            return _comparison(columns, name, _COMPARISONS[compared], scalar)
    return ANY


def _comparison(columns: Mapping[str, Field], name: str, operator: str, scalar: Any) -> Alternatives:
    value = scalar.as_py()
    if not pyarrow.scalar(value, type=scalar.type).equals(scalar):
        return ANY  # Python has no such value: a time stamp with nanoseconds
    return comparison(columns, name, operator, value)
