"""The lease of an object: its epoch object, taken, asked for again and removed. An async shell.

Whoever is to be told that bytes are stored holds the lease of their object. It is taken by a PUT that the store
carries out only if the epoch object is still the version that was known, or if there is none; so of several who want it
one gets it. Its holder names its upload there before the first part is sent. After the parts of a commit were
acknowledged it reads the epoch object once more, and bytes count as stored only where that is still its own. Who takes
it over lists parts only afterwards: so all that anyone was told to be stored is in that list, and nobody is told so of
what is sent later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from resilient_pq.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    BucketNotFoundError,
    FormatError,
    NotFoundError,
    ObjectChangedError,
    PreconditionError,
    StoreError,
    UnsupportedError,
    Where,
    WriterFencedError,
    located,
)
from resilient_pq.io.multipart_store import MultipartStore
from resilient_pq.io.object_sink import Fencing
from resilient_pq.io.protocols import ReadStore
from resilient_pq.io.upload.epoch import (
    MOST_EPOCH_BYTES,
    Epoch,
    FoundEpoch,
    LeaseTerms,
    epoch_name,
    new_owner,
    parse_epoch,
)

log = logging.getLogger("resilient_pq.io")

#: How often a lease is asked for that others take over and over, by one who begins a new file whatever there is.
_MAX_ATTEMPTS = 5


def epoch_key(store: ReadStore, key: str) -> str:
    """The key of the epoch object that lies beside an object."""
    return store.beside(key, epoch_name(key.rpartition("/")[2]))


async def find_epoch(store: ReadStore, key: str) -> FoundEpoch | None:
    """The epoch of an object; None where there is none."""
    place = epoch_key(store, key)
    with located(Where(key=store.url_of(place))):
        try:
            tail = await store.read_tail(place, MOST_EPOCH_BYTES)
        except NotFoundError:
            return None
        return FoundEpoch(parse_epoch(bytes(tail.data)), tail.info.etag)


async def forget_epoch(store: MultipartStore, key: str, found: FoundEpoch) -> None:
    """Remove an epoch object that is needed no more, if it is still the version that was found."""
    try:
        await store.delete(epoch_key(store, key), if_match=found.etag)
    except PreconditionError:
        return  # somebody holds the object now
    except (StoreError, UnsupportedError) as error:
        log.warning("%s: its epoch object was not removed: %s", store.url_of(key), error)


async def forget_upload(store: MultipartStore, key: str, upload_id: str) -> None:
    """Remove the epoch object of an upload that was ended by hand, where it names no other."""
    try:
        found = await find_epoch(store, key)
    except (FormatError, UnsupportedError, StoreError) as error:
        log.warning("%s: its epoch object was not looked at: %s", store.url_of(key), error)
        return
    if found is not None and found.epoch.uploads == (upload_id,):
        await forget_epoch(store, key, found)


class Lease:
    """The lease of one object, in the hands of one writer or wanted by it."""

    def __init__(self, store: MultipartStore, key: str, terms: LeaseTerms) -> None:
        """Ask for nothing yet."""
        self.file_id = terms.file_id  # Of the file, hexadecimal; None where nobody knows it yet
        self.before: Sequence[str] = terms.before  # Uploads of earlier epochs that may hold rows of it
        self.fencing = Fencing.LEASE  # What it keeps others from
        self._store = store
        self._object = key
        self._key = epoch_key(store, key)
        self._terms = terms
        self._held: Epoch | None = None
        self._etag: str | None = None
        self._lost = False
        self._confirmed = False

    @property
    def is_held(self) -> bool:
        """Whether it was taken, and not removed since; somebody else may have taken it over."""
        return self._held is not None

    @property
    def is_exclusive(self) -> bool:
        """Whether nothing is begun before it is taken."""
        return self._terms.exclusive

    @property
    def held(self) -> FoundEpoch | None:
        """The epoch that its holder wrote; None where it is not held."""
        return None if self._held is None else FoundEpoch(self._held, self._etag)

    async def take(self) -> None:
        """Take it, once."""
        if self._held is not None or self.fencing is Fencing.NONE:
            return
        found = self._terms.found
        for attempt in range(_MAX_ATTEMPTS):
            try:
                await self._take(found)
            except WriterFencedError:
                if self._terms.exclusive or attempt + 1 == _MAX_ATTEMPTS:
                    raise
                self._lost = False
                found = await find_epoch(self._store, self._object)
            else:
                return

    async def _take(self, found: FoundEpoch | None) -> None:
        epoch = self._epoch_behind(found)
        if found is not None and not self._terms.exclusive:
            self._warn_of_unfinished(found.epoch)
        try:
            await self._write(epoch, None if found is None else found.etag, first=found is None)
        except AccessDeniedError as error:
            self._go_without(error)
            return
        if self.fencing is Fencing.LEASE and not await self._store.heeds_conditions(self._key, epoch.to_json()):
            self._become_advisory()
        if self._terms.exclusive and found is None:
            await self._refuse_written()

    def _epoch_behind(self, found: FoundEpoch | None) -> Epoch:
        if found is None:
            epoch = Epoch(new_owner(), 0, time.time(), self.file_id, None, tuple(self.before))
        else:
            epoch = found.epoch.following(file_id=self.file_id, before=self.before)
        return replace(epoch, base=self._terms.standing) if self._terms.appends else epoch

    def _warn_of_unfinished(self, epoch: Epoch) -> None:
        """Say which uploads hold an unfinished file that a new one begins beside."""
        if epoch.uploads:
            log.warning(
                "%s: an unfinished file was left here; it is not gone on with, and stays in the upload %s",
                self._store.url_of(self._object),
                " or ".join(epoch.uploads),
            )

    async def _refuse_written(self) -> None:
        """Refuse an object that was written since it was found: no epoch object may also mean that it was completed."""
        try:
            etag = (await self._store.head(self._object)).etag
        except NotFoundError:
            etag = None
        if etag != self._terms.standing:
            await self.release()
            raise self._fencing_error()

    async def name(self, upload_id: str) -> None:
        """Say which upload is written to, before its first part is sent."""
        if self._held is None:
            return
        named = self._held.named(upload_id, file_id=self.file_id, before=self.before)
        try:
            await self._write(named, self._etag, first=False)
        except AccessDeniedError as error:
            self._go_without(error)

    async def confirm(self) -> None:
        """See that it is still held."""
        if self._held is None or self.fencing is Fencing.NONE:
            return
        self._refuse_lost()
        try:
            found = await find_epoch(self._store, self._object)
        except AccessDeniedError as error:
            if self._confirmed:
                raise
            self._go_without(error)
            return
        self._confirmed = True
        if found is None or found.epoch.owner != self._held.owner:
            raise self._fencing_error()

    async def release(self) -> None:
        """Remove the epoch object, which is needed no more."""
        if self._held is None:
            return
        self._refuse_lost()
        if self.fencing is Fencing.ADVISORY:
            await self.confirm()
        try:
            await self._store.delete(self._key, if_match=self._etag)
        except PreconditionError as error:
            raise self._fencing_error() from error
        except UnsupportedError:
            await self.confirm()
            await self._store.delete(self._key)
        self._held = None

    async def _write(self, epoch: Epoch, expected: str | None, *, first: bool) -> None:
        """Replace the version that is expected, or put the first one there."""
        self._refuse_lost()
        data = epoch.to_json()
        if self.fencing is Fencing.LEASE:
            try:
                info = await self._store.put(self._key, data, if_none_match=first, if_match=None if first else expected)
            except UnsupportedError:
                self._become_advisory()
            except (AlreadyExistsError, ObjectChangedError) as error:
                # The answer to an attempt before may have been lost: what lies there tells.
                found = await find_epoch(self._store, self._object)
                if found is None or found.epoch != epoch:
                    raise self._fencing_error() from error
                self._held, self._etag = epoch, found.etag
                return
            else:
                self._held, self._etag = epoch, info.etag
                return
        found = await find_epoch(self._store, self._object)
        if (found is not None) if first else (found is None or found.etag != expected):
            raise self._fencing_error()
        info = await self._store.put(self._key, data)
        self._held, self._etag = epoch, info.etag

    def _become_advisory(self) -> None:
        self.fencing = Fencing.ADVISORY
        log.warning(
            "%s: %s heeds no conditions (If-Match, If-None-Match): of several writers that begin at one moment more"
            " than one may be told that its rows are stored",
            self._store.url_of(self._object),
            self._store.name,
        )

    def _go_without(self, error: AccessDeniedError) -> None:
        """Credentials may allow to write the object, and neither to read nor to write beside it."""
        if self._terms.strict:
            raise error
        self.fencing = Fencing.NONE
        log.warning(
            "%s: its epoch object cannot be written and read (%s): another writer cannot be kept from being told that"
            " its rows are stored",
            self._store.url_of(self._object),
            error.message,
        )

    def _refuse_lost(self) -> None:
        if self._lost:
            raise self._fencing_error()

    def _fencing_error(self) -> WriterFencedError:
        self._lost = True
        return WriterFencedError(
            "somebody else has taken the file over",
            where=Where(key=self._store.url_of(self._object)),
            hint="what was stored is theirs now, and no row of it is lost; only one writer at a time can go on",
        )


async def taken_over(store: MultipartStore, key: str, found: FoundEpoch, *, strict: bool = True) -> Lease:
    """The lease of an object, from the holder that was found; uploads stay those of earlier epochs until it ends."""
    epoch = found.epoch
    lease = Lease(
        store, key, LeaseTerms(epoch.file_id, exclusive=True, strict=strict, found=found, before=epoch.uploads)
    )
    await lease.take()
    return lease


@asynccontextmanager
async def told_of_loss(lease: Lease | None) -> AsyncIterator[None]:
    """Raise that a lease is lost for what its new holder did to the object and its uploads while the block ran."""
    try:
        yield
    except (NotFoundError, AlreadyExistsError, ObjectChangedError) as error:
        if lease is None or isinstance(error, BucketNotFoundError):
            raise
        try:
            await lease.confirm()
        except WriterFencedError as fenced:
            raise fenced from error
        except (StoreError, UnsupportedError, FormatError) as unknown:
            log.debug("whether a lease is held cannot be told: %s", unknown)
        raise
