"""`rpq cat`: rows as text."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
import subprocess
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from resilient_pq import sync as rpq
from resilient_pq.cli.exit_codes import ExitCode

Run = Callable[..., Any]


def test_json_lines(rpq_run: Run, sound: Path) -> None:
    ended = rpq_run("cat", sound)
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")
    records = [json.loads(line) for line in ended.out.splitlines()]
    assert len(records) == 1000
    assert records[0] == {"number": 0, "text": None, "share": 0.0}
    assert records[999] == {"number": 999, "text": "row 999", "share": 999 / 8}


def test_csv(rpq_run: Run, sound: Path) -> None:
    ended = rpq_run("cat", sound, "--format", "csv", "--columns", "text,number")
    rows = list(csv.reader(io.StringIO(ended.out)))
    assert rows[0] == ["text", "number"]
    assert rows[1] == ["", "0"]
    assert rows[-1] == ["row 999", "999"]
    assert len(rows) == 1001


@pytest.mark.parametrize("head", [0, 1, 249, 250, 251, 1000, 5000])
def test_head(head: int, rpq_run: Run, sound: Path) -> None:
    lines = rpq_run("cat", sound, "--head", head, "--columns", "number").out.splitlines()
    assert [json.loads(line)["number"] for line in lines] == list(range(min(head, 1000)))


def test_head_reads_only_the_row_groups_it_needs(rpq_run: Run, flipped: Path) -> None:
    assert rpq_run("cat", flipped, "--head", 250).code == ExitCode.SOUND
    assert rpq_run("cat", flipped, "--columns", "text").code == ExitCode.SOUND
    ended = rpq_run("cat", flipped, "--head", 251)
    assert ended.code == ExitCode.DAMAGE
    assert "row group 1, column number" in ended.err


class TestOnDamage:
    def test_a_torn_file(self, rpq_run: Run, sound: Path, tmp_path: Path) -> None:
        torn = tmp_path / "torn.parquet"
        torn.write_bytes(sound.read_bytes()[: sound.stat().st_size * 2 // 3])
        ended = rpq_run("cat", torn, "--on-damage", "drop")
        assert ended.code == ExitCode.DAMAGE and "no footer that can be used" in ended.err
        assert len(ended.out.splitlines()) == rpq.check(torn).num_rows > 0
        assert "lost        an unknown number of rows: the end of the file is missing" in ended.err

    def test_an_error_says_that_the_rest_can_be_printed(self, rpq_run: Run, flipped: Path) -> None:
        ended = rpq_run("cat", flipped)
        assert ended.code == ExitCode.DAMAGE
        assert "hint        --on-damage drop" in ended.err

    def test_rows_are_left_out(self, rpq_run: Run, flipped: Path) -> None:
        """The file has one page in each chunk: the row group is lost."""
        ended = rpq_run("cat", flipped, "--on-damage", "drop")
        assert ended.code == ExitCode.DAMAGE
        numbers = [json.loads(line)["number"] for line in ended.out.splitlines()]
        assert numbers == [*range(250), *range(500, 1000)]
        (line,) = ended.err.splitlines()
        assert line.startswith("lost        250 rows: its CRC32 does not match (at ")
        assert "row group 1, column number, page 0" in line

    def test_values_are_null(self, rpq_run: Run, flipped: Path) -> None:
        ended = rpq_run("cat", flipped, "--on-damage", "null", "--columns", "text,number", "--format", "csv")
        assert ended.code == ExitCode.DAMAGE
        rows = list(csv.reader(io.StringIO(ended.out)))
        assert len(rows) == 1001
        assert [row[1] for row in rows[1:]] == [str(i) if not 250 <= i < 500 else "" for i in range(1000)]
        assert rows[302] == ["row 301", ""]
        assert ended.err.startswith("lost        250 values, null instead: ")

    def test_head_counts_the_rows_that_are_left(self, rpq_run: Run, flipped: Path) -> None:
        ended = rpq_run("cat", flipped, "--on-damage", "drop", "--head", 300)
        numbers = [json.loads(line)["number"] for line in ended.out.splitlines()]
        assert numbers == [*range(250), *range(500, 550)]

    @pytest.mark.parametrize("options", [("--head", 250), ("--columns", "text")])
    def test_damage_elsewhere_is_none(self, rpq_run: Run, flipped: Path, options: tuple[Any, ...]) -> None:
        ended = rpq_run("cat", flipped, "--on-damage", "drop", *options)
        assert (ended.code, ended.err) == (ExitCode.SOUND, "")

    def test_one_document(self, rpq_run: Run, flipped: Path, sound: Path) -> None:
        found = rpq_run("cat", flipped, "--on-damage", "drop", "--json", "--columns", "number").document
        assert (found["outcome"], found["rows"]) == ("partial", 750)
        (lost,) = found["lost"]
        assert (lost["rows"], lost["rows_nulled"], lost["damage"]) == (250, 0, "corrupt")
        assert (lost["file"], lost["row_group"], lost["column"]) == (str(flipped), 1, "number")
        found = rpq_run("cat", sound, "--on-damage", "drop", "--json", "--head", 1).document
        assert (found["outcome"], found["lost"]) == ("read", [])


def test_one_document(rpq_run: Run, sound: Path) -> None:
    found = rpq_run("cat", sound, "--json", "--head", 3, "--columns", "number").document
    assert (found["verb"], found["outcome"], found["rows"]) == ("cat", "read", 3)
    assert found["records"] == [{"number": 0}, {"number": 1}, {"number": 2}]


def test_no_such_column(rpq_run: Run, sound: Path) -> None:
    for form in ("jsonl", "csv"):
        ended = rpq_run("cat", sound, "--columns", "nothing", "--format", form)
        assert (ended.code, ended.out) == (ExitCode.USAGE, "")
        assert f"there is no column 'nothing' (at {sound})" in ended.err
        assert "hint        columns: number, text, share" in ended.err


def test_a_torn_file(rpq_run: Run, torn: Path) -> None:
    ended = rpq_run("cat", torn)
    assert (ended.code, ended.out) == (ExitCode.DAMAGE, "")
    assert "rpq recover" in ended.err
    document = rpq_run("cat", torn, "--json").document
    assert (document["outcome"], document["rows"]) == ("error", None)
    assert document["error"]["type"] == "TornFileError"
    assert document["error"]["where"]["key"] == str(torn)


def test_an_unfinished_file_gets_a_note(rpq_run: Run, torn: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.parquet"
    rpq_run("recover", torn, saved)
    ended = rpq_run("cat", saved, "--head", 1)
    assert ended.code == ExitCode.SOUND
    assert len(ended.out.splitlines()) == 1
    assert ended.err.startswith("note        ")
    assert "Warning" not in ended.err


def test_every_kind_of_value(rpq_run: Run, tmp_path: Path) -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    columns = {
        "flag": pa.array([True, None]),
        "small": pa.array([-(2**63), 2**63 - 1]),
        "large": pa.array([2**64 - 1, 0], pa.uint64()),
        "float": pa.array([1.5, math.nan]),
        "infinite": pa.array([math.inf, -math.inf]),
        "half": pa.array(np.array([1.5, 2.0], np.float16)),
        "text": pa.array(['a "quoted", text\n', "grüße"]),
        "bytes": pa.array([b"\x00\xff", b""]),
        "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
        "decimal": pa.array([Decimal("-1234567890.10"), Decimal("0.00")], pa.decimal128(12, 2)),
        "date": pa.array([dt.date(2013, 1, 1), dt.date(1, 1, 1)]),
        "time": pa.array([dt.time(5, 17), dt.time(23, 59, 59, 999999)], pa.time64("us")),
        "naive": pa.array([dt.datetime(2013, 1, 1, 5), dt.datetime(2013, 1, 1, 5, 0, 0, 1)], pa.timestamp("us")),
        "utc": pa.array([dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)] * 2, pa.timestamp("ms", "UTC")),
        "zoned": pa.array([dt.datetime(2013, 1, 1, 5, tzinfo=zone)] * 2, pa.timestamp("us", "+02:00")),
        "fine": pa.array([1_000_000_001, 1], pa.timestamp("ns", "UTC")),
        "duration": pa.array([1_500_000, -2_000_000], pa.duration("us")),
        "nothing": pa.nulls(2),
    }
    path = tmp_path / "kinds.parquet"
    with rpq.create(path) as writer:
        writer.write(pa.table(columns))
    first, second = (json.loads(line) for line in rpq_run("cat", path).out.splitlines())
    assert first == {
        "flag": True,
        "small": -(2**63),
        "large": 2**64 - 1,
        "float": 1.5,
        "infinite": None,
        "half": 1.5,
        "text": 'a "quoted", text\n',
        "bytes": "AP8=",
        "fixed": "YWI=",
        "decimal": "-1234567890.10",
        "date": "2013-01-01",
        "time": "05:17:00",
        "naive": "2013-01-01T05:00:00",
        "utc": "2013-01-01T05:00:00+00:00",
        "zoned": "2013-01-01T05:00:00+02:00",
        "fine": "1970-01-01T00:00:01.000000001+00:00",
        "duration": "PT1.5S",
        "nothing": None,
    }
    assert second["flag"] is None
    assert second["float"] is None, "JSON has no NaN"
    assert (second["text"], second["decimal"]) == ("grüße", "0.00")
    assert (second["date"], second["time"]) == ("0001-01-01", "23:59:59.999999")
    assert (second["naive"], second["duration"]) == ("2013-01-01T05:00:00.000001", "-PT2S")

    _, row, other = csv.reader(io.StringIO(rpq_run("cat", path, "--format", "csv").out))
    cells, others = dict(zip(columns, row, strict=True)), dict(zip(columns, other, strict=True))
    assert (cells["flag"], others["flag"]) == ("true", "")
    assert (others["float"], cells["infinite"]) == ("nan", "inf")
    assert (cells["text"], cells["bytes"]) == ('a "quoted", text\n', "AP8=")
    assert rpq_run("cat", path, "--json").document["records"][0] == first


def test_nested_values_of_other_writers(rpq_run: Run, tmp_path: Path) -> None:
    import pyarrow.parquet

    table = pa.table(
        {
            "list": pa.array([[1, None], []]),
            "struct": pa.array([{"a": 1.5, "b": dt.date(2013, 1, 1)}, {"a": math.nan, "b": None}]),
            "map": pa.array([[("k", b"v")], None], pa.map_(pa.string(), pa.binary())),
        }
    )
    path = tmp_path / "nested.parquet"
    pyarrow.parquet.write_table(table, path)
    first, second = (json.loads(line) for line in rpq_run("cat", path).out.splitlines())
    assert first == {"list": [1, None], "struct": {"a": 1.5, "b": "2013-01-01"}, "map": [["k", "dg=="]]}
    assert second == {"list": [], "struct": {"a": None, "b": None}, "map": None}
    _, row, _ = csv.reader(io.StringIO(rpq_run("cat", path, "--format", "csv").out))
    assert [json.loads(cell) for cell in row] == [first["list"], first["struct"], first["map"]]


def test_a_reader_that_has_seen_enough(rpq_command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    with rpq.create(path) as writer:
        writer.write({"text": [f"row {i} {'x' * 100}" for i in range(20_000)]})
    with subprocess.Popen([*rpq_command, "cat", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"text": "row 0 ')
        process.stdout.close()
        assert process.wait(timeout=60) == ExitCode.SOUND
        assert process.stderr.read() == b""


def test_output_is_utf_8_whatever_the_locale_says(rpq_process: Run, tmp_path: Path) -> None:
    path = tmp_path / "words.parquet"
    with rpq.create(path) as writer:
        writer.write({"word": ["grüße 日本"]})
    ended = rpq_process("cat", path, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (ended.code, ended.out) == (ExitCode.SOUND, '{"word": "grüße 日本"}\n')
