"""`resilient_pq.dask.read`: a partition for each row group, the types of dask's own reader, and no footer twice."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq.dask as rpqd
from resilient_pq import sync as rpq

ROWS = 1000


@pytest.fixture(autouse=True)
def in_this_thread() -> Any:
    """Workers are in another module; here tasks run where they can be looked at."""
    with dask.config.set(scheduler="sync"):
        yield


def table_of_all_types(num_rows: int = ROWS) -> pa.Table:
    numbers = range(num_rows)
    day = datetime.datetime(2020, 1, 1)
    return pa.table(
        {
            "int": numbers,
            "small": pa.array([i % 100 for i in numbers], pa.int8()),
            "unsigned": pa.array(numbers, pa.uint32()),
            "float": np.arange(num_rows) / 2,
            "bool": [i % 2 == 0 for i in numbers],
            "text": [str(i) if i % 7 else None for i in numbers],
            "large": pa.array(["a"] * num_rows, pa.large_string()),
            "category": pa.array(["a", "b"] * (num_rows // 2)).dictionary_encode(),
            "date": pa.array([day.date()] * num_rows),
            "utc": pa.array([day] * num_rows, pa.timestamp("us", "UTC")),
            "nanos": pa.array([day] * num_rows, pa.timestamp("ns")),
            "time": pa.array([datetime.time(1)] * num_rows),
            "decimal": pa.array([decimal.Decimal("1.23")] * num_rows, pa.decimal128(10, 2)),
            "bytes": [b"x"] * num_rows,
            "list": [[1, 2]] * num_rows,
            "struct": [{"a": i, "b": "x"} for i in numbers],
        }
    )


@pytest.fixture(scope="module")
def all_types(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("read") / "all.parquet"
    pq.write_table(table_of_all_types(), path, row_group_size=300)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of ours, of two row groups each."""
    for number in range(3):
        with rpq.create(tmp_path / f"{number}.parquet", row_group_rows=50) as writer:
            first = 100 * number
            writer.write({"n": np.arange(first, first + 100), "text": [f"row {i}" for i in range(first, first + 100)]})
    return tmp_path


def assert_meta_is_exact(frame: Any) -> None:
    for part in frame.partitions:
        found = part.compute()
        stated = frame._meta
        assert list(found.columns) == list(stated.columns)
        for name in stated.columns:
            category = isinstance(stated[name].dtype, pd.CategoricalDtype)
            assert category == isinstance(found[name].dtype, pd.CategoricalDtype)
            assert category or found[name].dtype == stated[name].dtype, name
        assert found.index.dtype == stated.index.dtype


@pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")  # of dask's own
def test_types_are_those_of_dask(all_types: Path) -> None:
    theirs = dd.read_parquet(all_types, split_row_groups=True)
    ours = rpqd.read(all_types)
    assert ours.npartitions == 4 and not ours.known_divisions
    assert [str(kind) for kind in ours.dtypes] == [str(kind) for kind in theirs.dtypes]
    assert_meta_is_exact(ours)
    # Categories are known by each partition alone, and lists come as arrays.
    expected, found = theirs.compute(), ours.compute()
    for name in expected.columns:
        if name == "category":
            assert list(found[name].astype(object)) == list(expected[name].astype(object))
        else:
            pd.testing.assert_series_equal(found[name], expected[name])


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_types_of_other_backends_are_those_of_dask(all_types: Path, backend: Any) -> None:
    columns = [name for name in table_of_all_types(2).column_names if name != "category"]
    theirs = dd.read_parquet(all_types, columns=columns, dtype_backend=backend)
    ours = rpqd.read(all_types, columns=columns, dtype_backend=backend)
    assert ours.dtypes.to_dict() == theirs.dtypes.to_dict()
    assert_meta_is_exact(ours)


def test_text_is_what_dask_is_set_to(all_types: Path) -> None:
    with dask.config.set({"dataframe.convert-string": False}):
        theirs, ours = dd.read_parquet(all_types), rpqd.read(all_types)
        assert [str(kind) for kind in ours.dtypes] == [str(kind) for kind in theirs.dtypes]
        assert_meta_is_exact(ours)


def test_nulls_decide_for_all_partitions(tmp_path: Path) -> None:
    """dask's own reader states int64 and gives floating point, or rounds what is too large for that."""
    big = [2**60 + i for i in range(99)] + [None]
    table = pa.table(
        {
            "few": pa.array([*range(99), None], pa.int64()),
            "none": pa.array(range(100), pa.int64()),
            "big": pa.array(big, pa.int64()),
            "flag": pa.array([True] * 99 + [None]),
        }
    )
    pq.write_table(table, tmp_path / "n.parquet", row_group_size=50)
    frame = rpqd.read(tmp_path / "n.parquet")
    assert [str(kind) for kind in frame.dtypes] == ["float64", "int64", "Int64", "object"]
    assert_meta_is_exact(frame)
    found = frame.compute()
    assert found["big"].tolist()[:99] == big[:99] and found["big"].isna().tolist()[-1]


