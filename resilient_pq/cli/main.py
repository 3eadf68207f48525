"""The entry point of `rpq`: its verbs, ``--version``, and the end of every run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from resilient_pq.cli import uploads
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.interrupts import leave_when_interrupted
from resilient_pq.cli.output.output_streams import OutputClosedError, cannot_write, hold_numbers, write_text
from resilient_pq.errors import StoreError

#: A command that cannot be understood. Typer brings its own click or uses the one installed; both have this class.
UsageError = cast("type[Exception]", typer.BadParameter.__base__)

#: For each verb, in the order of the help: its module, which is imported when it runs, and how its help begins.
VERBS: Final[Mapping[str, tuple[str, str]]] = {
    "write": ("write_verb", "Write rows to resilient Parquet files."),
    "resume": ("resume_verb", "Continue an unfinished file."),
    "convert": ("convert_verb", "Convert a Trevni file to a resilient Parquet file."),
    "cat": ("cat_verb", "Print rows as JSON lines, CSV, Arrow or Parquet."),
    "head": ("rows.head_verb", "Show the first rows as a table."),
    "tail": ("rows.tail_verb", "Print the last rows, and with -f those that are still to come."),
    "schema": ("rows.footer_verbs", "Print the schema, as Parquet writes it."),
    "count": ("rows.footer_verbs", "Print the number of rows."),
    "stats": ("rows.footer_verbs", "Show type, nulls, bounds, encodings and size of each column."),
    "diff": ("rows.diff_verb", "Compare two files: schema, metadata, number of rows, values."),
    "inspect": ("inspect.inspect_verb", "Show what a file is made of."),
    "check": ("check_verb", "Find damage, and print what to run next."),
    "recover": ("recover_verb", "Write what is whole of a damaged file to a new file."),
    "seal": ("seal_verb", "Give a file of another writer checksums and records."),
    "protect": ("parity.protect_verb", "Write parity beside files, for `rpq repair`."),
    "repair": ("parity.repair_verb", "Rebuild a file from its parity, bit for bit."),
    "scrub": ("parity.scrub_verb", "Prove that objects are as they were, within a budget."),
    "compact": ("compact_verb", "Merge many Parquet files into few."),
    "metadata": ("metadata_verb", "Write the summary of a folder of Parquet files."),
    "uploads list": ("uploads.upload_verbs", "List uploads that were left open, oldest first."),
    "uploads complete": ("uploads.upload_verbs", "Turn an upload that was left open into an object."),
    "uploads show": ("uploads.upload_verbs", "Show what completing or resuming would find."),
    "uploads abort": ("uploads.upload_verbs", "Abort uploads that were left open; their bytes are deleted."),
    "demo": ("demo.demo_verb", "Write, kill the writer half-way, recover, compare."),
}
#: The names of verbs before.
_BEFORE: Final = {"uploads resume-info": "uploads.upload_verbs"}

_SETTINGS: dict[str, Any] = {
    "add_completion": True,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}


class _Verbs(TyperGroup):
    """Lists the verbs that begin with some words in the order of `VERBS`, and imports the one that is called."""

    words = ""

    def __init__(self, **settings: Any) -> None:
        """Have the groups of longer verbs, and commands that are no more than listed."""
        super().__init__(**settings)
        groups, self.commands = self.commands, {}
        for name, (_, says) in VERBS.items():
            if name.startswith(self.words):
                word = name[len(self.words) :].split()[0]
                self.commands.setdefault(word, groups.get(word) or TyperCommand(word, help=says))
        self._imported: dict[str, Any] = {}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A verb with all that it takes."""
        verb = self.words + cmd_name
        if verb in VERBS or verb in _BEFORE:
            return self._imported.setdefault(cmd_name, _command(verb))
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the verbs without importing them."""
        TyperGroup(commands=dict(self.commands)).format_commands(ctx, formatter)


class _Uploads(_Verbs):
    words = f"{uploads.NAME} "


app = typer.Typer(
    **_SETTINGS,
    name="rpq",
    cls=_Verbs,
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
        from resilient_pq.format import kernels  # noqa: PLC0415 (no other help needs it)
        from resilient_pq.version import __version__  # noqa: PLC0415

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
    """Write Parquet files that survive crashes, read them by column, and recover Parquet files that are damaged.

    Results go to stdout, progress and hints to stderr. No verb asks a question. Only `rpq repair --in-place` and
    `rpq scrub --heal` change a file that they read; `rpq check --quarantine` moves files.
    """


def _command(verb: str) -> Any:
    """The command of a verb, called by its last word: its function is named as all of them."""
    module = import_module(f"resilient_pq.cli.{VERBS[verb][0] if verb in VERBS else _BEFORE[verb]}")
    function = getattr(module, verb.replace(" ", "_").replace("-", "_"))
    program = typer.Typer(**{**_SETTINGS, "add_completion": False})
    program.command(verb.rsplit(maxsplit=1)[-1], epilog=function.epilog)(function)
    return typer.main.get_command(program)


app.add_typer(
    typer.Typer(**_SETTINGS, cls=_Uploads, no_args_is_help=True),
    name=uploads.NAME,
    help=uploads.HELP,
    epilog=uploads.EPILOG,
)


def run(arguments: Sequence[str]) -> int:
    """Run a command line without the name of the program, and return the exit code."""
    return _run(app, arguments, name="rpq", verb=_verb_of(arguments))


def _verb_of(arguments: Sequence[str]) -> str:
    """The verb that a command line names; its group where it names no more, and "rpq" where it names none."""
    words = iter(arguments)
    first = next((word for word in words if word in {name.split()[0] for name in VERBS}), "rpq")
    return next((f"{first} {word}" for word in words if f"{first} {word}" in VERBS), first)


def run_alone(verb: str, arguments: Sequence[str], *, name: str) -> int:
    """Run one verb as a program of its own, called `name` in its help, and return the exit code."""
    return _run(_command(verb).main, arguments, name=name, verb=verb)


def _run(program: Callable[..., Any], arguments: Sequence[str], *, name: str, verb: str) -> int:
    try:
        code = program(list(arguments), prog_name=name, standalone_mode=False)
    except UsageError as error:
        from resilient_pq.cli.output.verb_output import Output  # noqa: PLC0415 (most command lines are understood)
        from resilient_pq.io.location import scrubbed  # noqa: PLC0415

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
            from resilient_pq.cli.output.verb_output import Output  # noqa: PLC0415

            Output(verb).failed(ours)
        return ExitCode.STORE
    return code if isinstance(code, int) else ExitCode.SOUND


def main() -> int:
    """`rpq` as the shell calls it."""
    hold_numbers()
    leave_when_interrupted()
    return run(sys.argv[1:])
