"""How the bytes of a parity group are cut into shards and blocks, and how many parity shards a group gets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from resilient_pq.errors import SchemaError
from resilient_pq.format.resilience_records import HEADER_SIZE
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.reed_solomon import MAX_DATA, MAX_PARITY
from resilient_pq.units import KiB, MiB

#: Data shards of a full group where the share allows it: many, as a lost part is long and lies in few of them.
_DATA_SHARDS: Final = 200
#: Parity shards of a group that is not full, at least.
_FEWEST_PARITY: Final = 3
#: Bytes that have a checksum of their own, and are lost or whole together; fewer in groups below `_SMALL_GROUP`.
BLOCK_BYTES: Final = 4 * KiB
SMALL_BLOCK_BYTES: Final = 512
_SMALL_GROUP: Final = MiB
#: Where the table of checksums begins in the payload of a record.
TABLE_OFFSET: Final = 96
#: Row groups that a group inside a file has about, so that a burst may be longer than one of them has parity.
_ROW_GROUPS: Final = 4
#: Parity inside a file for each byte, at most: it lies in later groups, which with as much as data would never end.
MOST_INLINE: Final = 0.5
#: Shards inside a file, in which more groups follow: with 10 parity shards a group has 10 MiB of parity.
_MAX_INLINE_SHARD: Final = MiB
#: Shards of a sidecar: 32 of them are in memory while it is made, and as many while a file is repaired.
MAX_SHARD_BYTES: Final = 4 * MiB


@dataclass(frozen=True, slots=True)
class ParityShare:
    """How much parity there is for each byte of data, such as 0.05; 0 for checksums alone."""

    share: float

    @classmethod
    def parse(cls, parity: float | str) -> ParityShare:
        """A share from a number such as 0.05 or a text such as "5%"."""
        try:
            share = float(parity[:-1]) / 100 if isinstance(parity, str) and parity.endswith("%") else float(parity)
        except (TypeError, ValueError):
            share = math.nan
        if isinstance(parity, bool) or not 0 < share <= 1:
            raise SchemaError(
                f"parity is {parity!r}", hint='it takes a share above 0 and up to 1, such as 0.05 or "5%"'
            )
        return cls(share)

    @property
    def num_parity(self) -> int:
        """Parity shards of a full group."""
        return min(MAX_PARITY, math.ceil(_DATA_SHARDS * self.share)) if self.share else 0

    @property
    def num_data(self) -> int:
        """Data shards of a full group."""
        return max(1, math.floor(min(_DATA_SHARDS, self.num_parity / self.share))) if self.share else _DATA_SHARDS

    def parity_for(self, num_data: int) -> int:
        """Parity shards of a group with so many data shards."""
        if not self.share:
            return 0
        return min(self.num_parity, max(_FEWEST_PARITY, math.ceil(num_data * self.share) + 1))


@dataclass(frozen=True, slots=True)
class GroupShape:
    """The sizes of a group; blocks at one place of all its shards are a column, which is rebuilt by itself."""

    num_bytes: int
    num_parity: int
    shard_bytes: int
    block_bytes: int

    @property
    def num_data(self) -> int:
        """Data shards."""
        return -(-self.num_bytes // self.shard_bytes)

    @property
    def num_columns(self) -> int:
        """Blocks of a shard."""
        return self.shard_bytes // self.block_bytes

    @property
    def parity_bytes(self) -> int:
        """Bytes of all parity shards."""
        return self.num_parity * self.shard_bytes

    @property
    def record_bytes(self) -> int:
        """Bytes of a record of the group, with its header."""
        return HEADER_SIZE + TABLE_OFFSET + 4 * (self.num_data + self.num_parity) * (self.num_columns + 1)

    @property
    def framed_bytes(self) -> int:
        """Bytes of the parity shards and of both copies of the record around them."""
        return 2 * self.record_bytes + self.parity_bytes

    @property
    def burst_bytes(self) -> int:
        """Any so many bytes in a row that are lost, and nothing else, are rebuilt, wherever they begin."""
        return max(0, self.parity_bytes - self.block_bytes)

    @property
    def inline_burst_bytes(self) -> int:
        """The same inside a file, where the burst may begin in the data of the group and end in its parity."""
        return max(0, self.parity_bytes - self.shard_bytes - 2 * self.block_bytes)

    def is_possible(self) -> bool:
        """Whether a code has these sizes: what a hostile record says is held against them before memory is taken."""
        if self.block_bytes not in (SMALL_BLOCK_BYTES, BLOCK_BYTES) or self.shard_bytes % self.block_bytes:
            return False
        sizes = 0 < self.shard_bytes <= MAX_SHARD_BYTES and self.num_bytes > 0
        return sizes and 0 < self.num_data <= MAX_DATA and 0 <= self.num_parity <= MAX_PARITY


def group_shapes(num_bytes: int, share: ParityShare) -> Iterator[GroupShape]:
    """The groups of a sidecar for so many bytes, one behind the other: as few, and of as equal sizes, as possible."""
    num_groups = -(-num_bytes // (share.num_data * MAX_SHARD_BYTES))
    for number in range(num_groups):
        start, end = (BLOCK_BYTES * (num_bytes * i // num_groups // BLOCK_BYTES) for i in (number, number + 1))
        yield fitting_shape((num_bytes if number == num_groups - 1 else end) - start, share)


def fitting_shape(num_bytes: int, share: ParityShare) -> GroupShape:
    """The shape of a group of which all bytes are known."""
    block = BLOCK_BYTES if num_bytes >= _SMALL_GROUP else SMALL_BLOCK_BYTES
    shard = block * -(-num_bytes // (block * share.num_data))
    return GroupShape(num_bytes, share.parity_for(-(-num_bytes // shard)), shard, block)


def full_shape(row_group_bytes: int, share: ParityShare) -> GroupShape:
    """The shape of a full group inside a file with row groups of so many bytes, of which more follow."""
    wanted = -(-_ROW_GROUPS * row_group_bytes // share.num_data)
    shard = min(_MAX_INLINE_SHARD, max(BLOCK_BYTES, 1 << (wanted - 1).bit_length()))
    return GroupShape(share.num_data * shard, share.num_parity, shard, BLOCK_BYTES)
