"""The payload of a parity record (kind 6): the shape of a group, where its bytes lie, and the CRC32 of each block.

::

    at  size  field
     0     1  code: 1 is the code of `reed_solomon`
     1     1  flags: 1 in the second copy inside a file, 2 in the last group of a file, 4 in a sidecar
     2     1  data shards
     3     1  parity shards
     4     4  bytes of a block
     8     4  bytes of a shard
    12     4  number of the group
    16    32  two extents of the data: offset, length, offset, length
    48    16  xxh3-128 of the data
    64     8  offset of the parity shards
    72     8  offset of the other copy of this record
    80     4  CRC32 of bytes 0 to 79
    84    12  zero
    96        for each data shard and then each parity shard: CRC32 of each block, CRC32 of these

All integers are little endian and unsigned. Blocks that the data do not fill count as filled up with zeros. A record
whose payload is damaged is used as far as it proves itself: each row of the table has a CRC32 of its own.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.group_shape import TABLE_OFFSET, GroupShape

_FIELDS: Final = struct.Struct("<BBBBIII4Q16sQQ")
_CODE: Final = 1
COPY_FLAG: Final = 1
LAST_FLAG: Final = 2
SIDECAR_FLAG: Final = 4


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """What a parity record says of its group."""

    shape: GroupShape
    number: int  # The place of the group among all, from 0
    extents: tuple[ByteRange, ...]  # Where its data lie, in order
    digest: bytes  # xxh3-128 of the data
    shards_offset: int  # Where the parity shards begin; they follow each other
    other_copy: int  # Offset of the other copy of the record
    # CRC32 of each block: a row for each shard, data shards first, a column for each block of a shard
    block_crcs: NDArray[np.uint32]
    # For each shard whether the CRC32 of its row holds; rows of others are not to be used
    known_shards: NDArray[np.bool_]
    flags: int = SIDECAR_FLAG

    def pack(self) -> bytes:
        """The payload."""
        shape = self.shape
        extents = [number for extent in self.extents for number in (extent.start, extent.size)]
        fields = _FIELDS.pack(
            _CODE, self.flags, shape.num_data, shape.num_parity, shape.block_bytes, shape.shard_bytes, self.number,
            *extents, *[0] * (4 - len(extents)), self.digest, self.shards_offset, self.other_copy,
        )  # fmt: skip
        head = (fields + crc32(fields).to_bytes(4, "little")).ljust(TABLE_OFFSET, b"\0")
        rows = [row.astype("<u4").tobytes() for row in self.block_crcs]
        return b"".join([head, *(part for row in rows for part in (row, crc32(row).to_bytes(4, "little")))])

    @classmethod
    def unpack(cls, payload: Any) -> GroupRecord | None:
        """Read a payload, also a damaged one; None where nothing of it can be used."""
        if len(payload) < TABLE_OFFSET:
            return None
        fields = bytes(payload[: _FIELDS.size])
        code, flags, num_data, num_parity, block, shard, number, *places, digest, shards, other = _FIELDS.unpack(fields)
        if crc32(fields) != int.from_bytes(payload[_FIELDS.size : _FIELDS.size + 4], "little") or code != _CODE:
            return None
        extents = tuple(ByteRange(at, at + size) for at, size in zip(places[::2], places[1::2], strict=True) if size)
        shape = GroupShape(sum(extent.size for extent in extents), num_parity, shard, block)
        if not shape.is_possible() or shape.num_data != num_data:
            return None
        size_of_row = 4 * (shape.num_columns + 1)
        if len(payload) != TABLE_OFFSET + (num_data + num_parity) * size_of_row:
            return None
        table = np.frombuffer(payload, "<u4", offset=TABLE_OFFSET).reshape(-1, shape.num_columns + 1)
        known = np.array([crc32(row[:-1].tobytes()) == row[-1] for row in table])
        return cls(shape, number, extents, digest, shards, other, table[:, :-1], known, flags)

    @property
    def is_whole(self) -> bool:
        """Whether the checksums of all blocks are known."""
        return bool(self.known_shards.all())

    def merged(self, other: GroupRecord) -> GroupRecord:
        """This record with rows of its table from another copy where its own are damaged."""
        if self.is_whole or other.digest != self.digest or other.shape != self.shape:
            return self
        crcs = np.where(self.known_shards[:, None], self.block_crcs, other.block_crcs)
        return GroupRecord(
            self.shape, self.number, self.extents, self.digest, self.shards_offset, self.other_copy,
            crcs, self.known_shards | other.known_shards, self.flags,
        )  # fmt: skip
