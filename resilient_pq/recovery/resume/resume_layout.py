"""The layout of a file that a writer continues: what is in place stays there. An async shell.

Resuming an unfinished file and recovering one whose end alone is lost do the same here.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY, is_stored_schema
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import ColumnChunk, KeyValue, RowGroup
from resilient_pq.format.footer import CRC_KEY, DATASET_KEY, ChunkSums
from resilient_pq.format.pages.page_sums import PageSums, with_sums
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordChain, RecordKind, RowGroupRecord, parse_header
from resilient_pq.io.transfer.fetch import fetch
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.row_group_choice import Candidate, Candidates
from resilient_pq.recovery.verification.checksum_checks import record_range
from resilient_pq.writer.file_layout import FileLayout, PlacedRowGroup


async def layout_behind(source: DamagedObject, candidates: Candidates) -> FileLayout:
    """The layout behind a prefix that stays in its place: same file id, next epoch, the chain going on."""
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

    def laid_out() -> FileLayout:
        layout = FileLayout(contents.schema, chain, own_keys(contents), made_like=contents.metadata)
        layout.resume(end, row_groups, [(known.offset, known.num_rows) for known in contents.checkpoints])
        return layout

    return await off_loop(contents.num_chunks, laid_out)


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
