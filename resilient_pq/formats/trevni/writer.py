"""Files of Avro's last version, written: for what still reads them, and to hold reading against. Sans-io.

The tables of all blocks come before the blocks, so a file is made at one time, of rows that are all at hand.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.assemble import branch_of
from resilient_pq.errors import SchemaError
from resilient_pq.format.levels import AssembledOptional, Steps
from resilient_pq.format.schema import Schema
from resilient_pq.format.values import ByteArrays, LeafData, Values
from resilient_pq.formats.trevni.codecs import Checksum, Codec, compress
from resilient_pq.formats.trevni.header import MAGIC, Version
from resilient_pq.formats.trevni.lengths import write_arrays
from resilient_pq.formats.trevni.metadata import AVRO_SCHEMA, CHECKSUM, CODEC, ColumnMetadata, write_pairs
from resilient_pq.formats.trevni.to_avro import Columns, WrittenColumn
from resilient_pq.formats.trevni.values import value_sizes, write_values

#: Bytes after which Avro's writer ends a block.
BLOCK_BYTES: Final = 64 * 1024
#: Rows of a block, at most: of nulls, and of lengths that are all the same, any number would fit.
_BLOCK_ROWS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TrevniOptions:
    """How a file is written.

    Attributes:
        codec: How its blocks are compressed.
        checksum: What stands behind each block.
        first_values: Names of top-level columns of one value in each row, of which the first value of each block stands
            in the table of the blocks as well.
        block_bytes: Bytes after which a block ends, before compression.
        metadata: Pairs of the file, besides those that are its own.
    """

    codec: Codec = Codec.DEFLATE
    checksum: Checksum = Checksum.CRC32
    first_values: Collection[str] = ()
    block_bytes: int = BLOCK_BYTES
    metadata: Mapping[str, bytes] | None = None


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a column has: lengths, values, and where in both each row begins."""

    lengths: NDArray[np.int64]
    values: Values
    first_lengths: NDArray[np.int64]
    first_values: NDArray[np.int64]


def encode(schema: Schema, leaves: Sequence[LeafData], options: TrevniOptions) -> list[bytes]:
    """A file, in pieces.

    Args:
        schema: Of the rows.
        leaves: Levels and values of each leaf of the schema, all of as many rows.
        options: How it is written.

    Raises:
        SchemaError: A name is none that Avro takes, or that of no column.
        UnsupportedError: A column has a type that Avro has no form for.
    """
    walked = Columns(schema)
    num_rows = leaves[0].num_rows if leaves else 0
    columns = [_with_options(column, options) for column in walked.columns]
    missing = set(options.first_values) - {column.metadata.name for column in columns}
    if missing:
        raise SchemaError(f"there is no column {min(missing)!r} to say the first values of")
    ways = [way for column in schema.columns for way in branch_of(column.node).ways()]
    bodies = []
    ends: list[NDArray[np.int64]] = []
    for column in columns:
        rows = _rows_of(column, ways[column.leaf], leaves[column.leaf], ends)
        bodies.append(_body(column.metadata, rows, num_rows, options.block_bytes))
    avro = json.dumps(walked.avro, separators=(",", ":")).encode()
    pairs = {CODEC: options.codec.encode(), CHECKSUM: options.checksum.encode(), AVRO_SCHEMA: avro}
    header = [
        MAGIC + bytes([Version.FINAL]),
        struct.pack("<QI", num_rows, len(columns)),
        write_pairs({**(options.metadata or {}), **pairs}),
        *(write_pairs(column.metadata.to_pairs()) for column in columns),
    ]
    start = sum(map(len, header)) + 8 * len(columns)
    for body in bodies:
        header.append(struct.pack("<Q", start))
        start += sum(map(len, body))
    return [*header, *(piece for body in bodies for piece in body)]


def _with_options(column: WrittenColumn, options: TrevniOptions) -> WrittenColumn:
    metadata = replace(
        column.metadata,
        codec=options.codec,
        checksum=options.checksum,
        has_first_values=column.metadata.name in options.first_values,
    )
    metadata.check()
    return replace(column, metadata=metadata)


