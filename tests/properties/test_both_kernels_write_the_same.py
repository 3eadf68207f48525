"""The compiled kernels and those in NumPy make the same bytes, and each reads what the other wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from resilient_pq.format import kernels

SCRIPT = """
import asyncio, hashlib, sys
from pathlib import Path

import numpy as np

import resilient_pq as rpq
from resilient_pq.format import kernels


def rows(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 400))
    words = [f"word {i}" * int(rng.integers(0, 4)) for i in range(9)]
    lists = [[int(x) for x in rng.integers(-3, 3, int(rng.integers(0, 5)))] for _ in range(count)]
    return {
        "few": rng.integers(0, 4, count),
        "many": rng.integers(-(2**62), 2**62, count),
        "small": rng.integers(0, 200, count).astype(np.uint8),
        "gaps": np.ma.MaskedArray(rng.integers(0, 9, count), rng.random(count) < 0.4),
        "single": rng.random(count).astype(np.float32),
        "half": np.where(rng.random(count) < 0.2, np.nan, rng.random(count)).astype(np.float16),
        "flag": rng.random(count) < 0.3,
        "text": [None if rng.random() < 0.3 else words[int(rng.integers(0, 9))] for _ in range(count)],
        "unlike": [f"{i}-{rng.random()}" for i in range(count)],
        "list": [None if rng.random() < 0.2 else [None if x == 0 else x for x in each] for each in lists],
    }


def ways():
    for version in ("1.0", "2.0"):
        for page_rows in (7, 100_000):
            for dictionary_bytes in (0, 1 << 20):
                yield {
                    "compression": "none", "row_group_rows": 150, "page_bytes": 500,
                    "options": rpq.WriteOptions(version, page_rows, dictionary_bytes),
                }


async def main(expected, folder, other):
    assert kernels.active == expected, kernels.active
    for number, way in enumerate(ways()):
        data = rows(number)
        async with rpq.create(folder / f"{number}.parquet", **way) as writer:
            await writer.write(data)
        sums = []
        async with rpq.open(folder / f"{number}.parquet") as file:
            for group in file.metadata.row_groups:
                for chunk in group.columns:
                    pairs = {pair.key: pair.value for pair in chunk.meta_data.key_value_metadata}
                    sums.append((pairs["rpq.crc32"], chunk.meta_data.statistics))
        print(number, hashlib.sha256(repr(sums).encode()).hexdigest())
        for path in (folder / f"{number}.parquet", other / f"{number}.parquet"):
            if path.exists():
                async with rpq.open(path) as file:
                    found = (await file.read()).to_pydict()
                assert found["list"] == data["list"] and found["text"] == data["text"]
                assert found["unlike"] == data["unlike"] and found["flag"] == data["flag"].tolist()
                assert found["many"] == data["many"].tolist() and found["gaps"] == data["gaps"].tolist()
                assert repr(found["half"]) == repr([float(x) for x in data["half"]])


asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
"""


def _run(which: str, folder: Path, other: Path) -> str:
    folder.mkdir()
    environment = {**os.environ, "RESILIENT_PQ_KERNELS": which}
    command = [sys.executable, "-c", SCRIPT, which, str(folder), str(other)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.skipif(kernels.active != "native", reason="there are no compiled kernels here")
def test_both_kernels_write_the_same_and_read_each_other(tmp_path: Path) -> None:
    native = _run("native", tmp_path / "native", tmp_path / "reference")
    reference = _run("reference", tmp_path / "reference", tmp_path / "native")
    assert native.count("\n") == 8
    assert native == reference
