"""The parity of a group, made while its bytes pass: only the parity is kept in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32
from resilient_pq.format.kernels import gf256_accumulate
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.group_record import COPY_FLAG, SIDECAR_FLAG, GroupRecord
from resilient_pq.parity.group_shape import GroupShape
from resilient_pq.parity.reed_solomon import MAX_DATA, coefficients


@dataclass(frozen=True, slots=True)
class EncodedGroup:
    """The parity of a group, the CRC32 of each block (rows as in `GroupRecord`), and the xxh3-128 of the data."""

    shape: GroupShape
    shards: NDArray[np.uint8]
    block_crcs: NDArray[np.uint32]
    digest: bytes

    def framed(
        self,
        number: int,
        extents: Sequence[ByteRange],
        start: int,
        flags: int,
        record: Callable[[int, bytes], bytes],
    ) -> list[Any]:
        """The parity shards between both copies of their record, all from `start` on."""
        known = np.ones(len(self.block_crcs), np.bool_)
        shards = start + self.shape.record_bytes
        second = shards + self.shape.parity_bytes

        def copy(at: int, other: int, flags: int) -> bytes:
            found = GroupRecord(
                self.shape, number, tuple(extents), self.digest, shards, other, self.block_crcs, known, flags
            )
            return record(at, found.pack())

        first = copy(start, second, flags)
        between = [self.shards.data.cast("B")] if self.shape.num_parity else []
        return [first, *between, copy(second, start, flags if flags & SIDECAR_FLAG else flags | COPY_FLAG)]


class GroupEncoder:
    """Takes the bytes of a group in order, in pieces of any size."""

    def __init__(self, shape: GroupShape) -> None:
        """Memory is taken for all parity shards; `shape` has the bytes that will come."""
        self._shape = shape
        self._factors = coefficients(shape.num_parity, MAX_DATA)
        self._shards = np.zeros((shape.num_parity, shape.shard_bytes), np.uint8)
        self._crcs: list[int] = []
        self._begun_crc = 0
        self._digest = xxhash.xxh3_128()
        self._position = 0

    @property
    def room(self) -> int:
        """Bytes that are still to come."""
        return self._shape.num_bytes - self._position

    def add(self, piece: bytes | memoryview) -> None:
        """Take the next bytes, at most `room`."""
        data = memoryview(piece).cast("B")
        if len(data) > self.room:
            raise ValueError(f"the group takes {self.room:,} more bytes, not {len(data):,}")
        self._digest.update(data)
        self._sum_blocks(data)
        size = self._shape.shard_bytes
        while data:
            shard, offset = divmod(self._position, size)
            whole = 0 if offset else len(data) // size
            taken = whole * size or min(len(data), size - offset)
            if self._shape.num_parity:
                sources = np.frombuffer(data[:taken], np.uint8).reshape(max(whole, 1), -1)
                factors = np.ascontiguousarray(self._factors[:, shard : shard + len(sources)])
                gf256_accumulate(factors, sources, self._shards, offset)
            self._position += taken
            data = data[taken:]

    @property
    def num_bytes(self) -> int:
        """Bytes that came."""
        return self._position

    def grow(self, num_bytes: int) -> None:
        """Take so many bytes in all."""
        self._shape = replace(self._shape, num_bytes=num_bytes)

    def finish(self, num_parity: int | None = None) -> EncodedGroup:
        """The parity, when all bytes came; with `num_parity`, of those that came, in so many of the shards."""
        shape, crcs = self._shape, self._crcs
        if num_parity is not None:
            shape = replace(shape, num_bytes=self._position, num_parity=num_parity)
        elif self.room:
            raise ValueError(f"{self.room:,} bytes of the group are missing")
        shards = self._shards[: shape.num_parity]
        if begun := self._position % shape.block_bytes:
            crcs.append(crc32(bytes(shape.block_bytes - begun), self._begun_crc))
        crcs += [crc_of_zeros(shape.block_bytes)] * (shape.num_data * shape.num_columns - len(crcs))
        crcs += [crc32(block) for block in shards.reshape(-1, shape.block_bytes)]
        table = np.array(crcs, np.uint32).reshape(-1, shape.num_columns)
        return EncodedGroup(shape, shards, table, self._digest.digest())

    def _sum_blocks(self, data: memoryview) -> None:
        size = self._shape.block_bytes
        begun = self._position % size
        if begun:
            first, data = data[: size - begun], data[size - begun :]
            self._begun_crc = crc32(first, self._begun_crc)
            if begun + len(first) < size:
                return
            self._crcs.append(self._begun_crc)
        end = len(data) // size * size
        self._crcs += [crc32(data[at : at + size]) for at in range(0, end, size)]
        self._begun_crc = crc32(data[end:])


@cache
def crc_of_zeros(size: int) -> int:
    """The CRC32 of so many zero bytes."""
    return crc32(bytes(size))
