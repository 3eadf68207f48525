"""One partition on its way into a file, in a worker: as often as it takes, and one file in the end.

The name of a file has the number of the run in it that writes it, which nobody else has. So an upload that is open for
that name, or a ``NAME.partial`` there, was left by an earlier attempt at this very partition, whose worker died: it is
removed. And what is published under that name is the partition, whole: it is taken as it is, and an attempt that is
late replaces nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.dask.serialized_row_group import Location, with_errors_detached
from resilient_pq.dask.workers import is_set
from resilient_pq.errors import AlreadyExistsError, SchemaError, Where
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io import WRITING, FetchCounters, WriteStore, resolve
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.loop_portal import portal
from resilient_pq.reader.opening import read_contents
from resilient_pq.writer.creation import new_file
from resilient_pq.writer.write_options import EncoderOptions

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


#: Bytes read of a file that an earlier attempt has published; its footer is likely to be among them.
_TAIL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class PartitionTarget:
    """Where a partition goes, and how."""

    url: Location
    schema: pa.Schema  # of every file of the run
    stop: str  # the name of an event: once it is set, no attempt begins any more
    encoding: EncoderOptions  # how it is written
    storage_options: Mapping[str, Any] | None = field(repr=False)
    columns: Schema | None = None  # the same in Parquet, with the field ids of a table


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A file that is there."""

    num_rows: int
    size: int


@with_errors_detached
def write_part(frame: pd.DataFrame, part: PartitionTarget) -> WrittenPart | None:
    """Write a partition; None where the run was stopped before."""
    if is_set(part.stop):
        return None
    written: WrittenPart = portal.run(_written(table_of(frame, part.schema), part))
    return written


async def _written(table: pa.Table, part: PartitionTarget) -> WrittenPart:
    store, key = resolve(part.url, part.storage_options, retry=WRITING)
    async with store:
        # A NAME.partial stays for the writer that follows, which takes its place.
        await store.discard_unfinished(key)
        if await store.exists(key):
            return await _published(store, key)
        options = replace(part.encoding, options=replace(part.encoding.write, overwrite_partial=True))
        ingest = Ingest.from_schema(part.schema)
        ingest = ingest if part.columns is None else ingest.with_schema(part.columns)
        creation = new_file((store, key), None, schema=ingest, options=options, mode="x")
        with suppress(AlreadyExistsError):  # an attempt that was taken for dead was first
            async with creation as writer:
                await writer.write(table)
        return await _published(store, key)


async def _published(store: WriteStore, key: str) -> WrittenPart:
    info, contents = await read_contents(store, key, tail_bytes=_TAIL_BYTES, counters=FetchCounters())
    return WrittenPart(contents.num_rows, info.size)
