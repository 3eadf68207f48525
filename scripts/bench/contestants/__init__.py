"""Who takes part: one module for each library, imported in the process that measures it and nowhere else.

A module has `writing(name, table, job)` and `reading(name, job)`: both make everything ready, and give the function
that is measured. `as_arrow(result)` turns what was read into a pyarrow table for the referee, and `result_bytes`
says how much memory it takes.
"""

from __future__ import annotations

from contestants.job import Contestant, Job, SkippedError, Work

__all__ = ["ROSTER", "Contestant", "Job", "SkippedError", "Work"]

_VIEWS: tuple[Work, ...] = ("read-view", "read-2-view")
_PLAIN: tuple[Work, ...] = ("read", "read-2")
_WRITES_AND_READS: tuple[Work, ...] = ("write", *_PLAIN, "open-wide")

#: In the order in which they take turns. Only peers are candidates for "the best".
ROSTER: tuple[Contestant, ...] = (
    Contestant("ours", "ours", (*_WRITES_AND_READS, *_VIEWS)),
    Contestant("ours-noverify", "ours", (*_PLAIN, *_VIEWS)),
    Contestant("libzstd", "libzstd", ("write",)),
    Contestant("pyarrow", "pyarrow", _WRITES_AND_READS, peer=True),
    Contestant("pyarrow-tuned", "pyarrow", _WRITES_AND_READS, peer=True),
    Contestant("pyarrow-crc", "pyarrow", ("write", *_PLAIN)),
    Contestant("polars", "polars", (*_WRITES_AND_READS, *_VIEWS), peer=True),
    Contestant("duckdb", "duckdb", _WRITES_AND_READS, peer=True),
    Contestant("arro3", "arro3", ("write", "read"), peer=True),
    Contestant("rugo", "rugo", ("read-2", "open-wide"), peer=True),
)
