"""Files of any table, cut anywhere and written in any way, by us and by others, are the same rows when compacted."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore

LIMITS = st.fixed_dictionaries(
    {
        "target_bytes": st.sampled_from([1, 2000, 1 << 30]),
        "copy_bytes": st.sampled_from([0, 150, 1 << 30]),
        "row_group_bytes": st.sampled_from([1, 400, 1 << 26]),
        "parity": st.sampled_from([None, None, "10%"]),
    }
)


def by_pyarrow(table: pa.Table, row_group_rows: int) -> bytes | None:
    """A file of another library; None where that cannot write the types."""
    sink = io.BytesIO()
    try:
        pq.write_table(table, sink, row_group_size=row_group_rows, write_page_index=row_group_rows % 2 == 0)
    except (pa.ArrowException, NotImplementedError):
        return None
    return sink.getvalue()


def read_by_pyarrow(data: bytes) -> pa.Table | None:
    """The rows as another library reads them; None where it does not read the types."""
    try:
        return pq.read_table(io.BytesIO(data))
    except (pa.ArrowException, NotImplementedError):
        return None


async def compacted(files: Sequence[bytes], limits: dict[str, Any], num_rows: int) -> list[tuple[pa.Table, bytes]]:
    """The outputs, as tables and bytes, when each was found sound."""
    store = MemoryStore()
    for at, file in enumerate(files):
        await store.put(f"src/{at:03}.parquet", file)
    done = await rpq.compact((store, "src/"), (store, "dst/"), **limits)
    assert done.num_rows == num_rows
    names = [f"dst/{name}" for name in await store.list_names("dst") if name.endswith(".parquet")]
    assert [store.url_of(name) for name in names] == list(done.urls)
    outputs = []
    for name in names:
        report = await rpq.check((store, name))
        assert (report.outcome, report.findings) == ("sound", ())
        outputs.append((pa.table(await rpq.read((store, name))), bytes((await store.read_tail(name, 1 << 40)).data)))
    return outputs


def check_compaction(
    data: st.DataObject, table: pa.Table, exact: Callable[[pa.Table], dict[str, list[Any]]], write: Callable[..., bytes]
) -> None:
    cuts: Sequence[int] = sorted(data.draw(st.lists(st.integers(0, table.num_rows), max_size=6)))
    pieces = [table.slice(start, end - start) for start, end in pairwise([0, *cuts, table.num_rows])]
    outputs = asyncio.run(compacted([write(piece) for piece in pieces], data.draw(LIMITS), table.num_rows))
    found: dict[str, list[Any]] = {name: [] for name in table.column_names}
    for ours, file in outputs:
        ours.validate(full=True)
        theirs = read_by_pyarrow(file)
        assert theirs is None or exact(theirs) == exact(ours)
        for name, values in exact(ours).items():
            found[name] += values
    assert found == exact(table)


@given(data=st.data())
@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
def test_a_compaction_has_the_rows_of_its_sources_in_their_order(
    tables: Callable[..., st.SearchStrategy[pa.Table]],
    ways: st.SearchStrategy[dict[str, Any]],
    written: Callable[..., bytes],
    exact: Callable[[pa.Table], dict[str, list[Any]]],
    data: st.DataObject,
) -> None:
    table, others = data.draw(tables()), data.draw(st.sampled_from(["none", "all", "some"]))

    def write(piece: pa.Table) -> bytes:
        theirs = others == "all" or (others == "some" and data.draw(st.booleans()))
        file = by_pyarrow(piece, data.draw(st.sampled_from([1, 2, 7, 1000]))) if theirs else None
        return file or written([piece], table.schema, data.draw(ways))

    check_compaction(data, table, exact, write)
