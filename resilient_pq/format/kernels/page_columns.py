"""The columns of the tables that kernels read and fill; plain numbers, which are quicker than those of an IntEnum."""

from __future__ import annotations

from typing import Final


class PageField:
    """The columns of a table of page headers; what a header does not say is -1."""

    HEADER: Final = 0  # Where the header begins in the chunk
    BODY: Final = 1  # Where the body begins in the chunk
    COMPRESSED_SIZE: Final = 2  # Bytes of the body
    UNCOMPRESSED_SIZE: Final = 3  # What the header says that they are without compression, levels included
    TYPE: Final = 4  # A PageType, or what no version knows
    CRC: Final = 5  # Of the body, unsigned
    #: Entries of a data page, nulls included; values of a dictionary page; 0 in pages of other kinds.
    NUM_VALUES: Final = 6
    ENCODING: Final = 7  # Of the values
    DEFINITION_ENCODING: Final = 8  # Of the definition levels of a data page v1
    REPETITION_ENCODING: Final = 9  # Of the repetition levels of a data page v1
    DEFINITION_BYTES: Final = 10  # Bytes of the definition levels of a data page v2
    REPETITION_BYTES: Final = 11  # Bytes of the repetition levels of a data page v2
    IS_COMPRESSED: Final = 12  # 0 where a data page v2 says that its values are not compressed, else 1
    COUNT: Final = 13  # How many columns there are


class PagePart:
    """The columns of the table of pages that `page_levels` reads."""

    START: Final = 0  # Where the page begins in the buffer, with its levels
    END: Final = 1  # Where it ends
    NUM_VALUES: Final = 2  # Entries, nulls included
    #: Bytes of its repetition levels; -1 where they stand behind their length, as in data pages v1.
    REPETITION_BYTES: Final = 3
    DEFINITION_BYTES: Final = 4  # Bytes of its definition levels; likewise
    COUNT: Final = 5  # How many columns there are


class PageSpan:
    """The columns of the table of values that `page_levels` returns."""

    START: Final = 0  # Where its values begin in the buffer, behind the levels
    END: Final = 1  # Where they end
    NUM_SLOTS: Final = 2  # Places that the page takes in the column's array, with those of nulls
    NUM_PRESENT: Final = 3  # Places that have a value
    COUNT: Final = 4  # How many columns there are


class ChunkField:
    """The columns of the table of chunks that `ChunkBatch` reads."""

    TYPE: Final = 0  # A physical type
    WIDTH: Final = 1  # Bytes of a value; 0 for BOOLEAN and BYTE_ARRAY
    OPTIONAL: Final = 2  # 1 where values may be null, else 0
    CODEC: Final = 3  # A CompressionCodec
    NUM_VALUES: Final = 4  # Entries after which its pages end
    NUM_ROWS: Final = 5  # Rows that there must be
    SIZE: Final = 6  # Bytes of all pages at most, when they are decompressed
    LEAST_CRC: Final = 7  # The smallest CRC32 in page headers that is compared
    TEXT: Final = 8  # 1 where byte arrays have to be UTF-8
    NARROW: Final = 9  # How many of the lowest bytes of integers are kept, 1 or 2; 0 for all
    COUNT: Final = 10  # How many columns there are


class ChunkNumber:
    """The columns of the table of what a footer says of chunks."""

    START: Final = 0  # Where its pages begin in the file
    END: Final = 1  # Where they end
    TYPE: Final = 2  # A physical type
    CODEC: Final = 3  # A CompressionCodec
    NUM_VALUES: Final = 4  # Entries, nulls included
    SIZE: Final = 5  # Bytes of all pages, when they are decompressed
    #: Which sum of its bytes is known: 0 none, 1 their CRC32, 2 their xxh3; -1 where only a closer look shows it all.
    SUM_KIND: Final = 6
    SUM: Final = 7  # The sum, as a signed number
    COUNT: Final = 8  # How many columns there are


class LeafNumber:
    """What `FlatRows` is told of a leaf."""

    COLUMN: Final = 0  # Where it stands among the columns of the array
    KIND: Final = 1  # Its physical type
    WIDTH: Final = 2  # Bytes of a value in the array; 0 of booleans, and of what has offsets
    OFFSETS: Final = 3  # Bytes of an offset; 0 where there are none
    OPTIONAL: Final = 4
    SIGNED: Final = 5  # Whether values that are widened have a sign
    COUNT: Final = 6


class OptionNumber:
    """What `FlatWriter` is told of the options of a leaf."""

    ORDER: Final = 0  # 1 to 5: signed, unsigned, floating point, booleans, bytes
    CODEC: Final = 1
    LEVEL: Final = 2
    DICTIONARY: Final = 3  # Bytes of the largest dictionary
    PAGE_BYTES: Final = 4
    PAGE_ROWS: Final = 5
    COUNT: Final = 6
