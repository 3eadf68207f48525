"""Whatever a caller has, as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import nanoarrow
import numpy as np

from resilient_pq.arrow.buffers import make_array
from resilient_pq.arrow.field import Field
from resilient_pq.arrow.numpy_values import array_of_numpy
from resilient_pq.arrow.python_values import array_of, member
from resilient_pq.errors import SchemaError


@dataclass(frozen=True, slots=True)
class Source:
    """Record batches of one type, to be taken once.

    Attributes:
        field: The struct of their columns; the table's metadata is its metadata.
        arrays: nanoarrow `CArray`s of that struct.
    """

    field: Field
    arrays: Iterator[Any]


def open_source(data: object, expected: Field | None = None) -> Source:
    """Record batches of what a caller has.

    Args:
        data: Anything with ``__arrow_c_stream__`` or ``__arrow_c_array__`` whose items are rows, a dict of
            columns (Arrow arrays, NumPy arrays, lists), or a list of dict records.
        expected: The struct of columns that lists and records are made into; None finds their types out.

    Raises:
        SchemaError: `data` is none of these, its columns differ in length, or its values fit no type.
    """
    if isinstance(data, Source):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        stream = nanoarrow.c_array_stream(data)
        return _readable(Field.of(stream.get_schema()), stream)
    if hasattr(data, "__arrow_c_array__"):
        array = nanoarrow.c_array(data)
        return _readable(Field.of(array.schema), (array,))
    if isinstance(data, Mapping):
        return _from_columns(data, expected)
    if isinstance(data, (list, tuple)) and all(isinstance(record, Mapping) for record in data):
        return _from_records(data, expected)
    raise SchemaError(
        f"rows cannot be taken from an object of type {type(data).__name__}",
        hint="pass an Arrow table or record batch, a dict of columns, or a list of dict records",
    )


def _readable(field: Field, arrays: Iterable[Any]) -> Source:
    """The arrays in a form whose buffers nanoarrow shows: it knows no decimals of 32 and 64 bits."""
    storage = _storage(field)
    if storage == field:
        return Source(field, iter(arrays))
    schema = storage.to_c()
    return Source(field, (nanoarrow.c_array(array.__arrow_c_array__()[1], schema) for array in arrays))


def _storage(field: Field) -> Field:
    narrow = field.kind == "d" and field.decimal[2] < 128
    return replace(
        field,
        format=f"w:{field.decimal[2] // 8}" if narrow else field.format,
        children=tuple(map(_storage, field.children)),
        dictionary=None if field.dictionary is None else _storage(field.dictionary),
    )


def _from_records(records: Sequence[Mapping[str, Any]], expected: Field | None) -> Source:
    if expected is None:
        if not records:
            raise SchemaError("there are no records to take a schema from", hint="pass schema=")
        names = list(dict.fromkeys(key for record in records for key in record))
        fields: dict[str, Field] = {}
        for name in names:
            if not isinstance(name, str):
                raise SchemaError(f"the keys of a record are names of columns, but one is {name!r}")
    else:
        fields = {child.name: child for child in expected.children}
        names = list(fields)
        for row, record in enumerate(records):
            unknown = next((key for key in record if key not in fields), None)
            if unknown is not None:
                raise SchemaError(
                    f"record {row} has a key {unknown!r} that is no column",
                    hint=f"columns: {', '.join(names)}",
                )
    pairs = []
    for name in names:
        known = fields.get(name)
        values = [record.get(name) if known is None else member(record, known) for record in records]
        pairs.append(array_of(name, values, known))
    root = Field("", "+s", False, tuple(field for field, _ in pairs))
    return Source(root, iter((make_array(root, len(records), [], None, [array for _, array in pairs]),)))


def _from_columns(columns: Mapping[str, Any], expected: Field | None) -> Source:
    known = {child.name: child for child in expected.children} if expected is not None else {}
    chunked = {str(name): _column(str(name), values, known.get(name)) for name, values in columns.items()}
    root = Field("", "+s", False, tuple(replace(field, name=name) for name, (field, _) in chunked.items()))
    return Source(root, _aligned(_storage(root), [chunks for _, chunks in chunked.values()]))


def _column(name: str, values: Any, expected: Field | None) -> tuple[Field, list[Any]]:
    """The type and the arrays of one column."""
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):
        source = open_source(values)
        return source.field, list(source.arrays)
    if isinstance(values, (list, tuple, range)):
        field, array = array_of(name, values, expected)
        return field, [array]
    if isinstance(values, np.ndarray) or hasattr(values, "__array__"):
        array = values if isinstance(values, np.ndarray) else np.asarray(values)
        field, array = array_of_numpy(name, array, expected)
        return field, [array]
    raise SchemaError(
        f"column {name!r}: values cannot be taken from an object of type {type(values).__name__}",
        hint="pass a list, a NumPy array or an Arrow array",
    )


def _aligned(root: Field, columns: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """Record batches of columns whose chunks may end at different rows."""
    ends = [np.cumsum([chunk.length for chunk in chunks], dtype=np.int64).tolist() for chunks in columns]
    lengths = [column[-1] if column else 0 for column in ends]
    if len(set(lengths)) > 1:
        pairs = zip(root.children, lengths, strict=True)
        rows = ", ".join(f"{child.name!r} {length:,}" for child, length in pairs)
        raise SchemaError(f"the columns have different numbers of rows: {rows}")
    return _cut(root, columns, ends)


def _cut(root: Field, columns: Sequence[Sequence[Any]], ends: Sequence[Sequence[int]]) -> Iterator[Any]:
    at = [0] * len(columns)
    row = 0
    for cut in sorted({end for column in ends for end in column}):
        if cut == row:
            continue
        children = []
        for position, (chunks, column_ends) in enumerate(zip(columns, ends, strict=True)):
            while column_ends[at[position]] <= row:
                at[position] += 1
            chunk = chunks[at[position]]
            first = row - (column_ends[at[position]] - chunk.length)
            children.append(chunk[first : first + cut - row])
        yield make_array(root, cut - row, [], None, children)
        row = cut
