"""Fixtures that every test may use, and how the suite runs; those of S3 servers are in `plugins/s3_servers.py`."""

from __future__ import annotations

import asyncio
import base64
import gc
import importlib.util
import math
import os
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest

#: Modules of the folder plugins; each says itself what fixtures it has.
pytest_plugins = (
    "browser", "dask_workers", "drawn_tables", "fault_proxy", "guarded_site", "inline_executor", "loop_clock",
    "open_generators", "page_oracle", "s3_servers", "sample_ledgers", "sampled", "upload_rule", "web_site",
)  # fmt: skip

# Every suite must say the same thing twice of the same code; RPQ_HYPOTHESIS=search looks for new examples.
SEARCHING = os.environ.get("RPQ_HYPOTHESIS") == "search"
# How long an example takes says more about the machine than about the code, so nothing is made of it.
hypothesis.settings.register_profile(
    "quick",
    derandomize=not SEARCHING,
    database=None,
    max_examples=15,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("quick")
#: Examples of a property in the thorough suite; of a slice of it as large a share, but not fewer than a hundred.
THOROUGH_EXAMPLES = 1500
#: Tests that are allowed so many seconds try everything there is, and are in no slice.
LONG_SECONDS = 900


@pytest.fixture(scope="session", autouse=True)
def installed_package_in_subprocesses() -> Iterator[None]:
    """Python started in the folder of the checkout must find the installed package there, not the checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONSAFEPATH", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def few_threads_of_blas() -> Iterator[None]:
    """Python started by tests does not begin threads for linear algebra, which nobody does: a third of its start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def bytecode_for_subprocesses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Python started by tests does not compile the package each time, where nothing compiled lies beside it."""
    import resilient_pq

    session = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent  # which all workers share
    with pytest.MonkeyPatch.context() as patch:
        if sys.dont_write_bytecode and not Path(importlib.util.cache_from_source(resilient_pq.__file__)).exists():
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
            patch.setenv("PYTHONPYCACHEPREFIX", str(session / "bytecode"))
        yield


@pytest.fixture
def threads_for_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables stand for large ones: their chunks are worth as many threads as there are, each for itself."""
    from resilient_pq.format.pages import thread_count

    for cost in (thread_count.READING, thread_count.WRITING):
        monkeypatch.setattr(cost, "python_seconds", 1e-15)
    monkeypatch.setattr(thread_count, "_TOGETHER", 0)


def pytest_collection_finish() -> None:
    """What lives to the end is not searched for garbage again and again: 460,000 objects, 0.3 s each time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Libraries that tell at the end what was never let go of find what could be."""
    gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--slice`` runs a share of the tests chosen, the same ones for the same ``--slice-seed``, or all the others."""
    parser.addoption("--slice", type=float, default=1.0, help="share of the tests to run, 0.08 for 8 %%")
    parser.addoption("--slice-seed", type=int, default=0, help="which share")
    parser.addoption("--slice-rest", action="store_true", help="run the tests that the share leaves out")


def pytest_configure(config: pytest.Config) -> None:
    """Properties that name no number of examples draw many in the thorough suite."""
    config.pluginmanager.register(OneServer())
    config.pluginmanager.register(SomeWays())
    if config.getoption("markexpr") == "thorough":
        examples = max(100, int(THOROUGH_EXAMPLES * config.getoption("--slice")))
        quick = hypothesis.settings.get_profile("quick")
        hypothesis.settings.register_profile("thorough", quick, max_examples=examples)
        hypothesis.settings.load_profile("thorough")


class OneServer:
    """A test that runs on each S3 server runs on one of them in the quick suite, and on the others in the thorough one."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark the others as thorough, before tests are chosen by their marks."""
        tests: dict[str, list[pytest.Item]] = {}
        for item in items:
            server = item.callspec.params.get("s3_server") if hasattr(item, "callspec") else None
            if server is not None:
                tests.setdefault(item.nodeid.replace(server, ""), []).append(item)
        for name, ways in tests.items():
            _leave_to_quick(ways, {zlib.crc32(name.encode()) % len(ways)})


class SomeWays:
    """Of the ways of a test with the mark `ways_in_quick` the quick suite has so many, and the thorough one the others."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark the others as thorough, before tests are chosen by their marks."""
        tests: dict[str, list[pytest.Item]] = {}
        for item in items:
            if item.get_closest_marker("ways_in_quick") and not item.get_closest_marker("thorough"):
                tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
        for name, ways in tests.items():
            marker = ways[0].get_closest_marker("ways_in_quick")
            assert marker is not None
            _leave_to_quick(ways, set(random.Random(name).sample(range(len(ways)), min(marker.args[0], len(ways)))))


def _leave_to_quick(ways: list[pytest.Item], quick: set[int]) -> None:
    """Mark all ways of a test as thorough but those with these numbers."""
    for number, way in enumerate(ways):
        if number not in quick:
            way.add_marker(pytest.mark.thorough)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the seeded share of the tests, without those that take long: the quick suite has samples of them."""
    share = config.getoption("--slice")
    if share >= 1.0:
        return
    short = [item for item in items if _seconds_allowed(item) < LONG_SECONDS]
    count = math.ceil(len(short) * share)
    chosen = set(random.Random(config.getoption("--slice-seed")).sample(short, count))
    rest = config.getoption("--slice-rest")
    config.hook.pytest_deselected(items=[item for item in items if (item in chosen) == rest])
    items[:] = [item for item in items if (item in chosen) != rest]


def _seconds_allowed(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None and marker.args else 0.0


@pytest.fixture(scope="session")
def read_back() -> Callable[..., Any]:
    """Our reader's table of a file's bytes, validated by pyarrow; the options are those of `File.read`."""

    import pyarrow as pa

    import resilient_pq as rpq
    from resilient_pq.io import MemoryStore

    async def read(data: bytes, options: dict[str, Any], *, restore_types: bool) -> Any:
        store = MemoryStore()
        await store.put("file", data)
        how = rpq.ReadOptions(restore_types=restore_types)
        async with rpq.open((store, "file"), options=how) as file:
            return pa.table(await file.read(**options))

    def read_and_validate(data: bytes, *, restore_types: bool = True, **options: Any) -> Any:
        table = asyncio.run(read(data, options, restore_types=restore_types))
        table.validate(full=True)
        return table

    return read_and_validate


@dataclass(frozen=True)
class CommittedFile:
    """The bytes of a resilient file, and where its checkpoints end."""

    data: bytes = field(repr=False)  # All of them, although its writer will be said to have died before
    ends: tuple[tuple[int, int], ...]  # Of each checkpoint the offset just after it, and the rows before it


@dataclass(frozen=True)
class CrashedUpload:
    """What a killed writer left: an upload with full parts, an open slot and a part of what came next."""

    name: str  # The object that it was to become
    upload_id: str  # The upload
    stored: bytes = field(repr=False)  # The bytes that completing it by the rule makes
    num_rows: int  # Rows in them
    num_bytes: int  # Bytes of all its parts


#: The smallest part that S3 takes, but for the last.
PART_BYTES = 5 * 1024 * 1024


@pytest.fixture(scope="session")
def committed_file() -> CommittedFile:
    """More than four parts of noise, a checkpoint behind every row group."""
    import resilient_pq as rpq
    from resilient_pq.io import MemoryStore

    async def write() -> CommittedFile:
        store, noise = MemoryStore(), random.Random(4)
        options = {"row_group_rows": 16, "checkpoint_every": 1, "checkpoint_overhead": 100.0}
        async with rpq.create((store, "file"), compression="none", **options) as writer:  # type: ignore[arg-type]
            numbers = range(224)
            await writer.write({"number": list(numbers), "noise": [noise.randbytes(100_000) for _ in numbers]})
        data = bytes((await store.read_tail("file", 1 << 40)).data)
        async with rpq.open((store, "file")) as file:
            known = file.checkpoints
        # A record has 96 bytes before its payload, whose length stands in the 72nd (docs/format.md).
        sizes = [int.from_bytes(data[each.offset + 72 : each.offset + 80], "little") for each in known]
        ends = [(each.offset + 96 + size, each.num_rows) for each, size in zip(known, sizes, strict=True)]
        return CommittedFile(data, tuple(ends))

    return asyncio.run(write())


@pytest.fixture
def crash(s3: Any, committed_file: CommittedFile) -> Callable[..., CrashedUpload]:
    """Leaves an upload for an object as a writer that was killed does, made by another client than ours."""

    def leave(name: str, checksum_type: str = "FULL_OBJECT") -> CrashedUpload:
        client, place = s3.client, {"Bucket": s3.bucket, "Key": name}
        # Of a composite checksum S3 wants every part's at the end.
        checked = {"ChecksumAlgorithm": "CRC32", "ChecksumType": checksum_type}
        upload_id = client.create_multipart_upload(**place, **checked)["UploadId"]
        data, start = committed_file.data, 2 * PART_BYTES
        in_third = [end for end in committed_file.ends if start < end[0] < start + PART_BYTES]
        # The third part was the open slot of two checkpoints; the fourth is full, and no checkpoint ends in it yet.
        cuts = [(4, 3 * PART_BYTES, 4 * PART_BYTES), (3, start, in_third[0][0]), (1, 0, PART_BYTES)]
        cuts += [(2, PART_BYTES, start), (3, start, in_third[-1][0])]
        for number, first, last in cuts:
            part = data[first:last]
            crc = base64.b64encode(zlib.crc32(part).to_bytes(4, "big")).decode()
            named = {"UploadId": upload_id, "PartNumber": number, "ChecksumCRC32": crc}
            client.upload_part(**place, **named, Body=part)
        stored, num_rows = in_third[-1]
        return CrashedUpload(name, upload_id, data[:stored], num_rows, stored + PART_BYTES)

    return leave
