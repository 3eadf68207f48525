"""What Arrow's types become in pandas: as `dask.dataframe.read_parquet` has them, and the same in every partition.

pandas decides by the values: an integer column with a null in it becomes one of floating point. A Dask DataFrame has
one type for a column, stated before any value was read. So what the footers know of nulls decides here, once for all
partitions.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

import dask
import pandas as pd
import pyarrow as pa
from dask.dataframe.utils import clear_known_categories

from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY
from resilient_pq.errors import SchemaError
from resilient_pq.format.file_metadata import Repetition
from resilient_pq.format.indexes.trusted_bounds import chunk_statistics
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.file import File

#: Whose types nullable columns have: NumPy's, pandas' own, or Arrow's.
Backend: TypeAlias = Literal["numpy_nullable", "pyarrow"]

_NULLABLE: Final = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.float32(): pd.Float32Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.string(): pd.StringDtype(),
    pa.large_string(): pd.StringDtype(),
}


def is_by_nulls(kind: pa.DataType, backend: Backend | None) -> bool:
    """Whether the type of a column in pandas depends on whether there are nulls in it."""
    return backend is None and (pa.types.is_integer(kind) or pa.types.is_boolean(kind))


@dataclass(frozen=True, slots=True)
class FrameTypes:
    """How tables become frames."""

    schema: pa.Schema  # of the tables, index and all
    index: str | None = None  # the column that becomes the index; None for one that counts rows
    index_name: str | None = None
    floats: frozenset[str] = frozenset()  # integer columns with nulls that become floating point, exactly
    #: Columns that may have nulls, and integers too large for that: they have pandas' nullable types.
    nullable: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()  # boolean columns with nulls
    #: Columns that were dictionaries when they were written: they become categories, as yet unknown ones.
    categories: frozenset[str] = frozenset()
    backend: Backend | None = None
    arrow_strings: bool = True  # whether text, dates and decimals have Arrow's types, which is Dask's choice

    @property
    def columns(self) -> list[str]:
        """The columns of a frame, without the index."""
        return [name for name in self.schema.names if name != self.index]

    def meta(self) -> pd.DataFrame:
        """A frame without rows, of which all partitions have the types."""
        frame = self.frame(self.schema.empty_table())
        categories = [name for name in frame.columns if name in self.categories]
        found: pd.DataFrame = clear_known_categories(frame, cols=categories)
        return found

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """The rows of a table, whose columns are some of those of `schema`."""
        exact = {name: table.column(name) for name in table.column_names if name in self.nullable}
        for position, name in enumerate(table.column_names):
            if name in self.categories:
                table = table.set_column(position, name, table.column(position).dictionary_encode())
        frame = table.to_pandas(types_mapper=self._mapper(), use_threads=False, ignore_metadata=True)
        for name, values in exact.items():
            frame[name] = values.to_pandas(types_mapper=_NULLABLE.get)
        casts: dict[str, Any] = {name: "float64" for name in frame.columns if name in self.floats}
        casts |= {name: "object" for name in frame.columns if name in self.objects}
        if casts:
            frame = frame.astype(casts)
        if self.index is not None:
            frame = frame.set_index(self.index).rename_axis(self.index_name)
        return frame

    def _mapper(self) -> Callable[[pa.DataType], Any] | None:
        """What pyarrow asks for the type of a column, before it takes its own."""

        def mapped(kind: pa.DataType) -> Any:
            text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
            exact = pa.types.is_date(kind) or pa.types.is_decimal(kind)
            if self.arrow_strings and text:
                return pd.StringDtype("pyarrow")
            if self.arrow_strings and exact:
                return pd.ArrowDtype(kind)
            if self.backend == "numpy_nullable":
                return _NULLABLE.get(kind)
            if self.backend == "pyarrow":
                return pd.StringDtype("pyarrow") if text else pd.ArrowDtype(kind)
            return None

        return mapped


def arrow_strings() -> bool:
    """Whether Dask is to have text in Arrow's form (``dataframe.convert-string``), as it is unless told otherwise."""
    chosen = dask.config.get("dataframe.convert-string")
    return chosen is None or bool(chosen)


