"""Bytes that are examined one after another, and fetched ahead of that. An async shell."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from resilient_pq.io import ObjectRange
from resilient_pq.machine_limits import processors
from resilient_pq.off_event_loop import Turns
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.recovery.report import Finding

#: Subjects that share a wave of requests: many, since requests are fetched ahead within it, and not so many that their
#: list is large by itself.
_WAVE = 4096
#: Examined side by side, since decoding what has no checksum keeps a core busy; each is held in memory meanwhile,
#: besides what is fetched ahead (`FetchOptions.memory_budget`).
_SIDE_BY_SIDE = min(4, processors())
#: Less than this is examined at once where it is quick: handing it to a thread would take longer.
_QUICK_BYTES = 64 * 1024


_Examination: TypeAlias = asyncio.Future[list[Finding]]


@dataclass(frozen=True, slots=True)
class Subject:
    """Bytes that may be damaged; `examine` finds out, which is `quick` where it decodes no values."""

    place: ObjectRange
    examine: Callable[[memoryview], list[Finding]]
    quick: bool = False


async def examine_ahead(
    objects: ChunkObjects, steps: AsyncGenerator[Subject | Finding, None]
) -> AsyncGenerator[tuple[Subject | None, list[Finding]], None]:
    """What is wrong with each subject, in order, while the next ones are fetched already."""
    wave: list[Subject | Finding] = []
    async with aclosing(steps):
        async for step in steps:
            wave.append(step)
            if len(wave) == _WAVE:
                async with aclosing(_examine_wave(objects, wave)) as found:
                    async for each in found:
                        yield each
                wave = []
    async with aclosing(_examine_wave(objects, wave)) as found:
        async for each in found:
            yield each


async def _examine_wave(
    objects: ChunkObjects, wave: Sequence[Subject | Finding]
) -> AsyncGenerator[tuple[Subject | None, list[Finding]], None]:
    places = [step.place for step in wave if isinstance(step, Subject)]
    turns = Turns()
    working: deque[tuple[Subject | None, _Examination]] = deque()
    try:
        async with aclosing(objects.fetch_places(places, in_order=True)) as arriving:
            for step in wave:
                await turns.give_way()
                if isinstance(step, Finding):
                    working.append((None, _begin(objects, None, memoryview(b""), [step])))
                else:
                    _, data = await anext(arriving)
                    working.append((step, _begin(objects, step, data, [])))
                    del data
                while len(working) >= _SIDE_BY_SIDE:
                    subject, task = working[0]
                    yield subject, await task
                    working.popleft()
            while working:
                subject, task = working[0]
                yield subject, await task
                working.popleft()
    finally:
        for _, task in working:
            task.cancel()
        await asyncio.gather(*(task for _, task in working), return_exceptions=True)


def _begin(objects: ChunkObjects, subject: Subject | None, data: memoryview, findings: list[Finding]) -> _Examination:
    """What is wrong with the bytes of a subject: known at once where that is quick, and nothing is, or before."""
    if subject is not None:
        if not subject.quick or data.nbytes >= _QUICK_BYTES:
            return asyncio.ensure_future(_examine_twice(objects, subject, data))
        if subject.examine(data):
            return asyncio.ensure_future(_examine_again(objects, subject))
    done: _Examination = asyncio.get_running_loop().create_future()
    done.set_result(findings)
    return done


async def _examine_twice(objects: ChunkObjects, subject: Subject, data: memoryview) -> list[Finding]:
    findings = await asyncio.to_thread(subject.examine, data)
    del data
    return await _examine_again(objects, subject) if findings else findings


async def _examine_again(objects: ChunkObjects, subject: Subject) -> list[Finding]:
    return await asyncio.to_thread(subject.examine, await objects.read_place(subject.place))
