"""`write_trevni`: Arrow data as a Trevni file. An async shell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from resilient_pq.arrow.handed_over import owned
from resilient_pq.arrow.ingest import Ingest
from resilient_pq.errors import SchemaError, Where, located
from resilient_pq.format.open_chunk import concatenate
from resilient_pq.format.row_selection import null_rows
from resilient_pq.format.values import LeafData
from resilient_pq.formats.trevni.codecs import Checksum, Codec
from resilient_pq.formats.trevni.writer import BLOCK_BYTES, TrevniOptions, encode
from resilient_pq.io import WRITING, ObjectInfo, RetryPolicy, SinkOptions, WriteStore, place_of, with_retry
from resilient_pq.io.leftovers import abort_after

_CODECS = {"none": Codec.NULL, "deflate": Codec.DEFLATE, "snappy": Codec.SNAPPY, "bzip2": Codec.BZIP2}
_CHECKSUMS = {None: Checksum.NULL, "crc32": Checksum.CRC32, "crc-32": Checksum.CRC_32}


async def write_trevni(
    url: str | os.PathLike[str] | tuple[WriteStore, str],
    data: object,
    *,
    schema: object | None = None,
    compression: Literal["none", "deflate", "snappy", "bzip2"] = "deflate",
    checksum: Literal["crc32", "crc-32"] | None = "crc32",
    first_values: Sequence[str] = (),
    block_bytes: int = BLOCK_BYTES,
    metadata: Mapping[str, bytes] | None = None,
    mode: Literal["w", "x"] = "w",
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> ObjectInfo:
    """Write rows to a Trevni file of Avro's last version, for programs that still read them.

    The format has the places of all blocks before the first of them, so all rows are in memory at one time: it is for
    small files, and for tests. What Avro has no form for cannot be written: unsigned integers, INT96, durations, maps
    whose keys are no text, and columns whose names are no names in Avro.

    Args:
        url: A URL ("s3://bucket/key", any fsspec URL), a path, or a pair of a store and a key in it.
        data: As of `Writer.write`.
        schema: As of `create`; None takes it from `data`.
        compression: How blocks are compressed.
        checksum: What stands behind each block: "crc32" as Avro's reader knows it, "crc-32" as the specification has
            it, or None.
        first_values: Names of columns of one value in each row of which the table of blocks has the first value of
            each, so that `TrevniFile.first_row_of` finds values where they are sorted.
        block_bytes: Bytes after which a block ends, before compression.
        metadata: More pairs for the metadata of the file.
        mode: "w" replaces an object of this name, "x" fails if there is one.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Returns:
        What was written.

    Raises:
        SchemaError: The data do not fit the schema, or a name or a setting is none.
        UnsupportedError: A column has a type that Avro has no form for.
        AlreadyExistsError: There is an object of this name, and `mode` is "x".
        StoreError: The store refused; nothing was published.
    """
    storage_options = with_retry(storage_options, retry)
    if compression not in _CODECS:
        raise SchemaError(f"unknown compression {compression!r}", hint=f"one of: {', '.join(_CODECS)}")
    if checksum not in _CHECKSUMS:
        raise SchemaError(f"unknown checksum {checksum!r}", hint="crc32, crc-32 or None")
    if block_bytes < 1:
        raise SchemaError(f"block_bytes is {block_bytes!r}; it must be at least 1")
    options = TrevniOptions(_CODECS[compression], _CHECKSUMS[checksum], first_values, block_bytes, metadata)
    async with place_of(url, storage_options, retry=WRITING) as (store, key):
        with located(Where(key=store.url_of(key))):
            pieces = await asyncio.to_thread(_encoded, data, schema, options)
            sink = await store.create(key, SinkOptions(mode=mode))
            try:
                await sink.write(*pieces)
                return await sink.complete()
            except BaseException as error:
                await abort_after(sink, error)
                raise


def _encoded(data: object, schema: object | None, options: TrevniOptions) -> list[bytes]:
    rows = owned(data)
    if schema is None:
        ingest, rows = Ingest.infer(rows)
    else:
        ingest = Ingest.from_schema(schema)
    pieces: list[list[LeafData]] = [[] for _ in ingest.schema.leaves]
    for batch in ingest.batches(rows):
        for found, leaf in zip(pieces, batch.leaves, strict=True):
            found.append(leaf)
    leaves = [
        concatenate(leaf, found or [null_rows(leaf, 0)])
        for leaf, found in zip(ingest.schema.leaves, pieces, strict=True)
    ]
    return encode(ingest.schema, leaves, options)
