"""Files done by a cluster: what `resilient_pq.bulk.many_files` calls for each of them. An async shell.

Small files go together into a task: to send one and to get its answer takes some milliseconds. No more tasks are under
way than keep the workers busy, so what the scheduler holds does not grow with the number of files.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from distributed import Client, Event, Future, KilledWorker

from resilient_pq.bulk.file_result import FileError, FileResult
from resilient_pq.bulk.file_task import FileTask
from resilient_pq.bulk.scope import Scope
from resilient_pq.dask.one_batch import AT_ONCE, FileOrder, TaskBatch, do_batch
from resilient_pq.dask.serialized_row_group import Location, location_of
from resilient_pq.dask.workers import Workers
from resilient_pq.errors import SchemaError, StoreError, Where
from resilient_pq.io import LocalStore, MultipartStore, Stores
from resilient_pq.io.location import scrubbed, shown
from resilient_pq.io.partial_file import SUFFIX as PARTIAL
from resilient_pq.io.stored_object import ListedObject
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import MiB

#: Tasks under way for each thread of a worker: one that runs, and one that is there when it ends.
_TASKS_EACH = 2
#: Files of a task, at most, and bytes of those that are more than one.
_MOST_FILES = 32
_MOST_BYTES = 32 * MiB
#: What a file is taken to have of which nobody asked.
_UNKNOWN = 8 * MiB
#: Seconds until a scheduler is said not to be reached.
_CONNECTING = 10


@dataclass(frozen=True, slots=True)
class Before:
    """What was in the folder of the outputs before the run."""

    is_empty: bool  # whether nothing was
    #: The open uploads and the partial files, by the key of what they were to become or were called.
    unfinished: Mapping[str, frozenset[str]]

    @classmethod
    async def of(cls, dst: Location, storage_options: Mapping[str, Any] | None) -> Before:
        """Look into a folder."""
        stores, found = Stores(storage_options), dict[str, set[str]]()
        try:
            store, key = stores.resolve(f"{os.fspath(dst).rstrip('/')}/_")
            folder = Scope(store, key.removesuffix("_"))
            if isinstance(store, MultipartStore) and store.capabilities.list_parts:
                for upload in await store.list_uploads(folder.folder):
                    found.setdefault(upload.key, set()).add(upload.upload_id)
            is_empty = True
            async with aclosing(folder.pages()) as pages:
                async for page in pages:
                    is_empty = is_empty and not page
                    if not isinstance(store, LocalStore):
                        break
                    for path in _partial_files(folder, page):
                        found.setdefault(path.removesuffix(PARTIAL).rpartition(".")[0], set()).add(path)
        finally:
            await stores.close()
        return cls(is_empty, {key: frozenset(each) for key, each in found.items()})


def _partial_files(folder: Scope, page: Iterable[ListedObject]) -> list[str]:
    """The paths of the partial files of a page of a listing."""
    paths = [os.fspath(location_of(*folder.place(listed.name))) for listed in page]
    return [path for path in paths if path.endswith(PARTIAL)]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A file, and who waits for its result."""

    order: FileOrder
    result: asyncio.Future[FileResult]

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return _UNKNOWN if self.order.size is None else self.order.size


def connected(address: str) -> Client:
    """A client of a scheduler; the caller closes it. Blocks until it is reached, or for some seconds."""
    try:
        return Client(address, set_as_default=False, timeout=_CONNECTING)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"the Dask scheduler is not reached: {scrubbed(str(error))}",
            where=Where(key=shown(address)),
            hint="`dask scheduler` starts one, and says its address, such as tcp://host:8786",
        ) from error


