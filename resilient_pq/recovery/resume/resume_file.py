"""`resume` and `create_or_resume`: continue a file that its writer left unfinished. An async shell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.errors import (
    AlreadyExistsError,
    FormatError,
    NotFoundError,
    ObjectChangedError,
    RecoveryError,
    UnsupportedError,
    Where,
    located,
)
from resilient_pq.io import (
    LeaseTerms,
    LocalStore,
    MultipartStore,
    ObjectSink,
    RetryPolicy,
    SinkOptions,
    WriteStore,
    with_retry,
)
from resilient_pq.io.resolve import Opening
from resilient_pq.io.upload.lease import told_of_loss
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery.damaged_object import DamagedObject, open_source
from resilient_pq.recovery.evidence.row_group_choice import Candidates
from resilient_pq.recovery.resume.resume_layout import layout_behind
from resilient_pq.recovery.resume.resume_local import appended_version, refuse_encrypted, was_torn_at_once, whole_prefix
from resilient_pq.recovery.resume.resume_upload import ADDING, new_upload, up_to_checkpoint
from resilient_pq.recovery.resume.take_over import ResumeTarget, TakenOver, take_over
from resilient_pq.writer.checkpoint_log import read_log
from resilient_pq.writer.creation import new_file_id, sink_options_of, writer_of
from resilient_pq.writer.file_encoder import FileEncoder
from resilient_pq.writer.file_writer import Resumed, Writer
from resilient_pq.writer.option_keywords import CreateKeywords, ResumeKeywords, known_options, takes_options
from resilient_pq.writer.write_options import EncoderOptions


@dataclass(frozen=True, slots=True)
class _Request:
    """What a resumption was asked for, checked; `new_id` is that of the file to begin where nothing is stored."""

    store: WriteStore
    key: str
    options: EncoderOptions
    sink_options: SinkOptions
    upload_id: str | None
    overwrite: bool
    new_id: bytes | None = None

    @property
    def where(self) -> Where:
        """The file, for errors."""
        return Where(key=self.store.url_of(self.key))

    async def behind(self, source: DamagedObject, candidates: Candidates) -> Resumed:
        """What a writer needs to continue behind the bytes that are in place."""
        contents = candidates.contents
        ingest = Ingest.from_file(contents.schema, contents.key_value)
        layout = await layout_behind(source, candidates, self.options.parity_share)
        return Resumed(FileEncoder(layout, self.options), ingest)

    async def behind_sealed(self, source: DamagedObject, named: Candidates | None = None) -> Resumed:
        """The same of an encrypted file: behind what its footer has `named`, or behind what is whole of it."""
        from resilient_pq.recovery.resume.sealed_prefix import sealed_layout  # noqa: PLC0415 (few files are encrypted)

        layout, contents = await sealed_layout(source, self.options, named)
        return Resumed(FileEncoder(layout, self.options), Ingest.from_file(contents.schema, contents.key_value))


@takes_options(ResumeKeywords)
def resume(
    url: str | os.PathLike[str] | tuple[WriteStore, str],
    *,
    upload_id: str | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[ResumeKeywords],
) -> Opening[Writer]:
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
        **options_given: How the rest is written: `ResumeKeywords`, as of `create`.
        on_error: What becomes of stored rows after an exception: "keep" them, or "abort", which removes a local
            ``NAME.partial`` with what was in it before.
        fencing: As of `create`. With "lease" the writer before is told of nothing more that it is stored, and of
            several who resume at one moment one does.
        options: The less common settings; `overwrite_partial` means nothing here.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range, or names a column that the file does not have.
        NotFoundError: On entering, as all that follow: nothing was left unfinished under this name.
        AlreadyExistsError: A living writer holds the file, or another one has its name and `overwrite` is False.
        RecoveryError: What was left holds nothing to go on with, ended already, or is damaged; or several uploads are
            open and none was named.
        WriterFencedError: Somebody else resumed the file at this moment.
        UnsupportedError: The store keeps nothing of what is unfinished.
        StoreError: The store refuses.
    """
    storage_options = with_retry(storage_options, retry)
    options = EncoderOptions(**known_options(resume, options_given))
    sink_options = sink_options_of(options.write, "w" if overwrite else "x")

    async def begin(store: WriteStore, key: str) -> tuple[ObjectSink, Resumed | None]:
        request = _Request(store, key, options, sink_options, upload_id, overwrite)
        with located(request.where):
            return await _opened(request)

    return writer_of(url, storage_options, begin, schema=None, options=options)


