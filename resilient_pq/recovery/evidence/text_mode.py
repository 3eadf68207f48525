"""Parquet files that were transferred or edited as text: which change was made, and undoing it. Pure.

The magic of a record shows it, as it contains a byte above 127, CR LF, Ctrl-Z and LF, like that of PNG. In files of
other writers bytes are counted, as the frequencies that such a change leaves do not occur in data.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from resilient_pq.errors import ResilientPQError
from resilient_pq.format.footer import MAGIC, MIN_FILE_SIZE, Footer, read_footer
from resilient_pq.format.pages.page import check_crc, pages_of
from resilient_pq.format.quirks import Quirks
from resilient_pq.format.resilience_records import RECORD_MAGIC
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents, chunk_range


class TextChange(StrEnum):
    """A change of bytes by a transfer as text."""

    LF_TO_CRLF = "lf-to-crlf"
    """Each 0A became 0D 0A."""
    CRLF_TO_LF = "crlf-to-lf"
    """Each 0D 0A became 0A, and each other 0D perhaps too."""
    UTF8_REPLACED = "utf8-replaced"
    """Whatever is no UTF-8 became EF BF BD, the replacement character."""
    LATIN1_AS_UTF8 = "latin1-as-utf8"
    """Each byte above 127 was taken for a character, and became the two bytes that UTF-8 has for it."""
    ASCII_REPLACED = "ascii-replaced"
    """Each byte above 127 became a question mark."""
    SEVEN_BITS = "seven-bits"
    """Of each byte the eighth bit became 0."""


#: How the magic of a record looks afterwards.
_WITNESSES = {
    TextChange.LF_TO_CRLF: RECORD_MAGIC.replace(b"\n", b"\r\n"),
    TextChange.CRLF_TO_LF: RECORD_MAGIC.replace(b"\r\n", b"\n"),
    TextChange.UTF8_REPLACED: RECORD_MAGIC.decode("utf-8", "replace").encode(),
    TextChange.LATIN1_AS_UTF8: RECORD_MAGIC.decode("latin-1").encode(),
    TextChange.ASCII_REPLACED: b"?" + RECORD_MAGIC[1:],
    TextChange.SEVEN_BITS: bytes(byte & 0x7F for byte in RECORD_MAGIC),
}
_REPLACEMENT = "\ufffd".encode()
_HIGH = frozenset(range(0x80, 0x100))
#: What UTF-8 has above 127 for the characters of Latin-1.
_OF_LATIN1 = frozenset({0xC2, 0xC3, *range(0x80, 0xC0)})
#: Replacement characters, line ends, and bytes in all, that there should be before they tell.
_FEW, _ENOUGH, _SMALL = 4, 12, 512


@dataclass(frozen=True, slots=True)
class TextDamage:
    """A change that was found; `certain` where the magic of a record shows it, otherwise bytes were counted."""

    change: TextChange
    certain: bool


def detect_text_damage(sample: bytes) -> TextDamage | None:
    """The change that bytes of a Parquet file underwent; None where there is no sign of one."""
    head = sample[len(MAGIC) : len(MAGIC) + 16]
    # The longest first: CR LF of a magic that lost its CR stands in one that got another.
    for change, witness in sorted(_WITNESSES.items(), key=lambda pair: -len(pair[1])):
        if head.startswith(witness):
            return TextDamage(change, certain=True)
    if head.startswith(RECORD_MAGIC):
        return None
    change_found = _detect_by_counts(sample)
    return None if change_found is None else TextDamage(change_found, certain=False)


def _detect_by_counts(sample: bytes) -> TextChange | None:
    size = len(sample)
    high = set(sample) & _HIGH
    if high and _is_utf8(sample):
        if sample.count(_REPLACEMENT) >= _FEW:
            return TextChange.UTF8_REPLACED
        if size >= _SMALL and high <= _OF_LATIN1 and high & {0xC2, 0xC3}:
            return TextChange.LATIN1_AS_UTF8
    lines, pairs = sample.count(b"\n"), sample.count(b"\r\n")
    if lines >= _ENOUGH and pairs == lines:
        return TextChange.LF_TO_CRLF
    if not high and size >= _SMALL and _looks_binary(sample):
        neighbours = sample.count(b">") + sample.count(b"@")
        many = sample.count(b"?") > 2 * neighbours + _FEW
        return TextChange.ASCII_REPLACED if many else TextChange.SEVEN_BITS
    if not pairs and _lacks_returns(sample, lines):
        return TextChange.CRLF_TO_LF
    return None


def _lacks_returns(sample: bytes, lines: int) -> bool:
    """Whether CR, or CR before LF, is missing although the bytes next to it in value are frequent."""
    returns = sample.count(b"\r")
    if returns:
        around = [sample.count(bytes([before, 0x0A])) > 1 for before in (0x0B, 0x0C, 0x0E, 0x0F)]
        return returns * lines > _ENOUGH * len(sample) and all(around)
    return min(lines, sample.count(b"\x0c"), sample.count(b"\x0e")) >= 4 * _ENOUGH


def _is_utf8(sample: bytes) -> bool:
    try:
        sample[: max(0, len(sample) - 4)].decode()
    except UnicodeDecodeError as error:
        return error.start >= len(sample) - 8  # a character that the sample cuts in two
    return True


def _looks_binary(sample: bytes) -> bool:
    """Whether there are many bytes that do not occur in text."""
    controls = bytes(byte for byte in range(0x20) if byte not in b"\t\n\r")
    return (len(sample) - len(sample.translate(None, controls))) * 32 > len(sample)


def undo_text_change(data: bytes) -> tuple[TextChange, bytes] | None:
    """The change that bytes underwent, and the bytes before it, where that is proven.

    It is proven when the footer is at the end again, and the pages of each chunk fill it, have as many values as the
    footer states, and match their checksums. Only LF_TO_CRLF and LATIN1_AS_UTF8 can be undone.
    """
    for change, undo in _UNDO.items():
        original = undo(data)
        if original is not None and len(original) < len(data) and _fits_together(original):
            return change, original
    return None


def _without_added_returns(data: bytes) -> bytes | None:
    return data.replace(b"\r\n", b"\n")


def _from_latin1(data: bytes) -> bytes | None:
    try:
        return data.decode().encode("latin-1")
    except UnicodeError:
        return None


_UNDO: dict[TextChange, Callable[[bytes], bytes | None]] = {
    TextChange.LF_TO_CRLF: _without_added_returns,
    TextChange.LATIN1_AS_UTF8: _from_latin1,
}


def _fits_together(data: bytes) -> bool:
    if len(data) < MIN_FILE_SIZE:
        return False
    view = memoryview(data)
    try:
        footer = read_footer(view, 0)
        if not isinstance(footer, Footer):
            return False
        contents = Contents.of(footer)
        quirks = Quirks.of(contents.metadata.created_by)
        for row_group in contents.metadata.row_groups:
            for column in row_group.columns:
                if column.meta_data is None:
                    return False
                start, end = chunk_range(column.meta_data, footer.start)
                num_values = 0
                for page in pages_of(view[start:end], start):
                    check_crc(page, zero_is_none=quirks.zero_crc_is_none)
                    num_values += page.num_values
                if num_values != column.meta_data.num_values:
                    return False
    except ResilientPQError:
        return False
    return True
