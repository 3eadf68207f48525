"""A footer for the bytes of an upload that has none, from metadata that the caller supplies. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy

from resilient_pq.errors import FormatError, RecoveryError, TornFileError, UnsupportedError, Where
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.file_metadata import ColumnChunk, KeyValue, RowGroup
from resilient_pq.format.footer import NeedBytes, key_values, read_footer
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import MAX_FILE_SIZE, Contents, chunk_range
from resilient_pq.version import MAKER


@dataclass(frozen=True, slots=True)
class SuppliedFooter:
    """A footer that stands behind the bytes it was made for, and how many rows and row groups it keeps."""

    footer: bytes
    num_rows: int
    num_row_groups: int
    rows_dropped: int
    row_groups_dropped: int


def supplied_contents(data: bytes) -> Contents:
    """Understand metadata that were supplied as bytes."""
    # Where a footer alone would stand in a file without rows.
    offset = 0 if data.startswith((footer.MAGIC, footer.ENCRYPTED_MAGIC)) else len(footer.MAGIC)
    found = read_footer(memoryview(data), offset)
    if isinstance(found, NeedBytes):
        raise TornFileError("the metadata are cut short", where=Where(offset=0))
    return Contents.of(found)


def fitted_footer(contents: Contents, num_bytes: int) -> SuppliedFooter:
    """The footer with the row groups that lie within the first bytes of a file."""
    _refuse_unfit(contents)
    metadata = deepcopy(contents.metadata)
    kept: list[RowGroup] = []
    ranges: list[tuple[int, int]] = []
    for ordinal, row_group in enumerate(metadata.row_groups):
        lie = [_range_of(chunk, Where(row_group=ordinal)) for chunk in row_group.columns]
        if any(end > num_bytes for _, end in lie):
            continue
        ranges += [(start, end) for start, end in lie if start < end]
        for chunk in row_group.columns:
            _leave_out_what_is_missing(chunk, num_bytes)
        if row_group.ordinal is not None:
            row_group.ordinal = len(kept)
        kept.append(row_group)
    _refuse_overlaps(ranges)
    dropped = len(metadata.row_groups) - len(kept)
    num_rows = sum(row_group.num_rows for row_group in kept)
    lost = metadata.num_rows - num_rows
    lineage = KeyValue(footer.LINEAGE_KEY, json.dumps({"rows_lost": lost}))
    pairs = [pair for pair in metadata.key_value_metadata or () if pair.key != footer.LINEAGE_KEY]
    metadata.row_groups, metadata.num_rows = kept, num_rows
    metadata.key_value_metadata = [*pairs, lineage]
    return SuppliedFooter(footer.frame(compact_protocol.encode(metadata)), num_rows, len(kept), lost, dropped)


def _refuse_unfit(contents: Contents) -> None:
    metadata = contents.metadata
    if contents.data_files:
        raise RecoveryError(
            "the metadata are of a summary: its rows lie in other files",
            hint="supply the metadata of the one file that was being uploaded",
        )
    chunks = [chunk for row_group in metadata.row_groups for chunk in row_group.columns]
    if metadata.encryption_algorithm is not None or any(
        chunk.crypto_metadata is not None or chunk.encrypted_column_metadata is not None for chunk in chunks
    ):
        raise UnsupportedError("the metadata speak of encrypted columns")
    if (metadata.created_by or "").startswith(MAKER) or any(
        chunk.meta_data is not None and footer.CRC_KEY in key_values(chunk.meta_data.key_value_metadata)
        for chunk in chunks
    ):
        raise RecoveryError(
            "the metadata are of a resilient file, whose parts hold metadata of their own",
            hint="complete the upload without metadata, then run `rpq check` on it",
        )


def _range_of(chunk: ColumnChunk, where: Where) -> tuple[int, int]:
    """Where a chunk's pages lie; whether so many bytes are there is not asked."""
    found = chunk.meta_data
    if found is None:
        raise FormatError("a column chunk has no metadata", where=where)
    start, end = chunk_range(found, MAX_FILE_SIZE)
    if found.num_values and not start <= found.data_page_offset < end:
        raise FormatError("the first data page of a column chunk is said to lie outside of it", where=where)
    return start, end


def _refuse_overlaps(ranges: Sequence[tuple[int, int]]) -> None:
    reached = 0
    for start, end in sorted(ranges):
        if start < reached:
            raise FormatError("two column chunks are said to lie in the same place", where=Where(offset=start))
        reached = end


def _leave_out_what_is_missing(chunk: ColumnChunk, num_bytes: int) -> None:
    """Names of indexes and bloom filters stay where these lie within the bytes that are there."""
    for kind in ("column_index", "offset_index"):
        place = getattr(chunk, f"{kind}_offset"), getattr(chunk, f"{kind}_length")
        if not _is_there(*place, num_bytes):
            setattr(chunk, f"{kind}_offset", None)
            setattr(chunk, f"{kind}_length", None)
    metadata = chunk.meta_data
    assert metadata is not None
    # Its length is a later addition; a filter without one may end anywhere.
    if not _is_there(metadata.bloom_filter_offset, metadata.bloom_filter_length, num_bytes):
        metadata.bloom_filter_offset = metadata.bloom_filter_length = None
    if not _is_there(metadata.index_page_offset, 0, num_bytes):
        metadata.index_page_offset = None


def _is_there(offset: int | None, length: int | None, num_bytes: int) -> bool:
    if offset is None or length is None:
        return False
    return len(footer.MAGIC) <= offset and length >= 0 and offset + length <= num_bytes
