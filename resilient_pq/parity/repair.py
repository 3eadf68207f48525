"""`repair`: a protected file rebuilt byte for byte from what is left of it and from its sidecar. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

import xxhash

from resilient_pq.errors import NotFoundError, RepairError, SchemaError, UnsupportedError, Where, located
from resilient_pq.io import ObjectInfo, ReadStore, RetryPolicy, SinkOptions, WriteStore, with_retry
from resilient_pq.io.local_store import LocalStore
from resilient_pq.io.output_target import Target, check_free, check_other, completing, permissions_of
from resilient_pq.io.resolve import Location, place_of
from resilient_pq.parity.group_repair import GroupRepair
from resilient_pq.parity.in_place import finish_in_place, write_in_place
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.parity.protected_bytes import ProtectedBytes
from resilient_pq.parity.sidecar import Sidecar


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair did.

    Attributes:
        url: The file that was repaired.
        output: The new file.
        sidecar: Where the parity came from.
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
    """Write a protected file anew, bit for bit as it was when its sidecar was made.

    Nothing is written unless every byte is proven: by the checksum of its block, of its group, and of the whole file.

    Args:
        src: The damaged file, which may also be missing: a URL, a path, or a pair of a store and a key in it.
        dst: Where the whole file is written; None with `in_place`.
        sidecar: The sidecar that `protect` made; None is ``NAME.rpqparity`` beside `src`, or ``_folder.rpqparity``.
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
        NotFoundError: There is no sidecar.
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
        parity = await _named_sidecar(store, key, sidecar, options, stack)
        number = parity.member_number(key)
        data = await parity.members(store, key)
        with located(Where(key=store.url_of(key))):
            groups = await _rebuild(parity, data, number)
            if dst is None:
                await _repair_in_place(parity, data, number, groups)
                output = store.url_of(key)
            else:
                to_store, to_key = await stack.enter_async_context(place_of(dst, options))
                file = data.files[number]
                permissions = None if file is None else permissions_of([file.info])
                target = Target(to_store, to_key, overwrite, permissions=permissions)
                await _write_anew(target, parity, data, number, groups, progress)
                output = target.url
        return Repair(
            url=store.url_of(key),
            output=output,
            sidecar=parity.source.url,
            size=parity.index.members[number].size,
            num_blocks=sum(len(group.lost) for group in groups),
            num_blocks_damaged=sum(group.num_damaged for group in groups),
            num_blocks_rebuilt=sum(len(group.rebuilt) for group in groups),
        )


async def repair_here(store: WriteStore, info: ObjectInfo, digest: str) -> None:
    """Rebuild an object in its own place, if its parity was made of the bytes that have this digest.

    Raises:
        RepairError: It was not, there is none, or more is lost than it can rebuild.
        ObjectChangedError: The object is another version by now.
    """
    parity = await Sidecar.beside(store, info.key)
    number = None if parity is None else parity.member_number(info.key)
    if parity is None or number is None or parity.index.members[number].digest != digest:
        raise RepairError("there is no parity of these bytes", where=Where(key=store.url_of(info.key)))
    data = await parity.members(store, info.key, PinnedObject(store, info.key, info))
    groups = await _rebuild(parity, data, number)
    if isinstance(store, LocalStore):
        await _repair_in_place(parity, data, number, groups)
        return
    sink = await store.create(info.key, SinkOptions(if_match=info.etag))
    async with completing(sink), aclosing(_repaired(parity, data, number, groups)) as pieces:
        async for piece in pieces:
            await sink.write(piece)


async def _prepare_in_place(store: ReadStore, key: str) -> None:
    """Carry out what an earlier repair has begun.

    Raises:
        UnsupportedError: The file is not a local one.
    """
    if not isinstance(store, LocalStore):
        where = Where(key=store.url_of(key))
        raise UnsupportedError("only local files can be repaired in place", where=where, hint="name a new file")
    await asyncio.to_thread(finish_in_place, store.url_of(key))


async def _repair_in_place(parity: Sidecar, data: ProtectedBytes, number: int, groups: list[GroupRepair]) -> None:
    """Write the rebuilt blocks into the file, when it is known that all of it is right then."""
    file, member = data.files[number], data.index.members[number]
    if file is None or any(group.moved.any() for group in groups):
        raise RepairError("bytes of the file are missing, or lie in other places", hint="name a new file")
    async with aclosing(_repaired(parity, data, number, groups)) as pieces:
        async for _ in pieces:
            pass
    place = data.index.places[number]
    blocks = [block for group in groups for block in group.rebuilt_in(place)]
    if data.index.mirror is not None:
        blocks = [(0, data.index.mirror)]
    await asyncio.to_thread(write_in_place, file.url, file.info, place.size, bytes.fromhex(member.digest), blocks)


async def _write_anew(
    target: Target,
    parity: Sidecar,
    data: ProtectedBytes,
    number: int,
    groups: list[GroupRepair],
    progress: Callable[[int, int], None] | None,
) -> None:
    """Write the whole file to another place."""
    for source in (*filter(None, data.files), parity.source):
        await check_other(source.address, target)
    await check_free(target)
    sink = await target.store.create(target.key, target.options)
    async with completing(sink), aclosing(_repaired(parity, data, number, groups)) as pieces:
        async for piece in pieces:
            await sink.write(piece)
            if progress is not None:
                progress(sink.position, data.index.members[number].size)


async def _named_sidecar(
    store: ReadStore, key: str, sidecar: Location | None, options: Mapping[str, Any] | None, stack: AsyncExitStack
) -> Sidecar:
    """The sidecar that was named, or the one beside the file, or that of its folder."""
    if sidecar is not None:
        return await Sidecar.read(*await stack.enter_async_context(place_of(sidecar, options)))
    found = await Sidecar.beside(store, key)
    if found is None:
        raise NotFoundError(
            "there is no sidecar beside the file",
            where=Where(key=store.url_of(key)),
            hint='give sidecar="URL"',
        )
    return found


async def _rebuild(parity: Sidecar, data: ProtectedBytes, number: int) -> list[GroupRepair]:
    """The groups that a file lies in, with all their blocks.

    Raises:
        RepairError: Some blocks cannot be rebuilt.
    """
    place = data.index.places[number]
    groups = [
        GroupRepair(record, data, parity.source)
        for record in parity.groups
        if record.extents[0].start < place.end and place.start < record.extents[0].end
    ]
    for group in groups:
        await group.examine()
    if missing := sum(group.num_not_rebuilt for group in groups):
        lost = sum(int(group.lost.sum()) for group in groups)
        raise RepairError(
            f"damaged blocks: {lost:,}, of which {missing:,} cannot be rebuilt from the parity",
            where=Where(key=parity.source.url),
            hint="rpq recover keeps the rows that are whole",
        )
    return groups


async def _repaired(
    parity: Sidecar, data: ProtectedBytes, number: int, groups: list[GroupRepair]
) -> AsyncGenerator[memoryview, None]:
    """The bytes of the file as they were written.

    Raises:
        RepairError: They are not those that the sidecar was made of.
    """
    member, place, digest = data.index.members[number], data.index.places[number], xxhash.xxh3_128()
    if data.index.mirror is not None:
        digest.update(data.index.mirror)
        yield memoryview(data.index.mirror)
    for group in groups:
        async with aclosing(group.pieces(place)) as pieces:
            async for piece in pieces:
                digest.update(piece)
                yield piece
    if digest.hexdigest() != member.digest:
        raise RepairError(
            "the blocks are whole, and the file is not the one that the sidecar was made of",
            where=Where(key=parity.source.url),
            hint="make a new sidecar with rpq protect",
        )
