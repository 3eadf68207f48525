"""Mutation testing: change one thing of the code at a time, and see whether a test that reaches it fails.

    python scripts/mutate.py --seed 1 --count 100                        a sample of all that can be changed
    python scripts/mutate.py --file io/transfer/fetch.py --line 244 tests/io    all changes of a line
    python scripts/mutate.py --mutant io/transfer/fetch.py:244:12:false tests/io
    python scripts/mutate.py --again found.json                          what survived an earlier run

The tests are collected once, in one process, and nothing on the disk is changed: a process is forked for each mutant,
and its functions get the changed code. So only tests that call the code in their own process are of use. Files of tests
are gone through in the order in which they are named. Of each, the tests are run once to see which of them reach the
mutants that are still alive; then, for each of these, those that reach it, the fastest first, until one fails.

A mutant is "killed" (a test failed), "hung" (a test took many times the processor time it should, or never ended),
"survived" (every test that reaches it passed), "survived a part" (the limits allowed no more), "not reached", or "not
made" (a change of what runs at import, which nothing shows in memory). What survives is printed as a diff. Of constants
that other modules have worked with when they were imported, nothing is shown by that: change them on the disk.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
import pytest
from _pytest.runner import runtestprotocol
from mutants import Mutant, mutants_of
from mutate_code import RunningCode

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "resilient_pq"
PACKAGES = ("recovery", "io", "writer", "format")
#: What other people's stores are tested with is not tested itself.
LEFT_OUT = ("io/testing/",)
TESTS = tuple(
    f"tests/{name}"
    for name in (
        "format", "kernels", "writer", "io", "recovery", "damage", "uploads", "reader", "io_log", "arrow", "append",
        "properties", "parity", "encryption", "interop", "crash", "compaction", "dataset", "bulk", "faults", "tables",
        "first_hour", "cli",
    )
)  # fmt: skip
#: Where hypothesis keeps how a property is tried. The smallest example that fails is of no use here.
_SETTINGS = "_hypothesis_internal_use_settings"
_PHASES = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
OUTCOMES = ("killed", "hung", "survived", "survived a part", "not reached", "not made")
#: Libraries that are imported late, and in no fork again.
_LASTING = (
    "resilient_pq", "pyarrow", "aiohttp", "aiobotocore", "botocore", "boto3", "moto", "werkzeug", "flask", "pandas",
    "polars", "duckdb", "cramjam", "zstandard",
)  # fmt: skip
#: What a mutant may take: it may well ask for all the memory there is, or write without an end.
MOST_MEMORY, MOST_WRITTEN = 16 << 30, 2 << 30


@dataclass
class Result:
    """What is known of a mutant.

    Attributes:
        id: The mutant.
        diff: The change.
        outcome: One of `OUTCOMES`.
        by: The test that failed.
        tests: How many tests were run.
        reached_by: How many tests are known to reach it.
    """

    id: str
    diff: str
    outcome: str = "not reached"
    by: str = ""
    tests: int = 0
    reached_by: int = 0


@dataclass
class Limits:
    """What is spent on each file of tests, in seconds of the processor.

    Attributes:
        mapping: To see what its tests reach.
        mutant: For each mutant.
        jobs: Mutants side by side.
    """

    mapping: float
    mutant: float
    jobs: int


@dataclass
class Reaching:
    """A test that reaches mutants."""

    item: pytest.Item
    seconds: float  # Of the processor
    elapsed: float
    mutants: frozenset[str] = field(repr=False)


class Trials:
    """Runs in pytest in place of its loop over the tests."""

    def __init__(self, mutants: Sequence[Mutant], limits: Limits, to: Path | None) -> None:
        self._mutants = {mutant.id: mutant for mutant in mutants}
        self.results = {
            mutant.id: Result(mutant.id, mutant.diff((PACKAGE / mutant.path).read_bytes())) for mutant in mutants
        }
        self._reached: set[str] = set()
        self._limits = limits
        self._to = to
        self._folder = Path(tempfile.mkdtemp(prefix="mutate-"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for path in {mutant.path for mutant in self._mutants.values()}:
            importlib.import_module(
                ".".join(("resilient_pq", *Path(path).with_suffix("").parts)).removesuffix(".__init__")
            )
        gc.unfreeze()
        self._code = RunningCode(PACKAGE)
        self._code.probe(self._mutants.values(), self._reached.add)
        gc.freeze()
        of_file: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            of_file.setdefault(item.nodeid.split("::")[0], []).append(item)
            test = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
            if (settings := getattr(test, _SETTINGS, None)) is not None:
                setattr(test, _SETTINGS, hypothesis.settings(settings, phases=_PHASES))
        for file, items in of_file.items():
            alive = [mutant for mutant in self._mutants.values() if self._alive(mutant.id)]
            started = time.monotonic()
            reaching, all_seen = self._map(items, alive)
            killed = 0
            for identity, outcome, by, tests in self._try(alive, reaching):
                result = self.results[identity]
                count = sum(identity in each.mutants for each in reaching)
                part = result.outcome == "survived a part" or tests < count or not all_seen
                result.tests += tests
                result.reached_by += count
                result.outcome = ("survived a part" if part else "survived") if outcome == "survived" else outcome
                result.by = by
                killed += outcome in ("killed", "hung")
                self._save()
            left = sum(self._alive(identity) for identity in self._mutants)
            seen = "" if all_seen else ", not all tests"
            told = f"{killed} killed, {left} left, {time.monotonic() - started:.0f} s{seen}"
            print(f"{time.strftime('%H:%M:%S')} {file}: {told}", file=sys.stderr, flush=True)
            if not left:
                break
        shutil.rmtree(self._folder, ignore_errors=True)
        return True

    def _alive(self, identity: str) -> bool:
        return self.results[identity].outcome.startswith(("surv", "not reached"))

    def _save(self) -> None:
        if self._to is not None:
            self._to.write_text(json.dumps([vars(one) for one in self.results.values()], indent=1) + "\n")

    # -- in processes of their own -------------------------------------------------------------------

    def _map(self, items: Sequence[pytest.Item], alive: Sequence[Mutant]) -> tuple[list[Reaching], bool]:
        """The tests of a file that pass and reach mutants, and whether all of them were run."""
        rank: Counter[str] = Counter()
        ordered = []
        for item in items:  # one of each function first, so that a part has some of everything
            name = getattr(item, "originalname", item.name)
            ordered.append((rank[name], item))
            rank[name] += 1
        chosen = [item for _, item in sorted(ordered, key=lambda each: each[0])]
        told = self._folder / "map"
        told.write_text("")
        names = {mutant.id for mutant in alive}
        imported, known = self._folder / "imported", set(sys.modules)
        imported.write_text("")

        def look() -> None:
            with told.open("a") as output:
                for place, passed, seconds, elapsed in _run(chosen, self._limits.mapping):
                    line = (place, passed, seconds, elapsed, sorted(self._reached & names))
                    output.write(json.dumps(line) + "\n")
                    output.flush()
                    self._reached.clear()
            imported.write_text("\n".join(sorted(set(sys.modules) - known)))

        process = _Process(look, self._folder / "base", self._limits.mapping * 2 + 30, 600)
        while process.result() is None:
            time.sleep(0.02)
        for module in imported.read_text().split():  # once for all forks
            if module.partition(".")[0] in _LASTING:
                with contextlib.suppress(ImportError):
                    importlib.import_module(module)
        lines = [json.loads(line) for line in told.read_text().splitlines()]
        reaching = [
            Reaching(chosen[place], seconds, elapsed, frozenset(reached))
            for place, passed, seconds, elapsed, reached in lines
            if passed and reached
        ]
        return sorted(reaching, key=lambda each: each.seconds), len(lines) == len(items)

    def _try(self, alive: Sequence[Mutant], reaching: Sequence[Reaching]) -> Iterator[tuple[str, str, str, int]]:
        """Of each mutant that is reached: what became of it, by which test, and how many tests were to be run."""
        waiting = [mutant for mutant in alive if any(mutant.id in each.mutants for each in reaching)]
        running: dict[str, tuple[_Process, list[Reaching], Path]] = {}
        while waiting or running:
            while waiting and len(running) < self._limits.jobs:
                mutant = waiting.pop()
                tests = self._within([each for each in reaching if mutant.id in each.mutants])
                told = self._folder / f"failed-{len(waiting)}"
                told.unlink(missing_ok=True)
                seconds, elapsed = sum(each.seconds for each in tests), sum(each.elapsed for each in tests)
                process = _Process(
                    self._trial(mutant, [each.item for each in tests], told),
                    self._folder / f"base-{len(waiting)}", 5 + 10 * seconds, 45 + 10 * elapsed,
                )  # fmt: skip
                running[mutant.id] = process, tests, told
            time.sleep(0.02)
            for identity, (process, tests, told) in list(running.items()):
                ended = process.result()
                if ended is None:
                    continue
                del running[identity]
                by = told.read_text() if told.exists() else ""
                outcome = "survived" if ended == "0" else "not made" if ended == "3" else "killed"
                outcome = "hung" if ended == "hung" else outcome
                yield identity, outcome, by if ended != "0" else "", len(tests)

    def _within(self, tests: Sequence[Reaching]) -> list[Reaching]:
        chosen: list[Reaching] = []
        left = self._limits.mutant
        for each in tests:
            if each.seconds <= left or not chosen:
                chosen.append(each)
                left -= each.seconds
        return chosen

    def _trial(self, mutant: Mutant, items: Sequence[pytest.Item], told: Path) -> Callable[[], None]:
        def try_it() -> None:
            made = False
            try:
                made = self._code.change(mutant)
            finally:
                if not made:
                    os._exit(3)
            for place, passed, _, _ in _run(items, float("inf")):
                if not passed:
                    told.write_text(items[place].nodeid)
                    os._exit(1)

        return try_it


def _run(items: Sequence[pytest.Item], limit: float) -> Iterator[tuple[int, bool, float, float]]:
    """Run tests until so many seconds are spent; gives each one's place, whether it passed, and how long it took."""
    begin = time.process_time()
    for place, item in enumerate(items):
        if (before := time.process_time()) - begin > limit:
            return
        started = time.monotonic()
        following = items[place + 1] if place + 1 < len(items) else None
        passed = all(each.passed for each in runtestprotocol(item, nextitem=following, log=False))
        yield place, passed, time.process_time() - before, time.monotonic() - started


