"""A script that uses `resilient_pq.sync` is checked by mypy and pyright, both strict: nothing in it is `Any`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import resilient_pq
from resilient_pq import sync as rpq

ROOT = Path(__file__).parents[2]
USER = """\
from collections.abc import Generator
from typing import Any, assert_type
from resilient_pq import sync as rpq

with rpq.create("f.parquet", options=rpq.WriteOptions()) as writer:
    assert_type(writer, rpq.Writer)
    writer.write({"a": [1]})
    assert_type(writer.checkpoint(), rpq.Checkpoint)
    assert_type(writer.num_rows, int)
with rpq.create_dataset("folder", partition_by="a") as sink:
    assert_type(sink, rpq.DatasetWriter)
    assert_type(sink.checkpoint(), rpq.DatasetCheckpoint)
    assert_type(sink.files, tuple[rpq.DatasetFile, ...])
with rpq.open("f.parquet") as file:
    assert_type(file, rpq.File)
    assert_type(file.url, str)
    assert_type(file.schema, rpq.Schema)
    assert_type(file.read(columns=["a"], limit=3), rpq.Table)
    assert_type(file.batches(), rpq.Batches)
    for batch in file.batches():
        assert_type(batch, rpq.Table)
    assert_type(file.records(), Generator[dict[str, Any], None, None])
    assert_type(file.column_index(0, "a"), rpq.DecodedColumnIndex | None)
    assert_type(file.plan(filters=[("a", ">", 1)]), rpq.PlannedRead)
    file.__arrow_c_stream__()
with rpq.open_many(["f.parquet"], on_damage="drop") as dataset:
    assert_type(dataset, rpq.Dataset)
    assert_type(dataset.read(), rpq.Table)
    dataset.__arrow_c_schema__()
with rpq.open_trevni("f.trv") as old:
    assert_type(old.read(), rpq.Table)
with rpq.check_many("folder") as results:
    for result in results:
        assert_type(result, rpq.FileResult)
    assert_type(results.finish(), rpq.RunSummary)
assert_type(rpq.recover_many("folder", "saved"), rpq.FileResults)
assert_type(rpq.read("f.parquet", ["a"]), rpq.Table)
assert_type(rpq.write("f.parquet", {"a": [1]}), rpq.Writer)
assert_type(rpq.check("f.parquet"), rpq.Report)
assert_type(rpq.recover("f.parquet", "g.parquet"), rpq.Report)
assert_type(rpq.protect("f.parquet"), rpq.Protection)
assert_type(rpq.repair("f.parquet"), rpq.Repair)
assert_type(rpq.scan("f.parquet"), rpq.Scan)
assert_type(rpq.write_metadata("folder"), rpq.WrittenMetadata)
assert_type(rpq.list_uploads("s3://bucket"), list[rpq.Upload])
with rpq.ParquetWriter("f.parquet", rpq.open("f.parquet")) as kept:
    kept.write_table(rpq.read("f.parquet"))
"""
MISTAKES = [
    ('rpq.open("f.parquet", verfy=True)', "verfy"),
    ('rpq.open("f.parquet").raed()', "raed"),
    ('rpq.create("f.parquet", row_group_rows="3")', '"int | None"'),
    ('rpq.resume("f.parquet", metadata={})', "metadata"),
]


@pytest.mark.skipif(not (ROOT / "scripts").is_dir(), reason="the scripts are not there")
def test_the_stub_is_what_the_script_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from sync_stub import Stub

    made = (Path(resilient_pq.__file__).parent / "sync.pyi").read_text(encoding="utf-8")
    assert made == Stub().text(), "python scripts/sync_stub.py"


@pytest.mark.thorough
def test_mypy(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    script = tmp_path / "script.py"
    script.write_text(USER + "\n".join(code for code, _ in MISTAKES))
    out, err, _ = api.run(["--strict", f"--cache-dir={tmp_path}", "--config-file=", str(script)])
    found = [line for line in out.splitlines() if "script.py" in line and " error: " in line]
    _assert_only_mistakes(found, out + err)


@pytest.mark.thorough
@pytest.mark.skipif(
    find_spec("pyright") is None and "RPQ_REQUIRE_PYRIGHT" not in os.environ, reason="pyright is not installed"
)
def test_pyright(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(USER + "\n".join(code for code, _ in MISTAKES))
    settings = {"typeCheckingMode": "strict", "include": ["script.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, timeout=200, capture_output=True, text=True, check=False)
    found: list[Any] = json.loads(done.stdout)["generalDiagnostics"]
    own = [each for each in found if each["rule"] != "reportUnknownMemberType"]
    _assert_only_mistakes([each["message"] for each in own], done.stdout)


def _assert_only_mistakes(found: list[str], out: str) -> None:
    assert len(found) == len(MISTAKES), out
    for message, (code, said) in zip(found, MISTAKES, strict=True):
        assert said in message or "int | None" in message, (code, message)


def test_documentation_is_of_blocking_code() -> None:
    assert "with rpq.open(url) as file" in (rpq.open.__doc__ or "")
    texts = {name: getattr(rpq, name).__doc__ or "" for name in ("open", "create", "open_many", "check_many", "resume")}
    texts |= {name: getattr(rpq.File, name).__doc__ or "" for name in ("read", "batches", "records")}
    texts |= {"write": rpq.Writer.write.__doc__ or "", "close": rpq.Writer.close.__doc__ or ""}
    assert all(text and "async with" not in text and "async for" not in text for text in texts.values())
    assert "row_group_rows" in (rpq.create.__doc__ or "")


def test_instances_are_of_the_public_classes(tmp_path: Path) -> None:
    with rpq.create(tmp_path / "f.parquet") as writer:
        writer.write({"a": [1]})
    assert isinstance(writer, rpq.Writer)
    with rpq.open(tmp_path / "f.parquet") as file:
        assert isinstance(file, rpq.File)
        assert isinstance(file.batches(), rpq.Batches)
        assert repr(file) == f"<resilient_pq.File: {tmp_path}/f.parquet, 1 row in 1 row group, 1 column>"
