"""The structs of parquet.thrift, as one table of fields.

Field numbers, types and names are those of the Parquet specification (parquet.thrift of release 2.13 and
what was merged after it). Enumerations stay plain integers in the structs, because files of the future hold
values that this version does not know; `Encoding(value)` and its kin are for values that are needed.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from enum import IntEnum

from resilient_pq.format.annotations import Empty, LogicalType
from resilient_pq.format.compact_protocol import BINARY, BOOL, DOUBLE, I16, I32, I64, STRING, field, list_of, struct


class Type(IntEnum):
    """Physical types."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


class ConvertedType(IntEnum):
    """The older annotations, written beside `LogicalType` for older readers."""

    UTF8 = 0
    MAP = 1
    MAP_KEY_VALUE = 2
    LIST = 3
    ENUM = 4
    DECIMAL = 5
    DATE = 6
    TIME_MILLIS = 7
    TIME_MICROS = 8
    TIMESTAMP_MILLIS = 9
    TIMESTAMP_MICROS = 10
    UINT_8 = 11
    UINT_16 = 12
    UINT_32 = 13
    UINT_64 = 14
    INT_8 = 15
    INT_16 = 16
    INT_32 = 17
    INT_64 = 18
    JSON = 19
    BSON = 20
    INTERVAL = 21


class Repetition(IntEnum):
    """How often a field stands in its parent (FieldRepetitionType)."""

    REQUIRED = 0
    OPTIONAL = 1
    REPEATED = 2


class Encoding(IntEnum):
    """How levels and values become bytes."""

    PLAIN = 0
    PLAIN_DICTIONARY = 2
    RLE = 3
    BIT_PACKED = 4
    DELTA_BINARY_PACKED = 5
    DELTA_LENGTH_BYTE_ARRAY = 6
    DELTA_BYTE_ARRAY = 7
    RLE_DICTIONARY = 8
    BYTE_STREAM_SPLIT = 9
    ALP = 10


class CompressionCodec(IntEnum):
    """How the bytes of a page are compressed."""

    UNCOMPRESSED = 0
    SNAPPY = 1
    GZIP = 2
    LZO = 3
    BROTLI = 4
    LZ4 = 5
    ZSTD = 6
    LZ4_RAW = 7


class PageType(IntEnum):
    """Kinds of pages."""

    DATA_PAGE = 0
    INDEX_PAGE = 1
    DICTIONARY_PAGE = 2
    DATA_PAGE_V2 = 3


class BoundaryOrder(IntEnum):
    """Whether the minima and maxima of a ColumnIndex are sorted."""

    UNORDERED = 0
    ASCENDING = 1
    DESCENDING = 2


@struct
class Statistics:
    """Minimum, maximum and counts of a column chunk or a page."""

    max: bytes | None = field(1, BINARY, default=None)
    min: bytes | None = field(2, BINARY, default=None)
    null_count: int | None = field(3, I64, default=None)
    distinct_count: int | None = field(4, I64, default=None)
    max_value: bytes | None = field(5, BINARY, default=None)
    min_value: bytes | None = field(6, BINARY, default=None)
    is_max_value_exact: bool | None = field(7, BOOL, default=None)
    is_min_value_exact: bool | None = field(8, BOOL, default=None)
    nan_count: int | None = field(9, I64, default=None)


@struct
class SizeStatistics:
    """What a column chunk takes in memory when it is decoded."""

    unencoded_byte_array_data_bytes: int | None = field(1, I64, default=None)
    repetition_level_histogram: list[int] | None = field(2, list_of(I64), default=None)
    definition_level_histogram: list[int] | None = field(3, list_of(I64), default=None)


@struct
class BoundingBox:
    """Extent of geospatial values."""

    xmin: float = field(1, DOUBLE)
    xmax: float = field(2, DOUBLE)
    ymin: float = field(3, DOUBLE)
    ymax: float = field(4, DOUBLE)
    zmin: float | None = field(5, DOUBLE, default=None)
    zmax: float | None = field(6, DOUBLE, default=None)
    mmin: float | None = field(7, DOUBLE, default=None)
    mmax: float | None = field(8, DOUBLE, default=None)


@struct
class GeospatialStatistics:
    """Statistics of GEOMETRY and GEOGRAPHY columns."""

    bbox: BoundingBox | None = field(1, BoundingBox, default=None)
    geospatial_types: list[int] | None = field(2, list_of(I32), default=None)


