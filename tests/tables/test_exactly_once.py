"""Each row of a published file is in the table once, whoever commits it, and however often."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.io import LocalStore, RetryPolicy
from resilient_pq.tables import committer as committing
from resilient_pq.tables.committer import PublishedFile, commit_rewrite

SOON = RetryPolicy(seconds=0.3, base_delay=0.01, max_delay=0.05)


def rows(start: int, end: int) -> dict[str, Any]:
    return {"id": list(range(start, end)), "day": [f"d{each % 2}" for each in range(start, end)]}


async def test_every_file_is_committed_when_it_is_published(place: Any) -> None:
    async with rpq.create_dataset(place.data, table=place.settings(), roll_rows=10) as writer:
        await writer.write(rows(0, 35))
        await writer._committer._task  # type: ignore[misc,union-attr]
        assert place.ids() == list(range(30))
    assert place.ids() == list(range(35))
    assert len(writer.files) == 4 and not writer.files_not_committed


async def test_a_table_that_is_there_takes_more_of_another_sink(place: Any) -> None:
    async def write(name: str, start: int) -> None:
        async with rpq.create_dataset(
            place.data, table=place.settings(), partition_by="day", roll_rows=8, name=name
        ) as writer:
            for at in range(start, start + 30, 10):
                await writer.write(rows(at, at + 10))

    await write("first", 0)
    await asyncio.gather(*(write(f"sink-{number}", number * 30) for number in (1, 2)))
    assert place.ids() == list(range(90))


async def test_files_of_a_data_set_without_a_table_are_committed_later(any_place: Any) -> None:
    async with rpq.create_dataset(any_place.data, roll_rows=10) as writer:
        await writer.write(rows(0, 25))
    for _ in range(2):
        async with rpq.resume_dataset(any_place.data, table=any_place.settings()):
            pass
        assert any_place.ids() == list(range(25))
    async with rpq.resume_dataset(any_place.data, table=any_place.settings()) as writer:
        await writer.write(rows(25, 30))
    assert any_place.ids() == list(range(30))


async def test_two_committers_of_one_sink_race(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have looked at the same version, in which nothing is committed: one of them looks again, and does nothing."""
    async with rpq.create_dataset(place.data, roll_rows=10) as writer:
        await writer.write(rows(0, 40))
    async with rpq.create_dataset(place.data, table=place.settings(), name="other") as writer:
        await writer.write(rows(40, 50))
    both, refused, seen = threading.Barrier(2), 0, set()
    finish_in_thread = committing.finish_in_thread

    async def at_once(call: Any, *arguments: Any) -> Any:
        nonlocal refused
        if call is not committing.commit_files:
            return await finish_in_thread(call, *arguments)
        table, sink, files = arguments
        load = table.load

        def load_and_wait() -> bool:
            found: bool = load()
            if table not in seen:
                seen.add(table)
                both.wait(20)
            return found

        table.load = load_and_wait
        try:
            return await finish_in_thread(call, table, sink, files)
        except rpq.TransientError:
            refused += 1
            raise
        finally:
            table.load = load

    monkeypatch.setattr(committing, "finish_in_thread", at_once)

    async def commit() -> None:
        async with rpq.resume_dataset(place.data, table=place.settings()):
            pass

    await asyncio.gather(commit(), commit())
    assert refused == 1
    assert place.ids() == list(range(50))


