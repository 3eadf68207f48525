"""Files without page checksums and without footer, whose pages can be laid out in columns in several ways.

Of two ways that fit, none is taken: values that grow together make pages of one column look like those of another.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import sampled

from resilient_pq.format.pages.page import pages_of
from resilient_pq.format.schema_tree import Schema
from resilient_pq.reader.contents import chunk_range

COLUMNS: dict[str, Callable[[random.Random, int], Any]] = {
    "growing": lambda _, rows: [f"v{i}" * (1 + i * 20 // rows) for i in range(rows)],
    "random": lambda rng, rows: [f"{rng.getrandbits(64):x}" for _ in range(rows)],
    "uneven": lambda rng, rows: ["q" * rng.choice([1, 2, 40]) + str(i) for i in range(rows)],
    "short": lambda rng, rows: [str(rng.randrange(100)) for _ in range(rows)],
    "number": lambda rng, rows: [rng.getrandbits(60) for _ in range(rows)],
    "small": lambda rng, rows: pa.array([rng.getrandbits(30) for _ in range(rows)], pa.int32()),
    "ascending": lambda _, rows: range(rows),
}
#: Kinds of which columns are drawn: texts, numbers, or both.
FAMILIES = (["growing", "random", "uneven", "short"], ["number", "ascending"], ["growing", "random", "number", "small"])


def written(rng: random.Random) -> bytes:
    """A file of a few columns and row groups, most of which are of equally many rows."""
    rows, groups, family = rng.choice([40, 100, 200]), rng.choice([1, 2, 3, 4, 6]), rng.choice(FAMILIES)
    table = pa.table({f"c{i}": COLUMNS[rng.choice(family)](rng, rows) for i in range(rng.choice([2, 2, 3, 4]))})
    usual, out = -(-rows // groups), io.BytesIO()
    options: dict[str, Any] = {
        "compression": rng.choice(["none", "snappy"]),
        "use_dictionary": rng.random() < 0.25,
        "data_page_size": rng.choice([16, 64, 200, 500, 1 << 20]),
        "write_batch_size": rng.choice([1, 4, 10, 25, 1024]),
        "write_page_checksum": False,
    }
    with pq.ParquetWriter(out, table.schema, **options) as writer:
        at = 0
        while at < rows:
            size = rng.choice([usual] * 8 + [2 * usual, rng.randint(1, usual)])
            writer.write_table(table.slice(at, size), row_group_size=size)
            at += size
    return out.getvalue()


class Origin:
    """Of each page of a file the row group, the column and the first row."""

    def __init__(self, data: bytes, carving: Any) -> None:
        metadata, self.end = carving.footer_of(data)
        self.schema = Schema.from_elements(metadata.schema)
        self.pages: dict[int, tuple[int, int, int]] = {}
        for ordinal, row_group in enumerate(metadata.row_groups):
            for leaf, column in enumerate(row_group.columns):
                start, end = chunk_range(column.meta_data, len(data))
                row = 0
                for page in pages_of(memoryview(data)[start:end], start):
                    self.pages[page.offset] = ordinal, leaf, row
                    row += page.header.data_page_header.num_values if page.header.data_page_header else 0

    def are_wrong(self, group: Any) -> bool:
        """Whether pages of a row group that was named are of another column, or not of the same rows."""
        places = set()
        for leaf, chunk in enumerate(group.chunks):
            for page in [] if chunk is None else chunk.pages.pages:
                ordinal, column, row = self.pages[page.offset]
                places.add((ordinal, column - leaf, 0 if page.first_row is None else row - page.first_row))
        return len({place[0] for place in places}) > 1 or any(place[1:] != (0, 0) for place in places)


def wrong_groups(seed: int, carving: Any, *, cut: bool) -> int:
    rng = random.Random(seed)
    data = written(rng)
    origin = Origin(data, carving)
    end = rng.randrange(sorted(origin.pages)[1], origin.end) if cut else origin.end
    rebuilt = carving.carve(data[:end], origin.schema)
    return sum(map(origin.are_wrong, rebuilt.row_groups))


@sampled(120, 3000)
@pytest.mark.parametrize("cut", [False, True], ids=["all data", "cut"])
def test_no_page_is_put_into_a_column_that_it_is_not_of(cut: bool, carving: Any, count: int) -> None:
    assert [seed for seed in range(count) if wrong_groups(seed, carving, cut=cut)] == []


@pytest.mark.parametrize("pages", [4, 9, 24])
def test_pages_that_could_be_row_groups_of_any_size_are_in_no_column(pages: int, carving: Any) -> None:
    """Texts of other lengths in each of two columns, which the columns of two row groups could have as well."""
    rows, out = 10 * pages, io.BytesIO()
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in "ab"])
    table = pa.table([[f"{i:04}" for i in range(rows)], [f"{i:040}" for i in range(rows)]], schema)
    pq.write_table(table, out, use_dictionary=False, data_page_size=16, write_batch_size=10)
    origin = Origin(out.getvalue(), carving)
    data = out.getvalue()[: origin.end]
    rebuilt = carving.carve(data, origin.schema)
    assert not rebuilt.row_groups and "not clear" in rebuilt.findings[-1].message
    told = carving.carve(data, origin.schema, expected_rows=[rows])
    assert (told.findings, [group.num_rows for group in told.row_groups]) == ((), [rows])


@pytest.mark.parametrize("seen", [2, 6, 11])
def test_pages_of_a_row_group_that_was_cut_are_not_taken_for_a_whole_one(seen: int, carving: Any) -> None:
    """Of eight pages of each of two columns some are left: half of them could be of the second column."""
    out = io.BytesIO()
    table = pa.table({name: [f"{name}{i}" for i in range(80)] for name in "ab"})
    pq.write_table(table, out, use_dictionary=False, data_page_size=16, write_batch_size=10)
    origin = Origin(out.getvalue(), carving)
    rebuilt = carving.carve(out.getvalue()[: sorted(origin.pages)[seen]], origin.schema)
    assert not any(map(origin.are_wrong, rebuilt.row_groups))
    assert not any(chunk for group in rebuilt.row_groups for chunk in group.chunks[1:])


def test_row_groups_of_two_kinds_of_columns_are_laid_out_whatever_their_sizes(carving: Any) -> None:
    """Where a column is followed by one of another kind, its last page shows how many rows a row group has."""
    table = pa.table(
        {name: COLUMNS[kind](random.Random(1), 300) for name, kind in zip("abc", FAMILIES[2], strict=False)}
    )
    out = io.BytesIO()
    with pq.ParquetWriter(out, table.schema, use_dictionary=False, data_page_size=64, write_batch_size=10) as writer:
        for start, size in ((0, 70), (70, 100), (170, 30), (200, 100)):
            writer.write_table(table.slice(start, size), row_group_size=size)
    origin = Origin(out.getvalue(), carving)
    rebuilt = carving.carve(out.getvalue()[: origin.end], origin.schema)
    assert not any(map(origin.are_wrong, rebuilt.row_groups))
    assert [(group.num_rows, carving.complete(group)) for group in rebuilt.row_groups] == [
        (70, True), (100, True), (30, True), (100, True),
    ]  # fmt: skip


def test_without_a_schema_columns_of_one_type_are_not_counted_by_what_is_alike(carving: Any) -> None:
    """Columns in turns of short and of long texts are as good as more row groups of half as many columns."""
    rng, out = random.Random(1), io.BytesIO()
    table = pa.table(
        {f"c{i}": [f"{rng.random():.{size}f}" for _ in range(60)] for i, size in enumerate((3, 40, 3, 40))}
    )
    pq.write_table(table, out, row_group_size=30)
    origin = Origin(out.getvalue(), carving)
    rebuilt = carving.carve(out.getvalue()[: origin.end])
    assert not rebuilt.row_groups and "nothing tells of which columns" in rebuilt.findings[-1].message


@sampled(60, 1000)
def test_without_a_schema_pages_of_texts_are_no_columns(carving: Any, count: int) -> None:
    """Two columns of two row groups, whose pages may as well be of one column, or chunks of five."""
    for seed in range(count):
        rng, out = random.Random(seed), io.BytesIO()
        table = pa.table({name: COLUMNS[rng.choice(["growing", "random", "short"])](rng, 100) for name in "ab"})
        size = rng.choice([64, 200])
        pq.write_table(table, out, row_group_size=50, use_dictionary=False, data_page_size=size, write_batch_size=10)
        origin = Origin(out.getvalue(), carving)
        rebuilt = carving.carve(out.getvalue()[: origin.end])
        named = [group for group in rebuilt.row_groups if any(group.chunks)]
        assert not any(map(origin.are_wrong, named)), seed
        assert not named or len(rebuilt.schema.leaves) == 2, seed


def test_bytes_of_one_row_group_may_be_missing_without_a_trace(carving: Any) -> None:
    """What is left are the bytes of a healthy file in which columns of two row groups are one: no reader can tell.

    So rows across the place are kept, where no checksum covers the pages.
    """
    options: dict[str, Any] = {
        "compression": "none", "use_dictionary": False, "write_statistics": False, "write_page_checksum": False,
    }  # fmt: skip

    def data_of(table: pa.Table) -> tuple[bytes, Origin]:
        out = io.BytesIO()
        pq.write_table(table, out, row_group_size=100, **options)
        origin = Origin(out.getvalue(), carving)
        return out.getvalue()[: origin.end], origin

    rng = random.Random(1)
    numbers = [rng.getrandbits(60) for _ in range(400)]
    texts = [f"{number:016x}" for number in numbers]
    data, origin = data_of(pa.table({"number": numbers, "text": texts}))
    starts = sorted(origin.pages)
    cut, size = starts[3] - 5, starts[4] - starts[2]  # in the last number of the second row group
    torn = data[:cut] + data[cut + size :]
    mixed = pa.table({"number": numbers[:200] + numbers[300:], "text": texts[:100] + texts[200:]})
    assert len(mixed) == 300
    number = (numbers[199] & 0xFFFFFF) | (numbers[299] & ~0xFFFFFF)  # its last five bytes are those of another
    mixed = mixed.set_column(0, "number", [[*numbers[:199], number, *numbers[300:]]])
    assert torn == data_of(mixed)[0]
    assert [group.num_rows for group in carving.carve(torn, origin.schema).row_groups] == [100] * 3
