"""The recipes of CONTRIBUTING.md work: their edits apply to a copy of the package, and their tests pass there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import resilient_pq

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(resilient_pq.__file__).resolve().parent
SECTION = re.compile(r"^### (?P<title>[^\n]+)\n(?P<body>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
NEW_FILE = re.compile(r"New file `(?P<path>[^`]+)`:")
EDIT = re.compile(r"In `(?P<path>[^`]+)`, (?P<how>below|above|in place of) the line `(?P<anchor>[^`]+)`:")

RECIPES_OF = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Recipes\n")[2]
RECIPES = {match["title"]: match["body"] for match in SECTION.finditer(RECIPES_OF)}


@dataclass(frozen=True)
class Step:
    """One edit of a recipe: a new file, or lines at an anchor, which is the beginning of one line of a file."""

    path: str
    code: str
    how: str = ""
    anchor: str = ""

    def apply(self, root: Path) -> None:
        file = root / self.path
        if not self.how:
            assert not (ROOT / self.path).exists(), f"{self.path} is there already"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.code, encoding="utf-8")
            return
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / self.path, file)
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        found = [number for number, line in enumerate(lines) if line.startswith(self.anchor)]
        assert len(found) == 1, f"{len(found)} lines of {self.path} begin with {self.anchor!r}"
        at = found[0]
        end = at + 1
        while self.how == "below" and lines[at].rstrip().endswith("import (") and not lines[end - 1].startswith(")"):
            end += 1  # an import of several lines
        start, stop = {"above": (at, at), "below": (end, end), "in place of": (at, at + 1)}[self.how]
        lines[start:stop] = [self.code]
        file.unlink()  # it may be linked to that of the package
        file.write_text("".join(lines), encoding="utf-8")


def steps(recipe: str) -> Iterator[Step]:
    """The edits of a recipe; each block of Python has the line before it say where it goes."""
    for match in FENCE.finditer(recipe):
        line = recipe[: match.start()].rstrip().rpartition("\n")[2]
        told = NEW_FILE.fullmatch(line) or EDIT.fullmatch(line)
        assert told is not None, f"what is to be done with this?\n{line}\n{match['code']}"
        yield Step(code=match["code"], **told.groupdict())


def test_every_kind_of_change_has_a_recipe() -> None:
    assert list(RECIPES) == [
        "Add an encoding",
        "Add a codec",
        "Add a store",
        "Add a verb of the command line",
        "Add a damage finding",
        "Add a write option",
    ]


def test_all_recipes_together(tmp_path: Path) -> None:
    follow(list(RECIPES), tmp_path)


@pytest.mark.thorough
def test_what_recipes_make_is_formatted_and_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    pytest.importorskip("ruff")
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "resilient_pq_command.py"):
        shutil.copy2(ROOT / name, tmp_path)
    for recipe in RECIPES.values():
        for step in steps(recipe):
            step.apply(tmp_path)
    for arguments in ("ruff check --fix .", "ruff format --check .", "mypy"):
        done = subprocess.run(
            [sys.executable, "-m", *arguments.split()], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("title", RECIPES)
def test_each_recipe_alone(title: str, tmp_path: Path) -> None:
    follow([title], tmp_path)


def follow(titles: list[str], tmp_path: Path) -> None:
    """Apply recipes to a copy of the package, and run their tests there."""
    tests = []
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name)
    for title in titles:
        edits = list(steps(RECIPES[title]))
        own = [step.path for step in edits if step.path.startswith("tests/")]
        assert own, f"{title}: a recipe has a test"
        tests += own
        for step in edits:
            step.apply(tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        "addopts = --import-mode=importlib --strict-markers -p no:cacheprovider\n"
    )
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "RPQ_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pytest_asyncio.plugin", *tests],
        cwd=tmp_path,
        env={**plain, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert all(f"{test} " in done.stdout for test in tests), done.stdout
