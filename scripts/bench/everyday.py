"""What users do every day, by this library and by others, in turns: the first table of `docs/performance.md`.

Run it as ``python scripts/bench/everyday.py [--only small-read chunks] [--threads 1 2] [--json FILE] [--before FILE]``.
``--markdown`` prints the tables as they are in the documentation, ``--page docs/performance.md`` puts them there, and
``--kept FILE`` takes what ``--json`` kept instead of measuring.

A case takes a few seconds. Every contestant is a process of its own that has its input ready, does its work once,
has its result compared with what pyarrow reads, and then waits for its turn; turns go A B C A B C, and the best of all
times counts, of wall time and of the processor alike. Imports, cold starts and commands are new processes each time.
"ratio" is the time of the fastest of the others divided by ours: above 1 we are faster. Ours compares all checksums.

Whoever reads over a network gets a URL or a client for each open, as users do; a server of ours
(``slow_s3.py``) answers at once, or after 30 ms with 50 MB/s for each connection.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import slow_s3
from everyday_works import CASES, KEY, REGION, SECRET, Case, Place, program

_HERE = Path(__file__).parent
_SECONDS = 120.0  # after which a process is taken for lost
_LONG_SECONDS = 3.0  # who takes longer has a single turn
_LOST_SECONDS = 6.0  # whose first work takes longer has none
_CASE_SECONDS = 8.0  # of turns, but for the second, which all have
_NETWORKS = {"far": (30.0, 50e6)}
#: What the documentation begins with.
_FIRST = (
    ("small-write", 2),
    ("small-read", 2),
    ("small-files", 2),
    ("mixed-write-zstd", 2),
    ("mixed-read", 2),
    ("two-columns", 2),
    ("chunks", 2),
    ("columns-read", 2),
    ("s3-warm", 2),
    ("s3-cold", 2),
)
_PEERS = {"pyarrow": "pyarrow", "Polars": "polars", "DuckDB": "duckdb", "obstore": "obstore"}

Times = list[tuple[float, float]]


class FailedError(Exception):
    """A contestant cannot do its work; the text says why."""


class Worker:
    """The process of a contestant."""

    def __init__(self, case: Case, contestant: str, place: Place) -> None:
        place.out.mkdir()
        self._program = case.works[contestant]
        self._case, self._place = case, place
        self._process: subprocess.Popen[str] | None = None
        if not isinstance(self._program, str):
            options = {"case": case.name, "contestant": contestant, "data": place.data, "out": place.out}
            options |= {"endpoint": place.endpoint, "threads": place.threads}
            arguments = [f"--{name}={value}" for name, value in options.items()]
            self._process = self._started(str(_HERE / "everyday_works.py"), *arguments)

    def _started(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "POLARS_MAX_THREADS": str(self._place.threads),
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPYCACHEPREFIX": str(self._place.data / "bytecode"),  # others are installed with theirs
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        all_cores, pipe = os.sched_getaffinity(0), subprocess.PIPE
        os.sched_setaffinity(0, self._place.cores)  # a process inherits it
        try:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self._place.out,
                env=environment,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                text=True,
            )
        finally:
            os.sched_setaffinity(0, all_cores)

    def first(self) -> Times:
        """The times of what it did first, which are none where each turn is a first one; then bytecode was made."""
        return self.turn()[1:] if self._process is None else self._times(self._process)

    def turn(self) -> Times:
        """Have it work once more."""
        if self._process is None:
            path = self._case.inputs(self._place.data)
            process = self._started("-c", program(str(self._program), self._place, path))
            try:
                return self._times(process)
            finally:
                _end(process)
        assert self._process.stdin is not None
        self._process.stdin.write("turn\n")
        self._process.stdin.flush()
        return self._times(self._process)

    def end(self) -> None:
        if self._process is not None:
            _end(self._process)

    def _times(self, process: subprocess.Popen[str]) -> Times:
        found: Times = json.loads(self._line(process))
        return found

    def _line(self, process: subprocess.Popen[str]) -> str:
        stdout: IO[str] | None = process.stdout
        assert stdout is not None
        assert process.stderr is not None
        if not select.select([stdout], [], [], _SECONDS)[0]:
            raise FailedError(f"no answer after {_SECONDS:g} s")
        line = stdout.readline()
        if not line:
            said = process.stderr.read().strip() or f"exit status {process.wait()}"
            raise FailedError(said.splitlines()[-1])
        return line


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def idle_cores(count: int) -> frozenset[int]:
    """The processors that had least to do for a moment."""

    def idle() -> dict[int, int]:
        lines = Path("/proc/stat").read_text().splitlines()
        return {
            int(line.split()[0][3:]): int(line.split()[4]) for line in lines if line[:3] == "cpu" and line[3] != " "
        }

    first = idle()
    time.sleep(0.3)
    rested = {core: ticks - first[core] for core, ticks in idle().items() if core in os.sched_getaffinity(0)}
    return frozenset(sorted(rested, key=lambda core: -rested[core])[:count])


# -- one case ----------------------------------------------------------------------------------------


def measure(case: Case, place: Place, turns: int) -> dict[str, Any]:
    """The times of each contestant, or why there are none."""
    found: dict[str, Any] = {name: {"seconds": [], "cpu": []} for name in case.works}
    with contextlib.ExitStack() as stack:
        workers = {}
        for name in case.works:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=place.out))) / "out"
            worker = Worker(case, name, Place(place.data, out, place.endpoint, place.threads, place.cores))
            stack.callback(worker.end)
            if _took(worker.first, found, name, _LOST_SECONDS, at_least=_LOST_SECONDS):
                workers[name] = worker
        began = time.monotonic()
        for number in range(turns):
            if number > 1 and time.monotonic() - began > _CASE_SECONDS:
                break
            for name, worker in list(workers.items()):
                if not _took(worker.turn, found, name, _LONG_SECONDS):
                    del workers[name]
    return found


def _took(turn: Callable[[], Times], found: dict[str, Any], name: str, at_most: float, at_least: float = 0.0) -> bool:
    """Have a turn taken, and keep times of at least so many seconds; False where they are more than the most."""
    try:
        times = turn()
    except FailedError as error:
        found[name] = {"skipped": str(error)}
        return False
    best = min(times, default=(0.0, 0.0))
    if times and best[0] >= at_least:
        found[name]["seconds"].append(best[0])
        found[name]["cpu"].append(min(cpu for _, cpu in times))
    return best[0] < at_most


def row_of(case: Case, threads: int, found: dict[str, Any]) -> dict[str, Any]:
    """The best of each, and what it comes to."""
    best = {name: _best(runs) for name, runs in found.items() if runs.get("seconds")}
    peers = {name: times for name, times in best.items() if not name.startswith("ours")}
    row: dict[str, Any] = {"case": case.name, "threads": threads, "aim": case.aim, "runs": found}
    row |= {"best": best, "load": os.getloadavg()[0]}
    if "ours" in best and peers:
        row["fastest"] = min(peers, key=lambda name: peers[name][0])
        row["ratio"] = peers[row["fastest"]][0] / best["ours"][0]
        row["cpu_ratio"] = min(cpu for _, cpu in peers.values()) / best["ours"][1]
    return row


def _best(runs: dict[str, list[float]]) -> tuple[float, float]:
    return min(runs["seconds"]), max(min(runs["cpu"]), 1e-6)


# -- the tables --------------------------------------------------------------------------------------


def head(*, markdown: bool, before: bool) -> str:
    cells = ["work", "cores", "ours ms", *_PEERS, "ratio", "of CPU", "wanted", *(["before"] if before else [])]
    if not markdown:
        return _aligned(cells)
    return "| " + " | ".join(cells) + " |\n|---" + "|---:" * (len(cells) - 1) + "|"


def line_of(row: dict[str, Any], before: dict[Any, Any], *, markdown: bool) -> str:
    """A row of the table."""
    best = row["best"]
    title = next(case.title for case in CASES if case.name == row["case"])
    cells = [title if markdown else row["case"], str(row["threads"]), _ms(best.get("ours"))]
    for peer in _PEERS.values():
        of_it = [times for name, times in best.items() if name.partition("-")[0] == peer]
        cells.append(_ms(min(of_it, default=None)))
    if "ratio" in row:
        ratio = f"{row['ratio']:.2f}"
        cells += [f"**{ratio}**" if markdown and row["ratio"] >= row["aim"] else ratio, f"{row['cpu_ratio']:.2f}"]
    else:
        cells += ["", ""]
    cells.append(f"{row['aim']:.1f}")
    if before:
        earlier = before.get((row["case"], row["threads"]), {})
        cells.append(f"{earlier['ratio']:.2f}" if "ratio" in earlier else "")
    return "| " + " | ".join(cells) + " |" if markdown else _aligned(cells)


def _aligned(cells: Sequence[str]) -> str:
    return f"{cells[0]:22}" + "".join(f"{cell:>9}" for cell in cells[1:])


def _ms(times: tuple[float, float] | None) -> str:
    if times is None:
        return ""
    ms = times[0] * 1e3
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:,.0f}"


def pages(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The tables of the documentation: of what it begins with, and of the rest."""
    first = [row for place in _FIRST for row in rows if (row["case"], row["threads"]) == place]
    tables = {"first": first, "rest": [row for row in rows if row not in first]}
    return {
        name: "\n".join([head(markdown=True, before=False), *(line_of(row, {}, markdown=True) for row in chosen)])
        for name, chosen in tables.items()
    }


