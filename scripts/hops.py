"""Count the modules and functions of the package that an ordinary operation passes.

    python scripts/hops.py [--functions] [OPERATION ...]

Each operation is done twice in one event loop; what the second one passes is counted, in all threads. Comprehensions
and generator expressions belong to the function that they stand in; lambdas and nested functions count.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import resilient_pq as rpq
from resilient_pq import memory_pool
from resilient_pq.loop_portal import portal

PACKAGE = Path(rpq.__file__).parent
#: Of one function, in Python before 3.12.
_PARTS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"))
_ROWS = 1000

#: A module's path in the package, and a function in it.
Hop = tuple[str, str]
Operation = Callable[[], Awaitable[object]]


def passed(operation: Operation) -> set[Hop]:
    """The functions that the second of two runs of an operation passes."""
    codes: set[CodeType] = set()

    def record(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    async def twice() -> None:
        await operation()
        gc.collect()  # what ended before is no part of the operation,
        portal.wait_for_ends()  # nor is what others left to the loop of blocking calls,
        memory_pool.give_back()  # nor the memory that they had
        codes.clear()
        await operation()

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        asyncio.run(twice())
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    prefix = f"{PACKAGE}/"
    return {
        (code.co_filename.removeprefix(prefix), f"{code.co_qualname}:{code.co_firstlineno}")
        for code in codes
        if code.co_filename.startswith(prefix) and code.co_name not in _PARTS
    }


def operations(folder: Path) -> dict[str, Operation]:
    """What is counted, by its name; files are made in a folder."""
    whole, torn = folder / "whole.parquet", folder / "torn.parquet"
    rows = {name: np.arange(_ROWS) for name in "abcd"}

    async def make(path: Path, row_groups: int) -> None:
        async with rpq.create(path, row_group_rows=_ROWS) as writer:
            for _ in range(row_groups):
                await writer.write(rows)

    async def read() -> None:
        async with rpq.open(whole) as file:
            await file.read(columns=["b"], row_groups=[1])

    async def read_filtered() -> None:
        async with rpq.open(whole) as file:
            await file.read(columns=["b"], filters=[("a", "<", 10)])

    async def write() -> None:
        await make(folder / "written.parquet", 1)

    async def recover() -> None:
        await rpq.recover(torn, folder / "recovered.parquet", overwrite=True)

    asyncio.run(make(whole, 4))
    torn.write_bytes(whole.read_bytes()[:-100])
    return {"read": read, "write": write, "read with a filter": read_filtered, "recover": recover}


def main() -> None:
    """Print a table, or the functions themselves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="OPERATION", help="which to count; all without")
    parser.add_argument("--functions", action="store_true", help="print the functions, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, operation in operations(Path(folder)).items():
            if arguments.names and name not in arguments.names:
                continue
            hops = passed(operation)
            print(f"{name:20}{len({module for module, _ in hops}):5} modules{len(hops):6} functions")
            for module, function in sorted(hops) if arguments.functions else ():
                print(f"    {module:40} {function}")


if __name__ == "__main__":
    main()
