"""Row groups of other writers of which the footer's entry and the data are gone: the rows lost are counted."""

from __future__ import annotations

import io
from itertools import combinations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledger_check import check_ledger

import resilient_pq as rpq
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordKind
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.evidence.records.record_scan import scan_headers

ROWS, GROUPS = 10, 5


def without(*lost: int) -> bytes:
    """A file of pyarrow's, the footer entries of some row groups damaged and their data zeroed."""
    count = ROWS * GROUPS
    table = pa.table(
        {"id": range(count), "name": [f"name {i}" for i in range(count)], "v": [i / 2 for i in range(count)]}
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=ROWS)
    data = bytearray(sink.getvalue())
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer, _ = compact_protocol.decode(FileMetaData, memoryview(bytes(data))[start:-8])
    at = start
    for ordinal, row_group in enumerate(footer.row_groups):
        entry = compact_protocol.encode(row_group)
        at = data.index(entry, at)
        if ordinal in lost:
            data[at + 5 : at + 25] = bytes(20)
            chunks = [chunk.meta_data for chunk in row_group.columns if chunk.meta_data is not None]
            first = min(chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks)
            size = sum(chunk.total_compressed_size for chunk in chunks)
            data[first : first + size] = bytes(size)
        at += len(entry)
    return bytes(data)


@pytest.mark.parametrize("lost", [*combinations(range(GROUPS), 1), *combinations(range(GROUPS), 2)], ids=str)
async def test_lost_rows_are_counted_by_the_footer(lost: tuple[int, ...]) -> None:
    store = MemoryStore()
    await store.put("damaged", without(*lost))
    report = await rpq.recover((store, "damaged"), (store, "out"))
    assert report.kept is not None and report.kept.ledger is not None
    ledger = report.kept.ledger
    expected = [i for i in range(ROWS * GROUPS) if i // ROWS not in lost]
    tail = await store.read_tail("out", 1 << 20)
    found = pq.read_table(io.BytesIO(bytes(tail.data))).column("id").to_pylist()
    assert found == expected
    assert (report.outcome, report.num_rows, report.kept.rows_lost) == ("partial", len(expected), ROWS * len(lost))
    assert check_ledger(ledger) == []
    assert (ledger.rows_kept, ledger.rows_lost) == (len(expected), ROWS * len(lost))
    # Where the ledger names the first of some rows, it is the row that lies there in the output.
    position = 0
    for fate in ledger.rows:
        if fate.kept:
            assert fate.num_rows is not None and fate.first_row in (None, found[position])
            position += fate.num_rows


async def test_rows_of_two_row_groups_are_not_said_to_be_of_the_second() -> None:
    """Of the first only the record of a chunk is left, which does not tell how many rows it had."""
    store = MemoryStore()
    async with rpq.create((store, "file"), row_group_rows=ROWS) as writer:
        await writer.write({"id": range(4 * ROWS)})
    data = bytearray((await store.read_tail("file", 1 << 20)).data)
    chunks = [header for _, header in scan_headers(data, 0) if header.kind == RecordKind.CHUNK]
    final = max(header.offset for _, header in scan_headers(data, 0))
    for start, end in ((chunks[1].end, chunks[3].offset), (final, final + HEADER_SIZE)):
        data[start:end] = bytes(end - start)
    await store.put("damaged", bytes(data))
    report = await rpq.recover((store, "damaged"), (store, "out"))
    assert report.kept is not None and report.kept.ledger is not None
    told = [(fate.first_row, fate.num_rows, fate.row_group, fate.kept) for fate in report.kept.ledger.rows]
    assert told[:3] == [(0, ROWS, 0, True), (ROWS, 2 * ROWS, None, False), (3 * ROWS, ROWS, 3, True)]
    assert check_ledger(report.kept.ledger) == []
