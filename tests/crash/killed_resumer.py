"""A program that begins or resumes one file as often as it is told to, each time in a process of its own.

    killed_resumer.py URL STORAGE_OPTIONS NUM_ROWS BYTES_OF_A_ROW

For each line on its input, a seed, it forks a process, which starts at once since everything is imported. That says
``PID pid`` first, ``PID begun N`` when it has a writer of a file with N rows, ``PID stored N`` when a checkpoint came back
as stored, ``PID done`` when the file is complete, and ``PID ended NAME`` with the name of the error that ended it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import traceback
from typing import Any

import aiobotocore.session  # noqa: F401  (imported before the fork, as all that S3 needs)
import s3fs  # noqa: F401

import resilient_pq as rpq
import resilient_pq.io.s3.s3_store


def rows(start: int, stop: int, size: int) -> dict[str, list[Any]]:
    numbers = range(start, stop)
    return {"id": list(numbers), "noise": [random.Random(number).randbytes(size) for number in numbers]}


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, (os.getpid(), *words))) + "\n").encode())


async def run(url: str, storage_options: Any, num_rows: int, size: int, seed: int) -> None:
    rng = random.Random(seed)
    options = rpq.WriteOptions(max_bytes_in_flight=5 * 2**20)
    settings: dict[str, Any] = {"compression": "none", "checkpoint_every": None, "options": options}
    async with rpq.create_or_resume(url, storage_options=storage_options, **settings) as writer:
        start = writer.num_rows_stored
        say("begun", start)
        while start < num_rows:
            stop = min(num_rows, start + rng.randint(1, 40))
            await writer.write(rows(start, stop, size))
            start = stop
            if rng.random() < 0.5 and (await writer.checkpoint()).state is rpq.StoredState.STORED:
                say("stored", writer.num_rows_stored)
    say("done")


def main(url: str, storage_options: str, num_rows: int, size: int) -> None:
    options = json.loads(storage_options)
    for line in sys.stdin:
        if os.fork():
            continue
        say("pid")
        try:
            asyncio.run(run(url, options, num_rows, size, int(line)))
        except BaseException as error:
            traceback.print_exc()
            say("ended", type(error).__name__)
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