def put_into(page: Path, tables: dict[str, str]) -> None:
    """Replace what is between the marks of the tables."""
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        before, begin, rest = text.partition(f"<!-- everyday, {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        assert begin and end, f"{page} has no marks of the table {name!r}"
        text = f"{before}{begin}\n{table}\n\n{end}{after}"
    page.write_text(text, encoding="utf-8")


# -- all cases ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def servers(cases: Sequence[Case], data: Path) -> Iterator[dict[str, str]]:
    """The endpoint of each network that a case wants."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for case in cases:
            path = case.inputs(data)
            if path is not None and case.server and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path.absolute())
        endpoints = {"": ""}
        for name in {case.server for case in cases} - {""}:
            latency, bandwidth = _NETWORKS[name]
            options = (f"--serve={folder}", f"--latency-ms={latency}", f"--bandwidth={bandwidth}")
            endpoints[name] = stack.enter_context(slow_s3.running(*options))
        yield endpoints


def kept_rows(file: Path) -> list[dict[str, Any]]:
    """What ``--json`` kept."""
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return rows


def run(arguments: argparse.Namespace, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Measure the cases, and print the table while it grows."""
    kept = kept_rows(arguments.before) if arguments.before is not None else []
    before = {(row["case"], row["threads"]): row for row in kept}
    rows = []
    print(head(markdown=False, before=bool(before)), flush=True)
    with servers(cases, arguments.data) as endpoints, tempfile.TemporaryDirectory(dir=arguments.out) as out:
        for case in cases:
            for threads in arguments.threads or case.threads:
                place = Place(arguments.data, Path(out), endpoints[case.server], threads, idle_cores(threads))
                began = time.monotonic()
                rows.append(row_of(case, threads, measure(case, place, arguments.turns)))
                rows[-1]["took"] = time.monotonic() - began
                print(line_of(rows[-1], before, markdown=False), flush=True)
                for name, runs in rows[-1]["runs"].items():
                    if "skipped" in runs and "DuckDB has no row groups" not in runs["skipped"]:
                        print(f"  {case.name}: {name} took no part: {runs['skipped']}", file=sys.stderr)
    return rows


def main() -> None:
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="CASE", help=", ".join(names))
    parser.add_argument("--threads", nargs="+", type=int, help="processors that may be used; each case has its own")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path, help="keep every time in this file")
    parser.add_argument("--before", type=Path, help="a file that --json kept: its ratios are a column of the table")
    parser.add_argument("--markdown", action="store_true", help="print the tables as they are in the documentation")
    parser.add_argument("--page", type=Path, help="put them into this file")
    parser.add_argument("--kept", type=Path, help="measure nothing: take what --json kept in this file")
    parser.add_argument("--data", type=Path, help="where inputs are kept")
    parser.add_argument(
        "--out", default="/dev/shm" if Path("/dev/shm").is_dir() else None, help="where files are written"
    )
    arguments = parser.parse_args()
    from datasets import DEFAULT_FOLDER  # noqa: PLC0415 (pyarrow is not needed for --help)
    from taking_turns import machine  # noqa: PLC0415

    arguments.data = arguments.data or DEFAULT_FOLDER
    if arguments.kept:
        rows = kept_rows(arguments.kept)
    else:
        rows = run(arguments, [case for case in CASES if case.name in arguments.only])
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1), encoding="utf-8")
    if arguments.markdown:
        print("\n\n".join(pages(rows).values()))
    if arguments.page:
        put_into(arguments.page, pages(rows))


if __name__ == "__main__":
    main()
