"""`protect`: make a sidecar with parity beside a file, which is read once and never changed. An async shell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Any

import xxhash

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import SchemaError
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordChain, RecordKind
from resilient_pq.io import ObjectSink, RetryPolicy, WriteStore, with_retry
from resilient_pq.io.output_target import Target, check_free, check_other, completing, permissions_of
from resilient_pq.io.resolve import Location, Stores
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.group_encoder import GroupEncoder
from resilient_pq.parity.group_record import SIDECAR_FLAG
from resilient_pq.parity.group_shape import GroupShape, ParityShare, group_shapes
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.parity.sidecar import file_name, sidecar_key
from resilient_pq.parity.sidecar_index import (
    MAGIC,
    MIRROR_BYTES,
    Member,
    SidecarIndex,
    pack_trailer,
    padded,
)
from resilient_pq.units import KiB

#: Zeros between the copies of an index that no group is between, so that one damaged sector is not the end of both.
_BETWEEN_INDEXES = 4 * KiB


@dataclass(frozen=True, slots=True)
class Protection:
    """What a sidecar protects.

    Attributes:
        url: The sidecar.
        num_files: Files that it protects.
        num_bytes: Their bytes.
        size: Bytes of the sidecar.
        num_groups: Parity groups; each is rebuilt by itself.
        burst_bytes: Any so many damaged or missing bytes in a row are rebuilt; of a file that is copied whole all. 0
            where there are checksums alone.
    """

    url: str
    num_files: int
    num_bytes: int
    size: int
    num_groups: int
    burst_bytes: int

    @property
    def overhead(self) -> float:
        """Bytes of the sidecar for each byte protected."""
        return self.size / max(1, self.num_bytes)


async def protect(
    src: Location | list[Location],
    dst: Location | None = None,
    *,
    parity: float | str = "5%",
    checksums_only: bool = False,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Protection:
    """Write a sidecar from which damaged bytes of a file can be rebuilt; the file itself is only read.

    Any file can be protected, of whatever writer and format. `repair` rebuilds it.

    Args:
        src: A URL, a path, or a pair of a store and a key in it. A list of files in one folder gets one sidecar: from
            it also a missing file is rebuilt when it has at most `Protection.burst_bytes`.
        dst: The sidecar; None is ``NAME.rpqparity`` beside the file, or ``_folder.rpqparity`` beside files.
        parity: Bytes of parity for each byte: 0.05 or "5%". Small files get more.
        checksums_only: Checksums of blocks of 4 KiB without parity: damage is found, and not repaired.
        overwrite: Replace a sidecar that is there.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        progress: Called now and then with the bytes read and the bytes there are.

    Raises:
        SchemaError: `parity` is out of range, or there is no file to protect.
        AlreadyExistsError: The sidecar exists.
        ObjectChangedError: A file was replaced meanwhile.
        StoreError: A file is not there, or the store could not give or take bytes.
    """
    share = ParityShare(0.0) if checksums_only else ParityShare.parse(parity)
    options = with_retry(storage_options, retry)
    locations = src if isinstance(src, list) else [src]
    async with AsyncExitStack() as stack:
        stores = Stores(options)
        stack.push_async_callback(stores.close)
        places = [await stores.reach(location) for location in locations]
        _check_one_folder(places)
        sources = [await PinnedObject.find(*place) for place in places]
        beside = sidecar_key(*places[0], across=isinstance(src, list))
        store, key = (places[0][0], beside) if dst is None else await stores.reach(dst)
        target = Target(store, key, overwrite, permissions=permissions_of(source.info for source in sources))
        for source in sources:
            await check_other(source.address, target)
        await check_free(target)
        sink = await target.store.create(target.key, target.options)
        async with completing(sink):
            written = await _Sidecar(sink, share, sources, progress).write()
        return Protection(target.url, len(sources), sum(source.info.size for source in sources), *written)


def _check_one_folder(places: Sequence[tuple[WriteStore, str]]) -> None:
    """Refuse files that one sidecar cannot name: none at all, files of several folders, and one file twice."""
    if not places:
        raise SchemaError("there is no file to protect")
    store, first = places[0]
    names = [file_name(key) for _, key in places]
    if [(store, store.beside(first, name)) for name in names] != list(places) or len({*names}) < len(names):
        raise SchemaError(
            "the files lie in several folders, or one is named twice", hint="one sidecar is for files of one folder"
        )


class _Sidecar:
    """One sidecar as it is written."""

    def __init__(
        self,
        sink: ObjectSink,
        share: ParityShare,
        sources: Sequence[PinnedObject],
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._sink = sink
        self._share = share
        self._sources = sources
        self._chain = RecordChain(os.urandom(16))
        self._groups: list[tuple[int, int]] = []
        self._indexes: list[int] = []
        self._digests = [xxhash.xxh3_128() for _ in sources]
        self._mirror: bytes | None = None
        self._progress = progress
        self._burst = 0

    async def write(self) -> tuple[int, int, int]:
        """Write all of it; returns its size, the number of groups, and the bytes of a burst that is rebuilt."""
        await self._sink.write(MAGIC)
        sizes = [source.info.size for source in self._sources]
        total = sum(padded(size) for size in sizes)
        self._burst = total
        if len(sizes) == 1 and sizes[0] <= MIRROR_BYTES and self._share.share:
            self._mirror = bytes(await self._sources[0].read(ByteRange(0, sizes[0])))
            self._digests[0].update(self._mirror)
            self._burst = sizes[0]
        else:
            await self._write_groups(list(group_shapes(total, self._share)) if total else [])
        if not self._groups:
            await self._write_index([])
            await self._sink.write(bytes(_BETWEEN_INDEXES))
        await self._write_index(self._groups)
        await self._sink.write(pack_trailer(*self._indexes))
        return self._sink.position, len(self._groups), self._burst

    async def _write_groups(self, shapes: list[GroupShape]) -> None:
        start = 0
        async with aclosing(self._pieces()) as pieces:
            rest = memoryview(b"")
            for shape in shapes:
                encoder = GroupEncoder(shape)
                while encoder.room:
                    if not rest:
                        rest = await anext(pieces)
                    piece, rest = rest[: encoder.room], rest[encoder.room :]
                    await asyncio.to_thread(encoder.add, piece)
                await self._write_group(encoder, ByteRange(start, start + shape.num_bytes), is_last=shape is shapes[-1])
                start += shape.num_bytes
                self._burst = min(self._burst, shape.burst_bytes)

    async def _write_group(self, encoder: GroupEncoder, extent: ByteRange, *, is_last: bool) -> None:
        group = await asyncio.to_thread(encoder.finish)
        first = self._sink.position
        if is_last:
            first += HEADER_SIZE + len(self._index([*self._groups, (0, 0)]))
        second = first + group.shape.record_bytes + group.shape.parity_bytes
        self._groups.append((first, second))
        if is_last:
            await self._write_index(self._groups)
        number = len(self._groups) - 1
        record = partial(self._record, RecordKind.PARITY)
        for part in group.framed(number, [extent], first, SIDECAR_FLAG, record):
            await self._sink.write(part)

    def _index(self, groups: list[tuple[int, int]]) -> bytes:
        members = [
            Member(file_name(source.key), source.info.size, source.info.etag, digest.hexdigest())
            for source, digest in zip(self._sources, self._digests, strict=True)
        ]
        return SidecarIndex(self._share.share, tuple(members), tuple(groups), self._mirror).pack()

    async def _write_index(self, groups: list[tuple[int, int]]) -> None:
        self._indexes.append(self._sink.position)
        await self._sink.write(self._record(RecordKind.SIDECAR_INDEX, self._sink.position, self._index(groups)))

    def _record(self, kind: RecordKind, offset: int, payload: bytes) -> bytes:
        return self._chain.record(kind, offset, payload, num_rows=0, num_row_groups=0)

    async def _pieces(self) -> AsyncGenerator[memoryview, None]:
        """The bytes of all files, each filled up with zeros; the next are read while the caller has the last."""
        done, total = 0, sum(source.info.size for source in self._sources)
        for source, digest in zip(self._sources, self._digests, strict=True):
            async with aclosing(source.pieces()) as pieces:
                async for piece in pieces:
                    digest.update(piece)
                    yield piece
                    done += len(piece)
                    if self._progress is not None:
                        self._progress(done, total)
            if zeros := padded(source.info.size) - source.info.size:
                yield memoryview(bytes(zeros))
