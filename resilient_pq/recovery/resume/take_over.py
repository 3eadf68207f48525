"""Who goes on with an object on S3, and from where: the lease taken, then what is stored seen. An async shell.

The order is what matters. The lease is taken before the parts of any upload are listed: all that the writer before was
told to be stored is in them then, and it is told so of nothing more.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

from resilient_pq.errors import (
    AlreadyExistsError,
    FormatError,
    NotFoundError,
    ObjectChangedError,
    RecoveryError,
    StoreError,
    UnsupportedError,
    Where,
    WriterFencedError,
)
from resilient_pq.io import (
    FetchCounters,
    FoundEpoch,
    Lease,
    LeaseTerms,
    MultipartStore,
    ObjectInfo,
    Part,
    UploadInfo,
    find_epoch,
)
from resilient_pq.io.upload.abandoned_uploads import drop_upload, empty_uploads
from resilient_pq.io.upload.lease import forget_epoch, told_of_loss
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.resume.resume_upload import begins_with, completable, complete_by_rule, ended
from resilient_pq.recovery.uploads.open_uploads import object_there
from resilient_pq.recovery.uploads.upload_rule import size_of

log = logging.getLogger("resilient_pq.recovery")

#: How often all is looked at anew, since somebody else ended an upload or wrote the object meanwhile.
_MAX_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller says of an object that is to be gone on with.

    Attributes:
        store: Where it is.
        key: Its key.
        upload_id: The upload that the caller chose; None where there is only one.
        overwrite: Whether another object may be replaced.
        fencing: Whether the lease is to be taken.
        or_new: Whether a new file is begun where nothing is stored.
        logged: File ids of uploads, hexadecimal, as a log of checkpoints tells them: proof of which file they are.
    """

    store: MultipartStore
    key: str
    upload_id: str | None = None
    overwrite: bool = False
    fencing: bool = True
    or_new: bool = False
    logged: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What is gone on from.

    Attributes:
        source: The unfinished object; None where nothing is stored.
        contents: What it holds, or what is wrong with it.
        lease: Held, where there is something to go on with; None without fencing.
        found: The epoch object as it is now; None where there is none.
        standing: Another object, which a new file replaces; None where there is none.
    """

    source: DamagedObject | None
    contents: Contents | FormatError | None = None
    lease: Lease | None = None
    found: FoundEpoch | None = None
    standing: ObjectInfo | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What lies there.

    Attributes:
        found: The epoch object.
        standing: The object.
        state: Of the file in it; None for what is none of ours.
        file_id: Of the file in it, hexadecimal.
        listed: The uploads that are open for it.
        candidates: Of these the ids of those that may hold the file.
        known: Those of them that are known to be of the file.
        expected_id: The id of the file, by the epoch object; None where that does not tell.
    """

    found: FoundEpoch | None
    standing: DamagedObject | None
    state: FileState | None
    file_id: str | None
    listed: Sequence[UploadInfo]
    candidates: Sequence[str]
    known: Collection[str]
    expected_id: str | None

    @property
    def info(self) -> ObjectInfo | None:
        return None if self.standing is None else self.standing.info

    @property
    def is_unfinished(self) -> bool:
        """Whether the object is what is gone on with, unless an upload has more."""
        return self.state is FileState.IN_PROGRESS and self.expected_id in (None, self.file_id)

    @property
    def is_completed(self) -> bool:
        """Whether the epoch object is left of the complete file that stands there."""
        return self.state is FileState.COMPLETE and self.file_id is not None and self.expected_id == self.file_id


async def take_over(wanted: Wanted) -> TakenOver:
    """Take the lease of an object, and find where it is gone on from: what stands there, or what its upload makes."""
    seen = await _look(wanted, await find_epoch(wanted.store, wanted.key))
    if seen.is_completed and seen.found is not None and not (wanted.or_new and wanted.overwrite):
        await forget_epoch(wanted.store, wanted.key, seen.found)
    _refuse_ended(wanted, seen)
    if not seen.candidates and not seen.is_unfinished and seen.found is None:
        return TakenOver(None, standing=seen.info)
    lease: Lease | None = None
    try:
        if wanted.fencing:
            file_id = seen.expected_id or (seen.file_id if seen.is_unfinished else None)
            etag = None if seen.info is None else seen.info.etag
            before = tuple(seen.candidates)
            terms = LeaseTerms(file_id, exclusive=True, strict=True, found=seen.found, before=before, standing=etag)
            lease = Lease(wanted.store, wanted.key, terms)
            await lease.take()
        async with told_of_loss(lease):
            return await _gone_on_with(wanted, seen, lease)
    except BaseException:
        if lease is not None and seen.found is None:
            await _let_go(lease)
        raise


