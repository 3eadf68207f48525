"""How column chunks are written."""

from __future__ import annotations

from dataclasses import dataclass

from resilient_pq.format.file_metadata import CompressionCodec, Encoding
from resilient_pq.format.indexes.split_block_filter import FilterOptions
from resilient_pq.units import MiB


@dataclass(frozen=True, slots=True)
class ChunkOptions:
    """How the chunks of a column are written.

    Attributes:
        codec: Compression of every page.
        level: The codec's level.
        encoding: Of the values; None chooses the smallest of those that readers know.
        new_readers: Whether that may be an encoding that only newer readers know.
        level_encoding: Of the levels of data pages v1: RLE, or BIT_PACKED for the oldest readers.
        page_bytes: Bytes after which a data page is cut at the next row: of dictionary indices, else of values as
            PLAIN has them, whatever the encoding makes of them.
        page_rows: Rows after which a data page is cut.
        dictionary_bytes: Largest dictionary page, before compression; 0 for no dictionaries.
        version: Data pages v1 or v2.
        statistics: Whether bounds, counts and sizes are written.
        bloom_filter: How bloom filters are sized; None for none.
        key_value: Key-value metadata of each chunk.
    """

    codec: CompressionCodec = CompressionCodec.ZSTD
    level: int = 3
    encoding: Encoding | None = None
    new_readers: bool = False
    level_encoding: Encoding = Encoding.RLE
    page_bytes: int = MiB
    page_rows: int = 131_072
    dictionary_bytes: int = MiB
    version: int = 1
    statistics: bool = True
    bloom_filter: FilterOptions | None = None
    key_value: tuple[tuple[str, str], ...] = ()
