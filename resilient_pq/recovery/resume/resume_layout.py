"""The layout of a file that a writer continues: what is in place stays there. An async shell.

Resuming an unfinished file and recovering one whose end alone is lost do the same here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY, is_stored_schema
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, SchemaError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import ColumnChunk, KeyValue, RowGroup
from resilient_pq.format.footer import CRC_KEY, DATASET_KEY, PARITY_KEY, PARITY_SHARE_KEY, ChunkSums, parity_places
from resilient_pq.format.pages.page_sums import PageSums, with_sums
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordChain, RecordKind, RowGroupRecord, parse_header
from resilient_pq.io.transfer.fetch import fetch
from resilient_pq.off_event_loop import off_loop
from resilient_pq.parity.group_shape import ParityShare
from resilient_pq.parity.inline_groups import InlineGroups
from resilient_pq.parity.inline_parity import GroupsInPlace, groups_in_place
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.row_group_choice import Candidate, Candidates
from resilient_pq.recovery.verification.checksum_checks import record_range
from resilient_pq.units import MiB
from resilient_pq.writer.file_layout import FileLayout, PlacedRowGroup
from resilient_pq.writer.protected_layout import ProtectedLayout, new_layout

log = logging.getLogger("resilient_pq.recovery")

#: Bytes of an open group that are read again at most, so that no byte is without parity: of two full groups at 5 %.
_MOST_READ_AGAIN = 400 * MiB
_PIECE_BYTES = 8 * MiB


async def layout_behind(source: DamagedObject, candidates: Candidates, share: ParityShare | None = None) -> FileLayout:
    """The layout behind a prefix that stays in its place: same file id, next epoch, the chain going on.

    It has parity where a share is given, or the file has had parity.
    """
    # The records of the row groups say where their data pages lie, so these indexes are kept. What the column
    # indexes say of the values stands nowhere before a final footer; the row groups in place have none.
    last, end = candidates.last, candidates.prefix_end
    assert last is not None and end is not None
    contents = candidates.contents
    records = [record_range(candidate.row_group, end) or ByteRange(0, 0) for candidate in candidates.row_groups]
    row_groups: list[PlacedRowGroup] = []
    reading = fetch(source.store, source.info, records, counters=source.counters, in_order=True)
    async with aclosing(reading):
        async for ordinal, data in reading:
            candidate = candidates.row_groups[ordinal]
            num_chunks = len(candidate.row_group.columns)
            row_groups.append(await off_loop(num_chunks, _placed, candidate, data, last.file_id))
    chain = RecordChain(last.file_id, last.epoch + 1, last.number + 1, last.offset, last.newest_footer)

    share = share or parity_share_of(contents)
    known = GroupsInPlace() if share is None else await _groups_in_place(source, contents, row_groups, end)
    groups = None if share is None else await _open_group(source, share, known, row_groups, end)

    def laid_out() -> FileLayout:
        layout = new_layout(contents.schema, chain, own_keys(contents), groups=groups, made_like=contents.metadata)
        layout.resume(end, row_groups, [(known.offset, known.num_rows) for known in contents.checkpoints])
        if isinstance(layout, ProtectedLayout):
            layout.parity_places += known.places
        return layout

    return await off_loop(contents.num_chunks, laid_out)


def parity_share_of(contents: Contents) -> ParityShare | None:
    """The share of parity that a file was written with; None where it has none."""
    text = contents.key_value.get(PARITY_SHARE_KEY)
    try:
        return None if text is None else ParityShare.parse(text)
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


def _placed(candidate: Candidate, data: memoryview, file_id: bytes) -> PlacedRowGroup:
    """A row group in its place, with the indexes that its record has."""
    indexes = _offset_indexes(candidate.row_group, data, file_id)
    # As checkpoints name it: a final footer adds where its indexes lie, and their sums.
    columns = [_without_index(chunk) for chunk in candidate.row_group.columns]
    return PlacedRowGroup(replace(candidate.row_group, columns=columns), candidate.end, indexes)


def own_keys(contents: Contents) -> dict[str, str | None]:
    """The key-value metadata of a file that are not about this one version of it, without a damaged Arrow schema."""
    num_columns = len(contents.schema.columns)
    return {
        key: value
        for key, value in contents.key_value.items()
        if (key == DATASET_KEY or not key.startswith("rpq."))
        and not (key == ARROW_SCHEMA_KEY and value is not None and not is_stored_schema(value, num_columns))
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
