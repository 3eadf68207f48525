"""A file that is read while it is written: row groups as checkpoints appear, until it is complete. An async shell."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from resilient_pq.arrow.types.field import Field
from resilient_pq.errors import (
    NotFoundError,
    ObjectChangedError,
    TornFileError,
    UnsupportedError,
    Where,
    located,
)
from resilient_pq.format.footer import Footer
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.io import FetchCounters, GrowingStore, ObjectInfo, ObjectTail, ReadStore, counting
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.decoder import RowGroupArrays
from resilient_pq.reader.file import File
from resilient_pq.reader.newest_footer import Asking, newest_footer
from resilient_pq.reader.opening import read_contents
from resilient_pq.reader.read_options import FollowOptions, ReadSettings
from resilient_pq.reader.read_plan import ReadQuery
from resilient_pq.reader.streaming import Arriving, Jobs, read_ahead
from resilient_pq.shell_commands import in_shell

#: Kinds of the records behind whose footers more row groups may come.
_MORE_TO_COME = (RecordKind.ANCHOR, RecordKind.CHECKPOINT)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The newest footer found so far."""

    info: ObjectInfo  # The object, as it was then
    contents: Contents  # The footer

    @property
    def complete(self) -> bool:
        """Whether no more row groups come; those of other libraries' files never do."""
        record = self.contents.footer.record
        return record is None or record.kind not in _MORE_TO_COME


class GrowingFile(File):
    """A `File` whose writer is still at work; made by `open` with ``follow=``.

    What it says of itself, and what `read` gives, is as of the newest checkpoint that was found. `batches` goes on to
    the next ones as they appear, and ends when the file is complete.
    """

    def __init__(self, watch: Watch, seen: _Seen, how: ReadSettings, *, owns_store: bool) -> None:
        """Use `open` instead."""
        self._watch = watch
        self._how = how
        self._owning = owns_store
        self._become(seen)

    @classmethod
    async def now(cls, watch: Watch, how: ReadSettings) -> GrowingFile | None:
        """The file as of its newest checkpoint, without waiting; None where it has no schema yet."""
        seen = await watch.look(None, None)
        return None if seen is None else cls(watch, seen, how, owns_store=False)

    async def refresh(self) -> None:
        """Become the file as of a newer checkpoint, where there is one."""
        if not self._seen.complete and (seen := await self._watch.look(self._seen, self._seen)) is not None:
            self._become(seen)

    async def has_moved(self) -> bool:
        """Become the file wherever it is by now; whether that is elsewhere, or another version."""
        before = self._seen.info
        self._become(await self._watch.again(self._seen))
        return self._seen.info != before

    def _become(self, seen: _Seen) -> None:
        """Become the file with a newer footer."""
        self._seen = seen
        how = self._how
        super().__init__(
            self._watch.store,
            ObjectTail(seen.info, seen.info.size, b""),  # indexes are read where they lie
            seen.contents,
            how,
            counters=self._watch.counters,
            owns_store=self._owning,
        )

    def _arriving(self, query: ReadQuery) -> tuple[Callable[[], Field], Arriving]:
        if query.row_groups is not None:
            return super()._arriving(query)
        field, _ = self.jobs(replace(query, row_groups=[]))
        return field, self._follow(query)

    async def _follow(self, query: ReadQuery) -> AsyncGenerator[RowGroupArrays, None]:
        """The rows of all row groups, of those that are to come when their checkpoint is there."""
        given = row_groups_before([self], self._watch.follow.last_rows)[0]
        while True:
            if given < self.num_row_groups:
                known = self.num_row_groups
                _, jobs = self.jobs(replace(query, row_groups=range(given, known), limit=None))
                order: deque[int] = deque()
                try:
                    async with aclosing(read_ahead(note_ordinals(jobs, order), self._options.fetch)) as arriving:
                        async for rows in arriving:
                            yield rows
                            given = order.popleft() + 1
                    given = known  # filters may have left out the last ones
                except (NotFoundError, ObjectChangedError):
                    # It may have got its name meanwhile, or a writer that took it over may have cut off its end.
                    if not await self.has_moved():
                        raise
            elif self._seen.complete:
                return
            else:
                self._become(await self._watch.newer(self._seen))


def row_groups_before(files: Sequence[File], last_rows: int | None) -> list[int]:
    """How many row groups of each file lie wholly before the last rows of all; none where all rows are wanted."""
    left = 0 if last_rows is None else sum(file.num_rows for file in files) - last_rows
    found = []
    for file in files:
        before = 0
        for group in file.metadata.row_groups:
            left -= group.num_rows
            before += left >= 0
        found.append(before)
    return found


async def note_ordinals(jobs: Jobs, order: deque[int]) -> Jobs:
    """The same jobs, and the ordinals of their row groups in `order`."""
    async with aclosing(jobs):
        async for job in jobs:
            order.extend(group.ordinal for group in job.batch.row_groups)
            yield job


