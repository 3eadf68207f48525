"""One file begun and resumed by processes that are killed, or stopped and woken later: each row is in it once."""

from __future__ import annotations

import io
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sampled import either

SCRIPT = Path(__file__).with_name("killed_resumer.py")


@dataclass
class Process:
    """What one process said."""

    pid: int
    said: list[list[str]] = field(default_factory=list)

    @property
    def begun(self) -> int | None:
        """Rows that it found; None as long as it has no writer."""
        return next((int(words[1]) for words in self.said if words[0] == "begun"), None)

    @property
    def told(self) -> int:
        """The most rows that it was told to be stored."""
        return max((int(words[1]) for words in self.said if words[0] in ("begun", "stored")), default=0)

    @property
    def ended(self) -> str | None:
        """How: "done", or the name of an error; None while it runs."""
        return next((words[-1] for words in self.said if words[0] in ("done", "ended")), None)


class Starter:
    """Starts processes, hears what they say, and kills them."""

    def __init__(self, program: subprocess.Popen[bytes]) -> None:
        self.program = program
        self.processes: list[Process] = []
        self._unread = b""

    def start(self, seed: int) -> Process:
        assert self.program.stdin is not None
        known = len(self.processes)
        self.program.stdin.write(f"{seed}\n".encode())
        self.program.stdin.flush()
        deadline = time.monotonic() + 20
        while len(self.processes) == known:
            assert time.monotonic() < deadline
            self.hear(0.05)
        return self.processes[-1]

    def hear(self, seconds: float, *, until: Process | None = None) -> None:
        """Listen for some time, or until one has ended."""
        assert self.program.stdout is not None
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and (until is None or until.ended is None):
            if not select.select([self.program.stdout], [], [], left)[0]:
                continue
            self._unread += os.read(self.program.stdout.fileno(), 65536)
            *lines, self._unread = self._unread.split(b"\n")
            for line in lines:
                pid, *words = line.decode().split()
                if words == ["pid"]:
                    self.processes.append(Process(int(pid)))
                else:
                    next(each for each in self.processes if each.pid == int(pid)).said.append(words)

    def kill(self, process: Process) -> None:
        if process.ended is None:
            os.kill(process.pid, signal.SIGKILL)
        self.hear(0.01)


@contextmanager
def starter(url: str, storage_options: Any, num_rows: int, size: int, errors: Path) -> Iterator[Starter]:
    arguments = [url, json.dumps(storage_options), str(num_rows), str(size)]
    with errors.open("wb") as log:
        program = subprocess.Popen(
            [sys.executable, str(SCRIPT), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
    found = Starter(program)
    try:
        yield found
    finally:
        for process in found.processes:
            if process.ended is None:
                os.kill(process.pid, signal.SIGKILL)
        program.kill()
        program.wait()


def disturb(found: Starter, rng: random.Random) -> None:
    """One start that is killed at some moment, or sleeps while another one takes over."""
    first = found.start(rng.randrange(1 << 30))
    found.hear(rng.uniform(0, 0.5), until=first)
    if rng.random() < 0.5 or first.ended is not None:
        found.kill(first)
        return
    os.kill(first.pid, signal.SIGSTOP)
    found.hear(0.05)
    was_first = first.begun is not None  # otherwise it may take over from the other one, when it is woken
    second = found.start(rng.randrange(1 << 30))
    found.hear(rng.uniform(0.1, 0.8), until=second)
    os.kill(first.pid, signal.SIGCONT)
    found.hear(rng.uniform(0, 0.5))
    found.kill(first)
    found.kill(second)
    if (
        was_first and second.begun is not None and second.told
    ):  # who begins a new file holds it when something is stored
        assert first.told <= second.begun, "it was told what was not there for the one that took over"


def run(s3: Any, errors: Path, *, seed: int, disturbances: int, num_rows: int, size: int) -> None:
    rng = random.Random(seed)
    name = f"{seed}.parquet"
    url = s3.url(name)
    with starter(url, s3.storage_options, num_rows, size, errors) as found:
        for _ in range(disturbances):
            told = max((process.told for process in found.processes), default=0)
            disturb(found, rng)
            assert all(each.begun is None or each.begun >= told for each in found.processes[-1:])
            if any(process.ended in ("done", "AlreadyExistsError") for process in found.processes):
                break
        last = found.start(0)
        found.hear(60, until=last)
        told = max(process.told for process in found.processes)
        assert last.ended in ("done", "AlreadyExistsError"), (last.said, errors.read_text())
        assert last.begun is None or last.begun >= told or any(each.ended == "done" for each in found.processes)
        kinds = {each.ended for each in found.processes} - {None, "done", "AlreadyExistsError"}
        assert kinds <= {"WriterFencedError", "WriterFailedError", "ObjectChangedError"}, kinds
    table = pq.read_table(io.BytesIO(s3.read(name)))
    assert table["id"].to_pylist() == list(range(num_rows))
    assert [name for name in s3.object_names() if not name.endswith(".parquet")] == []


@pytest.mark.parametrize(("size", "seeds"), either([(1_000, [1])], product([1_000, 60_000], [range(100, 120)]), 1800))
def test_killed_and_woken(s3: Any, tmp_path: Path, size: int, seeds: Sequence[int]) -> None:
    many = len(seeds) > 1
    for seed in seeds:
        errors = tmp_path / "errors"
        run(s3, errors, seed=seed, disturbances=12 if many else 2, num_rows=400 if many else 200, size=size)
