"""The cases of `everyday.py`, what each contestant does in them, and the process that does it when it is told to.

Nothing heavy is imported here at the top: a worker sets the processors that it may use before libraries count them.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa

BUCKET, KEY, SECRET, REGION = "bench", "bench", "bench-secret", "us-east-1"
WIDE = tuple(f"c{number:03}" for number in range(0, 200, 4))
TWO = ("c003", "c014")
TURN_SECONDS = 0.05  # what takes less is done several times in a turn
UPLOADED_BATCHES = 30
SMALL_FILES = 200
MIXED_ROWS = 1_500_000
MIXED = ("trip_id", "pickup", "passengers", "distance", "payment", "fare", "remark")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a contestant works.

    Attributes:
        data: The folder of the inputs.
        out: An empty folder of its own.
        endpoint: Of the server that the case wants; empty for none.
        threads: How many may work.
        cores: The processors that it has.
    """

    data: Path
    out: Path
    endpoint: str
    threads: int
    cores: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A work with everything ready.

    Attributes:
        work: What is measured.
        before: Called before each time, outside of the clock.
        verify: Called with the first result; raises AssertionError where it is not what it should be.
    """

    work: Callable[[], Any]
    before: Callable[[], Any] | None = None
    verify: Callable[[Any], None] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the table.

    Attributes:
        name: For the command line.
        title: In words.
        works: By contestant, what prepares its work; for what is measured in a new process each time, the program.
        aim: The ratio that is wanted.
        threads: How many may work, each in turn.
        server: The network of the server that it wants.
        inputs: Makes the files that it reads, and names the objects of the server among them.
    """

    name: str
    title: str
    works: Mapping[str, Callable[[Place], Prepared] | str]
    aim: float
    threads: tuple[int, ...] = (2,)
    server: Literal["", "far"] = ""
    inputs: Callable[[Path], Path | None] = lambda _: None


# -- the inputs ------------------------------------------------------------------------------------


def _many_chunks(data: Path) -> Path:
    path: Path = _datasets().random_columns_input(200, 50, 2_000, data)
    return path


def _all_groups(data: Path) -> Path:
    path: Path = _datasets().random_columns_input(20, 8, 96_000, data)
    return path


def _fifty(data: Path) -> Path:
    path: Path = _datasets().random_columns_input(50, 1, 10_000, data)
    return path


def _small(data: Path) -> Path:
    datasets = _datasets()
    path: Path = datasets.kept_input("small-1000", lambda: datasets.mixed(1_000), data)
    return path


def _small_groups(data: Path) -> Path:
    datasets = _datasets()
    path: Path = datasets.kept_input("small-groups", lambda: datasets.mixed(20_000), data, row_group_size=100)
    return path


def _many_columns(data: Path) -> Path:
    datasets = _datasets()
    path: Path = datasets.kept_input("floats-10000", lambda: datasets.floats(10_000, 1_000), data, use_dictionary=False)
    return path


def _floats(codec: str, data: Path) -> Path:
    datasets = _datasets()
    options = {"compression": codec, "use_dictionary": False}
    path: Path = datasets.kept_input(f"floats-50-{codec}", lambda: datasets.floats(50, 400_000), data, **options)
    return path


def _taxi(data: Path) -> Path:
    path: Path = _datasets().parquet_input("taxi", MIXED_ROWS, "zstd", 1, data)
    return path


def _datasets() -> ModuleType:
    return importlib.import_module("datasets")


# -- whole tables, by the modules of `contestants` ----------------------------------------------------


def _reading(contestant: str, inputs: Callable[[Path], Path], job: dict[str, Any], place: Place) -> Prepared:
    module, name = _module(contestant)
    path = inputs(place.data)
    work = module.reading(
        name, module.Job(**{"work": "read", **job}, contestant=name, path=path, threads=place.threads)
    )
    columns = job.get("columns")
    return Prepared(work, verify=lambda result: _compare(module.as_arrow(result), _expected(path, columns)))


def _writing(
    contestant: str,
    inputs: Callable[[Path], Path],
    job: dict[str, Any],
    place: Place,
    columns: tuple[str, ...] | None = None,
) -> Prepared:
    module, name = _module(contestant)
    table = _expected(inputs(place.data), columns)
    path = place.out / "written.parquet"
    details = {"contestant": name, "work": "write", "path": path, "threads": place.threads}
    work = module.writing(name, table, module.Job(**details, **job))
    return Prepared(work, lambda: path.unlink(missing_ok=True), lambda _: _compare(_expected(path), table))


