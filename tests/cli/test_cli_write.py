"""`rpq write`: rows from files of other forms, and from pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

import resilient_pq
from resilient_pq import sync as rpq
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.input import text_readers

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    count = 3000
    return pa.table(
        {
            "number": pa.array([None if i % 7 == 0 else i for i in range(count)], pa.int64()),
            "share": pa.array([i / 4 for i in range(count)]),
            "text": pa.array([f"grüße {i % 100}" for i in range(count)]),
        }
    )


def _stream(table: pa.Table, path: Path, **options: Any) -> None:
    with pyarrow.ipc.new_stream(path, table.schema, options=pyarrow.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=500)


def _file(table: pa.Table, path: Path) -> None:
    with pyarrow.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=500)


def _encoded(table: pa.Table) -> pa.Table:
    return table.set_column(2, "text", table["text"].dictionary_encode())


FORMS: dict[str, Callable[[pa.Table, Path], object]] = {
    "a.csv": pyarrow.csv.write_csv,
    "a.jsonl": lambda table, path: polars.from_arrow(table).write_ndjson(path),
    "b.ndjson": lambda table, path: polars.from_arrow(table).write_ndjson(path),
    "a.parquet": pyarrow.parquet.write_table,
    "a.arrow": _file,
    "stream.arrow": _stream,
    "a.arrows": lambda table, path: _stream(table, path, compression="zstd"),
    "dictionary.arrows": lambda table, path: _stream(_encoded(table), path, compression="lz4"),
    "a.feather": pyarrow.feather.write_feather,
    "polars.arrow": lambda table, path: polars.from_arrow(table).write_ipc(path),
    "polars.arrows": lambda table, path: polars.from_arrow(table).write_ipc_stream(path),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form(name: str, rpq_run: Run, table: pa.Table, tmp_path: Path) -> None:
    source, written = tmp_path / name, tmp_path / "written.parquet"
    FORMS[name](table, source)
    ended = rpq_run("write", source, written, "--row-group-rows", 1000, "--checkpoint-every", 1)
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")
    assert "3,000 rows in 3 row groups" in ended.words("written")[0]
    assert ended.words("next") == [f"rpq check {written}"]
    assert pyarrow.parquet.read_table(written).cast(table.schema).equals(table)


@pytest.mark.parametrize("name", ["a.arrows", "a.jsonl", "dictionary.arrows", "polars.arrows", "a.arrow"])
def test_stdin(name: str, rpq_run: Run, table: pa.Table, tmp_path: Path) -> None:
    source, written = tmp_path / name, tmp_path / "written.parquet"
    FORMS[name](table, source)
    ended = rpq_run("write", "-", written, "--json", stdin=source.read_bytes())
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")
    found = ended.document
    assert (found["verb"], found["outcome"], found["rows"]) == ("write", "written", 3000)
    assert found["size"] == written.stat().st_size
    assert found["next"] == [["rpq", "check", str(written)]]
    assert pyarrow.parquet.read_table(written).cast(table.schema).equals(table)


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet"])
def test_stdin_of_a_form_that_is_named(form: str, rpq_run: Run, tmp_path: Path) -> None:
    source, written = tmp_path / "a", tmp_path / "written.parquet"
    rows = pa.table({"zip": ["03324"], "n": [1]})
    if form == "parquet":
        pyarrow.parquet.write_table(rows, source)
    else:
        source.write_text("zip,n\n03324,1\n".replace(",", "\t" if form == "tsv" else ","))
    ended = rpq_run("write", "-", written, "--format", form, stdin=source.read_bytes())
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")
    assert pyarrow.parquet.read_table(written).equals(rows)


def test_settings_reach_the_file(rpq_run: Run, table: pa.Table, tmp_path: Path) -> None:
    source, written = tmp_path / "a.csv", tmp_path / "written.parquet"
    pyarrow.csv.write_csv(table, source)
    ended = rpq_run(
        "write", source, written, "--compression", "gzip", "--compression-level", 9, "--row-group-rows", 500,
        "--row-group-bytes", "1GiB", "--page-bytes", "1K", "--checkpoint-every", 2, "--checkpoint-overhead", 1,
    )  # fmt: skip
    assert ended.code == ExitCode.SOUND
    metadata = pyarrow.parquet.read_metadata(written)
    assert metadata.num_row_groups == 6
    assert metadata.row_group(0).column(0).compression == "GZIP"
    with rpq.open(written) as file:
        assert len(file.checkpoints) == 3
    pages = rpq_run("inspect", written, "--pages", "share", "--json").document["pages"]
    assert len(pages) > 6


def test_compression_by_column(rpq_run: Run, tmp_path: Path, table: pa.Table) -> None:
    source, written = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pyarrow.parquet.write_table(table, source)
    asked = ["--compression", "text=none,share=gzip", "--compression-level", "number=9"]
    assert rpq_run("write", source, written, *asked).code == 0
    row_group = pyarrow.parquet.read_metadata(written).row_group(0)
    assert [row_group.column(i).compression for i in range(3)] == ["ZSTD", "GZIP", "UNCOMPRESSED"]


def test_no_checkpoints(rpq_run: Run, table: pa.Table, tmp_path: Path) -> None:
    source, written = tmp_path / "a.csv", tmp_path / "written.parquet"
    pyarrow.csv.write_csv(table, source)
    assert rpq_run("write", source, written, "--row-group-rows", 100, "--checkpoint-every", 0).code == 0
    with rpq.open(written) as file:
        assert file.checkpoints == ()


def test_metadata_of_a_parquet_file_is_kept(rpq_run: Run, sound: Path, table: pa.Table, tmp_path: Path) -> None:
    source, written = tmp_path / "a.parquet", tmp_path / "written.parquet"
    pyarrow.parquet.write_table(table.replace_schema_metadata({"unit": "miles"}), source)
    assert rpq_run("write", source, written).code == ExitCode.SOUND
    assert pyarrow.parquet.read_metadata(written).metadata[b"unit"] == b"miles"
    assert rpq_run("write", sound, written).code == ExitCode.SOUND
    with rpq.open(sound) as one, rpq.open(written) as other:
        assert one.key_value_metadata["rpq.file_id"] != other.key_value_metadata["rpq.file_id"]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.arrow", "a.arrows"])
def test_no_rows_but_a_schema(name: str, rpq_run: Run, table: pa.Table, tmp_path: Path) -> None:
    source, written = tmp_path / name, tmp_path / "written.parquet"
    FORMS[name](table.slice(0, 0), source)
    assert rpq_run("write", source, written).code == ExitCode.SOUND
    found = pyarrow.parquet.read_table(written)
    assert (found.num_rows, found.column_names) == (0, table.column_names)


@pytest.mark.parametrize("mode", ["w", "x"])
def test_mode(mode: str, rpq_run: Run, table: pa.Table, tmp_path: Path) -> None:
    source, written = tmp_path / "a.parquet", tmp_path / "written.parquet"
    pyarrow.parquet.write_table(table, source)
    written.write_text("precious")
    ended = rpq_run("write", source, written, "--mode", mode)
    if mode == "w":
        assert ended.code == ExitCode.SOUND
        assert pyarrow.parquet.read_metadata(written).num_rows == 3000
    else:
        assert (ended.code, ended.out) == (ExitCode.STORE, "")
        assert written.read_text() == "precious"


def test_what_a_killed_writer_left_is_replaced_only_when_asked(rpq_run: Run, table: pa.Table, tmp_path: Path) -> None:
    source, written = tmp_path / "a.parquet", tmp_path / "written.parquet"
    pyarrow.parquet.write_table(table, source)
    partial = tmp_path / "written.parquet.partial"
    partial.write_bytes(b"rows")
    ended = rpq_run("write", source, written)
    assert (ended.code, ended.out) == (ExitCode.STORE, "")
    assert "hint" in ended.err
    assert partial.read_bytes() == b"rows"
    assert rpq_run("write", source, written, "--overwrite-partial").code == ExitCode.SOUND
    assert not partial.exists()


class TestRefused:
    """What cannot be written is refused with a reason, and publishes nothing."""

    @pytest.fixture(autouse=True)
    def _nothing_published(self, tmp_path: Path) -> Any:
        yield
        assert not (tmp_path / "written.parquet").exists()

    @pytest.mark.parametrize(
        ("name", "content", "code", "words"),
        [
            ("a.csv", b"", ExitCode.DAMAGE, "Empty CSV file"),
            ("a.csv", b"a,b\n1,2\n3\n", ExitCode.DAMAGE, "Expected 2 columns, got 1"),
            ("a.jsonl", b"", ExitCode.USAGE, "no schema"),
            ("a.jsonl", b'{"a": 1}\n{"a": \n', ExitCode.DAMAGE, "row 2: it is not JSON"),
            (
                "a.jsonl",
                b'{"a": 1}\n{"a": "x"}\n',
                ExitCode.DAMAGE,
                "row 2: column 'a' is double, by its first values, and 'x' is not",
            ),
            ("a.arrow", b"", ExitCode.DAMAGE, "no Arrow IPC stream"),
            ("a.arrow", b"not an arrow stream", ExitCode.DAMAGE, "no Arrow IPC stream"),
            (
                "a.arrow",
                b"\xff\xff\xff\xff\xff\xff\xff\x7f",
                ExitCode.DAMAGE,
                "cannot have 2,147,483,647 bytes",
            ),
            ("a.arrow", b"\xff\xff\xff\xff\x00\x01\x00\x00abc", ExitCode.DAMAGE, "ends within its schema"),
            ("a.arrow", b"ARROW1\0\0" + bytes(100), ExitCode.DAMAGE, "a.arrow"),
            ("a.parquet", b"PAR1 and nothing more", ExitCode.DAMAGE, "footer"),
            ("a.txt", b"words", ExitCode.USAGE, "cannot tell the format from the extension"),
        ],
    )
    def test_bad_input(self, name: str, content: bytes, code: int, words: str, rpq_run: Run, tmp_path: Path) -> None:
        (tmp_path / name).write_bytes(content)
        ended = rpq_run("write", tmp_path / name, tmp_path / "written.parquet")
        assert (ended.code, ended.out) == (code, "")
        assert ended.err.startswith("error       ")
        assert words in ended.err
        assert "Traceback" not in ended.err

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "nothing came"),
            (b"a,b\n1,2\n", "neither an Arrow IPC stream nor JSON lines"),
            (b"PAR1....", "PAR1"),
        ],
    )
    def test_bad_stdin(self, content: bytes, words: str, rpq_run: Run, tmp_path: Path) -> None:
        ended = rpq_run("write", "-", tmp_path / "written.parquet", stdin=content)
        assert (ended.code, ended.out) == (ExitCode.DAMAGE, "")
        assert words in ended.err

    def test_a_stream_that_is_cut(self, rpq_run: Run, table: pa.Table, tmp_path: Path) -> None:
        source = tmp_path / "cut.arrows"
        _stream(table, source)
        source.write_bytes(source.read_bytes()[:-5000])
        ended = rpq_run("write", source, tmp_path / "written.parquet")
        assert (ended.code, ended.out) == (ExitCode.DAMAGE, "")
        assert "cut.arrows" in ended.err

    def test_types_that_change_after_the_first_block(
        self, rpq_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from resilient_pq.cli import write_verb
        from resilient_pq.cli.input.input_rows import open_rows

        monkeypatch.setattr(write_verb, "open_rows", lambda src, **rest: open_rows(src, **rest, block_bytes=100))
        numbers = "\n".join(str(i) for i in range(1000))
        for name, text, words in (
            (
                "a.csv",
                f"number\n{numbers}\nword\n",
                "row 1,001: column 'number' is int64, by its first values, and 'word'",
            ),
            (
                "a.jsonl",
                "".join(f'{{"number": {i}}}\n' for i in range(1000)) + '{"number": "word"}\n',
                "row 1,001: column 'number' is int64, by its first values, and 'word'",
            ),
            (
                "b.jsonl",
                "".join(f'{{"number": {i}}}\n' for i in range(1000)) + '{"other": 1}\n',
                "row 1,001: there was no column 'other' in the first rows",
            ),
        ):
            (tmp_path / name).write_text(text)
            ended = rpq_run("write", tmp_path / name, tmp_path / "written.parquet")
            assert (ended.code, ended.out) == (ExitCode.DAMAGE, "")
            assert words in " ".join(ended.err.split()) and "--types" in ended.err

    @pytest.mark.parametrize("source", ["nothing.csv", "nothing.parquet", "nothing.arrow"])
    def test_no_such_source(self, source: str, rpq_run: Run, tmp_path: Path) -> None:
        ended = rpq_run("write", tmp_path / source, tmp_path / "written.parquet")
        assert (ended.code, ended.out) == (ExitCode.STORE, "")
        assert source in ended.err

    def test_no_such_folder(self, rpq_run: Run, table: pa.Table, tmp_path: Path) -> None:
        pyarrow.csv.write_csv(table, tmp_path / "a.csv")
        ended = rpq_run("write", tmp_path / "a.csv", tmp_path / "nowhere" / "written.parquet")
        assert (ended.code, ended.out) == (ExitCode.STORE, "")
        assert "nowhere" in ended.err

    def test_only_parquet_comes_from_urls(self, rpq_run: Run, tmp_path: Path) -> None:
        ended = rpq_run("write", "s3://bucket/a.csv", tmp_path / "written.parquet")
        assert (ended.code, ended.out) == (ExitCode.USAGE, "")
        assert "only Parquet" in ended.err

    @pytest.mark.parametrize(
        "options",
        [
            ["--compression", "middle-out"],
            ["--compression-level", "99"],
            ["--row-group-rows", "0"],
            ["--page-bytes", "0"],
            ["--checkpoint-overhead", "-1"],
        ],
    )
    def test_settings_out_of_range(self, options: list[str], rpq_run: Run, table: pa.Table, tmp_path: Path) -> None:
        pyarrow.csv.write_csv(table, tmp_path / "a.csv")
        ended = rpq_run("write", tmp_path / "a.csv", tmp_path / "written.parquet", *options)
        assert (ended.code, ended.out) == (ExitCode.USAGE, "")
        assert ended.err.startswith("error       ")


NEED_PYARROW = ["dictionary.arrows"]
NEED_NO_PYARROW = ["a.csv", "a.jsonl", "a.arrow", "a.arrows", "a.parquet"]


@pytest.fixture(scope="module")
def without_pyarrow(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Any]]]:
    """A folder with the files that were written of all these in a process without pyarrow, and how each ended."""
    folder = tmp_path_factory.mktemp("without_pyarrow")
    for name in [*NEED_PYARROW, *NEED_NO_PYARROW]:
        FORMS[name](table, folder / name)
    code = f"""
