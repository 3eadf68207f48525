"""`create`: what a caller says of a new file, checked, and the writer that comes of it. An async shell."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, TypeVar

from resilient_pq.errors import SchemaError
from resilient_pq.io import (
    WRITING,
    LeaseTerms,
    ObjectSink,
    RetryPolicy,
    SinkOptions,
    WriteStore,
    with_retry,
)
from resilient_pq.io.resolve import reach
from resilient_pq.units import MiB
from resilient_pq.writer.checkpoint_log import CheckpointLog
from resilient_pq.writer.file_writer import Resumed, Writer
from resilient_pq.writer.write_options import MAX_UNSTORED_SECONDS, EncoderOptions, WriteOptions

Location = str | os.PathLike[str] | tuple[WriteStore, str]
#: Begins or takes over an object: gives the sink of its bytes, and what is in place already.
Beginning = Callable[[WriteStore, str], Awaitable[tuple[ObjectSink, Resumed | None]]]


class Ending(Protocol):
    """What writes, and ends as the block does in which it is used."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Publish on success; after an exception publish nothing and keep what is stored."""


W = TypeVar("W", bound=Ending)


class Creation(Generic[W]):
    """What `create` and its like give: ``async with`` or ``await`` it to have the writer."""

    def __init__(self, opening: Callable[[], Coroutine[Any, Any, W]]) -> None:
        """Keep what opens the writer until it is asked for."""
        self._opening = opening
        self._writer: W | None = None

    def __await__(self) -> Generator[Any, None, W]:
        """Open the writer; the caller closes it."""
        return (yield from self._opening().__await__())

    async def __aenter__(self) -> W:
        """Open the writer."""
        self._writer = await self
        return self._writer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Publish on success; after an exception publish nothing and keep what is stored."""
        assert self._writer is not None
        await self._writer.__aexit__(kind, error, traceback)


def create(
    url: str | os.PathLike[str] | tuple[WriteStore, str],
    schema: object | None = None,
    *,
    compression: str | None = "zstd",
    compression_level: int | None = None,
    encodings: str | Mapping[str, str] = "auto",
    row_group_rows: int | None = None,
    row_group_bytes: int = 64 * MiB,
    page_bytes: int = 1 * MiB,
    checkpoint_every: int | None = 8,
    checkpoint_overhead: float = 0.02,
    max_unstored_seconds: float | None = MAX_UNSTORED_SECONDS,
    mode: Literal["w", "x"] = "w",
    on_error: Literal["keep", "abort"] = "keep",
    metadata: Mapping[str, str] | None = None,
    fencing: Literal["lease", "none"] = "lease",
    options: WriteOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> Creation[Writer]:
    """Begin a resilient Parquet file.

    Use it as ``async with rpq.create(url) as writer``. The object appears under its name when the block ends
    without an exception, and not before.

    Args:
        url: A URL ("s3://bucket/key", any fsspec URL), a path, or a pair of a store and a key in it.
        schema: Anything with ``__arrow_c_schema__``, or a `Schema`: of `Schema.parse`, or of another file. A
            `Schema` is written as it is, with its repeated fields, its annotations and its carriers of decimals;
            a record that leaves a repeated field out has no elements of it. None takes the schema from the first
            batch.
        compression: "zstd", "snappy", "gzip", "brotli", "lz4_raw" or "none".
        compression_level: The codec's level; None is its default (zstd 3, gzip 2, brotli 4).
        encodings: "auto", for the smallest of those that every reader decodes; "compact", for the smallest of those
            that readers of recent years do, which floating point gains most by; one encoding for all columns
            ("PLAIN", "RLE_DICTIONARY"), or a dict by column.
        row_group_rows: Rows after which a row group is closed; None leaves it to `row_group_bytes`.
        row_group_bytes: Bytes in memory after which a row group is closed.
        page_bytes: Bytes after which a data page is cut at the next row: of dictionary indices, else of values as
            PLAIN has them, both before compression.
        checkpoint_every: Row groups between automatic checkpoints, at least, though a complete row group does not wait
            for more than a minute; None for none.
        checkpoint_overhead: Share of the bytes written that automatic checkpoints may take.
        max_unstored_seconds: Seconds after which a row that was taken is stored, so that it survives a kill of this
            process, and on local disks a loss of power; None for no such bound. A timer sees to it when nothing more is
            written. Where rows come slowly this makes small row groups, and on S3 sends the last part again and
            writes a checkpoint each time, whatever `checkpoint_overhead` says. Rows are late where the store does not
            answer, which the log tells, and are stored at the end only where a store takes whole objects alone.
        mode: "w" replaces an object of this name when the file is complete, "x" fails if there is one.
        on_error: What becomes of stored rows after an exception: "keep" them for a recovery, or "abort".
        metadata: Key-value metadata for the footer.
        fencing: What keeps another writer from being told that its rows of this file are stored, on S3: "lease", an
            epoch object ``_NAME.rpq-epoch`` beside the object while an upload is open; or "none": then two who go on
            with the file at one time may both be told so, a writer that was taken for dead may be told so of rows that
            are lost, and a file smaller than a part cannot be resumed twice without a word. `Writer.fencing` says what
            the store can keep of it.
        options: The less common settings.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range.
        StoreError: On entering: the store refuses.
    """
    storage_options = with_retry(storage_options, retry)
    rest = check_options(options, on_error)
    encoder_options = EncoderOptions(
        compression, compression_level, encodings, row_group_rows, row_group_bytes, page_bytes,
        checkpoint_every, checkpoint_overhead, metadata, rest, max_unstored_seconds=max_unstored_seconds,
    )  # fmt: skip
    return new_file(
        url,
        storage_options,
        schema=schema,
        options=encoder_options,
        mode=mode,
        on_error=on_error,
        fencing=check_fencing(fencing),
    )


def new_file(
    url: Location,
    storage_options: Mapping[str, Any] | None,
    *,
    schema: object | None,
    options: EncoderOptions,
    mode: Literal["w", "x"],
    on_error: Literal["keep", "abort"],
    fencing: Literal["lease", "none"] = "none",
    alone: bool = False,
) -> Creation[Writer]:
    """A writer to a new object, as of `create`; `alone` refuses to take over the lease of an unfinished file."""
    file_id = new_file_id()
    lease = LeaseTerms(file_id.hex(), exclusive=alone) if fencing == "lease" else None
    sink_options = replace(sink_options_of(options.write, mode), lease=lease)

    async def begin(store: WriteStore, key: str) -> tuple[ObjectSink, None]:
        return await store.create(key, sink_options), None

    return writer_of(url, storage_options, begin, schema=schema, options=options, on_error=on_error, file_id=file_id)


def new_file_id() -> bytes:
    """The id of a new file: nobody can guess it, so that no row can hold a record of it."""
    return os.urandom(16)


def writer_of(
    url: Location,
    storage_options: Mapping[str, Any] | None,
    begin: Beginning,
    *,
    schema: object | None,
    options: EncoderOptions,
    on_error: Literal["keep", "abort"],
    file_id: bytes | None = None,
) -> Creation[Writer]:
    """A writer to an object, whichever way that is begun."""
    log_path = options.write.checkpoint_log

    async def opening() -> Writer:
        store, key = await reach(url, storage_options, retry=WRITING)
        owns_store = not isinstance(url, tuple)
        checkpoint_log: CheckpointLog | None = None
        try:
            checkpoint_log = None if log_path is None else CheckpointLog.open(log_path)
            sink, resumed = await begin(store, key)
        except BaseException:
            if checkpoint_log is not None:
                checkpoint_log.close()
            if owns_store:
                await store.close()
            raise
        return Writer(
            store,
            key,
            sink,
            schema=schema,
            options=options,
            on_error=on_error,
            owns_store=owns_store,
            checkpoint_log=checkpoint_log,
            resumed=resumed,
            file_id=file_id,
        )

    return Creation(opening)


def check_fencing(fencing: str) -> Literal["lease", "none"]:
    """What is said of fencing."""
    if fencing not in ("lease", "none"):
        raise SchemaError(f"fencing is {fencing!r}; it is 'lease' or 'none'")
    return "lease" if fencing == "lease" else "none"


def check_options(options: WriteOptions | None, on_error: str) -> WriteOptions:
    """The less common settings, or their defaults."""
    if on_error not in ("keep", "abort"):
        raise SchemaError(f"on_error is {on_error!r}; it is 'keep' or 'abort'")
    rest = WriteOptions() if options is None else options
    if not isinstance(rest, WriteOptions):
        raise SchemaError(f"options is {options!r}; it takes WriteOptions")
    return rest


def sink_options_of(options: WriteOptions, mode: Literal["w", "x"]) -> SinkOptions:
    """What a store is told of the settings."""
    try:
        return SinkOptions(
            mode=mode,
            part_bytes=options.part_bytes,
            max_part_bytes=options.max_part_bytes,
            equal_parts=options.equal_parts,
            max_bytes_in_flight=options.max_bytes_in_flight,
            undecided_grace=options.undecided_grace,
            overwrite_partial=options.overwrite_partial,
            permissions=options.permissions,
        )
    except ValueError as error:
        raise SchemaError(str(error)) from None
