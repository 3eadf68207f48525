"""More knowledge, and more willingness to take parts, never give fewer rows: files of other writers, cut and damaged."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sampled import either
from writers_of_others import WriteTable, by_duckdb, by_fastparquet, by_polars, by_pyarrow

from resilient_pq import NothingToRecoverError, Report
from resilient_pq import sync as rpq

ROWS = 5000
WRITERS = {
    "pyarrow": by_pyarrow(),
    "pyarrow, pages with checksums": by_pyarrow(write_page_checksum=True, compression="none", data_page_size=4000),
    "DuckDB": by_duckdb(),
    "Polars": by_polars(),
    "fastparquet": by_fastparquet(),
    "resilient_pq": lambda table, size, path: rpq.write(path, table, row_group_rows=size),
}


def _table() -> pa.Table:
    draw = random.Random(1)
    return pa.table(
        {
            "id": range(ROWS),
            "town": [f"town {draw.randrange(9)}" for _ in range(ROWS)],
            "score": [draw.random() for _ in range(ROWS)],
            "user": [f"{draw.getrandbits(50):x}" for _ in range(ROWS)],
        }
    )


def _damage(data: bytes, draw: random.Random) -> bytes:
    damaged, body = bytearray(data), len(data) - 2000
    match draw.choice(["end", "beginning", "zeros", "bits"]):
        case "end":
            return data[: draw.randrange(len(data) // 20, len(data))]
        case "beginning":
            return data[draw.randrange(4, len(data) * 2 // 3) :]
        case "zeros":
            start, size = draw.randrange(4, body), draw.choice([64, 512, 5000])
            damaged[start : start + size] = bytes(min(size, len(data) - start))
        case "bits":
            for _ in range(3):
                damaged[draw.randrange(4, body)] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def _recovered(path: Path, **options: Any) -> tuple[int, Report]:
    """Rows that are kept, each of which can be read."""
    saved = path.with_name("saved.parquet")
    try:
        report = rpq.recover(path, saved, overwrite=True, **options)
    except NothingToRecoverError as error:
        return 0, error.report
    num_rows = rpq.read(saved).num_rows
    assert report.kept is not None and report.kept.num_rows == num_rows <= ROWS
    return num_rows, report


def _within_reach(found: tuple[int, Report]) -> int:
    """What is kept, or would be by the policy that the report names."""
    other = found[1].other_policy
    return max(found[0], 0 if other is None else other.num_rows)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("seed", either([1], [(seed,) for seed in range(2, 30)]))
def test_more_knowledge_never_gives_fewer_rows(tmp_path: Path, name: str, seed: int) -> None:
    whole, torn = tmp_path / "whole.parquet", tmp_path / "torn.parquet"
    write: WriteTable = WRITERS[name]
    draw = random.Random(f"{name} {seed}")
    write(_table(), draw.choice([ROWS, 2048]), whole)
    torn.write_bytes(_damage(whole.read_bytes(), draw))
    dropped, known = _recovered(torn), _recovered(torn, schema_from=whole)
    nulled, nulled_known = _recovered(torn, on_damage="null"), _recovered(torn, on_damage="null", schema_from=whole)
    assert dropped[0] <= nulled[0] <= nulled_known[0]
    assert known[0] <= nulled_known[0]
    assert _within_reach(dropped) <= _within_reach(known)
    assert dropped[0] <= _recovered(torn, keep_unplaced=True)[0]


def _two_columns(num_rows: int, path: Path, kind: str) -> None:
    """Columns of one type without dictionaries, the last row group of which is shorter."""
    draw = random.Random(num_rows)
    numbers = pa.array([draw.random() for _ in range(2 * num_rows)], kind)
    by_duckdb()(pa.table({"a": numbers[:num_rows], "b": numbers[num_rows:]}), 2048, path)


@pytest.mark.parametrize("num_rows", [3973, 4500, 5000])
@pytest.mark.parametrize("rows_of_sibling", [2048, 3000, 100])
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.ways_in_quick(6)
def test_a_sibling_costs_no_rows_of_columns_of_one_type(
    tmp_path: Path, num_rows: int, rows_of_sibling: int, kind: str
) -> None:
    whole, torn, sibling = (tmp_path / name for name in ("whole", "torn", "sibling"))
    _two_columns(num_rows, whole, kind)
    _two_columns(rows_of_sibling, sibling, kind)
    data = whole.read_bytes()
    torn.write_bytes(data[: -8 - int.from_bytes(data[-8:-4], "little")])
    assert _recovered(torn)[0] == num_rows
    assert _recovered(torn, schema_from=sibling)[0] == num_rows
    assert rpq.read(tmp_path / "saved.parquet").to_pydict() == rpq.read(whole).to_pydict()
