"""Files that others wrote: where they have checksums these are held, and where they have none we do not claim more.

A page's CRC32 leaves out its header, and nothing covers the footer (parquet-format, README, "Checksumming"). What is
changed there, or in a page without a CRC32, can change values without a trace: the tests ask only for an answer.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import ALL, sampled

import resilient_pq as rpq
from resilient_pq.format.pages.page import pages_of
from resilient_pq.io.memory_store import MemoryStore


def bodies(data: bytes) -> Iterator[range]:
    """The bodies of all pages that have a CRC32."""
    metadata = pq.read_metadata(io.BytesIO(data))
    for i in range(metadata.num_row_groups):
        for j in range(metadata.num_columns):
            chunk = metadata.row_group(i).column(j)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            for page in pages_of(memoryview(data)[start : start + chunk.total_compressed_size], start):
                if page.header.crc is not None:
                    yield range(page.end - len(page.body), page.end)


async def examine(data: bytes, whole: Any, outcome_of: Any, offset: int) -> None:
    """A byte of a page body with a CRC32 has changed: it is found, and costs its row group."""
    outcome = await outcome_of(data)
    assert isinstance(outcome.read, rpq.ChecksumError)
    assert any(finding.start <= offset < finding.end for finding in outcome.check.findings)
    assert outcome.check.outcome == rpq.Outcome.DAMAGED
    assert outcome.recovery.outcome == rpq.Outcome.PARTIAL
    assert outcome.recovery.kept.rows_lost == whole.table.num_rows - outcome.recovery.num_rows
    lost = whole.row_groups_with(offset)
    assert pq.read_table(io.BytesIO(outcome.output)).equals(whole.without(lost))


@pytest.fixture(scope="module")
def with_crcs(rows: Any, whole_of: Any) -> Any:
    sink = io.BytesIO()
    pq.write_table(rows(60), sink, row_group_size=20, write_page_checksum=True)
    return whole_of(sink.getvalue())


@sampled(25, ALL, 900)
async def test_a_byte_of_a_page_with_a_checksum(with_crcs: Any, outcome_of: Any, count: int) -> None:
    rng = random.Random(1)
    offsets = [offset for body in bodies(with_crcs.data) for offset in body]
    assert len(offsets) > 500
    for offset in rng.sample(offsets, min(count, len(offsets))):
        changed = with_crcs.flipped((offset, rng.randint(1, 255)))
        await examine(changed, with_crcs, outcome_of, offset)


async def test_a_row_group_that_pages_give_back_is_counted_once(foreign: tuple[str, bytes], outcome_of: Any) -> None:
    """Byte 2675 of a footer of pyarrow is in the entry of the row group in the middle."""
    writer, data = foreign
    if writer == "pyarrow":
        changed = bytearray(data)
        changed[2675] ^= 0x0A
        await outcome_of(bytes(changed))  # which adds up what the ledger tells of each row


@sampled(25, 500)
async def test_a_byte_anywhere_gets_an_answer_of_ours(foreign: tuple[str, bytes], outcome_of: Any, count: int) -> None:
    writer, data = foreign
    rng = random.Random(2)
    for offset in rng.sample(range(len(data)), count):
        changed = bytearray(data)
        changed[offset] ^= rng.choice([0x01, 0xFF, rng.randint(1, 255)])
        try:
            await outcome_of(bytes(changed))
        except BaseException as error:
            error.add_note(f"{writer}, byte {offset}")
            raise


@sampled(15, 300)
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
async def test_a_byte_of_compressed_data_gets_an_answer_of_ours(
    codec: str, rows: Any, whole_of: Any, outcome_of: Any, count: int
) -> None:
    """No codec's own complaint gets out."""
    sink = io.BytesIO()
    pq.write_table(rows(300), sink, compression=codec)
    whole = whole_of(sink.getvalue())
    places = [offset for chunks in whole.row_groups for chunk in chunks for offset in chunk]
    rng = random.Random(3)
    for offset in rng.sample(places, count):
        await outcome_of(whole.flipped((offset, rng.randint(1, 255))))


