"""What is imported, and when: names, verbs and packages wait until they are asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: What a program imports of ours, and which of the libraries that it could have done without.
_TOLD = """
ours = [name for name in sys.modules if name.split(".")[0] == "resilient_pq"]
print(len(ours), *sorted({(name + "..").split(".")[1] for name in ours} | {*LIBRARIES} & {*sys.modules}))
"""
LIBRARIES = [
    "numpy",
    "nanoarrow",
    "asyncio",
    "aiofiles",
    "aiobotocore",
    "botocore",
    "aiohttp",
    "cramjam",
    "dask",
    "duckdb",
    "fsspec",
    "isal",
    "pandas",
    "polars",
    "pyarrow",
    "rich",
    "s3fs",
    "thrift",
    "typer",
    "xxhash",
]
#: Packages that an ordinary read or write has nothing to do with.
ABOVE = {"bulk", "cli", "dask", "dataset", "engines", "recovery", "trevni"}
READ = "with rpq.open(path) as file: assert file.read().num_rows == 3"
WRITE = "with rpq.create(path) as writer: writer.write({'a': [1, 2, 3], 'b': ['x', 'y', 'z'], 'c': [1.5, 2.5, None]})"


def imported(program: str, *arguments: str) -> tuple[int, set[str]]:
    """How many modules of ours there are after a program, and which packages of ours and libraries."""
    code = f"import sys\nLIBRARIES = {LIBRARIES!r}\n{program}\n{_TOLD}"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    count, *names = done.stdout.splitlines()[-1].split()
    return int(count), set(names)


def test_a_plain_import_brings_nothing() -> None:
    assert imported("import resilient_pq") == (3, {"name_table", "version"})


def test_the_blocking_names_bring_the_loop_alone() -> None:
    count, names = imported("import resilient_pq.sync")
    assert count <= 10
    assert names & {*LIBRARIES} == {"asyncio"}


def test_help_brings_no_verb() -> None:
    count, names = imported("from resilient_pq.cli.main import run\nassert run(['--help']) == 0")
    assert count <= 14
    assert names & {*LIBRARIES} == {"asyncio", "typer"}


def test_a_name_brings_its_own_package() -> None:
    for name, packages in (("StoreError", {"errors", "error_chains"}), ("RetryPolicy", {"io"})):
        _, names = imported(f"from resilient_pq import {name}")
        assert packages <= names
        assert not names & {*ABOVE, "arrow", "damage", "format", "parity", "reader", "writer"}


@pytest.mark.parametrize(
    ("work", "most", "others"),
    [(READ, 126, {"parity", "writer"}), (WRITE, 150, {"damage", "reader"})],
    ids=["read", "write"],
)
def test_an_ordinary_local_file_brings_what_it_needs(work: str, most: int, others: set[str], tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    begin = "from resilient_pq import sync as rpq\npath = sys.argv[1]\n"
    imported(begin + WRITE, path)
    count, names = imported(begin + work, path)
    # A module that only few files need is imported in the function that needs it.
    assert count <= most, f"{count} modules; import what few files need where it is used, or say here why all need it"
    assert not names & (ABOVE | others)
    assert not names & {"aiobotocore", "aiohttp", "botocore", "fsspec", "pyarrow", "rich", "s3fs", "typer"}


def test_names_are_there_for_those_who_list_them() -> None:
    told = "import resilient_pq as rpq\nassert {*rpq.__all__} <= {*dir(rpq)}\nassert rpq.io.LocalStore\n"
    with pytest.raises(subprocess.CalledProcessError):
        imported(told + "rpq.nothing")
    assert imported(told + "from resilient_pq import *\nassert recover and ReadOptions")[0] > 200
