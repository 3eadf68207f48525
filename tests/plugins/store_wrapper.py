"""A store around a store, which hands every call on; and one that remembers what was asked of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

from resilient_pq.errors import UnsupportedError
from resilient_pq.io.multipart_store import MultipartStore, Part
from resilient_pq.io.object_sink import (
    DEFAULT_SINK_OPTIONS,
    Buffer,
    ObjectSink,
    SinkOptions,
    pieces_of,
)
from resilient_pq.io.protocols import ReadStore, WriteStore
from resilient_pq.io.stored_object import ListedObject, ObjectInfo, ObjectTail

Result = TypeVar("Result")


class Call(NamedTuple):
    """One thing that was asked of a store.

    Attributes:
        verb: The method, of the store or of a sink.
        key: The object.
        start: Of reads and of a sink's writes, the first byte; of a tail, minus how many bytes were asked
            for.
        end: Behind the last byte, or None.
    """

    verb: str
    key: str
    start: int | None = None
    end: int | None = None


def _same(name: str) -> Any:
    """A property that is the inner one's."""
    return property(lambda self: getattr(self.inner, name))


def _passed_on(name: str) -> Any:
    """A method that is the inner one's, and is no call of its own."""

    def method(self: StoreWrapper | _SinkWrapper, *args: Any, **options: Any) -> Any:
        return _method(self.inner, name)(*args, **options)

    return method


def _called(verb: str) -> Any:
    """A method of the inner store, whose first argument is the key."""

    async def method(self: StoreWrapper, key: str, *args: Any, **options: Any) -> Any:
        return await self._do(Call(verb, key), lambda: _method(self.inner, verb)(key, *args, **options))

    return method


def _called_at_position(verb: str) -> Any:
    """A method of the inner sink, called where it stands."""

    async def method(self: _SinkWrapper, **options: Any) -> Any:
        call = Call(verb, self._key, self.inner.position)
        return await self._wrapper._do(call, lambda: getattr(self.inner, verb)(**options))

    return method


def _method(inner: ReadStore | ObjectSink, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] | None = getattr(inner, name, None)
    if found is None:
        raise UnsupportedError(f"{getattr(inner, 'name', 'the sink')} has no multipart uploads")
    return found


def _num_bytes(data: Sequence[Buffer] | Buffer) -> int:
    return sum(piece.nbytes for piece in pieces_of(data))