def _module(contestant: str) -> tuple[Any, str]:
    return importlib.import_module(f"contestants.{contestant.partition('-')[0]}"), contestant


def _expected(path: Path, columns: tuple[str, ...] | None = None) -> pa.Table:
    import pyarrow.parquet as pq  # noqa: PLC0415

    return pq.read_table(path, columns=None if columns is None else list(columns))


def _compare(found: pa.Table, expected: pa.Table) -> None:
    """Raises AssertionError where two tables differ; of very many columns the first hundred are looked at."""
    import pyarrow as pa  # noqa: PLC0415

    assert found.num_columns == expected.num_columns, f"{found.num_columns} columns"
    assert found.num_rows == expected.num_rows, f"{found.num_rows:,} rows"
    for field in list(expected.schema)[:100]:
        same = pa.chunked_array(found.column(field.name)).cast(field.type).equals(expected.column(field.name))
        assert same, f"column {field.name!r} is not what was written"


def whole(
    what: Callable[..., Prepared],
    inputs: Callable[[Path], Path],
    without: tuple[str, ...] = (),
    columns: tuple[str, ...] | None = None,
    **job: Any,
) -> dict[str, Callable[[Place], Prepared]]:
    """What all but some do with a table."""
    more = {"columns": columns} if what is _writing else {}
    job = job if what is _writing else {**job, "columns": columns}
    names = [name for name in ("ours", "pyarrow", "pyarrow-tuned", "polars", "duckdb") if name not in without]
    return {name: partial(what, name, inputs, job, **more) for name in names}


# -- other local works -------------------------------------------------------------------------------


def _folder_of_small(place: Place) -> Path:
    """Two hundred small files."""
    folder = place.out / "files"
    folder.mkdir()
    data = _small(place.data).read_bytes()
    for number in range(SMALL_FILES):
        (folder / f"{number:03}.parquet").write_bytes(data)
    return folder


def _files(contestant: str, place: Place) -> Prepared:
    """The files of a folder as one table."""
    import pyarrow as pa  # noqa: PLC0415

    folder = _folder_of_small(place)
    expected = pa.concat_tables([_expected(_small(place.data))] * SMALL_FILES)
    rows: Callable[[], Any]
    if contestant == "ours":
        from resilient_pq import sync as rpq  # noqa: PLC0415

        def rows() -> Any:
            with rpq.open_many(str(folder)) as dataset:
                return pa.table(dataset.read())

    elif contestant == "pyarrow":
        import pyarrow.parquet as pq  # noqa: PLC0415

        rows = partial(pq.read_table, folder)
    elif contestant == "polars":
        import polars as pl  # noqa: PLC0415

        rows = lambda: pl.read_parquet(folder).to_arrow(compat_level=pl.CompatLevel.oldest())  # noqa: E731
    else:
        import duckdb  # noqa: PLC0415

        connection = duckdb.connect(config={"threads": place.threads})
        rows = connection.sql(f"FROM read_parquet('{folder}/*.parquet')").to_arrow_table
    return Prepared(rows, verify=lambda result: _compare(result, expected))


def _open_wide(contestant: str, place: Place) -> Prepared:
    """Open a file of 10,000 columns for its schema."""
    path = str(_many_columns(place.data))
    work: Callable[[], Any]
    if contestant == "ours":
        from resilient_pq import sync as rpq  # noqa: PLC0415

        def work() -> Any:
            with rpq.open(path) as file:
                return file.schema

    elif contestant == "pyarrow":
        import pyarrow.parquet as pq  # noqa: PLC0415

        work = lambda: pq.ParquetFile(path).schema  # noqa: E731
    else:
        import polars as pl  # noqa: PLC0415

        work = partial(pl.read_parquet_schema, path)
    return Prepared(work)


# -- over a network: a client for each open ----------------------------------------------------------


