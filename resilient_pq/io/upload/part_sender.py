"""The requests of one upload: the async shell that sends parts as `upload_plan` asks for them."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Coroutine, Sequence
from operator import attrgetter
from typing import Any

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    NotFoundError,
    ObjectChangedError,
    StoreError,
    TransientError,
    UnsupportedError,
    Where,
    WriterClosedError,
    WriterFencedError,
    located,
)
from resilient_pq.io.cancellation import GRACE_SECONDS
from resilient_pq.io.multipart_store import MultipartStore, Part
from resilient_pq.io.object_sink import ObjectSink, SinkOptions
from resilient_pq.io.stored_object import ObjectInfo
from resilient_pq.io.upload.lease import Lease
from resilient_pq.io.upload.part_layout import PartBuffers
from resilient_pq.io.upload.upload_plan import Later, ListParts, PutPart, UploadPlan
from resilient_pq.io.upload.upload_start import (
    begin_upload,
    findable_parts,
    refuse_changed,
    refuses_to_copy,
    upload_command,
)
from resilient_pq.lazy_dataclass import dataclass

log = logging.getLogger("resilient_pq.io")


@dataclass(frozen=True, slots=True)
class Origin:
    """The bytes at a place of this object are those of another one from `start` on."""

    source: ObjectInfo
    start: int
    place: ByteRange


class PartSender(ObjectSink):
    """Begins an upload, sends its parts side by side, and confirms the lease after bytes were stored."""

    commit_seconds: float = 0.0  # From when it was asked for until it was stored, of the newest commit that is done
    num_bytes_copied: int = 0  # Bytes of the parts that the store has copied

    def __init__(self, store: MultipartStore, key: str, options: SinkOptions) -> None:
        """Send nothing yet."""
        self._store = store
        self._key = key
        self._options = options
        self._plan = UploadPlan(options)  # What is to be sent
        self._buffers = PartBuffers(self._plan.layout)  # The bytes that are not yet sent
        self._lease = None if options.lease is None else Lease(store, key, options.lease)
        self._tasks: set[asyncio.Task[Any]] = set()  # The requests under way
        self._failure: BaseException | None = None
        self._is_gone = False  # Whether somebody else completed or aborted the upload
        self._origins: list[Origin] = []  # What the store may copy, in the order of the object; none where it refused
        self._copied_from: dict[str, ObjectInfo] = {}
        self._beginning: asyncio.Future[str] | None = None  # gives the upload id
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._commit_begun: tuple[int, float] | None = None  # its end, and when
        self._promised = 0  # bytes that were stored when the lease was last found to be held
        self._is_confirming = False  # Whether it is being confirmed that the lease is held

    def _continue_upload(self, upload_id: str, parts: Sequence[Part], pieces: Sequence[memoryview]) -> None:
        """Go on with an upload that has these parts in full; `pieces` are the bytes of the object behind them."""
        position = sum(part.size for part in parts) + sum(piece.nbytes for piece in pieces)
        self._plan = UploadPlan.resume(position, parts, self._options)
        self._plan.take_released()
        self._buffers = PartBuffers(self._plan.layout, first=len(parts) + 1)
        for piece in pieces:
            self._buffers.append(piece)
        self._beginning = asyncio.get_running_loop().create_future()
        self._beginning.set_result(upload_id)

    def _append(self, pieces: Sequence[memoryview]) -> None:
        """Take more bytes of the object, and send what can be sent."""
        with located(self._where):
            self._plan.append(sum(piece.nbytes for piece in pieces))
        for piece in pieces:
            self._buffers.append(piece)
        self._pump()

    def _begin_commit(self) -> int:
        """Begin to send what a commit needs; gives its end."""
        end = self._plan.commit()
        if self._stored_end < end:
            self._commit_begun = end, asyncio.get_running_loop().time()
        self._pump()
        return end

    def describe(self) -> str:
        """The key and the upload id."""
        url = self._store.url_of(self._key)
        return f"{url}: nothing is stored yet" if self.upload_id is None else f"{url}, upload id {self.upload_id}"

    def rescue_command(self) -> str | None:
        """Completes the upload as far as the newest commit, in place of the object that it was to replace."""
        if self.upload_id is None:
            return None
        # The object that a resumed upload is to replace is still there.
        overwrite = () if self._options.if_match is None else ("--overwrite",)
        return upload_command(self._store, "complete", self._key, "--upload-id", self.upload_id, *overwrite)

    @property
    def upload_id(self) -> str | None:
        """The id of the upload, once one was begun."""
        task = self._beginning
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    @property
    def _stored_end(self) -> int:
        """Bytes that are stored, and that the next holder of the lease will find."""
        return self._plan.stored_end if self._lease is None else self._promised

    @property
    def _where(self) -> Where:
        """The object, for errors."""
        return Where(key=self._store.url_of(self._key))

    def _refuse_failed(self) -> None:
        """Raise what the first request that failed for good raised."""
        if isinstance(self._failure, StoreError | WriterFencedError):
            raise self._failure
        if self._failure is not None:
            raise StoreError(f"a part was not sent: {self._failure!r}", where=self._where) from self._failure

    async def _wait_for_change(self) -> None:
        """Wait until something that was under way is done; raises what failed."""
        self._refuse_failed()
        if not self._tasks and self._timer is None:
            raise StoreError("the upload cannot go on: nothing is under way", where=self._where)
        self._changed.clear()
        await self._changed.wait()
        self._refuse_failed()

    def _pump(self) -> None:
        """Begin all that the plan asks for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._lease is not None and self._plan.stored_end > self._promised
        if due and not self._is_confirming and self._failure is None:
            self._is_confirming = True
            self._start(self._confirm(self._plan.stored_end))
        loop = asyncio.get_running_loop()
        while self._failure is None and (request := self._plan.next_request(loop.time())) is not None:
            match request:
                case PutPart():
                    self._start(self._put(request))
                case ListParts() if self._unconfirmed:
                    self._is_confirming = True
                    self._start(self._list_and_confirm())
                case ListParts():
                    self._start(self._list())
                case Later(at):
                    self._timer = loop.call_at(at, self._wake)
                    return

    def _wake(self) -> None:
        self._timer = None
        self._pump()
        self._changed.set()

    async def _confirm(self, end: int) -> None:
        """See that the lease is held still, after everything up to `end` was stored."""
        assert self._lease is not None
        try:
            await self._lease.confirm()
        finally:
            self._is_confirming = False
        self._promised = max(self._promised, end)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self._failure = self._failure or TransientError("a part was broken off", where=self._where)
        elif (error := task.exception()) is not None:
            self._failure = self._failure or error
        else:
            for number in self._plan.take_released():
                self._buffers.drop(number)
            if self._commit_begun is not None and self._stored_end >= self._commit_begun[0]:
                self.commit_seconds = asyncio.get_running_loop().time() - self._commit_begun[1]
                self._commit_begun = None
            self._pump()
        self._changed.set()

    async def _put(self, request: PutPart) -> None:
        pieces = self._buffers.view(request.number, request.end - request.start)
        upload_id = await self._begin()
        try:
            part = await self._copied_part(upload_id, request)
            if part is None:
                part = await self._store.put_part(self._key, upload_id, request.number, pieces)
        except BucketNotFoundError:
            raise  # nobody took the upload over: it is gone with the bucket
        except NotFoundError as error:
            raise self._fencing_error(error) from error
        self._plan.acknowledged(part, asyncio.get_running_loop().time())

    async def _copied_part(self, upload_id: str, request: PutPart) -> Part | None:
        """A part that the store has copied; None where its bytes are to be sent."""
        last = bisect_right(self._origins, request.start, key=attrgetter("place.start")) - 1
        if last < 0 or request.end > self._origins[last].place.end:
            return None
        origin = self._origins[last]
        start = origin.start + request.start - origin.place.start
        end, etag = start + request.end - request.start, origin.source.etag
        try:
            part = await self._store.copy_part(
                self._key, upload_id, request.number, origin.source.key, start, end, etag
            )
        except (StoreError, UnsupportedError) as error:
            if not refuses_to_copy(error):
                raise
            log.warning(
                "%s: %s does not copy, so its bytes are sent: %s", self._where.key, self._store.name, error.message
            )
            self._origins.clear()
            return None
        self.num_bytes_copied += request.end - request.start
        self._copied_from[origin.source.key] = origin.source
        return part

    async def _refuse_changed_origins(self) -> None:
        """Raise unless what was copied from is still the version that was meant: not every store heeds which it was."""
        for source in self._copied_from.values():
            await refuse_changed(self._store, source, source.size)

    @property
    def _unconfirmed(self) -> bool:
        """Whether all parts of the object are acknowledged, and the lease was not looked at since."""
        arrived = self._lease is not None and self._plan.arrived
        return arrived and not self._is_confirming and self._promised < self._plan.position

    async def _list_and_confirm(self) -> None:
        """Compare what the store lists, and look at the lease meanwhile."""
        assert self._lease is not None
        try:
            done = await asyncio.gather(self._list(), self._lease.confirm(), return_exceptions=True)
        finally:
            self._is_confirming = False
        for failed in done:
            if failed is not None:
                raise failed
        if self._plan.completable:
            self._promised = max(self._promised, self._plan.stored_end)

    async def _list(self) -> None:
        """Compare what the store lists."""
        try:
            parts = await self._listed(await self._begin())
        except BucketNotFoundError:
            raise
        except NotFoundError as error:
            raise self._fencing_error(error) from error
        except (AccessDeniedError, UnsupportedError) as error:
            if self._plan.committing and self._plan.unanswered:
                raise  # nothing else can tell what became of the request that was not answered
            if self._plan.promises:
                log.warning(
                    "%s: resuming it needs the right to list parts, which these credentials do not have: %s",
                    self.describe(),
                    error.message,
                )
            self._plan.unlisted(findable=isinstance(error, AccessDeniedError))
            return
        if parts is None:
            log.warning(
                "%s: nothing is stored before it is complete: this store does not list what is unfinished",
                self.describe(),
            )
            self._plan.unlisted(findable=False)
            return
        with located(self._where):
            self._plan.listed(parts, asyncio.get_running_loop().time())

    async def _listed(self, upload_id: str) -> list[Part] | None:
        """The parts that the store lists; None where others could not find the upload."""
        if self._plan.promises:
            return await findable_parts(self._store, self._key, upload_id)
        return await self._store.list_parts(self._key, upload_id)

    async def _begin(self) -> str:
        """The upload id; a sender that is cancelled leaves the request that asks for it alone."""
        if self._beginning is None:
            self._beginning = asyncio.create_task(begin_upload(self._store, self._key, self._lease))
        return await asyncio.shield(self._beginning)

    def _fencing_error(self, error: StoreError) -> WriterFencedError:
        """The error for a refusal because somebody else ended the upload or replaced its object."""
        if isinstance(error, ObjectChangedError):
            return WriterFencedError(
                "the object that was to be replaced was written by somebody else",
                where=error.where.merged_with(self._where),
                hint=self._options.when_replaced or f"look at it; to replace it all the same: {self.rescue_command()}",
            )
        self._is_gone = True
        look = upload_command(self._store, "show", self._key)
        return WriterFencedError(
            f"the upload {self.upload_id} was completed or aborted by somebody else",
            where=error.where.merged_with(self._where),
            hint=error.hint or f"what was stored is theirs now; see what is there: {look}",
        )

    async def _settle(self) -> None:
        """Wait for what is being sent, for a while; afterwards no task of the sink is left."""
        self._plan.stop()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + GRACE_SECONDS
        while self._tasks and (left := deadline - loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if self._timer is not None:
            self._timer.cancel()
        tasks: list[asyncio.Future[Any]] = list(self._tasks)
        self._failure = self._failure or WriterClosedError("the upload has ended", where=self._where)
        if self._beginning is not None:
            if not self._beginning.done():
                await asyncio.wait([self._beginning], timeout=max(0.0, deadline - loop.time()))
            tasks.append(self._beginning)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._buffers.take_all()
