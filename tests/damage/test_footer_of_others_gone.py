"""Files of others whose footer is gone: a sibling's schema gives back all rows of the row groups that are whole."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import sampled
from writers_of_others import WriteTable, by_duckdb, by_fastparquet, by_polars, by_pyarrow

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore


def flat_rows(first: int, count: int) -> pa.Table:
    """Columns of several types, nulls in most; strings with few values and with many, and none at all."""
    numbers = range(first, first + count)
    rng = random.Random(first)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "small": pa.array([i % 100 for i in numbers], pa.int32()),
            "town": pa.array([None if i % 7 == 0 else f"town {i % 3}" for i in numbers]),
            "score": pa.array([None if i % 11 == 0 else rng.random() for i in numbers]),
            "note": pa.array([f"{i * 7919 % 10007:x}" * (i % 3) for i in numbers]),
            "flag": pa.array([i % 3 == 0 for i in numbers]),
            "blob": pa.array([b"PAR1" * (i % 4) for i in numbers], pa.binary()),
        }
    )


def nested_rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    table = flat_rows(first, count)
    tags = pa.array([None if i % 6 == 2 else [i + j for j in range(i % 4)] for i in numbers], pa.list_(pa.int64()))
    point = pa.array([{"x": i / 7, "y": None if i % 3 else f"y {i}"} for i in numbers])
    return table.append_column("tags", tags).append_column("point", point)


@dataclass(frozen=True)
class Writer:
    """Who writes, and what."""

    name: str
    write: WriteTable
    rows: Callable[[int, int], pa.Table] = nested_rows
    count: int = 1000


WRITERS = (
    Writer("pyarrow snappy", by_pyarrow(data_page_size=1000)),
    Writer("pyarrow zstd, page CRCs", by_pyarrow(data_page_size=1000, compression="zstd", write_page_checksum=True)),
    Writer("pyarrow none, pages 2.0", by_pyarrow(data_page_size=1000, compression="none", data_page_version="2.0")),
    Writer("pyarrow gzip, no dictionaries", by_pyarrow(data_page_size=1000, compression="gzip", use_dictionary=False)),
    Writer("pyarrow lz4, page index", by_pyarrow(data_page_size=1000, compression="lz4", write_page_index=True)),
    Writer("pyarrow brotli", by_pyarrow(data_page_size=1000, compression="brotli"), flat_rows),
    Writer("DuckDB snappy", by_duckdb("snappy"), count=2048 * 2 + 500),
    Writer("DuckDB zstd", by_duckdb("zstd"), flat_rows, count=2048 * 2 + 500),
    Writer("Polars zstd", by_polars("zstd", data_page_size=1000)),
    Writer("Polars none", by_polars("uncompressed", data_page_size=1000), flat_rows),
    Writer("fastparquet none", by_fastparquet("UNCOMPRESSED"), flat_rows),
    Writer("fastparquet snappy", by_fastparquet("SNAPPY"), flat_rows),
)


@dataclass(frozen=True)
class Foreign:
    """A file of another writer, whole, and a sibling of it with other rows."""

    name: str
    data: bytes
    table: pa.Table
    sibling: bytes
    ends: dict[int, int]  # Rows up to the end of each row group, by the offset where it ends
    footer: int  # Where its metadata begin

    def rows_before(self, cut: int) -> int:
        """Rows of the row groups that are whole when the file is cut there."""
        return max((rows for end, rows in self.ends.items() if end <= cut), default=0)


def understood(name: str, data: bytes, sibling: bytes) -> Foreign:
    metadata = pq.read_metadata(io.BytesIO(data))
    ends, rows = {}, 0
    for i in range(metadata.num_row_groups):
        row_group = metadata.row_group(i)
        rows += row_group.num_rows
        chunks = [row_group.column(j) for j in range(metadata.num_columns)]
        ends[
            max(
                (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
                for chunk in chunks
            )
        ] = rows
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return Foreign(name, data, pq.read_table(io.BytesIO(data)), sibling, ends, footer)


#: Those that the quick suite has too.
_QUICK = (
    "pyarrow snappy", "pyarrow zstd, page CRCs", "pyarrow gzip, no dictionaries", "DuckDB snappy", "Polars zstd",
    "fastparquet snappy",
)  # fmt: skip
_CHOSEN = [
    pytest.param(writer, id=writer.name, marks=() if writer.name in _QUICK else pytest.mark.thorough)
    for writer in WRITERS
]


@pytest.fixture(scope="module", params=_CHOSEN)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    writer = request.param
    folder = tmp_path_factory.mktemp("others")
    size = 2048 if writer.name.startswith("DuckDB") else 300
    writer.write(writer.rows(5, writer.count), size, folder / "file.parquet")
    writer.write(writer.rows(100_000, 700), size, folder / "sibling.parquet")
    foreign = understood(writer.name, (folder / "file.parquet").read_bytes(), (folder / "sibling.parquet").read_bytes())
    assert len(foreign.ends) > 2
    return foreign


async def recovered(file: Foreign, data: bytes) -> pa.Table | None:
    """The rows of the output, or None where there is none."""
    store = MemoryStore()
    await store.put("damaged", data)
    await store.put("sibling", file.sibling)
    try:
        report = await rpq.recover((store, "damaged"), (store, "out"), schema_from=(store, "sibling"))
    except rpq.NothingToRecoverError:
        with pytest.raises(rpq.NotFoundError):
            await store.head("out")
        return None
    output = bytes((await store.read_tail("out", 1 << 30)).data)
    table = pq.read_table(io.BytesIO(output))
    assert table.num_rows == report.num_rows
    return table


async def examine(file: Foreign, data: bytes, rows: int, what: str) -> None:
    """At least the first `rows` rows come back, in order, and nothing but rows of the file in their order."""
    try:
        table = await recovered(file, data)
        if table is None:
            assert rows == 0, f"nothing was recovered of {rows} rows"
            return
        assert rows <= table.num_rows <= file.table.num_rows, f"{table.num_rows} rows, not {rows}"
        assert table.column_names == file.table.column_names
        for name in table.column_names:
            wanted = file.table.column(name).slice(0, table.num_rows).to_pylist()
            assert table.column(name).to_pylist() == wanted, f"{name} has other values"
    except BaseException as error:
        error.add_note(f"{file.name}: {what}")
        raise


async def test_footer_gone(file: Foreign) -> None:
    """Cut off, cut within, zeroed, overwritten, and with the magics at both ends."""
    data, size, start = file.data, len(file.data), file.footer
    rng = random.Random(size)
    noise = rng.randbytes(size - start)
    damaged = {
        "cut before the footer": data[:start],
        "cut within the footer": data[: (start + size) // 2],
        "its last byte cut": data[:-1],
        "the footer zeroed": data[:start] + bytes(size - start),
        "the footer overwritten": data[:start] + noise,
        "zeros behind what is left of it": data[: start + 20] + bytes(5000),
        "the head's magic gone too": bytes(4) + data[4:start],
    }
    for what, changed in damaged.items():
        await examine(file, changed, file.table.num_rows, what)


async def test_cut_somewhere(file: Foreign) -> None:
    rng = random.Random(len(file.data))
    *others, last = file.ends
    for cut in (others[0], others[0] + 1, last - 1, *rng.sample(range(file.footer), 2)):
        await examine(file, file.data[:cut], file.rows_before(cut), f"cut at {cut}")


@pytest.mark.thorough
@pytest.mark.timeout(3600)
async def test_cut_at_many_places(file: Foreign) -> None:
    for cut in {*range(0, len(file.data), 101), *(end + by for end in file.ends for by in range(-3, 4))}:
        await examine(file, file.data[:cut], file.rows_before(cut), f"cut at {cut}")


async def examine_others(file: Foreign, start: int, size: int) -> None:
    """All rows of the row groups without a zeroed byte are there; nothing can be said of the others without checksums."""
    rows = {row["id"]: row for row in file.table.to_pylist()}
    data = file.data[:start] + bytes(size) + file.data[start + size : file.footer]
    whole, first, begin = set(), 0, 0
    for end, last in file.ends.items():
        if data[begin:end] == file.data[begin:end]:
            whole |= set(file.table.column("id").slice(first, last - first).to_pylist())
        first, begin = last, end
    table = await recovered(file, data)
    found = [] if table is None else table.to_pylist()
    missed = whole - {row["id"] for row in found if row == rows.get(row["id"])}
    what = f"{size} bytes at {start} cost {len(missed)} rows of other row groups"
    assert not missed, f"{file.name}: {what}"


@sampled(3, 100)
async def test_a_border_of_chunks_zeroed_and_the_footer_gone(file: Foreign, count: int) -> None:
    """Pages of two columns are gone: what they took tells where the file goes on, though the last row group is smaller."""
    metadata = pq.read_metadata(io.BytesIO(file.data))
    columns = range(1, metadata.num_columns)
    for i in random.Random(file.name).sample(columns, min(count, len(columns))):
        chunk = metadata.row_group(0).column(i)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        await examine_others(file, start - 30, 60)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
async def test_any_sector_zeroed_and_the_footer_gone(file: Foreign) -> None:
    for start in range(0, file.footer, 512):
        await examine_others(file, start, 512)
