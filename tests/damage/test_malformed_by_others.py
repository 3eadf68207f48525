"""Files of other writers that say more than they hold: what other readers get out of them we get, too."""

from __future__ import annotations

import io
import operator
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from footers_of_others import chunks_of, ended_with, footer_of, with_bytes_behind, with_footer
from ledger_check import check_ledger
from sampled import sampled

import resilient_pq as rpq
from resilient_pq.format.pages.page import pages_of
from resilient_pq.io.memory_store import MemoryStore

TABLE = pa.table({"n": [None if i % 7 == 0 else i for i in range(40)], "s": [[f"v{i}"] * (i % 3) for i in range(40)]})
#: One page for each chunk, whose bytes are its values.
PLAIN: dict[str, Any] = {"use_dictionary": False, "compression": "none", "write_statistics": False}
LAYOUTS: list[dict[str, Any]] = [{}, {"write_page_checksum": True}, {"data_page_version": "2.0"}, PLAIN]


def written(table: pa.Table = TABLE, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"row_group_size": 20, "store_schema": False, **options})
    return sink.getvalue()


# --- bytes behind the last value ------------------------------------------------------------------


@pytest.mark.parametrize("more", [b"\x00", b"\xff" * 30, bytes(100), b"PAR1"], ids=["byte", "ones", "zeros", "magic"])
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_bytes_behind_the_last_value(more: bytes, layout: dict[str, Any], outcome_of: Any) -> None:
    data = with_bytes_behind(written(**layout), more)
    assert pq.read_table(io.BytesIO(data)).equals(TABLE)
    outcome = await outcome_of(data)
    assert isinstance(outcome.read, pa.Table), outcome.read
    assert outcome.read.equals(TABLE)
    assert (outcome.check.outcome, outcome.check.findings) == (rpq.Outcome.SOUND, ())
    assert (outcome.recovery.outcome, outcome.recovery.num_rows) == (rpq.Outcome.SOUND, 40)


async def test_what_is_copied_ends_with_the_last_value(outcome_of: Any) -> None:
    data = bytearray(with_bytes_behind(written(), bytes(100)))
    damaged = chunks_of(footer_of(bytes(data)))[0]
    at = damaged.data_page_offset
    data[at : at + 12] = bytes(12)
    outcome = await outcome_of(bytes(data))
    assert outcome.recovery.kept.rows_lost == 20
    assert pq.read_table(io.BytesIO(outcome.output)).equals(TABLE.slice(20))
    assert sum(chunk.total_compressed_size for chunk in chunks_of(footer_of(outcome.output))) < (
        sum(chunk.total_compressed_size for chunk in chunks_of(footer_of(written()))[2:]) + 10
    )


# --- more rows, or fewer, than there are ----------------------------------------------------------


def say(**what: int) -> Any:
    """Change what a footer says of its first row group, and of all chunks of it."""

    def change(footer: Any) -> None:
        row_group = footer.row_groups[0]
        footer.num_rows += what.get("num_rows", row_group.num_rows) - row_group.num_rows
        row_group.num_rows = what.get("num_rows", row_group.num_rows)
        for column in row_group.columns:
            column.meta_data.num_values = what.get("num_values", column.meta_data.num_values)

    return change


FLAT = pa.table({"n": [None if i % 7 == 0 else i for i in range(40)], "m": [f"{i}" for i in range(40)]})
FOUR_BILLION = 4_000_000_000


@pytest.mark.parametrize("columns", [FLAT, TABLE], ids=["flat", "nested"])
@pytest.mark.parametrize("said", [{"num_rows": FOUR_BILLION}, {"num_rows": FOUR_BILLION, "num_values": FOUR_BILLION}])
@pytest.mark.parametrize("zeroed", [0, 12], ids=["whole", "damaged"])
async def test_four_billion_rows_take_no_memory(
    columns: pa.Table, said: dict[str, int], zeroed: int, hostile_reader: Any, outcome_of: Any
) -> None:
    data = bytearray(with_footer(written(columns), say(**said)))
    at = chunks_of(footer_of(bytes(data)))[1].data_page_offset
    data[at : at + zeroed] = bytes(zeroed)
    answer = hostile_reader.answer(bytes(data))  # has 2 GiB
    assert answer["recover"] in ("recovered", "partial")
    outcome = await outcome_of(bytes(data))
    kept = outcome.recovery.kept
    assert pq.read_table(io.BytesIO(outcome.output)).equals(columns if not zeroed else columns.slice(20))
    # What the columns agree in is believed; how many rows are lost of what was never there, nobody knows.
    assert kept.rows_lost in ((0, None) if not zeroed else (None,))
    assert check_ledger(kept.ledger) == []


