"""The contents of an open file: its schema, its row groups, and its own keys. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, Where
from resilient_pq.format import footer, kernels
from resilient_pq.format.file_metadata import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup
from resilient_pq.format.footer import Footer, key_values
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordKind
from resilient_pq.format.schema_tree import Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.version import MAKER

if TYPE_CHECKING:
    from resilient_pq.damage.page_hints import PageHints

#: Offsets are signed 64-bit integers.
MAX_FILE_SIZE = (1 << 63) - 1


class FileState(StrEnum):
    """What a resilient file says of itself; files of others say nothing."""

    COMPLETE = "complete"
    IN_PROGRESS = "in-progress"
    SALVAGED = "salvaged"


@dataclass(frozen=True, slots=True)
class KnownCheckpoint:
    """A checkpoint that a footer names.

    Attributes:
        ordinal: Its number in the file, from 1.
        offset: Absolute offset of its record.
        num_rows: Rows before it.
    """

    ordinal: int
    offset: int
    num_rows: int


@dataclass(frozen=True)
class Contents:
    """A parsed and checked footer.

    Attributes:
        footer: The footer as read.
        schema: The columns, without groups that have no leaves.
        key_value: Key-value metadata of the file.
        state: What the file says of itself; None for files of others.
        checkpoints: The checkpoints that a resilient file's footer names, oldest first.
        file_sizes: Bytes of each data file when a summary of ours was written.
        pages: What is known of the pages of chunks without a footer, by the ordinals of row group and leaf.
        records_begin: Offset from which on the file has records, where another writer made what lies before.
        miscounted: The rows that a footer of others states for the whole file, where its row groups have others.
    """

    footer: Footer
    schema: Schema
    key_value: dict[str, str | None]
    state: FileState | None
    checkpoints: tuple[KnownCheckpoint, ...]
    file_sizes: Mapping[str, int] = field(default_factory=dict)
    miscounted: int | None = None
    pages: Mapping[tuple[int, int], PageHints] = field(default_factory=dict)
    records_begin: int = 0

    @property
    def parity(self) -> tuple[ByteRange, ...]:
        """Where parity lies inside the file."""
        text = None if self.state is None else self.key_value.get(footer.PARITY_KEY)
        return tuple(footer.parity_places(text, self.footer.start)) if text else ()

    @property
    def metadata(self) -> FileMetaData:
        """The Thrift struct."""
        return self.footer.metadata

    @property
    def num_rows(self) -> int:
        """Rows of all row groups."""
        return self.footer.metadata.num_rows

    @property
    def num_chunks(self) -> int:
        """Column chunks of all row groups."""
        return len(self.footer.metadata.row_groups) * self.schema.num_leaves

    @property
    def verified(self) -> bool:
        """Whether a record with a checksum covers the footer; only ours has one."""
        return self.footer.record is not None

    @property
    def unvouched(self) -> bool:
        """Whether the footer was written by us, but the record with its checksum is gone."""
        # The file-level keys prove nothing: other libraries copy them into their own files. The chunks' keys and the
        # maker do, except in summaries that others make of our files: these copy them, too. Only summaries have a
        # footer where there is no room for a record before it, and only ours have a record after the file metadata.
        if self.verified:
            return False
        if self.footer.start < len(footer.MAGIC) + HEADER_SIZE:
            return self.footer.trailing > 0 and footer.FORMAT_KEY in self.key_value
        row_groups = self.metadata.row_groups
        return (self.metadata.created_by or "").startswith(MAKER) or any(
            chunk.meta_data is not None and footer.CRC_KEY in key_values(chunk.meta_data.key_value_metadata)
            for row_group in (row_groups if _may_have_sums(row_groups) else ())
            if _may_have_sums(row_group.columns)
            for chunk in row_group.columns
        )

    @property
    def is_finished(self) -> bool:
        """Whether the footer proves that no row followed: a checkpoint of ours is a footer, too, and does not."""
        if self.footer.record is not None:
            return self.footer.record.kind in (RecordKind.FINAL, RecordKind.SEAL)
        return not self.unvouched or self.key_value.get(footer.STATE_KEY) in (
            FileState.COMPLETE,
            FileState.SALVAGED,
        )

    @cached_property
    def data_files(self) -> tuple[str, ...]:
        """The `file_path`s of the chunks, each once, in order, as stored; only summaries have them."""
        row_groups = self.metadata.row_groups
        named = (chunk.file_path for row_group in row_groups for chunk in row_group.columns)
        return tuple(dict.fromkeys(path for path in named if path is not None))

    @property
    def data_end(self) -> int:
        """Offset before which all column chunks in this file must end."""
        return self.footer.start

    def data_end_in(self, file: str | None) -> int:
        """The same for a data file; how large that is turns out when it is read. This file's own for None."""
        return self.footer.start if file is None else MAX_FILE_SIZE

    @classmethod
    def of(cls, found: Footer) -> Contents:
        """The contents of a footer; a FormatError where it contradicts itself."""
        schema = Schema.from_elements(found.metadata.schema).without_empty_groups()
        total, miscounted = 0, None
        for ordinal, (num_rows, num_chunks) in enumerate(row_group_sizes(found.metadata)):
            where = Where(row_group=ordinal)
            if num_rows < 0:
                raise FormatError(f"the row group says it has {num_rows} rows", where=where)
            if num_chunks != schema.num_leaves:
                raise FormatError(
                    f"the row group has {num_chunks} column chunks, the schema {schema.num_leaves} columns",
                    where=where,
                )
            total += num_rows
        if total != found.metadata.num_rows:
            if found.record is not None:
                raise FormatError(f"the footer says {found.metadata.num_rows:,} rows, its row groups {total:,}")
            miscounted = found.metadata.num_rows or None  # early parquet-rs wrote 0 there
            found.metadata.num_rows = total  # the row groups know better
        key_value = key_values(found.metadata.key_value_metadata)
        state = _state(found, key_value)
        if state is None:
            return cls(found, schema, key_value, None, (), miscounted=miscounted)
        sizes = _file_sizes(key_value) if footer.FILES_KEY in key_value else {}
        begins = key_value.get(footer.BEGINS_KEY) or "0"
        if not begins.isdecimal():
            raise FormatError(f"{footer.BEGINS_KEY} is malformed: {begins!r}")
        known = _checkpoints(found, key_value)
        return cls(found, schema, key_value, state, known, sizes, records_begin=int(begins))


