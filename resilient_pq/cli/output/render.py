"""Everything that `rpq` prints: results on stdout, progress, notes and errors on stderr.

A line begins with a word that says what kind of line it is, and the rest is aligned behind it. Colours are for
terminals only, and NO_COLOR turns them off; text that is piped has none, and no lines are drawn anywhere.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol, Self

from rich.console import Console
from rich.text import Text

from resilient_pq.bulk.run_summary import RunSummary
from resilient_pq.cli.ledger.account import MEANINGS, lost_rows, nulled_words, rows_lost_words
from resilient_pq.cli.ledger.grid import UNHARMED
from resilient_pq.cli.ledger.terminal import ledger_map
from resilient_pq.cli.output.output_streams import OutputClosedError, console, is_terminal, write_note, write_text
from resilient_pq.cli.output.wording import counted, in_bytes, printable
from resilient_pq.cli.shared_options import Storage
from resilient_pq.errors import ResilientPQError, StoreError, Where
from resilient_pq.io.location import has_user, is_shown, scrubbed, shown
from resilient_pq.recovery.ledger.ledger_model import Ledger, PageState
from resilient_pq.recovery.report import SCHEMA_VERSION, Finding, Kept, LostRegion, Outcome, Report
from resilient_pq.shell_commands import in_shell, shell_line

if TYPE_CHECKING:
    from rich.progress import Progress

#: Columns of the word at the beginning of a line, the space behind it included.
LABEL_WIDTH = 12
#: Findings and lost regions that are listed; --json gives all.
MAX_LISTED = 20

_NOTHING_KEPT = "nothing was published; the same command begins anew"
#: What a bar leaves behind that is not given the time to go.
_FIRST_OF_LINE = "\r\x1b[K"
_SHOW_CURSOR = "\x1b[?25h"

_STYLES = {
    "bold green": ("sound", "kept", "written", "held", "completed"),
    "bold red": ("torn", "corrupt", "missing", "foreign", "lost", "nothing", "error", "broken"),
    "bold yellow": ("unfinished", "unverified", "note", "interrupted", "aborted", "dropped", "repaired", "nulled"),
    "bold cyan": ("next", "hint", "mended"),
}
_STYLE_OF = {label: style for style, labels in _STYLES.items() for label in labels}


class Meter(Protocol):
    """Shows how far something is."""

    def update(self, share: float | None, text: str = "") -> None:
        """Show the share that is done, from 0 to 1; None where it cannot be told."""


class Output:
    """Where a verb's words go.

    Attributes:
        verb: Whose words they are.
        as_json: Whether stdout gets one JSON document, and nothing else.
        as_lines: Whether it gets many of them, each as a line.
        url: What it is about, as it may be shown; None where that is not known.
        reached: How stores are reached; commands to run next need the same.
    """

    def __init__(
        self, verb: str, *, as_json: bool = False, urls: Sequence[str] = (), reached: Storage | None = None
    ) -> None:
        """Speak for `verb`, about some URLs."""
        self.verb = verb
        self.as_json = as_json
        self.url = " ".join(map(shown, urls)) or None
        self.reached = reached or Storage({})
        users = ["the user and password of a URL"] if any(map(has_user, urls)) else []
        self._left_out = [*self.reached.left_out, *users]
        self.as_lines = False
        self._out = console(sys.stdout)
        self._err = console(sys.stderr, stderr=True)

    # -- the result ------------------------------------------------------------------------------

    def line(self, label: str, text: str) -> None:
        """A line of the result: its first word, and the rest."""
        if not self.as_json:
            _print(self._out, label, text)

    def next(self, *commands: Sequence[str]) -> None:
        """The commands to run next, as one would type them."""
        for command in commands:
            self.line("next", shell_line(command))
        if commands and not self.as_json:
            self._note_left_out([word for command in commands for word in command])

    def _note_left_out(self, words: Sequence[str], *more: str) -> None:
        """Which options and parts of URLs a command lacks that was printed, and that it needs."""
        left_out = [*more, *self._left_out]
        if any(is_shown(word) for word in words):
            left_out.append("the query of a URL, which may be a signature")
        if left_out:
            self.note(f"the command lacks what has to be given again: {', '.join(left_out)}")

    def block(self, text: str) -> None:
        """Lines of the result that have a form of their own, such as a schema."""
        if not self.as_json:
            for line in text.split("\n"):
                _emit(self._out, Text(printable(line)))

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, last_left: bool = False
    ) -> None:
        """Aligned columns under a header.

        Args:
            header: A word for each column.
            rows: Their cells.
            left: How many columns, from the first, are aligned to the left; the others are to the right.
            last_left: Whether the last is aligned to the left, too.
        """
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
        """The map of a ledger, as wide as the terminal; in ASCII where it is piped, or the terminal wants that."""
        if self.as_json:
            return
        plain = not (self._out.is_terminal and not self._out.is_dumb_terminal and "utf" in self._out.encoding)
        for line in ledger_map(ledger, width=self._out.width, plain=plain):
            _emit(self._out, line)

    def document(self, document: dict[str, Any]) -> None:
        """The whole result as JSON, or one of many; nothing where text is wanted."""
        if not self.as_json:
            return
        if self.as_lines:
            write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")
            return
        with suppress(OutputClosedError):  # the exit code still tells
            write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n")

    # -- beside the result -----------------------------------------------------------------------

    def note(self, text: str, *, label: str = "note") -> None:
        """A line beside the result, on stderr."""
        _print(self._err, label, text)

    def progress(self, label: str) -> AbstractContextManager[Meter]:
        """A bar on stderr while the block runs; nothing where stderr is no terminal."""
        if self.as_json or not is_terminal(sys.stderr):
            return nullcontext(_NoBar())
        return _Bar(self._err, label)

    def failed(self, error: ResilientPQError) -> None:
        """An error of ours: what happened, where, and what to do next."""
        place = str(error.where)
        _print(self._err, "error", f"{error.message} (at {place})" if place else error.message)
        if error.hint:
            _print(self._err, "hint", error.hint)
        notes = list(getattr(error, "__notes__", ()))  # of a writer: what is kept, and the command that rescues it
        for note in notes:
            self.note(note)
        told = "\n".join([error.hint or "", *notes])
        if "rpq " in told:
            given = zip(self.reached.arguments[::2], self.reached.arguments[1::2], strict=True)
            lacking = [shell_line(option) for option in given if option[1] not in told]
            self._note_left_out([word.strip("`'\";:,") for word in told.split()], *lacking)
        self._end(
            self._document(
                "error",
                notes=notes,
                error={
                    "type": type(error).__name__,
                    "message": error.message,
                    "where": _place(error.where),
                    "hint": error.hint,
                },
            )
        )

    def refused(self, message: str) -> None:
        """A command that could not be understood; the words for people are printed already."""
        error = {"type": "UsageError", "message": message, "where": _place(Where()), "hint": None}
        self._end(self._document("error", error=error))

    def interrupted(self, notes: Sequence[str]) -> None:
        """An interrupt, and what was kept in spite of it."""
        _print(self._err, "interrupted", "; ".join(notes) or _NOTHING_KEPT)
        self._end(self._document("interrupted", notes=list(notes)))

    def ending(self) -> None:
        """An interrupted verb that still has something to do."""
        self.note("what is under way comes to its end; another signal ends this at once")

    def leaving(self) -> None:
        """The end in the middle of everything: straight to stderr, as nothing may be waited for."""
        shown = _FIRST_OF_LINE + _SHOW_CURSOR if is_terminal(sys.stderr) else ""
        line = f"{'interrupted'.ljust(LABEL_WIDTH)}at once: what was stored before is kept; `rpq check` tells\n"
        ended = json.dumps(self._document("interrupted")) if self.as_json else ""
        with suppress(OSError):
            os.write(2, f"{shown}{line}".encode())
            os.write(1, ended.encode())

    def crashed(self, error: Exception) -> None:
        """An error that is none of ours: a mistake in this package, shown whole."""
        import traceback  # noqa: PLC0415 (hardly ever needed)

        write_note(scrubbed("".join(traceback.format_exception(error))))
        _print(self._err, "error", "this is a mistake in resilient_pq, not in your file; please report it")
        unknown = {
            "type": type(error).__name__,
            "message": scrubbed(str(error)),
            "where": _place(Where()),
            "hint": None,
        }
        self._end(self._document("error", error=unknown))

    def _document(self, outcome: str, *, notes: Sequence[str] = (), **rest: Any) -> dict[str, Any]:
        """The document of a run that did not come to its end."""
        return document(self.verb, outcome, url=self.url, notes=list(notes), **rest)

    def _end(self, document: dict[str, Any]) -> None:
        """The last document; that nobody can be given it is no second error."""
        with suppress(OutputClosedError, StoreError):
            self.document(document)


def document(verb: str, outcome: str, *, rows: int | None = None, **rest: Any) -> dict[str, Any]:
    """A JSON document with the keys that every verb's has, and more."""
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "verb": verb,
        "outcome": outcome,
        "rows": rows,
        "findings": [],
        "next": [],
    }
    return document | rest


