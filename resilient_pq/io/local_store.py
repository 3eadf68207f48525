"""Files of this machine: written as ``NAME.partial`` and renamed when complete, read by position and pinned."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from io import FileIO
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from resilient_pq import memory_pool
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import AlreadyExistsError, ObjectChangedError, RangeError, StoreError, Where
from resilient_pq.io.cancellation import finish_first, finish_in_thread
from resilient_pq.io.local_sink import LocalSink
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS, Buffer, ObjectSink, SinkOptions, pieces_of
from resilient_pq.io.os_errors import explained, from_os_error
from resilient_pq.io.partial_file import (
    SUFFIX,
    PartialFile,
    behind_link,
    is_held,
    make_folders,
)
from resilient_pq.io.protocols import Capabilities, GrowingStore, OpenObject, WriteStore
from resilient_pq.io.stored_object import (
    LISTED_AT_ONCE,
    ListedObject,
    ObjectInfo,
    ObjectTail,
    file_info,
    refuse_special,
)

Result = TypeVar("Result")

_NOT_SEEKABLE: Final = "bytes are read from anywhere in it: save them to a file first"


async def in_thread(call: Callable[..., Result], *args: Any) -> Result:
    """The result of a blocking call, made in a thread; without an event loop this is one."""
    if asyncio._get_running_loop() is None:
        return call(*args)
    from aiofiles.os import wrap  # noqa: PLC0415 (it takes as long as opening ten files)

    return await wrap(call)(*args)


class LocalStore(WriteStore, GrowingStore):
    """Files below a folder, or anywhere.

    A version of a file is named by its device, inode, time of change and size. A file that only grows under
    its reader stays the pinned version: what was there when it was opened is still there.
    """

    name = "local files"
    # Everything a file can do; an upload in parts it cannot.
    capabilities = Capabilities(
        suffix_range=True, if_match=True, if_none_match=True, durable_commit=True, list_names=True
    )

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        """Keys are paths: below `root`, or as they are when there is none."""
        self._root = None if root is None else os.fspath(root)

    def url_of(self, key: str) -> str:
        """The path of the file."""
        return key if self._root is None else os.path.join(self._root, key)

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """The last `size` bytes of the file, and what it is."""
        path = self.url_of(key)
        status, offset, data = await in_thread(_read_tail, path, size)
        return ObjectTail(file_info(key, status), offset, data)

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        """The bytes from `start` up to `end` of the pinned file."""
        data: memoryview = await in_thread(_read_pinned, self.url_of(key), start, end, pin)
        return data

    @property
    def opener(self) -> Callable[[ObjectInfo], PinnedFile]:
        """What opens the pinned file."""
        return lambda pin: PinnedFile(self.url_of(pin.key), pin)

    def unfinished_key(self, key: str) -> str:
        """``NAME.partial``, beside what a link leads to."""
        target = behind_link(self.url_of(key))
        return key + SUFFIX if target == self.url_of(key) else target + SUFFIX

    async def has_writer(self, key: str) -> bool | None:
        """Whether a living writer of ours holds the file."""
        return await in_thread(is_held, self.url_of(key))

    async def head(self, key: str) -> ObjectInfo:
        """What the file is."""
        return file_info(key, await in_thread(_file_status, self.url_of(key)))

    def beside(self, key: str, name: str) -> str:
        """The path of a file in the folder of another; on Windows paths may have backslashes."""
        return os.path.join(os.path.dirname(key), *name.split("/"))

    async def list_objects(self, folder: str) -> AsyncGenerator[Sequence[ListedObject], None]:
        """Every file below the folder, by name within a page; links are followed, but not in circles."""
        walking = _walk(self.url_of(folder) or os.curdir)  # what a name without any folder lies in
        while page := await in_thread(_next_page, walking):
            yield page

    async def put(self, key: str, data: Sequence[Buffer] | Buffer, *, if_none_match: bool = False) -> ObjectInfo:
        """Write a whole file under a name of its own, and rename it."""
        path = self.url_of(key)
        status = await finish_in_thread(_put, path, pieces_of(data), if_none_match)
        return file_info(key, status)

    async def make_folder(self, folder: str) -> None:
        """Make the folder and those above it, where they are missing, so that they survive a loss of power."""
        await in_thread(make_folders, self.url_of(folder))

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        """Begin ``NAME.partial``, locked until the sink ends."""
        path = self.url_of(key)
        file = await finish_first(in_thread(_create, path, options), undo=lambda file: in_thread(file.discard))
        return LocalSink(key, file, options)

    async def reopen(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> LocalSink:
        """Take over the ``NAME.partial`` that an earlier writer left, with its bytes, locked until the sink ends."""
        path = self.url_of(key)
        file, size = await finish_first(
            in_thread(_reopen, path, options), undo=lambda found: in_thread(found[0].release)
        )
        return LocalSink(key, file, options, size)

    async def delete(self, key: str) -> None:
        """Remove the file, if there is one."""
        await in_thread(_delete, self.url_of(key))

    async def discard_unfinished(self, key: str, *, keep: Collection[str] = ()) -> None:
        """Remove every ``NAME.<random>.partial`` but those to keep, by their paths, where no living writer holds it."""
        await in_thread(_discard_unfinished, behind_link(self.url_of(key)), set(map(os.path.basename, keep)))

    async def close(self) -> None:
        """Nothing to let go of: files are open only while they are read."""


def _refuse_existing(path: str, options: SinkOptions) -> None:
    if options.mode == "x" and os.path.lexists(path):
        raise AlreadyExistsError("the file exists already", where=Where(key=path))


def _reopen(path: str, options: SinkOptions) -> tuple[PartialFile, int]:
    file = PartialFile.resume(path)
    try:
        _refuse_existing(path, options)
        return file, file.size()
    except StoreError:
        file.release()
        raise


def _create(path: str, options: SinkOptions) -> PartialFile:
    _refuse_existing(path, options)
    if options.private_partial:
        return _unique_partial(path, options.permissions)
    return PartialFile.create(path, overwrite=options.overwrite_partial, permissions=options.permissions)


_TOKEN_BYTES = 8  # Random bytes in the name of a partial file that only one writer has


def _discard_unfinished(path: str, keep: Collection[str]) -> None:
    folder, name = os.path.split(path)
    left = re.compile(rf"{re.escape(name)}\.[0-9a-f]{{{2 * _TOKEN_BYTES}}}{re.escape(SUFFIX)}")
    with explained("cannot list", folder), suppress(FileNotFoundError), os.scandir(folder or os.curdir) as entries:
        found = [entry.path for entry in entries if left.fullmatch(entry.name) and entry.name not in keep]
        for each in found:
            if is_held(each) is False:
                _delete(each)


def _unique_partial(path: str, permissions: int | None = None) -> PartialFile:
    """A partial file under a name that no other writer draws, which becomes `path`."""
    path = behind_link(path)
    refuse_special(path)
    file = PartialFile.create(f"{path}.{os.urandom(_TOKEN_BYTES).hex()}", permissions=permissions)
    file.target = path
    return file


def _put(path: str, pieces: list[memoryview], exclusive: bool) -> os.stat_result:
    """Write beside the file, under a name that no other writer draws, and rename."""
    beside = _unique_partial(path)
    try:
        beside.append(pieces)
        return beside.publish(exclusive=exclusive)
    finally:
        beside.discard()


def _delete(path: str) -> None:
    with explained("cannot delete", path), suppress(FileNotFoundError):
        os.unlink(path)


def _file_status(path: str) -> os.stat_result:
    with explained("cannot read", path):
        status = os.stat(path)
    refuse_special(path, status, hint=_NOT_SEEKABLE)
    return status


def _next_page(walking: Iterator[tuple[str, os.DirEntry[str] | StoreError]]) -> list[ListedObject]:
    """The next files, and what they are."""
    return sorted(
        (_listed_object(name, entry) for name, entry in islice(walking, LISTED_AT_ONCE)), key=attrgetter("name")
    )


def _listed_object(name: str, entry: os.DirEntry[str] | StoreError) -> ListedObject:
    if isinstance(entry, StoreError):
        return ListedObject(name, error=entry)
    try:
        info = file_info(name, entry.stat())
    except OSError:  # a link that leads nowhere, or a file that was deleted a moment ago
        return ListedObject(name)
    return ListedObject(name, info.size, info.etag)


def _walk(folder: str) -> Iterator[tuple[str, os.DirEntry[str] | StoreError]]:
    """Every file below a folder with its name relative to that, none of them kept; an error of a folder below."""
    # Each folder with the real paths of itself and of all that lead to it: a link back to one of them is a circle.
    waiting = [(folder, "", frozenset([os.path.realpath(folder)]))]
    while waiting:
        path, prefix, leading = waiting.pop()
        try:
            entries = os.scandir(path)
        except FileNotFoundError:
            continue  # never there, or removed a moment ago
        except OSError as error:
            refused = from_os_error(error, "cannot list", path)
            if not prefix:
                raise refused from error
            yield prefix, refused
            continue
        with explained("cannot list", path), entries:
            for entry in entries:
                if not _is_folder(entry):
                    yield prefix + entry.name, entry
                elif (real := os.path.realpath(entry.path)) not in leading:
                    waiting.append((entry.path, f"{prefix}{entry.name}/", leading | {real}))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder or a link to one; an entry that cannot be examined counts as a folder."""
    try:
        return entry.is_dir()
    except OSError as error:
        return error.errno != errno.ELOOP  # a link to itself leads nowhere


