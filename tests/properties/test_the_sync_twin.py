"""`resilient_pq.sync` has the same names, the same signatures and the same errors, blocking."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import resilient_pq as rpq
from resilient_pq import sync as blocking_names
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.loop_portal import portal
from resilient_pq.reader.file import File
from resilient_pq.writer.file_writer import Writer

#: Without types, for the tests that look members up by their names.
sync: Any = blocking_names
#: What waits for nothing is the same in both.
PURE = {"schema_from_arrow", "schema_to_arrow"}
FUNCTIONS = [name for name in rpq.__all__ if inspect.isfunction(getattr(rpq, name)) and name not in PURE]


def test_the_same_names() -> None:
    assert sync.__all__ == rpq.__all__
    assert {"create", "open", "check", "recover"} <= set(FUNCTIONS)
    assert all(getattr(sync, name) is getattr(rpq, name) for name in PURE)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_signatures_and_documentation(name: str) -> None:
    ours, theirs = getattr(sync, name), getattr(rpq, name)
    assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters
    said = theirs.__doc__.replace("async with", "with").replace("async for", "for").replace("await ", "")
    assert ours.__doc__ == said and (ours is not theirs or name == "scan")  # which waits for nothing


def test_all_but_files_and_writers_is_the_same_object() -> None:
    files_and_writers = {"Batches", "Dataset", "DatasetWriter", "File", "FileResults", "TrevniFile", "Writer"}
    for name in set(rpq.__all__) - set(FUNCTIONS):
        if name in files_and_writers:
            assert getattr(sync, name).__name__.endswith(name.removeprefix("File"))
            assert not issubclass(getattr(sync, name), getattr(rpq, name))
            continue
        assert getattr(sync, name) is getattr(rpq, name), name


USER = """
from typing import assert_type
from resilient_pq import sync as rpq

with rpq.create("f.parquet", options=rpq.WriteOptions()) as writer:
    writer.write({"a": [1]})
with rpq.open("f.parquet") as file:
    for batch in file.batches():
        print(batch.num_rows)
    file.__arrow_c_stream__()
with rpq.open_many(["f.parquet"], on_damage="drop") as dataset:
    dataset.__arrow_c_schema__()
assert_type(rpq.check("f.parquet"), rpq.Report)
assert_type(rpq.write_metadata("folder"), rpq.WrittenMetadata)
assert_type(rpq.list_uploads("s3://bucket"), list[rpq.Upload])
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "Success"),
        ('rpq.open("f.parquet", verfy=True)', 'keyword argument "verfy"'),
        ('rpq.create("f.parquet", row_group_rows="3")', 'incompatible type "str"; expected "int | None"'),
        ('rpq.resume("f.parquet", metadata={})', 'keyword argument "metadata"'),
    ],
)
def test_a_script_that_is_checked_strictly(tmp_path: Path, more: str, said: str) -> None:
    api = pytest.importorskip("mypy.api")
    script = tmp_path / "script.py"
    script.write_text(USER + more)
    out, err, status = api.run(["--strict", f"--cache-dir={tmp_path}", "--config-file=", str(script)])
    assert (status == 0, err) == (not more, ""), out
    assert said in out


def test_methods_and_properties_of_writers_and_files(tmp_path: Path) -> None:
    with sync.create(tmp_path / "f.parquet") as writer:
        _assert_same_members(writer, Writer)
        writer.write({"a": [1]})
    with sync.open(tmp_path / "f.parquet") as file:
        _assert_same_members(file, File)


def _assert_same_members(blocking: Any, kind: type) -> None:
    for name, member in inspect.getmembers(kind):
        if name.startswith("_"):
            continue
        found = getattr(blocking, name)
        if inspect.isfunction(member):
            assert callable(found) and not inspect.iscoroutinefunction(inspect.unwrap(found).__class__)
            expected = [each for each in inspect.signature(member).parameters if each != "self"]
            assert list(inspect.signature(found).parameters) == expected, name
        else:
            assert not inspect.isawaitable(found), name
    assert set(dir(blocking)) >= {name for name in dir(kind) if not name.startswith("_")}


