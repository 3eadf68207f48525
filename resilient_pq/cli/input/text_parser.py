"""What parsers of CSV and JSON lines share. The standard library says what rows are, `text_types` what values are.

pyarrow, where it is installed, does the same faster, and what it does not take is parsed again without it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from resilient_pq.arrow.buffers import make_array
from resilient_pq.arrow.types.field import Field
from resilient_pq.cli.input import text_types
from resilient_pq.cli.input.text_types import TextError
from resilient_pq.errors import FormatError, Where
from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How text is read."""

    block_bytes: int  # Parsed at a time
    as_written: Collection[str] = ()  # Columns of JSON in which times stay text
    block_seconds: float = math.inf  # How long a block waits
    delimiter: str | None = None
    header: bool = True
    nulls: Sequence[str] = ()
    types: Mapping[str, Field] = field(default_factory=dict)
    whole_schema: bool = False  # Whether `types` has all columns


class TextParser:
    """What both forms have: the fields, which of them were taken from values, and the rows parsed."""

    def __init__(self, name: str, text_options: TextOptions) -> None:
        self._name = name
        self._options = text_options
        self.fields: list[Field] = []
        self._inferred: list[bool] = []
        self._num_rows = 0
        self._has_pyarrow = find_spec("pyarrow") is not None

    def _settle(self, fields: list[Field]) -> None:
        types, whole = dict(self._options.types), self._options.whole_schema
        self.fields = text_types.typed(fields, types, whole=whole)
        self._inferred = [each.name not in types for each in fields]

    def parse(self, body: bytes) -> Any:
        """The rows of a block."""
        rows = self._by_pyarrow(body) if self._has_pyarrow else None
        if rows is None:
            rows = self._by_python(body)
        self._num_rows += rows.num_rows if hasattr(rows, "num_rows") else len(rows)
        return rows

    def _pyarrow_fields(self, module: str) -> tuple[Any, Any, list[Any]]:
        pa = import_module("pyarrow")
        schema = pa.schema(Field("", "+s", nullable=False, children=tuple(self.fields)).to_c())
        return import_module(f"pyarrow.{module}"), pa, list(schema)

    def begin(self, block: bytes) -> bytes:
        """Take names and types from the first block; gives what stands behind the header."""
        raise NotImplementedError

    def _by_pyarrow(self, body: bytes) -> Any:
        raise NotImplementedError

    def _by_python(self, body: bytes) -> Any:
        raise NotImplementedError

    def error(self, row: int, what: str, hint: str | None = None) -> FormatError:
        """An error in a row of a block, counted from 0; the message counts all rows from 1."""
        return FormatError(f"row {self._num_rows + row + 1:,}: {what}", where=Where(key=self._name), hint=hint)

    def contradicted(self, error: TextError) -> FormatError:
        """A value that is not of its column's type."""
        name, shown = error.field.name, repr(error.value)
        shown = f"{shown[:77]}..." if len(shown) > 80 else shown
        known = "" if name in self._options.types else ", by its first values"
        return self.error(
            error.row,
            f"column {name!r} is {error.field}{known}, and {shown} is not: {error.reason}",
            f"--types {name}=string keeps every value as text"
            + ("; --null TEXT names what stands for null" if isinstance(error.value, str) else ""),
        )

    def _arrays(self, arrays: Sequence[Any], num_rows: int) -> Any:
        return make_array(Field("", "+s", children=tuple(self.fields)), num_rows, [], None, arrays)
