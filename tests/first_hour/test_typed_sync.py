"""What type checkers and editors see of `resilient_pq.sync`."""

from __future__ import annotations

import inspect
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import resilient_pq
from resilient_pq import sync as rpq

ROOT = Path(__file__).parents[2]
STUB = Path(resilient_pq.__file__).with_name("sync.pyi")

#: Each expression of a user with the type that it is to have, and calls that no object has.
SCRIPT = """
from typing import assert_type
from collections.abc import Generator
from typing import Any
from resilient_pq import sync as rpq

with rpq.create("a.parquet", compression="zstd") as writer:
    assert_type(writer, rpq.Writer)
    writer.write({"a": [1]})
    assert_type(writer.checkpoint(), rpq.Checkpoint)
    assert_type(writer.num_rows, int)
with rpq.open("a.parquet") as file:
    assert_type(file, rpq.File)
    assert_type(file.read(columns=["a"]), rpq.Table)
    assert_type(file.batches(), rpq.Batches)
    for batch in file.batches():
        assert_type(batch, rpq.Table)
    assert_type(file.records(), Generator[dict[str, Any], None, None])
    assert_type(file.plan(), rpq.PlannedRead)
with rpq.open_many("folder/") as dataset:
    assert_type(dataset, rpq.Dataset)
    assert_type(dataset.read(), rpq.Table)
with rpq.create_dataset("folder/") as sink:
    assert_type(sink, rpq.DatasetWriter)
assert_type(rpq.read("a.parquet"), rpq.Table)
assert_type(rpq.check("a.parquet"), rpq.Report)
assert_type(rpq.recover("a.parquet", "b.parquet"), rpq.Report)
assert_type(rpq.check_many("folder/").finish(), rpq.RunSummary)
assert_type(rpq.resume("a.parquet"), rpq.Writer)
"""
MISTAKES = """
from resilient_pq import sync as rpq

rpq.open("a.parquet").reed()
rpq.create("a.parquet").wirte({})
rpq.create("a.parquet", compresion="zstd")
rpq.read("a.parquet", columns=7)
rpq.opne("a.parquet")
"""


def test_the_stub_is_what_the_code_says() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "sync_stub.py"))
    assert STUB.read_text() == script["page"](), "run python scripts/sync_stub.py"
    assert STUB.with_name("name_table.py").read_text() == script["table"](), "run python scripts/sync_stub.py"


def test_objects_are_of_the_public_classes(tmp_path: Path) -> None:
    with rpq.create(tmp_path / "a.parquet") as writer:
        assert isinstance(writer, rpq.Writer)
        writer.write({"a": [1, 2]})
    with rpq.open(tmp_path / "a.parquet") as file:
        assert isinstance(file, rpq.File) and isinstance(file.batches(), rpq.Batches)
        assert "a.parquet" in repr(file) and len(repr(file)) < 300
        assert {"read", "batches", "num_rows", "url"} <= set(dir(file))


def test_names_and_docstrings_are_those_of_blocking_functions() -> None:
    assert dir(rpq) == sorted(rpq.__all__)
    said = {name: getattr(rpq, name).__doc__ or "" for name in dir(rpq) if name != "__version__"}
    said |= {f"File.{name}": getattr(rpq.File, name).__doc__ or "" for name in ("read", "batches", "records")}
    functions = {name: text for name, text in said.items() if "." in name or inspect.isfunction(getattr(rpq, name))}
    assert [name for name, text in functions.items() if "async with" in text or "async for" in text] == []
    assert "with rpq.open(url)" in said["open"]
    assert inspect.signature(rpq.open).return_annotation == "File"


@pytest.mark.thorough
@pytest.mark.parametrize("checker", [["mypy", "--strict"], ["pyright"]])
def test_type_checkers_see_types_and_mistakes(checker: list[str], tmp_path: Path) -> None:
    pytest.importorskip(checker[0])
    (tmp_path / "right.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text(MISTAKES)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')

    def checked(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", *checker, name]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    right, wrong = checked("right.py"), checked("wrong.py")
    assert right.returncode == 0, right.stdout + right.stderr
    lines = {line.split(":")[1] for line in wrong.stdout.splitlines() if "wrong.py:" in line and "error" in line}
    assert lines == {"4", "5", "6", "7", "8"}, wrong.stdout
