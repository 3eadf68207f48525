"""The layout of a file that a writer continues: what is in place stays there. An async shell."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY, is_stored_schema
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, KeyMissingError, SchemaError
from resilient_pq.format import compact_protocol, kernels
from resilient_pq.format.file_metadata import ColumnChunk, KeyValue, RowGroup
from resilient_pq.format.footer import (
    BASE_KEY,
    BEGINS_KEY,
    CRC_KEY,
    DATASET_KEY,
    LINEAGE_KEY,
    PARITY_KEY,
    PARITY_SHARE_KEY,
    ChunkSums,
    parity_places,
)
from resilient_pq.format.pages.page_sums import PageSums, with_sums
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordChain, RecordKind, RowGroupRecord, parse_header
from resilient_pq.io.transfer.fetch import fetch
from resilient_pq.off_event_loop import off_loop
from resilient_pq.parity.group_shape import MOST_INLINE, ParityShare
from resilient_pq.parity.inline_groups import InlineGroups
from resilient_pq.parity.inline_parity import GroupsInPlace, groups_in_place
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.reader.contents import MAX_FILE_SIZE, Contents, FileState, chunk_range
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.row_group_choice import Candidate, Candidates
from resilient_pq.recovery.verification.checksum_checks import record_range
from resilient_pq.units import MiB
from resilient_pq.writer.file_layout import FileLayout, PlacedRowGroup
from resilient_pq.writer.protected_layout import ProtectedLayout, new_layout

if TYPE_CHECKING:
    from resilient_pq.writer.file_sealing import FileSealing

log = logging.getLogger("resilient_pq.recovery")

#: Bytes of an open group that are read again at most, so that no byte is without parity: of two full groups at 5 %.
_MOST_READ_AGAIN = 400 * MiB
_PIECE_BYTES = 8 * MiB


async def layout_behind(source: DamagedObject, candidates: Candidates, share: ParityShare | None = None) -> FileLayout:
    """The layout behind a prefix that stays in its place: same file id, next epoch, the chain going on."""
    # It has parity where a share is given, or the file has had parity.
    # The records of the row groups say where their data pages lie, so these indexes are kept. What the column
    # indexes say of the values stands nowhere before a final footer; the row groups in place have none.
    last, end = candidates.last, candidates.prefix_end
    assert last is not None and end is not None
    contents, found = candidates.contents, candidates.row_groups
    records = [record_range(candidate.row_group, end) or ByteRange(0, 0) for candidate in found]
    row_groups: list[PlacedRowGroup] = []
    reading = fetch(source.store, source.info, records, counters=source.counters, in_order=True)
    async with aclosing(reading):
        async for ordinal, data in reading:
            candidate = found[ordinal]
            num_chunks = len(candidate.row_group.columns)
            row_groups.append(await off_loop(num_chunks, _placed, candidate, data, last.file_id, end))
    chain = RecordChain(last.file_id, last.epoch + 1, last.number + 1, last.offset, last.newest_footer)
    if contents.metadata.encryption_algorithm is not None:
        raise KeyMissingError("the file is encrypted", hint="pass encryption= as it was begun with")
    return await layout_of_placed(source, contents, chain, row_groups, end, share)


async def layout_of_placed(
    source: DamagedObject,
    contents: Contents,
    chain: RecordChain,
    row_groups: Sequence[PlacedRowGroup],
    end: int,
    share: ParityShare | None,
    sealing: FileSealing | None = None,
) -> FileLayout:
    """The layout behind row groups that are in their places, up to an offset."""
    share = share or parity_share_of(contents)
    known = GroupsInPlace() if share is None else await _groups_in_place(source, contents, row_groups, end)
    groups = None if share is None else await _open_group(source, share, known, row_groups, end)
    return await off_loop(
        contents.num_chunks, _laid_out, contents, chain, row_groups, end, (groups, known), contents.key_value, sealing
    )


async def layout_behind_all(source: DamagedObject, contents: Contents, share: ParityShare | None) -> FileLayout:
    """The layout behind a whole file, whose footer and indexes stay where they are; of others, with a new file id."""
    end, record = source.info.size, contents.footer.record
    chain = RecordChain(os.urandom(16))
    if record is not None:
        chain = RecordChain(record.file_id, record.epoch + 1, record.number + 1, record.offset, record.newest_footer)
    share = share or parity_share_of(contents)
    known = GroupsInPlace() if share is None else await _groups_in_place(source, contents, [], end)
    # The next group begins with the parity of the last one, which is in none; other bytes without parity stay so.
    known = replace(known, end=known.places[-1].start if known.places else end)
    begins = str(end) if record is None else contents.key_value.get(BEGINS_KEY)
    keys = {BEGINS_KEY: begins, BASE_KEY: f"{end}:{source.info.etag}"}
    row_groups = await off_loop(contents.num_chunks, _unchanged, contents.metadata.row_groups)
    groups = None if share is None else await _open_group(source, share, known, row_groups, end)
    return await off_loop(contents.num_chunks, _laid_out, contents, chain, row_groups, end, (groups, known), keys)


def _laid_out(
    contents: Contents,
    chain: RecordChain,
    row_groups: Sequence[PlacedRowGroup],
    end: int,
    parity: tuple[InlineGroups | None, GroupsInPlace],
    keys: Mapping[str, str | None],
    sealing: FileSealing | None = None,
) -> FileLayout:
    """A layout like that of a file, behind its row groups, with its keys and some more."""
    groups, known = parity
    begins, lineage = keys.get(BEGINS_KEY), contents.key_value.get(LINEAGE_KEY)
    own = own_keys(contents)
    own |= {} if begins is None else {BEGINS_KEY: begins}
    own |= {} if lineage is None else {LINEAGE_KEY: lineage}
    layout = new_layout(contents.schema, chain, own, sealing, groups=groups, made_like=contents.metadata)
    layout.base = keys.get(BASE_KEY)
    if contents.state is FileState.SALVAGED or (contents.state is FileState.IN_PROGRESS and lineage is not None):
        layout.ends_as = FileState.SALVAGED
    layout.resume(end, row_groups, [(known.offset, known.num_rows) for known in contents.checkpoints])
    if isinstance(layout, ProtectedLayout):
        layout.parity_places += known.places
    return layout


def _unchanged(row_groups: Sequence[RowGroup]) -> list[PlacedRowGroup]:
    """Row groups with the metadata that their file has, byte for byte."""
    placed = []
    for ordinal, row_group in enumerate(row_groups):
        stored = row_groups.stored(ordinal) if isinstance(row_groups, kernels.KeptStructs) else None
        serialized = stored or compact_protocol.encode(row_group)
        placed.append(PlacedRowGroup(row_group, _data_end(row_group), (None,) * len(row_group.columns), serialized))
    return placed


def _data_end(row_group: RowGroup) -> int:
    """Offset just after the last page of a row group."""
    chunks = [chunk.meta_data for chunk in row_group.columns if chunk.meta_data is not None]
    return max((chunk_range(chunk, MAX_FILE_SIZE)[1] for chunk in chunks), default=0)


def _has_indexes(row_group: RowGroup, end: int) -> bool:
    """Whether the indexes of a row group lie before an offset, as of one that others were appended to."""
    places = [(chunk.offset_index_offset, chunk.offset_index_length) for chunk in row_group.columns]
    places += [(chunk.column_index_offset, chunk.column_index_length) for chunk in row_group.columns]
    found = [at + length for at, length in places if at is not None and length is not None]
    return bool(found) and max(found) <= end


def parity_share_of(contents: Contents) -> ParityShare | None:
    """The share of parity that a file was written with, as far as a writer takes it; None where it has none."""
    text = contents.key_value.get(PARITY_SHARE_KEY)
    try:
        return None if text is None else ParityShare(min(ParityShare.parse(text).share, MOST_INLINE))
    except SchemaError:
        return None


async def _groups_in_place(
    source: DamagedObject, contents: Contents, row_groups: Sequence[PlacedRowGroup], end: int
) -> GroupsInPlace:
    """The groups whose parity lies in the prefix."""
    named = parity_places(contents.key_value.get(PARITY_KEY) or "", end)
    record = contents.footer.record
    ends = [placed.end for placed in row_groups if record is not None and record.offset < placed.end < end]
    return await groups_in_place(PinnedObject(source.store, source.key, source.info), named, ends)


async def _open_group(
    source: DamagedObject, share: ParityShare, known: GroupsInPlace, row_groups: Sequence[PlacedRowGroup], end: int
) -> InlineGroups:
    """The group that was open at the end of the prefix: its bytes are read again where they are not too many."""
    start = known.end
    if end - start > _MOST_READ_AGAIN:
        log.warning("%s: bytes %d to %d have no parity: to read them again would take long", source.url, start, end)
        start = end
    groups = InlineGroups(share, start, known.num_groups)
    for placed in row_groups:
        groups.end_row_group(placed.row_group.total_compressed_size or 0)
    groups.begin_row_group()
    for at in range(start, end, _PIECE_BYTES):
        piece = await source.read(ByteRange(at, min(at + _PIECE_BYTES, end)))
        await asyncio.to_thread(groups.add, [piece])
    return groups


def _placed(candidate: Candidate, data: memoryview, file_id: bytes, end: int) -> PlacedRowGroup:
    """A row group in its place, with the indexes that lie before an offset, or that its record has."""
    row_group = candidate.row_group
    indexes: tuple[bytes | None, ...] = (None,) * len(row_group.columns)
    if not _has_indexes(row_group, end):
        indexes = _offset_indexes(row_group, data, file_id)
        # As checkpoints name it: a final footer adds where its indexes lie, and their sums.
        row_group = replace(row_group, columns=[_without_index(chunk) for chunk in row_group.columns])
    return PlacedRowGroup(row_group, candidate.end, indexes, compact_protocol.encode(row_group))


def own_keys(contents: Contents) -> dict[str, str | None]:
    """The key-value metadata of a file that are not about this one version of it, without a damaged Arrow schema."""
    num_columns = len(contents.schema.columns)
    return {
        key: value
        for key, value in contents.key_value.items()
        if (key == DATASET_KEY or not key.startswith("rpq."))
        and not (key == ARROW_SCHEMA_KEY and not is_stored_schema(value or "", num_columns))
    }


def _offset_indexes(row_group: RowGroup, data: memoryview, file_id: bytes) -> tuple[bytes | None, ...]:
    """The OffsetIndex of each chunk as the row group's record has it; none where that record is damaged."""
    none = (None,) * len(row_group.columns)
    header, payload = parse_header(data), data[HEADER_SIZE:]
    if header is None or header.kind != RecordKind.ROW_GROUP or header.file_id != file_id or not header.holds(payload):
        return none
    try:
        record, _ = compact_protocol.decode(RowGroupRecord, payload)
        sums = [PageSums.of_copies(chunk) for chunk in record.chunks]
    except FormatError:
        return none
    if len(record.chunks) != len(row_group.columns):
        return none
    return tuple(with_sums(chunk.offset_index, of) for chunk, of in zip(record.chunks, sums, strict=True))


def _without_index(chunk: ColumnChunk) -> ColumnChunk:
    metadata = chunk.meta_data
    sums = None if metadata is None else ChunkSums.of(metadata)
    if metadata is not None and sums is not None:
        said = KeyValue(CRC_KEY, str(replace(sums, column_index=None, offset_index=None)))
        pairs = [said if pair.key == CRC_KEY else pair for pair in metadata.key_value_metadata or ()]
        metadata = replace(metadata, key_value_metadata=pairs)
    return replace(
        chunk,
        meta_data=metadata,
        column_index_offset=None,
        column_index_length=None,
        offset_index_offset=None,
        offset_index_length=None,
    )
