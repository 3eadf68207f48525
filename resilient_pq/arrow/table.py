"""The result of reading: a table of Arrow arrays that any Arrow library takes as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import nanoarrow
from nanoarrow.c_array_stream import CArrayStream
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import BufferPart, make_array, num_bytes, sliced
from resilient_pq.arrow.packed import Packed
from resilient_pq.arrow.to_numpy import numpy_values
from resilient_pq.arrow.to_python import Inexact, python_values
from resilient_pq.arrow.types.field import MAX_NESTING, Field, shared_c
from resilient_pq.arrow.types.widening import widen, widest
from resilient_pq.errors import FormatError, SchemaError, UnsupportedError
from resilient_pq.format import kernels
from resilient_pq.notebook_html import rows_table
from resilient_pq.units import counted, printable

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: Columns and rows that `repr` shows, and characters of a value and of a row.
_SHOWN_COLUMNS = 20
_SHOWN_ROWS = 5
_SHOWN_VALUE = 40
_SHOWN_LINE = 115


class Table:
    """Rows of named columns, in chunks: one per row group or batch that was read.

    Any Arrow library takes it as it is, without a copy: ``pyarrow.table(table)``, ``polars.DataFrame(table)``.
    It never changes, and slices share its memory.
    """

    def __init__(self, schema: Any, chunks: Sequence[Sequence[Any]], num_rows: int) -> None:
        """Put arrays together.

        Args:
            schema: Anything with ``__arrow_c_schema__`` that describes the struct of the columns, or a list
                with one such object per column.
            chunks: For each chunk, a nanoarrow `CArray` per column, all of the same length. They are of the
                types in `schema`, or of wider forms of them, which the table then has (see `widening`).
            num_rows: Rows of all chunks; what a table without columns has.

        Raises:
            ValueError: Columns, types or rows are not those of the chunks.
        """
        if isinstance(schema, (list, tuple)):
            field = Field("", "+s", False, tuple(Field.of(column) for column in schema))
        else:
            field = Field.of(schema)
        schemas = list(map(shared_c, field.children))
        whole = [list(chunk) for chunk in chunks if schemas or chunk]
        if not all(len(chunk) == len(schemas) and all(map(_has_schema, chunk, schemas)) for chunk in whole):
            columns = [list(arrays) for arrays in zip(*whole, strict=True)]
            field, columns = _widen_columns(field, columns)
            whole = [list(chunk) for chunk in zip(*columns, strict=True)]
        if whole and sum(chunk[0].length for chunk in whole) != num_rows:
            raise ValueError(f"the chunks do not have {num_rows} rows")
        self._field = field
        self._chunks = whole
        self._num_rows = num_rows

    def widened(self, field: Field) -> Table:
        """The same rows in the types of a struct, or where that cannot hold them, in still wider ones."""
        return Table(field, self._chunks, self._num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """Its rows for another process; a slice takes no more along than it shows, but for buffers of views."""
        chunks = [[Packed.of(BufferPart.of(array)) for array in chunk] for chunk in self._chunks]
        return _unpickled, (self._field, chunks, self._num_rows)

    # --- what it is ---------------------------------------------------------------------------------------

    @property
    def schema(self) -> nanoarrow.Schema:
        """The Arrow schema; anything that takes ``__arrow_c_schema__`` takes it."""
        return nanoarrow.Schema(self._field.to_c())

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._num_rows

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self._field.children)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        return [child.name for child in self._field.children]

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take in memory; a slice counts what it shows."""
        return sum(num_bytes(BufferPart.of(array)) for chunk in self._chunks for array in chunk)

    def __len__(self) -> int:
        """Number of rows."""
        return self._num_rows

    def __repr__(self) -> str:
        """Size, names and types, and the first rows."""
        columns = self._field.children
        lines = [f"<resilient_pq.{self._size}>"]
        lines.extend(f"{printable(child.name)}: {_type(child)}" for child in columns[:_SHOWN_COLUMNS])
        if len(columns) > _SHOWN_COLUMNS:
            lines.append(f"... and {len(columns) - _SHOWN_COLUMNS:,} more")
        for row in self._first_rows():
            line = ", ".join(row)
            lines.append(f"({line if len(line) <= _SHOWN_LINE else f'{line[:_SHOWN_LINE]}...'})")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The first rows, for notebooks."""
        columns = self._field.children
        header = [f"{child.name}\n{_type(child)}" for child in columns[:_SHOWN_COLUMNS]]
        more = len(columns) > _SHOWN_COLUMNS or self._num_rows > _SHOWN_ROWS
        caption = f"{self._size}{f'; the first {_SHOWN_ROWS} rows, {_SHOWN_COLUMNS} columns at most' if more else ''}"
        return rows_table(header, self._first_rows(), caption)

    @property
    def _size(self) -> str:
        return f"Table: {counted(self._num_rows, 'row')}, {counted(self.num_columns, 'column')}"

    def _first_rows(self) -> list[tuple[str, ...]]:
        """The first values of the first columns as text; ``?`` where text is no text."""
        shown = self.head(_SHOWN_ROWS)
        columns = []
        for position in range(min(self.num_columns, _SHOWN_COLUMNS)):
            try:
                values = shown._python_column(position, "numpy")
            except FormatError:
                values = ["?"] * shown.num_rows
            columns.append([_shortened(value) for value in values])
        return list(zip(*columns, strict=True))

    # --- Arrow --------------------------------------------------------------------------------------------

    def __arrow_c_schema__(self) -> object:
        """The schema as a capsule of the Arrow C data interface."""
        return self._field.to_c().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The chunks as a capsule of the Arrow C stream interface; can be asked for any number of times.

        Args:
            requested_schema: Passed over, as the interface allows: the columns come as they are.
        """
        if kernels.batch_stream is not None and self._chunks:
            return kernels.batch_stream(shared_c(self._field), self._chunks, MAX_NESTING)
        # They are made for this alone. Copied ones would have broken views, see `buffers`.
        batches = list(self._batches())
        stream = CArrayStream.from_c_arrays(batches, self._field.to_c(), move=True, validate=False)
        return stream.__arrow_c_stream__()

    def _batches(self) -> Iterator[Any]:
        if not self._field.children and self._num_rows:
            yield make_array(self._field, self._num_rows, [], None)
        for chunk in self._chunks:
            yield make_array(self._field, chunk[0].length, [], None, chunk)

    # --- parts --------------------------------------------------------------------------------------------

    def slice(self, offset: int = 0, length: int | None = None) -> Table:
        """The rows from `offset` on, at most `length` of them, sharing memory.

        Raises:
            ValueError: `offset` or `length` is negative.
        """
        if offset < 0 or (length is not None and length < 0):
            raise ValueError("offset and length of a slice may not be negative")
        stop = self._num_rows if length is None else min(self._num_rows, offset + length)
        chunks = []
        first = 0
        for chunk in self._chunks:
            begin, end = max(offset - first, 0), min(stop - first, chunk[0].length)
            if begin < end:
                chunks.append([sliced(array, begin, end - begin) for array in chunk])
            first += chunk[0].length
        return Table(self._field, chunks, max(stop - offset, 0))

    def head(self, num_rows: int = 5) -> Table:
        """The first rows, sharing memory."""
        return self.slice(0, num_rows)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column as a NumPy array.

        =====================================  ======================================================
        column                                 array
        =====================================  ======================================================
        bool, integers, floats                 NumPy's type of the same width, also where they are
                                               the values of a dictionary
        date32, date64, timestamp              ``datetime64`` in the column's unit, days for date32;
                                               where it has a time zone, in UTC
        time32, time64, duration               ``timedelta64`` in the column's unit; a time of day
                                               counts from midnight
        all others                             ``object`` of Python values as `to_pylist` has them,
                                               None for null, NumPy's scalars for times that
                                               Python cannot hold
        =====================================  ======================================================

        The first three are a `numpy.ma.MaskedArray` where the column has nulls. Else, where the column is one
        chunk, integers, floats, timestamps and durations are a read-only view of its own memory.

        Raises:
            SchemaError: There is no column of that name, or there are several.
        """
        position = self._position(name)
        parts = [BufferPart.of(chunk[position]) for chunk in self._chunks]
        return numpy_values(self._field.children[position], parts)

    def _position(self, name: str) -> int:
        names = self.column_names
        if names.count(name) != 1:
            many = "several columns" if name in names else "no column"
            raise SchemaError(f"there is {many} {name!r}", hint=f"columns: {', '.join(names)}")
        return names.index(name)

    # --- other forms --------------------------------------------------------------------------------------

    def to_pydict(self, *, inexact: Inexact = "raise") -> dict[str, list[Any]]:
        """The columns as lists of Python values, as pyarrow's `to_pydict` gives them.

        Args:
            inexact: What becomes of a time that Python's `datetime` cannot hold, for its nanoseconds or
                its year: ``raise`` is an error, ``numpy`` a `numpy.datetime64` or `numpy.timedelta64` in its
                place (in UTC, where the column has a time zone).

        Raises:
            FormatError: Text is not UTF-8.
            SchemaError: A time cannot be held by `datetime`, or two columns have the same name.
        """
        names = self.column_names
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise SchemaError(
                f"several columns are named {repeated!r}, which a dict cannot hold", hint="use to_pyarrow()"
            )
        return {name: self._python_column(position, inexact) for position, name in enumerate(names)}

    def to_pylist(self, *, inexact: Inexact = "raise") -> list[dict[str, Any]]:
        """The rows as dicts of Python values, as pyarrow's `to_pylist` gives them.

        Args:
            inexact: As in `to_pydict`.

        Raises:
            FormatError: Text is not UTF-8.
            SchemaError: A time cannot be held by `datetime`, or two columns have the same name.
        """
        columns = self.to_pydict(inexact=inexact)
        if not columns:
            return [{} for _ in range(self._num_rows)]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _python_column(self, position: int, inexact: Inexact) -> list[Any]:
        name = self._field.children[position].name
        values: list[Any] = []
        for chunk in self._chunks:
            values.extend(python_values(BufferPart.of(chunk[position]), name, inexact))
        return values

    def to_pyarrow(self) -> pyarrow.Table:
        """The same as a `pyarrow.Table`, without a copy.

        Raises:
            UnsupportedError: pyarrow is not installed.
        """
        return _library("pyarrow").table(self)

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """The same as a pandas `DataFrame`.

        Args:
            options: What `pyarrow.Table.to_pandas` takes.

        Raises:
            UnsupportedError: pandas or pyarrow is not installed.
        """
        _library("pandas")
        return self.to_pyarrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """The same as a Polars `DataFrame`.

        Raises:
            UnsupportedError: Polars is not installed.
        """
        frame: polars.DataFrame = _library("polars").DataFrame(self)
        return frame


def _unpickled(field: Field, chunks: list[list[Packed]], num_rows: int) -> Table:
    return Table(field, [[packed.array() for packed in chunk] for chunk in chunks], num_rows)


def _type(column: Field) -> str:
    return f"{column}{'' if column.nullable else ' not null'}"


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}..."


def _has_schema(array: Any, schema: Any) -> bool:
    return array.schema is schema


def _widen_columns(field: Field, columns: list[list[Any]]) -> tuple[Field, list[list[Any]]]:
    """The struct and the chunks of its columns, of the widest type that chunks of the column have."""
    if len(columns) != len(field.children):
        raise ValueError(f"the schema has {len(field.children)} columns, the chunks {len(columns)}")
    targets = []
    for at, (declared, arrays) in enumerate(zip(field.children, columns, strict=True)):
        schema, target = shared_c(declared), declared
        if any(array.schema is not schema for array in arrays):
            target = widest([declared, *(Field.of(array.schema) for array in arrays)])
            columns[at] = [widen(array, target) for array in arrays]
        targets.append(target)
    changed = any(target is not child for target, child in zip(targets, field.children, strict=True))
    return field.with_children(*targets) if changed else field, columns


def _library(name: str) -> Any:
    """A library that is imported only when one of its tables is asked for."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UnsupportedError(f"this needs {name}", hint=f"pip install {name}") from error