class _Process:
    """A fork that does one thing; what it starts ends with it."""

    def __init__(self, work: Callable[[], None], base: Path, seconds: float, elapsed: float) -> None:
        self._base = base
        self._ends = time.monotonic() + elapsed
        self._pid = os.fork()
        if self._pid:
            return
        code = 1
        try:
            os.setsid()
            base.mkdir()
            os.environ["TMPDIR"] = tempfile.tempdir = str(base)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
            resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, MOST_WRITTEN))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            work()
            code = 0
        finally:
            os._exit(code)

    def result(self) -> str | None:
        """The exit code, "hung", or None while it runs."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        late = time.monotonic() > self._ends
        if not pid and not late:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        if not pid:
            os.waitpid(self._pid, 0)
        shutil.rmtree(self._base, ignore_errors=True)
        hung = late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL))
        return "hung" if hung else str(os.waitstatus_to_exitcode(status))


# -- which mutants -------------------------------------------------------------------------------------


def all_mutants(packages: Iterable[str], file: str = "", line: int = 0) -> list[Mutant]:
    """What can be changed in some packages, or in one file or line of them."""
    paths = [file] if file else [
        str(path.relative_to(PACKAGE)) for package in packages for path in sorted((PACKAGE / package).rglob("*.py"))
    ]  # fmt: skip
    found = [
        mutant
        for path in paths
        if not path.startswith(LEFT_OUT)
        for mutant in mutants_of(path, (PACKAGE / path).read_bytes())
    ]
    return [mutant for mutant in found if not line or mutant.line == line]


def sample(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """One change in each of some lines, so that lines with many constants are not the most of it."""
    of_line: dict[tuple[str, int], list[Mutant]] = {}
    for mutant in mutants:
        of_line.setdefault((mutant.path, mutant.line), []).append(mutant)
    generator = random.Random(seed)
    places = generator.sample(sorted(of_line), min(count, len(of_line)))
    return [generator.choice(of_line[place]) for place in places]


def _chosen(arguments: argparse.Namespace) -> list[Mutant]:
    if arguments.again is None and not arguments.mutant:
        mutants = all_mutants(arguments.packages, arguments.file, arguments.line)
        return mutants if arguments.line else sample(mutants, arguments.count, arguments.seed)
    wanted = set(arguments.mutant)
    if arguments.again is not None:
        told = json.loads(arguments.again.read_text())
        wanted |= {one["id"] for one in told if one["outcome"].startswith(("surv", "not"))}
    files = sorted({identity.split(":")[0] for identity in wanted})
    found = [mutant for file in files for mutant in all_mutants((), file) if mutant.id in wanted]
    for identity in wanted - {mutant.id for mutant in found}:
        print(f"no such mutant: {identity}", file=sys.stderr)
    return found


def main() -> None:
    """Read the command line, try the mutants, and print what became of them; fails where one survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "tests", nargs="*", default=TESTS, help="files or folders of tests; those that matter by default"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    parser.add_argument("--file", default="", help="one file alone, seen from the package: io/transfer/fetch.py")
    parser.add_argument("--line", type=int, default=0, help="all changes of one line of it")
    parser.add_argument("--mutant", action="append", default=[], metavar="ID", help="this one alone; may be repeated")
    parser.add_argument("--again", type=Path, metavar="JSON", help="those that survived an earlier run")
    parser.add_argument("--jobs", type=int, default=1, help="mutants side by side")
    parser.add_argument("--mapping", type=float, default=60, help="seconds to see what a file of tests reaches")
    parser.add_argument("--seconds", type=float, default=20, help="of the tests of a file for each mutant")
    parser.add_argument("--json", type=Path, help="where the results are written")
    parser.add_argument("-k", dest="named", default="", metavar="EXPRESSION", help="which tests, as pytest takes it")
    arguments = parser.parse_args()
    os.environ.pop("RPQ_HYPOTHESIS", None)  # the same examples for every mutant
    trials = Trials(_chosen(arguments), Limits(arguments.mapping, arguments.seconds, arguments.jobs), arguments.json)
    code = pytest.main(["-qq", "-n0", "-p", "no:cacheprovider", "-k", arguments.named, *arguments.tests], [trials])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"the tests could not be collected: {code}")
    results = list(trials.results.values())
    alive = [result for result in results if result.outcome not in ("killed", "hung")]
    for result in alive:
        print(f"# {result.outcome}: {result.id} ({result.tests} of {result.reached_by} tests)\n{result.diff}")
    counts = Counter(result.outcome for result in results)
    print(f"{len(results)} mutants, seed {arguments.seed}")
    for outcome in [outcome for outcome in OUTCOMES if counts[outcome]]:
        print(f"  {outcome:16} {counts[outcome]:4} {counts[outcome] / len(results):7.1%}")
    raise SystemExit(1 if alive else 0)


if __name__ == "__main__":
    main()
