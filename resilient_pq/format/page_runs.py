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
from resilient_pq.format.kernels.tables import PageField, PagePart
from resilient_pq.format.metadata import CompressionCodec, Encoding, PageType
from resilient_pq.format.page_table import PageTable
from resilient_pq.format.schema import Leaf

#: Decompressed bytes of a run, unless a single page has more: few enough to stay in a processor's cache.
_RUN_BYTES: Final = 1 << 20
#: What a page header says of entries and levels, in the order of `PagePart`.
_LEVEL_FIELDS: Final = [PageField.NUM_VALUES, PageField.REPETITION_BYTES, PageField.DEFINITION_BYTES]


def runs_of(leaf: Leaf, codec: int, table: PageTable) -> Iterator[tuple[range, bool]]:
    """The pages as rows of the table, in pieces, and whether those of a piece can be decoded together."""
    runnable = _runnable(leaf, codec, table)
    # Without compression, pages that lie in one piece of memory are decoded from there.
    most = sys.maxsize if codec == CompressionCodec.UNCOMPRESSED and table.chunk is not None else _RUN_BYTES
    columns = table.headers[:, [PageField.ENCODING, PageField.UNCOMPRESSED_SIZE]].tolist()
    start = num_bytes = 0
    for row, (encoding, size) in enumerate(columns):
        num_bytes += size
        joins = row and runnable[row - 1] and runnable[row] and encoding == columns[row - 1][0]
        if row and not (joins and num_bytes <= most):
            yield range(start, row), runnable[start]
            start, num_bytes = row, size
    if columns:
        yield range(start, len(columns)), runnable[start]


def _runnable(leaf: Leaf, codec: int, table: PageTable) -> list[bool]:
    """Which pages can be decoded in runs; the others, or what is wrong with them, need a closer look."""
    headers = table.headers
    may = np.zeros(len(headers), np.bool_)
    for encoding in RUN_ENCODINGS:
        may |= headers[:, PageField.ENCODING] == encoding
    may &= table.is_data
    v2 = headers[:, PageField.TYPE] == PageType.DATA_PAGE_V2
    if leaf.max_definition_level:
        may &= v2 | (headers[:, PageField.DEFINITION_ENCODING] == Encoding.RLE)
    if leaf.max_repetition_level:
        may &= v2 | (headers[:, PageField.REPETITION_ENCODING] == Encoding.RLE)
    size, uncompressed = headers[:, PageField.COMPRESSED_SIZE], headers[:, PageField.UNCOMPRESSED_SIZE]
    if v2.any():
        first, second = headers[:, PageField.REPETITION_BYTES], headers[:, PageField.DEFINITION_BYTES]
        fit = (first >= 0) & (second >= 0) & (first + second <= np.minimum(size, uncompressed))
        may &= fit | ~v2
    if codec == CompressionCodec.UNCOMPRESSED:
        may &= size == uncompressed
    answer: list[bool] = may.tolist()
    return answer


class RunBodies:
    """The bytes of runs of pages, decompressed into room that is used again for the next run."""

    def __init__(self, codec: int, table: PageTable, *, keeps_pages: bool) -> None:
        """Take pages of `table`; with `keeps_pages` no room is used again."""
        self._codec = codec
        self._table = table
        self._keeps_pages = keeps_pages
        self._scratch: NDArray[np.uint8] = np.empty(0, np.uint8)

    def open(self, rows: range) -> tuple[memoryview, NDArray[np.int64]]:
        """The pages of a run, decompressed: what holds them, and one row of `PagePart`s for each.

        Raises:
            CodecUnavailableError: The codec is not one that this version reads.
            EncodingError: A page does not decompress, or not to what its header says.
        """
        headers = self._table.headers[rows.start : rows.stop]
        pages = np.empty((len(rows), len(PagePart)), np.int64)
        pages[:, PagePart.NUM_VALUES :] = headers[:, _LEVEL_FIELDS]
        if self._codec == CompressionCodec.UNCOMPRESSED and self._table.chunk is not None:
            pages[:, PagePart.START] = headers[:, PageField.BODY]
            pages[:, PagePart.END] = headers[:, PageField.BODY] + headers[:, PageField.COMPRESSED_SIZE]
            return self._table.chunk, pages
        sizes = headers[:, PageField.UNCOMPRESSED_SIZE]
        np.cumsum(sizes, out=pages[:, PagePart.END])
        pages[:, PagePart.START] = pages[:, PagePart.END] - sizes
        out = self._room(rows, int(pages[-1, PagePart.END]))
        bodies = [self._table.body(row) for row in rows]
        if self._codec != CompressionCodec.UNCOMPRESSED and (headers[:, PageField.TYPE] == PageType.DATA_PAGE).all():
            compression.decompress_parts(self._codec, bodies, sizes.tolist(), out)
            return out.data, pages
        levels = np.maximum(pages[:, PagePart.REPETITION_BYTES :], 0).sum(axis=1)
        parts = zip(bodies, pages.tolist(), levels.tolist(), headers[:, PageField.IS_COMPRESSED].tolist(), strict=True)
        for body, (start, end, *_), num_bytes, is_compressed in parts:
            self._fill(body, out[start:end], num_bytes, bool(is_compressed))
        return out.data, pages

    def _room(self, rows: range, size: int) -> NDArray[np.uint8]:
        if size > _RUN_BYTES and self._codec != CompressionCodec.UNCOMPRESSED:
            # One page: before room is made for what a damaged header announces.
            compressed = int(self._table.headers[rows.start, PageField.COMPRESSED_SIZE])
            compression.check_growth(self._codec, compressed, size)
        if self._keeps_pages:
            return room.empty((size,), np.uint8)
        if len(self._scratch) < size:
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
