"""Opening a file: its footer is read and checked. An async shell."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.errors import (
    FormatError,
    NotParquetError,
    StoreError,
    TornFileError,
    UnsupportedError,
    Where,
    located,
)
from resilient_pq.format.footer import MAGIC, TAIL_SIZE, Footer, NeedBytes, read_footer
from resilient_pq.io import FetchCounters, ObjectInfo, ObjectTail, ReadStore, RetryPolicy, counting, with_retry
from resilient_pq.io.cancellation import in_loop
from resilient_pq.io.resolve import Opening, is_local, reach
from resilient_pq.io.transfer.rereads import read_again
from resilient_pq.off_event_loop import PIECE_BYTES, off_loop
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.reader.data_file import remedy
from resilient_pq.reader.file import File
from resilient_pq.reader.read_options import (
    FollowOptions,
    OnLost,
    ReadLimits,
    ReadOptions,
    ReadSettings,
    follow_options,
)

if TYPE_CHECKING:
    from resilient_pq.encryption.decrypted_store import DecryptedStore
    from resilient_pq.encryption.keys import KeysArgument
    from resilient_pq.parity.healed_store import HealedStore
    from resilient_pq.reader.healing import OnHealed

#: Bytes from which on a footer is large.
_LARGE_FOOTER = 1 << 20
#: Bytes that tell which other format a file has.
HEAD_BYTES = 64 * 1024


class IncompleteFileWarning(UserWarning):
    """The file is a checkpoint of a writer that never finished, what a recovery could keep of one, or torn."""


async def read_contents(
    store: ReadStore, key: str, *, tail_bytes: int, counters: FetchCounters, verify: bool = True
) -> tuple[ObjectInfo, Contents]:
    """Read a footer: one request for the object's tail, one more where it is longer, and again where it is damaged."""
    tail, contents = await read_tail_and_contents(store, key, tail_bytes=tail_bytes, counters=counters, verify=verify)
    return tail.info, contents


async def read_tail_and_contents(
    store: ReadStore, key: str, *, tail_bytes: int, counters: FetchCounters, verify: bool = True
) -> tuple[ObjectTail, Contents]:
    """As `read_contents`, with the bytes that were read for it: indexes often lie in them."""
    found: tuple[ObjectTail, Contents] | FormatError

    async def read() -> list[bytes | memoryview]:
        nonlocal found
        parts: list[bytes | memoryview] = []
        try:
            with counting(counters):
                found = await _read_contents(store, key, tail_bytes, counters, parts, verify=verify)
        except FormatError as error:
            found = error
        return parts

    async def is_whole(_: object) -> bool:
        return not isinstance(found, FormatError)

    parts = await read()
    if isinstance(found, FormatError):
        await in_loop()
        # A transfer can go wrong as well as a disk: the bytes are fetched again before this is an error, of any kind: a
        # flipped bit in the magic or the length makes a whole file look torn. What comes twice alike is stored so.
        await read_again(store, read, is_whole, parts)
    if isinstance(found, FormatError):
        raise found
    return found


