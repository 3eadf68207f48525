"""Pages found by the shape of their headers: those of five writers, and none where there are none."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import fastparquet
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq.damage.page_header_checks import LIMITS, SearchLimits
from resilient_pq.damage.page_search import Proof, finding_pages, metadata_end, pages_in
from resilient_pq.errors import FormatError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import (
    ColumnChunk,
    ColumnMetaData,
    DataPageHeader,
    Encoding,
    FileMetaData,
    PageHeader,
    PageType,
)
from resilient_pq.format.pages.page import pages_of
from resilient_pq.reader.contents import chunk_range

ROWS = 3000
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "word": [None if i % 7 == 0 else f"word {i % 40}" for i in range(ROWS)],
        "number": [random.Random(i).random() for i in range(ROWS)],
        "flag": [i % 3 == 0 for i in range(ROWS)],
    }
)


def true_pages(data: bytes) -> tuple[list[int], int]:
    """Offsets of all pages by the footer, and where the last one ends."""
    length = int.from_bytes(data[-8:-4], "little")
    metadata, _ = compact_protocol.decode(FileMetaData, data, len(data) - 8 - length)
    offsets, data_end = [], 0
    for row_group in metadata.row_groups:
        for column in row_group.columns:
            start, end = chunk_range(column.meta_data, len(data))
            offsets += [page.offset for page in pages_of(memoryview(data)[start:end], start)]
            data_end = max(data_end, end)
    return sorted(offsets), data_end


def by_pyarrow(path: Path, **options: Any) -> None:
    pq.write_table(TABLE, path, row_group_size=1000, data_page_size=1000, **options)


def by_duckdb(path: Path) -> None:
    duckdb.from_arrow(TABLE).write_parquet(str(path), row_group_size=2048)


def by_polars(path: Path) -> None:
    pl.from_arrow(TABLE).write_parquet(path, row_group_size=1000, data_page_size=1000)  # type: ignore[union-attr]


def by_fastparquet(path: Path) -> None:
    frame = pd.DataFrame({name: TABLE[name].to_pandas() for name in TABLE.column_names})
    fastparquet.write(str(path), frame, row_group_offsets=1000)


WRITERS: dict[str, Callable[[Path], None]] = {
    "pyarrow": by_pyarrow,
    "pyarrow v2": lambda path: by_pyarrow(path, data_page_version="2.0", compression="zstd"),
    "pyarrow with CRCs": lambda path: by_pyarrow(path, write_page_checksum=True, compression="none"),
    "pyarrow without dictionaries": lambda path: by_pyarrow(path, use_dictionary=False, compression="none"),
    "DuckDB": by_duckdb,
    "Polars": by_polars,
    "fastparquet": by_fastparquet,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_page_of_other_writers_is_found_with_and_without_the_footer(writer: str, tmp_path: Path) -> None:
    WRITERS[writer](tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    expected, end = true_pages(data)
    assert len(expected) >= 8
    for form in (data, data[:end], data[:end] + bytes(500), data[: end - 1]):
        found = [page.offset for page in pages_in(form)]
        assert found == (expected[:-1] if len(form) < end else expected)


def test_of_a_fragment_the_pages_that_are_whole_are_found(tmp_path: Path) -> None:
    by_pyarrow(tmp_path / "file", compression="none", use_dictionary=False)
    data = (tmp_path / "file").read_bytes()
    expected, end = true_pages(data)
    start = expected[3] + 1
    assert [page.offset for page in pages_in(data[start:end], start)] == expected[4:]


def test_behind_a_page_whose_header_is_destroyed_the_next_one_is_found(tmp_path: Path) -> None:
    by_pyarrow(tmp_path / "file")
    data = bytearray((tmp_path / "file").read_bytes())
    expected, end = true_pages(bytes(data))
    victim = expected[5]
    data[victim : victim + 4] = b"\xff" * 4
    found = pages_in(data[victim:end], victim)
    assert [page.offset for page in found] == expected[6:]


def test_a_size_that_was_changed_does_not_take_other_pages_with_it(tmp_path: Path) -> None:
    by_pyarrow(tmp_path / "file", compression="none", use_dictionary=False)
    data = bytearray((tmp_path / "file").read_bytes())
    expected, end = true_pages(bytes(data))
    victim = expected[4]
    assert data[victim + 4 : victim + 5] == data[victim + 7 : victim + 8]  # both sizes, two bytes each
    data[victim + 4] += 1  # 64 bytes more
    data[victim + 7] += 1
    assert [page.offset for page in pages_in(data[:end])] == expected[:4] + expected[5:]


def test_the_checksum_tells_a_changed_body_from_a_whole_one(tmp_path: Path) -> None:
    by_pyarrow(tmp_path / "file", write_page_checksum=True)
    data = bytearray((tmp_path / "file").read_bytes())
    page = pages_in(data)[4]
    assert (page.proof, page.crc_holds) == (Proof.CRC, True)
    data[page.end - 1] ^= 1
    again = pages_in(data)[4]
    assert (again.offset, again.proof, again.crc_holds) == (page.offset, Proof.BOTH_ENDS, False)


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_a_file_in_a_column_is_not_searched(compression: str) -> None:
    inner, outer = io.BytesIO(), io.BytesIO()
    pq.write_table(TABLE, inner, write_page_checksum=True)
    blobs = pa.table({"blob": [inner.getvalue() + bytes([i]) for i in range(5)], "id": list(range(5))})
    pq.write_table(blobs, outer, compression=compression, use_dictionary=False)
    data = outer.getvalue()
    expected, _ = true_pages(data)
    assert [page.offset for page in pages_in(data)] == expected


@pytest.mark.parametrize("seed", range(3))
def test_in_random_bytes_nothing_is_found(seed: int) -> None:
    assert pages_in(random.Random(seed).randbytes(1 << 20)) == []


@pytest.mark.parametrize("data", [b"", b"\0" * 100_000, b"\x15" * 100_000, b"\x15\0" * 50_000, b"PAR1" * 10_000])
def test_in_repeated_bytes_nothing_is_found(data: bytes) -> None:
    assert pages_in(data) == []


def page_header(size: int, **changes: Any) -> bytes:
    known: dict[str, Any] = {
        "type": int(PageType.DATA_PAGE),
        "uncompressed_page_size": size,
        "compressed_page_size": size,
    }
    values = DataPageHeader(1, int(Encoding.PLAIN), 3, 3)
    return compact_protocol.encode(PageHeader(**(known | {"data_page_header": values} | changes)))


def test_a_lone_header_proves_nothing() -> None:
    noise = random.Random(0).randbytes(1000)
    assert pages_in(noise + page_header(8) + noise) == []
    found = pages_in(noise + (page_header(8) + bytes(8)) * 2 + noise)
    assert [page.proof for page in found] == [Proof.NEXT, Proof.PREVIOUS]


@pytest.mark.parametrize(
    "changes",
    [
        {"uncompressed_page_size": (1 << 31) - 1},
        {"compressed_page_size": -1},
        {"uncompressed_page_size": 1 << 29},
        {"data_page_header": DataPageHeader(1 << 30, 0, 3, 3)},
        {"data_page_header": DataPageHeader(-1, 0, 3, 3)},
        {"data_page_header": DataPageHeader(1, 99, 3, 3)},
        {"data_page_header": DataPageHeader(1, 0, 77, 3)},
        {"data_page_header": None},
        {"type": 2},
    ],
)
def test_headers_that_ask_for_too_much_are_none(changes: dict[str, Any]) -> None:
    data = page_header(8, **changes) + bytes(8) + page_header(8) + bytes(8)
    assert [page.offset for page in pages_in(b"PAR1" + data)] == [len(data) - len(page_header(8)) - 4]


def test_a_search_that_costs_too_much_is_given_up() -> None:
    # Each of these headers says that half of the file is its page, and has a CRC32 to be computed.
    hostile = b"".join(page_header(15_000, crc=1) for _ in range(1_500))
    with pytest.raises(FormatError, match="given up"):
        pages_in(hostile, limits=SearchLimits(free_work=0))


def test_more_pages_than_allowed_are_an_error() -> None:
    data = b"".join(page_header(8) + bytes(8) for _ in range(20))
    with pytest.raises(FormatError, match="more than 10 pages"):
        pages_in(data, limits=SearchLimits(max_pages=10))


def test_bytes_are_asked_for_window_by_window() -> None:
    """However many there are: what is searched need not fit into memory."""
    data = memoryview(bytes(20 << 20))
    asking = finding_pages(0, len(data), [], LIMITS)
    asked = [next(asking)]
    with pytest.raises(StopIteration):
        while True:
            asked.append(asking.send(data[asked[-1].start : asked[-1].stop]))
    assert max(map(len, asked)) <= 8 << 20
    assert asked[-1].stop == len(data)


def test_bytes_before_the_start_of_a_search_are_not_asked_for() -> None:
    data = memoryview(bytes(100) + page_header(8) + bytes(800))
    asking = finding_pages(100, len(data), [], LIMITS)
    asked = [next(asking)]
    with pytest.raises(StopIteration):
        while True:
            asked.append(asking.send(data[asked[-1].start : asked[-1].stop]))
    assert min(part.start for part in asked) == 100


def test_metadata_that_name_no_column_are_none() -> None:
    """Few bytes make a struct in which hardly anything is said: it may be the beginning of something else."""
    said = ColumnMetaData(type=1, encodings=[0], path_in_schema=["a"], codec=0, num_values=5)
    nothing = replace(said, path_in_schema=[])
    for struct in (said, ColumnChunk(file_offset=4, meta_data=said)):
        data = memoryview(compact_protocol.encode(struct) + b"more")
        assert metadata_end(data) == len(data) - 4
    for struct in (nothing, ColumnChunk(file_offset=4, meta_data=nothing), ColumnChunk(file_offset=4)):
        assert metadata_end(memoryview(compact_protocol.encode(struct) + b"more")) is None
