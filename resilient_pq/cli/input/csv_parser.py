"""Blocks of CSV as rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from resilient_pq.arrow.types.field import Field
from resilient_pq.cli.input import text_types
from resilient_pq.cli.input.text_parser import TextOptions, TextParser
from resilient_pq.cli.input.text_types import TextError
from resilient_pq.errors import FormatError, Where
from resilient_pq.units import MiB

#: Bytes of one line, at most.
MAX_LINE_BYTES = 256 * MiB
_EXACT = 1 << 53  # integers below it are exact as floats
_IN_CACHE = 1 << 17  # bytes that are looked at in one step


class CsvParser(TextParser):
    """Parses blocks of CSV, the first of which has the header."""

    def __init__(self, name: str, text_options: TextOptions, delimiter: str) -> None:
        super().__init__(name, text_options)
        self._delimiter = delimiter
        self._not_in_numbers = text_types.NULLS.union(text_options.nulls)

    def begin(self, block: bytes) -> bytes:
        """Take names and types from the first block; gives what stands behind the header."""
        csv.field_size_limit(MAX_LINE_BYTES)
        text = decoded(block)
        source = io.StringIO(text, newline="")
        try:
            header = next(row for row in self._rows(source) if row)
        except csv.Error as error:
            raise self.error(-1, f"the header is not CSV: {error}") from None
        other = next((mark for mark in ";\t|," if mark != self._delimiter and mark in header[0]), None)
        if len(header) == 1 and other and self._options.delimiter is None:
            shown = "'\\t'" if other == "\t" else f"'{other}'"
            raise FormatError(
                f"the only column is {header[0]!r}: values are not separated by {self._delimiter!r}",
                where=Where(key=self._name),
                hint=f"--delimiter {shown}, or --delimiter '{self._delimiter}' where it is one column",
            )
        body = block
        if self._options.header:
            body = text[source.tell() :].encode("utf-8", "surrogateescape")
        else:
            header = [f"f{number}" for number in range(len(header))]
        self.fields = [Field(name, "u") for name in header]
        fields = []
        for name, texts in zip(header, self._first_values(body), strict=True):
            known = name in self._options.types
            fields.append(self._options.types[name] if known else text_types.inferred(name, texts))
        self._settle([replace(each, name=name) for each, name in zip(fields, header, strict=True)])
        return body

    def _first_values(self, body: bytes) -> list[set[str]]:
        """The values of each column in the first block that are not null."""
        nulls = self._not_in_numbers
        if self._has_pyarrow and body:
            pa, compute = import_module("pyarrow"), import_module("pyarrow.compute")
            table = self._table(body, [pa.binary()] * len(self.fields))
            if table is not None:
                return [{decoded(v) for v in compute.unique(column).to_pylist()} - nulls for column in table.columns]
        columns = zip(*self._checked_rows(body), strict=True)
        return [set(column) - nulls for column in columns] or [set() for _ in self.fields]

    def _rows(self, source: Any) -> Iterator[list[str]]:
        return csv.reader(source, delimiter=self._delimiter, strict=True)

    def _checked_rows(self, body: bytes) -> list[list[str]]:
        """The rows of a block, without blank lines."""
        found: list[list[str]] = []
        try:
            for row in filter(None, self._rows(io.StringIO(decoded(body), newline=""))):
                if len(row) != len(self.fields):
                    raise self.error(len(found), f"Expected {len(self.fields)} columns, got {len(row)}")
                found.append(row)
        except csv.Error as error:
            raise self.error(len(found), str(error)) from None
        return found

    def _by_python(self, body: bytes) -> Any:
        rows = self._checked_rows(body)
        arrays = []
        for number, (each, inferred) in enumerate(zip(self.fields, self._inferred, strict=True)):
            nulls = self._options.nulls if each.kind in ("u", "U", "z", "Z") else self._not_in_numbers
            texts = [None if row[number] in nulls else row[number] for row in rows]
            try:
                arrays.append(text_types.array_of_texts(each, texts, inferred))
            except TextError as error:
                raise self.contradicted(error) from None
        return self._arrays(arrays, len(rows))

    def _table(self, body: bytes, types: Sequence[Any], only: Sequence[int] | None = None) -> Any:
        """A block as pyarrow reads it; None where it finds something wrong, or a quote is open."""
        if body.count(b'"') % 2:
            return None
        pa, pyarrow_csv = import_module("pyarrow"), import_module("pyarrow.csv")
        # Columns may have the same name, so they are named by numbers.
        names = [str(number) for number in range(len(types))]
        try:
            return pyarrow_csv.read_csv(
                pa.BufferReader(body),
                read_options=pyarrow_csv.ReadOptions(block_size=len(body) + 1, column_names=names),
                parse_options=pyarrow_csv.ParseOptions(delimiter=self._delimiter),
                convert_options=pyarrow_csv.ConvertOptions(
                    column_types=dict(zip(names, types, strict=True)),
                    null_values=sorted(self._not_in_numbers),
                    include_columns=None if only is None else [names[number] for number in only],
                ),
            )
        except (ValueError, KeyError, NotImplementedError):  # pyarrow's own are of these
            return None

    def _by_pyarrow(self, body: bytes) -> Any:
        _, pa, fields = self._pyarrow_fields("csv")
        table = self._table(body, [each.type for each in fields])
        if table is None or self._changes_numbers(body, table):
            return None
        if self._options.nulls:
            compute = import_module("pyarrow.compute")
            for number, each in enumerate(self.fields):
                if each.kind in ("u", "U", "z", "Z"):
                    column = table.column(number)
                    null = compute.is_in(column, value_set=pa.array(self._options.nulls).cast(column.type))
                    kept = compute.if_else(null, pa.scalar(None, column.type), column)
                    table = table.set_column(number, str(number), kept)
        return table.cast(pa.schema([pa.field(str(i), each.type) for i, each in enumerate(fields)])).rename_columns(
            [each.name for each in self.fields]
        )

    def _changes_numbers(self, body: bytes, table: Any) -> bool:
        """Whether a column whose type was taken from values has one now that pyarrow reads, and that would change."""
        numbers = [i for i, each in enumerate(self.fields) if self._inferred[i] and each.kind in ("l", "g")]
        large = [number for number in numbers if self.fields[number].kind == "g" and _is_large(table.column(number))]
        if large:
            return True
        if not numbers or not _may_change(body, self._delimiter):
            return False
        pa, compute = import_module("pyarrow"), import_module("pyarrow.compute")
        texts = self._table(body, [pa.string()] * len(self.fields), numbers)
        for position, number in enumerate(numbers):
            pattern = text_types.INTEGER if self.fields[number].kind == "l" else text_types.FLOAT
            column = compute.utf8_trim(texts.column(position), " \t")
            kept = compute.match_substring_regex(column, f"^({pattern})$")
            null = compute.is_in(column, value_set=pa.array(sorted(self._not_in_numbers)))
            if not compute.all(compute.or_(kept, null), min_count=0).as_py():
                return True
        return False


def _is_large(column: Any) -> bool:
    """Whether a column of floats may have had integers that they are too coarse for."""
    bounds = import_module("pyarrow.compute").min_max(column).as_py()
    return bool(max(abs(bounds["min"] or 0), abs(bounds["max"] or 0)) > _EXACT)


def _may_change(body: bytes, delimiter: str) -> bool:
    """Whether a value begins with a sign or a zero as only text does: the bytes tell far sooner than values would."""
    data = np.frombuffer(b"\n" + body + b"\n\n", np.uint8)
    begins = np.isin(np.arange(256), np.frombuffer(f'{delimiter}\r\n" \t'.encode(), np.uint8))
    # A zero or a plus before a digit, and a minus before a zero that no point follows.
    marks = [(48, 9), *([(43, 9)] if b"+" in body else []), *([(45, 0)] if b"-0" in body else [])]
    for start in range(0, len(data), _IN_CACHE):
        piece = data[start : start + _IN_CACHE + 3]
        digits = piece[2:-1] - np.uint8(48)
        for mark, most in marks:
            found = np.flatnonzero((piece[1:-2] == mark) & (digits <= most))
            if np.any(begins[piece[found]] & ((mark != 45) | (piece[found + 3] != 46))):
                return True
    return False


def decoded(block: bytes) -> str:
    """Text whose bytes that are no UTF-8 are surrogates."""
    return block.decode("utf-8", "surrogateescape")
