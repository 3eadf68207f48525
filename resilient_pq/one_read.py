"""A whole file read in one call. An async shell."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from resilient_pq.arrow.table import Table
from resilient_pq.io import ReadStore, RetryPolicy
from resilient_pq.io.cancellation import in_loop, in_one_hop
from resilient_pq.reader.opening import open
from resilient_pq.reader.read_plan import Filters, Strings


async def read(
    url: str | os.PathLike[str] | tuple[ReadStore, str],
    columns: Sequence[str] | None = None,
    *,
    filters: Filters | None = None,
    limit: int | None = None,
    strings: Strings = "stored",
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options: Any,
) -> Table:
    """Rows of a Parquet file as a table, which every Arrow library takes: ``pandas.DataFrame(table.to_pydict())``.

    Args:
        url: A URL, a path, or a pair of a store and a key in it.
        columns: As of `File.read`, like `filters`, `limit` and `strings`.
        filters: Which rows.
        limit: Rows at most.
        strings: How text and binary columns come.
        filesystem: A file system of fsspec or of pyarrow, in which `url` is a path then.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        **options: Further arguments of `open`, such as ``on_damage="drop"``.

    Raises:
        NotFoundError: No such object.
        FormatError: The file is damaged; `recover` may help.
        SchemaError: There is no such column, or an argument has a value that it cannot have.
        StoreError: The store could not give the bytes.
    """
    place = url
    if filesystem is not None:
        from resilient_pq.io.file_object_store import in_filesystem  # noqa: PLC0415 (most callers have a path)

        place = in_filesystem(filesystem, url)
    opening = open(place, storage_options=storage_options, retry=retry, **options)

    async def reading() -> Table:
        async with opening as file:
            return await file.read(columns, filters=filters, limit=limit, strings=strings)

    if opening.is_local:
        return await in_one_hop(reading())
    await in_loop()
    return await reading()
