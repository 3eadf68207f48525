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

import resilient_pq
from resilient_pq.blocking import blocking_twin
from resilient_pq.loop_portal import portal as _loop  # noqa: F401  # for tests, which run stores of their own on it

# Type checkers and editors go by sync.pyi, which scripts/sync_stub.py makes.
globals().update({name: blocking_twin(name) for name in resilient_pq.__all__})
__all__ = list(resilient_pq.__all__)


def __dir__() -> list[str]:
    return list(__all__)
