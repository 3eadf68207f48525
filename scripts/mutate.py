"""Mutation testing: change one thing of the code at a time, and see whether a test that reaches it fails.

    python scripts/mutate.py map                                  which tests reach which lines; takes some minutes
    python scripts/mutate.py run --seed 1 --count 100             a sample of all that can be changed
    python scripts/mutate.py run --file io/transfer/fetch.py --line 244    all changes of a line
    python scripts/mutate.py run --mutant io/transfer/fetch.py:244:12:false
    python scripts/mutate.py run --again found.json --seconds 0   what survived an earlier run, against every test

Needs the package `coverage` besides those of the tests. Everything runs in copies of the tree in a temporary folder,
so that the checkout is never changed; the map stands in `.mutation`, which git ignores. Where code has changed since
the map was made, lines that are new are taken to be reached by the tests that reach the line before them; `map tests/x`
adds tests that are new. Lines that run when a module is imported are taken to be reached by every test that reaches any
line of it.

Of each mutant the tests that reach its line are run, the fastest first, in turn from each file of tests, until one
fails or the limits are met. So a mutant is "killed" (a test failed), "hung" (a test took many times as long as it
should), "survived" (every test that reaches it passed), "survived a part" (there were more than the limits allow), or
"not reached". What survives is printed as a diff.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from mutants import Mutant, mutants_of
from mutate_map import Reached

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "resilient_pq"
PACKAGES = ("recovery", "io", "writer", "format")
#: What other people's stores are tested with is not tested itself.
LEFT_OUT = ("io/testing/",)
TESTS = tuple(
    f"tests/{name}"
    for name in (
        "recovery", "damage", "crash", "writer", "io", "io_log", "format", "kernels", "reader", "uploads", "dataset",
        "properties", "interop", "encryption", "parity", "append", "compaction", "tables", "faults", "cli", "bulk",
        "arrow", "first_hour",
    )
)  # fmt: skip
MAP = Path(".mutation") / "map.json"
#: Seconds within which pytest begins, however busy the machine is.
STARTS_IN = 90.0
OUTCOMES = ("killed", "hung", "survived", "survived a part", "not reached", "failed to run")


# -- which tests reach a line --------------------------------------------------------------------------


def make_map(tests: Sequence[str], jobs: int) -> None:
    """Run tests under coverage, and add what they reach to the map."""
    reached = Reached.load(CHECKOUT / MAP, PACKAGE)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tree = _copied(folder / "tree")
        to = folder / "map"
        to.mkdir()
        plan = {"map": str(to), "package": str(tree / "resilient_pq"), "packages": PACKAGES}
        command = [f"-n{max(jobs, 1)}", "--dist=loadfile", f"--basetemp={folder / 'base'}", *(tests or TESTS)]
        with _pytest(tree, folder, plan, command, sys.stdout) as process:
            process.wait()
        told = [json.loads(file.read_text()) for file in to.iterdir()]
        if not told:
            raise SystemExit("no test ran")
        reached.add(told, tree / "resilient_pq")
    reached.save(CHECKOUT / MAP)
    failed = sorted({test for one in told for test in one["failed"]})
    print(f"{len(reached.tests):,} tests; {len(failed)} that did not pass are left out", *failed, sep="\n  ")


# -- copies of the tree --------------------------------------------------------------------------------


def _copied(to: Path) -> Path:
    """A copy of what git knows or would add, and of the compiled kernels; its modules are compiled already."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT, capture_output=True, check=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    kernels = [str(file.relative_to(CHECKOUT)) for file in PACKAGE.rglob("*.so")]
    for name in {*filter(None, listed), *kernels}:
        if (CHECKOUT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, to / name)
    command = [sys.executable, "-m", "compileall", "-q", str(to / "resilient_pq")]
    subprocess.run(command, check=True)
    return to


