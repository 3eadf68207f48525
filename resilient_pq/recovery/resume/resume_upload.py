"""Resumes an upload, whose parts cannot be read: completes it, copies it, continues the copy. An async shell."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32
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
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.io import Lease, MultipartSink, MultipartStore, ObjectInfo, ObjectSink, Part, SinkOptions, bare_etag
from resilient_pq.io.cancellation import GRACE_SECONDS, finish_first
from resilient_pq.io.upload.copied_upload import copied_upload
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.row_group_choice import Candidates, candidates_of_contents
from resilient_pq.recovery.report import recovered_name
from resilient_pq.recovery.uploads.upload_rule import UploadParts, upload_parts
from resilient_pq.shell_commands import in_shell
from resilient_pq.units import MiB

log = logging.getLogger("resilient_pq.recovery")

_COMPARED_BYTES = 8 * MiB  # Bytes of an object in memory at one time when they are compared
#: What to do with a file that is complete.
ADDING = "rows are added to a complete file by rpq.append (`rpq write --append`)"
_MAX_LISTINGS = 5  # How often an upload is listed that keeps changing, since its writer lives


async def completed_upload(store: MultipartStore, key: str, upload: str) -> ObjectInfo | None:
    """Complete an upload of ours up to its newest checkpoint, where nothing has its name yet; without one, abort it."""
    found = await parts_or_aborted(store, key, upload)
    if found is None:
        return None
    if not found.fits_rule:
        raise RecoveryError(
            f"the upload {upload} is of another kind than our writers leave",
            where=Where(key=store.url_of(key)),
            hint="complete or abort it: rpq uploads complete, rpq uploads abort",
        )
    return await complete_by_rule(store, key, upload, None)


async def parts_or_aborted(store: MultipartStore, key: str, upload: str) -> UploadParts | None:
    """The parts of an upload that holds a checkpoint; None where it holds none, and was aborted for that."""
    found = upload_parts(await store.list_parts(key, upload))
    if found.by_rule is not None:
        return found
    await store.abort_upload(key, upload)
    return None


async def completable(store: MultipartStore, key: str, upload: str) -> tuple[Part, ...]:
    """The parts that an upload of ours is completed with; none where it holds no checkpoint, or is of others."""
    parts = upload_parts(await store.list_parts(key, upload))
    return parts.by_rule or () if parts.fits_rule else ()


async def complete_by_rule(store: MultipartStore, key: str, upload: str, instead: ObjectInfo | None) -> ObjectInfo:
    """Complete an upload up to its newest checkpoint; from then on its writer can do nothing."""
    attempts, exclusive = _MAX_LISTINGS, instead is None
    parts = await completable(store, key, upload)
    while True:
        if not parts:
            raise RecoveryError(
                f"the upload {upload} holds no checkpoint: there is nothing to resume",
                hint="abort it, and begin the file anew",
            )
        completing = store.complete_upload(
            key, upload, parts, if_none_match=exclusive, if_match=None if instead is None else instead.etag
        )
        try:
            info = await finish_first(completing, patience=GRACE_SECONDS)
            break
        except (NotFoundError, AlreadyExistsError, ObjectChangedError):
            raise
        except UnsupportedError:
            if not exclusive:
                raise
            exclusive = False  # the store knows no conditions: what it said a moment ago must do
        except StoreError:
            # A writer that lives may have sent a part once more since.
            before, parts = parts, await completable(store, key, upload)
            attempts -= 1
            if parts == before or not attempts:
                raise
    log.info("%s: the upload %s was completed with %d bytes", store.url_of(key), upload, info.size)
    return info


async def begins_with(standing: DamagedObject, part: Part) -> bool:
    """Whether the bytes of an object begin with those of a part; False where its checksum is unknown."""
    if part.size > standing.info.size:
        return False
    md5, crc = hashlib.md5(usedforsecurity=False), 0
    for start in range(0, part.size, _COMPARED_BYTES):
        data = await standing.read(ByteRange(start, min(start + _COMPARED_BYTES, part.size)))
        await asyncio.to_thread(md5.update, data)
        crc = crc32(data, crc)
    return bare_etag(part.etag) == md5.hexdigest() or part.crc32 == crc


def up_to_checkpoint(source: DamagedObject, contents: Contents | FormatError) -> Candidates:
    """What an unfinished object holds: everything before its footer, which is its newest checkpoint."""
    if isinstance(contents, FormatError):
        raise RecoveryError(
            f"what was left does not end in a checkpoint: {contents.message}",
            where=Where(key=source.url),
            hint=f"keep what is whole: {in_shell('recover', source.url, recovered_name(source.url))}",
        ) from contents
    record = contents.footer.record
    if contents.state is not FileState.IN_PROGRESS or record is None:
        raise cannot_resume(contents.state)
    if record.kind not in (RecordKind.ANCHOR, RecordKind.CHECKPOINT) or record.end != contents.footer.end:
        raise RecoveryError("what was left does not end in a checkpoint", where=Where(key=source.url))
    return candidates_of_contents(contents)


def cannot_resume(state: FileState | None) -> RecoveryError:
    """The error that says why an object cannot be resumed."""
    if state is FileState.COMPLETE:
        return RecoveryError("there is nothing to resume: the file is complete", hint=ADDING)
    if state is FileState.SALVAGED:
        return RecoveryError("a recovery made this file: rows may be missing from it, and it cannot be resumed")
    return RecoveryError("what stands there is no file of ours that was left unfinished")


async def new_upload(
    store: MultipartStore, source: DamagedObject, options: SinkOptions, lease: Lease | None, behind: Sequence[Any] = ()
) -> ObjectSink:
    """A new upload that begins with all bytes of an object and some `behind` them, and replaces it when complete."""
    key, info = source.key, source.info
    options = replace(options, mode="w", if_match=info.etag)
    # The last byte is not copied: the part that holds it is sent from here, as the newest checkpoint ends in it.
    async with copied_upload(store, key, info, max(0, info.size - 1), options, lease=lease) as begun:
        tail = await source.read_alike(ByteRange(begun.num_bytes, info.size))
        return await MultipartSink.resume(
            store, key, options, upload_id=begun.upload_id, parts=begun.parts, tail=[tail, *behind], lease=lease
        )
