"""Records of an earlier epoch where a later writer wrote: they decide nothing, wherever the later records lie."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from page_layout import CHECKPOINT, CHUNK, FINAL, ROW_GROUP
from structural_files import OLDER, OWN, File, made, write_ours, write_resumed

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io.memory_store import MemoryStore

FILE_ID = bytes(range(16))
HEADER = 96
GROUP, ROWS = 8, 32


def table(first: int) -> pa.Table:
    """The first row group is the same; the other rows are counted from `first`."""
    ids = [*range(GROUP), *range(first + GROUP, first + ROWS)]
    return pa.table({name: pa.array([i * times for i in ids], pa.int64()) for name, times in (("a", 1), ("b", 7))})


@pytest.fixture(scope="module")
def older() -> File:
    """A file with a checkpoint behind each row group."""
    options = {"row_group_rows": GROUP, "checkpoint_every": 1, "compression": "none", "encodings": "PLAIN"}
    return made(OLDER, write_ours(table(1000), FILE_ID, options | {"options": rpq.WriteOptions(page_rows=4)}), FILE_ID)


@pytest.fixture(scope="module")
def own(older: File) -> File:
    """What a writer made of it that was resumed behind the first row group."""
    options: dict[str, Any] = {"row_group_rows": GROUP, "checkpoint_every": 1, "compression": "none"}
    options |= {"encodings": "PLAIN", "options": rpq.WriteOptions(page_rows=4)}
    own = made(OWN, write_resumed(table(2000), older, options), FILE_ID)
    assert {record.epoch for record in own.records()} == {0, 1}
    return own


def recovered(data: bytes) -> tuple[list[int], rpq.Report]:
    """The rows that a recovery keeps, each with the values of one version."""
    store = MemoryStore()
    asyncio.run(store.put("damaged", data))
    report = sync.recover((store, "damaged"), (store, "output"))
    rows = pq.read_table(pa.BufferReader(asyncio.run(store.read_tail("output", 1 << 40)).data)).to_pydict()
    assert rows["b"] == [7 * i for i in rows["a"]]
    return rows["a"], report


def without(data: bytes, file: File, *kinds: int) -> bytes:
    """Bytes in which the headers of records of some kinds are destroyed."""
    changed = bytearray(data)
    for record in file.records():
        if record.kind in kinds:
            changed[record.place.start : record.place.start + HEADER] = bytes(HEADER)
    return bytes(changed)


def test_the_later_writer_is_believed_where_its_records_were_moved(older: File, own: File) -> None:
    """The older file up to its footer, and behind it what the later writer wrote."""
    begun = own.records(CHECKPOINT)[0].place.stop
    (final,) = older.records(FINAL)
    ids, report = recovered(older.data[: final.place.start + HEADER] + own.data[begun:])
    assert ids == table(2000)["a"].to_pylist()
    assert report.kept is not None and report.kept.rows_lost == 0


def borders(own: File) -> Iterator[int]:
    """Where pages and records begin that the later writer wrote, but those of its first chunk."""
    second = own.layout.row_groups[1].chunks[1].pages[0].header.start
    return (at for at in own.borders() if second <= at < own.records(FINAL)[0].place.start)


@pytest.mark.parametrize("kinds", [(), (ROW_GROUP,), (CHECKPOINT,), (ROW_GROUP, CHECKPOINT)], ids=str)
def test_no_row_of_the_earlier_writer_is_kept_behind_a_record_of_the_later_one(
    older: File, own: File, kinds: tuple[int, ...]
) -> None:
    """The later file up to some border, and the older one behind it, of which the end is missing."""
    end = older.records(FINAL)[0].place.start + HEADER
    for border in borders(own):
        ids, report = recovered(without(own.data[:border] + older.data[border:end], own, *kinds))
        assert set(ids) <= set(table(2000)["a"].to_pylist()), border
        assert report.kept is not None and report.kept.rows_lost is None, border


def test_a_row_group_has_chunks_of_one_writer(older: File, own: File) -> None:
    """The older file up to a chunk, and the later one behind it, of which only records of chunks are left."""
    end = own.records(FINAL)[0].place.start + HEADER
    for record in own.records(CHUNK)[3::2]:
        border = record.place.start
        whole = older.data[:border] + own.data[border:end]
        ids, _ = recovered(without(whole, own, ROW_GROUP, CHECKPOINT))
        assert len(ids) >= GROUP, border
