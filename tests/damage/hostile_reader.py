"""A program that reads, checks and recovers whatever it is given, in bounded memory, and says what came of it.

Files come on its input, each behind its length in four bytes, little endian; for each it writes a line of JSON with
what came of every verb, "ok" or the name of the error, and ``"foreign"``: the traceback of an error that is not one of
ours, else null.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import resource
import sys
import traceback
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore

MEMORY = 2 * 2**30


async def read(store: MemoryStore) -> object:
    async with rpq.open((store, "file")) as file:
        await file.read()
        async for _ in file.batches(1000):
            pass
    return "ok"


async def read_unverified(store: MemoryStore) -> object:
    async with rpq.open((store, "file"), verify=False) as file:
        await file.read()
    return "ok"


async def read_what_is_left(store: MemoryStore) -> object:
    async with rpq.open((store, "file"), on_damage="null") as file:
        await file.read()
    return "ok"


async def check(store: MemoryStore) -> object:
    report = await rpq.check((store, "file"))
    json.dumps(report.to_json())
    return report.outcome


async def recover(store: MemoryStore) -> object:
    report = await rpq.recover((store, "file"), (store, "out"))
    json.dumps(report.to_json())
    again = await rpq.check((store, "out"))
    json.dumps(again.to_json())
    try:
        async with rpq.open((store, "out")) as file:
            table = await file.read()
    except rpq.FormatError as error:
        raise AssertionError("what was recovered cannot be read") from error
    except rpq.ResilientPQError:
        return report.outcome  # columns that no Arrow type is for
    assert table.num_rows == report.num_rows
    return report.outcome


async def answer(data: bytes) -> dict[str, Any]:
    store = MemoryStore()
    await store.put("file", data)
    verbs: dict[str, Callable[[MemoryStore], Awaitable[object]]] = {
        "read": read,
        "read unverified": read_unverified,
        "read what is left": read_what_is_left,
        "check": check,
        "recover": recover,
    }
    said: dict[str, Any] = {"foreign": None}
    for name, verb in verbs.items():
        try:
            said[name] = str(await verb(store))
        except rpq.ResilientPQError as error:
            said[name] = type(error).__name__
            str(error)
        except BaseException as error:
            said[name] = type(error).__name__
            said["foreign"] = f"{name}: " + "".join(traceback.format_exception(error))
    return said


def main() -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    asyncio.run(answer(b""))  # all modules are there before memory becomes scarce
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    while size := sys.stdin.buffer.read(4):
        data = sys.stdin.buffer.read(int.from_bytes(size, "little"))
        sys.stdout.write(json.dumps(asyncio.run(answer(data))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
