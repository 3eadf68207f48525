"""The writer that the demo kills: a process of its own, ``python -m resilient_pq.cli.demo.demo_writer``.

A line on stdin says what to write; lines on stdout tell, again and again, how far it is. It never completes its file:
at the end of the rows it waits to be killed.
"""

from __future__ import annotations

import asyncio
import math
import sys

import resilient_pq as rpq
from resilient_pq.cli.demo.demo_kill import Job, Progress, from_line, to_line
from resilient_pq.errors import ResilientPQError, SchemaError, Where

#: Row groups that the whole table would have.
ROW_GROUPS = 24
#: Checkpoints that are stored on the way of the whole table, where rows need one to be stored.
CHECKPOINTS = 12


async def write(job: Job) -> None:
    """Write until the rows end, telling how far it is, and wait; the file is never completed."""
    options = rpq.WriteOptions() if job.part_bytes is None else rpq.WriteOptions(part_bytes=job.part_bytes)
    async with job.rows.open() as rows:
        first = await anext(rows.pieces, None)
        if first is None:
            raise SchemaError("there are no rows in it", where=Where(key=job.rows.input))
        piece, share = first
        async with rpq.create(
            job.url,
            rows.schema,
            row_group_rows=max(math.ceil(len(piece) / share / ROW_GROUPS), 1),
            options=options,
            storage_options=job.storage_options,
        ) as writer:
            checkpoints = 0
            while True:
                await writer.write(piece)
                if job.part_bytes is not None and share * CHECKPOINTS >= checkpoints + 1:
                    await writer.checkpoint()
                    checkpoints += 1
                _tell(Progress(share, writer.num_rows, writer.num_rows_stored))
                following = await anext(rows.pieces, None)
                if following is None:
                    break
                piece, share = following
            await _wait(writer)


async def _wait(writer: rpq.Writer) -> None:
    """Wait for the end of stdin: the process that should kill this one is gone then."""
    end = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    while not end.done():
        _tell(Progress(1.0, writer.num_rows, writer.num_rows_stored))
        await asyncio.wait([end], timeout=0.02)
    await writer.abort()


def _tell(told: Progress | ResilientPQError) -> None:
    sys.stdout.buffer.write(to_line(told))
    sys.stdout.buffer.flush()


def main() -> int:
    """Do the job that stdin names."""
    try:
        asyncio.run(write(from_line(sys.stdin.readline().encode())))
    except BrokenPipeError:
        return 1  # the reader of stdout is gone
    except ResilientPQError as error:
        _tell(error.detached())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