@struct
class SchemaElement:
    """One node of the schema tree, in depth-first order."""

    type: int | None = field(1, I32, default=None)
    type_length: int | None = field(2, I32, default=None)
    repetition_type: int | None = field(3, I32, default=None)
    name: str = field(4, STRING, default="")
    num_children: int | None = field(5, I32, default=None)
    converted_type: int | None = field(6, I32, default=None)
    scale: int | None = field(7, I32, default=None)
    precision: int | None = field(8, I32, default=None)
    field_id: int | None = field(9, I32, default=None)
    logicalType: LogicalType | None = field(10, LogicalType, default=None)  # noqa: N815 (the specification's name)


@struct
class DataPageHeader:
    """Header of a data page v1."""

    num_values: int = field(1, I32)
    encoding: int = field(2, I32)
    definition_level_encoding: int = field(3, I32)
    repetition_level_encoding: int = field(4, I32)
    statistics: Statistics | None = field(5, Statistics, default=None)


@struct
class DictionaryPageHeader:
    """Header of a dictionary page."""

    num_values: int = field(1, I32)
    encoding: int = field(2, I32)
    is_sorted: bool | None = field(3, BOOL, default=None)


@struct
class DataPageHeaderV2:
    """Header of a data page v2."""

    num_values: int = field(1, I32)
    num_nulls: int = field(2, I32)
    num_rows: int = field(3, I32)
    encoding: int = field(4, I32)
    definition_levels_byte_length: int = field(5, I32)
    repetition_levels_byte_length: int = field(6, I32)
    is_compressed: bool | None = field(7, BOOL, default=None)
    statistics: Statistics | None = field(8, Statistics, default=None)


@struct
class PageHeader:
    """What stands before the bytes of every page."""

    type: int = field(1, I32)
    uncompressed_page_size: int = field(2, I32)
    compressed_page_size: int = field(3, I32)
    crc: int | None = field(4, I32, default=None)
    data_page_header: DataPageHeader | None = field(5, DataPageHeader, default=None)
    index_page_header: Empty | None = field(6, Empty, default=None)
    dictionary_page_header: DictionaryPageHeader | None = field(7, DictionaryPageHeader, default=None)
    data_page_header_v2: DataPageHeaderV2 | None = field(8, DataPageHeaderV2, default=None)


@struct
class KeyValue:
    """One entry of key-value metadata."""

    key: str = field(1, STRING)
    value: str | None = field(2, STRING, default=None)


@struct
class StoredSortingColumn:
    """A column by which the rows of a row group are sorted."""

    column_idx: int = field(1, I32)
    descending: bool | None = field(2, BOOL, default=None)
    nulls_first: bool | None = field(3, BOOL, default=None)


@struct
class PageEncodingStats:
    """How many pages of a kind have an encoding."""

    page_type: int = field(1, I32)
    encoding: int = field(2, I32)
    count: int = field(3, I32)


@struct
class ColumnMetaData:
    """What the footer says of a column chunk."""

    type: int = field(1, I32)
    encodings: list[int] = field(2, list_of(I32))
    path_in_schema: list[str] | None = field(3, list_of(STRING), default=None)
    codec: int = field(4, I32, default=CompressionCodec.UNCOMPRESSED)
    num_values: int = field(5, I64, default=0)
    total_uncompressed_size: int = field(6, I64, default=0)
    total_compressed_size: int = field(7, I64, default=0)
    key_value_metadata: list[KeyValue] | None = field(8, list_of(KeyValue), default=None)
    data_page_offset: int = field(9, I64, default=0)
    index_page_offset: int | None = field(10, I64, default=None)
    dictionary_page_offset: int | None = field(11, I64, default=None)
    statistics: Statistics | None = field(12, Statistics, default=None)
    encoding_stats: list[PageEncodingStats] | None = field(13, list_of(PageEncodingStats), default=None)
    bloom_filter_offset: int | None = field(14, I64, default=None)
    bloom_filter_length: int | None = field(15, I32, default=None)
    size_statistics: SizeStatistics | None = field(16, SizeStatistics, default=None)
    geospatial_statistics: GeospatialStatistics | None = field(17, GeospatialStatistics, default=None)


@struct
class EncryptionWithColumnKey:
    """A column that has a key of its own."""

    path_in_schema: list[str] | None = field(1, list_of(STRING), default=None)
    key_metadata: bytes | None = field(2, BINARY, default=None)