async def test_more_values_than_the_data_have(outcome_of: Any) -> None:
    data = with_footer(written(), say(num_values=1000))
    assert pq.read_table(io.BytesIO(data)).num_rows == 40
    outcome = await outcome_of(data)
    assert pq.read_table(io.BytesIO(outcome.output)).equals(TABLE)
    assert outcome.recovery.kept.rows_lost == 0


def pairs(first: int, second: int, *, counted: bool, **options: Any) -> bytes:
    """A required struct with other counts of values in its fields than the 2 rows that the footer says."""
    kind = pa.struct([pa.field("a", pa.int64(), False), pa.field("b", pa.int64(), False)])
    schema = pa.schema([pa.field("p", kind, False)])
    made, footer = bytearray(b"PAR1"), None
    for position, count in enumerate((first, second)):
        rows = pa.array([{"a": i, "b": i * 10} for i in range(count)], kind)
        data = written(pa.table({"p": rows}, schema=schema), use_dictionary=False, **options)
        source = footer_of(data)
        chunk = chunks_of(source)[position]
        start = chunk.data_page_offset
        chunk.data_page_offset = len(made)
        made += data[start : start + chunk.total_compressed_size]
        if not counted:
            chunk.num_values, chunk.statistics = 2, None
        footer = footer or source
        footer.row_groups[0].columns[position] = source.row_groups[0].columns[position]
    assert footer is not None
    footer.num_rows = footer.row_groups[0].num_rows = 2
    return ended_with(bytes(made), footer)


@pytest.mark.parametrize(("first", "second"), [(4, 2), (2, 4), (4, 4)])
@pytest.mark.parametrize("counted", [False, True])
async def test_more_values_than_rows(first: int, second: int, counted: bool, outcome_of: Any) -> None:
    outcome = await outcome_of(pairs(first, second, counted=counted))
    assert isinstance(outcome.read, rpq.ResilientPQError)
    assert outcome.check.outcome == rpq.Outcome.DAMAGED
    found = pq.read_table(io.BytesIO(outcome.output)).column("p").to_pylist()
    assert found == [{"a": i, "b": i * 10} for i in range(min(first, second))]
    assert check_ledger(outcome.recovery.kept.ledger) == []
    again = await outcome_of(outcome.output)
    assert isinstance(again.read, pa.Table)


async def test_pages_behind_the_last_row(outcome_of: Any) -> None:
    """Of a chunk of two pages where its row group has the rows of one."""
    outcome = await outcome_of(pairs(2, 4, counted=True, max_rows_per_page=2))
    found = pq.read_table(io.BytesIO(outcome.output)).column("p").to_pylist()
    assert found == [{"a": 0, "b": 0}, {"a": 1, "b": 10}]
    ledger = outcome.recovery.kept.ledger
    assert check_ledger(ledger) == []
    assert any("behind the last" in (part.reason or "") for part in ledger.regions)


# --- chunks that go beyond the end ----------------------------------------------------------------


def check_that_all_is_kept(outcome: Any) -> None:
    """A file that cannot be read is called damaged, and gives all of its rows."""
    assert isinstance(outcome.read, rpq.FormatError)
    assert outcome.check.outcome == rpq.Outcome.DAMAGED
    assert pq.read_table(io.BytesIO(outcome.output)).equals(TABLE)
    assert outcome.recovery.kept.rows_lost == 0
    assert check_ledger(outcome.recovery.kept.ledger) == []


