"""One bit of the footer of another writer is flipped, every page is whole: all rows come back, or a loss is stated.

A bit of a minimum or a maximum looks like values that were changed: then the rows of that row group are lost, and no
others, for nothing tells which of both is right.

A footer of others has no checksum, so a bit may change what it says of a column, and no page contradicts: of the schema
that is believed. What it says of row groups has to agree with their pages.
"""

from __future__ import annotations

import io
import random
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import ALL, sampled
from writers_of_others import WriteTable, by_duckdb, by_fastparquet, by_polars, by_pyarrow

import resilient_pq as rpq
from resilient_pq.damage.partial_metadata import partial_metadata
from resilient_pq.format.footer import read_footer
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.reader.contents import Contents

BY_PYARROW = by_pyarrow(compression="zstd")


def rows(count: int) -> pa.Table:
    rng = random.Random(count)
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "small": pa.array([i % 100 for i in range(count)], pa.int32()),
            "town": [None if i % 7 == 0 else f"town {i % 3}" for i in range(count)],
            "score": [rng.random() for _ in range(count)],
        }
    )


def written(write: WriteTable, count: int = 337, size: int = 100) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(rows(count), size, Path(folder) / "file")
        return (Path(folder) / "file").read_bytes()


@pytest.fixture(scope="module", params=["pyarrow", "DuckDB", "Polars", "fastparquet"])
def data(request: pytest.FixtureRequest) -> bytes:
    if request.param == "DuckDB":
        return written(by_duckdb(), 2048 * 3 + 37, 2048)
    return written({"pyarrow": BY_PYARROW, "Polars": by_polars(), "fastparquet": by_fastparquet()}[request.param])


