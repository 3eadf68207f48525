"""Blocking readers of CSV and JSON lines.

Each is a generator whose first item is the Arrow schema of the rows, or None where there are no rows; the rows follow,
a block at a time, as `Writer.write` takes them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from resilient_pq.cli.input.input_stream import InputStream
from resilient_pq.cli.input.parser_errors import import_pyarrow, parser_errors
from resilient_pq.errors import FormatError, Where
from resilient_pq.units import MiB

#: Bytes of one line, at most.
MAX_LINE_BYTES = 256 * MiB

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TYPES_HINT = "types are taken from the first {} bytes; give the file a form with a schema, such as Parquet or Arrow"


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Bytes parsed at a time, columns of JSON in which times stay text, and seconds that a block waits for lines."""

    block_bytes: int
    as_written: Collection[str] = ()
    block_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class _Lines:
    """A form of text: its name, its line ends by priority, bytes of blank lines, and whether it has a header."""

    name: str
    ends: tuple[bytes, ...]
    blank: bytes
    has_header: bool


_CSV = _Lines("CSV", (b"\n", b"\r"), b"\r\n", has_header=True)
_JSON_LINES = _Lines("JSON lines", (b"\n",), b" \t\n\r\v\f", has_header=False)


def read_csv(stream: InputStream, name: str, text_options: TextOptions) -> Iterator[Any]:
    """CSV with a header line, understood as `pyarrow.csv` does by default.

    Blocks are read here and parsed in memory. pyarrow's own stream would read from threads of its own, which nobody can
    wait for: one that still reads when Python ends crashes the process.
    """
    import_pyarrow("csv", "CSV")
    schema = None
    for block, hint in _blocks(stream, name, text_options, _CSV):
        with parser_errors(name, hint):
            table = _parse_csv(block, schema)
        if schema is None:
            schema = table.schema
            yield schema
        yield table
    if schema is None:
        raise FormatError("Empty CSV file", where=Where(key=name))


def _parse_csv(block: bytes, schema: Any) -> Any:
    """Parse a block; the first one has the header, and its types are those of all."""
    csv, pa = import_module("pyarrow.csv"), import_module("pyarrow")
    # Columns may have the same name, so they are named by numbers.
    numbers = [str(number) for number in range(len(schema or ()))]
    table = csv.read_csv(
        pa.BufferReader(block),
        read_options=csv.ReadOptions(block_size=len(block) + 1, column_names=numbers),
        convert_options=csv.ConvertOptions(
            column_types=dict(zip(numbers, () if schema is None else schema.types, strict=True))
        ),
    )
    return table if schema is None else table.rename_columns(schema.names)


def read_json_lines(stream: InputStream, name: str, text_options: TextOptions) -> Iterator[Any]:
    """One JSON object per line, understood as `pyarrow.json` does by default, but for columns `as_written`."""
    import_pyarrow("json", "JSON lines")
    schema = None
    for block, hint in _blocks(stream, name, text_options, _JSON_LINES):
        with parser_errors(name, hint):
            if schema is None:
                table = _parse_first_json(block, text_options.as_written)
            else:
                table = _parse_json(block, explicit_schema=schema, unexpected_field_behavior="error")
        if schema is None:
            schema = table.schema
            yield schema
        yield table
    if schema is None:
        yield None


def _parse_first_json(block: bytes, as_written: Collection[str]) -> Any:
    """Parse the first block, whose types are those of all."""
    pa = import_module("pyarrow")
    table = _parse_json(block)
    times = [field.name for field in table.schema if field.name in as_written and pa.types.is_timestamp(field.type)]
    return _parse_json(block, explicit_schema=pa.schema([(each, pa.string()) for each in times])) if times else table


def _parse_json(block: bytes, **options: Any) -> Any:
    json = import_module("pyarrow.json")
    return json.read_json(
        import_module("pyarrow").BufferReader(block),
        read_options=json.ReadOptions(block_size=len(block) + 1),
        parse_options=json.ParseOptions(**options),
    )


def _blocks(stream: InputStream, name: str, text_options: TextOptions, form: _Lines) -> Iterator[tuple[bytes, str]]:
    """Blocks of whole lines that are not blank, each with the hint for an error in it."""
    first_line, is_first, types_from = 1, True, 0
    for whole in _whole_lines(stream, name, text_options, form):
        lines = whole.count(b"\n")
        hint = f"in the lines {first_line:,} to {first_line + max(lines - 1, 0):,}"
        if not is_first:
            hint = f"{hint}; {_TYPES_HINT.format(f'{types_from:,}')}"
        first_line += lines
        block = whole.removeprefix(BYTE_ORDER_MARK)
        if block.strip(form.blank):
            yield block, hint
            types_from = len(whole) if is_first else types_from
            is_first = False


def _whole_lines(stream: InputStream, name: str, text_options: TextOptions, form: _Lines) -> Iterator[bytes]:
    """The bytes of the stream in pieces of about the size of a block, cut between lines."""
    pieces: list[bytes] = []
    is_first, is_last = True, False
    while not is_last:
        block, is_last = _read_block(stream, text_options)
        end = 0 if is_last else next((end for mark in form.ends if (end := block.rfind(mark) + 1)), 0)
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
