"""A store in memory whose uploads can be looked at at every moment, as a server would show them after a crash.

`UploadStore` keeps the history of an upload: after everything that happens it notes which parts have landed, which are
still on their way and may land even though their sender is gone, and how many rows the writer had promised by then. Each
such moment is a crash point: one run of a writer tries hundreds of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq.errors import NotFoundError, StoreError
from resilient_pq.io import Buffer, ObjectInfo, ObjectSink, Part, SinkOptions, StoredState
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS, pieces_of
from resilient_pq.io.upload.multipart import MultipartSink


@dataclass(frozen=True)
class Moment:
    """An upload as it was at one time."""

    event: str  # What had just happened
    landed: tuple[Part, ...]  # The parts that the store has, in the order they came
    pending: tuple[Part, ...]  # Parts that were sent whole and have not arrived
    num_rows: int  # Rows that the writer had said to be stored


class UploadStore(MemoryStore):
    """Objects are uploads; parts take a random while to land, and another one until they are acknowledged."""

    def __init__(
        self, seed: int = 0, *, every_version: bool = False, undecided: float = 0.0, grace: float = 0.0
    ) -> None:
        """Begin with nothing."""
        super().__init__()
        self._rng = random.Random(seed)
        self._every_version = every_version
        self._undecided = undecided
        self._grace = grace
        self._landed: dict[str, list[Part]] = {}
        self._pending: list[Part] = []
        self.promised: Callable[[], int] = lambda: 0
        self.events: Callable[[str], None] = lambda event: None  # Called with every event, before anything else is done
        self.history: list[Moment] = []  # A moment for everything that happened
        self.contents: dict[str, bytes] = {}  # The bytes of every part that was sent, by its ETag
        self.num_active = self.num_late = 0  # Requests that were begun and have not ended
        self.active_at_abort: list[int] = []  # That number when an upload was aborted, for every time one was

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        """A sink as S3 has it."""
        return MultipartSink(self, key, replace(options, undecided_grace=self._grace))

    async def put(self, key: str, data: Sequence[Buffer] | Buffer, **conditions: Any) -> ObjectInfo:
        with self._request("put"):
            await self._pause()
            return await super().put(key, data, **conditions)

    async def create_upload(self, key: str) -> str:
        with self._request("create"):
            await self._pause()
            upload_id = await super().create_upload(key)
            self._landed[upload_id] = []
            await self._pause()
            return upload_id

    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        content = b"".join(pieces_of(data))
        part = Part(number, len(content), f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"')
        self.contents[part.etag] = content
        with self._request(f"part {number}"):
            self._pending.append(part)
            self._note(f"sent part {number}")
            try:
                await self._pause()
                undecided = self._rng.random() < self._undecided
                self._land(upload_id, part)
                await self._pause()
            finally:
                if part in self._pending:
                    self._pending.remove(part)
            if undecided:
                self._pending.append(part)
                delay = self._rng.uniform(0, self._grace / 2)
                asyncio.get_running_loop().call_later(delay, self._land_late, upload_id, part)
                part = Part(part.number, part.size, part.etag, undecided=True)
        self._note(f"acknowledged part {number}")
        return part

    async def list_parts(self, key: str, upload_id: str) -> list[Part]:
        with self._request("list"):
            await self._pause()
            parts = self._listed(key, upload_id)
            await self._pause()
            return parts

    async def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        with self._request("complete"):
            await self._pause()
            listed = {(part.number, part.etag) for part in self._listed(key, upload_id)}
            if not {(part.number, part.etag) for part in parts} <= listed:
                raise StoreError("a part is not the one that is stored")
            data = b"".join(self.contents[part.etag] for part in sorted(parts, key=lambda part: part.number))
            info = self._publish(key, data, if_none_match=if_none_match, if_match=if_match)
            del self._uploads[upload_id], self._landed[upload_id]
            await self._pause()
            return info

    async def abort_upload(self, key: str, upload_id: str) -> None:
        self.active_at_abort.append(self.num_active)
        with self._request("abort"):
            await self._pause()
            await super().abort_upload(key, upload_id)
            del self._landed[upload_id]

    def note(self, event: str) -> None:
        """Add a moment to the history, for something that happened elsewhere."""
        self.events(event)
        self._note(event)

    def _request(self, name: str) -> _Active:
        self.events(name)
        return _Active(self)

    def _note(self, event: str) -> None:
        landed = next(iter(self._landed.values()), [])
        self.history.append(Moment(event, tuple(landed), tuple(self._pending), self.promised()))

    def _land(self, upload_id: str, part: Part) -> None:
        if upload_id not in self._landed:
            raise NotFoundError(f"no such upload: {upload_id}")
        self._pending.remove(part)
        self._landed[upload_id].append(part)
        self._note(f"landed part {part.number}")
        self.events(f"landed part {part.number}")

    def _land_late(self, upload_id: str, part: Part) -> None:
        if upload_id in self._landed:
            self.num_late += 1
            self._land(upload_id, part)

    def _listed(self, key: str, upload_id: str) -> list[Part]:
        if upload_id not in self._landed:
            raise NotFoundError(f"no such upload: {upload_id}")
        return visible(self._landed[upload_id], every_version=self._every_version, rng=self._rng)

    async def _pause(self) -> None:
        for _ in range(self._rng.choice((0, 0, 1, 2, 5, 20))):
            await asyncio.sleep(0)


class _Active:
    def __init__(self, store: UploadStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        self._store.num_active += 1

    def __exit__(self, *_: object) -> None:
        self._store.num_active -= 1


def visible(landed: Sequence[Part], *, every_version: bool, rng: random.Random) -> list[Part]:
    """What a store lists of the parts that landed, by number: every version of each, in random order, or the last."""
    if every_version:
        found = list({(part.number, part.etag): part for part in landed}.values())
        rng.shuffle(found)
    else:
        found = list({part.number: part for part in landed}.values())
    return sorted(found, key=lambda part: part.number)


class Rescuer:
    """Completes, by the rule, what is left of an upload after a crash at any moment of its history."""

    def __init__(self, store: UploadStore, table: pa.Table, rule: Callable[..., Any], seed: int) -> None:
        self._store = store
        self._table = table
        self._rule = rule
        self._rng = random.Random(seed)
        self._num_rows: dict[tuple[str, ...], int] = {}  # of the objects seen, by the ETags of their parts
        self.num_objects = 0

    def examine(self, *, every_version: bool) -> None:
        """Every moment of the history, whether what was on its way arrives then, or some of it, or nothing."""
        for moment in self._store.history:
            some = self._rng.sample(moment.pending, self._rng.randint(0, len(moment.pending)))
            every = self._rng.sample(moment.pending, len(moment.pending))
            for arriving in ([], some, every):
                landed = [*moment.landed, *arriving]
                num_rows = self.num_rows(visible(landed, every_version=every_version, rng=self._rng))
                assert num_rows >= moment.num_rows, (moment.event, num_rows, [p.number for p in arriving])

    def num_rows(self, parts: Sequence[Part]) -> int:
        """Rows of the object that the rule makes of these parts: read by pyarrow, they are the first of the table."""
        chosen = self._rule([(part.number, part.size, part.etag) for part in parts])
        if chosen is None:
            return 0
        etags = tuple(etag for _, _, etag in chosen)
        if etags not in self._num_rows:
            data = b"".join(self._store.contents[etag] for etag in etags)
            found = pq.read_table(io.BytesIO(data))
            assert found.equals(self._table.slice(0, found.num_rows).combine_chunks())
            self._num_rows[etags] = found.num_rows
            self.num_objects += 1
        return self._num_rows[etags]


def promised_rows(writer: Any) -> int:
    """Rows that a writer says to survive it, in either of the ways it says so."""
    checkpoint = writer.last_checkpoint
    stored = checkpoint.num_rows if checkpoint.state is StoredState.STORED else 0
    return max(stored, int(writer.num_rows_stored))


def batches(rng: random.Random, num_bytes: int) -> Iterator[pa.Table]:
    """Tables of random sizes, of together about so many bytes that do not compress."""
    start = 0
    while num_bytes > 0:
        size = rng.choice((1000, 50_000, 400_000))
        count = rng.randint(1, max(1, 1_500_000 // size))
        noise = [rng.randbytes(rng.randint(size // 2, size)) for _ in range(count)]
        yield pa.table({"id": pa.array(range(start, start + count)), "noise": pa.array(noise, pa.binary())})
        start += count
        num_bytes -= sum(map(len, noise))


@pytest.fixture(scope="session")
def upload_store() -> Callable[..., UploadStore]:
    return UploadStore


@pytest.fixture(scope="session")
def rows_promised() -> Callable[[Any], int]:
    return promised_rows


@pytest.fixture(scope="session")
def rescuer(chosen_by_the_rule: Callable[..., Any]) -> Callable[..., Rescuer]:
    """Given a store, the table that was written and a seed."""
    return lambda store, table, seed: Rescuer(store, table, chosen_by_the_rule, seed)


@pytest.fixture(scope="session")
def random_batches() -> Callable[[random.Random, int], Iterator[pa.Table]]:
    return batches


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs in threads runs in the event loop instead, so that the same seed always does the same."""

    async def run(function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments)

    def run_in_executor(loop: asyncio.BaseEventLoop, _: object, *call: Any) -> asyncio.Task[Any]:
        return loop.create_task(run(*call))

    monkeypatch.setattr(asyncio.BaseEventLoop, "run_in_executor", run_in_executor)
