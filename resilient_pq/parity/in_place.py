"""Rebuilt blocks written into a local file, so that a crash at any moment leaves it damaged as it was, or repaired.

All blocks go to a journal, ``NAME.rpqrepair``, which is synced before the first of them is written into the file. A
journal that is whole is carried out again by the next repair; one that is not is removed, as nothing was done::

    magic RPQREPR LF | size of the file u64 | number of blocks u32
    for each block: offset u64 | length u32 | bytes
    xxh3-64 of all before
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress

from resilient_pq.checksum import xxh3
from resilient_pq.io.os_errors import explained
from resilient_pq.io.partial_file import sync_folder

_MAGIC = b"RPQREPR\n"
_HEAD = struct.Struct("<8sQI")
_BLOCK = struct.Struct("<QI")
_SUFFIX = ".rpqrepair"


def write_in_place(path: str, size: int, blocks: Sequence[tuple[int, bytes]]) -> None:
    """Write blocks to their offsets in a file, and give it a size.

    Raises:
        StoreError: The file or its folder cannot be written; the next repair carries on.
    """
    with explained("cannot repair", path):
        parts = [_HEAD.pack(_MAGIC, size, len(blocks))]
        for offset, data in blocks:
            parts += [_BLOCK.pack(offset, len(data)), data]
        journal = b"".join(parts)
        with open(path + _SUFFIX, "wb") as file:
            file.write(journal + xxh3(journal).to_bytes(8, "little"))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path)
        _apply(path, size, blocks)
        os.remove(path + _SUFFIX)


def finish_in_place(path: str) -> None:
    """Carry out what an earlier repair of this file has begun."""
    with explained("cannot repair", path), suppress(FileNotFoundError):
        with open(path + _SUFFIX, "rb") as file:
            journal = file.read()
        found = _parse(journal)
        if found is not None:
            _apply(path, *found)
        os.remove(path + _SUFFIX)


def _apply(path: str, size: int, blocks: Sequence[tuple[int, bytes]]) -> None:
    with open(path, "r+b") as file:
        for offset, data in blocks:
            file.seek(offset)
            file.write(data)
        file.truncate(size)
        file.flush()
        os.fsync(file.fileno())


def _parse(journal: bytes) -> tuple[int, list[tuple[int, bytes]]] | None:
    """The size and the blocks of a journal; None where it is not whole."""
    body, stated = journal[:-8], journal[-8:]
    if len(body) < _HEAD.size or xxh3(body).to_bytes(8, "little") != stated or not body.startswith(_MAGIC):
        return None
    _, size, count = _HEAD.unpack_from(body)
    return size, list(_blocks(body, count))


def _blocks(body: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    at = _HEAD.size
    for _ in range(count):
        offset, length = _BLOCK.unpack_from(body, at)
        at += _BLOCK.size
        yield offset, body[at : at + length]
        at += length
