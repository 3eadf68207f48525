"""Proof that metadata belong to the object in which they are found: pages begin at their offsets. Sans-io."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import pairwise

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError
from resilient_pq.format.file_metadata import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup
from resilient_pq.format.footer import MAGIC
from resilient_pq.format.pages.page import read_header
from resilient_pq.format.resilience_records import FORMAT_VERSION, RECORD_MAGIC, RecordKind
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.reader.contents import MAX_FILE_SIZE, Contents, chunk_range

#: Column chunks of which the first pages are looked at before metadata are believed.
_SAMPLE = 12
#: Bytes that page headers are looked for in: nearly all, and all but those with monstrous statistics.
_HEADER_BYTES = (1024, 256 * 1024)
#: A size that some writers counted the header of the dictionary page out of.
_UNCOUNTED = 100
#: How far back the beginning of a file is looked for that metadata without a row group may be of.
_REACH = 8 * 1024 * 1024
#: The magic of a record, as it was written, and as a transfer as text leaves it.
_MAGICS = (RECORD_MAGIC, RECORD_MAGIC.replace(b"\n", b"\r\n"), RECORD_MAGIC.replace(b"\r\n", b"\n"))
#: An anchor has this behind it; in a page that is compressed no more of it may be as it was written.
_ANCHOR = bytes((FORMAT_VERSION, RecordKind.ANCHOR))


def find_shift(metadata: FileMetaData, start: int, *, has_magic: bool) -> Generator[ByteRange, memoryview, int | None]:
    """How far the row groups lie from where whole metadata have them; None where they are not there."""
    # Most writers put nothing between the last chunk, index or filter and the metadata: the distance is the number of
    # bytes that are missing, or were added, before the row groups.
    chunks = all_chunks(metadata.row_groups)
    if any(chunk.file_path for chunk in chunks):
        return 0 if has_magic and start == len(MAGIC) else None  # a summary
    moved = start - _data_end(chunks)
    # Where nothing was moved it is this file: offsets in a file within a column do not count from the beginning.
    if not moved or (yield from pages_begin(chunks, 0, start)):
        return 0
    if moved < 0 and (yield from pages_begin(chunks, moved, start)):
        return moved
    if has_magic:
        # Where the file has no values, no other file may begin behind the magic.
        is_only = not any(map(has_values, chunks)) and not (yield from is_within(start))
        return 0 if is_only else None
    return moved if moved > 0 and (yield from _is_file_at(moved, chunks, start)) else None


def _is_file_at(offset: int, chunks: Sequence[ColumnChunk], end: int) -> Generator[ByteRange, memoryview, bool]:
    """Whether a file with these chunks begins at an offset."""
    if bytes((yield ByteRange(offset, offset + len(MAGIC)))) != MAGIC:
        return False
    return not any(map(has_values, chunks)) or (yield from pages_begin(chunks, offset, end))


def all_chunks(row_groups: Iterable[RowGroup]) -> list[ColumnChunk]:
    """The column chunks of some row groups."""
    return [chunk for row_group in row_groups for chunk in row_group.columns]


def _data_end(chunks: Iterable[ColumnChunk]) -> int:
    """Offset behind the last chunk, index or bloom filter."""
    return max([len(MAGIC), *(end for chunk in chunks for end in _chunk_ends(chunk))])


def _chunk_ends(chunk: ColumnChunk) -> Iterator[int]:
    """Offsets at which a chunk, its indexes and its bloom filter end."""
    metadata = chunk.meta_data
    if metadata is not None and metadata.num_values:
        starts = (metadata.data_page_offset, metadata.dictionary_page_offset or metadata.data_page_offset)
        yield min(starts) + metadata.total_compressed_size
    if metadata is not None and metadata.bloom_filter_offset:
        yield metadata.bloom_filter_offset + (metadata.bloom_filter_length or 0)
    if chunk.column_index_offset and chunk.column_index_length:
        yield chunk.column_index_offset + chunk.column_index_length
    if chunk.offset_index_offset and chunk.offset_index_length:
        yield chunk.offset_index_offset + chunk.offset_index_length


def has_values(chunk: ColumnChunk) -> bool:
    """Whether a chunk has pages."""
    return chunk.meta_data is not None and chunk.meta_data.num_values > 0


def pages_begin(chunks: Sequence[ColumnChunk], shift: int, end: int) -> Generator[ByteRange, memoryview, bool]:
    """Whether pages begin where metadata have column chunks.

    Some may be damaged. The chunk at the very beginning counts only with others: a file within a column has one there,
    too, and the outer file has a page there.
    """
    known = [chunk.meta_data for chunk in chunks if chunk.meta_data is not None and has_values(chunk)]
    step = max(1, (len(known) - 1) // (_SAMPLE - 1))
    sample = list({id(each): each for each in [*known[::step], *known[-1:]]}.values())
    good, elsewhere = 0, 0
    for metadata in sample:
        try:
            first, last = chunk_range(metadata, MAX_FILE_SIZE)
        except FormatError:
            continue
        if (yield from _is_chunk_start(metadata, first + shift, last + shift, end)):
            good += 1
            elsewhere += first != len(MAGIC)
    return bool(good) and (good == len(sample) or 4 * elsewhere >= len(sample))


def _is_chunk_start(
    metadata: ColumnMetaData, start: int, end: int, limit: int
) -> Generator[ByteRange, memoryview, bool]:
    """Whether the first page of a chunk begins at `start`, and another behind it unless the first has all its values.

    A chunk that is said to end behind `limit` is looked at up to there: its size may be what is wrong.
    """
    if not 0 <= start < limit:
        return False
    values, at = 0, start
    for _ in range(2):
        found = yield from _read_page_end(at, min(end + _UNCOUNTED, limit))
        if found is None:
            return False
        at, count = found
        values += count
        if values > metadata.num_values:
            return False
        if values == metadata.num_values or at >= end:
            return values == metadata.num_values
    return True


def _read_page_end(at: int, end: int) -> Generator[ByteRange, memoryview, tuple[int, int] | None]:
    """Where the page at `at` ends and its number of entries; None where no page ends before `end`."""
    for size in _HEADER_BYTES:
        data = yield ByteRange(at, min(at + size, end))
        try:
            header, body = read_header(data, 0)
        except FormatError:
            if at + size >= end:
                return None
            continue
        following = at + body + header.compressed_page_size
        data_header = header.data_page_header or header.data_page_header_v2
        return None if following > end else (following, 0 if data_header is None else data_header.num_values)
    return None


def is_within(start: int) -> Generator[ByteRange, memoryview, bool]:
    """Whether another file begins not too far before `start`."""
    begin = max(start - _REACH, 1)
    if begin >= start:
        return False
    data = memoryview((yield ByteRange(begin, start)))
    return any(_is_file_start(data[match.end() :]) for match in re.finditer(re.escape(MAGIC), data))


def _is_file_start(behind: memoryview) -> bool:
    """Whether bytes behind a magic are the first record or page of a file."""
    for magic in _MAGICS:
        if behind[: len(magic)] == magic:
            return behind[len(magic) : len(magic) + len(_ANCHOR)] == _ANCHOR
    try:
        read_header(behind, 0)
    except FormatError:
        return False
    return True


def select_credible(
    row_groups: Sequence[RowGroup], schema: Schema, end: int, *, doubtful: int, after: Sequence[RowGroup] = ()
) -> Iterator[RowGroup]:
    """The row groups of damaged metadata up to the first that contradicts the schema, itself, or row groups before it.

    From number `doubtful` on, a column without lists has to have as many values as there are rows: these row groups may
    be damaged, or what follows the damage may only look like row groups.
    """
    taken = [_chunk_places(row_group, schema, end, strict=False) or [] for row_group in after]
    last = max((place for places in taken for place in places), default=(0, 0))
    known = {place for places in taken for place in places}
    for ordinal, row_group in enumerate(row_groups):
        if names_some_files([row_groups[0], row_group]):
            return
        places = _chunk_places(row_group, schema, end, strict=ordinal >= doubtful)
        if places is None or not known.isdisjoint(places):
            return  # of chunks that are known it is an entry before the damage, found once more
        places = sorted([last, *places])
        if any(one[1] > following[0] for one, following in pairwise(places)):
            return
        last = places[-1]
        yield row_group


def names_some_files(row_groups: Iterable[RowGroup]) -> bool:
    """Whether some chunks are said to lie in other files, and others are not: in a summary all are."""
    return len({chunk.file_path is None for chunk in all_chunks(row_groups)}) > 1


def contradicts_itself(contents: Contents) -> bool:
    """Whether a footer counts other rows than its row groups have, and one of these contradicts the schema or itself.

    A wrong bit changed where a field ends, and what follows was taken for other fields.
    """
    row_groups = contents.metadata.row_groups
    if names_some_files(row_groups):
        return True
    if contents.miscounted is None:
        return False
    credible = select_credible(row_groups, contents.schema, contents.footer.start, doubtful=len(row_groups))
    return len(list(credible)) < len(row_groups)


def other_names(contents: Contents) -> Iterator[tuple[Leaf, Counter[str]]]:
    """Columns that row groups name otherwise than the schema does: how, and how many row groups."""
    for leaf in contents.schema.leaves:
        chunks = [row_group.columns[leaf.ordinal].meta_data for row_group in contents.metadata.row_groups]
        names = Counter(
            ".".join(chunk.path_in_schema) for chunk in chunks if chunk is not None and chunk.path_in_schema
        )
        del names[leaf.column_path]
        if names:
            yield leaf, names


def _chunk_places(row_group: RowGroup, schema: Schema, end: int, *, strict: bool) -> list[tuple[int, int]] | None:
    """Where the chunks of a row group lie; None where its metadata contradict themselves."""
    if row_group.num_rows < 0 or len(row_group.columns) != len(schema.leaves):
        return None
    sizes = [column.meta_data.total_compressed_size for column in row_group.columns if column.meta_data]
    if row_group.total_compressed_size not in (None, 0, sum(sizes)):
        return None
    places, proven = [], not strict
    for leaf, column in zip(schema.leaves, row_group.columns, strict=True):
        metadata = column.meta_data
        if metadata is None and column.encrypted_column_metadata is not None:
            continue
        if metadata is None or metadata.type != leaf.node.physical_type:
            return None
        if not leaf.max_repetition_level:
            if metadata.num_values != row_group.num_rows:
                return None
            proven |= row_group.num_rows > 0
        try:
            place = chunk_range(metadata, end)
        except FormatError:
            return None
        if place[0] < place[1]:
            places.append(place)
    return places if proven else None
