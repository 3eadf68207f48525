"""`on_damage="columns"`: each column's rows in an output of its own, with their numbers."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import seeded

import resilient_pq as rpq
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.rewrite import split_columns
from resilient_pq.recovery.verification.page_scan import PageScanner

HOSTILE = [
    "id",
    "a/b",
    "a.b",
    "",
    "A/B",
    "row",
    "..",
    "x y",
    "\N{LATIN SMALL LETTER E WITH ACUTE}",
    "c" * 300,
    "a\0b",
    "CON",
]


def rows_of(names: list[str], count: int = 200) -> pa.Table:
    columns = [pa.array([f"{name} {i}" for i in range(count)]) for name in names]
    return pa.Table.from_arrays([pa.array(range(count)), *columns[1:]], names=names)


async def content(store: MemoryStore, url: str) -> bytes:
    return bytes((await store.read_tail(url.removeprefix("memory:"), 1 << 40)).data)


def theirs(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        table, sink, row_group_size=50, data_page_size=64, write_batch_size=10, write_page_checksum=True,
        use_dictionary=False,
    )  # fmt: skip
    return sink.getvalue()


def damaged(data: bytes, *columns: int, rng: random.Random) -> bytes:
    """Some bytes changed in two row groups of each of these columns, or of all."""
    changed, metadata = bytearray(data), pq.read_metadata(io.BytesIO(data))
    for column in columns or range(metadata.num_columns):
        for row_group in rng.sample(range(metadata.num_row_groups), 2):
            chunk = metadata.row_group(row_group).column(column)
            at = chunk.data_page_offset + rng.randrange(60, chunk.total_compressed_size - 30)
            for offset in range(at, at + 4):
                changed[offset] ^= 0x5A
    return bytes(changed)


async def assert_outputs(report: rpq.Report, store: MemoryStore, table: pa.Table) -> dict[str, pa.Table]:
    """Every row in an output is that of its number, and none is there twice; the outputs are sound."""
    assert report.kept is not None and report.kept.output is None
    found = {}
    for name, url in report.kept.outputs.items():
        read = pq.read_table(io.BytesIO(await content(store, url)))
        numbers = read.column(0).to_pylist()
        assert numbers == sorted(set(numbers))
        assert read.column_names[1:] == [name] and read.column_names[0] != name
        assert read.column(1).to_pylist() == table.column(name).take(numbers).to_pylist()
        checked = await rpq.check((store, url.removeprefix("memory:")))
        assert checked.outcome is rpq.Outcome.INCOMPLETE and not [one for one in checked.findings if one.costs_rows]
        found[name] = read
    return found


async def test_nested_columns_of_our_files(one_paged_file: Any) -> None:
    """The rows of each column are those that the oracle counts for it."""
    file, rng = one_paged_file, seeded("nested")
    for _ in range(4):
        made = file.damaged_somewhere(rng)
        store = MemoryStore()
        await store.put("d", made.data)
        report = await rpq.recover((store, "d"), (store, "out.parquet"), on_damage="columns")
        if report.outcome is not rpq.Outcome.PARTIAL or not file.counts_rows(made.missing):
            continue
        found = await assert_outputs(report, store, file.table)
        dropped, _ = file.expected(made.missing, "drop")
        for table in found.values():
            assert set(dropped) <= set(table.column(0).to_pylist())
        assert len(found) == len(file.table.column_names)


async def test_names_that_are_no_names_of_files(tmp_path: Path) -> None:
    table = rows_of(HOSTILE)
    data = damaged(theirs(table), rng=seeded("names"))
    source, folder = tmp_path / "source", tmp_path / "out"
    source.write_bytes(data)
    folder.mkdir()
    report = await rpq.recover(source, folder / "day.parquet", on_damage="columns")
    assert report.kept is not None and set(report.kept.outputs) == set(HOSTILE)
    paths = list(folder.iterdir())
    assert {str(path) for path in paths} == set(report.kept.outputs.values())
    assert len({path.name.casefold() for path in paths}) == len(HOSTILE)
    assert all(path.name.startswith("day.") and path.suffix == ".parquet" for path in paths)
    for name, url in report.kept.outputs.items():
        read = pq.read_table(url)
        assert read.column(1).to_pylist() == table.column(name).take(read.column(0)).to_pylist()


async def test_only_the_rows_of_a_lost_page_are_missing() -> None:
    table = rows_of(["id", "a", "b"])
    store = MemoryStore()
    await store.put("d", damaged(theirs(table), 1, rng=seeded("page")))
    report = await rpq.recover((store, "d"), (store, "dir/out.parquet"), on_damage="columns")
    found = await assert_outputs(report, store, table)
    assert report.kept is not None
    assert report.kept.outputs["a"] == "memory:dir/out.a.parquet"
    assert [found[name].num_rows for name in ("id", "a", "b")] == [200, 180, 200]
    assert all(region.num_nulled == 0 or region.where.column == "a" for region in report.kept.lost)


class Counting(MemoryStore):
    """Memory that counts what is read."""

    num_reads = 0

    async def read_range(self, *args: Any, **options: Any) -> Any:
        self.num_reads += 1
        return await super().read_range(*args, **options)


async def test_reads_grow_with_the_columns_and_not_with_their_square(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, salvaged, salvage = [], 0, PageScanner.salvage

    async def counted(scanner: PageScanner, located: Any) -> Any:
        nonlocal salvaged
        salvaged += 1
        return await salvage(scanner, located)

    monkeypatch.setattr(PageScanner, "salvage", counted)
    for count in (8, 32):
        store = Counting()
        table = rows_of([f"c{i}" for i in range(count)])
        await store.put("d", damaged(theirs(table), 1, rng=seeded("many")))
        store.num_reads = 0
        report = await rpq.recover((store, "d"), (store, "out.parquet"), on_damage="columns")
        assert report.kept is not None and len(report.kept.outputs) == count
        reads.append(store.num_reads)
    assert salvaged == 2 * 2, "a damaged row group is decoded once for all columns"
    assert reads[1] <= 6 * reads[0]


@pytest.mark.parametrize("limit", ["_MOST_OPEN", "_BATCH_BYTES"])
async def test_columns_that_are_written_one_after_the_other(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_columns, limit, 1)
    store, table = MemoryStore(), rows_of(["id", "a", "b", "c"])
    await store.put("d", damaged(theirs(table), 1, 2, rng=seeded("batches")))
    assert (
        len(await assert_outputs(await rpq.recover((store, "d"), (store, "o"), on_damage="columns"), store, table)) == 4
    )


async def test_of_a_sound_file_there_is_one_output() -> None:
    table = rows_of(["id", "a"])
    store = MemoryStore()
    await store.put("d", theirs(table))
    report = await rpq.recover((store, "d"), (store, "out.parquet"), on_damage="columns")
    assert report.kept is not None
    assert (report.outcome, report.kept.output, report.kept.outputs) == (
        rpq.Outcome.SOUND,
        "memory:out.parquet",
        {},
    )
    assert await content(store, "out.parquet") == theirs(table)


async def test_a_column_of_which_nothing_is_left() -> None:
    table = rows_of(["id", "a"])
    data = bytearray(theirs(table))
    metadata = pq.read_metadata(io.BytesIO(data))
    for row_group in range(metadata.num_row_groups):
        chunk = metadata.row_group(row_group).column(1)
        data[chunk.data_page_offset : chunk.data_page_offset + chunk.total_compressed_size] = bytes(
            chunk.total_compressed_size
        )
    store = MemoryStore()
    await store.put("d", bytes(data))
    report = await rpq.recover((store, "d"), (store, "out.parquet"), on_damage="columns")
    found = await assert_outputs(report, store, table)
    assert {name: read.num_rows for name, read in found.items()} == {"id": 200}


async def test_an_output_that_is_there_already() -> None:
    store = MemoryStore()
    await store.put("d", damaged(theirs(rows_of(["id", "a"])), rng=seeded("there")))
    await store.put("out.a.parquet", b"mine")
    with pytest.raises(rpq.AlreadyExistsError, match=r"out\.a\.parquet"):
        await rpq.recover((store, "d"), (store, "out.parquet"), on_damage="columns")
    with pytest.raises(rpq.NotFoundError):
        await store.head("out.id.parquet")
    assert await content(store, "out.a.parquet") == b"mine"
    await rpq.recover((store, "d"), (store, "out.parquet"), on_damage="columns", overwrite=True)
    assert pq.read_table(io.BytesIO(await content(store, "out.a.parquet"))).column_names == ["row", "a"]


async def test_the_damaged_file_is_never_the_output_of_a_column() -> None:
    """Nor is another copy of it, whatever is to be replaced."""
    data = damaged(theirs(rows_of(["id", "a"])), 1, rng=seeded("source"))
    store = MemoryStore()
    for copies in (["out.id.parquet"], ["d", "out.a.parquet"]):
        for name in copies:
            await store.put(name, data)
        with pytest.raises(rpq.RecoveryError, match=r"out\.(id|a)\.parquet is the file that is read"):
            await rpq.recover(
                [(store, name) for name in copies],
                (store, "out.parquet"),
                on_damage="columns",
                overwrite=True,
            )
        assert await content(store, copies[-1]) == data


async def test_statistics_are_trusted_no_further_than_in_the_damaged_file() -> None:
    """An old writer's bounds of text are wrong, and column orders say what bounds mean at all."""
    data = damaged(theirs(rows_of(["id", "a", "b"])), 1, rng=seeded("trust"))
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    metadata, _ = compact_protocol.decode(FileMetaData, data, start)
    metadata.created_by, metadata.column_orders = "parquet-mr version 1.6.0", None
    store = MemoryStore()
    await store.put("d", data[:start] + bytes(footer.frame(compact_protocol.encode(metadata))))
    report = await rpq.recover((store, "d"), (store, "out.parquet"), on_damage="columns")
    assert report.kept is not None
    for url in report.kept.outputs.values():
        out = await content(store, url)
        size = int.from_bytes(out[-8:-4], "little")
        found, _ = compact_protocol.decode(FileMetaData, out, len(out) - 8 - size)
        assert (found.created_by, found.column_orders) == ("parquet-mr version 1.6.0", None)


async def test_row_groups_without_rows_are_left_out() -> None:
    sink = io.BytesIO()
    table = pa.table({"a": pa.array([1, 2], pa.int64()), "b": ["x", None]})
    with pq.ParquetWriter(sink, table.schema, use_dictionary=False, compression="none") as writer:
        writer.write_table(table)
        writer.write_table(table.slice(0, 0))
        writer.write_table(table)
    data = bytearray(sink.getvalue())
    data[:4] = bytes(4)  # enough for a recovery to write anew
    start = pq.read_metadata(io.BytesIO(sink.getvalue())).row_group(2).column(0).data_page_offset
    data[start : start + 8] = bytes(8)
    store = MemoryStore()
    await store.put("file", bytes(data))
    report = await rpq.recover((store, "file"), (store, "out.parquet"), on_damage="columns")
    assert set(report.kept.outputs) == {"a", "b"}
    for name, rows in (("a", [0, 1]), ("b", [0, 1, 2, 3])):
        async with rpq.open((store, f"out.{name}.parquet")) as file:
            assert (await file.read())["row"].tolist() == rows
