"""Partitions as Hive names them: values of columns in the names of folders, ``day=2026-08-01/country=FR``. Pure.

Names are those that Arrow writes and that Arrow, DuckDB, Polars and Spark read: what is not a letter, a digit or one of
``-._~`` is a percent sign and two digits, and null is ``__HIVE_DEFAULT_PARTITION__``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote_from_bytes

from resilient_pq.dataset.transforms import FIRST_DAY, LAST_DAY, check_transform
from resilient_pq.errors import SchemaError, Where
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.logical import DATE, STRING, Integer
from resilient_pq.format.physical_values import ByteArrays, Values
from resilient_pq.format.schema_tree import Leaf, Primitive, Schema
from resilient_pq.tables.partition_key import NULL, PartitionKey

#: What would end the name of a column, or be read as another one.
_NOT_IN_KEYS: Final = frozenset("/\\=%\0")
#: What the file systems of Linux, macOS and Windows take (NAME_MAX); object stores take more.
_MOST_NAME_BYTES: Final = 255


def check_keys(partition_by: Sequence[str] | str | None) -> tuple[PartitionKey, ...]:
    """What names partitions, as a caller says it."""
    given = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by or ())
    for key in given:
        if not isinstance(key, str) or not key or key[0] in "._" or set(key) & _NOT_IN_KEYS:
            raise SchemaError(
                f"partition_by has {key!r}, which cannot be in the name of a folder",
                hint="neither . nor _ come first, which hide a folder from readers, and there are no /, \\, = and %",
            )
    keys = tuple(map(PartitionKey.parse, given))
    if len({key.name for key in keys}) < len(keys):
        raise SchemaError(f"partition_by names a column twice: {', '.join(given)}")
    return keys


def partition_leaves(schema: Schema, keys: Sequence[PartitionKey]) -> list[Leaf]:
    """The columns whose values name the partitions."""
    found = []
    for key in keys:
        columns = [column for column in schema.columns if column.node.name == key.column]
        if len(columns) != 1:
            raise SchemaError(
                f"partition_by has {key.column!r}, which is no column",
                where=Where(column=key.column),
                hint=f"columns: {', '.join(schema.names)}",
            )
        node = columns[0].node
        leaf = columns[0].leaves[0]
        usable = isinstance(node, Primitive) and not leaf.max_repetition_level
        if not usable or (key.is_column and not _has_names(leaf.node)):
            raise SchemaError(
                f"column {key.column!r} cannot name partitions: it is no integer, text, date or boolean",
                where=Where(column=key.column),
                hint=f"add a column that can; or the date of a timestamp can: partition_by='day({key.column})'",
            )
        if not key.is_column:
            check_transform(leaf.node, key)
        found.append(leaf)
    if keys and len({key.column for key in keys if key.is_column}) == len(schema.columns):
        raise SchemaError("partition_by names every column: nothing is left for the files")
    return found


def _has_names(node: Primitive) -> bool:
    match node.physical_type:
        case Type.BOOLEAN:
            return True
        case Type.INT32 | Type.INT64:
            return node.logical is None or node.logical == DATE or isinstance(node.logical, Integer)
        case Type.BYTE_ARRAY:
            return node.logical == STRING
    return False


def segments(leaf: Leaf, values: Values, key: PartitionKey) -> list[str]:
    """The names of folders for values of a column, or of its transform."""
    if key.is_column or isinstance(values, ByteArrays):
        names = [f"{key.name}={quote_from_bytes(text, safe='')}" for text in _texts(leaf, values)]
    else:
        names = [f"{key.name}={text}" for text in key.texts(values)]
    for name in names:
        if len(name.encode()) > _MOST_NAME_BYTES:
            raise SchemaError(
                f"column {leaf.column_path!r} has a text that is too long for the name of a folder: {name[:60]}...",
                where=Where(column=leaf.column_path),
            )
    return names


def _texts(leaf: Leaf, values: Values) -> list[bytes]:
    node = leaf.node
    if isinstance(values, ByteArrays):
        texts = [values.value(at) for at in range(len(values))]
        if NULL.encode() in texts:
            raise SchemaError(
                f"column {leaf.column_path!r} has the text {NULL!r}, which readers take for null",
                where=Where(column=leaf.column_path),
            )
        return texts
    if node.physical_type is Type.BOOLEAN:
        return [b"true" if value else b"false" for value in values.tolist()]
    if node.logical == DATE:
        days = values.astype("M8[D]")
        if len(days) and (days.min() < FIRST_DAY or days.max() > LAST_DAY):
            raise SchemaError(
                f"column {leaf.column_path!r} has a date outside of the years 1 to 9999",
                where=Where(column=leaf.column_path),
            )
        return [str(day).encode() for day in days]
    if isinstance(node.logical, Integer) and not node.logical.signed:
        values = values.view(f"u{values.dtype.itemsize}")
    return [b"%d" % value for value in values.tolist()]
