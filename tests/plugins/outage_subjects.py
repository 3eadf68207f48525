"""What runs in child processes while the network and the store fail: writers, sinks, readers, and the command line.

Each is started by `multiprocessing`, says over a pipe what it was promised before it goes on, and how long each call
took. Says: ("calling", name, begin), ("called", name, begin, end), ("began", rows), ("stored", rows), ("ended",),
("error", class, text), ("wrong", text). Rows of a data set are counted by partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import inspect
import io
import os
import random
import sys
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

import aiobotocore.session
import pyarrow as pa
import s3fs

import resilient_pq as rpq
from resilient_pq.cli.main import main as command_line
from resilient_pq.io.transfer import retry
from resilient_pq.units import MiB

assert aiobotocore.session and s3fs  # what every child needs, loaded once

#: Seconds of one attempt to connect, or without progress, as the package has them.
CONNECT_SECONDS, PROGRESS_SECONDS = 5.0, 15.0


@dataclass(frozen=True)
class Job:
    """What a subject is to do."""

    what: str  # "file", "sink", "read" or "command"
    url: str  # The file or the folder
    endpoint_url: str  # Of the store
    environment: Mapping[str, str]  # Its variables for AWS, in place of those of its parent
    errors: Path  # The file that gets its standard error and output
    scale: float  # What times are multiplied by
    retry_seconds: float  # How long it goes on trying, not scaled
    tag: int = 0  # Stands in every row it writes
    num_rows: int = 0  # Of the whole source
    row_bytes: int = 0  # Of a row, about
    row_group_rows: int = 0  # Rows of a row group
    seed: int = 0  # Of its choices
    finish: bool = True  # Whether it publishes what it has when it has all rows
    replay_from: Mapping[str, int] | None = None  # Of a sink, the rows of each partition before `offset`
    offset: int = 0  # Where the source of a sink goes on
    command: tuple[str, ...] = ()  # Arguments of the command line

    @property
    def attempt_seconds(self) -> float:
        """One attempt takes no longer without progress."""
        return max(PROGRESS_SECONDS * self.scale, 1.0)

    @property
    def undecided_grace(self) -> float:
        """Seconds that a part may still arrive."""
        return 60 * self.scale

    @property
    def patience(self) -> float:
        """Seconds that it goes on trying; a busy machine may take one to begin."""
        return max(self.retry_seconds * self.scale, 2.5)

    @property
    def storage_options(self) -> dict[str, Any]:
        """As a caller gives them."""
        config: dict[str, Any] = {
            "connect_timeout": max(CONNECT_SECONDS * self.scale, 1.0),
            "read_timeout": self.attempt_seconds,
        }
        if not _TIMED:
            config["retries"] = {"max_attempts": 60}
        return {"endpoint_url": self.endpoint_url, "config_kwargs": config}

    @property
    def policy(self) -> dict[str, Any]:
        """The keyword that says how long to try."""
        if not _TIMED:
            return {}
        fields = {
            "seconds": self.patience,
            "base_delay": max(0.1 * self.scale, 0.02),
            "max_delay": max(5 * self.scale, 0.5),
        }
        return {"retry": retry.RetryPolicy(**fields)}


_IN_TIME = "max_unstored_seconds" in inspect.signature(rpq.resume).parameters
_TIMED = "retry" in inspect.signature(rpq.resume).parameters


def row_of(number: int, size: int) -> bytes:
    """The noise in a row."""
    return random.Random(number).randbytes(size)


def rows(start: int, stop: int, size: int, tag: int) -> pa.Table:
    """Rows of the source, with a mark of who writes them."""
    return pa.table(
        {
            "id": pa.array(range(start, stop), pa.int64()),
            "by": pa.array([tag] * (stop - start), pa.int32()),
            "kind": pa.array([f"k{number % 2}" for number in range(start, stop)]),
            "noise": pa.array([row_of(number, size) for number in range(start, stop)], pa.binary()),
        }
    )


class Voice:
    """Says things to the parent."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def say(self, *words: object) -> None:
        """Send them, before anything else is done."""
        self._pipe.send(words)

    @contextlib.contextmanager
    def calling(self, name: str) -> Iterator[None]:
        """Tell how long a call takes."""
        begin = monotonic()
        self.say("calling", name, begin)
        try:
            yield
        finally:
            self.say("called", name, begin, monotonic())


