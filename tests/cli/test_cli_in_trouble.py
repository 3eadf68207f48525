"""Verbs that are interrupted, and verbs whose disk, stdout or stderr takes no more: told in a line, never a traceback."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampled import either
from trevni_bytes import write_trevni

from resilient_pq import sync as rpq
from resilient_pq.cli.input import text_readers
from resilient_pq.cli.input.input_rows import read_stdin
from resilient_pq.cli.input.input_stream import InputStream, StoppableFile
from resilient_pq.cli.input.text_readers import TextOptions, read_csv, read_json_lines

Signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
NUM_ROWS = 400_000


@contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not outlive its test, and ignores no signal that the tests were told to ignore."""

    def heed() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    settings: dict[str, Any] = {"stdin": subprocess.DEVNULL, "preexec_fn": heed, **options}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_calm(err: str) -> bool:
    return not any(word in err for word in ("Traceback", "Fatal Python error", "Exception ignored", "asyncgen"))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same rows as CSV and as Parquet; compressing them takes seconds."""
    folder = tmp_path_factory.mktemp("sources")
    table = pa.table({"number": range(NUM_ROWS), "text": [f"{i:064x}" for i in range(NUM_ROWS)]})
    pyarrow.csv.write_csv(table, folder / "rows.csv")
    with rpq.create(folder / "rows.parquet", row_group_rows=20_000) as writer:
        writer.write(table)
    return folder


def _interrupted(source: Path, number: signal.Signals, command: list[str], folder: Path, after: float) -> None:
    written, partial = folder / "it's written.parquet", folder / "it's written.parquet.partial"
    partial.unlink(missing_ok=True)
    arguments = ["write", str(source), str(written), "--row-group-rows", "5000", "--compression", "gzip"]
    with running([*command, *arguments, "--compression-level", "9"]) as process:
        wait_for(lambda: partial.exists() and partial.stat().st_size > after)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    said = err.decode()
    assert process.returncode == 128 + number, said
    assert is_calm(said), said
    lines = said.splitlines()
    assert len(lines) == 1, said
    assert lines[0].startswith("interrupted ")
    assert not written.exists()
    if partial.exists():
        kept = int(lines[0].split()[1].replace(",", ""))
        assert rpq.check(partial).num_rows >= kept  # and what was on its way to the disk
        told = shlex.split(re.search(r"complete it: rpq (.*)", lines[0])[1])  # type: ignore[index]
        subprocess.run([*command, *told], check=False, timeout=60, capture_output=True)
        assert rpq.check(written).num_rows >= kept
        written.unlink()
    else:
        assert "nothing was published" in lines[0]


@pytest.mark.parametrize(("form", "number"), [("rows.csv", signal.SIGTERM), ("rows.parquet", signal.SIGINT)])
def test_a_write_is_interrupted(
    form: str, number: signal.Signals, sources: Path, rpq_command: list[str], tmp_path: Path
) -> None:
    _interrupted(sources / form, number, rpq_command, tmp_path, 300_000)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["rows.csv", "rows.parquet"])
@pytest.mark.parametrize("number", Signals)
def test_a_write_is_interrupted_anywhere(
    form: str, number: signal.Signals, sources: Path, rpq_command: list[str], tmp_path: Path
) -> None:
    for after in range(0, 1_000_000, 125_000):  # the whole file has 1.3 MB
        _interrupted(sources / form, number, rpq_command, tmp_path, after)


def test_a_pipe_to_which_nobody_writes(rpq_command: list[str], tmp_path: Path) -> None:
    """Opening it waits for a writer, which may never come: that must not keep the process."""
    os.mkfifo(tmp_path / "pipe.csv")
    with running([*rpq_command, "write", str(tmp_path / "pipe.csv"), str(tmp_path / "written.parquet")]) as process:
        tasks = Path(f"/proc/{process.pid}/task")
        wait_for(lambda: any("poll_schedule" in (task / "wchan").read_text() for task in tasks.iterdir()))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, is_calm(err.decode())) == (130, True)


def test_a_second_signal_ends_at_once() -> None:
    """Whatever is under way: here what does not end by itself, and a thread that would be waited for."""
    code = """