async def test_untouched_they_are_sound(foreign: tuple[str, bytes], outcome_of: Any) -> None:
    _, data = foreign
    outcome = await outcome_of(data)
    assert (outcome.check.outcome, outcome.check.findings) == (rpq.Outcome.SOUND, ())
    assert outcome.output == data
    assert outcome.read.num_rows == 60


async def test_a_footer_that_lacks_its_end_is_still_one(foreign: tuple[str, bytes], outcome_of: Any) -> None:
    _, data = foreign
    for cut in (1, 8):
        outcome = await outcome_of(data[:-cut])
        assert isinstance(outcome.read, rpq.TornFileError)
        assert (outcome.check.outcome, outcome.check.num_rows) == (rpq.Outcome.DAMAGED, 60)
        assert (outcome.recovery.outcome, outcome.recovery.num_rows) == (rpq.Outcome.RECOVERED, 60)
        assert pq.read_table(io.BytesIO(outcome.output)).equals(pq.read_table(io.BytesIO(data)))


async def test_without_a_footer_nothing_is_said_to_be_all(foreign: tuple[str, bytes], outcome_of: Any) -> None:
    """No record and no footer: rows may be kept, and it is never said that these were all."""
    _, data = foreign
    outcome = await outcome_of(data[: len(data) // 2])
    assert isinstance(outcome.read, rpq.TornFileError)
    if isinstance(outcome.recovery, rpq.Report):
        assert outcome.recovery.outcome == rpq.Outcome.PARTIAL
        assert outcome.recovery.kept.rows_lost is None
        assert any("names of the columns are made up" in finding.message for finding in outcome.recovery.findings)
    else:
        assert isinstance(outcome.recovery, rpq.NothingToRecoverError)


async def test_one_that_took_over_our_keys_is_still_theirs(small: Any, outcome_of: Any) -> None:
    """Other libraries copy key-value metadata into what they make of our files: that proves nothing."""
    sink = io.BytesIO()
    keys = pq.read_metadata(io.BytesIO(small.data)).metadata
    mine = {key: value for key, value in keys.items() if key.startswith(b"rpq.")}
    pq.write_table(small.table.slice(5, 20).replace_schema_metadata(mine), sink)
    assert b"rpq.file_id" in pq.read_metadata(io.BytesIO(sink.getvalue())).metadata
    outcome = await outcome_of(sink.getvalue())
    assert isinstance(outcome.read, pa.Table) and outcome.read.num_rows == 20
    assert (outcome.check.outcome, outcome.check.findings) == (rpq.Outcome.SOUND, ())
    assert outcome.output == sink.getvalue()


@pytest.mark.parametrize("on_damage", ["drop", "null", "columns"])
async def test_values_beyond_their_statistics_are_not_kept(on_damage: str) -> None:
    """Nothing else vouches for a page without a CRC32: what the footer says of its values must hold of them."""
    sink, options = io.BytesIO(), {"use_dictionary": False, "compression": "none", "write_page_checksum": False}
    table = pa.table({"n": pa.array(range(60), pa.int64()), "other": pa.array(range(60), pa.int64())})
    pq.write_table(table, sink, row_group_size=20, **options)
    data = bytearray(sink.getvalue())
    at = data.index((27).to_bytes(8, "little"))
    data[at : at + 8] = (10**9).to_bytes(8, "little")
    # Of the other column of the same row group no page header is left.
    header = pq.read_metadata(io.BytesIO(data)).row_group(1).column(1).data_page_offset
    data[header : header + 8] = bytes(8)
    store = MemoryStore()
    await store.put("damaged", bytes(data))
    report = await rpq.recover((store, "damaged"), (store, "out/n.parquet"), on_damage=on_damage)
    assert report.outcome == rpq.Outcome.PARTIAL
    outputs = [f"out/{name}" for name in await store.list_names("out")]
    tables = [pq.read_table(io.BytesIO((await store.read_tail(name, 1 << 20)).data)) for name in outputs]
    kept = [value for output in tables if "n" in output.column_names for value in output["n"].to_pylist()]
    assert set(kept) <= {*table["n"].to_pylist(), None}
    assert {*range(20), *range(40, 60)} <= set(kept)
