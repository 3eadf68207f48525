"""What each `on_damage` leaves, what its report says of it, and that no metadata of the output lie."""

from __future__ import annotations

import io
import random
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sampled import sampled, seeded

import resilient_pq as rpq
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import Encoding
from resilient_pq.format.pages.page import pages_of
from resilient_pq.io.memory_store import MemoryStore

COUNT = 200


def every_type() -> pa.Table:
    """Columns of all kinds of values; `id` counts the rows, and all but it have nulls."""
    rng = seeded("types")

    def some(make: Any) -> list[Any]:
        return [None if i % 7 == 3 else make(i) for i in range(COUNT)]

    start = datetime(2020, 1, 1, tzinfo=UTC)
    columns = {
        "id": pa.array(range(COUNT), pa.int64()),
        "u32": pa.array(some(lambda i: 2**32 - 1 - i), pa.uint32()),
        "u64": pa.array(some(lambda i: 2**64 - 1 - i), pa.uint64()),
        "f32": pa.array(some(lambda i: float("nan") if i % 50 == 0 else i / 3), pa.float32()),
        "dec9": pa.array(some(lambda i: Decimal(i - 100).scaleb(-2)), pa.decimal128(9, 2)),
        "dec30": pa.array(some(lambda i: Decimal((i - 100) * 10**20).scaleb(-5)), pa.decimal128(30, 5)),
        "flba": pa.array(some(lambda i: i.to_bytes(5, "big")), pa.binary(5)),
        "uuid": pa.array(some(lambda _: uuid.UUID(int=rng.getrandbits(128)).bytes), pa.uuid()),
        "ts": pa.array(some(lambda i: start + timedelta(minutes=i)), pa.timestamp("us", "Europe/Berlin")),
        "ns": pa.array(some(lambda i: i * 10**9), pa.timestamp("ns")),
        "date": pa.array(some(lambda i: i), pa.date32()),
        "category": pa.array(some(lambda i: f"c{i % 5}")).dictionary_encode(),
        "text": pa.array(some(lambda _: f"town {rng.randrange(1000)}")),
        "flag": pa.array(some(lambda i: i % 3 == 0), pa.bool_()),
        "list": pa.array(some(lambda i: [i, None] * (i % 3)), pa.list_(pa.int32())),
        "struct": pa.array(some(lambda i: {"a": i, "b": None if i % 2 else f"b{i}"})),
        "map": pa.array(some(lambda i: [(f"k{i}", i)]), pa.map_(pa.string(), pa.int64())),
    }
    return pa.table(columns).replace_schema_metadata({"mine": "1"})


ENCODINGS = {
    "id": "DELTA_BINARY_PACKED",
    "text": "DELTA_BYTE_ARRAY",
    "f32": "BYTE_STREAM_SPLIT",
    "flba": "BYTE_STREAM_SPLIT",
}
THEIRS: dict[str, dict[str, Any]] = {
    "snappy": {},
    "lz4 v2": {"compression": "lz4", "data_page_version": "2.0"},
    "gzip indexed": {"compression": "gzip", "write_page_index": True},
    "encodings": {"use_dictionary": False, "column_encoding": ENCODINGS},
    "int96": {"use_deprecated_int96_timestamps": True},
}
OURS: dict[str, dict[str, Any]] = {
    "v1": {},
    "v2": {"data_page_version": "2.0"},
    "lz4": {"compression": "lz4"},
    "bloom": {"bloom_filter_options": ["text", "id"]},
}


async def written(name: str) -> bytes:
    """The table as another library writes it, or we do."""
    if name in THEIRS:
        sink = io.BytesIO()
        pq.write_table(
            every_type(), sink, row_group_size=50, data_page_size=64, write_batch_size=10,
            write_page_checksum=True, **THEIRS[name],
        )  # fmt: skip
        return sink.getvalue()
    options = dict(OURS[name])
    compression = options.pop("compression", "zstd")
    store, write = MemoryStore(), rpq.WriteOptions(page_rows=10, **options)
    async with rpq.create((store, "f"), row_group_rows=50, compression=compression, options=write) as writer:
        await writer.write(every_type())
    return bytes((await store.read_tail("f", 1 << 40)).data)