import asyncio, sys, time
from resilient_pq.cli.running import run_verb
async def work(output):
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    print("begun", flush=True)
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("asked", flush=True)
sys.exit(run_verb("write", work, as_json=False))
"""
    with running([sys.executable, "-c", code]) as process:
        assert process.stdout is not None
        for line in (b"begun\n", b"asked\n"):
            assert process.stdout.readline() == line
            process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 143
    assert err.startswith(b"interrupted at once")


@pytest.mark.parametrize(
    ("program", "module"),
    [
        (["-c", "import resilient_pq_command; resilient_pq_command.main()"], "resilient_pq"),
        (["-m", "resilient_pq"], "resilient_pq.errors"),
        (["-m", "resilient_pq"], "resilient_pq.cli.main"),
    ],
)
def test_an_interrupt_while_modules_are_imported(program: list[str], module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"""
import os, signal, sys
class Finder:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
""")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    # Of the checkout, where no kernels may have been compiled.
    environment = {**os.environ, "PYTHONPATH": path, "RESILIENT_PQ_KERNELS": "reference"}
    with running([sys.executable, *program, "--version"], env=environment) as process:
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, b"interrupted nothing was begun\n")


# -- a disk that is full -------------------------------------------------------------------------

FULL_DISK = [
    ["write", "rows.parquet", "out.parquet", "--row-group-rows", "5000"],
    ["recover", "flipped.parquet", "out.parquet"],
    ["write", "rows.csv", "out.parquet"],
    ["write", "rows.parquet", "set", "--roll-rows", "50000", "--compression", "none"],
    ["recover", "flipped.parquet", "out.parquet", "--on-damage", "columns"],
    ["recover", "flipped.parquet", "out.parquet", "--on-damage", "null", "--html", "page.html"],
    ["recover", "torn.parquet", "out.parquet"],
    ["convert", "rows.trv", "out.parquet"],
    ["metadata", "files"],
]


def _on_a_full_disk(verb: list[str], sources: Path, command: list[str]) -> None:
    whole = (sources / "rows.parquet").read_bytes()
    (sources / "flipped.parquet").write_bytes(whole[:200_000] + bytes([whole[200_000] ^ 1]) + whole[200_001:])
    (sources / "torn.parquet").write_bytes(whole[: len(whole) * 2 // 3])
    if verb[0] == "convert" and not (sources / "rows.trv").exists():
        write_trevni(sources / "rows.trv", {"text": [hashlib.sha256(b"%d" % i).hexdigest() for i in range(5_000)]})
    if verb[0] == "metadata" and not (sources / "files").exists():
        (sources / "files").mkdir()
        for number in range(100):  # so that their summary is longer than a file may be
            os.link(sources / "rows.parquet", sources / "files" / f"{number}.parquet")
    most = 150_000  # bytes of a file, from which on the system refuses to make it longer

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    # Python would leave compiled modules that end at the limit.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, *verb],
        cwd=sources,
        preexec_fn=limit,
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    err = done.stderr.decode()
    assert done.returncode == 4, err
    assert is_calm(err), err
    assert err.startswith("error       cannot write: File too large")
    assert not (sources / "out.parquet").exists()
    assert [path.name for path in sources.glob("files/*_*")] in ([], ["_common_metadata"])
    for left in sources.glob("out.parquet.partial"):
        left.unlink()


@pytest.mark.parametrize("verb", either(FULL_DISK[:2], FULL_DISK[2:]), ids=" ".join)
def test_a_full_disk(verb: list[str], sources: Path, rpq_command: list[str]) -> None:
    _on_a_full_disk(verb, sources, rpq_command)


# -- stdout and stderr ---------------------------------------------------------------------------

TOLD = [
    ["check", "sound.parquet", "--json"],
    ["cat", "sound.parquet"],
    ["check", "sound.parquet"],
    ["check", "nothing.parquet", "--json"],
    ["check", "."],
    ["check", ".", "--json"],
    ["inspect", "sound.parquet", "--chunks"],
    ["recover", "sound.parquet", "out.parquet", "--overwrite"],
    ["write", "sound.parquet", "out.parquet"],
    ["metadata", ".", "--overwrite"],
    ["demo", "--rows", "20000"],
    ["--version"],
    ["--help"],
]
STREAMS = [">/dev/full", ">&-", "| true", "2>/dev/full", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"]


def _into_nowhere(verb: list[str], streams: str, command: list[str], folder: Path) -> None:
    line = f'set -o pipefail; "$@" {streams}'
    done = subprocess.run(
        ["bash", "-c", line, "bash", *command, *verb],
        cwd=folder,
        capture_output=True,
        timeout=60,
        check=False,
    )
    err = done.stderr.decode()
    assert is_calm(err), err
    assert done.returncode in (0, 1, 4), err
    if streams == ">/dev/full" or (streams == ">&-" and verb != ["--help"]):
        assert done.returncode == 4
        assert len(err.splitlines()) <= 2
        assert err.startswith("error       cannot ")


@pytest.mark.parametrize(
    ("verb", "streams"), either(zip([*TOLD[:2], TOLD[0]], STREAMS, strict=False), product(TOLD, STREAMS))
)
def test_nowhere_to_tell(verb: list[str], streams: str, sound: Path, rpq_command: list[str]) -> None:
    _into_nowhere(verb, streams, rpq_command, sound.parent)


def test_no_file_takes_the_number_of_a_closed_stream(sound: Path, rpq_command: list[str], tmp_path: Path) -> None:
    """Or what is meant for stderr would be written into it."""
    line = '"$@" <&- >&- 2>&-'
    written = tmp_path / "written.parquet"
    command = [*rpq_command, "write", str(sound), str(written)]
    subprocess.run(["bash", "-c", line, "bash", *command], timeout=60, check=False)
    assert rpq.check(written).outcome == "sound"


# -- reading -------------------------------------------------------------------------------------


def test_a_read_that_waits_is_stopped() -> None:
    begin, end = os.pipe()
    file = StoppableFile(begin)
    found: list[object] = []

    def read() -> None:
        try:
            found.append(io.BufferedReader(InputStream(file)).read(10))
        except OSError as error:
            found.append(error)

    os.write(end, b"five.")
    thread = threading.Thread(target=read)
    thread.start()
    file.stop()
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert isinstance(found[0], OSError)
    file.close()
    file.stop()  # which comes too late to do anything
    os.close(end)


_CELL = st.sampled_from(["", "1", "-7", "2.5", "word", '"a, b"', "2026-01-01", " ", '"say ""so"""', "é"])


