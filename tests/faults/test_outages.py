"""Outages, lost replies, restarts of the store and kills, drawn from seeds: what was stored is there once, in time.

The same as ``scripts/outages.py --scale 0.05``; that runs them with their real lengths, too.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from outage_bench import Bench
from outage_cases import CaseRun
from outage_oracle import Finding
from outage_schedule import Case

#: Short ones of each scenario: with kills, a restart of the server, hangs and a black hole.
QUICK = (21_048, 21_010)
THOROUGH = range(10_000, 10_300)


def found_in(cases: Sequence[Case], folder: Path, jobs: int) -> list[str]:
    """Reports of the cases in which anything was found."""
    benches = [Bench(folder / str(number), 0.05) for number in range(jobs)]

    def run(share: int) -> list[str]:
        reports = []
        for case in cases[share::jobs]:
            one = CaseRun(case, benches[share])
            found = one.run()
            # A recovery that is killed leaves its upload: nobody goes on with it, and `rpq uploads list` shows it.
            if any((case.scenario, each.rule) != ("recover", "uploads left after a kill") for each in found):
                reports.append(one.report())
        return reports

    try:
        with ThreadPoolExecutor(jobs) as pool:
            return [report for reports in pool.map(run, range(jobs)) for report in reports]
    finally:
        for bench in benches:
            bench.close()


def test_a_sample_of_outages(tmp_path: Path) -> None:
    assert found_in([Case.drawn(seed) for seed in QUICK], tmp_path, len(QUICK)) == []


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_outages(tmp_path: Path) -> None:
    assert found_in([Case.drawn(seed) for seed in THOROUGH], tmp_path, 2) == []


# What the cases look at has to find what is wrong, or they prove nothing.


@pytest.fixture(scope="module")
def calm(bench: Bench) -> CaseRun:
    """A file, written without any trouble."""
    case = Case(0, "file", (), num_rows=200, row_bytes=1_000, row_group_rows=40, local=False, damage="cut")
    made = CaseRun(case, bench)
    assert made.run() == []
    return made


def lie(word: str, *values: object) -> Callable[[CaseRun], object]:
    return lambda case: case.children[0].said.append((word, *values))


def shout(text: str) -> Callable[[CaseRun], object]:
    return lambda case: case.children[0].job.errors.write_text(text)


def put_rows(change: Callable[[pa.Table], pa.Table]) -> Callable[[CaseRun], object]:
    def put(case: CaseRun) -> None:
        data, table = io.BytesIO(), pq.read_table(io.BytesIO(case.bench.server.read(case.key)))
        pq.write_table(change(table), data)
        case.bench.server.put(case.key, data.getvalue())

    return put


def with_column(name: str, change: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        at = table.column_names.index(name)
        return table.set_column(at, name, pa.array(change(table[name].to_pylist()), table.schema.field(name).type))

    return changed


def leave_upload(case: CaseRun) -> None:
    case.bench.server.client.create_multipart_upload(Bucket="outages", Key=case.key)


def leave_object(case: CaseRun) -> None:
    case.bench.server.put(f"{case.judge.prefix}/_out.parquet.rpq-epoch", b"{}")


def remove(case: CaseRun) -> None:
    case.bench.server.client.delete_object(Bucket="outages", Key=case.key)


@contextlib.contextmanager
def spoiled(case: CaseRun, spoil: Callable[[CaseRun], object]) -> Iterator[list[Finding]]:
    """What is found when something was spoiled; all is put back behind it."""
    child, server = case.children[0], case.bench.server
    data, said, errors = server.read(case.key), list(child.said), child.output
    case.judge.findings.clear()
    spoil(case)
    case.judge.judge(child)
    case.judge.look()
    try:
        yield case.judge.findings
    finally:
        child.said[:] = said
        child.job.errors.write_text(errors)
        for name in server.names(case.judge.prefix):
            server.client.delete_object(Bucket="outages", Key=name)
        for key, upload_id in server.uploads(case.judge.prefix):
            server.client.abort_multipart_upload(Bucket="outages", Key=key, UploadId=upload_id)
        server.put(case.key, data)


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        ("rows differ", put_rows(lambda table: table.slice(0, 199))),
        ("rows differ", put_rows(lambda table: pa.concat_tables([table, table.slice(7, 1)]))),
        ("wrong value", put_rows(with_column("noise", lambda values: [*values[:-1], b"x"]))),
        ("stored and lost", put_rows(with_column("by", lambda tags: [*tags[:5], 9, *tags[6:]]))),
        ("stored and lost", lie("stored", 201)),
        ("took too long", lie("called", "write", 0.0, 100.0)),
        ("wrong value", lie("wrong", "a value differs")),
        ("traceback", shout("Traceback (most recent call last):\n")),
        ("traceback", shout("Task exception was never retrieved\n")),
        ("uploads left", leave_upload),
        ("objects left", leave_object),
        ("nothing there", remove),
    ],
)
def test_what_is_wrong_is_found(calm: CaseRun, rule: str, spoil: Callable[[CaseRun], object]) -> None:
    with spoiled(calm, spoil) as found:
        assert rule in {finding.rule for finding in found}


def test_a_subject_that_may_not_give_up(bench: Bench) -> None:
    """An error where nothing went wrong for long is found."""
    case = Case(
        0,
        "read",
        Case.drawn(0, "read").runs,
        num_rows=50,
        row_bytes=100,
        row_group_rows=40,
        local=False,
        damage="cut",
    )
    made = CaseRun(case, bench)
    made.key = f"{made.judge.prefix}/nothing.parquet"
    made._prepare()
    bench.server.client.delete_object(Bucket="outages", Key=made.key)
    made._finish()
    assert {finding.rule for finding in made.judge.findings} == {"gave up", "cannot go on"}
