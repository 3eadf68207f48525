"""Files with parity inside are resumed, recovered, checked and read like all others, and healed where they are damaged."""

from __future__ import annotations

import asyncio
import os
import random
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from ledger_check import check_ledger
from sampled import either
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq.format.footer import PARITY_SHARE_KEY
from resilient_pq.io import LocalStore, MemoryStore
from resilient_pq.parity.group_shape import ParityShare
from resilient_pq.parity.inline_parity import find_inline
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.recovery.ledger.ledger_model import Confidence, PageState
from resilient_pq.recovery.resume.resume_layout import parity_share_of
from resilient_pq.writer.write_options import EncoderOptions

from .inline_files import NAME, InlineFile, contents, drawn_damage, inline_file, stored

ROWS = 120_000
VALUES = np.random.default_rng(1).random(ROWS)


async def file_at(store: object, key: str) -> InlineFile:
    source = await PinnedObject.find(store, key)  # type: ignore[arg-type]
    found = await find_inline(source)
    assert found is not None
    return InlineFile(bytes((await store.read_tail(key, 1 << 40)).data), found.groups)  # type: ignore[attr-defined]


async def heals(file: InlineFile) -> None:
    """Damage in places of any kind is repaired where the geometry allows that; the file is sound as it is."""
    for seed in range(6):
        damaged = drawn_damage(seed, file.data, file.burst // 2)
        if file.is_within_the_parity(damaged):
            assert await file.repaired(damaged) == file.data
    assert (await rpq.check((await stored(file.data), NAME))).outcome is rpq.Outcome.SOUND


# -- files that are gone on with -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "then", "torn"),
    [
        ("5%", None, 3_000),
        (None, "5%", 0),
        pytest.param("5%", None, 0, marks=pytest.mark.thorough),
        pytest.param("5%", "10%", 0, marks=pytest.mark.thorough),
        pytest.param("5%", None, 300_000, marks=pytest.mark.thorough),
    ],
)
async def test_a_resumed_file_is_protected_from_its_first_byte(
    tmp_path: Path, first: str | None, then: str | None, torn: int
) -> None:
    """Row groups behind the newest checkpoint, and parity behind it, are found; a torn end is cut off."""
    path = tmp_path / "a"
    with pytest.raises(KeyError):
        async with rpq.create(path, row_group_rows=5_000, checkpoint_every=None, parity=first) as writer:
            await writer.write({"b": VALUES})
            await writer.checkpoint()
            await writer.write({"b": VALUES[: ROWS // 2]})
            raise KeyError
    partial = path.with_name("a.partial")
    partial.write_bytes(partial.read_bytes()[: partial.stat().st_size - torn])
    async with rpq.resume(path, row_group_rows=5_000, parity=then) as writer:
        stored_rows = writer.num_rows_stored
        await writer.write({"b": VALUES})
    assert pq.read_metadata(path).num_rows == stored_rows + ROWS
    file = await file_at(LocalStore(), str(path))
    extents = [extent for group in file.groups for extent in group.extents]
    assert sum(extent.size for extent in extents) + file.groups[-1].shape.framed_bytes == len(file.data)
    assert [group.number for group in file.groups] == list(range(len(file.groups))) and len(file.groups) >= 3
    await heals(file)


@pytest.mark.parametrize("end", ["checkpoint", "row group"])
async def test_a_torn_file_is_not_the_one_to_which_rows_were_appended(tmp_path: Path, end: str) -> None:
    """Its last group ended the file before that, and is whole; the group behind it is lost with its record."""
    path = tmp_path / "a"
    async with rpq.create(path, parity="20%") as writer:
        await writer.write({"b": VALUES[:5_000]})
    whole = path.stat().st_size
    async with rpq.append(path) as writer:
        await writer.write({"b": VALUES[5_000:10_000]})
    path.write_bytes(path.read_bytes()[: whole + (100 if end == "checkpoint" else 20_000)])
    with pytest.raises(rpq.RepairError, match="the end of the file is lost"):
        await rpq.repair(path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("end", ["replaced", "replaced, cut", "zeroed"])
async def test_the_end_of_an_appended_file_is_not_that_of_another_file(tmp_path: Path, end: str) -> None:
    """A footer of the same make names the parity of the old version in its place, whose last group ended the file."""

    async def written(name: str) -> tuple[Path, int]:
        path = tmp_path / name
        async with rpq.create(path, parity="20%") as writer:
            await writer.write({"b": VALUES[:5_000]})
        size = path.stat().st_size
        async with rpq.append(path) as writer:
            await writer.write({"b": VALUES[5_000:10_000]})
        return path, size

    path, size = await written("a")
    old, _ = await written("b")
    whole, end_of_other = path.read_bytes(), old.read_bytes()[:size][-2_000:]
    if end == "zeroed":
        damaged = whole[: size + 3_000] + bytes(len(whole) - size - 3_000)
    else:
        damaged = (whole if end == "replaced" else whole[: size + 20_000])[: -len(end_of_other)] + end_of_other
    path.write_bytes(damaged)
    try:
        await rpq.repair(path, tmp_path / "new")
    except rpq.RepairError:
        assert not (tmp_path / "new").exists()
    else:
        assert (tmp_path / "new").read_bytes() == whole


async def test_what_is_too_much_to_read_again_has_no_parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resilient_pq.recovery.resume.resume_layout._MOST_READ_AGAIN", 1_000)
    path = tmp_path / "a"
    with pytest.raises(KeyError):
        async with rpq.create(path) as writer:
            await writer.write({"b": VALUES})
            await writer.checkpoint()
            raise KeyError
    async with rpq.resume(path, parity="5%") as writer:
        await writer.write({"b": VALUES})
    file = await file_at(LocalStore(), str(path))
    start = file.groups[0].extents[0].start
    assert start > 500_000
    damaged = bytearray(file.data)
    damaged[start + 50_000 : start + 55_000] = bytes(5_000)
    assert await file.repaired(bytes(damaged)) == file.data


# -- recoveries ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def file() -> InlineFile:
    return asyncio.run(inline_file(200_000, 6_000))


async def recovered(data: bytes) -> tuple[rpq.Report, bytes]:
    store = await stored(data)
    report = await rpq.recover((store, NAME), (store, "out"))
    assert report.kept is not None and report.kept.ledger is not None
    assert check_ledger(report.kept.ledger) == []
    return report, await contents(store, "out")


class _ToldAsOne(float):
    def __str__(self) -> str:
        return "1.0"


async def test_a_share_that_no_writer_takes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as much parity as data each group would end another, and a recovery would take memory without end."""
    with monkeypatch.context() as hostile:
        hostile.setattr(EncoderOptions, "parity_share", ParityShare(_ToldAsOne(0.05)))
        file = await inline_file()
    async with rpq.open((await stored(file.data), NAME)) as opened:
        assert opened.key_value_metadata[PARITY_SHARE_KEY] == "1.0"
        assert parity_share_of(opened.objects.contents) == ParityShare(0.5)


@pytest.mark.parametrize("place", ["page", "footer", "cut", "part", "parity"])
async def test_a_recovery_rebuilds_before_anything_else(file: InlineFile, place: str) -> None:
    size, start = 9_000, file.groups[0].shards_offset
    damaged = bytearray(file.data)
    at = {"page": 100_000, "footer": len(damaged) - size, "cut": len(damaged) - size, "part": 300_000, "parity": start}
    if place in ("cut", "part"):
        del damaged[at[place] : at[place] + size]
    else:
        damaged[at[place] : at[place] + size] = bytes(size)
    checked = await rpq.check((await stored(bytes(damaged)), NAME))
    assert checked.outcome is rpq.Outcome.DAMAGED and checked.next[0][:2] == ("rpq", "repair")
    assert checked.blocks_damaged == checked.blocks_repairable
    report, output = await recovered(bytes(damaged))
    assert output == file.data and report.outcome is rpq.Outcome.RECOVERED
    assert any("rebuilt from parity" in finding.message for finding in report.findings)
    assert report.kept is not None and report.kept.ledger is not None
    rebuilt = [region for region in report.kept.ledger.regions if region.confidence is Confidence.PARITY]
    assert bool(rebuilt) == (place != "part")
    if place == "page":
        assert any(region.state is PageState.REBUILT for region in rebuilt)


async def test_a_torn_file_keeps_its_parity_and_gets_more(file: InlineFile) -> None:
    assert (await rpq.check((await stored(file.data[:1_000_000]), NAME))).next[0][:2] == ("rpq", "recover")
    report, output = await recovered(file.data[:1_000_000])
    assert report.outcome is rpq.Outcome.PARTIAL and report.num_rows > 100_000
    whole = await file_at(await stored(output), NAME)
    assert len(whole.groups) == 2 and whole.groups[0].digest == file.groups[0].digest
    damaged = bytearray(output)
    damaged[5_000:15_000] = bytes(10_000)
    assert await whole.repaired(bytes(damaged)) == output


async def test_pages_of_a_torn_file_are_rebuilt_where_their_group_was_stored(file: InlineFile) -> None:
    damaged = bytearray(file.data[:1_000_000])
    damaged[100_000:110_000] = bytes(10_000)
    report, _ = await recovered(bytes(damaged))
    assert report.num_rows == (await recovered(file.data[:1_000_000]))[0].num_rows


async def test_what_is_written_anew_has_new_parity(file: InlineFile) -> None:
    damaged = bytearray(file.data)
    damaged[100_000:250_000] = bytes(150_000)
    _, output = await recovered(bytes(damaged))
    whole = await file_at(await stored(output), NAME)
    damaged = bytearray(output)
    damaged[5_000:15_000] = bytes(10_000)
    assert await whole.repaired(bytes(damaged)) == output


# -- reads ---------------------------------------------------------------------------------------------


async def test_reads_heal_by_ranges() -> None:
    """Of each shard one block is read, and not all of the group; of a damaged footer as well."""
    file = await inline_file(800_000, None)
    (group,) = file.groups
    damaged = bytearray(file.data)
    damaged[1_000_000] ^= 1
    recording = RecordingStore(await stored(bytes(damaged)))
    with pytest.warns(rpq.HealedFileWarning):
        async with rpq.open((recording, NAME)) as opened:
            table = await opened.read(["b"])
            assert opened.healed[0].num_blocks == 1
    expected = np.random.default_rng(800_000)
    assert np.array_equal(table["b"], np.concatenate([expected.random(400_000) for _ in range(2)]))
    reads = [call.end - call.start for call in recording.calls if call.verb == "read_range" if call.start and call.end]
    blocks = sum(size == group.shape.block_bytes for size in reads)
    assert group.shape.num_data <= blocks + 5 <= group.shape.num_data + 2 * group.shape.num_parity
    damaged[-2_000:] = bytes(2_000)
    with pytest.warns(rpq.HealedFileWarning):
        async with rpq.open((await stored(bytes(damaged)), NAME)) as opened:
            assert opened.num_rows == 800_000


async def test_a_read_without_damage_fetches_no_byte_of_parity(file: InlineFile) -> None:
    """However small the gaps are; the tail, which has the footer, is read before it is known where parity lies."""
    recording = RecordingStore(await stored(file.data))
    options = rpq.ReadOptions(tail_bytes=20_000, merge_gap=8 << 20, block_bytes=64 << 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with rpq.open((recording, NAME), options=options) as opened:
            assert (await opened.read()).num_rows == 200_000
    places = [(group.shards_offset, group.shape.parity_bytes) for group in file.groups]
    for call in recording.calls:
        if call.verb == "read_range":
            assert not any(call.start < at + size and at < call.end for at, size in places)
    assert recording.count("read_range") >= len(file.groups)


async def test_without_parity_nothing_of_it_is_asked() -> None:
    store = MemoryStore()
    async with rpq.create((store, NAME)) as writer:
        await writer.write({"b": VALUES})
    assert b"rpq.parity" not in await contents(store)


# -- a sidecar beside a file with parity inside ----------------------------------------------------------


@pytest.mark.parametrize("beside", ["damaged", "of another file", "of this version, without parity"])
async def test_what_a_sidecar_cannot_rebuild_the_parity_inside_does(tmp_path: Path, beside: str) -> None:
    file, path, sidecar = await inline_file(), tmp_path / NAME, tmp_path / f"{NAME}.rpqparity"
    damaged = bytearray(file.data)
    damaged[5_000:5_500] = bytes(500)
    path.write_bytes(b"other rows" * 100 if beside == "of another file" else file.data)
    await rpq.protect(path, checksums_only=beside.startswith("of this"))
    if beside == "damaged":
        sidecar.write_bytes(b"?" * 200)
    written = path.stat()
    path.write_bytes(damaged)
    os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))
    repaired = await rpq.repair(path, tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == file.data and repaired.sidecar == str(path)


async def test_a_sidecar_rebuilds_what_the_parity_inside_cannot(tmp_path: Path) -> None:
    file, path = await inline_file(), tmp_path / NAME
    path.write_bytes(file.data)
    await rpq.protect(path, parity="50%")
    damaged = bytearray(file.data)
    damaged[5_000 : 5_000 + 3 * file.burst] = bytes(3 * file.burst)
    path.write_bytes(damaged)  # of another version, as far as its time of change tells
    os.utime(path, ns=(0, 0))
    repaired = await rpq.repair(path, tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == file.data and repaired.sidecar == f"{path}.rpqparity"


@pytest.mark.parametrize(
    ("share", "count"), either([("5%", 12), ("10%", 6)], [("5%", 400), ("10%", 400), ("30%", 400)], seconds=900)
)
async def test_check_counts_the_rows_that_a_recovery_keeps(share: str, count: int) -> None:
    """Both read through the parity, whatever is damaged, and wherever the file is cut."""
    file = await inline_file(3_000, 500, parity=share)
    num_rebuilt = 0
    for seed in range(count):
        at = random.Random(seed).randrange(len(file.data))
        hole = file.data[:at] + bytes(min(3_000, len(file.data) - at)) + file.data[at + 3_000 :]
        damaged = (drawn_damage(seed, file.data, file.burst), hole, file.data[:at])[seed % 3]
        store = await stored(damaged)
        checked = await rpq.check((store, NAME))
        try:
            report = await rpq.recover((store, NAME), (store, "out"), on_damage="drop")
        except rpq.NothingToRecoverError:
            assert (checked.outcome, checked.num_rows) == ("nothing", 0), seed
            continue
        assert (checked.num_rows, checked.num_row_groups) == (report.num_rows, report.num_row_groups), seed
        assert checked.schema == report.schema and checked.size == len(damaged), seed
        if checked.blocks_damaged and checked.blocks_damaged == checked.blocks_repairable:
            assert report.kept is not None and report.kept.rows_lost == 0, seed
            assert not any(finding.costs_rows for finding in checked.findings), seed
            num_rebuilt += checked.next[0][1] == "repair" and checked.num_rows == 3_000
    assert num_rebuilt > count // 6


async def test_a_check_through_parity_says_what_is_damaged_and_that_it_is_rebuilt(file: InlineFile) -> None:
    damaged = bytearray(file.data)
    damaged[100_000:109_000] = bytes(9_000)
    checked = await rpq.check((await stored(bytes(damaged)), NAME))
    assert checked.num_rows == checked.to_json()["rows"] == 200_000 and "200,000 rows" in str(checked)
    assert any(finding.where.row_group is not None for finding in checked.findings)
    assert "rebuilt from parity" in checked.findings[-1].message and "rebuilt from parity" in str(checked)
