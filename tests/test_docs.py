"""The code in the README and in docs/ runs, and every command and option of `rpq` is written down."""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib.util
import inspect
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from sampled import either
from trevni_bytes import write_trevni

from resilient_pq.cli.main import run as cli
from resilient_pq.cli.output.verb_output import STYLE_OF
from resilient_pq.damage.lost_region import Damage

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks of a language to run: neither ``no-run`` nor a title, the name of a file, stands behind it."""
    found = FENCE.findall(document.read_text())
    return [body for name, rest, body in found if name == language and "no-run" not in rest and "title=" not in rest]


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
    put_files(document, tmp_path)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__docs__", "__builtins__": builtins}
    for number, source in enumerate(blocks(document, "python")):
        code = compile(source, f"{document.name}[{number}]", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = types.FunctionType(code, namespace)()
        if inspect.iscoroutine(result):
            asyncio.run(result)


@pytest.mark.parametrize("run", either(["here"], ["in_shell"]))
@pytest.mark.parametrize("document", with_blocks("console"))
def test_console_blocks_run(document: Path, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands print what the document says, numbers, spacing and temporary folders left aside."""
    run_blocks(document, {"here": here, "in_shell": in_shell}[run], tmp_path, monkeypatch)


def put_files(document: Path, folder: Path) -> None:
    """The blocks that have a title, as files, and the file of another format that documents read."""
    for name, body in re.findall(
        r'^```\w+ title="([^"]+)"\n(.*?)^```$', document.read_text(), re.MULTILINE | re.DOTALL
    ):
        (folder / name).write_text(body)
    write_trevni(folder / "old.trv", {"day": [1, 2, 3], "tags": [["a"], [], ["b", "c"]]})


def run_blocks(document: Path, run: Callable[[str], str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the console blocks of a document in a folder, and compare what they print."""
    put_files(document, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    if shutil.which("rpq") is None:
        pytest.fail("the command rpq is not installed beside this Python")
    for block in blocks(document, "console"):
        for command, expected in sessions(block):
            printed = run(command)
            assert normal(printed) == normal(expected), f"$ {command}\n{printed}"


#: A command without a pipe, a list or a variable, and where its output goes.
_SIMPLE = re.compile(r"(rpq|python -c) ((?:\"[^\"]*\"|[^|&;<>$\"])+?)(?: > (\S+))?(?: 2> (\S+))?")


def here(command: str) -> str:
    """What a command prints: one of ours within this process, which takes a tenth of the time; others in a shell."""
    simple = _SIMPLE.fullmatch(command)
    if simple is None:
        return in_shell(command)
    program, words, *files = simple.groups()
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with ExitStack() as stack:
        out, err = (stack.enter_context(open(name, "w")) if name else printed for name in files)
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        if program == "rpq":
            cli(shlex.split(words))
        else:
            (source,) = shlex.split(words)
            exec(compile(source, command, "exec"), {"__name__": "__docs__"})
    return printed.buffer.getvalue().decode()  # type: ignore[attr-defined]


def in_shell(command: str) -> str:
    """What a command prints as a process."""
    done = subprocess.run(
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    return done.stdout


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
    """Lines without the numbers, which differ from run to run, repeated spaces, and what a shell says of a killed job."""
    output = re.sub(r"/tmp/[\w.-]+", "TMP", output.replace(tempfile.gettempdir(), "/tmp"))
    lines = (re.sub(r"\d[\d,.]*", "N", line) for line in output.splitlines())
    return [re.sub(r"\s+", " ", line).strip() for line in lines if line.strip() not in {"", "Killed"}]


@pytest.mark.parametrize("damage", Damage)
def test_every_kind_of_damage_is_described_and_has_a_colour(damage: Damage) -> None:
    row = re.search(r"^\| `damage` \|.*$", (ROOT / "docs" / "json.md").read_text(), re.MULTILINE)
    assert row is not None
    assert f"`{damage}`" in row[0], "docs/json.md, A finding, lists the kinds of damage"
    assert damage in STYLE_OF, "_STYLES of resilient_pq/cli/output/verb_output.py has the colour of each"


def test_the_page_of_the_command_line_is_what_help_prints() -> None:
    """docs/cli.md is made by a script; run it again when a help text changes."""
    specification = importlib.util.spec_from_file_location("cli_docs", ROOT / "scripts" / "cli_docs.py")
    assert specification is not None and specification.loader is not None
    cli_docs = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(cli_docs)
    assert (ROOT / "docs" / "cli.md").read_text() == cli_docs.page(), "run: python scripts/cli_docs.py"