class Watch:
    """Looks at one object until it has something new."""

    def __init__(self, store: ReadStore, key: str, how: ReadSettings, follow: FollowOptions) -> None:
        """Refuse a store that shows no object before it is complete."""
        if not isinstance(store, GrowingStore):
            raise UnsupportedError(
                f"{store.name} shows no object before it is complete, so that it cannot be followed",
                where=Where(key=store.url_of(key)),
                hint="follow a local file, or open the object when it is complete",
            )
        self.store: GrowingStore = store  # Where it is
        self.counters = FetchCounters()  # Added to
        self._key = key
        self._unfinished = store.unfinished_key(key)
        self._how = how
        self.follow = follow  # How often to look, and with which rows to begin

    async def first(self) -> _Seen:
        """The file as it is now; waits for a schema where its writer has written nothing yet."""
        return await self._until_new(None)

    async def newer(self, seen: _Seen) -> _Seen:
        """The file as soon as it has more row groups, or is complete."""
        return await self._until_new(seen)

    async def again(self, seen: _Seen) -> _Seen:
        """The file wherever it is by now, with the same row groups or more."""
        found = await self.look(None, seen)
        if found is None or len(found.contents.metadata.row_groups) < len(seen.contents.metadata.row_groups):
            raise ObjectChangedError(
                "rows were taken back that had been stored", where=Where(key=self.store.url_of(self._key))
            )
        return found

    async def _until_new(self, seen: _Seen | None) -> _Seen:
        alone = False
        while True:
            found = await self.look(seen, seen)
            if found is not None:
                return found
            # Twice, with a look between: one who begins, ends or takes over holds the file only a moment later.
            if await self._has_writer():
                alone = False
            elif alone:
                raise self._abandoned(seen)
            else:
                alone = True
            await self.follow.wait(self.follow.poll_seconds)

    async def look(self, since: _Seen | None, known: _Seen | None) -> _Seen | None:
        """The newest footer, where it is newer than `since`; it has to be of the same file as `known`."""
        try:
            found = await self._look_at_unfinished(since)
        except NotFoundError:
            found = await self._look_at_complete(since, known)
        if found is not None and known is not None and not _is_same_file(found, known):
            raise ObjectChangedError(
                "another file took the place of the one that was followed",
                where=Where(key=self.store.url_of(found.info.key)),
            )
        return found

    async def _look_at_unfinished(self, since: _Seen | None) -> _Seen | None:
        with counting(self.counters):
            self.counters.requests += 1
            info = await self.store.head(self._unfinished)
        if since is not None and info == since.info:
            return None
        record = None if since is None else since.contents.footer.record
        asking = newest_footer(info.size, 0 if record is None else record.offset)
        try:
            with located(Where(key=self.store.url_of(info.key))):
                footer = await self._answer(asking, info)
        except ObjectChangedError:
            return None  # a writer that took it over has cut off its end just now
        return None if footer is None else _Seen(info, Contents.of(footer))

    async def _answer(self, asking: Asking, info: ObjectInfo) -> Footer | None:
        """Send a search the bytes that it asks for; gives its result."""
        try:
            wanted = next(asking)
            while True:
                data = await self.store.read_range(info.key, wanted.start, wanted.end, pin=info)
                self.counters.requests += 1
                self.counters.bytes += len(data)
                wanted = asking.send(memoryview(data))
        except StopIteration as stop:
            found: Footer | None = stop.value
            return found

    async def _look_at_complete(self, since: _Seen | None, known: _Seen | None) -> _Seen | None:
        url = self.store.url_of(self._key)
        try:
            with located(Where(key=url)):
                info, contents = await read_contents(
                    self.store,
                    self._key,
                    tail_bytes=self._how.options.tail_bytes,
                    counters=self.counters,
                    verify=self._how.verify,
                )
        except NotFoundError as error:
            if known is None:
                raise
            raise NotFoundError("the writer gave the file up: it is there no more", where=Where(key=url)) from error
        return None if since is not None and info == since.info else _Seen(info, contents)

    async def _has_writer(self) -> bool:
        """Whether a writer may still add rows; True where that is not known."""
        try:
            return await self.store.has_writer(self._unfinished) is not False
        except NotFoundError:
            return False

    def _abandoned(self, seen: _Seen | None) -> TornFileError:
        url = self.store.url_of(self._unfinished)
        rows = 0 if seen is None else seen.contents.num_rows
        return TornFileError(
            f"its writer has ended and did not complete it: {rows:,} rows were in its newest checkpoint",
            where=Where(key=url),
            hint=f"continue it with `rpq resume` (rpq.resume), or get its rows: {in_shell('recover', url, 'OUTPUT')}",
        )


def _is_same_file(found: _Seen, known: _Seen) -> bool:
    """Whether both are one file; one without records, as other libraries write it, only as the same version."""
    record, known_record = found.contents.footer.record, known.contents.footer.record
    if record is None or known_record is None:
        return found.info == known.info
    return record.file_id == known_record.file_id
