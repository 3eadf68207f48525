"""Blocks of JSON lines as rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from resilient_pq.arrow.python_values import array_of
from resilient_pq.arrow.types.field import Field
from resilient_pq.cli.input import text_types
from resilient_pq.cli.input.text_parser import TextParser
from resilient_pq.cli.input.text_types import TextError
from resilient_pq.errors import FormatError, SchemaError, Where


class JsonLinesParser(TextParser):
    """Parses blocks of JSON lines."""

    def begin(self, block: bytes) -> bytes:
        """Take names and types from the first block."""
        records = self._records(block)
        names = dict.fromkeys([*(key for record in records for key in record), *self._options.types])
        if not names:
            raise FormatError("the first rows have no columns", where=Where(key=self._name))
        fields = []
        for name in names:
            known = self._options.types.get(name)
            values = [record.get(name) for record in records]
            fields.append(self._inferred_of(name, values) if known is None else known)
        self._settle(fields)
        return block

    def _inferred_of(self, name: str, values: Sequence[Any]) -> Field:
        """The type of a column; text that is a time in all rows is a timestamp, at any depth."""
        if any(isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 for value in values):
            return Field(name, "u")  # no integer of 64 bits keeps it
        try:
            found, _ = array_of(name, values)
        except SchemaError as error:
            kinds = [None if value is None else float if type(value) is int else type(value) for value in values]
            first = next(kind for kind in kinds if kind is not None)
            other = next((row for row, kind in enumerate(kinds) if kind not in (None, first)), None)
            if other is None:
                raise self.error(0, error.message, "write values of one kind") from None
            raise self.contradicted(
                TextError(Field(name, _KINDS.get(first, "n")), other, values[other], "another kind of value")
            ) from None
        return found if name in self._options.as_written else _with_times(found, values)

    def _records(self, block: bytes) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for line in filter(None, map(bytes.strip, block.split(b"\n"))):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise self.error(len(found), f"it is not JSON: {error}") from None
            if not isinstance(record, dict):
                raise self.error(len(found), f"a line is one object, not {line[:40]!r}")
            found.append(record)
        return found

    def _by_python(self, body: bytes) -> Any:
        records = self._records(body)
        names = {each.name for each in self.fields}
        for row, record in enumerate(records):
            for key in record.keys() - names:
                raise self.error(
                    row,
                    f"there was no column {key!r} in the first rows",
                    f"--types {key}=string, or another type, says before that it comes",
                )
        arrays = [self._array(each, [record.get(each.name) for record in records]) for each in self.fields]
        return self._arrays(arrays, len(records))

    def _array(self, each: Field, values: Sequence[Any]) -> Any:
        try:
            return array_of(each.name, [_as(each, value) for value in values], each)[1]
        except (SchemaError, ValueError):
            for row, value in enumerate(values):
                try:
                    array_of(each.name, [_as(each, value)], each)
                except (SchemaError, ValueError) as error:
                    reason = error.message if isinstance(error, SchemaError) else str(error)
                    raise self.contradicted(TextError(each, row, value, reason)) from None
            raise

    def _by_pyarrow(self, body: bytes) -> Any:
        pyarrow_json, pa, fields = self._pyarrow_fields("json")
        try:
            table = pyarrow_json.read_json(
                pa.BufferReader(body),
                read_options=pyarrow_json.ReadOptions(block_size=len(body) + 1),
                parse_options=pyarrow_json.ParseOptions(
                    explicit_schema=pa.schema(fields), unexpected_field_behavior="error"
                ),
            )
        except (ValueError, KeyError, NotImplementedError):  # pyarrow's own are of these
            return None
        return table


_KINDS: dict[Any, str] = {bool: "b", float: "g", str: "u", dict: "+s", list: "+l"}


def _with_times(field: Field, values: Sequence[Any]) -> Field:
    """The field, its texts being timestamps where all are."""
    present = [value for value in values if value is not None]
    if field.kind == "u":
        found = text_types.inferred(field.name, set(present), times_only=True) if present else field
        if found.kind == "u" and present:
            found = text_types.inferred(field.name, {text.removesuffix("Z") for text in present}, times_only=True)
        return found
    if field.kind == "+s":
        below = [_with_times(child, [value.get(child.name) for value in present]) for child in field.children]
        return field.with_children(*below)
    if field.kind == "+l":
        return field.with_children(_with_times(field.children[0], [each for value in present for each in value]))
    return field


def _as(field: Field, value: Any) -> Any:
    """A value of JSON as the Python value that an array of the type is made of."""
    match value:
        case None:
            return None
        case dict() if field.kind == "+s":
            children = {child.name: child for child in field.children}
            return {key: _as(children[key], each) if key in children else each for key, each in value.items()}
        case list() if field.kind == "+l":
            return [_as(field.children[0], each) for each in value]
        case int() | float() if field.kind in ("u", "U") and not isinstance(value, bool):
            return repr(value)
        case int() | float() | str() if field.kind == "d":
            return Decimal(str(value))
        case str() if field.kind == "tdD":
            return date.fromisoformat(value)
        case str() if field.kind == "ts":
            found = datetime.fromisoformat(value)
            if bool(found.tzinfo) == bool(field.parameter):
                return found
            return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else value
    return value
