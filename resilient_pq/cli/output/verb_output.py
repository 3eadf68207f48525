"""The output of a verb: results on stdout, progress, notes and errors on stderr.

Each line begins with a label, and its text is aligned behind that. Only terminals get colours, unless NO_COLOR is set.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from resilient_pq.bulk.file_result import FileError
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.ledger.terminal import ledger_map
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.output_streams import OutputClosedError, console, is_terminal, write_note, write_text
from resilient_pq.cli.output.progress_bar import LABEL_WIDTH, Meter, NoBar, ProgressBar
from resilient_pq.cli.output.wording import printable
from resilient_pq.cli.shared_options import Storage
from resilient_pq.errors import ResilientPQError, StoreError, Where
from resilient_pq.io.location import has_user, is_shown, scrubbed, shown
from resilient_pq.recovery.ledger.ledger_model import Ledger
from resilient_pq.recovery.report import SCHEMA_VERSION
from resilient_pq.shell_commands import shell_line

_NOTHING_KEPT = "nothing was published; the same command begins anew"
#: Control sequences that remove a progress bar.
_FIRST_OF_LINE = "\r\x1b[K"
_SHOW_CURSOR = "\x1b[?25h"

_STYLES = {
    "bold green": ("sound", "kept", "protected", "repairable", "written", "ok", "completed", "sealed", "healed"),
    "bold red": ("torn", "corrupt", "missing", "foreign", "lost", "nothing", "error", "broken", "rot", "damaged"),
    "bold yellow": (
        "unfinished",
        "unverified",
        "decoded",
        "no checksum",
        "note",
        "interrupted",
        "aborted",
        "dropped",
        "repaired",
        "nulled",
    ),
    "bold cyan": ("next", "hint", "mended"),
}
#: The colour of each label; others are bold.
STYLE_OF: Final = {label: style for style, labels in _STYLES.items() for label in labels}


class Output:
    """Prints the results of a verb, its notes and its errors; with `as_lines` each JSON document as a line."""

    def __init__(
        self, verb: str, *, as_json: bool = False, urls: Sequence[str] = (), reached: Storage | None = None
    ) -> None:
        self.verb = verb
        self.as_json = as_json
        self.url = " ".join(map(shown, urls)) or None
        self.reached = reached or Storage({})
        users = ["the user and password of a URL"] if any(map(has_user, urls)) else []
        self._left_out = [*self.reached.left_out, *self.reached.keys.left_out, *users]
        self.as_lines = False
        self._out = console(sys.stdout)
        self._err = console(sys.stderr, stderr=True)
        self._made: str | None = None

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return self._out.width

    # -- the result ------------------------------------------------------------------------------

    def line(self, label: str, text: str) -> None:
        """Print a line of the result: its label, and its text."""
        if not self.as_json:
            _print(self._out, label, text if self._made is None else text.replace(self._made, "stdout"))

    @contextmanager
    def off_stdout(self, made: str | None = None) -> Iterator[None]:
        """Print results on stderr, where stdout gets something else, such as the file that is `made` in a folder."""
        self._out, self._made = self._err, made
        yield

    def next(self, *commands: Sequence[str]) -> None:
        """Print the commands to run next."""
        if self._made is not None:
            return
        for command in commands:
            self.line("next", shell_line(command))
        if commands and not self.as_json:
            self._note_left_out([word for command in commands for word in command])

    def _note_left_out(self, words: Sequence[str], *more: str) -> None:
        """Name options and parts of URLs that the printed commands need, and that were left out of them."""
        left_out = [*more, *self._left_out]
        if any(is_shown(word) for word in words):
            left_out.append("the query of a URL, which may be a signature")
        if left_out:
            self.note(f"the command lacks what has to be given again: {', '.join(left_out)}")

    def block(self, text: str) -> None:
        """Print lines of the result without labels, such as a schema."""
        if not self.as_json:
            for line in text.split("\n"):
                _emit(self._out, Text(printable(line)))

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, last_left: bool = False
    ) -> None:
        """Print columns; the first `left` ones, and the last if `last_left`, are aligned to the left."""
        if self.as_json:
            return
        cells = [[printable(cell) for cell in row] for row in (header, *rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
        last = len(header) - 1
        for number, row in enumerate(cells):
            aligned = [
                cell.ljust(width) if column < left or (last_left and column == last) else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            _emit(self._out, Text("  ".join(aligned).rstrip(), style="bold" if number == 0 else ""))

    def map(self, ledger: Ledger) -> None:
        """Print the map of a ledger, as wide as the terminal; in ASCII for pipes and dumb terminals."""
        if self.as_json:
            return
        plain = not (self._out.is_terminal and not self._out.is_dumb_terminal and "utf" in self._out.encoding)
        for line in ledger_map(ledger, width=self._out.width, plain=plain):
            _emit(self._out, line)

    def finish(
        self, outcome: str, *, rows: int | None = None, following: Sequence[Sequence[str]] = (), **facts: Any
    ) -> None:
        """Print the commands to run next, and the JSON document of the verb."""
        self.next(*following)
        commands = [list(command) for command in following]
        self.document(base_document(self.verb, outcome, rows=rows, next=commands, **facts))

    def document(self, document: dict[str, Any]) -> None:
        """Print a JSON document; nothing where text is wanted."""
        if not self.as_json:
            return
        if self.as_lines:
            write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
            return
        with suppress(OutputClosedError):  # the exit code is still right
            write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n")

    # -- notes and errors --------------------------------------------------------------------------

    def note(self, text: str, *, label: str = "note") -> None:
        """Print a line on stderr."""
        _print(self._err, label, text)

    def progress(self, label: str) -> AbstractContextManager[Meter]:
        """Show a progress bar on stderr while the block runs, if stderr is a terminal."""
        if self.as_json or not is_terminal(sys.stderr):
            return nullcontext(NoBar())
        return ProgressBar(self._err, label)

    def failed(self, error: ResilientPQError) -> None:
        """Print an error of this package: what happened, where, and what to do next."""
        place = str(error.where)
        _print(self._err, "error", f"{error.message} (at {place})" if place else error.message)
        if error.hint:
            _print(self._err, "hint", wording.as_options(error.hint))
        # Of a writer: the stored rows, and the command that saves them.
        notes = [wording.as_options(note) for note in getattr(error, "__notes__", ())]
        for note in notes:
            self.note(note)
        advice = "\n".join([error.hint or "", *notes])
        if "rpq " in advice:
            given = zip(self.reached.arguments[::2], self.reached.arguments[1::2], strict=True)
            lacking = [shell_line(option) for option in given if option[1] not in advice]
            self._note_left_out([word.strip("`'\";:,") for word in advice.split()], *lacking)
        self._end("error", notes, FileError.of(error))

    def refused(self, message: str) -> None:
        """Print the JSON document of a wrong command line; typer printed the text."""
        self._end("error", [], FileError("UsageError", message, Where(), None, ExitCode.USAGE))

    def interrupted(self, notes: Sequence[str]) -> None:
        """Print that a signal ended the verb, and what was stored."""
        notes = [wording.as_options(note) for note in notes]
        _print(self._err, "interrupted", "; ".join(notes) or _NOTHING_KEPT)
        self._end("interrupted", notes)

    def ending(self) -> None:
        """Print that an interrupted verb is not at its end yet."""
        self.note("what is under way comes to its end; another signal ends this at once")

    def leaving(self) -> None:
        """Print that the process ends at once, straight to the descriptors: nothing may be waited for."""
        shown = _FIRST_OF_LINE + _SHOW_CURSOR if is_terminal(sys.stderr) else ""
        line = f"{'interrupted'.ljust(LABEL_WIDTH)}at once: what was stored before is kept; `rpq check` tells\n"
        document = base_document(self.verb, "interrupted", url=self.url, notes=[])
        with suppress(OSError):
            os.write(2, f"{shown}{line}".encode())
            os.write(1, json.dumps(document).encode() if self.as_json else b"")

    def crashed(self, error: Exception) -> None:
        """Print an error that is a mistake in this package, with its traceback."""
        import traceback  # noqa: PLC0415 (rarely needed)

        write_note(scrubbed("".join(traceback.format_exception(error))))
        _print(self._err, "error", "this is a mistake in resilient_pq, not in your file; please report it")
        self._end("error", [], FileError(type(error).__name__, scrubbed(str(error)), Where(), None, ExitCode.INTERNAL))

    def _end(self, outcome: str, notes: Sequence[str], error: FileError | None = None) -> None:
        """Print the JSON document of a run that failed; a closed stdout is no second error."""
        rest: dict[str, Any] = {} if error is None else {"error": error.to_json()}
        with suppress(OutputClosedError, StoreError):
            self.document(base_document(self.verb, outcome, url=self.url, notes=list(notes), **rest))


def base_document(verb: str, outcome: str, *, rows: int | None = None, **rest: Any) -> dict[str, Any]:
    """A JSON document with the keys of every verb, and more."""
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "verb": verb,
        "outcome": outcome,
        "rows": rows,
        "findings": [],
        "next": [],
    }
    return document | rest


def _print(console: Console, label: str, text: str) -> None:
    first, *others = text.split("\n")
    line = Text(label.ljust(LABEL_WIDTH if first else 0), style=STYLE_OF.get(label, "bold"))
    line.append(printable(first), style="default not bold")
    _emit(console, line)
    for other in others:
        _emit(console, Text(" " * LABEL_WIDTH + printable(other)))


def _emit(console: Console, line: Text) -> None:
    """Write a line; not with rich, which handles a closed stream in its own way."""
    with console.capture() as captured:
        console.print(line)
    if console.stderr:
        write_note(captured.get())
        return
    with suppress(OutputClosedError):
        write_text(captured.get())
