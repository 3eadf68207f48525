"""The writer that the demo kills: a process of its own, ``python -m resilient_pq.cli.demo_writer``.

A line of JSON on stdin says what to write; a line of JSON on stdout tells, again and again, how far it is. It never
completes its file: at the end of the rows it waits to be killed.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from dataclasses import asdict, dataclass
from typing import Any

import resilient_pq as rpq
from resilient_pq import errors
from resilient_pq.cli.demo_rows import DemoRows
from resilient_pq.errors import ResilientPQError, SchemaError, Where

#: Row groups that the whole table would have.
ROW_GROUPS = 24
#: Checkpoints that are stored on the way of the whole table, where rows need one to be stored.
CHECKPOINTS = 12


@dataclass(frozen=True, slots=True)
class Job:
    """What to write, and where.

    Attributes:
        url: The file.
        rows: Its rows.
        storage_options: How to reach the store.
        part_bytes: Bytes of a part of an upload; None for the default.
    """

    url: str
    rows: DemoRows
    storage_options: dict[str, Any]
    part_bytes: int | None = None

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Job:
        """The other way round."""
        values = json.loads(line)
        return cls(**{**values, "rows": DemoRows(**values["rows"])})


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of ours on its way from one process to another."""

    family: str
    message: str
    hint: str | None

    @classmethod
    def of(cls, error: ResilientPQError) -> Failure:
        """What is told of an error; its place becomes part of the message."""
        family = next(name for name in _FAMILIES if isinstance(error, getattr(errors, name)))
        place = f" (at {error.where})" if str(error.where) else ""
        return cls(family, f"{error.message}{place}", error.hint)

    def to_error(self) -> ResilientPQError:
        """An error of the same family."""
        kind: type[ResilientPQError] = getattr(errors, self.family)
        return kind(self.message, hint=self.hint)


_FAMILIES = ("StoreError", "FormatError", "SchemaError", "UnsupportedError", "ResilientPQError")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the writer is.

    Attributes:
        share: Of all rows, from 0 to 1.
        accepted: Rows that it took.
        stored: Rows that survive it.
        failure: Why it gave up; None while it goes on.
    """

    share: float = 0.0
    accepted: int = 0
    stored: int = 0
    failure: Failure | None = None

    @classmethod
    def from_json(cls, line: bytes) -> Progress:
        """What a line tells."""
        values = json.loads(line)
        failure = values.pop("failure")
        return cls(**values, failure=None if failure is None else Failure(**failure))


async def write(job: Job) -> None:
    """Write until the rows end, telling how far it is, and wait; the file is never completed.

    Raises:
        ResilientPQError: The rows cannot be read, or not written.
    """
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
    """Until the end of stdin: whoever was to kill us is gone then."""
    end = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    while not end.done():
        _tell(Progress(1.0, writer.num_rows, writer.num_rows_stored))
        await asyncio.wait([end], timeout=0.02)
    await writer.abort()


def _tell(progress: Progress) -> None:
    sys.stdout.write(f"{json.dumps(asdict(progress))}\n")
    sys.stdout.flush()


def main() -> int:
    """Do the job that stdin names."""
    try:
        asyncio.run(write(Job.from_json(sys.stdin.readline())))
    except BrokenPipeError:
        return 1  # nobody listens any more
    except ResilientPQError as error:
        _tell(Progress(failure=Failure.of(error)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
