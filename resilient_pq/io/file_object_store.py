"""Bytes and open files as stores of one object, for callers that have no path and no URL. An async shell."""

from __future__ import annotations

import os
import shutil
from typing import Any

from resilient_pq.errors import NotFoundError, RangeError, SchemaError, UnsupportedError, Where
from resilient_pq.io.local_store import LocalStore, in_thread
from resilient_pq.io.os_errors import explained
from resilient_pq.io.protocols import Capabilities
from resilient_pq.io.stored_object import ObjectInfo
from resilient_pq.io.upload.spooled_upload import SpooledStore

KEY = "object"  # The key of the only object


class FileObjectStore(SpooledStore):
    """One object: bytes, or what an open binary file holds, which is read into memory when it is first asked for."""

    # What is written gathers in a temporary file, and is written into the open file when it is complete: nothing is
    # stored before that, and nothing can be resumed.

    capabilities = Capabilities()  # Nothing beyond the plain verbs

    def __init__(self, file: Any) -> None:
        self._file = file
        self._data: memoryview | None = None
        self._name = f"<{type(file).__name__}>"

    @property
    def name(self) -> str:
        """What to call the store in messages."""
        return self._name

    def url_of(self, key: str) -> str:
        """A name for messages; it leads nowhere."""
        return self._name

    def address_of(self, key: str) -> str:
        """A name that no other object of this process has."""
        return f"{self._name}{id(self._file)}"

    def check_writable(self, key: str) -> None:
        """Refuse bytes, and files that are open for reading."""
        writable = getattr(self._file, "writable", lambda: hasattr(self._file, "write"))
        if not hasattr(self._file, "write") or not writable():
            raise UnsupportedError("it cannot be written", where=Where(key=self._name), hint='open the file with "wb"')

    async def head(self, key: str) -> ObjectInfo:
        """What the object is."""
        return ObjectInfo(key, len(await self._bytes()), f"{id(self._file)}")

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        """Bytes of the object."""
        data = await self._bytes()
        if not 0 <= start <= end <= len(data):
            raise RangeError(f"{start}..{end} is not within {len(data):,} bytes", where=Where(key=self._name))
        return data[start:end]

    async def exists(self, key: str) -> bool:
        """Whether there are bytes to be replaced: a file is open to be written."""
        return False

    async def put(self, key: str, data: Any, *, if_none_match: bool = False) -> ObjectInfo:
        """Not needed: writers use `create`."""
        raise UnsupportedError("an open file takes what a writer completes", where=Where(key=self._name))

    async def delete(self, key: str) -> None:
        """Nothing: the file is the caller's."""

    async def publish(self, path: str, key: str, *, exclusive: bool) -> ObjectInfo:
        """Write a local file into the open one, from where that is."""

        def copy() -> int:
            with explained("cannot write", self._name), open(path, "rb") as source:
                shutil.copyfileobj(source, self._file, 1 << 20)
                if hasattr(self._file, "flush"):
                    self._file.flush()
            return os.path.getsize(path)

        return ObjectInfo(key, await in_thread(copy), None)

    async def close(self) -> None:
        """Nothing: the file is the caller's."""

    async def _bytes(self) -> memoryview:
        if self._data is None:
            self._data = await in_thread(self._read)
        return self._data

    def _read(self) -> memoryview:
        file = self._file
        if isinstance(file, bytes | bytearray | memoryview):
            return memoryview(file).cast("B")
        readable = getattr(file, "readable", lambda: True)
        if not hasattr(file, "read") or not readable():
            raise NotFoundError("it cannot be read", where=Where(key=self._name), hint='open the file with "rb"')
        with explained("cannot read", self._name):
            if hasattr(file, "seek"):
                file.seek(0)
            data = file.read()
        if not isinstance(data, bytes):
            raise SchemaError(f"{self._name} gives text", hint='open the file in binary mode, with "rb"')
        return memoryview(data)


def store_of(file: Any) -> tuple[Any, str]:
    """A store for bytes or an open file, and the key in it; for files of fsspec that of their file system."""
    is_bytes = isinstance(file, bytes | bytearray | memoryview)
    if not (is_bytes or hasattr(file, "read") or hasattr(file, "write") or _is_of_fsspec(file)):
        raise SchemaError(
            f"a file cannot be an object of type {type(file).__name__}",
            hint="name a path or a URL, or pass bytes, a binary file, or a pair of a store and a key",
        )
    return _store_in_fsspec(file.fs, file.path) if _is_of_fsspec(file) else (FileObjectStore(file), KEY)


def _is_of_fsspec(file: object) -> bool:
    """Whether this is an ``OpenFile`` or an open file of fsspec, which know their file system and their path."""
    return hasattr(file, "fs") and isinstance(getattr(file, "path", None), str)


def in_filesystem(filesystem: Any, path: Any) -> Any:
    """A path in a file system of fsspec or pyarrow, as something that `store_of` knows, or as a local path."""
    filesystem = getattr(getattr(filesystem, "handler", None), "fs", filesystem)  # pyarrow's wrapper of fsspec
    if hasattr(filesystem, "type_name"):
        if filesystem.type_name == "local":
            return path
        from fsspec.implementations.arrow import ArrowFSWrapper  # noqa: PLC0415 (fsspec takes long to import)

        filesystem = ArrowFSWrapper(filesystem)
    if not hasattr(filesystem, "open") or not hasattr(filesystem, "protocol"):
        raise UnsupportedError(
            f"filesystem is a {type(filesystem).__name__}, and no file system of fsspec or pyarrow",
            hint="leave it out and name a URL such as s3://bucket/key",
        )
    from fsspec.core import OpenFile  # noqa: PLC0415

    return OpenFile(filesystem, filesystem._strip_protocol(os.fspath(path)))


def _store_in_fsspec(filesystem: Any, path: str) -> tuple[Any, str]:
    """Our own store where a file system of fsspec is local or S3, as these keep the rows of a writer that is killed."""
    kinds = {filesystem.protocol} if isinstance(filesystem.protocol, str) else {*filesystem.protocol}
    if "local" in kinds:
        return LocalStore(), path
    if "s3" in kinds and filesystem.async_impl:
        from resilient_pq.io.s3.s3_store import S3Store  # noqa: PLC0415 (so do its clients)

        return S3Store(filesystem.storage_options), path
    from resilient_pq.io.fsspec_store import FsspecStore  # noqa: PLC0415

    return FsspecStore(filesystem), path