async def _let_go(lease: Lease) -> None:
    """Of a lease that names nothing that was not to be found without it."""
    try:
        await lease.release()
    except (StoreError, UnsupportedError, WriterFencedError) as error:
        log.warning("an epoch object was not removed: %s", error)


async def _look(wanted: Wanted, found: FoundEpoch | None) -> _Seen:
    """What lies there, of one moment."""
    for _ in range(_MAX_ROUNDS - 1):
        with suppress(NotFoundError, ObjectChangedError):  # the object was replaced while it was read
            return await _look_once(wanted, found)
    return await _look_once(wanted, found)


async def _look_once(wanted: Wanted, found: FoundEpoch | None) -> _Seen:
    """What lies there: the uploads first, since one that is completed meanwhile is seen as an object."""
    store, key = wanted.store, wanted.key
    listed = [] if wanted.upload_id is not None else await store.uploads_of(key)
    there = await object_there(store, key)
    standing = None if there is None else _source(store, there)
    contents = None if standing is None else await _contents(standing)
    state = None if contents is None else contents.state
    record = None if contents is None else contents.footer.record
    file_id = None if record is None else record.file_id.hex()
    ids = [each.upload_id for each in listed] if wanted.upload_id is None else [wanted.upload_id]
    known = {upload for upload in ids if file_id is not None and wanted.logged.get(upload) == file_id}
    expected = None if found is None else found.epoch.file_id
    if found is None or expected is None:
        return _Seen(found, standing, state, file_id, listed, ids, known, None)
    named = [upload for upload in ids if upload in found.epoch.uploads]
    if wanted.upload_id is not None and not named:
        return _Seen(found, standing, state, file_id, listed, ids, known, None)
    if state is FileState.COMPLETE and file_id == expected:
        named = []
    elif state is FileState.IN_PROGRESS and file_id != expected and not named:
        expected = None  # nothing is stored of the file that was begun to replace this one
    return _Seen(found, standing, state, file_id, listed, named, known | set(named), expected)


def _refuse_ended(wanted: Wanted, seen: _Seen) -> None:
    """Raise where another object has the name, and may not be replaced."""
    if seen.standing is None or seen.is_unfinished:
        return
    what = "a complete file" if seen.state is FileState.COMPLETE else "another object"
    if (not seen.candidates or seen.is_completed) and not wanted.or_new:
        raise ended(seen.state)
    if wanted.overwrite:
        return
    if wanted.or_new:
        raise AlreadyExistsError(f"{what} has this name", hint="replace it: overwrite=True")
    raise AlreadyExistsError(
        f"{what} has the name that the upload {_only(wanted, seen.candidates, seen.known)} is for",
        hint="replace it by what the upload holds: overwrite=True",
    )


async def _gone_on_with(wanted: Wanted, seen: _Seen, lease: Lease | None) -> TakenOver:
    """Complete the upload that holds the most, where that is more than what stands there, and remove the others."""
    store, key = wanted.store, wanted.key
    first, source, chosen, contents = seen, None, None, None
    for rounds in range(_MAX_ROUNDS):
        try:
            chosen = await _chosen(wanted, seen)
            source = seen.standing if seen.is_unfinished else None
            if chosen is not None:
                source = _source(store, await complete_by_rule(store, key, chosen, seen.info))
            if lease is not None:
                await _without_leftovers(wanted, first, seen, chosen)
            break
        except (NotFoundError, AlreadyExistsError, ObjectChangedError):
            # Somebody who held the lease before ended the upload, or wrote the object, just now.
            if rounds + 1 == _MAX_ROUNDS or wanted.upload_id is not None:
                raise
            seen = await _look(wanted, first.found)
            if seen.is_completed and lease is not None:
                await _let_go(lease)
            _refuse_ended(wanted, seen)
    if source is not None:
        contents = await source.contents()
        file_id = _file_id_of(contents, first.expected_id)
        if isinstance(contents, Contents) and contents.state is FileState.COMPLETE:
            if lease is not None:
                await _let_go(lease)
            raise _completed_now(wanted, chosen)
        if lease is not None:
            lease.file_id = file_id
    standing = None if source is not None else seen.info
    if lease is not None:
        lease.before = ()
        return TakenOver(source, contents, lease, lease.held, standing)
    if first.found is not None:
        await forget_epoch(store, key, first.found)  # it would name what is not gone on with
    return TakenOver(source, contents, standing=standing)


async def _chosen(wanted: Wanted, seen: _Seen) -> str | None:
    """The upload that holds more of the file than what stands there; None where none does."""
    store, key = wanted.store, wanted.key
    found = {upload: await completable(store, key, upload) for upload in seen.candidates}
    if seen.standing is None or not seen.is_unfinished:
        holding = {upload: parts for upload, parts in found.items() if parts}
        if not holding:
            if found and not wanted.or_new and not seen.known:
                raise RecoveryError(
                    f"the upload {_only(wanted, list(found), seen.known)} holds no checkpoint: there is nothing to go"
                    " on with",
                    hint="abort it, and begin the file anew",
                )
            return None
        return _only(wanted, sorted(holding, key=lambda upload: size_of(holding[upload])), seen.known)
    return await _later(wanted, seen, seen.standing, found)


