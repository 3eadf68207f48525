"""An object of unknown size as a multipart upload: parts of growing size, sent side by side within bounds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, Literal

from resilient_pq.errors import NotFoundError, StoreError, TransientError, Where, WriterClosedError
from resilient_pq.io.cancellation import finish_first
from resilient_pq.io.protocols import (
    DEFAULT_SINK_OPTIONS,
    Buffer,
    KiB,
    MultipartStore,
    ObjectInfo,
    ObjectSink,
    Part,
    SinkOptions,
    StoredState,
    pieces_of,
)

MAX_PARTS = 10_000
PARTS_PER_SIZE = 800

# Smaller pieces are copied together: a page header of 40 bytes is not worth a write of its own.
_SMALL_PIECE = 64 * KiB
# How long abort and keep wait for the parts that are being sent before they are broken off, and how long the
# request that aborts may take.
_GRACE_SECONDS = 10.0


def part_size(number: int, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> int:
    """Bytes of part `number`, from 1, of an upload.

    `part_bytes`, doubling every 800 parts up to `max_part_bytes`: always a whole number of MiB.

    Raises:
        StoreError: An upload has at most 10,000 parts; the hint names the setting that makes them larger.
    """
    if number > MAX_PARTS:
        setting = "part_bytes" if options.equal_parts else "max_part_bytes"
        raise StoreError(
            f"the object needs more than {MAX_PARTS:,} parts: more than {max_object_size(options):,} bytes",
            hint=f"raise {setting}, now {getattr(options, setting):,} bytes",
        )
    if options.equal_parts:
        return options.part_bytes
    longest = max(options.part_bytes, options.max_part_bytes)
    return min(options.part_bytes << ((number - 1) // PARTS_PER_SIZE), longest)


def max_object_size(options: SinkOptions = DEFAULT_SINK_OPTIONS) -> int:
    """Bytes of the largest object that 10,000 parts can make."""
    return sum(part_size(number, options) for number in range(1, MAX_PARTS + 1))


class MultipartSink(ObjectSink):
    """The bytes of one object, sent in parts to any `MultipartStore`.

    Nothing is sent before one part is full: a smaller object is a single request when it is completed. After
    that, parts go out side by side, and `write` waits while `max_bytes_in_flight` is reached. The first part
    that fails for good fails the sink.
    """

    def __init__(self, store: MultipartStore, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> None:
        """Send nothing yet."""
        self._store = store
        self._key = key
        self._options = options
        self._position = 0
        self._tail = _Tail()
        self._next_number = 1
        self._beginning: asyncio.Task[str] | None = None  # gives the upload id
        self._sending: dict[asyncio.Task[Part], int] = {}  # and the bytes each holds
        self._parts: dict[int, Part] = {}
        self._failure: BaseException | None = None
        self._outcome: Literal["completed", "aborted", "kept"] | None = None

    @property
    def position(self) -> int:
        """Bytes accepted so far."""
        return self._position

    @property
    def num_bytes_stored(self) -> int:
        """Bytes of the acknowledged parts before the first that is not."""
        stored, number = 0, 1
        while (part := self._parts.get(number)) is not None:
            stored += part.size
            number += 1
        return stored

    @property
    def upload_id(self) -> str | None:
        """The id of the upload, once one was begun."""
        task = self._beginning
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    async def write(self, *buffers: Buffer) -> None:
        """Append the buffers; sends every part that is full, waiting for room."""
        self._refuse_ended()
        for piece in pieces_of(buffers):
            self._tail.append(piece)
            self._position += piece.nbytes
        while self._tail.size and self._tail.size >= (size := self._next_size()):
            await self._send(size)

    async def commit(self, *, wait: bool = True) -> StoredState:
        """`STORED` when the last byte filled a part and all parts are acknowledged, else `ACCEPTED` at once."""
        self._refuse_ended()
        if self._tail.size or self._beginning is None:
            return StoredState.ACCEPTED
        await self._all_sent()
        return StoredState.STORED

    async def complete(self) -> ObjectInfo:
        """Send what is left, and publish the object.

        A cancellation that comes while the store publishes is raised when the outcome is known.
        """
        self._refuse_ended()
        exclusive = self._options.mode == "x"
        if self._beginning is None:
            return await self._publish(
                self._store.put(self._key, self._tail.take(self._tail.size), if_none_match=exclusive)
            )
        if self._tail.size:
            self._next_size()
            await self._send(self._tail.size)
        await self._all_sent()
        parts = [self._parts[number] for number in range(1, self._next_number)]
        stored = sum(part.size for part in parts)
        if stored != self._position:
            raise StoreError(
                f"the parts have {stored:,} bytes instead of {self._position:,}", where=self._where
            )
        upload_id = await self._begun()
        return await self._publish(
            self._store.complete_upload(self._key, upload_id, parts, if_none_match=exclusive)
        )

    async def abort(self) -> None:
        """Break the upload off and remove its parts.

        Raises:
            StoreError: The store did not remove them; the hint says how to do it later.
        """
        if self._outcome is None:
            self._outcome = "aborted"
            await finish_first(self._remove())

    async def keep(self) -> None:
        """Let the parts that are being sent arrive, and leave them in the open upload."""
        if self._outcome is None:
            self._outcome = "kept"
            await finish_first(self._settle())

    def describe(self) -> str:
        """The key and the upload id."""
        url = self._store.url_of(self._key)
        if self.upload_id is None:
            return f"{url}: nothing is stored yet"
        return f"{url}, upload id {self.upload_id}"

    @property
    def _where(self) -> Where:
        return Where(key=self._store.url_of(self._key))

    def _refuse_ended(self) -> None:
        if self._outcome is not None:
            raise WriterClosedError(f"the upload was {self._outcome}", where=self._where)
        self._refuse_failed()

    def _refuse_failed(self) -> None:
        if isinstance(self._failure, StoreError):
            raise self._failure
        if self._failure is not None:
            raise StoreError(f"a part was not sent: {self._failure!r}", where=self._where) from self._failure

    def _next_size(self) -> int:
        try:
            return part_size(self._next_number, self._options)
        except StoreError as error:
            raise error.at(self._where) from None

    async def _send(self, size: int) -> None:
        """Begin to send the next part, once there is room for it."""
        while self._sending and sum(self._sending.values()) + size > self._options.max_bytes_in_flight:
            await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
            self._refuse_failed()
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._store.create_upload(self._key))
        number = self._next_number
        self._next_number += 1
        task = asyncio.create_task(self._send_part(number, self._tail.take(size)))
        self._sending[task] = size
        task.add_done_callback(self._note_part)

    async def _begun(self) -> str:
        """The upload id; a sender that is cancelled leaves the request that asks for it alone."""
        assert self._beginning is not None
        return await asyncio.shield(self._beginning)

    async def _send_part(self, number: int, pieces: list[memoryview]) -> Part:
        return await self._store.put_part(self._key, await self._begun(), number, pieces)

    def _note_part(self, task: asyncio.Task[Part]) -> None:
        del self._sending[task]
        if task.cancelled():
            self._failure = self._failure or TransientError("a part was broken off", where=self._where)
        elif (error := task.exception()) is not None:
            self._failure = self._failure or error
        else:
            self._parts[task.result().number] = task.result()

    async def _all_sent(self) -> None:
        while self._sending:
            self._refuse_failed()
            await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
        self._refuse_failed()

    async def _publish(self, request: Coroutine[Any, Any, ObjectInfo]) -> ObjectInfo:
        async def publish() -> ObjectInfo:
            info = await request
            self._outcome = "completed"
            return info

        return await finish_first(publish())

    async def _settle(self) -> None:
        """Wait for the parts that are being sent, for a while; afterwards no task of the sink is left."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=_GRACE_SECONDS)
        tasks = list(self._sending)
        if self._beginning is not None:
            if not self._beginning.done():
                await asyncio.wait([self._beginning], timeout=_GRACE_SECONDS)
            tasks.append(self._beginning)  # type: ignore[arg-type]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tail = _Tail()

    async def _remove(self) -> None:
        await self._settle()
        if self.upload_id is None:
            return
        hint = f"remove it later: upload id {self.upload_id} of {self._store.url_of(self._key)}"
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._store.abort_upload(self._key, self.upload_id)
        except NotFoundError:
            return  # somebody else removed or completed it: nothing of ours is left
        except TimeoutError:
            raise TransientError(
                f"the upload was not removed: no answer in {_GRACE_SECONDS:.0f} s",
                where=self._where,
                hint=hint,
            ) from None
        except StoreError as error:
            error.hint = error.hint or hint
            raise


class _Tail:
    """The bytes that wait for their part to be full: large pieces as they came, small ones copied together."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: deque[memoryview | bytearray] = deque()

    def append(self, piece: memoryview) -> None:
        """Add bytes at the end."""
        self.size += piece.nbytes
        if piece.nbytes > _SMALL_PIECE:
            self._pieces.append(piece)
            return
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, bytearray) and len(last) < _SMALL_PIECE:
            last += piece
        else:
            self._pieces.append(bytearray(piece))

    def take(self, size: int) -> list[memoryview]:
        """Remove and give the first `size` bytes."""
        taken: list[memoryview] = []
        missing = size
        while missing:
            piece = memoryview(self._pieces.popleft())
            if piece.nbytes > missing:
                self._pieces.appendleft(piece[missing:])
                piece = piece[:missing]
            taken.append(piece)
            missing -= piece.nbytes
        self.size -= size
        return taken
