"""Every sample that Avro's own writer wrote: read, skipped through, converted, and read back by pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import resilient_pq as rpq

Sample = tuple[Path, list[dict[str, Any]]]
#: Avro's writer leaves the checksum of no bytes here; files without any are told as well.
UNVERIFIED = ("null-crc32", "-null.trv", "dremel.trv", "enum.trv")


async def test_it_is_read(sample: Sample) -> None:
    path, rows = sample
    async with rpq.open_trevni(path) as file:
        assert (file.num_rows, file.notes) == (len(rows), ())
        assert (await file.read()).to_pylist() == rows
        batches = [batch async for batch in file.batches(117, limit=1000)]
    rows = rows[:1000]
    assert [batch.num_rows for batch in batches[:-1]] == [117] * (len(rows) // 117)
    assert [row for batch in batches for row in batch.to_pylist()] == rows


async def test_columns_are_read_by_themselves(sample: Sample) -> None:
    path, rows = sample
    async with rpq.open_trevni(path) as file:
        for name in file.schema.names:
            found = await file.read(columns=[name], limit=2000)
            assert found.to_pydict() == {name: [row[name] for row in rows[:2000]]}


async def test_rows_are_skipped(sample: Sample) -> None:
    path, rows = sample
    async with rpq.open_trevni(path) as file:
        for offset, limit in ((0, 1), (1, 3), (len(rows) // 2, 7), (len(rows) - 1, None), (len(rows), 5)):
            first = max(offset, 0)
            end = None if limit is None else first + limit
            assert (await file.read(offset=first, limit=limit)).to_pylist() == rows[first:end]


async def test_it_is_converted_and_read_by_pyarrow(sample: Sample, tmp_path: Path) -> None:
    path, rows = sample
    out = tmp_path / "new.parquet"
    report = await rpq.convert(path, out)
    odd = any(part in path.name for part in UNVERIFIED)
    assert (report.outcome, report.exit_code, report.num_rows) == ("recovered" if odd else "sound", 0, len(rows))
    assert [finding.costs_rows for finding in report.findings] == [False] * odd
    assert report.kept is not None
    assert (report.kept.rows_lost, report.kept.lost, report.kept.output) == (0, (), str(out))
    found = pq.read_table(out).to_pylist()
    if "enum" in path.name:  # pyarrow gives the symbols of an ENUM as bytes
        found = [{"kind": row["kind"] and row["kind"].decode()} for row in found]
    assert found == rows
    async with rpq.open_trevni(path) as file, rpq.open(out) as new:
        assert new.schema == file.schema
        kept = pq.read_metadata(out).metadata or {}
        assert {key: kept[key.encode()] for key in file.metadata} == file.metadata
    assert (await rpq.check(out)).outcome == "sound"
