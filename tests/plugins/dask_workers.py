"""Two Dask workers, processes of their own, which can be told to die by SIGKILL in the middle of what they do.

`dask_client` is a client of theirs. `kill_worker` has the first worker that calls a method so many times kill itself
just after: nobody waits for a moment, and it is the same one each time.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Killing:
    """A worker that is to die."""

    flag: Path  # A file that the worker leaves as it dies

    @property
    def happened(self) -> bool:
        return self.flag.exists()


def arm(flag: str, module: str, name: str, calls: int) -> None:
    """In a worker: have it die after so many calls of a method, if it is the first to get there."""
    kind_name, _, method_name = name.partition(".")
    kind = getattr(importlib.import_module(module), kind_name)
    method = getattr(kind, method_name)
    kind._unarmed = {
        **getattr(kind, "_unarmed", {}),
        method_name: getattr(kind, "_unarmed", {}).get(method_name, method),
    }
    count = 0

    def counted() -> None:
        nonlocal count
        count += 1
        if count != calls:
            return
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    @functools.wraps(method)
    def blocking(*args: Any, **kwargs: Any) -> Any:
        found = method(*args, **kwargs)
        counted()
        return found

    @functools.wraps(method)
    async def waiting(*args: Any, **kwargs: Any) -> Any:
        found = await method(*args, **kwargs)
        counted()
        return found

    setattr(kind, method_name, waiting if inspect.iscoroutinefunction(method) else blocking)


def disarm(module: str, name: str) -> None:
    """In a worker: as it was."""
    kind_name, _, method_name = name.partition(".")
    kind = getattr(importlib.import_module(module), kind_name)
    if method_name in getattr(kind, "_unarmed", {}):
        setattr(kind, method_name, kind._unarmed[method_name])


@pytest.fixture(scope="module")
def dask_client() -> Iterator[Any]:
    """A client of a cluster of two worker processes of one thread each."""
    import dask
    from distributed import Client, LocalCluster

    with (
        # A worker that is away so many seconds after one of its name was lost is given up: here several die in a row.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def kill_worker(dask_client: Any, tmp_path: Path) -> Iterator[Callable[..., Killing]]:
    """Arm both workers."""
    armed: list[tuple[str, str]] = []
    dask_client.wait_for_workers(2, timeout=60)

    def kill(module: str, name: str, calls: int = 1) -> Killing:
        flag = tmp_path / f"killed-{len(armed)}"
        dask_client.run(arm, str(flag), module, name, calls)
        armed.append((module, name))
        return Killing(flag)

    yield kill
    for place in armed:
        dask_client.run(disarm, *place)


def noise(number: int, num_bytes: int) -> Any:
    """Rows that no codec makes smaller. In this module, which workers find, as they do not find those of the tests."""
    import numpy as np
    import pandas as pd

    values = np.random.default_rng(number).integers(0, 2**63, num_bytes // 8)
    return pd.DataFrame({"part": np.full(len(values), number), "noise": values})


def _deadly(rows: Any) -> Any:
    if 0 in rows["part"].to_numpy():
        os.kill(os.getpid(), signal.SIGKILL)
    return rows


@pytest.fixture
def noise_of() -> Callable[..., Any]:
    """Dask DataFrames of so many partitions of so many bytes; a deadly one kills the workers that make its first."""
    import dask.dataframe as dd

    def made(npartitions: int, num_bytes: int, *, deadly: bool = False) -> Any:
        frame = dd.from_map(noise, range(npartitions), num_bytes=num_bytes, meta=noise(0, 0))
        return frame.map_partitions(_deadly, meta=noise(0, 0)) if deadly else frame

    return made
