"""What we make of folders of Parquet files: ``python scripts/corpus_report.py FOLDER``.

Every file below the folder is read by us, and by pyarrow, duckdb, polars or fastparquet, the first of them that can;
the table has a line for each folder in it.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent

if find_spec("resilient_pq") is None:
    sys.path.insert(0, str(CHECKOUT))
if find_spec("corpus_judging") is None:
    sys.path.insert(0, str(CHECKOUT / "scripts"))

from corpus_judging import PEERS, Judge, MiB, Outcome, Verdict, parquet_files  # noqa: E402 (see above)

COLUMNS = {
    "files": "files that are Parquet, or claim to be",
    "read": "read by us",
    "equal": "of these, with the values that a peer reads",
    "alone": "of these, read by no peer",
    "refused": "refused with an error of ours, and read by no peer",
    "listed": "read by a peer, but not by us or not with its values, for a reason that is listed",
    "faults": "read by a peer, but not by us or not with its values; crashes, hangs, and what takes too much",
    "slowest": "the longest time that we took for one file, in seconds",
    "largest": "the most memory that we took for one file, in MiB",
}
_READ = (Outcome.EQUAL, Outcome.ALONE, Outcome.DIFFERENT)


def row(verdicts: Sequence[Verdict]) -> list[str]:
    """The figures of some files, in the order of `COLUMNS`."""
    outcomes = [verdict.outcome for verdict in verdicts]
    figures = [
        len(verdicts),
        sum(outcome in _READ for outcome in outcomes),
        outcomes.count(Outcome.EQUAL),
        outcomes.count(Outcome.ALONE),
        outcomes.count(Outcome.REFUSED),
        sum(verdict.exception is not None and not verdict.faults for verdict in verdicts),
        sum(bool(verdict.faults) for verdict in verdicts),
    ]
    slowest = max((verdict.seconds for verdict in verdicts), default=0)
    largest = max((verdict.peak for verdict in verdicts), default=0)
    return [*map(str, figures), f"{slowest:.2f}", f"{largest / MiB:.0f}"]


def table(verdicts: dict[str, list[Verdict]]) -> str:
    """The whole table; the last line is the sum of the others."""
    everything = [verdict for found in verdicts.values() for verdict in found]
    rows = [["corpus", *COLUMNS], *([name, *row(found)] for name, found in verdicts.items())]
    rows.append(["all", *row(everything)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [
                first.ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)),
            ]
        )
        for first, *rest in rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, then what is listed with its reason, then the faults; 1 where there is a fault."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="columns:\n" + "\n".join(f"  {name:9}{text}" for name, text in COLUMNS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where the files are, in folders by where they come from")
    parser.add_argument("--listed", action="store_true", help="also print each listed file with its reason")
    chosen = parser.parse_args(arguments)
    if not chosen.folder.is_dir():
        parser.error(f"no such folder: {chosen.folder}")
    missing = [name for name in PEERS if find_spec(name) is None]
    if missing:
        parser.error(f"not installed: {', '.join(missing)} (pip install '{CHECKOUT}[test]')")
    files = parquet_files(chosen.folder)
    if not files:
        parser.error(f"there are no Parquet files below {chosen.folder}")
    verdicts: dict[str, list[Verdict]] = defaultdict(list)
    with Judge() as judge:
        for done, path in enumerate(files, start=1):
            parts = path.relative_to(chosen.folder).parts
            verdicts[parts[0] if len(parts) > 1 else "."].append(judge.judge(path))
            if sys.stderr.isatty():
                print(f"\r{done} of {len(files)}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    print(table(verdicts))
    everything = [verdict for found in verdicts.values() for verdict in found]
    for verdict in everything:
        name = Path(verdict.path).relative_to(chosen.folder)
        if chosen.listed and verdict.exception is not None:
            print(f"listed  {name}: {verdict.exception[1]}")
        for fault in verdict.faults:
            print(f"fault   {name}: {fault}")
    return int(any(verdict.faults for verdict in everything))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