def _remote(contestant: str, inputs: Callable[[Path], Path], columns: tuple[str, ...], place: Place) -> Prepared:
    """Columns of an object, by its URL and the options of the store."""
    path = inputs(place.data)
    name = f"{BUCKET}/{path.name}"
    work: Callable[[], Any]
    if contestant == "ours":
        from resilient_pq import sync as rpq  # noqa: PLC0415

        options = rpq.ReadOptions(max_threads=place.threads)
        storage = {"key": KEY, "secret": SECRET, "endpoint_url": place.endpoint}

        def work() -> Any:
            with rpq.open(f"s3://{name}", storage_options=storage, options=options) as file:
                return file.read(columns)

    elif contestant == "polars":
        import polars as pl  # noqa: PLC0415

        def work() -> Any:
            rows = pl.scan_parquet(f"s3://{name}", storage_options=_polars_options(place.endpoint))
            return rows.select(columns).collect()

    elif contestant == "pyarrow":
        import pyarrow.parquet as pq  # noqa: PLC0415
        from pyarrow import fs  # noqa: PLC0415

        def work() -> Any:
            store = fs.S3FileSystem(access_key=KEY, secret_key=SECRET, endpoint_override=place.endpoint, region=REGION)
            return pq.read_table(name, filesystem=store, columns=list(columns))

    else:
        import pyarrow.parquet as pq  # noqa: PLC0415
        from obstore.fsspec import FsspecStore  # noqa: PLC0415

        def work() -> Any:
            store = FsspecStore("s3", **_obstore_options(place.endpoint))
            with store.open(name, "rb") as file:
                return pq.read_table(file, columns=list(columns))

    return Prepared(work, verify=lambda result: _compare(_as_table(result), _expected(path, columns)))


def _as_table(result: Any) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415

    return pa.table(result)


def _polars_options(endpoint: str) -> dict[str, Any]:
    return {
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_endpoint_url": endpoint,
        "aws_region": REGION,
        "aws_allow_http": "true",
    }


def _obstore_options(endpoint: str) -> dict[str, Any]:
    return {
        "endpoint": endpoint,
        "access_key_id": KEY,
        "secret_access_key": SECRET,
        "region": REGION,
        "virtual_hosted_style_request": False,
        "client_options": {"allow_http": True},
    }


def _uploading(contestant: str, place: Place) -> Prepared:
    """Batches of plain floats into an object, as `upload.py` has them."""
    upload = importlib.import_module("upload")
    task = upload.Task(place.endpoint, True, "none", "floats", UPLOADED_BATCHES, None, True)
    producer = upload.Producer(task)
    names = (f"{contestant}-{number}.parquet" for number in itertools.count())
    return Prepared(lambda: upload.CONTENDERS[contestant](task, producer, next(names)))


# -- programs: each time in a new process -------------------------------------------------------------

_OURS_COLD = f"""
from resilient_pq import sync as rpq
storage = {{"key": {KEY!r}, "secret": {SECRET!r}, "endpoint_url": endpoint}}
with rpq.open("s3://" + name, storage_options=storage) as file:
    table = file.read(columns)
"""
_POLARS_COLD = f"""
import polars as pl
storage = {{"aws_access_key_id": {KEY!r}, "aws_secret_access_key": {SECRET!r}, "aws_endpoint_url": endpoint,
           "aws_region": {REGION!r}, "aws_allow_http": "true"}}
table = pl.scan_parquet("s3://" + name, storage_options=storage).select(columns).collect()
"""
_PYARROW_COLD = f"""
import pyarrow.parquet as pq
from pyarrow import fs
store = fs.S3FileSystem(access_key={KEY!r}, secret_key={SECRET!r}, endpoint_override=endpoint, region={REGION!r})
table = pq.read_table(name, filesystem=store, columns=columns)
"""


def _cold(columns: tuple[str, ...], *, slow: bool = True) -> dict[str, Callable[[Place], Prepared] | str]:
    """Programs that import what they need, and read columns of an object; pyarrow only where it is not `slow`."""
    programs = {"ours": _OURS_COLD, "polars": _POLARS_COLD, **({} if slow else {"pyarrow": _PYARROW_COLD})}
    return {name: f"columns = {list(columns)!r}\n{text}" for name, text in programs.items()}


_OURS_FIRST = """
from resilient_pq import sync as rpq
table = rpq.read(path)
"""
_POLARS_FIRST = """
import polars as pl
table = pl.read_parquet(path)
"""
_PYARROW_FIRST = """
import pyarrow.parquet as pq
table = pq.read_table(path)
"""
_DUCKDB_FIRST = """
import duckdb, pyarrow
table = duckdb.sql(f"FROM read_parquet('{path}')").to_arrow_table()
"""


