"""A program that writes a data set until it is killed or its source ends, and says on its output what it was promised.

    killed_sink.py URL STORAGE_OPTIONS STATE NUM_ROWS ROW_BYTES SEED

STATE is what the run before said last behind ``checkpoint``, or ``{}``. Lines: ``resumed {rows by partition}`` when the
data set is open, ``checkpoint {"offset": N, "rows": {rows by partition}}`` when a checkpoint came back and the first N
rows of the source are before it, ``ended`` when all is published.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

import resilient_pq as rpq
from resilient_pq.units import MiB

#: How both this program and who reads its files call the data set.
SETTINGS: dict[str, Any] = {"partition_by": ["day", "kind"], "max_open": 3}


def row(number: int, size: int) -> dict[str, Any]:
    """One row: partitions change as the source goes on, so that some files are left for long."""
    kind = None if number % 11 == 0 else f"kind {number % 2}"
    return {"n": number, "day": number // 300, "kind": kind, "noise": random.Random(number).randbytes(size)}


def partition_of(number: int) -> str:
    """Where it belongs, by the rules of Hive alone."""
    kind = "__HIVE_DEFAULT_PARTITION__" if number % 11 == 0 else f"kind%20{number % 2}"
    return f"day={number // 300}/kind={kind}"


def say(word: str, value: object = "") -> None:
    sys.stdout.write(f"{word} {json.dumps(value)}\n")
    sys.stdout.flush()


async def main(url: str, storage_options: str, state: str, num_rows: int, size: int, seed: int) -> None:
    known, rng = json.loads(state), random.Random(seed)
    async with rpq.resume_dataset(
        url,
        replay_from=known.get("rows", {}),
        roll_rows=rng.choice((37, 100)),
        roll_bytes=8 * MiB,
        row_group_rows=25,
        compression="none",
        options=rpq.WriteOptions(max_bytes_in_flight=5 * MiB),
        storage_options=json.loads(storage_options),
        **SETTINGS,
    ) as sink:
        say("resumed", sink.num_rows_stored_by_partition)
        offset = known.get("offset", 0)
        while offset < num_rows:
            count = min(rng.randint(1, 60), num_rows - offset)
            await sink.write([row(number, size) for number in range(offset, offset + count)])
            offset += count
            if rng.random() < 0.3:
                checkpoint = await sink.checkpoint()
                assert checkpoint.state in ("stored", "visible")
                say("checkpoint", {"offset": offset, "rows": dict(checkpoint.num_rows_by_partition)})
    say("ended")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], *map(int, sys.argv[4:7])))
