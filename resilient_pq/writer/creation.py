"""`create`: what a caller says of a new file, checked, and the writer that comes of it. An async shell."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, Unpack

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.errors import OptionError
from resilient_pq.io import (
    WRITING,
    LeaseTerms,
    ObjectSink,
    RetryPolicy,
    SinkOptions,
    WriteStore,
    with_retry,
)
from resilient_pq.io.cancellation import in_loop
from resilient_pq.io.resolve import Opening, is_local, reach
from resilient_pq.writer.checkpoint_log import CheckpointLog
from resilient_pq.writer.file_writer import Resumed, Writer
from resilient_pq.writer.option_keywords import CreateKeywords, known_options, takes_options
from resilient_pq.writer.write_options import EncoderOptions, WriteOptions

Location = str | os.PathLike[str] | tuple[WriteStore, str]
#: Begins or takes over an object: gives the sink of its bytes, and what is in place already.
Beginning = Callable[[WriteStore, str], Awaitable[tuple[ObjectSink, Resumed | None]]]

#: The newest keywords that were checked, and their options: many files are written with the same ones.
_CHECKED: Final[list[tuple[Mapping[str, Any], EncoderOptions]]] = []


@takes_options(CreateKeywords)
def create(
    url: str | os.PathLike[str] | tuple[WriteStore, str],
    schema: object | None = None,
    *,
    mode: Literal["w", "x"] = "w",
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[CreateKeywords],
) -> Opening[Writer]:
    """Begin a resilient Parquet file.

    Use it as ``async with rpq.create(url) as writer``. The object appears under its name when the block ends
    without an exception, and not before.

    Not every reader takes more than 32,767 row groups in a file (docs/parquet.md): `create_dataset` goes on in new
    files before that. A file whose footer reaches 64 MiB is completed, and the write ends with `FileFullError`.

    Args:
        url: A URL ("s3://bucket/key", any fsspec URL), a path, or a pair of a store and a key in it.
        schema: Anything with ``__arrow_c_schema__``, or a `Schema`: of `Schema.parse`, or of another file. A
            `Schema` is written as it is, with its repeated fields, its annotations and its carriers of decimals;
            a record that leaves a repeated field out has no elements of it. None takes the schema from the first
            batch.
        mode: "w" replaces an object of this name when the file is complete, "x" fails if there is one.
        **options_given: How the file is written: `CreateKeywords`, which `EncoderOptions` describes.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range.
        StoreError: On entering: the store refuses.
    """
    storage_options = with_retry(storage_options, retry)
    options = _options_of(known_options(create, options_given))
    return new_file(url, storage_options, schema=schema, options=options, mode=mode)


def _options_of(given: CreateKeywords) -> EncoderOptions:
    """The options of keywords; those of the file before where all are the same objects, and cannot change."""
    for before, options in _CHECKED:
        if before.keys() == given.keys() and all(before[name] is value for name, value in given.items()):
            return options
    options = EncoderOptions(**given)
    try:
        hash(tuple(given.values()))
    except TypeError:  # a dict, which may be another one by the next file
        return options
    if options.encryption is None:  # keys are not kept longer than their file
        _CHECKED[:] = [(dict(given), options)]
    return options


def new_file(
    url: Location,
    storage_options: Mapping[str, Any] | None,
    *,
    schema: object | None,
    options: EncoderOptions,
    mode: Literal["w", "x"],
    alone: bool = False,
) -> Opening[Writer]:
    """A writer to a new object, as of `create`; `alone` refuses to take over the lease of an unfinished file."""
    if schema is not None and (options.name_columns or options.encryption is not None):
        options.chunk_options(Ingest.from_schema(schema).schema)  # which refuses columns that are not there
    file_id = new_file_id()
    lease = LeaseTerms(file_id.hex(), exclusive=alone) if options.fencing == "lease" else None
    sink_options = sink_options_of(options.write, mode, lease)

    async def begin(store: WriteStore, key: str) -> tuple[ObjectSink, None]:
        return await store.create(key, sink_options), None

    return writer_of(url, storage_options, begin, schema=schema, options=options, file_id=file_id)


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
    file_id: bytes | None = None,
) -> Opening[Writer]:
    """A writer to an object, whichever way that is begun."""
    log_path = options.write.checkpoint_log

    async def opening() -> Writer:
        store, key = await reach(url, storage_options, retry=WRITING)
        owns_store = not isinstance(url, tuple)
        checkpoint_log: CheckpointLog | None = None
        try:
            checkpoint_log = None if log_path is None else CheckpointLog.open(log_path)
            sink, resumed = await begin(store, key)
            settings = options
            if options.encryption is not None and resumed is None:
                settings = await _with_keys(options, (store, key), sink)
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
            options=settings,
            owns_store=owns_store,
            checkpoint_log=checkpoint_log,
            resumed=resumed,
            file_id=file_id,
        )

    return Opening(opening, is_local=is_local(url))


async def _with_keys(options: EncoderOptions, place: tuple[WriteStore, str], sink: ObjectSink) -> EncoderOptions:
    """The options, with keys of this file alone where every file has its own."""
    from resilient_pq.encryption.encryption import EncryptionOfEach  # noqa: PLC0415 (few files are encrypted)

    if not isinstance(options.encryption, EncryptionOfEach):
        return options
    try:
        await in_loop()  # a KMS may take long, and several keys are asked for at once
        return replace(options, encryption=await options.encryption.for_file(place))
    except BaseException:
        await sink.abort()
        raise


def sink_options_of(options: WriteOptions, mode: Literal["w", "x"], lease: LeaseTerms | None = None) -> SinkOptions:
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
            lease=lease,
        )
    except ValueError as error:
        raise OptionError(str(error)) from None
