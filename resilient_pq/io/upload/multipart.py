"""An object of unknown size as a multipart upload: written, committed, published, aborted or kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Literal

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    BucketNotFoundError,
    NotFoundError,
    ObjectChangedError,
    StoreError,
    TransientError,
    UnsupportedError,
    WriterClosedError,
    WriterFencedError,
)
from resilient_pq.io.cancellation import GRACE_SECONDS, finish_first
from resilient_pq.io.multipart_store import MultipartStore, Part
from resilient_pq.io.object_sink import (
    DEFAULT_SINK_OPTIONS,
    Buffer,
    Fencing,
    SinkOptions,
    StoredState,
    pieces_of,
)
from resilient_pq.io.protocols import ReadStore
from resilient_pq.io.stored_object import ObjectInfo
from resilient_pq.io.upload.lease import Lease
from resilient_pq.io.upload.part_sender import Origin, PartSender
from resilient_pq.io.upload.upload_start import drop_command, drop_duplicates

log = logging.getLogger("resilient_pq.io")


class MultipartSink(PartSender):
    """The bytes of one object, sent in parts to any `MultipartStore`, so that the upload can always be completed."""

    published: ObjectInfo | None = None  # The object, once it is complete

    # Nothing is sent before one part is full or a commit is asked for: a smaller object is a single request when it is
    # completed. After that, parts go out side by side, and `write` waits while too many bytes are held. The first part
    # that fails for good fails the sink. Where the options ask for a lease, it is taken before the upload is begun, and
    # bytes count as stored when it was found to be held still after their parts were acknowledged.

    def __init__(self, store: MultipartStore, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> None:
        """Send nothing yet."""
        super().__init__(store, key, options)
        self._outcome: Literal["completed", "aborted", "kept"] | None = None
        self._tidied = False  # whether the upload was removed since it held no more than the object that stays
        self._in_doubt = False  # whether the store may have published the object without saying so

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
        sink._continue_upload(upload_id, parts, pieces_of(tail))
        try:
            sink._pump()
            while sink._plan.committing or sink._is_confirming:
                await sink._wait_for_change()
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
    def fencing(self) -> Fencing:
        """What the lease keeps others from; known when the upload was begun."""
        return Fencing.NONE if self._lease is None else self._lease.fencing

    @property
    def num_bytes_resent(self) -> int:
        """Bytes that commits caused to be sent again."""
        return self._plan.num_bytes_resent

    @property
    def commit_cost(self) -> int:
        """Bytes that a commit now would cause to be sent once more."""
        return self._plan.commit_cost

    @property
    def in_doubt(self) -> bool:
        """Whether the store may have completed the upload without saying so."""
        return self._in_doubt and self._outcome != "completed"

    async def write(self, *buffers: Buffer) -> None:
        """Append the buffers; sends what can be sent, waiting while too many bytes are held."""
        self._refuse_ended()
        self._append(pieces_of(buffers))
        while self._plan.congested:
            await self._wait_for_change()

    def expect_copy(self, store: object, source: ObjectInfo, start: int, place: ByteRange) -> None:
        """Have the store copy the parts that lie within these bytes, where it can."""
        able = self._store.capabilities.server_side_copy and source.etag is not None
        if able and isinstance(store, ReadStore) and self._store.copies_from(store):
            self._origins.append(Origin(source, start, place))

    def mark(self) -> None:
        """What was written so far is what the first part holds until something is committed."""
        self._plan.mark()

    async def commit(self, *, wait: bool = True) -> StoredState:
        """Send what was written so far, and make it what anyone would find who completed the upload."""
        # `ACCEPTED` where that is not done yet: it was not waited for, or the end lies on a multiple of a MiB, where no
        # commit can be; or where it never will be, since the store lists no uploads or no parts.
        self._refuse_ended()
        if wait or not self._plan.committing:
            end, plan = self._begin_commit(), self._plan
            while wait and (plan.committed_end < end or self._stored_end < end <= plan.stored_end):
                await self._wait_for_change()
        return StoredState.STORED if self._stored_end >= self.position else StoredState.ACCEPTED

    async def complete(self) -> ObjectInfo:
        """Send what is left, and publish the object."""
        # A cancellation that comes while the store publishes is raised when the outcome is known, or after 10 s.
        self._refuse_ended()
        exclusive, if_match = self._options.mode == "x", self._options.if_match
        self._plan.close(in_parts=await self._is_held_alone())
        if self._plan.single:
            data = self._buffers.take_all()
            return await self._publish(self._store.put(self._key, data, if_none_match=exclusive, if_match=if_match))
        self._pump()
        while not self._plan.completable or self._is_confirming:
            await self._wait_for_change()
        await self._refuse_changed_origins()
        parts, upload_id = self._plan.parts, await self._begin()
        stored = sum(part.size for part in parts)
        if stored != self.position:
            raise StoreError(f"the parts have {stored:,} bytes instead of {self.position:,}", where=self._where)
        await drop_duplicates(self._store, self._key, upload_id, self._lease)
        return await self._publish(
            self._store.complete_upload(self._key, upload_id, parts, if_none_match=exclusive, if_match=if_match)
        )

    async def _is_held_alone(self) -> bool:
        """Whether one who takes the lease over must be able to end what is on its way: no single request, an upload."""
        # Where nothing was sent yet, the lease is taken first: who may not have it may still write the object.
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
        """Let the parts and the commit under way arrive, and leave them in the open upload."""
        # One that goes on with an object and holds no more than that is removed.
        if self._outcome is None:
            self._outcome = "kept"
            await finish_first(self._settle_and_tidy())

    def describe(self) -> str:
        """The key and the upload id."""
        return f"{self._store.url_of(self._key)}, as it was" if self._tidied else super().describe()

    def rescue_command(self) -> str | None:
        """Completes the upload as far as the newest commit, in place of the object that this one was to replace."""
        return None if self._tidied else super().rescue_command()

    def _refuse_ended(self) -> None:
        if self._outcome is not None:
            raise WriterClosedError(f"the upload was {self._outcome}", where=self._where)
        self._refuse_failed()

    async def _publish(self, request: Coroutine[Any, Any, ObjectInfo]) -> ObjectInfo:
        async def publish() -> ObjectInfo:
            try:
                info = await request
            except (AlreadyExistsError, AccessDeniedError, BucketNotFoundError):
                raise
            except (NotFoundError, ObjectChangedError) as error:
                if self._plan.single:
                    raise
                raise self._fencing_error(error) from error
            except BaseException:
                self._in_doubt = not self._plan.single
                raise
            self._outcome, self.published = "completed", info
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

    async def _settle_and_tidy(self) -> None:
        await self._settle()
        if self._is_gone:
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

    def _how_to_remove(self) -> str | None:
        """What removes an upload that stays; None where there is none."""
        if self.upload_id is None:
            return None
        return f"remove it later: {drop_command(self._store, self._key, self.upload_id)}"

    async def _remove(self) -> None:
        self._failure = self._failure or WriterClosedError("the upload was aborted", where=self._where)
        await self._settle()
        hint = self._how_to_remove()
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
                f"the upload was not removed: no answer in {GRACE_SECONDS:.0f} s", where=self._where, hint=hint
            ) from None
        except StoreError as error:
            error.hint = "; ".join(said for said in (error.hint, hint) if said) or None
            raise
