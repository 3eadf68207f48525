"""An encrypted file as it would be in the clear, with everything at the same offsets. An async shell."""

from __future__ import annotations

import asyncio
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np

from resilient_pq import memory_pool
from resilient_pq.encryption.held_chunks import HeldChunks
from resilient_pq.encryption.keys import DecryptionKeys
from resilient_pq.encryption.plain_regions import Patch, PlainRegion, SealedChunk, regions_of
from resilient_pq.errors import (
    AuthenticationError,
    FormatError,
    Where,
    located,
)
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.crypto.file_cipher import FileCipher
from resilient_pq.format.crypto.modules import CTR_OVERHEAD, GCM_OVERHEAD, WrongTagError, module_size
from resilient_pq.format.crypto.page_view import SealedPage
from resilient_pq.format.crypto.sealed_footer import (
    SealedFooter,
    column_key_metadata,
    open_chunks,
    plain_record,
    read_sealed_footer,
)
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.format.footer import NeedBytes
from resilient_pq.format.resilience_records import HEADER_SIZE
from resilient_pq.io import ObjectTail, ReadStore
from resilient_pq.io.cancellation import all_or_none
from resilient_pq.io.shared_clients import new_connections
from resilient_pq.io.substitute_store import SubstituteStore
from resilient_pq.off_event_loop import off_loop
from resilient_pq.units import MiB

#: Bytes that are read of a page to learn the sizes of its two modules.
_PAGE_START: Final = 1024
#: Bytes decrypted in about the time of a piece of work (`off_loop`).
_PIECE: Final = 4 * 1024
#: Bytes of a chunk that is read as a whole where only a part is asked for, as nothing says where its pages begin.
_MOST_HELD: Final = 64 * MiB
#: Bytes of a request for a part of such a chunk.
_REQUEST: Final = 8 * MiB


class UnverifiedPagesWarning(UserWarning):
    """Pages of an encrypted file have neither a tag nor a CRC32: nothing tells whether they were changed."""


