"""How many columns row groups without footer and schema have, where their values vary, were exchanged, or go on."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import sampled

import resilient_pq as rpq
from resilient_pq.format.file_metadata import Type
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.carve.column_cuts import CutChunk, count_columns
from resilient_pq.recovery.carve.page_probe import ColumnKind

LONG, INT = (ColumnKind(one, None, 0, 0) for one in (Type.INT64, Type.INT32))


def chunk(at: int, kind: ColumnKind, least: float, greatest: float) -> CutChunk:
    return CutChunk((kind,), at, at + 1, 20, True, False, 174 if kind is LONG else 94, (0, 0), (least, greatest))


def row_groups(rng: random.Random, groups: int, exchanges: int) -> list[CutChunk]:
    """A number that goes on, one that varies, and a small one; values of numbers are exchanged so many times."""
    seen = []
    for group in range(groups):
        begin = rng.randrange(8000)
        seen += [(320 * group, 320 * group + 304), (begin, begin + rng.choice((300, 16_000))), (0, 1)]
    numbers = [at for at in range(len(seen)) if at % 3 != 2]
    for _ in range(exchanges):
        one, other = rng.sample(numbers, 2)
        seen[one], seen[other] = seen[other], seen[one]
    return [chunk(at, INT if at % 3 == 2 else LONG, *each) for at, each in enumerate(seen)]


@sampled(100, 3000)
def test_values_that_vary_or_were_exchanged_make_no_row_groups_into_columns(count: int) -> None:
    rng = random.Random(19)
    right = 0
    for _ in range(count):
        groups = rng.randrange(4, 20)
        counted = count_columns([row_groups(rng, groups, exchanges=rng.randrange(4))], begins=True)
        assert counted is None or counted.count <= 3
        right += counted is not None and counted.count == 3
    assert right > count / 3


def test_six_columns_of_types_that_repeat_are_six_where_their_values_tell() -> None:
    """There and back: the same three types twice, of which one differs each time."""
    seen = [[(LONG, 0, 90), (LONG, 0, 9000), (INT, 0, 1)], [(LONG, 5000, 9500), (LONG, 7, 19), (INT, 0, 1)]]
    columns = [column for half in seen for column in half]
    for groups, known in ((2, False), (8, True)):
        chunks = [chunk(at, *column) for at, column in enumerate(columns * groups)]
        counted = count_columns([chunks], begins=True)
        assert (counted is not None) == known
        assert counted is None or counted.count == 6


@pytest.mark.parametrize("sizes", [(20, 20, 20, 20, 10, 10), (20, 20, 20, 10, 10, 10), (30, 30, 10, 10, 10, 10, 5)])
async def test_several_shorter_row_groups_at_the_end_are_no_columns(sizes: tuple[int, ...]) -> None:
    rng, rows = random.Random(3), sum(sizes)
    table = pa.table(
        {
            "id": list(range(rows)),
            "text": [f"{rng.random()}" for _ in range(rows)],
            "flag": pa.array([rng.randrange(2) for _ in range(rows)], pa.int32()),
        }
    )
    out, at = io.BytesIO(), 0
    with pq.ParquetWriter(out, table.schema, use_dictionary=False) as writer:
        for size in sizes:
            writer.write_table(table.slice(at, size))
            at += size
    data = out.getvalue()
    store = MemoryStore()
    await store.put("torn", data[: -8 - int.from_bytes(data[-8:-4], "little")])
    await rpq.recover((store, "torn"), (store, "saved"))
    found = pq.read_table(io.BytesIO(bytes((await store.read_tail("saved", 1 << 30)).data)))
    assert found["c0"].to_pylist() == table["id"].to_pylist()
    assert found["c1"].to_pylist() == [text.encode() for text in table["text"].to_pylist()]
    assert (found["c2"].to_pylist(), found.num_columns) == (table["flag"].to_pylist(), 3)
