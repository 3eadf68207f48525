"""Where the demo writes: a folder of this machine, or a bucket. Each knows what a killed writer leaves there."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

import resilient_pq as rpq
from resilient_pq.io import MultipartStore, resolve
from resilient_pq.io.os_errors import explained

MiB = 1024 * 1024

NAME = "demo.parquet"
RECOVERED_NAME = "demo.recovered.parquet"


class Place(Protocol):
    """Where the demo writes; it is cleared at the end of an ``async with``.

    Attributes:
        url: The file that the writer writes.
        recovered_url: The file that is recovered.
        storage_options: How to reach the store.
        part_bytes: Bytes of a part of an upload; None where there are no parts.
        torn: Whether what a killed writer leaves has to be recovered to a file of its own.
        kept: Whether the files are there after the end.
    """

    url: str
    recovered_url: str
    storage_options: dict[str, Any]
    part_bytes: int | None
    torn: bool
    kept: bool

    async def __aenter__(self) -> Self:
        """Make the place ready."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove what the demo made, unless it is to be kept."""

    async def leftover(self) -> tuple[str, str]:
        """What the killed writer left, as the URL of something that can be checked, and in words."""


class Folder:
    """A folder of this machine."""

    def __init__(self, parent: str | None) -> None:
        """A new folder in `parent`, which stays; a temporary one where that is None."""
        self.kept = parent is not None
        self.storage_options: dict[str, Any] = {}
        self.part_bytes: int | None = None
        self.torn = True
        self._parent = parent
        self._path = ""
        self.url = self.recovered_url = ""

    async def __aenter__(self) -> Self:
        """Make the folder."""
        with explained("cannot make a folder", self._parent or tempfile.gettempdir()):
            if self._parent is not None:
                os.makedirs(self._parent, exist_ok=True)
            self._path = tempfile.mkdtemp(prefix="rpq-demo-", dir=self._parent)
        self.url = os.path.join(self._path, NAME)
        self.recovered_url = os.path.join(self._path, RECOVERED_NAME)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the folder, unless it is to be kept."""
        if not self.kept:
            shutil.rmtree(self._path, ignore_errors=True)

    async def leftover(self) -> tuple[str, str]:
        """The partial file."""
        found = await asyncio.to_thread(_sizes, self._path)
        path = f"{self.url}.partial"
        visible = "and" if NAME in found else "and no"
        return path, f"{NAME}.partial with {found[f'{NAME}.partial']:,} bytes, {visible} {NAME}"


class Bucket:
    """A bucket on S3; the demo makes objects under a name of its own."""

    def __init__(self, bucket: str, storage_options: dict[str, Any], *, create: bool, keep: bool) -> None:
        """Use a bucket.

        Args:
            bucket: Its name.
            storage_options: Credentials, endpoint and so on.
            create: Make the bucket where there is none, and remove it at the end.
            keep: Leave everything there.
        """
        self.kept = keep
        self._bucket = bucket
        self._create = create
        self.storage_options = storage_options
        # The smallest that S3 takes, so that a demo has many.
        self.part_bytes: int | None = 5 * MiB
        self._prefix = f"s3://{bucket}/rpq-demo-{secrets.token_hex(4)}"
        self.torn = False
        self.url = self.recovered_url = f"{self._prefix}/{NAME}"

    async def __aenter__(self) -> Self:
        """Ask the bucket something: an error of the store is best told before anything is written."""
        try:
            await rpq.list_uploads(self.url, storage_options=self.storage_options)
        except rpq.NotFoundError:
            if not self._create:
                raise
            await self._on_bucket("create_bucket")
        else:
            self._create = False  # it is not ours to remove
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the objects, and the uploads that were not completed."""
        store, prefix = resolve(self._prefix, self.storage_options)
        async with store:
            assert isinstance(store, MultipartStore)
            for upload in await store.list_uploads(prefix):
                with suppress(rpq.NotFoundError):
                    await store.abort_upload(upload.key, upload.upload_id)
            if not self.kept:
                await store.delete(f"{prefix}/{NAME}")
        if self._create and not self.kept:
            await self._on_bucket("delete_bucket")

    async def leftover(self) -> tuple[str, str]:
        """The writer's open upload, completed up to its newest checkpoint."""
        done = await rpq.complete_upload(self.url, storage_options=self.storage_options)
        words = f"an open upload; completed up to its newest checkpoint, it is {NAME} with {done.size:,} bytes,"
        return self.url, f"{words} of which none was moved"

    async def _on_bucket(self, operation: str) -> None:
        from resilient_pq.io.s3_client import S3Client  # noqa: PLC0415 (s3fs is slow to import)

        client = S3Client(self.storage_options)
        try:
            await client.call(operation, f"s3://{self._bucket}", Bucket=self._bucket)
        finally:
            await client.close()


def _sizes(folder: str) -> dict[str, int]:
    """The names of the files in a folder, and their sizes."""
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat().st_size for entry in entries}
