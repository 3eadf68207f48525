"""How many threads a read is worth: Python runs in one at a time, and waiting for each other costs them time. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from resilient_pq.format.metadata import CompressionCodec
from resilient_pq.reader.plan import ChunkRead

#: Seconds of Python for each chunk, and seconds of all else, at which a second thread begins to pay: measured with two
#: processors for chunks of 8 KB to 1.6 MB. With smaller ones two threads took up to twice the time of one, since each
#: waits for the other several times a chunk (`scripts/bench/thread_count.py`).
_PYTHON_SECONDS: Final = 100e-6
_PAYS: Final = 2.5
#: Bytes a second of what runs beside Python: reading, comparing, copying; and decompressing, where that is slow.
_COPIED: Final = 2.5e9
_DECOMPRESSED: Final = 0.8e9
_QUICK: Final = frozenset(
    (CompressionCodec.UNCOMPRESSED, CompressionCodec.SNAPPY, CompressionCodec.LZ4_RAW, CompressionCodec.LZ4)
)


def threads_worth(chunks: Iterable[ChunkRead]) -> int:
    """How many threads at most should decode chunks, one or more."""
    python = beside = 0.0
    for chunk in chunks:
        size = chunk.num_decoded
        python += _PYTHON_SECONDS
        beside += size / _COPIED
        if chunk.metadata.codec not in _QUICK:
            beside += size / _DECOMPRESSED
    return 1 + int(beside / (_PAYS * python)) if python else 1
