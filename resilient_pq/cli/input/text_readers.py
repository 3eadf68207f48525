"""Blocking readers of CSV, JSON lines and Arrow IPC.

Each is a generator whose first item is the Arrow schema of the rows, or None where there are none to tell it from;
the rows follow, a block at a time, as `Writer.write` takes them.
"""

from __future__ import annotations

import errno
import io
import math
import os
import select
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from resilient_pq.arrow.types.field import Field
from resilient_pq.errors import FormatError, ResilientPQError, UnsupportedError, Where
from resilient_pq.io.os_errors import from_os_error
from resilient_pq.units import MiB

#: Bytes of one line of JSON, and of the schema of an Arrow stream, that are still believed.
MAX_LINE_BYTES = 256 * MiB
MAX_SCHEMA_BYTES = 64 * MiB

_ARROW_FILE_MAGIC = b"ARROW1\0\0"
#: What stands before the length of every message of an Arrow stream.
_CONTINUATION = b"\xff\xff\xff\xff"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TYPES_HINT = "types are taken from the first {} bytes; give the file a form with a schema, such as Parquet or Arrow"


class Stream(Protocol):
    """Bytes in order: files, pipes."""

    def readinto(self, buffer: Any, /) -> int | None:
        """Fill the buffer, or what can be filled of it; 0 at the end."""


class StoppableFile(io.FileIO):
    """A local file, pipe or terminal; a read that waits for bytes is ended by `stop`, from any thread."""

    def __init__(self, file: str | int) -> None:
        """Open a path, without waiting for whoever is to write to a pipe, or take over a descriptor."""
        super().__init__(file, opener=_open_at_once)
        self._stopped = threading.Event()
        self._closing = threading.Lock()
        # Windows cannot wait for two things of which one is a file.
        self._wakes: int | None = None
        self._wake: int | None = None
        if os.name != "nt":
            self._wakes, self._wake = os.pipe()

    def readinto(self, buffer: Any, /) -> int:
        """What is there, at least one byte before the end.

        Raises:
            OSError: `stop` was called.
        """
        self.wait()
        if self._stopped.is_set():
            # Not EINTR, after which a buffered reader asks again.
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
        return super().readinto(buffer) or 0

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until something can be read, or `stop` was called; False where neither is so after some seconds."""
        if self._wakes is None:
            return True
        return any(select.select([self.fileno(), self._wakes], [], [], seconds))

    def stop(self) -> None:
        """Read no more: a read that is under way raises `OSError`, and so does every later one."""
        self._stopped.set()
        with self._closing:
            if self._wake is not None:
                os.write(self._wake, b"!")

    def close(self) -> None:
        """Close the file, which nothing may be reading."""
        with self._closing:
            super().close()
            for end in (self._wakes, self._wake):
                if end is not None:
                    os.close(end)
            self._wakes = self._wake = None


def _open_at_once(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if os.name != "nt":
        os.set_blocking(descriptor, True)
    return descriptor


class InputStream(io.RawIOBase):
    """A stream, with bytes before it that were taken from it already.

    Attributes:
        num_bytes: Bytes that were read so far.
    """

    def __init__(self, stream: Stream, *, head: bytes = b"") -> None:
        """Read `head`, then `stream`, which is not closed."""
        super().__init__()
        self._stream = stream
        self._head = head
        self.num_bytes = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """Whether it is a file, with nothing before it."""
        return not self._head and isinstance(self._stream, io.FileIO) and self._stream.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go on at another place of the file."""
        if not self.seekable():
            raise io.UnsupportedOperation("this is a stream")
        assert isinstance(self._stream, io.FileIO)
        return self._stream.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int:
        """What is there, at least one byte before the end."""
        view = memoryview(buffer).cast("B")
        if self._head:
            count = min(len(view), len(self._head))
            view[:count], self._head = self._head[:count], self._head[count:]
        else:
            count = self._stream.readinto(view) or 0
        self.num_bytes += count
        return count

    def wait(self, seconds: float) -> bool:
        """Wait until something can be read, for so long at most; True, too, of what cannot be waited for so."""
        if self._head or not isinstance(self._stream, StoppableFile | InputStream):
            return True
        return self._stream.wait(seconds)


