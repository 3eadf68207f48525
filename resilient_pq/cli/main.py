"""The entry point of `rpq`: its verbs, ``--version``, and the end of every run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from resilient_pq.cli import cat, check, demo, inspect, metadata, recover, write
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.render import Output, write_text
from resilient_pq.version import __version__

#: A command that cannot be understood. Typer brings its own click or uses the one installed; both have this class.
UsageError = cast("type[Exception]", typer.BadParameter.__base__)

VERBS = (write, cat, inspect, check, recover, metadata, demo)

_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}

app = typer.Typer(
    **_SETTINGS,
    name="rpq",
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
        write_text(f"rpq {__version__}\n")
        raise typer.Exit


@app.callback()
def rpq(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Parquet files that survive the crash of their writer, the loss of their tail and the rot of their bytes.

    Results go to stdout, progress and hints to stderr. No verb ever asks a question, and none changes the file
    it reads.
    """


for _verb in VERBS:
    app.command(_verb.NAME, epilog=_verb.EPILOG)(getattr(_verb, _verb.NAME))


def run(arguments: Sequence[str]) -> int:
    """Run a command line, and say how it ended.

    Args:
        arguments: Without the program's name.

    Returns:
        The exit code.
    """
    names = {module.NAME for module in VERBS}
    verb = next((argument for argument in arguments if argument in names), "rpq")
    return _run(app, arguments, name="rpq", verb=verb)


def run_alone(verb: str, arguments: Sequence[str], *, name: str) -> int:
    """Run one verb as a program of its own.

    Args:
        verb: Which one.
        arguments: Without the program's name.
        name: What the program is called in its own help.

    Returns:
        The exit code.
    """
    module = next(module for module in VERBS if verb == module.NAME)
    program = typer.Typer(**_SETTINGS)
    program.command(verb, epilog=module.EPILOG)(getattr(module, verb))
    return _run(program, arguments, name=name, verb=verb)


def _run(program: typer.Typer, arguments: Sequence[str], *, name: str, verb: str) -> int:
    try:
        code = program(list(arguments), prog_name=name, standalone_mode=False)
    except UsageError as error:
        error.show()  # type: ignore[attr-defined]
        if "--json" in arguments:
            Output(verb, as_json=True).refused(str(error))
        return ExitCode.USAGE
    return code if isinstance(code, int) else ExitCode.SOUND


def main() -> int:
    """`rpq` as the shell calls it."""
    return run(sys.argv[1:])