@given(
    st.integers(1, 3).flatmap(lambda width: st.lists(st.lists(_CELL, min_size=width, max_size=width), max_size=40)),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(60, 300),
    st.booleans(),
)
def test_csv_is_what_pyarrow_makes_of_it(rows: list[list[str]], end: str, block_bytes: int, ends: bool) -> None:
    """Block by block as its own stream, whose types are those of the first block."""
    names = [f"column {number % 2}" for number in range(len(rows[0]) if rows else 2)]
    data = end.join([",".join(cells) for cells in [names, *rows]]).encode() + (end.encode() if ends else b"")
    options = TextOptions(block_bytes)
    try:
        found = list(read_csv(InputStream(io.BytesIO(data)), "a.csv", options))
    except rpq.FormatError:
        found = []
    try:
        stream = pyarrow.csv.open_csv(io.BytesIO(data), pyarrow.csv.ReadOptions(block_size=block_bytes))
        expected = stream.read_all()
    except pa.ArrowInvalid:
        assert not found or not rows  # a header without a line end is enough for us
        return
    assert found, data
    schema = pa.schema(found[0])
    assert schema == expected.schema
    assert pa.concat_tables([schema.empty_table(), *found[1:]]).to_pylist() == expected.to_pylist()


class Trickle(io.RawIOBase):
    """Lines that come one after the other, each a second later than the one before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lines: list[bytes]) -> None:
        self._lines, self._now = iter(lines), 0.0
        monkeypatch.setattr(text_readers, "time", SimpleNamespace(monotonic=lambda: self._now))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self._now += 1
        line = next(self._lines, b"")
        buffer[: len(line)] = line
        return len(line)


@pytest.mark.parametrize(("seconds", "blocks"), [(3.0, [4, 4, 2]), (None, [10])])
def test_lines_that_come_slowly_do_not_wait_for_a_block(
    seconds: float | None, blocks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = Trickle(monkeypatch, [b'{"a": %d}\n' % number for number in range(10)])
    options = TextOptions(1 << 20, (), math.inf if seconds is None else seconds)
    schema, *tables = read_json_lines(InputStream(lines), "stdin", options)
    assert [len(table) for table in tables] == blocks
    assert pa.concat_tables(tables)["a"].to_pylist() == list(range(10))
    assert pa.schema(schema) == pa.schema([("a", pa.int64())])


def _arrow_stream() -> tuple[bytes, bytes]:
    """The schema and a batch, and what comes behind them."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("a", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"a": [1]}))
        size = sink.tell()
        writer.write_batch(pa.record_batch({"a": [2]}))
    return sink.getvalue()[:size], sink.getvalue()[size:]


