"""The bytes of an object that is being uploaded, part by part, until each part needs them no more."""

from __future__ import annotations

from resilient_pq.io.upload.part_layout import PartLayout
from resilient_pq.units import KiB

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
