"""Opening a file: its footer read and understood. An async shell."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from resilient_pq.errors import (
    ChecksumError,
    FormatError,
    NotParquetError,
    SchemaError,
    Where,
    located,
)
from resilient_pq.format.footer import TAIL_SIZE, Footer, NeedBytes, read_footer
from resilient_pq.io import FetchCounters, ObjectInfo, ReadStore, counting, resolve
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.reader.data_file import remedy
from resilient_pq.reader.file import File, OnLost
from resilient_pq.reader.limits import ReadLimits
from resilient_pq.reader.on_damage import OnDamage
from resilient_pq.reader.options import ReadOptions


class Closable(Protocol):
    """What is open until it is closed."""

    async def close(self) -> None:
        """Let go of it."""


Opened = TypeVar("Opened", bound=Closable)

#: Bytes from which on a footer is large.
_LARGE_FOOTER = 1 << 20


class IncompleteFileWarning(UserWarning):
    """The file is a checkpoint of a writer that never finished, or what a recovery could keep of one."""


async def read_contents(
    store: ReadStore, key: str, *, tail_bytes: int, counters: FetchCounters, verify: bool = True
) -> tuple[ObjectInfo, Contents]:
    """Read and understand a footer: one request for the object's tail, one more where the footer is longer.

    Args:
        store: Where to read.
        key: What to read.
        tail_bytes: Bytes asked for from the end of the object.
        counters: Added to.
        verify: Whether a footer of ours is refused when no record vouches for it.

    Raises:
        FormatError: There is no footer, or it is damaged.
        StoreError: The store could not give the bytes.
    """
    with counting(counters):
        try:
            info, found = await _read_footer(store, key, tail_bytes, counters)
        except ChecksumError:
            # A transfer can go wrong as well as a disk: fetch the bytes once more before believing it.
            info, found = await _read_footer(store, key, tail_bytes, counters)
    contents = Contents.of(found)
    if verify and contents.unvouched:
        raise FormatError(
            "the record of the footer is damaged: nothing vouches for the footer",
            where=Where(offset=found.start),
            hint=f"{remedy(store.url_of(key))}, or open it with verify=False",
        )
    return info, contents


async def _read_footer(
    store: ReadStore, key: str, tail_bytes: int, counters: FetchCounters
) -> tuple[ObjectInfo, Footer]:
    tail = await store.read_tail(key, max(tail_bytes, TAIL_SIZE))
    counters.requests += 1
    counters.bytes += len(tail.data)
    data, offset = memoryview(tail.data), tail.offset
    found = read_footer(data, offset)
    if isinstance(found, NeedBytes):
        # To join a large footer takes longer than to read the end of it once more.
        again = offset - found.start > max(_LARGE_FOOTER, 8 * len(data))
        end = offset + len(data) if again else offset
        missing = await store.read_range(key, found.start, end, pin=tail.info)
        counters.requests += 1
        counters.bytes += len(missing)
        whole = missing if again else b"".join([missing, data])
        found = read_footer(memoryview(whole), found.start)
        if isinstance(found, NeedBytes):
            raise FormatError("the footer does not say where it begins")
    return tail.info, found


class Opening(Generic[Opened]):
    """What `open` and its like give: ``async with`` or ``await`` it to have what is opened."""

    def __init__(self, opening: Callable[[], Coroutine[Any, Any, Opened]]) -> None:
        """Keep what opens it until it is asked for."""
        self._opening = opening
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, None, Opened]:
        """Open it; the caller closes it."""
        return (yield from self._opening().__await__())

    async def __aenter__(self) -> Opened:
        """Open it."""
        # Not `await self`: a warning is to name the caller's line, and counts the frames between.
        self._opened = await self._opening()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        assert self._opened is not None
        await self._opened.close()


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are read: what `open` and its like were asked, checked.

    Attributes:
        verify: Whether checksums are compared.
        on_damage: What is done with rows of which a value is lost.
        on_lost: Called with each region that is lost.
        options: The rest.
    """

    verify: bool
    on_damage: OnDamage
    on_lost: OnLost | None
    options: ReadOptions

    @classmethod
    def checked(
        cls, *, verify: bool, on_damage: str, on_lost: OnLost | None, options: ReadOptions | None
    ) -> Self:
        """Take the arguments of `open`.

        Raises:
            SchemaError: `options` are none, `on_lost` cannot be called, or there is no such `on_damage`.
        """
        policy = OnDamage.named(on_damage, [OnDamage.RAISE, OnDamage.NULL, OnDamage.DROP])
        if on_lost is not None and not callable(on_lost):
            raise SchemaError(f"on_lost is {on_lost!r}; it is a function that takes a LostRegion")
        chosen = ReadOptions() if options is None else options
        if not isinstance(chosen, ReadOptions):
            raise SchemaError(f"options is {options!r}; open takes ReadOptions")
        return cls(verify, policy, on_lost, chosen)


