"""`rpq write --table`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from table_places import KINDS, Place

from resilient_pq.cli.main import run


@pytest.mark.parametrize(("kind", "named"), [("iceberg", "iceberg:{}/web.events"), ("delta", "delta:{}")])
def test_rows_are_written_into_a_table(
    kind: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path / "tables", *KINDS[kind])
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"id": {at}}}\n' for at in range(30)))
    command = [
        "write",
        str(tmp_path / "rows.jsonl"),
        place.data,
        "--table",
        named.format(place.folder),
        "--roll-rows",
        "10",
    ]
    assert run([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["table"], len(said["files"])) == (named.format(place.folder), 3)
    assert place.ids() == list(range(30))
    assert run([*command, "--resume"]) == 0
    assert "committed   to " in capsys.readouterr().out
    assert place.ids() == list(range(30))


@pytest.mark.parametrize(("table", "said"), [("parquet:x", "is no table"), ("iceberg:events", "namespace")])
def test_what_is_no_table(table: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["write", "rows.csv", str(tmp_path / "events"), "--table", table]) == 2
    assert said in capsys.readouterr().err
