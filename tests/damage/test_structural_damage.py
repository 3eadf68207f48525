"""Files damaged by their structure: no wrong value, and no wrong verdict.

A case that fails is run again, and its files are kept, by ``python scripts/torture.py --case SEED --keep FOLDER``.
"""

from __future__ import annotations

import random

import pytest
from structural_cases import case_of
from structural_files import CASES_OF_A_FAMILY
from structural_oracle import failures_of, tried

#: Cases of the thorough suite, and how many of them a test has.
CASES, BATCH = 20_000, 5 * CASES_OF_A_FAMILY
#: Families of the quick sample, of which each has a few cases.
SAMPLE, CASES_OF_EACH = 18, 9


def held(seeds: list[int]) -> None:
    """Run cases, and say which of them are wrong."""
    wrong = []
    for seed in seeds:
        case = case_of(seed)
        failures = failures_of(tried(case), timed=False)
        if failures:
            words = "".join(f"\n    {failure}" for failure in failures)
            wrong.append(f"--case {seed} ({case.family.kind}; {case.damage}: {case.words}){words}")
    assert not wrong, f"{len(wrong)} of {len(seeds)} cases:\n" + "\n".join(wrong)


@pytest.mark.parametrize("family", range(SAMPLE))
def test_a_sample_of_structural_damage(family: int, pytestconfig: pytest.Config) -> None:
    """Other families for each --slice-seed."""
    seed = pytestconfig.getoption("--slice-seed")
    first = random.Random(f"{seed} {family}").randrange(CASES // CASES_OF_A_FAMILY) * CASES_OF_A_FAMILY
    held(list(range(first, first + CASES_OF_EACH)))


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_structural_damage(first: int) -> None:
    """All cases, in batches that share their families."""
    held(list(range(first, first + BATCH)))
