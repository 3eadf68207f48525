"""Files on their way to a worker, some at a time, and what it does with them. An async shell.

The scheduler remembers which batches were begun. So an attempt knows when there was one before it, whose worker died;
that may have left an upload, a partial file, or an output that it could not tell of. What was there before the run is
sent along: the rest is what the earlier attempt left, and gives way.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from resilient_pq.bulk.file_result import FileError, FileResult
from resilient_pq.bulk.file_task import check_one, recover_one
from resilient_pq.bulk.proof import ProofOrder, prove_one
from resilient_pq.dask.serialized_row_group import Location, with_errors_detached
from resilient_pq.dask.workers import is_set, set_event
from resilient_pq.errors import ResilientPQError
from resilient_pq.io import READING, WRITING, Stores
from resilient_pq.io.location import shown
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.loop_portal import portal
from resilient_pq.recovery.recover_options import RecoverOptions

#: Files of a batch that are looked at at one time: those of an object store are mostly waited for.
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class FileOrder:
    """What is to be done with one file."""

    verb: str  # "check", "recover" or "scrub"
    url: Location
    size: int | None = None  # its bytes; None where nobody asked
    dst: Location | None = None  # where the output of a recovery goes
    near: tuple[Location, ...] = ()  # files that are likely to have the same columns
    options: RecoverOptions | None = None
    is_free: bool = False  # whether nothing was at the place of the output before the run
    not_ours: frozenset[str] = frozenset()  # the uploads and the partial files that were open there before the run
    proof: ProofOrder | None = None  # what a scrub knows of it
    deep: bool = False  # whether a check computes parity again

    @property
    def name(self) -> str:
        """The file by its name for people."""
        return shown(os.fspath(self.url))


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """Orders that one task does, one after the other or a few side by side."""

    name: str  # what no other batch has
    orders: tuple[FileOrder, ...]
    source: Mapping[str, Any] | None = field(default=None, repr=False)  # `storage_options` of the files
    output: Mapping[str, Any] | None = field(default=None, repr=False)  # those of the outputs
    again: bool = False  # whether another batch has begun with the orders before


@with_errors_detached
def do_batch(batch: TaskBatch) -> list[FileResult]:
    """Do what is ordered; a result for each, in order."""
    again = batch.again or is_set(batch.name)
    if not again:
        set_event(batch.name)
    results: list[FileResult] = portal.run(_all(batch, again=again))
    return results


async def _all(batch: TaskBatch, *, again: bool) -> list[FileResult]:
    retry = READING if all(order.dst is None for order in batch.orders) else WRITING
    stores = Stores(batch.source, retry)
    outputs = stores if batch.output is None else Stores(batch.output, retry)
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(order: FileOrder) -> FileResult:
        async with turns:
            return await _one(order, stores, outputs, again=again)

    try:
        return list(await asyncio.gather(*map(one, batch.orders)))
    finally:
        await stores.close()
        await outputs.close()


async def _one(order: FileOrder, stores: Stores, outputs: Stores, *, again: bool) -> FileResult:
    if order.proof is not None:
        return await prove_one(order.url, order.proof, stores)
    if order.dst is None or order.options is None:
        return await check_one(order.url, size=order.size, deep=order.deep, stores=stores)
    options = order.options
    if again:
        try:
            store, key = outputs.resolve(order.dst)
            await store.discard_unfinished(key, keep=order.not_ours)
        except ResilientPQError as error:
            return FileResult(order.verb, order.name, error=FileError.of(error))
        options = replace(options, overwrite=options.overwrite or order.is_free)
    return await recover_one(
        order.url,
        order.dst,
        options,
        schema_from=order.near,
        size=order.size,
        stores=stores,
        dst_stores=outputs,
    )
