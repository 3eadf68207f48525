"""Parquet files on a Dask cluster: read as a DataFrame, written so that a worker's death costs time and not data.

`read` makes a partition of every row group, and `write` a resilient file of every partition::

    import resilient_pq.dask as rpqd

    frame = rpqd.read("s3://bucket/events/", columns=["user", "price"], filters=[("price", ">", 0)])
    rpqd.write(frame, "s3://bucket/paid/")

May import everything but `resilient_pq.cli`. It needs the extra ``dask``.
"""

from __future__ import annotations

from resilient_pq.errors import UnsupportedError

try:
    from resilient_pq.dask.dask_read import read
    from resilient_pq.dask.dask_write import WrittenFrame, write
    from resilient_pq.dask.folders import check, recover
except ModuleNotFoundError as error:
    raise UnsupportedError(
        f"resilient_pq.dask needs {error.name}, which is not installed", hint="pip install resilient-pq[dask]"
    ) from error

__all__ = ["WrittenFrame", "check", "read", "recover", "write"]
