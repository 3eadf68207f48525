"""`rpq inspect`: what a file is made of."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from resilient_pq import sync as rpq
from resilient_pq.cli.exit_codes import ExitCode

Run = Callable[..., Any]


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A file that pyarrow wrote, nested."""
    path = tmp_path / "foreign.parquet"
    table = pa.table({"a": [1, 2, None], "list": [[{"x": 1}], [], None]})
    pyarrow.parquet.write_table(table, path, row_group_size=2, use_dictionary=False, compression="gzip")
    return path


def test_a_resilient_file(rpq_run: Run, sound: Path) -> None:
    ended = rpq_run("inspect", sound)
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")
    assert ended.words("rows") == ["1,000 in 4 row groups"]
    assert ended.words("state") == ["complete"]
    assert len(ended.words("file id")[0]) == 32
    assert ended.words("written by")[0].startswith("resilient_pq version ")
    assert "every column chunk" in ended.words("checksums")[0]
    assert ended.words("checkpoints") == ["2"]
    columns = ended.out.split("\n\n")[1].splitlines()
    assert columns[0].split() == ["column", "type", "codec", "encodings", "bytes", "uncompressed", "nulls"]
    assert [line.split()[0] for line in columns[1:]] == ["number", "text", "share"]
    assert columns[2].split()[-1] == "100"
    assert all(len(line) <= len(columns[0]) for line in columns), "columns are aligned"


def test_a_file_of_others(rpq_run: Run, foreign: Path) -> None:
    ended = rpq_run("inspect", foreign)
    assert ended.code == ExitCode.SOUND
    assert ended.words("file id") == []
    assert "none of the footer" in ended.words("checksums")[0]
    assert "list.list.element.x" in ended.out
    assert "GZIP" in ended.out
    assert rpq_run("inspect", foreign, "--checkpoints").words("checkpoints")[0].startswith("none")


def test_sections(rpq_run: Run, sound: Path) -> None:
    with rpq.open(sound) as file:
        assert rpq_run("inspect", sound, "--schema").out == f"{file.schema}\n"
        row_groups = rpq_run("inspect", sound, "--row-groups").out.splitlines()
        assert [line.split()[:2] for line in row_groups[1:]] == [[str(i), "250"] for i in range(4)]
        checkpoints = rpq_run("inspect", sound, "--checkpoints").out.splitlines()
        assert [line.split() for line in checkpoints[1:]] == [
            [str(known.ordinal), f"{known.num_rows:,}", f"{known.offset:,}"] for known in file.checkpoints
        ]
    several = rpq_run("inspect", sound, "--schema", "--row-groups").out
    assert "message schema" in several
    assert "uncompressed" in several


def test_chunks(rpq_run: Run, sound: Path) -> None:
    chunks = rpq_run("inspect", sound, "--chunks", "--json").document["chunks"]
    assert [(chunk["row_group"], chunk["column"]) for chunk in chunks[:4]] == [
        (0, "number"), (0, "text"), (0, "share"), (1, "number"),
    ]  # fmt: skip
    with rpq.open(sound) as file:
        for chunk in chunks:
            said = file.statistics(chunk["row_group"], chunk["column"])
            assert (chunk["min"], chunk["max"], chunk["nulls"]) == (said.min, said.max, said.null_count)
    assert chunks[0]["column_index"] and chunks[0]["offset_index"] and not chunks[0]["bloom_filter"]
    assert chunks[0]["metadata"] == ["rpq.crc32", "rpq.record"]
    lines = rpq_run("inspect", sound, "--chunks").out.splitlines()
    assert lines[0].split()[:4] == ["column", "min", "max", "page"]
    assert len(lines) == 1 + len(chunks)


