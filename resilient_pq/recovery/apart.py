"""Each column of a damaged file in an output of its own, with the rows that it has left. An async shell.

The rows of the outputs differ. A first column says which they are: their numbers in the damaged file, from 0; behind
rows that nobody counted, numbers that only tell which values are of one row.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from resilient_pq.format.chunk_encoder import encode_chunk
from resilient_pq.format.chunk_options import ChunkOptions
from resilient_pq.format.footer import LINEAGE_KEY
from resilient_pq.format.metadata import ColumnOrder, Empty, Repetition, Type
from resilient_pq.format.records import RecordChain
from resilient_pq.format.schema import Group, Primitive, Schema, Selection
from resilient_pq.format.values import LeafData
from resilient_pq.reader.on_damage import OnDamage
from resilient_pq.recovery.continued import own_keys
from resilient_pq.recovery.draft import Draft
from resilient_pq.recovery.examination import Examiner
from resilient_pq.recovery.kept import KeptRowGroup, keep, row_numbers
from resilient_pq.recovery.output import (
    Output,
    Target,
    check_free,
    check_other,
    completing,
    make_folder,
)
from resilient_pq.recovery.relaid import Relaying
from resilient_pq.writer.layout import Layout

#: Keys of other libraries that speak of all columns at once.
_OF_ALL_COLUMNS = ("ARROW:schema", "pandas")
#: Of the name of a column that go into that of its output; names of files have 255 in most file systems.
_NAME_BYTES = 100


async def publish_apart(output: Output, target: Target) -> dict[str, str]:
    """Write an output for each top-level column that has rows left.

    Returns:
        The URL of each output by the name of its column.

    Raises:
        RecoveryError: One of them is the damaged file itself; none was written.
        AlreadyExistsError: One of them is there already, and is not to be replaced; none was written.
        StoreError: A store refused; outputs that were written before stay.
    """
    contents = output.known.contents
    assert contents is not None
    targets = dict(_targets(contents.schema, target))
    for one in targets.values():
        for source in (output.known.source, *(other.source for other in output.examined.means.others)):
            await check_other(source.address, one)
        await check_free(one)
    await make_folder(target)
    written: dict[str, str] = {}
    for column in contents.schema.columns:
        rows = keep(contents.schema, output.known.row_groups, output.examined.found, OnDamage.DROP, [column])
        if rows.row_groups:
            one = targets[column.position]
            await _publish(output, one, column, rows.row_groups)
            written[column.node.name] = one.url
    return written


def _targets(schema: Schema, target: Target) -> Iterator[tuple[int, Target]]:
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


async def _publish(
    output: Output, target: Target, column: Selection, kept: tuple[KeptRowGroup, ...]
) -> None:
    contents, source = output.known.contents, output.known.source
    assert contents is not None
    schema = _schema_of(column)
    keys = {key: value for key, value in own_keys(contents).items() if key not in _OF_ALL_COLUMNS}
    orders = contents.metadata.column_orders
    if orders is not None and len(orders) == len(contents.schema.leaves):
        orders = [ColumnOrder(TYPE_ORDER=Empty()), *(orders[leaf.ordinal] for leaf in column.leaves)]
    else:
        orders = None
    made_like = replace(contents.metadata, column_orders=orders)
    layout = Layout(schema, RecordChain(os.urandom(16)), keys, made_like=made_like)
    examiner = Examiner(source, output.examined.means, contents)
    relaying = Relaying(source, contents, examiner, output.known.positions)
    sink = await target.store.create(target.key, target.options)
    numbers_of = row_numbers(output.known.row_groups, output.examined.found)
    async with completing(sink):
        draft = Draft(sink, layout, created_by=contents.metadata.created_by)
        await draft.start()
        for row_group in [each for each in kept if each.num_rows]:  # without rows there is nothing to encode
            numbers = _numbers(row_group, numbers_of.first[row_group.known.ordinal])
            data = LeafData(len(numbers), None, None, numbers)
            encoded = await asyncio.to_thread(encode_chunk, schema.leaves[0], [data], ChunkOptions())
            leaves = iter(schema.leaves)
            await draft.chunk(next(leaves), encoded, row_group.num_rows, is_copy=False)
            async for chunk, size in relaying.chunks(row_group, column.leaves):
                await draft.chunk(next(leaves), chunk, row_group.num_rows, is_copy=size > 0)
            await draft.end_row_group(row_group.num_rows)
        await draft.finish({LINEAGE_KEY: output.lineage}, sum(row_group.num_rows for row_group in kept))


def _numbers(row_group: KeptRowGroup, first_row: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The numbers of a row group's rows that are kept."""
    if row_group.choice is None:
        return np.arange(first_row, first_row + row_group.num_rows, dtype=np.int64)
    return np.flatnonzero(row_group.choice.keep).astype(np.int64) + first_row
