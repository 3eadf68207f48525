"""Rebuilt blocks written into a local file, so that a crash at any moment leaves it damaged as it was, or repaired.

All blocks go to a journal, ``NAME.rpqrepair``, which is synced before the first of them is written into the file. A
journal that is whole is carried out again by the next repair, if the file is the one that was repaired: with the blocks
it has the digest that the journal names. Any other journal is removed, as nothing was done::

    magic RPQREP2 LF | size of the file u64 | number of blocks u32 | xxh3-128 of the repaired file
    for each block, by offset: offset u64 | length u32 | bytes
    xxh3-64 of all before
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO

import xxhash

from resilient_pq.checksum import xxh3
from resilient_pq.errors import ObjectChangedError, Where
from resilient_pq.io import ObjectInfo
from resilient_pq.io.os_errors import explained
from resilient_pq.io.partial_file import sync_folder
from resilient_pq.io.stored_object import file_info
from resilient_pq.units import MiB

_MAGIC = b"RPQREP2\n"
_HEAD = struct.Struct("<8sQI16s")
_BLOCK = struct.Struct("<QI")
_SUFFIX = ".rpqrepair"


def write_in_place(path: str, pin: ObjectInfo, size: int, digest: bytes, blocks: Sequence[tuple[int, bytes]]) -> None:
    """Write blocks to their offsets in a file, and give it a size; its time of change stays."""
    with explained("cannot repair", path), open(path, "r+b") as file:
        if file_info(path, os.fstat(file.fileno())).etag != pin.etag:
            raise ObjectChangedError("the file was changed while it was repaired", where=Where(key=path))
        parts = [_HEAD.pack(_MAGIC, size, len(blocks), digest)]
        for offset, data in blocks:
            parts += [_BLOCK.pack(offset, len(data)), data]
        journal = b"".join(parts)
        with open(path + _SUFFIX, "wb") as copy:
            copy.write(journal + xxh3(journal).to_bytes(8, "little"))
            copy.flush()
            os.fsync(copy.fileno())
        sync_folder(path)
        _apply(file, size, blocks)
        os.remove(path + _SUFFIX)


def finish_in_place(path: str) -> None:
    """Carry out what an earlier repair of this file has begun."""
    with explained("cannot repair", path), suppress(FileNotFoundError):
        with open(path + _SUFFIX, "rb") as copy:
            found = _parse(copy.read())
        if found is not None:
            size, digest, blocks = found
            with open(path, "r+b") as file:
                if _digest_with(file, size, blocks) == digest:
                    _apply(file, size, blocks)
        os.remove(path + _SUFFIX)


def _apply(file: BinaryIO, size: int, blocks: Sequence[tuple[int, bytes]]) -> None:
    status = os.fstat(file.fileno())
    for offset, data in blocks:
        file.seek(offset)
        file.write(data)
    file.truncate(size)
    file.flush()
    if os.utime in os.supports_fd:  # it is the version again that was protected
        os.utime(file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    os.fsync(file.fileno())


def _digest_with(file: BinaryIO, size: int, blocks: Sequence[tuple[int, bytes]]) -> bytes:
    """The xxh3-128 that a file would have with some blocks in it."""
    digest, at = xxhash.xxh3_128(), 0
    for offset, data in [*blocks, (size, b"")]:
        file.seek(at)
        while at < offset and (piece := file.read(min(offset - at, 8 * MiB))):
            digest.update(piece)
            at += len(piece)
        digest.update(data)
        at = offset + len(data)
    return digest.digest()


def _parse(journal: bytes) -> tuple[int, bytes, list[tuple[int, bytes]]] | None:
    """The size, the digest and the blocks of a journal; None where it is not whole."""
    body, stated = journal[:-8], journal[-8:]
    if len(body) < _HEAD.size or xxh3(body).to_bytes(8, "little") != stated or not body.startswith(_MAGIC):
        return None
    _, size, count, digest = _HEAD.unpack_from(body)
    return size, digest, list(_blocks(body, count))


def _blocks(body: bytes, count: int) -> Iterator[tuple[int, bytes]]:
    at = _HEAD.size
    for _ in range(count):
        offset, length = _BLOCK.unpack_from(body, at)
        at += _BLOCK.size
        yield offset, body[at : at + length]
        at += length