# -- reports -------------------------------------------------------------------------------------


def checked(output: Output, report: Report) -> None:
    """What a check found, and the command to run next."""
    _list(output, [(str(finding.damage), _words(finding, report.url)) for finding in report.findings])
    what = f"{counted(report.num_rows, 'row')} in {counted(report.num_row_groups, 'row group')}"
    match report.outcome:
        case Outcome.SOUND if report.pages_decoded:
            output.line("sound", f"as far as it decodes: {what}")
        case Outcome.SOUND:
            output.line("sound", f"{what}; nothing wrong in {in_bytes(report.size)}{_verified(report)}")
        case Outcome.NOTHING:
            _nothing(output, report)
        case _:
            output.line("sound", f"{what} can be read")
    _unverified(output, report.pages_verified or 0, report.pages_decoded or 0)
    output.next(*report.next)
    output.document(report.to_json())


def _verified(report: Report) -> str:
    return f"; {counted(report.pages_verified, 'page')} verified" if report.pages_verified else ""


def _unverified(output: Output, verified: int, decoded: int, files: int = 0) -> None:
    """Of how many pages there are no checksums that could be compared."""
    if decoded:
        where = f", in {counted(files, 'file')}" if files else ""
        those = f"{decoded:,} of {counted(verified + decoded, 'page')} have no checksum{where}"
        output.line("unverified", f"{those}: they were decoded, a changed value would not be seen")


