"""Uploads that were begun and never completed: found, and completed as far as their parts go. An async shell.

Anyone who has the key and the upload id can complete an upload of parts without a gap. Whatever becomes of it
is then an object that can be checked and recovered like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resilient_pq.errors import AlreadyExistsError, NotFoundError, RecoveryError, UnsupportedError
from resilient_pq.io import MultipartStore, ObjectInfo, Part, UploadInfo, resolve
from resilient_pq.recovery.source import Location


def gap_free(parts: Sequence[Part]) -> list[Part]:
    """Parts 1, 2, ... up to the first that is missing.

    A store may list several versions of a part that was sent again; the largest of them counts.
    """
    largest: dict[int, Part] = {}
    for part in parts:
        known = largest.get(part.number)
        if known is None or part.size > known.size:
            largest[part.number] = part
    found: list[Part] = []
    while len(found) + 1 in largest:
        found.append(largest[len(found) + 1])
    return found


async def list_uploads(
    url: Location, *, storage_options: Mapping[str, Any] | None = None
) -> list[UploadInfo]:
    """The uploads that were left open below a URL.

    Args:
        url: "s3://bucket/prefix", or a pair of a store and a prefix.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.

    Raises:
        UnsupportedError: The store has no uploads.
        StoreError: The store refused.
    """
    store, key = url if isinstance(url, tuple) else resolve(url, storage_options)
    try:
        return await _multipart(store).list_uploads(key)
    finally:
        if not isinstance(url, tuple):
            await store.close()


async def complete_upload(
    url: Location,
    *,
    upload_id: str | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> ObjectInfo:
    """Complete the upload that a writer left open, with its parts up to the first that is missing.

    Args:
        url: The object that was being written.
        upload_id: Which upload, when several are open for this object.
        overwrite: Replace an object that is at `url`.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.

    Returns:
        The object, which is usually torn: `recover` is the next thing to do.

    Raises:
        NotFoundError: No upload is open for this object.
        AlreadyExistsError: There is an object at `url`, and `overwrite` is False.
        RecoveryError: Several uploads are open and none was named, or there is no part 1.
        UnsupportedError: The store has no uploads.
        StoreError: The store refused.
    """
    store, key = url if isinstance(url, tuple) else resolve(url, storage_options)
    try:
        multipart = _multipart(store)
        if not overwrite and await multipart.exists(key):
            raise AlreadyExistsError(f"{store.url_of(key)} exists", hint="use overwrite=True to replace it")
        chosen = upload_id or await _only_upload(multipart, key)
        parts = gap_free(await multipart.list_parts(key, chosen))
        if not parts:
            raise RecoveryError(
                f"the upload {chosen} of {store.url_of(key)} has no part 1: nothing can be completed"
            )
        return await multipart.complete_upload(key, chosen, parts, if_none_match=not overwrite)
    finally:
        if not isinstance(url, tuple):
            await store.close()


def _multipart(store: object) -> MultipartStore:
    if not isinstance(store, MultipartStore):
        raise UnsupportedError(
            "this store has no multipart uploads", hint="uploads are a matter of S3: s3://bucket/key"
        )
    return store


async def _only_upload(store: MultipartStore, key: str) -> str:
    found = [upload for upload in await store.list_uploads(key) if upload.key == key]
    if not found:
        raise NotFoundError(f"no upload is open for {store.url_of(key)}")
    if len(found) > 1:
        ids = ", ".join(upload.upload_id for upload in found)
        raise RecoveryError(f"several uploads are open for {store.url_of(key)}", hint=f"name one of: {ids}")
    return found[0].upload_id
