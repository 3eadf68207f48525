"""Record batches from Arrow data, dicts of columns, and lists of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import nanoarrow
import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import DTYPES, BufferPart, Valid, make_array, num_bytes
from resilient_pq.arrow.handed_over import take_arrays, taking
from resilient_pq.arrow.python_values import array_of, member, misfit
from resilient_pq.arrow.types.field import Field, shared
from resilient_pq.errors import SchemaError
from resilient_pq.lazy_dataclass import dataclass

#: Arrow's formats of NumPy's types.
_FORMATS = {DTYPES[kind]: kind for kind in ("c", "C", "s", "S", "i", "I", "l", "L", "e", "f", "g")}
_UNIT_LETTERS = {"s": "s", "ms": "m", "us": "u", "ns": "n"}


class Rows:
    """Some rows, column by column, and which of them are not null as a whole.

    Columns stay in the arrays that they came in: nanoarrow's own slices and parents of arrays are copies of what
    is in them, and those of views write beyond their memory. `array` is the nanoarrow `CArray` of structs that has all
    of them, where there is one; with `apart` each is one of its own.
    """

    def __init__(self, length: int, columns: tuple[BufferPart, ...], *, apart: bool = False) -> None:
        self.length = length
        self.apart = apart
        self.array: Any = None
        self._field: Field | None = None
        self.__dict__["columns"] = columns

    @classmethod
    def of(cls, array: Any, field: Field) -> Rows:
        """The rows of a nanoarrow `CArray` of structs; they are looked at when they are asked for."""
        rows = cls(array.length, ())
        rows.array, rows._field = array, field
        del rows.__dict__["columns"]
        return rows

    @cached_property
    def _whole(self) -> BufferPart:
        return BufferPart.of(self.array, self._field)

    @cached_property
    def columns(self) -> tuple[BufferPart, ...]:
        """The slots of each column."""
        return tuple(map(self._whole.child, range(len(self._whole.field.children))))

    @property
    def valid(self) -> Valid | None:
        """Which of them are not null as a whole; None where all are."""
        return None if self._field is None else self._whole.valid()

    @property
    def num_bytes(self) -> int:
        """Bytes that the rows take in memory."""
        return sum(map(num_bytes, self.columns))

    def slice(self, start: int, length: int) -> Rows:
        """`length` rows from `start` on, none of which is null as a whole."""
        return Rows(length, tuple(column.slice(start, length) for column in self.columns))


@dataclass(frozen=True, slots=True)
class BatchSource:
    """Record batches of one type, to be taken once."""

    field: Field
    batches: Iterator[Rows]


def open_source(data: object, expected: Field | None = None) -> BatchSource:
    """Record batches of what a caller has, see `Ingest.batches`; lists and records become `expected`."""
    if isinstance(data, BatchSource):
        return data
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        field, arrays = arrays_of(data)
        return BatchSource(field, (Rows.of(array, field) for array in arrays))
    if isinstance(data, Mapping):
        return _from_columns(data, expected)
    if isinstance(data, (list, tuple)) and record_of(data) is None:
        records = [record_of(record) for record in data]
        other = next((row for row, record in enumerate(records) if record is None), None)
        if other is None:
            return _from_records([record for record in records if record is not None], expected)
        raise SchemaError(
            f"row {other} of the list is of type {type(data[other]).__name__}",
            hint="a list holds records: dicts, dataclasses or named tuples; columns come as a dict of lists",
        )
    raise SchemaError(
        f"rows cannot be taken from an object of type {type(data).__name__}",
        hint="pass an Arrow table or record batch, a dict of columns, a list of records, or an iterator of such",
    )


def record_of(record: Any) -> Mapping[str, Any] | None:
    """The values of a row by the names of its columns; None where it is no dict, dataclass or named tuple."""
    if isinstance(record, Mapping):
        return record
    if is_dataclass(record) and not isinstance(record, type):
        return {field.name: getattr(record, field.name) for field in fields(record)}
    if isinstance(record, tuple) and hasattr(record, "_fields"):
        return dict(zip(record._fields, record, strict=True))
    return None


def arrays_of(data: Any) -> tuple[Field, Iterable[Any]]:
    """The type and the nanoarrow `CArray`s of Arrow data."""
    with taking("rows", data):
        if hasattr(data, "__arrow_c_stream__"):
            stream: Any = nanoarrow.c_array_stream(data)
            field, arrays = Field.of(stream.get_schema()), take_arrays(stream, data)
        else:
            array: Any = nanoarrow.c_array(data)
            field, arrays = Field.of(array.schema), iter((array,))
    return field, arrays


def _from_records(records: Sequence[Mapping[str, Any]], expected: Field | None) -> BatchSource:
    if expected is None:
        pairs = [array_of(name, [record.get(name) for record in records]) for name in _column_names(records)]
    else:
        _check_keys(records, [child.name for child in expected.children])
        columns = {child.name: child for child in expected.children}
        pairs = [array_of(name, [member(each, child) for each in records], child) for name, child in columns.items()]
    root = shared(Field("", "+s", False, tuple(field for field, _ in pairs)))
    return BatchSource(
        root, iter((Rows(len(records), tuple(BufferPart.of(array, field) for field, array in pairs), apart=True),))
    )


def _column_names(records: Sequence[Mapping[str, Any]]) -> list[str]:
    if not records:
        raise SchemaError("there are no records to take a schema from", hint="pass schema=")
    names = list(dict.fromkeys(key for record in records for key in record))
    for name in names:
        if not isinstance(name, str):
            raise SchemaError(f"the keys of a record are names of columns, but one is {name!r}")
    return names


def _check_keys(records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    known = dict.fromkeys(names)
    for row, record in enumerate(records):
        for key in record:
            if key not in known:
                hint = f"columns: {', '.join(known)}"
                raise SchemaError(f"record {row} has a key {key!r} that is no column", hint=hint)


def _from_columns(columns: Mapping[str, Any], expected: Field | None) -> BatchSource:
    known = {child.name: child for child in expected.children} if expected is not None else {}
    chunked = {str(name): _column(str(name), values, known.get(name)) for name, values in columns.items()}
    root = shared(Field("", "+s", False, tuple(replace(field, name=name) for name, (field, _) in chunked.items())))
    return BatchSource(root, _aligned(root, [chunks for _, chunks in chunked.values()]))


def _column(name: str, values: Any, expected: Field | None) -> tuple[Field, list[BufferPart]]:
    """The type and the chunks of one column."""
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):
        field, arrays = arrays_of(values)
        return field, [BufferPart.of(array, field) for array in arrays]
    if isinstance(values, (list, tuple, range)):
        field, array = array_of(name, values, expected)
        return field, [BufferPart.of(array, field)]
    if isinstance(values, np.ndarray) or hasattr(values, "__array__"):
        with taking("values", values):
            array = values if isinstance(values, np.ndarray) else np.asarray(values)
        field, array = _array_of_numpy(name, array, expected)
        return field, [BufferPart.of(array, field)]
    raise SchemaError(
        f"column {name!r}: values cannot be taken from an object of type {type(values).__name__}",
        hint="pass a list, a NumPy array or an Arrow array",
    )


def _aligned(root: Field, columns: Sequence[Sequence[BufferPart]]) -> Iterator[Rows]:
    """Rows of columns whose chunks may end at different rows."""
    ends = [np.cumsum([chunk.length for chunk in chunks], dtype=np.int64).tolist() for chunks in columns]
    lengths = [column[-1] if column else 0 for column in ends]
    if len(set(lengths)) > 1:
        pairs = zip(root.children, lengths, strict=True)
        rows = ", ".join(f"{child.name!r} {length:,}" for child, length in pairs)
        raise SchemaError(f"the columns have different numbers of rows: {rows}")
    return _cut(columns, ends)


def _cut(columns: Sequence[Sequence[BufferPart]], ends: Sequence[Sequence[int]]) -> Iterator[Rows]:
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
            children.append(chunk.slice(first, cut - row))
        yield Rows(cut - row, tuple(children), apart=True)
        row = cut


def _array_of_numpy(name: str, array: NDArray[Any], field: Field | None = None) -> tuple[Field, Any]:
    """An Arrow array of a one-dimensional NumPy array; masked values and NaT are null, NaN is a value."""
    if array.ndim != 1:
        raise misfit(name, f"it has {array.ndim} dimensions, not one")
    mask = np.ma.getmaskarray(array) if isinstance(array, np.ma.MaskedArray) else None
    values = np.asarray(array)
    if values.dtype.kind in "OUST":
        objects = values.tolist()
        if mask is not None:
            pairs = zip(objects, mask.tolist(), strict=True)
            objects = [None if masked else value for value, masked in pairs]
        return array_of(name, objects, field)
    if values.dtype.kind in "mM":
        nat = np.isnat(values)
        mask = nat if mask is None else mask | nat
    valid = None if mask is None or not mask.any() else ~mask
    found, stored = _stored(name, values)
    return found, make_array(found, len(values), [np.ascontiguousarray(stored)], valid)


def _stored(name: str, values: NDArray[Any]) -> tuple[Field, NDArray[Any]]:
    """The Arrow type, and the values as its data buffer has them."""
    native = values.astype(values.dtype.newbyteorder("<"), copy=False)
    if values.dtype.kind == "b":
        return Field(name, "b"), np.packbits(values, bitorder="little")
    if native.dtype in _FORMATS:
        return Field(name, _FORMATS[native.dtype]), native
    if values.dtype.kind in "mM":
        unit, count = np.datetime_data(values.dtype)
        if count == 1 and unit in _UNIT_LETTERS:
            letter = _UNIT_LETTERS[unit]
            kind = f"ts{letter}:" if values.dtype.kind == "M" else f"tD{letter}"
            return Field(name, kind), native.view("<i8")
        if count == 1 and unit == "D" and values.dtype.kind == "M":
            return Field(name, "tdD"), _days(name, native)
    raise misfit(name, f"there is no Arrow type for NumPy's {values.dtype}")


def _days(name: str, values: NDArray[Any]) -> NDArray[Any]:
    days = np.where(np.isnat(values), 0, values.view("<i8"))
    if len(days) and (days.min() < -(2**31) or days.max() >= 2**31):
        raise misfit(name, "a date is too far from 1970")
    return days.astype("<i4")