@struct
class ColumnCryptoMetaData:
    """How a column chunk is encrypted."""

    ENCRYPTION_WITH_FOOTER_KEY: Empty | None = field(1, Empty, default=None)
    ENCRYPTION_WITH_COLUMN_KEY: EncryptionWithColumnKey | None = field(2, EncryptionWithColumnKey, default=None)


@struct
class ColumnChunk:
    """Where a column chunk and its indexes lie."""

    file_path: str | None = field(1, STRING, default=None)
    file_offset: int = field(2, I64, default=0)
    meta_data: ColumnMetaData | None = field(3, ColumnMetaData, default=None)
    offset_index_offset: int | None = field(4, I64, default=None)
    offset_index_length: int | None = field(5, I32, default=None)
    column_index_offset: int | None = field(6, I64, default=None)
    column_index_length: int | None = field(7, I32, default=None)
    crypto_metadata: ColumnCryptoMetaData | None = field(8, ColumnCryptoMetaData, default=None)
    encrypted_column_metadata: bytes | None = field(9, BINARY, default=None)


@struct
class RowGroup:
    """A horizontal part of the table."""

    columns: MutableSequence[ColumnChunk] = field(1, list_of(ColumnChunk), kept=True)
    total_byte_size: int = field(2, I64, default=0)
    num_rows: int = field(3, I64, default=0)
    sorting_columns: list[StoredSortingColumn] | None = field(4, list_of(StoredSortingColumn), default=None)
    file_offset: int | None = field(5, I64, default=None)
    total_compressed_size: int | None = field(6, I64, default=None)
    ordinal: int | None = field(7, I16, default=None)


@struct
class ColumnOrder:
    """How minima and maxima of a column are ordered; all None means an order this version does not know."""

    TYPE_ORDER: Empty | None = field(1, Empty, default=None)
    IEEE_754_TOTAL_ORDER: Empty | None = field(2, Empty, default=None)
    INT96_TIMESTAMP_ORDER: Empty | None = field(3, Empty, default=None)


@struct
class AesGcm:
    """AesGcmV1 and AesGcmCtrV1, which have the same fields: what the AAD of all modules of a file begins with."""

    aad_prefix: bytes | None = field(1, BINARY, default=None)
    aad_file_unique: bytes | None = field(2, BINARY, default=None)
    supply_aad_prefix: bool | None = field(3, BOOL, default=None)


@struct
class EncryptionAlgorithm:
    """How a file is encrypted; both None means a way this version does not know."""

    AES_GCM_V1: AesGcm | None = field(1, AesGcm, default=None)
    AES_GCM_CTR_V1: AesGcm | None = field(2, AesGcm, default=None)


@struct
class FileMetaData:
    """The footer's content: schema, row groups, key-value metadata."""

    version: int = field(1, I32)
    schema: MutableSequence[SchemaElement] = field(2, list_of(SchemaElement), kept=True)
    num_rows: int = field(3, I64)
    row_groups: MutableSequence[RowGroup] = field(4, list_of(RowGroup), kept=True)
    key_value_metadata: list[KeyValue] | None = field(5, list_of(KeyValue), default=None)
    created_by: str | None = field(6, STRING, default=None)
    column_orders: list[ColumnOrder] | None = field(7, list_of(ColumnOrder), default=None)
    encryption_algorithm: EncryptionAlgorithm | None = field(8, EncryptionAlgorithm, default=None)
    footer_signing_key_metadata: bytes | None = field(9, BINARY, default=None)


@struct
class PageLocation:
    """Where a data page lies; the size includes its header."""

    offset: int = field(1, I64)
    compressed_page_size: int = field(2, I32)
    first_row_index: int = field(3, I64)


@struct
class OffsetIndex:
    """The locations of a chunk's data pages, the dictionary page left out."""

    page_locations: list[PageLocation] = field(1, list_of(PageLocation))
    unencoded_byte_array_data_bytes: list[int] | None = field(2, list_of(I64), default=None)


@struct
class ColumnIndex:
    """Minimum, maximum and null count of each data page of a chunk."""

    null_pages: list[bool] = field(1, list_of(BOOL))
    min_values: list[bytes] = field(2, list_of(BINARY))
    max_values: list[bytes] = field(3, list_of(BINARY))
    boundary_order: int = field(4, I32, default=BoundaryOrder.UNORDERED)
    null_counts: list[int] | None = field(5, list_of(I64), default=None)
    repetition_level_histograms: list[int] | None = field(6, list_of(I64), default=None)
    definition_level_histograms: list[int] | None = field(7, list_of(I64), default=None)
    nan_counts: list[int] | None = field(8, list_of(I64), default=None)
