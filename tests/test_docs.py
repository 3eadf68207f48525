"""The code in the README and in docs/ runs, and every command and option of `rpq` is written down."""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks of a language, those left out that say ``no-run`` behind it."""
    found = FENCE.findall(document.read_text())
    return [body for name, rest, body in found if name == language and "no-run" not in rest]


def with_blocks(language: str) -> list[object]:
    """The documents that have something of a language to run."""
    return [
        pytest.param(document, id=str(document.relative_to(ROOT)))
        for document in DOCUMENTS
        if blocks(document, language)
    ]


@pytest.mark.parametrize("document", with_blocks("python"))
def test_python_blocks_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in one folder, `await` at the top level allowed, as in a notebook."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__docs__", "__builtins__": builtins}
    for number, source in enumerate(blocks(document, "python")):
        code = compile(source, f"{document.name}[{number}]", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = types.FunctionType(code, namespace)()
        if inspect.iscoroutine(result):
            asyncio.run(result)


#: Guides of which every command is a process take their time: the thorough suite runs those.
_LONG = ("recover-a-file.md",)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(*param.values, id=param.id, marks=pytest.mark.thorough)
        if param.values[0].name in _LONG
        else param
        for param in with_blocks("console")
    ],
)
def test_console_blocks_run(document: Path, tmp_path: Path) -> None:
    """Commands print what the document says, numbers, spacing and temporary folders left aside."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    if shutil.which("rpq", path=environment["PATH"]) is None:
        pytest.fail("the command rpq is not installed beside this Python")
    for block in blocks(document, "console"):
        for command, expected in sessions(block):
            done = subprocess.run(
                command,
                shell=True,
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=240,
                check=False,
            )
            assert normal(done.stdout) == normal(expected), f"$ {command}\n{done.stdout}"


def sessions(block: str) -> list[tuple[str, str]]:
    """The commands of a block, each with the output below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return [(command, "\n".join(lines)) for command, lines in found]


def normal(output: str) -> list[str]:
    """Lines without the numbers, which differ from run to run, and without trailing or repeated spaces."""
    output = re.sub(r"/tmp/[\w.-]+", "TMP", output.replace(tempfile.gettempdir(), "/tmp"))
    lines = (re.sub(r"\d[\d,.]*", "N", line) for line in output.splitlines())
    return [re.sub(r"\s+", " ", line).strip() for line in lines if line.strip()]


def test_the_page_of_the_command_line_is_what_help_prints() -> None:
    """docs/cli.md is made by a script; run it again when a help text changes."""
    specification = importlib.util.spec_from_file_location("cli_docs", ROOT / "scripts" / "cli_docs.py")
    assert specification is not None and specification.loader is not None
    cli_docs = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(cli_docs)
    assert (ROOT / "docs" / "cli.md").read_text() == cli_docs.page(), "run: python scripts/cli_docs.py"
