"""Proof that the bytes of an object are as they were: by a digest, or by the checksums in it. An async shell."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace

from resilient_pq.bulk.file_result import FileError, FileResult
from resilient_pq.bulk.name_pattern import SUFFIX
from resilient_pq.bulk.run_summary import FileEntry
from resilient_pq.bulk.scope import Place, shown_place
from resilient_pq.errors import FormatError, ObjectChangedError
from resilient_pq.io import LocalStore, ObjectInfo, ReadStore, Stores
from resilient_pq.io.resolve import Location
from resilient_pq.io.substitute_store import SubstituteStore
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.healed_store import examine_parity
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.parity.repair import rebuilt_digest
from resilient_pq.parity.sidecar import Sidecar
from resilient_pq.parity.sidecar_index import SUFFIX as SIDECAR_SUFFIX
from resilient_pq.recovery.check import check
from resilient_pq.recovery.report import Damage, Outcome, Report


class Pace:
    """Lets `rate` bytes pass in a second, over all that share it; any number where that is None."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self._free = 0.0

    async def take(self, num_bytes: int) -> None:
        """Wait until these bytes may be read."""
        if self.rate is not None:
            now = asyncio.get_running_loop().time()
            turn = max(now, self._free)
            self._free = turn + num_bytes / self.rate
            await asyncio.sleep(turn - now)


class PacedStore(SubstituteStore):
    """Stands for a store, one object of which is read at a pace."""

    def __init__(self, store: ReadStore, info: ObjectInfo, pace: Pace) -> None:
        super().__init__(store, info, info.size)
        self._pace = pace

    async def _read(self, key: str, start: int, end: int) -> memoryview:
        await self._pace.take(end - start)
        return memoryview(await self._store.read_range(key, start, end, pin=self._info))


SCRUB = "scrub"


@dataclass(frozen=True, slots=True)
class ProofOrder:
    """What is known of an object that is to be proven, and how fast it may be read."""

    version: str | None = None
    digest: str | None = None
    bytes_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class ProvenObject:
    """What an object is now."""

    version: str  # Its size and what else tells versions apart
    size: int
    digest: str  # Their xxh3-128
    damage: str | None = None  # What is wrong with it; None where nothing is
    # The digest that this version had before, or when it was protected; None where none is known
    expected: str | None = None

    @property
    def is_rot(self) -> bool:
        """Whether bytes changed, and the version did not."""
        return self.expected is not None and self.expected != self.digest


def version_of(store: ReadStore, size: int | None, etag: str | None) -> str | None:
    """A version by size and ETag; of a local file by time of change and size, as device and inode may change."""
    if etag is None or size is None:
        return None
    return etag.split("-", 2)[-1] if isinstance(store, LocalStore) else f"{size} {etag}"


async def prove_one(location: Location, order: ProofOrder, stores: Stores, pace: Pace | None = None) -> FileResult:
    """Prove an object; a `ProvenObject` is in the facts of the result."""
    name = shown_place(location) if isinstance(location, tuple) else str(location)
    try:
        place = await stores.reach(location)
        name = shown_place(place)
        paced = pace or Pace(order.bytes_per_second)
        try:
            proof = await _prove(place, order, paced)
        except ObjectChangedError:  # written anew just now
            proof = await _prove(place, order, paced)
        return FileResult(SCRUB, name, facts=asdict(proof))
    except Exception as error:
        return FileResult(SCRUB, name, error=FileError.of(error))


async def _prove(place: Place, order: ProofOrder, pace: Pace) -> ProvenObject:
    store, key = place
    info = await store.head(key)
    paced = PacedStore(store, info, pace)
    source = PinnedObject(paced, key, info)
    version = version_of(store, info.size, info.etag)
    digest = await source.digest()
    expected = order.digest if version is not None and version == order.version else None
    if expected not in (None, digest):
        digest = await source.digest()  # what was changed on its way is no rot
    proof = ProvenObject(version or "", info.size, digest, None, expected)
    if proof.is_rot:
        return replace(proof, damage="bytes changed, and the version of the object did not")
    return proof if digest == order.digest else await _as_first_seen(proof, source)


async def _as_first_seen(proof: ProvenObject, source: PinnedObject) -> ProvenObject:
    """What a version is that was not proven before: by its sidecar, or by the checksums in it."""
    if source.key.endswith(SIDECAR_SUFFIX):
        return replace(proof, damage=await _damage_of_sidecar(source))
    expected = await protected_digest(source)
    if expected is not None:
        wrong = "bytes are not as they were when the object was protected"
        return replace(proof, expected=expected, damage=None if expected == proof.digest else wrong)
    damage = _damage(await check((source.store, source.key)), source.key)
    expected = None if damage is None else await rebuilt_digest(source.store, source.info)
    return replace(proof, damage=damage, expected=None if expected == proof.digest else expected)


async def protected_digest(source: PinnedObject) -> str | None:
    """The digest of this version of an object in the sidecar beside it; None where that is of another version."""
    try:
        sidecar = await Sidecar.beside(source.store, source.key)
    except FormatError:
        return None
    if sidecar is None:
        return None
    member = sidecar.index.members[sidecar.member_number(source.key)]
    return member.digest if member.is_of(source.info) else None


async def _damage_of_sidecar(source: PinnedObject) -> str | None:
    try:
        examined = await examine_parity(await Sidecar.read(source.store, source.key))
    except FormatError as error:
        return error.message
    if examined.num_damaged:
        return f"{examined.num_damaged:,} of {examined.num_blocks:,} blocks of parity are damaged"
    return None


def _damage(report: Report, key: str) -> str | None:
    """What a check found; a file that the writer did not finish is whole, and other names may be no Parquet files."""
    if report.outcome in (Outcome.SOUND, Outcome.INCOMPLETE):
        return None
    if not key.endswith(SUFFIX) and all(each.damage is Damage.FOREIGN for each in report.findings):
        return None
    return FileEntry.of(FileResult(SCRUB, report.url, report)).message or str(report.outcome)