async def test_writing_goes_on_while_the_catalog_is_away(any_place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_files, away = committing.commit_files, True

    def commit(*arguments: Any) -> None:
        if away:
            raise rpq.TransientError("the catalog does not answer")
        commit_files(*arguments)

    monkeypatch.setattr(committing, "commit_files", commit)
    async with rpq.create_dataset(any_place.data, table=any_place.settings(retry=SOON), roll_rows=10) as writer:
        await writer.write(rows(0, 25))
        await asyncio.sleep(0.4)  # longer than the policy: the time counts from the end on
        await writer.write(rows(25, 45))
        assert len(writer.files_not_committed) == 4 and any_place.ids() == []
        away = False
    assert any_place.ids() == list(range(45))


async def test_files_that_are_not_committed_are_named_and_committed_later(
    any_place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(*_: Any) -> None:
        raise rpq.TransientError("the catalog does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(committing, "commit_files", commit)
        with pytest.raises(rpq.StoreError, match=r"2 files are published and not committed to .*events") as caught:
            async with rpq.create_dataset(any_place.data, table=any_place.settings(retry=SOON), roll_rows=10) as writer:
                await writer.write(rows(0, 15))
    said = str(caught.value)
    assert "part-00000000.parquet" in said and "part-00000001.parquet" in said and "does not answer" in said
    assert "rpq.resume_dataset(..., table=)" in said
    assert len(writer.files) == 2
    async with rpq.resume_dataset(any_place.data, table=any_place.settings()):
        pass
    assert any_place.ids() == list(range(15))


async def test_what_is_final_ends_the_writing(any_place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(*_: Any) -> None:
        raise rpq.AccessDeniedError("not yours")

    monkeypatch.setattr(committing, "commit_files", commit)
    with pytest.raises(rpq.AccessDeniedError, match="not yours"):
        async with rpq.create_dataset(any_place.data, table=any_place.settings(), roll_rows=10) as writer:
            for at in range(0, 1000, 10):
                await writer.write(rows(at, at + 10))
                await asyncio.sleep(0.01)
    assert 0 < writer.num_rows < 1000


@pytest.mark.parametrize("partition_by", [None, "day"])
async def test_files_are_rewritten_once(place: Any, partition_by: str | None, tmp_path: Path) -> None:
    async with rpq.create_dataset(
        place.data, table=place.settings(), partition_by=partition_by, roll_rows=10
    ) as writer:
        await writer.write(rows(0, 30))
    store = LocalStore()
    old = [file for file in writer.files if file.partition == writer.files[0].partition]
    merged = f"{Path(old[0].url).parent}/merged.parquet"
    async with rpq.create(merged) as out:
        await out.write(pa.concat_tables(pq.ParquetFile(file.url).read() for file in old))
    added = [PublishedFile(merged, old[0].partition)]
    removed = [file.url for file in old]
    for _ in range(2):
        await commit_rewrite(place.settings(), store, removed, added, "run-1", folder=place.data)
    assert place.ids() == list(range(30))
    with pytest.raises(rpq.StoreError, match="not in the table any more"):
        await commit_rewrite(place.settings(), store, removed, added, "run-2", folder=place.data)
    async with rpq.resume_dataset(place.data, table=place.settings(), partition_by=partition_by) as writer:
        await writer.write(rows(30, 40))
    assert place.ids() == list(range(40))


async def test_what_cannot_be_committed_is_refused(any_place: Any) -> None:
    with pytest.raises(rpq.OptionError, match="IcebergTable or"):
        rpq.create_dataset(any_place.data, table="web.events")  # type: ignore[arg-type]
    with pytest.raises(rpq.OptionError, match="encrypted files cannot be in a table"):
        rpq.create_dataset(any_place.data, table=any_place.settings(), encryption=rpq.Encryption(footer_key=bytes(16)))


@pytest.mark.parametrize("removed", ["all", "newest"])
async def test_numbers_of_files_are_not_given_out_twice(place: Any, removed: str) -> None:
    """Where the newest files are gone, a sink would number new ones as the table has numbered them: they would miss."""
    async with rpq.create_dataset(place.data, table=place.settings(), roll_rows=10) as writer:
        await writer.write(rows(0, 30))
    for file in writer.files if removed == "all" else writer.files[-1:]:
        Path(file.url).unlink()
    with pytest.raises(rpq.RecoveryError, match="3 files of this writer, and the data set has"):
        async with rpq.resume_dataset(place.data, table=place.settings()) as writer:
            await writer.write(rows(30, 40))
    async with rpq.create_dataset(place.data, table=place.settings(), name="next") as writer:
        await writer.write(rows(30, 40))