class OnCluster:
    """Does files on a cluster: ``await run(task)`` for each, as many at one time as `max_files`."""

    def __init__(
        self,
        client: Client,
        *,
        storage_options: Mapping[str, Any] | None = None,
        dst_storage_options: Mapping[str, Any] | None = None,
        dst: Location | None = None,
        workers_timeout: float | None = None,
    ) -> None:
        self._client = client
        self._workers = Workers(client, workers_timeout)
        self._next_look = 0.0
        self._reach = (storage_options, dst_storage_options)
        self._dst = dst
        self._before: Before | None = None
        self._looking = asyncio.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._lanes: set[asyncio.Task[None]] = set()
        self._num_busy = 0
        self._most_lanes: int = _TASKS_EACH * max(1, sum(client.nthreads().values()))

    @property
    def max_files(self) -> int:
        """As many files as keep all workers busy."""
        return self._most_lanes * _MOST_FILES

    async def __call__(self, task: FileTask) -> FileResult:
        """What becomes of one file; only what ends the whole run is raised."""
        try:
            order = await self._order(task)
        except StoreError as error:
            return FileResult(task.verb, task.name, error=FileError.of(error))
        result: asyncio.Future[FileResult] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(order, result))
        if len(self._lanes) < self._most_lanes:
            lane = asyncio.get_running_loop().create_task(self._lane())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)
        return replace(await result, url=task.name)

    async def _order(self, task: FileTask) -> FileOrder:
        url = location_of(*task.source)
        if task.target is None:
            proof = task.proof
            if proof is not None and proof.bytes_per_second is not None:  # of all that are read at one time
                at_once = self._most_lanes // _TASKS_EACH * AT_ONCE
                proof = replace(proof, bytes_per_second=proof.bytes_per_second / at_once)
            return FileOrder(task.verb, url, task.size, proof=proof, deep=task.deep)
        if task.options.on_damage == "columns":
            raise SchemaError(
                'on_damage="columns" is not done on a cluster: how many outputs a file has is not known before',
                hint="recover such files without a cluster",
            )
        store, key = task.target
        before = await self._known_before()
        is_free = before.is_empty or not await store.exists(key)
        dst = location_of(store, key)
        not_ours = before.unfinished.get(os.fspath(dst) if isinstance(store, LocalStore) else key, frozenset())
        near = tuple(location_of(*place) for place in task.near)
        return FileOrder(task.verb, url, task.size, dst, near, task.options, is_free, not_ours)

    async def _known_before(self) -> Before:
        async with self._looking:
            if self._before is None:
                source, output = self._reach
                looked = None if self._dst is None else await Before.of(self._dst, source if output is None else output)
                self._before = looked or Before(False, {})
            return self._before

    async def _lane(self) -> None:
        """One task after the other, as long as files wait."""
        await asyncio.sleep(0)  # files that are asked for at this moment go together
        while batch := self._next_batch():
            self._num_busy += 1
            try:
                await self._done_elsewhere(batch)
            finally:
                self._num_busy -= 1

    def _next_batch(self) -> list[_Waiting]:
        """A fair share of the files that wait; those that nobody waits for any more are dropped."""
        share = min(_MOST_FILES, math.ceil(len(self._waiting) / (self._most_lanes - self._num_busy)))
        batch: list[_Waiting] = []
        held = 0
        while self._waiting and len(batch) < share:
            if batch and held + self._waiting[0].size > _MOST_BYTES:
                break
            following = self._waiting.popleft()
            if not following.result.cancelled():
                batch.append(following)
                held += following.size
        return batch

    async def _done_elsewhere(self, files: list[_Waiting], *, again: bool = False) -> None:
        """Have a worker do some files, and tell who waits."""
        try:
            results = await self._answer(files, again=again)
        except KilledWorker as error:
            if len(files) > 1:
                for each in files:  # one of them killed too many workers: which?
                    await self._done_elsewhere([each], again=True)
                return
            results = [_killed(files[0].order, error)]
        except BaseException as error:
            for each in files:
                if not each.result.done():
                    each.result.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for each, result in zip(files, results, strict=False):  # none of files that nobody waits for
            if not each.result.done():
                each.result.set_result(result)

    async def _answer(self, files: list[_Waiting], *, again: bool) -> list[FileResult]:
        """The results of a batch; none where nobody waits for any of them."""
        name = f"resilient-pq-batch-{secrets.token_hex(8)}"
        batch = TaskBatch(name, tuple(each.order for each in files), *self._reach, again=again)
        future = self._client.submit(do_batch, batch, key=name, pure=False)
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))

        def given_up(_: asyncio.Future[FileResult]) -> None:
            if all(each.result.done() for each in files):
                ended.set()

        for each in files:
            each.result.add_done_callback(given_up)
        try:
            while not ended.is_set():
                try:
                    await asyncio.wait_for(ended.wait(), self._workers.look_seconds)
                except TimeoutError:
                    await self._look()
            if not future.done():
                return []
            return await asyncio.to_thread(self._fetched, future, name)
        finally:
            if not future.done():
                future.cancel()

    async def _look(self) -> None:
        """See that there is somebody to answer, once for all who wait."""
        now = asyncio.get_running_loop().time()
        if now >= self._next_look:
            self._next_look = now + self._workers.look_seconds
            await asyncio.to_thread(self._workers.look)

    def _fetched(self, future: Future, name: str) -> list[FileResult]:
        try:
            results: list[FileResult] = future.result()
            return results
        finally:
            future.release()
            Event(name, client=self._client).clear()


def _killed(order: FileOrder, error: KilledWorker) -> FileResult:
    found = StoreError(
        f"the workers that looked at it died, one after the other: {error}",
        where=Where(key=order.name),
        hint="they may have too little memory; look at it without a cluster",
    )
    return FileResult(order.verb, order.name, error=FileError.of(found))
