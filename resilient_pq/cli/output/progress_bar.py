"""The progress bar on stderr, for terminals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console

from resilient_pq.units import in_bytes

if TYPE_CHECKING:
    from rich.progress import Progress

#: Columns of the word at the beginning of a line, the space behind it included.
LABEL_WIDTH = 12

#: Seconds before the bar appears, and between its updates.
_FIRST_SHOWN = 0.3
_SHOWN_EVERY = 0.1


class Meter(Protocol):
    """Shows the progress of some work."""

    def update(self, share: float | None, text: str = "") -> None:
        """Show the share that is done, from 0 to 1; None where it is unknown."""


def progress_in_bytes(meter: Meter) -> Callable[[int, int], None]:
    """A `progress` callback that shows how many bytes are done, of how many."""
    return lambda done, size: meter.update(done / max(size, 1), in_bytes(done))


class NoBar:
    """The meter where stderr is no terminal."""

    def update(self, share: float | None, text: str = "") -> None:
        """Show nothing."""


class ProgressBar:
    """A bar that disappears when its block ends."""

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
        """Show the share, a few times a second; nothing appears for work of less than `_FIRST_SHOWN` seconds."""
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
