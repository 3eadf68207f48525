"""The adapter of `resilient_pq.sync`: blocking functions, and classes whose methods block."""

from __future__ import annotations

import atexit
import functools
import inspect
import operator
import os
import pathlib
import re
import threading
import warnings
import weakref
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex

import resilient_pq
from resilient_pq import public_names
from resilient_pq.blocking_streams import BlockingBatches, BlockingResults, blocking_rows
from resilient_pq.errors import ObjectChangedError, ResilientPQError, UnsupportedError, Where, WriterStateError
from resilient_pq.io import ObjectInfo
from resilient_pq.io.local_store import LocalStore
from resilient_pq.loop_portal import portal as _loop
from resilient_pq.public_names import Dataset, DatasetWriter, File, TrevniFile, Writer
from resilient_pq.writer.lifecycle import WriterLifecycle
from resilient_pq.writer.row_pieces import row_pieces

#: What a docstring has more where code has to await.
_ASYNC_WORDS: Final = re.compile(r"\b(?:async (?=with|for)|await |(?<=An )asynchronous (?=iterator))")


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _adapt(value: Any) -> Any:
    """What a caller of an asynchronous name gets here."""
    if isinstance(value, public_names.Records):
        return blocking_rows(value)
    if inspect.isawaitable(value):
        return _adapt(_loop.run(value if inspect.iscoroutine(value) else _await(value)))
    for kind in type(value).__mro__:
        if kind in _TWINS:
            return _TWINS[kind](value)
    if inspect.ismethod(value):
        return _blocking(value)
    return value


def _blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, for callers that block."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = _adapt(function(*args, **kwargs))
        if isinstance(given, Blocking) and function is resilient_pq.open:
            given._opened_with = args, kwargs
        return given

    call.__doc__ = _of_blocking_code(function.__doc__)
    return call


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    """The method of an asynchronous class as one of its blocking twin."""

    @functools.wraps(function)
    def call(self: Blocking, *args: Any, **kwargs: Any) -> Any:
        return _adapt(function(self._target, *args, **kwargs))

    call.__doc__ = _of_blocking_code(function.__doc__)
    return call


def _of_blocking_code(text: str | None) -> str | None:
    """A docstring in the words of code without ``await``."""
    return text and _ASYNC_WORDS.sub("", text)


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
    text = f"the writer of {writer.url} was not closed: its rows are kept, and the file was not completed"
    warnings.warn(text, ResourceWarning, stacklevel=2)

    async def keep() -> None:
        with suppress(ResilientPQError):
            await writer.checkpoint()
        with suppress(ResilientPQError):
            await writer.__aexit__(WriterStateError, WriterStateError("the writer was not closed"), None)

    _loop.end(keep())


class Blocking:
    """A writer, a `File` or another of its like whose methods block; everything else of it is as it is there."""

    #: The arguments of the `open` that gave it.
    _opened_with: tuple[tuple[Any, ...], Mapping[str, Any]] | None = None

    def __init__(self, target: Writer | DatasetWriter | File | Dataset | TrevniFile) -> None:
        """Adapt `target`."""
        self._target = target
        if isinstance(target, WriterLifecycle):
            weakref.finalize(self, _keep_rows, target, os.getpid()).atexit = False
            _writers.add(self)

    if not TYPE_CHECKING:  # which know all attributes by the stub

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
        """As of the asynchronous writer; iterators are asked for rows in the thread of the caller."""
        if isinstance(data, AsyncIterable):
            _loop.run(self._target.write(data))
            return
        for piece in row_pieces(data):
            _loop.run(self._target.write(piece))

    write.__doc__ = WriterLifecycle.write.__doc__


class BlockingReader(Blocking):
    """A `File`, a `Dataset` or a `TrevniFile` whose methods block.

    Any Arrow library takes it as a table, row group by row group, or batch by batch, as it needs them.
    """

    _target: File | Dataset | TrevniFile

    def __arrow_c_schema__(self) -> object:
        """The Arrow schema of all columns as a capsule."""
        return BlockingBatches(self._target.batches()).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All rows and columns as a capsule of the Arrow C stream interface, read as they are consumed.

        It can be asked for any number of times, each time from the first row on. `batches` gives streams of some
        columns.

        Args:
            requested_schema: Passed over, as the interface allows: the columns come as they are.
        """
        return BlockingBatches(self._target.batches()).__arrow_c_stream__()


class BlockingFile(BlockingReader):
    """A `File` whose methods block. It can be pickled: it is opened again where it is first used."""

    _target: File
    #: The URL, the other arguments of `open`, and the version, once it was pickled.
    _pickled: tuple[str | os.PathLike[str], Mapping[str, Any], ObjectInfo] | None = None

    if not TYPE_CHECKING:

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
    twin = _TWINS[File]
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
    """The blocking form of an asynchronous class: its methods, properties and documentation, and what `base` has."""
    members: dict[str, Any] = {"__doc__": _of_blocking_code(kind.__doc__), "__module__": "resilient_pq.sync"}
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        if name.startswith("_"):
            continue
        if inspect.isfunction(member) and not hasattr(base, name):
            members[name] = _method(member)
        elif isinstance(member, property | functools.cached_property):
            members[name] = property(operator.attrgetter(f"_target.{name}"), doc=member.__doc__)
    return type(kind.__name__, (base,), members)


#: The blocking class of each asynchronous one.
_TWINS: Final[dict[type, Any]] = {
    **{kind: _twin(kind, BlockingReader) for kind in (Dataset, TrevniFile)},
    **{kind: _twin(kind, BlockingWriter) for kind in (Writer, DatasetWriter)},
    File: _twin(File, BlockingFile),
    public_names.Batches: BlockingBatches,
    public_names.FileResults: BlockingResults,
}


def blocking_twin(name: str) -> Any:
    """What `resilient_pq.sync` has under a public name of `resilient_pq`."""
    value = getattr(resilient_pq, name)
    if inspect.isfunction(value) and not hasattr(public_names, name):  # those there wait for nothing
        return _blocking(value)
    return _TWINS.get(value, value) if inspect.isclass(value) else value
