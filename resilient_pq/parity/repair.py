"""`repair`: a protected file rebuilt byte for byte from what is left of it and of its parity. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any

import numpy as np
import xxhash

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import (
    FormatError,
    NotFoundError,
    RepairError,
    ResilientPQError,
    SchemaError,
    UnsupportedError,
    Where,
    located,
)
from resilient_pq.io import ObjectInfo, ReadStore, RetryPolicy, SinkOptions, WriteStore, with_retry
from resilient_pq.io.local_store import LocalStore
from resilient_pq.io.output_target import Target, check_free, check_other, completing, permissions_of
from resilient_pq.io.resolve import Location, place_of
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.healed_store import HealedStore
from resilient_pq.parity.in_place import finish_in_place, write_in_place
from resilient_pq.parity.inline_parity import find_inline
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.parity.protected_file import ProtectedFile
from resilient_pq.parity.sidecar import Sidecar


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair did.

    Attributes:
        url: The file that was repaired.
        output: The new file.
        sidecar: Where the parity came from: the file itself where it lies inside it.
        size: Bytes of the new file.
        num_blocks: Blocks that have a checksum each.
        num_blocks_damaged: Those that were not whole in their place.
        num_blocks_rebuilt: Those of them that were made from parity; the others were found elsewhere in the file.
    """

    url: str
    output: str
    sidecar: str
    size: int
    num_blocks: int
    num_blocks_damaged: int
    num_blocks_rebuilt: int


