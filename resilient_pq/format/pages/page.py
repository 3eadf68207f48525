"""Pages: a Thrift header, then a body whose CRC32 the header holds (parquet-format, README, "Data Pages")."""

from __future__ import annotations

from collections.abc import Iterator

from resilient_pq.checksum import crc32, unsigned
from resilient_pq.errors import ChecksumError, EncodingError, FormatError, ThriftError, Where
from resilient_pq.format import compact_protocol
from resilient_pq.format.compression import codecs
from resilient_pq.format.encodings import bit_packed, rle
from resilient_pq.format.file_metadata import (
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    Encoding,
    PageHeader,
    PageType,
)
from resilient_pq.format.physical_values import Levels
from resilient_pq.format.quirks import NO_QUIRKS, Quirks
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.lazy_dataclass import dataclass

_ENCODINGS = frozenset(Encoding)


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it lies in its column chunk."""

    ordinal: int  # its number in the chunk, from 0; the dictionary page counts
    offset: int  # absolute offset of its header
    header: PageHeader
    header_bytes: memoryview  # the header as stored
    body: memoryview  # what follows the header: `header.compressed_page_size` bytes

    @property
    def data_header(self) -> DataPageHeader | DataPageHeaderV2 | None:
        """What the header says of a data page; None for pages of other kinds, whatever else their header has."""
        match self.header.type:
            case PageType.DATA_PAGE:
                return self.header.data_page_header
            case PageType.DATA_PAGE_V2:
                return self.header.data_page_header_v2
        return None

    @property
    def num_values(self) -> int:
        """Entries of a data page, nulls included; 0 for pages of other kinds."""
        data = self.data_header
        return 0 if data is None else data.num_values

    @property
    def end(self) -> int:
        """Absolute offset just after the page."""
        return self.offset + len(self.header_bytes) + len(self.body)


def read_header(buffer: memoryview, offset: int) -> tuple[PageHeader, int]:
    """The page header at `offset` of `buffer`, and where its body begins."""
    header, body = compact_protocol.decode(PageHeader, buffer, offset, what="page header")
    if header.compressed_page_size < 0 or header.uncompressed_page_size < 0:
        raise ThriftError("page header is damaged: a size is negative")
    detail = {
        PageType.DATA_PAGE: header.data_page_header,
        PageType.DICTIONARY_PAGE: header.dictionary_page_header,
        PageType.DATA_PAGE_V2: header.data_page_header_v2,
    }
    if header.type in detail:
        kind = detail[PageType(header.type)]
        if kind is None:
            raise ThriftError(f"page header is damaged: no {PageType(header.type).name} header in it")
        _check_detail(kind)
    return header, body


def _check_detail(kind: DataPageHeader | DictionaryPageHeader | DataPageHeaderV2) -> None:
    """Refuse a header that no writer makes, also in fields that this reader does not need, as other readers do."""
    counts = [kind.num_values]
    if isinstance(kind, DataPageHeaderV2):
        counts += [kind.num_rows, kind.num_nulls]
    if min(counts) < 0:
        raise ThriftError("page header is damaged: a count in it is negative")
    if isinstance(kind, DataPageHeader):
        for encoding in (kind.definition_level_encoding, kind.repetition_level_encoding):
            if encoding not in _ENCODINGS:
                raise ThriftError(f"page header is damaged: levels are encoded as {encoding}")
    if isinstance(kind, DictionaryPageHeader) and kind.encoding not in _ENCODINGS:
        raise ThriftError(f"page header is damaged: a dictionary is encoded as {kind.encoding}")


def pages_of(chunk: memoryview, base: int, num_values: int | None = None) -> Iterator[Page]:
    """The pages of a column chunk in order, up to `num_values` entries, or all where that is None; bodies are views."""
    at = ordinal = found = 0
    while at < len(chunk) and (num_values is None or found < num_values):
        where = Where(page=ordinal, offset=base + at)
        try:
            header, body = read_header(chunk, at)
        except ThriftError as error:
            raise error.at(where) from error.__cause__
        end = body + header.compressed_page_size
        if end > len(chunk):
            missing = end - len(chunk)
            raise EncodingError(f"the page goes {missing} bytes beyond its column chunk", where=where)
        page = Page(ordinal, base + at, header, chunk[at:body], chunk[body:end])
        yield page
        at, ordinal, found = end, ordinal + 1, found + page.num_values


def check_crc(page: Page, *, zero_is_none: bool = False) -> bool:
    """Compare the body with the header's CRC32; False where there is none, which some writers store as 0."""
    if page.header.crc is None or (zero_is_none and page.header.crc == 0):
        return False
    compare_crc(unsigned(page.header.crc), page.body, Where(page=page.ordinal, offset=page.offset))
    return True


