"""How a writer lives and ends, be it of one file or of many: in turn, once, and after an error without publishing.

An async shell.
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from resilient_pq.errors import (
    OutOfMemoryError,
    ResilientPQError,
    UnsupportedError,
    Where,
    WriterClosedError,
    WriterFailedError,
    WriterStateError,
    located,
)
from resilient_pq.io import WriteStore
from resilient_pq.io.cancellation import finish_first, in_loop
from resilient_pq.io.shared_clients import clients_needed
from resilient_pq.writer.row_pieces import gives_pieces, row_pieces_async

_IN_A_FORKED_PROCESS: Final = (
    "begin a writer of its own in each process, such as a sink of a data set; end a forked process with os._exit"
)


class CallLock:
    """A lock that tasks wait for in their order; without an event loop, one is waited in.

    It belongs to a process: a forked one has a copy, and of what the lock guards, too.
    """

    def __init__(self) -> None:
        """Begin unlocked."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = deque()

    async def acquire(self) -> bool:
        """Take the lock; an UnsupportedError in a forked process."""
        if self.is_inherited:
            raise UnsupportedError("a forked process cannot use a writer of its parent", hint=_IN_A_FORKED_PROCESS)
        if not self._waiting and self._lock.acquire(blocking=False):
            return True
        # Not in this thread: a finalizer may be at work in it, amid code that holds what the owner waits for.
        await in_loop()
        woken = asyncio.Event()
        place = asyncio.get_running_loop(), woken
        self._waiting.append(place)
        try:
            while self._waiting[0] is not place or not self._lock.acquire(blocking=False):
                await woken.wait()
                woken.clear()
        finally:
            self._waiting.remove(place)
            self._wake()
        return True

    @property
    def is_inherited(self) -> bool:
        """Whether it belongs to the process that this one was forked from."""
        return self._process != os.getpid()

    def release(self) -> None:
        """Let the lock go."""
        self._lock.release()
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        """Have the first task that waits look again."""
        while self._waiting and self._waiting[0][0].is_closed():
            self._waiting.popleft()
        if self._waiting:
            loop, woken = self._waiting[0]
            loop.call_soon_threadsafe(woken.set)

    async def acquire_within(self, seconds: float) -> bool:
        """Wait for the lock for so long; whether it was to be had."""
        try:
            async with asyncio.timeout(seconds):
                return await self.acquire()
        except TimeoutError:
            return False

    __aenter__ = acquire

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let it go."""
        self.release()


class failing:  # noqa: N801 (a context manager, used as a function is)
    """Mark a writer as failed by any error but those of a kind, which leave it as it was."""

    __slots__ = ("_but", "_writer")

    def __init__(
        self, writer: WriterLifecycle, *, but: type[BaseException] | tuple[type[BaseException], ...] = ()
    ) -> None:
        self._writer, self._but = writer, but

    async def __aenter__(self) -> None:
        """Nothing to do yet."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        try:
            located(Where(key=self._writer.url)).__exit__(kind, error, traceback)
        except OutOfMemoryError as lack:
            await self._writer._fail(lack)
            raise
        if not isinstance(error, self._but):
            await self._writer._fail(error)


