"""A sink that is killed at any step between a file and its commit: each stored row is in the table once afterwards."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import table_crash
from s3_servers import S3
from table_crash import STEPS

#: Named steps, each the first time and later, then moments by chance: 60 kills of each kind in each place.
KILLS: list[dict[str, Any]] = [
    *(
        {"step": step, "nth": nth}
        for step, nth in product(STEPS, (1, 2, 4))
        if nth == 1 or step not in ("ending", "ended")
    ),
    *({"seconds": random.Random(seed).uniform(0, 0.9)} for seed in range(28)),
]


@dataclass
class Run:
    """A program that writes into one table, as often as it takes."""

    told: dict[str, Any]

    def start(self, **kill: Any) -> int:
        command = [sys.executable, str(Path(table_crash.__file__)), json.dumps({**self.told, **kill})]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
        if done.returncode not in (0, -signal.SIGKILL):
            raise AssertionError(done.stderr.decode())
        return done.returncode

    def ids(self) -> list[int]:
        options = self.told["storage_options"] or {}
        if self.told["kind"] == "delta":
            import deltalake

            s3 = {"AWS_ENDPOINT_URL": options.get("endpoint_url", ""), "AWS_ALLOW_HTTP": "true"} if options else {}
            folder = self.told["folder"]
            if not deltalake.DeltaTable.is_deltatable(folder, s3):
                return []
            found = deltalake.DeltaTable(folder, storage_options=s3).to_pyarrow_table(columns=["id"])
        else:
            from pyiceberg.catalog import load_catalog
            from pyiceberg.exceptions import NoSuchTableError

            s3 = {"s3.endpoint": options.get("endpoint_url", "")} if options else {}
            catalog = load_catalog("default", type="sql", uri=f"sqlite:///{self.told['database']}", **s3)
            try:
                found = catalog.load_table("web.events").scan(selected_fields=("id",)).to_arrow()
            except NoSuchTableError:
                return []
        return sorted(found["id"].to_pylist())

    def survive(self, **kill: Any) -> None:
        code = self.start(**kill)
        ids = self.ids()
        assert len(ids) == len(set(ids)), "a row is there twice before the sink goes on"
        if "seconds" not in kill and kill["nth"] == 1 and not (kill["step"][0] == "(" and self.told["kind"] == "delta"):
            assert code, "the step was not reached"
        for _ in range(2):  # the second time all rows are there
            table_crash.write(self.told)
            assert self.ids() == list(range(self.told["num_rows"]))


def on_disk(kind: str, folder: Path, **told: Any) -> Run:
    (folder / "table").mkdir(parents=True)
    place = f"file://{folder}/table" if kind == "iceberg" else f"{folder}/table"
    database = str(folder / "c.db")
    return Run({"kind": kind, "folder": place, "database": database, "storage_options": None, **told})


@pytest.mark.parametrize(("kind", "partition_by"), [("iceberg", "day"), ("delta", None)])
def test_killed_between_a_commit_and_its_answer(kind: str, partition_by: str | None, tmp_path: Path) -> None:
    on_disk(kind, tmp_path, partition_by=partition_by, num_rows=40).survive(step="committed", nth=1)


@pytest.mark.thorough
@pytest.mark.parametrize("partition_by", [None, "day"])
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize("kill", KILLS, ids=str)
def test_killed_on_disk(kind: str, kill: dict[str, Any], partition_by: str | None, tmp_path: Path) -> None:
    on_disk(kind, tmp_path, partition_by=partition_by, num_rows=400).survive(**kill)


@pytest.mark.thorough
@pytest.mark.parametrize("s3_server", ["seaweedfs"], indirect=True)
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize("kill", KILLS, ids=str)
def test_killed_on_s3(kind: str, kill: dict[str, Any], s3: S3, tmp_path: Path) -> None:
    told = {"kind": kind, "folder": s3.url("table"), "database": str(tmp_path / "c.db"), "partition_by": "day"}
    Run({**told, "num_rows": 400, "storage_options": s3.storage_options}).survive(**kill)