def damaged(data: bytes, rng: random.Random, layout: Any) -> bytes:
    """Bytes in one to three pages changed, of any column but the first; no checksum covers the headers of others."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        chunk = rng.choice(rng.choice(layout.row_groups).chunks[1:])
        page = rng.choice([page for page in chunk.pages if page.body])
        at = rng.choice(page.body)
        size = min(rng.choice([1, 40, 400]), page.body.stop - at)
        changed[at : at + size] = rng.randbytes(size)
    return bytes(changed)


async def recover(data: bytes, on_damage: Any) -> tuple[rpq.Report, bytes]:
    store = MemoryStore()
    await store.put("d", data)
    report = await rpq.recover((store, "d"), (store, "o"), on_damage=on_damage)
    checked = await rpq.check((store, "o"))
    assert not [finding for finding in checked.findings if finding.costs_rows]
    return report, bytes((await store.read_tail("o", 1 << 40)).data)


def assert_report(report: rpq.Report, table: pa.Table) -> None:
    """The rows lost, and the rows lost of each region, are those that are missing."""
    assert report.kept is not None
    lost = COUNT - table.num_rows
    assert (report.num_rows, report.kept.num_rows, report.kept.rows_lost) == (table.num_rows, table.num_rows, lost)
    assert sum(region.num_rows or 0 for region in report.kept.lost) == lost


def assert_statistics(data: bytes) -> None:
    """Null counts and bounds of every flat column are those of its values."""
    file = pq.ParquetFile(io.BytesIO(data))
    for number in range(file.metadata.num_row_groups):
        table, row_group = file.read_row_group(number), file.metadata.row_group(number)
        for column in range(row_group.num_columns):
            chunk = row_group.column(column)
            if chunk.path_in_schema not in table.column_names or chunk.statistics is None:
                continue
            values, statistics = table.column(chunk.path_in_schema), chunk.statistics
            assert not statistics.has_null_count or statistics.null_count == values.null_count
            if statistics.has_min_max and pa.types.is_integer(values.type):
                bounds = pc.min_max(values.combine_chunks()).as_py()
                assert statistics.min <= bounds["min"] and statistics.max >= bounds["max"]


def assert_filters(data: bytes, table: pa.Table) -> None:
    """What prunes by statistics, indexes and bloom filters finds what is there."""
    for name in ("id", "text", "u32"):
        for value in (table.column(name)[0].as_py(), table.column(name)[-1].as_py()):
            if value is None:
                continue
            found = pq.read_table(io.BytesIO(data), filters=[(name, "==", value)])
            wanted = pc.equal(table.column(name), pa.scalar(value, table.schema.field(name).type))
            assert found.num_rows == table.filter(wanted).num_rows


def same(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)  # noqa: PLR0124


async def hold(name: str, data: bytes, layout: Any, rng: random.Random, on_damage: str) -> None:
    whole = pq.read_table(io.BytesIO(data))
    report, out = await recover(damaged(data, rng, layout), on_damage)
    table = pq.read_table(io.BytesIO(out))
    assert table.schema.equals(whole.schema, check_metadata=False) and table.schema.metadata[b"mine"] == b"1"
    kept = whole.take(table.column("id").to_pylist())
    for column in table.column_names:
        pairs = zip(table.column(column).to_pylist(), kept.column(column).to_pylist(), strict=True)
        wrong = [(one, other) for one, other in pairs if not same(one, other)]
        if on_damage == "null" and column != "id":
            # A struct of which a field is lost keeps the others, and it may be null there.
            wrong = [(one, other) for one, other in wrong if one is not None and not isinstance(one, dict)]
        assert not wrong, (name, column, wrong[:3])
    if on_damage == "null":
        assert table.num_rows == COUNT, "all that was damaged may be null"
    assert_report(report, table)
    assert_statistics(out)
    assert_filters(out, table)


@sampled(1, 30, 3600)
@pytest.mark.parametrize("on_damage", ["drop", "null"])
@pytest.mark.parametrize("name", [*THEIRS, *OURS])
@pytest.mark.ways_in_quick(8)
async def test_values_and_what_is_said_of_them(name: str, on_damage: str, layout_of: Any, count: int) -> None:
    data, rng = await written(name), seeded(name)
    layout = layout_of(data)
    for _ in range(count):
        await hold(name, data, layout, rng, on_damage)


async def test_raise_writes_nothing(one_paged_file: Any) -> None:
    page = one_paged_file.layout.row_groups[1].chunks[2].pages[1]
    store = MemoryStore()
    await store.put("d", one_paged_file.written_over((page.body.start, bytes(len(page.body)))).data)
    await store.put("o", b"mine")
    with pytest.raises(rpq.RowsLostError, match="10 rows would be lost"):
        await rpq.recover((store, "d"), (store, "o"), on_damage="raise", overwrite=True)
    assert bytes((await store.read_tail("o", 9)).data) == b"mine"


async def test_raise_writes_what_lost_nothing(one_paged_file: Any) -> None:
    """Damaged are but page headers, of which there are copies."""
    page = one_paged_file.layout.row_groups[1].chunks[2].pages[1]
    made = one_paged_file.written_over((page.header.start, bytes(len(page.header))))
    report, data = await recover(made.data, "raise")
    assert report.outcome is rpq.Outcome.RECOVERED
    assert pq.read_table(io.BytesIO(data)).equals(one_paged_file.table)


async def test_null_counts_the_rows_of_each_region(one_paged_file: Any) -> None:
    """In required columns they are lost, in nullable ones they are null."""
    for chunk in one_paged_file.layout.row_groups[1].chunks:
        page = chunk.pages[-1]
        made = one_paged_file.written_over((page.body.start, bytes(len(page.body))))
        if made.data == one_paged_file.data:
            continue
        report, data = await recover(made.data, "null")
        assert report.kept is not None
        (region,) = report.kept.lost
        required = chunk.path[0] in ("id", "kind")
        assert (region.num_rows, region.num_nulled) == ((page.num_rows, 0) if required else (0, page.num_rows))
        found = pq.read_table(io.BytesIO(data)).column(chunk.path[0])
        first = 40 + (page.first_row or 0)
        if not required:
            assert found.slice(first, page.num_rows).null_count == page.num_rows


async def test_the_order_that_is_claimed_is_the_order_there_is() -> None:
    """Rows left out leave the others in order; nulls in a column that they are sorted by do not."""
    table = pa.table({"a": [i // 20 for i in range(100)], "b": list(range(100)), "c": list(range(100))})
    store = MemoryStore()
    options = rpq.WriteOptions(page_rows=10, sorting_columns=["a", "b"])
    async with rpq.create((store, "f"), row_group_rows=50, options=options) as writer:
        await writer.write(table)
    data = bytes((await store.read_tail("f", 1 << 40)).data)
    metadata = pq.read_metadata(io.BytesIO(data))
    expected = {"drop": [[0, 1], [0, 1], [0, 1]], "null": [[], [0], [0, 1]]}
    for column in range(3):
        chunk = metadata.row_group(1).column(column)
        end = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
        changed = bytearray(data)
        for offset in range(end - 5, end):
            changed[offset] ^= 0x5A
        for on_damage, claims in expected.items():
            _, out = await recover(bytes(changed), on_damage)
            found = pq.read_metadata(io.BytesIO(out)).row_group(1).sorting_columns
            assert [one.column_index for one in found] == claims[column]


async def test_levels_in_an_encoding_of_values_are_damage() -> None:
    """Not something this version cannot read, whose bytes are kept: no levels are in such an encoding."""
    sink, store = io.BytesIO(), MemoryStore()
    table = pa.table({"a": range(100), "b": range(100)})
    pq.write_table(table, sink, use_dictionary=False, row_group_size=50)
    data = bytearray(sink.getvalue())
    chunk = pq.read_metadata(sink).row_group(1).column(1)
    page = next(pages_of(memoryview(bytes(data))[chunk.data_page_offset :], chunk.data_page_offset))
    assert page.header.data_page_header is not None
    wrong = replace(page.header.data_page_header, definition_level_encoding=int(Encoding.PLAIN_DICTIONARY))
    header = compact_protocol.encode(replace(page.header, data_page_header=wrong))
    data[page.offset : page.offset + len(header)] = header
    await store.put("file", data)
    report = await rpq.recover((store, "file"), (store, "out"), on_damage="drop")
    assert (report.num_rows, report.exit_code) == (50, 1)
    saved = bytes((await store.read_tail("out", 1 << 30)).data)
    assert pq.read_table(io.BytesIO(saved)).equals(table.slice(0, 50))
