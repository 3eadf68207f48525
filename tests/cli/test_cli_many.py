"""Folders, prefixes and patterns from a shell: the table, the lines of JSON, the exit status, and single files as ever."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from resilient_pq.bulk.file_task import FileTask, run_here
from resilient_pq.cli import check_verb, many_verbs
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.errors import StoreError

Run = Callable[..., Any]


def documents(ended: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ended.out.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, sound: Path, torn: Path, flipped: Path, stub: Path) -> Path:
    """Seven files in two folders: three sound, one torn, one changed, one that is nothing, and one with an odd name."""
    top = tmp_path / "data"
    for name, source in {
        "a/1.parquet": sound,
        "a/2.parquet": torn,
        "a/3.parquet": sound,
        "b/1.parquet": flipped,
        "b/2.parquet.partial": stub,
        "b/[1].parquet": sound,
        "b/notes.txt": stub,
    }.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, top / name)
    return top


def test_a_folder_is_checked_worst_first(rpq_run: Run, folder: Path) -> None:
    ended = rpq_run("check", folder)
    assert (ended.code, ended.err) == (ExitCode.NOTHING, "")
    header, *rows = [line.split() for line in ended.out.split("\n\n")[0].splitlines()]
    assert header[:3] == ["outcome", "rows", "lost"]
    assert [row[0] for row in rows] == ["nothing", "damaged", "damaged"]
    assert rows[0][2] == f"{folder}/b/2.parquet.partial:"
    (counted,) = ended.words("files")
    assert counted.endswith(": 1 unrecoverable, 2 damaged, 3 sound") and counted.startswith("6 files, ")
    assert ended.words("rows") == ["4,250 can be read"]
    program, *arguments = shlex.split(ended.words("next")[0])
    assert (program, arguments) == ("rpq", ["recover", str(folder), f"{folder}.recovered", "--only-damaged"])

    recovered = rpq_run(*arguments)
    assert recovered.code == ExitCode.NOTHING and recovered.words("rows") == ["4,250 are left"]
    written = sorted(
        path.relative_to(f"{folder}.recovered").as_posix() for path in Path(f"{folder}.recovered").rglob("*.*")
    )
    assert written == ["a/2.parquet", "b/1.parquet"]
    following = shlex.split(recovered.words("next")[0])
    assert following == ["rpq", "check", f"{folder}.recovered/"]
    assert rpq_run(*following[1:]).code == ExitCode.DAMAGE, "they say that they are what is left"


@pytest.mark.parametrize("url", [".", "..", "../..", "a/..", "a[b]", "*.parquet"])
def test_the_command_to_run_next_writes_beside_the_folder(
    rpq_run: Run, flipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    top = tmp_path / "x/y/z"
    (top / "a").mkdir(parents=True)
    monkeypatch.chdir(top)
    (top / "a[b]").mkdir()
    shutil.copy(flipped, top / url.replace("*.parquet", "") / "1.parquet")
    ended = rpq_run("check", url)
    assert ended.code == ExitCode.DAMAGE
    recovered = rpq_run(*shlex.split(ended.words("next")[0])[1:])
    assert recovered.code == ExitCode.DAMAGE and recovered.words("rows") == ["750 are left"]


def test_of_a_bucket_the_next_command_writes_to_a_folder() -> None:
    for url in ("s3://bucket", "s3://bucket/", "s3://bucket/**/*.parquet"):
        assert check_verb.recovery_command(url) == ("rpq", "recover", url, "bucket.recovered", "--only-damaged")
    assert check_verb.recovery_command("s3://bucket/events/*.parquet")[3] == "s3://bucket/events.recovered"


def test_a_document_for_each_file_and_one_of_all(rpq_run: Run, folder: Path) -> None:
    ended = rpq_run("check", folder, "--json", "--endpoint-url", "http://localhost:1")
    *each, summary = documents(ended)
    assert ended.code == ExitCode.NOTHING and len(each) == 6
    for document in each:
        single = rpq_run("check", document["url"], "--json", "--endpoint-url", "http://localhost:1")
        assert document == single.document, "as of one file"
    assert (summary["verb"], summary["outcome"], summary["files"], summary["url"]) == (
        "check",
        "nothing",
        6,
        str(folder),
    )
    assert summary["outcomes"] == {"damaged": 2, "nothing": 1, "sound": 3}
    assert [entry["outcome"] for entry in summary["worst"]] == ["nothing", "damaged", "damaged"]
    assert summary["next"] == [
        ["rpq", "recover", str(folder), f"{folder}.recovered", "--only-damaged", "--endpoint-url", "http://localhost:1"]
    ]


def test_sound_files_say_so_in_a_line(rpq_run: Run, folder: Path) -> None:
    ended = rpq_run("check", f"{folder}/a/[13].parquet")
    assert ended.code == 0 and len(ended.out.splitlines()) == 2 and ended.words("next") == []
    assert ended.words("files")[0].startswith("2 files, ") and ended.words("files")[0].endswith(": 2 sound")


def test_patterns_lists_and_files_with_odd_names(rpq_run: Run, folder: Path, tmp_path: Path) -> None:
    assert rpq_run("check", f"{folder}/**/1.parquet").words("files")[0].startswith("2 files")
    odd = rpq_run("check", folder / "b" / "[1].parquet")
    assert odd.code == 0 and odd.words("sound") and not odd.words("files")
    several = rpq_run("check", folder / "a" / "1.parquet", folder / "b" / "[1].parquet", f"{folder}/a")
    assert several.words("files")[0].startswith("4 files") and several.words("next") == []
    none = rpq_run("check", f"{folder}/**/*.none", "--json")
    assert none.code == ExitCode.STORE and documents(none)[-1]["error"]["type"] == "NotFoundError"
    missing = rpq_run("check", tmp_path / "missing.parquet", "--json")
    assert missing.code == ExitCode.STORE and missing.document["error"]["where"]["key"].endswith("missing.parquet")


def test_a_folder_is_recovered_with_its_tree(rpq_run: Run, folder: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    command = ("recover", f"{folder}/", tmp_path / "out", "--resume", journal)
    ended = rpq_run(*command)
    assert ended.code == ExitCode.NOTHING
    rows = {
        p.relative_to(tmp_path / "out").as_posix(): pq.read_metadata(p).num_rows
        for p in (tmp_path / "out").rglob("*.parquet")
    }
    assert rows == {
        "a/1.parquet": 1000,
        "a/2.parquet": 500,
        "a/3.parquet": 1000,
        "b/1.parquet": 750,
        "b/[1].parquet": 1000,
    }
    assert (tmp_path / "out/a/1.parquet").read_bytes() == (folder / "a/1.parquet").read_bytes()
    assert "plus an unknown number in" in ended.words("lost")[0]
    again = rpq_run(*command)
    assert again.code == ExitCode.NOTHING and again.words("resumed") == ["6 files were done in an earlier run"]
    assert again.words("files") == ended.words("files")
    refused = rpq_run("check", folder, "--resume", journal)
    assert refused.code == ExitCode.USAGE and "another" in refused.err
    existing = rpq_run("recover", folder, tmp_path / "out")
    assert existing.code == ExitCode.STORE and "with an error" in existing.words("files")[0]
    assert rpq_run("recover", folder, folder / "out").code == ExitCode.USAGE
    assert rpq_run("recover", folder, tmp_path / "o", "--html", tmp_path / "page.html").code == ExitCode.USAGE
    assert rpq_run("recover", folder / "a/2.parquet", tmp_path / "single.parquet").words("kept"), "as ever"


def test_a_folder_is_inspected(rpq_run: Run, folder: Path) -> None:
    ended = rpq_run("inspect", folder)
    assert ended.code == ExitCode.DAMAGE
    (schemas,) = ended.words("schemas")  # it is called after the file that was read first
    assert schemas.startswith(f"as {folder}/") and schemas.endswith(".parquet: 4 files")
    assert ended.words("state") == ["complete: 4 files"]
    assert ended.words("files")[0].endswith(": 2 with an error, 4 read")
    *each, summary = documents(rpq_run("inspect", folder, "--row-groups", "--json"))
    read = [document for document in each if document["outcome"] == "read"]
    assert len(read) == 4 and all(len(document["row_group_list"]) == 4 for document in read)
    assert read[0] == rpq_run("inspect", read[0]["url"], "--row-groups", "--json").document
    assert summary["schemas"][0]["files"] == 4 and summary["rows"] == 4000
    assert rpq_run("inspect", folder, "--row-groups").code == ExitCode.USAGE


def test_a_run_that_ends_early_tells_what_it_found(rpq_run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    async def ending(task: FileTask) -> Any:
        if len(done) == 2:
            raise error
        done.append(task.url)
        return await run_here(task)

    monkeypatch.setattr(many_verbs, "run_here", ending)
    ends = {ExitCode.STORE: StoreError("the bucket is gone"), ExitCode.INTERRUPTED: asyncio.CancelledError()}
    for code, error in ends.items():  # noqa: B007 (it is raised above)
        done.clear()
        ended = rpq_run("check", folder, "--max-files", "1")
        assert ended.code == code
        (counted,) = ended.words("files")
        assert counted.startswith("2 files, ")


def test_a_long_table_is_cut(rpq_run: Run, tmp_path: Path, stub: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(25):
        shutil.copy(stub, tmp_path / "many" / f"{number:02}\x1b[31m.parquet")
    ended = rpq_run("check", tmp_path / "many")
    assert "and 5 more, which --json lists" in ended.out and "\x1b" not in ended.out
    assert len(documents(rpq_run("check", tmp_path / "many", "--json"))) == 26


@pytest.fixture
def s3_server(moto_server: Any) -> Any:
    """What is printed does not depend on the server; tests of the library run on both."""
    return moto_server


def test_a_prefix_on_s3(rpq_run: Run, s3: Any, sound: Path, torn: Path) -> None:
    for name in ("day/1.parquet", "day/2.parquet"):
        s3.client.put_object(Bucket=s3.bucket, Key=name, Body=sound.read_bytes())
    s3.client.put_object(Bucket=s3.bucket, Key="day/3.parquet", Body=torn.read_bytes())
    reached = ("--endpoint-url", s3.endpoint_url)
    for url in (s3.url("day"), s3.url("day/"), s3.url("d*/**"), f"s3://{s3.bucket}/"):
        ended = rpq_run("check", url, *reached)
        assert ended.code == ExitCode.DAMAGE and ended.words("files")[0].startswith("3 files"), url
    program, *arguments = shlex.split(rpq_run("check", s3.url("day/"), *reached).words("next")[0])
    assert program == "rpq" and arguments[2] == s3.url("day.recovered")
    assert rpq_run(*arguments).code == ExitCode.DAMAGE
    assert rpq_run("check", s3.url("day/1.parquet"), *reached).words("sound")
    missing = rpq_run("check", s3.url("none"), *reached)
    assert missing.code == ExitCode.STORE and "none" in missing.err
