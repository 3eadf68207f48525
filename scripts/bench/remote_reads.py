"""A few columns, or one row, of Parquet files in an object store: requests, bytes and time of this library and others.

Run it as ``python scripts/bench/remote_reads.py [--latency-ms 30] [--bandwidth 50e6] [--rounds 5] [--scale 1]``. A
server of ours (``slow_s3.py``) answers every request after the latency and sends on each connection no faster than the
bandwidth. Every run is a process of its own: it reads a tiny object first, so that imports and the first connection are
not counted, then each question is asked once, of an object of its own, so that nothing can be kept from one to the
next. Contestants take turns; medians, but one run of what takes longer than 3 s. In the first round every answer is
compared with what the file holds.

The bound of each question is what no reader goes below that asks for a contiguous range in one request, unless it is
longer than 8 MiB, and has 16 connections: round trips x latency, and of the footer and then of the wanted ranges the
bytes through the bandwidth. Two round trips, and a third where the footer, with the indexes that are needed, is longer
than 256 KiB: nobody knows its length before.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import DEFAULT_FOLDER, keyed_input, random_columns_input
from remote_contestants import CONTESTANTS, KEY, REGION, SECRET, Question, SkippedError, prefer
from slow_s3 import running
from taking_turns import machine

import resilient_pq as rpq
from resilient_pq.format.file_metadata import ColumnMetaData
from resilient_pq.units import KiB, MiB

CONNECTIONS = 16
UNSPLIT = 8 * MiB
TAIL = 256 * KiB
DEFAULT = "ours-s3,ours-http,pyarrow-s3,pyarrow-s3fs,fsspec-parquet,polars,duckdb-httpfs"
SECONDS = 300  # of a process
LONG_SECONDS = 3.0  # who takes longer for an answer is asked for it only once


@dataclass(frozen=True, slots=True)
class Case:
    """A question, and the file it is asked of.

    Attributes:
        title: In words.
        path: The file on disk.
        question: With the name of an object that no other case has.
    """

    title: str
    path: Path
    question: Question


@dataclass(frozen=True, slots=True)
class Wanted:
    """What no reader can do without, in bytes.

    Attributes:
        footer: Of the footer, and of the indexes that choose the pages.
        ranges: Contiguous ranges of column chunks or pages.
    """

    footer: int
    ranges: tuple[int, ...]

    @property
    def round_trips(self) -> int:
        return 2 + (self.footer > TAIL)

    def seconds(self, latency: float, bandwidth: float) -> float:
        """The bound; see the top of this file."""
        if not bandwidth:
            return self.round_trips * latency
        longest = max(min(size, UNSPLIT) for size in self.ranges)
        wave = max(longest, sum(self.ranges) / CONNECTIONS)
        return self.round_trips * latency + (self.footer + wave) / bandwidth


@dataclass(slots=True)
class Run:
    """One answer: seconds of wall time, seconds of processor time, requests by what they ask for, bytes sent."""

    seconds: float
    cpu_seconds: float
    requests: dict[str, int]
    moved: int


# -- the cases -------------------------------------------------------------------------------------


def make_cases(folder: Path, scale: float) -> list[Case]:
    """The cases, their files made where they are missing."""
    group_rows, wide_rows, keyed_rows = (max(100, int(rows * scale)) for rows in (96_000, 2_000, 250_000))
    flat = random_columns_input(20, 8, group_rows, folder)
    wide = random_columns_input(200, 50, wide_rows, folder)
    theirs = keyed_input(4, keyed_rows, folder)
    ours = _by_us(theirs)
    two, fifty = ("c003", "c014"), tuple(f"c{number:03}" for number in range(0, 200, 4))
    row = ("key", "v0", "v1", "v2", "v3", "v4")
    key = 3 * (2 * keyed_rows + keyed_rows // 3)
    return [
        Case("2 of 20 columns, one of 8 row groups", flat, Question("one.parquet", two, 2, group_rows)),
        Case("2 of 20 columns, all 8 row groups", flat, Question("all.parquet", two)),
        Case("50 of 200 columns, all 50 row groups", wide, Question("wide.parquet", fifty)),
        Case("one row by key, page index, our file", ours, Question("ours.parquet", row, key=key)),
        Case("one row by key, page index, pyarrow's file", theirs, Question("theirs.parquet", row, key=key)),
    ]


def _by_us(path: Path) -> Path:
    """The same rows in a file that this library wrote."""
    ours = path.with_name(f"{path.stem}-rpq{rpq.__version__}.parquet")
    if not ours.exists():
        partial = ours.with_suffix(".partial")

        async def write() -> None:
            source = pq.ParquetFile(path)
            rows = source.metadata.row_group(0).num_rows
            async with rpq.create(partial, row_group_rows=rows) as writer:
                for number in range(source.num_row_groups):
                    await writer.write(source.read_row_group(number))

        asyncio.run(write())
        partial.replace(ours)
    return ours


async def wanted_of(case: Case) -> Wanted:
    """What a question needs of its file."""
    question = case.question
    async with rpq.open(case.path) as file:
        size = case.path.stat().st_size
        with case.path.open("rb") as raw:
            raw.seek(size - 8)
            footer = int.from_bytes(raw.read(4), "little") + 8
        if question.key is not None:
            return await _pages_of_key(file, question, footer)
        numbers = range(file.num_row_groups) if question.row_group is None else [question.row_group]
        pieces = [
            _extent(chunk.meta_data)
            for number in numbers
            for chunk in file.metadata.row_groups[number].columns
            if ".".join(chunk.meta_data.path_in_schema) in question.columns
        ]
        return Wanted(footer, _joined(pieces))


async def _pages_of_key(file: rpq.File, question: Question, footer: int) -> Wanted:
    """The pages of all columns that have the rows of the page which has the key."""
    assert question.key is not None
    for number in range(file.num_row_groups):
        bounds = file.statistics(number, "key")
        if not bounds.low <= question.key <= bounds.high:
            continue
        index, places = await file.column_index(number, "key"), await file.offset_index(number, "key")
        assert index is not None and places is not None
        page = next(at for at, page in enumerate(index.pages) if page.low <= question.key <= page.high)
        starts = [one.first_row_index for one in places.page_locations]
        ends = [*starts[1:], file.metadata.row_groups[number].num_rows]
        pieces, indexes = [], 0
        for chunk in file.metadata.row_groups[number].columns:
            name = ".".join(chunk.meta_data.path_in_schema)
            indexes += chunk.offset_index_length or 0
            indexes += (chunk.column_index_length or 0) if name == "key" else 0
            pieces += await _pages(file, number, chunk.meta_data, name, range(starts[page], ends[page]))
        return Wanted(footer + indexes, _joined(pieces))
    raise ValueError("no row group has the key")


async def _pages(file: rpq.File, number: int, chunk: ColumnMetaData, name: str, rows: range) -> list[tuple[int, int]]:
    """Beginning and end of a chunk's dictionary, and of its pages that have some of the rows."""
    places = await file.offset_index(number, name)
    assert places is not None
    locations = places.page_locations
    ends = [*(one.first_row_index for one in locations[1:]), file.metadata.row_groups[number].num_rows]
    begin, _ = _extent(chunk)
    found = [(begin, locations[0].offset)] if begin < locations[0].offset else []
    for page, end in zip(locations, ends, strict=True):
        if page.first_row_index < rows.stop and end > rows.start:
            found.append((page.offset, page.offset + page.compressed_page_size))
    return found


