"""Blocks of the draft's dialect: values, and behind them definition levels, and behind those repetition levels.

Levels are integers of as many bits as the highest of them has, packed without gaps from the lowest bit of the first
byte on. What a block is said to have of rows are its entries, and it is the only number there is: so the levels are
found from the block's end backwards, and the values end where they begin. Impala's writer counted as many bytes of
booleans as were needed without nulls among them, so that more may lie before the levels than there are values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.values import LeafData, Levels
from resilient_pq.formats.trevni.metadata import ColumnMetadata, ValueType
from resilient_pq.formats.trevni.values import Position, read_values


def level_bytes(max_level: int, count: int) -> int:
    """Bytes of so many levels."""
    return (count * max_level.bit_length() + 7) // 8


def read_levels(data: NDArray[np.uint8], max_level: int, count: int) -> Levels:
    """Levels that fill `data`.

    Raises:
        EncodingError: One is above `max_level`.
    """
    width = max_level.bit_length()
    bits = np.unpackbits(data, bitorder="little", count=count * width).reshape(count, width)
    levels: Levels = np.packbits(bits, axis=1, bitorder="little").ravel()
    if count and int(levels.max()) > max_level:
        raise EncodingError(f"a level is {int(levels.max())}, and none is above {max_level}")
    return levels


def write_levels(levels: Levels, max_level: int) -> NDArray[np.uint8]:
    """The bytes of levels."""
    bits = np.unpackbits(levels.reshape(-1, 1), axis=1, bitorder="little")[:, : max_level.bit_length()]
    return np.packbits(bits.ravel(), bitorder="little")


def read_block(column: ColumnMetadata, data: NDArray[np.uint8], count: int) -> LeafData:
    """The rows of a block.

    Args:
        column: A column that has definition levels.
        data: The block, decompressed.
        count: Its entries.

    Raises:
        EncodingError: It does not have so many, or does not begin with a row, or bytes are left over.
    """
    end = len(data)
    repetition: Levels | None = None
    if column.max_repetition_level:
        start = end - level_bytes(column.max_repetition_level, count)
        repetition = _levels_between(data, start, end, column.max_repetition_level, count)
        end = start
        if count and repetition[0]:
            raise EncodingError("the block begins in the middle of a row")
    start = end - level_bytes(column.max_definition_level, count)
    definition = _levels_between(data, start, end, column.max_definition_level, count)
    num_values = int(np.count_nonzero(definition == column.max_definition_level))
    values, position = read_values(column.type, data[:start], Position(), num_values)
    if position.at != start and column.type is not ValueType.BOOLEAN:
        raise EncodingError(f"{start - position.at:,} bytes are left over between values and levels")
    num_rows = count if repetition is None else int(np.count_nonzero(repetition == 0))
    return LeafData(num_rows, definition, repetition, values)


def _levels_between(data: NDArray[np.uint8], start: int, end: int, max_level: int, count: int) -> Levels:
    if start < 0:
        raise EncodingError(f"{count:,} levels are said to be in {end:,} bytes")
    return read_levels(data[start:end], max_level, count)
