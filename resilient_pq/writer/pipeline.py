"""Rows on their way into the encoder of a file, and its row groups on their way into a sink.

While chunks are encoded in threads, those before them are being pushed, and the rows of the next row group may be
taken already. What of all that waits is bounded.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any, Final

from resilient_pq.arrow.batch_ingest import Batch
from resilient_pq.format.pages.chunk_encoder import EncodedChunk
from resilient_pq.format.side_by_side import one_by_one
from resilient_pq.io import ObjectSink
from resilient_pq.io.cancellation import finish_first, finish_in_thread, in_loop
from resilient_pq.writer.encode_pool import EncodePool
from resilient_pq.writer.file_encoder import ClosedRowGroup, FileEncoder
from resilient_pq.writer.file_layout import Buffers
from resilient_pq.writer.protected_layout import ProtectedLayout

#: Which part of a row group may wait to be encoded while the next one is begun, and may wait to be pushed.
_AHEAD: Final = 4
#: Encoded bytes for which the event loop is woken while threads go on encoding, at most: each time stops one of them
#: for a while. Writing wide floats by two threads takes a tenth less than with every chunk pushed by itself.
_WORTH_PUSHING: Final = 4 << 20
#: Bytes of a buffer that is not given to the sink by itself, at most.
_SHORT: Final = 16 << 10
#: Seconds after which the event loop has its turn: a slow source can be cancelled, and what is stored is noticed.
_TURN: Final = 0.02


class Pipeline:
    """Takes the row groups of one encoder, and pushes the bytes of its file into a sink."""

    def __init__(
        self,
        encoder: FileEncoder,
        sink: ObjectSink,
        *,
        max_threads: int,
        row_group_bytes: int,
        laid_out: Callable[[ClosedRowGroup, bool], Awaitable[None]],
    ) -> None:
        """Begin without row groups; `laid_out` is told of each complete one, and whether a footer follows."""
        self._encoder = encoder
        self._sink = sink
        self._max_threads = max_threads
        self._laid_out = laid_out
        self._most_left_bytes = row_group_bytes // _AHEAD
        self._most_waiting_bytes = self._most_left_bytes // 2  # as much again may be on its way into the store
        self._ahead: EncodePool[EncodedChunk] | None = None  # made for the first row group that several threads encode
        self._closing: deque[ClosedRowGroup] = deque()  # those of which not all is in the file
        self._num_laid = 0  # chunks of the first of them that are
        self._pushing: asyncio.Task[None] | None = None  # what is being pushed while the next chunks are encoded

    @property
    def needs_loop(self) -> bool:
        """Whether what goes on belongs to the event loop."""
        return self._ahead is not None or self._pushing is not None or self._sink.needs_loop

    def use_one_thread(self) -> None:
        """Encode what is not begun yet in the thread that asks for it."""
        self._max_threads = 1

    @property
    def busy(self) -> bool:
        """Whether a row group is closed, and not yet complete in the file."""
        return bool(self._closing)

    async def close_row_group(self, *, ending: bool = False) -> None:
        """Have the open row group encoded; returns while the last of it is, where the next rows may be taken then."""
        closed = await finish_in_thread(self._encoder.close_row_group)
        self._closing.append(closed)
        threads = min(self._max_threads, closed.max_threads)
        if threads > 1:
            await in_loop()
            ahead = self._use_threads(threads)
            ahead.add(*closed.calls)
            closed.calls.clear()
            while len(self._closing) > 1 or ahead.left_bytes > self._most_left_bytes:
                await self._push_encoded(ending=ending)
        if ending or threads == 1 or not self._encoder.may_look_ahead:
            await self.push_row_groups(ending=ending)

    async def end_row_group(self) -> None:
        """Have the open row group encoded, and all that are closed pushed."""
        await self.close_row_group()
        await self.push_row_groups()

    def _use_threads(self, threads: int) -> EncodePool[EncodedChunk]:
        """What encodes in so many threads from now on."""
        if self._ahead is None:
            self._ahead = EncodePool(
                threads,
                self._most_waiting_bytes,
                lambda chunk: chunk.size,
                worth_taking=min(_WORTH_PUSHING, self._most_left_bytes // 4),  # while there is room to go on
            )
        self._ahead.max_threads = threads
        return self._ahead

    async def push_row_groups(self, *, ending: bool = False) -> None:
        """Push all row groups that are closed."""
        while self._closing:
            await self._push_encoded(ending=ending)
        if self._ahead is not None:
            await self._ahead.join()
        await self.pushed()

    async def _push_encoded(self, *, ending: bool) -> None:
        """Push the next chunks, as many as are encoded, but no further than to the end of their row group."""
        closed, layout = self._closing[0], self._encoder.layout
        buffers: list[Any] = []
        if self._num_laid < closed.num_chunks:
            if closed.calls or self._ahead is None:
                chunks = await finish_in_thread(self._encode_some, closed)
            else:
                chunks = await self._ahead.take(closed.num_chunks - self._num_laid)
            if isinstance(layout, ProtectedLayout):
                buffers += await finish_in_thread(partial(layout.chunks, chunks))
            else:
                buffers += layout.chunks(chunks)
            self._num_laid += len(chunks)
        if self._num_laid < closed.num_chunks:
            await self._push_behind(buffers)
            return
        self._closing.popleft()
        self._num_laid = 0
        buffers += await finish_in_thread(self._encoder.end_row_group, closed)
        await self._push_behind(buffers)
        await self._laid_out(closed, ending and not self._closing)

    def _encode_some(self, closed: ClosedRowGroup) -> list[EncodedChunk]:
        """The next chunks of a row group that one thread encodes, as many as may wait to be pushed."""
        chunks: list[EncodedChunk] = []
        num_bytes = 0
        while closed.calls and num_bytes <= self._most_waiting_bytes:
            call, _ = closed.calls.popleft()
            more = call(one_by_one)
            num_bytes += sum([chunk.size for chunk in more])
            chunks += more
        return chunks

    async def push(self, buffers: Buffers) -> None:
        """Push behind what is being pushed, and wait until the sink has accepted it."""
        if self._pushing is not None:
            await self.pushed()
        await self._sink.write(*_joined(buffers))

    async def _push_behind(self, buffers: Buffers) -> None:
        """Push when what is being pushed has been, and return meanwhile: the next chunks may be laid out."""
        if self._ahead is None or self._ahead.max_threads == 1:
            await self.push(buffers)
            return
        await self.pushed()
        self._pushing = asyncio.create_task(self._sink.write(*_joined(buffers)))

    async def pushed(self) -> None:
        """Wait until nothing is being pushed: before anything else is asked of the sink."""
        if (pushing := self._pushing) is not None:
            await asyncio.wait([pushing])
            self._pushing = None
            pushing.result()

    async def stop(self) -> None:
        """After a failure: end what goes on in the background, whatever comes of it, even when cancelled again."""
        pushing, self._pushing = self._pushing, None
        if pushing is not None:
            pushing.cancel()
        await finish_first(self._stopped(pushing))

    async def _stopped(self, pushing: asyncio.Task[None] | None) -> None:
        if pushing is not None:
            await asyncio.wait([pushing])
            if not pushing.cancelled():
                pushing.exception()  # of several failures the first is told
        if self._ahead is not None:
            await self._ahead.stop()


def _joined(buffers: Buffers) -> list[Any]:
    """Buffers of which short ones that follow one another are copied together: each costs more than its bytes."""
    joined: list[Any] = []
    short: list[Any] = []
    for buffer in buffers:
        if len(buffer) <= _SHORT:
            short.append(buffer)
            continue
        if short:
            joined.append(b"".join(short))
            short = []
        joined.append(memoryview(buffer))
    if short:
        joined.append(b"".join(short))
    return joined


class Stop(Enum):
    """Why no more rows were taken."""

    #: There are no more.
    ENDED = auto()
    #: The open row group is to be closed.
    ROW_GROUP_DUE = auto()
    #: The file is to be completed; there are rows left.
    FILE_FULL = auto()
    #: A checkpoint is to be written.
    CHECKPOINT_DUE = auto()
    #: Others want to do something, too.
    TURN_OVER = auto()
    #: The source failed, or gave rows that do not fit: `BatchFeeder.error`.
    REFUSED = auto()


class BatchFeeder:
    """The rows of one source.

    Attributes:
        num_rows_left: Rows of the batch at hand that have not been taken.
        error: What the source raised.
    """

    def __init__(
        self, batches: Iterator[Batch], encoder: FileEncoder, taking: Callable[[int], None] | None = None
    ) -> None:
        """Take nothing yet."""
        self.num_rows_left = 0
        self.error: Exception | None = None
        self._batches = batches
        self._batch: Batch | None = None
        self._encoder = encoder
        self._taking = taking
        self._at_work = threading.Lock()
        self._waiting = False  # for the source

    def pause(self) -> bool:
        """Keep `take` waiting until `resume`, where the source does: the encoder is the caller's meanwhile."""
        if not self._waiting or not self._at_work.acquire(blocking=False):
            return False
        if self._waiting:
            return True
        self._at_work.release()
        return False

    def resume(self) -> None:
        """Go on after `pause`."""
        self._at_work.release()

    def take(self, seconds_since_checkpoint: float, *, between_row_groups: bool) -> Stop:
        """Take rows until something else is to be done, they end, or they are refused."""
        with self._at_work:
            return self._take(seconds_since_checkpoint, between_row_groups=between_row_groups)

    def _take(self, seconds_since_checkpoint: float, *, between_row_groups: bool) -> Stop:
        encoder, begun = self._encoder, time.monotonic()
        while True:
            if self._batch is None:
                try:
                    self._batch = self._next()
                except Exception as error:
                    self.error = error
                    return Stop.REFUSED
                if self._batch is None:
                    return Stop.ENDED
                self.num_rows_left = self._batch.num_rows
            if self.num_rows_left and encoder.full and not encoder.has_open_rows:
                return Stop.FILE_FULL
            if self.num_rows_left:
                if self._taking is not None:
                    self._taking(encoder.num_rows_taken)
                self.num_rows_left -= encoder.take(self._batch, self._batch.num_rows - self.num_rows_left)
            if not self.num_rows_left:
                self._batch = None  # its rows are the encoder's
            taken = time.monotonic() - begun
            if encoder.row_group_due(seconds_since_checkpoint + taken):
                return Stop.ROW_GROUP_DUE
            if between_row_groups and encoder.checkpoint_due(seconds_since_checkpoint + taken):
                return Stop.CHECKPOINT_DUE
            if taken > _TURN:
                return Stop.TURN_OVER

    def _next(self) -> Batch | None:
        """What the source gives next, whenever that is: it may be paused until then."""
        self._waiting = True
        self._at_work.release()
        try:
            return next(self._batches, None)
        finally:
            self._at_work.acquire()
            self._waiting = False
