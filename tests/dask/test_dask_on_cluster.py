"""`resilient_pq.dask` on a cluster of two workers: the same files and the same answers, whoever dies."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import KilledWorker

import resilient_pq.dask as rpqd
from resilient_pq import sync as rpq
from resilient_pq.bulk.many_files import check_many, recover_many

#: Without workers, tasks would wait for ever.
pytestmark = pytest.mark.timeout(120)

DAYS = 12


def write_day(path: Path, number: int, num_rows: int = 2_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(number).integers(0, 2**63, num_rows)
    with rpq.create(path, row_group_rows=max(500, num_rows // 4)) as writer:
        writer.write({"n": np.arange(num_rows), "noise": values})


def damage(path: Path, number: int) -> None:
    """Every third file is sound; the others are damaged in different ways."""
    data = path.read_bytes()
    match number % 6:
        case 1:
            path.write_bytes(data[: len(data) // 2])
        case 2:
            path.write_bytes(data[: len(data) // 3] + bytes(64) + data[len(data) // 3 + 64 :])
        case 4:
            path.write_bytes(b"PAR1" + os.urandom(200))
        case 5:
            path.write_bytes(data[:-8])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for number in range(DAYS):
        path = folder / f"month={number % 3}" / f"{number:02}.parquet"
        write_day(path, number)
        damage(path, number)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def told(results: Any, *folders: Any) -> dict[str, Any]:
    """What is said of each file, wherever the outputs are."""
    found = {}
    for result in results:
        text = json.dumps(result.to_json(), default=str)
        for folder in folders:
            text = text.replace(str(folder), "FOLDER")
        found[result.url] = json.loads(text)
    return found


async def here(many: Any) -> tuple[list[Any], Any]:
    async with many as results:
        return [result async for result in results], results.summary


def rows_of(folder: Path) -> dict[str, pa.Table]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): pq.read_table(path, partitioning=None) for path in paths}


def test_a_check_says_what_it_says_here(tree: Path, dask_client: Any, tmp_path: Path) -> None:
    expected, summary = asyncio.run(here(check_many(tree)))
    seen: list[int] = []
    with rpqd.check(tree, dask_client, progress=lambda summary: seen.append(summary.num_files)) as results:
        assert told(results) == told(expected)
        assert results.summary == summary
    assert seen == list(range(1, DAYS + 1))
    by_pattern = rpqd.check(f"{tree}/month=1/*.parquet", dask_client).finish()
    assert by_pattern.num_files == DAYS // 3
    (tmp_path / "empty").mkdir()
    with pytest.raises(rpq.NotFoundError):
        rpqd.check(tmp_path / "empty" / "*.parquet", dask_client).finish()


def test_paths_hold_in_the_folders_of_workers(
    tree: Path, dask_client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tree / "month=0", tmp_path / "d")
    monkeypatch.chdir(tmp_path)
    assert rpqd.check("d", dask_client).finish().num_files == DAYS // 3
    assert rpqd.recover("d/", Path("out"), dask_client).finish().num_files == DAYS // 3
    assert (tmp_path / "out" / "00.parquet").exists()


def test_a_journal_goes_on_where_it_stopped(tree: Path, dask_client: Any, tmp_path: Path) -> None:
    with rpqd.recover(tree, tmp_path / "out", dask_client, resume=tmp_path / "journal") as results:
        first = next(results)
    assert first.url
    summary = rpqd.recover(tree, tmp_path / "out", dask_client, resume=tmp_path / "journal").finish()
    assert summary.num_files == DAYS and summary.num_resumed >= 1
    asyncio.run(recover_many(tree, tmp_path / "here").finish())
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "here")


def test_a_worker_killed_in_the_middle_of_a_check(tree: Path, dask_client: Any, kill_worker: Any) -> None:
    expected, summary = asyncio.run(here(check_many(tree)))
    killing = kill_worker("resilient_pq.io.local_store", "LocalStore.read_tail", calls=2)
    with rpqd.check(tree, dask_client) as results:
        assert told(results) == told(expected)
        assert results.summary == summary
    assert killing.happened


@pytest.mark.thorough
def test_a_worker_killed_in_the_middle_of_a_recovery(
    tree: Path, dask_client: Any, kill_worker: Any, tmp_path: Path
) -> None:
    expected, summary = asyncio.run(here(recover_many(tree, tmp_path / "here")))
    stranger = tmp_path / "there" / "month=1" / "01.parquet.0123456789abcdef.partial"
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(b"mine")
    killing = kill_worker("resilient_pq.io.partial_file", "PartialFile.append", calls=5)
    with rpqd.recover(tree, tmp_path / "there", dask_client) as results:
        assert told(results, tmp_path / "there") == told(expected, tmp_path / "here")
        assert (results.summary.outcomes, results.summary.num_rows) == (summary.outcomes, summary.num_rows)
    assert killing.happened
    assert stranger.read_bytes() == b"mine"
    stranger.unlink()
    assert rows_of(tmp_path / "there") == rows_of(tmp_path / "here")


@pytest.mark.thorough
def test_outputs_that_were_there_are_not_taken_for_ours(
    tree: Path, dask_client: Any, kill_worker: Any, tmp_path: Path
) -> None:
    there = tmp_path / "out" / "month=0" / "00.parquet"
    there.parent.mkdir(parents=True)
    there.write_bytes(b"mine")
    killing = kill_worker("resilient_pq.io.partial_file", "PartialFile.append", calls=3)
    results = {result.url: result for result in rpqd.recover(tree, tmp_path / "out", dask_client)}
    assert killing.happened
    error = results[str(tree / "month=0" / "00.parquet")].error
    assert error is not None and error.type == "AlreadyExistsError"
    assert there.read_bytes() == b"mine"
    assert sum(result.error is not None for result in results.values()) == 1


def test_columns_apart_are_for_one_machine(tree: Path, dask_client: Any, tmp_path: Path) -> None:
    with pytest.raises(rpq.SchemaError, match="columns"):
        rpqd.recover(tree, tmp_path, dask_client, on_damage="columns")  # type: ignore[arg-type]
    with pytest.raises(rpq.RecoveryError):
        rpqd.recover(tree, tree / "inside", dask_client)


def lines_of(arguments: Sequence[str], folder: Path) -> tuple[int, list[dict[str, Any]]]:
    """The exit status of a command, and the documents that it prints."""
    command = [sys.executable, "-m", "resilient_pq", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.thorough
def test_the_command_line_names_a_scheduler(tree: Path, dask_client: Any) -> None:
    address = dask_client.scheduler.address
    summary = rpqd.check(tree, dask_client).finish()
    code, lines = lines_of(["check", tree.name, "--scheduler", address], tree.parent)
    assert code == summary.exit_code
    assert len(lines) == DAYS + 1
    assert (lines[-1]["files"], lines[-1]["outcomes"]) == (DAYS, summary.to_json()["outcomes"])


@pytest.mark.thorough  # it takes the seconds that a scheduler is given
def test_a_scheduler_that_is_not_there(tmp_path: Path) -> None:
    from resilient_pq.dask.on_cluster import connected

    with pytest.raises(rpq.StoreError, match="not reached"):
        connected("tcp://127.0.0.1:1")


@pytest.mark.thorough
def test_the_command_line_recovers_by_a_scheduler(tree: Path, dask_client: Any, tmp_path: Path) -> None:
    address = dask_client.scheduler.address
    code, lines = lines_of(["recover", str(tree), "out", "--scheduler", address], tmp_path)
    assert (code, len(lines)) == (3, DAYS + 1)
    asyncio.run(recover_many(tree, tmp_path / "here").finish())
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "here")


def upload_tree(s3: Any, tree: Path, prefix: str) -> None:
    for path in tree.rglob("*.parquet"):
        s3.client.put_object(Bucket=s3.bucket, Key=f"{prefix}/{path.relative_to(tree)}", Body=path.read_bytes())


@pytest.mark.thorough
@pytest.mark.parametrize("verb", ["check", "recover"])
def test_a_worker_killed_on_s3(
    tree: Path, s3_of_workers: Any, dask_client: Any, kill_worker: Any, verb: str, tmp_path: Path
) -> None:
    s3 = s3_of_workers
    options = s3.storage_options
    if verb == "check":
        upload_tree(s3, tree, "in")
        expected, summary = asyncio.run(here(check_many(s3.url("in/"), storage_options=options)))
        killing = kill_worker("resilient_pq.io.s3.s3_store", "S3Store.read_tail", calls=2)
        with rpqd.check(s3.url("in/"), dask_client, storage_options=options) as results:
            assert told(results) == told(expected)
            assert results.summary == summary
        assert killing.happened
        return
    for number in range(2):
        write_day(tmp_path / "big" / f"{number}.parquet", number, 2_000_000)
        damage(tmp_path / "big" / f"{number}.parquet", 2)
    upload_tree(s3, tmp_path / "big", "in")
    stranger = s3.client.create_multipart_upload(Bucket=s3.bucket, Key="out/0.parquet")["UploadId"]
    killing = kill_worker("resilient_pq.io.s3.s3_parts", "S3Parts.put_part", calls=1)
    with rpqd.recover(s3.url("in/"), s3.url("out/"), dask_client, storage_options=options) as results:
        assert [result.outcome for result in results] == ["partial", "partial"]
    assert killing.happened
    assert s3.object_names() == ["in/0.parquet", "in/1.parquet", "out/0.parquet", "out/1.parquet"]
    assert s3.upload_ids() == [stranger]
    asyncio.run(recover_many(tmp_path / "big", tmp_path / "here").finish())
    for name, table in rows_of(tmp_path / "here").items():
        assert pq.read_table(pa.BufferReader(s3.read(f"out/{name}"))) == table


def test_damage_that_a_worker_finds_names_its_place(dask_client: Any, s3_of_workers: Any, tmp_path: Path) -> None:
    """On S3, where chunks are decoded by tasks of a group."""
    s3, path = s3_of_workers, tmp_path / "a.parquet"
    with rpq.create(path, row_group_rows=100, compression="none", encodings="PLAIN") as writer:
        writer.write({"n": np.arange(300), "m": np.arange(300)})
    data = bytearray(path.read_bytes())
    data[data.index(np.arange(150, 160).tobytes())] ^= 1
    s3.client.put_object(Bucket=s3.bucket, Key="a.parquet", Body=bytes(data))
    dask_client.wait_for_workers(1)
    with pytest.raises(rpq.ChecksumError) as raised:
        dask_client.compute(rpqd.read(s3.url("a.parquet"), storage_options=s3.storage_options)).result()
    where = raised.value.where
    assert (where.key, where.row_group, where.column) == (s3.url("a.parquet"), 1, "n")
    assert "page" in str(where)


# -- frames ----------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["local", "s3"])
def test_a_partition_that_kills_every_worker(
    tmp_path: Path, s3_of_workers: Any, dask_client: Any, place: str, noise_of: Any
) -> None:
    """The others are written meanwhile; nothing of them is left."""
    s3 = s3_of_workers
    dst, options = (tmp_path / "d", None) if place == "local" else (s3.url("d"), s3.storage_options)
    frame = noise_of(4, 1_000_000, deadly=True)
    with pytest.raises(KilledWorker) as caught:
        rpqd.write(frame, dst, client=dask_client, storage_options=options)
    assert any("removed again" in note for note in caught.value.__notes__)
    assert s3.object_names() == s3.upload_ids() == []
    assert place == "s3" or names(tmp_path / "d") == []


@pytest.fixture
def undisturbed(tmp_path: Path) -> Callable[[Any], pd.DataFrame]:
    def computed(frame: Any) -> pd.DataFrame:
        with dask.config.set(scheduler="sync"):
            found: pd.DataFrame = frame.compute().reset_index(drop=True)
            return found

    return computed


def test_a_worker_killed_in_the_middle_of_a_file(
    tmp_path: Path, dask_client: Any, kill_worker: Any, undisturbed: Any, noise_of: Any
) -> None:
    frame = noise_of(4, 400_000)
    killing = kill_worker("resilient_pq.io.partial_file", "PartialFile.append", calls=4)
    written = rpqd.write(frame, tmp_path / "d", row_group_rows=5_000, client=dask_client)
    assert killing.happened
    assert names(tmp_path / "d") == ["_common_metadata", "_metadata", *written.files]  # no .partial
    assert written.num_rows == 200_000
    found = rpqd.read(tmp_path / "d").compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(found, undisturbed(frame))


@pytest.mark.thorough
def test_a_worker_killed_in_the_middle_of_an_upload(
    s3_of_workers: Any, dask_client: Any, kill_worker: Any, undisturbed: Any, noise_of: Any
) -> None:
    s3, frame = s3_of_workers, noise_of(2, 12 << 20)
    stranger = s3.client.create_multipart_upload(Bucket=s3.bucket, Key="d/part-00000.parquet")["UploadId"]
    killing = kill_worker("resilient_pq.io.s3.s3_parts", "S3Parts.put_part", calls=1)
    written = rpqd.write(
        frame, s3.url("d"), row_group_rows=200_000, client=dask_client, storage_options=s3.storage_options
    )
    assert killing.happened
    assert s3.object_names() == [f"d/{name}" for name in ("_common_metadata", "_metadata", *written.files)]
    assert s3.upload_ids() == [stranger]
    found = rpqd.read(s3.url("d/"), storage_options=s3.storage_options).compute().reset_index(drop=True)
    pd.testing.assert_frame_equal(found, undisturbed(frame))


def test_a_worker_killed_in_the_middle_of_reading(
    tmp_path: Path, dask_client: Any, kill_worker: Any, undisturbed: Any, noise_of: Any
) -> None:
    frame = noise_of(3, 80_000)
    rpqd.write(frame, tmp_path / "d", row_group_rows=3_000, client=dask_client)
    killing = kill_worker("resilient_pq.dask.dask_read", "ReadPartition._read", calls=4)
    found = rpqd.read(tmp_path / "d", filters=[("part", ">", 0)])
    assert found.npartitions == 8
    with dask_client.as_current():
        computed = found.compute().reset_index(drop=True)
    assert killing.happened
    expected = undisturbed(frame)
    pd.testing.assert_frame_equal(computed, expected[expected["part"] > 0].reset_index(drop=True))


@pytest.mark.thorough
def test_a_scrub_by_a_scheduler(tree: Path, dask_client: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "resilient_pq", "scrub", str(tree), "--state", str(tmp_path / "state"), "--json"]
    command += ["--scheduler", dask_client.scheduler.address, "--budget", "500MB/s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    told, here = json.loads(done.stdout), rpq.scrub(tree, tmp_path / "other")
    assert done.returncode == here.exit_code == 1
    assert (told["num_proven"], told["num_damaged"]) == (here.num_proven, here.num_damaged)
    assert {each["url"] for each in told["damaged"]} == {each.url for each in here.damaged}
