"""Signals to a verb: the first cancels it, the second ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any, Self

#: Those that ask a process to end. Windows has no SIGHUP.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
#: Seconds that a cancelled verb may take before a note is printed.
_PATIENCE = 2.0


def leave_when_interrupted() -> None:
    """Let Ctrl-C end the process silently while no verb runs."""
    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
        signal.signal(signal.SIGINT, lambda number, _: os._exit(128 + number))


class InterruptedVerbError(Exception):
    """A signal ended the verb; `notes` say what was kept."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self.notes = notes


class Interrupts:
    """Cancels a verb at the first signal, and ends the process at the second; `exit_code` is None without a signal."""

    def __init__(self, *, waiting: Callable[[], None], leaving: Callable[[], None]) -> None:
        """Catch nothing yet; `waiting` is called when the verb takes long to end, `leaving` before the process ends."""
        self.exit_code: int | None = None
        self._waiting = waiting
        self._leaving = leaving
        self._end: Callable[[], None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        """Catch signals, but those that are ignored, as by `nohup`."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.exit_code is not None:
            # Threads may hang for minutes, in a store that does not answer or in a file system: they end with us.
            self._leaving()
            os._exit(self.exit_code)
        self.exit_code = 128 + number
        if self._end is not None:
            self._end()

    async def run(self, work: Coroutine[Any, Any, int]) -> int:
        """Await `work`; an InterruptedVerbError when a signal ended it."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def end() -> None:
            task.cancel()
            loop.call_later(_PATIENCE, self._waiting)

        self._end = lambda: _soon(loop, end)
        if self.exit_code is not None:  # it came before there was anything to cancel
            end()
        try:
            return await work
        except asyncio.CancelledError as error:
            raise InterruptedVerbError(list(getattr(error, "__notes__", ()))) from None


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # it has ended by itself
        loop.call_soon_threadsafe(call)
