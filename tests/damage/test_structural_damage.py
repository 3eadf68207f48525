"""Files damaged by their structure: no wrong value, and no wrong verdict.

A case that fails is run again, and its files are kept, by ``python scripts/torture.py --case SEED --keep FOLDER``.
"""

from __future__ import annotations

import dataclasses
import random

import pytest
from structural_cases import Case, case_of
from structural_files import CASES_OF_A_FAMILY, OWN, SIBLING, family_of
from structural_oracle import Trial, failures_of, tried
from structural_originals import alike, matched, values_of

import resilient_pq as rpq

#: Cases of the thorough suite, and how many of them a test has.
CASES, BATCH = 20_000, 5 * CASES_OF_A_FAMILY
#: Families of the quick sample, of which each has a few cases.
SAMPLE, CASES_OF_EACH = 8, 5


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
def test_a_sample_of_structural_damage(family: int) -> None:
    """The same families each time: a slice of the thorough suite draws others."""
    first = random.Random(f"sample {family}").randrange(CASES // CASES_OF_A_FAMILY) * CASES_OF_A_FAMILY
    held(list(range(first, first + CASES_OF_EACH)))


#: Cases that were wrong once, each of another cause.
ONCE_WRONG = (
    4876, 8076, 8411, 8845, 9188, 10159, 10312, 10741, 10753, 10760, 11102, 11119, 11180, 12414, 12874, 15242, 20911,
    21105, 23988, 40192, 40322, 40986, 43352, 50123, 52004, 60975, 71141, 133566,
    134324, 135865, 201681, 203227, 203325, 203391, 203883, 206330,
    220232, 220243, 230456, 231418, 260357, 260392, 261232,
)  # fmt: skip


@pytest.mark.parametrize("seed", ONCE_WRONG)
@pytest.mark.ways_in_quick(12)
def test_what_was_wrong_once(seed: int) -> None:
    held([seed])


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_structural_damage(first: int) -> None:
    """All cases, in batches that share their families."""
    held(list(range(first, first + BATCH)))


def a_case(data: bytes | None = None) -> Case:
    """A file of ours, as it is or with other bytes."""
    family = family_of(0)
    assert family.ours
    return Case(0, family, "cut", "", data or family.own.data, (OWN, SIBLING), False, False, "null")


def claiming(outcome: rpq.Outcome, kept: int, lost: int | None) -> rpq.Report:
    return rpq.Report("recover", "", outcome, kept, kept=rpq.Kept("", kept, 0, lost))


def test_the_oracle_knows_a_row_by_all_its_values() -> None:
    trial = Trial(a_case())
    table = trial.case.family.own.table
    values = values_of(table)
    values["id2"][3], values["id2"][4] = values["id2"][4], values["id2"][3]
    found = matched(values, trial.originals, nulls=True)
    assert [i for i, row in enumerate(found.rows) if not row] == [3, 4]
    assert trial.judge_rows("", found)[1] is None
    assert [failure.kind for failure in trial.failures] == ["wrong values"]


def test_the_oracle_takes_a_lost_list_for_a_null_where_values_may_be_lost() -> None:
    assert alike(None, [1, 2], nulls=True) and not alike(None, [1, 2], nulls=False)
    assert alike(None, [], nulls=False) and not alike([1], [1, 2], nulls=True)


def test_the_oracle_tells_rows_of_a_sibling() -> None:
    trial = Trial(a_case())
    own, sibling = (values_of(trial.case.family.files[version].table) for version in (OWN, SIBLING))
    both = {name: column[:30] + sibling[name][30:40] for name, column in own.items()}
    trial.judge_rows("", matched(both, trial.originals, nulls=False))
    assert [failure.kind for failure in trial.failures] == ["rows of another file"]


@pytest.mark.parametrize(
    ("report", "missing", "cut", "kind"),
    [
        (claiming(rpq.Outcome.RECOVERED, 180, 0), 0, False, None),
        (claiming(rpq.Outcome.RECOVERED, 160, 0), 20, False, "verdict"),
        (claiming(rpq.Outcome.PARTIAL, 160, 20), 20, False, None),
        (claiming(rpq.Outcome.PARTIAL, 160, 10), 20, False, "rows lost"),
        (claiming(rpq.Outcome.PARTIAL, 160, None), 20, True, None),
        (claiming(rpq.Outcome.PARTIAL, 160, 20), 20, True, "end not proven"),
        (claiming(rpq.Outcome.RECOVERED, 180, 0), 0, True, "end not proven"),
    ],
)
def test_the_oracle_holds_what_a_report_claims(report: rpq.Report, missing: int, cut: bool, kind: str | None) -> None:
    own = family_of(0).own
    trial = Trial(a_case(own.data[: own.records(4)[0].place.start] if cut else None))
    trial.judge_verdict("", report, trial.originals[0], missing, incomplete=0)
    assert [failure.kind for failure in trial.failures] == ([kind] if kind else [])


def test_a_case_is_the_same_each_time() -> None:
    case = case_of(7)
    family_of.cache_clear()
    again = case_of(7)
    assert dataclasses.replace(again, family=case.family) == case
    assert again.data == case.data