@pytest.mark.parametrize(
    ("read", "first", "rest"),
    [
        (read_stdin, b'{"a": 1}\n{"a"', b": 2}\n"),
        (read_csv, b"a\n1\n2", b"\n"),
        (read_stdin, *_arrow_stream()),
    ],
    ids=["json", "csv", "arrow"],
)
def test_a_source_that_stops_amid_a_block(read: Any, first: bytes, rest: bytes) -> None:
    """What it gave is handed over before it gives more."""
    begin, end = os.pipe()
    found: Queue[Any] = Queue()

    def run() -> None:
        options = TextOptions(1 << 20, (), 0.01)
        for item in read(InputStream(file), "stdin", options):
            found.put(item)

    with StoppableFile(begin) as file:
        thread = threading.Thread(target=run)
        thread.start()
        os.write(end, first)
        try:
            _, early = found.get(timeout=30), found.get(timeout=30)
        finally:
            os.write(end, rest)
            os.close(end)
            thread.join(timeout=30)
    tables = [each if isinstance(each, pa.Table) else pa.record_batch(each) for each in (early, found.get())]
    assert [table.to_pylist() for table in tables] == [[{"a": 1}], [{"a": 2}]]


def test_a_header_that_comes_alone_tells_no_types(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = InputStream(Trickle(monkeypatch, [b"\n", b"a\n", b"1\n", b"2\n"]))
    schema, *tables = read_csv(lines, "a.csv", TextOptions(1 << 20, (), 0.5))
    assert pa.schema(schema) == pa.schema([("a", pa.int64())])
    assert [table.to_pylist() for table in tables] == [[{"a": 1}, {"a": 2}]]


def test_the_document_of_an_interrupt(rpq_command: list[str], tmp_path: Path) -> None:
    with running([*rpq_command, "write", "-", str(tmp_path / "a.parquet"), "--json"], stdin=subprocess.PIPE) as process:
        tasks = Path(f"/proc/{process.pid}/task")
        wait_for(lambda: any("poll_schedule" in (task / "wchan").read_text() for task in tasks.iterdir()))
        process.send_signal(signal.SIGHUP)
        process.wait(timeout=30)  # not `communicate`, which closes stdin: the end of it may come first
        assert process.stdout is not None
        out = process.stdout.read()
    assert process.returncode == 129
    assert json.loads(out)["outcome"] == "interrupted"
