"""Files whose footer cannot be used, read by the row groups that are found without it. An async shell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from resilient_pq.damage.lost_region import LostRegion
from resilient_pq.errors import Where
from resilient_pq.format.file_metadata import ColumnChunk, RowGroup
from resilient_pq.io import FetchCounters, ObjectTail, ReadStore
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.file import File
from resilient_pq.reader.read_options import ReadLimits, ReadSettings
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.encrypted.with_keys import decrypted
from resilient_pq.recovery.evidence.evidence_search import reconstruct
from resilient_pq.recovery.evidence.located_row_group import LocatedRowGroup
from resilient_pq.recovery.evidence.reconstruction import Reconstruction


async def open_torn(
    store: ReadStore,
    key: str,
    how: ReadSettings,
    *,
    counters: FetchCounters,
    owns_store: bool,
    limits: ReadLimits | None,
) -> File | None:
    """The file with all row groups of which every column was found; None where it does not name its columns."""
    url, info = store.url_of(key), await store.head(key)
    source = DamagedObject(store, key, url, info, counters, False)
    if how.keys is not None:
        source = await decrypted(source, how.keys, how.aad_prefix, by_records=True)
        store, how = source.store, replace(how, heal=False)
    known = await reconstruct(source, invent_columns=False)
    if known.contents is None or known.candidates is None or known.moved:
        return None  # a recovery can do more, but it makes up names of columns, or puts parts back
    kept = [found for found in known.row_groups if _is_there(found, info.size)]
    contents = await off_loop(known.num_chunks, _contents_of, known, kept)
    tail = ObjectTail(info, info.size, b"")
    file = File(store, tail, contents, how, counters=counters, owns_store=owns_store, limits=limits)
    file.lost_at_opening = tuple(_in_file(url, known.find_losses(kept)))
    if how.on_lost is not None:
        for region in file.lost_at_opening:
            how.on_lost(region)
    return file


def _is_there(found: LocatedRowGroup, size: int) -> bool:
    """Whether the pages of all columns are there, and their places are proven."""
    chunks = [chunk for chunk in found.chunks if chunk is not None and chunk.read.range.end <= size]
    proven = all(chunk.pages is None or not chunk.pages.unproven for chunk in chunks)
    return found.num_rows is not None and len(chunks) == len(found.chunks) and proven


def _contents_of(known: Reconstruction, kept: Sequence[LocatedRowGroup]) -> Contents:
    """What a footer would say that names these row groups alone."""
    assert known.contents is not None
    footer, positions = known.contents.footer, known.positions
    stated = footer.metadata.row_groups
    row_groups = [
        stated[positions[found.ordinal]] if found.ordinal in positions else _described(found) for found in kept
    ]
    num_rows = sum(row_group.num_rows for row_group in row_groups)
    metadata = replace(footer.metadata, row_groups=row_groups, num_rows=num_rows)
    pages = {
        (position, leaf): chunk.pages
        for position, found in enumerate(kept)
        for leaf, chunk in enumerate(found.chunks)
        if chunk is not None and chunk.pages is not None
    }
    return replace(Contents.of(replace(footer, metadata=metadata)), pages=pages)


def _described(found: LocatedRowGroup) -> RowGroup:
    columns = [ColumnChunk(meta_data=chunk.read.metadata) for chunk in found.chunks if chunk is not None]
    size = sum(chunk.meta_data.total_uncompressed_size for chunk in columns if chunk.meta_data is not None)
    return RowGroup(columns, size, found.num_rows or 0)


def _in_file(url: str, lost: Iterable[LostRegion]) -> Iterable[LostRegion]:
    return (replace(region, where=region.where.merged_with(Where(key=url))) for region in lost)
