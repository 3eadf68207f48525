"""What the tests of the arrow room share: the way from Arrow data through leaves and back, without any page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from resilient_pq.arrow.assemble import branch_of, to_arrow
from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.arrow_schema import arrow_schema_of
from resilient_pq.format.physical_values import ByteArrays, LeafColumn, LeafData, check_values, empty_fixed
from resilient_pq.format.schema_tree import Leaf


def _as_column(leaf: Leaf, data: LeafData) -> LeafColumn:
    """What a correct reader makes of the levels and values of `data`: slots, one Python step at a time."""
    check_values(leaf, data)
    levels = data.definition_levels
    if levels is None:
        return LeafColumn(leaf, data.num_rows, data.values, None, None, data.repetition_levels)
    levels = np.ascontiguousarray(levels)  # equal levels share the memory of one
    present = [level == leaf.max_definition_level for level in levels if level >= leaf.slot_definition_level]
    if isinstance(data.values, ByteArrays):
        dense = iter([data.values.value(at) for at in range(len(data.values))])
        slots = [next(dense) if there else b"" for there in present]
        ends = np.cumsum([0, *map(len, slots)], dtype=np.int32)
        values: Any = ByteArrays(ends, np.frombuffer(b"".join(slots), np.uint8))
    else:
        values = empty_fixed(leaf.node, len(present))
        values[np.array(present, np.bool_)] = data.values
    nested = len(leaf.path) > 1 or leaf.max_repetition_level > 0
    mask = None if all(present) else np.array(present, np.bool_)
    return LeafColumn(leaf, data.num_rows, values, mask, levels if nested else None, data.repetition_levels)


def _round_trip(data: object, schema: object = None, **options: Any) -> Table:
    if schema is None:
        ingest, data = Ingest.infer(data)
    else:
        ingest = Ingest.from_schema(schema)
    arrow = arrow_schema_of(ingest.schema, {"ARROW:schema": ingest.encoded_schema, **ingest.metadata})
    chunks = []
    num_rows = 0
    for batch in ingest.batches(data, **options):
        columns = [_as_column(*pair) for pair in zip(ingest.schema.leaves, batch.leaves, strict=True)]
        chunk = []
        for position, node in enumerate(ingest.schema.root.children):
            ordinals = [leaf.ordinal for leaf in ingest.schema.columns[position].leaves]
            chunk.append(to_arrow(arrow.child(position), branch_of(node), [columns[ordinal] for ordinal in ordinals]))
        chunks.append(chunk)
        num_rows += batch.num_rows
    return Table(arrow, chunks, num_rows)


@pytest.fixture(scope="session")
def round_trip() -> Callable[..., Table]:
    """Arrow data of any maker to leaves and back into a table; options are those of `Ingest.batches`."""
    return _round_trip
