"""Objects in a dictionary: for tests, for examples, and for bytes that never need to leave the process."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import field
from datetime import UTC, datetime

from resilient_pq.errors import (
    AlreadyExistsError,
    NotFoundError,
    ObjectChangedError,
    RangeError,
    StoreError,
    Where,
    WriterClosedError,
)
from resilient_pq.io.multipart_store import MultipartStore, Part, UploadInfo
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS, Buffer, ObjectSink, SinkOptions, StoredState, pieces_of
from resilient_pq.io.protocols import Capabilities
from resilient_pq.io.stored_object import LISTED_AT_ONCE, ListedObject, ObjectInfo, ObjectTail, folder_prefix
from resilient_pq.lazy_dataclass import dataclass


@dataclass(slots=True)
class _Upload:
    key: str
    initiated: datetime
    parts: dict[int, tuple[Part, bytes]] = field(default_factory=dict)


class MemoryStore(MultipartStore):
    """A store whose objects are bytes in a dictionary; any number of event loops may share it."""

    name = "memory"

    def __init__(self) -> None:
        """Begin with no objects."""
        self._objects: dict[str, tuple[ObjectInfo, bytes]] = {}
        self._uploads: dict[str, _Upload] = {}
        self._serial = itertools.count(1)

    @property
    def capabilities(self) -> Capabilities:
        """Everything but durability."""
        return Capabilities(
            suffix_range=True,
            if_match=True,
            if_none_match=True,
            multipart=True,
            list_parts=True,
            server_side_copy=True,
            list_names=True,
        )

    def url_of(self, key: str) -> str:
        """A name for messages; it leads back only to this very store."""
        return f"memory:{key}"

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """The last `size` bytes, and what the object is."""
        info, data = self._find(key)
        offset = max(0, info.size - size)
        return ObjectTail(info, offset, memoryview(data)[offset:])

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        """The bytes from `start` up to `end` of the pinned version, without copying."""
        info, data = self._find(key)
        if info.etag != pin.etag:
            raise ObjectChangedError("the object was replaced while it was read", where=self._where(key))
        if not 0 <= start <= end <= info.size:
            raise RangeError(f"{start}..{end} is not within {info.size:,} bytes", where=self._where(key))
        return memoryview(data)[start:end]

    async def head(self, key: str) -> ObjectInfo:
        """What the object is."""
        return self._find(key)[0]

    async def list_objects(self, folder: str) -> AsyncGenerator[Sequence[ListedObject], None]:
        """Every object whose key begins with the folder's, by name."""
        prefix = folder_prefix(folder)
        keys = iter(sorted(key for key in self._objects if key.startswith(prefix)))
        while keys_of_page := list(itertools.islice(keys, LISTED_AT_ONCE)):
            infos = [self._objects[key][0] for key in keys_of_page if key in self._objects]
            yield [ListedObject(info.key.removeprefix(prefix), info.size, info.etag) for info in infos]

    async def put(
        self, key: str, data: Sequence[Buffer] | Buffer, *, if_none_match: bool = False, if_match: str | None = None
    ) -> ObjectInfo:
        """Write a whole object."""
        return self._publish(key, b"".join(pieces_of(data)), if_none_match=if_none_match, if_match=if_match)

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        """Begin an object; its bytes are gathered until it is completed."""
        if options.mode == "x":
            self._refuse_existing(key)
        return _MemorySink(self, key, options)

    async def delete(self, key: str, *, if_match: str | None = None) -> None:
        """Forget the object, if there is one."""
        if if_match is not None:
            self._refuse_other(key, if_match)
        self._objects.pop(key, None)

    async def create_upload(self, key: str) -> str:
        """Begin an upload."""
        upload_id = f"upload-{next(self._serial)}"
        self._uploads[upload_id] = _Upload(key, datetime.now(UTC))
        return upload_id

    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        """Keep one part; an earlier one of the same number is forgotten."""
        upload = self._upload(key, upload_id)
        content = b"".join(pieces_of(data))
        part = Part(number, len(content), f'"{next(self._serial):x}"')
        upload.parts[number] = (part, content)
        return part

    async def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[Part],
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Publish the named parts as one object."""
        upload = self._upload(key, upload_id)
        chosen: list[bytes] = []
        for part in sorted(parts, key=lambda part: part.number):
            found = upload.parts.get(part.number)
            if found is None or found[0].etag != part.etag:
                raise StoreError(f"part {part.number} is not the one that is stored", where=self._where(key))
            chosen.append(found[1])
        info = self._publish(key, b"".join(chosen), if_none_match=if_none_match, if_match=if_match)
        del self._uploads[upload_id]
        return info

    async def abort_upload(self, key: str, upload_id: str) -> None:
        """Forget the upload and its parts."""
        self._upload(key, upload_id)
        del self._uploads[upload_id]

    async def list_uploads(self, prefix: str) -> list[UploadInfo]:
        """Every open upload below `prefix`."""
        return [
            UploadInfo(upload.key, upload_id, upload.initiated)
            for upload_id, upload in self._uploads.items()
            if upload.key.startswith(prefix)
        ]

    async def list_parts(self, key: str, upload_id: str) -> list[Part]:
        """Every part, by number."""
        parts = self._upload(key, upload_id).parts
        return [parts[number][0] for number in sorted(parts)]

    async def copy_part(
        self, key: str, upload_id: str, number: int, source_key: str, start: int, end: int, source_etag: str | None
    ) -> Part:
        """Make a part of bytes of another object."""
        info = await self.head(source_key)
        pin = ObjectInfo(source_key, info.size, source_etag or info.etag)
        data = await self.read_range(source_key, start, end, pin=pin)
        return await self.put_part(key, upload_id, number, data)

    async def close(self) -> None:
        """Nothing to let go of: the objects stay until the store itself goes."""

    def _where(self, key: str) -> Where:
        return Where(key=self.url_of(key))

    def _find(self, key: str) -> tuple[ObjectInfo, bytes]:
        if key not in self._objects:
            raise NotFoundError("no such object", where=self._where(key))
        return self._objects[key]

    def _upload(self, key: str, upload_id: str) -> _Upload:
        upload = self._uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise NotFoundError(f"no such upload: {upload_id}", where=self._where(key))
        return upload

    def _refuse_existing(self, key: str) -> None:
        if key in self._objects:
            raise AlreadyExistsError("the object exists already", where=self._where(key))

    def _refuse_other(self, key: str, etag: str) -> None:
        if key not in self._objects or self._objects[key][0].etag != etag:
            raise ObjectChangedError("the object was replaced meanwhile", where=self._where(key))

    def _publish(self, key: str, data: bytes, *, if_none_match: bool, if_match: str | None = None) -> ObjectInfo:
        if if_none_match:
            self._refuse_existing(key)
        if if_match is not None:
            self._refuse_other(key, if_match)
        info = ObjectInfo(key, len(data), f'"{next(self._serial):x}"')
        self._objects[key] = (info, data)
        return info


class _MemorySink(ObjectSink):
    """Gathers the bytes of one object and publishes them in one step."""

    published: ObjectInfo | None = None  # The object, once it is there
    can_store, num_bytes_stored = False, 0  # Memory does not outlive the process

    def __init__(self, store: MemoryStore, key: str, options: SinkOptions) -> None:
        self._store = store
        self._key = key
        self._options = options
        self._data = bytearray()
        self._ended = False

    @property
    def position(self) -> int:
        """Bytes accepted so far."""
        return len(self._data)

    async def write(self, *buffers: Buffer) -> None:
        """Append the buffers."""
        self._refuse_ended()
        for piece in pieces_of(buffers):
            self._data += piece

    async def commit(self, *, wait: bool = True) -> StoredState:
        """Memory does not outlive the process."""
        self._refuse_ended()
        return StoredState.ACCEPTED

    async def complete(self) -> ObjectInfo:
        """Publish the object."""
        self._refuse_ended()
        info = await self._store.put(self._key, self._data, if_none_match=self._options.mode == "x")
        self._ended, self.published = True, info
        return info

    async def abort(self) -> None:
        """Forget the bytes."""
        self._ended = True

    async def keep(self) -> None:
        """There is nowhere to keep them."""
        self._ended = True

    def describe(self) -> str:
        """Memory keeps nothing."""
        return f"{self._store.url_of(self._key)}: nothing is kept of an object that was not completed"

    def _refuse_ended(self) -> None:
        if self._ended:
            raise WriterClosedError("the sink has ended", where=Where(key=self._store.url_of(self._key)))
