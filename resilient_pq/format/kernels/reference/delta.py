"""DELTA_BINARY_PACKED."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError
from resilient_pq.format.kernels.integers import varint, varint_bytes, zigzag, zigzag_bytes
from resilient_pq.format.kernels.reference.arrays import LARGEST_LENGTH, BytesLike, Integers, octets, require_types
from resilient_pq.format.kernels.reference.rle import pack, unpack

_BLOCK, _MINIBLOCK = 128, 32  # what we write, and everybody else
_WIDEST = 64


def delta_binary_decode(buffer: BytesLike, out: Integers) -> int:
    """Fill `out`, int32 or int64, from DELTA_BINARY_PACKED (Encodings.md, 5); returns the bytes that it takes."""
    # Arithmetic wraps around in the type of `out`. The last miniblock may be cut short behind its last value. The
    # miniblocks of int32, too, may have up to 64 bits: DuckDB does not let its differences wrap around at 32.
    data = octets(buffer).data
    require_types(out, np.int32, np.int64)
    (block_size, miniblocks, count, first), position = _delta_header(data)
    if count != out.size:
        raise EncodingError(f"{count} values are encoded where {out.size} are expected")
    if count == 0:
        return position
    steps = np.empty(count, np.uint64)  # the first value, then the deltas
    steps[0] = first
    filled = 1
    places = defaultdict[tuple[int, int], list[tuple[int, int]]](list)  # of miniblocks by width and count
    while filled < count:
        minimum, position = zigzag(data, position)
        widths = data[position : position + miniblocks]
        if len(widths) < miniblocks:
            raise EncodingError("a block ends behind the end of its buffer")
        position += miniblocks
        steps[filled : filled + block_size] = minimum
        for width in widths:
            wanted = min(block_size // miniblocks, count - filled)
            if wanted == 0:
                break
            end = min(position + block_size // miniblocks * width // 8, len(data))
            if width > _WIDEST or wanted * width > 8 * (end - position):
                raise EncodingError("a miniblock is wider than 64 bits or ends behind the end of its buffer")
            if width:
                places[width, wanted].append((position, filled))
            position = end
            filled += wanted
    for (width, wanted), alike in places.items():
        _add_miniblocks(data, width, wanted, alike, steps)
    out[:] = np.cumsum(steps, dtype=np.uint64).astype(f"u{out.itemsize}").view(out.dtype)
    return position


def _delta_header(data: memoryview) -> tuple[tuple[int, int, int, int], int]:
    """Values per block, miniblocks per block, values in all and the first one, and where the blocks start."""
    block_size, position = varint(data, 0, 32)
    miniblocks, position = varint(data, position, 32)
    count, position = varint(data, position, 32)
    first, position = zigzag(data, position)
    if not block_size or block_size % 128 or block_size > LARGEST_LENGTH:
        raise EncodingError(f"blocks of {block_size} values are not a multiple of 128")
    if not miniblocks or block_size % miniblocks or block_size // miniblocks % 32:
        raise EncodingError(f"{miniblocks} miniblocks to {block_size} values are not multiples of 32")
    return (block_size, miniblocks, count, first), position


def _add_miniblocks(
    data: memoryview, width: int, wanted: int, places: list[tuple[int, int]], steps: NDArray[np.uint64]
) -> None:
    """Unpack all miniblocks of one width at once and add them where they belong."""
    offsets, indices = np.array(places, np.int64).T
    row_size = -(-wanted // 8) * width
    rows = np.take(np.frombuffer(data, np.uint8), offsets[:, None] + np.arange(row_size), mode="clip")
    deltas = unpack(memoryview(rows.ravel()), width, rows.size // width * 8).reshape(len(places), -1)
    steps[indices[:, None] + np.arange(wanted)] += deltas[:, :wanted]


def delta_binary_encode(values: Integers) -> NDArray[np.uint8]:
    """Encode int32 or int64 as DELTA_BINARY_PACKED (Encodings.md, 5): blocks of 128, in 4 miniblocks of 32."""
    # The last miniblock is whole, filled up with zeros; miniblocks without values have width 0 and no bytes.
    require_types(values, np.int32, np.int64)
    n = values.size
    unsigned = values.view(f"u{values.itemsize}")
    first = zigzag_bytes(int(values[0]) if n else 0)
    header = varint_bytes(_BLOCK) + varint_bytes(_BLOCK // _MINIBLOCK) + varint_bytes(n) + first
    if n < 2:
        return np.frombuffer(bytearray(header), dtype=np.uint8)
    blocks = -(-(n - 1) // _BLOCK)
    deltas = np.full(blocks * _BLOCK, np.iinfo(values.dtype).max, values.dtype)  # the filling is no minimum
    deltas[: n - 1] = (unsigned[1:] - unsigned[:-1]).view(values.dtype)
    minimums = deltas.reshape(blocks, _BLOCK).min(axis=1)
    above = deltas.view(unsigned.dtype).reshape(blocks, _BLOCK) - minimums.view(unsigned.dtype)[:, None]
    above.ravel()[n - 1 :] = 0
    miniblocks = above.reshape(-1, _MINIBLOCK)
    highest = miniblocks.max(axis=1)
    widths = np.zeros(highest.size, np.uint8)
    for bit in range(8 * values.itemsize):
        widths[highest >> bit != 0] = bit + 1
    packed = [b""] * widths.size
    for width in np.unique(widths[widths > 0]).tolist():
        alike = np.flatnonzero(widths == width)
        rows = pack(miniblocks[alike].ravel(), width).reshape(alike.size, -1)
        for miniblock, row in zip(alike.tolist(), rows, strict=True):
            packed[miniblock] = row.tobytes()
    parts = [header]
    for block, minimum in enumerate(minimums.tolist()):
        own = slice(4 * block, 4 * block + 4)
        parts += [zigzag_bytes(minimum), widths[own].tobytes(), *packed[own]]
    return np.frombuffer(bytearray().join(parts), dtype=np.uint8)
