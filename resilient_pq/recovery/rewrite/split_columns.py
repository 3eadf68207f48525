"""Writes each column of a damaged file to an output of its own, with the rows that it has left. An async shell.

The rows of the outputs differ. A first column says which they are: their numbers in the damaged file, from 0; behind
rows that nobody counted, numbers that only tell which values are of one row.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace

import numpy as np

from resilient_pq.damage.chunk_salvage import SalvagedChunk
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.format.annotations import Empty
from resilient_pq.format.file_metadata import ColumnOrder, Repetition, Type
from resilient_pq.format.footer import LINEAGE_KEY
from resilient_pq.format.pages.chunk_encoder import encode_chunk
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.physical_values import LeafData
from resilient_pq.format.resilience_records import RecordChain
from resilient_pq.format.schema_tree import Group, Primitive, Schema, Selection
from resilient_pq.io.output_target import Target, check_free, check_other, completing, make_folder
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery.resume.resume_layout import own_keys
from resilient_pq.recovery.rewrite.output_draft import Draft
from resilient_pq.recovery.rewrite.output_object import OutputContents
from resilient_pq.recovery.rewrite.retained_rows import RowGroupOutcome, retain_rows, row_numbers
from resilient_pq.recovery.rewrite.row_group_rewrite import RowGroupRewriter
from resilient_pq.writer.file_layout import FileLayout

_OF_ALL_COLUMNS = ("ARROW:schema", "pandas")  # Keys of other libraries that speak of all columns at once
_NAME_BYTES = 100  # Bytes of a column's name in the name of its output; most file systems allow 255 for all of that
#: Outputs that are open at one time, and bytes that their columns have in the input: sinks hold some of what they get.
_MOST_OPEN = 128
_BATCH_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _ColumnOutput:
    """A column, where it goes, and what is kept of it: row groups with rows, by their ordinals."""

    column: Selection
    target: Target
    kept: dict[int, RowGroupOutcome]


async def publish_columns(output: OutputContents, target: Target) -> dict[str, str]:
    """Write an output for each top-level column that has rows left."""
    contents, row_groups = output.reconstruction.contents, output.reconstruction.row_groups
    assert contents is not None
    targets = dict(targets_of(contents.schema, target))
    for one in targets.values():
        for source in (
            output.reconstruction.source,
            *(other.source for other in output.verification.options.alternates),
        ):
            await check_other(source.address, one)
        await check_free(one)
    await make_folder(target)
    parts = []
    for column in contents.schema.columns:
        rows = retain_rows(contents.schema, row_groups, output.verification.scanned, OnDamage.DROP, [column])
        if rows.row_groups:
            kept = {
                each.located.ordinal: each for each in rows.row_groups if each.num_rows_kept
            }  # the others encode nothing
            parts.append(_ColumnOutput(column, targets[column.position], kept))
    batches = _Batches(output, contents)
    for batch in _batches(parts):
        await batches.publish(batch)
    return {part.column.node.name: part.target.url for part in parts}


def _batches(parts: Sequence[_ColumnOutput]) -> Iterator[list[_ColumnOutput]]:
    """As many columns as are written at one time."""
    batch: list[_ColumnOutput] = []
    size = 0
    for part in parts:
        ordinals = [leaf.ordinal for leaf in part.column.leaves]
        chunks = [each.located.chunks[ordinal] for each in part.kept.values() for ordinal in ordinals]
        num_bytes = sum(chunk.read.range.size for chunk in chunks if chunk is not None)
        if batch and (len(batch) == _MOST_OPEN or size + num_bytes > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(part)
        size += num_bytes
    if batch:
        yield batch


def targets_of(schema: Schema, target: Target) -> Iterator[tuple[int, Target]]:
    """Where each column goes: its name stands before the ending. Names that are no names of files get a number."""
    base, ending = os.path.splitext(target.key)
    used: set[str] = set()
    for column in schema.columns:
        name = "".join(c if c.isalnum() or c in "-_ " else "_" for c in column.node.name) or "_"
        name = name.encode()[:_NAME_BYTES].decode(errors="ignore")
        if name.casefold() in used:
            name = f"{name}.{column.position}"
        used.add(name.casefold())
        yield column.position, replace(target, key=f"{base}.{name}{ending}")


def _schema_of(column: Selection) -> Schema:
    name = "row"
    while name == column.node.name:
        name += "_"
    number = Primitive(name, Repetition.REQUIRED, Type.INT64)
    return Schema(Group("schema", Repetition.REQUIRED, (number, column.node)))


class _Batches:
    """Writes the outputs of some columns at one time: a row group that is damaged is examined once for all of them."""

    def __init__(self, output: OutputContents, contents: Contents) -> None:
        self._contents = contents
        self._row_groups = output.reconstruction.row_groups
        self._keys = {key: value for key, value in own_keys(contents).items() if key not in _OF_ALL_COLUMNS}
        self._lineage = {LINEAGE_KEY: output.lineage}
        self._first_rows = row_numbers(output.reconstruction.row_groups, output.verification.scanned).first
        self._rewriter = RowGroupRewriter(output.verification, contents)

    async def publish(self, batch: Sequence[_ColumnOutput]) -> None:
        """Write and publish the outputs of some columns."""
        async with AsyncExitStack() as sinks:
            drafts = [(part, await self._begin(part, sinks)) for part in batch]
            for located in self._row_groups:
                salvaged: Sequence[SalvagedChunk | None] | None = None
                for part, draft in drafts:
                    kept = part.kept.get(located.ordinal)
                    if kept is None:
                        continue
                    if salvaged is None and kept.scanned is not None:
                        salvaged = await self._rewriter.scanner.salvage(kept.located)
                    await self._row_group(draft, part.column, kept, salvaged)
            for part, draft in drafts:
                await draft.finish(self._lineage, sum(kept.num_rows_kept for kept in part.kept.values()))

    async def _begin(self, part: _ColumnOutput, sinks: AsyncExitStack) -> Draft:
        column, metadata = part.column, self._contents.metadata
        orders = metadata.column_orders
        if orders is not None and len(orders) == len(self._contents.schema.leaves):
            orders = [ColumnOrder(TYPE_ORDER=Empty()), *(orders[leaf.ordinal] for leaf in column.leaves)]
        else:
            orders = None
        made_like = replace(metadata, column_orders=orders)
        layout = FileLayout(_schema_of(column), RecordChain(os.urandom(16)), self._keys, made_like=made_like)
        sink = await part.target.store.create(part.target.key, part.target.options)
        await sinks.enter_async_context(completing(sink))
        draft = Draft(sink, layout, created_by=metadata.created_by)
        await draft.start()
        return draft

    async def _row_group(
        self, draft: Draft, column: Selection, kept: RowGroupOutcome, salvaged: Sequence[SalvagedChunk | None] | None
    ) -> None:
        numbers = _numbers(kept, self._first_rows[kept.located.ordinal])
        data = LeafData(len(numbers), None, None, numbers)
        leaves = iter(draft.leaves)
        number_leaf = next(leaves)
        encoded = await asyncio.to_thread(encode_chunk, number_leaf, [data], ChunkOptions())
        await draft.chunk(number_leaf, encoded, kept.num_rows_kept, is_copy=False)
        async with aclosing(self._rewriter.chunks(kept, column.leaves, salvaged)) as chunks:
            async for chunk, size in chunks:
                await draft.chunk(next(leaves), chunk, kept.num_rows_kept, is_copy=size > 0)
        await draft.end_row_group(kept.num_rows_kept)


def _numbers(row_group: RowGroupOutcome, first_row: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The numbers of a row group's rows that are kept."""
    if row_group.choice is None:
        return np.arange(first_row, first_row + row_group.num_rows_kept, dtype=np.int64)
    return np.flatnonzero(row_group.choice.keep).astype(np.int64) + first_row
