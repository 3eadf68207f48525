"""Frames of zstd: what their headers say (RFC 8878, section 3.1.1.1), and bytes that are put before their blocks."""

from __future__ import annotations

from typing import Final

_MAGIC = b"\x28\xb5\x2f\xfd"
#: Of the descriptor: whether the window is as large as the content, and has no byte of its own; and whatever is of no
#: use here, which are a checksum, a dictionary, and bits without a meaning.
_SINGLE_SEGMENT, _OTHER = 0x20, 0x1F
_TWO_BYTES_FROM: Final = 256  # Two bytes begin to count where one ends


def _size_of_size(descriptor: int) -> int:
    """Bytes of the content's size, which may be left out where there is a window."""
    return (1 if descriptor & _SINGLE_SEGMENT else 0, 2, 4, 8)[descriptor >> 6]


def front(frame: memoryview, before: bytes, size: int) -> tuple[bytes, int] | None:
    """The bytes that put others before a frame's content, and how many bytes of its header they replace."""
    # The bytes before the content, at most 1 KiB, become a block of their own that is not compressed (section 3.1.1.2).
    # The other blocks stay as they are: they copy from what stands before them by the distance, and such a block
    # changes nothing else that they begin with (section 3.1.1.5). None where the header has more than a window and a
    # size.
    if frame[: len(_MAGIC)] != _MAGIC or frame[4] & _OTHER:
        return None
    window = b"" if frame[4] & _SINGLE_SEGMENT else bytes(frame[5:6])
    if size < _TWO_BYTES_FROM and not window:
        descriptor, content = 0, bytes((size,))
    elif _TWO_BYTES_FROM <= size < _TWO_BYTES_FROM + (1 << 16):
        descriptor, content = 1, (size - _TWO_BYTES_FROM).to_bytes(2, "little")
    else:
        descriptor, content = 2, size.to_bytes(4, "little")
    flags = descriptor << 6 | (0 if window else _SINGLE_SEGMENT)
    block = (len(before) << 3).to_bytes(3, "little")  # not the last one, and raw: bits that are 0
    header = 5 + len(window) + _size_of_size(frame[4])
    return b"".join((_MAGIC, bytes((flags,)), window, content, block, before)), header