class WriterLifecycle(ABC):
    """A writer between its creation and its end. Its calls take turns, an error ends it, and it ends once.

    Attributes:
        url: What is being written.
    """

    #: The writer, as its errors call it.
    _CALLED: ClassVar[str]
    #: What to do when it has failed, where the error does not say.
    _AFTER_FAILURE: ClassVar[str]

    def __init__(self, store: WriteStore, url: str, *, owns_store: bool) -> None:
        """Begin."""
        self.url = url
        self._store = store
        self._owns_store = owns_store
        self._lock = CallLock()
        self._closed = False
        self._failure: BaseException | None = None
        self._untold: BaseException | None = None  # the failure, where it came between calls: the next one raises it
        self._guard: AsyncGenerator[None, None] | None = None  # from the first row on
        self._loop: asyncio.AbstractEventLoop | None = None

    def __del__(self) -> None:
        """Warn of a writer that nobody closed, where its event loop cannot keep its rows any more."""
        if getattr(self, "_closed", True) or self._is_inherited or (self._loop and self._loop.is_running()):
            return
        text = f"{self._CALLED} of {self.url} was not closed: what is stored is kept, rows in memory are lost"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    async def _keep_when_left(self) -> AsyncGenerator[None, None]:
        """What the event loop closes when nobody has the writer any more, or at its own end: keeps the rows then."""
        try:
            yield
        finally:
            self._guard = None
            if not self._closed and not self._is_inherited:
                with clients_needed():
                    await self._keep_rows()

    async def _keep_rows(self) -> None:
        """Store the rows of a writer that nobody can close any more, as an exception in its ``with`` block would."""
        # At the end of an event loop, which says so of every generator that begins then.
        warnings.filterwarnings("ignore", "asynchronous generator .* was scheduled after", ResourceWarning)
        with suppress(ResilientPQError, asyncio.CancelledError):
            await self.checkpoint()
        with suppress(ResilientPQError):
            await self.__aexit__(WriterStateError, WriterStateError("the writer was not closed"), None)
        text = f"{self._CALLED} of {self.url} was not closed: its rows are kept, and nothing was published"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    def _begins_without_loop(self, watch: Callable[[Any], None]) -> bool:
        """Whether calls may be begun in a thread without an event loop; `watch` rings the timer of one that is."""
        del watch
        return False

    def _stay_in_thread(self) -> None:
        """Do all work that is left in the thread of the caller where that can be: there may be no other any more."""
        return

    @property
    def _is_inherited(self) -> bool:
        """Whether this process was forked from the one that writes, and has a copy of the writer."""
        return self._lock.is_inherited

    @property
    def closed(self) -> bool:
        """Whether the writer has ended, in whichever way."""
        return self._closed

    @property
    @abstractmethod
    def num_rows_stored(self) -> int:
        """Rows that survive this process."""

    async def write(self, data: object) -> None:
        """Take rows; returns when they are accepted, waiting while too many bytes are on their way.

        A data set publishes the files that become full.

        Args:
            data: Anything with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (pyarrow, Polars, pandas, DuckDB,
                nanoarrow), a dict of arrays or lists, or a list of records: dicts, dataclasses or named tuples. Or an
                iterator, a generator, or an asynchronous one of such batches, or of records; or a LazyFrame of Polars,
                which is computed batch by batch. From an iterator a dict of which every value is a list or an array is
                a batch, and any other a record. Arrow data are kept as they are, so they must not be changed
                afterwards; arrays of NumPy, frames of pandas and lists may.

        Raises:
            SourceError: A stream or an iterator failed while it handed over its rows.
            SchemaError: The data do not fit the schema; no row of the batch at fault is taken. Or a value cannot name a
                partition; a batch of more than 16 MiB is split in pieces, and those before it are taken then, as
                `num_rows` tells.
            FileFullError: The file reached a limit of the format and was completed.
            AlreadyExistsError: Another sink of this name has written a file of the data set; this one has failed.
            StoreError: The store refused; the writer has failed.
            WriterFencedError: Another writer has taken over; this one has failed.
            WriterClosedError: The writer has ended.
            WriterFailedError: An earlier call failed.
        """
        if self._loop is None and (loop := asyncio._get_running_loop()) is not None:
            self._loop, self._guard = loop, self._keep_when_left()
            await anext(self._guard)
        if not gives_pieces(data):
            await self._write(data)
            return
        async with aclosing(row_pieces_async(data)) as pieces:
            async for piece in pieces:
                await self._write(piece)

    @abstractmethod
    async def checkpoint(self) -> Any:
        """Store the rows that were taken."""

    @abstractmethod
    async def _write(self, data: object) -> None:
        """Take the rows of what is taken at once."""

    @abstractmethod
    async def close(self) -> None:
        """Publish what was written: `_close`, with what it means here in its words."""

    @abstractmethod
    async def _publish(self) -> None:
        """Write what is left, publish it, and let go."""

    @abstractmethod
    async def _remove(self) -> None:
        """Remove what is stored and was not published, and let go."""

    @abstractmethod
    async def _keep_or_abort(self, error: BaseException) -> None:
        """After an error: keep what is stored, or remove it where nothing can be lost; say so in it, and let go."""

    async def _fail(self, error: BaseException) -> None:
        """Take no more rows; every later call tells of the first failure."""
        self._failure = self._failure or error

    def _notice(self) -> None:
        """Look at what has failed between calls."""
        return

    def _take_untold(self) -> BaseException | None:
        """The failure that no call has raised yet, to be told by the caller."""
        untold, self._untold = self._untold, None
        return untold

    def _check_open(self) -> None:
        self._notice()
        if self._untold is not None and (untold := self._take_untold()) is not None:
            raise untold
        if self._failure is not None:
            failure = self._failure
            ours = failure if isinstance(failure, ResilientPQError) else None
            said = ours.message if ours else str(failure) or type(failure).__name__
            raise WriterFailedError(
                f"{self._CALLED} has failed: {said}",
                num_rows_stored=self.num_rows_stored,
                where=Where(key=self.url),
                hint=(ours.hint if ours else None) or self._AFTER_FAILURE,
            ) from failure
        if self._closed:
            raise WriterClosedError(f"{self._CALLED} is closed", where=Where(key=self.url))

    async def _close(self) -> None:
        """Publish, or end after the failure that there was."""
        async with self._lock:
            if self._closed and self._failure is None:
                return
            self._notice()
            if self._failure is not None:
                await self._end(self._failure)
            self._check_open()
            try:
                await self._publish()
            except BaseException as error:
                await self._end(error)
                raise

    async def _abort(self) -> None:
        """End without publishing anything more, and remove what is stored."""
        async with self._lock:
            if not self._closed:
                self._closed = True
                await finish_first(self._remove())

    async def _end(self, error: BaseException) -> None:
        """After an error: publish nothing more.

        A cancellation that comes meanwhile is raised when that is done and told.
        """
        if not self._closed:
            self._closed = True
            await finish_first(self._keep_or_abort(error))

    async def _let_go(self) -> None:
        """Of everything that a writer holds when it has ended."""
        self._closed = True
        if self._guard is not None:
            await self._guard.aclose()
        if self._owns_store:
            await self._store.close()

    async def __aenter__(self) -> Self:
        """The writer itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Publish on success; after an exception publish nothing more and keep what is stored.

        Raises:
            UnsupportedError: A forked process came to the end of the block without an exception.
        """
        if error is not None:
            await finish_first(self._end_in_turn(error))
            return
        try:
            await self.close()
        except BaseException as failed:
            await finish_first(self._end_in_turn(failed))  # it may have been cancelled before it had its turn
            raise

    async def _end_in_turn(self, error: BaseException) -> None:
        if self._is_inherited:
            return  # as by `sys.exit` in a forked process: what is stored is its parent's
        async with self._lock:
            await self._end(error)
