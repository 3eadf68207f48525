"""Many who begin, resume and complete one object, in any order, killed at any request: nothing told is ever lost.

Each actor is our own code before a store whose requests wait for a scheduler: once before they are carried out and once
before they are answered. The scheduler draws who is next, so that writers sleep for long and come back, and it kills
them, repeats requests whose answer was lost, and begins new ones. What must hold is said in `Held.check`.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pytest
from parts_in_memory import PartStore
from sampled import either
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq.io import Buffer, MultipartSink, ObjectInfo, ObjectSink, Part, SinkOptions, bare_etag, find_epoch
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS

MiB = 2**20
KEY = "folder/f"
OPTIONS = rpq.WriteOptions(part_bytes=MiB, max_part_bytes=MiB, max_bytes_in_flight=4 * MiB)
ENDINGS = (rpq.ResilientPQError,)
Result = TypeVar("Result")
Fencing = Literal["lease", "none"]

actor_now: contextvars.ContextVar[Actor] = contextvars.ContextVar("actor_now")


class Lenient(PartStore):
    """As SeaweedFS: lists every version of a part, and completes with an older one."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, list[tuple[Part, bytes]]] = {}

    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        part = await super().put_part(key, upload_id, number, data)
        self.versions.setdefault(upload_id, []).append(self._uploads[upload_id].parts[number])
        return part

    async def list_parts(self, key: str, upload_id: str) -> list[Part]:
        await super().list_parts(key, upload_id)
        listed = [part for part, _ in self.versions.get(upload_id, [])]
        random.Random(len(listed)).shuffle(listed)
        return listed

    async def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part], **conditions: Any) -> ObjectInfo:
        await super().list_parts(key, upload_id)
        for wanted in parts:
            for part, content in self.versions[upload_id]:
                if part.number == wanted.number and bare_etag(part.etag) == bare_etag(wanted.etag):
                    self._uploads[upload_id].parts[part.number] = part, content
        return await super().complete_upload(key, upload_id, parts, **conditions)


class Dead(BaseException):
    """Whatever a killed process would still do is not done."""


@dataclass
class Actor:
    """One process: what it was told."""

    name: int  # In the rows that it writes
    dead: bool = False
    began_with: int | None = None  # Rows that it was told to be in place; None as long as it has no writer
    told: int = 0  # Rows that it was told to be stored, those in place among them
    epoch: int = -1  # Of its lease
    completed: bool = False
    error: BaseException | None = None
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


class Gated(RecordingStore):
    """Every request waits for its turn, twice; some are sent a second time, since their answer was lost."""

    def __init__(self, store: PartStore, rng: random.Random) -> None:
        super().__init__(store)
        self.rng = rng
        self.twice: set[str] = set()
        self.repeats = 0.1
        self.open = False

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        if options.mode == "x" and await self.exists(key):
            raise rpq.AlreadyExistsError("the object exists already")
        return MultipartSink(self, key, options)

    def begun_twice(self, upload_id: str) -> bool:
        return upload_id in self.twice

    async def _turn(self) -> None:
        actor = actor_now.get(None)
        if self.open or actor is None:
            return
        if actor.dead:
            raise Dead
        turn = asyncio.get_running_loop().create_future()
        actor.waiting.append(turn)
        await turn
        if actor.dead:
            raise Dead

    async def _do(self, call: Any, action: Callable[[], Awaitable[Result]]) -> Result:
        await self._turn()
        may_repeat = not self.open and call.verb in ("put", "create_upload", "put_part")
        repeated = may_repeat and self.rng.random() < self.repeats
        if repeated:
            await action()
            await self._turn()
        result = await action()
        if repeated and call.verb == "create_upload":
            self.twice.add(str(result))
        await self._turn()
        return result


