"""`rpq uploads`: what a killed writer left on S3, listed, completed and aborted from a shell."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

import resilient_pq as rpq
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.shared_options import parse_age
from resilient_pq.cli.uploads import found_uploads
from resilient_pq.units import MiB
from resilient_pq.writer.checkpoint_log import CheckpointLog

Run = Callable[..., Any]
Crash = Callable[[str], Any]


@pytest.fixture
def s3_server(moto_server: Any) -> Any:
    """What is printed does not depend on the server; tests of the library run on both."""
    return moto_server


@pytest.fixture
def reached(s3: Any) -> tuple[str, str]:
    return ("--endpoint-url", s3.endpoint_url)


def run_next(rpq_run: Run, ended: Any) -> Any:
    """The command that was printed, as somebody would paste it."""
    (command,) = ended.words("next")
    name, *arguments = shlex.split(command)
    assert name == "rpq"
    return rpq_run(*arguments)


def test_a_rescue_from_one_printed_command_to_the_next(
    s3: Any, crash: Crash, reached: Any, rpq_run: Run, tmp_path: Path
) -> None:
    left = crash("the day.parquet")  # a name that a shell needs quotes for
    url = s3.url("the day.parquet")
    listed = rpq_run("uploads", "list", f"s3://{s3.bucket}", *reached)
    assert (listed.code, listed.err) == (ExitCode.SOUND, "")
    header, row = listed.out.splitlines()[:2]
    assert header.split() == ["url", "upload", "id", "begun", "age", "parts", "size", "completable", "by", "rows"]
    assert row.startswith(f"{url}  {left.upload_id}  ")
    assert row.split()[-7:-5] == ["4", f"{left.num_bytes / MiB:.1f}"]
    assert row.endswith(f"  {len(left.stored) / MiB:.1f} MiB  rule  unknown")

    info = run_next(rpq_run, listed)
    assert (info.code, info.err) == (ExitCode.SOUND, "")
    assert info.words("upload")[0].startswith(left.upload_id)
    (holds,) = info.words("holds")
    assert holds.startswith(f"{len(left.stored):,} bytes (") and holds.endswith("unknown rows")
    assert info.words("object") == ["there is none"]

    completed = run_next(rpq_run, info)
    assert (completed.code, completed.err) == (ExitCode.SOUND, "")
    assert completed.words("completed")[0].startswith(f"{url}, {len(left.stored):,} bytes")
    assert completed.words("dropped")[0].startswith("5,242,880 bytes")

    checked = run_next(rpq_run, completed)
    assert checked.code == ExitCode.DAMAGE, "its writer did not finish it"
    assert checked.words("sound")[0].startswith(f"{left.num_rows} rows")
    assert s3.read("the day.parquet") == left.stored

    again = rpq_run("uploads", "resume-info", url, *reached)
    assert again.code == ExitCode.SOUND and again.words("upload") == []
    assert again.words("object")[0].endswith(f", in-progress, {left.num_rows} rows")
    assert run_next(rpq_run, again).code == ExitCode.DAMAGE


def test_json_of_a_rescue(s3: Any, crash: Crash, reached: Any, rpq_run: Run) -> None:
    left, url = crash("day.parquet"), s3.url("day.parquet")
    document = rpq_run("uploads", "list", s3.url(""), "--json", *reached).document
    assert (document["verb"], document["outcome"], document["url"]) == ("uploads list", "read", s3.url(""))
    (upload,) = document["uploads"]
    assert datetime.fromisoformat(upload.pop("initiated")).tzinfo is not None
    expected = {
        "url": url,
        "upload_id": left.upload_id,
        "parts": 4,
        "size": left.num_bytes,
        "fits_rule": True,
        "stored_bytes": len(left.stored),
        "gap_free_bytes": left.num_bytes,
        "gap": None,
        "rows": None,
    }
    assert upload == expected
    document = rpq_run("uploads", "resume-info", url, "--json", *reached).document
    assert (document["verb"], document["outcome"]) == ("uploads resume-info", "read")
    assert [each | {"initiated": None} for each in document["uploads"]] == [expected | {"initiated": None}]
    assert document["object"] is None
    document = rpq_run("uploads", "complete", url, "--json", *reached).document
    assert (document["verb"], document["outcome"], document["how"]) == ("uploads complete", "completed", "rule")
    assert (document["parts"], document["size"]) == (3, len(left.stored))
    assert (document["bytes_dropped"], document["rows"]) == (5 * MiB, None)
    assert document["next"] == [["rpq", "check", url, *reached]]
    document = rpq_run("uploads", "resume-info", url, "--json", *reached).document
    assert document["rows"] == left.num_rows
    assert document["object"].pop("etag") and len(document["object"].pop("file_id")) == 32
    assert document["object"] == {"size": len(left.stored), "state": "in-progress"}


def test_a_log_tells_the_rows(s3: Any, crash: Crash, reached: Any, rpq_run: Run, tmp_path: Path) -> None:
    left, url = crash("day.parquet"), s3.url("day.parquet")
    with CheckpointLog.open(tmp_path / "log") as log:
        log.begun(url=url, upload_id=left.upload_id, file_id="0f" * 16)
        log.stored(ordinal=1, num_rows=left.num_rows, offset=len(left.stored), upload_id=left.upload_id)
    logged = ("--log", tmp_path / "log", *reached)
    assert rpq_run("uploads", "list", url, *logged).out.splitlines()[1].endswith(f"rule   {left.num_rows}")
    assert rpq_run("uploads", "resume-info", url, *logged).words("holds")[0].endswith(f", {left.num_rows} rows")
    assert rpq_run("uploads", "abort", url, *logged).words("aborted")[0].endswith(f", {left.num_rows} rows")
    assert s3.upload_ids() == []
    (tmp_path / "log").write_bytes(b"no log\n")
    ended = rpq_run("uploads", "list", url, *logged)
    assert ended.code == ExitCode.DAMAGE and "no log of checkpoints" in ended.err


def test_a_strangers_upload(moto_server: Any, committed_file: Any, rpq_run: Run) -> None:
    s3, reached = moto_server, ("--endpoint-url", moto_server.endpoint_url)
    place = {"Bucket": s3.bucket, "Key": "cli/theirs.parquet"}
    upload_id = s3.client.create_multipart_upload(**place)["UploadId"]
    for number in (1, 2, 4):
        part = committed_file.data[(number - 1) * 5 * MiB : number * 5 * MiB]
        s3.client.upload_part(**place, UploadId=upload_id, PartNumber=number, Body=part)
    info = rpq_run("uploads", "resume-info", s3.url("cli/theirs.parquet"), *reached)
    assert "not as a writer of ours leaves them" in info.words("holds")[0]
    assert info.words("missing") == ["part 3"]
    completed = run_next(rpq_run, info)
    assert completed.code == ExitCode.SOUND
    assert "up to the first part that is missing" in completed.words("completed")[0]
    recovered = run_next(rpq_run, completed)
    whole = max(rows for end, rows in committed_file.ends if end <= 10 * MiB)
    # What of the next row group came with these parts is whole in pages, and kept as well.
    assert int(recovered.words("kept")[0].split()[0]) >= whole


def test_metadata_of_a_strangers_file(moto_server: Any, rpq_run: Run, tmp_path: Path) -> None:
    s3, reached = moto_server, ("--endpoint-url", moto_server.endpoint_url)
    table = pa.table({"number": range(700_000), "double": [i * 1.5 for i in range(700_000)]})
    path = tmp_path / "theirs.parquet"
    pq.write_table(table, path, row_group_size=100_000, compression="none", use_dictionary=False)
    place = {"Bucket": s3.bucket, "Key": "cli/their_rows.parquet"}
    upload_id = s3.client.create_multipart_upload(**place)["UploadId"]
    part = path.read_bytes()[: 5 * MiB]
    s3.client.upload_part(**place, UploadId=upload_id, PartNumber=1, Body=part)
    pq.read_metadata(path).write_metadata_file(tmp_path / "_metadata")
    url = s3.url("cli/their_rows.parquet")
    completed = rpq_run("uploads", "complete", url, "--metadata", tmp_path / "_metadata", *reached)
    assert (completed.code, completed.err) == (ExitCode.SOUND, "")
    assert completed.words("rows") == ["300,000; 400,000 rows of the metadata are not in the parts"]
    assert pq.read_table(io.BytesIO(s3.read("cli/their_rows.parquet"))).equals(table.slice(0, 300_000))
    checked = run_next(rpq_run, completed)
    assert checked.words("decoded") == ["300,000 rows in 3 row groups"]


def test_what_is_refused(s3: Any, reached: Any, rpq_run: Run, tmp_path: Path) -> None:
    url = s3.url("day.parquet")
    for verb in ("complete", "abort"):
        ended = rpq_run("uploads", verb, url, *reached)
        assert ended.code == ExitCode.STORE and "no upload is open" in ended.err
    ended = rpq_run("uploads", "resume-info", url, *reached)
    assert ended.code == ExitCode.NOTHING
    assert ended.words("object") == ["there is none, and no upload is open"]
    ended = rpq_run("uploads", "list", url, *reached)
    assert (ended.code, ended.words("nothing")) == (ExitCode.SOUND, [f"no upload is open below {url}"])
    s3.client.create_multipart_upload(Bucket=s3.bucket, Key="day.parquet")
    ended = rpq_run("uploads", "complete", url, *reached)
    assert ended.code == ExitCode.NOTHING and "no part 1" in ended.err
    ended = rpq_run("uploads", "resume-info", url, *reached)
    assert ended.words("next") == []
    assert ended.words("holds") == ["nothing that could be completed: no part is there"]
    s3.client.put_object(Bucket=s3.bucket, Key="day.parquet", Body=b"there")
    ended = rpq_run("uploads", "complete", url, *reached)
    assert ended.code == ExitCode.STORE and "--overwrite" in ended.err
    (words,) = rpq_run("uploads", "resume-info", url, *reached).words("object")
    assert words == "5 bytes, without a footer that can be read; completing an upload needs --overwrite"
    s3.client.create_multipart_upload(Bucket=s3.bucket, Key="day.parquet")
    ended = rpq_run("uploads", "abort", url, *reached)
    assert ended.code == ExitCode.USAGE and "several uploads" in ended.err
    assert len(s3.upload_ids()) == 2
    ended = rpq_run("uploads", "abort", f"s3://{s3.bucket}", *reached)
    assert ended.code == ExitCode.USAGE and "names no object" in ended.err
    ended = rpq_run("uploads", "list", tmp_path)
    assert ended.code == ExitCode.USAGE and "s3://" in ended.err


def test_only_what_is_old_enough_is_aborted(
    s3: Any, reached: Any, rpq_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers cannot be told when an upload was begun, so what they tell is changed."""
    from resilient_pq.io.s3.s3_store import S3Store

    listed = S3Store.list_uploads
    days = {"a/1": 1, "a/2": 2, "a/3": 3, "b/9": 9}
    ids = {name: s3.client.create_multipart_upload(Bucket=s3.bucket, Key=name)["UploadId"] for name in days}

    async def with_ages(store: S3Store, prefix: str) -> Any:
        now = datetime.now(UTC)
        return [
            replace(each, initiated=now - timedelta(days=days[each.key.removeprefix(f"{s3.bucket}/")]))
            for each in await listed(store, prefix)
        ]

    monkeypatch.setattr(S3Store, "list_uploads", with_ages)
    rows = rpq_run("uploads", "list", f"s3://{s3.bucket}", *reached).out.splitlines()[1:5]
    assert [row.split()[0] for row in rows] == [s3.url(name) for name in ("b/9", "a/3", "a/2", "a/1")]
    rows = rpq_run("uploads", "list", s3.url("a/"), "--older-than", "47h", *reached).out.splitlines()[1:]
    assert [row.split()[0] for row in rows[:-1]] == [s3.url("a/3"), s3.url("a/2")]

    ended = rpq_run("uploads", "abort", s3.url("a/"), "--older-than", "30d", *reached)
    assert (ended.code, ended.words("aborted")) == (ExitCode.SOUND, [])
    assert ended.words("nothing") == ["no such upload was begun 4w ago or earlier; none was dropped"]
    young = rpq_run("uploads", "abort", s3.url("a/1"), "--upload-id", ids["a/1"], "--older-than", "2d", *reached)
    assert young.words("nothing") and sorted(s3.upload_ids()) == sorted(ids.values())

    ended = rpq_run("uploads", "abort", s3.url("a/"), "--older-than", "2d", *reached)
    assert [words.split(", ")[:3] for words in ended.words("aborted")] == [
        [s3.url("a/3"), ids["a/3"], "begun 3d ago"],
        [s3.url("a/2"), ids["a/2"], "begun 2d ago"],
    ]
    assert sorted(s3.upload_ids()) == sorted([ids["a/1"], ids["b/9"]])
    document = rpq_run("uploads", "abort", s3.url("a/1"), "--json", *reached).document
    assert (document["verb"], document["outcome"]) == ("uploads abort", "aborted")
    assert [each["upload_id"] for each in document["uploads"]] == [ids["a/1"]]
    named = rpq_run("uploads", "abort", s3.url("b/9"), "--upload-id", ids["b/9"], *reached)
    assert named.code == ExitCode.SOUND and s3.upload_ids() == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("12h", 43_200), ("1d", 86_400), (" 2W ", 1_209_600), ("0s", 0)]
)
def test_ages(text: str, seconds: int) -> None:
    assert parse_age(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "1", "d", "1.5d", "-1d", "1y", "1d2h", "9999999w", "\u0661d"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="12h"):
        parse_age(text)


