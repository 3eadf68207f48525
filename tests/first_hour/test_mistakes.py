"""Fifty mistakes of a new user: each gives one error that names place and cause, and no traceback."""

from __future__ import annotations

import io
import os
import shlex
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from resilient_pq import sync as rpq
from resilient_pq.cli.main import run

#: Command lines, the exit status, and words that the error has to have.
COMMANDS = [
    ("write a.csv out.parquet --compression zst", 2, ["zst", "zstd"]),
    ("write a.csv missing/x.parquet", 4, ["no such folder", "missing"]),
    ("write missing.csv out.parquet", 4, ["missing.csv"]),
    ("write semi.csv out.parquet", 1, ["semi.csv", "--delimiter"]),
    ("write bad.jsonl out.parquet", 1, ["row 2", "bad.jsonl"]),
    ("write a.csv", 2, ["DST"]),
    ("write a.csv out.parquet --row-group-rows 0", 2, ["at least 1"]),
    ("write a.csv out.parquet --row-group-rows many", 2, ["row-group-rows"]),
    ("write a.csv out.parquet --compress zstd", 2, ["--compress", "--compression"]),
    ("write a.csv day.parquet --mode x", 4, ["day.parquet", "exists"]),
    ("write a.csv day.parquet --mode a", 2, ["mode", "'w'"]),
    ("write a.xlsx out.parquet", 2, ["a.xlsx", ".csv"]),
    ("write a.csv s3://", 2, ["names no object", "s3://bucket"]),
    ("write a.csv https://host/x.parquet", 2, ["can only be read"]),
    ("write a.csv out.parquet --types id=integer", 2, ["integer", "int64"]),
    ("write a.csv out.parquet --types nope=string", 2, ["nope", "id, name"]),
    ("cat missing.parquet", 4, ["missing.parquet"]),
    ("cat text.parquet", 3, ["text file", "rpq write", "text.parquet"]),
    ("head text.parquet", 3, ["text file", "--format csv"]),
    ("schema text.parquet", 3, ["text file", "--format csv"]),
    ("count text.parquet", 3, ["text file", "--format csv"]),
    ("seal text.parquet new.parquet", 3, ["text file", "--format csv"]),
    ("seal full new.parquet", 2, ["one file, not a folder"]),
    ("seal 'full/*.parquet' new.parquet", 2, ["one file, not a folder"]),
    ("write a.csv out.parquet --compression nope=zstd", 2, ["no column 'nope'", "id, name"]),
    ("write a.csv out.parquet --compression-level id=high", 2, ["COLUMN=NUMBER"]),
    ("cat torn.parquet", 1, ["footer", "rpq recover torn.parquet"]),
    ("cat empty.parquet", 3, ["empty"]),
    ("cat day.parquet --columns nope", 2, ["nope", "id, city"]),
    ("cat day.parquet --head -3", 2, ["--head"]),
    ("cat day.parquet --columns", 2, ["--columns"]),
    ("check missing.parquet", 4, ["missing.parquet"]),
    ("check empty", 4, ["the folder is empty"]),
    ("check missing/", 4, ["no such folder"]),
    ("check 'full/*.csv'", 4, ["no file matches"]),
    ("chek day.parquet", 2, ["chek", "check"]),
    ("check", 2, ["URL"]),
    ("recover torn.parquet", 2, ["new one"]),
    ("recover torn.parquet torn.parquet", 2, ["the file that is read"]),
    ("recover torn.parquet day.parquet", 4, ["exists", "--overwrite"]),
    ("recover torn.parquet new.parquet --on-damage skip", 2, ["skip", "drop"]),
    ("recover torn.parquet new.parquet --schema-from missing.parquet", 4, ["missing.parquet"]),
    ("recover text.parquet new.parquet", 3, ["text"]),
    ("recover missing.parquet new.parquet", 4, ["missing.parquet"]),
    ("inspect torn.parquet", 1, ["footer", "rpq recover"]),
    ("inspect day.parquet --pages nope", 2, ["nope", "id, city"]),
    ("protect missing.parquet", 4, ["missing.parquet"]),
    ("protect day.parquet --parity lots", 2, ["lots", "5%"]),
    ("repair day.parquet x.parquet", 4, ["no sidecar", "--sidecar"]),
    ("repair day.parquet", 2, ["--in-place"]),
    ("seal torn.parquet x.parquet", 2, ["whole file", "rpq recover"]),
    ("metadata empty", 4, ["the folder is empty"]),
    ("uploads list day.parquet", 2, ["s3://bucket/key"]),
    ("convert day.parquet x.parquet", 3, ["no Trevni file"]),
]
#: The same in Python: what is called, and words of the error.
CALLS: list[tuple[str, list[str]]] = [
    ("rpq.open('day.parquet').reed()", ["reed"]),
    ("rpq.read('day.parquet', ['nope'])", ["nope", "id, city"]),
    ("rpq.read('day.parquet', filters=[('id', '~', 1)])", ["~"]),
    ("rpq.read('torn.parquet')", ["footer", "rpq recover torn.parquet"]),
    ("rpq.read(5)", ["type int"]),
    ("rpq.write('out.parquet', 5)", ["type int"]),
    ("rpq.write('out.parquet', {'a': [1, 'x']})", ["a"]),
    ("rpq.write('out.parquet', {'a': [1], 'b': [1, 2]})", ["b"]),
    ("rpq.write('out.parquet', {'a': [1]}, compression='gz')", ["gz", "gzip"]),
    ("rpq.create('out.parquet', row_group_rows='x')", ["row_group_rows"]),
    ("rpq.open('day.parquet', on_damage='skip')", ["skip"]),
    ("rpq.check('missing.parquet')", ["missing.parquet"]),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    rpq.write(folder / "day.parquet", {"id": list(range(1000)), "city": ["Oslo"] * 1000})
    (folder / "torn.parquet").write_bytes((folder / "day.parquet").read_bytes()[:600])
    (folder / "empty.parquet").touch()
    (folder / "text.parquet").write_text("id,name\n" + "1,x\n" * 100)
    (folder / "a.csv").write_text("id,name\n1,x\n")
    (folder / "a.xlsx").write_bytes(b"PK")
    (folder / "semi.csv").write_text("id;name\n1;x\n")
    (folder / "bad.jsonl").write_text('{"a":1}\n{"a":\n')
    (folder / "empty").mkdir()
    (folder / "full").mkdir()
    shutil.copy(folder / "day.parquet", folder / "full")
    return folder


@pytest.mark.parametrize(("line", "code", "words"), COMMANDS, ids=[line for line, _, _ in COMMANDS])
def test_a_command_says_what_is_wrong(
    files: Path, monkeypatch: pytest.MonkeyPatch, line: str, code: int, words: list[str]
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setenv("COLUMNS", "200")
    before = sorted(os.listdir(files))
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert run(shlex.split(line)) == code
    said = err.getvalue()
    assert sum(each.lower().startswith("error") for each in said.splitlines()) == 1, said
    assert all(word in out.getvalue() + said for word in words), said
    assert "Traceback" not in said and "Value error" not in said and "Input should" not in said
    assert sorted(os.listdir(files)) == before


@pytest.mark.parametrize(("source", "words"), CALLS, ids=[source for source, _ in CALLS])
def test_a_call_says_what_is_wrong(files: Path, monkeypatch: pytest.MonkeyPatch, source: str, words: list[str]) -> None:
    monkeypatch.chdir(files)
    names: dict[str, Any] = {"rpq": rpq}
    with pytest.raises((rpq.ResilientPQError, AttributeError)) as raised:
        eval(source, names)
    assert all(word in str(raised.value) for word in words), str(raised.value)
    assert not (files / "out.parquet").exists()
