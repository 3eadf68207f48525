"""Commands that are printed can be run as they are, whatever a file is called; outputs are no more open than inputs."""

from __future__ import annotations

import ast
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trevni_bytes import write_trevni

import resilient_pq
from resilient_pq import sync as rpq
from resilient_pq.cli.output.wording import as_options
from resilient_pq.shell_commands import shell_line

ROOT = Path(__file__).parents[2]
Run = Callable[..., Any]
NAMES = ["-dash.parquet", 'it\'s a "name" $HOME;.parquet', "--help", "a\\b c.parquet", "ünïcode*.parquet"]
NAMES += ["new\nline\x1b[31m'\\.parquet", os.fsdecode(b"no \xff utf-8.parquet")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def _run_by_shell(line: str, rpq_command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a line as it is printed; `rpq` is the command under test."""
    script = f'rpq() {{ {" ".join(rpq_command)} "$@"; }}; {line}'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "name",
    [
        *(NAMES[1], NAMES[-2]),
        *(pytest.param(n, marks=pytest.mark.thorough) for n in (NAMES[0], *NAMES[2:-2], NAMES[-1])),
    ],
)
def test_what_check_says_to_run_next(name: str, folder: Path, torn: Path, rpq_run: Run, rpq_command: list[str]) -> None:
    shutil.copy(torn, folder / name)
    before = set(folder.iterdir())
    [line] = rpq_run("check", "--", name).words("next")
    done = _run_by_shell(line, rpq_command)
    assert done.returncode == 1, done.stderr  # rows are lost
    [made] = set(folder.iterdir()) - before
    assert rpq.check(made).num_rows == 500
    following = done.stdout.splitlines()[-1]
    assert following.startswith("next        ")
    assert "500 rows" in _run_by_shell(following[12:], rpq_command).stdout


_ANYTHING = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0") | st.sampled_from("'\\$`\n"))


@given(st.lists(_ANYTHING | st.binary().map(lambda data: os.fsdecode(data.replace(b"\0", b""))), min_size=1))
@settings(max_examples=20, deadline=None)
def test_a_line_for_a_shell(arguments: list[str]) -> None:
    line = shell_line(arguments)
    assert line.isprintable()
    said = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True, env={"LC_ALL": "C"}
    )
    assert said.stdout.split(b"\0")[:-1] == [os.fsencode(each) for each in arguments]


def test_a_file_that_a_writer_left(folder: Path, sound: Path, rpq_run: Run) -> None:
    """The hint names options that the command line has."""
    Path("out.parquet.partial").write_bytes(b"of a dead writer")
    assert "--overwrite-partial" in rpq_run("write", sound, "out.parquet").err
    assert rpq_run("write", sound, "out.parquet", "--overwrite-partial").code == 0


def test_the_hint_of_an_error(folder: Path, torn: Path, rpq_run: Run, rpq_command: list[str]) -> None:
    shutil.copy(torn, folder / NAMES[0])
    err = rpq_run("cat", "--", NAMES[0]).err
    hint = next(line[12:] for line in err.splitlines() if line.startswith("hint"))
    assert _run_by_shell(hint, rpq_command).returncode == 1
    assert rpq.check(folder / "RECOVERED").num_rows == 500


def test_a_name_that_is_another_file_next_time(torn: Path, rpq_command: list[str]) -> None:
    """Nothing is advised that would need the same redirection."""
    if not Path("/dev/stdin").exists():
        pytest.skip("there is no /dev/stdin here")
    for verb in ("check", "inspect"):
        with torn.open("rb") as stdin:
            done = subprocess.run(
                [*rpq_command, verb, "/dev/stdin"], stdin=stdin, capture_output=True, text=True, timeout=60, check=False
            )
        assert done.returncode == 1
        assert "rpq " not in done.stdout + done.stderr
    done = subprocess.run(
        [*rpq_command, "check", "/dev/stdin"], input="PAR1", capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 4
    assert "save them to a file first" in done.stderr


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o400])
@pytest.mark.parametrize("on_damage", ["drop", "columns"])
def test_an_output_is_no_more_open_than_its_source(mode: int, on_damage: str, flipped: Path, folder: Path) -> None:
    source, other = folder / "source.parquet", folder / "copy.parquet"
    shutil.copy(flipped, source)
    source.chmod(mode)
    before = set(folder.iterdir())
    rpq.recover(source, folder / "out.parquet", on_damage=on_damage)
    made = set(folder.iterdir()) - before
    assert made
    umask = os.umask(0)
    os.umask(umask)
    for path in made:
        assert _mode(path) == (mode | 0o600) & ~umask
    if on_damage == "drop":  # of two copies the one that is less open counts
        shutil.copy(flipped, other)
        other.chmod(0o604)
        rpq.recover([other, source], folder / "both.parquet")
        assert _mode(folder / "both.parquet") == (mode & 0o604 | 0o600) & ~umask


def test_it_is_so_from_its_first_byte_on(torn: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from resilient_pq.io.partial_file import PartialFile

    append, seen = PartialFile.append, []

    def watched(file: PartialFile, pieces: Any) -> None:
        seen.append(_mode(Path(file.path)))
        append(file, pieces)

    monkeypatch.setattr(PartialFile, "append", watched)
    torn.chmod(0o600)
    rpq.recover(torn, folder / "out.parquet")
    assert set(seen) == {0o600}


def test_a_conversion_is_no_more_open_than_its_source(folder: Path) -> None:
    source, partial = folder / "source.trv", folder / "out.parquet.partial"
    write_trevni(source, {"a": [1, 2, 3]})
    source.chmod(0o600)
    partial.write_bytes(b"of a dead writer")
    partial.chmod(0o644)
    rpq.convert(source, folder / "out.parquet", options=rpq.WriteOptions(overwrite_partial=True))
    assert _mode(folder / "out.parquet") == 0o600


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _hints() -> set[str]:
    """The hints of errors in the package, as they stand in the code."""
    found: set[str] = set()
    for path in Path(resilient_pq.__file__).parent.rglob("*.py"):
        if path.name == "dataset_opening.py":  # of `open_many`, which no verb calls with folders of partitions
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            given = node.value if isinstance(node, ast.keyword) and node.arg == "hint" else None
            if isinstance(node, ast.Assign) and any("HINT" in ast.unparse(target) for target in node.targets):
                given = node.value
            texts = ast.walk(given) if given is not None else ()
            found |= {each.value for each in texts if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return found


def test_hints_name_options_that_there_are() -> None:
    """Arguments of Python in hints become options of the command line."""
    flags = re.compile(r"--[a-z][a-z-]+")
    known = set(flags.findall((ROOT / "docs" / "cli.md").read_text(encoding="utf-8")))
    hints = _hints()
    assert len(hints) > 100
    wrong = {hint for hint in hints if not known >= set(flags.findall(as_options(hint)))}
    assert [hint for hint in wrong if "pip install" not in hint] == []