@dataclass
class Held:
    """A run: the store, and all who took part in it."""

    store: PartStore
    gated: Gated
    num_rows: int
    row_bytes: int
    fencing: Fencing
    actors: list[Actor] = field(default_factory=list)

    def begin(self) -> Actor:
        actor = Actor(len(self.actors))
        self.actors.append(actor)
        actor.task = asyncio.create_task(self._run(actor))
        return actor

    async def _run(self, actor: Actor) -> None:
        actor_now.set(actor)
        try:
            await self.write(actor, self.gated)
        except Dead:
            pass
        except ENDINGS as error:
            actor.error = error

    async def write(self, actor: Actor, store: Any) -> None:
        rng = random.Random(actor.name)
        writer = await rpq.create_or_resume(
            (store, KEY), checkpoint_every=None, compression="none", options=OPTIONS, fencing=self.fencing
        )
        actor.began_with = actor.told = writer.num_rows_stored
        actor.epoch = self.epoch_of(writer, actor)
        try:
            start = writer.num_rows_stored
            while start < self.num_rows:
                end = min(self.num_rows, start + rng.randint(1, 3))
                await writer.write(self.rows(start, end, actor.name))
                start = end
                if rng.random() < 0.7:
                    checkpoint = await writer.checkpoint()
                    if checkpoint.state is not rpq.StoredState.ACCEPTED:
                        actor.epoch = self.epoch_of(writer, actor)
                        actor.told = checkpoint.num_rows
            await writer.close()
        except BaseException as error:
            await writer.__aexit__(type(error), error, None)
            raise
        actor.completed, actor.told = True, self.num_rows

    def rows(self, start: int, end: int, by: int) -> dict[str, list[Any]]:
        rows = range(start, end)
        noise = [random.Random(number).randbytes(self.row_bytes) for number in rows]
        return {"id": list(rows), "by": [by] * len(rows), "noise": noise}

    def epoch_of(self, writer: Any, actor: Actor) -> int:
        lease = writer._sink._lease
        return actor.epoch if lease is None or lease.held is None else lease.held.epoch.number

    async def settled(self) -> None:
        """Until every one that lives waits for a turn or has ended."""
        # A thread of an encoder tells nobody when it is done.
        while any(not a.waiting and not a.task.done() for a in self.actors if a.task and not a.dead):  # noqa: ASYNC110
            await asyncio.sleep(0.0002)
        await asyncio.sleep(0)

    def let_go(self, actor: Actor, rng: random.Random) -> None:
        """Carry out, or answer, one of the requests of an actor; some were broken off."""
        turn = actor.waiting.pop(rng.randrange(len(actor.waiting)))
        if not turn.done():
            turn.set_result(None)

    async def end(self) -> None:
        """Kill all that are left."""
        for actor in self.actors:
            if actor.task is not None and not actor.task.done():
                kill(actor)
        await asyncio.gather(*(actor.task for actor in self.actors if actor.task), return_exceptions=True)

    async def check(self) -> None:
        """All that was told holds; then one more process, which nobody disturbs, ends the file."""
        self.gated.open = True
        for one in self.actors:
            for later in self.actors:
                if later.began_with is not None and later.epoch > one.epoch >= 0:
                    assert later.began_with >= one.told, f"{one.name} was told what {later.name} did not find"
        told = max(actor.told for actor in self.actors)
        last = Actor(len(self.actors))
        if not any(actor.completed for actor in self.actors):
            try:
                await self.write(last, self.store)
                assert last.began_with is not None and last.began_with >= told
            except rpq.AlreadyExistsError:
                pass  # completed, and its writer killed before it knew
        async with rpq.open((self.store, KEY)) as file:
            assert file.state is rpq.FileState.COMPLETE
            found = pa.table(await file.read(columns=["id", "by"]))
        assert found["id"].to_pylist() == list(range(self.num_rows))
        refused = [actor.error for actor in self.actors if actor.error is not None and not actor.dead]
        assert all(isinstance(error, rpq.WriterFencedError | rpq.AlreadyExistsError) for error in refused), refused
        assert all(error.hint for error in refused if isinstance(error, rpq.WriterFencedError))
        # Whoever finds the complete file removes what a killed writer had no time to.
        with pytest.raises(rpq.AlreadyExistsError):
            await rpq.create_or_resume((self.store, KEY), fencing=self.fencing)
        # One who began when all was over, and was killed before it saw that, may leave an epoch that nothing belongs to.
        left = await find_epoch(self.store, KEY)
        assert left is None or not left.epoch.uploads
        held = [upload.upload_id for upload in await self.store.list_uploads(KEY)]
        assert not [upload for upload in held if await self.store.list_parts(KEY, upload)]


def kill(actor: Actor) -> None:
    actor.dead = True
    for turn in actor.waiting:
        if not turn.done():
            turn.set_result(None)
    actor.waiting.clear()


async def run(seed: int, store: PartStore, *, row_bytes: int = 10, fencing: Fencing = "lease") -> Held:
    """Let some actors run, and kill them, as a seed draws it."""
    rng = random.Random(seed)
    held = Held(store, Gated(store, rng), rng.randint(2, 12), row_bytes, fencing)
    to_come, steps = rng.randint(1, 4), 0
    held.begin()
    favourite, killing = None, rng.choice([0.0, 0.01, 0.03])
    beginning, turning = rng.choice([0.03, 0.2]), rng.choice([0.02, 0.1, 0.5])
    while True:
        await held.settled()
        ready = [actor for actor in held.actors if actor.waiting and not actor.dead]
        if not ready and not to_come:
            break
        if to_come and (not ready or rng.random() < beginning):
            held.begin()
            to_come -= 1
            continue
        if favourite not in ready or rng.random() < turning:
            favourite = rng.choice(ready)
        assert favourite is not None
        if rng.random() < killing:
            kill(favourite)
            continue
        held.let_go(favourite, rng)
        await asyncio.sleep(0)
        steps += 1
        assert steps < 5_000
    await held.end()
    return held


