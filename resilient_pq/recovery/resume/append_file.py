"""`append`: write rows behind the end of a complete file. An async shell."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.errors import (
    AlreadyExistsError,
    FormatError,
    KeyMissingError,
    NotFoundError,
    ObjectChangedError,
    OptionError,
    RecoveryError,
    UnsupportedError,
    Where,
    WriterFencedError,
    located,
)
from resilient_pq.format.footer import DATASET_KEY
from resilient_pq.io import (
    FetchCounters,
    Lease,
    LeaseTerms,
    LocalStore,
    MultipartStore,
    ObjectSink,
    RetryPolicy,
    SinkOptions,
    WriteStore,
    find_epoch,
    with_retry,
)
from resilient_pq.io.local_sink import LocalSink
from resilient_pq.io.resolve import Opening
from resilient_pq.io.upload.lease import told_of_loss
from resilient_pq.io.upload.upload_start import abort_after, upload_command
from resilient_pq.reader.contents import Contents, FileState, chunk_range
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.report import recovered_name
from resilient_pq.recovery.resume.resume_layout import layout_behind_all
from resilient_pq.recovery.resume.resume_upload import new_upload
from resilient_pq.shell_commands import in_shell
from resilient_pq.writer.creation import sink_options_of, writer_of
from resilient_pq.writer.file_encoder import FileEncoder
from resilient_pq.writer.file_layout import Buffers
from resilient_pq.writer.file_writer import Resumed, Writer
from resilient_pq.writer.option_keywords import ResumeKeywords, known_options, takes_options
from resilient_pq.writer.write_options import EncoderOptions

_ENCRYPTED = "the file is encrypted: rows cannot be appended to it"
_BUSY = "somebody else began to write this object just now"
_WHEN_REPLACED = "append the rows again to what is there now; what was written behind the earlier version is of no use"


@takes_options(ResumeKeywords)
def append(
    url: str | os.PathLike[str] | tuple[WriteStore, str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[ResumeKeywords],
) -> Opening[Writer]:
    """Write rows behind the end of a complete Parquet file, of any writer.

    Use it as ``async with rpq.append(url) as writer``. Readers see the file as it was until the block ends without an
    exception, and then all of it. Row groups that are there are not read or written again: they keep their statistics,
    page indexes, bloom filters and sort order, and the file keeps its schema and its key-value metadata. Rows have to
    fit the schema as those of `Writer.write` do.

    On S3 the store itself copies what is there, and less than a MiB of it passes through here. A local file is copied
    to ``NAME.partial``; a file system that can do so shares the blocks. Where the writer is killed the file is as it
    was; `resume` goes on with the rows that were stored, and ``rpq uploads abort``, or removing ``NAME.partial``, drops
    them. Of several who append to a file at one time one does, and the others are told to append again.

    The old footer stays in the file, so that each append costs its size once more. Where no rows are written and no
    key-value metadata are added, the file stays as it is.

    Args:
        url: The file: a URL, a path, or a pair of a store and a key in it.
        **options_given: How the rows are written: `ResumeKeywords`, as of `create`.
        fencing: As of `create`. With "none", of two who append at one time both write, and one of them completes.
        encryption: None: rows are appended to files that are not encrypted, and are not either.
        parity: As of `create`, for what is appended; None for the share that the file has, or for none.
        options: The less common settings; `overwrite_partial` drops the rows of an earlier append that was killed.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range, or names a column that the file does not have.
        NotFoundError: On entering, as all that follow: there is no such file.
        AlreadyExistsError: Somebody else writes the file, or an earlier writer was killed and left rows behind.
        ObjectChangedError: The file was replaced meanwhile; on leaving, too. Append again.
        RecoveryError: The file is damaged, was not finished, is part of a data set, or a summary of other files.
        UnsupportedError: The file is encrypted, or the store can neither copy nor rename.
        StoreError: The store refuses.
    """
    storage_options = with_retry(storage_options, retry)
    options = EncoderOptions(**known_options(append, options_given))
    if options.encryption is not None:
        raise OptionError("rows that are appended cannot be encrypted", hint="write another file beside it")
    sink_options = replace(sink_options_of(options.write, "w"), when_replaced=_WHEN_REPLACED)

    async def begin(store: WriteStore, key: str) -> tuple[ObjectSink, Resumed]:
        with located(Where(key=store.url_of(key))):
            return await _opened(store, key, options, sink_options)

    return writer_of(url, storage_options, begin, schema=None, options=options)


async def _opened(
    store: WriteStore, key: str, options: EncoderOptions, sink_options: SinkOptions
) -> tuple[ObjectSink, Resumed]:
    if not isinstance(store, LocalStore | MultipartStore):
        raise UnsupportedError(
            f"{store.name} can neither copy nor rename: rows cannot be appended there",
            hint="local files and S3 can be appended to; elsewhere write another file beside it",
        )
    try:
        info = await store.head(key)
    except NotFoundError as error:
        error.hint = "begin it: rpq.create (`rpq write`)"
        raise
    source = DamagedObject(store, key, store.url_of(key), info, FetchCounters(), owns_store=False)
    contents = await _whole(source)
    ingest = Ingest.from_file(contents.schema, contents.key_value)
    orders = contents.metadata.column_orders or ()
    if any(order.TYPE_ORDER is None for order in orders):
        # Bounds are made in the order of the type: in a column of another order they would say something untrue.
        options = replace(options, options=replace(options.write, statistics=False))
    layout = await layout_behind_all(source, contents, options.parity_share)
    checkpoint = layout.checkpoint()
    resumed = Resumed(FileEncoder(layout, options), ingest, info)
    if isinstance(store, LocalStore):
        return await _copied(store, source, sink_options, checkpoint), resumed
    return await _uploaded(store, source, sink_options, checkpoint, layout.file_id, options.fencing == "lease"), resumed


async def _whole(source: DamagedObject) -> Contents:
    """What the footer of a file says that can be appended to."""
    try:
        contents = await source.contents()
    except KeyMissingError as error:
        raise UnsupportedError(_ENCRYPTED) from error
    if isinstance(contents, FormatError):
        raise _damaged(source, contents.message) from contents
    _refuse_other_kinds(contents)
    reason = _contradiction(contents)
    if contents.unvouched or not await source.begins_with_magic() or contents.footer.end != source.info.size:
        reason = "its footer or its beginning is not as it was written"
    if reason is not None:
        raise _damaged(source, reason)
    return contents


def _refuse_other_kinds(contents: Contents) -> None:
    """Raise for files that are whole and that no rows can be appended to."""
    if contents.data_files:
        raise RecoveryError("it is a summary: its rows lie in other files", hint="append to one of those")
    if contents.metadata.encryption_algorithm is not None:
        raise UnsupportedError(_ENCRYPTED)
    if contents.state is FileState.IN_PROGRESS:
        raise RecoveryError(
            "its writer did not finish it", hint="go on with it: rpq.resume (`rpq resume`), which completes it"
        )
    if DATASET_KEY in contents.key_value and contents.state is not None:
        raise RecoveryError(
            "the file is one of a data set, whose files count their rows",
            hint="append to the data set: rpq.resume_dataset (`rpq write --resume`)",
        )


def _contradiction(contents: Contents) -> str | None:
    """What is wrong with the places that a footer names; None where all chunks lie before it."""
    try:
        for row_group in contents.metadata.row_groups:
            for chunk in row_group.columns:
                if chunk.meta_data is None:
                    return "a column chunk has no metadata"
                chunk_range(chunk.meta_data, contents.data_end)
    except FormatError as error:
        return error.message
    return None


def _damaged(source: DamagedObject, reason: str) -> RecoveryError:
    hint = f"see what is wrong: {in_shell('check', source.url)}; keep what is whole: "
    hint += in_shell("recover", source.url, recovered_name(source.url))
    return RecoveryError(f"the file is damaged, and nothing was appended: {reason}", hint=hint)


async def _copied(store: LocalStore, source: DamagedObject, options: SinkOptions, checkpoint: Buffers) -> ObjectSink:
    """``NAME.partial`` with the bytes of the file, and a checkpoint behind them."""
    try:
        sink = await LocalSink.copying(source.url, source.info, options)
    except AlreadyExistsError as error:
        if await store.has_writer(store.unfinished_key(source.key)):
            error.hint = "wait until it has ended, and append again"
        raise
    try:
        await sink.write(*checkpoint)
        await sink.commit()
    except BaseException as error:
        await abort_after(sink, error)
        raise
    return sink


async def _uploaded(
    store: MultipartStore,
    source: DamagedObject,
    options: SinkOptions,
    checkpoint: Buffers,
    file_id: bytes,
    fenced: bool,
) -> ObjectSink:
    """An upload that begins with the bytes of the object, and a checkpoint behind them."""
    lease = await _taken_lease(store, source, file_id) if fenced else None
    try:
        async with told_of_loss(lease):
            return await new_upload(store, source, store.upload_options(options), lease, checkpoint)
    except WriterFencedError as error:
        raise ObjectChangedError(_BUSY, hint="append again") from error
    except BaseException:
        if lease is not None and lease.is_held:
            await lease.release()
        raise


async def _taken_lease(store: MultipartStore, source: DamagedObject, file_id: bytes) -> Lease:
    """The lease of an object that nobody writes, and that is still the version which is appended to."""
    key, found = source.key, await find_epoch(store, source.key)
    if found is not None:
        left = {each.upload_id for each in await store.uploads_of(key)} & set(found.epoch.uploads)
        if left:
            raise AlreadyExistsError(
                "somebody else writes this object, or was killed and left rows in an upload",
                hint="wait until it has ended, and append again; after a kill `rpq resume` (rpq.resume) continues it,"
                f" and this drops its rows: {upload_command(store, 'abort', key, '--upload-id', min(left))}",
            )
    terms = LeaseTerms(file_id.hex(), exclusive=True, found=found, standing=source.info.etag, appends=True)
    lease = Lease(store, key, terms)
    try:
        await lease.take()
    except WriterFencedError as error:
        raise ObjectChangedError(_BUSY, hint="append again") from error
    return lease