class DecryptedStore(SubstituteStore):
    """Stands for a store: one encrypted object reads as the plaintext file that it holds.

    Attributes:
        encrypted_footer: Whether its footer is encrypted, too.
        state: What the footer says of the file's state; None in files of others.
        missing_keys: The columns whose key was not given, by dotted path, with what the file says of the key.
    """

    def __init__(self, store: ReadStore, tail: ObjectTail, sealed: SealedFooter, metadata: FileMetaData) -> None:
        """`open` is the way to get one."""
        metadata.encryption_algorithm, metadata.footer_signing_key_metadata = sealed.algorithm.stored, None
        metadata.schema, metadata.row_groups = list(metadata.schema), list(metadata.row_groups)
        framed = footer.frame(compact_protocol.encode(metadata))
        super().__init__(store, tail.info, sealed.start + len(framed))
        self.encrypted_footer = sealed.module is not None
        self.state = footer.key_values(metadata.key_value_metadata).get(footer.STATE_KEY)
        self.missing_keys: dict[str, bytes | None] = {}
        self._tail = tail
        self._held = HeldChunks(self._whole)
        self._warned = False
        self._regions: list[PlainRegion] = [Patch(0, len(footer.MAGIC), footer.MAGIC)]
        self._regions.append(Patch(sealed.start, self._size, framed))
        if sealed.record is not None:
            header = plain_record(sealed.record, framed, metadata).pack()
            self._regions.append(Patch(sealed.start - HEADER_SIZE, sealed.start, header))

    @classmethod
    async def open(
        cls,
        store: ReadStore,
        key: str,
        keys: DecryptionKeys,
        *,
        aad_prefix: bytes | None = None,
        tail_bytes: int,
        verify: bool = True,
    ) -> DecryptedStore:
        """A view of an encrypted object.

        Raises:
            AuthenticationError: It is not encrypted, or its footer was changed.
            KeyMissingError: There is no key for the footer.
            WrongKeyError: The key of the footer opens nothing.
        """
        tail, sealed = await _read_sealed_footer(store, key, tail_bytes)
        where = Where(key=store.url_of(key))
        if sealed is None:
            hint = "leave the keys out if the file is not meant to be encrypted"
            raise AuthenticationError("the file is not encrypted, and keys were given for it", where=where, hint=hint)
        with located(where):
            footer_key = await keys.key_of(sealed.key_metadata, None)
            if footer_key is None:
                raise keys.missing(sealed.key_metadata, None)
            cipher = FileCipher.of(sealed.algorithm, footer_key, aad_prefix)
            metadata = sealed.metadata(cipher)
            own = column_key_metadata(metadata)
            asked = await all_or_none(keys.key_of(about, path) for path, about in own.items())
            found = dict(zip(own, asked, strict=True))
            cipher.take_column_keys(found)
            opened = await off_loop(len(metadata.row_groups) * 8, lambda: list(open_chunks(metadata, cipher)))
            view = cls(store, tail, sealed, metadata)
            view.missing_keys = {path: about for path, about in own.items() if found[path] is None}
            view._regions += [region for chunk in opened for region in regions_of(chunk)]
            view._regions.sort(key=lambda region: region.start)
            _check_places(view._regions, view._size)
        return view

    async def read_tail(self, key: str, size: int) -> ObjectTail:
        """What stands behind the last column chunk, of so many bytes at the end at most."""
        if key != self._info.key:
            return await self._store.read_tail(key, size)
        chunks = [region.end for region in self._regions if isinstance(region, SealedChunk)]
        start = max(self._size - size, max(chunks, default=0), 0)
        info = await self.head(key)
        return ObjectTail(info, start, await self._read(key, start, self._size))

    async def close(self) -> None:
        """Close the store that this stands for."""
        self._held.drop()
        await self._store.close()

    async def _read(self, key: str, start: int, end: int) -> memoryview:
        touched = [await self._located(region, start, end) for region in self._touched(start, end)]
        first = touched[0] if touched else None
        if isinstance(first, Patch) and first.start <= start and end <= first.end:
            return memoryview(first.content)[start - first.start : end - first.start]
        low, high = min([start, *_starts(touched, start)]), max([end, *_ends(touched, end)])
        try:
            return await self._opened(touched, start, end, low, high)
        except FormatError:
            async with new_connections():  # a transfer can go wrong as well as a disk
                return await self._opened(touched, start, end, low, high)

    async def _located(self, region: PlainRegion, start: int, end: int) -> PlainRegion:
        """A region of which all is asked for, or it is known where its pages lie; else what it holds."""
        if not isinstance(region, SealedChunk) or region.pages is not None:
            return region
        if start <= region.start and region.end <= end:
            return region
        if self._has_index_at_hand(region) or region.end - region.start > _MOST_HELD:
            region.pages = await self._pages_of(region)
            return region
        content = await self._held.content(region, min(end, region.end) - max(start, region.start))
        return Patch(region.start, region.end, content)

    async def _opened(self, touched: Sequence[PlainRegion], start: int, end: int, low: int, high: int) -> memoryview:
        data = memoryview(await self._stored(low, high))
        return await self._opened_of(data, low, touched, start, end)

    async def _opened_of(
        self, data: memoryview, base: int, touched: Sequence[PlainRegion], start: int, end: int
    ) -> memoryview:
        found = await off_loop(len(data) // _PIECE, _opened, data, base, touched, start, end)
        if not self._warned and any(_is_unverified(region) for region in touched):
            self._warned = True
            text = f"{self.url_of(self._info.key)} has pages that nothing verifies: AES_GCM_CTR_V1 without page CRC32"
            warnings.warn(text, UnverifiedPagesWarning, stacklevel=2)
        return found

    def _touched(self, start: int, end: int) -> list[PlainRegion]:
        first = bisect_right(self._regions, start, key=lambda region: region.end)
        last = bisect_left(self._regions, end, key=lambda region: region.start)
        return self._regions[first:last]

    async def _stored(self, start: int, end: int) -> bytes | memoryview:
        """Stored bytes; those behind the end of the object are in no region but the footer in the clear."""
        end = min(end, self._info.size)
        if start >= self._tail.offset:
            return memoryview(self._tail.data)[start - self._tail.offset : end - self._tail.offset]
        return await self._store.read_range(self._info.key, start, end, pin=self._info)

    async def _whole(self, chunk: SealedChunk) -> memoryview:
        """All of a chunk, by requests of a few MiB side by side."""
        starts = range(chunk.start, chunk.end, _REQUEST)
        parts = await asyncio.gather(*(self._stored(at, min(at + _REQUEST, chunk.end)) for at in starts))
        data = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        return await self._opened_of(data, chunk.start, [chunk], chunk.start, chunk.end)

    def _has_index_at_hand(self, chunk: SealedChunk) -> bool:
        return chunk.offset_index is not None and chunk.offset_index[0] >= self._tail.offset

    async def _pages_of(self, chunk: SealedChunk) -> list[SealedPage]:
        """The pages of a chunk of which only a part is read: by its offset index, or from page to page."""
        if chunk.offset_index is not None:
            start, size = chunk.offset_index
            try:
                if chunk.pages_by_index(memoryview(await self._stored(start, start + size))) and chunk.pages:
                    return chunk.pages
            except (FormatError, WrongTagError):
                pass  # the pages themselves tell, too
        pages: list[SealedPage] = []
        at, ordinal = chunk.start, -1 if chunk.has_dictionary else 0
        while at < chunk.end:
            size = await self._module_sizes(at, chunk.end)
            pages.append(SealedPage(at, size, None if ordinal < 0 else ordinal))
            at, ordinal = at + size, ordinal + 1
        return pages

    async def _module_sizes(self, at: int, end: int) -> int:
        """The size of the two modules of the page at an offset."""
        start = memoryview(await self._stored(at, min(at + _PAGE_START, end)))
        header = module_size(start, 0, end - at, GCM_OVERHEAD)
        behind = start[header:]
        if len(behind) < CTR_OVERHEAD:
            behind = memoryview(await self._stored(at + header, min(at + header + CTR_OVERHEAD, end)))
        return header + module_size(behind, 0, end - at - header, CTR_OVERHEAD)


def _is_unverified(region: PlainRegion) -> bool:
    return isinstance(region, SealedChunk) and region.opener.cipher.num_unverified > 0


def _opened(data: memoryview, base: int, touched: Sequence[PlainRegion], start: int, end: int) -> memoryview:
    """The bytes from `start` to `end` in the clear."""
    out, at = memory_pool.empty((end - start,), np.uint8).data, start
    for region in touched:
        if region.start > at:
            out[at - start : region.start - start] = data[at - base : region.start - base]
        region.read(data, base, out, start)
        at = max(at, region.end)
    if at < end:
        out[at - start :] = data[at - base : end - base]
    return out.toreadonly()


def _starts(touched: Sequence[PlainRegion], start: int) -> list[int]:
    """Where what is needed of the regions begins that begin before `start`."""
    found = []
    for region in touched:
        if isinstance(region, SealedChunk) and region.pages is not None:
            found += [page.start for page in region.pages if page.start < start < page.end]
        elif region.start < start and not isinstance(region, Patch):
            found.append(region.start)
    return found


def _ends(touched: Sequence[PlainRegion], end: int) -> list[int]:
    """Where what is needed of the regions ends that end behind `end`."""
    found = []
    for region in touched:
        if isinstance(region, SealedChunk) and region.pages is not None:
            found += [page.end for page in region.pages if page.start < end < page.end]
        elif region.end > end and not isinstance(region, Patch):
            found.append(region.end)
    return found


def _check_places(regions: Sequence[PlainRegion], size: int) -> None:
    """Refuse a footer that has things lie one in the other, or behind the end."""
    at = 0
    for region in regions:
        if not at <= region.start <= region.end <= size:
            raise FormatError("the footer has two things in one place, or one behind the end", where=Where(offset=at))
        at = region.end


async def _read_sealed_footer(store: ReadStore, key: str, tail_bytes: int) -> tuple[ObjectTail, SealedFooter | None]:
    """The tail of an object, so large that its footer is in it, and its footer; None where it is not encrypted."""
    size = tail_bytes
    while True:
        tail = await store.read_tail(key, size)
        with located(Where(key=store.url_of(key))):
            found = await off_loop(len(tail.data) // _PIECE, read_sealed_footer, memoryview(tail.data), tail.offset)
        if not isinstance(found, NeedBytes):
            return tail, found
        size = tail.info.size - found.start