def run(job: Job, pipe: Connection) -> None:
    """Be the subject; the exit status is 3 after an error of the package's, 1 after any other."""
    with job.errors.open("ab", buffering=0) as errors:
        os.dup2(errors.fileno(), 1)
        os.dup2(errors.fileno(), 2)
    sys.stdout, sys.stderr = (io.TextIOWrapper(open(number, "wb", closefd=False)) for number in (1, 2))  # noqa: SIM115
    faulthandler.enable(sys.stderr)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(job.environment)
    voice = Voice(pipe)
    status = 0
    try:
        if job.what == "command":
            status = _command(job, voice)
        else:
            asyncio.run({"file": write_file, "sink": write_sink, "read": read_file}[job.what](job, voice))
        voice.say("ended", status)
    except rpq.ResilientPQError as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        voice.say("error", type(error).__name__, f"{error} | {error.hint} | {notes}")
        status = 3
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    pipe.close()
    os._exit(status)


def _command(job: Job, voice: Voice) -> int:
    sys.argv = ["rpq", *job.command]
    with voice.calling(" ".join(job.command[:2])):
        return command_line()


async def create_or_resume(job: Job, options: rpq.WriteOptions) -> rpq.Writer:
    """A writer of the file, whatever was left of it."""
    given: dict[str, Any] = {
        "row_group_rows": job.row_group_rows,
        "compression": "none",
        "options": options,
        "storage_options": job.storage_options,
        **job.policy,
    }
    if _IN_TIME:
        given["max_unstored_seconds"] = random.Random(job.seed).choice((None, 30 * job.scale))
    if hasattr(rpq, "create_or_resume"):
        return await rpq.create_or_resume(job.url, **given)
    try:
        return await rpq.resume(job.url, **given)
    except rpq.NotFoundError:
        return await rpq.create(job.url, **given)


async def write_file(job: Job, voice: Voice) -> None:
    """Create the file or go on with it, and write it to its end."""
    rng = random.Random(job.seed)
    options = rpq.WriteOptions(
        max_bytes_in_flight=rng.choice((5, 12, 60)) * MiB,
        undecided_grace=job.undecided_grace,
        checkpoint_bytes=rng.choice((None, 4 * MiB)),
    )
    with voice.calling("create_or_resume"):
        writer = await create_or_resume(job, options)
    voice.say("began", writer.num_rows_stored)
    async with leaving(writer, voice, job.finish):
        while writer.num_rows < job.num_rows:
            stop = min(writer.num_rows + rng.randint(1, 2 * job.row_group_rows), job.num_rows)
            given = rows(writer.num_rows, stop, job.row_bytes, job.tag)
            with voice.calling("write"):
                await writer.write(given)
            voice.say("stored", writer.num_rows_stored)
            if rng.random() < 0.3:
                with voice.calling("checkpoint"):
                    checkpoint = await writer.checkpoint()
                if checkpoint.state in ("stored", "visible"):
                    voice.say("stored", checkpoint.num_rows)
            await asyncio.sleep(rng.choice((0, 0, 0, 0.05)))
            voice.say("stored", writer.num_rows_stored)
    if job.finish:
        voice.say("published", job.num_rows)


@contextlib.asynccontextmanager
async def leaving(writer: Any, voice: Voice, finish: bool) -> AsyncIterator[None]:
    """The end of ``async with``, timed; without `finish` the process ends as a crash does."""
    try:
        yield
    except BaseException as error:
        with voice.calling("leave"):
            if await writer.__aexit__(type(error), error, error.__traceback__):
                return
        raise
    if not finish:
        os._exit(0)
    with voice.calling("close"):
        await writer.close()


