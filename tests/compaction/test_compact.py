"""`compact`: what becomes of files, of what stands beside their rows, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq.sync as rpq
from resilient_pq.cli.main import run

KINDS = ["a", "bb", None, "a longer text"]


def rows(start: int, count: int) -> pa.Table:
    """Rows whose values follow from their id."""
    ids = np.arange(start, start + count)
    return pa.table(
        {
            "id": ids,
            "x": np.sin(ids),
            "kind": pa.array([KINDS[i % 4] for i in ids.tolist()]),
            "tags": pa.array([[f"t{j}" for j in range(i % 3)] for i in ids.tolist()]),
        }
    )


def write_folder(folder: Path, sizes: list[int], *, days: int = 1) -> None:
    """Files of so many rows, by us and by pyarrow in turn."""
    start = 0
    for at, count in enumerate(sizes):
        file = folder / f"day={at % days}" / f"part-{at:03}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        if at % 2:
            pq.write_table(rows(start, count), file)
        else:
            rpq.write(file, rows(start, count))
        start += count


def all_rows(folder: Path) -> list[Any]:
    """What DuckDB says of each partition, by the ids of its rows."""
    values = "count(*), count(distinct id), sum(id), sum(hash(id, x, kind, tags))"
    query = f"select day, {values} from read_parquet('{folder}/**/*.parquet') group by day order by day"
    return duckdb.sql(query).fetchall()


def outputs(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


def test_partitions_stay_apart_and_rows_are_the_same_by_other_readers(tmp_path: Path) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    write_folder(src, [3000, 10, 20, 3000, 30, 40, 3000, 50], days=2)
    limits = {"copy_bytes": 20_000}
    plan = rpq.compact(src, dst, dry_run=True, **limits)
    assert not dst.exists()
    done = rpq.compact(src, dst, **limits)
    assert (plan.urls, plan.bytes_copied, plan.bytes_decoded) == (done.urls, done.bytes_copied, done.bytes_decoded)
    assert (done.num_files, done.num_rows, done.row_groups_copied) == (8, 9150, 4)
    assert sorted(file.parent.name for file in outputs(dst)) == ["day=0", "day=1"]
    assert all_rows(dst) == all_rows(src)
    assert pq.read_table(dst).num_rows == 9150
    for file in outputs(dst):
        assert rpq.check(file).outcome == "sound"


def test_files_are_taken_once_and_removed_when_that_is_asked_for(tmp_path: Path) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    write_folder(src, [10, 20])
    rpq.compact(src, dst)
    assert rpq.compact(src, dst).num_files == 0
    rpq.write(src / "day=0" / "late.parquet", rows(30, 5))
    expected = all_rows(src)
    assert rpq.compact(src, dst).num_rows == 5
    assert all_rows(dst) == expected
    rpq.protect(src / "day=0" / "late.parquet")
    assert rpq.compact(src, dst, remove_sources=True).num_removed == 3
    assert [path for path in src.rglob("*") if path.is_file()] == []
    assert all_rows(dst) == expected
    assert rpq.compact(src, dst, remove_sources=True).num_removed == 0
    rpq.write(src / "day=0" / "late.parquet", rows(35, 5))  # the name is free again
    assert rpq.compact(src, dst).num_rows == 5


def test_some_of_the_sources_named_otherwise_are_neither_taken_again_nor_removed(tmp_path: Path) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    write_folder(src, [10, 20, 30, 40], days=2)
    rpq.compact(src, dst)
    some = rpq.compact(f"{src}/day=0/*.parquet", dst, remove_sources=True)
    assert (some.num_files, some.num_removed) == (0, 0)
    assert rpq.compact(src, dst, remove_sources=True).num_removed == 4
    assert pq.read_table(dst).num_rows == 100


def test_a_compaction_that_is_not_complete_is_completed_as_it_was_begun(tmp_path: Path) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    write_folder(src, [10, 20, 30, 40], days=2)
    rpq.compact(src, dst)
    (dst / "_compact" / "000000.done").unlink()
    with pytest.raises(rpq.RecoveryError, match="is not complete"):
        rpq.compact(f"{src}/day=0/*.parquet", dst)
    rpq.compact(src, dst)
    assert rpq.compact(f"{src}/day=0/*.parquet", dst).num_files == 0


def test_a_source_that_changed_is_refused(tmp_path: Path) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    write_folder(src, [10, 20])
    rpq.compact(src, dst)
    rpq.write(src / "day=0" / "part-000.parquet", rows(0, 11))
    with pytest.raises(rpq.RecoveryError, match="changed after its rows were taken") as caught:
        rpq.compact(src, dst)
    assert "part-000" in str(caught.value.where)


@pytest.mark.parametrize("inside", ["src/day=0", "src", "."])
def test_outputs_lie_outside_of_the_sources(tmp_path: Path, inside: str) -> None:
    write_folder(tmp_path / "src", [10])
    with pytest.raises(rpq.RecoveryError, match="outputs would lie"):
        rpq.compact(tmp_path / "src", tmp_path / inside)


def test_a_list_of_files_is_compacted_elsewhere(tmp_path: Path) -> None:
    write_folder(tmp_path / "src", [10, 20])
    files = outputs(tmp_path / "src")
    with pytest.raises(rpq.RecoveryError, match="see rows twice"):
        rpq.compact(files, tmp_path / "src" / "day=0")
    assert rpq.compact(files, tmp_path / "dst").num_rows == 30


def test_a_folder_with_a_summary_keeps_its_files(tmp_path: Path) -> None:
    write_folder(tmp_path / "src", [10, 20])
    rpq.write_metadata(tmp_path / "src")
    with pytest.raises(rpq.RecoveryError, match="summary"):
        rpq.compact(tmp_path / "src", tmp_path / "dst", remove_sources=True)
    assert rpq.compact(tmp_path / "src", tmp_path / "dst").num_rows == 30


def test_nothing_is_made_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(rpq.NotFoundError):
        rpq.compact(tmp_path / "none", tmp_path / "dst")


@pytest.mark.parametrize("size", [40, 20_000], ids=["decoded", "copied"])
def test_a_damaged_source_is_refused_and_nothing_is_removed(tmp_path: Path, size: int) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    write_folder(src, [10, 30, size])
    damaged = src / "day=0" / "part-002.parquet"
    whole = damaged.read_bytes()
    place = pq.read_metadata(damaged).row_group(0).column(1).data_page_offset + 60
    damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
    for _ in range(2):
        with pytest.raises(rpq.FormatError) as caught:
            rpq.compact(src, dst, copy_bytes=10_000, remove_sources=True)
        assert (caught.value.where.key, caught.value.where.column) == (str(damaged), "x")
        assert caught.value.hint is not None and "rpq recover" in caught.value.hint
    assert len(outputs(src)) == 3
    assert outputs(dst) == []


def test_row_groups_without_checksums_are_decoded_before_their_files_are_removed(tmp_path: Path) -> None:
    src = tmp_path / "src"
    src.mkdir()
    damaged = src / "a.parquet"
    pq.write_table(pa.table({"s": ["text"] * 1000}), damaged, compression="gzip", use_dictionary=False)
    whole = bytearray(damaged.read_bytes())
    place = pq.read_metadata(damaged).row_group(0).column(0).data_page_offset + 40
    whole[place] ^= 255
    damaged.write_bytes(whole)
    with pytest.raises(rpq.FormatError):
        rpq.compact(src, tmp_path / "dst", copy_bytes=0, remove_sources=True)
    assert damaged.exists()


def test_an_output_that_is_not_sound_keeps_the_sources(tmp_path: Path) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    write_folder(src, [10, 20])
    rpq.compact(src, dst)
    (output,) = outputs(dst)
    data = output.read_bytes()
    output.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    with pytest.raises(rpq.RecoveryError, match="no source was removed"):
        rpq.compact(src, dst, remove_sources=True)
    assert len(outputs(src)) == 2


# --- schemas ------------------------------------------------------------------------------------------------------


def test_schemas_that_a_data_set_takes_together_become_one(tmp_path: Path) -> None:
    src = tmp_path / "src"
    src.mkdir()
    schemas = [
        pa.schema([pa.field("a", pa.int64(), nullable=False), ("s", pa.string()), ("n", pa.null())]),
        pa.schema([("s", pa.large_string()), ("a", pa.int64()), ("n", pa.float32())]),
        pa.schema([("a", pa.int64()), ("s", pa.string_view()), ("n", pa.float32())]),
    ]
    for at, schema in enumerate(schemas):
        values = {"a": [at * 2, at * 2 + 1], "s": ["x", "y"], "n": [None, 0.5 if at else None]}
        rpq.write(src / f"{at}.parquet", pa.table({name: values[name] for name in schema.names}, schema=schema))
    rpq.compact(src, tmp_path / "dst", copy_bytes=0)
    (output,) = outputs(tmp_path / "dst")
    with rpq.open_many(src) as dataset:
        expected = pa.table(dataset.read())
    found = pa.table(rpq.read(output))
    assert found.schema == expected.schema
    assert found.to_pydict() == expected.to_pydict() == pq.read_table(output).to_pydict()


def test_schemas_that_differ_are_refused(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    rpq.write(tmp_path / "src" / "0.parquet", {"a": [1]})
    rpq.write(tmp_path / "src" / "1.parquet", {"a": ["text"]})
    with pytest.raises(rpq.SchemaError, match="column 'a' is int64 in"):
        rpq.compact(tmp_path / "src", tmp_path / "dst")
    assert not (tmp_path / "dst").exists()


# --- what stands beside the rows ----------------------------------------------------------------------------------


def test_a_sort_order_is_made_anew_where_row_groups_are_written_together(tmp_path: Path) -> None:
    order = [rpq.SortingColumn("k", descending=True, nulls_first=True), rpq.SortingColumn("f")]
    options = rpq.WriteOptions(sorting_columns=order)
    (tmp_path / "src").mkdir()
    for at in range(3):
        table = pa.table(
            {"k": [None, "c", "b", "a"], "f": [1.0, at, at / 2, float("nan")], "id": range(at * 4, at * 4 + 4)}
        )
        rpq.write(tmp_path / "src" / f"{at}.parquet", table, options=options)
    rpq.compact(tmp_path / "src", tmp_path / "dst")
    (output,) = outputs(tmp_path / "dst")
    table = pq.read_table(output)
    assert table["k"].to_pylist() == [None] * 3 + ["c"] * 3 + ["b"] * 3 + ["a"] * 3
    assert table["f"].to_pylist()[3:9] == [0, 1, 2, 0, 0.5, 1]
    assert sorted(table["id"].to_pylist()) == list(range(12))
    metadata = pq.read_metadata(output)
    assert [
        (each.column_index, each.descending, each.nulls_first) for each in metadata.row_group(0).sorting_columns
    ] == [
        (0, True, True),
        (1, False, False),
    ]


@pytest.mark.parametrize("copy_bytes", [0, 1 << 30], ids=["copied", "decoded"])
def test_indexes_filters_and_parity_are_there_afterwards(tmp_path: Path, copy_bytes: int) -> None:
    options = rpq.WriteOptions(bloom_filter_options=["kind"])
    (tmp_path / "src").mkdir()
    for at in range(3):
        rpq.write(tmp_path / "src" / f"{at}.parquet", rows(at * 100, 100), options=options, parity="10%")
    rpq.compact(tmp_path / "src", tmp_path / "dst", copy_bytes=copy_bytes)
    (output,) = outputs(tmp_path / "dst")
    with rpq.open(output) as file:
        assert file.num_row_groups == (1 if copy_bytes else 3)
        for group in range(file.num_row_groups):
            assert file.bloom_filter(group, "kind").may_contain("bb")
            assert not file.bloom_filter(group, "kind").may_contain("none of them")
            assert file.column_index(group, "id") is not None
            assert file.offset_index(group, "id") is not None
    damaged = bytearray(output.read_bytes())
    damaged[300:320] = bytes(20)
    output.write_bytes(damaged)
    assert pa.table(rpq.read(output))["id"].to_pylist() == list(range(300))  # by its parity


def test_indexes_of_others_go_along(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for at in range(2):
        file = tmp_path / "src" / f"{at}.parquet"
        pq.write_table(
            rows(at * 5000, 5000), file, write_page_index=True, data_page_size=4000, bloom_filter_options={"id": True}
        )
    rpq.compact(tmp_path / "src", tmp_path / "dst", copy_bytes=0)
    (output,) = outputs(tmp_path / "dst")
    for group in range(2):
        with rpq.open(output) as file, rpq.open(tmp_path / "src" / f"{group}.parquet") as source:
            assert file.column_index(group, "x") == source.column_index(0, "x")
            assert [page.first_row_index for page in file.offset_index(group, "x").page_locations] == [
                page.first_row_index for page in source.offset_index(0, "x").page_locations
            ]
            assert file.bloom_filter(group, "id") is not None


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_prints_what_was_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    src, dst = str(tmp_path / "src"), str(tmp_path / "dst")
    write_folder(tmp_path / "src", [10, 20])
    assert run(["compact", src, dst, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["outcome"], planned["rows"], planned["is_plan"]) == ("planned", 30, True)
    assert run(["compact", src, dst, "--target", "1MB", "--remove-sources"]) == 0
    said = capsys.readouterr().out
    assert "2 files to 1 file" in said
    assert "rpq check" in said
    assert run(["compact", src, dst, "--copy-from", "x"]) == 2
