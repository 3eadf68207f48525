"""The place of the demo's files: a local folder or a bucket, which are cleared at the end."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import resilient_pq as rpq
from resilient_pq.io import MultipartStore, resolve
from resilient_pq.io.os_errors import explained
from resilient_pq.units import MiB

NAME = "demo.parquet"
RECOVERED_NAME = "demo.recovered.parquet"


@dataclass(frozen=True, slots=True)
class Place:
    """The file of the demo and the recovered file, which are the same on S3; `kept` if they stay after the end."""

    url: str
    recovered_url: str
    kept: bool
    storage_options: dict[str, Any]
    part_bytes: int | None = None

    async def leftover(self) -> tuple[str, str]:
        """The remains of the killed writer: a URL that can be checked, and words."""
        if self.part_bytes is None:
            return await asyncio.to_thread(self._partial)
        done = await rpq.complete_upload(self.url, storage_options=self.storage_options)
        words = f"an open upload; completed up to its newest checkpoint, it is {NAME} with {done.size:,} bytes,"
        return self.url, f"{words} of which none was moved"

    def _partial(self) -> tuple[str, str]:
        partial = f"{self.url}.partial"
        visible = "and" if os.path.exists(self.url) else "and no"
        return partial, f"{NAME}.partial with {os.path.getsize(partial):,} bytes, {visible} {NAME}"


@asynccontextmanager
async def folder(parent: str | None) -> AsyncIterator[Place]:
    """A new folder in `parent`, which stays; a temporary one where that is None."""
    with explained("cannot make a folder", parent or tempfile.gettempdir()):
        if parent is not None:
            os.makedirs(parent, exist_ok=True)
        path = tempfile.mkdtemp(prefix="rpq-demo-", dir=parent)
    try:
        yield Place(os.path.join(path, NAME), os.path.join(path, RECOVERED_NAME), parent is not None, {})
    finally:
        if parent is None:
            shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def bucket(name: str, options: dict[str, Any], *, create: bool, keep: bool) -> AsyncIterator[Place]:
    """Objects under a new prefix of a bucket; with `create`, a missing bucket is made and removed again."""
    prefix = f"s3://{name}/rpq-demo-{secrets.token_hex(4)}"
    url, made = f"{prefix}/{NAME}", False
    try:
        # Errors of the store should come before anything is written.
        await rpq.list_uploads(url, storage_options=options)
    except rpq.NotFoundError:
        if not create:
            raise
        await _on_bucket("create_bucket", name, options)
        made = True
    try:
        # Parts are the smallest that S3 takes, so that a demo has many.
        yield Place(url, url, keep, options, 5 * MiB)
    finally:
        store, key = resolve(prefix, options)
        async with store:
            assert isinstance(store, MultipartStore)
            for upload in await store.list_uploads(key):
                with suppress(rpq.NotFoundError):
                    await store.abort_upload(upload.key, upload.upload_id)
            if not keep:
                await store.delete(f"{key}/{NAME}")
        if made and not keep:
            await _on_bucket("delete_bucket", name, options)


async def _on_bucket(operation: str, name: str, options: dict[str, Any]) -> None:
    from resilient_pq.io.s3.s3_client import S3Client  # noqa: PLC0415 (s3fs is slow to import)

    client = S3Client(options)
    try:
        await client.call(operation, f"s3://{name}", Bucket=name)
    finally:
        await client.close()
