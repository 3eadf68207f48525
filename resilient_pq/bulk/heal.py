"""An object that rotted gets its bytes back, from its parity or from a replica. An async shell."""

from __future__ import annotations

from contextlib import aclosing

from resilient_pq.bulk.proof import Pace, PacedStore
from resilient_pq.bulk.scope import Place
from resilient_pq.errors import FormatError, ObjectChangedError, RecoveryError, ResilientPQError, StoreError, Where
from resilient_pq.io import ObjectInfo, SinkOptions, WriteStore
from resilient_pq.io.output_target import completing
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.parity.protect import protect
from resilient_pq.parity.repair import repair_here
from resilient_pq.parity.sidecar import Sidecar, sidecar_key


async def heal(store: WriteStore, info: ObjectInfo, digest: str, replica: Place | None, pace: Pace) -> str:
    """Give an object the bytes that have this digest; returns where they came from."""
    try:
        await repair_here(store, info, digest)
        source = "parity"
    except (RecoveryError, FormatError) as error:
        if replica is None:
            raise RecoveryError(error.message, where=error.where, hint=error.hint) from error
        await _copy(replica, store, info, digest, pace)
        source = "replica"
    healed = await PinnedObject.find(store, info.key)
    if await healed.digest() != digest:
        raise RecoveryError(f"it was written anew from its {source}, and is damaged again", where=Where(key=healed.url))
    if healed.info.etag != info.etag:
        await _protect_again(store, info.key, digest)
    return source


async def _copy(replica: Place, store: WriteStore, info: ObjectInfo, digest: str, pace: Pace) -> None:
    """Write an object anew with the bytes of its replica, which are compared while they pass."""
    where = Where(key=store.url_of(info.key))
    try:
        there = await replica[0].head(replica[1])
    except StoreError as error:
        raise RecoveryError(f"the replica cannot be read: {error.message}", where=where) from error
    source = PinnedObject(PacedStore(replica[0], there, pace), replica[1], there)
    if await source.digest() != digest:
        raise RecoveryError("the replica has other bytes", where=where)
    sink = await store.create(
        info.key, SinkOptions(if_match=info.etag, private_partial=True, permissions=info.permissions)
    )
    async with completing(sink), aclosing(source.pieces()) as pieces:
        async for piece in pieces:
            await sink.write(piece)
        if await store.head(info.key) != info:  # not every store compares it
            raise ObjectChangedError("the object was replaced while it was healed", where=where)


async def _protect_again(store: WriteStore, key: str, digest: str) -> None:
    """Make the sidecar of a healed object anew, so that it belongs to the version that is there now."""
    try:
        sidecar = await Sidecar.beside(store, key)
    except ResilientPQError:
        return  # it is an object of its own, and proven by itself
    if sidecar is not None and sidecar.source.key == sidecar_key(store, key):
        share = sidecar.index.share
        await protect((store, key), parity=share or "5%", checksums_only=not share, overwrite=True)
