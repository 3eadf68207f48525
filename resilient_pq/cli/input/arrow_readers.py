"""Blocking readers of Arrow IPC: generators of the Arrow schema, and then of the record batches."""

from __future__ import annotations

import io
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from resilient_pq.arrow.buffers import has_dictionaries
from resilient_pq.arrow.types.field import Field
from resilient_pq.cli.input.input_stream import InputStream, take_bytes
from resilient_pq.cli.input.parser_errors import import_pyarrow, parser_errors
from resilient_pq.cli.input.text_parser import TextOptions
from resilient_pq.errors import FormatError, Where
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
