"""The rows of small files that are at hand, many files by one call. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from nanoarrow.c_array import CArray
from numpy.typing import NDArray

from resilient_pq.arrow.flat_columns import FlatChunks
from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY
from resilient_pq.errors import ResilientPQError
from resilient_pq.format.quirks import Quirks
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.off_event_loop import ONE_HOP_BYTES
from resilient_pq.reader.contents import row_group_sizes
from resilient_pq.reader.decoder import RowGroupArrays
from resilient_pq.reader.file import File
from resilient_pq.reader.read_plan import ReadQuery, numbers_of_chunks


@dataclass(frozen=True, slots=True)
class _AtHand:
    """A file all of which is at hand, and what is known of its row groups."""

    position: int  # among the files that are asked for
    data: memoryview
    groups: list[tuple[int, NDArray[np.int64]]]  # rows, and the `ChunkNumber`s of all leaves wanted


def rows_together(asked: Sequence[tuple[File, ReadQuery]], *, verify: bool) -> list[list[RowGroupArrays] | None]:
    """The rows of each file whose chunks are all flat, common and whole; None for those that take more than that.

    Queries are without row groups, filters or a limit, and damage is an error. Why a file takes more is for others to
    find out.
    """
    found: list[list[RowGroupArrays] | None] = [None] * len(asked)
    begin = 0
    for at in range(1, len(asked) + 1):
        if at == len(asked) or not _are_alike(asked[begin], asked[at]):
            if at - begin > 1:
                found[begin:at] = _of_one_kind(asked[begin:at], verify=verify)
            begin = at
    return found


def _are_alike(one: tuple[File, ReadQuery], other: tuple[File, ReadQuery]) -> bool:
    """Whether all that is worked out for a file holds for another."""
    ours, theirs = one[0].contents, other[0].contents
    return (
        ours.schema is theirs.schema
        and one[1] == other[1]
        and ours.metadata.created_by == theirs.metadata.created_by
        and ours.key_value.get(ARROW_SCHEMA_KEY) == theirs.key_value.get(ARROW_SCHEMA_KEY)
    )


def _of_one_kind(asked: Sequence[tuple[File, ReadQuery]], *, verify: bool) -> list[list[RowGroupArrays] | None]:
    (first, query) = asked[0]
    try:
        request = first._request(query)
        leaves = np.array([leaf.ordinal for column in request.plan.columns for leaf in column.leaves], np.int64)
        files = [each for at, (file, _) in enumerate(asked) if (each := _at_hand(at, file, leaves)) is not None]
    except ResilientPQError:
        files = []
    found: list[list[RowGroupArrays] | None] = [None] * len(asked)
    count = len(request.flat.columns) if files else 0
    if not count or count != len(request.plan.columns):
        return found
    groups = [(file.position, rows, numbers) for file in files for rows, numbers in file.groups]
    quirks = Quirks.of(first.contents.metadata.created_by)
    flat = FlatChunks(request.flat, groups, verify=verify, zero_is_none=quirks.zero_crc_is_none)
    for file, arrays in _decoded(flat, files, count):
        if None not in arrays:
            made = iter(arrays)
            found[file.position] = [RowGroupArrays(list(islice(made, count)), rows) for rows, _ in file.groups]
    return found


def _decoded(flat: FlatChunks, files: Sequence[_AtHand], count: int) -> Iterator[tuple[_AtHand, list[CArray | None]]]:
    """The arrays of all chunks of each file, `count` for a row group; of files whose chunks are small and common."""
    chunks: list[tuple[int, memoryview]] = []
    taken, common, begin = [], set(flat.numbers), 0
    for file in files:
        own = range(begin, begin + len(file.groups) * count)
        begin = own.stop
        if common.issuperset(own) and sum([max(flat.sizes[number], 0) for number in own]) <= ONE_HOP_BYTES:
            taken.append((file, len(own)))
            chunks += [(number, file.data[flat.starts[number] : flat.ends[number]]) for number in own]
    arrays = iter(flat.decode(chunks))
    for file, num_chunks in taken:
        yield file, list(islice(arrays, num_chunks))


def _at_hand(position: int, file: File, leaves: NDArray[np.int64]) -> _AtHand | None:
    """A file all of which is at hand; None where it is not, or where its footer does not say it all of its chunks."""
    data = None if file._closed else file.objects.at_hand(0, file.info.size)
    if data is None:
        return None
    sizes = row_group_sizes(file.contents.metadata)
    numbers = numbers_of_chunks(file.contents, range(len(sizes)), leaves)
    known = [(rows, each) for (rows, _), each in zip(sizes, numbers, strict=True) if each is not None]
    return _AtHand(position, data, known) if len(known) == len(sizes) else None