async def write_sink(job: Job, voice: Voice) -> None:
    """Go on with a data set of two partitions."""
    rng = random.Random(job.seed)
    options = rpq.WriteOptions(max_bytes_in_flight=rng.choice((5, 20)) * MiB, undecided_grace=job.undecided_grace)
    in_time = {"max_unstored_seconds": rng.choice((None, 30 * job.scale))} if _IN_TIME else {}
    with voice.calling("resume_dataset"):
        sink = await rpq.resume_dataset(
            job.url,
            replay_from=job.replay_from or {},
            partition_by=["kind"],
            roll_rows=rng.choice((None, 6 * job.row_group_rows)),
            roll_bytes=rng.choice((8, 20)) * MiB,
            roll_seconds=rng.choice((None, 60 * job.scale)),
            row_group_rows=job.row_group_rows,
            compression="none",
            options=options,
            storage_options=job.storage_options,
            **in_time,
            **job.policy,
        )
    voice.say("began", dict(sink.num_rows_stored_by_partition))
    offset = job.offset
    async with leaving(sink, voice, job.finish):
        while offset < job.num_rows:
            stop = min(offset + rng.randint(1, 3 * job.row_group_rows), job.num_rows)
            with voice.calling("write"):
                await sink.write(rows(offset, stop, job.row_bytes, job.tag))
            offset = stop
            voice.say("stored", dict(sink.num_rows_stored_by_partition))
            if rng.random() < 0.3:
                with voice.calling("checkpoint"):
                    checkpoint = await sink.checkpoint()
                if checkpoint.state in ("stored", "visible"):
                    voice.say("checkpoint", offset, dict(checkpoint.num_rows_by_partition))
            await asyncio.sleep(rng.choice((0, 0, 0, 0.05)))
    if job.finish:
        voice.say("published", dict(sink.num_rows_stored_by_partition))


async def read_file(job: Job, voice: Voice) -> None:
    """Read the file in several ways, and hold every value against the source."""
    rng = random.Random(job.seed)
    for _ in range(3):
        if rng.random() < 0.25:
            await _check(job, voice)
            continue
        given: dict[str, Any] = {
            "storage_options": job.storage_options,
            **(job.policy if _OPEN_TIMED else {}),
        }
        with voice.calling("open"):
            file = await rpq.open(job.url, **given)
        try:
            how = rng.choice(("whole", "columns", "filter", "batches"))
            numbers: list[int] = []
            with voice.calling(how):
                if how == "batches":
                    # Each batch is an answer of its own, and the time of a call ends with it.
                    async with file.batches(batch_rows=100) as batches:
                        async for batch in batches:
                            numbers += _compared(pa.table(batch), job, voice)
                    wanted = list(range(job.num_rows))
                elif how == "filter":
                    least = rng.randrange(job.num_rows)
                    table = pa.table(await file.read(filters=[("id", ">=", least)]))
                    numbers, wanted = _compared(table, job, voice), list(range(least, job.num_rows))
                else:
                    columns = None if how == "whole" else ["id", "by"]
                    numbers = _compared(pa.table(await file.read(columns)), job, voice)
                    wanted = list(range(job.num_rows))
            if numbers != wanted:
                voice.say("wrong", f"{how}: {len(numbers)} rows of {len(wanted)}")
        finally:
            with voice.calling("close"):
                await file.close()


async def _check(job: Job, voice: Voice) -> None:
    with voice.calling("check"):
        report = await rpq.check(job.url, storage_options=job.storage_options, **job.policy)
    if report.outcome != "sound" or report.num_rows != job.num_rows:
        voice.say("wrong", f"check: {report.outcome}, {report.num_rows} rows of {job.num_rows}")


_OPEN_TIMED = "retry" in inspect.signature(rpq.open).parameters


def _compared(table: pa.Table, job: Job, voice: Voice) -> list[int]:
    numbers: list[int] = table["id"].to_pylist()
    if "noise" in table.column_names:
        noise = table["noise"].to_pylist()
        if noise != [row_of(number, job.row_bytes) for number in numbers]:
            voice.say("wrong", "a value differs")
    return numbers
