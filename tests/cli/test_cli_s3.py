"""The verbs on S3: the same words, and commands that lead to the same store."""

from __future__ import annotations

import io
import json
import random
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from resilient_pq.cli.exit_codes import ExitCode

Run = Callable[..., Any]


def test_from_one_end_to_the_other(rpq_run: Run, s3: Any, sound: Path, torn: Path, tmp_path: Path) -> None:
    endpoint = ("--endpoint-url", s3.endpoint_url)
    url = s3.url("folder/sound.parquet")
    ended = rpq_run("write", sound, url, "--row-group-rows", 250, *endpoint)
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")
    assert ended.words("next") == [f"rpq check {url} --endpoint-url {s3.endpoint_url}"]

    assert rpq_run("check", url, *endpoint).words("sound")[0].startswith("1,000 rows in 4 row groups")
    assert rpq_run("inspect", url, *endpoint).words("file") == [url]
    lines = rpq_run("cat", url, "--head", 2, "--columns", "number", *endpoint).out.splitlines()
    assert [json.loads(line) for line in lines] == [{"number": 0}, {"number": 1}]
    assert rpq_run("inspect", url, "--pages", "text", "--json", *endpoint).document["pages"]

    s3.client.put_object(Bucket=s3.bucket, Key="torn.parquet", Body=torn.read_bytes())
    credentials = ("--storage-option", f"key={s3.key}", "--storage-option", f"secret={s3.secret}")
    found = rpq_run("check", s3.url("torn.parquet"), *endpoint, *credentials)
    lacking = "--storage-option key=..., --storage-option secret=..."
    assert (found.code, found.err.count("\n"), lacking in found.err) == (ExitCode.DAMAGE, 1, True)
    assert s3.secret not in found.out
    recovered = rpq_run(*found.words("next")[0].split()[1:])
    assert recovered.code == ExitCode.DAMAGE
    assert recovered.words("written") == [s3.url("torn.recovered.parquet")]
    assert rpq_run("write", s3.url("torn.recovered.parquet"), tmp_path / "local.parquet", *endpoint).code == 0


def test_what_the_store_refuses(rpq_run: Run, s3: Any, sound: Path) -> None:
    endpoint = ("--endpoint-url", s3.endpoint_url)
    for arguments in (
        ("check", s3.url("nothing.parquet")),
        ("cat", s3.url("nothing.parquet")),
        ("inspect", s3.url("nothing.parquet"), "--json"),
        ("recover", s3.url("nothing.parquet"), s3.url("saved.parquet")),
        ("write", sound, "s3://rpq-no-such-bucket/x.parquet"),
    ):
        ended = rpq_run(*arguments, *endpoint)
        assert ended.code == ExitCode.STORE
        assert ended.err.startswith("error       ")
        assert "Traceback" not in ended.err
    assert s3.object_names() == []


def test_a_writer_that_fails_says_how_to_rescue_what_it_stored(rpq_run: Run, s3_proxy: Any, tmp_path: Path) -> None:
    """Also where the error has a hint of its own; and the command leads to the same store."""
    s3, proxy = s3_proxy
    source, url = tmp_path / "noise.jsonl", s3.url("day.parquet")
    noise = random.Random(1)
    source.write_text("".join(json.dumps({"noise": noise.randbytes(500).hex()}) + "\n" for _ in range(8_000)))
    proxy.on("POST", match="uploadId=", status=403)
    ended = rpq_run(
        "write", source, url, "--row-group-bytes", "1MiB", "--checkpoint-bytes", "1MiB", "--json",
        "--endpoint-url", s3.endpoint_url,
    )  # fmt: skip
    assert ended.code == ExitCode.STORE
    assert "check the credentials" in ended.document["error"]["hint"]
    (note,) = ended.document["notes"]
    assert " rows are kept in " in note and f"note        {note}" in ended.err.replace("\n", " ")
    command = shlex.split(note[note.index("rpq uploads complete") :])
    assert rpq_run(*command[1:]).words("completed")[0].startswith(url)


def test_the_upload_of_a_recovery_that_was_killed_is_named(rpq_run: Run, s3: Any) -> None:
    """The command leads to the same store."""
    rows, written = pa.table({"x": np.random.default_rng(5).random(1_000_000)}), io.BytesIO()
    pq.write_table(rows, written, row_group_size=100_000, compression="none", use_dictionary=False)
    s3.client.put_object(Bucket=s3.bucket, Key="day.parquet", Body=written.getvalue())
    left = s3.client.create_multipart_upload(Bucket=s3.bucket, Key="out.parquet")["UploadId"]
    places = s3.url("day.parquet"), s3.url("out.parquet"), "--endpoint-url", s3.endpoint_url
    ended = rpq_run("recover", *places)
    assert ended.code == ExitCode.SOUND and left in ended.err
    (note,) = rpq_run("recover", *places, "--overwrite", "--json").document["notes"]
    assert left in note
    assert rpq_run(*shlex.split(note[note.index("rpq uploads abort") :])[1:]).code == ExitCode.SOUND
    assert not s3.upload_ids()
