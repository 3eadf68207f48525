"""`resilient_pq.dask` without a cluster: what is written, and that it is done in this process then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import default_client

import resilient_pq.dask as rpqd
from resilient_pq import sync as rpq
from resilient_pq.dask import partition_write
from resilient_pq.io import LocalStore
from resilient_pq.writer.write_options import EncoderOptions


@pytest.fixture(autouse=True)
def no_client() -> None:
    with pytest.raises(ValueError, match="No clients"):
        default_client()


def frame_of(num_rows: int = 400, npartitions: int = 4) -> Any:
    numbers = range(num_rows)
    data = pd.DataFrame(
        {"n": numbers, "text": [f"row {i}" if i % 7 else None for i in numbers], "x": np.arange(num_rows) / 4}
    )
    return dd.from_pandas(data, npartitions=npartitions)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")  # of dask's own
class TestWhatIsWritten:
    def test_a_file_for_each_partition_and_a_summary(self, tmp_path: Path) -> None:
        frame = frame_of()
        written = rpqd.write(frame, tmp_path / "new" / "folder")
        assert (written.num_rows, len(written.files)) == (400, 4)
        assert written.metadata is not None and written.metadata.num_files == 4
        assert names(tmp_path / "new" / "folder") == ["_common_metadata", "_metadata", *written.files]
        assert list(written.files) == sorted(written.files)
        for number, name in enumerate(written.files):
            found = pq.read_table(tmp_path / "new" / "folder" / name)
            assert found.column("n").to_pylist() == list(range(100 * number, 100 * number + 100))
        expected = frame.compute()
        for urls in (tmp_path / "new" / "folder", tmp_path / "new" / "folder" / "*.parquet"):
            pd.testing.assert_frame_equal(rpqd.read(urls).compute().reset_index(drop=True), expected)
        pd.testing.assert_frame_equal(
            dd.read_parquet(tmp_path / "new" / "folder").compute().reset_index(drop=True), expected
        )

    def test_partitions_without_rows_are_files_without_rows(self, tmp_path: Path) -> None:
        frame = frame_of()
        written = rpqd.write(frame[frame["n"] > 250], tmp_path)
        assert [pq.read_metadata(tmp_path / name).num_rows for name in written.files] == [0, 0, 49, 100]
        schemas = {pq.read_schema(tmp_path / name) for name in written.files}
        assert len(schemas) == 1
        assert rpqd.read(tmp_path)["n"].sum().compute() == sum(range(251, 400))

    @pytest.mark.parametrize(("write_index", "kept"), [(None, False), (True, True), (False, False)])
    def test_an_index_without_a_name(self, tmp_path: Path, write_index: bool | None, kept: bool) -> None:
        frame = dd.from_pandas(pd.DataFrame({"n": range(4)}, index=list("abcd")), npartitions=2)
        rpqd.write(frame, tmp_path, write_index=write_index)
        found = rpqd.read(tmp_path).compute()
        assert list(found.columns) == ["n"] and found.index.name is None
        assert list(found.index) == (list("abcd") if kept else [0, 1, 0, 1])

    @pytest.mark.parametrize(("write_index", "kept"), [(None, True), (True, True), (False, False)])
    def test_an_index_with_a_name(self, tmp_path: Path, write_index: bool | None, kept: bool) -> None:
        data = pd.DataFrame({"n": range(4)}, index=pd.Index(list("abcd"), name="key"))
        rpqd.write(dd.from_pandas(data, npartitions=2), tmp_path, write_index=write_index)
        found = rpqd.read(tmp_path).compute()
        assert found.index.name == ("key" if kept else None)
        assert found["n"].tolist() == [0, 1, 2, 3]

    def test_objects_are_text_unless_told(self, tmp_path: Path) -> None:
        frame = frame_of().assign(tags=lambda rows: rows["n"].map(lambda n: [n], meta=("tags", "object")))
        with pytest.raises(rpq.SchemaError, match="tags"):
            rpqd.write(frame, tmp_path / "a")
        assert names(tmp_path / "a") == []
        rpqd.write(frame, tmp_path / "a", schema={"tags": pa.list_(pa.int64())})
        assert rpqd.read(tmp_path / "a").compute()["tags"].map(list).tolist() == [[n] for n in range(400)]

    def test_settings_reach_the_files(self, tmp_path: Path) -> None:
        written = rpqd.write(
            frame_of(), tmp_path, name="day", compression="snappy", row_group_rows=30, metadata={"who": "me"},
            write_metadata=False,
        )  # fmt: skip
        assert written.metadata is None
        assert names(tmp_path) == list(written.files)
        assert all(name.startswith("day-0000") for name in written.files)
        metadata = pq.read_metadata(tmp_path / written.files[0])
        assert metadata.num_row_groups == 4
        assert metadata.row_group(0).column(0).compression == "SNAPPY"
        assert metadata.metadata[b"who"] == b"me"

    def test_what_is_there_is_replaced_only_when_told(self, tmp_path: Path) -> None:
        rpqd.write(frame_of(npartitions=8), tmp_path)
        (tmp_path / "notes.txt").write_text("mine")
        before = names(tmp_path)
        with pytest.raises(rpq.AlreadyExistsError, match="part-00000"):
            rpqd.write(frame_of(), tmp_path)
        assert names(tmp_path) == before
        written = rpqd.write(frame_of(200, 2), tmp_path, overwrite=True)
        assert names(tmp_path) == ["_common_metadata", "_metadata", "notes.txt", *written.files]
        assert len(rpqd.read(tmp_path)) == 200
        written = rpqd.write(frame_of(100, 1), tmp_path, overwrite=True, write_metadata=False)
        assert names(tmp_path) == ["notes.txt", *written.files]

    def test_what_fails_leaves_what_was_there(self, tmp_path: Path) -> None:
        rpqd.write(frame_of(), tmp_path)
        before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
        bad = frame_of().map_partitions(_failing, meta=frame_of()._meta)
        with pytest.raises(ZeroDivisionError) as caught:
            rpqd.write(bad, tmp_path, overwrite=True)
        assert any("removed again" in note for note in caught.value.__notes__)
        assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before

    def test_arguments_are_looked_at_first(self, tmp_path: Path) -> None:
        for wrong in ({"compression": "no"}, {"name": "a/b"}, {"name": "_a"}, {"schema": {"no": pa.int8()}}):
            with pytest.raises(rpq.SchemaError):
                rpqd.write(frame_of(), tmp_path, **wrong)  # type: ignore[arg-type]
        with pytest.raises(rpq.SchemaError, match="Series"):
            rpqd.write(frame_of()["n"], tmp_path)
        twice = dd.from_pandas(pd.DataFrame([[1, 2]], columns=["a", 3]), npartitions=1)
        with pytest.raises(rpq.SchemaError, match="no text"):
            rpqd.write(twice, tmp_path)
        assert names(tmp_path) == []


def _failing(rows: pd.DataFrame) -> pd.DataFrame:
    if 250 in rows["n"].to_numpy():
        raise ZeroDivisionError("as asked")
    return rows


@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
def test_folders_are_done_here(tmp_path: Path) -> None:
    rpqd.write(frame_of(), tmp_path / "in")
    torn = sorted((tmp_path / "in").glob("*.parquet"))[1]
    torn.write_bytes(torn.read_bytes()[:-8])
    summary = rpqd.check(tmp_path / "in").finish()
    assert (summary.num_files, summary.exit_code) == (4, 1)
    assert rpqd.recover(tmp_path / "in", tmp_path / "out").finish().num_rows == 400
    assert len(rpqd.read(tmp_path / "out")) == 400


async def test_an_attempt_that_is_late_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose worker was taken for dead, and goes on all the same."""
    schema = pa.schema([("n", pa.int64())])
    part = partition_write.PartitionTarget(tmp_path / "part-00000-0.parquet", schema, "stop", EncoderOptions(), None)
    first = await partition_write._written(pa.table({"n": [1, 2]}), part)
    data = (tmp_path / "part-00000-0.parquet").read_bytes()
    assert await partition_write._written(pa.table({"n": [1, 2]}), part) == first
    exists = LocalStore.exists
    looked: list[str] = []

    async def not_yet(store: LocalStore, key: str) -> bool:
        looked.append(key)
        return await exists(store, key) if len(looked) > 1 else False

    monkeypatch.setattr(LocalStore, "exists", not_yet)
    assert await partition_write._written(pa.table({"n": [1, 2]}), part) == first
    assert (tmp_path / "part-00000-0.parquet").read_bytes() == data
    assert names(tmp_path) == ["part-00000-0.parquet"]
