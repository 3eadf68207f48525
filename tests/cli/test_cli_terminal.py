"""What is different on a terminal: colours, and a bar; and how mistakes of our own are told."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pseudo_terminal import said_in_terminal

from resilient_pq.cli import check_verb
from resilient_pq.cli.exit_codes import ExitCode

Run = Callable[..., Any]


def test_colours_are_for_terminals(rpq_command: list[str], torn: Path) -> None:
    said = said_in_terminal([*rpq_command, "check", str(torn)])
    assert "\x1b[1;31mtorn        " in said
    assert "\x1b[1;32msound       " in said
    without = said_in_terminal([*rpq_command, "check", str(torn)], NO_COLOR="1")
    assert "torn        " in without
    for color in range(30, 38):
        assert f"[{color}m" not in without
        assert f";{color}m" not in without


def test_nothing_of_it_in_a_pipe(rpq_process: Run, torn: Path, sound: Path) -> None:
    for path in (torn, sound):
        ended = rpq_process("check", path, TERM="xterm-256color")
        assert ended.out.isascii()
        assert "\x1b" not in ended.out
        assert ended.err == ""


def test_a_bar_on_stderr_where_it_takes_long(rpq_command: list[str], torn: Path) -> None:
    code = (
        "import sys\n"
        "from resilient_pq.cli.output import progress_bar\n"
        "from resilient_pq.cli.main import run\n"
        "progress_bar._FIRST_SHOWN = progress_bar._SHOWN_EVERY = -1\n"
        f"sys.exit(run(['check', {str(torn)!r}]))\n"
    )
    said = said_in_terminal([rpq_command[0], "-c", code])
    assert "checking" in said
    assert "%" in said
    assert "checking" not in said_in_terminal([rpq_command[0], "-c", code], TERM="dumb")


def test_a_mistake_of_ours_is_told_as_one(rpq_run: Run, sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(check_verb.report_lines, "show_check", fail)
    ended = rpq_run("check", sound, "--json")
    assert ended.code == ExitCode.INTERNAL
    assert "ZeroDivisionError: oh" in ended.err
    assert "not in your file" in ended.err
    assert json.loads(ended.out)["error"]["type"] == "ZeroDivisionError"


def test_an_output_that_cannot_be_written(rpq_command: list[str], sound: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    with full.open("wb") as stdout:
        done = subprocess.run(
            [*rpq_command, "cat", str(sound)], stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert done.returncode == ExitCode.STORE
    assert b"cannot write: No space left on device (at stdout)" in done.stderr


def test_the_demo_of_rot_is_ten_lines(rpq_command: list[str]) -> None:
    said = said_in_terminal([*rpq_command, "demo", "--rot", "--rows", "20000"])
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said).splitlines()
    assert [line[:12].strip() for line in lines] == ["write", "protect", "flip", "zero", "cut out", "cut off", "ok"]
    assert sum("every byte is as it was" in line for line in lines) == 4 and max(map(len, lines)) <= 120
