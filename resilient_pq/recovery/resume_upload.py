"""Going on with an upload that its writer left open: complete it, copy it, go on. An async shell.

The parts of an upload cannot be read. So it is completed as far as its newest checkpoint, which ends the first writer's
upload for good, and a new upload begins with its bytes, copied by the store itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from resilient_pq.checksum import crc32
from resilient_pq.commands import in_shell
from resilient_pq.errors import (
    AlreadyExistsError,
    FormatError,
    NotFoundError,
    ObjectChangedError,
    RecoveryError,
    StoreError,
    UnsupportedError,
    Where,
)
from resilient_pq.format.records import Kind
from resilient_pq.io import (
    FetchCounters,
    MultipartSink,
    MultipartStore,
    ObjectInfo,
    ObjectSink,
    Part,
    SinkOptions,
)
from resilient_pq.io.cancellation import finish_first
from resilient_pq.io.copied_upload import copied_upload
from resilient_pq.io.protocols import MiB, bare_etag
from resilient_pq.io.ranges import ByteRange
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.recovery.choose import Candidates, candidates_of_contents
from resilient_pq.recovery.report import recovered_name
from resilient_pq.recovery.source import Source
from resilient_pq.recovery.upload_rule import size_of, upload_parts
from resilient_pq.recovery.uploads import object_there, uploads_of

log = logging.getLogger("resilient_pq.recovery")

#: Bytes of an object in memory at one time when they are compared.
_COMPARED_BYTES = 8 * MiB
#: How often an upload is looked at that goes on changing, since its writer lives.
_MAX_LISTINGS = 5


async def unfinished_object(
    store: MultipartStore,
    key: str,
    *,
    upload_id: str | None,
    overwrite: bool,
    logged: Mapping[str, str] = MappingProxyType({}),
) -> Source:
    """The object to go on from: the one that stands there unfinished, or what the open upload makes.

    Args:
        store: Where it is.
        key: The object.
        upload_id: The upload that the caller chose; None where there is only one.
        overwrite: Whether what the upload makes may replace another object.
        logged: File ids of uploads, hexadecimal, as a log of checkpoints tells them: proof of which file they are.

    Raises:
        NotFoundError: There is neither, or no such upload.
        AlreadyExistsError: The upload would replace another object.
        RecoveryError: Several uploads are open; it holds no checkpoint; or the object and the upload may be two
            different files.
        StoreError: The store refuses.
    """
    there = await object_there(store, key)
    standing = None if there is None else _source(store, there)
    contents = None if standing is None else await _contents(standing)
    state = None if contents is None else contents.state
    uploads = (
        [upload_id]
        if upload_id is not None
        else [each.upload_id for each in await uploads_of(store, key)]
    )
    if standing is not None and contents is not None and state is FileState.IN_PROGRESS:
        record = contents.footer.record
        known = {upload for upload in uploads if record and logged.get(upload) == record.file_id.hex()}
        return await _later(
            store, standing, uploads, known=known, chosen=upload_id is not None, overwrite=overwrite
        )
    if standing is None and not uploads:
        raise NotFoundError("no unfinished file of this name", hint="begin it: create, or look at the key")
    if not uploads:
        raise _ended(state)
    upload = _only(uploads)
    if standing is not None and not overwrite:
        what = "a complete file" if state is FileState.COMPLETE else "another object"
        raise AlreadyExistsError(
            f"{what} has the name that the upload {upload} is for",
            hint="replace it by what the upload holds: overwrite=True",
        )
    return await _completed(store, key, upload, there)


async def _later(
    store: MultipartStore,
    standing: Source,
    uploads: Sequence[str],
    *,
    known: Collection[str],
    chosen: bool,
    overwrite: bool,
) -> Source:
    """Of an unfinished object and the uploads for its key, the latest state of the one file that they should be.

    Args:
        store: Where they are.
        standing: The object.
        uploads: The uploads.
        known: Those that are known to be of this file.
        chosen: Whether the caller named the one, and so says that it is of this file.
        overwrite: Whether it may replace what is another file.
    """
    size = standing.info.size
    found = {upload: await _completable(store, standing.key, upload) for upload in uploads}
    later = {upload: parts for upload, parts in found.items() if size_of(parts) > size}
    if chosen and overwrite:
        later = found
    if chosen and not later:
        raise RecoveryError(
            f"the upload {uploads[0]} holds no later checkpoint than the object of {size:,} bytes",
            hint="go on from the object: leave upload_id out; replace it all the same: overwrite=True",
        )
    for upload in found.keys() - later.keys():
        log.warning("%s: the upload %s is left; it holds no later checkpoint", standing.url, upload)
    if not later:
        return standing
    upload = _only(list(later))
    shown = chosen or overwrite or upload in known
    if not shown and not await _begins_with(standing, later[upload][0]):
        held = size_of(later[upload])
        raise RecoveryError(
            f"the object of {size:,} bytes and the upload {upload} of {held:,} cannot be shown to be one file",
            hint=f"if they are: upload_id={upload!r}; to replace the object by the upload: overwrite=True",
        )
    return await _completed(store, standing.key, upload, standing.info)


async def completed_upload(store: MultipartStore, key: str, upload: str) -> ObjectInfo | None:
    """Complete an upload of ours up to its newest checkpoint, where nothing has its name yet; without one, abort it.

    In both cases a writer that is not dead can do nothing more.

    Args:
        store: Where it is.
        key: The object it makes.
        upload: Its id.

    Returns:
        The object; None where there was no checkpoint, and so no row was stored.

    Raises:
        AlreadyExistsError: There is an object.
        NotFoundError: Somebody else completed or aborted it.
        RecoveryError: Its parts are not those of a writer of ours.
        StoreError: The store refuses.
    """
    found = upload_parts(await store.list_parts(key, upload))
    if found.by_rule is None:
        await store.abort_upload(key, upload)
        return None
    if not found.fits_rule:
        raise RecoveryError(
            f"the upload {upload} is of another kind than our writers leave",
            where=Where(key=store.url_of(key)),
            hint="complete or abort it: rpq uploads complete, rpq uploads abort",
        )
    return (await _completed(store, key, upload, None)).info


async def _completable(store: MultipartStore, key: str, upload: str) -> tuple[Part, ...]:
    """The parts that an upload of ours is completed with; none where it holds no checkpoint, or is of others."""
    parts = upload_parts(await store.list_parts(key, upload))
    return parts.by_rule or () if parts.fits_rule else ()


def _source(store: MultipartStore, info: ObjectInfo) -> Source:
    return Source(store, info.key, store.url_of(info.key), info, FetchCounters(), owns_store=False)


async def _contents(source: Source) -> Contents | None:
    """What a file holds; None for what has no footer, or one of a kind that we do not write."""
    try:
        contents = await source.contents()
    except UnsupportedError:
        return None
    return contents if isinstance(contents, Contents) else None


def _ended(state: FileState | None) -> RecoveryError:
    if state is FileState.COMPLETE:
        return RecoveryError(
            "there is nothing to go on with: the file is complete",
            hint="a complete file cannot be added to; write another one beside it",
        )
    if state is FileState.SALVAGED:
        return RecoveryError("a recovery made this file: rows may be missing from it, and it cannot be resumed")
    return RecoveryError("what stands there is no file of ours that was left unfinished")


def _only(uploads: Sequence[str]) -> str:
    if len(uploads) > 1:
        raise RecoveryError(
            "several uploads are open for this object", hint=f"choose one with upload_id=: {', '.join(uploads)}"
        )
    return uploads[0]


async def _completed(store: MultipartStore, key: str, upload: str, instead: ObjectInfo | None) -> Source:
    """Complete an upload up to its newest checkpoint; from then on its writer can do nothing.

    Args:
        store: Where it is.
        key: The object it makes.
        upload: Its id.
        instead: The object that it replaces, and no other; None where there must be none.
    """
    attempts, exclusive = _MAX_LISTINGS, instead is None
    parts = await _completable(store, key, upload)
    while True:
        if not parts:
            raise RecoveryError(
                f"the upload {upload} holds no checkpoint: there is nothing to go on with",
                hint="abort it, and begin the file anew",
            )
        completing = store.complete_upload(
            key,
            upload,
            parts,
            if_none_match=exclusive,
            if_match=None if instead is None else instead.etag,
        )
        try:
            info = await finish_first(completing)
            break
        except (NotFoundError, AlreadyExistsError, ObjectChangedError):
            raise
        except UnsupportedError:
            if not exclusive:
                raise
            exclusive = False  # the store knows no conditions: what it said a moment ago must do
        except StoreError:
            # A writer that lives may have sent a part once more since.
            before, parts = parts, await _completable(store, key, upload)
            attempts -= 1
            if parts == before or not attempts:
                raise
    log.info("%s: the upload %s was completed with %d bytes", store.url_of(key), upload, info.size)
    return _source(store, info)


async def _begins_with(standing: Source, part: Part) -> bool:
    """Whether the bytes of an object begin with those of a part; False where that cannot be told."""
    if part.size > standing.info.size:
        return False
    md5, crc = hashlib.md5(usedforsecurity=False), 0
    for start in range(0, part.size, _COMPARED_BYTES):
        data = await standing.read(ByteRange(start, min(start + _COMPARED_BYTES, part.size)))
        await asyncio.to_thread(md5.update, data)
        crc = crc32(data, crc)
    return bare_etag(part.etag) == md5.hexdigest() or part.crc32 == crc


async def up_to_checkpoint(source: Source) -> Candidates:
    """What an unfinished object holds: everything before its footer, which is its newest checkpoint.

    Raises:
        RecoveryError: It does not end in a checkpoint of ours.
        StoreError: The store could not give its bytes.
    """
    contents = await source.contents()
    if isinstance(contents, FormatError):
        raise RecoveryError(
            f"what was left does not end in a checkpoint: {contents.message}",
            where=Where(key=source.url),
            hint=f"keep what is whole: {in_shell('recover', source.url, recovered_name(source.url))}",
        ) from contents
    record = contents.footer.record
    if contents.state is not FileState.IN_PROGRESS or record is None:
        raise _ended(contents.state)
    if record.kind not in (Kind.ANCHOR, Kind.CHECKPOINT) or record.end != source.info.size:
        raise RecoveryError("what was left does not end in a checkpoint", where=Where(key=source.url))
    return candidates_of_contents(contents)


async def new_upload(store: MultipartStore, source: Source, options: SinkOptions) -> ObjectSink:
    """A new upload that begins with all bytes of an object, and replaces that object only when it is complete.

    Args:
        store: Where it is.
        source: The object; it stays until then.
        options: How the upload goes on.

    Raises:
        ObjectChangedError: The object was replaced meanwhile.
        StoreError: The store refuses; nothing of the new upload is left.
    """
    key, info = source.key, source.info
    options = replace(options, mode="w", if_match=info.etag)
    # The last byte is not copied: the part that holds it is sent from here, as the newest checkpoint ends in it.
    async with copied_upload(store, key, info, max(0, info.size - 1), options) as begun:
        tail = await source.read(ByteRange(begun.num_bytes, info.size))
        return await MultipartSink.resume(
            store, key, options, upload_id=begun.upload_id, parts=begun.parts, tail=[tail]
        )