def _read_tail(path: str, size: int) -> tuple[os.stat_result, int, memoryview]:
    try:
        refuse_special(path, os.stat(path), hint=_NOT_SEEKABLE)  # before it is opened, which may wait for a writer
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            offset = max(0, status.st_size - size)
            return status, offset, _read_exactly(file, path, offset, status.st_size)
    except StoreError:
        raise
    except OSError as error:
        raise from_os_error(error, "cannot read", path) from error


def _read_pinned(path: str, start: int, end: int, pin: ObjectInfo) -> memoryview:
    with PinnedFile(path, pin) as file:
        return file.read(start, end)


class PinnedFile(OpenObject):
    """One version of a file, open until it is closed: also where another takes its name meanwhile."""

    def __init__(self, path: str, pin: ObjectInfo) -> None:
        self.path = path
        self.pin = pin
        self._version = None if pin.etag is None else _Version.of(pin.etag)
        _file_status(path)
        with explained("cannot read", path):
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        try:
            self._check_version()
        except BaseException:
            self._file.close()
            raise

    def read(self, start: int, end: int) -> memoryview:
        """The bytes from `start` up to `end`, in memory of their own."""
        if not 0 <= start <= end <= self.pin.size:
            raise RangeError(f"{start}..{end} is not within {self.pin.size:,} bytes", where=Where(key=self.path))
        with explained("cannot read", self.path):
            data = _read_exactly(self._file, self.path, start, end)
            self._check_version()  # afterwards, for it may be written to while it is read
        return data

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range, all in memory that they share."""
        if not ranges or not all(0 <= wanted.start <= wanted.end <= self.pin.size for wanted in ranges):
            return super().read_ranges(ranges)
        memory = memory_pool.empty((sum([wanted.end - wanted.start for wanted in ranges]),), np.uint8).data
        whole, filled, found = memory.toreadonly(), 0, []
        with explained("cannot read", self.path):
            for wanted in ranges:
                end = filled + wanted.end - wanted.start
                _fill_exactly(self._file, self.path, wanted.start, memory[filled:end])
                found.append(whole[filled:end])
                filled = end
            self._check_version()
        return found

    def _check_version(self) -> None:
        status = os.fstat(self._file.fileno())
        same = status.st_size >= self.pin.size if self._version is None else self._version.is_that_of(status)
        if not same:
            raise ObjectChangedError("the file was replaced while it was read", where=Where(key=self.path))

    def close(self) -> None:
        """Let go of the file; nothing may be reading it."""
        self._file.close()


#: For systems that cannot read at a position: there a file has one position, which its readers share.
_positioning = threading.Lock()


def _read_exactly(file: FileIO, path: str, start: int, end: int) -> memoryview:
    """The bytes from `start` up to `end`, or an error: the file was cut while it was read."""
    # They are read and never mapped: of a mapped file that is cut, reading is the end of the process.
    data = memory_pool.empty((end - start,), np.uint8).data
    _fill_exactly(file, path, start, data)
    return data.toreadonly()


def _fill_exactly(file: FileIO, path: str, start: int, data: memoryview) -> None:
    filled = 0
    while filled < len(data):
        count = _read_at(file, data[filled:], start + filled)
        if not count:
            raise ObjectChangedError("the file became shorter while it was read", where=Where(key=path))
        filled += count


def _read_at(file: FileIO, into: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(file.fileno(), [into], offset)
    with _positioning:
        file.seek(offset)
        return file.readinto(into) or 0


class _Version(NamedTuple):
    """The version of a file, as its ETag names it."""

    device: int
    inode: int
    changed: int
    size: int

    @classmethod
    def of(cls, etag: str) -> _Version:
        return cls(*[int(field, 16) for field in etag.split("-")])

    def is_that_of(self, status: os.stat_result) -> bool:
        """Whether a file is the one of this version, as it was or with more bytes appended."""
        if (status.st_dev, status.st_ino) != (self.device, self.inode):
            return False
        if status.st_size == self.size:
            return status.st_mtime_ns == self.changed
        return status.st_size > self.size and status.st_mtime_ns >= self.changed
