"""Contestants in turn, each run in a new process, and what their runs come to."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from measured import Run, Task

_MEASURED = Path(__file__).with_name("measured.py")
_LIBRARIES = ("resilient_pq", "pyarrow", "polars", "duckdb", "arro3-io", "rugo", "numpy", "cramjam", "isal")


@dataclass(slots=True)
class Runs:
    """All runs of one contestant at one task, or why there are none."""

    runs: list[Run] = field(default_factory=list)
    skipped: str | None = None

    def median(self, attribute: str) -> float:
        return float(statistics.median(getattr(run, attribute) for run in self.runs))

    def ratio(self, other: Runs, attribute: str = "seconds") -> float:
        """This one's by the other's, the median of rounds: within a round the machine was equally busy for both."""
        pairs = zip(self.runs, other.runs, strict=True)
        return float(statistics.median(getattr(run, attribute) / getattr(its, attribute) for run, its in pairs))


def take_turns(tasks: Sequence[Task], rounds: int, said: Callable[[str], None] | None = None) -> list[Runs]:
    """A B C A B C: what each task's runs measured, in the order of the tasks.

    Args:
        tasks: Of each contestant; what they leave is compared to the source in the first round.
        rounds: How often each has its turn.
        said: Called with a line for each run.
    """
    found = [Runs() for _ in tasks]
    for turn in range(rounds):
        for task, runs in zip(tasks, found, strict=True):
            if runs.skipped is None:
                _run(task, runs, verify=turn == 0 and task.source is not None)
                if said is not None:
                    what = runs.skipped or f"{runs.runs[-1].seconds:.3f} s"
                    said(f"{task.job.contestant}: {what}")
    return found


def _run(task: Task, runs: Runs, *, verify: bool) -> None:
    environment = dict(os.environ)
    if task.job.threads is not None:
        environment["POLARS_MAX_THREADS"] = str(task.job.threads)
    text = Task(task.job, task.source, task.warm_up, task.repeat, verify).to_json()
    process = subprocess.run(
        [sys.executable, str(_MEASURED), text], env=environment, capture_output=True, text=True, check=False
    )
    if task.job.work == "write":
        task.job.path.unlink(missing_ok=True)
    if process.returncode:
        last = (process.stderr.strip() or f"exit status {process.returncode}").splitlines()[-1]
        runs.skipped, runs.runs = f"failed: {last}", []
        return
    answer = json.loads(process.stdout.splitlines()[-1])
    if "skipped" in answer:
        runs.skipped = answer["skipped"]
    else:
        runs.runs.append(Run(**answer))


def machine() -> dict[str, str]:
    """What the numbers depend on besides the code."""
    found = {"machine": f"{os.cpu_count()} CPUs, {_cpu()}, {_memory_gib():.0f} GiB"}
    found["system"] = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "from the folder" if name == "resilient_pq" else "missing"
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
