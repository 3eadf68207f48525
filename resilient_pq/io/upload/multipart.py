"""An object of unknown size as a multipart upload: the shell around `upload_plan`, which decides what is sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Literal

from resilient_pq.errors import (
    AccessDeniedError,
    AlreadyExistsError,
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
from resilient_pq.io.cancellation import GRACE_SECONDS, finish_first
from resilient_pq.io.multipart_store import MultipartStore, Part
from resilient_pq.io.object_sink import (
    DEFAULT_SINK_OPTIONS,
    Buffer,
    Fencing,
    ObjectSink,
    SinkOptions,
    StoredState,
    pieces_of,
)
from resilient_pq.io.stored_object import ObjectInfo
from resilient_pq.io.upload.abandoned_uploads import upload_command
from resilient_pq.io.upload.begun_upload import drop_twins, leased_upload
from resilient_pq.io.upload.lease import Lease
from resilient_pq.io.upload.part_buffers import PartBuffers
from resilient_pq.io.upload.upload_plan import Later, ListParts, PutPart, UploadPlan
from resilient_pq.io.upload.upload_probe import findable_parts

log = logging.getLogger("resilient_pq.io")


class MultipartSink(ObjectSink):
    """The bytes of one object, sent in parts to any `MultipartStore`, so that the upload can always be completed.

    Nothing is sent before one part is full or a commit is asked for: a smaller object is a single request when it
    is completed. After that, parts go out side by side, and `write` waits while too many bytes are held. The
    first part that fails for good fails the sink.

    Where the options ask for a lease, it is taken before the upload is begun, and bytes count as stored when it was
    found to be held still after their parts were acknowledged.
    """

    def __init__(self, store: MultipartStore, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> None:
        """Send nothing yet."""
        self._store = store
        self._key = key
        self._options = options
        self._plan = UploadPlan(options)
        self._buffers = PartBuffers(self._plan.layout)
        self._beginning: asyncio.Future[str] | None = None  # gives the upload id
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._outcome: Literal["completed", "aborted", "kept"] | None = None
        self._info: ObjectInfo | None = None
        self._tidied = False  # whether the upload was removed since it held no more than the object that stays
        self._commit_begun: tuple[int, float] | None = None  # its end, and when
        self._commit_seconds = 0.0
        self._in_doubt = False  # whether the store may have published the object without saying so
        self._lease = None if options.lease is None else Lease(store, key, options.lease)
        self._gone = False  # whether somebody else completed or aborted the upload
        self._promised = 0  # bytes that were stored when the lease was last found to be held
        self._confirming = False

    @classmethod
    async def resume(
        cls,
        store: MultipartStore,
        key: str,
        options: SinkOptions,
        *,
        upload_id: str,
        parts: Sequence[Part],
        tail: Sequence[Buffer],
        lease: Lease | None = None,
    ) -> MultipartSink:
        """Go on with an upload whose first parts are there already, and commit what is known of the object."""
        sink = cls(store, key, replace(options, lease=None))
        sink._lease = lease
        pieces = pieces_of(tail)
        position = sum(part.size for part in parts) + sum(piece.nbytes for piece in pieces)
        sink._plan = UploadPlan.resume(position, parts, options)
        sink._plan.take_released()
        sink._buffers = PartBuffers(sink._plan.layout, first=len(parts) + 1)
        for piece in pieces:
            sink._buffers.append(piece)

        sink._beginning = asyncio.get_running_loop().create_future()
        sink._beginning.set_result(upload_id)
        try:
            sink._pump()
            while sink._plan.committing or sink._confirming:
                await sink._change()
        except BaseException:
            sink._outcome = "kept"
            await finish_first(sink._settle())
            raise
        return sink

    @property
    def position(self) -> int:
        """Bytes accepted so far."""
        return self._plan.position

    @property
    def num_bytes_stored(self) -> int:
        """Bytes that the newest commit made durable; none after an abort."""
        if self._outcome == "aborted":
            return 0
        return self._plan.position if self._outcome == "completed" else self._stored_end

    @property
    def _stored_end(self) -> int:
        """Bytes that may be said to be stored: none that the next holder of the object might not find."""
        return self._plan.stored_end if self._lease is None else self._promised

    @property
    def fencing(self) -> Fencing:
        """What the lease keeps others from; known when the upload was begun."""
        return Fencing.NONE if self._lease is None else self._lease.fencing

    @property
    def num_bytes_resent(self) -> int:
        """Bytes that commits caused to be sent again."""
        return self._plan.num_bytes_resent

    @property
    def commit_seconds(self) -> float:
        """From when it was asked for until it was stored."""
        return self._commit_seconds

    @property
    def commit_cost(self) -> int:
        """Bytes that a commit now would cause to be sent once more."""
        return self._plan.commit_cost

    @property
    def published(self) -> ObjectInfo | None:
        """The object, once it is complete."""
        return self._info

    @property
    def in_doubt(self) -> bool:
        """Whether the store may have completed the upload without saying so."""
        return self._in_doubt and self._outcome != "completed"

    @property
    def upload_id(self) -> str | None:
        """The id of the upload, once one was begun."""
        task = self._beginning
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    async def write(self, *buffers: Buffer) -> None:
        """Append the buffers; sends what can be sent, waiting while too many bytes are held."""
        self._refuse_ended()
        pieces = pieces_of(buffers)
        with located(self._where):
            self._plan.append(sum(piece.nbytes for piece in pieces))
        for piece in pieces:
            self._buffers.append(piece)
        self._pump()
        while self._plan.congested:
            await self._change()

    def mark(self) -> None:
        """What was written so far is what the first part holds until something is committed."""
        self._plan.mark()

    async def commit(self, *, wait: bool = True) -> StoredState:
        """Send what was written so far, and make it what anyone would find who completed the upload.

        `ACCEPTED` where that is not done yet: it was not waited for, or the end lies on a multiple of a MiB, where
        no commit can be; or where it never will be, since the store lists no uploads or no parts.
        """
        self._refuse_ended()
        if wait or not self._plan.committing:
            end = self._plan.commit()
            if self.num_bytes_stored < end:
                self._commit_begun = end, asyncio.get_running_loop().time()
            self._pump()
            while wait and (self._plan.committed_end < end or self._stored_end < end <= self._plan.stored_end):
                await self._change()
        return StoredState.STORED if self._stored_end >= self.position else StoredState.ACCEPTED

    async def complete(self) -> ObjectInfo:
        """Send what is left, and publish the object.

        A cancellation that comes while the store publishes is raised when the outcome is known, or after 10 s.
        """
        self._refuse_ended()
        exclusive, if_match = self._options.mode == "x", self._options.if_match
        self._plan.close(in_parts=await self._is_held_alone())
        if self._plan.single:
            data = self._buffers.take_all()
            return await self._publish(self._store.put(self._key, data, if_none_match=exclusive, if_match=if_match))
        self._pump()
        while not self._plan.completable or self._confirming:
            await self._change()
        parts, upload_id = self._plan.parts, await self._begun()
        stored = sum(part.size for part in parts)
        if stored != self.position:
            raise StoreError(f"the parts have {stored:,} bytes instead of {self.position:,}", where=self._where)
        await drop_twins(self._store, self._key, upload_id, self._lease)
        return await self._publish(
            self._store.complete_upload(self._key, upload_id, parts, if_none_match=exclusive, if_match=if_match)
        )

    async def _is_held_alone(self) -> bool:
        """Whether one who takes the lease over must be able to end what is on its way: no single request, an upload.

        Where nothing was sent yet, the lease is taken first: who may not have it may still write the object.
        """
        lease, terms = self._lease, self._options.lease
        if lease is None or terms is None or not terms.exclusive:
            return False
        if not self._plan.begun:
            await lease.take()
        return lease.is_held

    async def abort(self) -> None:
        """Break the upload off and remove its parts, unless the store may have published the object."""
        if self._outcome is None and self._in_doubt:
            log.error("%s: it is not known whether it was published; the upload is kept", self.describe())
            await self.keep()
        elif self._outcome is None:
            self._outcome = "aborted"
            await finish_first(self._remove())

    async def keep(self) -> None:
        """Let the parts and the commit under way arrive, and leave them in the open upload.

        One that goes on with an object and holds no more than that is removed.
        """
        if self._outcome is None:
            self._outcome = "kept"
            await finish_first(self._settle_and_tidy())

    def describe(self) -> str:
        """The key and the upload id."""
        url = self._store.url_of(self._key)
        if self._tidied:
            return f"{url}, as it was"
        if self.upload_id is None:
            return f"{url}: nothing is stored yet"
        return f"{url}, upload id {self.upload_id}"

    def rescue_command(self) -> str | None:
        """Completes the upload as far as the newest commit, in place of the object that this one was to replace."""
        if self.upload_id is None or self._tidied:
            return None
        # The object that a resumed upload is to replace is still there.
        overwrite = () if self._options.if_match is None else ("--overwrite",)
        return self._command("complete", "--upload-id", self.upload_id, *overwrite)

    def _command(self, verb: str, *options: str) -> str:
        """A command about the upload, for a shell."""
        return upload_command(self._store, verb, self._key, *options)

    @property
    def _where(self) -> Where:
        return Where(key=self._store.url_of(self._key))

    def _refuse_ended(self) -> None:
        if self._outcome is not None:
            raise WriterClosedError(f"the upload was {self._outcome}", where=self._where)
        self._refuse_failed()

    def _refuse_failed(self) -> None:
        if isinstance(self._failure, StoreError | WriterFencedError):
            raise self._failure
        if self._failure is not None:
            raise StoreError(f"a part was not sent: {self._failure!r}", where=self._where) from self._failure

    # -- sending ---------------------------------------------------------------------------------

    async def _change(self) -> None:
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
        if due and not self._confirming and self._failure is None:
            self._confirming = True
            self._start(self._confirm(self._plan.stored_end))
        loop = asyncio.get_running_loop()
        while self._failure is None and (request := self._plan.next_request(loop.time())) is not None:
            match request:
                case PutPart():
                    self._start(self._put(request))
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
            self._confirming = False
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
            if self._commit_begun is not None and self.num_bytes_stored >= self._commit_begun[0]:
                self._commit_seconds = asyncio.get_running_loop().time() - self._commit_begun[1]
                self._commit_begun = None
            self._pump()
        self._changed.set()

    async def _put(self, request: PutPart) -> None:
        pieces = self._buffers.view(request.number, request.end - request.start)
        upload_id = await self._begun()
        try:
            part = await self._store.put_part(self._key, upload_id, request.number, pieces)
        except BucketNotFoundError:
            raise  # nobody took the upload over: it is gone with the bucket
        except NotFoundError as error:
            raise self._fenced(error) from error
        self._plan.acknowledged(part, asyncio.get_running_loop().time())

    async def _list(self) -> None:
        try:
            parts = await self._listed(await self._begun())
        except BucketNotFoundError:
            raise
        except NotFoundError as error:
            raise self._fenced(error) from error
        except (AccessDeniedError, UnsupportedError) as error:
            if self._plan.committing and self._plan.unanswered:
                raise  # nothing else can tell what became of the request that was not answered
            if self._plan.promises:
                log.warning(
                    "%s: whoever goes on with it needs to list parts, as these credentials may not: %s",
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
        """What the store lists; None where nobody could find it."""
        if self._plan.promises:
            return await findable_parts(self._store, self._key, upload_id)
        return await self._store.list_parts(self._key, upload_id)

    async def _begun(self) -> str:
        """The upload id; a sender that is cancelled leaves the request that asks for it alone."""
        if self._beginning is None:
            self._beginning = asyncio.create_task(leased_upload(self._store, self._key, self._lease))
        return await asyncio.shield(self._beginning)

    def _fenced(self, error: StoreError) -> WriterFencedError:
        if isinstance(error, ObjectChangedError):
            return WriterFencedError(
                "the object that was to be replaced was written by somebody else",
                where=error.where.merged_with(self._where),
                hint=f"look at it; to replace it all the same: {self.rescue_command()}",
            )
        self._gone = True
        return WriterFencedError(
            f"the upload {self.upload_id} was completed or aborted by somebody else",
            where=error.where.merged_with(self._where),
            hint=error.hint or f"what was stored is theirs now; see what is there: {self._command('resume-info')}",
        )

    # -- ending ----------------------------------------------------------------------------------

    async def _publish(self, request: Coroutine[Any, Any, ObjectInfo]) -> ObjectInfo:
        async def publish() -> ObjectInfo:
            try:
                info = await request
            except (AlreadyExistsError, AccessDeniedError, BucketNotFoundError):
                raise
            except (NotFoundError, ObjectChangedError) as error:
                if self._plan.single:
                    raise
                raise self._fenced(error) from error
            except BaseException:
                self._in_doubt = not self._plan.single
                raise
            self._outcome, self._info = "completed", info
            await self._release_ended()
            return info

        return await finish_first(publish(), patience=GRACE_SECONDS)

    async def _release_ended(self) -> None:
        """Remove the epoch object of an upload that is no more; one that stays does no harm to who finds it."""
        if self._lease is None:
            return
        try:
            await self._lease.release()
        except (StoreError, UnsupportedError, WriterFencedError) as error:
            log.warning("%s: its epoch object stays: %s", self._where.key, error)

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

    async def _settle_and_tidy(self) -> None:
        await self._settle()
        if self._gone:
            await self._release_ended()  # unless the one who ended the upload goes on with it
        if not self._plan.adds_nothing or self._in_doubt or self.upload_id is None:
            return
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                # Of an object that somebody removed or replaced meanwhile, this is the only copy.
                if (await self._store.head(self._key)).etag == self._options.if_match:
                    await self._store.abort_upload(self._key, self.upload_id)
                    self._tidied = True
        except (StoreError, TimeoutError) as error:
            log.warning("%s: left, though it holds no more than the object: %s", self.describe(), error)

    async def _remove(self) -> None:
        self._failure = self._failure or WriterClosedError("the upload was aborted", where=self._where)
        await self._settle()
        hint = None if self.upload_id is None else self._command("abort", "--upload-id", self.upload_id)
        hint = None if hint is None else f"remove it later: {hint}"
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                if self._lease is not None:
                    await self._lease.release()  # from then on nobody goes on with the upload
                if self.upload_id is not None:
                    await self._store.abort_upload(self._key, self.upload_id)
        except WriterFencedError as error:
            # Rows of it may be stored for the one who goes on with it.
            log.warning("%s: not removed: %s", self.describe(), error.message)
        except NotFoundError:
            return  # somebody else removed or completed it: nothing of ours is left
        except TimeoutError:
            raise TransientError(
                f"the upload was not removed: no answer in {GRACE_SECONDS:.0f} s",
                where=self._where,
                hint=hint,
            ) from None
        except StoreError as error:
            error.hint = "; ".join(said for said in (error.hint, hint) if said) or None
            raise
