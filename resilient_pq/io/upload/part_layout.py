"""Which bytes of an object belong to which part of its upload, and those that are held. Pure: no store, no clock."""

from __future__ import annotations

from bisect import bisect_left

from resilient_pq.errors import StoreError
from resilient_pq.io.multipart_store import Part
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS, SinkOptions
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import KiB

MAX_PARTS = 10_000
PARTS_PER_SIZE = 500


def part_size(number: int, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> int:
    """Bytes of part `number`, from 1, of an upload."""
    # `part_bytes`, doubling every 500 parts up to `max_part_bytes`: always a whole number of MiB.
    if number > MAX_PARTS:
        setting = "part_bytes" if options.equal_parts else "max_part_bytes"
        raise StoreError(
            f"the object needs more than {MAX_PARTS:,} parts: more than {max_object_size(options):,} bytes",
            hint=f"raise {setting}, now {getattr(options, setting):,} bytes",
        )
    if options.equal_parts:
        return options.part_bytes
    longest = max(options.part_bytes, options.max_part_bytes)
    return min(options.part_bytes << ((number - 1) // PARTS_PER_SIZE), longest)


def max_object_size(options: SinkOptions = DEFAULT_SINK_OPTIONS) -> int:
    """Bytes of the largest object that 10,000 parts can make."""
    return sum(part_size(number, options) for number in range(1, MAX_PARTS + 1))


class PartLayout:
    """Where each part of one upload begins and ends, from part 1 on, when all are full."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._ends = [0]  # of part 0, which is none, of part 1, ...

    def add(self, size: int) -> None:
        """Lay out the next part in another size than the options say."""
        self._ends.append(self._ends[-1] + size)

    def cover(self, end: int) -> None:
        """Lay out parts up to the byte before `end`."""
        while self._ends[-1] < end:
            self.end_of(len(self._ends))

    def start_of(self, number: int) -> int:
        """Where a part begins."""
        return self.end_of(number - 1)

    def end_of(self, number: int) -> int:
        """Where a part ends when it is full; it must hold bytes, or be the next that will."""
        while number >= len(self._ends):
            self.add(part_size(len(self._ends), self._options))
        return self._ends[number]

    def size_of(self, number: int) -> int:
        """Bytes of a part when it is full."""
        return self.end_of(number) - self._ends[number - 1]

    def number_of(self, end: int) -> int:
        """The part that holds the byte before `end`."""
        self.cover(end)
        return max(1, bisect_left(self._ends, end))

    def is_full(self, number: int, position: int) -> bool:
        """Whether an object of `position` bytes fills a part; all its bytes are laid out."""
        return number < len(self._ends) and self._ends[number] <= position


@dataclass(slots=True)
class PartSlot:
    """One part: which bytes are its own, and which of them the store has."""

    number: int
    start: int
    end: int
    part: Part | None = None
    sent_end: int = 0
    sending_end: int | None = None
    quiet_until: float = 0.0
    released: bool = False


# Smaller pieces are copied together: a page header of 40 bytes is not worth a write of its own.
_SMALL_PIECE = 64 * KiB


class PartBuffers:
    """Large pieces as they came, small ones copied together; cut where parts end."""

    def __init__(self, layout: PartLayout, *, first: int = 1) -> None:
        """Hold nothing yet; the first byte that comes is that of part `first`."""
        self._layout = layout
        self._number = first
        self._position = layout.start_of(first)
        self._parts: dict[int, list[memoryview | bytearray]] = {}

    def append(self, piece: memoryview) -> None:
        """Add bytes at the end of the object."""
        while piece.nbytes:
            room = self._layout.end_of(self._number) - self._position
            self._append(piece[:room])
            self._position += min(room, piece.nbytes)
            self._number += piece.nbytes >= room
            piece = piece[room:]

    def _append(self, piece: memoryview) -> None:
        pieces = self._parts.setdefault(self._number, [])
        if piece.nbytes > _SMALL_PIECE:
            pieces.append(piece)
            return
        last = pieces[-1] if pieces else None
        if isinstance(last, bytearray) and len(last) < _SMALL_PIECE:
            last += piece
        else:
            pieces.append(bytearray(piece))

    def view(self, number: int, size: int) -> list[memoryview]:
        """The first `size` bytes of a part; they stay held, and never change."""
        pieces = self._parts[number]
        # What is lent out must not be grown: the next small piece begins a new one.
        views = [memoryview(piece) for piece in pieces]
        pieces[:] = views
        found: list[memoryview] = []
        for view in views:
            if not size:
                break
            found.append(view[:size])
            size -= found[-1].nbytes
        return found

    def drop(self, number: int) -> None:
        """Let go of a part."""
        self._parts.pop(number, None)

    def take_all(self) -> list[memoryview]:
        """Everything that is held, in order."""
        held, self._parts = self._parts, {}
        return [memoryview(piece) for number in sorted(held) for piece in held[number]]
