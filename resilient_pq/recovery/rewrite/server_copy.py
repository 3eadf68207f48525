"""Output that begins with bytes of the damaged object, copied by the store that holds both. An async shell."""

from __future__ import annotations

import logging

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import AlreadyExistsError, StoreError, UnsupportedError, Where
from resilient_pq.io import MultipartSink, MultipartStore, ObjectSink, SinkOptions, WriteStore
from resilient_pq.io.upload.abandoned_uploads import abort_after
from resilient_pq.io.upload.copied_upload import copied_upload, parts_to_copy
from resilient_pq.io.upload.upload_start import refuses_to_copy
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.verification.findings import Progress
from resilient_pq.units import MiB

log = logging.getLogger("resilient_pq.recovery")

_READ_BYTES = 8 * MiB  # Bytes of what is not copied that are read and sent at a time


@dataclass(frozen=True, slots=True)
class PrefixedSink:
    """A sink that holds the first bytes of an object, and how many of them the store copied unread."""

    sink: ObjectSink
    num_bytes_unread: int


def bytes_copied_unread(source: DamagedObject, store: WriteStore, prefix_end: int, options: SinkOptions) -> int:
    """How many bytes of a prefix `prefixed_sink` would have the store copy, if that does not refuse; asks nothing."""
    able = isinstance(store, MultipartStore) and store.capabilities.server_side_copy
    if not able or source.info.etag is None:
        return 0
    assert isinstance(store, MultipartStore)
    if not store.copies_from(source.store):
        return 0
    parts = parts_to_copy(prefix_end, store.upload_options(options))
    return parts[-1].end if parts else 0


async def prefixed_sink(
    source: DamagedObject,
    store: WriteStore,
    key: str,
    prefix_end: int,
    options: SinkOptions,
    *,
    progress: Progress | None = None,
) -> PrefixedSink | None:
    """Begin the output with the first bytes of the source, copied by the store itself."""
    expected = bytes_copied_unread(source, store, prefix_end, options)
    if not expected:
        return None
    assert isinstance(store, MultipartStore)
    options = store.upload_options(options)
    url = store.url_of(key)
    if options.mode == "x" and await store.exists(key):
        raise AlreadyExistsError("the object exists already", where=Where(key=url))

    def copied(num_bytes: int) -> None:
        if progress is not None:
            progress(num_bytes, source.info.size)

    try:
        async with copied_upload(store, key, source.info, prefix_end, options, copied=copied) as begun:
            # Nothing is committed: what the upload holds so far is no file that could be completed.
            sink = await MultipartSink.resume(
                store, key, options, upload_id=begun.upload_id, parts=begun.parts, tail=[]
            )
    except (StoreError, UnsupportedError) as error:
        if not refuses_to_copy(error):
            raise
        log.warning("%s: %s does not copy, so its bytes are read: %s", url, store.name, error.message)
        return None
    try:
        await _send(source, sink, begun.num_bytes, prefix_end, progress)
    except BaseException as error:
        await abort_after(sink, error)
        raise
    log.info("%s: %d bytes were copied within %s", url, begun.num_bytes, store.name)
    return PrefixedSink(sink, begun.num_bytes)


async def _send(source: DamagedObject, sink: ObjectSink, start: int, end: int, progress: Progress | None) -> None:
    """Read what lies between two offsets of the source, and write it."""
    while start < end:
        stop = min(start + _READ_BYTES, end)
        await sink.write(await source.read_alike(ByteRange(start, stop)))
        start = stop
        if progress is not None:
            progress(start, source.info.size)
