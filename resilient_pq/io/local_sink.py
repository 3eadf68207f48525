"""The bytes of one local file while it is written: ``NAME.partial``, renamed when it is complete."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from io import FileIO
from typing import Any, Final, Self, TypeVar

from resilient_pq.errors import AlreadyExistsError, ObjectChangedError, StoreError, Where, WriterClosedError
from resilient_pq.io.cancellation import finish_first, finish_in_thread
from resilient_pq.io.object_sink import Buffer, Fencing, ObjectSink, SinkOptions, StoredState, pieces_of
from resilient_pq.io.os_errors import explained
from resilient_pq.io.partial_file import HEAD_BYTES, PartialFile, refuse_other_version
from resilient_pq.io.stored_object import ObjectInfo, file_info
from resilient_pq.shell_commands import in_shell

Result = TypeVar("Result")

#: Offset from which on a copy may share blocks with what it is copied from; bytes that are copied at a time otherwise.
_BLOCK: Final = 1 << 16
_PIECE: Final = 8 << 20


class LocalSink(ObjectSink):
    """The bytes of one local file, in ``NAME.partial`` as soon as `write` returns."""

    published: ObjectInfo | None = None  # The file, once it has its name
    position: int = 0  # Bytes accepted so far
    fencing = Fencing.LOCK  # ``NAME.partial`` is locked
    needs_loop: bool = False  # Its steps block, and nothing else goes on
    stored_as_written = True  # They are in ``NAME.partial``

    def __init__(self, key: str, file: PartialFile, options: SinkOptions, position: int = 0) -> None:
        """Take over an open partial file; the methods of `LocalStore` are the ways to get a sink."""
        self._key = key
        self._file = file
        self._options = options
        self.position = self._written = position
        self._failure: StoreError | None = None
        self._ended = False

    @classmethod
    async def copying(cls, path: str, info: ObjectInfo, options: SinkOptions) -> Self:
        """Begin ``NAME.partial`` with the bytes of a version of a file, which it replaces, and no other version."""
        # Until the first commit the copy lacks its first bytes; such a one that a killed process left is replaced.
        options = replace(options, mode="w", if_match=info.etag)
        copying = finish_in_thread(_copied, path, options)
        file = await finish_first(copying, undo=lambda file: finish_in_thread(file.discard))
        return cls(info.key, file, options, info.size)

    @property
    def num_bytes_stored(self) -> int:
        """Bytes that the operating system has: a kill of this process does not take them along."""
        return self._written

    async def write(self, *buffers: Buffer) -> None:
        """Append the buffers to the file."""
        self._refuse_ended()
        pieces = pieces_of(buffers)
        self.position += sum(map(len, pieces))
        await self._do(self._file.append, pieces)
        self._written = self.position

    async def truncate(self, position: int) -> None:
        """Drop what stands from `position` on, which is where the next bytes belong, and store what stays."""
        self._refuse_ended()
        await self._do(self._file.truncate, position)
        self.position = self._written = position

    async def commit(self, *, wait: bool = True) -> StoredState:
        """One fsync: what was written survives a kill of this process and a loss of power."""
        self._refuse_ended()
        await self._do(self._file.sync)
        return StoredState.STORED

    async def complete(self) -> ObjectInfo:
        """Rename the file to its name."""
        self._refuse_ended()
        return await self._do(self._publish)

    def _publish(self) -> ObjectInfo:
        exclusive, instead = self._options.mode == "x", self._options.if_match
        try:
            info = file_info(self._key, self._file.publish(exclusive=exclusive, instead=instead))
        except ObjectChangedError as error:
            error.hint = self._options.when_replaced or error.hint
            raise
        self._ended, self.published = True, info
        return info

    async def abort(self) -> None:
        """Remove the partial file."""
        if not self._ended:
            self._ended = True
            self._written = 0
            await finish_in_thread(self._file.discard)

    async def keep(self) -> None:
        """Close the partial file and leave it, stored."""
        if not self._ended:
            self._ended = True
            await finish_in_thread(_sync_and_release, self._file, self._failure)

    def describe(self) -> str:
        """The path of ``NAME.partial``."""
        return self._file.path

    def rescue_command(self) -> str | None:
        """Keeps what is whole of ``NAME.partial``, in a new file."""
        return in_shell("recover", self._file.path, self._file.target)

    async def _do(self, call: Callable[..., Result], *args: Any) -> Result:
        """One step in a thread, to its end: a file must not be closed under a thread that writes it."""
        try:
            return await finish_in_thread(call, *args)
        except StoreError as error:
            if not isinstance(error, AlreadyExistsError):
                self._failure = error
            raise

    def _refuse_ended(self) -> None:
        if self._ended:
            raise WriterClosedError("the sink has ended", where=Where(key=self._file.path))
        if self._failure is not None:
            raise StoreError(
                f"an earlier write failed: {self._failure.message}", where=self._failure.where, hint=self._failure.hint
            ) from self._failure


def _copied(path: str, options: SinkOptions) -> PartialFile:
    """A copy of a file without its first bytes: nobody takes one that is cut short for a file."""
    file = PartialFile.create(path, overwrite=options.overwrite_partial, copies=True)
    try:
        with explained("cannot copy", path), open(path, "rb", buffering=0) as source:
            status = os.fstat(source.fileno())
            refuse_other_version(path, status, options.if_match)
            if hasattr(os, "fchmod"):
                os.fchmod(file.open_descriptor(), stat.S_IMODE(status.st_mode))
            head = source.read(HEAD_BYTES)
            file.append([memoryview(bytes(len(head)))])
            _copy_rest(source, file, len(head), status.st_size)
            refuse_other_version(path, os.fstat(source.fileno()), options.if_match)
            file.copies(head)
    except BaseException:
        file.discard()
        raise
    return file


def _copy_rest(source: FileIO, file: PartialFile, at: int, size: int) -> None:
    """Copy a file from an offset on; a file system that can do so shares the blocks of both."""
    while hasattr(os, "copy_file_range") and at < size:
        try:  # whole blocks alone are shared
            count = min(_BLOCK - at, size - at) if at < _BLOCK else size - at
            done = os.copy_file_range(source.fileno(), file.open_descriptor(), count, at, at)
        except OSError:  # not on every file system; whatever else is wrong, reading and writing tell
            break
        if not done:
            break
        at += done
    source.seek(at)
    os.lseek(file.open_descriptor(), at, os.SEEK_SET)
    while piece := source.read(_PIECE):
        file.append([memoryview(piece)])


def _sync_and_release(file: PartialFile, failure: StoreError | None) -> None:
    """Close the file; after a failure its last bytes may not be storable, and what can be stored has to do."""
    try:
        file.sync()
    except StoreError:
        if failure is None:
            raise
    finally:
        file.release()
