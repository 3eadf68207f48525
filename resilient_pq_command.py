"""`rpq` as the shell calls it: a module outside of the package, as Ctrl-C may come while that is imported."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


def end_calmly() -> None:
    """Have Ctrl-C end the process with a line while the package is imported, and no verb is at work yet."""

    def leave(number: int, _: object) -> None:
        with suppress(OSError):  # stderr is closed
            os.write(2, b"interrupted nothing was begun\n")
        os._exit(128 + number)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)


def main() -> int:
    """Run the command line."""
    end_calmly()
    from resilient_pq.cli.main import main as run  # noqa: PLC0415 (what takes the moment)

    return run()