def index_of(schema: pa.Schema, index: str | Literal[False] | None) -> tuple[str | None, str | None]:
    """The column that becomes the index, and what the index is called."""
    if index is False:
        return None, None
    if index is not None:
        if index not in schema.names:
            raise SchemaError(f"{index!r} in index is no column", hint=f"columns: {', '.join(schema.names)}")
        return index, index
    stored = pandas_index(schema)
    if len(stored) != 1 or stored[0] not in schema.names:
        return None, None  # Dask has no index of several levels
    name = stored[0]
    return name, None if is_unnamed(name) else name


def stored_dictionaries(key_value: Mapping[str, str | None]) -> frozenset[str]:
    """The columns that were dictionaries in Arrow when they were written, as far as their writer says so."""
    text = key_value.get(ARROW_SCHEMA_KEY)
    if not text:
        return frozenset()
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (ValueError, OSError, pa.ArrowException):
        return frozenset()  # it is a hint: without it they are what they hold
    return frozenset(field.name for field in schema if pa.types.is_dictionary(field.type))


def is_unnamed(name: str) -> bool:
    """Whether a column has the name that pandas gives to an index without one."""
    return name.startswith("__index_level_") and name.endswith("__")


def pandas_index(schema: pa.Schema) -> Sequence[str]:
    """The columns that pandas says were the index; none where it counted rows."""
    text = (schema.metadata or {}).get(b"pandas")
    try:
        stored = json.loads(text) if text else {}
        found = stored["index_columns"] if isinstance(stored, dict) and "index_columns" in stored else []
    except (ValueError, RecursionError):
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


#: Integers up to this size are exact in floating point of 64 bits.
_EXACT: Final = 1 << 53


class Nulls:
    """Looks at the statistics of row groups, one by one."""

    def __init__(self, types: FrameTypes, *, damage_is_null: bool) -> None:
        self._types = types
        self._damage_is_null = damage_is_null
        self._kinds = {field.name: field.type for field in types.schema if is_by_nulls(field.type, types.backend)}
        self._with_nulls: set[str] = set()
        self._untold: set[str] = set()
        self._large: set[str] = set()

    def see(self, file: File, ordinal: int) -> None:
        """Take one more row group into account."""
        row_group = file.metadata.row_groups[ordinal]
        for name, kind in self._kinds.items():
            leaf = file.schema.leaf_named(name)
            if leaf is None:
                continue
            nullable = leaf.node.repetition is not Repetition.REQUIRED
            chunk = row_group.columns[leaf.ordinal].meta_data
            if chunk is None:
                self._untold.add(name)
                continue
            known = chunk_statistics(file.metadata, leaf, chunk)
            if nullable and (self._damage_is_null or known.null_count is None):
                self._untold.add(name)
            elif nullable and known.null_count:
                self._with_nulls.add(name)
            if pa.types.is_integer(kind) and kind.bit_width == 64 and not known.all_null:
                bounds = (known.low, known.high)
                if not all(bound is not None and abs(bound) <= _EXACT for bound in bounds):
                    self._large.add(name)

    def see_folders(self, values: Mapping[str, pa.Array]) -> None:
        """Take the columns into account that are in the names of folders, by their values for one file."""
        self._untold |= {name for name, value in values.items() if name in self._kinds and value.null_count}

    def applied(self) -> FrameTypes:
        """The types, settled."""
        nullable = self._untold | (self._with_nulls & self._large)
        rest = self._with_nulls - nullable
        booleans = {name for name in rest if pa.types.is_boolean(self._kinds[name])}
        return replace(
            self._types,
            nullable=frozenset(nullable),
            floats=frozenset(rest - booleans),
            objects=frozenset(booleans),
        )
