"""Presigned URLs of a real server: they are signed for GET, so HEAD is refused, and every verb does without it."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import aiohttp
import pytest

import resilient_pq as rpq
from resilient_pq.bulk.file_task import FileTask
from resilient_pq.io import resolve
from resilient_pq.io.location import shown

NUM_ROWS = 600


@pytest.fixture
def bucket(seaweedfs: Any, empty_bucket: Any) -> Iterator[Any]:
    """A bucket on a server that compares signatures."""
    with empty_bucket(seaweedfs) as found:
        yield found


def _presigned(bucket: Any, name: str) -> str:
    url: str = bucket.client.generate_presigned_url("get_object", {"Bucket": bucket.bucket, "Key": name}, ExpiresIn=600)
    return url


@pytest.fixture
async def urls(bucket: Any, tmp_path: Path) -> dict[str, str]:
    """Presigned URLs of files: sound, torn, with a changed byte; and of one that is not there."""
    path = tmp_path / "sound.parquet"
    async with rpq.create(path, row_group_rows=200, checkpoint_every=1, checkpoint_overhead=1) as writer:
        await writer.write({"number": list(range(NUM_ROWS)), "text": [f"row {i}" for i in range(NUM_ROWS)]})
    data = path.read_bytes()
    async with rpq.open(path) as file:
        chunk = file.metadata.row_groups[1].columns[0].meta_data
    assert chunk is not None
    flipped = bytearray(data)
    flipped[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 0x10
    for name, content in {"sound": data, "torn": data[:-100], "flipped": bytes(flipped)}.items():
        bucket.client.put_object(Bucket=bucket.bucket, Key=f"{name}.parquet", Body=content)
    names = ("sound", "torn", "flipped", "none")
    return {name: _presigned(bucket, f"{name}.parquet") for name in names}


async def test_every_verb_takes_presigned_urls(urls: dict[str, str], tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as session, session.head(urls["sound"]) as refused:
        assert refused.status == 403  # what this is about
    async with rpq.open(urls["sound"]) as file:
        assert (await file.read(columns=["number"])).num_rows == NUM_ROWS
    assert (await rpq.check(urls["sound"])).outcome == "sound"
    found = await rpq.check(urls["flipped"])
    assert found.outcome == "damaged"
    assert found.next == (("rpq", "recover", shown(urls["flipped"]), "flipped.recovered.parquet"),)
    kept = await rpq.recover(urls["torn"], tmp_path / "torn.parquet")
    assert kept.num_rows == NUM_ROWS
    both = await rpq.recover([urls["flipped"], urls["sound"]], tmp_path / "both.parquet")
    assert both.num_rows == NUM_ROWS
    summary = await rpq.check_many([*urls.values()]).finish()
    assert dict(summary.outcomes) == {"sound": 1, "damaged": 2, "error": 1}
    many = rpq.recover_many([urls[name] for name in ("sound", "flipped")], tmp_path / "many")
    assert dict((await many.finish()).outcomes) == {"sound": 1, "partial": 1}
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == ["flipped.parquet", "sound.parquet"]
    async with rpq.open_many([urls["sound"], urls["sound"]]) as dataset:
        assert dataset.num_rows == 2 * NUM_ROWS
    async with rpq.open(urls["flipped"], on_damage="drop") as file:
        assert (await file.read()).num_rows == NUM_ROWS - 200
    with pytest.raises(rpq.NotFoundError):
        await rpq.check(urls["none"])


async def test_signatures_stand_in_no_object_and_no_error(
    urls: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is printed, pickled for others to see, or written."""
    caplog.set_level(logging.DEBUG, "resilient_pq")
    queries = [parse_qs(urlsplit(url).query) for url in urls.values()]
    secrets = {"Signature=", *(quote(query["Signature"][0])[:20] for query in queries)}
    assert len(secrets) == 5
    told: list[object] = []
    for name, url in urls.items():
        store, key = resolve(url)
        told += [FileTask("check", (store, key)), store]
        await store.close()
        for location in (url, f"simplecache::{url}"):
            try:
                async with rpq.open(location) as file:
                    told += [file, file.url, file.info, file.place[1:], await file.plan(), await file.read()]
            except rpq.ResilientPQError as error:
                told += [error, *traceback.format_exception(error), error.__reduce__()]
            try:
                report = await rpq.check(location)
                told += [report, report.to_json(), pickle.dumps(report)]
                report = await rpq.recover(location, tmp_path / f"{name}.parquet", overwrite=True, schema_from=url)
                told += [report, report.to_json(), pickle.dumps(report)]
            except rpq.ResilientPQError as error:
                told += [error, *traceback.format_exception(error)]
        async for result in rpq.check_many([url], resume=tmp_path / "journal"):
            told += [result, result.to_json(), pickle.dumps(result)]
    told += [caplog.text, *(path.read_bytes() for path in tmp_path.iterdir())]
    for thing in told:
        for text in (repr(thing), str(thing)):
            assert not any(secret in text for secret in secrets), type(thing)
