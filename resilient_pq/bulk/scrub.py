"""`scrub`: objects of a folder proven within a budget, those that were proven longest ago first. An async shell."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Self

from resilient_pq.bulk.bounded_jobs import JobBounds, in_flight
from resilient_pq.bulk.file_result import FileResult
from resilient_pq.bulk.file_task import FileTask, RunFile
from resilient_pq.bulk.heal import heal as heal_object
from resilient_pq.bulk.keyed_lines import KeyedLines
from resilient_pq.bulk.many_files import DEFAULT_MAX_FILES, MOST_OF_ALL, memory_of
from resilient_pq.bulk.name_pattern import PARTIAL_SUFFIX, SUFFIX
from resilient_pq.bulk.proof import SCRUB, Pace, ProofOrder, ProvenObject, prove_one, version_of
from resilient_pq.bulk.run_listing import ListedFile, Wishes, find, scopes_of
from resilient_pq.bulk.scope import Place, Scope
from resilient_pq.bulk.scrub_report import ScrubbedFile, ScrubReport
from resilient_pq.errors import ResilientPQError, SchemaError
from resilient_pq.io import WRITING, LocalStore, MultipartStore, RetryPolicy, Stores, WriteStore, with_retry
from resilient_pq.io.local_store import in_thread
from resilient_pq.io.location import shown
from resilient_pq.io.resolve import Location
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.sidecar_index import SUFFIX as SIDECAR_SUFFIX
from resilient_pq.recovery.uploads.open_uploads import Upload, list_uploads

#: Seconds between two times that lines are made to survive a loss of power.
_SYNC_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LastProof:
    """The last proof of an object."""

    proven: int  # When it was right, in seconds since 1970; 0 where it never was
    version: str  # Its version (`proof.version_of`)
    listed: str | None  # What the listing called this version; None where it does not tell
    size: int
    digest: str  # The xxh3-128 of its bytes when they were right; empty where they never were
    damage: str | None = None  # What is wrong with it now; None where nothing is

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self | None:
        """The proof in a line; None where there is none."""
        try:
            found = cls(**{name: line[name] for name in cls.__slots__})
        except KeyError:
            return None
        texts = (found.version, found.digest, found.listed or "", found.damage or "")
        is_proof = isinstance(found.proven, int) and isinstance(found.size, int)
        return found if is_proof and all(isinstance(text, str) for text in texts) else None


class ScrubState(KeyedLines):
    """An open state, locked against other runs."""

    NOUN: ClassVar[str] = "state"
    FORMAT: ClassVar[str] = "resilient_pq scrub 1"
    OPTION: ClassVar[str] = "--state"
    _synced = 0.0

    def last(self, address: str) -> LastProof | None:
        """The last proof of an object."""
        line = self.newest(address)
        return None if line is None else LastProof.from_json(line)

    def note(self, address: str, proof: LastProof) -> None:
        """Note a proof; it survives a kill at once, and a loss of power a second later."""
        self.append(address, asdict(proof))
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            self.sync()
            self._synced = time.monotonic()

    def note_gone(self, seen: Iterable[int]) -> list[str]:
        """The names of objects of earlier runs whose keys are not among those seen; each is told once."""
        gone = [line for line in self.lines_without(seen) if LastProof.from_json(line) is not None]
        for line in gone:
            self.append_to(line, {"gone": True})
        return [line["url"] for line in gone]


#: Objects that are remembered as due at one time; when they are proven, the listing is read again.
_MOST_DUE = 100_000
#: How long an upload is open until it is told of.
_ORPHAN_AGE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ScrubOptions:
    """How a scrub is done; see `scrub`."""

    every: timedelta
    heal: bool
    stop_after: timedelta | None
    max_files: int
    progress: Callable[[ScrubReport], None] | None
    run: RunFile | None


async def scrub(
    urls: Location | Sequence[Location],
    state: str | os.PathLike[str],
    *,
    every: timedelta = timedelta(days=30),
    budget: int | None = None,
    heal: bool = False,
    replica: Location | None = None,
    stop_after: timedelta | None = None,
    max_files: int = DEFAULT_MAX_FILES,
    storage_options: Mapping[str, Any] | None = None,
    replica_storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Callable[[ScrubReport], None] | None = None,
    run: RunFile | None = None,
) -> ScrubReport:
    """Prove that the bytes of many objects are as they were, those first that were proven longest ago.

    Every object is read whole, and the digest of its bytes compared with that of its last proof. An object that is new,
    or has another ETag, size or time of change, is checked as `check` does, or held against its sidecar. Other bytes
    under the same version are rot. Meant to be run again and again, as by cron: a run reads what is due.

    Args:
        urls: As of `check_many`; the sidecars of the files are proven, too.
        state: A local file that remembers each object: when it was proven, its version and its digest. Made where it is
            missing. It survives a kill at any time; lines that are damaged are left out.
        every: How old a proof may become. Objects that are new, changed or damaged are always due.
        budget: Bytes that are read in a second, at most, over all objects; None for as many as can be. What is read to
            rebuild an object comes on top.
        heal: Write the bytes of objects that rotted anew, from their parity or the replica, where their digest is known
            and the new bytes have it. Objects that another program damaged by writing them are not touched.
        replica: A folder or a prefix with a copy of each object under the same relative name.
        stop_after: Begin with no other object after so long; None reads all that is due.
        max_files: Objects under way at one time; fewer of large ones, so that memory stays bounded.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        replica_storage_options: The same for `replica`; None means those of `urls`.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.
        progress: Called after each object with what was done so far.
        run: How one object is proven, as of `check_many`.

    Raises:
        SchemaError: `urls` names nothing, `budget` or `max_files` is below 1, or `replica` goes with no `heal`.
        AlreadyExistsError: Another scrub is using the state.
        RecoveryError: The state is of another folder.
        NotFoundError: There is no such folder, or no file in it.
        StoreError: A store could not list, or the state cannot be written.
    """
    if max_files < 1 or (budget is not None and budget < 1) or (replica is not None and not heal):
        raise SchemaError("max_files and budget are at least 1, and a replica is used with heal=True alone")
    options = ScrubOptions(every, heal, stop_after, max_files, progress, run)
    storage_options = with_retry(storage_options, retry)
    async with AsyncExitStack() as stack:
        stores = Stores(storage_options, WRITING)
        stack.push_async_callback(stores.close)
        scopes = [_WithSidecars.of(scope) for scope in scopes_of(urls, stores)]
        copies: Scope | None = None
        if replica is not None:
            elsewhere = replica_storage_options
            from_stores = stores if elsewhere is None else Stores(with_retry(elsewhere, retry), WRITING)
            stack.push_async_callback(from_stores.close)
            copies = scopes_of(replica, from_stores)[0]
        described = {"verb": SCRUB, "source": sorted({scope.address_shown for scope in scopes})}
        lines = stack.enter_context(await in_thread(ScrubState, state, described))
        await in_thread(lines.compact)
        return await _Scrub(scopes, stores, lines, options, Pace(budget), copies).run()


class _WithSidecars(Scope):
    """A scope that has the sidecars of its files, too."""

    @classmethod
    def of(cls, scope: Scope) -> _WithSidecars:
        return cls(scope.store, scope.folder, scope.pattern, scope.may_be_file, scope.is_one_file)

    @property
    def address_shown(self) -> str:
        """Where the objects are, without secrets."""
        key = self.may_be_file if self.is_one_file and self.may_be_file else self.folder
        return shown(_address((self.store, key))).rstrip("/") + f"/{self.pattern or ''}"

    def counts(self, name: str) -> bool:
        """Whether an object is one of the files, or a sidecar of one or of a folder of them."""
        if not name.endswith(SIDECAR_SUFFIX):
            return super().counts(name)
        folder, slash, last = name.removesuffix(SIDECAR_SUFFIX).rpartition("/")
        return super().counts(f"{folder}{slash}{f'all{SUFFIX}' if last == '_folder' else last}")


@dataclass(frozen=True, slots=True, order=True)
class _Due:
    """An object that is to be proven, the one that was proven longest ago first."""

    proven: int
    url: str
    found: ListedFile = field(compare=False)
    last: LastProof | None = field(compare=False)


class _Scrub:
    """One run."""

    def __init__(
        self,
        scopes: Sequence[_WithSidecars],
        stores: Stores,
        state: ScrubState,
        options: ScrubOptions,
        pace: Pace,
        replica: Scope | None,
    ) -> None:
        self._scopes = scopes
        self._stores = stores
        self._state = state
        self._options = options
        self._pace = pace
        self._replica = replica
        self._report = ScrubReport()
        self._oldest: int | None = None
        self._ends = None if options.stop_after is None else time.monotonic() + options.stop_after.total_seconds()

    async def run(self) -> ScrubReport:
        """All of it, or what can be done in time."""
        is_first = True
        while True:
            due, is_all = await self._list(is_first=is_first)
            is_first = False
            bounds: JobBounds[_Due] = JobBounds(self._options.max_files, MOST_OF_ALL, self._weigh)
            async with aclosing(in_flight(self._in_time(due), self._prove, bounds)) as ended:
                async for each, result in ended:
                    await self._note(each, result)
            if is_all or self._is_over:
                break
            await in_thread(self._state.refresh)
        await in_thread(self._state.sync)
        oldest = None if not self._oldest or self._report.num_due else datetime.fromtimestamp(self._oldest, UTC)
        return replace(self._report, oldest_proof=oldest, uploads=await self._uploads())

    @property
    def _is_over(self) -> bool:
        return self._ends is not None and time.monotonic() >= self._ends

    async def _list(self, *, is_first: bool) -> tuple[list[_Due], bool]:
        """The objects that are due, as many as are remembered, and whether these are all."""
        due, seen, num_files, num_due = list[_Due](), array("Q"), 0, 0
        partial: list[str] = []
        self._oldest = None
        async with aclosing(find(self._scopes, Wishes(versions=True))) as pages:
            async for page in pages:
                for found in page:
                    if found.name.endswith(PARTIAL_SUFFIX):
                        partial.append(found.url)
                        continue
                    num_files += 1
                    seen.append(self._state.key_of(_address(found.place)))
                    last = self._state.last(_address(found.place))
                    if self._is_due(found, last):
                        num_due += 1
                        due.append(_Due(0 if last is None else last.proven, found.url, found, last))
                    elif last is not None:
                        self._proven_at(last.proven)
                if len(due) >= 2 * _MOST_DUE:
                    due = sorted(due)[:_MOST_DUE]
        gone = await in_thread(self._state.note_gone, seen) if is_first else []
        self._report = replace(
            self._report,
            num_files=num_files,
            num_due=num_due,
            gone=(*self._report.gone, *gone),
            partial_files=tuple(partial),
        )
        return sorted(due)[:_MOST_DUE], num_due <= _MOST_DUE

    def _is_due(self, found: ListedFile, last: LastProof | None) -> bool:
        if last is None or last.damage is not None or found.error is not None:
            return True
        listed = _listed_version(found)
        return listed != last.listed or last.proven + self._options.every.total_seconds() <= time.time()

    def _proven_at(self, proven: int) -> None:
        self._oldest = proven if self._oldest is None else min(self._oldest, proven)

    def _weigh(self, due: _Due) -> int:
        return memory_of(due.found.size) if self._options.run is None else 0  # other machines have their own memory

    async def _in_time(self, due: list[_Due]) -> AsyncGenerator[_Due, None]:
        for each in due:
            if self._is_over:
                return
            yield each

    async def _prove(self, due: _Due) -> tuple[_Due, FileResult]:
        found, last = due.found, due.last
        if found.error is not None:
            return due, FileResult(SCRUB, found.url, error=found.error)
        known = ("", "") if last is None else (last.version, last.digest)
        order = ProofOrder(known[0] or None, known[1] or None, self._pace.rate)
        if self._options.run is None:
            return due, await prove_one(found.place, order, self._stores, self._pace)
        return due, await self._options.run(FileTask(SCRUB, found.place, found.size, proof=order))

    async def _note(self, due: _Due, result: FileResult) -> None:
        """Heal an object that rotted, and note what it is now."""
        report = replace(self._report, num_due=self._report.num_due - 1)
        if result.facts is None:
            message = result.error.message if result.error is not None else "it could not be proven"
            self._tell(replace(report, damaged=(*report.damaged, ScrubbedFile(result.url, "error", message))))
            return
        proof, told = ProvenObject(**result.facts), None
        report = replace(report, num_bytes=report.num_bytes + proof.size)
        if proof.damage is not None:
            told = ScrubbedFile(result.url, "rot" if proof.is_rot else "damaged", proof.damage)
            if self._options.heal:
                told, proof = await self._healed(due, told, proof)
            report = replace(report, damaged=(*report.damaged, told))
        else:
            is_new = due.last is None or due.last.version != proof.version
            report = replace(report, num_proven=report.num_proven + 1, num_new=report.num_new + is_new)
        last = _last_proof(due, proof, is_healed=told is not None and told.healed is not None)
        await in_thread(self._state.note, _address(due.found.place), last)
        self._proven_at(last.proven)
        self._tell(report)

    async def _healed(self, due: _Due, told: ScrubbedFile, proof: ProvenObject) -> tuple[ScrubbedFile, ProvenObject]:
        """What became of a damaged object, and what it is now."""
        store, key = due.found.place
        if proof.expected is None:
            return replace(told, not_healed="the digest that it should have is not known"), proof
        if not isinstance(store, WriteStore):
            return replace(told, not_healed=f"{store.name} cannot be written"), proof
        copy: Place | None = None if self._replica is None else self._replica.place(due.found.name)
        try:
            info = await store.head(key)
            if version_of(store, info.size, info.etag) != proof.version:
                return replace(told, not_healed="it was replaced meanwhile"), proof
            source = await heal_object(store, info, proof.expected, copy, self._pace)
            info = await store.head(key)
        except ResilientPQError as error:
            return replace(told, not_healed=error.message), proof
        version = version_of(store, info.size, info.etag) or ""
        return replace(told, healed=source), ProvenObject(version, info.size, proof.expected)

    def _tell(self, report: ScrubReport) -> None:
        self._report = report
        if self._options.progress is not None:
            self._options.progress(report)

    async def _uploads(self) -> tuple[Upload, ...]:
        """Uploads that were left open below the folders."""
        found: list[Upload] = []
        for scope in self._scopes:
            if isinstance(scope.store, MultipartStore) and scope.store.capabilities.list_parts:
                prefix = scope.may_be_file or scope.folder
                found += await list_uploads((scope.store, prefix), older_than=_ORPHAN_AGE)
        return tuple({(each.url, each.upload_id): each for each in found}.values())


def _address(place: Place) -> str:
    """The name of an object that no other has, wherever the scrub is started."""
    address = place[0].address_of(place[1])
    return os.path.abspath(address) if isinstance(place[0], LocalStore) else address


def _listed_version(found: ListedFile) -> str | None:
    size, _, etag = (found.version or "").partition(" ")
    return version_of(found.place[0], int(size), etag) if etag else None


def _last_proof(due: _Due, proof: ProvenObject, *, is_healed: bool) -> LastProof:
    """What is remembered of an object; one that was healed is read again by the next run."""
    listed = None if is_healed else _listed_version(due.found)
    is_right = proof.damage is None
    digest = proof.digest if is_right else proof.expected or ""
    return LastProof(
        int(time.time()) if is_right else due.proven, proof.version, listed, proof.size, digest, proof.damage
    )