def compare_crc(stored: int, body: memoryview, where: Where) -> None:
    """Compare a page's body with the CRC32 that its header has, unsigned."""
    computed = crc32(body)
    if stored != computed:
        raise ChecksumError("page CRC32 does not match", stored=stored, computed=computed, where=where)


@dataclass(frozen=True, slots=True)
class EncodedLevels:
    """Definition or repetition levels of a data page."""

    encoding: Encoding  # RLE or BIT_PACKED
    data: memoryview  # their bytes, without a length before them
    lsb_first: bool = False  # whether BIT_PACKED ones begin at the least significant bit, as some writers had it

    def decode(self, maximum: int, out: Levels) -> None:
        """Fill `out`, one per entry of the page; `maximum` is the greatest that the column has."""
        if self.encoding is Encoding.BIT_PACKED:
            bit_packed.decode_levels(self.data, maximum, out, lsb_first=self.lsb_first)
        else:
            rle.decode_levels(self.data, maximum, out)


@dataclass(frozen=True, slots=True)
class DataPage:
    """The parts of a data page of either version, decompressed."""

    num_values: int  # entries, nulls included
    encoding: int  # how the values are encoded
    repetition_levels: EncodedLevels | None  # none where the maximum is 0
    definition_levels: EncodedLevels | None  # none where the maximum is 0
    values: memoryview


def open_data_page(page: Page, leaf: Leaf, codec: int, quirks: Quirks = NO_QUIRKS) -> DataPage:
    """Decompress a data page and split it into levels and values."""
    header = page.data_header
    if isinstance(header, DataPageHeader):
        return _open_v1(page, header, leaf, codec, quirks)
    if isinstance(header, DataPageHeaderV2):
        return _open_v2(page, header, leaf, codec)
    raise FormatError(f"a page of type {page.header.type} is not a data page")


def _open_v1(page: Page, header: DataPageHeader, leaf: Leaf, codec: int, quirks: Quirks) -> DataPage:
    """In version 1 the levels stand before the values, compressed with them."""
    rest = codecs.decompress(codec, page.body, page.header.uncompressed_page_size)
    count, lsb = header.num_values, quirks.lsb_levels
    repetition, rest = _take_levels(
        rest, count, header.repetition_level_encoding, leaf.max_repetition_level, "repetition levels", lsb
    )
    definition, rest = _take_levels(
        rest, count, header.definition_level_encoding, leaf.max_definition_level, "definition levels", lsb
    )
    return DataPage(count, header.encoding, repetition, definition, rest)


def _take_levels(
    data: memoryview, count: int, encoding: int, maximum: int, what: str, lsb_first: bool
) -> tuple[EncodedLevels | None, memoryview]:
    """Split levels from what follows them; whatever encoding is named, there are none where the maximum is 0."""
    if not maximum:
        return None, data
    match encoding:
        case Encoding.RLE:
            levels, rest = rle.take_prefixed(data, what)
        case Encoding.BIT_PACKED:
            levels, rest = bit_packed.take(data, count, maximum, what)
        case _:
            raise EncodingError(f"{what} are said to be in encoding {encoding}; levels are in RLE or BIT_PACKED")
    return EncodedLevels(Encoding(encoding), levels, lsb_first), rest


def _open_v2(page: Page, header: DataPageHeaderV2, leaf: Leaf, codec: int) -> DataPage:
    """In version 2 the levels stand before the compressed values, uncompressed and without lengths."""
    first, second = header.repetition_levels_byte_length, header.definition_levels_byte_length
    if first < 0 or second < 0 or first + second > len(page.body):
        raise EncodingError(f"levels of {first} and {second} bytes do not fit in a page of {len(page.body)}")
    values = page.body[first + second :]
    size = page.header.uncompressed_page_size - first - second
    # Old parquet-cpp compressed pages that it marked as not compressed; their size shows it (ARROW-17100).
    if header.is_compressed is not False or len(values) != size:
        if size < 0:
            raise EncodingError("the page is smaller than its levels")
        values = codecs.decompress(codec, values, size)
    return DataPage(
        header.num_values,
        header.encoding,
        EncodedLevels(Encoding.RLE, page.body[:first]) if leaf.max_repetition_level else None,
        EncodedLevels(Encoding.RLE, page.body[first : first + second]) if leaf.max_definition_level else None,
        values,
    )
