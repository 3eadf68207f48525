"""How much damage a sidecar repairs: ``python scripts/parity_survival.py`` prints the table of docs/guides/parity.md.

For each share of parity and each kind of damage, damage is drawn 200 times over the blocks of a file, cut into groups
as `rpq protect` cuts it; the table has the share of draws after which every column can be rebuilt. With ``--repair N``
the first draws of each cell are also done: a file of that size is protected, damaged, repaired and compared, and the
script fails where the product does other than the geometry says.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from resilient_pq import sync as rpq
from resilient_pq.parity.group_shape import ParityShare, group_shapes
from resilient_pq.units import MiB

SECTOR = 4096
#: Places and sizes of the bytes that are lost.
Damage = Callable[[np.random.Generator, int], Sequence[tuple[int, int]]]


def sectors(count: int) -> Damage:
    return lambda draw, size: [(int(at) * SECTOR, SECTOR) for at in draw.integers(0, size // SECTOR, count)]


def bursts(count: int, length: int) -> Damage:
    return lambda draw, size: [(int(at), length) for at in draw.integers(0, size - length, count)]


DAMAGES: dict[str, Damage] = {
    "100 sectors": sectors(100),
    "1,000 sectors": sectors(1_000),
    "3,000 sectors": sectors(3_000),
    "1 MiB x 8": bursts(8, MiB),
    "8 MiB": bursts(1, 8 * MiB),
    "8 MiB x 3": bursts(3, 8 * MiB),
    "32 MiB": bursts(1, 32 * MiB),
    "64 MiB": bursts(1, 64 * MiB),
}


def survives(places: Sequence[tuple[int, int]], size: int, share: ParityShare) -> bool:
    """Whether every column of every group keeps enough blocks."""
    start = 0
    for shape in group_shapes(size, share):
        lost = np.zeros(shape.num_data * shape.num_columns, np.bool_)
        for at, length in places:
            first, last = max(at - start, 0), min(at + length - start, shape.num_bytes)
            if first < last:
                lost[first // shape.block_bytes : -(-last // shape.block_bytes)] = True
        if lost.reshape(shape.num_data, -1).sum(axis=0).max() > shape.num_parity:
            return False
        start += shape.num_bytes
    return True


def is_repaired(path: Path, places: Sequence[tuple[int, int]]) -> bool:
    """Zero bytes of a protected file, repair it, and give the bytes back."""
    kept = []
    with path.open("r+b") as file:
        for at, length in places:
            file.seek(at)
            kept.append((at, file.read(length)))
            file.seek(at)
            file.write(bytes(length))
    try:
        rpq.repair(path, path.with_name("repaired"), overwrite=True)  # which compares the digest of the whole file
    except rpq.RepairError:
        return False
    finally:
        with path.open("r+b") as file:
            for at, data in reversed(kept):
                file.seek(at)
                file.write(data)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1 << 30, help="bytes of the file")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repair", type=int, default=0, help="draws of each cell that are really damaged and repaired")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_table(arguments, Path(folder) / "file")


def print_table(arguments: argparse.Namespace, path: Path) -> None:
    if arguments.repair:
        path.write_bytes(np.random.default_rng(arguments.seed).bytes(arguments.size))
    print("| `--parity` |", *(f"{name} |" for name in DAMAGES))
    print("|---|" + "---|" * len(DAMAGES))
    for parity in ("1%", "2%", "5%", "10%", "20%"):
        draw = np.random.default_rng(arguments.seed)
        share = ParityShare.parse(parity)
        if arguments.repair:
            rpq.protect(path, parity=parity, overwrite=True)
        rates = []
        for damage in DAMAGES.values():
            draws = [damage(draw, arguments.size) for _ in range(arguments.draws)]
            survived = [survives(places, arguments.size, share) for places in draws]
            for places, expected in zip(draws[: arguments.repair], survived, strict=False):
                assert is_repaired(path, places) == expected, (parity, places)
            rates.append(np.mean(survived))
        print(f"| {parity} |", *(f"{rate:.2f} |" for rate in rates), flush=True)


if __name__ == "__main__":
    main()
