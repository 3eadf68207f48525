"""The names of `resilient_pq`, blocking: one adapter around the asynchronous ones, no second implementation.

A loop of its own runs in a thread, so this works in a script, in a notebook whose loop is busy already, and
from several threads at once::

    from resilient_pq import sync as rpq

    with rpq.create("day.parquet") as writer:
        writer.write({"ts": [1, 2, 3]})

    with rpq.open("day.parquet") as file:
        table = file.read()
        for batch in file.batches():
            ...
        reader = pyarrow.RecordBatchReader.from_stream(file.batches(columns=["ts"]))
"""

from __future__ import annotations

from typing import Any

import resilient_pq
from resilient_pq.blocking import blocked

__all__ = resilient_pq.__all__


def __getattr__(name: str) -> Any:
    """What `resilient_pq` has by this name, for callers that block."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, blocked(name, getattr(resilient_pq, name)))


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return list(__all__)
