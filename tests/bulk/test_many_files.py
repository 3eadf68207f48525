"""Many files: each is told of as by itself, the summary adds up, and the journal lets a run go on where it stopped."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sampled import sampled
from store_wrapper import Call, RecordingStore

import resilient_pq as rpq
from resilient_pq.bulk.file_task import FileTask, run_here
from resilient_pq.bulk.run_tasks import Journal
from resilient_pq.io.memory_store import MemoryStore


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@sampled(100, 2_000)
async def test_the_summary_is_right_for_each_of_many_files(files: Any, tmp_path: Path, count: int) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    ways = files.write(src, count)
    before = all_files(src)
    expected = {name: "sound" if way is None else files.ways[way].check for name, way in ways.items()}
    async with rpq.check_many(src) as checking:
        found = {str(Path(result.url).relative_to(src)): result.outcome async for result in checking}
    assert found == expected
    summary = checking.summary
    assert (summary.num_files, summary.num_found, summary.all_found) == (count, count, True)
    assert summary.outcomes == dict(sorted(Counter(expected.values()).items()))
    assert summary.exit_code == 3 and summary.num_not_sound == count // 10
    assert len(summary.worst) == min(count // 10, 100)
    assert summary.worst[0].outcome == "nothing"

    expected = {name: "sound" if way is None else files.ways[way].recover for name, way in ways.items()}
    rows = {name: 400 if way is None else files.ways[way].num_rows for name, way in ways.items()}
    kept = {}
    async with rpq.recover_many(str(src), dst) as recovering:
        async for result in recovering:
            name = str(Path(result.url).relative_to(src))
            assert result.outcome == expected[name], name
            assert result.report is not None and result.report.num_rows == rows[name], name
            kept[name] = result.report.kept.num_rows
            way = ways[name]
            if way is not None and files.ways[way].needs_schema:
                sibling = Path(result.report.schema_from)
                assert sibling.parent == (src / name).parent and files.way_of(int(sibling.stem[-5:])) is None
    assert kept == rows
    summary = recovering.summary
    assert summary.outcomes == dict(sorted(Counter(expected.values()).items()))
    assert (summary.num_rows, summary.size) == (sum(rows.values()), sum(len(data) for data in before.values()))
    outputs = all_files(dst)
    assert set(outputs) == {name for name, count in rows.items() if count}
    assert all(outputs[name] == before[name] for name, way in ways.items() if way is None), "copied as they were"
    assert {name: pq.read_metadata(dst / name).num_rows for name in outputs} == {n: c for n, c in rows.items() if c}
    assert all_files(src) == before


async def test_only_damaged_files_are_written(files: Any, tmp_path: Path) -> None:
    ways = files.write(tmp_path / "src", 60)
    summary = await rpq.recover_many(tmp_path / "src", tmp_path / "dst", only_damaged=True).finish()
    damaged = {name for name, way in ways.items() if way is not None and files.ways[way].num_rows}
    assert set(all_files(tmp_path / "dst")) == damaged
    assert summary.outcomes["sound"] == 54


async def test_what_a_folder_and_a_pattern_mean(files: Any, tmp_path: Path) -> None:
    names = ["a.parquet", "b/c.parquet", "b/d.parquet.partial", "_metadata", ".hidden/e.parquet", "_tmp/f.parquet"]
    for name in [*names, "b/readme.md", "b/g.parq"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(files.sound[0])

    async def found(url: Any) -> list[str]:
        return sorted([str(Path(each.url).relative_to(tmp_path)) async for each in rpq.check_many(url)])

    assert await found(tmp_path) == ["a.parquet", "b/c.parquet", "b/d.parquet.partial"]
    assert await found(f"{tmp_path}/b/") == ["b/c.parquet", "b/d.parquet.partial"]
    assert await found(f"{tmp_path}/**/*.parquet") == ["a.parquet", "b/c.parquet"]
    assert await found(f"{tmp_path}/*/*.par[qs]") == ["b/g.parq"]
    assert await found(f"{tmp_path}/_tmp/*") == ["_tmp/f.parquet"]
    assert await found(tmp_path / "a.parquet") == ["a.parquet"]
    assert await found([tmp_path / "_metadata", f"{tmp_path}/b/g.parq"]) == ["_metadata", "b/g.parq"]
    for nothing in (tmp_path / "b" / "none.*", f"{tmp_path}/none/", f"{tmp_path}/*/*.nothing"):
        with pytest.raises(rpq.NotFoundError):
            await found(nothing)
    with pytest.raises(rpq.SchemaError):
        rpq.check_many([])
    with pytest.raises(rpq.SchemaError, match="max_files"):
        rpq.check_many(tmp_path, max_files=0)


async def test_what_is_called_like_a_pattern_is_found_by_its_name(files: Any, tmp_path: Path) -> None:
    for name in ("day[1]", "day?", "day*"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "part[2].parquet").write_bytes(files.sound[0])
        for url in (folder, f"{folder}/", folder / "part[2].parquet", [f"{folder}/"], f"{folder}/part[2].parquet"):
            assert [Path(each.url).parent.name async for each in rpq.check_many(url)] == [name], url
    assert (await rpq.check_many(f"{tmp_path}/day?/*").finish()).num_files == 2


async def test_a_folder_that_cannot_be_looked_into_is_told_and_ends_nothing(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/1.parquet", "lost+found/2.parquet", ".trash/3.parquet", "z/4.parquet", "z/deep/5.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(files.sound[0])
    (tmp_path / "circle").symlink_to("circle")
    scan = os.scandir

    def scandir(path: str) -> Any:
        if path.rstrip("/").endswith(("lost+found", ".trash")):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)  # permissions do not keep root out
    summary = await rpq.check_many(tmp_path, resume=tmp_path / "journal").finish()
    assert summary.outcomes == {"error": 1, "sound": 3} and summary.exit_code == 4
    assert summary.worst[0].url == f"{tmp_path}/lost+found/"
    assert summary.worst[0].message == "cannot list: Permission denied"
    summary = await rpq.recover_many(tmp_path, f"{tmp_path}.new").finish()
    assert summary.outcomes == {"error": 1, "sound": 3}
    for pattern, errors in (("*/*.parquet", 1), ("**/*.parquet", 1), ("[az]/**/*.parquet", 0), ("z/*.parquet", 0)):
        summary = await rpq.check_many(f"{tmp_path}/{pattern}").finish()
        assert summary.outcomes.get("error", 0) == errors, pattern
    for refused in (rpq.open_many(tmp_path), rpq.check_many(tmp_path / "lost+found").finish()):
        with pytest.raises(rpq.StoreError, match="cannot list"):
            await refused
    monkeypatch.undo()
    summary = await rpq.check_many(tmp_path, resume=tmp_path / "journal").finish()
    assert summary.outcomes == {"sound": 4} and summary.num_resumed == 3


async def test_files_that_are_being_written_are_passed_over(files: Any, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(files.sound[0])
    async with rpq.create(tmp_path / "b.parquet") as writer:
        await writer.write({"id": [1]})
        assert (await rpq.check_many(tmp_path).finish()).num_files == 1
        explicit = await rpq.check_many(f"{tmp_path}/*.partial").finish()
        assert explicit.num_files == 1 and explicit.exit_code
    assert (await rpq.check_many(tmp_path).finish()).outcomes == {"sound": 2}


async def test_an_error_of_one_file_is_told_and_the_others_are_done(files: Any) -> None:
    store = MemoryStore()
    for number in range(20):
        await store.put(f"in/{number:02}.parquet", files.sound[0])

    class Failing(RecordingStore):
        async def _do(self, call: Call, action: Any) -> Any:
            if call.key == "in/07.parquet":
                raise rpq.StoreError("the disk is broken")
            return await super()._do(call, action)

    results = {result.url: result async for result in rpq.check_many((Failing(store), "in"))}
    assert Counter(result.outcome for result in results.values()) == {"sound": 19, "error": 1}
    failed = results["memory:in/07.parquet"]
    assert failed.error is not None and failed.exit_code == 4 and failed.to_json()["outcome"] == "error"


async def test_no_more_files_than_allowed_are_under_way(files: Any, tmp_path: Path) -> None:
    files.write(tmp_path, 60)
    running = most = 0

    async def watched(task: FileTask) -> rpq.FileResult:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        try:
            return await run_here(task)
        finally:
            running -= 1

    async with rpq.check_many(tmp_path, max_files=3, run=watched) as checking:
        assert len([result async for result in checking]) == 60
    assert most == 3 and running == 0


async def test_large_files_wait_for_each_other(tmp_path: Path) -> None:
    """Sizes are believed as they are listed: the files have no bytes in them."""
    for number in range(6):
        (tmp_path / f"{number}.parquet").touch()
        os.truncate(tmp_path / f"{number}.parquet", 1 << 30)
    running = most = 0
    checking = rpq.check_many(tmp_path)

    async def watched(task: FileTask) -> rpq.FileResult:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0)
        running -= 1
        return rpq.FileResult("check", task.url)

    checking._run = watched  # type: ignore[method-assign, assignment]
    assert (await checking.finish()).num_files == 6
    assert most == 2


async def test_leaving_early_leaves_nothing_behind(files: Any, tmp_path: Path) -> None:
    files.write(tmp_path / "src", 100)
    async with rpq.recover_many(tmp_path / "src", tmp_path / "dst", resume=tmp_path / "journal") as recovering:
        async for _ in recovering:
            break
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not [name for name in all_files(tmp_path / "dst") if name.endswith(".partial")]
    await recovering.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(recovering)
    never = rpq.check_many(tmp_path / "src")
    await never.aclose()


def test_the_blocking_twin(files: Any, tmp_path: Path) -> None:
    files.write(tmp_path / "src", 30)
    with rpq.sync.check_many(tmp_path / "src") as checking:
        for result in checking:
            assert result.verb == checking.verb == "check"
            break
    assert checking.summary.num_files < 30 and list(checking) == []
    assert rpq.sync.check_many(tmp_path / "src").finish().num_files == 30
    assert rpq.sync.recover_many(tmp_path / "src", tmp_path / "dst").finish().num_files == 30


# --- outputs ----------------------------------------------------------------------------------------------------


async def test_outputs_among_the_inputs_are_refused(files: Any, tmp_path: Path) -> None:
    files.write(tmp_path / "src", 3)
    (tmp_path / "link").symlink_to(tmp_path / "src")
    for src, dst in (("src", "src"), ("src", "src/out"), ("src", "link/out"), ("link/", "src"), ("src/*/*", "src/o")):
        with pytest.raises(rpq.RecoveryError, match="among what is read"):
            rpq.recover_many(f"{tmp_path}/{src}", f"{tmp_path}/{dst}")
    assert (await rpq.recover_many(tmp_path / "src", tmp_path / "src2").finish()).num_files == 3
    store = MemoryStore()
    with pytest.raises(rpq.RecoveryError):
        rpq.recover_many((store, "a"), (store, "a/b"))
    with pytest.raises(rpq.RecoveryError):
        rpq.recover_many((store, "a/b"), (store, "a"))
    assert rpq.recover_many((store, "a"), (MemoryStore(), "a/b")).verb == "recover"


async def test_outputs_above_the_inputs_are_refused(files: Any, tmp_path: Path) -> None:
    """That of src/src/1.parquet would be src/1.parquet: the next run would find it among the inputs."""
    files.write(tmp_path / "src" / "src", 3)
    (tmp_path / "link").symlink_to(tmp_path)
    before = all_files(tmp_path / "src")
    for src, dst in (("src", ""), ("src/", "./"), ("src/**/*", ""), ("src", "link"), ("link/src", ".")):
        with pytest.raises(rpq.RecoveryError, match=r"above .*may fall among what is read") as caught:
            rpq.recover_many(f"{tmp_path}/{src}", f"{tmp_path}/{dst}")
        assert caught.value.hint == "name a folder beside it"
    assert all_files(tmp_path / "src") == before
    assert (await rpq.recover_many(tmp_path / "src", tmp_path / "sr").finish()).num_files == 3


async def test_files_go_above_their_folder(files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file, and those of one folder alone, which have no folders in their names: nothing falls among them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for name in ("a.parquet", "b.parquet", "c.parquet"):
        (tmp_path / "src" / name).write_bytes(files.sound[0])
    before = all_files(tmp_path / "src")
    for src, dst in (("src/a.parquet", "."), (tmp_path / "src" / "b.parquet", tmp_path), ("src/c*.parquet", "./")):
        assert (await rpq.recover_many(src, dst).finish()).outcomes == {"sound": 1}
    assert all_files(tmp_path) == {**before, **{f"src/{name}": data for name, data in before.items()}}
    summary = await rpq.recover_many("src/a.parquet", "src").finish()
    assert (summary.outcomes, all_files(tmp_path / "src")) == ({"error": 1}, before)
    store = MemoryStore()
    await store.put("src/a.parquet", files.sound[0])
    assert (await rpq.recover_many((store, "src/a.parquet"), (store, "")).finish()).outcomes == {"sound": 1}
    assert await store.exists("a.parquet")


async def test_a_file_that_is_named_twice_is_done_once(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("a.parquet", "b/c.parquet", "b/d.parquet.partial", "_e.parquet")
    for name in names:
        (tmp_path / "tree" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "tree" / name).write_bytes(files.sound[0])
    (tmp_path / "link").symlink_to(tmp_path / "tree" / "b")
    monkeypatch.chdir(tmp_path / "tree")
    here = str(tmp_path / "tree")

    async def found(*urls: Any) -> list[str]:
        results = rpq.check_many(list(urls))
        seen = [os.path.relpath(os.path.realpath(each.url), os.path.realpath(here)) async for each in results]
        assert results.summary.num_files == results.summary.num_found == len(seen)
        return sorted(seen)

    shown = sorted(names[:3])
    for urls in (
        ("./", here), (here, f"{here}/b/"), ("b/", "./"), ("**/*.parquet", here), (here, "b/../**/*.par*"),
        ("*.parquet", "./"),
        (*names[:3], "./"), ("./", *names[:3]), ("./", "b/*.partial"), ("b/d.parquet.partial", "./", "../link/"),
    ):  # fmt: skip
        assert await found(*urls) == shown, urls
    assert await found("a.parquet", f"{here}/a.parquet", "b/../a.parquet", "../link/../a.parquet") == ["a.parquet"]
    assert await found("../link/c.parquet", "b/c.parquet", "_e.parquet", "b/") == sorted(names[1:])
    store = MemoryStore()
    for name in names:
        await store.put(name, files.sound[0])
    both = [(store, "a.parquet"), (store, "a.parquet"), (MemoryStore(), "a.parquet")]
    assert (await rpq.check_many(both).finish()).num_files == 2


async def test_a_file_that_is_named_twice_is_recovered_once(files: Any, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(files.sound[0])
    (tmp_path / "b.parquet").write_bytes(files.sound[0])
    given = [tmp_path / "a.parquet", f"{tmp_path}/./a.parquet", tmp_path / "b.parquet", tmp_path / "a.parquet"]
    summary = await rpq.recover_many(given, tmp_path / "out").finish()
    assert summary.outcomes == {"sound": 2}
    assert set(all_files(tmp_path / "out")) == {"a.parquet", "b.parquet"}


async def test_existing_outputs_are_errors_of_their_files(files: Any, tmp_path: Path) -> None:
    files.write(tmp_path / "src", 5)
    assert (await rpq.recover_many(tmp_path / "src", tmp_path / "dst").finish()).exit_code == 1
    before = all_files(tmp_path / "dst")
    summary = await rpq.recover_many(tmp_path / "src", tmp_path / "dst").finish()
    assert summary.outcomes == {"error": 5} and summary.exit_code == 4
    assert all_files(tmp_path / "dst") == before
    summary = await rpq.recover_many(tmp_path / "src", tmp_path / "dst", overwrite=True).finish()
    assert summary.outcomes == {"partial": 1, "sound": 4}


async def test_a_partial_file_gets_the_name_that_it_was_to_have(files: Any, tmp_path: Path) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    src.mkdir()
    torn = files.ways["ours torn in the third row group"].data
    (src / "a.parquet.partial").write_bytes(torn)
    (src / "b.parquet.partial").write_bytes(torn)
    (src / "b.parquet").write_bytes(files.sound[0])
    results = {Path(each.url).name: each async for each in rpq.recover_many(src, dst)}
    assert {name: each.outcome for name, each in results.items()} == {
        "a.parquet.partial": "partial",
        "b.parquet": "sound",
        "b.parquet.partial": "error",
    }
    error = results["b.parquet.partial"].error
    assert error is not None and error.type == "RecoveryError" and str(dst / "b.parquet") in error.message
    assert {name: pq.read_metadata(dst / name).num_rows for name in all_files(dst)} == {
        "a.parquet": 200,
        "b.parquet": 400,
    }


async def test_files_of_a_list_lie_side_by_side(files: Any, tmp_path: Path) -> None:
    for name in ("a/x.parquet", "b/x.parquet", "b/y.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(files.sound[0])
    names = [tmp_path / "a/x.parquet", tmp_path / "b/x.parquet", tmp_path / "b/y.parquet"]
    summary = await rpq.recover_many(names, tmp_path / "out").finish()
    assert summary.outcomes == {"error": 1, "sound": 2}
    assert set(all_files(tmp_path / "out")) == {"x.parquet", "y.parquet"}


async def test_siblings_are_asked_in_the_own_folder_first(
    files: Any, tmp_path: Path, without_its_footer: Callable[[bytes], bytes]
) -> None:
    footless = without_its_footer(files.sound[1])
    for name, data in {
        "a/a.parquet": files.sound[1],
        "b/1/a.parquet": files.ways["no Parquet"].data,
        "b/1/b.parquet": footless,
        "b/2/z.parquet": files.sound[1],
        "c/z.parquet": files.sound[1],
    }.items():
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_bytes(data)
    pattern = f"{tmp_path}/src/**/b.parquet"  # what does not match is asked all the same
    (result,) = [each async for each in rpq.recover_many(pattern, tmp_path / "out")]
    assert result.report is not None and result.report.schema_from == str(tmp_path / "src/b/2/z.parquet")
    assert pq.read_metadata(tmp_path / "out/b/1/b.parquet").num_rows == 400
    options: dict[str, Any] = {"schema_from": tmp_path / "src/c/z.parquet"}
    (result,) = [each async for each in rpq.recover_many(pattern, tmp_path / "out2", **options)]
    assert result.report is not None and result.report.schema_from == str(tmp_path / "src/c/z.parquet")


# --- the journal ------------------------------------------------------------------------------------------------


def lines(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


async def test_a_run_goes_on_where_it_stopped(files: Any, tmp_path: Path) -> None:
    files.write(tmp_path / "src", 50)
    journal = tmp_path / "journal"
    whole = await rpq.recover_many(tmp_path / "src", tmp_path / "whole").finish()
    done = []
    async with rpq.recover_many(tmp_path / "src", tmp_path / "dst", resume=journal) as recovering:
        async for result in recovering:
            done.append(result.url)
            if len(done) == 20:
                break
    async with rpq.recover_many(tmp_path / "src", tmp_path / "dst", resume=journal) as recovering:
        others = [result.url async for result in recovering]
    assert not set(done) & set(others) and len({*done, *others}) == 50
    summary = recovering.summary
    assert summary.num_resumed == 20 and summary.num_files == summary.num_found == 50
    assert (summary.outcomes, summary.num_rows, summary.size) == (whole.outcomes, whole.num_rows, whole.size)
    assert [e.url for e in summary.worst] == [e.url for e in whole.worst]
    assert set(all_files(tmp_path / "dst")) == set(all_files(tmp_path / "whole"))
    again = await rpq.recover_many(tmp_path / "src", tmp_path / "dst", resume=journal).finish()
    assert again.num_resumed == 50 and again.outcomes == whole.outcomes


async def test_a_changed_file_is_done_again_and_an_error_is_tried_again(files: Any, tmp_path: Path) -> None:
    src, dst, journal = tmp_path / "src", tmp_path / "dst", tmp_path / "journal"
    files.write(src, 10)
    (dst / "day=000").mkdir(parents=True)
    stranger = dst / files.name_of(5)
    stranger.write_bytes(b"not ours")
    first = await rpq.recover_many(src, dst, resume=journal).finish()
    assert first.outcomes == {"error": 1, "partial": 1, "sound": 8} and stranger.read_bytes() == b"not ours"
    (src / files.name_of(3)).write_bytes(files.sound[1])
    second = await rpq.recover_many(src, dst, resume=journal).finish()
    assert second.outcomes == {"error": 1, "sound": 9} and second.num_resumed == 8
    assert (dst / files.name_of(3)).read_bytes() == files.sound[1] and stranger.read_bytes() == b"not ours"
    stranger.unlink()
    third = await rpq.recover_many(src, dst, resume=journal).finish()
    assert third.outcomes == {"sound": 10} and third.num_resumed == 9


async def test_what_is_not_written_is_no_obstacle_with_a_journal_either(files: Any, tmp_path: Path) -> None:
    files.write(tmp_path / "src", 3)
    (tmp_path / "dst/day=000").mkdir(parents=True)
    (tmp_path / "dst" / files.name_of(1)).write_bytes(b"not ours")
    for journal in (None, tmp_path / "journal"):
        run = rpq.recover_many(tmp_path / "src", tmp_path / "dst", only_damaged=True, resume=journal)
        assert (await run.finish()).outcomes == {"sound": 3}


async def test_columns_apart_go_into_a_new_folder_and_replace_nothing_of_others(files: Any, tmp_path: Path) -> None:
    src, journal = tmp_path / "src", tmp_path / "journal"
    src.mkdir()
    (src / "part.parquet").write_bytes(files.ways["ours with a hole"].data)

    async def outcomes() -> dict[str, int]:
        run = rpq.recover_many(src, tmp_path / "dst", on_damage="columns", resume=journal)
        return dict((await run.finish()).outcomes)

    stranger = tmp_path / "dst/part.id.parquet"
    stranger.parent.mkdir()
    stranger.write_bytes(b"not ours")
    for _ in range(2):
        assert await outcomes() == {"error": 1} and all_files(tmp_path / "dst") == {"part.id.parquet": b"not ours"}
    stranger.unlink()
    stranger.parent.rmdir()
    assert await outcomes() == {"partial": 1}
    assert set(all_files(tmp_path / "dst")) == {"part.id.parquet", "part.name.parquet"}
    (src / "part.parquet").write_bytes(files.ways["ours with a bad page"].data)
    assert await outcomes() == {"partial": 1}, "its own outputs are no obstacle"


async def test_a_torn_line_and_one_that_is_no_line(files: Any, tmp_path: Path) -> None:
    files.write(tmp_path / "src", 10)
    journal = tmp_path / "journal"
    await rpq.check_many(tmp_path / "src", resume=journal).finish()
    whole = journal.read_bytes().splitlines(keepends=True)
    assert len(whole) == 11
    journal.write_bytes(b"".join(whole[:5]) + b"\x00\xff\n" + b"[1]\n" + whole[5] + whole[6][:-20])
    summary = await rpq.check_many(tmp_path / "src", resume=journal).finish()
    assert (summary.num_files, summary.num_resumed) == (10, 5)
    assert all(line.endswith(b"\n") for line in journal.read_bytes().splitlines(keepends=True))
    assert (await rpq.check_many(tmp_path / "src", resume=journal).finish()).num_resumed == 10
    journal.write_bytes(whole[0][:-9])  # killed while it was begun
    assert (await rpq.check_many(tmp_path / "src", resume=journal).finish()).num_resumed == 0
    assert len(lines(journal)) == 11


async def test_a_journal_of_another_run_is_refused(files: Any, tmp_path: Path) -> None:
    files.write(tmp_path / "src", 3)
    journal = tmp_path / "journal"
    await rpq.check_many(tmp_path / "src", resume=journal).finish()
    before = journal.read_bytes()
    with pytest.raises(rpq.RecoveryError, match="another source"):
        await rpq.check_many(f"{tmp_path}/src/*/*.parquet", resume=journal).finish()
    with pytest.raises(rpq.RecoveryError, match=r"another .*output.*verb"):
        await rpq.recover_many(tmp_path / "src", tmp_path / "dst", resume=journal).finish()
    strangers = (b"a file of somebody\n", b'{"format": 1}\n', b"\x00\n", b"[]\n", b'{"a": "file of one line"}', b"PAR1")
    for content in strangers:
        journal.write_bytes(content)
        with pytest.raises(rpq.RecoveryError, match="no journal"):
            await rpq.check_many(tmp_path / "src", resume=journal).finish()
        assert journal.read_bytes() == content
    journal.write_bytes(before)
    async with rpq.check_many(tmp_path / "src", resume=journal) as first:
        (tmp_path / "src/new.parquet").write_bytes(files.sound[0])
        await anext(first)
        with pytest.raises(rpq.AlreadyExistsError, match="another run"):
            await rpq.check_many(tmp_path / "src", resume=journal).finish()
    assert not (tmp_path / "dst").exists()
    with pytest.raises(rpq.NotFoundError):
        await rpq.check_many(tmp_path / "src", resume=tmp_path / "no" / "journal").finish()


async def test_names_that_mean_other_files_elsewhere_are_of_another_run(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for here in ("one", "two"):
        files.write(tmp_path / here / "src", 2)
    precious = tmp_path / "two/dst" / files.name_of(1)
    precious.parent.mkdir(parents=True)
    precious.write_bytes(b"not ours")
    for _ in range(2):
        monkeypatch.chdir(tmp_path / "one")
        await rpq.recover_many("src", "dst", resume=tmp_path / "journal").finish()
        monkeypatch.chdir(tmp_path / "two")
        with pytest.raises(rpq.RecoveryError, match="another current folder"):
            await rpq.recover_many("src", "dst", resume=tmp_path / "journal").finish()
    assert precious.read_bytes() == b"not ours"


async def test_a_line_that_the_disk_had_no_room_for_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        """A file on a disk that has room for a few bytes more."""

        def __init__(self, file: Any) -> None:
            self._file, self._room = file, 9

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, data: bytes) -> int:
            if not self._room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written, self._room = self._file.write(data[: self._room]), 0
            return written

    with Journal(tmp_path / "journal", {"verb": "recover"}) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(journal, "_file", Full(journal._file))
            with pytest.raises(rpq.StoreError, match="No space left"):
                journal.begin("a.parquet", None)
        journal.begin("b.parquet", None)
    with Journal(tmp_path / "journal", {"verb": "recover"}) as journal:
        assert journal.remembered("a.parquet") is None
        assert journal.remembered("b.parquet") is not None


async def test_entries_that_lie_are_not_believed(files: Any, tmp_path: Path) -> None:
    files.write(tmp_path / "src", 3)
    journal = tmp_path / "journal"
    await rpq.check_many(tmp_path / "src", resume=journal).finish()
    header, *others = lines(journal)
    for change in ({"num_rows": "many"}, {"outcome": 3}, {"size": None}, {"url": 7}):
        broken = [{**line, "entry": {**line["entry"], **change}} for line in others]
        broken += [{"url": line["url"], "version": line["version"], "entry": []} for line in others[:1]]
        journal.write_text("".join(json.dumps(line) + "\n" for line in [header, *broken]))
        summary = await rpq.check_many(tmp_path / "src", resume=journal).finish()
        assert summary.outcomes == {"sound": 3}, change
