"""A footer that was cut gives the schema where the anchor is destroyed; whole records still describe the row groups."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from resilient_pq import sync
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordKind, parse_header
from resilient_pq.reader.contents import chunk_range

COLUMNS = {"a": list(range(100, 150)), "b": list(range(900, 950))}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file without its anchor and its footer but for the schema, with the pages of two columns exchanged."""
    path = tmp_path / "damaged.parquet"
    sync.write(path, COLUMNS, compression="none", encodings={"a": "PLAIN", "b": "PLAIN"})
    with sync.open(path) as file:
        (row_group,), elements = file.metadata.row_groups, file.metadata.schema
    data = bytearray(path.read_bytes())
    one, other = (slice(*chunk_range(chunk.meta_data, len(data))) for chunk in row_group.columns)
    assert one.stop - one.start == other.stop - other.start
    data[one], data[other] = data[other], data[one]
    anchor = parse_header(memoryview(data)[4:])
    assert anchor is not None and anchor.kind == RecordKind.ANCHOR
    data[4 + HEADER_SIZE : 4 + HEADER_SIZE + anchor.payload_size] = bytes(anchor.payload_size)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    schema = compact_protocol.encode(FileMetaData(version=2, schema=elements, num_rows=50, row_groups=[]))
    path.write_bytes(data[: footer + len(schema) + 40])
    return path


def test_pages_that_changed_columns_are_put_back(path: Path, tmp_path: Path) -> None:
    report = sync.recover(path, tmp_path / "output.parquet")
    assert report.kept.num_rows == 50
    assert pq.read_table(tmp_path / "output.parquet").to_pydict() == COLUMNS
