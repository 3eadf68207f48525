"""The sizes and names that keep the code learnable: files in a folder, lines in a file and a function, complexity."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import resilient_pq

PACKAGE = Path(resilient_pq.__file__).parent
KERNELS = PACKAGE / "format" / "kernels"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
SOURCES = sorted(path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".pyx", ".pxi", ".h"})
MAX_FILES_IN_A_FOLDER = 22
MAX_LINES_OF_A_FILE, MAX_LINES_OF_A_KERNEL_FILE = 400, 500
MAX_LINES_OF_A_FUNCTION = 60
MAX_COMPLEXITY, MAX_COMPLEXITY_OF_ASYNC = 15, 10

Function = ast.FunctionDef | ast.AsyncFunctionDef
#: What makes a function branch, as McCabe counts it.
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.match_case)


@cache
def functions() -> list[tuple[Path, Function]]:
    return [
        (path, node)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, Function)
    ]


def num_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def named(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def body_of(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions in it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def complexity(function: Function) -> int:
    branches = sum(isinstance(node, BRANCHES) for node in body_of(function))
    return 1 + branches + sum(len(node.values) - 1 for node in body_of(function) if isinstance(node, ast.BoolOp))


def test_folders_have_few_files() -> None:
    folders = Counter(path.parent for path in SOURCES if path.name != "__init__.py")
    assert {named(folder): count for folder, count in folders.items() if count > MAX_FILES_IN_A_FOLDER} == {}


def test_files_are_short() -> None:
    long = {}
    for path in SOURCES:
        limit = MAX_LINES_OF_A_KERNEL_FILE if path.is_relative_to(KERNELS) else MAX_LINES_OF_A_FILE
        if (lines := num_lines(path)) > limit:
            long[named(path)] = lines
    assert long == {}


def test_functions_are_short() -> None:
    """From the name to the last line, without the docstring."""
    long = {}
    for path, node in functions():
        documented = node.body[0] if ast.get_docstring(node) else None
        docstring = documented.end_lineno - documented.lineno + 1 if documented and documented.end_lineno else 0
        lines = (node.end_lineno or 0) - node.lineno + 1 - docstring
        if lines > MAX_LINES_OF_A_FUNCTION:
            long[f"{named(path)}:{node.name}"] = lines
    assert long == {}


def test_functions_are_simple() -> None:
    """Asynchronous functions are shells: what they decide is decided by others, which tests call without a loop."""
    complex_ones = {}
    for path, node in functions():
        limit = MAX_COMPLEXITY_OF_ASYNC if isinstance(node, ast.AsyncFunctionDef) else MAX_COMPLEXITY
        if (count := complexity(node)) > limit:
            complex_ones[f"{named(path)}:{node.name}"] = count
    assert complex_ones == {}


def test_no_two_modules_have_one_name() -> None:
    """Reference kernels are named like the encodings whose meaning they are."""
    names = defaultdict(list)
    for path in MODULES:
        if not path.is_relative_to(KERNELS / "reference"):
            names[path.stem.removesuffix("s")].append(named(path))
    assert [paths for paths in names.values() if len(paths) > 1] == []


def test_no_two_public_classes_have_one_name() -> None:
    names = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                names[node.name].append(named(path))
    assert {name: paths for name, paths in names.items() if len(paths) > 1} == {}


@pytest.mark.parametrize(("source", "count"), [("if a: pass", 1), ("if a and b: pass", 2), ("[x for x in y if x]", 1)])
def test_what_complexity_counts(source: str, count: int) -> None:
    function = ast.parse(f"def f():\n    {source}").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert complexity(function) == 1 + count
