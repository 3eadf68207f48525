"""`resume`: go on with a file that its writer left unfinished. An async shell.

What is in place stays there, byte for byte; the writer goes on behind it with the same file id and the next epoch.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from resilient_pq.arrow.ingest import Ingest
from resilient_pq.errors import (
    AlreadyExistsError,
    NotFoundError,
    RecoveryError,
    UnsupportedError,
    Where,
    located,
)
from resilient_pq.io import (
    LocalStore,
    MultipartStore,
    ObjectSink,
    RetryPolicy,
    SinkOptions,
    WriteStore,
    with_retry,
)
from resilient_pq.recovery.choose import Candidates
from resilient_pq.recovery.continued import continued
from resilient_pq.recovery.in_place import whole_prefix
from resilient_pq.recovery.resume_upload import new_upload, unfinished_object, up_to_checkpoint
from resilient_pq.recovery.source import Source, open_source
from resilient_pq.writer.checkpoint_log import read_log
from resilient_pq.writer.creation import Creation, check_options, sink_options_of, writer_of
from resilient_pq.writer.encoder import Encoder
from resilient_pq.writer.options import MAX_UNSTORED_SECONDS, EncoderOptions, MiB, WriteOptions
from resilient_pq.writer.stream import Resumed, Writer


@dataclass(frozen=True, slots=True)
class _Request:
    """What a resumption was asked for, checked.

    Attributes:
        store: Where the file is.
        key: Its name there.
        options: How what comes is encoded.
        sink_options: How it is stored.
        upload_id: Which upload, where the caller chose one.
        overwrite: Whether what stands under the name of the file may be replaced.
    """

    store: WriteStore
    key: str
    options: EncoderOptions
    sink_options: SinkOptions
    upload_id: str | None
    overwrite: bool

    @property
    def where(self) -> Where:
        """The file, for errors."""
        return Where(key=self.store.url_of(self.key))

    async def behind(self, source: Source, candidates: Candidates) -> Resumed:
        """What a writer needs to go on behind the bytes that are in place."""
        contents = candidates.contents
        ingest = Ingest.from_file(contents.schema, contents.key_value)
        return Resumed(Encoder(await continued(source, candidates), self.options), ingest)


def resume(
    url: str | os.PathLike[str] | tuple[WriteStore, str],
    *,
    upload_id: str | None = None,
    overwrite: bool = False,
    compression: str | None = "zstd",
    compression_level: int | None = None,
    encodings: str | Mapping[str, str] = "auto",
    row_group_rows: int | None = None,
    row_group_bytes: int = 64 * MiB,
    page_bytes: int = 1 * MiB,
    checkpoint_every: int | None = 8,
    checkpoint_overhead: float = 0.02,
    max_unstored_seconds: float | None = MAX_UNSTORED_SECONDS,
    on_error: Literal["keep", "abort"] = "keep",
    options: WriteOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> Creation[Writer]:
    """Go on with a file that its writer left unfinished.

    Use it as ``async with rpq.resume(url) as writer``. The first ``writer.num_rows_stored`` rows are in the file
    already: the source goes on with the row after them. Schema, key-value metadata and file id stay what they are;
    how the rest is encoded is for the caller to say anew.

    A local file goes on in its ``NAME.partial``, which is locked first; what is torn at its end is cut off. On S3 the
    upload that was left open is completed up to its newest checkpoint, so that an unfinished object stands under the
    name and the first writer can do nothing more; a new upload begins with a copy of it, made by the store, and
    replaces that object, and no other, when the file is complete.

    Args:
        url: What was given to `create`: a URL, a path, or a pair of a store and a key in it.
        upload_id: Which upload to go on with, where several are open for this object.
        overwrite: Replace another file that has the name already: at once where an upload has to be completed to be
            gone on with, else when the file is complete.
        compression: As `create` takes it, like all that follows.
        compression_level: The codec's level.
        encodings: "auto", "compact", one encoding for all columns, or a dict by column.
        row_group_rows: Rows after which a row group is closed.
        row_group_bytes: Bytes in memory after which a row group is closed.
        page_bytes: Bytes after which a data page is cut at the next row.
        checkpoint_every: Row groups between automatic checkpoints, at least; None for none.
        checkpoint_overhead: Share of the bytes written that automatic checkpoints may take.
        max_unstored_seconds: Seconds after which a row that was taken is stored; None for no such bound.
        on_error: What becomes of stored rows after an exception: "keep" them, or "abort", which removes a local
            ``NAME.partial`` with what was in it before.
        options: The less common settings; `overwrite_partial` means nothing here.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range, or names a column that the file does not have.
        NotFoundError: On entering, as all that follow: nothing was left unfinished under this name.
        AlreadyExistsError: A living writer holds the file, or another one has its name and `overwrite` is False.
        RecoveryError: What was left holds nothing to go on with, ended already, or is damaged; or several uploads are
            open and none was named.
        UnsupportedError: The store keeps nothing of what is unfinished.
        StoreError: The store refuses.
    """
    storage_options = with_retry(storage_options, retry)
    rest = check_options(options, on_error)
    encoder_options = EncoderOptions(
        compression, compression_level, encodings, row_group_rows, row_group_bytes, page_bytes,
        checkpoint_every, checkpoint_overhead, None, rest, max_unstored_seconds=max_unstored_seconds,
    )  # fmt: skip
    sink_options = sink_options_of(rest, "w" if overwrite else "x")

    async def begin(store: WriteStore, key: str) -> tuple[ObjectSink, Resumed]:
        request = _Request(store, key, encoder_options, sink_options, upload_id, overwrite)
        with located(request.where):
            return await _opened(request)

    return writer_of(url, storage_options, begin, schema=None, options=encoder_options, on_error=on_error)


async def _opened(request: _Request) -> tuple[ObjectSink, Resumed]:
    if isinstance(request.store, LocalStore):
        if request.upload_id is not None:
            raise RecoveryError("local files have no uploads", hint="leave upload_id out")
        return await _local(request.store, request)
    if isinstance(request.store, MultipartStore):
        return await _uploaded(request.store, request)
    raise UnsupportedError(
        f"{request.store.name} keeps nothing of a file that is not complete",
        hint="local files and S3 can be resumed; elsewhere write the file again",
    )


async def _local(store: LocalStore, request: _Request) -> tuple[ObjectSink, Resumed]:
    """Take ``NAME.partial`` over, see what of it is whole, and cut the rest off."""
    try:
        sink = await store.reopen(request.key, request.sink_options)
    except NotFoundError as error:
        raise await _nothing_left(request) from error
    except AlreadyExistsError as error:
        # A living writer's lock comes with its own.
        error.hint = error.hint or "what has the name is replaced, when this is complete, with overwrite=True"
        raise
    try:
        async with await open_source((LocalStore(), sink.describe()), None) as source:
            candidates = await whole_prefix(source)
            resumed = await request.behind(source, candidates)
        assert candidates.prefix_end is not None
        await sink.truncate(candidates.prefix_end)
    except BaseException:
        await sink.keep()
        raise
    return sink, resumed


async def _uploaded(store: MultipartStore, request: _Request) -> tuple[ObjectSink, Resumed]:
    """Have what was left as an object, and begin a new upload with its bytes."""
    options = store.upload_options(request.sink_options)
    path = request.options.write.checkpoint_log
    logged = [] if path is None else await asyncio.to_thread(read_log, path)
    source = await unfinished_object(
        store,
        request.key,
        upload_id=request.upload_id,
        overwrite=request.overwrite,
        logged={known.upload_id: known.file_id for known in logged if known.upload_id and known.file_id},
    )
    resumed = await request.behind(source, await up_to_checkpoint(source))
    return await new_upload(store, source, options), resumed


async def _nothing_left(request: _Request) -> RecoveryError | NotFoundError:
    if await request.store.exists(request.key):
        return RecoveryError(
            "there is nothing to go on with: the file is complete",
            hint="a complete file cannot be added to; write another one beside it",
        )
    return NotFoundError("no unfinished file of this name", hint="begin it: create, or look at the path")
