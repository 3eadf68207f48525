"""`head`, `schema`, `count`, `stats`, `diff`, `cat --where`, `resume`, and the selections of `check`."""

from __future__ import annotations

import datetime as dt
import json
import math
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq import sync as rpq
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.rows.where_clause import WhereClause

Run = Callable[..., Any]
NUM_ROWS = 60
ROWS = {
    "qty": [None if i % 7 == 0 else i - 20 for i in range(NUM_ROWS)],
    "city": [["Oslo", "Rome", None, "it's"][i % 4] for i in range(NUM_ROWS)],
    "share": [math.nan if i % 5 == 0 else None if i % 6 == 0 else i / 4 for i in range(NUM_ROWS)],
    "at": [dt.datetime(2026, 8, 1, tzinfo=dt.UTC) + dt.timedelta(hours=i) for i in range(NUM_ROWS)],
    "two words": [i % 2 == 0 for i in range(NUM_ROWS)],
}


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of several row groups with nulls and NaN."""
    path = tmp_path_factory.mktemp("orders") / "orders.parquet"
    with rpq.create(path, row_group_rows=20) as writer:
        writer.write(pa.table(ROWS))
    return path


class TestWhere:
    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("qty > 5 and city = 'Oslo'", lambda r: r["qty"] is not None and r["qty"] > 5 and r["city"] == "Oslo"),
            ("not (qty > 5 or city is not null)", lambda r: r["qty"] is not None and r["qty"] <= 5 and not r["city"]),
            ("city IN ('it''s', 'Rome') AND NOT qty between -3 and 1e1",
             lambda r: r["city"] in ("it's", "Rome") and r["qty"] is not None and not -3 <= r["qty"] <= 10),
            ("not share < 5", lambda r: r["share"] is not None and not r["share"] < 5),
            ("share >= 5", lambda r: r["share"] is not None and r["share"] >= 5),
            ('"two words" = true and at < \'2026-08-01T02:00:00\'', lambda r: r["two words"] and r["at"].day == 1
             and r["at"].hour < 2),
            ("at >= '2026-08-02T02:00:00+02:00'", lambda r: r["at"] >= dt.datetime(2026, 8, 2, tzinfo=dt.UTC)),
            ("qty = 1.5", lambda r: False),
        ],
    )  # fmt: skip
    def test_rows(self, text: str, wanted: Callable[[dict[str, Any]], bool], rpq_run: Run, orders: Path) -> None:
        lines = rpq_run("cat", orders, "--where", text, "--columns", "at").out.splitlines()
        records = [dict(zip(ROWS, values, strict=True)) for values in zip(*ROWS.values(), strict=True)]
        expected = [record["at"].isoformat() for record in records if wanted(record)]
        assert [json.loads(line)["at"] for line in lines] == expected

    @pytest.mark.parametrize(
        ("text", "place", "words"),
        [
            ("qty >", 5, "expected a value"),
            ("qty = Oslo", 6, "single quotes"),
            ("qyt > 5", 0, "did you mean qty?"),
            ("qty > 5 andd city = 'x'", 8, 'expected "and", "or" or the end'),
            ("city = 'Oslo", 7, "the text has no end"),
            ("(qty > 5", 8, 'expected ")"'),
            ("at = 'yesterday'", 5, "at is TIMESTAMP"),
            ("qty = '5'", 6, "without quotes"),
            ("qty = null", 6, "is null"),
            ("1 = qty", 0, "expected a column"),
            ("qty > 5 ; drop", 8, "not understood"),
            ("not " * 60 + "qty = 1", None, "nested"),
        ],
    )
    def test_mistakes_are_shown_in_their_place(
        self, text: str, place: int | None, words: str, rpq_run: Run, orders: Path
    ) -> None:
        ended = rpq_run("cat", orders, "--where", text)
        assert (ended.code, ended.out) == (ExitCode.USAGE, "")
        assert words in ended.err
        assert "Traceback" not in ended.err
        lines = ended.err.splitlines()
        if place is not None:
            assert lines[1][12:] == text
            assert lines[2] == " " * (12 + place) + "^"

    def test_a_torn_file_says_how_its_rows_are_printed(self, rpq_run: Run, torn: Path) -> None:
        assert "hint        --on-damage drop prints the rows that are left; rpq recover" in rpq_run("cat", torn).err
        assert len(rpq_run("cat", torn, "--on-damage", "drop").out.splitlines()) == 500

    def test_syntax_is_checked_before_anything_is_opened(self, rpq_run: Run) -> None:
        assert rpq_run("cat", "missing.parquet", "--where", "a >").code == ExitCode.USAGE

    @given(st.text(alphabet="qty city'\"()=<>,.5 andornotinisnullbetween", max_size=40))
    @settings(max_examples=60, deadline=None)
    def test_any_text_is_a_clause_or_an_option_error(self, text: str) -> None:
        with suppress(rpq.OptionError):
            WhereClause(text)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_rows_as_data(form: str, rpq_command: list[str], tmp_path: Path) -> None:

    count = 9_000  # of more batches than one
    columns = {"n": [None if i % 3 == 0 else i for i in range(count)], "l": [[i, None] for i in range(count)]}
    with rpq.create(tmp_path / "in.parquet") as writer:
        writer.write(pa.table(columns))
    arguments = ["cat", "-", "--format", form, "--where", "not n < 100"]
    data = (tmp_path / "in.parquet").read_bytes()
    done = subprocess.run([*rpq_command, *arguments], input=data, capture_output=True, timeout=60, check=True)
    if form == "arrow":
        found = pa.ipc.open_stream(done.stdout).read_all()
    else:
        (tmp_path / "out.parquet").write_bytes(done.stdout)
        found = pa.table(rpq.read(tmp_path / "out.parquet"))
    found.validate(full=True)
    table = pa.table(columns)
    assert found.to_pylist() == table.filter(pc.greater_equal(table["n"], 100)).to_pylist()


def test_rows_of_folders_patterns_and_several_files(rpq_run: Run, orders: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.parquet").write_bytes(orders.read_bytes())
    for urls in ([tmp_path], [tmp_path / "*.parquet"], [tmp_path / "a.parquet", tmp_path / "b.parquet"]):
        assert rpq_run("count", *urls, "--json").document["rows"] == 2 * NUM_ROWS
        assert len(rpq_run("cat", *urls, "--head", NUM_ROWS + 1).out.splitlines()) == NUM_ROWS + 1


def test_head_schema_count_and_stats(rpq_run: Run, orders: Path) -> None:
    ended = rpq_run("head", orders, "-n", 2)
    assert ended.out.splitlines()[0].split("  ")[0] == "qty"
    assert len(ended.out.splitlines()) == 3
    assert "2 of 60 rows" in ended.err
    assert rpq_run("head", orders, "-n", 2, "--json").document["records"][1]["qty"] == -19
    with rpq.open(orders) as file:
        assert rpq_run("schema", orders).out == f"{file.schema}\n"
    assert rpq_run("schema", orders, orders, "--json").document["schemas"][0]["files"] == 2
    assert rpq_run("count", orders).out == "60\n"
    assert rpq_run("count", orders, orders).out.splitlines()[-1].split() == ["120", "total"]
    columns = {column["name"]: column for column in rpq_run("stats", orders, orders, "--json").document["columns"]}
    assert (columns["qty"]["min"], columns["qty"]["max"], columns["qty"]["nulls"]) == (-19, 39, 18)
    assert columns["qty"]["type"] == "optional int64"
    assert columns["qty"]["codecs"] == ["ZSTD"]
    assert "optional int64" in rpq_run("stats", orders).out


def test_a_file_on_stdin_is_called_so(rpq_run: Run, torn: Path) -> None:
    """Nobody is told of a temporary file, which is gone when they read of it."""
    data = torn.read_bytes()
    ended = rpq_run("check", "-", "--json", stdin=data)
    assert (ended.code, ended.document["url"], ended.document["next"]) == (ExitCode.DAMAGE, "stdin", [])
    ended = rpq_run("cat", "-", stdin=data)
    assert "(at stdin, " in ended.err
    assert "rpq recover - " in ended.err
    ended = rpq_run("cat", "-", "--on-damage", "drop", "--json", stdin=data)
    assert (ended.document["url"], ended.document["rows"]) == ("stdin", 500)
    assert "stdin has no footer" in ended.err
    assert "rpq-stdin-" not in ended.err + ended.out
    assert rpq_run("count", "-", "-", stdin=data).code == ExitCode.USAGE


def test_bounds_that_python_has_in_two_types(rpq_run: Run, tmp_path: Path) -> None:
    """Of nanoseconds `datetime` holds some, and of text that was cut within a character nothing is left but bytes."""
    path = tmp_path / "times.parquet"
    times = pa.array([1_000, 1_001, 2_000], pa.timestamp("ns"))
    text = ["a", "\N{LATIN SMALL LETTER E WITH ACUTE}" * 200, "b" + "\N{EURO SIGN}" * 200]
    with rpq.create(path, row_group_rows=1) as writer:
        writer.write(pa.table({"at": times, "text": text}))
    ended = rpq_run("stats", path, "--json")
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")
    at, words = ended.document["columns"]
    assert (at["min"], at["max"]) == ("1970-01-01T00:00:00.000001", "1970-01-01T00:00:00.000002")
    assert words["min"] == "a"


class TestDiff:
    def written(self, path: Path, changes: dict[str, Any], **options: Any) -> Path:
        with rpq.create(path, **options) as writer:
            writer.write(pa.table(ROWS | changes))
        return path

    def test_encoding_and_row_groups_do_not_count(self, rpq_run: Run, orders: Path, tmp_path: Path) -> None:
        other = self.written(tmp_path / "b.parquet", {}, compression="none", row_group_rows=7)
        ended = rpq_run("diff", orders, other)
        assert (ended.code, ended.words("same")) == (ExitCode.SOUND, ["60 rows"])

    def test_values_metadata_and_columns(self, rpq_run: Run, orders: Path, tmp_path: Path) -> None:
        changes = {"qty": [None, 1000, *ROWS["qty"][2:]], "city": ["Oslo"] * NUM_ROWS, "more": [1] * 60}
        other = self.written(tmp_path / "b.parquet", changes, metadata={"by": "me"})
        ended = rpq_run("diff", orders, other, "--json")
        assert ended.code == ExitCode.DAMAGE
        document = ended.document
        assert document["outcome"] == "different"
        assert [each["name"] for each in document["schema"]] == ["more"]
        assert document["metadata"] == [{"name": "by", "a": None, "b": "me"}]
        assert document["values"]["columns"] == {"qty": 1, "city": 45}
        assert {"row": 1, "column": "qty", "a": -19, "b": 1000} in document["values"]["first"]
        assert rpq_run("diff", orders, other).words("column") == ["qty: 1 different value", "city: 45 different values"]

    def test_times_of_other_units_and_numbers_of_other_kinds(self, rpq_run: Run, tmp_path: Path) -> None:
        far = dt.datetime(2900, 1, 1)  # which nanoseconds do not reach
        one = {"at": pa.array([0, 1_000, 1_001], pa.timestamp("ns")), "n": [1, 2**53 + 1, 3]}
        two = {"at": pa.array([0, 1, 1], pa.timestamp("us")), "n": [1.0, 2.0**53, 3.0]}
        three = {"at": pa.array([dt.datetime(1970, 1, 1), far, far], pa.timestamp("us")), "n": one["n"]}
        paths = [tmp_path / f"{number}.parquet" for number in range(3)]
        for path, columns in zip(paths, (one, two, three), strict=True):
            with rpq.create(path) as writer:
                writer.write(pa.table(columns))
        assert rpq_run("diff", *paths[:2], "--json").document["values"]["columns"] == {"at": 1, "n": 1}
        assert rpq_run("diff", paths[2], paths[0], "--json").document["values"]["columns"] == {"at": 2}

    def test_fewer_rows(self, rpq_run: Run, orders: Path, tmp_path: Path) -> None:
        shorter = {name: values[:59] for name, values in ROWS.items()}
        ended = rpq_run("diff", orders, self.written(tmp_path / "b.parquet", shorter))
        assert (ended.code, ended.words("rows")) == (ExitCode.DAMAGE, ["60 -> 59"])


class TestResume:
    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        path = tmp_path / "rows.csv"
        path.write_text("a,b\n" + "".join(f"{i},v{i}\n" for i in range(1000)))
        return path

    @pytest.fixture
    def left(self, tmp_path: Path) -> Path:
        """What a writer left after 300 rows."""
        path = tmp_path / "day.parquet"
        with pytest.raises(ZeroDivisionError), rpq.create(path, row_group_rows=100) as writer:
            writer.write(pa.table({"a": list(range(300)), "b": [f"v{i}" for i in range(300)]}))
            raise ZeroDivisionError
        assert path.with_suffix(".parquet.partial").exists()
        return path

    def test_write_resumes_the_file_and_makes_no_folder(self, rpq_run: Run, source: Path, left: Path) -> None:
        ended = rpq_run("write", source, left, "--resume")
        assert (ended.code, ended.words("resumed")) == (
            0,
            ["300 rows were stored before; the first 300 rows of SRC were passed over"],
        )
        assert left.is_file()
        assert not left.with_suffix(".parquet.partial").exists()
        assert rpq.read(left).to_pydict()["a"] == list(range(1000))
        again = rpq_run("write", source, left, "--resume")
        assert again.code == ExitCode.STORE
        assert "without --resume it is replaced" in again.err

    def test_how_the_input_continues_has_to_be_said(self, rpq_run: Run, source: Path, left: Path) -> None:
        assert rpq_run("resume", source, left).code == ExitCode.USAGE
        assert rpq_run("resume", source, left, "--append-all").code == 0
        assert rpq.read(left).num_rows == 1300

    def test_a_writer_that_is_alive(self, rpq_run: Run, source: Path, tmp_path: Path) -> None:
        """Nobody is told to replace what another one writes."""
        path = tmp_path / "live.parquet"
        with rpq.create(path) as writer:
            writer.write({"a": [1], "b": ["v"]})
            ended = rpq_run("write", source, path, "--resume")
        assert ended.code == ExitCode.STORE
        assert "hint        wait until it has ended, or choose another name" in ended.err

    @pytest.mark.parametrize("options", [["--resume"], ["--roll-rows", "10"]])
    def test_stdout_is_no_folder(
        self, options: list[str], rpq_run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        ended = rpq_run("write", source, "-", *options)
        assert (ended.code, ended.out) == (ExitCode.USAGE, "")
        assert "stdout takes one file" in ended.err
        assert not (tmp_path / "-").exists()

    def test_nothing_to_resume(self, rpq_run: Run, source: Path, tmp_path: Path) -> None:
        ended = rpq_run("resume", source, tmp_path / "new.parquet", "--skip-stored")
        assert ended.code == ExitCode.STORE
        assert "check the path; `rpq write` begins a new file" in ended.err

    def test_skip_stored(self, rpq_run: Run, source: Path, left: Path) -> None:
        assert rpq_run("resume", source, left, "--skip-stored", "--json").document["resumed_rows"] == 300
        assert rpq.read(left).to_pydict()["b"] == [f"v{i}" for i in range(1000)]

    def test_an_input_with_fewer_rows_than_are_stored(self, rpq_run: Run, source: Path, left: Path) -> None:
        source.write_text("a,b\n1,v1\n")
        ended = rpq_run("resume", source, left, "--skip-stored")
        assert ended.code == ExitCode.USAGE
        assert "300 rows are stored, and the input has 1" in ended.err
        assert rpq.check(f"{left}.partial").num_rows == 300

    def test_a_data_set_with_the_name_of_a_file(self, rpq_run: Run, source: Path, tmp_path: Path) -> None:
        ended = rpq_run("write", source, tmp_path / "set.parquet", "--resume", "--roll-rows", 10)
        assert ended.code == ExitCode.USAGE
        assert "a data set is a folder" in ended.err
        assert not (tmp_path / "set.parquet").exists()


class TestCheckSelections:
    @pytest.fixture
    def folder(self, tmp_path: Path, sound_bytes: bytes) -> Path:
        folder = tmp_path / "data"
        (folder / "in").mkdir(parents=True)
        (folder / "good.parquet").write_bytes(sound_bytes)
        (folder / "in" / "torn.parquet").write_bytes(sound_bytes[:-500])
        (folder / "zero.parquet").write_bytes(b"")
        return folder

    @pytest.mark.parametrize("quick", [[], ["--quick"]])
    def test_names(self, quick: list[str], rpq_run: Run, folder: Path) -> None:
        ended = rpq_run("check", folder, "--list", *quick)
        assert ended.code in (ExitCode.DAMAGE, ExitCode.NOTHING)
        wanted = {str(folder / "in" / "torn.parquet"), str(folder / "zero.parquet")}
        assert set(ended.out.splitlines()) == wanted
        assert set(rpq_run("check", folder, "--list", "-0", *quick).out.split("\0")) == {*wanted, ""}

    def test_quick_sees_the_footer_alone(self, rpq_run: Run, flipped: Path) -> None:
        assert rpq_run("check", flipped, "--quick").code == ExitCode.SOUND
        assert rpq_run("check", flipped).code == ExitCode.DAMAGE

    def test_quarantine_overwrites_nothing(self, rpq_run: Run, folder: Path, tmp_path: Path) -> None:
        away = tmp_path / "away"
        away.mkdir()
        (away / "torn.parquet").write_bytes(b"mine")
        torn = folder / "in" / "torn.parquet"
        data = torn.read_bytes()
        torn.with_name("torn.parquet.rpqparity").write_bytes(b"sidecar")
        rpq_run("check", folder, "--quarantine", away)
        assert (away / "torn.parquet").read_bytes() == b"mine"
        assert (away / "torn.parquet.2").read_bytes() == data
        assert (away / "torn.parquet.2.rpqparity").read_bytes() == b"sidecar"
        assert [path.name for path in folder.rglob("*.parquet*")] == ["good.parquet"]

    def test_quarantine_moves_nothing_twice(self, rpq_run: Run, folder: Path) -> None:
        for _ in range(2):
            ended = rpq_run("check", folder, "--quick", "--quarantine", folder / "away")
        assert {path.name for path in (folder / "away").iterdir()} == {"torn.parquet", "zero.parquet"}
        assert ended.err.count("stays: it was moved before") == 2

    @pytest.mark.parametrize(
        "options",
        [
            ["-0"],
            ["--list", "--json"],
            ["--quick", "--require-checksums"],
            ["--list", "--resume", "journal"],  # which does not name again what it has as damaged
            ["--quarantine", "away", "--resume", "journal"],
        ],
    )
    def test_options_that_exclude_each_other(self, options: list[str], rpq_run: Run, sound: Path) -> None:
        assert rpq_run("check", sound, *options).code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["write", "missing.csv", "x.parquet", "--compression", "zst"], "unknown compression 'zst'"),
        (["cat", "missing.parquet", "--head", "-3"], "it must be greater than or equal to 0"),
        (["cat", "missing.parquet", "--format", "arrow", "--json"], "both write to stdout"),
        (["count", "-", "-"], "- is given twice"),
    ],
)
def test_wrong_options_come_first(arguments: list[str], words: str, rpq_run: Run) -> None:
    ended = rpq_run(*arguments)
    assert ended.code == ExitCode.USAGE
    assert words in ended.err
    assert "No such file" not in ended.err
    assert "Input should be" not in ended.err


def test_option_errors_are_schema_errors_and_value_errors(orders: Path) -> None:
    with pytest.raises(rpq.OptionError) as caught, rpq.open(orders) as file:
        file.batches(0)
    assert isinstance(caught.value, rpq.SchemaError)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(rpq.OptionError), rpq.create(orders, mode="a"):  # type: ignore[arg-type]
        pass


def test_the_old_name_of_uploads_show(rpq_run: Run, sound: Path) -> None:
    assert rpq_run("uploads", "resume-info", sound, "--json").document["verb"] == "uploads resume-info"
    assert "resume-info" not in rpq_run("uploads", "--help").out


def test_completion_is_offered(rpq_run: Run) -> None:
    assert "--install-completion" in rpq_run("--help").out