async def _later(
    wanted: Wanted, seen: _Seen, standing: DamagedObject, found: Mapping[str, tuple[Part, ...]]
) -> str | None:
    """Of an unfinished object and the uploads for its key the one that holds most of the file; None for the object."""
    size, chosen = standing.info.size, wanted.upload_id is not None
    later = {upload: parts for upload, parts in found.items() if size_of(parts) > size}
    if chosen and wanted.overwrite:
        later = dict(found)
    if chosen and not later:
        raise RecoveryError(
            f"the upload {wanted.upload_id} holds no later checkpoint than the object of {size:,} bytes",
            hint="go on from the object: leave upload_id out; replace it all the same: overwrite=True",
        )
    for upload in found.keys() - later.keys() - set(seen.known):
        log.warning("%s: the upload %s is left; it holds no later checkpoint", standing.url, upload)
    if not later:
        return None
    upload = _only(wanted, sorted(later, key=lambda upload: size_of(later[upload])), seen.known)
    shown = chosen or wanted.overwrite or upload in seen.known
    if not shown and not await begins_with(standing, later[upload][0]):
        held = size_of(later[upload])
        raise RecoveryError(
            f"the object of {size:,} bytes and the upload {upload} of {held:,} cannot be shown to be one file",
            hint=f"if they are: upload_id={upload!r}; to replace the object by the upload: overwrite=True",
        )
    return upload


def _only(wanted: Wanted, uploads: Sequence[str], known: Collection[str]) -> str:
    """The one upload; of several that are known to be of one file the last, which is to be that which holds most."""
    if len(uploads) > 1 and not set(uploads) <= set(known):
        raise RecoveryError(
            "several uploads are open for this object",
            where=Where(key=wanted.store.url_of(wanted.key)),
            hint=f"choose one with upload_id=: {', '.join(uploads)}",
        )
    return uploads[-1]


def _completed_now(wanted: Wanted, upload: str | None) -> RecoveryError | AlreadyExistsError:
    """The error where all of the file was sent, and its writer did not complete it, or does so just now."""
    if upload is not None:
        url = wanted.store.url_of(wanted.key)
        log.warning("%s: the upload %s held the whole file: it is complete now", url, upload)
    if not wanted.or_new:
        return ended(FileState.COMPLETE)
    return AlreadyExistsError("the file is complete: its writer had sent all of it", hint="write another one beside it")


def _file_id_of(contents: Contents | FormatError, expected: str | None) -> str | None:
    """The id of the file that is gone on with."""
    record = contents.footer.record if isinstance(contents, Contents) else None
    file_id = None if record is None else record.file_id.hex()
    if expected is not None and file_id is not None and file_id != expected:
        raise RecoveryError(
            "what was left is another file than that of its epoch object",
            hint="see what is there: rpq uploads resume-info",
        )
    return file_id


async def _without_leftovers(wanted: Wanted, first: _Seen, seen: _Seen, chosen: str | None) -> None:
    """Abort what is left of earlier epochs, and holds no row more.

    Those that the epoch object named, since the one of them that held most is completed: their writers can complete
    nothing any more. And those that hold nothing at all, and were begun since the file was. All were listed before the
    lease was taken, so that nobody can be told any more that anything is stored in them.
    """
    if first.found is None:
        return
    store, key, epoch = wanted.store, wanted.key, first.found.epoch
    for each in seen.listed:
        if each.upload_id in epoch.uploads and each.upload_id != chosen:
            await store.abort_upload(key, each.upload_id)
            log.info("%s: the upload %s of an earlier epoch was removed", store.url_of(key), each.upload_id)
    now = {each.upload_id for each in seen.listed}
    unnamed = [each for each in first.listed if each.upload_id in now - set(epoch.uploads)]
    empty = await empty_uploads(store, unnamed, epoch)
    for each in unnamed:
        if each.upload_id not in empty:
            log.warning("%s: the upload %s is left; it is of another writer", store.url_of(key), each.upload_id)
            continue
        await drop_upload(store, key, each.upload_id)


def _source(store: MultipartStore, info: ObjectInfo) -> DamagedObject:
    return DamagedObject(store, info.key, store.url_of(info.key), info, FetchCounters(), owns_store=False)


async def _contents(source: DamagedObject) -> Contents | None:
    """What a file holds; None for what has no footer, or one of a kind that we do not write."""
    try:
        contents = await source.contents()
    except UnsupportedError:
        return None
    return contents if isinstance(contents, Contents) else None