def recovered(output: Output, report: Report) -> None:
    """What a recovery kept, what was lost, and the command to run next."""
    kept = report.kept
    for finding in [finding for finding in report.findings if finding.where.row_group is None][:MAX_LISTED]:
        output.line("found", _words(finding, report.url))
    if kept is not None and kept.output is not None:
        rows = f"{_rows_kept(kept)} in {counted(report.num_row_groups, 'row group')}"
        output.line("kept", f"{rows}; {in_bytes(kept.num_bytes)} copied as they were")
        if kept.num_bytes_unread:
            unread = f"{in_bytes(kept.num_bytes_unread)} of them were copied by the store and not compared"
            output.line("unread", f"{unread}: {in_shell('check', kept.output)}")
    elif kept is not None and kept.outputs:
        output.line("kept", f"{counted(kept.num_rows, 'row')}, each column by itself")
    else:
        _nothing(output, report)
    if kept is not None:
        if kept.ledger is None:
            _lost(output, kept.rows_lost, kept.lost)
        else:
            _accounted(output, kept.ledger)
        if kept.output is not None:
            output.line("written", kept.output)
        for url in kept.outputs.values():
            output.line("written", url)
    for note in report.notes:
        output.note(note)
    output.next(*report.next)
    output.document(report.to_json())


def summarised(output: Output, summary: RunSummary) -> None:
    """What became of many files: how many fared how, and the worst of them."""
    worst = summary.worst[:MAX_LISTED]
    if worst:
        rows = [
            (
                entry.outcome,
                "" if entry.num_rows is None else f"{entry.num_rows:,}",
                "" if entry.rows_lost is None else f"{entry.rows_lost:,}",
                f"{entry.url}: {entry.message}" if entry.message else entry.url,
            )
            for entry in worst
        ]
        output.table(("outcome", "rows", "lost", "file, and what is wrong with it"), rows, left=1, last_left=True)
        others = sum(summary.outcomes.values()) - sum(summary.outcomes.get(each, 0) for each in ("sound", "read"))
        if others > len(worst):
            output.line("", f"and {others - len(worst):,} more, which --json lists")
        output.block("")
    outcomes = ", ".join(f"{count:,} {_OUTCOMES.get(outcome, outcome)}" for outcome, count in _by_badness(summary))
    output.line("files", f"{counted(summary.num_files, 'file')}, {in_bytes(summary.size)}: {outcomes}")
    if summary.num_resumed:
        output.line("resumed", f"{counted(summary.num_resumed, 'file')} were done in an earlier run")
    if summary.verb == "recover":
        lost = counted(summary.rows_lost, "row")
        if summary.num_uncounted:
            lost += f", and more that cannot be counted in {counted(summary.num_uncounted, 'file')}"
        output.line("rows", f"{summary.num_rows:,} are left")
        output.line("lost", lost if summary.rows_lost or summary.num_uncounted else "nothing")
    else:
        output.line("rows", f"{summary.num_rows:,} can be read")
        _unverified(output, summary.pages_verified, summary.pages_decoded, summary.num_not_verified)


