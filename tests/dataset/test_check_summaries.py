"""`check` and `recover` of summaries: damage is found in the file that it is in, and named there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from footers_of_others import with_footer

import resilient_pq as rpq
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.io import MemoryStore

Folder = dict[str, bytes]
SUMMARY = "folder/_metadata"


@pytest.fixture(params=["us", "pyarrow"])
async def store(request: pytest.FixtureRequest, folders: dict[str, Folder]) -> MemoryStore:
    """Three files of ten rows in three row groups each, and their summary."""
    store = MemoryStore()
    for name, data in folders[request.param].items():
        await store.put(f"folder/{name}", data)
    await rpq.write_metadata((store, "folder"))
    return store


async def bytes_of(store: MemoryStore, key: str) -> bytearray:
    return bytearray((await store.read_tail(key, 1 << 30)).data)


async def test_sound(store: MemoryStore) -> None:
    seen: list[tuple[int, int]] = []
    report = await rpq.check((store, SUMMARY), progress=lambda *one: seen.append(one))
    assert (report.outcome, report.num_rows, report.num_row_groups) == (rpq.Outcome.SOUND, 30, 9)
    assert (report.findings, report.next, report.exit_code) == ((), (), 0)
    keys = [SUMMARY, *(f"folder/{name}" for name in await store.list_names("folder") if "=" in name)]
    assert report.size == sum([(await store.head(key)).size for key in keys])
    assert [done for done, _ in seen] == sorted({done for done, _ in seen}) and seen[-1][0] == seen[-1][1]


async def test_the_schema_alone(store: MemoryStore) -> None:
    report = await rpq.check((store, "folder/_common_metadata"))
    assert (report.outcome, report.num_rows, report.findings) == (rpq.Outcome.SOUND, 0, ())
    await rpq.recover((store, "folder/_common_metadata"), (store, "copy"))
    assert await bytes_of(store, "copy") == await bytes_of(store, "folder/_common_metadata")


async def test_a_page_of_a_data_file(store: MemoryStore) -> None:
    async with rpq.open((store, SUMMARY)) as file:
        chunk = file.metadata.row_groups[4].columns[1]
    assert chunk.meta_data is not None and chunk.file_path is not None
    key = f"folder/{chunk.file_path}"
    data = await bytes_of(store, key)
    start = chunk.meta_data.dictionary_page_offset or chunk.meta_data.data_page_offset
    # The type of the page, in its header: that is found without any checksum.
    data[start + 1] ^= 0x70
    await store.put(key, bytes(data))
    report = await rpq.check((store, SUMMARY))
    assert (report.outcome, report.num_rows, report.num_row_groups) == (rpq.Outcome.DAMAGED, 26, 8)
    (finding,) = report.findings
    where = finding.where
    assert (where.key, where.row_group, where.column) == (f"memory:{key}", 4, "s")
    assert finding.costs_rows and finding.damage is rpq.Damage.CORRUPT
    assert finding.to_json()["file"] == f"memory:{key}"
    assert report.next == (("rpq", "check", f"memory:{key}"),)


async def test_a_chunk_that_cannot_be_where_the_summary_says(store: MemoryStore) -> None:
    """The other columns of its row group are looked at all the same."""
    async with rpq.open((store, SUMMARY)) as file:
        chunk = file.metadata.row_groups[4].columns[1]
    assert chunk.meta_data is not None and chunk.file_path is not None
    data = await bytes_of(store, key := f"folder/{chunk.file_path}")
    data[(chunk.meta_data.dictionary_page_offset or chunk.meta_data.data_page_offset) + 1] ^= 0x70
    await store.put(key, bytes(data))

    def misplace(footer: FileMetaData) -> None:
        metadata = footer.row_groups[4].columns[0].meta_data
        assert metadata is not None
        metadata.total_compressed_size = -1

    await store.put(SUMMARY, with_footer(bytes(await bytes_of(store, SUMMARY)), misplace))
    report = await rpq.check((store, SUMMARY))
    assert (report.outcome, report.num_rows, report.num_row_groups) == (rpq.Outcome.DAMAGED, 26, 8)
    assert {finding.where.row_group for finding in report.findings} == {4}
    assert len({finding.where.column for finding in report.findings}) == 2


async def test_an_index_of_a_data_file(folders: dict[str, Folder]) -> None:
    """Ours have checksums of their indexes, wherever the footer stands that names them."""
    store = MemoryStore()
    name, data = next(iter(folders["us"].items()))
    await store.put("folder/a.parquet", data)
    await rpq.write_metadata((store, "folder"))
    async with rpq.open((store, SUMMARY)) as file:
        place = file.metadata.row_groups[1].columns[0].offset_index_offset
    assert place is not None and name
    changed = bytearray(data)
    changed[place + 1] ^= 1
    await store.put("folder/a.parquet", bytes(changed))
    report = await rpq.check((store, SUMMARY))
    (finding,) = report.findings
    assert "offset index is not as it was written" in finding.message
    assert (finding.where.key, finding.where.row_group, finding.costs_rows) == (
        "memory:folder/a.parquet",
        1,
        False,
    )
    assert (report.outcome, report.num_rows) == (rpq.Outcome.DAMAGED, 10)


async def _remove(store: MemoryStore, key: str) -> None:
    await store.delete(key)


async def _replace(store: MemoryStore, key: str) -> None:
    await store.put(key, bytes(await bytes_of(store, key)) + b"more")


@pytest.mark.parametrize("change", [_remove, _replace])
async def test_a_data_file_that_is_another_or_none(
    store: MemoryStore, change: Callable[[MemoryStore, str], Any]
) -> None:
    """One finding for each of its row groups, and the summary is what has to be made anew."""
    await change(store, "folder/day=1/part.parquet")
    report = await rpq.check((store, SUMMARY))
    assert (report.outcome, report.num_rows, report.num_row_groups) == (rpq.Outcome.DAMAGED, 20, 6)
    assert [finding.where.row_group for finding in report.findings] == [3, 4, 5]
    for finding in report.findings:
        assert finding.where.key == "memory:folder/day=1/part.parquet"
        assert (finding.damage, finding.where.column) == (rpq.Damage.MISSING, None)
    assert report.next == (("rpq", "metadata", "memory:folder", "--overwrite"),)


async def test_no_data_file_is_there(store: MemoryStore) -> None:
    for number in range(3):
        await store.delete(f"folder/day={number}/part.parquet")
    report = await rpq.check((store, SUMMARY))
    assert (report.outcome, report.num_rows, len(report.findings)) == (rpq.Outcome.NOTHING, 0, 9)


@pytest.mark.parametrize("cut", [1, 50, 200])
async def test_a_torn_summary(store: MemoryStore, cut: int) -> None:
    """Nothing can be had of it, and nothing is lost with it."""
    data = await bytes_of(store, SUMMARY)
    await store.put(SUMMARY, bytes(data[:-cut]))
    report = await rpq.check((store, SUMMARY))
    assert (report.outcome, report.num_rows) == (rpq.Outcome.NOTHING, 0)
    assert report.next == (("rpq", "metadata", "memory:folder", "--overwrite"),)
    with pytest.raises(rpq.NothingToRecoverError):
        await rpq.recover((store, SUMMARY), (store, "out"))


async def test_a_summary_is_not_what_to_recover(store: MemoryStore) -> None:
    with pytest.raises(rpq.RecoveryError, match="its rows lie in other files") as caught:
        await rpq.recover((store, SUMMARY), (store, "out"))
    assert caught.value.hint is not None and "rpq metadata memory:folder --overwrite" in caught.value.hint
    with pytest.raises(rpq.NotFoundError):
        await store.head("out")
