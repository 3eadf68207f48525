"""Who takes part: one module for each library, imported in the process that measures it and nowhere else.

A module has `writing(name, table, job)` and `reading(name, job)`: both make everything ready, and give the function
that is measured. `as_arrow(result)` turns what was read into a pyarrow table for the referee, and `result_bytes`
says how much memory it takes.
"""

from __future__ import annotations

from contestants.job import Contestant, Job, SkippedError, Work

__all__ = ["ROSTER", "Contestant", "Job", "SkippedError", "Work"]

_ALL: tuple[Work, ...] = ("write", "read", "read-view", "read-2", "open-wide")

#: In the order in which they take turns. Only peers are candidates for "the best".
ROSTER: tuple[Contestant, ...] = (
    Contestant("ours", "ours", _ALL),
    Contestant("ours-noverify", "ours", ("read", "read-2", "read-view")),
    Contestant("ours-nocrc", "ours", ("write",)),
    Contestant("ours-nocrc-nocheckpoints", "ours", ("write",)),
    Contestant("libzstd", "libzstd", ("write",)),
    Contestant("pyarrow", "pyarrow", ("write", "read", "read-2", "open-wide"), peer=True),
    Contestant("pyarrow-tuned", "pyarrow", ("write", "read", "read-2", "open-wide"), peer=True),
    Contestant("pyarrow-crc", "pyarrow", ("write", "read", "read-2")),
    Contestant("polars", "polars", _ALL, peer=True),
    Contestant("duckdb", "duckdb", ("write", "read", "read-2", "open-wide"), peer=True),
    Contestant("arro3", "arro3", ("write", "read"), peer=True),
)