@pytest.mark.parametrize("more", [10_000, 1 << 40, 100])
async def test_a_chunk_that_is_said_to_end_behind_the_file(more: int, outcome_of: Any) -> None:
    def longer(footer: Any) -> None:
        chunks_of(footer)[-1].total_compressed_size += more

    data = with_footer(written(), longer)
    check_that_all_is_kept(await outcome_of(data))


@pytest.mark.parametrize("more", [30, 10_000, 1 << 40])
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_all_chunks_are_said_to_be_longer(more: int, layout: dict[str, Any], outcome_of: Any) -> None:
    """The pages are where the footer says, and have the values that it says: only the sizes are wrong."""

    def longer(footer: Any) -> None:
        for chunk in chunks_of(footer):
            chunk.total_compressed_size += more

    data = with_footer(written(**layout), longer)
    if more == 30:
        assert pq.read_table(io.BytesIO(data)).equals(TABLE)
    check_that_all_is_kept(await outcome_of(data))


@pytest.mark.parametrize("where", ["schema", "row group"])
async def test_a_changed_name_of_a_column(where: str, outcome_of: Any) -> None:
    """A footer of another writer has no checksum, but has each name several times."""

    def rename(footer: Any) -> None:
        if where == "schema":
            footer.schema[1].name = "m"
        else:
            chunks_of(footer)[0].path_in_schema[0] = "m"

    data = with_footer(written(), rename)
    outcome = await outcome_of(data)
    assert outcome.check.outcome == rpq.Outcome.DAMAGED
    (finding,) = outcome.check.findings
    said = "'m' in the schema and 'n' in 2 of 2" if where == "schema" else "'n' in the schema and 'm' in 1 of 2"
    assert f"a column is called {said} row groups" in finding.message
    assert not finding.costs_rows
    assert pq.read_table(io.BytesIO(outcome.output)).columns == TABLE.columns
    assert outcome.recovery.kept.rows_lost == 0


async def test_a_name_that_few_row_groups_have_changed_is_written_anew(outcome_of: Any) -> None:
    """The schema and the other row groups have the right one."""
    data = with_footer(
        written(row_group_size=10), lambda footer: operator.setitem(chunks_of(footer)[0].path_in_schema, 0, "m")
    )
    outcome = await outcome_of(data)
    (finding,) = outcome.check.findings
    assert "'n' in the schema and 'm' in 1 of 4 row groups" in finding.message
    output = pq.ParquetFile(io.BytesIO(outcome.output))
    assert output.read().equals(TABLE)
    assert [output.metadata.row_group(at).column(0).path_in_schema for at in range(4)] == ["n"] * 4
    assert outcome.recovery.kept.rows_lost == 0


@pytest.mark.parametrize("missing", [7, 63])
async def test_a_page_that_goes_on_in_the_footer(missing: int) -> None:
    """Bytes are missing in the middle of the only page: who reads as many as it has takes the footer for values."""
    whole = pa.table({"n": pa.array(range(40), pa.int64())})
    data = bytearray(written(whole, row_group_size=40, **PLAIN))
    del data[100 : 100 + missing]
    wrong = pq.read_table(io.BytesIO(data))
    assert wrong.num_rows == 40 and not wrong.equals(whole)
    store = MemoryStore()
    await store.put("file", bytes(data))
    with pytest.raises(rpq.NothingToRecoverError) as caught:
        await rpq.recover((store, "file"), (store, "out"))
    assert "--keep-unplaced" in (caught.value.hint or "")
    report = await rpq.recover((store, "file"), (store, "out"), keep_unplaced=True)
    assert report.outcome == rpq.Outcome.PARTIAL  # that these are the values of the rows is not proven
    assert report.kept is not None and report.kept.ledger is not None
    assert any("outside of the data" in finding.message for finding in report.findings)
    assert [(rows.num_rows, str(rows.confidence)) for rows in report.kept.ledger.rows] == [(40, "unplaced")]
    assert check_ledger(report.kept.ledger) == []
    output = bytes((await store.read_tail("out", 1 << 20)).data)
    assert pq.read_table(io.BytesIO(output)).equals(wrong)


