"""An empty folder, a missing one, one without Parquet files, and a bucket: each is told apart, in the API and the verbs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resilient_pq import sync as rpq

MESSAGES = {
    "empty": "the folder is empty",
    "empty/": "the folder is empty",
    "missing/": "there is no such folder",
    "texts": "there are no *.parquet files in the folder",
    "texts/": "there are no *.parquet files in the folder",
    "texts/*.parquet": "no file matches the pattern",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("rows")
    return tmp_path


@pytest.mark.parametrize("name", MESSAGES)
def test_local_folders(folder: Path, rpq_run: Callable[..., Any], name: str) -> None:
    url = f"{folder}/{name}"
    for call in (
        rpq.open_many,
        lambda url: rpq.scan(url).counters,
        lambda url: rpq.check_many(url).finish(),
        lambda url: rpq.recover_many(url, f"{folder}/out/").finish(),
    ):
        with pytest.raises(rpq.NotFoundError) as caught:
            call(url)
        assert caught.value.message == MESSAGES[name]
        assert caught.value.where.key is not None and str(folder) in caught.value.where.key
    for arguments in (["check", url], ["recover", url, f"{folder}/out/"], ["inspect", url]):
        ended = rpq_run(*arguments)
        assert (ended.code, MESSAGES[name] in ended.err) == (4, True)


def test_buckets(moto_server: Any, rpq_run: Callable[..., Any]) -> None:
    s3, options = moto_server, moto_server.storage_options
    s3.client.create_bucket(Bucket="hollow")
    for url, message in (
        ("s3://hollow", "the bucket is empty"),
        ("s3://hollow/", "the bucket is empty"),
        ("s3://hollow/day/", "there is no such folder"),
    ):
        with pytest.raises(rpq.NotFoundError) as caught:
            rpq.open_many(url, storage_options=options)
        assert caught.value.message == message
        ended = rpq_run("check", url, "--endpoint-url", s3.endpoint_url)
        assert (ended.code, message in ended.err) == (4, True)
    with pytest.raises(rpq.BucketNotFoundError):
        rpq.open_many("s3://never-made", storage_options=options)
    with pytest.raises(rpq.StoreError, match="the URL names no object, only a bucket"):
        rpq.open("s3://hollow", storage_options=options)
