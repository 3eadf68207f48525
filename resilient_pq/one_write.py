"""A whole file written in one call. An async shell, apart from `one_read`: who reads need not import what writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Unpack

from resilient_pq.arrow.handed_over import num_bytes_at_hand
from resilient_pq.io import RetryPolicy, WriteStore
from resilient_pq.io.cancellation import in_loop, in_one_hop
from resilient_pq.io.file_object_store import in_filesystem
from resilient_pq.io.resolve import Opening, is_local
from resilient_pq.off_event_loop import ONE_HOP_BYTES
from resilient_pq.writer.creation import create
from resilient_pq.writer.file_writer import Writer
from resilient_pq.writer.option_keywords import CreateKeywords, takes_options


@takes_options(CreateKeywords)
async def write(
    url: str | os.PathLike[str] | tuple[WriteStore, str],
    data: object,
    schema: object | None = None,
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[CreateKeywords],
) -> Writer:
    """Write data as one resilient Parquet file, which appears under its name when it is complete.

    Args:
        url: A URL, a path, or a pair of a store and a key in it; a file that is there is replaced.
        data: What `Writer.write` takes: a table or a stream of any Arrow library, a pandas or Polars frame, a dict of
            arrays, a list of dicts.
        schema: As of `create`.
        filesystem: A file system of fsspec or of pyarrow, in which `url` is a path then.
        **options_given: How the file is written: `CreateKeywords`, as of `create`.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Returns:
        The closed writer, which knows the number of rows and bytes.

    Raises:
        SchemaError: The data do not fit the schema, or a setting is out of range.
        StoreError: The store refused; nothing was published.
    """
    place = url if filesystem is None else in_filesystem(filesystem, url)
    opening = create(place, schema, storage_options=storage_options, retry=retry, **options_given)
    if is_local(place) and (num_bytes_at_hand(data) or ONE_HOP_BYTES) < ONE_HOP_BYTES:
        return await in_one_hop(_written(opening, data))
    await in_loop()
    return await _written(opening, data)


async def _written(opening: Opening[Writer], data: object) -> Writer:
    async with opening as writer:
        await writer.write(data)
    return writer
