"""Arrow data on its way into pages: batches of rows become the levels and values of leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.buffers import Part, Valid, span
from resilient_pq.arrow.field import Field, normalised
from resilient_pq.arrow.matching import Fit, fit_columns
from resilient_pq.arrow.physical import UnstorableValueError, may_fail, no_values, physical_values
from resilient_pq.arrow.schema import (
    arrow_field_of,
    arrow_schema_of,
    encode_arrow_schema,
    schema_from_arrow,
)
from resilient_pq.arrow.sources import Rows, Source, open_source
from resilient_pq.errors import SchemaError, UnsupportedError, Where
from resilient_pq.format.levels import Optional, Repeated, Shredded, Step, shred
from resilient_pq.format.metadata import Repetition, Type
from resilient_pq.format.schema import Node, Primitive, Schema
from resilient_pq.format.values import LeafData

#: About how many bytes of Arrow data one `Batch` is made of; a larger array is cut between rows.
BATCH_BYTES: Final = 16 * 1024 * 1024

_NO_SLOTS: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows, ready for the encoder.

    Attributes:
        num_rows: How many.
        leaves: One per leaf of the schema, in its order.
        num_bytes: About what the leaves take in memory.
    """

    num_rows: int
    leaves: tuple[LeafData, ...]
    num_bytes: int


