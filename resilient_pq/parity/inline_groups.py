"""The parity groups inside a file while it is laid out: its bytes in, parity out that waits for a gap. Sans-io."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.parity.group_encoder import EncodedGroup, GroupEncoder
from resilient_pq.parity.group_record import LAST_FLAG
from resilient_pq.parity.group_shape import GroupShape, ParityShare, fitting_shape, full_shape
from resilient_pq.parity.reed_solomon import MAX_DATA
from resilient_pq.units import MiB

#: Bytes of a first row group that groups of the largest size follow from, so that no more have to be kept.
_MOST_HELD = 25 * MiB
#: Shards that are added up at one time.
_AT_ONCE = 8


class InlineGroups:
    """Groups one behind the other: each takes the bytes behind the one before, parity of that included."""

    def __init__(self, share: ParityShare, start: int = 0, num_groups: int = 0) -> None:
        self.share = share
        self.num_groups = num_groups  # Those that were in place included, where a file is appended to
        self._start = start
        self._held: list[memoryview] = []  # all of the open group until shards have a size, else its end
        self._held_bytes = 0
        self._largest_row_group = 0
        self._full: GroupShape | None = None
        self._encoder: GroupEncoder | None = None
        self._waiting: deque[tuple[EncodedGroup, ByteRange]] = deque()

    @property
    def num_open_bytes(self) -> int:
        """Bytes of the open group."""
        return self._held_bytes + (0 if self._encoder is None else self._encoder.num_bytes)

    @property
    def num_waiting(self) -> int:
        """Groups that have ended, and whose parity is not in the file."""
        return len(self._waiting)

    def end_row_group(self, num_bytes: int) -> None:
        """A row group of so many bytes has ended."""
        self._largest_row_group = max(self._largest_row_group, num_bytes)

    def begin_row_group(self) -> None:
        """Another row group follows: the sizes of groups can be chosen."""
        if self._largest_row_group and self._full is None:
            self._choose(self._largest_row_group)

    def add(self, buffers: Iterable[Any]) -> None:
        """Take the next bytes of the file."""
        for buffer in buffers:
            data = memoryview(buffer).cast("B")
            self._held.append(data)
            self._held_bytes += len(data)
        if self._full is None and self._held_bytes >= _MOST_HELD:
            self._choose(self._held_bytes)
        elif self._full is not None and self._held_bytes >= _AT_ONCE * self._full.shard_bytes:
            self.settle()

    def settle(self) -> None:
        """Add up what was held back, since several shards at a time take less time."""
        if self._full is not None and self._held:
            held, self._held, self._held_bytes = self._held, [], 0
            self._encode(held[0] if len(held) == 1 else memoryview(b"".join(held)), self._full)

    def _choose(self, row_group_bytes: int) -> None:
        self._full = full_shape(row_group_bytes, self.share)
        self.settle()

    def _encode(self, data: memoryview, full: GroupShape) -> None:
        while data:
            if self._encoder is None:
                full = self._full = full_shape(max(self._largest_row_group, full.num_bytes // 4), self.share)
                self._encoder = GroupEncoder(full)
            piece, data = data[: self._encoder.room], data[self._encoder.room :]
            self._encoder.add(piece)
            if not self._encoder.room:
                self._wait(self._encoder.finish())

    def _wait(self, group: EncodedGroup) -> None:
        end = self._start + group.shape.num_bytes
        self._waiting.append((group, ByteRange(self._start, end)))
        self._start, self._encoder = end, None

    def take(self, offset: int, record: Callable[[int, bytes], bytes]) -> list[Any]:
        """The parity of the group that waits for longest, to be written at an offset."""
        group, extent = self._waiting.popleft()
        self.num_groups += 1
        return group.framed(self.num_groups - 1, [extent], offset, 0, record)

    # -- the end of the file -------------------------------------------------------------------------

    def may_end_with(self, num_bytes: int) -> bool:
        """Prepare the last group for so many bytes more; False where parity waits, and has to be placed before."""
        self.settle()
        full, encoder = self._full, self._encoder
        if full is not None and self.num_open_bytes + num_bytes > MAX_DATA * full.shard_bytes:
            if encoder is not None:
                self._wait(self._ended(encoder))
            if num_bytes > full.num_bytes // 2:
                self._full = None  # the tail gets shards as large as it needs
        return not self._waiting

    def last_shape(self, num_bytes: int) -> GroupShape:
        """The shape of the open group, when it takes so many bytes more and is the last."""
        size = self.num_open_bytes + num_bytes
        if self._full is None:
            return fitting_shape(size, self.share)
        return replace(self._full, num_bytes=size, num_parity=self._parity_for(size, self._full))

    def last(self, offset: int, tail: Sequence[Any], record: Callable[[int, bytes], bytes]) -> list[Any]:
        """The parity of the last group, to be written at an offset; `tail` is what follows it up to the end."""
        tail_bytes = sum(len(data) for data in tail)
        shape = self.last_shape(tail_bytes)
        encoder = self._encoder or GroupEncoder(shape)
        encoder.grow(shape.num_bytes)
        for data in (*self._held, *tail):
            encoder.add(data)
        behind = offset + shape.framed_bytes
        extents = [ByteRange(self._start, offset), ByteRange(behind, behind + tail_bytes)]
        self._held, self._encoder = [], None
        group = encoder.finish(shape.num_parity)
        return group.framed(self.num_groups, extents, offset, LAST_FLAG, record)

    def _ended(self, encoder: GroupEncoder) -> EncodedGroup:
        assert self._full is not None
        return encoder.finish(self._parity_for(encoder.num_bytes, self._full))

    def _parity_for(self, num_bytes: int, full: GroupShape) -> int:
        return self.share.parity_for(-(-num_bytes // full.shard_bytes))
