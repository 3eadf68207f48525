"""Damaged chunks rebuilt from parity while a file is read. An async shell."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from resilient_pq.errors import ChecksumError, StoreError
from resilient_pq.format.footer import PARITY_KEY
from resilient_pq.io import ObjectInfo
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.healed_store import HealedStore
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.reader.decoder import DamagedChunk

if TYPE_CHECKING:
    from resilient_pq.reader.row_groups import RowGroupWork


@dataclass(frozen=True, slots=True)
class HealedChunk:
    """A column chunk, or a footer, that was damaged, and whose bytes were rebuilt from parity.

    Attributes:
        url: The file.
        row_group: The number of its row group, from 0; None of a footer.
        column: The path of its column, with dots; None of a footer.
        num_blocks: Blocks that were rebuilt for it.
    """

    url: str
    row_group: int | None
    column: str | None
    num_blocks: int


#: Called with each chunk that was healed.
OnHealed: TypeAlias = Callable[[HealedChunk], object]


class HealedFileWarning(UserWarning):
    """Bytes of the file are damaged, and were rebuilt from its parity: `repair` writes a whole file."""


class Healer:
    """Heals the chunks of one file, as far as there are sidecars."""

    def __init__(self, objects: ChunkObjects, on_healed: OnHealed | None) -> None:
        self.healed: list[HealedChunk] = []  # The chunks that were healed
        self._objects = objects
        self._on_healed = on_healed
        self._views: dict[ObjectInfo, HealedStore | None] = {}

    async def heal(self, work: RowGroupWork, i: int, in_thread: Callable[..., Awaitable[Any]]) -> list[DamagedChunk]:
        """Decode the damaged chunks of a row group from their rebuilt bytes; gives those that stay damaged."""
        damaged, left = work.damaged[i], []
        for each in damaged:
            rebuilt = await self._rebuilt(each)
            ordinal, work.damaged[i] = each.chunk.leaf.ordinal, []
            if rebuilt is not None:
                piece = next(one for one in work.pieces if one.group == i and one.chunk.leaf.ordinal == ordinal)
                await in_thread(work.decode_again, piece, rebuilt[0])
            if rebuilt is None or work.damaged[i]:
                left.append(each)
            else:
                self.note(rebuilt[1])
        return left

    async def _rebuilt(self, damaged: DamagedChunk) -> tuple[memoryview, HealedChunk] | None:
        """The bytes of a damaged chunk as its sidecar has them; None where they cannot be had.

        A sidecar of another version of the file is used only where the checksum of the chunk decides.
        """
        place = self._objects.place_of(damaged.chunk)
        try:
            if place.info not in self._views:
                # The footer, which is whole, says whether its own file has parity.
                inside = damaged.chunk.file is not None or PARITY_KEY in self._objects.contents.key_value
                self._views[place.info] = await HealedStore.find(self._objects.store, place.info, inside=inside)
            view = self._views[place.info]
            if view is None or not (view.is_bound or isinstance(damaged.error, ChecksumError)):
                return None
            before = view.num_blocks_rebuilt
            data = await view.read_range(place.info.key, place.range.start, place.range.end, pin=place.info)
        except StoreError:  # the parity is of a shorter file, or it cannot be read: the damage is the error
            return None
        where, url = damaged.chunk.where, self._objects.url_of(damaged.chunk.file)
        return memoryview(data), HealedChunk(url, where.row_group, where.column, view.num_blocks_rebuilt - before)

    def note(self, chunk: HealedChunk) -> None:
        """Tell of a chunk that was healed; of the first one with a warning."""
        if not self.healed:
            text = f"{chunk.url} is damaged and was read with its parity: rpq repair writes a whole file"
            warnings.warn(text, HealedFileWarning, stacklevel=2)
        self.healed.append(chunk)
        if self._on_healed is not None:
            self._on_healed(chunk)
