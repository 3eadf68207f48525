"""A scrub proves every object in its turn, tells rot from new versions, heals it, and remembers all that over kills."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.bulk.proof import Pace
from resilient_pq.bulk.scrub import LastProof, ScrubState
from resilient_pq.io import MemoryStore

ALWAYS = timedelta(0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("scrub") / "a.parquet"
    sync.write(path, {"x": np.random.default_rng(1).random(4_000)})
    return path.read_bytes()


@pytest.fixture
def lake(tmp_path: Path, data: bytes) -> Path:
    """Five files in two folders, each with a sidecar."""
    for name in ("d=1/a", "d=1/b", "d=1/c", "d=2/a", "d=2/b"):
        path = tmp_path / f"lake/{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        sync.protect(path)
    return tmp_path / "lake"


def rot(path: Path, at: int = 9_000, size: int = 700) -> None:
    """Change bytes as a disk does, without a trace."""
    status = os.stat(path)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(b"?" * size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def scrub(lake: Path) -> Callable[..., rpq.ScrubReport]:
    def run(**how: Any) -> rpq.ScrubReport:
        report: rpq.ScrubReport = sync.scrub(lake, lake.parent / "state", **how)
        return report

    return run


def outcomes(report: rpq.ScrubReport) -> dict[str, str]:
    return {Path(each.url).relative_to(Path(each.url).parents[1]).as_posix(): each.outcome for each in report.damaged}


def test_what_was_proven_is_left_alone_until_it_is_due(scrub: Any, lake: Path) -> None:
    first = scrub()
    assert (first.num_files, first.num_proven, first.num_new, first.num_due) == (10, 10, 10, 0)
    assert first.exit_code == 0 and first.oldest_proof is not None
    assert (scrub().num_proven, scrub(every=ALWAYS).num_new) == (0, 0)
    later = scrub(every=ALWAYS)
    assert later.num_proven == 10 and later.oldest_proof >= first.oldest_proof
    os.utime(lake / "d=1/a.parquet")
    touched = scrub()
    assert (touched.num_proven, touched.num_new, touched.exit_code) == (1, 1, 0)


def test_rot_is_told_until_it_is_healed(scrub: Any, lake: Path, data: bytes) -> None:
    scrub()
    rot(lake / "d=1/b.parquet")
    assert scrub().num_proven == 0  # nobody looked
    for every in (ALWAYS, timedelta(days=1)):
        report = scrub(every=every)
        assert outcomes(report) == {"d=1/b.parquet": "rot"} and report.exit_code == 1 and report.num_damaged == 1
    report = scrub(heal=True)
    assert report.exit_code == 0 and report.damaged[0].healed == "parity"
    assert (lake / "d=1/b.parquet").read_bytes() == data
    assert scrub().damaged == () and scrub(every=ALWAYS).num_proven == 10
    report = sync.check(lake / "d=1/b.parquet")
    assert report.outcome == "sound"


def test_a_new_version_is_no_rot_but_may_be_damaged(scrub: Any, lake: Path, data: bytes) -> None:
    scrub()
    sync.write(lake / "d=1/a.parquet", {"x": [1.0, 2.0]})
    (lake / "d=1/b.parquet").write_bytes(data[:-900])
    report = scrub(heal=True)
    assert outcomes(report) == {"d=1/b.parquet": "damaged"} and report.num_new == 1
    assert report.damaged[0].not_healed == "the digest that it should have is not known"
    assert (lake / "d=1/b.parquet").read_bytes() == data[:-900]
    (lake / "d=1/b.parquet").write_bytes(data)
    assert scrub().exit_code == 0


def test_what_rotted_before_it_was_first_seen(scrub: Any, lake: Path, data: bytes) -> None:
    """The sidecar knows; a sidecar that rotted is found by its own checksums."""
    rot(lake / "d=1/a.parquet", 5_000, 1)
    rot(lake / "d=2/a.parquet.rpqparity", 2_000)
    report = scrub(heal=True)
    assert outcomes(report) == {"d=1/a.parquet": "rot", "d=2/a.parquet.rpqparity": "damaged"}
    assert [each.healed for each in sorted(report.damaged, key=lambda each: each.url)] == ["parity", None]
    assert (lake / "d=1/a.parquet").read_bytes() == data


def test_a_replica_heals_more_than_parity_can(scrub: Any, lake: Path, data: bytes) -> None:
    replica = lake.parent / "replica"
    shutil.copytree(lake, replica)
    scrub()
    rot(lake / "d=1/a.parquet", 0, len(data))
    rot(lake / "d=1/b.parquet", 0, len(data))
    rot(lake / "d=2/b.parquet.rpqparity", 0, 999)
    rot(replica / "d=1/b.parquet")
    assert "cannot be rebuilt" in scrub(every=ALWAYS, heal=True).damaged[0].not_healed
    report = scrub(heal=True, replica=replica)
    told = {Path(each.url).name: (each.healed, each.not_healed) for each in report.damaged}
    assert told == {
        "a.parquet": ("replica", None),
        "b.parquet": (None, "the replica has other bytes"),
        "b.parquet.rpqparity": ("replica", None),
    }
    assert (lake / "d=1/a.parquet").read_bytes() == data
    # Its sidecar belongs to the new file.
    rot(lake / "d=1/a.parquet")
    with pytest.warns(rpq.HealedFileWarning):
        assert sync.read(lake / "d=1/a.parquet").num_rows == 4_000


def test_objects_that_are_gone_and_files_that_were_begun(scrub: Any, lake: Path, data: bytes) -> None:
    scrub()
    (lake / "d=2/a.parquet").unlink()
    (lake / "d=1/c.parquet.partial").write_bytes(data[:5_000])
    report = scrub()
    assert report.gone == (str(lake / "d=2/a.parquet"),) and report.num_files == 9 and report.exit_code == 0
    assert report.partial_files == (str(lake / "d=1/c.parquet.partial"),)
    assert scrub().gone == ()


def test_the_oldest_proof_comes_first(scrub: Any, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = [f"d={name}.parquet" for name in ("2/b", "1/a", "2/a", "1/c", "1/b")]
    scrub()
    for hour, name in enumerate(order, 1):
        monkeypatch.setattr(time, "time", lambda hour=hour: 4e9 + 3600 * hour)
        (lake / name).touch()
        assert scrub(every=timedelta(days=90_000)).num_proven == 1
    read: list[str] = []

    async def run(task: Any) -> rpq.FileResult:
        read.append(Path(task.url).relative_to(lake).as_posix())
        return rpq.FileResult("scrub", task.url, error=None)

    report = scrub(every=timedelta(hours=2), run=run, max_files=1)
    assert read[5:] == order[:3] and all(name.endswith(".rpqparity") for name in read[:5])
    assert report.exit_code == 4  # nothing was proven


async def test_objects_of_a_store_heal_in_place(tmp_path: Path, data: bytes) -> None:
    store, state = MemoryStore(), tmp_path / "state"
    for name in "abc":
        await store.put(f"lake/{name}.parquet", data)
    await rpq.protect((store, "lake/b.parquet"))
    assert (await rpq.scrub((store, "lake/"), state)).num_proven == 4
    for name in "ab":
        info, _ = store._objects[f"lake/{name}.parquet"]
        store._objects[f"lake/{name}.parquet"] = (info, data[:9000] + b"rot" + data[9003:])
    await store.put("lake/c.parquet", data[:9000] + b"new" + data[9003:])
    report = await rpq.scrub((store, "lake/"), state, every=ALWAYS, heal=True)
    told = {each.url[-9:]: (each.outcome, each.healed, each.not_healed) for each in report.damaged}
    assert told["b.parquet"] == ("rot", "parity", None)
    assert told["a.parquet"] == ("rot", None, "there is no parity of these bytes")
    assert told["c.parquet"] == ("damaged", None, "the digest that it should have is not known")
    assert store._objects["lake/b.parquet"][1] == data
    await store.put("copy/a.parquet", data)
    report = await rpq.scrub((store, "lake/"), state, heal=True, replica=(store, "copy/"))
    assert [each.healed for each in report.damaged if each.url.endswith("a.parquet")] == ["replica"]
    assert store._objects["lake/a.parquet"][1] == data


async def test_an_object_that_is_replaced_while_it_is_healed_stays(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, state, newer = MemoryStore(), tmp_path / "state", data[:-4] + b"PAR1"
    await store.put("lake/a.parquet", data)
    await rpq.protect((store, "lake/a.parquet"))
    await rpq.scrub((store, "lake/"), state)
    info, _ = store._objects["lake/a.parquet"]
    store._objects["lake/a.parquet"] = (info, data[:9000] + b"rot" + data[9003:])
    create = store.create

    async def replaced(*arguments: Any) -> Any:
        await store.put("lake/a.parquet", newer)
        return await create(*arguments)

    monkeypatch.setattr(store, "create", replaced)
    report = await rpq.scrub((store, "lake/"), state, every=ALWAYS, heal=True)
    assert report.damaged[0].healed is None and store._objects["lake/a.parquet"][1] == newer


def test_a_file_with_parity_inside_heals_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "lake" / "a.parquet"
    path.parent.mkdir()
    sync.write(path, {"x": np.random.default_rng(1).random(20_000)}, parity="10%")
    whole = path.read_bytes()
    sync.scrub(path.parent, tmp_path / "known")
    for state in ("known", "new"):
        rot(path, 20_000)
        report = sync.scrub(path.parent, tmp_path / state, heal=True, every=ALWAYS)
        assert [(each.outcome, each.healed) for each in report.damaged] == [("rot", "parity")]
        assert path.read_bytes() == whole


def test_a_state_that_is_torn_or_changed_never_makes_rot(scrub: Any, lake: Path) -> None:
    scrub()
    state = lake.parent / "state"
    whole, draw = state.read_bytes(), random.Random(1)
    header = whole.index(b"\n") + 1
    for number in range(12):
        torn = bytearray(whole[: draw.randrange(header, len(whole))] if number % 2 else whole)
        for _ in range(number):
            at = draw.randrange(header, len(torn))
            torn[at] = draw.choice(b"0123456789abcdef\0\n")
        state.write_bytes(torn)
        report = scrub(every=ALWAYS)
        assert report.damaged == () and report.num_proven == 10
    state.write_bytes(whole[: header // 2])
    assert scrub().num_new == 10
    state.write_bytes(b"something else\n")
    with pytest.raises(rpq.RecoveryError, match="no state of a run"):
        scrub()


def test_one_state_is_for_one_folder_and_one_run_at_a_time(scrub: Any, lake: Path, monkeypatch: Any) -> None:
    scrub()
    with pytest.raises(rpq.RecoveryError, match="of another run, with another source"):
        sync.scrub(lake / "d=1", lake.parent / "state")
    monkeypatch.chdir(lake.parent)
    assert sync.scrub("lake", "state").num_new == 0  # the same folder by another name
    with (
        ScrubState("state", {"verb": "scrub", "source": [f"{lake}/"]}),
        pytest.raises(rpq.AlreadyExistsError, match="another run"),
    ):
        scrub()


def test_lines_that_are_old_are_left_out(tmp_path: Path) -> None:
    def proof(proven: int) -> LastProof:
        return LastProof(proven, "v", None, 1, "d")

    with ScrubState(tmp_path / "state", {}) as state:
        for number in range(5_000):
            state.append(f"/{number % 7}", asdict(proof(number)))
        state.refresh()
        state.compact()
        assert {state.last(f"/{number % 7}") for number in range(7)} == {proof(4_993 + number) for number in range(7)}
        state.note("/3", proof(9_999))
    assert (tmp_path / "state").read_bytes().count(b"\n") == 9
    with ScrubState(tmp_path / "state", {}) as state:
        assert state.last("/3") == proof(9_999)
        assert not (tmp_path / "state.new").exists()


def test_a_scrub_that_is_killed_goes_on(lake: Path) -> None:
    state = lake.parent / "state"
    command = [sys.executable, "-m", "resilient_pq", "scrub", str(lake), "--state", str(state), "--max-files", "1"]
    process = subprocess.Popen([*command, "--budget", "200kB/s"])
    while process.poll() is None and (not state.exists() or state.read_bytes().count(b"digest") < 4):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    proven = state.read_bytes().count(b"digest")
    assert 4 <= proven < 10
    ended = subprocess.run([*command, "--json"], capture_output=True, check=True)
    document = json.loads(ended.stdout)
    assert document["num_proven"] == 10 - proven and document["outcome"] == "sound" and document["num_due"] == 0


async def test_a_budget_is_for_all_objects_together() -> None:
    pace, loop = Pace(1_000), asyncio.get_running_loop()
    begun = loop.time()
    await asyncio.gather(*(pace.take(100) for _ in range(4)))
    assert loop.time() - begun >= 0.3


def test_what_makes_no_sense(scrub: Any, lake: Path) -> None:
    for how in ({"budget": 0}, {"max_files": 0}, {"replica": lake}):
        with pytest.raises(rpq.SchemaError):
            scrub(**how)
