"""One contestant, one work, in a process of its own: `compare.py` and its neighbours start it and read its one line.

The source is loaded and made the contestant's own before the clock starts, and a tiny table is written or read first,
for what libraries import and start when they are first used. The run after that tells the memory, while the allocators
are still fresh; the best of those that follow tells the time.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from contestants import ROSTER, Job, SkippedError
from datasets import load

WARM_UP_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Task:
    """A measurement, and how it is done.

    Attributes:
        job: What is measured.
        source: The Arrow IPC file of what is written, or of what the file that is read holds; None to verify
            nothing, which only reading can do.
        warm_up: A small file like the one that is read.
        repeat: Timed runs.
        verify: Whether pyarrow compares the result to the source afterwards.
    """

    job: Job
    source: Path | None
    warm_up: Path | None = None
    repeat: int = 3
    verify: bool = False

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Task:
        found = json.loads(text)
        job = found["job"]
        columns = None if job["columns"] is None else tuple(job["columns"])
        paths = {name: found[name] and Path(found[name]) for name in ("source", "warm_up")}
        return cls(
            Job(**{**job, "path": Path(job["path"]), "columns": columns}),
            repeat=found["repeat"],
            verify=found["verify"],
            **paths,
        )


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured.

    Attributes:
        seconds: Wall time, of the best run.
        cpu_seconds: Of all threads, in the same run.
        first_seconds: Wall time of the first run, whose memory no earlier one has left ready.
        peak_bytes: Most resident memory above what there was at the start, mapped files included.
        result_bytes: Memory that the table takes that was read; 0 when writing.
        file_bytes: Size of the file.
        verified: Whether the result was compared to the source.
    """

    seconds: float
    cpu_seconds: float
    first_seconds: float
    peak_bytes: int
    result_bytes: int
    file_bytes: int
    verified: bool


def measure(task: Task) -> Run:
    job = task.job
    module = importlib.import_module(f"contestants.{_module_of(job.contestant)}")
    work, warm_up = _prepared(module, task)
    result, first_seconds, peak = first_run(work, warm_up)
    result_bytes = 0 if result is None else module.result_bytes(result)
    times = []
    for _ in range(task.repeat):
        del result
        if job.work == "write":
            job.path.unlink(missing_ok=True)  # or the next one would find the room for its bytes made already
        gc.collect()
        cpu, started = time.process_time(), time.perf_counter()
        result = work()
        times.append((time.perf_counter() - started, time.process_time() - cpu))
    seconds, cpu_seconds = min(times)
    file_bytes = job.path.stat().st_size if job.path.exists() else 0  # libzstd alone leaves none
    if task.verify:
        _verify(module, task, result)
    return Run(seconds, cpu_seconds, first_seconds, peak, result_bytes, file_bytes, task.verify)


def _module_of(name: str) -> str:
    return next(contestant.module for contestant in ROSTER if contestant.name == name)


def _prepared(module: ModuleType, task: Task) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The function that is measured, and a small one like it."""
    job = task.job
    if job.work == "write":
        assert task.source is not None
        table = load(task.source)
        small = dataclasses.replace(job, path=job.path.with_name(job.path.name + ".small"))
        work = module.writing(job.contestant, table, job)
        return work, module.writing(job.contestant, table.slice(0, WARM_UP_ROWS), small)
    work = module.reading(job.contestant, job)
    small = dataclasses.replace(job, path=task.warm_up or job.path)
    return work, module.reading(job.contestant, small)


def first_run(work: Callable[[], Any], warm_up: Callable[[], Any]) -> tuple[Any, float, int]:
    """What `work` returns, its seconds, and the most resident memory above what there was before the warm-up.

    What a library keeps of its warm-up for later counts, or keeping much would look like needing little.
    """
    gc.collect()
    before = _status("VmRSS")
    try:
        Path("/proc/self/clear_refs").write_text("5")  # begin the high-water mark anew, see proc(5)
        anew = True
    except OSError:
        anew = False
    warm_up()
    gc.collect()
    started = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - started
    most = _status("VmHWM") if anew else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return result, seconds, max(0, most - before)


def _status(name: str) -> int:
    """A size from ``/proc/self/status``, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


def _verify(module: ModuleType, task: Task, result: Any) -> None:
    """Let pyarrow compare what was written or read to the source.

    Raises:
        AssertionError: They differ.
    """
    job = task.job
    if job.contestant == "libzstd":
        return
    assert task.source is not None
    expected = load(task.source)
    if job.columns is not None:
        expected = expected.select(job.columns)
    found = pq.read_table(job.path) if job.work == "write" else module.as_arrow(result)
    for field in expected.schema:
        same = pa.chunked_array(found.column(field.name)).cast(field.type).equals(expected.column(field.name))
        if not same:
            raise AssertionError(f"{job.contestant}: column {field.name!r} is not what was written")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", help="as `Task.to_json` gives it")
    task = Task.from_json(parser.parse_args().task)
    try:
        answer = dataclasses.asdict(measure(task))
    except (SkippedError, ImportError) as reason:
        answer = {"skipped": str(reason)}
    print(json.dumps(answer))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