@takes_options(CreateKeywords)
def create_or_resume(
    url: str | os.PathLike[str] | tuple[WriteStore, str],
    schema: object | None = None,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[CreateKeywords],
) -> Opening[Writer]:
    """Begin a file, or go on with it where an earlier writer left it: one call for the first start and for every other.

    Use it as ``async with rpq.create_or_resume(url) as writer``. The first ``writer.num_rows_stored`` rows are in the
    file already, none of a new one: the source goes on with the row after them. However often it is killed and called
    again, each row that was ever said to be stored is in the file once.

    Of several programs that call it for one file the newest wins: it takes the file over, and the others raise
    `WriterFencedError`. A program that is restarted after that error takes the file back, so two of them would do so
    without end: a supervisor restarts a program after every other failure, and ends it after this one.

    Args:
        url: As of `create`.
        schema: As of `create`, for a new file; one that is gone on with keeps its own.
        overwrite: Replace another object of this name, complete or not ours: when the new file is complete, or at once
            where an upload has to be completed to be gone on with. Locally it also replaces a ``NAME.partial`` in which
            nothing is whole.
        **options_given: How the file is written: `CreateKeywords`, as of `create`.
        metadata: Key-value metadata for the footer of a new file.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range, or names a column that the file does not have.
        AlreadyExistsError: On entering, as all that follow: a complete file has this name, or another object, and
            `overwrite` is False; or a living writer holds the local file.
        WriterFencedError: Somebody else begins or resumes the file at this moment; also raised by every later call of
            a writer whose file somebody else has gone on with, or has completed.
        ObjectChangedError: Somebody else has written the object meanwhile, without the lease.
        RecoveryError: What was left is damaged; or, of writers without a lease, several uploads are open.
        StoreError: The store refuses.
    """
    storage_options = with_retry(storage_options, retry)
    options = EncoderOptions(**known_options(create_or_resume, options_given))
    sink_options = sink_options_of(options.write, "w" if overwrite else "x")
    file_id = new_file_id()

    async def begin(store: WriteStore, key: str) -> tuple[ObjectSink, Resumed | None]:
        request = _Request(store, key, options, sink_options, None, overwrite, file_id)
        with located(request.where):
            return await _opened(request)

    return writer_of(url, storage_options, begin, schema=schema, options=options, file_id=file_id)


async def _opened(request: _Request) -> tuple[ObjectSink, Resumed | None]:
    store = request.store
    if isinstance(store, LocalStore):
        if request.upload_id is not None:
            raise RecoveryError("local files have no uploads", hint="leave upload_id out")
        return await (_local(store, request) if request.new_id is None else _local_or_new(store, request))
    if isinstance(store, MultipartStore):
        return await _uploaded(store, request)
    if request.new_id is not None:
        return await store.create(request.key, request.sink_options), None
    raise UnsupportedError(
        f"{store.name} keeps nothing of a file that is not complete",
        hint="local files and S3 can be resumed; elsewhere write the file again",
    )


async def _local_or_new(store: LocalStore, request: _Request) -> tuple[ObjectSink, Resumed | None]:
    """Go on with ``NAME.partial``, or begin one; its lock keeps all others from both."""
    options = request.sink_options
    try:
        return await _local(store, request)
    except NotFoundError:
        pass
    except RecoveryError:
        if await store.exists(store.unfinished_key(request.key)):
            if not await was_torn_at_once(store, request.key):
                raise
            options = replace(options, overwrite_partial=True)
        elif not request.overwrite:  # the file is complete
            raise AlreadyExistsError(
                "a complete file has this name", hint="replace it by a new file: overwrite=True"
            ) from None
    return await store.create(request.key, options), None


