"""Takes over the writing of an object on S3: first its lease, then what is stored. An async shell."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from resilient_pq.errors import (
    AlreadyExistsError,
    FormatError,
    KeyMissingError,
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
from resilient_pq.io.upload.lease import forget_epoch, told_of_loss
from resilient_pq.io.upload.upload_start import drop_upload, empty_uploads
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.resume.resume_upload import begins_with, cannot_resume, completable, complete_by_rule
from resilient_pq.recovery.uploads.open_uploads import object_there
from resilient_pq.recovery.uploads.upload_rule import size_of

if TYPE_CHECKING:
    from resilient_pq.encryption.encryption import Encryption, EncryptionOfEach

MAX_ROUNDS = 5  # How often all is looked at anew, since somebody else ended an upload or wrote the object meanwhile


@dataclass(frozen=True, slots=True)
class ResumeTarget:
    """What a caller says of an object whose writing is to be resumed; `logged` has file ids of uploads."""

    store: MultipartStore
    key: str
    upload_id: str | None
    overwrite: bool
    fencing: bool
    or_new: bool
    logged: Mapping[str, str]
    encryption: Encryption | EncryptionOfEach | None

    @property
    def replaces(self) -> bool:
        """Whether a new file may replace what stands there."""
        return self.or_new and self.overwrite


@dataclass(frozen=True, slots=True)
class ResumeState:
    """What is stored under a key at one moment."""

    found: FoundEpoch | None  # The epoch object
    standing: DamagedObject | None  # The object
    contents: Contents | None  # What the object holds; None where it is no file of a kind that we write
    listed: Sequence[UploadInfo]  # The uploads that are open for it
    candidates: Sequence[str]  # Of these the ids of those that may hold the file
    proven: Collection[str]  # Those of them that are proven to be of the file
    expected_id: str | None  # The id of the file in the epoch object; None where that has none

    @property
    def info(self) -> ObjectInfo | None:
        """What the object is."""
        return None if self.standing is None else self.standing.info

    @property
    def state(self) -> FileState | None:
        """What the object says of itself; None for what is none of our files."""
        return None if self.contents is None else self.contents.state

    @property
    def file_id(self) -> str | None:
        """The id of the file in the object, hexadecimal."""
        return hex_id(self.contents)

    @property
    def is_unfinished(self) -> bool:
        """Whether the object is what the writer continues, unless an upload has more."""
        return self.state is FileState.IN_PROGRESS and self.expected_id in (None, self.file_id)

    @property
    def is_appended(self) -> bool:
        """Whether rows were to be appended to the object, and an upload that begins with it is left."""
        base = None if self.found is None else self.found.epoch.base
        return base is not None and self.info is not None and self.info.etag == base and bool(self.candidates)

    @property
    def is_completed(self) -> bool:
        """Whether the epoch object belongs to the complete file that stands there."""
        known = self.state is FileState.COMPLETE and self.file_id is not None and self.expected_id == self.file_id
        return known and not self.is_appended

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored that could be continued."""
        return not self.candidates and not self.is_unfinished and self.found is None


async def look_at(target: ResumeTarget, found: FoundEpoch | None) -> ResumeState:
    """What is stored, of one moment."""
    for _ in range(MAX_ROUNDS - 1):
        with suppress(NotFoundError, ObjectChangedError):  # the object was replaced while it was read
            return await _look_once(target, found)
    return await _look_once(target, found)


async def _look_once(target: ResumeTarget, found: FoundEpoch | None) -> ResumeState:
    """What is stored: the uploads first, since one that is completed meanwhile is seen as an object."""
    store, key = target.store, target.key
    listed = [] if target.upload_id is not None else await store.uploads_of(key)
    there = await object_there(store, key)
    standing = None if there is None else pinned_object(store, there)
    contents = None if standing is None else await _contents(standing, target)
    ids = [each.upload_id for each in listed] if target.upload_id is None else [target.upload_id]
    file_id = hex_id(contents)
    proven = {upload for upload in ids if file_id is not None and target.logged.get(upload) == file_id}
    return _with_epoch(target, ResumeState(found, standing, contents, listed, ids, proven, None))


def _with_epoch(target: ResumeTarget, state: ResumeState) -> ResumeState:
    """What the epoch object adds: the id of the file, and which uploads are its."""
    expected = None if state.found is None else state.found.epoch.file_id
    if state.found is None or expected is None:
        return state
    named = [upload for upload in state.candidates if upload in state.found.epoch.uploads]
    if target.upload_id is not None and not named:
        return state
    if state.state is FileState.COMPLETE and state.file_id == expected and not state.is_appended:
        named = []
    elif state.state is FileState.IN_PROGRESS and state.file_id != expected and not named:
        expected = None  # nothing is stored of the file that was begun to replace this one
    return replace(state, candidates=named, proven={*state.proven, *named}, expected_id=expected)


def hex_id(contents: Contents | FormatError | None) -> str | None:
    """The id of a file, hexadecimal; None for files of others."""
    record = contents.footer.record if isinstance(contents, Contents) else None
    return None if record is None else record.file_id.hex()


