"""An upload begun under a lease, and its twins, begun by requests whose answers were lost. An async shell."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from resilient_pq.errors import FormatError, StoreError, UnsupportedError
from resilient_pq.io.multipart_store import MultipartStore
from resilient_pq.io.upload.abandoned_uploads import drop_upload, empty_uploads, upload_command
from resilient_pq.io.upload.lease import Lease, find_epoch

log = logging.getLogger("resilient_pq.io")

#: An upload whose beginning was not answered was begun no longer before that which was asked for again.
_LOST_REPLY = timedelta(minutes=5)


async def leased_upload(store: MultipartStore, key: str, lease: Lease | None) -> str:
    """Begin an upload, and name it in its lease before any part of it is sent: one that nobody names holds nothing."""
    if lease is not None:
        await lease.take()
    upload_id = await store.create_upload(key)
    try:
        twins = await twins_of(store, key, upload_id)
        if lease is not None:
            await lease.name(upload_id)
    except BaseException as error:
        await drop_upload(store, key, upload_id, error)
        raise
    # Nobody has taken the lease since these were listed: none of them is of a writer that is to hold it.
    for twin in twins:
        await drop_upload(store, key, twin)
    return upload_id


async def drop_twins(store: MultipartStore, key: str, upload_id: str, lease: Lease | None) -> None:
    """Drop the empty uploads beside one that is about to be completed: a store may have carried a request out late."""
    twins = await twins_of(store, key, upload_id)
    if twins and lease is not None:
        await lease.confirm()
    for twin in twins:
        await drop_upload(store, key, twin)


async def twins_of(store: MultipartStore, key: str, upload_id: str) -> Sequence[str]:
    """The empty uploads that were begun beside one, by requests whose answers were lost.

    Of no other writer anybody can be told that anything is stored in them: they hold no part, and no epoch object names
    them.
    """
    if not store.begun_twice(upload_id):
        return []
    try:
        found = await find_epoch(store, key)
        named = () if found is None else found.epoch.uploads
        listed = await store.uploads_of(key)
        begun = next((each.initiated for each in listed if each.upload_id == upload_id), None)
        others = [
            each
            for each in listed
            if each.upload_id not in (upload_id, *named)
            and begun is not None
            and each.initiated is not None
            and abs(begun - each.initiated) < _LOST_REPLY
        ]
        return await empty_uploads(store, others)
    except (StoreError, UnsupportedError, FormatError) as error:
        log.warning(
            "%s: a request to begin its upload was not answered, and may have left an empty one (%s); see: %s",
            store.url_of(key),
            error.message,
            upload_command(store, "list", key),
        )
        return []
