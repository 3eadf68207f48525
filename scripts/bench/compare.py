"""Writing and reading against the other libraries: makes the data sets, lets all take turns, prints tables.

Run it as ``python scripts/bench/compare.py [--sets taxi wide] [--works write read] [--codecs snappy zstd:1]``. Each
run is a process of its own, contestants take turns, the best of `--repeat` runs counts in each process, and the
median of `--rounds` processes is what the tables have. All use the same codec at the same level. Ratios ("by ours")
are the other's divided by ours: above 1, ours is better. Rows in parentheses are not compared to; they are there to
be known. A ratio is the median of those of each round, in which the machine was about equally busy for all. Each
table says how busy it was at its end: where it had other things to do as well, CPU times tell more.

MB/s are of the source as Arrow has it, so they mean the same for all. Peak memory is above what the process had
when it began, with the source loaded; when reading, "above" is what is left of it without the result itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
from contestants import ROSTER, Contestant, Job, Work
from measured import WARM_UP_ROWS, Task
from taking_turns import Runs, machine, take_turns

MB = 1e6
WORKS: tuple[Work, ...] = get_args(Work)
#: Where files are written: memory, where there is a file system in it, so that no disk is measured.
OUT = "/dev/shm" if Path("/dev/shm").is_dir() else None


@dataclass(frozen=True, slots=True)
class Case:
    """One table of results: what is done, to what, with which codec."""

    work: Work
    data_set: str
    codec: str
    level: int | None

    @property
    def title(self) -> str:
        level = "" if self.level is None else f" {self.level}"
        return f"{self.work} {self.data_set} {self.codec}{level}"


@dataclass(slots=True)
class Result:
    """What came of a case."""

    case: Case
    threads: int | None
    source_bytes: int
    runs: dict[str, Runs]
    load: float

    @property
    def title(self) -> str:
        threads = "default threads" if self.threads is None else f"{self.threads} thread"
        return f"{self.case.title}, {threads}{'s' if (self.threads or 0) > 1 else ''}"

    @property
    def ours(self) -> Runs | None:
        """Our own runs, where there are any."""
        runs = self.runs.get("ours")
        return runs if runs is not None and runs.runs else None

    @property
    def best_peer(self) -> str | None:
        peers = [one.name for one in ROSTER if one.peer and one.name in self.runs and self.runs[one.name].runs]
        return min(peers, key=lambda name: self.runs[name].median("seconds"), default=None)

    def by_ours(self, runs: Runs, attribute: str) -> str:
        return "" if self.ours is None or not self.ours.median(attribute) else f"{runs.ratio(self.ours, attribute):.2f}"

    def rate(self, runs: Runs) -> str:
        return f"{self.source_bytes / MB / runs.median('seconds'):,.0f}" if self.source_bytes else ""


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Every case that is asked for; a wide file has no codec to choose."""
    for work in arguments.works:
        if work == "open-wide":
            yield Case(work, f"{datasets.WIDE_COLUMNS} x {datasets.WIDE_ROW_GROUPS}", "snappy", None)
            continue
        for name in arguments.sets:
            for codec in arguments.codecs:
                kind, _, level = codec.partition(":")
                yield Case(work, name, kind, int(level) if level else None)


class Bench:
    """Makes the inputs of cases, and has them measured."""

    def __init__(self, arguments: argparse.Namespace, out: Path) -> None:
        self._arguments = arguments
        self._folder: Path = arguments.data
        self._out = out

    def run(self, case: Case, threads: int | None) -> Result:
        """Measure one case.

        Raises:
            UnavailableError: Its data cannot be made here.
        """
        arguments = self._arguments
        names = arguments.contestants
        taking_part = [one for one in ROSTER if case.work in one.works and (names is None or one.name in names)]
        source, job, warm_up = self._open_wide() if case.work == "open-wide" else self._inputs(case)
        job = dataclasses.replace(job, threads=threads)
        tasks = [Task(self._job_of(job, one), source, warm_up, arguments.repeat) for one in taking_part]
        said = None if arguments.quiet else lambda line: print(f"  {case.title}, {line}", file=sys.stderr)
        found = take_turns(tasks, arguments.rounds, said)
        runs = {one.name: runs for one, runs in zip(taking_part, found, strict=True)}
        size = 0 if case.work == "open-wide" else datasets.load(source).nbytes
        return Result(case, threads, size, runs, os.getloadavg()[0])

    def _job_of(self, job: Job, one: Contestant) -> Job:
        path = self._out / f"{one.name}.parquet" if job.work == "write" else job.path
        return dataclasses.replace(job, contestant=one.name, path=path)

    def _inputs(self, case: Case) -> tuple[Path, Job, Path | None]:
        """The source, what is done with it, and a small file for those that read."""
        rows = round(datasets.DATA_SETS[case.data_set].rows * self._arguments.scale)
        source = datasets.source(case.data_set, rows, self._folder)
        columns = datasets.DATA_SETS[case.data_set].two_columns if case.work.startswith("read-2") else None
        job = Job("", case.work, Path(), case.codec, case.level, columns=columns)
        if case.work == "write":
            return source, job, None
        if self._arguments.source == "ours":
            path = self._by_ours(datasets.load(source), case)
        else:
            path = datasets.parquet_input(case.data_set, rows, case.codec, case.level, self._folder)
        warm_up = self._out / "warm-up.parquet"
        pq.write_table(datasets.load(source).slice(0, WARM_UP_ROWS), warm_up)
        return source, dataclasses.replace(job, path=path), warm_up

    def _open_wide(self) -> tuple[Path, Job, Path]:
        columns, row_groups = datasets.WIDE_COLUMNS, datasets.WIDE_ROW_GROUPS
        table = datasets.many_chunks(columns, row_groups)
        source = self._out / "many.arrow"
        with pa.ipc.new_file(str(source), table.schema) as file:
            file.write_table(table)
        if self._arguments.source == "ours":
            path = self._by_ours(table, None)
        else:
            path = datasets.many_chunks_input(columns, row_groups, self._folder)
        chosen = ("column_0007", f"column_{columns - 9:04d}")
        job = Job("", "open-wide", path, columns=chosen)
        return source, job, datasets.many_chunks_input(columns, 1, self._folder)

    def _by_ours(self, table: pa.Table, case: Case | None) -> Path:
        """A file of ours; made each time, since it is what changes."""
        from resilient_pq import sync as rpq  # noqa: PLC0415 (only where it is measured, or asked for)

        path = self._out / "input.parquet"
        if case is None:
            writer = rpq.create(str(path), row_group_rows=datasets.WIDE_GROUP_ROWS)
        else:
            writer = rpq.create(str(path), compression=case.codec, compression_level=case.level)
        with writer as file:
            file.write(table)
        return path