async def examine(data: bytes, bits: Iterable[int]) -> int:
    """Flip each bit, recover, and hold the rows against those of the file; returns how often all came back."""
    whole = pq.read_table(io.BytesIO(data))
    complete = 0
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        store = MemoryStore()
        await store.put("damaged", bytes(damaged))
        report = await rpq.recover((store, "damaged"), (store, "out"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rpq.IncompleteFileWarning)
            async with rpq.open((store, "out")) as file:
                table = pa.table(await file.read())
        assert report.kept is not None
        assert table.num_rows == whole.num_rows or report.kept.lost, f"bit {bit}: rows are missing, and none is lost"
        if table.num_rows < whole.num_rows:
            (lost,) = report.kept.lost
            assert "statistics" in lost.reason, f"bit {bit}: lost {lost}"
            assert whole.num_rows - table.num_rows == report.kept.rows_lost == lost.num_rows
            kept = set(table["id"].to_pylist())
            whole_rows = whole.filter(pa.array([number in kept for number in whole["id"].to_pylist()]))
            assert table.equals(whole_rows), f"bit {bit}: other values"
            continue
        if table.column_names != whole.column_names:  # nothing else than made up ones, and said to be
            assert any("made up" in finding.message for finding in report.findings), f"bit {bit}: other names"
        for found, original in zip(table.columns, whole.columns, strict=True):
            assert found.equals(original.cast(found.type)), f"bit {bit}: other values"
        complete += 1
    return complete


def bits_of_row_groups(data: bytes) -> range:
    """The bits of the row groups in a footer."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    metadata = partial_metadata(data[start:-8])
    schema_end = next(at for at in range(start, len(data)) if partial_metadata(data[start:at]).num_rows is not None)
    assert metadata.num_row_groups == 4
    last = max(at for at in range(start, len(data)) if len(partial_metadata(data[start:at]).row_groups) < 4)
    return range(8 * schema_end, 8 * last)


#: Wire types within a chunk that a bit turns into the name of another file: then its rows are elsewhere.
_ELSEWHERE = "it is a summary"


@sampled(25, ALL, 3600)
async def test_any_of_some_bits_of_row_groups(data: bytes, count: int) -> None:
    bits = bits_of_row_groups(data)
    complete = tried = 0
    for bit in sorted(random.Random(len(data)).sample(bits, min(count, len(bits)))):
        tried += 1
        try:
            complete += await examine(data, [bit])
        except rpq.RecoveryError as error:
            if _ELSEWHERE not in str(error):
                raise
    assert complete >= 0.85 * tried > 0


async def test_an_arrow_schema_that_does_not_decode_is_not_copied() -> None:
    """pyarrow refuses a file whose ARROW:schema is no base64; a check finds it, the output of a recovery has none."""
    data = bytearray(written(BY_PYARROW))
    data[data.index(b"ARROW:schema") + len(b"ARROW:schema") + 40] = ord("#")
    with pytest.raises(pa.ArrowInvalid):
        pq.read_schema(io.BytesIO(bytes(data)))
    store = MemoryStore()
    await store.put("damaged", bytes(data))
    assert (await rpq.check((store, "damaged"))).outcome == rpq.Outcome.DAMAGED
    await rpq.recover((store, "damaged"), (store, "out"))
    output = bytes((await store.read_tail("out", 1 << 30)).data)
    assert pq.read_table(io.BytesIO(output)).num_rows == 337


@sampled(20, 200)
@pytest.mark.parametrize("hit", [False, True], ids=["all pages whole", "a page gone"])
async def test_whatever_becomes_of_an_arrow_schema_pyarrow_reads_the_output(hit: bool, count: int) -> None:
    """A flipped bit that leaves it base64 may still make a message of it that pyarrow refuses."""
    data = written(BY_PYARROW)
    start = data.index(b"ARROW:schema") + len(b"ARROW:schema") + 3
    end = next(at for at in range(start, len(data)) if not (chr(data[at]).isalnum() or data[at] in b"+/="))
    assert end - start > 300
    refused = 0
    for bit in random.Random(1).sample(range(8 * start, 8 * end), count):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        if hit:
            damaged[4:200] = bytes(196)
        try:
            pq.read_schema(io.BytesIO(bytes(damaged)))
        except (OSError, pa.ArrowException):
            refused += 1
        store = MemoryStore()
        await store.put("damaged", bytes(damaged))
        report = await rpq.recover((store, "damaged"), (store, "out"))
        output = bytes((await store.read_tail("out", 1 << 30)).data)
        assert pq.read_table(io.BytesIO(output)).num_rows == report.num_rows == (237 if hit else 337)
    assert refused > count // 4


async def test_a_chunk_whose_path_is_gone_from_the_footer() -> None:
    """Its name is that of its column: others refuse a file in which a chunk has none, but not the output."""
    data = written(BY_PYARROW)
    at = data.rindex(b"\x19\x18\x05small") - 1  # the last encoding goes on with the head of the path
    damaged = data[:at] + bytes([data[at] | 0x80]) + data[at + 1 :]
    with pytest.raises(OSError, match="thrift"):
        pq.read_table(io.BytesIO(damaged))
    store = MemoryStore()
    await store.put("damaged", damaged)
    assert (await rpq.check((store, "damaged"))).outcome == rpq.Outcome.DAMAGED
    assert (await rpq.recover((store, "damaged"), (store, "out"))).num_rows == 337
    output = bytes((await store.read_tail("out", 1 << 30)).data)
    assert pq.read_table(io.BytesIO(output)).num_rows == 337


async def test_what_follows_a_wrong_field_is_not_taken_for_rows() -> None:
    """The metadata of a chunk read as a number, and the rest as fields of the row group: its rows, too, are others."""
    data = written(by_polars())
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    tried = 0
    for at in (at for at in range(len(data) - 9, start, -1) if data[at] == 0x1C and tried < 3):  # the head of a struct
        damaged = data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :]
        try:
            contents = Contents.of(read_footer(memoryview(damaged), 0))  # type: ignore[arg-type]
        except rpq.ResilientPQError:
            continue
        chunks = [chunk for row_group in contents.metadata.row_groups for chunk in row_group.columns]
        if contents.miscounted is None or all(chunk.meta_data is not None for chunk in chunks):
            continue
        tried += 1
        store = MemoryStore()
        await store.put("damaged", damaged)
        report = await rpq.recover((store, "damaged"), (store, "out"))
        assert report.kept is not None and report.kept.ledger is not None
        output = bytes((await store.read_tail("out", 1 << 30)).data)
        assert pq.read_table(io.BytesIO(output))["id"].to_pylist() == list(range(337))
        assert report.kept.ledger.rows_lost == 0
    assert tried
