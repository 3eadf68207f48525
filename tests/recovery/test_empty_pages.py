"""Pages without values: pyarrow stops at the first of a chunk, and at two in a row, so an output has none."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import recovered, with_flips

import resilient_pq as rpq
from resilient_pq.checksum import crc32, signed
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.file_metadata import DataPageHeader, Encoding, FileMetaData, PageHeader, PageType
from resilient_pq.format.pages.page import pages_of
from resilient_pq.io.memory_store import MemoryStore

TABLE = pa.table({"id": pa.array(range(20)), "tags": pa.array([[1, 2, 3]] * 12 + [[5]] * 8)})


def empty_page(levels: int) -> bytes:
    """A page without values, with lengths of so many kinds of levels."""
    header = DataPageHeader(0, Encoding.PLAIN, Encoding.RLE, Encoding.RLE)
    body = bytes(4 * levels)
    size = len(body)
    return (
        bytes(compact_protocol.encode(PageHeader(PageType.DATA_PAGE, size, size, signed(crc32(body)), header))) + body
    )


def with_empty_pages(data: bytes, column: int) -> list[bytes]:
    """The file up to its footer, with two pages without values before and behind each page of a column."""
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(0).column(column)
    end = chunk.data_page_offset + chunk.total_compressed_size
    pages = list(pages_of(memoryview(data)[chunk.data_page_offset : end], chunk.data_page_offset))
    until = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    pair = 2 * empty_page(levels=1 + column)
    return [data[:at] + pair + data[at:until] for at in [*(page.offset for page in pages), end]]


@pytest.mark.parametrize("column", [0, 1])
async def test_an_output_has_no_pages_without_values(column: int) -> None:
    out = io.BytesIO()
    pq.write_table(
        TABLE, out, write_page_checksum=True, use_dictionary=False, compression="none", data_page_size=64,
        write_batch_size=10,
    )  # fmt: skip
    damaged = with_empty_pages(out.getvalue(), column)
    assert len(damaged) > 2
    for data in damaged:
        store = MemoryStore()
        await store.put("sibling", out.getvalue())
        await store.put("torn", data)
        await rpq.recover((store, "torn"), (store, "saved"), schema_from=(store, "sibling"))
        saved = bytes((await store.read_tail("saved", 1 << 30)).data)
        assert pq.read_table(io.BytesIO(saved)).equals(TABLE)
        metadata = pq.read_metadata(io.BytesIO(saved)).row_group(0).column(column)
        start = metadata.data_page_offset
        pages = list(pages_of(memoryview(saved)[start : start + metadata.total_compressed_size], start))
        assert metadata.total_uncompressed_size == sum(len(page.header_bytes) + len(page.body) for page in pages)
        assert all(f.damage is rpq.Damage.UNFINISHED for f in (await rpq.check((store, "saved"), deep=True)).findings)


async def test_a_row_group_without_rows_of_a_writer_that_counts_too_few_bytes() -> None:
    """The sizes of old parquet-mr lack some bytes, so that more than its chunk is read of each; here it is nothing."""
    out = io.BytesIO()
    with pq.ParquetWriter(out, TABLE.schema, write_page_checksum=True, use_dictionary=False) as writer:
        for table in (TABLE, TABLE[:0], TABLE):
            writer.write_table(table)
    data = out.getvalue()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    metadata, _ = compact_protocol.decode(FileMetaData, data[start:-8])
    metadata.created_by = "parquet-mr version 1.2.8"
    chunk = pq.read_metadata(out).row_group(2).column(0)
    damaged = 8 * (chunk.data_page_offset + chunk.total_compressed_size - 2)
    data = with_flips(data[:start] + footer.frame(compact_protocol.encode(metadata)), damaged)
    report, found = await recovered(data)
    assert (report.outcome, report.num_rows, report.num_row_groups) == ("partial", 20, 2)
    assert found.equals(TABLE)
