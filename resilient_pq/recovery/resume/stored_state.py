"""What is stored of an object on S3 that is being written: the object, its uploads, its epoch. An async shell."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from resilient_pq.errors import FormatError, KeyMissingError, NotFoundError, ObjectChangedError, UnsupportedError
from resilient_pq.io import FetchCounters, FoundEpoch, MultipartStore, ObjectInfo, UploadInfo
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.uploads.open_uploads import object_there

if TYPE_CHECKING:
    from resilient_pq.encryption.encryption import Encryption, EncryptionOfEach

MAX_ROUNDS = 5  # How often all is looked at anew, since somebody else ended an upload or wrote the object meanwhile


@dataclass(frozen=True, slots=True)
class ResumeTarget:
    """What a caller says of an object whose writing is to be resumed; `logged` has file ids of uploads."""

    store: MultipartStore
    key: str
    upload_id: str | None = None
    overwrite: bool = False
    fencing: bool = True
    or_new: bool = False
    logged: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    encryption: Encryption | EncryptionOfEach | None = None

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
