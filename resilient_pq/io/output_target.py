"""Where a new object goes, and what is checked before it is written there. An async shell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import reduce
from operator import and_

from resilient_pq.errors import AlreadyExistsError, RecoveryError
from resilient_pq.io.object_sink import ObjectSink, SinkOptions
from resilient_pq.io.protocols import WriteStore
from resilient_pq.io.stored_object import ObjectInfo
from resilient_pq.io.upload.upload_start import abort_after
from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """Where an output goes; `permissions` are the most that others than its owner get of a local file."""

    store: WriteStore
    key: str
    overwrite: bool
    make_folder: bool = False
    permissions: int | None = None

    @property
    def url(self) -> str:
        """Its name for people."""
        return self.store.url_of(self.key)

    @property
    def address(self) -> str:
        """Its name that no other object has; not to be shown."""
        return self.store.address_of(self.key)

    @property
    def options(self) -> SinkOptions:
        """How it is written."""
        # The source may well be the NAME.partial of the very name that the output should have.
        return SinkOptions(mode="w" if self.overwrite else "x", private_partial=True, permissions=self.permissions)


def permissions_of(sources: Iterable[ObjectInfo]) -> int | None:
    """What may be done with each of the objects that an output is made of; None where none is a local file."""
    permissions = [info.permissions for info in sources if info.permissions is not None]
    return reduce(and_, permissions) if permissions else None


async def check_other(address: str, target: Target) -> None:
    """Refuse to write over what is read, and where nothing can be written."""
    target.store.check_writable(target.key)
    if target.address == address or await asyncio.to_thread(_same_file, target.address, address):
        raise RecoveryError(f"{target.url} is the file that is read", hint="name another output: a new file is written")


async def check_free(target: Target) -> None:
    """Refuse to replace what is there, where that was not asked for."""
    if not target.overwrite and await target.store.exists(target.key):
        raise AlreadyExistsError(
            f"{target.url} exists", hint="name another output, or use --overwrite (overwrite=True)"
        )


async def make_folder(target: Target) -> None:
    """Make the folder of an output, where that was asked for."""
    if target.make_folder:
        await target.store.make_folder(target.store.beside(target.key, ""))


def _same_file(one: str, other: str) -> bool:
    """Whether two paths lead to one file, by links or otherwise; URLs are no paths and lead nowhere."""
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


@asynccontextmanager
async def completing(sink: ObjectSink) -> AsyncIterator[None]:
    """Publish the object at the end; where that is not reached, remove what was stored of it."""
    try:
        yield
        await sink.complete()
    except BaseException as error:
        await abort_after(sink, error)
        raise
