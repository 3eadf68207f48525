"""A compactor killed with SIGKILL at any step: no row is lost or doubled, and whoever goes on comes to the same end."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import either, sampled

import resilient_pq.sync as rpq
from resilient_pq.io.memory_store import MemoryStore

SCRIPT = Path(__file__).with_name("killed_compactor.py")
PLUGINS = str(Path(__file__).parents[1] / "plugins")
_SPEC = importlib.util.spec_from_file_location("killed_compactor", SCRIPT)
assert _SPEC is not None and _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)
LIMITS = _MODULE.LIMITS
SIZES = [1500, 40, 30, 1500, 20, 1500, 60, 10]
NUM_ROWS = sum(SIZES)


def sources() -> dict[str, bytes]:
    """Files of two partitions, some large and some small, by their names."""
    found, start = {}, 0
    for at, count in enumerate(SIZES):
        ids = range(start, start + count)
        rows = pa.table({"id": ids, "text": [random.Random(i).randbytes(6).hex() for i in ids]})
        sink = io.BytesIO()
        pq.write_table(rows, sink)
        found[f"day={at % 2}/{at}.parquet"] = sink.getvalue()
        start += count
    return found


class Disk:
    """Two folders on the disk."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.src, self.dst = str(folder / "src"), str(folder / "dst")
        for name, data in sources().items():
            path = folder / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def files(self, side: str) -> dict[str, bytes]:
        paths = (self.folder / side).rglob("*.parquet")
        return {str(path.relative_to(self.folder / side)): path.read_bytes() for path in paths}

    def left(self) -> list[str]:
        return [path.name for path in (self.folder / "dst").rglob("*.parquet.*partial")]


class Bucket:
    """Two prefixes in a bucket."""

    def __init__(self, s3: Any, folder: str) -> None:
        self.s3, self.folder, self.options = s3, folder, s3.storage_options
        self.src, self.dst = s3.url(f"{folder}/src"), s3.url(f"{folder}/dst")
        for name, data in sources().items():
            s3.client.put_object(Bucket=s3.bucket, Key=f"{folder}/src/{name}", Body=data)

    def files(self, side: str) -> dict[str, bytes]:
        prefix = f"{self.folder}/{side}/"
        names = [name for name in self.s3.object_names() if name.startswith(prefix) and name.endswith(".parquet")]
        return {
            name.removeprefix(prefix): self.s3.client.get_object(Bucket=self.s3.bucket, Key=name)["Body"].read()
            for name in names
        }

    def left(self) -> list[str]:
        uploads = self.s3.client.list_multipart_uploads(Bucket=self.s3.bucket).get("Uploads", [])
        return [each["Key"] for each in uploads if each["Key"].startswith(f"{self.folder}/dst")]


Place = Disk | Bucket


def ids_of(files: dict[str, bytes]) -> list[int]:
    return [each for name in sorted(files) for each in pq.read_table(io.BytesIO(files[name]))["id"].to_pylist()]


def begin(place: Place, step: int) -> subprocess.Popen[str]:
    arguments = [place.src, place.dst, json.dumps(place.options), str(step)]
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([PLUGINS, os.environ.get("PYTHONPATH", "")])},
    )


def steps_of(place: Place) -> int:
    """How many steps there are where none is the last."""
    said, _ = begin(place, -1).communicate()
    assert not place.files("src")
    return int(said)


def check_killed(place: Place) -> None:
    """Nothing is lost, and what is in the outputs is there once."""
    src, dst = place.files("src"), ids_of(place.files("dst"))
    assert len(set(dst)) == len(dst)
    assert len(src) == len(SIZES) or len(dst) == NUM_ROWS  # sources go when all rows are in the outputs
    assert set(ids_of(src)) | set(dst) == set(range(NUM_ROWS))


def go_on(place: Place) -> None:
    """Compact again, as whoever comes after the crash does."""
    rpq.compact(place.src, place.dst, storage_options=place.options, **LIMITS)
    check_end(place)


def check_end(place: Place) -> None:
    files = place.files("dst")
    assert sorted(ids_of(files)) == list(range(NUM_ROWS))
    assert {name.rpartition("/")[0] for name in files} == {"day=0", "day=1"}
    assert (place.files("src"), place.left()) == ({}, [])


def kill_at(make: Callable[[int], Place], steps: Sequence[int] | None) -> None:
    """Kill at some steps, or at every third of all that there are and the last ones."""
    if steps is None:
        last = steps_of(make(0))
        steps = [*range(0, last - 8, 3), *range(last - 8, last)]
    for step in steps:
        place = make(1 + step)
        process = begin(place, step)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        check_killed(place)
        go_on(place)


def kill_in_time(make: Callable[[int], Place], count: int) -> None:
    """Kill at any time, again and again, until one comes to its end."""
    rng = random.Random(count)
    for number in range(count):
        place, seconds = make(number), 0.4
        while True:
            process = begin(place, -1)
            time.sleep(rng.uniform(seconds / 4, seconds))
            process.kill()
            process.communicate()
            check_killed(place)
            if not place.files("src"):
                break
            seconds += 0.1
        go_on(place)


@pytest.mark.parametrize("steps", either([[75]], [None]))
def test_at_every_step_on_disk(tmp_path: Path, steps: Sequence[int] | None) -> None:
    kill_at(lambda number: Disk(tmp_path / str(number)), steps)


@pytest.fixture(params=["disk", "s3"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[int], Place]]:
    """Makes a place for a number."""
    if request.param == "disk":
        yield lambda number: Disk(tmp_path / str(number))
        return
    with request.getfixturevalue("empty_bucket")(request.getfixturevalue("seaweedfs")) as s3:
        yield lambda number: Bucket(s3, str(number))


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("places", ["s3"], indirect=True)
def test_at_every_step_on_s3(places: Callable[[int], Place]) -> None:
    kill_at(places, None)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_at_any_time(places: Callable[[int], Place]) -> None:
    kill_in_time(places, 20)


@sampled(1, 60)
async def test_two_compactors_in_one_process_carry_out_one_plan(count: int) -> None:
    import resilient_pq

    for _ in range(count):
        store = MemoryStore()
        for name, data in sources().items():
            await store.put(f"src/{name}", data)
        both = [resilient_pq.compact((store, "src/"), (store, "dst/"), **LIMITS) for _ in range(2)]
        await asyncio.gather(*both)
        names = [name for name in await store.list_names("dst") if name.endswith(".parquet")]
        files = {name: bytes((await store.read_tail(f"dst/{name}", 1 << 30)).data) for name in names}
        assert sorted(ids_of(files)) == list(range(NUM_ROWS))
        assert await store.list_names("src") == []


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_two_compactors_at_once(places: Callable[[int], Place]) -> None:
    """Two processes, of which every other time one is killed."""
    for number in range(20):
        place = places(number)
        one, other = begin(place, -1), begin(place, 5 + number if number % 2 else -1)
        one.communicate()
        other.communicate()
        assert one.returncode == 0
        go_on(place)