async def repair(
    src: Location,
    dst: Location | None = None,
    *,
    sidecar: Location | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Repair:
    """Write a protected file anew, bit for bit as it was written, or as it was when its sidecar was made.

    Nothing is written unless every byte is proven: by the checksum of its block, of its group, and, with a sidecar, of
    the whole file.

    Args:
        src: The damaged file, which may also be missing: a URL, a path, or a pair of a store and a key in it.
        dst: Where the whole file is written; None with `in_place`.
        sidecar: The sidecar that `protect` made; None is the first that rebuilds the file: ``NAME.rpqparity`` beside
            `src` or ``_folder.rpqparity`` if it was made of this version, the parity inside the file, that of another.
        in_place: Write the rebuilt blocks into the damaged file, which has to be a local one whose bytes lie in their
            places. Where this is interrupted, the next repair carries on.
        overwrite: Replace what is at `dst`.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        progress: Called now and then with the bytes written and the bytes there are.

    Raises:
        RepairError: More is lost than the parity can rebuild; the message says how much. Or the bytes of a file that is
            to be repaired in place are elsewhere in it.
        SchemaError: Neither `dst` nor `in_place` is given, or both.
        NotFoundError: There is no parity.
        FormatError: The sidecar is damaged beyond use.
        AlreadyExistsError: `dst` exists.
        StoreError: The store could not give or take bytes.
    """
    if (dst is None) != in_place:
        raise SchemaError("a repair needs a new file or in_place, not both", hint="name DST, or use --in-place")
    options = with_retry(storage_options, retry)
    async with AsyncExitStack() as stack:
        store, key = await stack.enter_async_context(place_of(src, options))
        if dst is None:
            await _prepare_in_place(store, key)
        files = _protected_files(store, key)
        if sidecar is not None:
            files = _named(await Sidecar.read(*await stack.enter_async_context(place_of(sidecar, options))), store, key)
        with located(Where(key=store.url_of(key))):
            file = await _rebuilt_file(files)
            if dst is None:
                await _refuse_newer(file)
                await _repair_in_place(file, file.digest)
                output = store.url_of(key)
            else:
                to_store, to_key = await stack.enter_async_context(place_of(dst, options))
                permissions = permissions_of(found.info for found in file.data.files if found is not None)
                target = Target(to_store, to_key, overwrite, permissions=permissions)
                await _write_anew(target, file, progress)
                output = target.url
        return Repair(
            url=store.url_of(key),
            output=output,
            sidecar=file.parity.source.url,
            size=file.place.size,
            num_blocks=sum(len(group.lost) for group in file.groups),
            num_blocks_damaged=file.num_damaged,
            num_blocks_rebuilt=file.num_rebuilt,
        )


async def rebuilt_digest(store: ReadStore, info: ObjectInfo) -> str | None:
    """The digest that an object had by the parity inside it; None where that does not prove it."""
    view = await HealedStore.find(store, info, thorough=True)
    if view is None or not view.file.parity.is_inline:
        return None
    with suppress(RepairError):
        await _rebuild(view.file)
        return await _digest(view.file, "")
    return None


async def repair_here(store: WriteStore, info: ObjectInfo, digest: str) -> None:
    """Rebuild an object in its own place, if its parity makes the bytes that have this digest."""
    view = await HealedStore.find(store, info, thorough=True)
    if view is None or view.file.digest not in ("", digest):
        raise RepairError("there is no parity of these bytes", where=Where(key=store.url_of(info.key)))
    await _rebuild(view.file)
    if isinstance(store, LocalStore):
        await _repair_in_place(view.file, digest)
        return
    sink = await store.create(info.key, SinkOptions(if_match=info.etag))
    async with completing(sink), aclosing(_repaired(view.file, digest)) as pieces:
        async for piece in pieces:
            await sink.write(piece)


async def _prepare_in_place(store: ReadStore, key: str) -> None:
    """Carry out what an earlier repair has begun."""
    if not isinstance(store, LocalStore):
        where = Where(key=store.url_of(key))
        raise UnsupportedError("only local files can be repaired in place", where=where, hint="name a new file")
    await asyncio.to_thread(finish_in_place, store.url_of(key))


async def _refuse_newer(file: ProtectedFile) -> None:
    """Refuse to replace a file by the copy in its sidecar where most of it is other."""
    source, mirror = file.data.files[file.number], np.frombuffer(file.mirror or b"", np.uint8)
    if source is not None and len(mirror):
        there = np.frombuffer(await source.read(ByteRange(0, min(source.info.size, len(mirror)))), np.uint8)
        if np.count_nonzero(there == mirror[: len(there)]) < len(mirror) // 2:
            raise RepairError("most of it is other: it may be another version of the file", hint="name a new file")


async def _repair_in_place(file: ProtectedFile, digest: str) -> None:
    """Write the rebuilt blocks into the file, when it is known that all of it is right then."""
    source = file.data.files[file.number]
    if source is None or file.has_moved:
        raise RepairError("bytes of the file are missing, or lie in other places", hint="name a new file")
    made = bytes.fromhex(await _digest(file, digest))
    await asyncio.to_thread(write_in_place, source.url, source.info, file.place.size, made, list(file.changed()))


async def _write_anew(target: Target, file: ProtectedFile, progress: Callable[[int, int], None] | None) -> None:
    """Write the whole file to another place."""
    for source in (*filter(None, file.data.files), file.parity.source):
        await check_other(source.address, target)
    await check_free(target)
    sink = await target.store.create(target.key, target.options)
    async with completing(sink), aclosing(_repaired(file, file.digest)) as pieces:
        async for piece in pieces:
            await sink.write(piece)
            if progress is not None:
                progress(sink.position, file.place.size)


async def _rebuilt_file(files: AsyncGenerator[ProtectedFile, None]) -> ProtectedFile:
    """The file as the first of its parities has it that rebuilds all of it."""
    first: ResilientPQError | None = None
    try:
        async with aclosing(files):
            async for file in files:
                try:
                    await _rebuild(file)
                except RepairError as error:
                    first = first or error
                else:
                    return file
    except FormatError as error:
        first = first or error
    hint = 'give sidecar="URL"'
    raise first or NotFoundError("there is no sidecar beside the file, and no parity in it", hint=hint)


async def _protected_files(store: ReadStore, key: str) -> AsyncGenerator[ProtectedFile, None]:
    """A file with the sidecar of this version, its own parity, and another sidecar, as far as they are there."""
    source = None
    with suppress(NotFoundError):
        source = await PinnedObject.find(store, key)
    try:
        sidecar = await Sidecar.beside(store, key)
    except FormatError:
        for file in await _inside(source):
            yield file
        raise
    beside = [] if sidecar is None else [await ProtectedFile.beside(sidecar, store, key, source)]
    bound = [file for file in beside if source is not None and file.is_of(source.info)]
    for file in bound:
        yield file
    for file in await _inside(source):
        yield file
    for file in beside[len(bound) :]:
        yield file


async def _inside(source: PinnedObject | None) -> list[ProtectedFile]:
    """A file with its own parity, if it is there and has any."""
    inside = None if source is None else await find_inline(source, thorough=True)
    return [] if inside is None else [ProtectedFile.inside(inside)]


async def _named(sidecar: Sidecar, store: ReadStore, key: str) -> AsyncGenerator[ProtectedFile, None]:
    yield await ProtectedFile.beside(sidecar, store, key)


async def _rebuild(file: ProtectedFile) -> None:
    """Compare all blocks of a file, and rebuild those that are lost."""
    await file.examine()
    where = Where(key=file.parity.source.url)
    if missing := file.num_not_rebuilt:
        lost = sum(int(group.lost.sum()) for group in file.groups)
        raise RepairError(
            f"damaged blocks: {lost:,}, of which {missing:,} cannot be rebuilt from the parity",
            where=where,
            hint="rpq recover keeps the rows that are whole",
        )
    if not all(group.is_proven for group in file.groups):
        raise RepairError("the blocks are whole, and the bytes are not those that the parity was made of", where=where)
    if file.parity.is_inline and not await file.remake_last_parity():
        raise RepairError(
            "the end of the file is lost, with the record of its last parity group",
            where=where,
            hint="rpq recover keeps the rows that are whole",
        )


async def _digest(file: ProtectedFile, digest: str) -> str:
    """The digest of the file as it was written, which must be the one given; an empty one fits any."""
    made = xxhash.xxh3_128()
    async with aclosing(_repaired(file, digest, made)) as pieces:
        async for _ in pieces:
            pass
    return made.hexdigest()


async def _repaired(
    file: ProtectedFile, digest: str, made: xxhash.xxh3_128 | None = None
) -> AsyncGenerator[memoryview, None]:
    """The bytes of the file as they were written; an empty digest fits any."""
    made = xxhash.xxh3_128() if made is None else made
    async with aclosing(file.pieces(file.place)) as pieces:
        async for piece in pieces:
            made.update(piece)
            yield piece
    if digest and made.hexdigest() != digest:
        raise RepairError(
            "the blocks are whole, and the file is not the one that the sidecar was made of",
            where=Where(key=file.parity.source.url),
            hint="make a new sidecar with rpq protect",
        )
