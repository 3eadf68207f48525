"""CSV and JSON lines without surprises: the same values and types with pyarrow and without it."""

from __future__ import annotations

import asyncio
import datetime as dt
import gzip
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq.cli.input import input_rows, text_parser
from resilient_pq.cli.input.csv_parser import CsvParser
from resilient_pq.cli.input.text_parser import TextOptions
from resilient_pq.cli.input.text_types import parse_types
from resilient_pq.cli.main import run

Rpq = Callable[..., tuple[int, str, str]]
UTC = dt.UTC


@pytest.fixture(params=["pyarrow", "standard library"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "pyarrow":
        monkeypatch.setattr(text_parser, "find_spec", lambda name: None)
    return str(request.param)


@pytest.fixture
def rpq(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rpq:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run([str(each) for each in arguments])
        found = capsys.readouterr()
        return code, found.out, " ".join(found.err.split())

    return call


def read(path: Path, block_bytes: int = 8 << 20, **options: Any) -> pa.Table:
    async def tables() -> pa.Table:
        text = TextOptions(block_bytes, **options)
        async with input_rows.open_rows(str(path), block_bytes=block_bytes, text_options=text) as rows:
            found = [
                pa.table(
                    pa.RecordBatch.from_struct_array(pa.array(batch)) if not isinstance(batch, pa.Table) else batch
                )
                async for batch, _ in rows.batches
            ]
            schema = pa.schema(rows.schema)
        return pa.concat_tables([schema.empty_table(), *found])

    return asyncio.run(tables())


#: Cells of a column, and the type and values that they get.
COLUMNS: dict[str, tuple[str, str, list[Any]]] = {
    "zip codes": ("03324 10001", "string", ["03324", "10001"]),
    "phone numbers": ("+4712345678 4712345678", "string", ["+4712345678", "4712345678"]),
    "long numbers": ("12345678901234567890 1", "string", ["12345678901234567890", "1"]),
    "long and short": ("12345678901234567 1.5", "string", ["12345678901234567", "1.5"]),
    "minus nothing": ("-0 1", "string", ["-0", "1"]),
    "integers": ("-5 9223372036854775807 0", "int64", [-5, 9223372036854775807, 0]),
    "floats": ("1.10 -2 1e5 .5 inf", "double", [1.1, -2.0, 1e5, 0.5, float("inf")]),
    "floats with zeros": ("007.5 1.5", "string", ["007.5", "1.5"]),
    "booleans": ("true FALSE", "bool", [True, False]),
    "days": ("2026-01-31 1969-12-31", "date32[day]", [dt.date(2026, 1, 31), dt.date(1969, 12, 31)]),
    "no days": ("2026-02-30 2026-01-01", "string", ["2026-02-30", "2026-01-01"]),
    "times": ("05:00 23:59:59", "time32[s]", [dt.time(5), dt.time(23, 59, 59)]),
    "moments": ("2026-01-31T05:00 2026-01-31", "timestamp[s]", [dt.datetime(2026, 1, 31, 5), dt.datetime(2026, 1, 31)]),
    "zones": ("2026-01-31T05:00:01Z 2026-01-31T05:00+02:00", "timestamp[s, tz=UTC]", [dt.datetime(2026, 1, 31, 5, 0, 1, tzinfo=UTC), dt.datetime(2026, 1, 31, 3, tzinfo=UTC)]),
    "fractions": ("2026-01-31T05:00:01.25", "timestamp[ns]", [dt.datetime(2026, 1, 31, 5, 0, 1, 250_000)]),
    "nulls": ("1 NA nan null", "int64", [1, None, None, None]),
    "text": ("a NA null", "string", ["a", "NA", "null"]),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_types_of_csv(name: str, tmp_path: Path) -> None:
    cells, type_name, values = COLUMNS[name]
    path = tmp_path / "a.csv"
    path.write_text("x,n\n" + "".join(f"{cell},\n" for cell in cells.split(" ")))
    table = read(path)
    assert (str(table.schema.field("x").type), table["x"].to_pylist()) == (type_name, values)
    assert table["n"].null_count == len(values)


def test_times_with_fractions_of_zero_are_read_by_pyarrow(
    tmp_path: Path, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads no fraction as a number of seconds, and to read them by Python takes ten times as long."""
    if parser == "pyarrow":
        monkeypatch.setattr(CsvParser, "_by_python", None)
    (tmp_path / "a.csv").write_text("ts\n2023-11-14 22:13:20.000\n2023-11-14 22:13:21.000\n")
    assert run(["write", str(tmp_path / "a.csv"), str(tmp_path / "a.parquet")]) == 0
    assert pq.read_table(tmp_path / "a.parquet").column(0).to_pylist()[1] == dt.datetime(2023, 11, 14, 22, 13, 21)
    assert pq.read_schema(tmp_path / "a.parquet").field(0).type == pa.timestamp("ns")


def test_text_that_numbers_would_change_comes_late(tmp_path: Path) -> None:
    for late in ("03324", "+47", "12345678901234567890"):
        path = tmp_path / "a.csv"
        path.write_text("id,zip\n" + "".join(f"{i},{10000 + i}\n" for i in range(50)) + f"50,{late}\n")
        with pytest.raises(
            Exception, match=rf"row 51: column 'zip' is int64, by its first values, and '{re.escape(late)}'"
        ) as told:
            read(path, block_bytes=100)
        assert "--types zip=string" in told.value.hint  # type: ignore[attr-defined]
        assert read(path, block_bytes=100, types=parse_types("zip=string"))["zip"].to_pylist()[-1] == late
    path.write_text("share\n" + "1.5\n" * 50 + "12345678901234567\n")
    with pytest.raises(Exception, match="row 51: column 'share' is double"):
        read(path, block_bytes=100)


TYPES = "zip=string,at=timestamp[ms],day=date32,price=decimal128(9, 2),few=int8,share=float,on=bool,raw=binary"


def test_types_that_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "zip,at,day,price,few,share,on,raw\n03324,2026-01-31 05:00:01.5,2026-01-31,7.25,007,1.5,1,x\n,,,,,,,\n"
    )
    table = read(tmp_path / "a.csv", types=parse_types(TYPES))
    moment, day = dt.datetime(2026, 1, 31, 5, 0, 1, 500_000), dt.date(2026, 1, 31)
    row = {
        "zip": "03324",
        "at": moment,
        "day": day,
        "price": Decimal("7.25"),
        "few": 7,
        "share": 1.5,
        "on": True,
        "raw": b"x",
    }
    assert table.to_pylist() == [row, dict.fromkeys(row) | {"zip": "", "raw": b""}]
    assert [str(each.type) for each in table.schema] == [
        "string", "timestamp[ms]", "date32[day]", "decimal128(9, 2)", "int8", "float", "bool", "binary"]  # fmt: skip


def test_options_for_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('1;-;x y\n2;3;"-"\n;?;\n')
    table = read(path, delimiter=";", header=False, nulls=("-", "?"))
    assert table.to_pydict() == {"f0": [1, 2, None], "f1": [None, 3, None], "f2": ["x y", None, ""]}
    assert read(path, delimiter=";", header=False, nulls=("-", "?", ""))["f2"].to_pylist() == ["x y", None, None]
    path.write_text('a,a,c\n1,"x\ny",3\n\n2,z,4\n')
    assert [column.to_pylist() for column in read(path).columns] == [[1, 2], ["x\ny", "z"], [3, 4]]
    assert read(path, block_bytes=12).num_rows == 2
    path.write_text('a,b\n1,5" pipe\n2,x\n')
    assert read(path, block_bytes=8)["b"].to_pylist() == ['5" pipe', "x"]
    path.write_text('a,b\n1,"x\n')
    with pytest.raises(Exception, match="row 1: unexpected end of data"):
        read(path)
    path.write_bytes(b"a,b\r\n1,\xff\r\n2,b\r\n")
    assert read(path).to_pydict() == {"a": [1, 2], "b": [b"\xff", b"b"]}


#: Lines of JSON, and the type and the values of their column.
JSON: dict[str, tuple[list[str], str, list[Any]]] = {
    "integers": (["1", "null", "-3"], "int64", [1, None, -3]),
    "numbers": (["1", "2.5"], "double", [1.0, 2.5]),
    "long numbers": (["12345678901234567890", "1"], "string", ["12345678901234567890", "1"]),
    "text": (['"03324"', '"x"'], "string", ["03324", "x"]),
    "times": (['"2026-01-31T05:00:00Z"', '"2026-01-31"'], "timestamp[s]", [dt.datetime(2026, 1, 31, 5), dt.datetime(2026, 1, 31)]),
    "booleans": (["true", "null"], "bool", [True, None]),
    "objects": (['{"a": 1}', '{"b": "2026-01-31"}'], "struct<a: int64, b: timestamp[s]>", [{"a": 1, "b": None}, {"a": None, "b": dt.datetime(2026, 1, 31)}]),
    "lists": (["[1, null]", "[]"], "list<element: int64>", [[1, None], []]),
}  # fmt: skip


@pytest.mark.parametrize("name", JSON)
def test_types_of_json(name: str, tmp_path: Path) -> None:
    lines, type_name, values = JSON[name]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"x": {line}}}\n\n' for line in lines))
    table = read(path)
    assert (str(table.schema.field("x").type), table["x"].to_pylist()) == (type_name, values)


def test_types_of_json_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"day": "2026-01-31", "at": "2026-01-31T05:00:01", "n": 7, "id": 5}\n{"n": null}\n')
    table = read(path, types=parse_types("day=date32,at=timestamp[us],n=int8,id=string"))
    assert table.slice(0, 1).to_pylist() == [
        {"day": dt.date(2026, 1, 31), "at": dt.datetime(2026, 1, 31, 5, 0, 1), "n": 7, "id": "5"}
    ]
    assert [str(each.type) for each in table.schema] == ["date32[day]", "timestamp[us]", "int8", "string"]


def test_from_the_command_line(rpq: Rpq, parser: str) -> None:
    Path("a.tsv").write_text("zip\tn\n03324\t\n")
    Path("schema.txt").write_text("message m { optional binary zip (STRING); optional int32 n; }")
    assert rpq("write", "a.tsv", "a.parquet", "--schema", "schema.txt")[0] == 0
    assert pq.read_table("a.parquet").to_pydict() == {"zip": ["03324"], "n": [None]}
    assert str(pq.read_schema("a.parquet").field("n").type) == "int32"
    Path("b.csv.gz").write_bytes(gzip.compress(b"a;b\n1;-\n"))
    code, _, err = rpq("write", "b.csv.gz", "b.parquet")
    assert code == 1 and "the only column is 'a;b'" in err and "--delimiter ';'" in err
    assert rpq("write", "b.csv.gz", "b.parquet", "--delimiter", ";", "--null", "-", "--types", "b=string")[0] == 0
    assert pq.read_table("b.parquet").to_pydict() == {"a": [1], "b": [None]}
    Path("c.zst").write_bytes(pa.compress(b'{"a": 1}\n', "zstd", asbytes=True))
    assert rpq("write", "c.zst", "c.parquet", "--format", "jsonl")[0] == 0
    assert pq.read_table("c.parquet").to_pydict() == {"a": [1]}
    Path("torn.csv.gz").write_bytes(gzip.compress(b"a\n1\n")[:-6])
    code, _, err = rpq("write", "torn.csv.gz", "d.parquet")
    assert code == 1 and "torn.csv.gz" in err and not Path("d.parquet").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--types", "zip=text"), "'text' is not a type"),
        (("--types", "zip"), "'zip' does not name a column and its type"),
        (("--types", "zpi=string"), "there is no column 'zpi' columns: n, zip".replace(" columns", " hint columns")),
        (("--delimiter", "ab"), "'ab' is not one ASCII character"),
        (("--schema", "message m { optional int64 n; }"), "the schema has no column 'zip'"),
        (("--schema", "nowhere.txt"), "'nowhere.txt' cannot be read"),
        (("--compression", "zst"), "zst"),
    ],
)
def test_mistakes(options: tuple[str, ...], words: str, rpq: Rpq) -> None:
    Path("a.csv").write_text("zip,n\n03324,1\n")
    code, out, err = rpq("write", "a.csv", "a.parquet", *options)
    assert (code, out) == (2, "") and words in err and "Traceback" not in err
    assert not Path("a.parquet").exists()


def test_options_are_checked_before_the_source_is_looked_for(rpq: Rpq) -> None:
    code, _, err = rpq("write", "nowhere.csv", "a.parquet", "--compression", "zst")
    assert code == 2 and "nowhere" not in err
    assert "types of its own" in rpq("write", "nowhere.parquet", "a.parquet", "--types", "a=string")[2]