#: How outcomes are called that are no adjectives.
_OUTCOMES = {"nothing": "of which nothing is left", "error": "that could not be looked at", "read": "read"}
#: The worst first.
_BADNESS = ("error", "nothing", "damaged", "partial", "incomplete", "recovered", "sound", "read")


def _by_badness(summary: RunSummary) -> list[tuple[str, int]]:
    return sorted(summary.outcomes.items(), key=lambda item: _BADNESS.index(item[0]))


def converted(output: Output, report: Report) -> None:
    """What a conversion wrote, what was lost, and the command to run next."""
    kept = report.kept
    for finding in [finding for finding in report.findings if not finding.costs_rows][:MAX_LISTED]:
        output.line("found", _words(finding, report.url))
    if kept is None or kept.output is None:
        output.line("nothing", f"no row can be converted of {in_bytes(report.size)}")
    else:
        output.line("kept", f"{counted(kept.num_rows, 'row')} in {counted(report.num_row_groups, 'row group')}")
    if kept is not None:
        _lost(output, kept.rows_lost, kept.lost)
        if kept.output is not None:
            output.line("written", kept.output)
    output.next(*report.next)
    output.document(report.to_json())


def _rows_kept(kept: Kept) -> str:
    if kept.ledger is None or not kept.ledger.rows_lost:
        return counted(kept.num_rows, "row")
    return f"{kept.num_rows:,} of {counted(kept.num_rows + kept.ledger.rows_lost, 'row')}"


def _accounted(output: Output, ledger: Ledger) -> None:
    """What a ledger says: how many rows, the map where there is something to see on it, and the rows that are lost."""
    output.line("lost", rows_lost_words(ledger))
    if ledger.rows_nulled:
        output.line("nulled", f"{counted(ledger.rows_nulled, 'row')} {nulled_words(ledger)}")
    for state in (PageState.MENDED, PageState.REPAIRED):
        pages = sum(page.state is state for page in ledger.pages())
        if pages:
            output.line(state, f"{counted(pages, 'page')}: {MEANINGS[state]}")
    if any(page.state not in UNHARMED for page in ledger.pages()):
        output.block("")
        output.map(ledger)
        output.block("")
    lost = lost_rows(ledger)
    if lost:
        rows = [(run.rows, run.row_group, run.count, f"{run.fate}: {run.reason}") for run in lost[:MAX_LISTED]]
        output.table(("rows", "row group", "count", "what became of them"), rows, left=1, last_left=True)
        if len(lost) > MAX_LISTED:
            output.line("", f"and {len(lost) - MAX_LISTED:,} more, which --json lists")
        output.block("")


def _nothing(output: Output, report: Report) -> None:
    output.line("nothing", f"no row can be recovered from {in_bytes(report.size)}")
    if report.schema is not None:
        output.line("schema", "it is known:")
        output.block(report.schema)


def _lost(output: Output, rows: int | None, lost: Sequence[LostRegion]) -> None:
    if len(lost) < 2:
        output.line("lost", _lost_words(lost[0]) if lost else "nothing")
        return
    size = sum(region.end - region.start for region in lost)
    how_many = "rows that cannot be counted" if rows is None else counted(rows, "row")
    output.line("lost", f"{how_many} in {in_bytes(size)}:")
    _list(output, [("", _lost_words(region)) for region in lost])


