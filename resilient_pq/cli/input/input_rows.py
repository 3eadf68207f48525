"""Rows from files of other forms, and from stdin: CSV, JSON lines, Parquet, Arrow IPC. Streaming, a block at a time.

Parquet files, on any store, are read with our own reader; the blocking readers of the other forms run in a thread.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import field, replace
from importlib.util import find_spec
from typing import Any

import resilient_pq as rpq
from resilient_pq.arrow.buffers import has_dictionaries
from resilient_pq.arrow.types.field import Field
from resilient_pq.cli.given_keys import NO_KEYS, GivenKeys
from resilient_pq.cli.input.input_stream import (
    STDIN,
    Decompressed,
    InputStream,
    import_pyarrow,
    in_background,
    open_stream,
    parser_errors,
    take_bytes,
)
from resilient_pq.cli.input.stdin_copy import stdin_as_file
from resilient_pq.cli.input.text_parser import TextOptions
from resilient_pq.cli.input.text_readers import BYTE_ORDER_MARK, read_csv, read_json_lines, read_tsv
from resilient_pq.errors import FormatError, UnsupportedError, Where
from resilient_pq.io.location import shown
from resilient_pq.io.resolve import Location
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import MiB

#: Bytes of the schema of an Arrow stream, at most.
MAX_SCHEMA_BYTES = 64 * MiB

ARROW_FILE_MAGIC = b"ARROW1\0\0"
#: The bytes before the length of every message of an Arrow stream.
CONTINUATION = b"\xff\xff\xff\xff"


def read_arrow(stream: InputStream, name: str, _text_options: TextOptions) -> Iterator[Any]:
    """An Arrow IPC stream or file; a file that cannot be read from its end is taken for the stream in it."""
    head = take_bytes(stream, len(ARROW_FILE_MAGIC))
    if head == ARROW_FILE_MAGIC:
        if stream.seekable() and find_spec("pyarrow") is not None:
            return _read_arrow_file(io.BufferedReader(stream, MiB), name)
        head = take_bytes(stream, len(ARROW_FILE_MAGIC))
    return _read_arrow_stream(stream, head, name)


def _read_arrow_file(stream: io.BufferedReader, name: str) -> Iterator[Any]:
    ipc = import_pyarrow("ipc", "an Arrow file")
    with parser_errors(name):
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
        ipc = import_pyarrow("ipc", "an Arrow stream with dictionaries or views")
        with parser_errors(name):
            opened = ipc.open_stream(whole)
    with parser_errors(name):
        yield opened.schema if hasattr(opened, "schema") else opened.get_schema()
        yield from opened


def _nanoarrow_can_read(schema_message: bytes) -> bool:
    """Whether it knows all types of the schema. Compressed dictionaries it takes for plain ones, so none goes there."""
    try:
        field = Field.of(_nanoarrow_stream(io.BytesIO(schema_message)).get_schema())
    except RuntimeError:
        return False
    return not has_dictionaries(field)


def _nanoarrow_stream(stream: Any) -> Any:
    import nanoarrow.ipc  # noqa: PLC0415 (only Arrow streams need it)

    return nanoarrow.c_array_stream(nanoarrow.ipc.InputStream.from_readable(stream))


def _schema_message(stream: InputStream, head: bytes, name: str) -> bytes:
    """The first message of an Arrow stream, which has no body: `head`, and the rest of it from the stream."""
    where = Where(key=name, offset=0)
    if len(head) < len(ARROW_FILE_MAGIC) or not head.startswith(CONTINUATION):
        raise FormatError(f"no Arrow IPC stream begins with {head!r}", where=where)
    length = int.from_bytes(head[4:], "little", signed=True)
    if not 0 < length <= MAX_SCHEMA_BYTES:
        raise FormatError(f"the schema of an Arrow IPC stream cannot have {length:,} bytes", where=where)
    rest = take_bytes(stream, length)
    if len(rest) < length:
        raise FormatError("the Arrow IPC stream ends within its schema", where=where)
    return head + rest


#: Bytes of text that are parsed at a time; their types are taken from the first block.
BLOCK_BYTES = 8 * MiB

_READERS = {
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".arrow": read_arrow,
    ".arrows": read_arrow,
    ".feather": read_arrow,
    ".ipc": read_arrow,
}
_TEXT = (".csv", ".tsv", ".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")
_COMPRESSED = (".gz", ".zst")
_URL = re.compile(r"[a-z][a-z0-9+.\-]+(::|://)", re.IGNORECASE)

Batches = AsyncGenerator[tuple[Any, float | None], None]


@dataclass(frozen=True, slots=True)
class InputRows:
    """Batches as `Writer.write` takes them, each with the share of the input that was read, and their schema."""

    schema: Any
    batches: Batches
    metadata: dict[str, str] = field(default_factory=dict)


def read_stdin(stream: InputStream, name: str, text_options: TextOptions) -> Iterator[Any]:
    """An Arrow IPC stream or JSON lines, whichever comes."""
    head = take_bytes(stream, len(ARROW_FILE_MAGIC))
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    rest = InputStream(stream, head=head)
    if head == ARROW_FILE_MAGIC or head.startswith(CONTINUATION):
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
        hint="--format csv, tsv, jsonl, arrow or parquet says what it is",
    )


@asynccontextmanager
async def open_rows(
    src: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    keys: GivenKeys = NO_KEYS,
    block_bytes: int = BLOCK_BYTES,
    as_written: Collection[str] = (),
    block_seconds: float | None = None,
    form: str | None = None,
    text_options: TextOptions | None = None,
) -> AsyncIterator[InputRows]:
    """Open a file by its `form` or its ending, the URL of a Parquet file, or ``-`` for stdin."""
    ending, packed = _form_of(src, form)
    _check_form(src, ending, form, text_options)
    if ending in _PARQUET or (_is_url(src) and ending not in _READERS):
        opened = _open_copy_of_stdin(keys) if src == STDIN else _open_parquet(src, storage_options, keys)
    else:
        given, waiting = text_options or TextOptions(block_bytes), block_seconds or math.inf
        given = replace(given, block_bytes=block_bytes, as_written=as_written, block_seconds=waiting)
        opened = _open_local(src, ending, packed, given)
    async with opened as rows:
        yield rows


def _is_url(src: str) -> bool:
    return _URL.match(src) is not None


def _check_form(src: str, ending: str, form: str | None, text_options: TextOptions | None) -> None:
    """Refuse what cannot be read, and options for text where there is none."""
    where = Where(key=shown(src))
    if text_options is not None and ending not in _TEXT and (src != STDIN or form):
        what = "it has types of its own, and options for text are given"
        raise UnsupportedError(what, where=where, hint="they are for CSV, TSV and JSON lines")
    is_url, is_known = _is_url(src), ending in _READERS
    if ending in _PARQUET or src == STDIN or is_url != is_known:
        return
    known = ", ".join([*_READERS, ".parquet"])
    raise UnsupportedError(
        "only Parquet is read from URLs" if is_url else "cannot tell the format from the extension",
        where=where,
        hint=f"local files may end in {known}, with .gz or .zst behind them; --format says it of others",
    )


def _form_of(src: str, form: str | None) -> tuple[str, str]:
    """The ending that says what is in a file, and that of its compression."""
    name, ending = os.path.splitext(src.lower())
    packed = ending if ending in _COMPRESSED else ""
    return f".{form}" if form else os.path.splitext(name)[1] if packed else ending, packed


@asynccontextmanager
async def _open_local(src: str, ending: str, packed: str, text_options: TextOptions) -> AsyncIterator[InputRows]:
    read = _READERS.get(ending, read_stdin)
    file = open_stream(src)
    stream, size = InputStream(file), os.fstat(file.fileno()).st_size
    name = "stdin" if src == STDIN else src
    plain = InputStream(Decompressed(stream, packed, name)) if packed else stream
    items = in_background(_items(file, read(plain, name, text_options)), file.stop)
    async with aclosing(items):
        schema = await anext(items)
        at_most = text_options.block_bytes if ending in _TEXT and not packed else size
        batches = _add_shares(items, stream, size, at_most)
        async with aclosing(batches):
            yield InputRows(schema, batches)


@asynccontextmanager
async def _open_parquet(
    src: Location, storage_options: Mapping[str, Any] | None, keys: GivenKeys
) -> AsyncIterator[InputRows]:
    how: Mapping[str, Any] = keys.reading
    if keys.sealing is not None and not await _is_encrypted(src, storage_options):
        how = {}  # they are for the new file alone
    async with (
        rpq.open(src, storage_options=storage_options, **how) as file,
        aclosing(_parquet_batches(file)) as batches,
    ):
        yield InputRows(file.arrow_schema, batches, metadata_of(file))


async def _is_encrypted(src: Location, storage_options: Mapping[str, Any] | None) -> bool:
    try:
        async with rpq.open(src, storage_options=storage_options) as file:
            return file.contents.metadata.encryption_algorithm is not None
    except rpq.KeyMissingError:
        return True


@asynccontextmanager
async def _open_copy_of_stdin(keys: GivenKeys) -> AsyncIterator[InputRows]:
    """A Parquet file, which is read from its end, from stdin."""
    async with stdin_as_file(STDIN) as copy, _open_parquet(copy, None, keys) as rows:
        yield rows


def _items(file: io.FileIO, items: Iterator[Any]) -> Generator[Any, None, None]:
    """The items of a reader, which close the file at their end."""
    with file:
        yield from items


async def _add_shares(blocks: AsyncGenerator[Any, None], counted: InputStream, size: int, at_most: int) -> Batches:
    """The blocks, each with the share read by then; readers read ahead, so a block counts `at_most` bytes."""
    number = 0
    async for block in blocks:
        number += 1
        yield block, min(counted.num_bytes, number * at_most, size) / size if size else None


async def _parquet_batches(file: rpq.File) -> Batches:
    done = 0
    async with aclosing(file.batches()) as batches:
        async for batch in batches:
            done += batch.num_rows
            yield batch, done / file.num_rows


def metadata_of(file: rpq.File) -> dict[str, str]:
    """Key-value metadata that its user wrote."""
    pairs = file.key_value_metadata.items()
    return {key: value or "" for key, value in pairs if not key.startswith("rpq.") and key != "ARROW:schema"}
