"""Page headers that can be true: checks for headers in bytes of which nothing else is known. Pure."""

from __future__ import annotations

from typing import Final

from resilient_pq.errors import ThriftError
from resilient_pq.format.file_metadata import DataPageHeader, DataPageHeaderV2, Encoding, PageHeader, PageType
from resilient_pq.format.pages.page import read_header
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import KiB, MiB

_VALUE_ENCODINGS: Final = frozenset(Encoding) - {Encoding.BIT_PACKED}
_DICTIONARY_PAGE_ENCODINGS: Final = (Encoding.PLAIN, Encoding.PLAIN_DICTIONARY)
#: How much a page may grow by compression: half of it and some. Codecs promise far less.
_GROWTH: Final = 1024


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """What is accepted as a page, and what a search for pages may cost."""

    max_header: int = 64 * KiB  # Bytes of a header at most; the largest in real files have 5 KB
    max_body: int = 1024 * MiB  # Bytes of a body at most
    max_uncompressed: int = 1024 * MiB  # Bytes of a body before compression at most
    max_ratio: int = 1 << 16  # How many times its size a body of more than a MiB may have had before compression
    max_values: int = 1 << 28  # Values of a page at most
    max_pages: int = 1 << 20  # Pages at most; a search that finds more is given up
    # How many bytes may be read again, for each byte that there is, where headers turn out to be none, before the
    # search is given up
    work_per_byte: int = 8
    free_work: int = 1024 * MiB  # Bytes that may always be read again, however few there are


LIMITS = SearchLimits()


def header_at(data: memoryview, offset: int, limits: SearchLimits = LIMITS) -> tuple[PageHeader, int] | None:
    """The page header at `offset` of `data` and where it ends, if there is one that can be true; None otherwise."""
    try:
        header, end = read_header(data[offset : offset + limits.max_header], 0)
    except ThriftError:
        return None
    return (header, offset + end) if is_plausible(header, limits) else None


def is_plausible(header: PageHeader, limits: SearchLimits = LIMITS) -> bool:
    """Whether a header says nothing that is impossible or beyond the limits."""
    if not _has_plausible_sizes(header, limits):
        return False
    size, stored = header.uncompressed_page_size, header.compressed_page_size
    v1, v2, dictionary = header.data_page_header, header.data_page_header_v2, header.dictionary_page_header
    if sum(detail is not None for detail in (v1, v2, dictionary)) != 1:
        return False
    if header.type == PageType.DATA_PAGE and v1 is not None:
        return _is_plausible_v1(v1, limits)
    if header.type == PageType.DATA_PAGE_V2 and v2 is not None:
        levels_size = v2.definition_levels_byte_length + v2.repetition_levels_byte_length
        return _is_plausible_v2(v2, limits) and levels_size <= min(size, stored)
    if header.type == PageType.DICTIONARY_PAGE and dictionary is not None:
        # Values have a byte at least; but there may be one value without any.
        return dictionary.encoding in _DICTIONARY_PAGE_ENCODINGS and dictionary.num_values <= max(size, 1)
    return False


def _has_plausible_sizes(header: PageHeader, limits: SearchLimits) -> bool:
    size, stored = header.uncompressed_page_size, header.compressed_page_size
    if stored > limits.max_body or size > limits.max_uncompressed or stored > size + size // 2 + _GROWTH:
        return False
    return size <= MiB or size <= stored * limits.max_ratio


def _is_plausible_v1(header: DataPageHeader, limits: SearchLimits) -> bool:
    return (
        header.num_values <= limits.max_values
        and header.encoding in _VALUE_ENCODINGS
        # Of columns without levels some writers name the encoding of levels at random.
        and header.definition_level_encoding in Encoding.__members__.values()
        and header.repetition_level_encoding in Encoding.__members__.values()
    )


def _is_plausible_v2(header: DataPageHeaderV2, limits: SearchLimits) -> bool:
    return (
        header.num_values <= limits.max_values
        and 0 <= header.num_rows <= header.num_values
        and 0 <= header.num_nulls <= header.num_values
        and header.encoding in _VALUE_ENCODINGS
        and header.definition_levels_byte_length >= 0
        and header.repetition_levels_byte_length >= 0
    )
