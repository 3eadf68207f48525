"""The index of a sidecar: which files its groups protect, and where the groups lie.

A sidecar is::

    RPQPAR CR LF
    for each group but the last: record | parity shards | the same record again
    index
    of the last group: record | parity shards | the same record again; where there is none, 4 KiB of zeros
    the same index again
    offset of the first index u64 | of the second u64 | RPQPAR CR LF

Records are those of `resilience_records` of kind 6 (`group_record`), indexes of kind 8: a JSON object, a line feed, and
for a small file a copy of all its bytes. The protected bytes are those of all files, one behind the other, each filled
up with zeros to a whole number of blocks of 4 KiB; extents of groups are places in them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, Final

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError
from resilient_pq.io import ObjectInfo
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.group_shape import BLOCK_BYTES
from resilient_pq.units import KiB

MAGIC: Final = b"RPQPAR\r\n"
SUFFIX: Final = ".rpqparity"
#: Characters that the name of a file in a folder does not have.
_NO_NAME: Final = frozenset("/\\\0")
_TRAILER: Final = struct.Struct("<QQ8s")
TRAILER_SIZE: Final = _TRAILER.size
#: A file up to this size is copied into its sidecar, twice: as a code it would hardly be smaller.
MIRROR_BYTES: Final = 16 * KiB


@dataclass(frozen=True, slots=True)
class Member:
    """A protected file: its name relative to the sidecar's folder, its size, its version, and its xxh3-128."""

    name: str
    size: int
    etag: str | None
    digest: str

    def is_of(self, info: ObjectInfo) -> bool:
        """Whether it is this version of an object, as far as ETag and size tell."""
        return self.etag is not None and (self.etag, self.size) == (info.etag, info.size)


@dataclass(frozen=True)  # no slots: its places are made once
class SidecarIndex:
    """What a sidecar protects: `share` of parity, and the offsets of both records of each group."""

    share: float
    members: tuple[Member, ...]
    groups: tuple[tuple[int, int], ...]
    mirror: bytes | None = None

    def pack(self) -> bytes:
        """The payload of the index."""
        # Offsets have one length, since where groups lie depends on the size of the index before them.
        groups = [f"{first:016x}{second:016x}" for first, second in self.groups]
        fields = {"share": self.share, "members": [asdict(member) for member in self.members], "groups": groups}
        return json.dumps(fields, ensure_ascii=False).encode() + b"\n" + (self.mirror or b"")

    @classmethod
    def unpack(cls, payload: bytes) -> SidecarIndex:
        """Read a payload whose checksums hold."""
        text, _, mirror = payload.partition(b"\n")
        try:
            fields = json.loads(text)
            members = tuple(_member(each) for each in fields["members"])
            groups = tuple((int(each[:16], 16), int(each[16:32], 16)) for each in fields["groups"])
            share = float(fields["share"])
            if not members or (mirror and [member.size for member in members] != [len(mirror)]):
                raise ValueError("it names other files than it has")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise FormatError(f"the index of the sidecar cannot be understood: {error}") from error
        return cls(share, members, groups, mirror if mirror and not groups else None)

    @cached_property
    def places(self) -> tuple[ByteRange, ...]:
        """Where each file lies in the protected bytes, without the zeros behind it."""
        return tuple(places_of([member.size for member in self.members]))


def _member(fields: dict[str, Any]) -> Member:
    name, size, etag, digest = (fields[each] for each in ("name", "size", "etag", "digest"))
    is_text = isinstance(name, str) and isinstance(digest, str) and isinstance(etag, str | None)
    if not is_text or type(size) is not int or not 0 <= size < 1 << 63 or name in ("", ".", "..") or _NO_NAME & {*name}:
        raise ValueError("a file has no name, size or digest")
    return Member(name, size, etag, digest)


def places_of(sizes: Sequence[int]) -> list[ByteRange]:
    """Where files of these sizes lie in the bytes that a sidecar protects."""
    places, start = [], 0
    for size in sizes:
        places.append(ByteRange(start, start + size))
        start += padded(size)
    return places


def padded(size: int) -> int:
    """The size of a file with the zeros that follow it among the protected bytes."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def pack_trailer(first: int, second: int) -> bytes:
    """The end of a sidecar: the offsets of both copies of the index."""
    return _TRAILER.pack(first, second, MAGIC)


def parse_trailer(data: Any) -> tuple[int, int] | None:
    """The offsets of both copies of the index; None where this is no end of a sidecar."""
    if len(data) < TRAILER_SIZE:
        return None
    first, second, magic = _TRAILER.unpack(bytes(data[-TRAILER_SIZE:]))
    return (first, second) if magic == MAGIC else None
