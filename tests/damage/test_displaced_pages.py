"""Pages of files of others that were moved along: as large as those that lay there, their CRC32s hold, and nothing else."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from page_layout import Layout
from sampled import sampled

import resilient_pq as rpq
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import PageHeader
from resilient_pq.io.memory_store import MemoryStore

ROWS = 120


def table() -> pa.Table:
    """Rows of which each column has pages of one size, and but few values in some of them."""
    rng = random.Random(3)
    schema = pa.schema([pa.field(name, pa.int32(), False) for name in ("id", "few", "few2")] + [("flag", pa.bool_())])
    few = [[rng.randrange(3) for _ in range(ROWS)] for _ in range(2)]
    flags = [rng.choice((True, False, None)) for _ in range(ROWS)]
    return pa.table({"id": list(range(ROWS)), "few": few[0], "few2": few[1], "flag": flags}, schema)


@pytest.fixture(scope="module", params=["1.0", "2.0"])
def data(request: pytest.FixtureRequest) -> bytes:
    out = io.BytesIO()
    pq.write_table(
        table(), out, row_group_size=40, compression="snappy", use_dictionary=False, data_page_size=8,
        write_batch_size=10, write_page_checksum=True, data_page_version=request.param,
    )  # fmt: skip
    return out.getvalue()


def damaged(data: bytes, rng: random.Random) -> bytes:
    """A page, a chunk or a row group comes again, is missing, or is moved behind another."""
    groups = Layout(data).row_groups
    chunks = [chunk.place for group in groups for chunk in group.chunks]
    pages = [range(p.header.start, p.body.stop) for group in groups for chunk in group.chunks for p in chunk.pages]
    wide = [range(group.chunks[0].place.start, group.chunks[-1].place.stop) for group in groups]
    places = rng.choice((pages, pages, chunks, wide))
    one, other = sorted(rng.sample(range(len(places)), 2))
    first, second = places[one], places[other]
    piece = data[first.start : first.stop]
    match rng.randrange(3):
        case 0:
            at = rng.choice(chunks).start
            return data[:at] + piece + data[at:]
        case 1:
            return data[: first.start] + data[first.stop :]
        case _:
            return data[: first.start] + data[first.stop : second.stop] + piece + data[second.stop :]


async def rows_apart(store: MemoryStore) -> dict[str, dict[int, Any]]:
    """What a recovery keeps of each column, by the number of the row."""
    try:
        report = await rpq.recover((store, "damaged"), (store, "out"), on_damage="columns")
    except rpq.NothingToRecoverError:
        return {}
    assert report.kept is not None
    found = {}
    for name, url in report.kept.outputs.items():
        output = bytes((await store.read_tail(url.removeprefix("memory:"), 1 << 30)).data)
        found[name] = dict(
            zip(*(column.to_pylist() for column in pq.read_table(io.BytesIO(output)).columns), strict=True)
        )
    return found


async def hold(data: bytes, seed: int) -> int:
    """Damage a file, and hold what is left of it against its rows; returns how many values there are."""
    store, whole = MemoryStore(), table().to_pydict()
    await store.put("damaged", damaged(data, random.Random(seed)))
    kept = 0
    for name, values in (await rows_apart(store)).items():
        assert {row: whole[name][row] for row in values} == values, f"seed {seed}: {name}"
        kept += len(values)
    return kept


@sampled(20, 2000)
async def test_no_page_that_only_fits_is_believed(data: bytes, count: int) -> None:
    kept = [await hold(data, seed) for seed in range(count)]
    assert sum(kept) > 0.2 * len(kept) * ROWS * 4


async def test_a_page_that_comes_again_before_others_of_its_size(data: bytes) -> None:
    """It is the last of its row group, whose last chunk looks whole, while the next row group begins with it."""
    group = Layout(data).row_groups[1].chunks[-1]
    last = group.pages[-1]
    start, end = last.header.start, last.body.stop
    store = MemoryStore()
    await store.put("damaged", data[: group.place.start] + data[start:end] + data[group.place.start :])
    for name, values in (await rows_apart(store)).items():
        assert {row: table()[name][row].as_py() for row in values} == values, name


async def test_a_wrong_header_costs_no_values_before_it() -> None:
    """With a wrong size in its header, the first page of a row group is no page of something else."""
    out = io.BytesIO()
    pq.write_table(table(), out, row_group_size=40, compression="snappy", write_page_checksum=True)
    data = out.getvalue()
    page = Layout(data).row_groups[1].chunks[0].pages[0]
    header, size = compact_protocol.decode(PageHeader, data[page.header.start : page.header.stop])
    changed = compact_protocol.encode(replace(header, uncompressed_page_size=header.uncompressed_page_size * 40))
    assert page.is_dictionary and len(changed) == size
    store = MemoryStore()
    await store.put("damaged", data[: page.header.start] + changed + data[page.header.stop :])
    assert set(range(40)) <= set((await rows_apart(store))["flag"])


@pytest.mark.parametrize("group", [0, 1])
async def test_pages_of_other_sizes_in_the_place_of_each_other(group: int) -> None:
    """Between two row groups: both are whole and as large together as they were, so that nothing behind them moves.

    What the footer says of where the first of them ends is said twice, so no wrong bit can have made it so.
    """
    out = io.BytesIO()
    names = [f"{i:{10 + i // 10}}" for i in range(ROWS)]
    options = {"row_group_size": 40, "compression": "none", "use_dictionary": False, "write_page_checksum": True}
    options |= {"data_page_size": 8, "write_batch_size": 10, "write_statistics": False}
    pq.write_table(pa.table({"name": names}), out, **options)
    data = out.getvalue()
    one, other = (groups.chunks[0].pages[2] for groups in Layout(data).row_groups[group : group + 2])
    first, second = (range(page.header.start, page.body.stop) for page in (one, other))
    assert len(first) < len(second)
    moved = [data[: first.start], data[second.start : second.stop], data[first.stop : second.start]]
    store = MemoryStore()
    await store.put("damaged", b"".join([*moved, data[first.start : first.stop], data[second.stop :]]))
    for values in (await rows_apart(store)).values():
        assert {row: value for row, value in values.items() if value != names[row]} == {}
