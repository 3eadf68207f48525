"""Column chunks without nesting, many at a time: from their bytes to Arrow arrays in one compiled step.

It takes what is common and whole, and leaves everything else to `pages.chunk_decoder` and `assemble`, which say what is
wrong where something is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from nanoarrow.c_array import CArray
from numpy.typing import NDArray

from resilient_pq.arrow.assemble import Branch
from resilient_pq.arrow.physical import SAME_FORM
from resilient_pq.arrow.types.field import Field, shared_c
from resilient_pq.checksum import crc32, xxh3
from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.format import kernels
from resilient_pq.format.compression import codecs
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.kernels.page_columns import ChunkField, ChunkNumber
from resilient_pq.format.physical_values import fixed_width
from resilient_pq.format.schema_tree import Primitive
from resilient_pq.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from resilient_pq.format.kernels import reference

#: No CRC32 is as large.
_NONE: Final = 1 << 32
_NARROW: Final = {"c": 1, "C": 1, "s": 2, "S": 2}


@dataclass(frozen=True, slots=True)
class FlatColumns:
    """The columns of a read that are neither nested nor stored in another way than Arrow has them in memory.

    Attributes:
        columns: Their positions among the columns.
        leaves: The positions of their leaves among those of all columns.
        described: What a row of `ChunkField`s says of each, whatever the chunk.
        schemas: The nanoarrow `CSchema` of each.
    """

    columns: list[int]
    leaves: list[int]
    described: NDArray[np.int64]
    schemas: list[Any]

    @classmethod
    def of(cls, branches: Sequence[Branch], fields: Sequence[Field]) -> FlatColumns:
        """Those among columns, of the parts that are wanted of them, and of their fields."""
        columns, leaves, rows, leaf = [], [], [], 0
        for column, (branch, field) in enumerate(zip(branches, fields, strict=True)):
            node = branch.node
            row = None
            if isinstance(node, Primitive) and field.dictionary is None:
                row = _described(node.physical_type, node.type_length, node.repetition, field.format)
            if row is not None:
                columns.append(column)
                leaves.append(leaf)
                rows.append(row)
            leaf += branch.num_leaves
        described = np.array(rows, np.int64).reshape(-1, ChunkField.COUNT)
        return cls(columns, leaves, described, [shared_c(fields[column]) for column in columns])


@lru_cache
def _described(type: Type, length: int | None, repetition: Repetition, format: str) -> tuple[int, ...] | None:
    """The row of a column; None where it has to be assembled."""
    kind, _, parameter = format.partition(":")
    width = fixed_width(Primitive("", repetition, type, length))
    if repetition is Repetition.REPEATED or kind not in SAME_FORM.get(type, ()) or width == 0:
        return None
    if kind == "w" and int(parameter) != width:
        return None
    optional = repetition is Repetition.OPTIONAL
    return type, width or 0, optional, 0, 0, 0, 0, _NONE, kind == "u", _NARROW.get(kind, 0)


#: None of them.
NO_COLUMNS: Final = FlatColumns([], [], np.zeros((0, ChunkField.COUNT), np.int64), [])


class FlatChunks:
    """The chunks of such columns in some row groups, each by a number.

    Attributes:
        numbers: The numbers of the chunks that are common.
        groups: Where each chunk's row group stands among those given.
        columns: The position of its column.
        starts: Where it begins in the file.
        ends: Where it ends.
        sizes: Its bytes when it is decompressed.
        codecs: Its codec.
    """

    def __init__(
        self,
        flat: FlatColumns,
        groups: Sequence[tuple[int, int, NDArray[np.int64]]],
        *,
        verify: bool,
        zero_is_none: bool,
    ) -> None:
        """Take for each row group its position, its rows, and a row of `ChunkNumber`s for each leaf of all columns."""
        count = len(flat.columns)
        found = np.concatenate([numbers for _, _, numbers in groups] or [np.zeros((0, ChunkNumber.COUNT), int)])
        if len(found) > count * len(groups):
            found = found.reshape(len(groups), -1, ChunkNumber.COUNT)[:, flat.leaves].reshape(-1, ChunkNumber.COUNT)
        num_rows = np.array([rows for _, rows, _ in groups], np.int64).repeat(count)
        self._described = described = np.concatenate([flat.described] * len(groups) or [flat.described])
        described[:, ChunkField.CODEC] = found[:, ChunkNumber.CODEC]
        described[:, ChunkField.NUM_VALUES] = np.maximum(found[:, ChunkNumber.NUM_VALUES], num_rows)
        described[:, ChunkField.NUM_ROWS] = num_rows
        described[:, ChunkField.SIZE] = found[:, ChunkNumber.SIZE]
        kinds = found[:, ChunkNumber.SUM_KIND]
        if verify:
            described[kinds == 0, ChunkField.LEAST_CRC] = zero_is_none
        common = kinds >= 0
        common &= found[:, ChunkNumber.TYPE] == described[:, ChunkField.TYPE]
        self.numbers: list[int] = common.nonzero()[0].tolist()
        self.groups: list[int] = [group for group, _, _ in groups for _ in range(count)]
        self.columns: list[int] = flat.columns * len(groups)
        self.starts: list[int] = found[:, ChunkNumber.START].tolist()
        self.ends: list[int] = found[:, ChunkNumber.END].tolist()
        self.sizes: list[int] = found[:, ChunkNumber.SIZE].tolist()
        self.codecs: list[int] = found[:, ChunkNumber.CODEC].tolist()
        self._kinds: list[int] = (kinds if verify else num_rows * 0).tolist()
        self._sums: list[int] = found[:, ChunkNumber.SUM].view(np.uint64).tolist()
        self._schemas = flat.schemas

    def decode(self, chunks: Sequence[tuple[int, memoryview]]) -> list[CArray | None]:
        """The arrays of chunks, of their numbers and bytes; None for those that are damaged or uncommon."""
        found: list[CArray | None] = [None] * len(chunks)
        kinds, sums = self._kinds, self._sums
        taken = [
            at
            for at, (number, data) in enumerate(chunks)
            if not kinds[number] or sums[number] == (crc32(data) if kinds[number] == 1 else xxh3(data))
        ]
        if not taken:
            return found
        numbers, parts = [chunks[at][0] for at in taken], [chunks[at][1] for at in taken]
        try:
            batch = kernels.ChunkBatch(parts, self._described[numbers])
            _open_bodies(batch, parts, [self.codecs[number] for number in numbers])
            made = batch.arrays()
        except MemoryError:  # whoever decodes the chunks one by one says of which one
            return found
        schemas = self._schemas
        for at, number, array in zip(taken, numbers, made, strict=True):
            if array is not None:
                found[at] = CArray(array, array.address, schemas[number % len(schemas)])
        return found


#: None of them.
NO_CHUNKS: Final = FlatChunks(NO_COLUMNS, [], verify=True, zero_is_none=False)


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