@contextlib.contextmanager
def _pytest(
    tree: Path, folder: Path, plan: dict[str, Any], arguments: Sequence[str], output: int | TextIO
) -> Iterator[subprocess.Popen[bytes]]:
    """pytest in a copy of the tree, with what it starts in a group of its own, which ends with it."""
    (folder / "plan.json").write_text(json.dumps(plan))
    path = os.pathsep.join([str(tree), str(tree / "scripts"), os.environ.get("PYTHONPATH", "")])
    environment = {
        "RPQ_CORPUS": str(CHECKOUT.parent / "shared" / "corpus"),
        **os.environ,
        "RPQ_MUTATE": str(folder / "plan.json"),
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder),
    }
    environment.pop("RPQ_HYPOTHESIS", None)  # the same examples for every mutant
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mutate_tests", "-p", "no:cacheprovider", *arguments]
    process = subprocess.Popen(
        command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# -- running mutants -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """What became of a mutant.

    Attributes:
        id: The mutant.
        outcome: One of `OUTCOMES`.
        by: The test that failed.
        tests: How many tests were to be run.
        reached_by: How many tests reach it.
        diff: The change.
    """

    id: str
    outcome: str
    by: str
    tests: int
    reached_by: int
    diff: str


@dataclass(frozen=True)
class Limits:
    """What is spent on one mutant: seconds as the tests took without it, and tests; 0 for no limit."""

    seconds: float
    tests: int

    def chosen(self, tests: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
        """The first tests that are within the limits, one in any case."""
        chosen: list[tuple[str, float]] = []
        left = self.seconds or float("inf")
        for test, seconds in tests[: self.tests or None]:
            if seconds <= left or not chosen:
                chosen.append((test, seconds))
                left -= seconds
        return chosen


def try_mutant(mutant: Mutant, reached: Reached, limits: Limits, tree: Path, folder: Path) -> Result:
    """Run the tests that reach a mutant in a copy of the tree."""
    source = (CHECKOUT / "resilient_pq" / mutant.path).read_bytes()
    known = reached.tests_of(mutant)
    chosen = limits.chosen(known)

    def result(outcome: str, by: str = "") -> Result:
        return Result(mutant.id, outcome, by, len(chosen), len(known), mutant.diff(source))

    if not chosen:
        return result("not reached")
    target, told = tree / "resilient_pq" / mutant.path, folder / "result.json"
    told.unlink(missing_ok=True)
    for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
        compiled.unlink()
    plan = {"tests": {test: 30 + 20 * seconds for test, seconds in chosen}, "result": str(told)}
    files = dict.fromkeys(test.split("::")[0] for test, _ in chosen)
    base = folder / "base"
    arguments = ["-x", "-n0", "--tb=short", f"--basetemp={base}", *files]
    target.write_bytes(mutant.apply(source))
    try:
        with (folder / "output").open("wb") as output, _pytest(tree, folder, plan, arguments, output.fileno()) as run:
            try:
                code = run.wait(STARTS_IN + 5 * sum(seconds for _, seconds in chosen))
            except subprocess.TimeoutExpired:
                return result("hung")
    finally:
        target.write_bytes(source)
        shutil.rmtree(base, ignore_errors=True)
    if code == 0:
        return result("survived" if len(chosen) == len(known) else "survived a part")
    if told.exists():
        failed = json.loads(told.read_text())
        return result("hung" if failed["hung"] else "killed", failed["by"])
    if code == 5:
        return result("failed to run", "the tests have other names now: make the map anew")
    return result("killed", f"pytest ended with {code}")  # at import, or by a signal


def try_all(mutants: Sequence[Mutant], reached: Reached, limits: Limits, jobs: int) -> Iterator[Result]:
    """Try mutants side by side, each in a copy of the tree of its own."""
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(jobs) as pool:
        rooms: queue.Queue[tuple[Path, Path]] = queue.Queue()
        for i in range(jobs):
            folder = Path(temporary) / str(i)
            rooms.put((_copied(folder / "tree"), folder))

        def one(mutant: Mutant) -> Result:
            tree, folder = rooms.get()
            try:
                return try_mutant(mutant, reached, limits, tree, folder)
            finally:
                rooms.put((tree, folder))

        yield from pool.map(one, mutants)


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
        wanted |= {one["id"] for one in json.loads(arguments.again.read_text()) if one["outcome"].startswith("surv")}
    files = sorted({identity.split(":")[0] for identity in wanted})
    found = [mutant for file in files for mutant in all_mutants((), file) if mutant.id in wanted]
    for identity in wanted - {mutant.id for mutant in found}:
        print(f"no such mutant: {identity}", file=sys.stderr)
    return found


def run(arguments: argparse.Namespace) -> bool:
    """Try the mutants that were asked for, and print what became of them; gives whether none survived."""
    reached = Reached.load(CHECKOUT / MAP, PACKAGE)
    if not reached.tests:
        raise SystemExit("there is no map yet: python scripts/mutate.py map")
    mutants, results, start = _chosen(arguments), [], time.monotonic()
    limits = Limits(arguments.seconds, arguments.tests)
    for result in try_all(mutants, reached, limits, arguments.jobs):
        results.append(result)
        tried = f"{result.tests} of {result.reached_by} tests"
        print(f"{len(results):4} {result.outcome:16} {result.id}  ({tried}) {result.by}", file=sys.stderr, flush=True)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")
    counts = Counter(result.outcome for result in results)
    alive = [result for result in results if result.outcome not in ("killed", "hung")]
    for result in alive:
        print(f"# {result.outcome}: {result.id} ({result.tests} of {result.reached_by} tests)\n{result.diff}")
    print(f"{len(results)} mutants in {time.monotonic() - start:,.0f} s, seed {arguments.seed}")
    for outcome in [outcome for outcome in OUTCOMES if counts[outcome]]:
        print(f"  {outcome:16} {counts[outcome]:4} {counts[outcome] / len(results):7.1%}")
    return not alive


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    mapping = commands.add_parser("map", help="note which tests reach which lines")
    mapping.add_argument("tests", nargs="*", help="files or folders of tests; those that matter by default")
    mapping.add_argument("--jobs", type=int, default=2)
    trying = commands.add_parser("run", help="try mutants")
    trying.add_argument("--seed", type=int, default=1)
    trying.add_argument("--count", type=int, default=100)
    trying.add_argument("--packages", nargs="+", default=PACKAGES)
    trying.add_argument("--file", default="", help="one file alone, seen from the package: io/transfer/fetch.py")
    trying.add_argument("--line", type=int, default=0, help="all changes of one line of it")
    trying.add_argument("--mutant", action="append", default=[], metavar="ID", help="this one alone; may be repeated")
    trying.add_argument("--again", type=Path, metavar="JSON", help="those that survived an earlier run")
    trying.add_argument("--jobs", type=int, default=2, help="mutants side by side")
    trying.add_argument("--seconds", type=float, default=60, help="of tests for each mutant; 0 for no limit")
    trying.add_argument("--tests", type=int, default=500, help="for each mutant; 0 for no limit")
    trying.add_argument("--json", type=Path, help="where the results are written")
    arguments = parser.parse_args()
    if arguments.command == "map":
        make_map(arguments.tests, arguments.jobs)
    elif not run(arguments):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
