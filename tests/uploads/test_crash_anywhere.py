"""An upload whose writer crashed at any moment is completed by the rule to all rows of its last stored checkpoint."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from sampled import either

import resilient_pq as rpq
from resilient_pq.io import StoredState
from resilient_pq.units import MiB

pytestmark = pytest.mark.usefixtures("one_thread", "soon_larger")


@pytest.fixture
def soon_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts double every four parts, not only every 800."""
    monkeypatch.setattr("resilient_pq.io.upload.part_layout.PARTS_PER_SIZE", 4)


def options_of(rng: random.Random) -> dict[str, Any]:
    """What is given to `create`: row groups smaller and larger than a part, and checkpoints by chance or by number."""
    write = rpq.WriteOptions(
        part_bytes=MiB,
        max_part_bytes=rng.choice((MiB, 4 * MiB)),
        max_bytes_in_flight=rng.choice((1, 2 * MiB, 8 * MiB)),
        checkpoint_bytes=rng.choice((None, 700_000, 3 * MiB)),
    )
    return {
        "compression": "none",
        "row_group_bytes": rng.choice((200_000, 900_000, 3 * MiB)),
        "checkpoint_every": rng.choice((None, 1, 3)),
        "checkpoint_overhead": 100.0,
        "options": write,
    }


class Run:
    """A writer that writes random tables to an `UploadStore`, and what came of it."""

    def __init__(self, seed: int, store: Any, batches: Callable[..., Any], promised: Callable[..., int]) -> None:
        self.rng = random.Random(seed)
        self.store = store
        self._batches = batches
        self._promised = promised
        self.tables: list[pa.Table] = []
        self.num_checkpoints = 0

    @property
    def table(self) -> pa.Table:
        return pa.concat_tables(self.tables).combine_chunks()

    async def write(self, writer: Any, num_bytes: int) -> None:
        self.store.promised = lambda: self._promised(writer)
        for table in self._batches(self.rng, num_bytes):
            self.tables.append(table)
            await writer.write(table)
            if self.rng.random() < 0.4:
                checkpoint = await writer.checkpoint()
                self.num_checkpoints += 1
                assert checkpoint.state is StoredState.STORED
                assert checkpoint.num_rows == writer.num_rows == self._promised(writer)
                self.store.note("checkpoint")


@pytest.fixture
def begin(upload_store: Any, random_batches: Any, rows_promised: Any) -> Callable[..., Run]:
    def make(seed: int, **store_options: Any) -> Run:
        return Run(seed, upload_store(seed, **store_options), random_batches, rows_promised)

    return make


async def crash_at_every_moment(
    run: Run, rescuer: Any, *, seed: int, every_version: bool, num_bytes: int = 12 * MiB
) -> int:
    """How many moments there were."""
    async with rpq.create((run.store, "a"), **options_of(run.rng)) as writer:
        await run.write(writer, num_bytes)
        run.store.note("closing")
    rescue = rescuer(run.store, run.table, seed)
    rescue.examine(every_version=every_version)
    assert rescue.num_objects >= run.num_checkpoints
    data = bytes((await run.store.read_tail("a", 1 << 30)).data)
    assert pa.table(await (await rpq.open((run.store, "a"))).read()).equals(run.table)
    assert data[-4:] == b"PAR1"
    return len(run.store.history)


@pytest.mark.parametrize(
    ("seed", "every_version", "mebibytes"),
    either([(0, False, 8), (1, True, 8)], product(range(100, 130), (False, True), (24,))),
)
async def test_a_crash_at_any_moment(seed: int, every_version: bool, mebibytes: int, begin: Any, rescuer: Any) -> None:
    run = begin(seed, every_version=every_version)
    moments = await crash_at_every_moment(
        run, rescuer, seed=seed, every_version=every_version, num_bytes=mebibytes * MiB
    )
    assert moments > 40


@pytest.mark.parametrize("every_version", [False, True])
@pytest.mark.parametrize(("seed", "mebibytes"), either([(7, 8)], [(seed, 12) for seed in range(200, 215)]))
async def test_a_crash_while_parts_arrive_twice(
    seed: int, mebibytes: int, every_version: bool, begin: Any, rescuer: Any
) -> None:
    """A part whose first attempt was never answered lands again, after the second was acknowledged."""
    run = begin(seed, every_version=every_version, undecided=0.3, grace=0.05)
    await crash_at_every_moment(run, rescuer, seed=seed, every_version=every_version, num_bytes=mebibytes * MiB)
    assert run.store.num_late or seed >= 200


class OneRow:
    """A writer of one row, whose length decides where its checkpoint and its file end."""

    def __init__(self, upload_store: Any, rescuer: Any, rows_promised: Any) -> None:
        self._upload_store = upload_store
        self._rescuer = rescuer
        self._promised = rows_promised

    async def crash_at_every_moment(self, size: int) -> tuple[int, int]:
        """Where the checkpoint and where the file end."""
        store = self._upload_store(size)
        table = pa.table({"noise": pa.array([bytes(size)], pa.binary())})
        options = rpq.WriteOptions(part_bytes=MiB, max_part_bytes=MiB, dictionary_bytes=0)
        async with rpq.create((store, "a"), compression="none", options=options) as writer:
            store.promised = lambda: self._promised(writer)
            await writer.write(table)
            checkpoint = await writer.checkpoint()
            assert checkpoint.state is StoredState.STORED
        self._rescuer(store, table, size).examine(every_version=True)
        return checkpoint.offset, (await store.head("a")).size

    async def around_whole_mebibytes(self, distances: Iterable[int]) -> None:
        """Rows of lengths so that the checkpoint, or the file, would end near a whole number of MiB."""
        for which in range(2):
            size = 2 * MiB - 10_000
            for _ in range(2):  # the second time the numbers of the headers have the lengths that they will have
                end = (await self.crash_at_every_moment(size))[which]
                size += round(end / MiB) * MiB - end
            for distance in distances:
                await self.crash_at_every_moment(size + distance)


@pytest.fixture
def one_row(upload_store: Any, rescuer: Any, rows_promised: Any) -> OneRow:
    return OneRow(upload_store, rescuer, rows_promised)


@pytest.mark.parametrize(
    "distances", either([[-64, -1, 0, 1]], [range(start, start + 20) for start in range(-70, 70, 20)])
)
async def test_ends_near_whole_mebibytes(one_row: OneRow, distances: Sequence[int]) -> None:
    await one_row.around_whole_mebibytes(distances)