def row_group_sizes(metadata: FileMetaData) -> Sequence[tuple[int, int]]:
    """Rows and column chunks of each row group; row groups that were not parsed yet stay so."""
    row_groups = metadata.row_groups
    spans = row_groups.spans if isinstance(row_groups, kernels.KeptStructs) else None
    inner = row_groups.inner if isinstance(row_groups, kernels.KeptStructs) else None
    if kernels.row_group_sizes is None or spans is None or inner is None:
        return [(row_group.num_rows, len(row_group.columns)) for row_group in row_groups]
    sizes: list[tuple[int, int]] = kernels.row_group_sizes(*spans, *inner).tolist()
    return sizes


def _may_have_sums(structs: Sequence[RowGroup] | Sequence[ColumnChunk]) -> bool:
    """Whether a chunk may have our key: what was not parsed yet is searched as bytes."""
    spans = structs.spans if isinstance(structs, kernels.KeptStructs) else None
    if spans is None:
        return True
    data, starts = spans
    return len(kernels.find_all(memoryview(data)[starts[0] : starts[-1]], footer.CRC_KEY.encode())) > 0


def _state(found: Footer, key_value: dict[str, str | None]) -> FileState | None:
    """The state counts only when the file id beside it is that of the record before the footer."""
    if found.record is None or key_value.get(footer.FILE_ID_KEY) != found.record.file_id.hex():
        return None
    stated = key_value.get(footer.STATE_KEY)
    return FileState(stated) if stated in list(FileState) else None


def _checkpoints(found: Footer, key_value: dict[str, str | None]) -> tuple[KnownCheckpoint, ...]:
    text = key_value.get(footer.CHECKPOINTS_KEY)
    places = [place.split(":") for place in text.split(",")] if text else []
    try:
        known = [KnownCheckpoint(i, int(at), int(rows)) for i, (at, rows) in enumerate(places, start=1)]
    except ValueError:
        raise FormatError(f"{footer.CHECKPOINTS_KEY} is malformed: {text!r}") from None
    record = found.record
    if record is not None and record.kind == RecordKind.CHECKPOINT:
        known.append(KnownCheckpoint(len(known) + 1, record.offset, record.num_rows))
    return tuple(known)


def _file_sizes(key_value: dict[str, str | None]) -> dict[str, int]:
    text = key_value.get(footer.FILES_KEY)
    try:
        sizes = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        sizes = None
    if not isinstance(sizes, dict) or not all(type(size) is int for size in sizes.values()):
        raise FormatError(f"{footer.FILES_KEY} is malformed")
    return sizes


def chunk_range(metadata: ColumnMetaData, end: int) -> tuple[int, int]:
    """The first byte of a column chunk, and the byte after its last one, which lies before `end`."""
    if not metadata.num_values:
        return len(footer.MAGIC), len(footer.MAGIC)  # without pages its offsets mean nothing
    starts = [metadata.data_page_offset]
    if metadata.dictionary_page_offset:
        starts.append(metadata.dictionary_page_offset)
    start, size = min(starts), metadata.total_compressed_size
    if start < len(footer.MAGIC) or size < 0 or start + size > end:
        message = f"a column chunk is said to lie at {start:,} to {start + size:,}, outside of the data"
        raise FormatError(message, hint="`rpq recover` keeps the rows whose pages are there")
    return start, start + size
