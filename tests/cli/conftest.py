"""`rpq` as tests run it: within this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from resilient_pq import sync as rpq
from resilient_pq.cli.main import run
from resilient_pq.format.file_metadata import ColumnMetaData

NUM_ROWS = 1000
ROW_GROUP_ROWS = 250


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What --json printed: one document, and nothing else."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    def words(self, label: str) -> list[str]:
        """What stands behind the label, of every line that begins with it."""
        return [line[12:] for line in self.out.splitlines() if line[:12].strip() == label]


@contextmanager
def piped(data: bytes) -> Iterator[None]:
    """A pipe in the place of stdin, into which a thread writes."""

    def write() -> None:
        with suppress(BrokenPipeError), open(end, "wb") as pipe:
            pipe.write(data)

    ours = os.dup(0)
    begin, end = os.pipe()
    os.dup2(begin, 0)
    os.close(begin)
    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        os.dup2(ours, 0)
        os.close(ours)
        writing.join()


@pytest.fixture
def rpq_run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run a command line in this process, with bytes that come through a pipe on its stdin."""

    def call(*arguments: object, stdin: bytes | None = None) -> Ended:
        capsys.readouterr()
        with nullcontext() if stdin is None else piped(stdin):
            code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return call


@pytest.fixture
def rpq_command() -> list[str]:
    """What to put before the arguments of a process."""
    return [sys.executable, "-m", "resilient_pq"]


@pytest.fixture
def rpq_process(rpq_command: list[str]) -> Callable[..., Ended]:
    """Run a command line as a process."""

    def call(*arguments: object, **environment: str) -> Ended:
        done = subprocess.run(
            [*rpq_command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, **environment},
            timeout=60,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture(scope="session")
def sound_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A resilient file of four row groups."""
    path = tmp_path_factory.mktemp("sound") / "sound.parquet"
    with rpq.create(path, row_group_rows=ROW_GROUP_ROWS, checkpoint_every=2, checkpoint_overhead=1) as writer:
        writer.write(
            {
                "number": list(range(NUM_ROWS)),
                "text": [None if i % 10 == 0 else f"row {i}" for i in range(NUM_ROWS)],
                "share": [i / 8 for i in range(NUM_ROWS)],
            }
        )
    return path.read_bytes()


@pytest.fixture
def sound(tmp_path: Path, sound_bytes: bytes) -> Path:
    """The sound file."""
    path = tmp_path / "sound.parquet"
    path.write_bytes(sound_bytes)
    return path


@pytest.fixture
def torn(tmp_path: Path, sound: Path, sound_bytes: bytes) -> Path:
    """The same file, cut within its third row group: 500 rows are whole."""
    path = tmp_path / "torn file.parquet"  # a name that a shell needs quotes for
    path.write_bytes(sound_bytes[: _chunk(sound, 2, -1).data_page_offset + 10])
    return path


@pytest.fixture
def stub(tmp_path: Path, sound: Path, sound_bytes: bytes) -> Path:
    """The same file, cut within its first row group: only the schema is whole."""
    path = tmp_path / "stub.parquet"
    path.write_bytes(sound_bytes[: _chunk(sound, 0, 0).data_page_offset + 10])
    return path


def _chunk(path: Path, row_group: int, column: int) -> ColumnMetaData:
    with rpq.open(path) as file:
        chunk = file.metadata.row_groups[row_group].columns[column].meta_data
    assert chunk is not None
    return chunk


@pytest.fixture
def flipped(tmp_path: Path, sound: Path, sound_bytes: bytes) -> Path:
    """The same file, a byte of the second row group changed."""
    chunk = _chunk(sound, 1, 0)
    damaged = bytearray(sound_bytes)
    damaged[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 0x10
    path = tmp_path / "flipped.parquet"
    path.write_bytes(damaged)
    return path