def _rows_of(
    column: WrittenColumn, way: Sequence[bool], data: LeafData, ends: list[NDArray[np.int64]]
) -> _Rows:
    """What a column has.

    Args:
        column: The column.
        way: Of the first leaf at or below it, whether each of its definition levels is a repeated node's.
        data: Levels and values of the leaf.
        ends: For each column before it, where its elements end in each row; its own are added.
    """
    num_rows = data.num_rows
    above = np.arange(num_rows + 1) if column.parent is None else ends[column.parent]
    lengths = _lengths(way, data, column.lengths)
    values: Values = data.values if column.has_values else np.zeros(0, np.int32)
    if isinstance(values, np.ndarray) and values.ndim == 2:  # of a fixed width, which have a length here all the same
        values = ByteArrays(np.arange(len(values) + 1) * values.shape[1], np.ascontiguousarray(values).ravel())
    if column.lengths:
        of_values = np.concatenate([[0], np.cumsum(lengths)])[above]
        ends.append(of_values)
        return _Rows(lengths, values, above, of_values)
    ends.append(above)
    return _Rows(lengths, values, np.zeros(num_rows + 1, np.int64), above)


def _lengths(way: Sequence[bool], data: LeafData, depth: int) -> NDArray[np.int64]:
    """How often the node is there that adds the `depth`-th definition level of a leaf, wherever its parent is."""
    if not depth:
        return np.zeros(0, np.int64)
    definition = data.definition_levels
    assert definition is not None
    steps = Steps(np.ascontiguousarray(definition), data.repetition_levels, way)
    lengths = np.zeros(0, np.int64)
    there: NDArray[np.int64] | None = None
    for step in islice(steps, depth):
        if isinstance(step, AssembledOptional):
            lengths = step.valid.astype(np.int64)
            lengths = lengths if there is None else lengths[there]
            there = np.flatnonzero(step.valid) if there is None else there[lengths == 1]
        else:
            lengths = np.diff(step.offsets).astype(np.int64)
            lengths = lengths if there is None else lengths[there]
            there = None
    return lengths


def _body(column: ColumnMetadata, rows: _Rows, num_rows: int, block_bytes: int) -> list[bytes]:
    """The blocks of a column, and the table of them before."""
    descriptors, blocks = [], []
    cuts = _cuts(column, rows, num_rows, block_bytes)
    for start, end in pairwise(cuts):
        values = rows.values[int(rows.first_values[start]) : int(rows.first_values[end])]
        if column.is_array:
            lengths = rows.lengths[rows.first_lengths[start] : rows.first_lengths[end]]
            raw = write_arrays(column.type, lengths, values).tobytes()
        else:
            raw = write_values(column.type, values).tobytes()
        stored = compress(column.codec, raw)
        descriptors.append(struct.pack("<III", end - start, len(raw), len(stored)))
        if column.has_first_values:
            descriptors.append(write_values(column.type, values[:1]).tobytes())
        blocks += [stored, column.checksum.of(raw)]
    return [struct.pack("<I", len(cuts) - 1), *descriptors, *blocks]


def _cuts(column: ColumnMetadata, rows: _Rows, num_rows: int, block_bytes: int) -> list[int]:
    """The first row of each block, and the end of the last."""
    sizes = value_sizes(column.type, rows.values)
    if isinstance(rows.values, ByteArrays) or len(sizes):
        before = np.concatenate([[0], np.cumsum(sizes)])[rows.first_values]
    else:
        before = np.zeros(num_rows + 1, np.int64)
    before = before + rows.first_lengths  # a length takes a byte, and more only where there are many values
    cuts = [0]
    while cuts[-1] < num_rows:
        first = cuts[-1]
        end = int(np.searchsorted(before, before[first] + block_bytes))
        cuts.append(min(max(end, first + 1), first + _BLOCK_ROWS, num_rows))
    return cuts
