"""By what bytes on S3 are known to be ours: ETags, and the CRC32 that is sent with them where the store takes it.

A CRC32 goes into a header of its own and never into a trailer of the body, which R2, GCS and Ceph refuse. What a
store answers says whether it compared it: stores are met that take the header and look at nothing.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from resilient_pq.checksum import combine, crc32
from resilient_pq.io.multipart_store import Part
from resilient_pq.io.stored_object import bare_etag
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import MiB

FULL_OBJECT = "FULL_OBJECT"  # The type of checksum that covers the bytes of the object, whatever parts they came in
COMPOSITE = "COMPOSITE"  # The type that covers the sums of the parts: a completion then has to name each

# Up to here the sum takes less time than a thread that would make it.
_IN_A_THREAD = 4 * MiB


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What an object is known by, after a request that may have made it."""

    size: int  # Bytes
    etag: str | None  # The ETag that S3 gives these bytes, without quotes; None where it cannot be known
    crc32: int | None  # CRC32 of all bytes, or None

    def is_of(self, answer: Mapping[str, Any]) -> bool:
        """Whether the answer to a HEAD is about these bytes; False when it does not say enough."""
        if answer.get("ContentLength") != self.size:
            return False
        stored = full_crc32(answer)
        if self.crc32 is not None and stored is not None:
            return stored == self.crc32
        etag = answer.get("ETag")
        return self.etag is not None and etag is not None and bare_etag(str(etag)) == self.etag


def encoded(crc: int) -> str:
    """A CRC32 as S3 writes it: big-endian, base64."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def decoded(text: object) -> int | None:
    """The CRC32 that a server wrote, or None for what is none: a sum over the sums of parts has a suffix."""
    try:
        crc = base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        return None
    return int.from_bytes(crc, "big") if len(crc) == 4 else None


def full_crc32(answer: Mapping[str, Any]) -> int | None:
    """The CRC32 of a whole object in an answer, or None."""
    if answer.get("ChecksumType", FULL_OBJECT) != FULL_OBJECT:
        return None
    return decoded(answer.get("ChecksumCRC32"))


async def crc32_of(pieces: Sequence[memoryview]) -> int:
    """CRC32 of bytes in pieces; of many bytes in a thread."""

    def total() -> int:
        crc = 0
        for piece in pieces:
            crc = crc32(piece, crc)
        return crc

    if sum(piece.nbytes for piece in pieces) < _IN_A_THREAD:
        return total()
    return await asyncio.to_thread(total)


def crc32_of_parts(parts: Sequence[Part]) -> int | None:
    """CRC32 of the object that these parts make, in this order; None where that of any part is not known."""
    crc = 0
    for part in parts:
        if part.crc32 is None:
            return None
        crc = combine(crc, part.crc32, part.size)
    return crc


def multipart_etag(parts: Sequence[Part]) -> str | None:
    """The ETag that S3 gives an object of these parts: the MD5 of their MD5s and how many there are."""
    # None where the ETags of the parts are no MD5s, as with some encryption.
    try:
        sums = b"".join(bytes.fromhex(bare_etag(part.etag)) for part in parts)
    except ValueError:
        return None
    if len(sums) != 16 * len(parts):
        return None
    return f"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(parts)}"


def md5_of(pieces: Sequence[memoryview]) -> str:
    """The ETag that S3 gives an object written in one request, encrypted ones apart."""
    total = hashlib.md5(usedforsecurity=False)
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()
