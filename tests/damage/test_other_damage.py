"""Damage larger than a byte, in every place that has a meaning, alone and together with another."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from page_layout import Layout
from sampled import sampled

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore

ANCHOR, ROW_GROUP, CHECKPOINT, FINAL, CHUNK = 1, 2, 3, 4, 5
SECTOR, BLOCK = 512, 4096


async def replace(small: Any, examined: Any, *pieces: tuple[int, bytes]) -> Any:
    """Examine the file with bytes written over; what may be lost is what the layout says."""
    data, changed = small.replaced(*pieces)
    outcome = await examined(small, data, may_lose=small.losses(changed))
    if changed:
        assert isinstance(outcome.check, rpq.ResilientPQError) or outcome.check.outcome != rpq.Outcome.SOUND
    return outcome


async def everything_came_back(outcome: Any, small: Any) -> None:
    assert outcome.recovery.num_rows == small.table.num_rows
    assert outcome.recovery.outcome == rpq.Outcome.RECOVERED
    assert outcome.recovery.kept.rows_lost == 0


class TestFinalFooter:
    @pytest.mark.parametrize("which", ["record header", "metadata", "length", "magic", "all"])
    async def test_zeroed(self, small: Any, examined: Any, which: str) -> None:
        (final,) = small.records(FINAL)
        places = {
            "record header": (final.start, final.start + 96),
            "metadata": (final.start + 96, final.stop - 8),
            "length": (final.stop - 8, final.stop - 4),
            "magic": (final.stop - 4, final.stop),
            "all": (final.start, final.stop),
        }
        start, end = places[which]
        outcome = await replace(small, examined, (start, bytes(end - start)))
        assert isinstance(outcome.read, rpq.FormatError)
        assert outcome.recovery.num_rows == small.table.num_rows
        if which != "all":  # then it might have been another row group
            await everything_came_back(outcome, small)

    async def test_one_that_no_record_vouches_for_is_opened_only_when_asked(self, small: Any) -> None:
        (final,) = small.records(FINAL)
        data, _ = small.replaced((final.start, bytes(96)))
        store = MemoryStore()
        await store.put("file", data)
        with pytest.raises(rpq.FormatError, match="nothing vouches for the footer") as caught:
            await rpq.open((store, "file"))
        assert caught.value.hint is not None and "verify=False" in caught.value.hint
        async with rpq.open((store, "file"), verify=False) as file:
            assert pa.table(await file.read()).equals(small.table)
            assert file.state is None  # what its keys say is not believed

    @pytest.mark.parametrize(
        "length",
        [0, 1, 11, 12, 1 << 16, 0x7FFFFFFF, 0xFFFFFFFF, "file", "one more", "one less", "checkpoint"],
    )
    async def test_another_length(self, small: Any, examined: Any, length: int | str) -> None:
        own = int.from_bytes(small.data[-8:-4], "little")
        named = {
            "file": len(small.data) - 12,
            "one more": own + 1,
            "one less": own - 1,
            # The footer of a checkpoint, and all behind it, as if it were one footer.
            "checkpoint": len(small.data) - 8 - small.records(CHECKPOINT)[0].start - 96,
        }
        number = named[length] if isinstance(length, str) else length
        outcome = await replace(small, examined, (len(small.data) - 8, number.to_bytes(4, "little")))
        assert isinstance(outcome.read, rpq.FormatError)
        await everything_came_back(outcome, small)

    @pytest.mark.parametrize("tail", [b"PARE", b"par1", b"PAR2", b"\0\0\0\0"])
    async def test_another_magic(self, small: Any, examined: Any, tail: bytes) -> None:
        """Even when it says that the footer is encrypted."""
        outcome = await replace(small, examined, (len(small.data) - 4, tail))
        assert isinstance(outcome.read, rpq.ResilientPQError)
        await everything_came_back(outcome, small)


class TestBehindTheEnd:
    @pytest.mark.parametrize("count", [1, 7, 8, 511, 4096, 300_000])
    async def test_zeros(self, small: Any, examined: Any, count: int) -> None:
        outcome = await examined(small, small.data + bytes(count))
        assert isinstance(outcome.read, rpq.TornFileError)
        assert outcome.output == small.data

    async def test_noise(self, small: Any, examined: Any) -> None:
        rng = random.Random(1)
        for count in (1, 100, 5000):
            outcome = await examined(small, small.data + rng.randbytes(count))
            assert outcome.output == small.data

    async def test_a_magic(self, small: Any, examined: Any) -> None:
        for tail in (b"PAR1", b"\0\0\0\0PAR1", b"\xff\xff\xff\xffPAR1", small.data[-8:]):
            outcome = await examined(small, small.data + tail)
            assert isinstance(outcome.read, rpq.FormatError)
            assert outcome.output == small.data

    async def test_its_own_footer_again(self, small: Any, examined: Any) -> None:
        (final,) = small.records(FINAL)
        outcome = await examined(small, small.data + small.data[final.start :])
        assert isinstance(outcome.read, rpq.FormatError)
        assert outcome.output == small.data

    async def test_the_whole_file_again(self, small: Any, examined: Any) -> None:
        await examined(small, small.data + small.data)

    async def test_another_file(self, small: Any, examined: Any, write_file: Any, rows: Any) -> None:
        """Its footer speaks of offsets in itself, and is not believed here."""
        other = await write_file(rows(30), row_group_rows=7)
        outcome = await examined(small, small.data + other.data)
        assert isinstance(outcome.read, rpq.FormatError)
        assert outcome.output == small.data


class TestHead:
    @pytest.mark.parametrize("head", [b"\0\0\0\0", b"PAR2", b"PARE", b"PARX"])
    async def test_another_magic(self, small: Any, examined: Any, head: bytes) -> None:
        outcome = await replace(small, examined, (0, head))
        assert isinstance(outcome.check, rpq.Report)
        assert any(finding.start == 0 for finding in outcome.check.findings)
        await everything_came_back(outcome, small)

    async def test_another_magic_of_a_large_file(
        self, examined: Any, write_file: Any, rows: Any, whole_of: Any
    ) -> None:
        """Reading never looks there; checking does, and the output has it right."""
        table = rows(60_000)
        large = await write_file(table, row_group_rows=20_000, compression="none")
        assert len(large.data) > 600_000
        data, _ = large.replaced((0, b"\0\0\0\0"))
        outcome = await examined(large, data, changed=range(4))
        assert outcome.read.equals(table)
        assert outcome.output.startswith(b"PAR1")

    async def test_all_up_to_the_first_row_group(self, small: Any, examined: Any) -> None:
        (anchor,) = small.records(ANCHOR)
        await everything_came_back(await replace(small, examined, (0, bytes(anchor.stop))), small)

    async def test_cut_off(self, small: Any, examined: Any) -> None:
        """Every offset is wrong then; that must not be taken for values."""
        for count in (1, 4, 100):
            await examined(small, small.data[count:], may_lose=range(5))


class TestRecords:
    @pytest.mark.parametrize("kind", [ANCHOR, ROW_GROUP, CHECKPOINT, CHUNK])
    async def test_one_is_a_second_copy(self, small: Any, examined: Any, kind: int) -> None:
        """Nothing is lost with it, but the copy is, and that is said. The output has it again."""
        rng = random.Random(kind)
        for record in small.records(kind)[:8]:
            one = rng.choice(record)
            for place in (record, range(one, one + 1)):
                data, changed = small.replaced((place.start, rng.randbytes(len(place))))
                outcome = await examined(small, data, changed=changed)
                assert outcome.read.equals(small.table)
                assert outcome.check.outcome == rpq.Outcome.DAMAGED
                assert not any(finding.costs_rows for finding in outcome.check.findings)
                await everything_came_back(outcome, small)

    @pytest.mark.parametrize("kind", [ANCHOR, ROW_GROUP, CHECKPOINT, CHUNK])
    async def test_one_and_the_final_footer(self, small: Any, examined: Any, kind: int) -> None:
        (final,) = small.records(FINAL)
        for record in small.records(kind):
            pieces = (record.start, bytes(len(record))), (final.start, bytes(len(final)))
            data, changed = small.replaced(*pieces)
            may_lose = small.losses(changed)
            assert len(may_lose) <= 1
            # What no record vouches for is in a finding, the chunk record too.
            outcome = await examined(small, data, changed=changed, may_lose=may_lose)
            assert outcome.recovery.num_rows >= small.without(may_lose).num_rows

    async def test_all_of_a_kind(self, small: Any, examined: Any) -> None:
        for kind in (ROW_GROUP, CHECKPOINT, CHUNK):
            data, changed = small.replaced(*((record.start, bytes(40)) for record in small.records(kind)))
            outcome = await examined(small, data, changed=changed)
            assert outcome.read.equals(small.table)

    @pytest.mark.parametrize("kinds", [(ANCHOR, CHECKPOINT, FINAL), (ANCHOR, ROW_GROUP, CHECKPOINT, FINAL)])
    async def test_all_footers(self, small: Any, kinds: Sequence[int]) -> None:
        """The row groups are there: records tell names and physical types, or pages types alone."""
        footers = [record for kind in kinds for record in small.records(kind)]
        data, _ = small.replaced(*((record.start, bytes(len(record))) for record in footers))
        store = MemoryStore()
        await store.put("damaged", data)
        report = await rpq.recover((store, "damaged"), (store, "out"))
        output = pq.read_table(io.BytesIO(bytes((await store.read_tail("out", 1 << 30)).data)))
        names = small.table.column_names if ROW_GROUP not in kinds else [f"c{i}" for i in range(4)]
        assert output.column_names == names
        for column, original in zip(output.columns, small.table.columns, strict=True):
            values = [value.encode() if isinstance(value, str) else value for value in original.to_pylist()]
            assert column.to_pylist() == values
        assert report.exit_code == 1
        assert any("--schema-from" in finding.message for finding in report.findings)
        given = await rpq.recover((store, "damaged"), (store, "given"), schema=small.table.schema)
        assert given.num_rows == small.table.num_rows
        whole = pq.read_table(io.BytesIO(bytes((await store.read_tail("given", 1 << 30)).data)))
        assert whole.equals(small.table)

    async def test_all_records(self, small: Any) -> None:
        """Nothing tells which chunk is which: what would is named."""
        records = [record for kind in (ANCHOR, ROW_GROUP, CHECKPOINT, FINAL, CHUNK) for record in small.records(kind)]
        data, _ = small.replaced(*((record.start, bytes(len(record))) for record in records))
        store = MemoryStore()
        await store.put("damaged", data)
        with pytest.raises(rpq.NothingToRecoverError) as caught:
            await rpq.recover((store, "damaged"), (store, "out"))
        assert "--schema-from" in (caught.value.hint or "")

    @sampled(12, 300)
    async def test_two_damages_at_once(self, small: Any, examined: Any, count: int) -> None:
        rng = random.Random(7)
        (final,) = small.records(FINAL)
        for _ in range(count):
            first = rng.randrange(len(small.data))
            second = rng.choice([rng.randrange(len(small.data)), rng.choice(final)])
            await replace(
                small, examined, *((offset, bytes([small.data[offset] ^ 0xFF])) for offset in (first, second))
            )

    async def test_a_record_of_another_file_in_its_place(
        self, small: Any, examined: Any, write_file: Any, rows: Any
    ) -> None:
        """As on a disk whose blocks an older file has left: its records are whole, and even in their place."""
        other = await write_file(rows(58))
        (final,) = small.records(FINAL)
        for kind in (ANCHOR, ROW_GROUP, CHECKPOINT):
            for record in other.records(kind):
                pieces = [(record.start, other.data[record.start : record.stop]), (final.start, bytes(200))]
                data, changed = small.replaced(*pieces)
                # The anchor says whose file it is; what follows on another's is not believed.
                may_lose = range(5) if kind == ANCHOR else small.losses(changed)
                await examined(small, data, may_lose=may_lose)

    async def test_cut_and_followed_by_an_older_file(
        self, small: Any, examined: Any, write_file: Any, rows: Any
    ) -> None:
        """The blocks behind the end of the writer belong to a file that is longer; its records are in place."""
        other = await write_file(rows(70), row_group_rows=11)
        assert len(other.data) > len(small.data)
        for record in small.records(ROW_GROUP):
            data = small.data[: record.stop] + other.data[record.stop : -1]
            lost = [ordinal for ordinal, found in enumerate(small.records(ROW_GROUP)) if found.stop > record.stop]
            outcome = await examined(small, data, may_lose=lost)
            assert outcome.recovery.num_rows == small.without(lost).num_rows


class TestLargerPieces:
    async def sectors(self, small: Any, examined: Any, size: int, fill: bytes, count: int | None) -> None:
        starts = list(range(0, len(small.data), size))
        for start in starts if count is None else random.Random(size).sample(starts, count):
            await replace(small, examined, (start, fill * (size // len(fill))))

    async def test_zeroed_sectors(self, small: Any, examined: Any) -> None:
        await self.sectors(small, examined, SECTOR, b"\0", 12)

    @pytest.mark.thorough
    @pytest.mark.timeout(900)
    async def test_every_sector(self, small: Any, examined: Any) -> None:
        for fill in (b"\0", b"\xff", random.Random(1).randbytes(SECTOR)):
            for size in (64, SECTOR, BLOCK):
                await self.sectors(small, examined, size, fill[:size], None)

    async def test_zeroed_from_somewhere_to_the_end(self, small: Any, examined: Any) -> None:
        """As a file system leaves a file whose length was stored before its bytes."""
        for start in random.Random(2).sample(range(0, len(small.data), 64), 12):
            await replace(small, examined, (start, bytes(len(small.data) - start)))

    async def test_swapped_blocks(self, small: Any, examined: Any) -> None:
        blocks = range(0, len(small.data) - BLOCK, BLOCK)
        for first in blocks:
            for second in blocks:
                if first < second:
                    one, other = (small.data[at : at + BLOCK] for at in (first, second))
                    await replace(small, examined, (first, other), (second, one))

    async def test_a_repeated_block(self, small: Any, examined: Any) -> None:
        for start in range(0, len(small.data) - BLOCK, BLOCK):
            data = small.data[: start + BLOCK] + small.data[start:]
            await examined(small, data, may_lose=range(5))

    async def test_missing_bytes(self, small: Any, examined: Any) -> None:
        """What is in its place stays; what is behind has moved, and is not taken for something else."""
        rng = random.Random(3)
        for count in (1, 16, SECTOR):
            for start in rng.sample(range(len(small.data) - count), 6):
                data = small.data[:start] + small.data[start + count :]
                may_lose = small.losses(range(start, len(small.data)))
                await examined(small, data, may_lose=may_lose)

    async def test_two_row_groups_change_places(self, small: Any, examined: Any) -> None:
        """With all their records; each still says where it belongs."""
        ends = [record.stop for record in small.records(ROW_GROUP)]
        first, second = (ends[1], ends[2]), (ends[2], ends[3])
        first = (small.records(CHECKPOINT)[0].stop, ends[2])
        swapped = small.data[slice(*second)] + small.data[slice(*first)]
        data = small.data[: first[0]] + swapped + small.data[second[1] :]
        assert len(data) == len(small.data)
        await examined(small, data, may_lose=[2, 3])


@pytest.mark.parametrize("group", range(2))
async def test_a_dictionary_of_a_chunk_whose_pages_nothing_names(group: int) -> None:
    """In an unfinished file, without the record of its row group, a damaged header leaves only the dictionary known."""
    store, rows = MemoryStore(), range(60_000)
    options: dict[str, Any] = {"row_group_rows": 20_000, "checkpoint_every": None, "compression": None}
    async with rpq.create((store, "file"), encodings={"id": "PLAIN"}, **options) as writer:
        await writer.write({"id": rows, "kind": [i % 5 for i in rows]})
    whole = bytes((await store.read_tail("file", 1 << 30)).data)
    layout = Layout(whole)
    record = [record.place for record in layout.records if record.kind == ROW_GROUP][group]
    header = layout.row_groups[group].chunks[1].pages[1].header
    data = bytearray(whole[: layout.footer.start - 96])
    for place in (range(record.start, record.start + 96), header):
        data[place.start : place.stop] = b"\xff" * len(place)
    await store.put("torn", bytes(data))
    lost: list[rpq.LostRegion] = []
    async with rpq.open((store, "torn"), on_damage="drop", on_lost=lost.append, require_complete=False) as file:
        kept = (await file.read(["id"], filters=[("kind", "==", 3)])).to_pydict()["id"]
    gone = range(20_000 * group, 20_000 * (group + 1))
    assert kept == [i for i in rows if i % 5 == 3 and i not in gone]
    assert 20_000 in [region.num_rows for region in lost]
