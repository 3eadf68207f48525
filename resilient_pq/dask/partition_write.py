"""One partition on its way into a file, in a worker: as often as it takes, and one file in the end.

The name of a file has the number of the run in it that writes it, which nobody else has. So an upload that is open for
that name, or a ``NAME.partial`` there, was left by an earlier attempt at this very partition, whose worker died: it is
removed. And what is published under that name is the partition, whole: it is taken as it is, and an attempt that is
late replaces nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import pyarrow as pa

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.dask.arrow_tables import table_of
from resilient_pq.dask.serialized_row_group import Location, with_errors_detached
from resilient_pq.dask.task_events import is_set
from resilient_pq.errors import AlreadyExistsError
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io import WRITING, FetchCounters, WriteStore, resolve
from resilient_pq.loop_portal import portal
from resilient_pq.reader.opening import read_contents
from resilient_pq.writer.creation import new_file
from resilient_pq.writer.write_options import EncoderOptions

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