def _extent(chunk: ColumnMetaData) -> tuple[int, int]:
    begin = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
    return begin, begin + chunk.total_compressed_size


def _joined(pieces: list[tuple[int, int]]) -> tuple[int, ...]:
    """Sizes, with neighbours as one."""
    joined: list[list[int]] = []
    for begin, end in sorted(pieces):
        if joined and begin == joined[-1][1]:
            joined[-1][1] = end
        else:
            joined.append([begin, end])
    return tuple(end - begin for begin, end in joined)


# -- one run, in a process of its own --------------------------------------------------------------


def answer_all(contestant: str, endpoint: str, cases: Sequence[Case], *, verify: bool) -> dict[str, Any]:
    """What each case took, by its title; text where the contestant did not answer."""
    try:
        ask = CONTESTANTS[contestant](endpoint)
        ask(Question("tiny.parquet", ("c000",)))
    except (SkippedError, ImportError) as error:
        return {case.title: str(error) for case in cases}
    found: dict[str, Any] = {}
    for case in cases:
        _ask_server(endpoint, "reset", b"")
        cpu, begin = time.process_time(), time.perf_counter()
        try:
            table = ask(case.question)
        except Exception as error:  # what others raise is their affair; a row of the table says so
            found[case.title] = str(error) if isinstance(error, SkippedError) else f"failed: {error!r}"
            continue
        seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
        stats = _ask_server(endpoint, "stats", None)
        found[case.title] = asdict(Run(seconds, cpu_seconds, stats["requests"], stats["bytes_out"]))
        if verify and not _is_right(table, case):
            found[case.title] = "wrong rows"
    return found


