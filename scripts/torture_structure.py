"""Damage by structure: runs cases of tests/plugins/structural_damage.py, and prints what was wrong, by class.

`python scripts/torture.py --structure 1000 --jobs 4`; one of them again, with its files: `--case 17 --keep FOLDER`.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from structural_cases import case_of
from structural_damage import DAMAGES
from structural_files import CASES_OF_A_FAMILY
from structural_oracle import failures_of, tried
from structural_rows import UNVERIFIABLE

#: Failures of a kind that are told one by one.
TOLD = 6


@dataclass(frozen=True)
class Done:
    """What came of a case, as far as the table needs it."""

    seed: int
    damage: str
    words: str
    failures: tuple[tuple[str, str], ...]
    unverifiable: bool
    refused: tuple[str, ...]
    kept: int
    rows: int
    seconds: float


def done(seeds: range) -> list[Done]:
    """Run cases, in a process of its own."""
    warnings.simplefilter("ignore")
    answers = []
    for seed in seeds:
        case = case_of(seed)
        trial = tried(case)
        failures = tuple((failure.kind, failure.words) for failure in failures_of(trial, timed=True))
        soft = any(failure.kind == UNVERIFIABLE for failure in trial.failures)
        words = f"{case.family.kind}; {case.words}"
        refused = tuple(trial.refused)
        answers.append(Done(seed, case.damage, words, failures, soft, refused, trial.kept, trial.rows, trial.seconds))
    return answers


def table(rows: list[list[str]]) -> str:
    """Cells under each other."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(lines)


def summary(answers: list[Done]) -> str:
    """Tables by class of damage and by kind of failure, and some cases of each kind."""
    rows = [["damage", "cases", "failed", "unverifiable", "refused", "rows kept", "CPU ms"]]
    for damage in [*DAMAGES, None]:
        of_it = [answer for answer in answers if damage in (None, answer.damage)]
        if of_it:
            kept = sum(answer.kept / max(1, answer.rows) for answer in of_it) / len(of_it)
            rows.append(
                [
                    damage or "all", str(len(of_it)), str(sum(bool(answer.failures) for answer in of_it)),
                    str(sum(answer.unverifiable for answer in of_it)), str(sum(bool(a.refused) for a in of_it)),
                    f"{100 * kept:.1f} %", f"{1000 * sum(a.seconds for a in of_it) / len(of_it):.0f}",
                ]
            )  # fmt: skip
    kinds = Counter(kind for answer in answers for kind in {kind for kind, _ in answer.failures})
    lines = [table(rows), ""]
    for kind, count in kinds.most_common():
        of_kind = [answer for answer in answers if kind in {k for k, _ in answer.failures}]
        by_damage = Counter(answer.damage for answer in of_kind)
        lines.append(f"{kind}: {count} cases ({', '.join(f'{d} {n}' for d, n in by_damage.most_common())})")
        for answer in sorted(of_kind, key=lambda one: len(one.failures))[:TOLD]:
            words = next(words for k, words in answer.failures if k == kind)
            lines += [f"  --case {answer.seed}  [{answer.damage}] {answer.words}", f"      {words}"]
    refused = Counter(words.split(":")[1] for answer in answers for words in answer.refused)
    lines += [f"refused with {name.strip()}: {count}" for name, count in refused.most_common()]
    return "\n".join(lines)


def run(count: int, seed: int, jobs: int) -> int:
    """Run many cases; gives the exit status."""
    batches = [
        range(at, min(at + CASES_OF_A_FAMILY, seed + count)) for at in range(seed, seed + count, CASES_OF_A_FAMILY)
    ]
    answers: list[Done] = []
    with ProcessPoolExecutor(jobs) as pool:
        for batch in pool.map(done, batches):
            answers += batch
    print(summary(answers))
    return int(any(answer.failures for answer in answers))


def replay(seed: int, keep: Path | None) -> int:
    """Run one case, say what is wrong, and keep its files if there is a folder for them; gives the exit status."""
    warnings.simplefilter("ignore")
    case = case_of(seed)
    trial = tried(case)
    print(f"case {seed}: {case.family.kind}\n{case.damage}: {case.words}")
    print(f"{len(case.data)} bytes; kept {trial.kept} of {trial.rows} rows")
    for failure in trial.failures:
        print(f"  {failure}")
    for words in trial.refused:
        print(f"  refused: {words}")
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        files = {f"whole {version}.parquet": file.data for version, file in case.family.files.items()}
        for name, data in (files | {"damaged.parquet": case.data} | trial.outputs).items():
            (keep / name).write_bytes(data)
        print(f"files are in {keep}")
    return int(bool(failures_of(trial, timed=True)))


def main(arguments: argparse.Namespace) -> int:
    """As the options say."""
    if arguments.case is not None:
        return replay(arguments.case, arguments.keep)
    return run(arguments.structure, arguments.seed, arguments.jobs)
