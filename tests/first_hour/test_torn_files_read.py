"""Torn files are read as far as their row groups are whole, alone and in a folder."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import sync as rpq
from resilient_pq.recovery import carve

ROWS = {"n": list(range(5000)), "s": [f"text {i}" for i in range(5000)]}


def cut(path: Path, share: float) -> Path:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        with rpq.create(tmp_path / f"{name}.parquet", row_group_rows=500) as writer:
            for first in range(0, 5000, 500):
                writer.write({name: column[first : first + 500] for name, column in ROWS.items()})
    return tmp_path


@pytest.mark.parametrize("share", [0.35, 0.6, 0.999])
def test_a_torn_file_of_ours_has_the_rows_that_check_counts(folder: Path, share: float) -> None:
    torn = cut(folder / "b.parquet", share)
    counted = rpq.check(torn).num_rows
    lost: list[rpq.LostRegion] = []
    with (
        pytest.warns(rpq.IncompleteFileWarning),
        rpq.open(torn, on_damage="drop", on_lost=lost.append) as file,
    ):
        assert file.num_rows == counted == 500 * file.num_row_groups
        found = file.read()
        assert found.to_pydict() == {name: column[:counted] for name, column in ROWS.items()}
        assert file.read(["n"], filters=[("n", ">=", counted - 1)]).to_pydict() == {"n": [counted - 1]}
    assert counted > 0
    if share < 0.9:
        assert [(region.num_rows, region.where.key) for region in lost] == [(None, str(torn))]
        assert counted < 5000
    else:
        assert counted == 5000
    with pytest.raises(rpq.TornFileError), rpq.open(torn):
        pass


def test_what_is_read_of_a_torn_and_damaged_file_is_what_check_counts(tmp_path: Path) -> None:
    path = tmp_path / "paged.parquet"
    with rpq.create(path, row_group_rows=700, page_bytes=1024) as writer:
        writer.write(ROWS | {"list": [[n, n] for n in ROWS["n"]]})
    whole, rng = path.read_bytes(), random.Random(9)
    for damaged in (False, True) * 10:
        # Nothing but the head of the file, which is not touched, names its columns.
        data = bytearray(whole[: rng.randrange(len(whole) // 4, len(whole) - 4000)])
        if damaged:
            data[rng.randrange(len(data) // 8, len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        lost: list[rpq.LostRegion] = []
        with pytest.warns(rpq.IncompleteFileWarning), rpq.open(path, on_damage="drop", on_lost=lost.append) as file:
            found = file.read().to_pydict()
        assert len(found["n"]) == rpq.check(path).num_rows
        assert [(f"text {n}", [n, n]) for n in found["n"]] == list(zip(found["s"], found["list"], strict=True))
        assert any(region.num_rows is None for region in lost)


def test_a_folder_with_a_torn_file_and_a_stub_is_read(folder: Path) -> None:
    cut(folder / "b.parquet", 0.5)
    (folder / "c.parquet").write_bytes(b"PAR1" + bytes(100))
    (folder / "d.parquet").write_bytes(b"")
    pq.write_table(pa.table(ROWS), folder / "e.parquet")
    cut(folder / "e.parquet", 0.7)
    counted = rpq.check(folder / "b.parquet").num_rows
    with pytest.raises((rpq.TornFileError, rpq.NotParquetError)), rpq.open_many(folder):
        pass
    lost: list[rpq.LostRegion] = []
    with (
        pytest.warns(rpq.IncompleteFileWarning) as told,
        rpq.open_many(folder, on_damage="drop", on_lost=lost.append) as dataset,
    ):
        assert dataset.read(["n"]).to_pydict() == {"n": ROWS["n"] + ROWS["n"][:counted]}
        assert [url.rpartition("/")[2] for url in dataset.urls] == ["a.parquet", "b.parquet"]
    assert sorted({str(region.where.key).rpartition("/")[2] for region in lost}) == [
        "b.parquet",
        "c.parquet",
        "d.parquet",
        "e.parquet",
    ]
    assert all(region.num_rows is None for region in lost)
    assert sum("is left out" in str(warning.message) for warning in told) == 3


def test_folders_name_columns_of_what_is_left(folder: Path) -> None:
    for name in ("a", "b", "c"):
        (folder / f"day={name}").mkdir()
        (folder / f"{name}.parquet").rename(folder / f"day={name}" / "part.parquet")
    (folder / "day=a" / "part.parquet").write_bytes(b"")
    with (
        pytest.warns(rpq.IncompleteFileWarning),
        rpq.open_many(folder, on_damage="drop", partitioning="hive") as dataset,
    ):
        found = dataset.read(["n", "day"], filters=[("n", "=", 7)])
    assert found.to_pydict() == {"n": [7, 7], "day": ["b", "c"]}


def test_where_nothing_can_be_read_the_error_is_as_ever(folder: Path) -> None:
    for name in ("a", "b", "c"):
        (folder / f"{name}.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(rpq.TornFileError, match=r"a\.parquet"), rpq.open_many(folder, on_damage="drop"):
        pass
    with pytest.raises(rpq.TornFileError, match="rpq recover"), rpq.open(folder / "a.parquet", on_damage="drop"):
        pass


def test_a_file_of_others_that_lacks_its_last_byte_is_read_whole(folder: Path) -> None:
    theirs = folder / "theirs.parquet"
    pq.write_table(pa.table(ROWS), theirs, row_group_size=500)
    theirs.write_bytes(theirs.read_bytes()[:-1])
    with rpq.open(theirs, on_damage="drop", on_lost=pytest.fail) as file:
        assert file.read().to_pydict() == ROWS


def test_pages_of_a_file_that_names_no_columns_are_not_searched_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes long, and gives columns with made-up names, which no caller of `open` asks for."""
    theirs = folder / "theirs.parquet"
    pq.write_table(pa.table(ROWS), theirs, row_group_size=500)
    cut(theirs, 0.8)
    monkeypatch.setattr(carve, "find_files", pytest.fail)
    with pytest.raises(rpq.TornFileError), rpq.open(theirs, on_damage="drop"):
        pass