def test_a_whole_life(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    with sync.create(path, row_group_rows=3) as writer:
        writer.write({"a": range(10)})
        checkpoint = writer.checkpoint()
        assert (checkpoint.num_rows, writer.num_rows, writer.last_checkpoint) == (10, 10, checkpoint)
    with sync.open(path) as file:
        assert pa.table(file.read(columns=["a"], row_groups=[1])).to_pydict() == {"a": [3, 4, 5]}
        batches = file.batches(2)
        assert isinstance(batches, Iterator)
        assert [batch.num_rows for batch in batches] == [2, 1, 2, 1, 2, 1, 1]
        assert (file.num_rows, file.state) == (10, "complete")
        assert list(file.records(filters=[("a", ">", 7)], limit=1)) == [{"a": 8}]
        assert file.statistics(0, "a").max == 2 and file.offset_index(0, 0).page_locations[0].first_row_index == 0
    assert sync.check(path).outcome == "sound"
    with sync.create_or_resume(tmp_path / "g.parquet") as writer:
        writer.write({"a": range(5)})
    with sync.open_many(tmp_path) as dataset:
        assert [row["a"] for row in dataset.records(filters=[("a", "in", [4, 9])])] == [4, 9, 4]


def test_leaving_the_batches_early_ends_what_runs(tmp_path: Path) -> None:
    with sync.create(tmp_path / "f.parquet", row_group_rows=3) as writer:
        writer.write({"a": range(30)})
    with sync.open(tmp_path / "f.parquet") as file:
        for batch in file.batches(1):
            assert batch.num_rows == 1
            break
        portal.wait_for_ends()
        loop = portal._running()
        left = asyncio.run_coroutine_threadsafe(_others(), loop).result()
    assert not left


async def _others() -> set[Any]:
    return asyncio.all_tasks() - {asyncio.current_task()}


def test_iterators_that_are_left_when_the_interpreter_ends(tmp_path: Path) -> None:
    """Whatever holds them by then: nobody runs the loop any more that they would wait for."""
    with sync.create(tmp_path / "f.parquet", row_group_rows=3) as writer:
        writer.write({"a": range(30)})
    program = """if True:
        import builtins, sys
        import pyarrow
        from resilient_pq import sync
        file = sync.open(sys.argv[1])
        for name in ("one", "other"):
            batches = file.batches(1)
            next(batches)
            setattr(builtins, name, [batches])
            getattr(builtins, name).append(getattr(builtins, name))
        global_one = file.batches(1)
        next(global_one)
        stream = pyarrow.RecordBatchReader.from_stream(file.batches(1))
        stream.read_next_batch()
    """
    command = [sys.executable, "-c", program, tmp_path / "f.parquet"]
    done = subprocess.run(command, timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_same_errors(tmp_path: Path) -> None:
    with pytest.raises(rpq.NotFoundError):
        sync.open(tmp_path / "missing.parquet")
    with pytest.raises(rpq.SchemaError, match="row_group_rows is 0"):
        sync.create(tmp_path / "f.parquet", row_group_rows=0)
    _fail_in_the_block(tmp_path / "f.parquet")
    assert not (tmp_path / "f.parquet").exists()


def _fail_in_the_block(path: Path) -> None:
    def block() -> None:
        with sync.create(path) as writer:
            writer.write({"a": [1]})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()


def test_inside_a_running_loop(tmp_path: Path) -> None:
    """As in a notebook."""

    async def cell() -> Any:
        with sync.create(tmp_path / "f.parquet") as writer:
            writer.write({"a": [1, 2]})
        with sync.open(tmp_path / "f.parquet") as file:
            return file.read().to_pydict()

    assert asyncio.run(cell()) == {"a": [1, 2]}


def test_from_many_threads(tmp_path: Path) -> None:
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        path = tmp_path / f"{number}.parquet"
        with sync.create(path) as writer:
            writer.write({"a": [number] * 5})
        with sync.open(path) as file:
            found[number] = file.read().to_pydict()["a"]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [number] * 5 for number in range(8)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_in_a_process_forked_after_the_first_use(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    with sync.create(path) as writer:
        writer.write({"a": [1, 2]})
    child = os.fork()
    if not child:
        signal.alarm(10)
        with sync.open(path) as file:
            os._exit(0 if file.read().to_pydict() == {"a": [1, 2]} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with sync.open(path) as file:
        assert file.num_rows == 2


def test_a_store_of_the_caller() -> None:
    store = MemoryStore()
    with sync.create((store, "file")) as writer:
        writer.write([{"a": 1}])
    with sync.open((store, "file")) as file:
        assert file.read().to_pylist() == [{"a": 1}]
