"""The bytes of one local file while it is written: ``NAME.partial``, renamed when it is complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from resilient_pq.errors import AlreadyExistsError, StoreError, Where, WriterClosedError
from resilient_pq.io.cancellation import finish_in_thread
from resilient_pq.io.object_sink import Buffer, Fencing, ObjectSink, StoredState, pieces_of
from resilient_pq.io.partial_file import PartialFile, file_info
from resilient_pq.io.stored_object import ObjectInfo
from resilient_pq.shell_commands import in_shell

Result = TypeVar("Result")


class LocalSink(ObjectSink):
    """The bytes of one local file, in ``NAME.partial`` as soon as `write` returns."""

    def __init__(self, key: str, file: PartialFile, *, exclusive: bool, position: int = 0) -> None:
        """Take over an open partial file; `LocalStore.create` and `reopen` are the ways to get a sink."""
        self._key = key
        self._file = file
        self._exclusive = exclusive
        self._position = self._written = position
        self._failure: StoreError | None = None
        self._ended = False
        self._info: ObjectInfo | None = None

    @property
    def published(self) -> ObjectInfo | None:
        """The file, once it has its name."""
        return self._info

    @property
    def fencing(self) -> Fencing:
        """``NAME.partial`` is locked."""
        return Fencing.LOCK

    @property
    def position(self) -> int:
        """Bytes accepted so far."""
        return self._position

    @property
    def num_bytes_stored(self) -> int:
        """Bytes that the operating system has: a kill of this process does not take them along."""
        return self._written

    @property
    def needs_loop(self) -> bool:
        """Its steps block, and nothing else goes on."""
        return False

    @property
    def stored_as_written(self) -> bool:
        """They are in ``NAME.partial``."""
        return True

    async def write(self, *buffers: Buffer) -> None:
        """Append the buffers to the file."""
        self._refuse_ended()
        pieces = pieces_of(buffers)
        self._position += sum([piece.nbytes for piece in pieces])
        await self._do(self._file.append, pieces)
        self._written = self._position

    async def truncate(self, position: int) -> None:
        """Drop what stands from `position` on, which is where the next bytes belong, and store what stays."""
        self._refuse_ended()
        await self._do(self._file.truncate, position)
        self._position = self._written = position

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
        self._info = file_info(self._key, self._file.publish(exclusive=self._exclusive))
        self._ended = True
        return self._info

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
                f"an earlier write failed: {self._failure.message}",
                where=self._failure.where,
                hint=self._failure.hint,
            ) from self._failure


def _sync_and_release(file: PartialFile, failure: StoreError | None) -> None:
    """Close the file; after a failure its last bytes may not be storable, and what can be stored has to do."""
    try:
        file.sync()
    except StoreError:
        if failure is None:
            raise
    finally:
        file.release()
