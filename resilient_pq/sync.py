"""The names of `resilient_pq`, blocking: one adapter around the asynchronous ones, no second implementation.

A loop of its own runs in a thread, so this works in a script, in a notebook whose loop is busy already, and
from several threads at once::

    from resilient_pq import sync as rpq

    with rpq.create("day.parquet") as writer:
        writer.write({"ts": [1, 2, 3]})

    with rpq.open("day.parquet") as file:
        table = file.read()
        for batch in file.batches():
            ...
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import resilient_pq
from resilient_pq import (
    AccessDeniedError,
    AlreadyExistsError,
    Checkpoint,
    ChecksumError,
    CodecUnavailableError,
    ColumnBloomFilter,
    ColumnStatistics,
    CompletedBy,
    CompletedUpload,
    CutTimestampWarning,
    Damage,
    DecodedColumnIndex,
    EncodingError,
    FetchCounters,
    File,
    FileFullError,
    FileState,
    Finding,
    FormatError,
    IncompleteFileWarning,
    Kept,
    KnownCheckpoint,
    LostRegion,
    NotFoundError,
    NothingToRecoverError,
    NotParquetError,
    ObjectChangedError,
    ObjectInfo,
    Outcome,
    PreconditionError,
    RangeError,
    ReadOptions,
    RecoveryError,
    Report,
    ResilientPQError,
    ResumeInfo,
    RowsLostError,
    Schema,
    SchemaError,
    SortingColumn,
    StoredState,
    StoreError,
    Table,
    ThriftError,
    ThrottledError,
    TornFileError,
    TransientError,
    UnsupportedError,
    Upload,
    Where,
    WriteOptions,
    Writer,
    WriterClosedError,
    WriterFailedError,
    WriterFencedError,
    WriterStateError,
    WrittenMetadata,
    __version__,
    schema_from_arrow,
    schema_to_arrow,
)
from resilient_pq.reader.opening import Opening
from resilient_pq.writer.creation import Creation

# Every name that is not a function is the same here. They are written out because type checkers keep to the first
# meaning of a name: after an ``import *``, `open` would be the asynchronous one to them.
__all__ = [
    "AccessDeniedError",
    "AlreadyExistsError",
    "Checkpoint",
    "ChecksumError",
    "CodecUnavailableError",
    "ColumnBloomFilter",
    "ColumnStatistics",
    "CompletedBy",
    "CompletedUpload",
    "CutTimestampWarning",
    "Damage",
    "DecodedColumnIndex",
    "EncodingError",
    "FetchCounters",
    "File",
    "FileFullError",
    "FileState",
    "Finding",
    "FormatError",
    "IncompleteFileWarning",
    "Kept",
    "KnownCheckpoint",
    "LostRegion",
    "NotFoundError",
    "NotParquetError",
    "NothingToRecoverError",
    "ObjectChangedError",
    "ObjectInfo",
    "Outcome",
    "PreconditionError",
    "RangeError",
    "ReadOptions",
    "RecoveryError",
    "Report",
    "ResilientPQError",
    "ResumeInfo",
    "RowsLostError",
    "Schema",
    "SchemaError",
    "SortingColumn",
    "StoreError",
    "StoredState",
    "Table",
    "ThriftError",
    "ThrottledError",
    "TornFileError",
    "TransientError",
    "UnsupportedError",
    "Upload",
    "Where",
    "WriteOptions",
    "Writer",
    "WriterClosedError",
    "WriterFailedError",
    "WriterFencedError",
    "WriterStateError",
    "WrittenMetadata",
    "__version__",
    "abort_upload",
    "check",
    "complete_upload",
    "create",
    "list_uploads",
    "open",
    "recover",
    "resume",
    "resume_info",
    "schema_from_arrow",
    "schema_to_arrow",
    "write_metadata",
]

P = ParamSpec("P")
R = TypeVar("R")


class _Loop:
    """One event loop in a thread, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inherited: asyncio.AbstractEventLoop | None = None

    def begin_anew(self) -> None:
        """Begin with another loop: in a forked process the thread is missing that ran the one at hand."""
        self._lock = threading.Lock()
        # It is kept as it is: to close it would take the files out of its poll, which the other process waits at.
        self._inherited, self._loop = self._loop, None

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="resilient_pq", daemon=True).start()
            return self._loop

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run to the end; an interrupt cancels it, and is raised when it has ended."""
        loop = self._running()
        tasks: list[asyncio.Task[Any] | None] = []

        async def supervised() -> Any:
            tasks.append(asyncio.current_task())
            return await coroutine

        future = asyncio.run_coroutine_threadsafe(supervised(), loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks if task is not None])
            concurrent.futures.wait([future])
            raise


_loop = _Loop()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loop.begin_anew)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _adapt(value: Any) -> Any:
    """What a caller of an asynchronous name gets here."""
    if isinstance(value, AsyncIterator):
        return _iterate(value)
    if inspect.isawaitable(value):
        return _adapt(_loop.run(_await(value)))
    if isinstance(value, Writer | File):
        return Blocking(value)
    if inspect.ismethod(value):
        return _blocking(value)
    return value


def _iterate(values: AsyncIterator[Any]) -> Iterator[Any]:
    """Leaving the loop early closes the asynchronous iterator, too."""
    end = object()

    async def following() -> Any:
        return await anext(values, end)

    try:
        while (value := _loop.run(following())) is not end:
            yield _adapt(value)
    finally:
        close = getattr(values, "aclose", None)
        if close is not None:
            _loop.run(_await(close()))


def _blocking(function: Callable[P, Any]) -> Callable[P, Any]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        return _adapt(function(*args, **kwargs))

    return call


class Blocking:
    """A `Writer` or a `File` whose methods block; everything else of it is as it is there."""

    def __init__(self, target: Writer | File) -> None:
        """Adapt `target`."""
        self._target = target

    def __getattr__(self, name: str) -> Any:
        """The same attribute of the asynchronous object, adapted."""
        return _adapt(getattr(self._target, name))

    def __dir__(self) -> list[str]:
        """The names of the asynchronous object."""
        return dir(self._target)

    def __repr__(self) -> str:
        """As the asynchronous object shows itself."""
        return repr(self._target)

    def __enter__(self) -> Self:
        """The object itself, open already: entering the asynchronous one does nothing besides."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """As the asynchronous object ends."""
        _loop.run(_await(self._target.__aexit__(kind, error, traceback)))


def _opened(function: Callable[P, Creation | Opening]) -> Callable[P, Blocking]:
    """`_blocking`, for type checkers: gives what is open, to be used as a context manager or not."""
    return _blocking(function)


def _awaited(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """`_blocking`, for type checkers: gives what the coroutine returns."""
    return _blocking(function)


create = _opened(resilient_pq.create)
resume = _opened(resilient_pq.resume)
open = _opened(resilient_pq.open)
check = _awaited(resilient_pq.check)
recover = _awaited(resilient_pq.recover)
complete_upload = _awaited(resilient_pq.complete_upload)
list_uploads = _awaited(resilient_pq.list_uploads)
abort_upload = _awaited(resilient_pq.abort_upload)
resume_info = _awaited(resilient_pq.resume_info)
write_metadata = _awaited(resilient_pq.write_metadata)
