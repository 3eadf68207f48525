"""A version of a file that was written over the beginning of a longer one, whose footer still stands at the end."""

from __future__ import annotations

import asyncio
import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledger_check import check_ledger
from structural_files import LONGER, OWN, File, made, write_ours, write_resumed

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io.memory_store import MemoryStore

GROUP, FEW, MANY = 8, 16, 48
ONE_ID, OTHER_ID = bytes(range(16)), bytes(range(16, 32))
OPTIONS: dict[str, Any] = {
    "row_group_rows": GROUP, "checkpoint_every": 1, "compression": "none", "encodings": "PLAIN",
    "options": rpq.WriteOptions(page_rows=4),
}  # fmt: skip


def table(first: int, rows: int) -> pa.Table:
    ids = range(first, first + rows)
    return pa.table({name: pa.array([i * times for i in ids], pa.int64()) for name, times in (("a", 1), ("b", 7))})


NEW = table(5000, FEW)
OLD = table(1000, MANY)


def of_pyarrow(rows: pa.Table, version: str) -> File:
    out = io.BytesIO()
    pq.write_table(rows, out, row_group_size=GROUP, write_page_checksum=True)
    return made(version, out.getvalue())


def versions(kind: str) -> tuple[File, File]:
    """The newer file and the older, longer one."""
    if kind == "pyarrow":
        return of_pyarrow(NEW, OWN), of_pyarrow(OLD, LONGER)
    old_id = OTHER_ID if kind == "other id" else ONE_ID
    older = made(LONGER, write_ours(OLD, old_id, OPTIONS), old_id)
    if kind == "later epoch":
        rows = pa.concat_tables([OLD.slice(0, GROUP), NEW.slice(GROUP)])
        return made(OWN, write_resumed(rows, older, OPTIONS), ONE_ID), older
    return made(OWN, write_ours(NEW, ONE_ID, OPTIONS), ONE_ID), older


def overwritten(newer: File, older: File) -> bytes:
    return newer.data + older.data[len(newer.data) :]


def recovered(data: bytes) -> tuple[list[int], rpq.Report]:
    store = MemoryStore()
    asyncio.run(store.put("damaged", data))
    report = sync.recover((store, "damaged"), (store, "output"))
    assert report.kept is not None and report.kept.ledger is not None and not check_ledger(report.kept.ledger)
    checked = sync.check((store, "damaged"))
    assert checked.num_rows == report.num_rows and checked.outcome is rpq.Outcome.DAMAGED
    rows = pq.read_table(pa.BufferReader(asyncio.run(store.read_tail("output", 1 << 40)).data)).to_pydict()
    assert rows["b"] == [7 * a for a in rows["a"]]
    return rows["a"], report


KINDS = ("other id", "same id", "later epoch", "pyarrow")


@pytest.mark.parametrize("kind", KINDS)
def test_the_newer_version_decides_where_it_is_whole(kind: str) -> None:
    newer, older = versions(kind)
    ids, report = recovered(overwritten(newer, older))
    assert ids == newer.table["a"].to_pylist()
    assert report.kept is not None
    assert (report.outcome, report.exit_code, report.kept.rows_lost) == ("recovered", 0, 0)
    end = len(newer.data)
    (behind,) = [finding for finding in report.findings if finding.start == end]
    assert (behind.damage, behind.end) == ("foreign", len(older.data))
    assert report.kept.ledger is not None and report.kept.ledger.sources[0].size == len(older.data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_newer_version_decides_where_its_records_prove_it(kind: str) -> None:
    newer, older = versions(kind)
    data = bytearray(overwritten(newer, older))
    page = newer.layout.row_groups[1].chunks[0].pages[-1].body
    data[page.start : page.stop] = random.Random(1).randbytes(len(page))
    ids, report = recovered(bytes(data))
    told = any("nothing proves which of both is newer" in finding.message for finding in report.findings)
    assert (report.outcome, report.exit_code) == ("partial", 1)
    if kind in ("other id", "later epoch"):
        assert set(ids) < set(newer.table["a"].to_pylist()) and len(ids) >= GROUP and not told
    else:
        assert set(ids) <= set(OLD["a"].to_pylist()) and told


@pytest.mark.parametrize("of", ["resilient_pq", "pyarrow"])
def test_the_footer_from_before_rows_were_appended_is_no_other_version(of: str, tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    is_ours = of == "resilient_pq"
    begun = made(OWN, write_ours(NEW, ONE_ID, OPTIONS), ONE_ID) if is_ours else of_pyarrow(NEW, OWN)
    path.write_bytes(begun.data)
    with sync.append(path) as writer:
        writer.write(OLD)
    data = bytearray(path.read_bytes())
    page = begun.layout.row_groups[1].chunks[0].pages[-1].body
    data[page.start : page.stop] = random.Random(1).randbytes(len(page))
    ids, report = recovered(bytes(data))
    assert set(ids) > set(OLD["a"].to_pylist()) and len(ids) >= MANY + GROUP
    assert not any(finding.damage is rpq.Damage.FOREIGN for finding in report.findings)
