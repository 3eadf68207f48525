"""Conversion of batches of Arrow data into the levels and values of leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import compress, pairwise
from typing import Any, Final

import numpy as np

from resilient_pq.arrow.batch_sources import BatchSource, Rows, open_source
from resilient_pq.arrow.buffers import BufferPart, storage_dtype
from resilient_pq.arrow.leaf_rows import LeafRows, ShreddedRows, Way, ways
from resilient_pq.arrow.physical import SAME_FORM, may_fail
from resilient_pq.arrow.types.arrow_schema import (
    ColumnFields,
    arrow_field_of,
    encode_arrow_schema,
    schema_from_arrow,
)
from resilient_pq.arrow.types.field import Field, normalise
from resilient_pq.arrow.types.type_matching import Fit, fit_columns
from resilient_pq.errors import SchemaError, UnsupportedError, Where
from resilient_pq.format import kernels
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.physical_values import LeafData
from resilient_pq.format.schema_tree import Leaf, Node, Primitive, Schema

#: About how many bytes of Arrow data one `Batch` is made of; a larger array is cut between rows, unless all of its rows
#: are of one size.
BATCH_BYTES: Final = 16 * 1024 * 1024


class Batch:
    """Some rows, ready for the encoder: one column per leaf of the schema, and about what these take in memory.

    `flat` are the same rows as `kernels.FlatRows`, as far as they can be; `column` gives those of a leaf.
    """

    def __init__(
        self,
        num_rows: int,
        column: Callable[[int], LeafRows | ShreddedRows],
        num_leaves: int,
        num_bytes: int,
        flat: Any = None,
    ) -> None:
        self.num_rows, self.num_bytes, self.flat = num_rows, num_bytes, flat
        self.column = column
        self._num_leaves = num_leaves

    @cached_property
    def columns(self) -> tuple[LeafRows | ShreddedRows, ...]:
        """The rows of each leaf."""
        return tuple(map(self.column, range(self._num_leaves)))

    @classmethod
    def of(cls, columns: Sequence[LeafRows | ShreddedRows], num_rows: int) -> Batch:
        """Rows of leaves, one column per leaf of the schema."""
        made = tuple(columns)
        return cls(num_rows, made.__getitem__, len(made), sum([leaf.num_bytes for leaf in made]))

    @property
    def leaves(self) -> tuple[LeafData, ...]:
        """The levels and values of each leaf."""
        return tuple(rows.shredded() for rows in self.columns)

    def slice(self, start: int, end: int) -> Batch:
        """The rows from `start` up to and not including `end`."""
        if start == 0 and end == self.num_rows:
            return self
        return Batch.of([rows.slice(start, end) for rows in self.columns], end - start)


class LeafPaths:
    """Where each leaf lies in arrays of a type."""

    def __init__(self, found: Field, leaves: Sequence[Leaf], paths: Sequence[tuple[int, Fit, Way]]) -> None:
        """Find out which are `flat`."""
        self.found, self.ways = found, paths
        rows = [_leaf_numbers(leaf.node, position, fit) for leaf, (position, fit, _) in zip(leaves, paths, strict=True)]
        #: The leaves that are not.
        self.others = [at for at, row in enumerate(rows) if row is _NO_FLAT_LEAF]
        usable = len(self.others) < len(rows) and kernels.FlatRows is not None
        self._flat = np.array(rows, np.int64) if usable else None
        self._varies = any(map(_varies, leaves))

    def flat_rows(self, rows: Rows, batch_bytes: int) -> Any:
        """The rows as `kernels.FlatRows`; None where none are flat, or they are to be cut."""
        if self._flat is None or not (rows.array or rows.apart):
            return None
        if rows.array is not None:
            flat = kernels.FlatRows(rows.array, rows.array._addr(), self._flat)
        else:
            owners, starts = [part.owner for part in rows.columns], [part.start for part in rows.columns]
            flat = kernels.FlatRows(owners, 0, self._flat, [owner._addr() for owner in owners], starts, rows.length)
        fits = not self._varies or (rows.num_bytes if self.others else flat.size) <= batch_bytes
        return flat if flat.simple and fits else None


#: The `LeafNumber`s of a leaf that is not flat: it has no column.
_NO_FLAT_LEAF: Final = (-1, 0, 0, 0, 0, 0)


def _leaf_numbers(node: Node, column: int, fit: Fit) -> tuple[int, ...]:
    """The `LeafNumber`s of a column, which may be nested, or be stored in another way than Arrow has it."""
    kind = fit.found.format.partition(":")[0]
    if fit.found.dictionary is not None or not isinstance(node, Primitive) or node.repetition is Repetition.REPEATED:
        return _NO_FLAT_LEAF
    offsets = {"u": 4, "z": 4, "U": 8, "Z": 8}.get(kind, 0)
    if kind not in SAME_FORM.get(node.physical_type, ()) and not (node.physical_type is Type.BYTE_ARRAY and offsets):
        return _NO_FLAT_LEAF
    if node.physical_type is Type.FIXED_LEN_BYTE_ARRAY:
        return _NO_FLAT_LEAF
    width = 0 if offsets or kind == "b" else storage_dtype(fit.found).itemsize
    return column, node.physical_type, width, offsets, node.repetition is Repetition.OPTIONAL, kind in "cs"


class Ingest:
    """Takes rows of one Parquet `schema` from Arrow data of any maker, and from Python values.

    `field` is the Arrow schema, normalised: the struct of the columns in their plain forms.
    """

    def __init__(self, schema: Schema, field: Field) -> None:
        """Use `from_schema` or `infer` instead."""
        self.schema = schema
        self.field = normalise(field)
        self._stored = field
        self._last_paths: LeafPaths | None = None

    @classmethod
    def from_schema(cls, schema: object) -> Ingest:
        """Take rows of an Arrow struct of columns, a Parquet schema, which is kept as it is, or an `Ingest`."""
        if isinstance(schema, Ingest):
            return schema
        if isinstance(schema, Schema):
            _check_writable(schema)
            columns = tuple(arrow_field_of(node) for node in schema.root.children)
            return cls(schema, Field("", "+s", False, columns))
        field = Field.of(schema)
        known: Ingest | None = getattr(field, "_ingest", None)
        if known is None:
            known = cls(schema_from_arrow(field), field)
            object.__setattr__(field, "_ingest", known)
        return known

    @classmethod
    def from_file(cls, schema: Schema, key_value: Mapping[str, str | None]) -> Ingest:
        """Take rows as the writer of a file took them, by what the key-value metadata keep of the Arrow schema."""
        _check_writable(schema)
        return cls(schema, ColumnFields(schema, key_value).struct())

    @classmethod
    def infer(cls, data: object) -> tuple[Ingest, BatchSource]:
        """Take the schema from the first rows, and give the data back: they may be a stream that is read only once."""
        source = open_source(data)
        return cls.from_schema(source.field), source

    def without(self, names: Collection[str]) -> Ingest:
        """Takes rows without some of the top-level columns."""
        root = self.schema.root
        nodes = tuple(node for node in root.children if node.name not in names)
        kept = (child for child in self._stored.children if child.name not in names)
        return Ingest(Schema(replace(root, children=nodes)), self._stored.with_children(*kept))

    def with_schema(self, schema: Schema) -> Ingest:
        """Takes the same rows for the same columns, of which the schema says more."""
        return Ingest(schema, self._stored)

    @property
    def arrow(self) -> Any:
        """The normalised Arrow schema, a nanoarrow `CSchema`."""
        return self.field.to_c()

    @cached_property
    def encoded_schema(self) -> str:
        """The value to store under ``ARROW:schema``."""
        return encode_arrow_schema(self._stored)

    @cached_property
    def metadata(self) -> Mapping[str, str]:
        """The Arrow schema's key-value metadata that is text, such as the one of pandas."""
        pairs = ((key.decode("utf-8", "replace"), value) for key, value in self.field.metadata)
        return {key: value.decode() for key, value in pairs if _is_text(value)}

    def batches(self, data: object, *, batch_bytes: int = BATCH_BYTES) -> Iterator[Batch]:
        """Levels and values of rows, in batches of about `batch_bytes` of Arrow data and at least one row.

        Data have ``__arrow_c_stream__`` or ``__arrow_c_array__``, or are a dict of columns, a list of records, or a
        `Batch`. Columns are matched by name and type before this returns. The values of an Arrow array are checked
        before the first of its rows is given out; of a stream, the arrays before it are out by then.
        """
        if isinstance(data, Batch):
            if [column.leaf for column in data.columns] != list(self.schema.leaves):
                raise SchemaError("the rows are those of other leaves")
            return iter([data] if data.num_rows else [])
        source = open_source(data, self.field)
        return self._batches(source, self._paths(source.field), batch_bytes)

    def _paths(self, found: Field) -> LeafPaths:
        """Where each leaf lies in arrays of a type, which is the same most of the time."""
        known = self._last_paths
        if known is None or known.found is not found:
            columns = fit_columns(self.field, self.schema.root.children, found)
            paths = [(position, fit, way) for position, fit in columns for way in ways(fit)]
            known = self._last_paths = LeafPaths(found, self.schema.leaves, paths)
        return known

    def _batches(self, source: BatchSource, paths: LeafPaths, batch_bytes: int) -> Iterator[Batch]:
        first_row = 0
        for rows in source.batches:
            if (flat := paths.flat_rows(rows, batch_bytes)) is not None:
                known = {at: _looked_at(self._leaf(rows, paths, first_row, {}, at)) for at in paths.others}
                num_bytes = flat.num_bytes + sum([leaf.num_bytes for leaf in known.values()])
                column = partial(self._leaf, rows, paths, first_row, known)
                yield Batch(rows.length, column, len(paths.ways), num_bytes, flat)
                first_row += rows.length
                continue
            _refuse_null_rows(rows, first_row)
            if rows.length:
                yield from self._batches_of(rows, paths, first_row, batch_bytes)
            first_row += rows.length

    def _leaf(self, rows: Rows, paths: LeafPaths, first_row: int, known: Mapping[int, LeafRows], at: int) -> LeafRows:
        """The rows of a leaf, which may be known."""
        position, fit, way = paths.ways[at]
        leaf = self.schema.leaves[at]
        return known.get(at) or LeafRows(leaf, rows, position, fit, way, 0, rows.length, first_row)

    def _batches_of(self, rows: Rows, paths: LeafPaths, first_row: int, batch_bytes: int) -> Iterator[Batch]:
        whole = [self._leaf(rows, paths, first_row, {}, at) for at in range(len(paths.ways))]
        risky = [_may_fail(leaf.fit, rows.columns[leaf.column]) for leaf in whole]
        size = rows.num_bytes
        # Rows that all take as much and cannot fail need no cuts: a row group finds its end in them, and nothing is
        # made of them before.
        whole_at_once = size <= batch_bytes or not (any(risky) or any(_varies(rows.leaf) for rows in whole))
        step = rows.length if whole_at_once else max(1, rows.length * batch_bytes // size)
        if step == rows.length:
            yield Batch.of(list(map(_looked_at, whole)), rows.length)
            return
        cuts = [*range(0, rows.length, step), rows.length]
        for leaf in compress(whole, risky):
            for start, end in pairwise(cuts):
                leaf.slice(start, end).shredded()
        for start, end in pairwise(cuts):
            yield Batch.of([leaf.slice(start, end) for leaf in whole], end - start)


def _varies(leaf: Leaf) -> bool:
    """Whether the bytes that one row takes differ from those of another."""
    return bool(leaf.max_repetition_level) or leaf.node.physical_type is Type.BYTE_ARRAY


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


def _looked_at(leaf: LeafRows) -> LeafRows:
    """The rows, with levels and values where making those can fail."""
    return replace(leaf, known=leaf.shredded()) if _may_fail(leaf.fit, leaf.rows.columns[leaf.column]) else leaf


def _may_fail(fit: Fit, part: BufferPart) -> bool:
    """Whether taking some rows of the column can fail, so that all must be looked at before any is taken."""
    if fit.node.repetition is not Repetition.OPTIONAL and part.view.null_count != 0:
        return True
    if not fit.children:
        return may_fail(part)
    if part.field.kind == "+s":
        return any(_may_fail(child, part.child(at)) for at, child in zip(fit.positions, fit.children, strict=True))
    elements = part.elements(0, 0)
    if part.field.kind == "+m":
        return any(_may_fail(child, elements.child(at)) for at, child in enumerate(fit.children))
    return _may_fail(fit.children[0], elements)
