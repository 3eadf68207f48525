"""The adapter of `resilient_pq.sync`: asynchronous functions and objects for callers that block."""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import pathlib
import re
import threading
import weakref
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, SupportsIndex

import nanoarrow

import resilient_pq
from resilient_pq.arrow.c_stream import lazy_stream
from resilient_pq.arrow.types.field import Field
from resilient_pq.io.local_store import LocalStore
from resilient_pq.loop_portal import portal as _loop
from resilient_pq.public_names import *
from resilient_pq.writer.lifecycle import WriterLifecycle
from resilient_pq.writer.row_pieces import row_pieces

#: What an `Opening` opens, in an annotation.
_OPENED: Final = re.compile(r"^Opening\[(.+)\]$")


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _adapt(value: Any) -> Any:
    """What a caller of an asynchronous name gets here."""
    if isinstance(value, Batches):
        return BlockingBatches(value)
    if isinstance(value, Records):
        return _rows(value)
    if isinstance(value, FileResults):
        return BlockingResults(value)
    if inspect.isawaitable(value):
        return _adapt(_loop.run(value if inspect.iscoroutine(value) else _await(value)))
    for kind in type(value).__mro__:
        if kind in TWINS:
            return TWINS[kind](value)
    if inspect.ismethod(value):
        return blocking(value)
    return value


def _iterate(source: Batches | FileResults) -> Iterator[Any]:
    """Leaving the loop early closes the asynchronous iterator, too."""

    async def following() -> Any:
        return await anext(source, None)

    try:
        while (item := _loop.run(following())) is not None:
            yield item
    finally:
        _loop.end(source.aclose())


def _rows(records: Records) -> Iterator[dict[str, Any]]:
    """Many rows for each turn of the loop, which takes longer than making a row."""
    with BlockingBatches(records.batches) as batches:
        for batch in batches:
            yield from batch.to_pylist(inexact=records.inexact)


def blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, for callers that block; `sync.pyi` says what type checkers see."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = _adapt(function(*args, **kwargs))
        if isinstance(given, BlockingFile) and function is resilient_pq.open:
            given._opened_with = args, kwargs
        return given

    call.__doc__ = said(function.__doc__)
    if inspect.isfunction(function):
        signature = inspect.signature(function)
        returned = _OPENED.sub(r"\1", str(signature.return_annotation))
        call.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return call


def said(text: str | None) -> str | None:
    """A docstring for callers that block."""
    return (
        None if text is None else text.replace("async with", "with").replace("async for", "for").replace("await ", "")
    )


#: The writers that somebody still has.
_writers: weakref.WeakSet[Blocking] = weakref.WeakSet()


def _keep_all_rows() -> None:
    """Store the rows of all writers that were not closed when the interpreter ends."""
    for writer in list(_writers):
        if isinstance(target := writer._target, Writer | DatasetWriter):
            _keep_rows(target, os.getpid())


# While threads can still be started, which ends before the functions of `atexit` are called.
getattr(threading, "_register_atexit", atexit.register)(_keep_all_rows)


def _keep_rows(writer: Writer | DatasetWriter, process: int) -> None:
    """Store the rows of a writer that nobody can close any more, as an exception in its ``with`` block would."""
    if writer.closed or process != os.getpid():  # a forked process has a copy of the writer of its parent
        return
    _loop.end(writer._keep_rows())


class Blocking:
    """A writer, a `File` or another of its like whose methods block; everything else of it is as it is there."""

    def __init__(self, target: Writer | DatasetWriter | File | Dataset | TrevniFile) -> None:
        """Adapt `target`."""
        self._target = target
        if isinstance(target, WriterLifecycle):
            weakref.finalize(self, _keep_rows, target, os.getpid()).atexit = False
            _writers.add(self)

    def __getattr__(self, name: str) -> Any:
        """The same attribute of the asynchronous object, adapted."""
        return _adapt(getattr(self._target, name))

    def __dir__(self) -> list[str]:
        """The names of the asynchronous object."""
        return dir(self._target)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Refuse: what a writer or a data set has under way cannot go to another process."""
        raise UnsupportedError(f"a {type(self).__name__} cannot be pickled", hint="pickle its URL, and open that")

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


class BlockingWriter(Blocking):
    """A `Writer` or a `DatasetWriter` whose methods block."""

    _target: Writer | DatasetWriter

    def write(self, data: object) -> None:
        """Take rows as the asynchronous writer does; iterators are asked for them in the thread of the caller."""
        if isinstance(data, AsyncIterable):
            _loop.run(self._target.write(data))
            return
        for piece in row_pieces(data):
            _loop.run(self._target.write(piece))


class BlockingBatches(Iterator[Table]):
    """A stream of tables that blocks: an iterator, and an Arrow stream for whoever takes one.

    Leaving a loop early cancels what is read ahead as soon as the stream is let go of; `close` and ``with`` do it there
    and then. It is for one thread at a time.
    """

    def __init__(self, batches: Batches) -> None:
        """Take over a stream; `File.batches` is the way to get one."""
        self._batches = batches
        self._tables: Iterator[Table] = _iterate(batches)

    @property
    def schema(self) -> nanoarrow.Schema:
        """The Arrow schema of the batches; one may have a wider form of a type, where its values need it."""
        return self._batches.schema

    def __next__(self) -> Table:
        """The next batch.

        Raises:
            UnsupportedError: There were more, but the stream was closed, or waiting for one was interrupted.
        """
        for batch in self._tables:
            return batch
        self._batches.refuse_stopped()
        raise StopIteration

    def __arrow_c_schema__(self) -> object:
        """The schema as a capsule of the Arrow C data interface."""
        return self._batches.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The batches that are left as a capsule of the Arrow C stream interface, read as they are consumed.

        Whoever takes it takes the batches from this iterator; when it is released after it was asked for one, nothing
        more is read.

        Args:
            requested_schema: Passed over, as the interface allows: the columns come as they are.
        """
        return lazy_stream(Field.of(self), self, self.close)

    def close(self) -> None:
        """Read no more. A second call does nothing."""
        _loop.end(self._batches.aclose())

    def __enter__(self) -> Self:
        """The stream itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Read no more."""
        self.close()


