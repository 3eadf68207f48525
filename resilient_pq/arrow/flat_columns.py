"""Column chunks without nesting, many at a time: from their bytes to Arrow arrays in one compiled step.

It takes what is common and whole, and leaves everything else to `pages.chunk_decoder` and `assemble`, which say what is
wrong where something is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from nanoarrow.c_array import CArray

from resilient_pq.arrow.types.field import Field, shared_c
from resilient_pq.checksum import crc32
from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.format import kernels
from resilient_pq.format.compression import codecs
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.kernels import reference
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.physical_values import fixed_width
from resilient_pq.format.schema_tree import Node, Primitive

#: No CRC32 is as large.
_NONE: Final = 1 << 32
#: The formats, or their kinds, whose values lie in memory as those of a physical type do.
_SAME: Final = {
    Type.BOOLEAN: ("b",),
    Type.INT32: ("i", "I", "c", "C", "s", "S", "tdD", "ttm"),
    Type.INT64: ("l", "L", "tsm", "tsu", "tsn", "ttu", "ttn", "tDs", "tDm", "tDu", "tDn"),
    Type.FLOAT: ("f",),
    Type.DOUBLE: ("g",),
    Type.BYTE_ARRAY: ("u", "z"),
    Type.FIXED_LEN_BYTE_ARRAY: ("w", "e"),
}
_NARROW: Final = {"c": 1, "C": 1, "s": 2, "S": 2}


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """How a column is decoded that needs no assembly."""

    type: int
    width: int  # bytes of a value; 0 for BOOLEAN and BYTE_ARRAY
    optional: bool
    text: bool
    narrow: int  # bytes that are kept of an integer; 0 for all
    schema: Any  # a nanoarrow `CSchema`

    @classmethod
    def of(cls, node: Node, field: Field) -> FlatColumn | None:
        """The column of a top-level node; None where it is nested, or is stored in another way than in memory."""
        if not isinstance(node, Primitive) or node.repetition is Repetition.REPEATED or field.dictionary is not None:
            return None
        kind, width = field.format.partition(":")[0], fixed_width(node)
        if kind not in _SAME.get(node.physical_type, ()) or width == 0 or (kind == "w" and field.width != width):
            return None
        optional = node.repetition is Repetition.OPTIONAL
        narrow = _NARROW.get(kind, 0)
        return cls(int(node.physical_type), width or 0, optional, kind == "u", narrow, shared_c(field))

    def described(self, chunk: ChunkRead, data: memoryview, *, verify: bool) -> tuple[int, ...] | None:
        """The row of `ChunkField`s of a chunk; None where its checksum does not match."""
        metadata = chunk.metadata
        least = _NONE
        if verify:
            try:
                sums = ChunkSums.of(metadata)
            except FormatError:
                return None
            stored = None if sums is None else sums.of_chunk
            if stored is None or sums is None:
                least = int(chunk.quirks.zero_crc_is_none)
            elif sums.computed(data) != stored:
                return None
        return (
            self.type, self.width, self.optional, metadata.codec, chunk.num_values_to_read, chunk.num_rows,
            metadata.total_uncompressed_size, least, self.text, self.narrow,
        )  # fmt: skip


def decode_flat(chunks: Sequence[tuple[FlatColumn, ChunkRead, memoryview]], *, verify: bool) -> list[CArray | None]:
    """The arrays of chunks, None for those that are damaged or uncommon."""
    rows, taken = [], []
    for number, (column, chunk, data) in enumerate(chunks):
        row = column.described(chunk, data, verify=verify)
        if row is not None:
            rows.append(row)
            taken.append(number)
    found: list[CArray | None] = [None] * len(chunks)
    if not rows:
        return found
    parts = [chunks[number][2] for number in taken]
    try:
        batch = kernels.ChunkBatch(parts, np.array(rows, np.int64))
        _open_bodies(batch, parts, [row[3] for row in rows])
        made = batch.arrays()
    except MemoryError:  # whoever decodes the chunks one by one says of which one
        return found
    for number, array in zip(taken, made, strict=True):
        if array is not None:
            found[number] = CArray(array, array.address, chunks[number][0].schema)
    return found


def _open_bodies(batch: reference.ChunkBatch, parts: Sequence[memoryview], codec_of: Sequence[int]) -> None:
    """Compare and decompress the pages of a batch; chunks with one that is not whole are declined."""
    for chunk, start, skipped, end, crc, room, before in batch.bodies():
        body = parts[chunk][start:end]
        if crc >= 0 and crc32(body) != crc:
            batch.decline(chunk)
        elif room is not None:
            try:
                codecs.decompress_into(codec_of[chunk], body[skipped:], room)
            except (FormatError, UnsupportedError):
                batch.decline(chunk)
            else:
                if before and room[: len(before)].tobytes() != before:
                    batch.decline(chunk)
