"""Bytes of column chunks in, columns out, every checksum on the way compared. Sans-io."""

from __future__ import annotations

from typing import Any

from resilient_pq.checksum import crc32
from resilient_pq.errors import ChecksumError, located
from resilient_pq.format.chunk_decoder import decode_chunk
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.page_table import PageTable, check_crcs
from resilient_pq.format.values import LeafColumn
from resilient_pq.reader.plan import ChunkRead


def decode(chunk: ChunkRead, data: Any, *, verify: bool, views: bool = False) -> LeafColumn:
    """The column that a chunk's bytes hold.

    Args:
        chunk: Which chunk.
        data: Its bytes, all of them.
        verify: Whether checksums are compared.
        views: Whether byte arrays become views, which lead into `data` where that is not compressed.

    Raises:
        ChecksumError: The bytes are not those that were written.
        FormatError: They do not decode.
        UnsupportedError: They use what this version does not read.
    """
    with located(chunk.where):
        view = memoryview(data)
        table = _compare(chunk, view)[1] if verify else None
        if table is None:
            table = PageTable.read(view, chunk.range.start, chunk.num_values_to_read)
        codec = chunk.metadata.codec
        return decode_chunk(chunk.leaf, codec, table, chunk.num_rows, chunk.quirks, views=views)


def verify_chunk(chunk: ChunkRead, data: memoryview) -> bool:
    """Compare the checksums that cover a chunk.

    One over the whole chunk, page headers included, stands in the footers of resilient files, and makes those
    of its pages needless. Where it is missing or does not hold, the pages' own tell which of them is at fault.

    Returns:
        Whether every byte was covered by a checksum.

    Raises:
        ChecksumError: One does not hold.
        FormatError: The pages cannot even be told apart.
    """
    return _compare(chunk, data)[0]


def _compare(chunk: ChunkRead, data: memoryview) -> tuple[bool, PageTable | None]:
    """What `verify_chunk` does and returns, and the pages where they had to be told apart for it."""
    sums = ChunkSums.of(chunk.metadata)
    stored = sums.chunk if sums is not None else None
    computed = crc32(data) if stored is not None else None
    if stored is not None and stored == computed:
        return True, None
    zero_is_none = chunk.quirks.zero_crc_is_none
    table = check_crcs(data, chunk.range.start, chunk.num_values_to_read, zero_is_none=zero_is_none)
    if stored is not None and computed is not None:
        raise ChecksumError(
            "column chunk CRC32 does not match, though those of its pages do: a page header was changed",
            stored=stored,
            computed=computed,
        )
    return False, table
