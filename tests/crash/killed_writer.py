"""A program that writes rows until it is killed, and says on its output what it has been promised.

    killed_writer.py URL STORAGE_OPTIONS ROWS_OF_A_GROUP BYTES_OF_A_ROW CHECKPOINT_EVERY LOG

Lines: ``written N`` when N rows are in complete row groups, ``stored N`` when the writer says that N rows survive
it, ``checkpoint N STATE`` when a checkpoint was asked for and came back. LOG is the writer's own log.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

import resilient_pq as rpq


def rows(start: int, stop: int, size: int) -> dict[str, list[Any]]:
    """The rows from `start` up to `stop`; each has a value of `size` bytes that does not compress."""
    return {
        "id": list(range(start, stop)),
        "name": [None if i % 10 == 0 else f"name {i % 37}" for i in range(start, stop)],
        "noise": [random.Random(i).randbytes(size) for i in range(start, stop)],
    }


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def main(url: str, storage_options: str, group: int, size: int, every: int, log: str) -> None:
    options = rpq.WriteOptions(part_bytes=5 * 2**20, max_bytes_in_flight=5 * 2**20, checkpoint_log=log)
    writer = await rpq.create(
        url,
        row_group_rows=group,
        compression="none",
        checkpoint_every=None,
        options=options,
        storage_options=json.loads(storage_options),
    )
    num_rows = 0
    while True:
        await writer.write(rows(num_rows, num_rows + group, size))
        num_rows += group
        say("written", num_rows)
        if num_rows // group % every == 0:
            checkpoint = await writer.checkpoint()
            say("checkpoint", checkpoint.num_rows, checkpoint.state)
        say("stored", writer.num_rows_stored)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3], *map(int, sys.argv[3:6]), sys.argv[6]))
