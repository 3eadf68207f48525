"""What becomes of a file to which rows were appended when it is cut or damaged: of its old part, too."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import content
from sampled import either

import resilient_pq as rpq
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.evidence.records.record_scan import scan_headers

SMALL = {"row_group_rows": 20, "checkpoint_every": 1, "checkpoint_overhead": 9.0}


async def appended(kind: str, rows_of: Any, **options: Any) -> tuple[int, bytes]:
    """The size of a file of 60 rows, and its bytes when 60 more were appended."""
    store = MemoryStore()
    if kind == "ours":
        await rpq.write((store, "a"), rows_of(0, 60), **SMALL, **options)
    else:
        sink = io.BytesIO()
        pq.write_table(rows_of(0, 60), sink, row_group_size=20, write_page_checksum=True)
        await store.put("a", sink.getvalue())
    base = (await store.head("a")).size
    async with rpq.append((store, "a"), **SMALL) as writer:
        await writer.write(rows_of(60, 120))
    return base, await content(store, "a")


async def recovered(data: bytes) -> tuple[rpq.Report | None, pa.Table]:
    store = MemoryStore()
    await store.put("a", data)
    try:
        report = await rpq.recover((store, "a"), (store, "b"))
    except rpq.NothingToRecoverError:
        return None, None
    check = await rpq.check((store, "b"))
    assert all(finding.damage == "unfinished" for finding in check.findings), check.findings
    return report, pq.read_table(io.BytesIO(await content(store, "b")))


def places(size: int, count: int, *, seed: int) -> Iterable[int]:
    return sorted(random.Random(seed).sample(range(size), min(count, size)))


@pytest.mark.usefixtures("without_threads")
@pytest.mark.parametrize(
    ("kind", "count"), either([("ours", 6), ("theirs", 6)], [("ours", 500), ("theirs", 500)], seconds=1800)
)
async def test_cut_anywhere(kind: str, count: int, rows_of: Any) -> None:
    """No row comes back wrong; behind the first checkpoint all of the old rows and of whole new row groups do."""
    base, data = await appended(kind, rows_of)
    first = data.index(b"PAR1", base + 100) + 4  # the end of the first checkpoint behind the copy
    before = 0
    cuts = places(base, count // 2, seed=1) if kind == "ours" else ()
    for cut in [*cuts, *[first + at for at in places(len(data) - first, count, seed=2)]]:
        report, table = await recovered(data[:cut])
        num_rows = 0 if table is None else table.num_rows
        assert table is None or table.equals(rows_of(0, num_rows)), cut
        if cut >= first:
            assert num_rows >= max(60, before) and report is not None
            assert report.outcome == "partial" or num_rows == 120
            before = num_rows
    assert before == 120


@pytest.mark.usefixtures("without_threads")
@pytest.mark.parametrize(
    ("kind", "count"), either([("ours", 6), ("theirs", 6)], [("ours", 500), ("theirs", 500)], seconds=1800)
)
async def test_a_changed_byte(kind: str, count: int, rows_of: Any) -> None:
    """It is found, or no value is another; it costs the rows of a page at most."""
    _, data = await appended(kind, rows_of)
    for at in places(len(data), count, seed=3):
        report, table = await recovered(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        assert report is not None and table.num_rows >= 100, at
        if report.outcome in ("sound", "recovered"):
            assert table.equals(rows_of(0, 120)) or (kind == "theirs" and not report.findings), at


@pytest.mark.usefixtures("without_threads")
@pytest.mark.parametrize("kind", ["ours", "theirs"])
@pytest.mark.parametrize("step", either([211], [1]))
async def test_cut_inside_the_first_checkpoint(kind: str, step: int, rows_of: Any) -> None:
    """The old footer is whole before it, and is not the end: nobody knows how many rows followed."""
    base, data = await appended(kind, rows_of)
    first = data.index(b"PAR1", base + 100) + 4
    for cut in {base + 1, base + 95, base + 97, first - 9, first - 8, first - 1, *range(base + 8, first, step)}:
        report, table = await recovered(data[:cut])
        assert table is not None and table.equals(rows_of(0, 60)), cut
        assert report is not None and (report.outcome, report.kept.rows_lost) == ("partial", None), cut


@pytest.mark.parametrize("kind", ["ours", "theirs"])
@pytest.mark.parametrize("step", either([3], [1]))
async def test_zeroed_or_cut_from_the_old_footer_on(kind: str, step: int, rows_of: Any) -> None:
    """Zeros in place of the new version do not prove that the old one ended the file; a cut in its footer may."""
    base, data = await appended(kind, rows_of)
    start = base - 8 - int.from_bytes(data[base - 8 : base - 4], "little")
    last = max((record for _, record in scan_headers(data, 0)), key=lambda record: record.offset)
    for number in range(0, 50, step):
        at = start + (len(data) - start) * number // 50
        zeroed, table = await recovered(data[:at] + bytes(len(data) - at))
        cut, cut_table = await recovered(data[:at])
        assert zeroed is not None and cut is not None
        if number or kind == "ours":  # without a schema the columns have other names
            assert table.equals(rows_of(0, table.num_rows)) and cut_table.equals(rows_of(0, cut_table.num_rows)), at
        assert zeroed.num_rows >= 60 and cut.num_rows >= 60, at
        is_proven = at >= last.payload_offset  # the header of the final record tells where the file ends
        assert (zeroed.outcome, zeroed.exit_code) == (("recovered", 0) if is_proven else ("partial", 1)), at
        assert zeroed.kept.rows_lost == (0 if is_proven else None), at
        assert is_proven or at < base or cut.kept.rows_lost is None, at


@pytest.mark.parametrize("kind", ["ours", "theirs"])
async def test_records_behind_damaged_checkpoints(kind: str, rows_of: Any) -> None:
    """The rows of the old footer, and those of the records behind it up to the cut in the last one."""
    base, data = await appended(kind, rows_of)
    hurt = bytearray(data)
    records = [record for at, record in sorted(scan_headers(data, 0)) if at >= base]
    for record in records:
        if record.kind == RecordKind.CHECKPOINT:
            hurt[record.payload_offset + 200] ^= 1
    last = max(record.offset for record in records if record.kind == RecordKind.ROW_GROUP)
    report, table = await recovered(bytes(hurt[: last + 100]))
    assert table is not None and table.equals(rows_of(0, table.num_rows)) and table.num_rows >= 100
    assert report is not None and (report.outcome, report.kept.rows_lost) == ("partial", None)


@pytest.mark.parametrize("at", either([0, 3], range(20)))
async def test_the_end_is_damaged_and_the_first_checkpoint(at: int, rows_of: Any) -> None:
    """The old final footer is not the end of the file then."""
    base, data = await appended("ours", rows_of)
    hurt = bytearray(data)
    hurt[base + 200 + at] ^= 1
    del hurt[-10:]
    report, table = await recovered(bytes(hurt))
    assert report is not None
    assert table.equals(rows_of(0, 120))


async def test_parity_of_both_parts(rows_of: Any) -> None:
    _, data = await appended("ours", rows_of, parity="10%")
    store = MemoryStore()
    for at in places(len(data) - 8, 8, seed=4):
        await store.put("a", data[:at] + bytes(8) + data[at + 8 :])
        await rpq.repair((store, "a"), (store, "b"), overwrite=True)
        assert await content(store, "b") == data, at
    await store.put("a", data)
    assert (await rpq.check((store, "a"), deep=True)).outcome == "sound"


async def test_parity_of_the_old_part_where_the_end_of_the_new_one_is_lost(rows_of: Any) -> None:
    """The last group of the old file is not taken for the last one of the file."""
    base, data = await appended("ours", rows_of, parity="10%")
    end = data.rindex(b"PAR1", 0, len(data) - 8) + 4  # of the newest checkpoint
    assert end > base
    store = MemoryStore()
    hurt = bytearray(data[: end - 200])
    hurt[1000:1020] = bytes(20)
    await store.put("a", bytes(hurt))
    report = await rpq.recover((store, "a"), (store, "b"))
    assert (report.outcome, report.num_rows) == ("partial", 120)
    assert pq.read_table(io.BytesIO(await content(store, "b"))).equals(rows_of(0, 120))


@pytest.mark.parametrize("carries_out", [False, True])
@pytest.mark.parametrize("every", either([7], [1]))
async def test_a_store_that_is_lost_at_a_request(every: int, carries_out: bool, dying_store: Any, rows_of: Any) -> None:
    """The object is the old one or the new one, and what was stored can be gone on with; a new append works."""
    for number in range(0, 100, every):
        store = dying_store()
        sink = io.BytesIO()
        pq.write_table(rows_of(0, 60), sink, row_group_size=20)
        await store.put("a", sink.getvalue())
        store.requests.clear()
        store.dies_at, store.carries_out = number, carries_out
        promised, died = 60, False
        try:
            async with rpq.append((store, "a"), **SMALL) as writer:
                await writer.write(rows_of(60, 80))
                await writer.checkpoint()
                promised = writer.num_rows_stored
                await writer.write(rows_of(80, 100))
        except rpq.ResilientPQError:
            died = True
        store.revive()
        table = pq.read_table(io.BytesIO(await content(store, "a")))
        assert table.equals(rows_of(0, 60)) or table.equals(rows_of(0, 100))
        found = table.num_rows
        if found == 60:
            try:
                async with rpq.resume((store, "a")) as writer:
                    found = writer.num_rows_stored
            except (rpq.RecoveryError, rpq.NotFoundError):
                async with rpq.open((store, "a")) as file:
                    found = file.num_rows
        assert found >= promised, number
        async with rpq.append((store, "a")) as writer:
            await writer.write(rows_of(found, found + 5))
        assert pq.read_table(io.BytesIO(await content(store, "a"))).equals(rows_of(0, found + 5))
        if not died:
            assert len(store.requests) < 100
            return
    raise AssertionError("it never ended")


def test_all_of_it_without_a_loop(rows_of: Any) -> None:
    """The blocking voice does the same."""
    from resilient_pq import sync

    store = MemoryStore()
    sync.write((store, "a"), rows_of(0, 10))
    with sync.append((store, "a")) as writer:
        writer.write(rows_of(10, 20))
    assert pq.read_table(io.BytesIO(asyncio.run(content(store, "a")))).equals(rows_of(0, 20))