def _command(*arguments: str) -> str:
    return f"import subprocess\nsubprocess.run([sys.executable, *{arguments!r}], stdout=subprocess.DEVNULL, check=True)"


def program(body: str, place: Place, path: Path | None) -> str:
    """A program that does the work and prints its seconds, and those of the processor, of its children as well."""
    names = {"endpoint": place.endpoint, "path": str(path), "name": f"{BUCKET}/{path.name if path else ''}"}
    return f"""import os, resource, sys, time
def cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime
{chr(10).join(f"{name} = {value!r}" for name, value in names.items())}
_cpu, _begin = cpu(), time.perf_counter()
{body}
_end = time.perf_counter()
print("[[%.9f, %.9f]]" % (_end - _begin, cpu() - _cpu), flush=True)
os._exit(0)
"""


# -- the table ---------------------------------------------------------------------------------------

_NO_VIEWS = ("pyarrow", "pyarrow-tuned", "duckdb")
_READERS = ("ours", "polars", "pyarrow")

CASES: tuple[Case, ...] = (
    Case(
        "import",
        "import",
        {
            "ours": "import resilient_pq",
            "ours-sync": "import resilient_pq.sync",
            "pyarrow": "import pyarrow.parquet",
            "polars": "import polars",
            "duckdb": "import duckdb",
        },
        1.0,
    ),
    Case(
        "help",
        "`rpq --help` (pyarrow: a process that imports it)",
        {"ours": _command("-m", "resilient_pq", "--help"), "pyarrow": _command("-c", "import pyarrow.parquet")},
        1.0,
    ),
    Case(
        "small-first",
        "import, and read 1,000 rows x 5 columns",
        {"ours": _OURS_FIRST, "pyarrow": _PYARROW_FIRST, "polars": _POLARS_FIRST, "duckdb": _DUCKDB_FIRST},
        1.0,
        inputs=_small,
    ),
    Case("small-write", "write 1,000 rows x 5 columns", whole(_writing, _small, codec="snappy"), 0.7, inputs=_small),
    Case("small-read", "read 1,000 rows x 5 columns", whole(_reading, _small), 1.0, inputs=_small),
    Case(
        "small-files",
        f"read {SMALL_FILES} such files as one table",
        {name: partial(_files, name) for name in ("ours", "pyarrow", "polars", "duckdb")},
        1.0,
        inputs=_small,
    ),
    Case(
        "groups-write",
        "write 200 row groups of 100 rows x 5 columns",
        whole(_writing, _small_groups, codec="snappy", row_group_rows=100),
        0.7,
        inputs=_small_groups,
    ),
    Case(
        "groups-read",
        "read 200 row groups of 100 rows x 5 columns",
        whole(_reading, _small_groups),
        1.0,
        inputs=_small_groups,
    ),
    Case(
        "columns-write",
        "write 10,000 columns x 1,000 rows",
        whole(_writing, _many_columns, codec="snappy"),
        0.7,
        inputs=_many_columns,
    ),
    Case("columns-read", "read 10,000 columns x 1,000 rows", whole(_reading, _many_columns), 0.7, inputs=_many_columns),
    Case(
        "columns-open",
        "open 10,000 columns x 1,000 rows, for the schema",
        {name: partial(_open_wide, name) for name in _READERS},
        1.0,
        inputs=_many_columns,
    ),
    Case(
        "chunks",
        "read 2,500 chunks of 16 KB: 50 of 200 columns x 50 row groups",
        whole(_reading, _many_chunks, columns=WIDE),
        1.0,
        inputs=_many_chunks,
    ),
    *(
        Case(
            f"floats-read-{codec}",
            f"read 50 columns x 400,000 floats, {codec}",
            whole(_reading, partial(_floats, codec)),
            1.0,
            (1, 2),
            inputs=partial(_floats, codec),
        )
        for codec in ("none", "zstd")
    ),
    *(
        Case(
            f"floats-write-{codec}",
            f"write 50 columns x 400,000 floats, {codec}",
            whole(_writing, partial(_floats, "none"), codec=codec, level=1 if codec == "zstd" else None),
            1.2,
            (1, 2),
            inputs=partial(_floats, "none"),
        )
        for codec in ("none", "zstd")
    ),
    Case(
        "two-columns",
        f"read 2 numeric of 12 columns x {MIXED_ROWS:,} rows, zstd",
        whole(_reading, _taxi, columns=("distance", "fare")),
        1.1,
        (1, 2),
        inputs=_taxi,
    ),
    Case(
        "views",
        f"read 12 columns x {MIXED_ROWS:,} rows, zstd, strings as views",
        whole(_reading, _taxi, _NO_VIEWS, work="read-view"),
        1.0,
        (1, 2),
        inputs=_taxi,
    ),
    Case(
        "mixed-read",
        f"read 12 columns x {MIXED_ROWS:,} rows, zstd",
        whole(_reading, _taxi),
        1.2,
        (1, 2, 4),
        inputs=_taxi,
    ),
    *(
        Case(
            f"mixed-write-{codec}",
            f"write 7 mixed columns x {MIXED_ROWS:,} rows, {codec}",
            whole(_writing, _taxi, columns=MIXED, codec=codec, level=1 if codec == "zstd" else None),
            1.2,
            (1, 2, 4),
            inputs=_taxi,
        )
        for codec in ("zstd", "snappy")
    ),
    Case(
        "s3-warm",
        "open an s3:// URL, read 2 of 50 columns",
        {name: partial(_remote, name, _fifty, TWO) for name in (*_READERS, "obstore")},
        1.0,
        server="far",
        inputs=_fifty,
    ),
    Case(
        "s3-cold",
        "import, open an s3:// URL, read 2 of 50 columns",
        _cold(TWO, slow=False),
        0.7,
        server="far",
        inputs=_fifty,
    ),
    Case(
        "s3-groups",
        "s3://: read 2 of 20 columns, 8 row groups",
        {name: partial(_remote, name, _all_groups, TWO) for name in (*_READERS, "obstore")},
        1.0,
        server="far",
        inputs=_all_groups,
    ),
    Case(
        "s3-groups-cold",
        "import, s3://: read 2 of 20 columns, 8 row groups",
        _cold(TWO, slow=False),
        0.7,
        server="far",
        inputs=_all_groups,
    ),
    Case(
        "s3-chunks",
        "s3://: read 2,500 chunks of 16 KB",
        {name: partial(_remote, name, _many_chunks, WIDE) for name in _READERS},
        1.0,
        server="far",
        inputs=_many_chunks,
    ),
    Case(
        "s3-chunks-cold",
        "import, s3://: read 2,500 chunks of 16 KB",
        _cold(WIDE),
        0.7,
        server="far",
        inputs=_many_chunks,
    ),
    Case(
        "s3-upload",
        f"s3://: stream {UPLOADED_BATCHES * 10} MB of plain floats",
        {"ours": partial(_uploading, "ours"), **{n: partial(_uploading, n) for n in ("obstore", "pyarrow-s3")}},
        1.0,
        server="far",
    ),
)


