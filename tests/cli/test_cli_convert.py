"""`rpq convert`: files of Parquet's ancestor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trevni_bytes import blocks_of, write_trevni

from resilient_pq.cli.exit_codes import ExitCode

Run = Callable[..., Any]
NUM_ROWS = 400


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A Trevni file of several blocks in each column."""
    table = pa.table({"n": pa.array(range(NUM_ROWS)), "s": pa.array([f"text {i}" for i in range(NUM_ROWS)])})
    path = tmp_path / "old.trv"
    write_trevni(path, table, block_bytes=600, codec="null")
    return path


def _damage(path: Path, column: str, block: int) -> None:
    """Flip a bit of a block."""
    data = bytearray(path.read_bytes())
    data[blocks_of(data)[column][block].offset] ^= 16
    path.write_bytes(data)


def test_all_rows(rpq_run: Run, old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.parquet"
    ended = rpq_run("convert", old, new)
    assert (ended.code, ended.err) == (0, "")
    assert ended.words("kept") == [f"{NUM_ROWS} rows in 1 row group"]
    assert (ended.words("lost"), ended.words("written")) == (["nothing"], [str(new)])
    assert ended.words("next") == [f"rpq check {new}"]
    assert pq.read_table(new)["n"].to_pylist() == list(range(NUM_ROWS))


def test_some_columns_in_another_order(rpq_run: Run, old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.parquet"
    assert rpq_run("convert", old, new, "--columns", "s,n", "--compression", "snappy").code == 0
    assert pq.read_schema(new).names == ["s", "n"]
    assert rpq_run("convert", old, tmp_path / "b.parquet", "--columns", "m").code == ExitCode.USAGE


def test_rows_that_are_lost_are_counted(rpq_run: Run, old: Path, tmp_path: Path) -> None:
    lost = blocks_of(old.read_bytes())["n/long"][1].num_rows
    _damage(old, "n/long", 1)
    document = rpq_run("convert", old, tmp_path / "new.parquet", "--json").document
    assert (document["verb"], document["outcome"]) == ("convert", "partial")
    assert (document["rows_kept"], document["rows_lost"]) == (NUM_ROWS - lost, lost)
    assert [(region["column"], region["page"], region["rows"]) for region in document["lost"]] == [("n/long", 1, lost)]
    ended = rpq_run("convert", old, tmp_path / "new.parquet", "--overwrite")
    assert ended.code == ExitCode.DAMAGE
    assert "the checksum of the block does not hold" in ended.words("lost")[0]


def test_nulls_in_their_place(rpq_run: Run, old: Path, tmp_path: Path) -> None:
    _damage(old, "s/string", 0)
    new = tmp_path / "new.parquet"
    ended = rpq_run("convert", old, new, "--on-damage", "null")
    found = pq.read_table(new)
    assert ended.code == ExitCode.DAMAGE
    assert found["n"].to_pylist() == list(range(NUM_ROWS))
    assert 0 < found["s"].null_count < NUM_ROWS


def test_nothing_is_written_where_that_was_asked_for(rpq_run: Run, old: Path, tmp_path: Path) -> None:
    _damage(old, "n/long", 0)
    ended = rpq_run("convert", old, tmp_path / "new.parquet", "--on-damage", "raise")
    assert ended.code == ExitCode.DAMAGE
    assert "rows would be lost" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["old.trv"]


def test_nothing_can_be_converted(rpq_run: Run, old: Path, tmp_path: Path) -> None:
    old.write_bytes(old.read_bytes()[:30])
    ended = rpq_run("convert", old, tmp_path / "new.parquet")
    assert ended.code == ExitCode.NOTHING
    assert "within its header" in ended.err
    document = rpq_run("convert", old, tmp_path / "new.parquet", "--json").document
    assert (document["outcome"], document["output"], document["rows_kept"]) == ("nothing", None, 0)
    assert not (tmp_path / "new.parquet").exists()


def test_what_cannot_be(rpq_run: Run, old: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken.parquet"
    taken.write_bytes(b"")
    assert rpq_run("convert", old, taken).code == ExitCode.STORE
    assert rpq_run("convert", old, old, "--overwrite").code == ExitCode.USAGE
    assert rpq_run("convert", tmp_path / "none.trv", tmp_path / "a.parquet").code == ExitCode.STORE
    assert (
        rpq_run("convert", old, tmp_path / "a.parquet", "--schema", "message s { required int64 n; }").code
        == ExitCode.USAGE
    )