def _taken(stream: InputStream, size: int) -> bytes:
    """The next bytes, and none behind them; fewer at the end."""
    pieces: list[bytes] = []
    while size and (piece := stream.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How text is understood.

    Attributes:
        block_bytes: Bytes that are parsed at a time; types are taken from the first block.
        as_written: Columns of JSON in which texts stay texts, though all of them are times.
        block_seconds: Seconds that the lines of a block may wait for more to come.
    """

    block_bytes: int
    as_written: Collection[str] = ()
    block_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class _Lines:
    """A form of text that is made of lines.

    Attributes:
        name: What it is called.
        ends: What ends a line: the first of these that is there.
        blank: Bytes of which lines are made that say nothing.
        has_header: Whether the first line tells nothing of the types.
    """

    name: str
    ends: tuple[bytes, ...]
    blank: bytes
    has_header: bool


_CSV = _Lines("CSV", (b"\n", b"\r"), b"\r\n", has_header=True)
_JSON_LINES = _Lines("JSON lines", (b"\n",), b" \t\n\r\v\f", has_header=False)


def read_stdin(stream: InputStream, name: str, text_options: TextOptions) -> Iterator[Any]:
    """An Arrow IPC stream or JSON lines, whichever comes."""
    head = _taken(stream, len(_ARROW_FILE_MAGIC))
    text = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    rest = InputStream(stream, head=head)
    if head == _ARROW_FILE_MAGIC or head.startswith(_CONTINUATION):
        yield from read_arrow(rest, name, text_options)
        return
    if text.startswith(b"{") or (head and not text):
        yield from read_json_lines(rest, name, text_options)
        return
    if not head:
        raise FormatError("nothing came", where=Where(key=name))
    raise FormatError(
        f"this is neither an Arrow IPC stream nor JSON lines: it begins with {head!r}",
        where=Where(key=name, offset=0),
        hint="name a file, whose ending tells what is in it",
    )


def read_csv(stream: InputStream, name: str, text_options: TextOptions) -> Iterator[Any]:
    """CSV with a header line, understood as `pyarrow.csv` does by default.

    Blocks are read here and parsed in memory. pyarrow's own stream would read from threads of its own, which nobody can
    wait for: one that still reads when Python ends crashes the process.
    """
    _pyarrow("csv", "CSV")
    schema = None
    for block, hint in _blocks(stream, name, text_options, _CSV):
        with _explained(name, hint):
            table = _parsed_csv(block, schema)
        if schema is None:
            schema = table.schema
            yield schema
        yield table
    if schema is None:
        raise FormatError("Empty CSV file", where=Where(key=name))


def _parsed_csv(block: bytes, schema: Any) -> Any:
    """A block; the first one, which has the header, tells the types of all."""
    csv, pa = import_module("pyarrow.csv"), import_module("pyarrow")
    # Columns may have the same name, so they are told apart by their numbers.
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
    _pyarrow("json", "JSON lines")
    schema = None
    for block, hint in _blocks(stream, name, text_options, _JSON_LINES):
        with _explained(name, hint):
            if schema is None:
                table = _first_of_json(block, text_options.as_written)
            else:
                table = _parsed(block, explicit_schema=schema, unexpected_field_behavior="error")
        if schema is None:
            schema = table.schema
            yield schema
        yield table
    if schema is None:
        yield None


def _first_of_json(block: bytes, as_written: Collection[str]) -> Any:
    """The first block, which tells the types."""
    pa = import_module("pyarrow")
    table = _parsed(block)
    times = [field.name for field in table.schema if field.name in as_written and pa.types.is_timestamp(field.type)]
    return _parsed(block, explicit_schema=pa.schema([(each, pa.string()) for each in times])) if times else table


def _parsed(block: bytes, **options: Any) -> Any:
    json = import_module("pyarrow.json")
    return json.read_json(
        import_module("pyarrow").BufferReader(block),
        read_options=json.ReadOptions(block_size=len(block) + 1),
        parse_options=json.ParseOptions(**options),
    )


def _blocks(stream: InputStream, name: str, text_options: TextOptions, form: _Lines) -> Iterator[tuple[bytes, str]]:
    """Blocks of whole lines that are not blank, each with what to tell where it cannot be understood."""
    first_line, is_first, types_from = 1, True, 0
    for whole in _whole_lines(stream, name, text_options, form):
        lines = whole.count(b"\n")
        hint = f"in the lines {first_line:,} to {first_line + max(lines - 1, 0):,}"
        if not is_first:
            hint = f"{hint}; {_TYPES_HINT.format(f'{types_from:,}')}"
        first_line += lines
        block = whole.removeprefix(_BYTE_ORDER_MARK)
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


def read_arrow(stream: InputStream, name: str, _text_options: TextOptions) -> Iterator[Any]:
    """An Arrow IPC stream or file; a file that cannot be read from its end is taken for the stream in it."""
    head = _taken(stream, len(_ARROW_FILE_MAGIC))
    if head == _ARROW_FILE_MAGIC:
        if stream.seekable() and find_spec("pyarrow") is not None:
            return _read_arrow_file(io.BufferedReader(stream, MiB), name)
        head = _taken(stream, len(_ARROW_FILE_MAGIC))
    return _read_arrow_stream(stream, head, name)


def _read_arrow_file(stream: io.BufferedReader, name: str) -> Iterator[Any]:
    ipc = _pyarrow("ipc", "an Arrow file")
    with _explained(name):
        reader = ipc.open_file(stream)
        yield reader.schema
        for ordinal in range(reader.num_record_batches):
            yield reader.get_batch(ordinal)


def _read_arrow_stream(stream: InputStream, head: bytes, name: str) -> Iterator[Any]:
    message = _schema_message(stream, head, name)
    whole = io.BufferedReader(InputStream(stream, head=message), MiB)
    if _nanoarrow_can_read(message):
        opened = _nanoarrow_stream(whole)
    else:
        ipc = _pyarrow("ipc", "an Arrow stream with dictionaries or views")
        with _explained(name):
            opened = ipc.open_stream(whole)
    with _explained(name):
        yield opened.schema if hasattr(opened, "schema") else opened.get_schema()
        yield from opened


def _nanoarrow_can_read(schema_message: bytes) -> bool:
    """Whether it knows all types of the schema. Compressed dictionaries it takes for plain ones, so none goes there."""
    try:
        field = Field.of(_nanoarrow_stream(io.BytesIO(schema_message)).get_schema())
    except RuntimeError:
        return False
    return not _has_dictionary(field)


def _nanoarrow_stream(stream: Any) -> Any:
    import nanoarrow.ipc  # noqa: PLC0415 (only Arrow streams need it)

    return nanoarrow.c_array_stream(nanoarrow.ipc.InputStream.from_readable(stream))


def _schema_message(stream: InputStream, head: bytes, name: str) -> bytes:
    """The first message of an Arrow stream, which has no body: `head`, and the rest of it from the stream."""
    where = Where(key=name, offset=0)
    if len(head) < len(_ARROW_FILE_MAGIC) or not head.startswith(_CONTINUATION):
        raise FormatError(f"no Arrow IPC stream begins with {head!r}", where=where)
    length = int.from_bytes(head[4:], "little", signed=True)
    if not 0 < length <= MAX_SCHEMA_BYTES:
        raise FormatError(f"the schema of an Arrow IPC stream cannot have {length:,} bytes", where=where)
    rest = _taken(stream, length)
    if len(rest) < length:
        raise FormatError("the Arrow IPC stream ends within its schema", where=where)
    return head + rest


def _has_dictionary(field: Field) -> bool:
    return field.dictionary is not None or any(map(_has_dictionary, field.children))


def _pyarrow(module: str, what: str) -> Any:
    """A module of pyarrow, which is not needed otherwise."""
    try:
        return import_module(f"pyarrow.{module}")
    except ImportError as error:
        raise UnsupportedError(
            f"{what} can only be read with pyarrow, which is not installed",
            hint="pip install 'resilient_pq[ingest]'",
        ) from error


@contextmanager
def _explained(name: str, hint: str | None = None) -> Iterator[None]:
    """Turn what the parsers raise into an error of ours."""
    try:
        yield
    except ResilientPQError:
        raise
    except OSError as error:
        if error.errno is not None:
            raise from_os_error(error, "cannot read", name) from error
        raise _format_error(error, name, hint) from error
    except (ValueError, RuntimeError, TypeError, KeyError) as error:  # as pyarrow and nanoarrow have them
        raise _format_error(error, name, hint) from error


def _format_error(error: Exception, name: str, hint: str | None) -> FormatError:
    message = str(error).strip().splitlines()
    return FormatError(message[0] if message else type(error).__name__, where=Where(key=name), hint=hint)
