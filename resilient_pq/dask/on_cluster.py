"""Files done by a cluster: what `resilient_pq.folder.many` calls for each of them. An async shell.

Small files go together into a task: to send one and to get its answer takes some milliseconds. No more tasks are under
way than keep the workers busy, so what the scheduler holds does not grow with the number of files.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from distributed import Client, Event, Future, KilledWorker

from resilient_pq.dask.one_batch import Batch, Order, do_batch
from resilient_pq.dask.shipped import Location, location_of
from resilient_pq.errors import SchemaError, StoreError, Where
from resilient_pq.folder.result import FileError, FileResult
from resilient_pq.folder.scope import Scope
from resilient_pq.folder.task import FileTask
from resilient_pq.io import LocalStore, MultipartStore, Stores
from resilient_pq.io.location import scrubbed, shown
from resilient_pq.io.partial_file import SUFFIX as PARTIAL
from resilient_pq.io.protocols import MiB

#: Tasks under way for each thread of a worker: one that runs, and one that is there when it ends.
_TASKS_EACH = 2
#: Files of a task, at most, and bytes of those that are more than one.
_MOST_FILES = 32
_MOST_BYTES = 32 * MiB
#: What a file is taken to have of which nobody asked.
_UNKNOWN = 8 * MiB
#: Seconds until a scheduler is said not to be reached.
_CONNECTING = 10
#: Seconds that a file waits for others to go with.
_WAITING = 0.02


@dataclass(frozen=True, slots=True)
class Before:
    """What was in the folder of the outputs before the run.

    Attributes:
        is_empty: Whether nothing was.
        unfinished: The open uploads and the partial files, by the key of what they were to become or were called.
    """

    is_empty: bool
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
                    for path in (os.fspath(location_of(*folder.place(listed.name))) for listed in page):
                        if path.endswith(PARTIAL):
                            found.setdefault(path.removesuffix(PARTIAL).rpartition(".")[0], set()).add(path)
        finally:
            await stores.close()
        return cls(is_empty, {key: frozenset(each) for key, each in found.items()})


@dataclass(slots=True)
class _Waiting:
    """A file, and who waits for its result."""

    order: Order
    result: asyncio.Future[FileResult]
    again: bool = False

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return _UNKNOWN if self.order.size is None else self.order.size


def connected(address: str) -> Client:
    """A client of a scheduler; the caller closes it. Blocks until it is reached, or for some seconds.

    Raises:
        StoreError: It is not reached.
    """
    try:
        return Client(address, set_as_default=False, timeout=_CONNECTING)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"the Dask scheduler is not reached: {scrubbed(str(error))}",
            where=Where(key=shown(address)),
            hint="`dask scheduler` starts one, and says its address, such as tcp://host:8786",
        ) from error


class OnCluster:
    """Does files on a cluster: ``await run(task)`` for each, as many at one time as `max_files`.

    It belongs to one event loop.
    """

    def __init__(
        self,
        client: Client,
        *,
        storage_options: Mapping[str, Any] | None = None,
        dst_storage_options: Mapping[str, Any] | None = None,
        dst: Location | None = None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            client: Of the cluster; one that blocks.
            storage_options: Credentials, endpoint and so on, which workers get too.
            dst_storage_options: The same for outputs; None means those of the files.
            dst: The folder of the outputs; None where nothing is written.
        """
        self._client = client
        self._reach = (storage_options, dst_storage_options)
        self._dst = dst
        self._before: Before | None = None
        self._looking = asyncio.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._slots: int = _TASKS_EACH * max(1, sum(client.nthreads().values()))

    @property
    def max_files(self) -> int:
        """As many files as keep all workers busy."""
        return self._slots * _MOST_FILES

    async def __call__(self, task: FileTask) -> FileResult:
        """What becomes of one file; only what ends the whole run is raised."""
        try:
            order = await self._order(task)
        except StoreError as error:
            return FileResult(task.verb, task.name, error=FileError.of(error))
        result: asyncio.Future[FileResult] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(order, result))
        self._send_soon()
        return replace(await result, url=task.name)

    async def _order(self, task: FileTask) -> Order:
        url = location_of(*task.source)
        if task.target is None:
            return Order(task.verb, url, task.size)
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
        return Order(task.verb, url, task.size, dst, near, task.options, is_free, not_ours)

    async def _known_before(self) -> Before:
        async with self._looking:
            if self._before is None:
                source, output = self._reach
                looked = None if self._dst is None else await Before.of(self._dst, source if output is None else output)
                self._before = looked or Before(False, {})
            return self._before

    # -- sending -----------------------------------------------------------------------------------

    def _send_soon(self) -> None:
        """Send what waits when there is enough of it for a task, or when no more comes for a moment."""
        if len(self._waiting) >= _MOST_FILES:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WAITING, self._send)

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and len(self._under_way) < self._slots:
            batch = self._next_batch()
            if batch:
                task = asyncio.get_running_loop().create_task(self._done_elsewhere(batch))
                self._under_way.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if self._waiting:
            self._send_soon()

    def _next_batch(self) -> list[_Waiting]:
        """A fair share of what waits; those that nobody waits for any more are dropped."""
        share = min(_MOST_FILES, math.ceil(len(self._waiting) / (self._slots - len(self._under_way))))
        batch: list[_Waiting] = []
        held = 0
        while self._waiting and len(batch) < share:
            following = self._waiting[0]
            alone = batch and (held + following.size > _MOST_BYTES or following.again or batch[0].again)
            if alone:
                break
            self._waiting.popleft()
            if not following.result.cancelled():
                batch.append(following)
                held += following.size
        return batch

    async def _done_elsewhere(self, waiting: list[_Waiting]) -> None:
        """Have a worker do a batch, and tell who waits."""
        name = f"resilient-pq-batch-{secrets.token_hex(8)}"
        orders = tuple(each.order for each in waiting)
        batch = Batch(name, orders, *self._reach, again=any(each.again for each in waiting))
        try:
            results = await self._answer(waiting, batch)
        except KilledWorker as error:
            if len(waiting) > 1:
                self._alone(waiting)
                return
            results = [_killed(waiting[0].order, error)]
        except BaseException as error:
            for each in waiting:
                if not each.result.done():
                    each.result.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for each, result in zip(waiting, results, strict=True):
            if not each.result.done():
                each.result.set_result(result)

    async def _answer(self, waiting: list[_Waiting], batch: Batch) -> list[FileResult]:
        """The results of a batch; given up when nobody waits for any of them."""
        future = self._client.submit(do_batch, batch, key=batch.name, pure=False)
        done, loop = asyncio.Event(), asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(done.set))

        def given_up(_: asyncio.Future[FileResult]) -> None:
            if all(each.result.done() for each in waiting):
                done.set()

        for each in waiting:
            each.result.add_done_callback(given_up)
        await done.wait()
        if all(each.result.done() for each in waiting):
            future.cancel()
            return []
        return await asyncio.to_thread(self._fetched, future, batch.name)

    def _fetched(self, future: Future, name: str) -> list[FileResult]:
        try:
            results: list[FileResult] = future.result()
            return results
        finally:
            future.release()
            Event(name, client=self._client).clear()

    def _alone(self, waiting: list[_Waiting]) -> None:
        """Files of which one has killed too many workers: each by itself, to find out which."""
        for each in waiting:
            each.again = True
        self._waiting.extendleft(reversed(waiting))
        self._send_soon()


def _killed(order: Order, error: KilledWorker) -> FileResult:
    found = StoreError(
        f"the workers that looked at it died, one after the other: {error}",
        where=Where(key=order.name),
        hint="they may have too little memory; look at it without a cluster",
    )
    return FileResult(order.verb, order.name, error=FileError.of(found))
