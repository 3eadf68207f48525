"""A write and a read of 2 GB by a process that may use 512 MiB, with default options."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resilient_pq.units import MiB

LIMIT = 512 * MiB
#: Of the address space, which is filled by libraries and stacks of threads that take no memory: for where no control
#: group can be made.
ADDRESSES = 2048 * MiB

WRITE = """
import sys
import numpy as np
import resilient_pq.sync as rpq
rng, rows = np.random.default_rng(0), 300_000
with rpq.create(sys.argv[1], compression="none") as writer:
    for _ in range(75):
        columns = {f"c{number}": rng.random(rows) for number in range(10)}
        words = [f"word {word}" for word in rng.integers(0, 10**9, rows // 3)]
        writer.write({**columns, "number": rng.integers(0, 1000, rows), "word": words * 3})
"""
READ = """
import sys
import resilient_pq.sync as rpq
with rpq.open(sys.argv[1]) as file:
    assert sum(batch.num_rows for batch in file.batches()) == 75 * 300_000
"""


@pytest.fixture
def limited() -> Iterator[Callable[[], None]]:
    """What a new process calls to come under the limit."""
    group = _new_group()
    if group is None:
        import resource

        yield lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        return
    yield lambda: (group / "cgroup.procs").write_text(str(os.getpid())) and None
    for _ in range(100):  # a process that has ended stays in its group for a moment
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return


def _new_group() -> Path | None:
    """A control group of either version with the limit; None where none can be made."""
    for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root) / f"rpq-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / name).exists():
                (group / name).write_text(str(LIMIT))
                return group
        except OSError:
            pass
        group.rmdir()
    return None


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_two_gigabytes_need_no_more_memory_than_there_is(limited: Callable[[], None], tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    try:
        for script in (WRITE, READ):
            done = subprocess.run(
                [sys.executable, "-c", script, str(path)],
                capture_output=True,
                text=True,
                preexec_fn=limited,
                timeout=300,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, "")
        assert path.stat().st_size > 2e9
    finally:
        path.unlink(missing_ok=True)
