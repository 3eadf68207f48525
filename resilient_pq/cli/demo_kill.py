"""Starts the demo's writer, watches it, and kills it half-way."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass

from resilient_pq.cli.demo_writer import Job, Progress
from resilient_pq.errors import RecoveryError

#: Share of the rows after which the writer is killed.
HALF_WAY = 0.5
#: A writer at the end of its rows tells fifty times a second how much is stored by now.
MAX_REPORTS_AT_END = 100


@dataclass(frozen=True, slots=True)
class Killed:
    """A writer that is gone.

    Attributes:
        pid: Its process id.
        last: What it had told last: it may have been further.
        seconds: How long it lived.
    """

    pid: int
    last: Progress
    seconds: float


async def kill_half_way(job: Job, watch: Callable[[int, Progress], None]) -> Killed:
    """Run a writer, and kill it with SIGKILL at some moment after half of its rows.

    A complete row group has reached the store by then, where the rows are enough for one.

    Args:
        job: What it writes.
        watch: Called with its process id and how far it is.

    Raises:
        ResilientPQError: The writer could not write.
    """
    began = time.monotonic()
    async with _writer(job) as process, aclosing(_reports(process)) as reports:
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
        # Not just after it told something, but anywhere between.
        await asyncio.sleep(random.random() * 3 * (time.monotonic() - began) / told)
        process.kill()
        seconds = time.monotonic() - began
        async for progress in reports:  # what it still told before it died
            last = progress
        await process.wait()
    return Killed(process.pid, last, seconds)


@asynccontextmanager
async def _writer(job: Job) -> AsyncIterator[Process]:
    """The process; whatever happens, it is dead at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "resilient_pq.cli.demo_writer",
        stdin=PIPE,
        stdout=PIPE,
        start_new_session=True,  # Ctrl-C is for us alone
    )
    try:
        assert process.stdin is not None
        process.stdin.write(f"{job.to_json()}\n".encode())
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _reports(process: Process) -> AsyncGenerator[Progress, None]:
    """What the writer tells; the line that it was killed in the middle of is left out."""
    assert process.stdout is not None
    while (line := await process.stdout.readline()).endswith(b"\n"):
        progress = Progress.from_json(line)
        if progress.failure is not None:
            raise progress.failure.to_error()
        yield progress