async def supervise(seed: int, store: PartStore, *, row_bytes: int = 10) -> Held:
    """Two or three programs for one file, some begun again after each error but that of a complete file."""
    rng = random.Random(seed)
    held = Held(store, Gated(store, rng), rng.randint(2, 12), row_bytes, "lease")
    restarts, turning = rng.choice([0, 4, 8, 8]), rng.choice([0.02, 0.1, 0.5])
    programs = [[held.begin()] for _ in range(rng.randint(2, 3))]
    favourite = None
    while True:
        await held.settled()
        for runs in programs:
            if isinstance(runs[-1].error, rpq.WriterFencedError) and len(runs) <= restarts:
                runs.append(held.begin())
        await held.settled()
        ready = [actor for actor in held.actors if actor.waiting]
        if not ready:
            break
        if favourite not in ready or rng.random() < turning:
            favourite = rng.choice(ready)
        assert favourite is not None
        held.let_go(favourite, rng)
        await asyncio.sleep(0)
    await held.end()
    whole = [each for each in held.actors if each.completed or isinstance(each.error, rpq.AlreadyExistsError)]
    assert whole, "all of them gave way"
    return held


STORES = [PartStore, Lenient]
#: Seeds that found something once.
FOUND = (139, 198, 221, 265, 992, 1193, 21090)


ORDERS = [(10, range(start, start + 100)) for start in range(1_000, 2_000, 100)]


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize(
    ("row_bytes", "seeds"), either([(10, (*range(12), *FOUND))], [*ORDERS, (400_000, range(40))], 1800)
)
async def test_nothing_told_is_lost(kind: type[PartStore], row_bytes: int, seeds: Sequence[int]) -> None:
    for seed in seeds:
        await (await run(seed, kind(), row_bytes=row_bytes)).check()


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize(
    ("row_bytes", "seeds"),
    [
        (10, (0, 1, 2, 72)),
        (400_000, (20, 110)),  # found something once, as 72 did
        *(pytest.param(size, range(150), marks=pytest.mark.thorough) for size in (10, 400_000)),
    ],
)
async def test_programs_that_are_restarted_take_a_file_from_each_other(
    kind: type[PartStore], row_bytes: int, seeds: Sequence[int]
) -> None:
    """Every loser is told that it lost, and one of those that end then has the file."""
    for seed in seeds:
        await (await supervise(seed, kind(), row_bytes=row_bytes)).check()


# --- one moment after the other


#: Half requests: when the first writer stops, when the second, and how many more the first does then.
Moment = tuple[int, int, int]
SOME: list[Moment] = list(itertools.product((14, 16, 17), (8, 10, 11, 20), (2, 4, 6)))
ALL: list[Moment] = list(itertools.product(range(14, 34), range(30), range(8)))


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("moments", [SOME, pytest.param(ALL[::2], marks=pytest.mark.thorough)], ids=["some", "all"])
async def test_a_zombie_at_every_moment_of_a_take_over(kind: type[PartStore], moments: list[Moment]) -> None:
    """A writer stops at any request of a checkpoint; another takes over as far as any of its own; the first goes on.

    It does so for some requests more; then the other one comes to its end, and the first comes back.
    """
    for moment in moments:
        await take_over_at(kind(), *moment)


async def take_over_at(store: PartStore, first_stops: int, second_stops: int, first_goes_on: int) -> None:
    held = Held(store, Gated(store, random.Random(0)), 12, 10, "lease")
    held.gated.repeats = 0.0
    first = held.begin()
    await advance(held, first, first_stops)
    second = held.begin()
    await advance(held, second, second_stops)
    await advance(held, first, first_goes_on)
    await advance(held, second, 1_000)
    await advance(held, first, 1_000)
    await held.end()
    await held.check()


async def advance(held: Held, actor: Actor, steps: int) -> None:
    """Let one actor do so many half requests."""
    for _ in range(steps):
        await held.settled()
        if not actor.waiting:
            return
        actor.waiting.pop(0).set_result(None)
        await asyncio.sleep(0)
