"""What a checkpoint promises has the same names everywhere; how much it promises is what the store can."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.io import StoredState

TABLE = pa.table({"id": pa.array(range(100)), "name": [f"name {i}" for i in range(100)]})


@dataclass(frozen=True)
class Place:
    """Somewhere to write to."""

    url: str
    state: StoredState  # What a checkpoint is there, before the object is published
    read: Callable[[], bytes | None]  # The object as it is seen, None while it is not
    # What is left of an object that was not published: its bytes up to the last checkpoint, or None
    left: Callable[[], bytes | None]
    said: Callable[[], str | None]  # How an error names that
    storage_options: dict[str, Any] | None = None


@pytest.fixture
def local(tmp_path: Path) -> Place:
    path, partial = tmp_path / "a.parquet", tmp_path / "a.parquet.partial"
    return Place(
        str(path),
        StoredState.STORED,
        lambda: path.read_bytes() if path.exists() else None,
        lambda: partial.read_bytes() if partial.exists() else None,
        lambda: str(partial),
    )


@pytest.fixture
def through_fsspec() -> Iterator[Place]:
    files = fsspec.filesystem("memory")
    files.makedirs("/place", exist_ok=True)
    yield Place(
        "memory://place/a.parquet",
        StoredState.ACCEPTED,
        lambda: files.cat_file("/place/a.parquet") if files.exists("/place/a.parquet") else None,
        lambda: b"".join(files.cat_file(name) for name in files.find("/place")) or None,
        lambda: "a.parquet",
    )
    files.rm("/place", recursive=True)


def on_s3(server: Any, complete: Callable[..., Any]) -> Place:
    """An object in the bucket that all tests share."""
    name = f"{uuid.uuid4().hex}.parquet"

    def upload_id() -> str | None:
        listed = server.client.list_multipart_uploads(Bucket=server.bucket, Prefix=name)
        return next((str(upload["UploadId"]) for upload in listed.get("Uploads", [])), None)

    def left() -> bytes | None:
        found = upload_id()
        data: bytes | None = complete(server, name, found) if found else None
        return data

    return Place(
        server.url(name),
        StoredState.STORED,
        lambda: server.read(name) if name in server.object_names() else None,
        left,
        upload_id,
        server.storage_options,
    )


@pytest.fixture(params=["local", "through_fsspec", "seaweedfs", "moto_server"])
def place(request: pytest.FixtureRequest, complete_by_the_rule: Callable[..., Any]) -> Place:
    found = request.getfixturevalue(request.param)
    return found if isinstance(found, Place) else on_s3(found, complete_by_the_rule)


def rows(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data))


async def test_a_checkpoint_says_what_it_promises(place: Place) -> None:
    async with rpq.create(place.url, storage_options=place.storage_options) as writer:
        for start, end in ((0, 40), (40, 100)):
            await writer.write(TABLE.slice(start, end - start))
            checkpoint = await writer.checkpoint()
            assert (checkpoint.num_rows, checkpoint.state) == (end, place.state)
            assert writer.last_checkpoint == checkpoint
            assert writer.num_rows_stored == (end if place.state is StoredState.STORED else 0)
            assert place.read() is None
    data = place.read()
    assert data is not None and rows(data).equals(TABLE)
    assert writer.num_rows_stored == 100


async def test_what_is_kept_is_what_was_promised(place: Place) -> None:
    with pytest.raises(RuntimeError, match="stop") as caught:
        async with rpq.create(place.url, storage_options=place.storage_options) as writer:
            await writer.write(TABLE.slice(0, 40))
            checkpoint = await writer.checkpoint()
            await writer.write(TABLE.slice(40))
            raise RuntimeError("stop")
    assert place.read() is None
    if place.state is StoredState.ACCEPTED:
        assert place.left() is None
        return
    (note,) = caught.value.__notes__
    said = place.said()
    assert said is not None and said in note and "40 rows" in note
    left = place.left()
    assert left is not None and rows(left[: checkpoint.offset]).equals(TABLE.slice(0, 40))


async def test_nothing_is_kept_when_it_should_not_be(place: Place) -> None:
    with pytest.raises(RuntimeError, match="stop"):
        async with rpq.create(place.url, storage_options=place.storage_options, on_error="abort") as writer:
            await writer.write(TABLE)
            await writer.checkpoint()
            raise RuntimeError("stop")
    assert place.read() is None
    assert place.left() is None


async def test_a_local_file_is_synced_before_its_rows_are_stored(local: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = [0]
    sync = os.fsync

    def note(descriptor: int) -> None:
        sync(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr("os.fsync", note)
    async with rpq.create(local.url) as writer:
        for start in range(0, 100, 20):
            await writer.write(TABLE.slice(start, 20))
            checkpoint = await writer.checkpoint()
            assert checkpoint.state is StoredState.STORED
            assert synced[-1] >= checkpoint.offset
