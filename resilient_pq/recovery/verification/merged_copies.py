"""Several copies of one file, of which each page is taken from whichever has it whole. An async shell.

That two objects are copies of one file has to be shown: rows of two files must never be mixed. Records of ours have the
id of their file. Of files of others the footers have to say the same of the same row groups, and most of the bytes that
both copies still have must be the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.chunk_salvage import RepairSource
from resilient_pq.errors import RecoveryError, Where
from resilient_pq.format.footer import ChunkSums
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.located_row_group import LocatedChunk, LocatedRowGroup, Method
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.row_group_choice import data_starts
from resilient_pq.recovery.verification.page_scan import AlternateSource

#: Methods that read what the writer said of a row group; the others guess from its bytes.
_STATED = (Method.FOOTER, Method.CHECKPOINT, Method.ROW_GROUP_RECORD, Method.TORN_FOOTER)
#: Places at which bytes of two copies are compared, and how many bytes at each. Damage is rarely spread over so many.
_PLACES = 16
_PLACE_BYTES = 4096
_PIECE_BYTES = 64  # Bytes compared at a time: a flipped bit makes no more of them differ


async def merge_copies(copies: Sequence[Reconstruction]) -> tuple[Reconstruction, tuple[AlternateSource, ...]]:
    """The reconstruction of the best copy, with the row groups that only others have, and where to read pages again."""
    if len(copies) == 1:
        return copies[0], ()
    best = max(copies, key=_worth)
    others = [copy for copy in copies if copy is not best]
    for other in others:
        if not await _same_file(best, other):
            raise RecoveryError(
                f"{other.source.url} is no copy of {best.source.url}: nothing shows that they are one file",
                where=Where(key=other.source.url),
                hint="recover each by itself",
            )
    if best.error is not None:
        best = await _add_row_groups(best, others)
    elsewhere = []
    for other in others:
        same = frozenset([one.ordinal for one in best.row_groups if await _same_row_group(best, other, one)])
        elsewhere.append(AlternateSource(other.source, RepairSource.OTHER_COPY, same))
    return best, tuple(elsewhere)


def _worth(copy: Reconstruction) -> tuple[bool, bool, bool, int, int, int]:
    """A footer that can be used counts most, then one that ends the file, then what its writer said, then bytes."""
    return (
        copy.contents is not None and copy.error is None,
        copy.contents is not None,
        copy.contents is not None and copy.survey is not None and copy.survey.has_end,
        sum(row_group.method in _STATED for row_group in copy.row_groups),
        len(copy.row_groups),
        copy.source.info.size,
    )


async def _add_row_groups(best: Reconstruction, others: Iterable[Reconstruction]) -> Reconstruction:
    """Add the row groups that only another copy has, where the best has none, and those that it knows better."""
    for other in others:
        for row_group in other.row_groups if _have_same_columns(best, other) else ():
            mine = [one for one in best.row_groups if one.overlaps(row_group) or one.ordinal == row_group.ordinal]
            if (not mine or _is_guess_of(mine, row_group)) and await _alike_in(best, other, row_group) is not False:
                kept = [one for one in best.row_groups if one not in mine]
                best = replace(best, row_groups=tuple(sorted([*kept, row_group], key=lambda one: one.ordinal)))
    return best


def _have_same_columns(one: Reconstruction, other: Reconstruction) -> bool:
    """Whether both have the same schema; columns that are made up differ."""
    if one.contents is None or other.contents is None:
        return False
    return str(one.contents.schema) == str(other.contents.schema)


def _is_guess_of(mine: Sequence[LocatedRowGroup], row_group: LocatedRowGroup) -> bool:
    """Whether row groups were guessed, and fit one that is stated."""
    if row_group.method not in _STATED or any(one.method in _STATED for one in mine):
        return False
    starts = data_starts(row_group)
    return all(
        one.ordinal == row_group.ordinal
        and all(first in (-1, second) for first, second in zip(data_starts(one), starts, strict=True))
        for one in mine
    )


# -- one file --------------------------------------------------------------------------------------


async def _same_file(one: Reconstruction, other: Reconstruction) -> bool:
    """Whether two objects are copies of one file: by the id in its records, or by its layout and its bytes."""
    if one.file_id is not None and other.file_id is not None:
        return one.file_id == other.file_id
    if not (one.row_groups or other.row_groups):
        return False
    agreed = _agreed(one.row_groups, other.row_groups)
    if _is_stated(one) and _is_stated(other) and not agreed:
        return False
    size = min(one.source.info.size, other.source.info.size)
    alike = await _alike(one.source, other.source, ByteRange(0, size))
    return alike if alike is not None else bool(agreed)


def _is_stated(copy: Reconstruction) -> bool:
    return any(row_group.method in _STATED for row_group in copy.row_groups)


def _agreed(one: Iterable[LocatedRowGroup], other: Iterable[LocatedRowGroup]) -> set[int]:
    """The row groups that both know, and of which both know the same."""
    theirs = {row_group.ordinal: row_group for row_group in other}
    return {
        row_group.ordinal
        for row_group in one
        if row_group.ordinal in theirs and _tell_the_same(row_group, theirs[row_group.ordinal])
    }


def _tell_the_same(one: LocatedRowGroup, other: LocatedRowGroup) -> bool:
    if one.method in _STATED and other.method in _STATED:
        stated = [[_stated(chunk) for chunk in row_group.chunks] for row_group in (one, other)]
        return one.num_rows == other.num_rows and stated[0] == stated[1]
    return data_starts(one) == data_starts(other)


def _stated(chunk: LocatedChunk | None) -> tuple[Any, ...] | None:
    """What every footer and record says alike of a chunk; where its indexes lie is named by the last one only."""
    if chunk is None:
        return None
    metadata, sums = chunk.read.metadata, ChunkSums.of(chunk.read.metadata)
    return (
        metadata.path_in_schema,
        metadata.type,
        metadata.codec,
        metadata.num_values,
        metadata.total_uncompressed_size,
        metadata.statistics,
        chunk.read.range,
        None if sums is None else (sums.chunk, sums.xxh3),
    )


async def _same_row_group(best: Reconstruction, other: Reconstruction, row_group: LocatedRowGroup) -> bool:
    """Whether a row group is the same in another copy: one may be of a time when the file went on otherwise."""
    theirs = next((one for one in other.row_groups if one.ordinal == row_group.ordinal), None)
    if theirs is row_group:
        return True
    if theirs is not None and theirs.method in _STATED and row_group.method in _STATED:
        return _tell_the_same(row_group, theirs)
    # Where no bytes are left in both, nothing speaks against it; of a file of ours its checksums would.
    return await _alike_in(best, other, row_group) is not False


# -- the same bytes --------------------------------------------------------------------------------


async def _alike_in(one: Reconstruction, other: Reconstruction, row_group: LocatedRowGroup) -> bool | None:
    """Whether most of the bytes of a row group that two copies have are the same; None where none can be compared."""
    end = min(row_group.end, one.source.info.size, other.source.info.size)
    return await _alike(one.source, other.source, ByteRange(min(row_group.start, end), end))


async def _alike(one: DamagedObject, other: DamagedObject, place: ByteRange) -> bool | None:
    """Whether most of the bytes that two copies have in a range are the same; None where nothing can be compared."""
    pieces = same = 0
    for wanted in _samples(place):
        first, second = await one.read(wanted), await other.read(wanted)
        for at in range(0, wanted.size, _PIECE_BYTES):
            mine, theirs = bytes(first[at : at + _PIECE_BYTES]), bytes(second[at : at + _PIECE_BYTES])
            if len(set(mine)) > 1 and len(set(theirs)) > 1:  # a zeroed sector proves nothing
                pieces += 1
                same += mine == theirs
    return None if not pieces else same * 2 > pieces


def _samples(place: ByteRange) -> Iterator[ByteRange]:
    """Places spread over a range; all of it where it is small."""
    if place.size <= _PLACES * _PLACE_BYTES:
        if place.size:
            yield place
        return
    step = (place.size - _PLACE_BYTES) // (_PLACES - 1)
    for start in islice(range(place.start, place.end, step), _PLACES):
        yield ByteRange(start, start + _PLACE_BYTES)
