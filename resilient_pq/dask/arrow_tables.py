"""What pandas' frames become in Arrow, the same for every partition of a Dask DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa

from resilient_pq.errors import SchemaError, Where

#: A schema, or the types of some columns.
Types: TypeAlias = pa.Schema | Mapping[str, pa.DataType]


def schema_of(frame: Any, schema: Types | None, *, write_index: bool | None) -> pa.Schema:
    """The schema of all files of a Dask DataFrame by its metadata alone; columns of objects become text."""
    # Some rows of every type: without any, pandas' objects would be nulls to Arrow.
    sample: pd.DataFrame = frame._meta_nonempty
    keep = sample.index.name is not None if write_index is None else write_index
    _check_names([*sample.columns, *([sample.index.name] if keep and sample.index.name is not None else [])])
    if isinstance(schema, pa.Schema):
        return schema
    objects = [name for name, kind in sample.dtypes.items() if pd.api.types.is_object_dtype(kind)]
    sample = sample.assign(**dict.fromkeys(objects, "text"))
    try:
        found = pa.Schema.from_pandas(sample, preserve_index=keep)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(f"a column has no type in Arrow: {error}", hint="schema={'column': pyarrow type}") from error
    fields = [field.with_type(_settled(field.type)).with_nullable(True) for field in found]
    chosen: dict[str, pa.DataType] = dict(schema or {})
    if unknown := [name for name in chosen if name not in found.names]:
        raise SchemaError(f"{unknown[0]!r} in schema is no column", hint=f"columns: {', '.join(found.names)}")
    fields = [field.with_type(chosen.get(field.name, field.type)) for field in fields]
    return pa.schema(fields, metadata=found.metadata)


def table_of(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """The rows of a partition."""
    try:
        table = pa.Table.from_pandas(frame, schema=schema, preserve_index=True, safe=True)
    except (pa.ArrowException, KeyError, TypeError, ValueError, OverflowError) as error:
        column = next((name for name in schema.names if f"column {name} " in str(error)), None)
        raise SchemaError(
            f"the values are not what the schema says: {error.args[0] if error.args else error}",
            where=Where(column=column),
            hint="say what they are: schema={'column': pyarrow type}",
        ) from error
    return table.replace_schema_metadata(schema.metadata)


def _settled(kind: pa.DataType) -> pa.DataType:
    """A type that depends on no values: not on how many categories there are, nor on how long text is."""
    if pa.types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), _settled(kind.value_type), ordered=kind.ordered)
    if pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return pa.string()
    return kind


def _check_names(names: Sequence[Any]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise SchemaError(f"the column {name!r} has a name that is no text", hint="rename it: frame.rename(...)")
    if twice := [name for name in names if list(names).count(name) > 1]:
        raise SchemaError(f"two columns are called {twice[0]!r}", hint="rename one: frame.rename(...)")
