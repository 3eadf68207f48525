"""Codecs of old files, which do not say which framing they have: LZ4 in three framings, and LZO in two; read only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cramjam
import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError

_LZ4_FRAME_MAGIC = b"\x04\x22\x4d\x18"
_SIZE = 4  # of each number in Hadoop's frames
_LITERALS_BEFORE = 4  # what the state of LZO1X says of a long run of literals; shorter ones by their number

#: Fills the front of a buffer from compressed bytes, and returns how much of it was filled.
_Decompress = Callable[[memoryview, NDArray[np.uint8]], int]


def lz4_decompress_into(data: Any, out: NDArray[np.uint8]) -> int:
    """Fill `out` from LZ4 data in whichever of the three framings fills it exactly."""
    view = memoryview(data)
    framings: list[_Decompress] = [partial(_from_frames, lz4_block_decompress_into), lz4_block_decompress_into]
    if view[: len(_LZ4_FRAME_MAGIC)] == _LZ4_FRAME_MAGIC:
        framings.insert(0, lambda data, out: int(cramjam.lz4.decompress_into(data, out.data)))
    return _fill_exactly(framings, view, out)


def lzo_decompress_into(data: Any, out: NDArray[np.uint8]) -> int:
    """Fill `out` from LZO data in whichever of the two framings fills it exactly; else as `lz4_decompress_into`."""
    return _fill_exactly([partial(_from_frames, lzo1x_decompress_into), lzo1x_decompress_into], memoryview(data), out)


def _fill_exactly(framings: Sequence[_Decompress], data: memoryview, out: NDArray[np.uint8]) -> int:
    # Those with a mark or a structure go first. What fits that to the last byte is hardly anything else, while
    # a bare block or stream has no mark at all.
    for decompress in framings:
        try:
            if decompress(data, out) == len(out):
                return len(out)
        except (EncodingError, cramjam.DecompressionError):
            continue
    raise EncodingError("the data are damaged in every framing that is known, or not of the announced size")


def lz4_block_decompress_into(data: Any, out: NDArray[np.uint8]) -> int:
    """Fill `out` from a bare LZ4 block, as LZ4_RAW has it; returns how much of it was filled."""
    # cramjam takes the first four bytes for the size of what follows where that makes sense, and those of some
    # blocks do. Behind a true size there is nothing to mistake.
    sized = len(out).to_bytes(_SIZE, "little") + bytes(data)
    return int(cramjam.lz4.decompress_block_into(sized, out.data))


def _from_frames(decompress: _Decompress, data: memoryview, out: NDArray[np.uint8]) -> int:
    """Hadoop's frames: the size of a part, then its blocks, each behind its compressed size, all big endian."""
    at = filled = 0
    while at < len(data):
        end = filled + _size(data, at)
        at += _SIZE
        if end > len(out):
            raise EncodingError("a frame is larger than the page")
        while filled < end:
            size = _size(data, at)
            at += _SIZE
            if size > len(data) - at:
                raise EncodingError("a frame goes beyond the page")
            done = decompress(data[at : at + size], out[filled:end])
            if not done:
                raise EncodingError("a frame holds an empty block")
            filled += done
            at += size
    return filled


def _size(data: memoryview, at: int) -> int:
    if len(data) - at < _SIZE:
        raise EncodingError("a frame is cut short")
    return int.from_bytes(data[at : at + _SIZE], "big")


def lzo1x_decompress_into(data: memoryview, out: NDArray[np.uint8]) -> int:
    """Fill `out` from one LZO1X stream; returns how much of it was filled."""
    decompressed = _Lzo1x(bytes(data), len(out)).decompress()
    out[: len(decompressed)] = np.frombuffer(decompressed, np.uint8)
    return len(decompressed)


class _Lzo1x:
    """One LZO1X stream, as the Linux kernel describes it (Documentation/staging/lzo.rst, version 0).

    It is a row of instructions: runs of literals, and matches, which copy what came out before and name up to
    three literals to follow. What an instruction with its upper four bits 0 means depends on the literals
    before it, the state: none, one to three, or more.
    """

    def __init__(self, data: bytes, limit: int) -> None:
        self._data = data
        self._at = 0
        self._limit = limit
        self._out = bytearray()

    def decompress(self) -> bytearray:
        """Everything up to the end mark, which must be the end of the data."""
        state = 0
        if self._data and self._data[0] > 17:  # of a first byte only: literals, as nothing can be copied yet
            count = self._byte() - 17
            self._literals(count)
            state = min(count, _LITERALS_BEFORE)
        while True:
            code = self._byte()
            if code < 16 and state == 0:
                self._literals(3 + self._length(code, 15))
                state = _LITERALS_BEFORE
                continue
            following = self._match(code, state)
            if following is None:
                break
            self._literals(following)
            state = following
        if self._at != len(self._data):
            raise EncodingError("LZO data go on behind their end mark")
        return self._out

    def _match(self, code: int, state: int) -> int | None:
        """Carry out one match; returns how many literals follow it, None at the end mark."""
        if code >= 64:  # 1LLDDDSS or 01LDDDSS, then eight more bits of the distance
            length = 5 + (code >> 5 & 3) if code >= 128 else 3 + (code >> 5 & 1)
            distance = (self._byte() << 3) + (code >> 2 & 7) + 1
        elif code >= 16:  # 001LLLLL or 0001HLLL, then the distance in 14 bits and SS
            mask = 31 if code >= 32 else 7
            length = 2 + self._length(code & mask, mask)
            last = self._byte() | self._byte() << 8
            distance = (last >> 2) + (1 if code >= 32 else 16384 + ((code & 8) << 11))
            if code < 32 and distance == 16384:
                return None
            code = last
        else:  # 0000DDSS, then eight more bits of the distance
            length = 3 if state == _LITERALS_BEFORE else 2
            distance = (self._byte() << 2) + (code >> 2) + (2049 if state == _LITERALS_BEFORE else 1)
        self._copy(distance, length)
        return code & 3

    def _byte(self) -> int:
        if self._at >= len(self._data):
            raise EncodingError("LZO data are cut short")
        self._at += 1
        return self._data[self._at - 1]

    def _length(self, short: int, mask: int) -> int:
        """A length that its bits do not hold is 0 there, and goes on: zero bytes count 255, then the rest."""
        if short:
            return short
        length = mask
        while (byte := self._byte()) == 0:
            length += 255
        return length + byte

    def _literals(self, count: int) -> None:
        literals = self._data[self._at : self._at + count]
        if len(literals) < count or len(self._out) + count > self._limit:
            raise EncodingError("LZO literals go beyond the data or the page")
        self._out += literals
        self._at += count

    def _copy(self, distance: int, length: int) -> None:
        if distance > len(self._out) or len(self._out) + length > self._limit:
            raise EncodingError("an LZO match goes beyond the page")
        start = len(self._out) - distance
        pattern = self._out[start : start + length]
        # A match may run into what it writes itself: then it repeats.
        self._out += pattern if len(pattern) == length else (pattern * (length // distance + 1))[:length]