def pinned_object(store: MultipartStore, info: ObjectInfo) -> DamagedObject:
    """An object at the version that was seen."""
    return DamagedObject(store, info.key, store.url_of(info.key), info, FetchCounters(), owns_store=False)


async def contents_of(
    source: DamagedObject, encryption: Encryption | EncryptionOfEach | None
) -> Contents | FormatError:
    """What a file says of itself, opened with the keys of its writer where it is encrypted."""
    if encryption is None:
        return await source.contents()
    from resilient_pq.recovery.resume.sealed_prefix import opened_contents  # noqa: PLC0415 (few files are encrypted)

    return await opened_contents(source, encryption)


async def _contents(source: DamagedObject, target: ResumeTarget) -> Contents | None:
    """What a file holds; None for what has no footer, or one of a kind that we do not write."""
    try:
        contents = await contents_of(source, target.encryption)
    except UnsupportedError as error:
        if target.encryption is not None and isinstance(error, KeyMissingError):
            raise  # it may be the file that is meant
        return None
    return contents if isinstance(contents, Contents) else None


log = logging.getLogger("resilient_pq.recovery")


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What a writer continues, if anything; a new file replaces another object that is `standing`."""

    source: DamagedObject | None
    contents: Contents | FormatError | None = None
    lease: Lease | None = None
    found: FoundEpoch | None = None
    standing: ObjectInfo | None = None


async def take_over(target: ResumeTarget) -> TakenOver:
    """Take the lease of an object, and find what its writer continues: the object, or what its upload makes."""
    state = await look_at(target, await find_epoch(target.store, target.key))
    if state.is_completed and state.found is not None and not target.replaces:
        await forget_epoch(target.store, target.key, state.found)
    _refuse_ended(target, state)
    if state.is_empty:
        return TakenOver(None, standing=state.info)
    lease = _new_lease(target, state) if target.fencing else None
    try:
        if lease is not None:
            await lease.take()
        async with told_of_loss(lease):
            return await _continue(target, state, lease)
    except BaseException:
        if lease is not None and state.found is None:
            await _release(lease)
        raise


def _new_lease(target: ResumeTarget, state: ResumeState) -> Lease:
    file_id = state.expected_id or (state.file_id if state.is_unfinished else None)
    standing = None if state.info is None else state.info.etag
    before = tuple(state.candidates)
    terms = LeaseTerms(file_id, exclusive=True, strict=True, found=state.found, before=before, standing=standing)
    return Lease(target.store, target.key, terms)


async def _release(lease: Lease) -> None:
    """Release a lease that names nothing that would not be found without it."""
    try:
        await lease.release()
    except (StoreError, UnsupportedError, WriterFencedError) as error:
        log.warning("an epoch object was not removed: %s", error)


def _refuse_ended(target: ResumeTarget, state: ResumeState) -> None:
    """Raise where another object has the name, and may not be replaced."""
    if state.standing is None or state.is_unfinished or (state.is_appended and not target.or_new):
        return
    what = "a complete file" if state.state is FileState.COMPLETE else "another object"
    if (not state.candidates or state.is_completed) and not target.or_new:
        raise cannot_resume(state.state)
    if target.overwrite:
        return
    if target.or_new:
        raise AlreadyExistsError(f"{what} has this name", hint="replace it: overwrite=True")
    raise AlreadyExistsError(
        f"{what} has the name that the upload {_only(target, state.candidates, state.proven)} is for",
        hint="replace it by what the upload holds: overwrite=True",
    )


async def _continue(target: ResumeTarget, first: ResumeState, lease: Lease | None) -> TakenOver:
    """Have the file as an object, and check that it is the file of the lease."""
    state, chosen, source = await _complete_best(target, first, lease)
    contents = None if source is None else await contents_of(source, target.encryption)
    if contents is not None:
        file_id = _checked_id(contents, first.expected_id)
        if isinstance(contents, Contents) and contents.state is FileState.COMPLETE:
            if lease is not None:
                await _release(lease)
            raise _completed_now(target, chosen)
        if lease is not None:
            lease.file_id = file_id
    standing = None if source is not None else state.info
    if lease is not None:
        lease.before = ()
        return TakenOver(source, contents, lease, lease.held, standing)
    if first.found is not None:
        await forget_epoch(target.store, target.key, first.found)  # it would name what is not continued
    return TakenOver(source, contents, standing=standing)


async def _complete_best(
    target: ResumeTarget, first: ResumeState, lease: Lease | None
) -> tuple[ResumeState, str | None, DamagedObject | None]:
    """Complete the upload that holds the most, where that is more than the object, and remove the others."""
    store, key, state = target.store, target.key, first
    for rounds in range(MAX_ROUNDS):
        try:
            chosen = await _choose_upload(target, state)
            source = state.standing if state.is_unfinished else None
            if chosen is not None:
                source = pinned_object(store, await complete_by_rule(store, key, chosen, state.info))
            if lease is not None:
                await _remove_leftovers(target, first, state, chosen)
            return state, chosen, source
        except (NotFoundError, AlreadyExistsError, ObjectChangedError):
            # Somebody who held the lease before ended the upload, or wrote the object, just now.
            if rounds + 1 == MAX_ROUNDS or target.upload_id is not None:
                raise
            state = await look_at(target, first.found)
            if state.is_completed and lease is not None:
                await _release(lease)
            _refuse_ended(target, state)
    raise AssertionError("the last round returns or raises")


async def _choose_upload(target: ResumeTarget, state: ResumeState) -> str | None:
    """The upload that holds more of the file than the object; None where none does."""
    held = {upload: await completable(target.store, target.key, upload) for upload in state.candidates}
    if state.standing is not None and state.is_unfinished:
        return await _choose_later(target, state, state.standing, held)
    holding = {upload: parts for upload, parts in held.items() if parts}
    if holding:
        return _only(target, sorted(holding, key=lambda upload: size_of(holding[upload])), state.proven)
    if held and not target.or_new and not state.proven:
        raise RecoveryError(
            f"the upload {_only(target, list(held), state.proven)} holds no checkpoint: there is nothing to resume",
            hint="abort it, and begin the file anew",
        )
    return None


async def _choose_later(
    target: ResumeTarget, state: ResumeState, standing: DamagedObject, held: Mapping[str, tuple[Part, ...]]
) -> str | None:
    """The upload that holds more of the file than an unfinished object; None where none does."""
    later = _later_uploads(target, standing.info.size, held)
    for upload in held.keys() - later.keys() - set(state.proven):
        log.warning("%s: the upload %s is left; it holds no later checkpoint", standing.url, upload)
    if not later:
        return None
    upload = _only(target, sorted(later, key=lambda upload: size_of(later[upload])), state.proven)
    is_shown = target.upload_id is not None or target.overwrite or upload in state.proven
    if not is_shown and not await begins_with(standing, later[upload][0]):
        raise RecoveryError(
            f"the object of {standing.info.size:,} bytes and the upload {upload} of {size_of(later[upload]):,} cannot"
            " be shown to be one file",
            hint=f"if they are: upload_id={upload!r}; to replace the object by the upload: overwrite=True",
        )
    return upload


def _later_uploads(
    target: ResumeTarget, size: int, held: Mapping[str, tuple[Part, ...]]
) -> dict[str, tuple[Part, ...]]:
    """The uploads that hold more than an object of some size; the chosen one anyhow where it may replace that."""
    replaces = target.upload_id is not None and target.overwrite
    later = {upload: parts for upload, parts in held.items() if replaces or size_of(parts) > size}
    if target.upload_id is not None and not later:
        raise RecoveryError(
            f"the upload {target.upload_id} holds no later checkpoint than the object of {size:,} bytes",
            hint="go on from the object: leave upload_id out; replace it all the same: overwrite=True",
        )
    return later


def _only(target: ResumeTarget, uploads: Sequence[str], proven: Collection[str]) -> str:
    """The one upload; of several that are proven to be of one file the last."""
    if len(uploads) > 1 and not set(uploads) <= set(proven):
        raise RecoveryError(
            "several uploads are open for this object",
            where=Where(key=target.store.url_of(target.key)),
            hint=f"choose one with upload_id=: {', '.join(uploads)}",
        )
    return uploads[-1]


def _completed_now(target: ResumeTarget, upload: str | None) -> RecoveryError | AlreadyExistsError:
    """The error where all of the file was sent, and its writer did not complete it, or does so just now."""
    if upload is not None:
        url = target.store.url_of(target.key)
        log.warning("%s: the upload %s held the whole file: it is complete now", url, upload)
    if not target.or_new:
        return cannot_resume(FileState.COMPLETE)
    return AlreadyExistsError("the file is complete: its writer had sent all of it", hint="write another one beside it")


def _checked_id(contents: Contents | FormatError, expected: str | None) -> str | None:
    """The id of the file that is continued; raises where it is another one than that of the epoch object."""
    file_id = hex_id(contents)
    if expected is not None and file_id is not None and file_id != expected:
        raise RecoveryError(
            "what was left is another file than that of its epoch object", hint="see what is there: rpq uploads show"
        )
    return file_id


async def _remove_leftovers(target: ResumeTarget, first: ResumeState, state: ResumeState, chosen: str | None) -> None:
    """Abort the uploads of earlier epochs, and those that hold nothing and were begun after the file."""
    # The one that held most is completed, and all were listed before the lease was taken: so nobody can complete one of
    # them any more, or be told that anything is stored in it.
    if first.found is None:
        return
    store, key, epoch = target.store, target.key, first.found.epoch
    for each in state.listed:
        if each.upload_id in epoch.uploads and each.upload_id != chosen:
            await store.abort_upload(key, each.upload_id)
            log.info("%s: the upload %s of an earlier epoch was removed", store.url_of(key), each.upload_id)
    now = {each.upload_id for each in state.listed}
    unnamed = [each for each in first.listed if each.upload_id in now - set(epoch.uploads)]
    empty = await empty_uploads(store, unnamed, epoch)
    for each in unnamed:
        if each.upload_id not in empty:
            log.warning("%s: the upload %s is left; it is of another writer", store.url_of(key), each.upload_id)
            continue
        await drop_upload(store, key, each.upload_id)
