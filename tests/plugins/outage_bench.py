"""What cases of outages are run on: a server, a proxy before it, and subjects in processes of their own."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import outage_subjects
from outage_proxy import OutageProxy
from outage_schedule import Run, Trouble
from outage_server import KillableServer
from outage_subjects import Job


class Child:
    """A subject at work."""

    def __init__(self, job: Job, run: Run, number: int) -> None:
        """Start it."""
        self.job, self.run, self.number = job, run, number
        self.said: list[tuple[Any, ...]] = []  # What it said, in order
        self.begun, self.ended = time.monotonic(), math.inf
        self.struck: str | None = None  # What was done to it
        self.hopeless = False  # Whether what it is to do is not possible
        self.rests: list[tuple[float, float]] = []  # Begin and end of the times in which it was stopped
        self._stopped_at: float | None = None
        self._lock = threading.Lock()
        context = nursery()
        self._pipe, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=outage_subjects.run, args=(job, theirs))
        self._process.start()
        theirs.close()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        try:
            while True:
                self.said.append(self._pipe.recv())
        except (EOFError, OSError):
            pass

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def resting(self) -> bool:
        return self._stopped_at is not None

    @property
    def status(self) -> int | None:
        return self._process.exitcode

    def strike(self, blow: Trouble, scale: float) -> None:
        """Kill it, or let it rest."""
        with self._lock:
            if not self.alive or self.struck:
                return
            self.struck = blow.kind
            if blow.kind == "kill":
                self._process.kill()
                return
            assert self._process.pid is not None
            os.kill(self._process.pid, signal.SIGSTOP)
            self._stopped_at = time.monotonic()
        timer = threading.Timer(blow.seconds * scale, self.wake)
        timer.daemon = True
        timer.start()

    def wake(self) -> None:
        """End its rest."""
        with self._lock:
            if self._stopped_at is not None and self.alive:
                assert self._process.pid is not None
                os.kill(self._process.pid, signal.SIGCONT)
                self.rests.append((self._stopped_at, time.monotonic()))
            self._stopped_at = None

    def wait(self, seconds: float) -> bool:
        """Whether it ended in time; if not, it leaves its stack in its errors and is killed."""
        self._process.join(seconds)
        ended = not self.alive
        self.ended = min(self.ended, time.monotonic())
        if not ended:
            assert self._process.pid is not None
            os.kill(self._process.pid, signal.SIGABRT)
            self._process.join(5)
            self._process.kill()
            self._process.join()
        self._listener.join(10)
        return ended

    def words(self, word: str) -> list[tuple[Any, ...]]:
        """All that it said behind a word."""
        return [each[1:] for each in tuple(self.said) if each[0] == word]

    @property
    def output(self) -> str:
        """Its standard output and error."""
        return self.job.errors.read_text(errors="replace") if self.job.errors.exists() else ""

    def __str__(self) -> str:
        """As a line of a report."""
        last = [each for each in self.said if each[0] not in ("calling", "called")][-3:]
        return f"subject {self.number} ({self.job.what}) status {self.status}, struck {self.struck}: {last}"


def nursery() -> Any:
    """What starts children in a moment: they have the package loaded."""
    context = multiprocessing.get_context("forkserver")
    if not _PRELOADED:
        _PRELOADED.append(True)
        # What is loaded first is looked for by the environment alone, and not where this was started.
        os.environ["PYTHONSAFEPATH"] = "1"
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        context.set_forkserver_preload(["outage_subjects"])
    return context


_PRELOADED: list[bool] = []


@dataclass
class Bench:
    """A server, a proxy before it, and a folder: what one case after another is run on."""

    folder: Path
    scale: float
    server: KillableServer = field(init=False)
    proxy: OutageProxy = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.server = KillableServer(self.folder / "server")
        credentials = self.folder / "credentials.json"
        self.proxy = OutageProxy(self.server, scale=self.scale, credentials=credentials)
        (self.folder / "aws").write_text(f"[default]\ncredential_process = cat {credentials}\nregion = us-east-1\n")

    def close(self) -> None:
        """End it all."""
        self.proxy.stop()
        self.server.stop()

    @property
    def environment(self) -> dict[str, str]:
        """Where subjects have their credentials from."""
        return {
            "AWS_CONFIG_FILE": str(self.folder / "aws"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.folder / "none"),
            "AWS_EC2_METADATA_DISABLED": "true",
        }
