"""Every document that `rpq --json` prints has the keys that docs/json.md says, and no others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trevni_bytes import write_trevni

Run = Callable[..., Any]
TEXT = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
SECTIONS = dict(part.split("\n", 1) for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:])
OF_ALL = SECTIONS["Every verb"]


def _keys(section: str) -> set[str]:
    """The keys in the first columns of its tables."""
    rows = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def _words(section: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", section))


def _sections(verb: str) -> list[str]:
    """Those whose titles name a verb, or its group."""
    names = {verb, verb.split(maxsplit=1)[0], *(["recover"] if verb == "demo" else [])}
    return [text for title, text in SECTIONS.items() if any(f"`{name}`" in title for name in names)]


def assert_documented(document: dict[str, Any]) -> None:
    verb, keys = document["verb"], set(document)
    required = _keys(OF_ALL)
    if "files" in keys and "outcomes" in keys:
        assert required <= keys <= required | _keys(SECTIONS["Many files"]) | _words(SECTIONS["Many files"])
        worst = _words(SECTIONS["Many files"])
        assert all(set(each) <= worst for each in document["worst"])
        return
    if document["outcome"] in ("error", "interrupted"):
        assert keys - {"error"} == required | {"notes"}
        assert ("error" in keys) == (document["outcome"] == "error")
        assert set(document.get("error", ())) <= {"type", "message", "where", "hint"}
        return
    sections = _sections(verb)
    assert required <= keys, (verb, required - keys)
    assert keys <= required.union(*map(_words, sections)), (verb, keys - required)
    if verb in ("check", "recover", "convert", "inspect"):
        assert set().union(*map(_keys, sections)) <= keys | {"uploads"}, verb
    for finding in document["findings"]:
        assert set(finding) == _keys(SECTIONS["A finding"])
    ledger = document.get("ledger")
    if ledger is not None:
        parts = SECTIONS["The ledger"].split("\nA")
        assert set(ledger) == _keys(parts[0])
        for entry in ledger["rows"]:
            assert set(entry) == _keys(parts[1])
        for region in ledger["regions"]:
            assert set(region) <= _keys(parts[2])
    for lost in document.get("lost", ()):
        assert set(lost) <= _words(SECTIONS["`recover`, `seal` and `convert`"]) | _keys(SECTIONS["A finding"])


@pytest.fixture
def folder(tmp_path: Path, sound: Path, torn: Path, flipped: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for path in (sound, torn, flipped):
        path.rename(tmp_path / path.name.replace("torn file", "torn"))
    write_trevni(tmp_path / "old.trv", {"a": [1, 2, 3]})
    Path("empty.parquet").write_bytes(b"")
    Path("files").mkdir()
    Path("files/a.parquet").write_bytes(Path("sound.parquet").read_bytes())
    return tmp_path


LINES = [
    "check sound.parquet", "check torn.parquet", "check flipped.parquet", "check empty.parquet", "check none.parquet",
    "check files", "check sound.parquet none.parquet", "check none/", "recover torn.parquet r1.parquet",
    "recover flipped.parquet r2.parquet --on-damage null", "recover flipped.parquet r3.parquet --on-damage columns",
    "recover flipped.parquet r4.parquet --on-damage raise", "recover empty.parquet r5.parquet", "recover files out",
    "seal sound.parquet s.parquet", "seal torn.parquet s2.parquet", "recover sound.parquet", "recover sound.parquet sound.parquet", "convert old.trv c.parquet",
    "convert sound.parquet c2.parquet", "inspect sound.parquet --row-groups --chunks --pages number",
    "inspect torn.parquet", "inspect files", "inspect sound.parquet --pages none", "cat sound.parquet --head 1",
    "cat flipped.parquet --on-damage null", "cat flipped.parquet", "write sound.parquet w.parquet", "write - w2.parquet",
    "write sound.parquet set --roll-rows 600", "write sound.parquet w.parquet --mode x", "write none.csv w3.parquet",
    "metadata files", "metadata none", "uploads list s3://", "uploads complete sound.parquet", "uploads abort none/",
    "check", "nonsense", "check --storage-option nonsense a", "check me:secret@host/a.parquet", "demo --rows 2000",
]  # fmt: skip


def test_every_document_is_as_documented(folder: Path, rpq_run: Run) -> None:
    outcomes = set()
    for line in LINES:
        ended = rpq_run(*line.split(), "--json", stdin=b"" if " - " in line else None)
        documents = (
            [json.loads(ended.out)] if ended.out.startswith("{\n") else list(map(json.loads, ended.out.splitlines()))
        )
        assert documents, (line, ended.err)
        for document in documents:
            assert_documented(document)
            if document.get("error", {}).get("type", "UsageError") != "UsageError":
                assert document["url"], line
            assert "secret" not in ended.out
            outcomes.add(document["outcome"])
    assert outcomes >= {"sound", "damaged", "partial", "nothing", "written", "read", "held", "error"}