class StoreWrapper(MultipartStore):
    """Hands every call on to another store; subclasses decide in `_do` what happens around it.

    Attributes:
        inner: The other store.
    """

    name = _same("name")
    capabilities = _same("capabilities")
    url_of = _passed_on("url_of")
    address_of = _passed_on("address_of")
    beside = _passed_on("beside")
    heeds_conditions = _passed_on("heeds_conditions")
    begun_twice = _passed_on("begun_twice")
    upload_options = _passed_on("upload_options")
    close = _passed_on("close")
    head = _called("head")
    make_folder = _called("make_folder")
    delete = _called("delete")
    discard_unfinished = _called("discard_unfinished")
    create_upload = _called("create_upload")
    complete_upload = _called("complete_upload")
    abort_upload = _called("abort_upload")
    list_uploads = _called("list_uploads")
    list_parts = _called("list_parts")

    def __init__(self, store: WriteStore) -> None:
        """Hand calls on to `store`."""
        self.inner = store

    async def _do(self, call: Call, action: Callable[[], Awaitable[Result]]) -> Result:
        return await action()

    def check_writable(self, key: str) -> None:
        """Handed on."""
        if isinstance(self.inner, WriteStore):
            self.inner.check_writable(key)

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """Handed on."""
        return await self._do(Call("read_tail", key, -size), lambda: self.inner.read_tail(key, size))

    async def read_range(self, key: str, start: int, end: int, *, pin: ObjectInfo) -> bytes | memoryview:
        """Handed on."""
        return await self._do(
            Call("read_range", key, start, end), lambda: self.inner.read_range(key, start, end, pin=pin)
        )

    async def list_objects(self, folder: str) -> AsyncGenerator[Sequence[ListedObject], None]:
        """Handed on; the first page is the call."""
        async with aclosing(self.inner.list_objects(folder)) as pages:
            first = await self._do(Call("list_objects", folder), lambda: anext(pages, None))
            if first is not None:
                yield first
                async for page in pages:
                    yield page

    async def put(self, key: str, data: Sequence[Buffer] | Buffer, **conditions: Any) -> ObjectInfo:
        """Handed on."""
        found: ObjectInfo = await self._do(
            Call("put", key, 0, _num_bytes(data)), lambda: _method(self.inner, "put")(key, data, **conditions)
        )
        return found

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        """Handed on; the sink is watched too."""
        return _SinkWrapper(self, key, await self._do(Call("create", key), lambda: self.inner.create(key, options)))

    def copies_from(self, store: ReadStore) -> bool:
        """The inner store's, of the inner store."""
        found: bool = _method(self.inner, "copies_from")(store.inner if isinstance(store, StoreWrapper) else store)
        return found

    async def put_part(self, key: str, upload_id: str, number: int, data: Sequence[Buffer] | Buffer) -> Part:
        """Handed on."""
        put_part = _method(self.inner, "put_part")
        found: Part = await self._do(
            Call("put_part", key, 0, _num_bytes(data)), lambda: put_part(key, upload_id, number, data)
        )
        return found

    async def copy_part(
        self,
        key: str,
        upload_id: str,
        number: int,
        source_key: str,
        start: int,
        end: int,
        source_etag: str | None,
    ) -> Part:
        """Handed on."""
        copy_part = _method(self.inner, "copy_part")
        found: Part = await self._do(
            Call("copy_part", source_key, start, end),
            lambda: copy_part(key, upload_id, number, source_key, start, end, source_etag),
        )
        return found


class _SinkWrapper(ObjectSink):
    """A sink whose calls go through the wrapper of its store."""

    position = _same("position")
    num_bytes_stored = _same("num_bytes_stored")
    num_bytes_resent = _same("num_bytes_resent")
    num_bytes_copied = _same("num_bytes_copied")
    can_store = _same("can_store")
    stored_as_written = _same("stored_as_written")
    commit_seconds = _same("commit_seconds")
    commit_cost = _same("commit_cost")
    published = _same("published")
    in_doubt = _same("in_doubt")
    upload_id = _same("upload_id")
    fencing = _same("fencing")
    mark = _passed_on("mark")
    expect_copy = _passed_on("expect_copy")
    describe = _passed_on("describe")
    rescue_command = _passed_on("rescue_command")
    commit = _called_at_position("commit")
    complete = _called_at_position("complete")
    abort = _called_at_position("abort")
    keep = _called_at_position("keep")

    def __init__(self, wrapper: StoreWrapper, key: str, sink: ObjectSink) -> None:
        self._wrapper = wrapper
        self._key = key
        self.inner = sink

    async def write(self, *buffers: Buffer) -> None:
        """Handed on."""
        start = self.inner.position
        call = Call("write", self._key, start, start + _num_bytes(buffers))
        await self._wrapper._do(call, lambda: self.inner.write(*buffers))


class RecordingStore(StoreWrapper):
    """Remembers every call, in the order they were made.

    Attributes:
        calls: What was asked so far; clear it to begin anew.
    """

    def __init__(self, store: WriteStore) -> None:
        """Record what goes to `store`."""
        super().__init__(store)
        self.calls: list[Call] = []

    async def _do(self, call: Call, action: Callable[[], Awaitable[Result]]) -> Result:
        self.calls.append(call)
        return await action()

    def count(self, verb: str) -> int:
        """How often a verb was asked for."""
        return sum(call.verb == verb for call in self.calls)
