"""Which blocks of a group are lost, and which runs of columns are rebuilt together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resilient_pq.checksum import crc32
from resilient_pq.parity.group_record import GroupRecord
from resilient_pq.parity.group_shape import GroupShape
from resilient_pq.parity.reed_solomon import rebuild_shards


@dataclass(frozen=True, slots=True)
class ColumnRun:
    """The columns from `start` up to, not including, `end`, in which the same data shards lost their blocks."""

    start: int
    end: int
    lost: tuple[int, ...]


def column_runs(lost: NDArray[np.bool_], max_columns: int) -> Iterator[ColumnRun]:
    """Runs of columns that lost blocks, at most `max_columns` long; `lost` has a row for each data shard."""
    columns = np.flatnonzero(lost.any(axis=0))
    start = 0
    while start < len(columns):
        first, pattern = int(columns[start]), lost[:, columns[start]]
        end = start + 1
        while (
            end < len(columns)
            and end - start < max_columns
            and columns[end] == first + end - start
            and np.array_equal(lost[:, columns[end]], pattern)
        ):
            end += 1
        yield ColumnRun(first, first + end - start, tuple(int(row) for row in np.flatnonzero(pattern)))
        start = end


def damaged_blocks(record: GroupRecord, first: int, data: memoryview) -> NDArray[np.bool_]:
    """Of the data blocks from number `first` on that `data` holds, those without the CRC32 that they were written with.

    The last block counts as filled up with zeros. Blocks of a shard whose checksums are not known count as damaged.
    """
    size = record.shape.block_bytes
    sums = [crc32(data[at : at + size]) for at in range(0, len(data), size)]
    if rest := len(data) % size:
        sums[-1] = crc32(bytes(size - rest), sums[-1])
    expected = record.block_crcs[: record.shape.num_data].reshape(-1)[first : first + len(sums)]
    known = np.repeat(record.known_shards[: record.shape.num_data], record.shape.num_columns)
    damaged: NDArray[np.bool_] = (np.array(sums, np.uint32) != expected) | ~known[first : first + len(sums)]
    return damaged


def whole_parity(record: GroupRecord, run: ColumnRun, parity: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """For each parity shard and each column of a run whether the block is as it was written."""
    shape = record.shape
    blocks = parity.reshape(shape.num_parity, run.end - run.start, shape.block_bytes)
    sums = np.array([[crc32(block) for block in row] for row in blocks], np.uint32)
    known = record.known_shards[shape.num_data :, None]
    whole: NDArray[np.bool_] = known & (sums == record.block_crcs[shape.num_data :, run.start : run.end])
    return whole


def rebuild_run(
    shape: GroupShape, run: ColumnRun, data: NDArray[np.uint8], parity: NDArray[np.uint8], whole: NDArray[np.bool_]
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The lost blocks of a run."""
    size, num_lost = shape.block_bytes, len(run.lost)
    rebuilt = np.zeros((num_lost, data.shape[1]), np.uint8)
    possible = whole.sum(axis=0) >= num_lost
    for start, end, rows in _alike(whole, num_lost):
        if len(rows) == num_lost:
            part = slice(start * size, end * size)
            sources = np.ascontiguousarray(data[:, part])
            rebuilt[:, part] = rebuild_shards(sources, np.ascontiguousarray(parity[rows, part]), run.lost, rows)
    return rebuilt, possible


def _alike(whole: NDArray[np.bool_], wanted: int) -> Iterator[tuple[int, int, Sequence[int]]]:
    """Columns one behind the other whose first `wanted` whole parity shards are the same, and these shards."""
    start, rows = 0, _first_whole(whole, 0, wanted)
    for column in range(1, whole.shape[1] + 1):
        following = _first_whole(whole, column, wanted) if column < whole.shape[1] else None
        if following != rows:
            yield start, column, rows
            start, rows = column, following or []


def _first_whole(whole: NDArray[np.bool_], column: int, wanted: int) -> list[int]:
    return [int(row) for row in np.flatnonzero(whole[:, column])[:wanted]]
