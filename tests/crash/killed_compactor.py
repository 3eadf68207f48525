"""A program that compacts a folder and kills itself at one of its steps, or never.

    killed_compactor.py SRC DST STORAGE_OPTIONS STEP

Steps are the calls that change something in a store: step 2n stands before call n, and step 2n + 1 behind it; -1 is
never. At the end it prints how many steps there are.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from store_wrapper import Call, StoreWrapper

import resilient_pq as rpq
from resilient_pq.io import resolve

Result = TypeVar("Result")
CHANGES = ("make_folder", "put", "create", "write", "complete", "discard_unfinished", "delete")
#: How this program and whoever goes on after it compacts.
LIMITS: dict[str, Any] = {"target_bytes": 20_000, "copy_bytes": 10_000, "remove_sources": True}


class KillingStore(StoreWrapper):
    """Ends the process at a step."""

    step = -1
    steps = 0

    async def _do(self, call: Call, action: Callable[[], Awaitable[Result]]) -> Result:
        if call.verb not in CHANGES:
            return await action()
        self._pass()
        result = await action()
        self._pass()
        return result

    def _pass(self) -> None:
        if self.steps == self.step:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1


async def main(src: str, dst: str, storage_options: str, step: int) -> None:
    store, key = resolve(f"{src}/_", json.loads(storage_options))
    killing = KillingStore(store)
    killing.step = step
    there, output = resolve(f"{dst}/_", json.loads(storage_options))
    await there.close()
    await rpq.compact((killing, key.removesuffix("_")), (killing, output.removesuffix("_")), **LIMITS)
    await store.close()
    sys.stdout.write(f"{killing.steps}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
