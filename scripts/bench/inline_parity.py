"""Writing with parity inside the file against writing without, by turns: `python -m scripts.bench.inline_parity`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import resilient_pq as rpq
from resilient_pq import sync

_ROWS = 4_000_000
_TURNS = 4


def _write(path: Path, columns: dict[str, object], compression: str, parity: str | None) -> tuple[float, float]:
    """The seconds, and the seconds of the processor, that 16 million rows take in one thread."""
    wall, processor = time.perf_counter(), time.process_time()
    options = rpq.WriteOptions(max_threads=1)
    with sync.create(path, parity=parity, compression=compression, options=options) as writer:
        for _ in range(4):
            writer.write(columns)
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    """Print the rate with parity, as a part of that without, for several codecs."""
    draw = np.random.default_rng(1)
    columns = {"id": np.arange(_ROWS), "x": draw.random(_ROWS), "k": draw.integers(0, 1000, _ROWS)}
    with tempfile.TemporaryDirectory() as folder:
        for compression in ("zstd", "snappy", "none"):
            taken: dict[str | None, list[tuple[float, float]]] = {None: [], "5%": []}
            for _ in range(_TURNS):
                for parity, times in taken.items():
                    times.append(_write(Path(folder, "file.parquet"), columns, compression, parity))
            best = [[min(times) for times in zip(*taken[parity], strict=True)] for parity in (None, "5%")]
            wall, processor = (without / with_it for without, with_it in zip(*best, strict=True))
            print(f"{compression:8} rate with parity {wall:.2f}, by time of the processor {processor:.2f}")


if __name__ == "__main__":
    main()
