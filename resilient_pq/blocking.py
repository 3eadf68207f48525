"""The adapter of `resilient_pq.sync`: asynchronous functions and objects for callers that block."""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import os
import pathlib
import re
import threading
import weakref
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex

import resilient_pq
from resilient_pq.blocking_streams import BlockingBatches, BlockingResults, dicts
from resilient_pq.errors import ObjectChangedError, UnsupportedError, Where
from resilient_pq.loop_portal import portal as _loop

if TYPE_CHECKING:
    from resilient_pq import Dataset, DatasetWriter, File, ObjectInfo, TrevniFile, Writer

#: What an `Opening` opens, in an annotation.
_OPENED: Final = re.compile(r"^Opening\[(.+)\]$")


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _adapt(value: Any, *, here: bool = False) -> Any:
    """What a caller of an asynchronous name gets here; `here` is of `_done`."""
    if (adapter := _adapter(value.__class__)) is not None:
        return adapter(value)
    if inspect.isawaitable(value):
        return _adapt(_done(value if inspect.iscoroutine(value) else _await(value), here=here))
    if inspect.ismethod(value):
        return blocking(value)
    return value


def _done(
    coroutine: Coroutine[Any, Any, Any], *, here: bool, run: Callable[[Coroutine[Any, Any, Any]], Any] = _loop.run
) -> Any:
    """What a coroutine gives: where it may begin `here`, in this thread, to its end or to where it needs the loop."""
    if here and asyncio._get_running_loop() is None:
        from resilient_pq.io.cancellation import begun  # noqa: PLC0415 (there, as what it runs is)

        ended, found = begun(coroutine)
        if ended:
            return found
        coroutine = _await(found)
    return run(coroutine)


#: What begins in the thread of the caller, and ends there for small files of this machine.
_BEGIN_HERE: Final = (("resilient_pq.one_read", "read"), ("resilient_pq.one_write", "write"))
_BEGIN_LOCALLY: Final = (("resilient_pq.writer.creation", "create"), ("resilient_pq.reader.opening", "open"))
#: What takes over files that a writer may have left just now, whose rows the loop still keeps.
_TAKE_OVER: Final = (
    ("resilient_pq.writer.creation", "create"),
    ("resilient_pq.recovery.resume.resume_file", "resume"),
    ("resilient_pq.recovery.recover", "recover"),
    ("resilient_pq.dataset.sink_creation", "create_dataset"),
    ("resilient_pq.dataset.sink_creation", "resume_dataset"),
)


def blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, for callers that block; `sync.pyi` says what type checkers see."""
    name = function.__module__, function.__name__
    begins_here, is_opening = name in _BEGIN_HERE, name in _BEGIN_LOCALLY
    takes_over = name in _TAKE_OVER

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if takes_over and _keeping:
            _loop.wait_for_ends()
        asked = function(*args, **kwargs)
        given = _adapt(asked, here=begins_here or (is_opening and asked.is_local))
        if isinstance(given, BlockingFile) and is_opening:
            given._opened_with, given._here = (args, kwargs), asked.is_local
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


#: What stores the rows of writers that nobody has any more, until it is done.
_keeping: weakref.WeakSet[Coroutine[Any, Any, None]] = weakref.WeakSet()


def _keep_later(coroutine: Coroutine[Any, Any, None]) -> None:
    _keeping.add(coroutine)
    _loop.end_later(coroutine)


#: The writers that somebody still has.
_writers: weakref.WeakSet[BlockingWriter] = weakref.WeakSet()


def _keep_all_rows() -> None:
    """Store the rows of all writers that were not closed when the interpreter ends."""
    for writer in list(_writers):
        writer._target._stay_in_thread()
        _keep_rows(writer._target, here=writer._here)
    _loop.wait_for_ends()


# While threads can still be started, which ends before the functions of `atexit` are called.
getattr(threading, "_register_atexit", atexit.register)(_keep_all_rows)


def _keep_rows(writer: Writer | DatasetWriter, *, here: bool) -> None:
    """Store the rows of a writer that nobody can close any more, as an exception in its ``with`` block would."""
    if writer.closed or writer._is_inherited:
        return
    # `here`, as from Python 3.12 on no thread can be started any more when the interpreter ends: see `_stay_in_thread`.
    _done(writer._keep_rows(), here=here, run=_keep_later)


class Blocking:
    """A writer, a `File` or another of its like whose methods block; everything else of it is as it is there."""

    #: Whether calls may begin in the thread of the caller.
    _here = False

    def __init__(self, target: Writer | DatasetWriter | File | Dataset | TrevniFile) -> None:
        """Adapt `target`."""
        self._target = target

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
        _done(self._target.__aexit__(kind, error, traceback), here=self._here)


class BlockingWriter(Blocking):
    """A `Writer` or a `DatasetWriter` whose methods block."""

    _target: Writer | DatasetWriter

    def __init__(self, target: Writer | DatasetWriter) -> None:
        """Adapt `target`, and keep its rows where nobody closes it."""
        super().__init__(target)
        self._here = target._begins_without_loop(_loop.watch)
        weakref.finalize(self, _keep_rows, target, here=self._here).atexit = False
        _writers.add(self)

    def write(self, data: object) -> None:
        """Take rows as the asynchronous writer does; iterators are asked for them in the thread of the caller."""
        if isinstance(data, AsyncIterable):
            _loop.run(self._target.write(data))
            return
        from resilient_pq.writer.row_pieces import row_pieces  # noqa: PLC0415 (there, as there is a writer)

        for piece in row_pieces(data):
            _done(self._target.write(piece), here=self._here)


class BlockingReader(Blocking):
    """A `File`, a `Dataset` or a `TrevniFile` whose methods block."""

    def __arrow_c_schema__(self) -> object:
        """The Arrow schema of all columns as a capsule."""
        return self.batches().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All rows and columns as a capsule of the Arrow C stream interface, read as they are consumed.

        It can be asked for any number of times, each time from the first row on. `batches` gives streams of some
        columns.
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
        """What opens the same version again: the arguments of `open`, storage options included, and that version."""
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
            from resilient_pq.io.local_store import LocalStore  # noqa: PLC0415 (there, as there is a file)

            store, key = self._target.place
            if isinstance(store, LocalStore):  # another process may have another working directory
                url = pathlib.Path(key).absolute()
            self._pickled = url, options, self._target.info
        return _unpickled, self._pickled


def _unpickled(url: str | os.PathLike[str], options: Mapping[str, Any], pin: ObjectInfo) -> BlockingFile:
    """A pickled file, which is not opened yet."""
    kind: Any = twin(resilient_pq.File)
    file: BlockingFile = kind.__new__(kind)
    file._pickled = url, options, pin
    return file


async def _open_pinned(url: str | os.PathLike[str], options: Mapping[str, Any], pin: ObjectInfo) -> File:
    """Open the version that a pickled file was of."""
    file = await resilient_pq.open(url, **options)
    if replace(file.info, key=pin.key) == pin:
        return file
    await file.close()
    raise ObjectChangedError("the object was replaced after the file was pickled", where=Where(key=file.url))


@functools.cache
def _adapter(kind: type) -> Callable[[Any], Any] | None:
    """What makes an object of a class, or of one below it, another for callers that block."""
    for above in kind.__mro__:
        if above.__module__.startswith("resilient_pq."):
            if above.__name__ in TWINS:
                return twin(above)
            if above.__name__ in _ADAPTERS:
                return _ADAPTERS[above.__name__]
    return None


def blocked(name: str, value: Any) -> Any:
    """What a public name is for callers that block."""
    if name in TWINS:
        return twin(value)
    if isinstance(adapter := _ADAPTERS.get(name), type):
        return adapter
    waits = inspect.isfunction(value) and name not in _WAITS_FOR_NOTHING
    return blocking(value) if waits else value


@functools.cache
def twin(kind: type) -> type[Blocking]:
    """The class of an asynchronous object for callers that block, under the same name."""
    base = TWINS[kind.__name__]
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
        return _adapt(getattr(self._target, name)(*args, **kwargs), here=self._here)

    return call


#: What the classes are made of whose objects callers that block get instead, by the names of those.
TWINS: Final[Mapping[str, type[Blocking]]] = {
    "File": BlockingFile,
    **dict.fromkeys(("Dataset", "TrevniFile"), BlockingReader),
    **dict.fromkeys(("Writer", "DatasetWriter"), BlockingWriter),
}
#: What they get of others.
_ADAPTERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "Batches": BlockingBatches,
    "Records": dicts,
    "FileResults": BlockingResults,
}
_WAITS_FOR_NOTHING: Final = {"scan", "schema_from_arrow", "schema_to_arrow"}
