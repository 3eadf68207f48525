"""An object that gathers in a local temporary file until it is complete, for stores that can only be given it whole."""

from __future__ import annotations

import os
import tempfile
from abc import abstractmethod
from typing import Protocol, Self

from resilient_pq.errors import AlreadyExistsError, Where
from resilient_pq.io.cancellation import GRACE_SECONDS, finish_first
from resilient_pq.io.local_sink import LocalSink
from resilient_pq.io.local_store import in_thread
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS, ObjectSink, SinkOptions, StoredState
from resilient_pq.io.os_errors import explained
from resilient_pq.io.partial_file import SUFFIX, PartialFile
from resilient_pq.io.protocols import WriteStore
from resilient_pq.io.stored_object import ObjectInfo


class SpooledStore(WriteStore, Protocol):
    """A store that takes only whole objects: what is written to a sink gathers in a local temporary file."""

    @abstractmethod
    async def publish(self, path: str, key: str, *, exclusive: bool) -> ObjectInfo:
        """Send a local file, so that the object is there entirely or not at all."""

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        """Begin an object in a local temporary file."""
        self.check_writable(key)
        exclusive = options.mode == "x"
        if exclusive:
            await self._refuse_existing(key)
        return await SpooledSink.begin(self, key, exclusive=exclusive)

    async def _refuse_existing(self, key: str) -> None:
        if await self.exists(key):
            raise AlreadyExistsError("the object exists already", where=Where(key=self.url_of(key)))


class SpooledSink(LocalSink):
    """The bytes of one object in a local temporary file until it is sent."""

    can_store = False  # Nothing is in the store before all of it is
    needs_loop = True  # Sending it does

    def __init__(self, store: SpooledStore, key: str, file: PartialFile, *, exclusive: bool) -> None:
        """Use `begin` instead."""
        super().__init__(key, file, SinkOptions(mode="x" if exclusive else "w"))
        self._store = store

    @classmethod
    async def begin(cls, store: SpooledStore, key: str, *, exclusive: bool) -> Self:
        """Make the temporary file."""
        name = os.path.basename(key)[-64:]
        file = await finish_first(in_thread(_spool, name), undo=lambda file: in_thread(file.discard))
        return cls(store, key, file, exclusive=exclusive)

    @property
    def num_bytes_stored(self) -> int:
        """None: a temporary file of this machine is no promise."""
        return 0

    async def commit(self, *, wait: bool = True) -> StoredState:
        """A temporary file of this machine is no promise."""
        self._refuse_ended()
        return StoredState.ACCEPTED

    async def complete(self) -> ObjectInfo:
        """Send the file, and remove it."""
        self._refuse_ended()

        async def send() -> ObjectInfo:
            info = await self._store.publish(self._file.path, self._key, exclusive=self._options.mode == "x")
            self._ended, self.published = True, info
            await in_thread(self._file.discard)
            return info

        return await finish_first(send(), patience=GRACE_SECONDS)


def _spool(name: str) -> PartialFile:
    """A new temporary file, named after what it will be."""
    with explained("cannot write", tempfile.gettempdir()):
        descriptor, path = tempfile.mkstemp(prefix=f"{name}.", suffix=SUFFIX)
    return PartialFile(descriptor, path, path.removesuffix(SUFFIX))