import io, json, os, sys
from contextlib import redirect_stderr, redirect_stdout
sys.modules["pyarrow"] = None
from resilient_pq.cli.main import run
os.chdir({str(folder)!r})
ended = {{}}
for name in {[*NEED_PYARROW, *NEED_NO_PYARROW]!r}:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(["write", name, name + ".written"])
    ended[name] = [status, out.getvalue(), err.getvalue()]
print(json.dumps(ended))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    return folder, json.loads(done.stdout)


@pytest.mark.parametrize("name", NEED_PYARROW)
def test_without_pyarrow(name: str, without_pyarrow: tuple[Path, dict[str, list[Any]]]) -> None:
    folder, ended = without_pyarrow
    status, out, err = ended[name]
    assert (status, out) == (ExitCode.USAGE, "")
    assert "pip install 'resilient_pq[ingest]'" in err
    assert not (folder / f"{name}.written").exists()


@pytest.mark.parametrize("name", NEED_NO_PYARROW)
def test_pyarrow_is_not_needed(name: str, table: pa.Table, without_pyarrow: tuple[Path, dict[str, list[Any]]]) -> None:
    folder, ended = without_pyarrow
    status, _, err = ended[name]
    assert (status, err) == (ExitCode.SOUND, "")
    assert pyarrow.parquet.read_table(folder / f"{name}.written").cast(table.schema).equals(table)


