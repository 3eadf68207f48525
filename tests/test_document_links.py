"""The documents for maintainers name modules that are there, and lead to files that are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import resilient_pq

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(resilient_pq.__file__).parent
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
DOCUMENTS = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "decisions" / "README.md",
    *DECISIONS,
]
DOTTED = re.compile(r"`(?:resilient_pq\.)?([a-z_0-9]+(?:\.[A-Za-z_0-9]+)+)`")
WORD = re.compile(r"`([a-z0-9]+(?:_[a-z0-9]+)+)`")
PATH = re.compile(r"`((?:[a-z_0-9]+/)+[a-z_0-9]+\.[a-z]+)`")
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
FOLDERS = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
SECTIONS = ["Context", "Decision", "Alternatives", "Consequences"]


@cache
def words() -> set[str]:
    """Every word in the sources of the package, and what its modules and folders are called."""
    sources = [path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".pyx", ".pxi"}]
    found = {word for path in sources for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    return found | {path.stem for path in sources} | {path.parent.name for path in sources}


def is_there(name: str) -> bool:
    """Whether a dotted name is a module or a folder of the package, or a name in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:length])
        found = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)
        if found is not None:
            tree = ast.walk(ast.parse(found.read_text(encoding="utf-8")))
            return not parts[length:] or parts[length] in {getattr(node, "name", None) for node in tree}
    return False


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_is_there(document: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    names = {name for name in DOTTED.findall(prose) if name.split(".")[0] in FOLDERS and not name.endswith(".py")}
    assert [name for name in sorted(names) if not is_there(name)] == []
    assert [word for word in sorted({*WORD.findall(prose)}) if word not in words()] == []
    paths = set(PATH.findall(re.sub(r"^New file `.*", "", prose, flags=re.MULTILINE)))
    assert [path for path in sorted(paths) if not ((PACKAGE / path).exists() or (ROOT / path).exists())] == []
    links = {link for link in LINK.findall(prose) if "://" not in link}
    assert [link for link in sorted(links) if not (document.parent / link).exists()] == []


def test_decisions_have_one_form_and_are_in_the_index() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    for number, path in enumerate(DECISIONS, 1):
        text = path.read_text(encoding="utf-8")
        assert path.name.startswith(f"{number:04}-")
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
        assert re.search(r"^Date: \d{4}-\d{2}-\d{2}.*Status: \w+", text, re.MULTILINE)
        assert f"[{number:04}]({path.name})" in index
