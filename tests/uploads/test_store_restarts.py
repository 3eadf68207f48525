"""A store that is gone for a while and comes back: connections are refused, and nobody who waits for it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import resilient_pq as rpq

NUM_BATCHES = 12


def batch(number: int) -> pa.Table:
    """A MiB that does not compress."""
    rng = np.random.default_rng(number)
    return pa.table({"id": pa.array(range(65_536 * number, 65_536 * (number + 1))), "noise": rng.random(65_536)})


WHOLE = pa.concat_tables(batch(number) for number in range(NUM_BATCHES))


class StopError(Exception):
    """What a caller raises while it writes."""


class Scene:
    """What goes on at a store when it goes away, and whether all of it comes to its end."""

    def __init__(self, s3: Any) -> None:
        self.s3 = s3
        self.how: dict[str, Any] = {"storage_options": s3.storage_options}
        self.small = rpq.WriteOptions(part_bytes=5 * 2**20)
        self._down = asyncio.Event()

    async def prepare(self) -> None:
        """A whole file, and one whose writer was stopped."""
        async with rpq.create(self.s3.url("whole"), compression="none", **self.how) as writer:
            await writer.write(WHOLE)
        with suppress(StopError):
            async with rpq.create(self.s3.url("left"), compression="none", options=self.small, **self.how) as writer:
                await writer.write(batch(0))
                await writer.checkpoint()
                raise StopError

    async def write(self) -> None:
        """A writer that is in the middle of it."""
        async with rpq.create(self.s3.url("new"), compression="none", options=self.small, **self.how) as writer:
            for number in range(NUM_BATCHES):
                await writer.write(batch(number))
                if number == 6:
                    assert (await writer.checkpoint()).state == "stored"
                    await self._down.wait()
        await self._is_whole("new")

    async def read(self) -> None:
        """A reader that has opened its file."""
        async with rpq.open(self.s3.url("whole"), **self.how) as file:
            await self._down.wait()
            assert pa.table(await file.read()).equals(WHOLE)

    async def check(self) -> None:
        """Who comes now."""
        await self._down.wait()
        report = await rpq.check(self.s3.url("whole"), **self.how)
        assert report.outcome == "sound"

    async def recover(self) -> None:
        """From this store into this store."""
        await self._down.wait()
        await rpq.recover(self.s3.url("whole"), self.s3.url("saved"), **self.how)
        await self._is_whole("saved")

    async def resume(self) -> None:
        """Behind what is stored."""
        await self._down.wait()
        async with rpq.resume(self.s3.url("left"), compression="none", options=self.small, **self.how) as writer:
            assert writer.num_rows_stored == batch(0).num_rows
            for number in range(1, NUM_BATCHES):
                await writer.write(batch(number))
        await self._is_whole("left")

    async def _is_whole(self, name: str) -> None:
        async with rpq.open(self.s3.url(name), **self.how) as file:
            assert pa.table(await file.read()).equals(WHOLE), name

    async def play(self, go_down: Callable[[], Any], come_back: Callable[[], Any], seconds: float) -> None:
        """Let the store go away while all of these are under way, and come back after some seconds."""
        await self.prepare()
        async with asyncio.TaskGroup() as group:
            for act in (self.write, self.read, self.check, self.recover, self.resume):
                group.create_task(act())
            await asyncio.sleep(1.0)  # the writer and the reader have begun
            await asyncio.to_thread(go_down)
            self._down.set()
            await asyncio.sleep(seconds)
            await asyncio.to_thread(come_back)


def outages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was told of outages."""
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return [line for line in told if "no request has succeeded" in line or "answers again" in line]


@pytest.mark.thorough
async def test_a_store_that_is_gone_for_longer_than_six_attempts_take(
    stoppable_moto: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """By default; each that waits for it is told of once when it goes, and once when it comes."""
    server = stoppable_moto
    await Scene(server.s3).play(server.kill, server.start, 3.5)
    told = outages(caplog)
    # The writer, the reader, the check, the resumer, and of the recovery one store for each side at most.
    assert 4 <= sum("no request has succeeded" in line for line in told) <= 6, told
    assert sum("answers again" in line for line in told) == len(told) / 2


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seconds", [2, 6, 20])
async def test_a_server_that_is_killed_and_started_again(killable_seaweedfs: Any, seconds: float) -> None:
    server = killable_seaweedfs
    await Scene(server.s3).play(server.kill, server.start, seconds)


@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_a_server_that_is_killed_again_and_again(killable_seaweedfs: Any) -> None:
    """Every stored row is there in the end, and no upload is left."""
    server = killable_seaweedfs
    s3 = server.s3
    how: dict[str, Any] = {"storage_options": s3.storage_options, "options": rpq.WriteOptions(part_bytes=5 * 2**20)}
    async with rpq.create(s3.url("day"), compression="none", **how) as writer:
        for number in range(NUM_BATCHES):
            await writer.write(batch(number))
            checkpoint = asyncio.create_task(writer.checkpoint())
            if number % 3 == 1:
                await asyncio.sleep(0.02 * number)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            assert (await checkpoint).state == "stored"
    async with rpq.open(s3.url("day"), storage_options=s3.storage_options) as file:
        assert pa.table(await file.read()).equals(WHOLE)
    assert s3.upload_ids() == []
