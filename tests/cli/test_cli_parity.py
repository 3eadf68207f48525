"""`rpq protect` and `rpq repair`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resilient_pq import sync as rpq
from resilient_pq.cli.exit_codes import ExitCode


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "day.parquet"
    with rpq.create(path) as writer:
        writer.write({"value": np.random.default_rng(1).random(20_000)})
    return path


def damage(path: Path, size: int = 3_000) -> bytes:
    """Zeros in the middle of a file; gives what was there."""
    data = path.read_bytes()
    path.write_bytes(data[:30_000] + bytes(size) + data[30_000 + size :])
    return data


def test_a_file_is_protected_and_repaired(file: Path, rpq_run: Callable[..., Any]) -> None:
    ended = rpq_run("protect", file)
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")
    assert ended.words("protected") == [f"1 file, {file.stat().st_size:,} bytes ({file.stat().st_size / 1024:.1f} KiB)"]
    assert ended.words("written")[0].startswith(f"{file}.rpqparity, ")
    before = damage(file)
    new = file.with_name("new.parquet")
    ended = rpq_run("repair", file, new)
    assert ended.code == ExitCode.SOUND and new.read_bytes() == before
    assert ended.words("damaged")[0].endswith("7 rebuilt from parity") and ended.words("next") == [f"rpq check {new}"]
    assert rpq_run("repair", file, "--in-place").code == ExitCode.SOUND
    assert file.read_bytes() == before


def test_json(file: Path, rpq_run: Callable[..., Any]) -> None:
    document = rpq_run("protect", file, "--parity", "10%", "--json").document
    assert (document["verb"], document["outcome"], document["num_files"]) == ("protect", "protected", 1)
    assert document["num_bytes"] == file.stat().st_size and document["burst_bytes"] > 10_000
    damage(file)
    document = rpq_run("repair", file, f"{file}.new", "--json").document
    assert (document["outcome"], document["num_blocks_rebuilt"]) == ("repaired", 7)


def test_a_folder_and_an_error_in_it(file: Path, rpq_run: Callable[..., Any]) -> None:
    for number in range(3):
        file.with_name(f"{number}.parquet").write_bytes(file.read_bytes())
    assert rpq_run("protect", file.parent).words("protected")[0].startswith("4 files; sidecars of ")
    for name in ("0.parquet", "3.parquet"):
        file.with_name(name).write_bytes(file.read_bytes())
    ended = rpq_run("protect", file.parent)
    assert ended.code == ExitCode.STORE and ended.words("error")[0].startswith(f"{file.parent}/0.parquet: its sidecar")
    assert len(ended.words("error")) == 1 and ended.words("protected")[0].startswith("1 file; ")
    assert ended.words("protected")[0].endswith("; 3 more have one of their present version")
    lines = rpq_run("protect", file.parent, "--overwrite", "--json").out.splitlines()
    assert [json.loads(line)["outcome"] for line in lines] == ["protected"] * 6
    assert json.loads(lines[-1])["files_protected"] == 5


def test_a_file_of_a_folder_that_is_missing(file: Path, rpq_run: Callable[..., Any]) -> None:
    for number in range(3):
        file.with_name(f"{number}.parquet").write_bytes(file.read_bytes())
    ended = rpq_run("protect", file.parent, "--across", "--parity", "40%")
    assert ended.words("written")[0].startswith(f"{file.parent}/_folder.rpqparity")
    before = file.read_bytes()
    file.unlink()
    assert rpq_run("repair", file, file).code == ExitCode.SOUND
    assert file.read_bytes() == before


def test_each_folder_has_its_sidecar(file: Path, rpq_run: Callable[..., Any]) -> None:
    for name in ("d=1/a", "d=1/b", "d=2/a"):
        path = file.parent / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(file.read_bytes())
    ended = rpq_run("protect", f"{file.parent}/*/*.parquet", "--across", "--json")
    assert [json.loads(line)["num_files"] for line in ended.out.splitlines()] == [2, 1]
    assert (file.parent / "d=2/_folder.rpqparity").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["repair", "day.parquet", "new"], ExitCode.STORE, "there is no sidecar beside the file"),
        (["repair", "day.parquet"], ExitCode.USAGE, "a new file or in_place"),
        (["protect", "missing.parquet"], ExitCode.STORE, "No such file"),
        (["protect", "day.parquet", "--parity", "many"], ExitCode.USAGE, "parity is 'many'"),
        (["protect", "day.parquet", "--parity", "0"], ExitCode.USAGE, "parity is '0'"),
    ],
)
def test_mistakes(
    arguments: list[str], code: int, said: str, file: Path, rpq_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    ended = rpq_run(*arguments)
    assert ended.code == code and said in ended.err


def test_more_damage_than_parity(file: Path, rpq_run: Callable[..., Any]) -> None:
    rpq_run("protect", file)
    damage(file, 60_000)
    ended = rpq_run("repair", file, f"{file}.new")
    assert ended.code == ExitCode.DAMAGE and "cannot be rebuilt from the parity" in ended.err
    assert not Path(f"{file}.new").exists()


def test_a_scrub_finds_rot_and_heals_it(file: Path, rpq_run: Callable[..., Any]) -> None:
    rpq_run("protect", file)
    scrub = ["scrub", file.parent, "--state", file.with_name("state"), "--budget", "50MB/s"]
    ended = rpq_run(*scrub)
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")
    assert ended.words("proven") == ["2 of 2 objects; 2 of them new or changed"]
    status = file.stat()
    before = damage(file)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    ended = rpq_run(*scrub, "--every", "0s")
    assert ended.code == ExitCode.DAMAGE and ended.words("rot")[0].startswith(f"{file}: bytes changed")
    assert ended.words("next") == [f"rpq scrub {file.parent} --state {file.parent}/state --heal"]
    document = rpq_run(*scrub, "--heal", "--json").document
    assert (document["outcome"], document["damaged"][0]["healed"]) == ("healed", "parity")
    assert file.read_bytes() == before
    document = rpq_run(*scrub, "--json").document
    assert (document["verb"], document["outcome"], document["num_damaged"], document["uploads"]) == (
        "scrub",
        "sound",
        0,
        [],
    )


def test_a_rate_that_is_none(file: Path, rpq_run: Callable[..., Any]) -> None:
    for rate in ("fast", "0", "5/h"):
        ended = rpq_run("scrub", file.parent, "--state", "state", "--budget", rate)
        assert ended.code == ExitCode.USAGE and "--budget" in ended.err
