"""Runs the command of ``--key-command``, which prints a key."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from resilient_pq.errors import KeyMissingError, OptionError

#: The environment variable that has the key metadata, where they are text and no longer than this.
_VARIABLE: Final = "RPQ_KEY_METADATA"
_MAX_VARIABLE: Final = 4096


async def printed_by(command: Sequence[str], key_metadata: bytes) -> bytes:
    """What a command prints for some key metadata, which no shell sees; it is killed where its caller is cancelled."""
    environment = {name: value for name, value in os.environ.items() if name != _VARIABLE}
    with suppress(UnicodeDecodeError):
        text = key_metadata.decode()
        if len(text) <= _MAX_VARIABLE and "\0" not in text:
            environment[_VARIABLE] = text
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment)
    except OSError as error:
        raise OptionError(f"the key command {command[0]!r} cannot be started: {error.strerror}") from error
    try:
        printed, _ = await process.communicate(key_metadata)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode:
        raise KeyMissingError(f"the key command {command[0]!r} ended with exit status {process.returncode}")
    return printed
