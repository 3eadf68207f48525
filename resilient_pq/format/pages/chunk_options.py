"""Options of column chunks that are written."""

from __future__ import annotations

from resilient_pq.format.encodings import DICTIONARY_ENCODINGS
from resilient_pq.format.file_metadata import CompressionCodec, Encoding
from resilient_pq.format.indexes.split_block_filter import FilterOptions
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import MiB


@dataclass(frozen=True, slots=True)
class ChunkOptions:
    """How the chunks of a column are written."""

    codec: CompressionCodec = CompressionCodec.ZSTD  # compression of every page
    level: int = 3
    encoding: Encoding | None = None  # of the values; None chooses the smallest of those that readers know
    dictionary: bool | None = None  # of text: whether it has one, as other chunks of the column; None for what pays
    new_readers: bool = False  # whether that may be an encoding that only newer readers know
    level_encoding: Encoding = Encoding.RLE  # of the levels of data pages v1: RLE, or BIT_PACKED for the oldest readers
    #: Bytes after which a data page is cut at the next row: of dictionary indices, else of values as PLAIN has
    #: them, whatever the encoding makes of them.
    page_bytes: int = MiB
    page_rows: int = 131_072  # rows after which a data page is cut
    dictionary_bytes: int = MiB  # largest dictionary page, before compression; 0 for no dictionaries
    version: int = 1  # data pages v1 or v2
    statistics: bool = True  # whether bounds, counts and sizes are written
    bloom_filter: FilterOptions | None = None  # how bloom filters are sized; None for none
    sealed: bool = False  # whether it is encrypted then: so many pages, at most, as there are ordinals
    key_value: tuple[tuple[str, str], ...] = ()  # key-value metadata of each chunk

    @property
    def keeps_dictionaries(self) -> bool:
        """Whether all chunks of a text column have dictionaries where one has: each could be of either kind."""
        return bool(self.dictionary_bytes) and not self.new_readers and self.encoding in (None, *DICTIONARY_ENCODINGS)
