"""A program that appends rows to a file, and kills itself at a step: before it, or when it is done.

    killed_appender.py URL STORAGE_OPTIONS BATCHES STEP before|behind

Steps are calls of the operating system that change files, or requests to a store. Lines: ``step N NAME`` before each,
``stored N`` when the writer says that N rows survive it, ``done`` at the end. Without a step, -1, it goes on by itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import resilient_pq as rpq
from resilient_pq.io.transfer import attempts

CALLS = ("write", "writev", "copy_file_range", "fsync", "ftruncate", "fchmod", "replace", "link", "unlink")
GROUP, SIZE = 50, 3_000


def rows(start: int, stop: int, size: int = SIZE) -> dict[str, list[Any]]:
    """The rows from `start` up to `stop`."""
    return {"id": list(range(start, stop)), "noise": [bytes([i % 251]) * size for i in range(start, stop)]}


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Steps:
    """Counts steps, and kills the process at one of them."""

    def __init__(self, at: int, when: str) -> None:
        self.at, self.when, self.number = at, when, -1

    def begin(self, name: str) -> int:
        self.number += 1
        say("step", self.number, name)
        if (self.number, self.when) == (self.at, "before"):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.number

    def end(self, number: int) -> None:
        if (number, self.when) == (self.at, "behind"):
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        real_retrying = attempts.retrying

        async def retrying(call: Any, *args: Any, **kwargs: Any) -> Any:
            number = self.begin("request")
            try:
                return await real_retrying(call, *args, **kwargs)
            finally:
                self.end(number)

        attempts.retrying = retrying  # type: ignore[assignment]
        for name in CALLS:
            if hasattr(os, name):
                setattr(os, name, self.counted(name, getattr(os, name)))

    def counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **kwargs: Any) -> Any:
            number = self.begin(name)
            answer = call(*args, **kwargs)
            self.end(number)
            return answer

        return counting


async def main(url: str, storage_options: str, batches: int, step: int, when: str) -> None:
    Steps(step, when).watch()
    options = rpq.WriteOptions(part_bytes=5 * 2**20, max_threads=1)
    given = json.loads(storage_options)
    async with rpq.append(
        url, row_group_rows=GROUP, compression="none", checkpoint_every=None, options=options, storage_options=given
    ) as writer:
        for i in range(batches):
            await writer.write(rows(writer.num_rows, writer.num_rows + GROUP))
            if i % 3 == 2:
                await writer.checkpoint()
            say("stored", writer.num_rows_stored)
    say("done")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
