"""Objects of a store: their versions, tails and names in listings."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import field

from resilient_pq.errors import StoreError, Where
from resilient_pq.lazy_dataclass import dataclass

LISTED_AT_ONCE = 1_000  # Objects in a page of a listing, at most, where that is not the store's choice


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One version of one object; later reads are pinned to it.

    Attributes:
        key: The name within its store.
        size: Bytes of the whole object.
        etag: What the store calls this version, compared on every later read; None where it has no such name.
        version: The id of this version in a versioned bucket, or None.
        permissions: Of a local file: what its owner, its group and others may do with it, as `os.chmod` takes it.
    """

    key: str
    size: int
    etag: str | None
    version: str | None = None
    permissions: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object as a listing tells of it."""

    name: str  # Relative to the folder that was listed, with slashes; `ReadStore.beside` makes a key of it
    size: int | None = None  # Bytes of the whole object; None where the listing does not tell
    # What the listing calls this version; None where it does not. A `head` may call it otherwise
    etag: str | None = None
    # Why nothing can be told of what is in a folder below; `name` is that folder's then, with a slash at its end. None
    # of objects
    error: StoreError | None = None


def names_of(page: Iterable[ListedObject]) -> list[str]:
    """The names in a page of a listing; raises the error of a folder that could not be looked into."""
    names = []
    for found in page:
        if found.error is not None:
            raise found.error
        names.append(found.name)
    return names


@dataclass(frozen=True, slots=True)
class ObjectTail:
    """The last bytes of an object, and what it is."""

    info: ObjectInfo  # The version that `data` belongs to; pin later reads to it
    offset: int  # Absolute offset of ``data[0]``; 0 when `data` is the whole object
    data: bytes | memoryview  # The last bytes, ``info.size - offset`` of them

    def part(self, start: int, end: int) -> memoryview | None:
        """The bytes from `start` up to `end`, absolute offsets; None where they do not all lie in `data`."""
        if not self.offset <= start <= end <= self.offset + len(self.data):
            return None
        return memoryview(self.data)[start - self.offset : end - self.offset]


def file_info(key: str, status: os.stat_result) -> ObjectInfo:
    """The version of a file, named by its device, inode, time of change and size."""
    etag = f"{status.st_dev:x}-{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    return ObjectInfo(key, status.st_size, etag, permissions=stat.S_IMODE(status.st_mode))


def refuse_special(path: str, status: os.stat_result | None = None, *, hint: str | None = None) -> None:
    """Raise for what is no regular file: renaming over a folder or a device is never meant."""
    try:
        mode = (status or os.stat(path)).st_mode
    except OSError:
        return
    if stat.S_ISDIR(mode):
        raise StoreError("it is a folder, not a file", where=Where(key=path), hint="name a file in it")
    if not stat.S_ISREG(mode):
        raise StoreError("it is not a regular file", where=Where(key=path), hint=hint)


def folder_prefix(folder: str) -> str:
    """What every key below a folder begins with, where keys are names with slashes; nothing for the top."""
    trimmed = folder.rstrip("/")
    return f"{trimmed}/" if trimmed or folder else ""


def bare_etag(etag: str) -> str:
    """An ETag without its quotes: servers differ in whether they send them."""
    return etag.strip().strip('"')
