"""`repair`: a protected file rebuilt byte for byte from what is left of it and from its sidecar. An async shell."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

import xxhash

from resilient_pq.errors import NotFoundError, RepairError, Where, located
from resilient_pq.io import ReadStore, RetryPolicy, with_retry
from resilient_pq.io.resolve import place_of
from resilient_pq.recovery.damaged_object import DamagedObject, Location, open_source
from resilient_pq.recovery.parity.group_repair import GroupRepair
from resilient_pq.recovery.parity.protected_bytes import ProtectedBytes
from resilient_pq.recovery.parity.sidecar import Sidecar, file_name, open_sidecar, sidecar_key
from resilient_pq.recovery.rewrite.output_object import Target, check_free, check_other, completing, permissions_of


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
    dst: Location,
    *,
    sidecar: Location | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Repair:
    """Write a protected file anew, bit for bit as it was when its sidecar was made.

    Nothing is written unless every byte is proven: by the checksum of its block, of its group, and of the whole file.

    Args:
        src: The damaged file, which may also be missing: a URL, a path, or a pair of a store and a key in it.
        dst: Where the whole file is written.
        sidecar: The sidecar that `protect` made; None is ``NAME.rpqparity`` beside `src`, or ``_folder.rpqparity``.
        overwrite: Replace what is at `dst`.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        progress: Called now and then with the bytes written and the bytes there are.

    Raises:
        RepairError: More is lost than the parity can rebuild; the message says how much.
        NotFoundError: There is no sidecar.
        FormatError: The sidecar is damaged beyond use.
        AlreadyExistsError: `dst` exists.
        StoreError: The store could not give or take bytes.
    """
    options = with_retry(storage_options, retry)
    async with AsyncExitStack() as stack:
        store, key = await stack.enter_async_context(place_of(src, options))
        parity = await stack.enter_async_context(await _find_sidecar(store, key, sidecar, options))
        number = _member_number(parity, key)
        data = await _open_members(store, key, parity, number, stack)
        file = data.files[number]
        to_store, to_key = await stack.enter_async_context(place_of(dst, options))
        target = Target(to_store, to_key, overwrite, permissions=None if file is None else permissions_of([file.info]))
        for source in (*filter(None, data.files), parity.source):
            await check_other(source.address, target)
        await check_free(target)
        where = Where(key=store.url_of(key))
        with located(where):
            groups = await _rebuild(parity, data, number)
            sink = await to_store.create(to_key, target.options)
            async with completing(sink), aclosing(_repaired(parity, data, number, groups)) as pieces:
                async for piece in pieces:
                    await sink.write(piece)
                    if progress is not None:
                        progress(sink.position, parity.index.members[number].size)
        return Repair(
            url=str(where.key),
            output=target.url,
            sidecar=parity.source.url,
            size=parity.index.members[number].size,
            num_blocks=sum(len(group.lost) for group in groups),
            num_blocks_damaged=sum(group.num_damaged for group in groups),
            num_blocks_rebuilt=sum(len(group.rebuilt) for group in groups),
        )


async def _find_sidecar(
    store: ReadStore, key: str, sidecar: Location | None, options: Mapping[str, Any] | None
) -> Sidecar:
    """The sidecar that was named, or the one beside the file, or that of its folder."""
    if sidecar is not None:
        return await open_sidecar(sidecar, options)
    for beside in (sidecar_key(store, key), sidecar_key(store, key, across=True)):
        if await store.exists(beside):
            return await open_sidecar((store, beside), options)
    raise NotFoundError(
        "there is no sidecar beside the file",
        where=Where(key=store.url_of(key)),
        hint="name it with --sidecar (sidecar=)",
    )


def _member_number(parity: Sidecar, key: str) -> int:
    """Which of the files of a sidecar is meant: the only one, whatever it is called, or the one of this name."""
    names = [member.name for member in parity.index.members]
    if len(names) == 1:
        return 0
    name = file_name(key)
    if name not in names:
        where = Where(key=parity.source.url)
        raise NotFoundError(f"the sidecar protects {len(names):,} files, and none called {name}", where=where)
    return names.index(name)


async def _open_members(
    store: ReadStore, key: str, parity: Sidecar, number: int, stack: AsyncExitStack
) -> ProtectedBytes:
    """The files of a sidecar, as far as they are there."""
    files: list[DamagedObject | None] = []
    for i, member in enumerate(parity.index.members):
        place = (store, key if i == number else store.beside(key, member.name))
        try:
            files.append(await stack.enter_async_context(await open_source(place, None)))
        except NotFoundError:
            files.append(None)
    return ProtectedBytes(parity.index, files)


async def _rebuild(parity: Sidecar, data: ProtectedBytes, number: int) -> list[GroupRepair]:
    """The groups that a file lies in, with all their blocks.

    Raises:
        RepairError: Some blocks cannot be rebuilt.
    """
    place = data.index.places[number]
    groups = [
        GroupRepair(record, data)
        for record in parity.groups
        if record.extents[0].start < place.end and place.start < record.extents[0].end
    ]
    for group in groups:
        await group.find_lost()
        await group.rebuild(parity.source)
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
