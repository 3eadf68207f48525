"""What `rpq` says of itself."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import pytest

import resilient_pq
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.main import VERBS
from resilient_pq.format import kernels

VERB_NAMES = list(VERBS)


def test_version(rpq_process: Callable[..., Any]) -> None:
    ended = rpq_process("--version")
    assert (ended.code, ended.out, ended.err) == (
        0,
        f"rpq {resilient_pq.__version__} (kernels: {kernels.described()})\n",
        "",
    )


def test_the_program_is_installed_as_rpq() -> None:
    found = [entry.value for entry in entry_points(group="console_scripts", name="rpq")]
    if not found:
        pytest.skip("the package is not installed")
    assert set(found) == {"resilient_pq_command:main"}


def test_help_lists_every_verb_in_order(rpq_run: Callable[..., Any]) -> None:
    for group in ([], ["uploads"]):
        ended = rpq_run(*group, "--help")
        assert ended.code == 0
        listed = re.findall(r"^  (\S+) +\S", ended.out.split("Commands:")[1].split("\n\n")[0], re.MULTILINE)
        words = [name.split() for name in VERB_NAMES]
        inside = [each[len(group)] for each in words if each[: len(group)] == group]
        assert listed == list(dict.fromkeys(inside))


def test_help_says_of_every_verb_what_it_does(rpq_run: Callable[..., Any]) -> None:
    for name in VERB_NAMES:
        *group, verb = name.split()
        ended = rpq_run(*group, "--help")
        assert ended.code == 0
        (summary,) = re.findall(rf"^  {verb} +(\S.*)$", ended.out, re.MULTILINE)
        said = rpq_run(*group, verb, "--help").out.split("\n\n")[1]
        assert summary == " ".join(said.split()), "as the help of the verb begins"
        assert summary.endswith("."), "a summary that does not fit its line is cut"
        assert not summary.endswith("...")


@pytest.mark.parametrize("group", [[], ["uploads"]])
def test_without_a_verb_there_is_help(group: list[str], rpq_run: Callable[..., Any]) -> None:
    ended = rpq_run(*group)
    assert ended.code == ExitCode.USAGE
    assert "Commands:" in ended.out + ended.err


@pytest.mark.parametrize("verb", VERB_NAMES)
def test_help_ends_with_exit_status_and_examples(verb: str, rpq_run: Callable[..., Any]) -> None:
    ended = rpq_run(*verb.split(), "--help")
    assert (ended.code, ended.err) == (0, "")
    options, status, examples = re.split(r"\n  Exit status:\n|\n  Examples:\n", ended.out)
    assert "--json" in options
    assert "--storage-option" in options
    assert "--endpoint-url" in options
    codes = [int(line.split()[0]) for line in status.splitlines() if line.strip()]
    assert codes == sorted(codes)
    assert {0, 2, 4, 130} <= set(codes) <= set(ExitCode) - {ExitCode.INTERNAL}
    lines = examples.strip("\n").splitlines()
    assert 2 <= len(lines) <= 5
    assert all("rpq " in line for line in lines)


@pytest.mark.parametrize("verb", [[], ["uploads"], *(name.split() for name in VERB_NAMES)])
def test_help_has_no_lines_and_no_colours(verb: list[str], rpq_run: Callable[..., Any]) -> None:
    text = rpq_run(*verb, "--help").out
    assert text.isascii()
    assert "\x1b" not in text


@pytest.mark.parametrize("verb", VERB_NAMES)
def test_examples_are_commands_that_are_understood(verb: str, rpq_run: Callable[..., Any]) -> None:
    examples = rpq_run(*verb.split(), "--help").out.split("Examples:\n")[1].strip().splitlines()
    for example in examples:
        arguments = example.split("rpq ", 1)[1].split(" > ")[0].split()
        ended = rpq_run(*arguments, "--help")
        assert ended.code == 0


def test_help_imports_nothing_slow() -> None:
    code = (
        "import sys\n"
        "from resilient_pq.cli.main import run\n"
        "assert run(['--help']) == 0\n"
        "slow = {'pyarrow', 'pandas', 'polars', 'duckdb', 's3fs', 'aiobotocore', 'botocore', 'rich.progress'}\n"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["frobnicate"], "frobnicate"),
        (["check"], "URL"),
        (["resume", "x", "y", "z"], "z"),
        (["check", "x", "--frobnicate"], "--frobnicate"),
        (["check", "x", "--storage-option", "novalue"], "KEY=VALUE"),
        (["cat", "x", "--columns", "a,,b"], "--columns"),
        (["cat", "x", "--head", "-1"], "--head"),
        (["cat", "x", "--format", "xml"], "--format"),
        (["write", "x.csv", "y", "--row-group-bytes", "many"], "64MiB"),
        (["write", "x.csv", "y", "--mode", "a"], "--mode"),
        (["uploads"], "Commands:"),
        (["uploads", "frobnicate"], "frobnicate"),
        (["uploads", "list"], "URL"),
        (["uploads", "list", "s3://b", "--older-than", "soon"], "12h"),
        (["demo", "--s3"], "--bucket"),
        (["demo", "--bucket", "b"], "--s3"),
        (["demo", "--input", "-"], "--input"),
        (["demo", "--rows", "0"], "--rows"),
    ],
)
def test_what_is_not_understood_exits_with_2(arguments: list[str], word: str, rpq_run: Callable[..., Any]) -> None:
    ended = rpq_run(*arguments)
    assert ended.code == ExitCode.USAGE
    assert ended.out == ""
    assert "Usage: rpq" in ended.err
    assert word in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("verb", ["check", "uploads list", "uploads"])
def test_what_is_not_understood_is_json_where_that_is_asked_for(verb: str, rpq_run: Callable[..., Any]) -> None:
    ended = rpq_run(*verb.split(), "--frobnicate", "--json")
    assert ended.code == ExitCode.USAGE
    assert ended.document["verb"] == verb
    assert ended.document["outcome"] == "error"
    assert ended.document["error"]["type"] == "UsageError"
    assert "--frobnicate" in ended.document["error"]["message"]