class Ingest:
    """Takes rows of one schema from Arrow data of any maker, and from Python values.

    Attributes:
        schema: The Parquet schema.
        field: The Arrow schema, normalised: the struct of the columns as they are when they are read back.
    """

    def __init__(self, schema: Schema, field: Field) -> None:
        """Use `from_schema` or `infer` instead."""
        self.schema = schema
        self.field = field

    @classmethod
    def from_schema(cls, schema: object) -> Ingest:
        """Take rows of a known schema.

        Args:
            schema: Anything with ``__arrow_c_schema__`` that describes a struct of columns, or a Parquet schema,
                which is then kept as it is: its repeated fields, its annotations, its carriers of decimals.

        Raises:
            SchemaError: `schema` is not the schema of a table.
            UnsupportedError: A column has a type that Parquet, or this version, has no form for.
        """
        if isinstance(schema, Schema):
            _check_writable(schema)
            columns = tuple(arrow_field_of(node) for node in schema.root.children)
            return cls(schema, Field("", "+s", False, columns))
        field = Field.of(schema)
        return cls(schema_from_arrow(field), normalised(field))

    @classmethod
    def from_file(cls, schema: Schema, key_value: Mapping[str, str | None]) -> Ingest:
        """Take rows as the writer of a file took them.

        Args:
            schema: The columns of the file.
            key_value: Its key-value metadata; what they keep of the Arrow schema says how rows are matched.

        Raises:
            UnsupportedError: A column has a type that this version has no form for.
        """
        _check_writable(schema)
        return cls(schema, Field.of(arrow_schema_of(schema, key_value)))

    @classmethod
    def infer(cls, data: object) -> tuple[Ingest, Source]:
        """Take the schema from the first rows.

        Args:
            data: What `batches` takes.

        Returns:
            The ingest, and the data to pass to `batches` in place of `data`, which may have been a stream
            that can be read only once.

        Raises:
            SchemaError: `data` is nothing that rows can be taken from.
            UnsupportedError: A column has a type that Parquet, or this version, has no form for.
        """
        source = open_source(data)
        return cls.from_schema(source.field), source

    @property
    def arrow(self) -> Any:
        """The normalised Arrow schema, a nanoarrow `CSchema`."""
        return self.field.to_c()

    @property
    def encoded_schema(self) -> str:
        """The value to store under ``ARROW:schema``."""
        return encode_arrow_schema(self.field)

    @property
    def metadata(self) -> dict[str, str]:
        """The Arrow schema's key-value metadata that is text, such as the one of pandas."""
        pairs = ((key.decode("utf-8", "replace"), value) for key, value in self.field.metadata)
        return {key: value.decode() for key, value in pairs if _is_text(value)}

    def batches(self, data: object, *, batch_bytes: int = BATCH_BYTES) -> Iterator[Batch]:
        """Levels and values of rows, in order; batches without rows are left out.

        Columns are matched by name and type before this returns. The values of an Arrow array are checked
        before the first of its rows is given out; of a stream, the arrays before it are out by then.

        Args:
            data: Anything with ``__arrow_c_stream__`` or ``__arrow_c_array__`` whose items are rows, a dict
                of columns (Arrow arrays, NumPy arrays, lists), or a list of dict records.
            batch_bytes: About how much Arrow data one batch is made of, at least one row.

        Raises:
            SchemaError: A column is missing, unknown or of another type, a null stands where none may, or a
                value has no form in Parquet. It names the column and, counted in `data`, the row.
        """
        source = open_source(data, self.field)
        columns = fit_columns(self.field, self.schema.root.children, source.field)
        return self._batches(source, columns, batch_bytes)

    def _batches(
        self, source: Source, columns: Sequence[tuple[int, Fit]], batch_bytes: int
    ) -> Iterator[Batch]:
        first_row = 0
        for rows in source.batches:
            _refuse_null_rows(rows, first_row)
            yield from self._batches_of(rows, columns, first_row, batch_bytes)
            first_row += rows.length

    def _batches_of(
        self, rows: Rows, columns: Sequence[tuple[int, Fit]], first_row: int, batch_bytes: int
    ) -> Iterator[Batch]:
        size = rows.num_bytes
        step = max(1, rows.length * batch_bytes // size) if size > batch_bytes else rows.length
        slices = [
            (first_row + start, rows.slice(start, min(step, rows.length - start)))
            for start in range(0, rows.length, max(step, 1))
        ]
        if len(slices) > 1:
            risky = [(position, fit) for position, fit in columns if _may_fail(fit, rows.columns[position])]
            for row, part in slices:
                for _ in _Shredder(part.length, row).leaves(part, risky):
                    pass
        for row, part in slices:
            leaves = tuple(_Shredder(part.length, row).leaves(part, columns))
            yield Batch(part.length, leaves, sum(leaf.num_bytes for leaf in leaves))


def _check_writable(schema: Schema) -> None:
    for leaf in schema.leaves:
        if leaf.node.physical_type is Type.FIXED_LEN_BYTE_ARRAY and not leaf.node.type_length:
            raise UnsupportedError(
                f"column {leaf.column_path!r}: values of no bytes cannot be written",
                where=Where(column=leaf.column_path),
            )


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _refuse_null_rows(rows: Rows, first_row: int) -> None:
    if rows.valid is not None:
        raise SchemaError(f"row {first_row + int(np.argmin(rows.valid))} is null as a whole")


def _may_fail(fit: Fit, part: Part) -> bool:
    """Whether taking some rows of the column can fail, so that all must be looked at before any is taken."""
    if fit.node.repetition is not Repetition.OPTIONAL and part.view.null_count != 0:
        return True
    if not fit.children:
        return may_fail(part)
    if part.field.kind == "+s":
        return any(
            _may_fail(child, part.child(at)) for at, child in zip(fit.positions, fit.children, strict=True)
        )
    elements = part.elements(0, 0)
    if part.field.kind == "+m":
        return any(_may_fail(child, elements.child(at)) for at, child in enumerate(fit.children))
    return _may_fail(fit.children[0], elements)


class _Shredder:
    """Shreds the columns of some rows, leaf by leaf."""

    def __init__(self, num_rows: int, first_row: int) -> None:
        self.num_rows = num_rows
        self.first_row = first_row

    def leaves(self, rows: Rows, columns: Sequence[tuple[int, Fit]]) -> Iterator[LeafData]:
        for position, fit in columns:
            yield from self._node(fit, rows.columns[position], ())

    def _node(self, fit: Fit, part: Part, steps: tuple[Step, ...]) -> Iterator[LeafData]:
        valid = _valid(part)
        if fit.node.repetition is Repetition.OPTIONAL:
            steps = (*steps, Optional(valid))
        elif valid is not None:
            self._refuse_nulls(fit, valid, steps)
        if part.field.kind == "n":
            yield from self._absent(fit.node, steps)
        elif isinstance(fit.node, Primitive) and not fit.children:
            yield self._leaf(fit, fit.node, part, steps)
        elif part.field.kind == "+s":
            for position, child in zip(fit.positions, fit.children, strict=True):
                yield from self._node(child, part.child(position), steps)
        else:
            elements, repeated = _elements(part)
            steps = (*steps, repeated)
            if part.field.kind != "+m":
                yield from self._node(fit.children[0], elements, steps)
                return
            for position, child in zip(fit.positions, fit.children, strict=True):
                yield from self._node(child, elements.child(position), steps)

    def _leaf(self, fit: Fit, node: Primitive, part: Part, steps: tuple[Step, ...]) -> LeafData:
        shredded = shred(self.num_rows, steps)
        positions = shredded.positions
        if positions is not None and _is_everything(positions, part.length):
            positions = None
        try:
            values = physical_values(node, part, positions)
        except UnstorableValueError as error:
            row = self._row_of(shredded, len(steps), error.index)
            raise SchemaError(
                f"column {fit.path!r}, row {row}: {error.message}", where=Where(column=fit.path)
            ) from None
        return LeafData(self.num_rows, shredded.definition_levels, shredded.repetition_levels, values)

    def _absent(self, node: Node, steps: tuple[Step, ...]) -> Iterator[LeafData]:
        """The leaves of a node of which no slot has a value, whose own step is among `steps` where it is optional."""
        if node.repetition is Repetition.REPEATED:
            steps = (*steps, Repeated(_NO_SLOTS, _NO_SLOTS))
        if isinstance(node, Primitive):
            shredded = shred(self.num_rows, steps)
            levels = shredded.definition_levels, shredded.repetition_levels
            yield LeafData(self.num_rows, *levels, no_values(node))
            return
        for child in node.children:
            optional = child.repetition is Repetition.OPTIONAL
            yield from self._absent(child, (*steps, Optional(None)) if optional else steps)

    def _refuse_nulls(self, fit: Fit, valid: Valid, steps: tuple[Step, ...]) -> None:
        """Refuse a null in a required node; below a parent that is null itself it means nothing."""
        shredded = shred(self.num_rows, steps)
        nulls = ~valid if shredded.positions is None else ~valid[shredded.positions]
        if nulls.any():
            row = self._row_of(shredded, len(steps), int(np.argmax(nulls)))
            raise SchemaError(
                f"column {fit.path!r} may not be null, but row {row} is",
                where=Where(column=fit.path),
                hint="declare the column nullable in the schema, or fill its nulls",
            )

    def _row_of(self, shredded: Shredded, num_steps: int, index: int) -> int:
        """The row of the value `index`, counted among those that are there."""
        if shredded.definition_levels is None:
            return self.first_row + index
        entry = int(np.flatnonzero(shredded.definition_levels == num_steps)[index])
        if shredded.repetition_levels is None:
            return self.first_row + entry
        return self.first_row + int(np.count_nonzero(shredded.repetition_levels[: entry + 1] == 0)) - 1


def _valid(part: Part) -> Valid | None:
    """Which slots have a value: in a dictionary array, those whose index leads to one."""
    valid = part.valid()
    if part.field.dictionary is None:
        return valid
    entries = part.dictionary().valid()
    if entries is None:
        return valid
    slots = np.arange(part.length) if valid is None else np.flatnonzero(valid)
    indices = part.indices()[slots]
    # An index that leads out of the dictionary is found, and refused, where the values are looked up.
    if len(entries):
        slots = slots[entries[np.clip(indices, 0, len(entries) - 1)]]
    out = np.zeros(part.length, np.bool_)
    out[slots] = True
    return out


def _elements(part: Part) -> tuple[Part, Repeated]:
    """The elements of a list or map that its slots span, and where among them each slot's are."""
    starts, lengths = part.list_extents()
    first, last = span(starts, lengths)
    return part.elements(first, last - first), Repeated(starts - first, lengths)


def _is_everything(positions: NDArray[np.int64], length: int) -> bool:
    return len(positions) == length and bool((positions == np.arange(length)).all())
