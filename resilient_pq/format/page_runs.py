"""Runs of data pages: which pages can be decoded together, and their bytes in one piece, decompressed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq import room
from resilient_pq.errors import EncodingError
from resilient_pq.format import compression
from resilient_pq.format.decoded_values import RUN_ENCODINGS
from resilient_pq.format.kernels.tables import PageField
from resilient_pq.format.metadata import CompressionCodec, Encoding, PageType
from resilient_pq.format.page_table import PageTable
from resilient_pq.format.schema import Leaf

#: Decompressed bytes of a run, unless a single page has more: few enough to stay in a processor's cache.
_RUN_BYTES: Final = 1 << 20
# As plain numbers, which are quicker to compare.
_RUN_ENCODINGS: Final = frozenset(map(int, RUN_ENCODINGS))
_DATA_PAGE, _DATA_PAGE_V2, _RLE = int(PageType.DATA_PAGE), int(PageType.DATA_PAGE_V2), int(Encoding.RLE)


def runs_of(leaf: Leaf, codec: int, table: PageTable) -> Iterator[tuple[range, bool]]:
    """The pages as rows of the table, in pieces, and whether those of a piece can be decoded together."""
    # Without compression, pages that lie in one piece of memory are decoded from there.
    most = sys.maxsize if codec == CompressionCodec.UNCOMPRESSED and table.chunk is not None else _RUN_BYTES
    joins = _Joins(leaf, codec)
    start = num_bytes = 0
    encoding: int | None = None  # of the pages from `start` on; None where they cannot be decoded together
    for row, page in enumerate(table.rows):
        wanted = joins.encoding(page)
        size = page[PageField.UNCOMPRESSED_SIZE]
        num_bytes += size
        if row and (wanted is None or wanted != encoding or num_bytes > most):
            yield range(start, row), encoding is not None
            start, num_bytes = row, size
        encoding = wanted
    if table.rows:
        yield range(start, len(table.rows)), encoding is not None


class _Joins:
    """Which pages can be decoded in runs; the others, or what is wrong with them, need a closer look."""

    def __init__(self, leaf: Leaf, codec: int) -> None:
        self._has_definition = leaf.max_definition_level > 0
        self._has_repetition = leaf.max_repetition_level > 0
        self._uncompressed = codec == CompressionCodec.UNCOMPRESSED

    def encoding(self, page: list[int]) -> int | None:
        """The encoding that a page, a row of `PageField`s, shares with those it may join; None if it may not."""
        _, _, size, uncompressed, kind, _, _, encoding, definition, repetition, second, first, _ = page
        if encoding not in _RUN_ENCODINGS or (self._uncompressed and size != uncompressed):
            return None
        if kind == _DATA_PAGE:
            rle = (not self._has_definition or definition == _RLE) and (not self._has_repetition or repetition == _RLE)
            return encoding if rle else None
        if kind != _DATA_PAGE_V2 or first < 0 or second < 0 or first + second > min(size, uncompressed):
            return None
        # Bytes of levels that the column does not have stand before the values all the same.
        needless = (first and not self._has_repetition) or (second and not self._has_definition)
        return None if needless else encoding


class RunBodies:
    """The bytes of runs of pages, decompressed into room that is used again for the next run."""

    def __init__(self, codec: int, table: PageTable, *, keeps_pages: bool) -> None:
        """Take pages of `table`; with `keeps_pages` no room is used again."""
        self._codec = codec
        self._table = table
        self._keeps_pages = keeps_pages
        self._scratch: NDArray[np.uint8] | None = None

    def open(self, rows: range) -> tuple[memoryview, NDArray[np.int64]]:
        """The pages of a run, decompressed: what holds them, and one row of `PagePart`s for each.

        Raises:
            CodecUnavailableError: The codec is not one that this version reads.
            EncodingError: A page does not decompress, or not to what its header says.
        """
        # Row by row in Python: most runs of small files have one page, for which a call of NumPy takes longer.
        headers = self._table.rows[rows.start : rows.stop]
        chunk = self._table.chunk if self._codec == CompressionCodec.UNCOMPRESSED else None
        parts, end = [], 0
        for page in headers:
            if chunk is None:
                start, end = end, end + page[PageField.UNCOMPRESSED_SIZE]
            else:
                start, end = page[PageField.BODY], page[PageField.BODY] + page[PageField.COMPRESSED_SIZE]
            levels = page[PageField.REPETITION_BYTES], page[PageField.DEFINITION_BYTES]
            parts.append((start, end, page[PageField.NUM_VALUES], *levels))
        pages = np.array(parts, np.int64)
        if chunk is not None:
            return chunk, pages
        out = self._room(rows, end)
        bodies = [self._table.body(row) for row in rows]
        if self._codec != CompressionCodec.UNCOMPRESSED and all(page[PageField.TYPE] == _DATA_PAGE for page in headers):
            sizes = [page[PageField.UNCOMPRESSED_SIZE] for page in headers]
            compression.decompress_parts(self._codec, bodies, sizes, out)
            return out.data, pages
        for body, page, (start, end, _, *num_bytes) in zip(bodies, headers, parts, strict=True):
            levels_end = sum(count for count in num_bytes if count > 0)
            self._fill(body, out[start:end], levels_end, bool(page[PageField.IS_COMPRESSED]))
        return out.data, pages

    def _room(self, rows: range, size: int) -> NDArray[np.uint8]:
        if size > _RUN_BYTES and self._codec != CompressionCodec.UNCOMPRESSED:
            # One page: before room is made for what a damaged header announces.
            compressed = self._table.rows[rows.start][PageField.COMPRESSED_SIZE]
            compression.check_growth(self._codec, compressed, size)
        if self._keeps_pages:
            return room.empty((size,), np.uint8)
        if self._scratch is None or len(self._scratch) < size:
            # A chunk that needs little room has no use for more.
            self._scratch = room.empty((size if size < _RUN_BYTES // 4 else max(size, _RUN_BYTES),), np.uint8)
        return self._scratch[:size]

    def _fill(self, body: memoryview, out: NDArray[np.uint8], levels: int, is_compressed: bool) -> None:
        """Fill `out` with a page whose first bytes, its levels, are not compressed, as version 2 has it."""
        if levels:
            out[:levels] = np.frombuffer(body, np.uint8, levels)
            body, out = body[levels:], out[levels:]
        # Old parquet-cpp compressed pages that it said were not; their size tells (ARROW-17100).
        if self._codec != CompressionCodec.UNCOMPRESSED and (is_compressed or len(body) != len(out)):
            compression.decompress_parts(self._codec, [body], [len(out)], out)
        elif len(body) != len(out):
            raise EncodingError(f"an uncompressed page has {len(body)} bytes instead of {len(out)}")
        else:
            out[:] = np.frombuffer(body, np.uint8)