def test_nulls_that_nobody_counted_may_be_there(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([1, 2, None], pa.int32()), "flag": [True, None, False]})
    pq.write_table(table, tmp_path / "n.parquet", write_statistics=False)
    frame = rpqd.read(tmp_path / "n.parquet")
    assert [str(kind) for kind in frame.dtypes] == ["Int32", "boolean"]
    assert frame["n"].sum().compute() == 3


@pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")  # of dask's own
@pytest.mark.parametrize("index", [None, False, "n"])
@pytest.mark.parametrize("name", ["key", None])
def test_the_index_is_that_of_dask(tmp_path: Path, index: Any, name: str | None) -> None:
    data = pd.DataFrame({"n": range(10)}, index=pd.Index([f"k{i}" for i in range(10)], name=name))
    data.to_parquet(tmp_path / "i.parquet")
    theirs = dd.read_parquet(tmp_path / "i.parquet", index=index)
    ours = rpqd.read(tmp_path / "i.parquet", index=index)
    expected, found = theirs.compute(), ours.compute()
    assert sorted(found.columns) == sorted(expected.columns)
    pd.testing.assert_frame_equal(found[expected.columns], expected)
    assert ours.index.name == theirs.index.name
    assert_meta_is_exact(ours)


def test_filters_leave_row_groups_out_and_are_exact(folder: Path) -> None:
    frame = rpqd.read(folder, filters=[("n", ">=", 120), ("n", "<", 230), ("n", "not in", [125])])
    assert frame.npartitions == 3  # rows 100 to 149, 150 to 199 and 200 to 249
    assert frame.compute()["n"].tolist() == [n for n in range(120, 230) if n != 125]
    only_text = rpqd.read(folder, columns=["text"], filters=[("n", "==", 7)])
    assert only_text.compute()["text"].tolist() == ["row 7"]


def test_where_no_row_is_wanted_there_is_one_empty_partition(folder: Path) -> None:
    frame = rpqd.read(folder, filters=[("n", ">", 1000)])
    assert frame.npartitions == 1
    assert len(frame) == 0 and frame.dtypes.to_dict() == rpqd.read(folder).dtypes.to_dict()


def test_fields_inside_of_columns(all_types: Path) -> None:
    frame = rpqd.read(all_types, columns=["struct.a", "int"])
    assert frame.head(2)["struct"].tolist() == [{"a": 0}, {"a": 1}]
    assert frame["int"].sum().compute() == sum(range(ROWS))


def test_lists_patterns_and_summaries(folder: Path) -> None:
    expected = list(range(300))
    rpq.write_metadata(folder)
    for urls in (folder, str(folder), folder / "*.parquet", sorted(folder.glob("*.parquet")), folder / "_metadata"):
        frame = rpqd.read(urls)
        assert frame.npartitions == 6
        assert frame.compute()["n"].tolist() == expected


def test_columns_in_the_names_of_folders(tmp_path: Path) -> None:
    for day, shop in [(1, "a"), (1, "b%20c"), (2, "__HIVE_DEFAULT_PARTITION__")]:
        folder = tmp_path / f"day={day}" / f"shop={shop}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"n": [10 * day, 10 * day + 1]}), folder / "0.parquet")
    frame = rpqd.read(tmp_path, partitioning="hive")
    assert list(frame.columns) == ["n", "day", "shop"]
    assert_meta_is_exact(frame)
    found = frame.compute()
    assert found["day"].tolist() == [1, 1, 1, 1, 2, 2]
    assert found["shop"].tolist()[:4] == ["a", "a", "b c", "b c"] and found["shop"].isna().tolist()[4:] == [True, True]
    only = rpqd.read(tmp_path, columns=["shop"], filters=[("day", "=", 1), ("n", ">", 10)], partitioning="hive")
    assert only.npartitions == 2
    assert only.compute()["shop"].tolist() == ["a", "b c"]
    assert rpqd.read(tmp_path, partitioning="hive")["day"].sum().compute() == 8
    assert len(rpqd.read(tmp_path, filters=[("day", "=", 3)], partitioning="hive")) == 0
    assert list(rpqd.read(tmp_path).columns) == ["n"]