def test_input_is_streamed(rpq_command: list[str], tmp_path: Path) -> None:
    """Row groups are in the file while the pipe is still open."""
    written = tmp_path / "written.parquet"
    partial = tmp_path / "written.parquet.partial"
    command = [*rpq_command, "write", "-", str(written), "--row-group-rows", "10000", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = json.dumps({"text": "x" * 1000}).encode() + b"\n"
        for _ in range(25):
            process.stdin.write(line * 1000)
        process.stdin.flush()
        _wait_until(lambda: partial.exists() and partial.stat().st_size > 1500)
        process.stdin.close()
        found = json.loads(process.stdout.read())
        assert process.wait(timeout=60) == ExitCode.SOUND
    assert (found["rows"], found["row_groups"]) == (25_000, 3)


@pytest.mark.parametrize(
    ("number", "rows"),
    [
        (signal.SIGINT, 0),
        (signal.SIGTERM, 25_000),
        pytest.param(signal.SIGTERM, 0, marks=pytest.mark.thorough),
        pytest.param(signal.SIGINT, 25_000, marks=pytest.mark.thorough),
    ],
)
def test_interrupted(number: signal.Signals, rows: int, rpq_command: list[str], tmp_path: Path) -> None:
    """A pipe on which nothing comes does not hold it up; complete row groups are kept."""
    written, partial = tmp_path / "written.parquet", tmp_path / "written.parquet.partial"
    command = [*rpq_command, "write", "-", str(written), "--row-group-rows", "10000", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        line = json.dumps({"text": "x" * 1000}).encode() + b"\n"
        process.stdin.write(line * rows)
        process.stdin.flush()
        if rows:
            _wait_until(lambda: partial.exists() and partial.stat().st_size > 1500)
        else:
            _wait_until(lambda: _waits_for_stdin(process.pid))
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout.read(), process.stderr.read().decode()
        assert process.wait(timeout=60) == 128 + number
    assert err.startswith("interrupted ")
    assert "Traceback" not in err
    assert json.loads(out)["outcome"] == "interrupted"
    assert not written.exists()
    if rows:
        assert "rows are kept in" in err
        assert rpq.check(partial).num_rows >= 10_000
    else:
        assert not partial.exists()


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _waits_for_stdin(pid: int) -> bool:
    """Whether the thread that reads stdin is there; where that cannot be seen, whether it had the time to be."""
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.exists():
        time.sleep(3)
        return True
    names = [task / "wchan" for task in tasks.iterdir()]
    return any("poll_schedule" in name.read_text() for name in names if os.access(name, os.R_OK))


def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch, rpq_run: Run, tmp_path: Path) -> None:
    monkeypatch.setattr(text_readers, "MAX_LINE_BYTES", 10_000_000)
    source = tmp_path / "endless.jsonl"
    source.write_bytes(b'{"text": "' + b"x" * 20_000_000)
    ended = rpq_run("write", source, tmp_path / "written.parquet")
    assert ended.code == ExitCode.DAMAGE
    assert "a line has more than 10,000,000 bytes" in ended.err


def test_a_data_set(rpq_run: Run, table: pa.Table, tmp_path: Path) -> None:
    source, folder = tmp_path / "a.parquet", tmp_path / "set"
    keyed = table.append_column("key", pa.array([i % 2 == 0 for i in range(3000)]))
    pyarrow.parquet.write_table(keyed, source)
    rolling = ("--partition-by", "key", "--roll-rows", 1000, "--name", "day")
    ended = rpq_run("write", source, folder, *rolling)
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")
    assert ended.words("written") == [f"{folder}: 3,000 rows in 4 files"]
    found = pyarrow.dataset.dataset(folder, partitioning="hive").to_table().sort_by("number")
    assert found.num_rows == 3000
    again = rpq_run("write", source, folder, *rolling)
    assert again.code == ExitCode.STORE
    assert "rpq write --resume" in again.err
    # A run that was interrupted: what it left is completed, and what is stored is passed over.
    last = folder / "key=true" / "day-00000001.parquet"
    last.rename(f"{last}.partial")
    resumed = rpq_run("write", source, folder, *rolling, "--resume", "--json").document
    assert (resumed["rows"], resumed["url"]) == (0, str(folder))
    assert [(file["partition"], file["rows"]) for file in resumed["completed"]] == [("key=true", 500)]
    (folder / "key=true" / "day-00000001.parquet").unlink()
    resumed = rpq_run("write", source, folder, *rolling, "--resume", "--json").document
    assert [(file["partition"], file["rows"]) for file in resumed["files"]] == [("key=true", 500)]
    assert resumed["size"] == last.stat().st_size
    assert pyarrow.dataset.dataset(folder, partitioning="hive").to_table().sort_by("number").equals(found)


@pytest.mark.parametrize("source", ["a.jsonl", "-"])
def test_days_in_json_name_partitions(rpq_run: Run, tmp_path: Path, source: str) -> None:
    """As in the example of the help. Other columns of days are times, as ever."""
    lines = "".join(f'{{"n": {n}, "day": "2026-08-0{n}", "at": "2026-08-0{n}"}}\n' for n in (1, 2))
    (tmp_path / "a.jsonl").write_text(lines)
    source = source if source == "-" else str(tmp_path / source)
    ended = rpq_run("write", source, tmp_path / "set", "--partition-by", "day", stdin=lines.encode())
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")
    found = pyarrow.dataset.dataset(tmp_path / "set", partitioning="hive").to_table()
    assert sorted(found["day"].to_pylist()) == ["2026-08-01", "2026-08-02"]
    assert pa.types.is_timestamp(found.schema.field("at").type)


def test_names_that_are_none(rpq_run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    ended = rpq_run("write", tmp_path / "a.csv", tmp_path / "set", "--partition-by", "a,")
    assert ended.code == ExitCode.USAGE
    assert "--partition-by" in ended.err


def test_a_bound_for_rows_that_are_not_stored(
    rpq_run: Run, table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, given = tmp_path / "a.csv", []
    pyarrow.csv.write_csv(table, source)
    create = resilient_pq.create

    def noted(*arguments: Any, **settings: Any) -> Any:
        given.append(settings["max_unstored_seconds"])
        return create(*arguments, **settings)

    monkeypatch.setattr("resilient_pq.create", noted)
    for number, options in enumerate(([], ["--max-unstored-seconds", 2.5], ["--max-unstored-seconds", 0])):
        assert rpq_run("write", source, tmp_path / f"{number}.parquet", *options).code == 0
    assert given == [30.0, 2.5, None]
    assert rpq_run("write", source, tmp_path / "no.parquet", "--max-unstored-seconds", -1).code == 2
