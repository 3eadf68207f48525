"""A cluster that has lost its workers: that is said, and a run ends where the caller wants it to."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import KilledWorker

import resilient_pq.dask as rpqd
from resilient_pq import sync as rpq
from resilient_pq.bulk.file_result import FileResult
from resilient_pq.bulk.file_task import FileTask
from resilient_pq.dask import on_cluster
from resilient_pq.dask.on_cluster import OnCluster
from resilient_pq.dask.one_batch import TaskBatch
from resilient_pq.dask.serialized_row_group import with_errors_detached
from resilient_pq.dask.workers import WARN_SECONDS, Workers
from resilient_pq.io import LocalStore

pytestmark = pytest.mark.timeout(120)


@dataclass
class Cluster:
    """What a client says of its workers, and the time."""

    threads: dict[str, int] = field(default_factory=dict)
    now: float = 100.0

    @property
    def scheduler(self) -> Any:
        return type("scheduler", (), {"address": "tcp://here:1"})

    def nthreads(self) -> dict[str, int]:
        return self.threads

    def clock(self) -> float:
        return self.now


def test_half_a_minute_without_workers_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    workers = Workers(cluster, None, clock=cluster.clock)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "resilient_pq.dask"):
        for _ in range(int(WARN_SECONDS)):
            workers.look()
            cluster.now += 1
        assert not caplog.messages
        for _ in range(1_000):
            workers.look()
            cluster.now += 1
        assert caplog.messages == ["the cluster has had no workers for 30 s; waiting for one"]
        cluster.threads = {"a": 1}
        workers.look()
        workers.look()
        assert caplog.messages[1:] == ["the cluster has workers again, after 1030 s without"]
        cluster.threads = {}
        workers.look()
        cluster.now += WARN_SECONDS
        workers.look()
        assert len(caplog.messages) == 3


def test_only_an_outage_in_one_piece_ends_a_run() -> None:
    cluster = Cluster()
    workers = Workers(cluster, 60, clock=cluster.clock)  # type: ignore[arg-type]
    for _ in range(5):
        cluster.threads = {}
        workers.look()
        cluster.now += 59
        workers.look()
        cluster.threads = {"a": 1}
        workers.look()
        cluster.now += 1_000
    cluster.threads = {}
    workers.look()
    cluster.now += 60
    with pytest.raises(rpq.StoreError, match="no workers for 60 s") as raised:
        workers.look()
    assert raised.value.where.key == "tcp://here:1"


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "1"])
def test_a_timeout_is_a_number_above_0(timeout: Any) -> None:
    with pytest.raises(rpq.SchemaError, match="workers_timeout"):
        Workers(Cluster(), timeout)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def no_workers() -> Iterator[Any]:
    """A client of a scheduler that has none."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(3):
        with rpq.create(tmp_path / "in" / f"{number}.parquet") as writer:
            writer.write({"n": np.arange(10)})
    return tmp_path / "in"


def test_a_check_and_a_recovery_end_without_workers(no_workers: Any, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(rpq.StoreError, match="no workers"):
        rpqd.check(folder, no_workers, workers_timeout=0.2).finish()
    with pytest.raises(rpq.StoreError, match="no workers"):
        rpqd.recover(folder, tmp_path / "out", no_workers, workers_timeout=0.2, max_files=1).finish()
    assert not no_workers.processing()


async def test_files_that_nobody_waits_for_any_more_are_cancelled(tmp_path: Path) -> None:
    class Sent(Cluster):
        """A client that is handed tasks, of which none ever ends."""

        def submit(self, *_: Any, **__: Any) -> Any:
            sent.set()
            return self

        def add_done_callback(self, _: Any) -> None:
            pass

        def done(self) -> bool:
            return False

        def cancel(self) -> None:
            cancelled.set()

    sent, cancelled, failed = asyncio.Event(), asyncio.Event(), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    run = OnCluster(Sent())  # type: ignore[arg-type]
    files = [asyncio.ensure_future(run(FileTask("check", (LocalStore(), str(tmp_path / name))))) for name in "ab"]
    await sent.wait()
    for file in files:
        file.cancel()
    await cancelled.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait([task])
    gc.collect()
    assert not failed


async def test_a_file_that_kills_workers_is_told_from_those_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @dataclass
    class Sent:
        """A task that has ended, or has killed its workers."""

        batch: TaskBatch

        def add_done_callback(self, call: Any) -> None:
            call(self)

        def done(self) -> bool:
            return True

        def result(self) -> list[FileResult]:
            names = [order.name for order in self.batch.orders]
            batches.append((names, self.batch.again))
            if "deadly" in " ".join(names):
                raise KilledWorker("task", Cluster().scheduler, 3)
            return [FileResult("check", name) for name in names]

        def release(self) -> None:
            pass

    batches = list[Any]()
    monkeypatch.setattr(on_cluster, "Event", lambda *_, **__: threading.Event())
    run = OnCluster(type("Client", (Cluster,), {"submit": lambda _, __, batch, **___: Sent(batch)})())
    names = ["a", "deadly", "c", "d"]
    results = await asyncio.gather(*(run(FileTask("check", (LocalStore(), f"/{name}"))) for name in names))
    assert [result.url for result in results] == [f"/{name}" for name in names]
    assert [result.error is not None for result in results] == [False, True, False, False]
    assert "died, one after the other" in results[1].error.message  # type: ignore[union-attr]
    (together,) = (found for found, again in batches if len(found) > 1 and "/deadly" in found)
    assert [found for found, again in batches if again] == [[name] for name in together]


def test_a_frame_is_not_written_without_workers(no_workers: Any, noise_of: Any, tmp_path: Path) -> None:
    with pytest.raises(rpq.StoreError, match="no workers") as raised:
        rpqd.write(noise_of(3, 800), tmp_path / "frame", client=no_workers, workers_timeout=0.2)
    assert "removed again" in raised.value.__notes__[0]
    assert list((tmp_path / "frame").iterdir()) == []


def test_a_task_raises_an_error_that_can_be_pickled() -> None:
    @with_errors_detached
    def task() -> None:
        try:
            error = OSError(5, "x")
            error.lock = threading.Lock()  # type: ignore[attr-defined]
            raise error
        except OSError as error:
            raise rpq.StoreError("y", where=rpq.Where(row_group=1)) from error

    with pytest.raises(rpq.StoreError) as raised:
        task()
    error = raised.value
    assert "OSError: [Errno 5] x" in str(error.__cause__)
    pickle.dumps(error.__cause__)
    assert error.__context__ is error.__cause__
