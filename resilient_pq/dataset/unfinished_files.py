"""What a sink that crashed left of its files: completed, and what is stored of each partition. An async shell.

Locally the last record of a ``NAME.partial`` that is whole is where the file ends: what is torn behind it is cut off, a
final footer written, and the file gets its name. On S3 the open upload is completed up to its newest checkpoint. No
data are copied, and none but footers are read.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from resilient_pq.dataset.naming import FilePlace, NamedFile, Naming
from resilient_pq.dataset.sink_state import Begun, DatasetFile, Partition
from resilient_pq.errors import (
    AlreadyExistsError,
    NotFoundError,
    RecoveryError,
    UnsupportedError,
    Where,
    located,
)
from resilient_pq.io import (
    FetchCounters,
    Lease,
    LocalStore,
    MultipartStore,
    SinkOptions,
    WriteStore,
    find_epoch,
    folder_prefix,
)
from resilient_pq.io.cancellation import all_or_none
from resilient_pq.io.upload.lease import taken_over, told_of_loss
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import FileState
from resilient_pq.reader.opening import open, read_contents
from resilient_pq.recovery.damaged_object import TAIL_BYTES
from resilient_pq.recovery.resume.resume_file import resume
from resilient_pq.recovery.resume.resume_local import was_torn_at_once
from resilient_pq.recovery.resume.resume_upload import completed_upload, parts_or_aborted
from resilient_pq.writer.dictionary_use import KnownChoices

if TYPE_CHECKING:
    from resilient_pq.encryption.encryption import Encryption, EncryptionOfEach

#: Files that are completed, or footers that are read, at one time.
_MAX_CONCURRENCY: Final = 16

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class DatasetFolder:
    """The folder of a data set."""

    store: WriteStore  # where it is
    key: str  # its key
    naming: Naming  # the names of one sink in it
    encryption: Encryption | EncryptionOfEach | None = None  # of its files

    @property
    def url(self) -> str:
        """The folder, for people."""
        return self.store.url_of(self.key)

    def key_of(self, relative: str) -> str:
        """The key of what has a name below the folder."""
        return self.store.beside(f"{folder_prefix(self.key)}_", relative)

    async def found(self) -> FoundFiles:
        """The files of the sink, and those that it did not finish."""
        # Uploads first: one that is completed meanwhile, by a request that was still on its way, is seen as a file.
        unfinished = await self._uploads()
        names = await self.store.list_names(self.key)
        named = [found for name in names if (found := self._understood(name))]
        complete = [found for found in named if not found.partial]
        unfinished += [found for found in named if found.partial and isinstance(self.store, LocalStore)]
        with located(Where(key=self.url)):
            epochs = [found for name in names if (found := self.naming.of_epoch(name))]
        return FoundFiles(complete, unfinished, epochs if isinstance(self.store, MultipartStore) else [])

    async def _uploads(self) -> list[NamedFile]:
        if not isinstance(self.store, MultipartStore) or not self.store.capabilities.list_parts:
            return []
        prefix = folder_prefix(self.key)
        named = [
            (self._understood(upload.key.removeprefix(prefix)), upload)
            for upload in await self.store.list_uploads(prefix)
        ]
        return [replace(found, upload_id=upload.upload_id) for found, upload in named if found]

    def _understood(self, name: str) -> NamedFile | None:
        with located(Where(key=self.url)):
            return self.naming.understood(name)


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What lies in the folder of one sink."""

    complete: Sequence[NamedFile]  # files
    unfinished: Sequence[NamedFile]  # those that it did not finish: each ``NAME.partial``, or an upload
    #: Those that have an epoch object: their uploads were open a moment ago, or their sink was killed.
    epochs: Sequence[NamedFile]


async def refuse_existing(folder: DatasetFolder) -> None:
    """Raise where there is a file of the sink already."""
    if not folder.store.capabilities.list_names:
        return  # each file is refused where one of its name exists
    there = await folder.found()
    for found in (*there.complete, *there.unfinished, *there.epochs):
        raise AlreadyExistsError(
            f"the data set has files of the name {folder.naming.name!r} already",
            where=Where(key=folder.store.url_of(folder.key_of(found.relative))),
            hint="continue it with `rpq write --resume` (rpq.resume_dataset), or write beside it with another name=",
        )


async def complete_unfinished(folder: DatasetFolder) -> Begun:
    """Complete what a sink left, and see what is stored of each partition."""
    there = await folder.found()
    # Before the parts of any upload are listed: what the sink before was told to be stored is in them then. And before
    # the uploads are: it begins none afterwards that it could complete.
    epochs = there.epochs
    leases = await side_by_side(epochs, lambda each: _taken(folder, each))
    if leases:
        there = await folder.found()
    newest = {found.partition: found for found in sorted(there.complete, key=lambda each: each.sequence)}
    unfinished = await _without_conflicts(folder, newest, there.unfinished)
    held = {epoch.relative: lease for epoch, lease in zip(epochs, leases, strict=True)}
    done = await side_by_side(unfinished, lambda each: _complete(folder, each, held.get(each.relative)))
    ended = [each for each, kept in zip(unfinished, done, strict=True) if kept]
    newest |= {found.partition: found for found in ended}
    choices = KnownChoices()
    files = await side_by_side(newest.values(), lambda each: _read(folder, each, choices))
    partitions = {
        file.partition: Partition(file.partition, file.sequence + 1, file.first_row + file.num_rows) for file in files
    }
    await side_by_side([lease for lease in leases if lease is not None], lambda lease: lease.release())
    made = {(found.partition, found.sequence) for found in ended}
    completed = [file for file in files if (file.partition, file.sequence) in made]
    return Begun(partitions, completed, choices, [*there.complete, *ended])


