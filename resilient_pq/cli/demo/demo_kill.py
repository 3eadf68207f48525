"""Starts the demo's writer, watches it, and kills it half-way."""

from __future__ import annotations

import asyncio
import base64
import pickle
import random
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

from resilient_pq.cli.demo.demo_rows import DemoRows
from resilient_pq.errors import RecoveryError, ResilientPQError
from resilient_pq.lazy_dataclass import dataclass

#: Share of the rows after which the writer is killed.
HALF_WAY = 0.5
#: A writer at the end of its rows reports fifty times a second.
MAX_REPORTS_AT_END = 100


@dataclass(frozen=True, slots=True)
class Job:
    """The file that the writer writes, its rows, and how to reach the store; `part_bytes` of None is the default."""

    url: str
    rows: DemoRows
    storage_options: dict[str, Any]
    part_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the writer: the share of all rows, the rows that it accepted, and those that are stored."""

    share: float = 0.0
    accepted: int = 0
    stored: int = 0


@dataclass(frozen=True, slots=True)
class Killed:
    """A killed writer: its process id, its last report, and the seconds that it ran."""

    pid: int
    last: Progress
    seconds: float


def to_line(value: object) -> bytes:
    """Anything on its way to another process, as a line."""
    return base64.b64encode(pickle.dumps(value)) + b"\n"


def from_line(line: bytes) -> Any:
    """The other way round."""
    return pickle.loads(base64.b64decode(line))


async def kill_half_way(job: Job, watch: Callable[[int, Progress], None]) -> Killed:
    """Run a writer, and kill it with SIGKILL at some moment after half of its rows, when a row group is stored."""
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "resilient_pq.cli.demo.demo_writer",
        stdin=PIPE,
        stdout=PIPE,
        start_new_session=True,  # Ctrl-C is for us alone
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(to_line(job))
        async with aclosing(_reports(process.stdout)) as reports:
            told, at_end, last = 0, 0, Progress()
            async for last in reports:
                watch(process.pid, last)
                told, at_end = told + 1, at_end + (last.share >= 1)
                if last.share >= HALF_WAY and (last.stored or at_end > MAX_REPORTS_AT_END):
                    break
            else:
                status = await process.wait()
                how = f"signal {-status} ended it" if status < 0 else f"it ended with {status}"
                raise RecoveryError(
                    f"the writer ended before the demo could kill it: {how}",
                    hint="if memory ran out, write fewer rows: --rows",
                )
            # Kill it at any moment between two reports.
            await asyncio.sleep(random.random() * 3 * (time.monotonic() - began) / told)
            process.kill()
            seconds = time.monotonic() - began
            async for progress in reports:  # reports before it died
                last = progress
        await process.wait()  # or a second kill takes the exit status that asyncio waits for
        return Killed(process.pid, last, seconds)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _reports(stdout: asyncio.StreamReader) -> AsyncGenerator[Progress, None]:
    """The reports of the writer, without a line that the kill cut off."""
    while (line := await stdout.readline()).endswith(b"\n"):
        told = from_line(line)
        if isinstance(told, ResilientPQError):
            raise told
        yield told
