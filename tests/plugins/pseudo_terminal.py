"""Commands whose standard streams are a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path


def said_in_terminal(command: list[str], *, columns: int = 100, folder: Path | None = None, **environment: str) -> str:
    """What a process says when stdout and stderr are a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    environment = {**kept, "TERM": "xterm-256color", **environment}
    said = b""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=folder, env=environment
    ) as process:
        os.close(theirs)
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:  # Linux says so when the other side is closed
                break
            if not more:
                break
            said += more
        process.wait(timeout=120)
    os.close(ours)
    return said.decode()
