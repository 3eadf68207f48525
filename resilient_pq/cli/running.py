"""Runs what a verb does to its end, whatever that is, and turns the end into an exit code."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from resilient_pq.bulk.file_result import exit_code_of
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.interrupts import InterruptedVerbError, Interrupts
from resilient_pq.cli.output.output_streams import OutputClosedError
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.shared_options import Storage
from resilient_pq.errors import OutOfMemoryError, ResilientPQError

#: What a verb does: it speaks through the output, and gives its exit code.
Work = Callable[[Output], Coroutine[Any, Any, int]]


def run_verb(verb: str, work: Work, *, as_json: bool, urls: Sequence[str] = (), reached: Storage | None = None) -> int:
    """The exit code of a verb.

    Args:
        verb: Its name.
        work: What it does. SIGINT, SIGTERM and SIGHUP cancel it; a second one ends the process.
        as_json: Whether stdout gets one JSON document.
        urls: What it is about: what it looks at, or what it writes.
        reached: How stores are reached.
    """
    output = Output(verb, as_json=as_json, urls=urls, reached=reached)
    interrupts = Interrupts(waiting=output.ending, leaving=output.leaving)
    with interrupts:
        code = _outcome(output, work, interrupts)
    return code if interrupts.exit_code is None or code == ExitCode.SOUND else interrupts.exit_code


def _outcome(output: Output, work: Work, interrupts: Interrupts) -> int:
    try:
        with _notices(output):
            return asyncio.run(interrupts.run(work(output)))
    except InterruptedVerbError as interrupt:
        output.interrupted(interrupt.notes)
        return ExitCode.INTERRUPTED
    except OutputClosedError:
        return ExitCode.SOUND  # whoever reads our stdout has seen enough
    except ResilientPQError as error:
        output.failed(error)
        return exit_code_of(error)
    except MemoryError as error:  # of our own code here, or beside all files
        output.failed(OutOfMemoryError(str(error) or "there is not enough memory"))
        return ExitCode.USAGE
    except Exception as error:
        output.crashed(error)
        return ExitCode.INTERNAL


@contextmanager
def _notices(output: Output) -> Iterator[None]:
    """Warnings become notes on stderr; what the library logs is in the errors as well."""
    quiet = logging.NullHandler()
    log = logging.getLogger("resilient_pq")
    log.addHandler(quiet)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        output.note(str(message))

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield
    finally:
        log.removeHandler(quiet)
