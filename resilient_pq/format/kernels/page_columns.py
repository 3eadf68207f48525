"""The columns of the tables that kernels read and fill, one row per page.

Plain numbers, as looking up a member of an IntEnum takes longer than what is done with it.
"""

from __future__ import annotations

from typing import Final


class PageField:
    """The columns of a table of page headers; what a header does not say is -1."""

    #: Where the header begins in the chunk.
    HEADER: Final = 0
    #: Where the body begins in the chunk.
    BODY: Final = 1
    #: Bytes of the body.
    COMPRESSED_SIZE: Final = 2
    #: What the header says that they are without compression, levels included.
    UNCOMPRESSED_SIZE: Final = 3
    #: A PageType, or what no version knows.
    TYPE: Final = 4
    #: Of the body, unsigned.
    CRC: Final = 5
    #: Entries of a data page, nulls included; values of a dictionary page; 0 in pages of other kinds.
    NUM_VALUES: Final = 6
    #: Of the values.
    ENCODING: Final = 7
    #: Of the definition levels of a data page v1.
    DEFINITION_ENCODING: Final = 8
    #: Of the repetition levels of a data page v1.
    REPETITION_ENCODING: Final = 9
    #: Bytes of the definition levels of a data page v2.
    DEFINITION_BYTES: Final = 10
    #: Bytes of the repetition levels of a data page v2.
    REPETITION_BYTES: Final = 11
    #: 0 where a data page v2 says that its values are not compressed, else 1.
    IS_COMPRESSED: Final = 12
    #: How many columns there are.
    COUNT: Final = 13


class PagePart:
    """The columns of the table of pages that `page_levels` reads."""

    #: Where the page begins in the buffer, with its levels.
    START: Final = 0
    #: Where it ends.
    END: Final = 1
    #: Entries, nulls included.
    NUM_VALUES: Final = 2
    #: Bytes of its repetition levels; -1 where they stand behind their length, as in data pages v1.
    REPETITION_BYTES: Final = 3
    #: Bytes of its definition levels; likewise.
    DEFINITION_BYTES: Final = 4
    #: How many columns there are.
    COUNT: Final = 5


class PageSpan:
    """The columns of the table of values that `page_levels` returns."""

    #: Where its values begin in the buffer, behind the levels.
    START: Final = 0
    #: Where they end.
    END: Final = 1
    #: Places that the page takes in the column's array, with those of nulls.
    NUM_SLOTS: Final = 2
    #: Places that have a value.
    NUM_PRESENT: Final = 3
    #: How many columns there are.
    COUNT: Final = 4


class ChunkField:
    """The columns of the table of chunks that `ChunkBatch` reads."""

    #: A physical type.
    TYPE: Final = 0
    #: Bytes of a value; 0 for BOOLEAN and BYTE_ARRAY.
    WIDTH: Final = 1
    #: 1 where values may be null, else 0.
    OPTIONAL: Final = 2
    #: A CompressionCodec.
    CODEC: Final = 3
    #: Entries after which its pages end.
    NUM_VALUES: Final = 4
    #: Rows that there must be.
    NUM_ROWS: Final = 5
    #: Bytes of all pages at most, when they are decompressed.
    SIZE: Final = 6
    #: The smallest CRC32 in page headers that is compared.
    LEAST_CRC: Final = 7
    #: 1 where byte arrays have to be UTF-8.
    TEXT: Final = 8
    #: How many of the lowest bytes of integers are kept, 1 or 2; 0 for all.
    NARROW: Final = 9
    #: How many columns there are.
    COUNT: Final = 10


class ChunkNumber:
    """The columns of the table of what a footer says of chunks."""

    #: Where its pages begin in the file.
    START: Final = 0
    #: Where they end.
    END: Final = 1
    #: A physical type.
    TYPE: Final = 2
    #: A CompressionCodec.
    CODEC: Final = 3
    #: Entries, nulls included.
    NUM_VALUES: Final = 4
    #: Bytes of all pages, when they are decompressed.
    SIZE: Final = 5
    #: Which sum of its bytes is known: 0 none, 1 their CRC32, 2 their xxh3; -1 where only a closer look shows it all.
    SUM_KIND: Final = 6
    #: The sum, as a signed number.
    SUM: Final = 7
    #: How many columns there are.
    COUNT: Final = 8


class LeafNumber:
    """What `FlatRows` is told of a leaf."""

    #: Where it stands among the columns of the array.
    COLUMN: Final = 0
    #: Its physical type.
    KIND: Final = 1
    #: Bytes of a value in the array; 0 of booleans, and of what has offsets.
    WIDTH: Final = 2
    #: Bytes of an offset; 0 where there are none.
    OFFSETS: Final = 3
    OPTIONAL: Final = 4
    #: Whether values that are widened have a sign.
    SIGNED: Final = 5
    COUNT: Final = 6


class OptionNumber:
    """What `FlatWriter` is told of the options of a leaf."""

    #: 1 to 5: signed, unsigned, floating point, booleans, bytes.
    ORDER: Final = 0
    CODEC: Final = 1
    LEVEL: Final = 2
    #: Bytes of the largest dictionary.
    DICTIONARY: Final = 3
    PAGE_BYTES: Final = 4
    PAGE_ROWS: Final = 5
    COUNT: Final = 6