def _is_right(table: pa.Table, case: Case) -> bool:
    question = case.question
    if question.row_group is not None:
        expected = pq.ParquetFile(case.path).read_row_group(question.row_group, list(question.columns))
    else:
        expected = pq.read_table(case.path, columns=list(question.columns), filters=question.filters)
    found = table.select(question.columns).cast(pa.schema(expected.schema.remove_metadata()))
    return expected.num_rows > 0 and found.equals(expected.replace_schema_metadata())


def _ask_server(endpoint: str, what: str, data: bytes | None) -> dict[str, Any]:
    with urllib.request.urlopen(f"{endpoint}/-/{what}", data=data) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


# -- all runs --------------------------------------------------------------------------------------


@contextlib.contextmanager
def slow_server(cases: Sequence[Case], tiny: Path, *, latency_ms: float, bandwidth: float) -> Iterator[str]:
    """The endpoint of a server with an object for each case."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tiny.parquet").symlink_to(tiny.absolute())
        for case in cases:
            (Path(folder) / case.question.name).symlink_to(case.path.absolute())
        with running(f"--serve={folder}", f"--latency-ms={latency_ms}", f"--bandwidth={bandwidth}") as endpoint:
            yield endpoint


def take_turns(
    contestants: Sequence[str], cases: Sequence[Case], endpoint: str, *, rounds: int, duckdb: Path | None
) -> dict[str, dict[str, list[Run] | str]]:
    """For each contestant and case its runs, or why there are none."""
    found: dict[str, dict[str, list[Run] | str]] = {name: {case.title: [] for case in cases} for name in contestants}
    for number in range(rounds):
        for name in contestants if number % 2 == 0 else contestants[::-1]:
            asked = [case for case in cases if _asked_again(found[name][case.title])]
            answers = _in_process(name, endpoint, asked, verify=number == 0, duckdb=duckdb)
            for case in asked:
                answer, runs = answers[case.title], found[name][case.title]
                if isinstance(answer, str):
                    found[name][case.title] = answer
                elif isinstance(runs, list):
                    runs.append(Run(**answer))
    return found


def _asked_again(runs: list[Run] | str) -> bool:
    return not isinstance(runs, str) and not (runs and runs[0].seconds > LONG_SECONDS)


def _in_process(
    name: str, endpoint: str, cases: Sequence[Case], *, verify: bool, duckdb: Path | None
) -> dict[str, Any]:
    task = {
        "contestant": name,
        "endpoint": endpoint,
        "verify": verify,
        "prefer": str(duckdb) if duckdb is not None and name == "duckdb-httpfs" else None,
        "cases": [asdict(case) for case in cases],
    }
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    command = [sys.executable, __file__, "--task", json.dumps(task, default=str)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {case.title: f"more than {SECONDS} s" for case in cases}
    if not done.stdout.strip():
        last = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        return {case.title: f"failed: {last}" for case in cases}
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def _run_task(text: str) -> None:
    task = json.loads(text)
    if task["prefer"]:
        prefer(task["prefer"])
    cases = [Case(case["title"], Path(case["path"]), Question.from_json(case["question"])) for case in task["cases"]]
    print(json.dumps(answer_all(task["contestant"], task["endpoint"], cases, verify=task["verify"])), flush=True)
    os._exit(0)  # some clients end their process by an abort when the interpreter goes


# -- the report ------------------------------------------------------------------------------------


def report(
    cases: Sequence[Case],
    found: dict[str, dict[str, list[Run] | str]],
    bounds: dict[str, Wanted],
    *,
    latency: float,
    bandwidth: float,
) -> None:
    """For each case its bound and a table."""
    for case in cases:
        wanted = bounds[case.title]
        bound = wanted.seconds(latency, bandwidth)
        print(f"\n**{case.title}** ({case.path.stat().st_size / 1e6:.0f} MB)\n")
        print(
            f"Bound {bound * 1e3:.0f} ms: {wanted.round_trips} x {latency * 1e3:g} ms, {wanted.footer / 1e6:.3f} MB "
            f"of footer and indexes, {sum(wanted.ranges) / 1e6:.2f} MB in {len(wanted.ranges)} ranges.\n"
        )
        print("| reader | requests | of these HEAD | MB moved | ms | of the bound | CPU ms |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for name, by_case in found.items():
            runs = by_case[case.title]
            if isinstance(runs, str) or not runs:
                print(f"| {name} | {runs or 'no runs'} | | | | | |")
                continue
            ms = statistics.median(run.seconds for run in runs) * 1e3
            cells = (
                f"{statistics.median(sum(run.requests.values()) for run in runs):.0f}",
                f"{statistics.median(run.requests.get('HeadObject', 0) for run in runs):.0f}",
                f"{statistics.median(run.moved for run in runs) / 1e6:.2f}",
                f"{ms:.0f}",
                f"{ms / 1e3 / bound:.2f}",
                f"{statistics.median(run.cpu_seconds for run in runs) * 1e3:.0f}",
            )
            print(f"| {name} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contestants", default=DEFAULT, help=f"of {', '.join(CONTESTANTS)}")
    parser.add_argument("--cases", default="", help="parts of the titles of those wanted, with commas; all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="rows of row groups, for a quick look at 0.1")
    parser.add_argument("--latency-ms", type=float, default=30.0, help="before every answer")
    parser.add_argument("--bandwidth", type=float, default=50e6, help="bytes/s of each connection; 0 for no limit")
    parser.add_argument("--data", type=Path, default=DEFAULT_FOLDER, help="where files are kept")
    parser.add_argument(
        "--duckdb",
        type=Path,
        help="a folder with packages duckdb and duckdb-extension-httpfs of one version (pip install --target)",
    )
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        _run_task(arguments.task)
    parts = arguments.cases.split(",")
    every = make_cases(arguments.data, arguments.scale)
    cases = [case for case in every if any(part in case.title for part in parts)]
    bounds = {case.title: asyncio.run(wanted_of(case)) for case in cases}
    tiny = random_columns_input(1, 1, 100, arguments.data)
    network = {"latency_ms": arguments.latency_ms, "bandwidth": arguments.bandwidth}
    load = os.getloadavg()[0]
    with slow_server(cases, tiny, **network) as endpoint:
        found = take_turns(
            arguments.contestants.split(","), cases, endpoint, rounds=arguments.rounds, duckdb=arguments.duckdb
        )
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(
        f"{arguments.latency_ms:g} ms, {arguments.bandwidth / 1e6:g} MB/s a connection, medians of "
        f"{arguments.rounds}, load {load:.1f} before"
    )
    report(cases, found, bounds, latency=arguments.latency_ms / 1e3, bandwidth=arguments.bandwidth)


if __name__ == "__main__":
    main()