# -- the process that works --------------------------------------------------------------------------


def _once(prepared: Prepared) -> tuple[float, float, Any]:
    """Seconds, those of the processor, and the result."""
    if prepared.before is not None:
        prepared.before()
    cpu, begin = time.process_time(), time.perf_counter()
    result = prepared.work()
    return time.perf_counter() - begin, time.process_time() - cpu, result


def _turn(prepared: Prepared) -> list[tuple[float, float]]:
    """The times of a turn."""
    gc.collect()
    times: list[tuple[float, float]] = []
    while sum(seconds for seconds, _ in times) < TURN_SECONDS:
        times.append(_once(prepared)[:2])
    return times


def main() -> None:
    """Prepare, work and verify once, and take a turn for each line of the input; each gives a line of times."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("case", "contestant", "data", "out", "endpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    place = Place(Path(given.data), Path(given.out), given.endpoint, given.threads)
    prepare = next(case for case in CASES if case.name == given.case).works[given.contestant]
    assert not isinstance(prepare, str)
    prepared = prepare(place)
    seconds, cpu, result = _once(prepared)
    if prepared.verify is not None:
        prepared.verify(result)
    del result
    print(json.dumps([(seconds, cpu)]), flush=True)
    for _ in sys.stdin:
        print(json.dumps(_turn(prepared)), flush=True)
    os._exit(0)  # some libraries end their process by an abort when the interpreter goes


if __name__ == "__main__":
    main()
