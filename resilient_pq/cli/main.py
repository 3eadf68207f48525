"""The entry point of `rpq`: its verbs, ``--version``, and the end of every run."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from resilient_pq.cli import (
    cat_verb,
    check_verb,
    convert_verb,
    metadata_verb,
    parity,
    recover_verb,
    resume_verb,
    seal_verb,
    uploads,
    write_verb,
)
from resilient_pq.cli.demo import demo_verb
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.inspect import inspect_verb
from resilient_pq.cli.interrupts import leave_when_interrupted
from resilient_pq.cli.output.output_streams import OutputClosedError, cannot_write, hold_numbers, write_text
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.rows import count_verb, diff_verb, head_verb, schema_verb, stats_verb
from resilient_pq.errors import StoreError
from resilient_pq.format import kernels
from resilient_pq.io.location import scrubbed
from resilient_pq.version import __version__

#: A command that cannot be understood. Typer brings its own click or uses the one installed; both have this class.
UsageError = cast("type[Exception]", typer.BadParameter.__base__)

#: A verb of a group is called by both words.
VERBS = (
    write_verb,
    resume_verb,
    convert_verb,
    cat_verb,
    head_verb,
    schema_verb,
    count_verb,
    stats_verb,
    diff_verb,
    inspect_verb,
    check_verb,
    recover_verb,
    seal_verb,
    *parity.VERBS,
    metadata_verb,
    *uploads.VERBS,
    demo_verb,
)

_SETTINGS: dict[str, Any] = {
    "add_completion": True,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}


class _InOrder(TyperGroup):
    """Lists verbs in the order of `VERBS`, their groups among them; Typer puts groups first."""

    def list_commands(self, ctx: Any) -> list[str]:
        """First words, each once."""
        return list(dict.fromkeys(verb.NAME.split()[0] for verb in VERBS))


app = typer.Typer(
    **_SETTINGS,
    name="rpq",
    cls=_InOrder,
    no_args_is_help=True,
    epilog="\b\nA file in three steps:\n"
    "  rpq write flights.csv flights.parquet\n"
    "  rpq check flights.parquet\n"
    "  rpq cat flights.parquet --columns carrier,dep_delay --head 5\n"
    "\n\b\nA broken one:\n"
    "  rpq check torn.parquet\n"
    "  rpq recover torn.parquet saved.parquet",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        write_text(f"rpq {__version__} (kernels: {kernels.described()})\n")
        raise typer.Exit


@app.callback()
def rpq(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the version, and whether the kernels are compiled.",
        ),
    ] = False,
) -> None:
    """Parquet files that survive the crash of their writer, the loss of their tail and the rot of their bytes.

    Results go to stdout, progress and hints to stderr. No verb ever asks a question, and none changes the file
    it reads, but for `rpq repair --in-place` and `rpq scrub --heal`; `rpq check --quarantine` moves files.
    """


def _add(program: typer.Typer, verb: ModuleType) -> None:
    """Make a verb a command, called by its last word: the function is named as all of them."""
    function = getattr(verb, verb.NAME.replace(" ", "_").replace("-", "_"))
    program.command(verb.NAME.split()[-1], epilog=verb.EPILOG)(function)


_groups = {"": app, uploads.NAME: typer.Typer(**_SETTINGS, no_args_is_help=True)}
for _verb in VERBS:
    _add(_groups[_verb.NAME.rpartition(" ")[0]], _verb)
#: The name of `uploads show` before.
_groups[uploads.NAME].command("resume-info", hidden=True, epilog=uploads.show.EPILOG)(uploads.show.uploads_resume_info)
app.add_typer(_groups[uploads.NAME], name=uploads.NAME, help=uploads.HELP, epilog=uploads.EPILOG)


def run(arguments: Sequence[str]) -> int:
    """Run a command line without the name of the program, and return the exit code."""
    return _run(app, arguments, name="rpq", verb=_verb_of(arguments))


def _verb_of(arguments: Sequence[str]) -> str:
    """The verb that a command line names; its group where it names no more, and "rpq" where it names none."""
    names = {verb.NAME for verb in VERBS}
    words = iter(arguments)
    first = next((word for word in words if word in {name.split()[0] for name in names}), "rpq")
    return next((f"{first} {word}" for word in words if f"{first} {word}" in names), first)


def run_alone(verb: str, arguments: Sequence[str], *, name: str) -> int:
    """Run one verb as a program of its own, called `name` in its help, and return the exit code."""
    module = next(module for module in VERBS if verb == module.NAME)
    program = typer.Typer(**_SETTINGS)
    _add(program, module)
    return _run(program, arguments, name=name, verb=verb)


def _run(program: typer.Typer, arguments: Sequence[str], *, name: str, verb: str) -> int:
    try:
        code = program(list(arguments), prog_name=name, standalone_mode=False)
    except UsageError as error:
        # Typer quotes what pydantic says of a value.
        message = re.sub(r"Input should be ([^,\n]*)(, unable to parse.*)?", r"it must be \1", error.message)  # type: ignore[attr-defined]
        error.message = scrubbed(message.replace("Value error, ", ""))  # type: ignore[attr-defined]
        with suppress(OSError):  # stderr is closed, or full
            error.show()  # type: ignore[attr-defined]
        if "--json" in arguments:
            Output(verb, as_json=True).refused(str(error))
        return ExitCode.USAGE
    except OutputClosedError:  # of what is printed without a verb: help, the version
        return ExitCode.SOUND
    except OSError as error:
        ours = error if isinstance(error, StoreError) else cannot_write(error)
        if isinstance(ours, StoreError):
            Output(verb).failed(ours)
        return ExitCode.STORE
    return code if isinstance(code, int) else ExitCode.SOUND


def main() -> int:
    """`rpq` as the shell calls it."""
    hold_numbers()
    leave_when_interrupted()
    return run(sys.argv[1:])
