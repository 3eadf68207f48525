"""Pages that nothing proves any more, since the record of their row group is gone: they come where the caller asks."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.damage.chunk_salvage import PageFate
from resilient_pq.damage.page_runs import PageRuns
from resilient_pq.format.footer import read_footer
from resilient_pq.format.pages.page import pages_of, read_header
from resilient_pq.io import MemoryStore
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.read_plan import chunk_read

ROWS, PAGE_ROWS = 400, 100


@pytest.fixture
async def torn() -> tuple[bytes, int, int]:
    """A file that ends within the record of its row group, where that begins, and where the last chunk does."""
    store = MemoryStore()
    options = rpq.WriteOptions(page_rows=PAGE_ROWS, data_page_version="2.0")
    async with rpq.create((store, "a"), options=options, encodings="PLAIN", compression="snappy") as writer:
        await writer.write({"a": np.arange(ROWS), "b": [None, 1, 2, 3] * (ROWS // 4)})
    async with rpq.open((store, "a")) as file:
        chunks = [column.meta_data for column in file.metadata.row_groups[0].columns]
    data = bytes((await store.read_tail("a", 1 << 20)).data)
    record = chunks[1].data_page_offset + chunks[1].total_compressed_size
    return data[: record + 200], record, chunks[1].data_page_offset


async def _rows(data: bytes, *, keep_unplaced: bool) -> int:
    store = MemoryStore()
    await store.put("torn", data)
    try:
        report = await rpq.recover((store, "torn"), (store, "saved"), keep_unplaced=keep_unplaced)
    except rpq.NothingToRecoverError:
        return 0
    assert report.num_rows is not None
    return report.num_rows


@pytest.mark.parametrize("gone", [slice(14, 22), slice(0, 96)])
async def test_a_record_without_its_header_after_the_last_chunk(torn: tuple[bytes, int, int], gone: slice) -> None:
    data, record, _ = torn
    damaged = bytearray(data)
    damaged[record + gone.start : record + gone.stop] = b"\xa5" * (gone.stop - gone.start)
    assert await _rows(data, keep_unplaced=False) == ROWS
    assert await _rows(bytes(damaged), keep_unplaced=True) == ROWS


@pytest.mark.parametrize("to", [0x00, 0x0A, 0x7F])
async def test_a_changed_header_costs_no_page_before_it(torn: tuple[bytes, int, int], to: int) -> None:
    """Without the record a page that is as it was written, and does not decode, seems to be of something else."""
    data, _, chunk = torn
    header, end = read_header(memoryview(data)[chunk:], 0)
    second = chunk + end + header.compressed_page_size
    _, end = read_header(memoryview(data)[second:], 0)
    for at in range(second, second + end):
        damaged = bytearray(data)
        damaged[at] = to
        assert await _rows(bytes(damaged), keep_unplaced=True) >= PAGE_ROWS, at - second


async def test_a_page_whose_place_is_proven_is_not_called_unplaced() -> None:
    """Beside a page that is as it was written and does not decode, all pages are doubted whose place nothing proves."""
    out = io.BytesIO()
    pq.write_table(pa.table({"n": range(40)}), out, use_dictionary=False, data_page_size=8, write_batch_size=10)
    data = memoryview(out.getvalue())
    contents = Contents.of(read_footer(data, 0))  # type: ignore[arg-type]
    chunk = chunk_read(contents, 0, contents.schema.leaves[0])
    pages = list(pages_of(data[chunk.range.start : chunk.range.end], chunk.range.start))
    pages[2] = replace(pages[2], body=pages[2].body[:8])
    fates = [
        PageFate(page.offset, page.offset + 1, page, False, 10 * i, 10, checksummed=True, placed=i == 0)
        for i, page in enumerate(pages)
    ]
    runs = PageRuns(chunk, fates, None, row_aligned=True, bounded=True, keep_unplaced=True)
    assert [run.data.num_rows for run in runs.decode()] == [20, 10]
    assert [(fate.page is not None, fate.unplaced) for fate in runs.fates] == [
        (True, False), (True, True), (False, False), (True, True)
    ]  # fmt: skip
