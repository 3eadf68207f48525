"""`rpq` as the shell calls it: a module outside of the package, as Ctrl-C may come while that is imported."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


def main() -> int:
    """Run the command line, and end calmly where it is interrupted before anything is begun, too."""

    def leave(number: int, _: object) -> None:
        with suppress(OSError):  # stderr is closed
            os.write(2, b"interrupted nothing was begun\n")
        os._exit(128 + number)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    from resilient_pq.cli.main import main as run  # noqa: PLC0415 (what takes the moment)

    return run()
