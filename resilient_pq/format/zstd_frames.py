"""Frames of zstd: what their headers say (RFC 8878, section 3.1.1.1), and bytes that are put before their blocks."""

from __future__ import annotations

from typing import Final

_MAGIC = b"\x28\xb5\x2f\xfd"
#: Bytes of a frame's header, that of its first block counted; a smaller frame is not worth a look.
LARGEST_HEADER: Final = 18 + 3
#: Of the descriptor: whether the window is as large as the content, and has no byte of its own; and whatever is of no
#: use here, which are a checksum, a dictionary, and bits without a meaning.
_SINGLE_SEGMENT, _OTHER = 0x20, 0x1F
#: Bytes of the content's size, by the two highest bits of the descriptor; not one but none where there is a window.
_SIZE_BYTES: Final = (1, 2, 4, 8)
#: Two bytes begin to count where one ends.
_TWO_BYTES_FROM: Final = 256
#: What `front` gives besides the bytes that it puts before the blocks is at most so much longer than what it replaces.
FRONT_BYTES: Final = 4 + 3


def content_size(frame: memoryview) -> int | None:
    """How many bytes a frame says that it holds; None where it does not say it."""
    if frame[: len(_MAGIC)] != _MAGIC or len(frame) < LARGEST_HEADER:
        return None
    descriptor = frame[4]
    single_segment = descriptor >> 5 & 1
    size_of_size = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(frame[start : start + size_of_size], "little")
    return (size + 256 if size_of_size == 2 else size) if size_of_size else None


def front(frame: memoryview, before: bytes, size: int) -> tuple[bytes, int] | None:
    """What makes of a frame one of more content, where it takes the place of the frame's header.

    The bytes before the content become a block of their own that is not compressed (section 3.1.1.2). The other blocks
    stay as they are: they copy from what stands before them by the distance, and such a block changes nothing else
    that they begin with (section 3.1.1.5 has what does).

    Args:
        frame: From its header on.
        before: What is put before its content; at most 1 KiB, as no window is smaller, and no block may be larger.
        size: Bytes of the content, those before it counted; less than 4 GiB.

    Returns:
        It, and the bytes of the header that it replaces; None where that has more than a window and a size.
    """
    if frame[: len(_MAGIC)] != _MAGIC or frame[4] & _OTHER:
        return None
    window = b"" if frame[4] & _SINGLE_SEGMENT else bytes(frame[5:6])
    size_bytes = _SIZE_BYTES[frame[4] >> 6] if frame[4] >> 6 or not window else 0
    if size < _TWO_BYTES_FROM and not window:
        descriptor, content = 0, bytes((size,))
    elif _TWO_BYTES_FROM <= size < _TWO_BYTES_FROM + (1 << 16):
        descriptor, content = 1, (size - _TWO_BYTES_FROM).to_bytes(2, "little")
    else:
        descriptor, content = 2, size.to_bytes(4, "little")
    flags = descriptor << 6 | (0 if window else _SINGLE_SEGMENT)
    block = (len(before) << 3).to_bytes(3, "little")  # not the last one, and raw: bits that are 0
    return b"".join((_MAGIC, bytes((flags,)), window, content, block, before)), 5 + len(window) + size_bytes
