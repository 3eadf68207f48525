"""`rpq write --append`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from resilient_pq.cli.main import run


def test_rows_of_csv(original: Callable[[str], Path], rows_of: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = original("polars")
    more = path.with_name("more.csv")
    more.write_text("id,name,price\n3000,x,1.5\n3001,,2.5\n")
    assert run(["write", str(more), str(path), "--append", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["outcome"], said["rows"], said["rows_before"]) == ("written", 3002, 3000)
    table = pq.read_table(path)
    assert table.slice(0, 3000).to_pydict() == rows_of(0, 3000).to_pydict()
    assert table.slice(3000).to_pylist() == [
        {"id": 3000, "name": "x", "price": 1.5},
        {"id": 3001, "name": "", "price": 2.5},
    ]


@pytest.mark.parametrize("other", [["--resume"], ["--mode", "x"], ["--roll-rows", "5"]])
def test_with_another_option(other: list[str], original: Callable[[str], Path]) -> None:
    path = original("ours")
    before = path.read_bytes()
    more = path.with_name("more.csv")
    more.write_text("id,name,price\n")
    assert run(["write", str(more), str(path), "--append", *other]) == 2
    assert path.read_bytes() == before


def test_to_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert run(["write", str(tmp_path / "a.csv"), str(tmp_path / "a.parquet"), "--append"]) == 4
    assert "rpq write" in capsys.readouterr().err
