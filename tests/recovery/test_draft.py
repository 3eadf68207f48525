"""What is laid out for an output is read again, and published only where it is what was kept: with faults put in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import resilient_pq as rpq
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import RowGroup
from resilient_pq.format.pages.page import pages_of
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.io.transfer.fetch_counters import FetchCounters
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.rewrite.output_draft import Draft, check_end, ends_well
from resilient_pq.writer.file_layout import FileLayout


def damaged(small: Any) -> bytes:
    """A page of the second row group is damaged: all others get new places."""
    chunk = next(header for header in small.records(RecordKind.CHUNK) if header.num_row_groups == 1)
    data: bytes = small.zeroed((chunk.end, chunk.end + 40))
    return data


def torn(small: Any) -> bytes:
    """The fifth row group has all of its pages and no record: the others stay where they are."""
    data: bytes = small.data[: small.records(RecordKind.ROW_GROUP)[-1].offset]
    return data


@pytest.mark.parametrize(("damage", "num_rows"), [(damaged, 40), (torn, 50)])
async def test_without_a_fault_it_is_published(small: Any, damage: Callable[[Any], bytes], num_rows: int) -> None:
    store = MemoryStore()
    await store.put("file", damage(small))
    report = await rpq.recover((store, "file"), (store, "out"))
    assert report.kept is not None and report.kept.num_rows == num_rows


async def is_refused(data: bytes) -> None:
    store = MemoryStore()
    await store.put("file", data)
    with pytest.raises(rpq.RecoveryError, match="cannot be read again") as caught:
        await rpq.recover((store, "file"), (store, "out"))
    assert "please report" in str(caught.value.hint)
    assert await store.list_names("") == ["file"]


def more_rows(row_group: RowGroup) -> None:
    row_group.num_rows += 1


def more_values(row_group: RowGroup) -> None:
    metadata = row_group.columns[0].meta_data
    assert metadata is not None
    metadata.num_values += 1


def another_place(row_group: RowGroup) -> None:
    metadata = row_group.columns[1].meta_data
    assert metadata is not None
    metadata.data_page_offset += 1
    if metadata.dictionary_page_offset is not None:
        metadata.dictionary_page_offset += 1


@pytest.mark.parametrize(("damage", "which"), [(damaged, 0), (damaged, -1), (torn, -1)])
@pytest.mark.parametrize("change", [more_rows, more_values, another_place])
async def test_a_footer_that_says_something_else(
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Any], bytes],
    which: int,
    change: Callable[[RowGroup], None],
) -> None:
    finish = FileLayout.finish

    def finish_otherwise(layout: FileLayout, **options: Any) -> Any:
        laid = layout.row_groups[which]
        row_group, _ = compact_protocol.decode(RowGroup, laid.serialized)
        change(row_group)
        layout.row_groups[which] = replace(laid, serialized=compact_protocol.encode(row_group))
        return finish(layout, **options)

    monkeypatch.setattr(FileLayout, "finish", finish_otherwise)
    await is_refused(damage(small))


@pytest.mark.parametrize("damage", [damaged, torn])
async def test_a_footer_that_counts_other_rows(
    small: Any, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Any], bytes]
) -> None:
    finish = FileLayout.finish

    def finish_otherwise(layout: FileLayout, **options: Any) -> Any:
        layout.num_rows -= 1
        return finish(layout, **options)

    monkeypatch.setattr(FileLayout, "finish", finish_otherwise)
    await is_refused(damage(small))


@pytest.mark.parametrize("damage", [damaged, torn])
@pytest.mark.parametrize("change", ["total_compressed_size", "num_values"])
async def test_a_chunk_that_its_metadata_do_not_fit(
    small: Any, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Any], bytes], change: str
) -> None:
    place = FileLayout.chunk

    def chunk(layout: FileLayout, encoded: Any) -> Any:
        laid = place(layout, encoded)
        setattr(encoded.metadata, change, getattr(encoded.metadata, change) + 1)
        return laid

    monkeypatch.setattr(FileLayout, "chunk", chunk)
    await is_refused(damage(small))


async def test_a_chunk_that_was_made_anew_and_does_not_decode(
    one_paged_file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the chunks of a row group that lost a page are; headers and sizes are right."""
    place = FileLayout.chunk

    def chunk(layout: FileLayout, encoded: Any) -> Any:
        record, *buffers = place(layout, encoded)
        data = bytearray(b"".join(bytes(buffer) for buffer in buffers))
        *_, page = pages_of(memoryview(bytes(data)), 0)
        data[page.end - len(page.body) : page.end] = b"\xff" * len(page.body)
        return [record, bytes(data)]

    page = one_paged_file.layout.row_groups[0].chunks[0].pages[1]
    data = one_paged_file.written_over((page.body.start, bytes(8))).data
    monkeypatch.setattr(FileLayout, "chunk", chunk)
    await is_refused(data)


@pytest.mark.parametrize("fewer", [-1, 1])
async def test_a_chunk_that_was_copied_and_has_other_rows(
    small: Any, monkeypatch: pytest.MonkeyPatch, fewer: int
) -> None:
    push = Draft.chunk

    async def chunk(draft: Draft, leaf: Any, encoded: Any, num_rows: int, *, is_copy: bool) -> None:
        await push(draft, leaf, encoded, num_rows - fewer * is_copy, is_copy=is_copy)

    monkeypatch.setattr(Draft, "chunk", chunk)
    await is_refused(damaged(small))


async def test_the_end_of_a_copy_is_opened(small: Any) -> None:
    size = len(small.data)
    source = await source_of(small.data)
    await check_end(source, size, 50)
    await check_end(source, small.records(RecordKind.CHECKPOINT)[-1].end, 40)
    for end, rows in [(size, 49), (size - 1, 50)]:
        assert not await ends_well(source, end, rows)
        with pytest.raises(rpq.RecoveryError, match="cannot be read again"):
            await check_end(source, end, rows)
    assert not await ends_well(await source_of(small.zeroed((0, 1))), size, 50)


async def source_of(data: bytes) -> DamagedObject:
    info = await (store := MemoryStore()).put("file", data)
    return DamagedObject(store, "file", "memory:file", info, FetchCounters(), owns_store=False)
