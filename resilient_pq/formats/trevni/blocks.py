"""Blocks: decompressed, compared with their checksums, and with what the table of blocks says of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError, TornFileError, Where, located
from resilient_pq.formats.trevni.codecs import Codec, decompress
from resilient_pq.formats.trevni.header import BlockTable
from resilient_pq.formats.trevni.metadata import ValueType


@dataclass(frozen=True, slots=True)
class Block:
    """A block that is as its table says.

    Attributes:
        data: Its bytes, decompressed.
        verified: Whether a checksum vouches for them.
    """

    data: NDArray[np.uint8]
    verified: bool


def where_of(table: BlockTable, block: int) -> Where:
    """The place of a block, for messages."""
    return Where(column=table.column.name, page=block, offset=int(table.offsets[block]))


def check_within(table: BlockTable, block: int, size: int) -> None:
    """Refuse a block that the file does not have.

    Raises:
        TornFileError: The file ends before it does.
    """
    end = table.span(block)[1]
    if end > size:
        raise TornFileError(
            f"the block ends at {end:,}, and the file has {size:,} bytes", where=where_of(table, block)
        )


def unpack(table: BlockTable, block: int, stored: memoryview, *, verify: bool = True) -> Block:
    """A block as it was before it was compressed.

    Args:
        table: Of its column.
        block: Its number in the column.
        stored: Its bytes and those of its checksum, `BlockTable.span`.
        verify: Whether the checksum is compared.

    Raises:
        ChecksumError: The bytes are not those that were written.
        EncodingError: They do not decompress, or do not begin with the value that the table has.
    """
    column = table.column
    with located(where_of(table, block)):
        end = len(stored) - column.checksum.size
        codec = column.codec if table.compressed[block] else Codec.NULL
        data = decompress(codec, stored[:end], int(table.sizes[block]))
        verified = verify and column.checksum.verify(data, bytes(stored[end:]), codec)
        if table.first_values and table.counts[block]:
            _check_first_value(column.type, table.first_values[block], data)
        return Block(np.frombuffer(data, np.uint8), verified)


def _check_first_value(kind: ValueType, first: bytes, data: memoryview) -> None:
    begins = bytes(data[: len(first)])
    if kind is ValueType.BOOLEAN:  # seven more follow in the byte
        begins = bytes(byte & 1 for byte in begins)
    if begins != first:
        raise EncodingError("the block does not begin with the first value that its table has")