def test_files_whose_types_agree_only(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x"], "b": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"b": [2], "a": pa.array(["y"], pa.large_string())}), tmp_path / "1.parquet")
    assert rpqd.read(tmp_path).compute().to_dict("list") == {"a": ["x", "y"], "b": [1, 2]}
    pq.write_table(pa.table({"b": ["no"], "a": ["z"]}), tmp_path / "2.parquet")
    with pytest.raises(rpq.SchemaError, match="column 'b'"):
        rpqd.read(tmp_path)


@pytest.mark.parametrize("with_summary", [False, True])
def test_a_file_that_changed_since_is_no_answer(folder: Path, with_summary: bool) -> None:
    if with_summary:
        rpq.write_metadata(folder)
    frame = rpqd.read(folder)
    data = (folder / "1.parquet").read_bytes()
    (folder / "1.parquet").unlink()
    (folder / "1.parquet").write_bytes(data)  # of the same size
    with pytest.raises(rpq.ObjectChangedError, match=r"1\.parquet"):
        frame.compute()


def test_errors_name_the_row_group_of_the_file(folder: Path) -> None:
    path = folder / "1.parquet"
    with rpq.open(path) as file:
        chunk = file.metadata.row_groups[1].columns[0].meta_data
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(rpq.ChecksumError) as caught:
        rpqd.read(folder).compute()
    assert (caught.value.where.row_group, caught.value.where.column) == (1, "n")
    assert str(caught.value.where.key) == str(path)
    kept = rpqd.read(folder, on_damage="drop").compute()
    assert set(range(300)) - {*range(150, 200)} <= set(kept["n"]) < set(range(300))


def test_what_a_task_needs_is_small(tmp_path: Path) -> None:
    """A footer of 200 columns and 50 row groups does not travel with every row group of three columns."""
    table = pa.table({f"column {i}": range(100) for i in range(200)})
    pq.write_table(table, tmp_path / "wide.parquet", row_group_size=2)
    frame = rpqd.read(tmp_path / "wide.parquet", columns=["column 3", "column 5", "column 7"])
    (pieces,) = frame.expr.iterables
    shared = len(pickle.dumps(pieces[0].file))
    assert shared < 20_000
    assert len(pickle.dumps(pieces)) < shared + 50 * 2_500
    assert len(repr(pieces[0])) < 500


def test_no_footer_is_read_twice(s3_proxy: Any) -> None:
    s3, proxy = s3_proxy
    for number in range(3):
        with rpq.create(s3.url(f"d/{number}.parquet"), row_group_rows=50, storage_options=s3.storage_options) as writer:
            writer.write({"n": np.arange(100), "text": [str(i) for i in range(100)]})
    proxy.requests.clear()
    frame = rpqd.read(s3.url("d/"), storage_options=s3.storage_options)
    asked = {request.target for request in proxy.requests if ".parquet" in request.target}
    assert len(asked) == 3  # one for each footer
    proxy.requests.clear()
    assert frame["n"].sum().compute() == 3 * sum(range(100))
    # One range of each row group, and nothing else; a server that is slow to answer may be asked for one twice.
    asked = {(request.method, request.target, request.headers.get("range", "")) for request in proxy.requests}
    assert len(asked) == frame.npartitions == 6
    assert all(method == "GET" and range.startswith("bytes=") for method, _, range in asked)
    assert not any(range.startswith("bytes=-") for _, _, range in asked)


def test_stores_stay_where_they_are(tmp_path: Path) -> None:
    from resilient_pq.io import MemoryStore

    with pytest.raises(rpq.SchemaError, match="urls is"):
        rpqd.read((MemoryStore(), "x"))  # type: ignore[arg-type]
    with pytest.raises(rpq.NotFoundError):
        rpqd.read(tmp_path / "nowhere.parquet")
    with pytest.raises(rpq.SchemaError, match="dtype_backend"):
        rpqd.read(tmp_path, dtype_backend="numpy")  # type: ignore[arg-type]


def test_without_dask_the_hint_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['dask'] = None\n"
        "import resilient_pq\n"
        "try:\n    import resilient_pq.dask\n"
        "except resilient_pq.UnsupportedError as error:\n    print(error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "pip install resilient-pq[dask]"


def test_no_secret_of_a_url_stands_in_a_graph_or_an_error(guarded_site: Any, tmp_path: Path) -> None:
    """What the scheduler's page and a worker's log show is the repr of tasks and of what they are given."""
    path = tmp_path / "a.parquet"
    with rpq.create(path, row_group_rows=300) as writer:
        writer.write({"n": range(ROWS)})
    url = guarded_site.put("a.parquet", path.read_bytes())
    frame = rpqd.read([url, url])
    assert frame["n"].sum().compute() == 2 * sum(range(ROWS))
    texts = [repr(frame), repr(dict(frame.__dask_graph__())), repr(frame.__dask_keys__())]
    del guarded_site.files["a.parquet"]
    with pytest.raises(rpq.NotFoundError) as caught:
        frame.compute()
    texts += [*traceback.format_exception(caught.value), repr(caught.value), repr(vars(caught.value))]
    summary = rpqd.check([url]).finish()
    texts += [repr(summary), json.dumps(summary.to_json())]
    with pytest.raises(rpq.UnsupportedError, match=r"only be read|cannot list") as refused:
        rpqd.write(frame_of_one_column(), url)
    texts += traceback.format_exception(refused.value)
    for secret in guarded_site.secrets:
        assert not [text for text in texts if secret in text], secret


def frame_of_one_column() -> Any:
    return dd.from_pandas(pd.DataFrame({"n": range(10)}), npartitions=2)