async def _taken(folder: DatasetFolder, file: NamedFile) -> Lease | None:
    """The lease of a file, from its sink; None where it is gone."""
    store, key = folder.store, folder.key_of(file.relative)
    assert isinstance(store, MultipartStore)
    found = await find_epoch(store, key)
    return None if found is None else await taken_over(store, key, found)


async def _without_conflicts(
    folder: DatasetFolder, newest: Mapping[str, NamedFile], unfinished: Sequence[NamedFile]
) -> list[NamedFile]:
    """Those that are completed: of each partition one at most, behind all its files."""
    by_partition: defaultdict[str, list[NamedFile]] = defaultdict(list)
    for each in unfinished:
        by_partition[each.partition].append(each)
    kept = []
    for partition, left in by_partition.items():
        last = newest[partition].sequence if partition in newest else -1
        used = left
        if len(left) > 1 or left[0].sequence <= last:
            used = [each for each in left if not await _was_empty(folder, each)]
        if len(used) > 1 or (used and used[0].sequence <= last):
            raise _two_sinks(folder, used[0])
        kept += used
    return kept


async def _was_empty(folder: DatasetFolder, unfinished: NamedFile) -> bool:
    """Whether nothing was left after all: an upload without a checkpoint is aborted, a second name removed."""
    store, key = folder.store, folder.key_of(unfinished.relative)
    try:
        if isinstance(store, LocalStore):
            sink = await store.reopen(key)
            await sink.keep()
            return False
        assert isinstance(store, MultipartStore) and unfinished.upload_id is not None
        return await parts_or_aborted(store, key, unfinished.upload_id) is None
    except NotFoundError:  # gone since it was listed
        return True


def _two_sinks(folder: DatasetFolder, unfinished: NamedFile) -> RecoveryError:
    url = folder.store.url_of(folder.key_of(unfinished.relative))
    what = f"{url}.partial" if unfinished.upload_id is None else f"the upload {unfinished.upload_id}"
    return RecoveryError(
        f"two sinks of the name {folder.naming.name!r} have written: {what} holds rows of a file that is there already,"
        " or that is begun twice",
        where=Where(key=url),
        hint="see which of the two has the rows that count; remove the other one, and resume again",
    )


async def _complete(folder: DatasetFolder, unfinished: NamedFile, lease: Lease | None) -> bool:
    """Make a finished file of it; False where no row of it was stored, and nothing is left of it then."""
    store, key = folder.store, folder.key_of(unfinished.relative)
    with located(Where(key=store.url_of(key))):
        if isinstance(store, LocalStore):
            return await _complete_local(store, key, folder.encryption)
        assert isinstance(store, MultipartStore) and unfinished.upload_id is not None
        if folder.encryption is not None:
            raise UnsupportedError(
                "the upload of an encrypted file was left open, and a data set does not complete it",
                hint="complete the file: open it with rpq.resume and the same encryption=, close it, and resume again",
            )
        async with told_of_loss(lease):
            return await completed_upload(store, key, unfinished.upload_id) is not None


async def _complete_local(store: LocalStore, key: str, encryption: Encryption | EncryptionOfEach | None) -> bool:
    try:
        writer = await resume((store, key), encryption=encryption)
    except RecoveryError:
        if not await was_torn_at_once(store, key):
            raise
        sink = await store.reopen(key, SinkOptions(mode="x"))
        await sink.abort()
        return False
    if writer.num_rows:
        await writer.close()
        return True
    await writer.abort()
    return False


async def _read(folder: DatasetFolder, found: NamedFile, choices: KnownChoices) -> DatasetFile:
    """What the newest file of a partition says of itself."""
    store, key = folder.store, folder.key_of(found.relative)
    url = store.url_of(key)
    with located(Where(key=url)):
        if folder.encryption is None:
            info, contents = await read_contents(store, key, tail_bytes=TAIL_BYTES, counters=FetchCounters())
        else:
            async with open((store, key), **folder.encryption.reading()) as file:
                info, contents = await store.head(key), file.contents
    place = FilePlace.of(found.partition, folder.naming.name, contents.key_value)
    whole = contents.state in (FileState.COMPLETE, FileState.IN_PROGRESS)
    if place is None or place.sequence != found.sequence or not whole:
        raise RecoveryError(
            "the newest file of its partition does not say how many rows are stored before it",
            where=Where(key=url),
            hint="it is no file of this sink, or was made anew since; begin beside it: create_dataset with another"
            " name=",
        )
    choices.note(contents.metadata)
    return DatasetFile(url, found.partition, found.sequence, place.first_row, contents.num_rows, info.size)


async def side_by_side(items: Iterable[T], work: Callable[[T], Coroutine[Any, Any, R]]) -> list[R]:
    """What is made of each, a few at a time."""
    slots = asyncio.Semaphore(_MAX_CONCURRENCY)

    async def one(item: T) -> R:
        async with slots:
            return await work(item)

    return await all_or_none(map(one, items))
