"""Whether an upload could be found by somebody who knows no more than the name of its object: asked before the first
promise that its bytes survive. Stores are met that take parts and list none of them, and some that list no uploads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from resilient_pq.errors import AccessDeniedError, BucketNotFoundError, NotFoundError, StoreError, UnsupportedError
from resilient_pq.io.multipart_store import MultipartStore, Part

_WAITS: Final = (0.0, 0.2, 0.8, 3.0)  # Seconds before each time that is asked: a listing may be a little old


async def findable_parts(
    store: MultipartStore, key: str, upload_id: str, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> list[Part] | None:
    """The parts of an open upload that has some; None where the store does not list them, or not the upload itself."""
    # Credentials that may not list uploads prove nothing: others may be used to look for one.
    for wait in _WAITS:
        await sleep(wait)
        try:
            parts = await store.list_parts(key, upload_id)
        except UnsupportedError:
            return None
        except BucketNotFoundError:
            raise
        except NotFoundError:
            if await _is_listed(store, key, upload_id):
                return None  # it is open, and yet nothing is told of its parts
            raise
        listed = await _is_listed(store, key, upload_id)
        if listed is None:
            return None
        if listed and parts:
            return parts
    return None


async def _is_listed(store: MultipartStore, key: str, upload_id: str) -> bool | None:
    """Whether the store lists the upload; True where the credentials may not list, None where the store cannot."""
    try:
        return any(found.upload_id == upload_id for found in await store.list_uploads(key))
    except AccessDeniedError:
        return True
    except UnsupportedError:
        return None
    except StoreError as error:
        if error.retryable:
            raise
        return None
