"""Partitions as Hive names them: values of columns in the names of folders, ``day=2026-08-01/country=FR``. Pure.

Names are those that Arrow writes and that Arrow, DuckDB, Polars and Spark read: what is not a letter, a digit or one of
``-._~`` is a percent sign and two digits, and null is ``__HIVE_DEFAULT_PARTITION__``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote_from_bytes

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import SchemaError, Where
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.logical import DATE, STRING, Integer, Timestamp
from resilient_pq.format.physical_values import ByteArrays, LeafData, Values
from resilient_pq.format.schema_tree import Leaf, Primitive, Schema
from resilient_pq.tables.partition_key import NULL, UNITS, PartitionKey

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


#: The dates that readers understand as text are those of four digits of a year.
FIRST_DAY, LAST_DAY = np.datetime64("0001-01-01", "D"), np.datetime64("9999-12-31", "D")
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def check_transform(node: Primitive, key: PartitionKey) -> None:
    """Raise where a column has no such transform."""
    is_time = node.logical == DATE or isinstance(node.logical, Timestamp)
    if key.num_buckets:
        whole = node.physical_type in (Type.INT32, Type.INT64) and node.logical in (None, DATE)
        signed = isinstance(node.logical, Integer) and node.logical.signed
        text = node.physical_type is Type.BYTE_ARRAY and node.logical in (None, STRING)
        fits, wanted = is_time or whole or signed or text, "an integer, text, bytes, a date or a timestamp"
    else:
        fits = isinstance(node.logical, Timestamp) or (node.logical == DATE and key.transform != "hour")
        wanted = "a timestamp" if key.transform == "hour" else "a date or a timestamp"
    if not fits:
        raise SchemaError(
            f"column {key.column!r} has no {key.transform}: it is not {wanted}", where=Where(column=key.column)
        )


def transformed(leaf: Leaf, data: LeafData, key: PartitionKey) -> LeafData:
    """The values of a column as its transform has them."""
    if key.num_buckets:
        hashes = murmur3(_hashed(leaf.node, data.values))
        return replace(data, values=((hashes & 0x7FFFFFFF) % key.num_buckets).astype(np.int32), entries=None)
    times = _times(leaf.node, data.values)
    if len(times) and (times.min() < FIRST_DAY or times.max() >= LAST_DAY + np.timedelta64(1, "D")):
        raise SchemaError(
            f"column {leaf.column_path!r} has a date outside of the years 1 to 9999",
            where=Where(column=leaf.column_path),
        )
    return replace(data, values=times.astype(f"M8[{UNITS[key.transform]}]").astype(np.int32), entries=None)


def _times(node: Primitive, values: Values) -> NDArray[Any]:
    assert not isinstance(values, ByteArrays)
    unit = "D" if node.logical == DATE else node.logical.unit.value if isinstance(node.logical, Timestamp) else ""
    return values.astype(f"M8[{unit}]")


def _hashed(node: Primitive, values: Values) -> ByteArrays:
    """The bytes whose hash decides: numbers as 64 bits, times in microseconds."""
    if isinstance(values, ByteArrays):
        return values
    if isinstance(node.logical, Timestamp):
        values = _times(node, values).astype("M8[us]").astype(np.int64)
    data = np.ascontiguousarray(values, "<i8").view(np.uint8)
    return ByteArrays(np.arange(0, len(data) + 1, 8), data)


def murmur3(values: ByteArrays) -> NDArray[np.uint32]:
    """The 32-bit hash (x86, seed 0) of each byte string."""
    starts = np.asarray(values.offsets[:-1], np.int64)
    lengths = np.asarray(values.offsets[1:], np.int64) - starts
    data = np.concatenate([values.data, np.zeros(4, np.uint8)]).astype(np.uint32)
    found = np.zeros(len(starts), np.uint32)
    for at in range(0, int(lengths.max(initial=0)) + 1, 4):
        here = np.flatnonzero(lengths > at)
        size = np.minimum(lengths[here] - at, 4)
        word = np.zeros(len(here), np.uint32)
        for each in range(4):
            byte = data[starts[here] + np.minimum(at + each, lengths[here])]
            word |= np.where(each < size, byte, 0).astype(np.uint32) << np.uint32(8 * each)
        mixed = found[here] ^ _rotate(word * _C1, 15) * _C2
        whole = _rotate(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        found[here] = np.where(size == 4, whole, mixed)
    found ^= lengths.astype(np.uint32)
    found = (found ^ found >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    found = (found ^ found >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return found ^ found >> np.uint32(16)


def _rotate(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)
