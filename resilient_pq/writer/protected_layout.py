"""The layout of a file with parity inside: groups of its bytes, whose parity lies in the gaps between row groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format import footer
from resilient_pq.format.file_metadata import FileMetaData, StoredSortingColumn
from resilient_pq.format.pages.chunk_encoder import EncodedChunk
from resilient_pq.format.resilience_records import RecordChain, RecordKind
from resilient_pq.format.schema_tree import Schema
from resilient_pq.writer.file_layout import Buffers, FileLayout

if TYPE_CHECKING:
    from resilient_pq.parity.inline_groups import InlineGroups
    from resilient_pq.writer.file_sealing import FileSealing

#: Tries at the end of a file until the tail has the length that its offsets were made for; then it grows by a byte.
_TRIES = 4


class ProtectedLayout(FileLayout):
    """Lays out one file with parity: every byte but those of the last parity is in a group."""

    _in_runs = False  # A group takes the bytes of chunk after chunk, however many are laid out at once

    def __init__(
        self,
        schema: Schema,
        chain: RecordChain,
        key_value: Mapping[str, str | None],
        sealing: FileSealing | None = None,
        *,
        groups: InlineGroups,
        made_like: FileMetaData | None = None,
    ) -> None:
        super().__init__(schema, chain, key_value, sealing, made_like=made_like)
        self.groups = groups  # Take the bytes of the file as they are given out
        self.parity_places: list[ByteRange] = []  # Where the parity of groups lies

    def start(self) -> Buffers:
        """The first bytes of the file."""
        return self._taken(super().start())

    def chunk(self, chunk: EncodedChunk) -> Buffers:
        """The next column chunk, its record before it."""
        if not self._chunks:
            self.groups.begin_row_group()
        return self._taken(super().chunk(chunk))

    def end_row_group(self, num_rows: int, *, sorting_columns: list[StoredSortingColumn] | None = None) -> Buffers:
        """Complete the open row group; parity that waits stands behind its record."""
        self.groups.end_row_group(sum(chunk.size for chunk in self._chunks))
        return [*self._taken(super().end_row_group(num_rows, sorting_columns=sorting_columns)), *self._waiting()]

    def checkpoint(self) -> Buffers:
        """A checkpoint of all complete row groups."""
        return self._taken(super().checkpoint())

    def finish(self, *, state: str | None = None, extra: Mapping[str, str] | None = None) -> Buffers:
        """The last bytes of the file: the parity of the last group, which has also those behind it, and the footer."""
        num_bytes, parity = self.next_checkpoint_bytes, []
        while not self.groups.may_end_with(num_bytes):
            parity += self._waiting()
        offset, chain = self.offset, self._chain
        for tries in count():  # offsets in the tail have more digits, the farther behind it lies
            shape = self.groups.last_shape(num_bytes)
            self._place(shape.framed_bytes)
            behind = self.offset - shape.record_bytes
            self._chain = replace(chain, number=chain.number + 2, previous=behind)
            tail = self._tail(state or self.ends_as, extra or {}, max(0, tries - _TRIES))
            num_bytes = sum(map(len, tail))
            if self.groups.may_end_with(num_bytes):
                found = self.groups.last_shape(num_bytes)
                if (found.record_bytes, found.framed_bytes) == (shape.record_bytes, shape.framed_bytes):
                    break
            self.offset, self._chain = offset, chain
            self.parity_places.pop()
            parity += self._waiting()
            offset = self.offset
        self._chain = chain
        return [*parity, *self.groups.last(offset, tail, self._parity_record), *tail]

    def _taken(self, buffers: Buffers) -> Buffers:
        self.groups.add(buffers)
        return buffers

    def _waiting(self) -> list[Any]:
        """The parity of groups that have ended; what that ends itself waits for the next gap."""
        buffers: list[Any] = []
        self.groups.settle()
        for _ in range(self.groups.num_waiting):
            framed = self.groups.take(self.offset, self._parity_record)
            self._place(sum(map(len, framed)))
            buffers += self._taken(framed)
        return buffers

    def _place(self, size: int) -> None:
        self.parity_places.append(ByteRange(self.offset, self.offset + size))
        self.offset += size

    def _parity_record(self, offset: int, payload: bytes) -> bytes:
        rows, row_groups = self.num_rows, len(self.row_groups)
        return self._chain.record(RecordKind.PARITY, offset, payload, num_rows=rows, num_row_groups=row_groups)

    def _footer(self, row_groups: Sequence[bytes], state: str, extra: Mapping[str, str]) -> bytes:
        places = ",".join(f"{place.start}:{place.size}" for place in self.parity_places)
        parity = {footer.PARITY_KEY: places, footer.PARITY_SHARE_KEY: str(self.groups.share.share)}
        return super()._footer(row_groups, state, {**extra, **parity})


def new_layout(
    schema: Schema,
    chain: RecordChain,
    key_value: Mapping[str, str | None],
    sealing: FileSealing | None = None,
    *,
    groups: InlineGroups | None,
    made_like: FileMetaData | None = None,
) -> FileLayout:
    """The layout of a file, with parity or without."""
    if groups is None:
        return FileLayout(schema, chain, key_value, sealing, made_like=made_like)
    return ProtectedLayout(schema, chain, key_value, sealing, groups=groups, made_like=made_like)
