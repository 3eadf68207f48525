"""How many instructions the compiled kernels take for a value: ``python scripts/bench/kernel_instructions.py``.

Valgrind counts them, so what else the machine does makes no difference, and neither does its clock. Time is not
instructions: a gather that misses the cache takes few of them and long. The kernels for every processor, and those for
processors with AVX2 where this one has it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

COUNT = 1 << 16
NATIVE = "resilient_pq.format.kernels._native"


class Case(NamedTuple):
    """One call of a kernel.

    Attributes:
        name: The kernel, and of what.
        values: How many values it handles.
        call: Makes the call, once.
    """

    name: str
    values: int
    call: Callable[[], Any]


def strings(rng: np.random.Generator, distinct: int) -> tuple[Any, Any]:
    """Offsets and bytes of `COUNT` strings of 4 to 24 bytes, of which so many differ."""
    words = [bytes(rng.integers(97, 123, size).astype("u1")) for size in rng.integers(4, 25, distinct)]
    chosen = [words[i] for i in rng.integers(0, distinct, COUNT)]
    offsets = np.zeros(COUNT + 1, np.int32)
    np.cumsum([len(word) for word in chosen], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(chosen), np.uint8)


def integers(rng: np.random.Generator, native: Any, reference: Any) -> list[Case]:
    """Runs of bits, differences, and numbers in dictionaries."""
    cases = []
    wide = np.empty(COUNT, np.int32)
    for width in (1, 3, 8, 13):
        values = rng.integers(0, 1 << width, COUNT).astype(np.int32)
        packed = reference.rle_encode(values, width)
        cases.append(Case(f"rle_decode, {width} bits", COUNT, lambda p=packed, w=width: native.rle_decode(p, w, wide)))
        cases.append(Case(f"rle_encode, {width} bits", COUNT, lambda v=values, w=width: native.rle_encode(v, w)))
    stamps = np.cumsum(rng.integers(0, 1000, COUNT))
    encoded = reference.delta_binary_encode(stamps)
    out = np.empty(COUNT, np.int64)
    cases.append(Case("delta_binary_decode, int64", COUNT, lambda: native.delta_binary_decode(encoded, out)))
    cases.append(Case("delta_binary_encode, int64", COUNT, lambda: native.delta_binary_encode(stamps)))
    for distinct in (256, 20_000):
        numbers = rng.integers(0, 1 << 60, distinct)[rng.integers(0, distinct, COUNT)]
        cases.append(
            Case(
                f"dictionary_build, {distinct} int64",
                COUNT,
                lambda n=numbers: native.dictionary_build(n, COUNT),
            )
        )
    days = rng.integers(8_000, 10_500, COUNT).astype(np.int32)
    cases.append(Case("dictionary_build, 2500 days", COUNT, lambda: native.dictionary_build(days, COUNT)))
    indices = rng.integers(0, 256, COUNT).astype(np.int32)
    dictionary = rng.integers(0, 1 << 60, 256)
    cases.append(Case("gather, int64", COUNT, lambda: native.gather(dictionary, indices, out)))
    present = rng.random(COUNT) < 0.9
    cases.append(Case("spread, int64, a tenth null", COUNT, lambda: native.spread(out, present)))
    rows, of_rows = dictionary.view(np.uint8).reshape(-1, 8)[:, :7].copy(), np.empty((COUNT, 7), np.uint8)
    cases.append(Case("gather, rows of 7 bytes", COUNT, lambda: native.gather(rows, indices, of_rows)))
    for width in (4, 8):
        values, streams = np.empty((COUNT, width), np.uint8), np.empty((width, COUNT), np.uint8)
        cases.append(
            Case(f"split_streams, {width} bytes", COUNT, lambda v=values, s=streams: native.split_streams(v, s))
        )
        cases.append(Case(f"join_streams, {width} bytes", COUNT, lambda v=values, s=streams: native.join_streams(s, v)))
    return cases


def byte_arrays(rng: np.random.Generator, native: Any, reference: Any) -> list[Case]:
    """Strings of 14 bytes on average."""
    offsets, data = strings(rng, 256)
    plain = np.empty(data.size + 4 * COUNT, np.uint8)
    reference.byte_array_join(offsets, data, plain)
    few_offsets, few_data = strings(rng, 256)
    indices = rng.integers(0, 256, COUNT).astype(np.int32)
    joined = np.empty_like(plain)
    taken = np.empty(COUNT, np.int32)
    total = int(np.diff(few_offsets)[indices].sum())
    gathered = np.empty(total, np.uint8)
    codes = indices.copy()
    entries_of = few_offsets.astype(np.int64)
    return [
        Case(
            "copy_chosen_byte_arrays, 65536 entries",
            COUNT,
            lambda: native.copy_chosen_byte_arrays(entries_of, few_data, codes, gathered, 0),
        ),
        Case("byte_array_join", COUNT, lambda: native.byte_array_join(offsets, data, joined)),
        Case("byte_array_lengths", COUNT, lambda: native.byte_array_lengths(plain, taken)),
        Case("byte_array_min_max", COUNT, lambda: native.byte_array_min_max(offsets, data)),
        Case(
            "dictionary_build_byte_arrays, 256",
            COUNT,
            lambda: native.dictionary_build_byte_arrays(offsets, data, COUNT, 1 << 30),
        ),
        Case("utf8_valid, a byte of ASCII", data.size, lambda: native.utf8_valid(offsets, data)),
        Case("byte_array_hashes", COUNT, lambda: native.byte_array_hashes(offsets, data)),
    ]


def all_cases(module: str) -> list[Case]:
    """Every case; what they need is made by the reference, so that no call of a compiled kernel is not one of them."""
    from resilient_pq.format.kernels import reference  # noqa: PLC0415 (not in the parent)

    rng, native = np.random.default_rng(0), import_module(module)
    return [*integers(rng, native, reference), *byte_arrays(rng, native, reference)]


def entries(module: str, names: set[str]) -> list[str]:
    """The functions by which Python enters kernels, as Cython has named them in the compiled modules they are from."""
    found = []
    for name in sorted({getattr(import_module(module), name).__module__ for name in names}):
        file = str(import_module(name).__file__)
        listed = subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout
        found += re.findall(rf"\b(__pyx_pw_\w+{name.rpartition('.')[2]}_\d+(\w+))$", listed, re.MULTILINE)
    return [symbol for symbol, name in found if name in names]


def counts(module: str, folder: Path, names: set[str]) -> list[int]:
    """Instructions of each call of a kernel, in order: Valgrind leaves a file whenever the next one begins."""
    folder.mkdir()
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / 'out'}"]
    command += [f"--dump-before={entry}" for entry in entries(module, names)]
    ran = subprocess.run(
        [*command, sys.executable, __file__, "--run", module], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise SystemExit(ran.stderr)
    found = sorted(folder.glob("out.*"), key=lambda path: int(path.suffix[1:]))
    return [
        int(line.split()[1])
        for path in found[1:]  # the first has what was before the first call
        for line in path.read_text().splitlines()
        if line.startswith("totals:")
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--run", metavar="MODULE", help="only make the calls; what Valgrind is given to run")
    arguments = parser.parse_args()
    if arguments.run:
        cases = all_cases(arguments.run)
        for case in [*cases, cases[0]]:  # the last one only ends the one before it
            case.call()
        return 0
    modules = [NATIVE]
    if import_module(NATIVE)._runs_avx2():
        modules.append(f"{NATIVE}_avx2")
    cases = all_cases(NATIVE)
    with tempfile.TemporaryDirectory() as folder:
        names = {case.name.partition(",")[0] for case in cases}
        found = [counts(module, Path(folder) / module, names) for module in modules]
    print("| kernel | instructions for a value |" + " the same with AVX2 |" * (len(modules) - 1))
    print("|---|" + "---:|" * len(modules))
    for case, *instructions in zip(cases, *found, strict=True):
        print(f"| {case.name} |" + "".join(f" {number / case.values:.1f} |" for number in instructions))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
