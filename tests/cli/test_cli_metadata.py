"""`rpq metadata`, and the other verbs on what it writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resilient_pq import sync as rpq
from resilient_pq.cli.exit_codes import ExitCode


@pytest.fixture
def folder(tmp_path: Path, sound_bytes: bytes) -> Path:
    """Two files of four row groups, in folders of their own."""
    for day in (1, 2):
        (tmp_path / "data" / f"day={day}").mkdir(parents=True)
        (tmp_path / "data" / f"day={day}" / "part.parquet").write_bytes(sound_bytes)
    return tmp_path / "data"


def test_it_says_what_it_wrote(folder: Path, rpq_run: Callable[..., Any]) -> None:
    ended = rpq_run("metadata", folder)
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")
    assert ended.words("summary") == ["2,000 rows in 8 row groups of 2 files"]
    size = (folder / "_metadata").stat().st_size
    first, second = ended.words("written")
    assert first.startswith(f"{folder}/_metadata, {size:,} bytes") and second == f"{folder}/_common_metadata"
    assert ended.words("next") == [f"rpq check {folder}/_metadata"]
    checked = rpq_run("check", folder / "_metadata")
    assert checked.code == ExitCode.SOUND and checked.words("sound")[0].startswith("2,000 rows in 8 row groups")


def test_json(folder: Path, rpq_run: Callable[..., Any]) -> None:
    document = rpq_run("metadata", folder, "--json").document
    assert (document["verb"], document["outcome"], document["rows"]) == ("metadata", "written", 2_000)
    assert (document["files"], document["row_groups"]) == (2, 8)
    assert (document["url"], document["common_url"]) == (f"{folder}/_metadata", f"{folder}/_common_metadata")
    assert document["next"] == [["rpq", "check", f"{folder}/_metadata"]]


def test_a_summary_is_replaced_only_when_asked(folder: Path, rpq_run: Callable[..., Any]) -> None:
    (folder / "_metadata").write_bytes(b"before")
    ended = rpq_run("metadata", folder)
    assert ended.code == ExitCode.STORE
    assert "there is a summary already" in ended.err and "--overwrite" in ended.err
    assert (folder / "_metadata").read_bytes() == b"before"
    assert rpq_run("metadata", folder, "--overwrite").code == ExitCode.SOUND


def test_how_it_fails(folder: Path, tmp_path: Path, torn: Path, rpq_run: Callable[..., Any]) -> None:
    assert rpq_run("metadata", tmp_path / "nowhere").code == ExitCode.STORE
    (folder / "torn.parquet").write_bytes(torn.read_bytes())
    ended = rpq_run("metadata", folder)
    assert ended.code == ExitCode.DAMAGE and "torn.parquet" in ended.err
    with rpq.create(folder / "torn.parquet") as writer:
        writer.write({"number": [1], "text": ["x"], "share": ["not a number"]})
    ended = rpq_run("metadata", folder, "--json")
    assert ended.code == ExitCode.USAGE
    error = ended.document["error"]
    assert (error["type"], error["where"]["column"]) == ("SchemaError", "share")
    assert not (folder / "_metadata").exists()


def test_inspect_and_cat_of_a_summary(folder: Path, rpq_run: Callable[..., Any]) -> None:
    rpq_run("metadata", folder)
    summary = folder / "_metadata"
    ended = rpq_run("inspect", summary)
    assert ended.words("summary of") == ["2 files"] and ended.words("rows") == ["2,000 in 8 row groups"]
    listed = rpq_run("inspect", summary, "--row-groups").out.splitlines()
    assert listed[0].split() == ["file", "row", "group", "rows", "offset", "bytes", "uncompressed"]
    assert [line.split()[:3] for line in listed[4:6]] == [
        ["day=1/part.parquet", "3", "250"],
        ["day=2/part.parquet", "4", "250"],
    ]
    document = rpq_run("inspect", summary, "--row-groups", "--pages", "number", "--json").document
    assert document["data_files"] == 2
    assert [group["files"] for group in document["row_group_list"][3:5]] == [
        ["day=1/part.parquet"],
        ["day=2/part.parquet"],
    ]
    assert sum(page["values"] for page in document["pages"]) == 2_000
    ended = rpq_run("cat", summary, "--columns", "number")
    assert ended.out.splitlines() == [f'{{"number": {number % 1_000}}}' for number in range(2_000)]


def test_check_names_the_file_that_is_damaged(folder: Path, flipped: Path, rpq_run: Callable[..., Any]) -> None:
    rpq_run("metadata", folder)
    (folder / "day=2" / "part.parquet").write_bytes(flipped.read_bytes())
    ended = rpq_run("check", folder / "_metadata")
    assert ended.code == ExitCode.DAMAGE
    (words,) = ended.words("corrupt")
    assert f"({folder}/day=2/part.parquet, row group 5, column number" in words
    assert ended.words("next") == [f"rpq check {folder}/day=2/part.parquet"]
    (folder / "day=1" / "part.parquet").unlink()
    ended = rpq_run("check", folder / "_metadata", "--json")
    assert ended.document["rows"] == 750
    assert ["rpq", "metadata", str(folder), "--overwrite"] in ended.document["next"]
    failed = rpq_run("cat", folder / "_metadata")
    assert failed.code == ExitCode.STORE and "day=1/part.parquet" in failed.err


def test_recover_refuses_a_summary(folder: Path, tmp_path: Path, rpq_run: Callable[..., Any]) -> None:
    rpq_run("metadata", folder)
    ended = rpq_run("recover", folder / "_metadata", tmp_path / "out")
    assert ended.code == ExitCode.USAGE
    assert f"rpq metadata {folder} --overwrite" in ended.err
    assert not (tmp_path / "out").exists()


def test_on_s3(moto_server: Any, sound_bytes: bytes, rpq_run: Callable[..., Any]) -> None:
    moto_server.client.put_object(Bucket=moto_server.bucket, Key="summary/a.parquet", Body=sound_bytes)
    reached = ("--endpoint-url", moto_server.endpoint_url)
    ended = rpq_run("metadata", moto_server.url("summary"), "--overwrite", *reached)
    assert ended.code == ExitCode.SOUND
    assert ended.words("next") == [
        f"rpq check {moto_server.url('summary/_metadata')} --endpoint-url {moto_server.endpoint_url}"
    ]
    assert rpq_run("check", moto_server.url("summary/_metadata"), *reached).code == ExitCode.SOUND