def table_of(result: Result) -> str:
    """The measurements of one case, as Markdown."""
    reading = result.case.work != "write"
    head = ["", "ms", "MB/s", "by ours", "first ms", "CPU ms", "by ours", "file MB", "peak MB"]
    lines = [f"### {result.title}", "", f"Load average {result.load:.1f}.", ""]
    lines += _head([*head, "above"] if reading else head)
    for one in ROSTER:
        runs = result.runs.get(one.name)
        if runs is None:
            continue
        name = one.name if one.peer or one.name == "ours" else f"({one.name})"
        if runs.skipped is not None:
            lines.append(f"| {name} | {runs.skipped} |" + " |" * (len(head) - 2 + reading))
            continue
        cells = [
            name,
            _milliseconds(runs.median("seconds")),
            result.rate(runs),
            result.by_ours(runs, "seconds"),
            _milliseconds(runs.median("first_seconds")),
            _milliseconds(runs.median("cpu_seconds")),
            result.by_ours(runs, "cpu_seconds"),
            f"{runs.median('file_bytes') / MB:,.1f}",
            f"{runs.median('peak_bytes') / MB:,.0f}",
        ]
        if reading:
            cells.append(f"{(runs.median('peak_bytes') - runs.median('result_bytes')) / MB:,.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def summary_of(results: list[Result]) -> str:
    """A line for each case: the time of each peer, and of the best, divided by ours; so its CPU, file and peak."""
    peers = [one.name for one in ROSTER if one.peer]
    lines = _head(["", "ours MB/s", *peers, "best", "best/ours", "its CPU/ours", "its file/ours", "its peak/ours"])
    for result in results:
        best, ours = result.best_peer, result.ours
        if best is None or ours is None:
            continue
        cells = [result.title, result.rate(ours)]
        for name in peers:
            runs = result.runs.get(name)
            cells.append(result.by_ours(runs, "seconds") if runs is not None and runs.runs else "")
        other = result.runs[best]
        cells += [best, f"**{result.by_ours(other, 'seconds')}**", result.by_ours(other, "cpu_seconds")]
        cells.append(result.by_ours(other, "file_bytes") if result.case.work == "write" else "")
        cells.append(f"{other.median('peak_bytes') / max(ours.median('peak_bytes'), 1):.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.1f}" if seconds < 0.1 else f"{seconds * 1000:,.0f}"


def _threads(text: str) -> int | None:
    return None if text == "default" else int(text)


def _head(cells: list[str]) -> list[str]:
    return ["| " + " | ".join(cells) + " |", "|---|" + "---:|" * (len(cells) - 1)]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=[*datasets.DATA_SETS], default=[*datasets.DATA_SETS])
    parser.add_argument("--works", nargs="+", choices=WORKS, default=WORKS)
    parser.add_argument("--codecs", nargs="+", default=["none", "snappy", "zstd:1", "zstd:3"], metavar="CODEC[:LEVEL]")
    parser.add_argument("--contestants", nargs="+", choices=[one.name for one in ROSTER])
    parser.add_argument(
        "--threads", nargs="+", type=_threads, default=[None, 1], help='"default" or numbers; each in turn'
    )
    parser.add_argument("--scale", type=float, default=1.0, help="rows, as a multiple of each set's own number")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=3, help="timed runs in a process")
    parser.add_argument("--source", choices=["pyarrow", "ours"], default="pyarrow", help="who wrote what is read")
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER, help="where data sets are kept")
    parser.add_argument("--out", default=OUT, help="where files are written; in memory where that is possible")
    parser.add_argument("--json", type=Path, help="keep every run in this file")
    parser.add_argument("--markdown", type=Path, help="write the tables into this file, too")
    parser.add_argument("--quiet", action="store_true", help="say nothing while it runs")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    pages = [f"{name}: {what}" for name, what in machine().items()]
    print("\n".join(pages) + "\n")
    results: list[Result] = []
    with tempfile.TemporaryDirectory(dir=arguments.out, prefix="bench-") as folder:
        bench = Bench(arguments, Path(folder))
        for case, threads in itertools.product(cases(arguments), arguments.threads):
            try:
                results.append(bench.run(case, threads))
            except datasets.UnavailableError as reason:
                print(f"{case.title}: skipped, {reason}\n", flush=True)
                continue
            print(table_of(results[-1]), flush=True)
    print(summary_of(results))
    if arguments.markdown:
        parts = [*(f"* {line}" for line in pages), "", summary_of(results), *map(table_of, results)]
        arguments.markdown.write_text("\n".join(parts))
    if arguments.json:
        kept = {"machine": machine(), "results": [dataclasses.asdict(result) for result in results]}
        arguments.json.write_text(json.dumps(kept, indent=1, default=str))


if __name__ == "__main__":
    main()
