"""Blocking readers of CSV and JSON lines.

Each is a generator whose first item is the Arrow schema of the rows, or None where there are no rows; the rows follow,
a block at a time, as `Writer.write` takes them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

from resilient_pq.arrow.types.field import Field
from resilient_pq.cli.input.csv_parser import MAX_LINE_BYTES, CsvParser
from resilient_pq.cli.input.input_stream import InputStream, parser_errors
from resilient_pq.cli.input.json_parser import JsonLinesParser
from resilient_pq.cli.input.text_parser import TextOptions, TextParser
from resilient_pq.errors import FormatError, Where
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import MiB

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class _Lines:
    """A form of text: its name, its line ends by priority, bytes of blank lines, and whether it has a header."""

    name: str
    ends: tuple[bytes, ...]
    blank: bytes
    has_header: bool


_CSV = _Lines("CSV", (b"\n", b"\r"), b"\r\n", has_header=True)
_JSON_LINES = _Lines("JSON lines", (b"\n",), b" \t\n\r\v\f", has_header=False)


def read_csv(stream: InputStream, name: str, text_options: TextOptions, delimiter: str = ",") -> Iterator[Any]:
    """CSV, whose first block tells the names and types of all."""
    # pyarrow's own stream reads in threads that nobody can wait for: one that still reads at Python's end crashes it
    yield from _read(
        stream, name, text_options, _CSV, CsvParser(name, text_options, text_options.delimiter or delimiter)
    )


def read_tsv(stream: InputStream, name: str, text_options: TextOptions) -> Iterator[Any]:
    """CSV with tabs."""
    yield from read_csv(stream, name, text_options, "\t")


def read_json_lines(stream: InputStream, name: str, text_options: TextOptions) -> Iterator[Any]:
    """One JSON object per line; text that is a time is read as one, but for columns `as_written`."""
    yield from _read(stream, name, text_options, _JSON_LINES, JsonLinesParser(name, text_options))


def _read(stream: InputStream, name: str, text_options: TextOptions, form: _Lines, parser: TextParser) -> Iterator[Any]:
    is_first = True
    for block in _blocks(stream, name, text_options, form):
        with parser_errors(name):
            body = parser.begin(block) if is_first else block
            if is_first:
                yield Field("", "+s", nullable=False, children=tuple(parser.fields)).to_c()
            is_first = False
            if body:
                yield parser.parse(body)
    if is_first and form.has_header:
        raise FormatError("Empty CSV file", where=Where(key=name))
    if is_first:
        yield None


def _blocks(stream: InputStream, name: str, text_options: TextOptions, form: _Lines) -> Iterator[bytes]:
    """Blocks of whole lines that are not blank."""
    for whole in _whole_lines(stream, name, text_options, form):
        block = whole.removeprefix(BYTE_ORDER_MARK)
        if block.strip(form.blank):
            yield block


def _whole_lines(stream: InputStream, name: str, text_options: TextOptions, form: _Lines) -> Iterator[bytes]:
    """The bytes of the stream in pieces of about the size of a block, cut between lines."""
    pieces: list[bytes] = []
    is_first, is_last = True, False
    while not is_last:
        block, is_last = _read_block(stream, text_options)
        quotes = sum(piece.count(b'"') for piece in pieces) if form.has_header else 0
        end = 0 if is_last else _last_end(block, form, quotes)
        pieces.append(block[:end] if end else block)
        if end and not (is_first and form.has_header and _is_one_line(b"".join(pieces), form)):
            yield b"".join(pieces)
            is_first, pieces = False, [block[end:]]
        elif end:
            pieces.append(block[end:])
        elif sum(map(len, pieces)) > MAX_LINE_BYTES:
            raise FormatError(
                f"a line has more than {MAX_LINE_BYTES:,} bytes",
                where=Where(key=name),
                hint=f"is it {form.name}?",
            )
    yield b"".join(pieces)


def _last_end(block: bytes, form: _Lines, quotes_before: int) -> int:
    """Where the last line ends, outside of quotes where that can be; 0 where none does."""
    mark = next((mark for mark in form.ends if mark in block), None)
    end = last = 0 if mark is None else block.rfind(mark) + 1
    if mark is None or not form.has_header:
        return last
    quotes = quotes_before + block.count(b'"', 0, end)
    while end and quotes % 2:
        before = block.rfind(mark, 0, end - 1) + 1
        quotes -= block.count(b'"', before, end)
        end = before
    return end or last


def _is_one_line(text: bytes, form: _Lines) -> bool:
    return not any(mark in text.strip(form.blank) for mark in form.ends)


def _read_block(stream: InputStream, text_options: TextOptions) -> tuple[bytes, bool]:
    """As many bytes as a block has, or fewer where they come slowly; and whether they are the last ones."""
    pieces: list[bytes] = []
    missing, deadline = text_options.block_bytes, math.inf
    while missing and (left := deadline - time.monotonic()) > 0:
        if left < math.inf and not stream.wait(left):
            break
        piece = stream.read(min(missing, MiB))
        if not piece:
            return b"".join(pieces), True
        if not pieces:
            deadline = time.monotonic() + text_options.block_seconds
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces), False