def test_chunks_of_any_type(rpq_run: Run, tmp_path: Path) -> None:
    path = tmp_path / "types.parquet"
    table = pa.table(
        {
            "day": pa.array([0, 1], pa.date32()),
            "far": pa.array([2**31 - 1, None], pa.date32()),
            "at": pa.array([1, 2_000], pa.timestamp("ns", "UTC")),
            "raw": pa.array([b"\xff", b"\x00"]),
            "text": pa.array(["\x1b[2J" * 9, "x"]),
            "dec": pa.array([Decimal("1.50"), Decimal("-2.25")]),
            "f": pa.array([float("inf"), float("nan")]),
            "half": pa.array([1.5, None], pa.float16()),
            "none": pa.nulls(2, pa.int8()),
        }
    )
    options = rpq.WriteOptions(bloom_filter_options=["day"])
    with rpq.create(path, options=options) as writer:
        writer.write(table)
    chunks = {c["column"]: c for c in rpq_run("inspect", path, "--chunks", "--json").document["chunks"]}
    assert {name: (chunk["min"], chunk["max"]) for name, chunk in chunks.items()} == {
        "day": ("1970-01-01", "1970-01-02"),
        "far": ("5881580-07-11", "5881580-07-11"),
        "at": ("1970-01-01T00:00:00.000000001", "1970-01-01T00:00:00.000002+00:00"),
        "raw": ("AA==", "/w=="),
        "text": ("\x1b[2J" * 9, "x"),
        "dec": ("-2.25", "1.50"),
        "f": (None, None),
        "half": (1.5, 1.5),
        "none": (None, None),
    }
    assert chunks["f"]["nans"] == 1 and chunks["none"]["nulls"] == 2
    assert chunks["day"]["bloom_filter"] and not chunks["far"]["bloom_filter"]
    shown = rpq_run("inspect", path, "--chunks").out
    assert "\x1b" not in shown and "…" in shown


def test_a_sorted_file(rpq_run: Run, tmp_path: Path) -> None:
    path = tmp_path / "sorted.parquet"
    options = rpq.WriteOptions(sorting_columns=["a", ("b", "descending", "at_start")])
    with rpq.create(path, options=options) as writer:
        writer.write({"a": [1, 1, 2], "b": ["y", "x", "z"]})
    assert rpq_run("inspect", path).words("sorted by") == ["a, b descending nulls first"]
    assert rpq_run("inspect", path, "--json").document["sorting_columns"] == [
        {"column": "a", "descending": False, "nulls_first": False},
        {"column": "b", "descending": True, "nulls_first": True},
    ]


def test_pages(rpq_run: Run, sound: Path) -> None:
    ended = rpq_run("inspect", sound, "--pages", "text", "--json")
    assert ended.code == ExitCode.SOUND
    pages = ended.document["pages"]
    assert sum(page["values"] for page in pages if page["kind"] == "DATA_PAGE") == 1000
    assert all(page["crc32"] for page in pages)
    assert {page["row_group"] for page in pages} == {0, 1, 2, 3}
    assert len(rpq_run("inspect", sound, "--pages", "text").out.splitlines()) == 1 + len(pages)
    with rpq.open(sound) as file:
        chunks = [group.columns[1].meta_data for group in file.metadata.row_groups]
    assert sum(page["num_bytes"] for page in pages) == sum(chunk.total_compressed_size for chunk in chunks)


def test_pages_of_a_nested_column(rpq_run: Run, foreign: Path) -> None:
    pages = rpq_run("inspect", foreign, "--pages", "list.list.element.x", "--json").document["pages"]
    assert sum(page["values"] for page in pages) == 3


def test_pages_of_no_column(rpq_run: Run, sound: Path) -> None:
    ended = rpq_run("inspect", sound, "--pages", "nothing")
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "columns: number, text, share" in ended.err


def test_document(rpq_run: Run, sound: Path) -> None:
    found = rpq_run("inspect", sound, "--json", "--row-groups").document
    assert (found["schema_version"], found["verb"], found["outcome"], found["rows"]) == (
        1,
        "inspect",
        "read",
        1000,
    )
    assert (found["findings"], found["next"]) == ([], [])
    assert (found["row_groups"], found["size"], found["state"]) == (4, sound.stat().st_size, "complete")
    assert found["footer_verified"]
    assert found["chunks_checksummed"]
    assert [column["name"] for column in found["columns"]] == ["number", "text", "share"]
    assert found["columns"][1]["nulls"] == 100
    assert [group["rows"] for group in found["row_group_list"]] == [250] * 4
    assert [known["ordinal"] for known in found["checkpoints"]] == [1, 2]


def test_only_the_tail_is_read(rpq_run: Run, sound: Path) -> None:
    damaged = bytearray(sound.read_bytes())
    damaged[4:2000] = bytes(1996)
    sound.write_bytes(damaged)
    with rpq.open(sound) as file:
        assert file.num_rows == 1000
    ended = rpq_run("inspect", sound, "--row-groups", "--schema", "--checkpoints")
    assert (ended.code, ended.err) == (ExitCode.SOUND, "")


def test_a_torn_file(rpq_run: Run, torn: Path) -> None:
    ended = rpq_run("inspect", torn)
    assert (ended.code, ended.out) == (ExitCode.DAMAGE, "")
    assert "hint        rpq " in ended.err
    assert rpq_run("inspect", torn, "--json").document["outcome"] == "error"