# --- leaves that contradict each other ----------------------------------------------------------------


NESTED = {
    "struct": pa.array([{"a": i, "b": i * 2} if i % 3 else None for i in range(64)]),
    "map": pa.array([[(f"k{j}", j) for j in range(i % 3)] for i in range(64)], pa.map_(pa.string(), pa.int64())),
    "list": pa.array([[{"a": i, "b": [i] * (i % 2)}] * (i % 3) for i in range(64)]),
}


async def error_of_reading(store: MemoryStore) -> rpq.FormatError | None:
    try:
        async with rpq.open((store, "file")) as file:
            await file.read()
    except rpq.FormatError as error:
        return error
    return None


@sampled(20, 400)
@pytest.mark.parametrize("policy", ["drop", "null", "columns"])
@pytest.mark.parametrize("name", NESTED)
async def test_leaves_that_contradict_each_other(name: str, policy: Any, count: int) -> None:
    whole = pa.table({"id": range(64), "v": NESTED[name]})
    data = bytearray(
        written(whole, compression="none", use_dictionary=False, write_statistics=False, row_group_size=64)
    )
    before = bytes(data)
    chunk = chunks_of(footer_of(before))[-1]
    (page,) = pages_of(
        memoryview(before)[chunk.data_page_offset :][: chunk.total_compressed_size], chunk.data_page_offset
    )
    start = page.end - len(page.body)
    found = 0
    bits = [(at, bit) for at in range(start + 4, min(start + 60, page.end)) for bit in range(8)]
    for at, bit in random.Random(1).sample(bits, min(count, len(bits))):
        data[:] = before
        data[at] ^= 1 << bit
        store = MemoryStore()
        await store.put("file", bytes(data))
        report = await rpq.check((store, "file"))
        error = await error_of_reading(store)
        assert error is None or report.outcome != rpq.Outcome.SOUND, error
        found += error is not None and "levels" in error.message and error.where.page is None
        try:
            kept = await rpq.recover((store, "file"), (store, "out.parquet"), on_damage=policy)
        except rpq.NothingToRecoverError:
            continue
        for url in [kept.kept.output] if kept.kept.output else kept.kept.outputs.values():
            async with rpq.open((store, url.split(":", 1)[1])) as file:
                table = pa.table(await file.read())
            assert table.num_rows == file.num_rows
            rows = table["id" if "id" in table.column_names else "row"].to_pylist()
            assert set(rows) <= set(range(64))
    assert found


# --- a chunk that begins within a row ---------------------------------------------------------------


async def test_a_chunk_that_begins_within_a_row(outcome_of: Any) -> None:
    whole = pa.table({"s": pa.array([[i, i] for i in range(20)], pa.list_(pa.int64()))})
    data = bytearray(
        written(whole, compression="none", use_dictionary=False, column_encoding={"s.list.element": "PLAIN"})
    )
    (chunk,) = chunks_of(footer_of(bytes(data)))
    header = next(iter(pages_of(memoryview(data)[chunk.data_page_offset :], chunk.data_page_offset)))
    levels = header.end - len(header.body) + 4
    assert data[levels] & 1  # a bit-packed run: its first level is the lowest bit of the next byte
    assert data[levels + 1] & 1 == 0
    data[levels + 1] |= 1
    outcome = await outcome_of(bytes(data))
    assert isinstance(outcome.read, rpq.FormatError)
    assert outcome.check.outcome == rpq.Outcome.DAMAGED
    again = await outcome_of(outcome.output)
    assert again.read.equals(whole.slice(1))


async def test_row_groups_without_rows_are_sound(outcome_of: Any) -> None:
    sink = io.BytesIO()
    whole = pa.table({"v": NESTED["map"]})
    with pq.ParquetWriter(sink, whole.schema) as writer:
        for rows in (whole, whole.slice(0, 0), whole):
            writer.write_table(rows)
    outcome = await outcome_of(sink.getvalue())
    assert outcome.check.outcome == rpq.Outcome.SOUND
