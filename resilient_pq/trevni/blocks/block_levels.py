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
from resilient_pq.format.physical_values import LeafData, Levels
from resilient_pq.trevni.blocks.block_values import Position, read_values
from resilient_pq.trevni.blocks.trevni_metadata import ColumnMetadata, ValueType


def read_block(column: ColumnMetadata, data: NDArray[np.uint8], count: int) -> LeafData:
    """The rows of a block of so many entries, of a column that has definition levels."""
    end = len(data)
    repetition: Levels | None = None
    if column.max_repetition_level:
        end, repetition = _levels_before(data, end, column.max_repetition_level, count)
        if count and repetition[0]:
            raise EncodingError("the block begins in the middle of a row")
    start, definition = _levels_before(data, end, column.max_definition_level, count)
    num_values = int(np.count_nonzero(definition == column.max_definition_level))
    values, position = read_values(column.type, data[:start], Position(), num_values)
    if position.at != start and column.type is not ValueType.BOOLEAN:
        raise EncodingError(f"{start - position.at:,} bytes are left over between values and levels")
    num_rows = count if repetition is None else int(np.count_nonzero(repetition == 0))
    return LeafData(num_rows, definition, repetition, values)


def _levels_before(data: NDArray[np.uint8], end: int, max_level: int, count: int) -> tuple[int, Levels]:
    """So many levels that end at a byte, and where they begin."""
    width = max_level.bit_length()
    start = end - (count * width + 7) // 8
    if start < 0:
        raise EncodingError(f"{count:,} levels are said to be in {end:,} bytes")
    bits = np.unpackbits(data[start:end], bitorder="little", count=count * width).reshape(count, width)
    levels: Levels = np.packbits(bits, axis=1, bitorder="little").ravel()
    if count and int(levels.max()) > max_level:
        raise EncodingError(f"a level is {int(levels.max())}, and none is above {max_level}")
    return start, levels