def lost_while_reading(output: Output, lost: Sequence[LostRegion]) -> None:
    """What is not among the rows that were printed, on stderr."""
    for region in lost[:MAX_LISTED]:
        words = _cost_words(region.num_rows or 0, region.num_nulled)
        output.note(f"{words}: {region.reason} (at {region.where})", label="lost")
    if len(lost) > MAX_LISTED:
        words = _cost_words(sum(region.num_rows or 0 for region in lost), sum(region.num_nulled for region in lost))
        output.note(f"in {len(lost):,} regions, which --json lists: {words}", label="lost")


def _cost_words(num_rows: int, num_nulled: int) -> str:
    words = [counted(num_rows, "row")] if num_rows or not num_nulled else []
    if num_nulled:
        words.append(f"{counted(num_nulled, 'value')}, null instead")
    return "; ".join(words)


def _lost_words(region: LostRegion) -> str:
    rows = "an unknown number of rows" if region.num_rows is None else counted(region.num_rows, "row")
    place = _without_key(region.where)
    where = f"{place}, bytes" if place else "bytes"
    nulled = f", {counted(region.num_nulled, 'value')}" if region.num_nulled else ""
    return f"{where} {region.start:,} to {region.end:,}, {rows}{nulled}: {region.reason}"


def _words(finding: Finding, url: str) -> str:
    """What was found and where, the object only where it is not the one that was looked at."""
    place = _without_key(finding.where) if finding.where.key == url else str(finding.where)
    if finding.where.offset is None and finding.start is not None and finding.end is not None:
        stretch = f"bytes {finding.start:,} to {finding.end:,}"
        place = f"{place}, {stretch}" if place else stretch
    words = f"{finding.message} ({place})" if place else finding.message
    return words if finding.costs_rows else f"{words}; costs no rows"


def _without_key(where: Where) -> str:
    return str(Where(None, where.row_group, where.column, where.page, where.offset))


def _list(output: Output, lines: Sequence[tuple[str, str]]) -> None:
    for label, text in lines[:MAX_LISTED]:
        output.line(label, text)
    if len(lines) > MAX_LISTED:
        output.line("", f"and {len(lines) - MAX_LISTED:,} more, which --json lists")


def _place(where: Where) -> dict[str, Any]:
    return {name: getattr(where, name) for name in ("key", "row_group", "column", "page", "offset")}


# -- lines ---------------------------------------------------------------------------------------


def _print(console: Console, label: str, text: str) -> None:
    first, *others = text.split("\n")
    line = Text(label.ljust(LABEL_WIDTH if first else 0), style=_STYLE_OF.get(label, "bold"))
    line.append(printable(first), style="default not bold")
    _emit(console, line)
    for other in others:
        _emit(console, Text(" " * LABEL_WIDTH + printable(other)))


def _emit(console: Console, line: Text) -> None:
    """A line, in colour where it may be; rich has its own idea of what to do when nobody reads it."""
    with console.capture() as captured:
        console.print(line)
    if console.stderr:
        write_note(captured.get())
        return
    with suppress(OutputClosedError):
        write_text(captured.get())


# -- progress ------------------------------------------------------------------------------------


#: Seconds before there is a bar, and between its changes.
_FIRST_SHOWN = 0.3
_SHOWN_EVERY = 0.1


class _NoBar:
    def update(self, share: float | None, text: str = "") -> None:
        """Show nothing."""


class _Bar:
    """A bar that is gone when its block ends."""

    def __init__(self, console: Console, label: str) -> None:
        self._console = console
        self._label = label
        self._progress: Progress | None = None
        self._shown = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, share: float | None, text: str = "") -> None:
        """Show the share, a few times a second; what is done sooner needs no bar."""
        now = time.monotonic()
        if now - self._shown < (_FIRST_SHOWN if self._progress is None else _SHOWN_EVERY):
            return
        self._shown = now
        self._progress = self._progress or self._start()
        for task in self._progress.task_ids:  # there is one
            if share is None:
                self._progress.update(task, text=text)
            else:
                self._progress.update(task, total=1.0, completed=share, text=f"{share:4.0%}  {text}")

    def _start(self) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 (slow)

        progress = Progress(
            TextColumn(f"{{task.description:<{LABEL_WIDTH - 1}}}", style="bold"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            transient=True,
        )
        progress.add_task(self._label, total=None, text="")
        progress.start()
        return progress
