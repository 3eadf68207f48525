"""Runs what a verb does to its end, whatever that is, and turns the end into an exit code."""

from __future__ import annotations

import asyncio
import logging
import signal
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.render import Output, OutputClosedError
from resilient_pq.errors import ResilientPQError
from resilient_pq.folder.result import exit_code_of

#: What a verb does: it speaks through the output, and gives its exit code.
Work = Callable[[Output], Coroutine[Any, Any, int]]


class _InterruptedError(Exception):
    """SIGINT or SIGTERM; `notes` say what was kept."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self.notes = notes


def run_verb(verb: str, work: Work, *, as_json: bool) -> int:
    """The exit code of a verb.

    Args:
        verb: Its name.
        work: What it does. SIGINT and SIGTERM cancel it.
        as_json: Whether stdout gets one JSON document.
    """
    output = Output(verb, as_json=as_json)
    try:
        with _notices(output):
            return asyncio.run(_cancellable(work(output)))
    except _InterruptedError as interrupt:
        output.interrupted(interrupt.notes)
        return ExitCode.INTERRUPTED
    except KeyboardInterrupt:  # a second one: the verb was not given the time to end
        output.interrupted(["a second time: it was not waited for what was under way"])
        return ExitCode.INTERRUPTED
    except OutputClosedError:
        return ExitCode.SOUND  # whoever reads our stdout has seen enough
    except ResilientPQError as error:
        output.failed(error)
        return exit_code_of(error)
    except Exception as error:
        output.crashed(error)
        return ExitCode.INTERNAL


async def _cancellable(work: Coroutine[Any, Any, int]) -> int:
    """The work; asyncio itself cancels it at SIGINT, this does so at SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError, RuntimeError, ValueError):  # on Windows, or not in the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await work
    except asyncio.CancelledError as error:
        raise _InterruptedError(list(getattr(error, "__notes__", ()))) from None


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