async def open_file(
    store: ReadStore,
    key: str,
    how: Reading,
    *,
    counters: FetchCounters,
    owns_store: bool,
    limits: ReadLimits | None = None,
) -> File:
    """Read the footer of an object, and give what reads its rows.

    Args:
        store: Where to read.
        key: What to read.
        how: As `open` was asked.
        counters: Added to.
        owns_store: Whether the file closes the store.
        limits: What it has a share in; its own where there are none.

    Raises:
        FormatError: There is no footer, or it is damaged; the hint says what may help.
        StoreError: The store could not give the bytes.
    """
    name = store.url_of(key)
    try:
        with located(Where(key=name)):
            info, contents = await read_contents(
                store, key, tail_bytes=how.options.tail_bytes, counters=counters, verify=how.verify
            )
    except FormatError as error:
        if not isinstance(error, NotParquetError):
            error.hint = error.hint or remedy(name)
        raise
    return File(
        store,
        info,
        contents,
        verify=how.verify,
        on_damage=how.on_damage,
        on_lost=how.on_lost,
        options=how.options,
        counters=counters,
        owns_store=owns_store,
        limits=limits,
    )


def warn_of_incomplete(file: File, *, stacklevel: int) -> None:
    """Warn where the rows of a file may not be all that there were to be.

    Args:
        file: What was opened.
        stacklevel: As of `warnings.warn`, counted from the caller.
    """
    if file.state in (None, FileState.COMPLETE):
        return
    of_whom = "a file that it names was not finished" if file.data_files else "its writer did not finish it"
    warnings.warn(f"{file.url} is {file.state}: {of_whom}", IncompleteFileWarning, stacklevel=stacklevel + 1)


def open(
    url: str | os.PathLike[str] | tuple[ReadStore, str],
    *,
    verify: bool = True,
    on_damage: Literal["raise", "null", "drop"] = "raise",
    on_lost: OnLost | None = None,
    options: ReadOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Opening[File]:
    """Open a Parquet file, ours or anyone's, for reading columns by byte range.

    A summary of a folder (``_metadata``) reads as one file with the rows of all files that it names; they are
    found by its place. Values that stand only in the names of folders (``day=1/``) are no columns of it.

    Use it as ``async with rpq.open(url) as file``.

    Args:
        url: A URL ("s3://bucket/key", any fsspec URL), a path, or a pair of a store and a key in it.
        verify: Compare every checksum that the file has.
        on_damage: What is done with rows of which a value is lost, because its page is damaged and nothing else has
            its bytes. "raise" raises the error. "drop" leaves them out, in all columns that are read: other
            `columns=` may give other rows. "null" gives null, so that the columns that may be null keep one row for
            each row of the file; rows are left out where a required column, or one that is a list by repetition
            alone, has lost its value. What is whole costs nothing more than with "raise".
        on_lost: Called with each `LostRegion` when rows are left out or become null, before these rows are given: by
            `File.batches` before the first batch of their row group, by `File.read` when all is read; row group by
            row group, in the order of the bytes. What is read twice is told twice. It is called in the event loop
            (in `resilient_pq.sync` in a thread of ours), so it must not block, and what it raises ends the reading.
        options: How to read.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.

    Raises:
        SchemaError: `options` are none, `on_lost` cannot be called, or there is no such `on_damage`.
        NotFoundError: On entering: no such object.
        NotParquetError: On entering: the object is no Parquet file.
        TornFileError: On entering: its footer is missing or cut short; `recover` may help.
        FormatError: On entering: its footer is damaged; `recover` may help.
    """
    how = Reading.checked(verify=verify, on_damage=on_damage, on_lost=on_lost, options=options)

    async def opening() -> File:
        store, key = url if isinstance(url, tuple) else resolve(url, storage_options)
        owns_store = not isinstance(url, tuple)
        try:
            file = await open_file(store, key, how, counters=FetchCounters(), owns_store=owns_store)
        except BaseException:
            if owns_store:
                await store.close()
            raise
        warn_of_incomplete(file, stacklevel=3)
        return file

    return Opening(opening)
