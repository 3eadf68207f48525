"""What becomes of each row group when files are compacted: which bytes are copied, which are decoded. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Any, Final, Self

from resilient_pq.errors import FormatError
from resilient_pq.format.resilience_records import CHUNK_RECORD_SIZE
from resilient_pq.format.sorting import SortingColumn
from resilient_pq.lazy_dataclass import dataclass

#: Row groups of an output, at most: a footer of more is slow to read.
_MOST_ROW_GROUPS: Final = 4_096
_FORMAT: Final = "resilient_pq compaction 1"


@dataclass(frozen=True, slots=True)
class Limits:
    """How large outputs become, and from which size on row groups are copied as they are."""

    target_bytes: int
    copy_bytes: int
    row_group_bytes: int
    parity: float | str | None = None


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """A row group of a source: the position of its file, its place in it, and what it would cost."""

    file: int
    ordinal: int
    num_rows: int
    chunk_bytes: tuple[int, ...]
    decoded_bytes: int
    fits: bool  # whether its chunks can stand in the output as they are
    order: tuple[SortingColumn, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of its chunks in the source."""
        return sum(self.chunk_bytes)


@dataclass(frozen=True, slots=True)
class Piece:
    """A row group of an output: one that is copied, or several that are decoded and written together."""

    groups: tuple[SourceGroup, ...]
    is_copy: bool

    @property
    def num_rows(self) -> int:
        """Its rows."""
        return sum(group.num_rows for group in self.groups)

    @property
    def num_bytes(self) -> int:
        """Bytes that it has in the sources."""
        return sum(group.num_bytes for group in self.groups)

    @property
    def order(self) -> tuple[SortingColumn, ...]:
        """The sort order that all of its parts state; none where they differ."""
        orders = {group.order for group in self.groups}
        return orders.pop() if len(orders) == 1 else ()


def pieces_of(groups: Iterable[SourceGroup], limits: Limits) -> Iterator[Piece]:
    """The row groups of the outputs, with the rows in the order in which they come."""
    small: list[SourceGroup] = []
    for group in groups:
        if not group.num_rows:
            continue
        if group.fits and group.num_bytes >= limits.copy_bytes:
            yield from _together(small)
            small = []
            yield Piece((group,), is_copy=True)
            continue
        if small and sum(one.decoded_bytes for one in small) + group.decoded_bytes > limits.row_group_bytes:
            yield from _together(small)
            small = []
        small.append(group)
    yield from _together(small)


def _together(small: Sequence[SourceGroup]) -> Iterator[Piece]:
    """Small row groups that follow one another; one alone gains nothing from being decoded."""
    if small:
        yield Piece(tuple(small), is_copy=len(small) == 1 and small[0].fits)


def outputs_of(pieces: Iterable[Piece], target_bytes: int) -> list[tuple[Piece, ...]]:
    """The row groups of each output; a partition without rows has one, which keeps the schema."""
    outputs: list[list[Piece]] = [[]]
    size = 0
    for piece in pieces:
        if outputs[-1] and (size + piece.num_bytes > target_bytes or len(outputs[-1]) == _MOST_ROW_GROUPS):
            outputs.append([])
            size = 0
        outputs[-1].append(piece)
        size += piece.num_bytes
    return [tuple(each) for each in outputs]


def bytes_by_store(pieces: Iterable[Piece], part_bytes: int) -> int:
    """About how many bytes a store copies: the parts of an upload that lie within one chunk."""
    found = at = 0
    for piece in pieces:
        for size in piece.groups[0].chunk_bytes if piece.is_copy else (piece.num_bytes,):
            start, at = at + CHUNK_RECORD_SIZE, at + CHUNK_RECORD_SIZE + size
            if piece.is_copy:
                found += max(at // part_bytes - -(-start // part_bytes), 0) * part_bytes
    return found


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """A source as it was when the plan was made: its name for people, and the hash of the one that no other has."""

    url: str
    key: str
    size: int
    etag: str | None


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """An output: the folder of its partition, and its rows."""

    partition: str
    num_rows: int


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What is done once and for all: the same sources and limits give the same plan, and the same names."""

    scope: str  # the hash of what the caller named: a folder, a pattern or a list
    limits: Limits
    sources: tuple[SourceVersion, ...]
    outputs: tuple[PlannedFile, ...]

    @property
    def id(self) -> str:
        """What tells it from every other plan."""
        return blake2b(self._content().encode(), digest_size=8).hexdigest()

    def name_of(self, position: int) -> str:
        """The name of an output below the folder of all."""
        partition = self.outputs[position].partition
        return f"{partition}{'/' if partition else ''}compact-{self.id}-{position:05d}.parquet"

    def mark_of(self, position: int) -> str:
        """What the footer of an output says of its place in the plan."""
        return f"{self.id}:{position}"

    def _content(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def to_json(self) -> bytes:
        """The plan as it is kept beside the outputs."""
        return f'{{"format":"{_FORMAT}","id":"{self.id}","plan":{self._content()}}}\n'.encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """The plan that was kept."""
        try:
            document: Mapping[str, Any] = json.loads(data)
            found = document["plan"]
            plan = cls(
                str(found["scope"]),
                Limits(**found["limits"]),
                tuple(SourceVersion(**each) for each in found["sources"]),
                tuple(PlannedFile(**each) for each in found["outputs"]),
            )
            whole = document["format"] == _FORMAT and document["id"] == plan.id
        except (ValueError, TypeError, KeyError) as error:
            raise FormatError("the plan of a compaction cannot be read") from error
        if not whole:
            raise FormatError("the plan of a compaction is not as it was written")
        return plan