async def _local(store: LocalStore, request: _Request) -> tuple[ObjectSink, Resumed]:
    """Take ``NAME.partial`` over, see what of it is whole, and cut the rest off."""
    options = await _sink_options(store, request)
    try:
        sink = await store.reopen(request.key, options)
    except NotFoundError as error:
        raise await _nothing_left(request) from error
    except AlreadyExistsError as error:
        # A living writer's lock comes with its own.
        error.hint = error.hint or "what has the name is replaced, when this is complete, with overwrite=True"
        raise
    try:
        async with await open_source((LocalStore(), sink.describe()), None) as source:
            resumed = await _behind_whole(source, request)
        await sink.truncate(resumed.encoder.layout.offset)
    except BaseException:
        await sink.keep()
        raise
    return sink, resumed


async def _behind_whole(source: DamagedObject, request: _Request) -> Resumed:
    """What a writer needs to continue behind what is whole of a file."""
    if request.options.encryption is not None:
        return await request.behind_sealed(source)
    await refuse_encrypted(source)
    return await request.behind(source, await whole_prefix(source))


async def _sink_options(store: LocalStore, request: _Request) -> SinkOptions:
    """How ``NAME.partial`` becomes the file: in place of the version that rows of it were appended to."""
    options = request.sink_options
    if request.new_id is not None or options.mode == "w":
        return options
    base = await appended_version(store, request.key)
    if base is None or not await store.exists(request.key):
        return options
    if (await store.head(request.key)).etag != base:
        raise AlreadyExistsError(
            "the file was written since rows were appended to it, and would lose what it has now",
            hint="append the rows again; NAME.partial holds them behind the earlier version (`rpq recover`)",
        )
    return replace(options, mode="w", if_match=base)


async def _uploaded(store: MultipartStore, request: _Request) -> tuple[ObjectSink, Resumed | None]:
    """Have what was left as an object, and begin a new upload with its bytes; or begin a new file."""
    options = store.upload_options(
        request.sink_options
    )  # refuses what the store would, before it is asked for anything
    path = request.options.write.checkpoint_log
    logged = [] if path is None else await asyncio.to_thread(read_log, path)
    taken = await take_over(
        ResumeTarget(
            store,
            request.key,
            upload_id=request.upload_id,
            overwrite=request.overwrite,
            fencing=request.options.fencing == "lease",
            or_new=request.new_id is not None,
            logged={each.upload_id: each.file_id for each in logged if each.upload_id and each.file_id},
            encryption=request.options.encryption,
        )
    )
    if taken.source is not None and taken.contents is not None:
        return await _continue_upload(store, request, options, taken, taken.source, taken.contents)
    if request.new_id is None:
        if taken.lease is not None:
            await taken.lease.release()
        raise NotFoundError(
            "no unfinished file of this name", hint="begin it: `rpq write` (create), or look at the key"
        )
    return await store.create(request.key, _options_of_new(request, options, taken, request.new_id)), None


async def _continue_upload(
    store: MultipartStore,
    request: _Request,
    options: SinkOptions,
    taken: TakenOver,
    source: DamagedObject,
    contents: Contents | FormatError,
) -> tuple[ObjectSink, Resumed]:
    async with told_of_loss(taken.lease):
        try:
            candidates = up_to_checkpoint(source, contents)
        except RecoveryError as error:
            if (await store.head(request.key)).etag != source.info.etag:
                raise ObjectChangedError("somebody else has written the object meanwhile") from error
            raise
        is_sealed = request.options.encryption is not None
        resumed = await (request.behind_sealed if is_sealed else request.behind)(source, candidates)
        return await new_upload(store, source, options, taken.lease), resumed


def _options_of_new(request: _Request, options: SinkOptions, taken: TakenOver, new_id: bytes) -> SinkOptions:
    """How a new file is stored: it replaces the object that stands there, and no other, and takes the lease."""
    standing = taken.standing
    etag = None if standing is None else standing.etag
    if request.options.fencing == "lease":
        terms = LeaseTerms(new_id.hex(), exclusive=True, strict=True, found=taken.found, standing=etag)
        options = replace(options, lease=terms)
    return options if standing is None else replace(options, if_match=etag)


async def _nothing_left(request: _Request) -> RecoveryError | NotFoundError:
    if await request.store.exists(request.key):
        return RecoveryError("there is nothing to resume: the file is complete", hint=ADDING)
    return NotFoundError(
        "no unfinished file of this name", hint="check the path; `rpq write` (create) begins a new file"
    )