@pytest.mark.parametrize(
    ("since", "words"),
    [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (7_199, "1h"), (86_400, "1d"), (14 * 86_400, "2w")],
)
def test_ages_in_words(since: int, words: str) -> None:
    assert found_uploads.age(timedelta(seconds=since)) == words


def test_an_upload_whose_age_is_not_told() -> None:
    upload = rpq.Upload("s3://b/k", "b/k", "id", None, 1, 2_048, 2_048, None, None)
    assert found_uploads.row(upload, datetime.now(UTC)) == (
        "s3://b/k", "id", "?", "?", "1", "2.0 KiB", "2.0 KiB", "gap-free", "unknown",
    )  # fmt: skip
    assert found_uploads.as_json(upload)["initiated"] is None


def test_many_uploads_are_completed_by_a_pattern(s3: Any, crash: Crash, reached: Any, rpq_run: Run) -> None:
    left = crash("events/a/1.parquet")
    crash("events/b/2.parquet")
    crash("events/b/3.other")
    listed = rpq_run("uploads", "list", s3.url("events/**/*.parquet"), *reached, "--json")
    assert [upload["url"] for upload in listed.document["uploads"]] == [
        s3.url("events/a/1.parquet"),
        s3.url("events/b/2.parquet"),
    ]
    pattern = s3.url("events/**/*.parquet")
    for verb in ("complete", "abort"):
        for url in (pattern, s3.url("events/")):
            refused = rpq_run("uploads", verb, url, *reached)
            assert refused.code == ExitCode.USAGE and "--older-than" in refused.err
    s3.client.put_object(Bucket=s3.bucket, Key="events/b/2.parquet", Body=b"in the way")
    ended = rpq_run("uploads", "complete", pattern, "--older-than", "0s", *reached, "--json")
    assert ended.code == ExitCode.STORE and "events/b/2.parquet" in ended.err
    *each, summary = [json.loads(line) for line in ended.out.splitlines()]
    assert [document["outcome"] for document in each] == ["completed", "error"]
    assert (each[0]["url"], each[0]["size"]) == (s3.url("events/a/1.parquet"), len(left.stored))
    assert (summary["uploads_completed"], summary["uploads_not_completed"]) == (1, 1)
    again = rpq_run("uploads", "complete", pattern, "--older-than", "0s", "--overwrite", *reached)
    assert again.code == 0 and len(again.words("completed")) == 1
    assert "no such upload" in rpq_run("uploads", "complete", pattern, "--older-than", "0s", *reached).out
    dropped = rpq_run("uploads", "abort", s3.url("events/**"), "--older-than", "0s", *reached)
    assert dropped.code == 0 and len(dropped.words("aborted")) == 1
    assert s3.client.list_multipart_uploads(Bucket=s3.bucket).get("Uploads", []) == []
