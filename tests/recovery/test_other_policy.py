"""Where a policy keeps next to nothing, and another nearly all: the report says so, with the command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import sync as rpq
from resilient_pq.cli.main import run

ROWS = 20_000


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """The first part of a file with one row group, as pandas writes it; the whole file beside it."""
    draw = np.random.default_rng(1)
    table = pa.table(
        {"id": range(ROWS), "name": [f"n{i % 97}" for i in range(ROWS)], "x": draw.random(ROWS), "y": draw.random(ROWS)}
    )
    pq.write_table(table, tmp_path / "whole.parquet")
    data = (tmp_path / "whole.parquet").read_bytes()
    with pq.ParquetFile(tmp_path / "whole.parquet") as file:
        last = file.metadata.row_group(0).column(3)
        cut = last.dictionary_page_offset or last.data_page_offset
    (tmp_path / "torn.parquet").write_bytes(data[: cut + 100])
    return tmp_path / "torn.parquet"


def test_the_report_names_the_policy_that_keeps_more(torn: Path) -> None:
    with pytest.raises(rpq.NothingToRecoverError, match="nothing") as raised:
        rpq.recover(torn, torn.with_name("out.parquet"), schema_from=torn.with_name("whole.parquet"))
    report: rpq.Report = raised.value.report
    assert raised.value.hint is not None and "keeps 20,000 rows: id, name, x whole, y lost" in raised.value.hint
    assert report.other_policy is not None
    assert (report.other_policy.on_damage, report.other_policy.num_rows) == ("null", ROWS)
    assert dict(report.other_policy.columns) == {"id": 1.0, "name": 1.0, "x": 1.0, "y": 0.0}
    assert report.to_json()["other_policy"]["rows"] == ROWS and "keeps 20,000 rows" in str(report)


def test_the_printed_command_keeps_the_rows(torn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "recover",
        str(torn),
        str(torn.with_name("out.parquet")),
        "--schema-from",
        str(torn.with_name("whole.parquet")),
    ]
    assert run(arguments) == 3
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next ")]
    assert run(shlex.split(line.removeprefix("next"))[1:]) == 1
    assert "20,000 rows" in capsys.readouterr().out
    found = pq.read_table(torn.with_name("out.parquet"))
    assert found["id"].to_pylist() == list(range(ROWS)) and found["y"].null_count == ROWS


@pytest.mark.parametrize("on_damage", ["drop", "null"])
def test_nothing_is_said_where_the_chosen_policy_keeps_as_much(tmp_path: Path, on_damage: Any) -> None:
    with rpq.create(tmp_path / "a", row_group_rows=1000) as writer:
        writer.write({"a": list(range(5000))})
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(data[: len(data) // 2])
    report = rpq.recover(tmp_path / "a", tmp_path / "b", on_damage=on_damage)
    assert report.other_policy is None and report.to_json()["other_policy"] is None
