"""The layout of a resilient file: column chunks in, the bytes of the file out, records and footers included.

Sans-io. The encoder makes the chunks it lays out of rows; a recovery takes them as they are from another file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from xxhash import xxh3_64_intdigest

from resilient_pq.checksum import crc32
from resilient_pq.format import compact_protocol, footer, kernels
from resilient_pq.format.annotations import Empty
from resilient_pq.format.file_metadata import (
    ColumnChunk,
    ColumnOrder,
    FileMetaData,
    RowGroup,
    StoredSortingColumn,
)
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.kernels.integers import varint_bytes
from resilient_pq.format.pages.chunk_encoder import EncodedChunk
from resilient_pq.format.resilience_records import (
    CHUNK_RECORD_SIZE,
    HEADER_SIZE,
    BytesBehind,
    ChunkPlace,
    RecordChain,
    RecordKind,
)
from resilient_pq.format.schema_tree import Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import MiB
from resilient_pq.version import CREATED_BY
from resilient_pq.writer import cut_policy
from resilient_pq.writer.described_chunk import (
    Described,
    are_flat,
    behind_columns,
    row_group_record,
    said_of,
    with_columns,
)
from resilient_pq.writer.dictionary_use import has_dictionary

if TYPE_CHECKING:
    from resilient_pq.writer.file_sealing import FileSealing

Buffers = Sequence[Any]

_GAP_BYTES = 64


@dataclass(frozen=True, slots=True)
class WrittenRowGroup:
    """A row group that is in the file, as later footers need it."""

    serialized: bytes  # its metadata, with the keys that a checkpoint's footer has
    column_indexes: tuple[bytes | None, ...]  # serialised ColumnIndex of each chunk, None where there is none
    offset_indexes: tuple[bytes | None, ...]  # serialised OffsetIndex of each chunk, None where there is none
    num_rows: int
    end: int  # offset just after its record


@dataclass(frozen=True, slots=True)
class PlacedRowGroup:
    """A row group that is in its place already, when a file is gone on with."""

    row_group: RowGroup  # its metadata, with the keys that a checkpoint's footer has and without places of indexes
    end: int  # offset just after its record
    offset_indexes: tuple[bytes | None, ...]  # serialised OffsetIndex of each chunk, None where there is none
    serialized: bytes  # the same in Thrift


class FileLayout:
    """Lays out one file."""

    _in_runs: ClassVar[bool] = True  # Whether chunks of one page are laid out many at once

    def __init__(
        self,
        schema: Schema,
        chain: RecordChain,
        key_value: Mapping[str, str | None],
        sealing: FileSealing | None = None,
        *,
        made_like: FileMetaData | None = None,
    ) -> None:
        self.schema = schema  # The columns
        self.sealing = sealing  # Encrypts what stands around the chunks; None in a file that is not encrypted
        if sealing is not None:
            chain.shows_counts = sealing.shows_counts
        self.offset = 0  # Bytes given out so far, which is where the next ones belong
        self.num_rows = 0  # Rows in complete row groups
        self.num_checkpoints = 0  # Checkpoints written
        self.row_groups: list[WrittenRowGroup] = []  # The complete row groups
        self.checkpoint_bytes = 0  # Bytes of all checkpoints
        self.checkpoint_end = 0  # Offset just after the newest checkpoint; 0 where there is none
        self.serialized_bytes = 0  # Bytes that the row groups take in a footer
        self.stored_dictionaries: list[bool | None] = [None] * len(schema.leaves)
        self.base: str | None = None
        self.ends_as = "complete"  # The state of the file when it is finished
        self._numbered = True  # whether row groups have ordinals: all of a footer, or none
        self._chain = chain
        made = schema.made
        self._schema_part: bytes = made.get("footer") or made.setdefault(
            "footer", footer.schema_part(schema.to_elements())
        )
        self._created_by: str | None = CREATED_BY
        self._column_orders: list[ColumnOrder] | None = [ColumnOrder(TYPE_ORDER=Empty())] * len(schema.leaves)
        if made_like is not None:
            # They say how far statistics of chunks that are taken over can be trusted.
            self._created_by, self._column_orders = made_like.created_by, made_like.column_orders
            if self._column_orders is not None and len(self._column_orders) != len(schema.leaves):
                self._column_orders = None  # readers refuse a footer that has others than one for each column
        self._key_value = dict(key_value)
        self._chunks: list[EncodedChunk] = []
        self._checkpoints: list[str] = []
        self._anchor_bytes = 0

    @property
    def file_id(self) -> bytes:
        """The 16 bytes that every record of the file has."""
        return self._chain.file_id

    def start(self) -> Buffers:
        """The first bytes of the file: its magic and the anchor, which keeps the schema."""
        self.offset = len(footer.MAGIC)
        anchor = self._record(RecordKind.ANCHOR, self._checkpoint_footer())
        self._anchor_bytes = len(anchor)
        return [footer.MAGIC if self.sealing is None else self.sealing.magic, anchor]

    def resume(self, offset: int, row_groups: Sequence[PlacedRowGroup], checkpoints: Sequence[tuple[int, int]]) -> None:
        """Go on behind bytes that are in place already."""
        self.offset = offset
        for placed in row_groups:
            indexes = (None,) * len(placed.row_group.columns), placed.offset_indexes
            self._numbered &= placed.row_group.ordinal is not None
            self._append(WrittenRowGroup(placed.serialized, *indexes, placed.row_group.num_rows, placed.end))
            for leaf, column in enumerate(placed.row_group.columns):
                stored = None if column.meta_data is None else has_dictionary(column.meta_data)
                if stored is not None:
                    self.stored_dictionaries[leaf] = stored or self.stored_dictionaries[leaf] or False
        self.num_checkpoints = len(checkpoints)
        self._checkpoints = [f"{at}:{num_rows}" for at, num_rows in checkpoints]
        # Anchor and checkpoints reach to what follows them, padding before that included.
        starts = [_first_page(placed.row_group.columns) for placed in row_groups]
        record_size = CHUNK_RECORD_SIZE if self.sealing is None else self.sealing.chunk_record_size
        borders = sorted(
            [start - record_size for start in starts if start is not None] + [at for at, _ in checkpoints] + [offset]
        )
        places = [(at, borders[bisect_right(borders, at)]) for at, _ in checkpoints if at < offset]
        self._anchor_bytes = max(0, borders[0] - len(footer.MAGIC))
        self.checkpoint_bytes = sum(end - at for at, end in places)
        self.checkpoint_end = max((end for _, end in places), default=0)

    def chunk(self, chunk: EncodedChunk) -> Buffers:
        """The next column chunk of the open row group, its record before it."""
        place = ChunkPlace(len(self.row_groups), len(self._chunks), self.num_rows, chunk.codec)
        sealing, number = self.sealing, self._chain.number
        payload = place.pack() if sealing is None else sealing.chunk_payload(number, place, chunk)
        record = self._record(RecordKind.CHUNK, payload)
        buffers, chunk.buffers = chunk.buffers, []
        chunk.place(self.offset)
        self.offset += chunk.size
        self._chunks.append(chunk)
        return [record, *buffers]

    def chunks(self, chunks: Sequence[EncodedChunk]) -> Buffers:
        """The next column chunks of the open row group, each with its record before it."""
        if not self._in_runs or self.sealing is not None or not are_flat(chunks):
            return [buffer for chunk in chunks for buffer in self.chunk(chunk)]
        number = len(self.row_groups)
        before = self._chain.before_chunks(
            ChunkPlace(number, len(self._chunks) - 1, self.num_rows, 0), num_rows=self.num_rows, num_row_groups=number
        )
        buffers, self.offset = kernels.records_like(before, list(chunks), self.offset, xxh3_64_intdigest, crc32)
        self._chunks += chunks
        self._chain.follow(len(chunks), chunks[-1].offset - CHUNK_RECORD_SIZE)
        made: Buffers = buffers
        return made

    def end_row_group(self, num_rows: int, *, sorting_columns: list[StoredSortingColumn] | None = None) -> Buffers:
        """Complete the open row group, of which all chunks have been laid out; gives its bloom filters and its record.

        The filters stand here and not before the footer, so that none has to wait in memory for it, and checkpoints
        name them too (parquet-format, BloomFilter.md, allows both).
        """
        chunks, self._chunks = self._chunks, []
        sealing, number = self.sealing, len(self.row_groups)
        ordinal = number if self._numbered and number < cut_policy.MAX_ROW_GROUPS else None
        if sealing is None and sorting_columns is None and are_flat(chunks):
            wanted = num_rows, -1 if ordinal is None else ordinal, self.offset, HEADER_SIZE
            payload, *said = kernels.FlatChunk.row_group(chunks, *wanted)
            record = self._record(RecordKind.ROW_GROUP, payload, closing=num_rows)
            self._append(WrittenRowGroup(said[0], said[1], said[2], num_rows, self.offset))
            return [record]
        described, filters = self._described(chunks)
        columns, copies, *indexes = said_of(described)
        row_group = RowGroup(
            columns=[],
            total_byte_size=sum([chunk.uncompressed_size for chunk in chunks]),
            num_rows=num_rows,
            sorting_columns=sorting_columns,
            file_offset=chunks[0].offset if chunks else None,
            total_compressed_size=sum([chunk.size for chunk in chunks]),
            ordinal=ordinal,
        )
        behind = behind_columns(row_group)
        payload = row_group_record(behind, columns, copies, None if sealing is None else self.num_rows)
        if sealing is not None:
            payload = sealing.row_group_payload(self._chain.number, payload)
        offset = self.offset
        record = self._record(RecordKind.ROW_GROUP, payload, closing=num_rows)
        # The record cannot name its own size; only the footers after it do.
        place = footer.RECORD_KEY, f"{offset}:{len(record)}"
        if sealing is not None:
            columns = sealing.in_footer(described, columns, place)
        elif described:
            columns[0] = described[0].column_chunk(place)
        serialized = with_columns(behind, columns)
        self._append(WrittenRowGroup(serialized, tuple(indexes[0]), tuple(indexes[1]), num_rows, self.offset))
        return [*filters, record]

    def _described(self, chunks: Sequence[Any]) -> tuple[list[Any], Buffers]:
        """What records and footers say of chunks, and their bloom filters, which stand next."""
        described: list[Any] = []
        filters: list[bytes] = []
        for chunk in chunks:
            if chunk.bloom_filter is not None:
                filters.append(chunk.bloom_filter)
        buffers = filters if self.sealing is None else [*self._vouching(filters), *filters]
        for column, chunk in enumerate(chunks):
            if self.sealing is not None:
                described.append(self.sealing.described(chunk, self.offset, len(self.row_groups), column))
            else:
                # One of `format.pages.flat_chunk` describes itself, and has no bloom filter.
                described.append(Described(chunk, self.offset) if isinstance(chunk, EncodedChunk) else chunk)
            self.offset += len(chunk.bloom_filter or b"")
        return described, buffers

    def _vouching(self, buffers: Sequence[bytes]) -> Buffers:
        """A record that says in the clear what the bytes have to be that follow it."""
        payload = BytesBehind(sum(map(len, buffers)), crc32(b"".join(buffers))).pack()
        return [self._record(RecordKind.SPAN, payload)] if buffers else []

    def _append(self, row_group: WrittenRowGroup) -> None:
        self.row_groups.append(row_group)
        self.num_rows += row_group.num_rows
        self.serialized_bytes += len(row_group.serialized)

    def checkpoint(self) -> Buffers:
        """A checkpoint of all complete row groups; cut here, the file is an ordinary Parquet file."""
        self.num_checkpoints += 1
        payload = self._checkpoint_footer()
        gap = self._gap_before(payload)
        offset = self.offset
        record = self._record(RecordKind.CHECKPOINT, payload)
        self._checkpoints.append(f"{offset}:{self.num_rows}")
        self.checkpoint_bytes += len(record)
        self.checkpoint_end = self.offset
        return [*gap, record]

    def _gap_before(self, payload: bytes, least: int = 0) -> Buffers:
        """Zero bytes, at least so many, and where the record of a footer would otherwise end on a multiple of a MiB.

        Parts of an upload are whole numbers of MiB; one that is not tells where the newest footer ends
        (docs/format.md).
        """
        gap = least if (self.offset + least + HEADER_SIZE + len(payload)) % MiB else least + _GAP_BYTES
        self.offset += gap
        return [bytes(gap)] if gap else []

    @property
    def num_row_groups_since_checkpoint(self) -> int:
        """Row groups that no checkpoint names yet."""
        return sum(row_group.end > self.checkpoint_end for row_group in self.row_groups)

    @property
    def next_checkpoint_bytes(self) -> int:
        """What a checkpoint would take now, a few bytes more or less: an anchor is one without row groups."""
        named = sum(len(place) + 1 for place in self._checkpoints)
        return self._anchor_bytes + self.serialized_bytes + named + len(footer.CHECKPOINTS_KEY)

    def finish(self, *, state: str | None = None, extra: Mapping[str, str] | None = None) -> Buffers:
        """The last bytes of the file: the page indexes, then the final footer."""
        return self._tail(state or self.ends_as, extra or {})

    def _tail(self, state: str, extra: Mapping[str, str], least_gap: int = 0) -> Buffers:
        column_indexes = [index for laid in self.row_groups for index in laid.column_indexes if index is not None]
        offset_indexes = [index for laid in self.row_groups for index in laid.offset_indexes if index is not None]
        vouching = [] if self.sealing is None else self._vouching([*column_indexes, *offset_indexes])
        column_index_at = self.offset
        self.offset += sum(map(len, column_indexes))
        offset_index_at = self.offset
        self.offset += sum(map(len, offset_indexes))
        serialized = self._with_indexes(column_index_at, offset_index_at)
        payload = self._footer(serialized, state, extra)
        gap = self._gap_before(payload, least_gap)
        return [*vouching, *column_indexes, *offset_indexes, *gap, self._record(RecordKind.FINAL, payload)]

    def _with_indexes(self, column_index_at: int, offset_index_at: int) -> list[bytes]:
        """The row groups with their page indexes, of which each kind lies together (parquet-format, PageIndex.md).

        One row group after the other is read and written again: objects of all of them would take far more memory.
        """
        serialized = []
        have_ordinals = len(self.row_groups) <= cut_policy.MAX_ROW_GROUPS
        for laid in self.row_groups:
            found = None
            if have_ordinals and not any((*laid.column_indexes, *laid.offset_indexes)):
                found = laid.serialized  # that of one that was in place before, and has its indexes
            elif have_ordinals and kernels.FlatChunk is not None and self.sealing is None:
                places = laid.column_indexes, laid.offset_indexes, column_index_at, offset_index_at
                found = kernels.FlatChunk.with_index_places(laid.serialized, *places, crc32)
            if found is not None:
                serialized.append(found)
                column_index_at += sum([len(index) for index in laid.column_indexes if index is not None])
                offset_index_at += sum([len(index) for index in laid.offset_indexes if index is not None])
                continue
            row_group, _ = compact_protocol.decode(RowGroup, laid.serialized)
            for chunk, column_index, offset_index in zip(
                row_group.columns, laid.column_indexes, laid.offset_indexes, strict=True
            ):
                if column_index is not None:
                    chunk.column_index_offset, chunk.column_index_length = column_index_at, len(column_index)
                    column_index_at += len(column_index)
                if offset_index is not None:
                    chunk.offset_index_offset, chunk.offset_index_length = offset_index_at, len(offset_index)
                    offset_index_at += len(offset_index)
                _add_sums(chunk, column_index, offset_index)
            if not have_ordinals:
                row_group.ordinal = None
            serialized.append(compact_protocol.encode(row_group))
        return serialized

    def _record(self, kind: RecordKind, payload: bytes, *, closing: int | None = None) -> bytes:
        """The next record; that of a row group stands behind its `closing` rows, so it counts them as complete."""
        num_rows, num_row_groups = self.num_rows + (closing or 0), len(self.row_groups) + (closing is not None)
        record = self._chain.record(kind, self.offset, payload, num_rows=num_rows, num_row_groups=num_row_groups)
        self.offset += len(record)
        return record

    def _checkpoint_footer(self) -> bytes:
        serialized = [laid.serialized for laid in self.row_groups]
        if len(serialized) > cut_policy.MAX_ROW_GROUPS:
            serialized = [_without_ordinal(row_group, ordinal) for ordinal, row_group in enumerate(serialized)]
        return self._footer(serialized, "in-progress", {})

    def _footer(self, row_groups: Sequence[bytes], state: str, extra: Mapping[str, str]) -> bytes:
        key_value = {
            **self._key_value,
            **extra,
            footer.STATE_KEY: state,
            footer.CHECKPOINT_KEY: str(self.num_checkpoints),
            footer.FILE_ID_KEY: self._chain.file_id.hex(),
            footer.FORMAT_KEY: "1",
        }
        if self._checkpoints:
            key_value[footer.CHECKPOINTS_KEY] = ",".join(self._checkpoints)
        if self.base is not None:
            key_value[footer.BASE_KEY] = self.base
        metadata: dict[str, Any] = {
            "schema": self._schema_part,
            "row_groups": row_groups,
            "num_rows": self.num_rows,
            "column_orders": self._column_orders,
            "key_value": key_value,
            "created_by": self._created_by,
        }
        return footer.frame(footer.serialize(**metadata)) if self.sealing is None else self.sealing.footer(metadata)


def _without_ordinal(row_group: bytes, ordinal: int) -> bytes:
    """The metadata of a row group without its last field, which either all row groups of a footer have or none."""
    field = b"\x14" + varint_bytes(2 * ordinal) + b"\0"  # the next field, of type i16, zigzag; then the end
    return row_group.removesuffix(field) + b"\0" if row_group.endswith(field) else row_group


def _first_page(chunks: Sequence[ColumnChunk]) -> int | None:
    """Offset of the first page of a row group's chunks; None where it has none."""
    metadata = chunks[0].meta_data if chunks else None
    return None if metadata is None else metadata.dictionary_page_offset or metadata.data_page_offset


def _add_sums(chunk: ColumnChunk, column_index: bytes | None, offset_index: bytes | None) -> None:
    """Put the sums of a chunk's indexes to its own."""
    if chunk.meta_data is None:
        return
    for pair in chunk.meta_data.key_value_metadata or ():
        if pair.key == footer.CRC_KEY and pair.value is not None:
            known = ChunkSums.parse(pair.value)
            of_column_index = known.column_index if column_index is None else crc32(column_index)
            of_offset_index = known.offset_index if offset_index is None else crc32(offset_index)
            sums = ChunkSums(known.chunk, of_column_index, of_offset_index, known.bloom)
            pair.value = str(sums)
