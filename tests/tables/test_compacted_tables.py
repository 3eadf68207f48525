"""Files of a table made into few: its readers see every row once before and afterwards, and nothing twice."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from table_places import Place

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.cli.main import run


def test_a_table_names_the_outputs_in_the_place_of_the_sources(place: Place) -> None:
    rows = pa.table({"id": range(60), "day": [i % 2 for i in range(60)]})
    table, dst = place.settings(), place.folder / "large"
    with sync.create_dataset(place.data, table=table, partition_by=["day"], roll_rows=6) as writer:
        writer.write(rows)
    assert sync.compact(place.data, dst, table=table).num_files == 10
    assert place.ids() == list(range(60))
    assert sync.compact(place.data, dst, table=table).num_files == 0
    for note in (dst / "_compact").glob("*.[dr]*"):  # as after a crash behind the commit
        note.unlink()
    sync.compact(place.data, dst, table=table)
    assert place.ids() == list(range(60))
    kind = "delta" if isinstance(table, rpq.DeltaTable) else f"iceberg:{place.folder}/web.events"
    assert run(["compact", place.data, str(dst), "--table", kind, "--remove-sources"]) == 0
    assert list(Path(place.data).rglob("*.parquet")) == []
    assert place.ids() == list(range(60))  # of the outputs: nothing else is there any more
