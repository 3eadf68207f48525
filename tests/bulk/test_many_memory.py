"""The memory of a run does not grow with the number of files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PEAK = """
import asyncio, resource, sys
import resilient_pq as rpq

folder, out, journal = sys.argv[1:]
checked = asyncio.run(rpq.check_many(folder, resume=journal + ".check").finish())
recovered = asyncio.run(rpq.recover_many(folder, out, only_damaged=True, resume=journal).finish())
assert checked.num_files == recovered.num_files
print(checked.num_files, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def peak(folder: Path, name: str) -> tuple[int, int]:
    """How many files were done, and the most bytes that were resident."""
    arguments = [str(folder / name), str(folder / f"{name}.out"), str(folder / f"{name}.journal")]
    done = subprocess.run([sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, size = map(int, done.stdout.split())
    return count, size


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_ten_times_the_files_take_no_more_memory(files: Any, tmp_path: Path) -> None:
    files.write(tmp_path / "few", 400)
    files.write(tmp_path / "many", 4_000)
    few, many = peak(tmp_path, "few"), peak(tmp_path, "many")
    assert (few[0], many[0]) == (400, 4_000)
    # 3,600 results or documents would be a hundred times as much: 16 bytes for each line of a journal are not.
    assert many[1] - few[1] < 12 * 1024 * 1024