async def _read_contents(
    store: ReadStore,
    key: str,
    tail_bytes: int,
    counters: FetchCounters,
    read: list[bytes | memoryview],
    *,
    verify: bool,
) -> tuple[ObjectTail, Contents]:
    """As `read_tail_and_contents`, once; `read` is given all bytes that were."""
    tail, found = await _read_footer(store, key, tail_bytes, counters, read)
    contents = await off_loop(found.length // PIECE_BYTES, Contents.of, found)
    vouched = not verify or contents.verified
    if not vouched and await off_loop(found.length // PIECE_BYTES, lambda: contents.unvouched):
        raise FormatError(
            "the record of the footer is damaged: nothing vouches for the footer",
            where=Where(offset=found.start),
            hint=f"{remedy(store.url_of(key))}, or open it with verify=False",
        )
    return tail, contents


async def _read_footer(
    store: ReadStore, key: str, tail_bytes: int, counters: FetchCounters, read: list[bytes | memoryview]
) -> tuple[ObjectTail, Footer]:
    tail = await store.read_tail(key, max(tail_bytes, TAIL_SIZE))
    counters.requests += 1
    counters.bytes += len(tail.data)
    read.append(tail.data)
    data, offset = memoryview(tail.data), tail.offset
    found = await off_loop(len(data) // PIECE_BYTES, read_footer, data, offset)
    if isinstance(found, NeedBytes):
        # To join a large footer takes longer than to read the end of it once more.
        again = offset - found.start > max(_LARGE_FOOTER, 8 * len(data))
        end = offset + len(data) if again else offset
        missing = await store.read_range(key, found.start, end, pin=tail.info)
        counters.requests += 1
        counters.bytes += len(missing)
        read.append(missing)
        whole = missing if again else b"".join([missing, data])
        found = await off_loop(len(whole) // PIECE_BYTES, read_footer, memoryview(whole), found.start)
        if isinstance(found, NeedBytes):
            raise FormatError("the footer does not say where it begins")
    return tail, found


async def open_file(
    store: ReadStore,
    key: str,
    how: ReadSettings,
    *,
    counters: FetchCounters,
    owns_store: bool,
    limits: ReadLimits | None = None,
) -> File:
    """Open one object of a store; `limits` are those that it shares with other files."""
    name, healed = store.url_of(key), None
    if how.keys is not None:
        return await _open_encrypted(store, key, how, counters=counters, owns_store=owns_store, limits=limits)
    read = partial(
        read_tail_and_contents, key=key, tail_bytes=how.options.tail_bytes, counters=counters, verify=how.verify
    )
    try:
        with located(Where(key=name)):
            tail, contents = await read(store)
    except FormatError as error:
        await in_loop()
        healed = await _healed(store, key) if how.heal else None
        if healed is not None:
            with located(Where(key=name)):
                tail, contents = await read(healed)
            store = healed
        elif (
            torn := await _torn(store, key, how, counters=counters, owns_store=owns_store, limits=limits)
        ) is not None:
            return torn
        elif (other := await _of_another_format(store, key, error)) is not None:
            with located(Where(key=name)):
                raise other from error
        else:
            if not isinstance(error, NotParquetError):
                error.hint = error.hint or remedy(name)
            raise
    file = File(store, tail, contents, how, counters=counters, owns_store=owns_store, limits=limits)
    if healed is not None:
        from resilient_pq.reader.healing import HealedChunk, Healer  # noqa: PLC0415 (most files are not damaged)

        healer = Healer(file.objects, how.on_healed)
        healer.note(HealedChunk(name, None, None, healed.num_blocks_rebuilt))
        file.objects.healer = healer
    return file


async def _open_encrypted(store: ReadStore, key: str, how: ReadSettings, **shared: Any) -> File:
    """Open an encrypted object through a view of it in the clear; a cut file is none of the owner's (rollback)."""
    from resilient_pq.reader.healing import HealedChunk, Healer  # noqa: PLC0415 (most files are in the clear)

    healed = None
    try:
        view = await _decrypted(store, key, how)
    except FormatError:
        healed = await _healed(store, key) if how.heal else None
        if healed is None:
            if (torn := await _torn(store, key, how, **shared)) is None:
                raise
            return torn
        view = await _decrypted(healed, key, replace(how, heal=False))
    required = view.encrypted_footer if how.require_complete is None else how.require_complete
    if required and view.state not in (None, FileState.COMPLETE):
        raise not_complete(store.url_of(key), view.state)
    file = await open_file(view, key, replace(how, heal=False, keys=None), **shared)
    healer = Healer(file.objects, how.on_healed)
    view.on_healed = lambda where, num_blocks: healer.note(
        HealedChunk(file.url, where.row_group, where.column, num_blocks)
    )
    if healed is not None:
        healer.note(HealedChunk(file.url, None, None, healed.num_blocks_rebuilt))
    return file


async def _decrypted(store: ReadStore, key: str, how: ReadSettings) -> DecryptedStore:
    """A view of an encrypted object in the clear."""
    from resilient_pq.encryption.decrypted_store import DecryptedStore  # noqa: PLC0415 (most files are in the clear)
    from resilient_pq.encryption.keys import DecryptionKeys  # noqa: PLC0415

    assert how.keys is not None
    keys = DecryptionKeys.of(how.keys, (store, key))
    return await DecryptedStore.open(
        store,
        key,
        keys,
        aad_prefix=how.aad_prefix,
        tail_bytes=how.options.tail_bytes,
        shows_damage=how.on_damage is not OnDamage.RAISE,
        heals=how.heal,
    )


def not_complete(name: str, state: str) -> TornFileError:
    """The error of a file that its writer did not finish, where the caller wants all of it."""
    hint = "it may have been cut on purpose; open it with require_complete=False to read what it has"
    return TornFileError(f"the file is {state}, not complete", where=Where(key=name), hint=hint)


async def _healed(store: ReadStore, key: str) -> HealedStore | None:
    """A view of an object with a damaged footer through parity of this very version; None without any."""
    from resilient_pq.parity.healed_store import HealedStore  # noqa: PLC0415 (most files are not damaged)

    try:
        view = await HealedStore.find(store, await store.head(key))
    except StoreError:  # the damage is the error
        return None
    return view if view is not None and view.is_bound else None


async def _of_another_format(store: ReadStore, key: str, error: FormatError) -> NotParquetError | None:
    """A better error where a file without a footer is of another format."""
    if not isinstance(error, NotParquetError | TornFileError):
        return None
    info = await store.head(key)
    head = bytes(await store.read_range(key, 0, min(HEAD_BYTES, info.size), pin=info))
    if head.startswith(MAGIC):
        return None
    found: NotParquetError | None = import_module("resilient_pq.recovery.evidence.identify").not_parquet(head)
    return found


async def _torn(store: ReadStore, key: str, how: ReadSettings, **shared: Any) -> File | None:
    """What is found of a file without its footer, where the caller wants the rows around damage."""
    if how.on_damage is OnDamage.RAISE:
        return None
    # By its name: the search for row groups is part of `recovery`, which imports this package.
    recovery = import_module("resilient_pq.recovery.torn_file")
    file: File | None = await recovery.open_torn(store, key, how, **shared)
    return file


def warn_of_incomplete(file: File, *, stacklevel: int, required: bool | None = None) -> None:
    """Warn where a file may not have all rows that its writer was given; where all are required, refuse it."""
    if file.lost_at_opening:
        message = f"{file.url} has no footer that can be used; what was found of it has {file.num_rows:,} rows"
    elif file.state in (None, FileState.COMPLETE):
        return
    elif required:
        raise not_complete(file.url, file.state)
    else:
        of_whom = "a file that it names was not finished" if file.data_files else "its writer did not finish it"
        message = f"{file.url} is {file.state}: {of_whom}"
    warnings.warn(message, IncompleteFileWarning, stacklevel=stacklevel + 1)


def open(
    url: str | os.PathLike[str] | tuple[ReadStore, str],
    *,
    verify: bool = True,
    on_damage: Literal["raise", "null", "drop"] = "raise",
    on_lost: OnLost | None = None,
    heal: bool = True,
    on_healed: OnHealed | None = None,
    options: ReadOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    follow: bool | FollowOptions = False,
    keys: KeysArgument | None = None,
    aad_prefix: bytes | None = None,
    require_complete: bool | None = None,
) -> Opening[File]:
    """Open a Parquet file, ours or anyone's, for reading columns by byte range.

    A summary of a folder (``_metadata``) reads as one file with the rows of all files that it names; they are
    found by its place. Values that stand only in the names of folders (``day=1/``) are no columns of it.

    Use it as ``async with rpq.open(url) as file``.

    Args:
        url: A URL ("s3://bucket/key", any fsspec URL), a path, or a pair of a store and a key in it.
        verify: Compare every checksum that the file has.
        on_damage: What is done with rows of which a value is lost, because its page is damaged and nothing else has
            its bytes. "raise" raises the error. "drop" leaves them out, in all columns that are read: other
            `columns=` may give other rows. "null" gives null, so that the columns that may be null keep one row for
            each row of the file; rows are left out where a required column, or one that is a list by repetition
            alone, has lost its value. What is whole costs nothing more than with "raise". With "drop" and "null" a
            file whose footer is missing or damaged is searched for its row groups, and those of which all columns are
            there are read; an IncompleteFileWarning says how many rows these have.
        on_lost: Called with each `LostRegion` when rows are left out or become null, before these rows are given: by
            `File.batches` before the first batch of their row group, by `File.read` when all is read; row group by
            row group, in the order of the bytes. What is read twice is told twice. What a torn file lost between and
            behind its row groups is told once, when it is opened. It is called in the event loop
            (in `resilient_pq.sync` in a thread of ours), so it must not block, and what it raises ends the reading.
        heal: Rebuild damaged bytes from the sidecar beside the file, where `protect` made one. Nothing is read of it
            before something is damaged twice; the first time is told with a `HealedFileWarning`.
        on_healed: Called with each `HealedChunk`, in the event loop as `on_lost`.
        options: How to read.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        follow: For a local file that a writer of ours is writing, under the name that it will have: `File.batches`
            gives the rows of each checkpoint as it appears, and ends when the file is complete. `FollowOptions` say
            how often to look. When the writer ends without completing the file, that is a TornFileError, after the
            rows of its last checkpoint. All else of the file is as of the newest checkpoint that was found. A
            complete file is read as ever.
        keys: For an encrypted file: the footer key as bytes, which opens all columns that have no key of their own; a
            mapping of keys by key metadata, or by dotted path of a column and "footer"; a function that is given key
            metadata as bytes, and returns a key or an awaitable of one; or `KeyTools`. Columns without a key are not
            read, and the others are.
        aad_prefix: What the file is bound to besides its keys, where it does not store it.
        require_complete: Whether a file that its writer did not finish is an error: what was cut off on purpose is not
            missed otherwise. None is True for files with an encrypted footer, and False for all others.

    Raises:
        SchemaError: `options` are none, `on_lost` cannot be called, or there is no such `on_damage`.
        NotFoundError: On entering: no such object.
        NotParquetError: On entering: the object is no Parquet file.
        TornFileError: On entering: its footer is missing or cut short, and `on_damage` is "raise", or the file does not
            name its columns elsewhere; `recover` may help.
        UnsupportedError: On entering: `follow`, and the store shows no object before it is complete.
        FormatError: On entering: its footer is damaged; `recover` may help.
        KeyMissingError: On entering: there is no key for the footer. On reading: there is none for a column.
        WrongKeyError: A key opens nothing of the file.
        AuthenticationError: Something of the file was changed, moved or exchanged; or it is not encrypted at all.
    """
    storage_options = with_retry(storage_options, retry)
    how = ReadSettings.checked(
        verify=verify,
        on_damage=on_damage,
        on_lost=on_lost,
        options=options,
        heal=heal,
        on_healed=on_healed,
        keys=keys,
        aad_prefix=aad_prefix,
        require_complete=require_complete,
    )
    following = follow_options(follow) if follow is not False else None
    if following is not None and keys is not None:
        raise UnsupportedError("an encrypted file cannot be followed", hint="open it when its writer has closed it")

    async def opening() -> File:
        store, key = await reach(url, storage_options)
        owns_store = not isinstance(url, tuple)
        try:
            if following is not None:
                from resilient_pq.reader.growing_file import GrowingFile, Watch  # noqa: PLC0415 (it imports this module)

                watch = Watch(store, key, how, following)
                return GrowingFile(watch, await watch.first(), how, owns_store=owns_store)
            file = await open_file(store, key, how, counters=FetchCounters(), owns_store=owns_store)
            warn_of_incomplete(file, stacklevel=3, required=how.require_complete)
        except BaseException:
            if owns_store:
                await store.close()
            raise
        return file

    # Of the rest more comes than a read of the file.
    alone = is_local(url) and following is None and keys is None and how.on_damage is OnDamage.RAISE
    return Opening(opening, is_local=alone)