class BlockingResults(Iterator[FileResult]):
    """What becomes of many files, each as soon as it is done: an iterator that blocks.

    Leaving a loop early cancels the files that are under way as soon as it is let go of; `close` and ``with`` do it
    there and then.
    """

    def __init__(self, results: FileResults) -> None:
        """Take over what is under way; `check_many` and `recover_many` are the ways to get one."""
        self._results = results
        self._each: Iterator[FileResult] = _iterate(results)

    @property
    def verb(self) -> str:
        """What is done with the files."""
        return self._results.verb

    @property
    def summary(self) -> RunSummary:
        """What was counted so far; all of it when the last result was given."""
        return self._results.summary

    def __next__(self) -> FileResult:
        """The next file that is done."""
        return next(self._each)

    def finish(self) -> RunSummary:
        """Do all files that are left, and give the summary of all."""
        for _ in self:
            pass
        return self.summary

    def close(self) -> None:
        """Cancel what is under way. A second call does nothing."""
        _loop.end(self._results.aclose())

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """As `close`."""
        self.close()


class BlockingReader(Blocking):
    """A `File`, a `Dataset` or a `TrevniFile` whose methods block.

    Any Arrow library takes it as a table, row group by row group, or batch by batch, as it needs them.
    """

    def __arrow_c_schema__(self) -> object:
        """The Arrow schema of all columns as a capsule."""
        return self.batches().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All rows and columns as a capsule of the Arrow C stream interface, read as they are consumed.

        It can be asked for any number of times, each time from the first row on. `batches` gives streams of some
        columns.

        Args:
            requested_schema: Passed over, as the interface allows: the columns come as they are.
        """
        return self.batches().__arrow_c_stream__()


class BlockingFile(BlockingReader):
    """A `File` whose methods block. It can be pickled: it is opened again where it is first used."""

    _target: File
    #: The arguments of the `open` that gave it.
    _opened_with: tuple[tuple[Any, ...], Mapping[str, Any]] | None = None
    #: The URL, the other arguments of `open`, and the version, once it was pickled.
    _pickled: tuple[str | os.PathLike[str], Mapping[str, Any], ObjectInfo] | None = None

    def __getattr__(self, name: str) -> Any:
        """As of the asynchronous file, which an unpickled one opens now."""
        if name != "_target" or self._pickled is None:
            return super().__getattr__(name)
        url, options, pin = self._pickled
        self._target = _loop.run(_open_pinned(url, options, pin))
        return self._target

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """What opens the same version again: the arguments of `open`, storage options included, and that version.

        Raises:
            UnsupportedError: It was not opened by a URL or a path.
        """
        if self._pickled is None:
            args, kwargs = self._opened_with or ((None,), {})
            options = dict(inspect.signature(resilient_pq.open).bind(*args, **kwargs).arguments)
            url = options.pop("url")
            if not isinstance(url, str | os.PathLike):
                raise UnsupportedError(
                    "a file can be pickled only where `open` was given its URL or path",
                    where=Where(key=self._target.url),
                    hint="pickle the table that `read` gives",
                )
            store, key = self._target.place
            if isinstance(store, LocalStore):  # another process may have another working directory
                url = pathlib.Path(key).absolute()
            self._pickled = url, options, self._target.info
        return _unpickled, self._pickled


def _unpickled(url: str | os.PathLike[str], options: Mapping[str, Any], pin: ObjectInfo) -> BlockingFile:
    """A pickled file, which is not opened yet."""
    twin: Any = TWINS[File]
    file: BlockingFile = twin.__new__(twin)
    file._pickled = url, options, pin
    return file


async def _open_pinned(url: str | os.PathLike[str], options: Mapping[str, Any], pin: ObjectInfo) -> File:
    """Open the version that a pickled file was of.

    Raises:
        ObjectChangedError: The object was replaced.
    """
    file = await resilient_pq.open(url, **options)
    if replace(file.info, key=pin.key) == pin:
        return file
    await file.close()
    raise ObjectChangedError("the object was replaced after the file was pickled", where=Where(key=file.url))


def _twin(kind: type, base: type[Blocking]) -> type[Blocking]:
    """The class of an asynchronous object for callers that block, under the same name."""
    members: dict[str, Any] = {"__doc__": said(kind.__doc__), "__module__": "resilient_pq.sync"}
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        if not name.startswith("_") and inspect.isfunction(member) and not hasattr(base, name):
            members[name] = _method(name, blocking(member))
    return type(kind.__name__, (base,), members)


def _method(name: str, like: Callable[..., Any]) -> Callable[..., Any]:
    """A method that calls the one of the asynchronous object, which may be of a class below."""

    @functools.wraps(like)
    def call(self: Blocking, *args: Any, **kwargs: Any) -> Any:
        return _adapt(getattr(self._target, name)(*args, **kwargs))

    return call


#: The classes whose objects callers that block get instead.
TWINS: Final[Mapping[type, type[Blocking]]] = {
    File: _twin(File, BlockingFile),
    **{kind: _twin(kind, BlockingReader) for kind in (Dataset, TrevniFile)},
    **{kind: _twin(kind, BlockingWriter) for kind in (Writer, DatasetWriter)},
}
