"""Holds what is done with a damaged file against the rows that its whole versions had; it knows no recovery.

Each row of an output must be, value by value, the row of that id of the one file that the output claims to be. The verdict,
the counts and the ledger must say what became of the rows of that file.
"""

from __future__ import annotations

import asyncio
import io
import warnings
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from inline_executor import InlineExecutor
from ledger_check import check_ledger
from structural_cases import Case
from structural_files import OWN, SIBLING
from structural_originals import Matched, Original, values_of
from structural_rows import UNVERIFIABLE, Failure, RowsTrial

import resilient_pq as rpq

#: Findings that say of no byte that it is not as it was written.
NO_DAMAGE = (rpq.Damage.UNFINISHED, rpq.Damage.UNVERIFIED)


class Trial(RowsTrial):
    """A case, with everything that is done with it."""

    # -- recover ---------------------------------------------------------------------------------

    async def recover(self, policy: str) -> rpq.Report | None:
        case = self.case
        options: dict[str, Any] = {"schema_from": (self.store, "sibling")} if case.sibling else {}

        async def call() -> rpq.Report:
            return await rpq.recover(
                (self.store, "damaged"), (self.store, f"{policy}.parquet"), on_damage=policy, **options
            )

        what = f"recover {policy}"
        report = await self.timed(what, call)
        if isinstance(report, rpq.NothingToRecoverError):
            self.judge_nothing(what, report.report)
            return None
        if isinstance(report, rpq.ResilientPQError):
            self.refused.append(f"{what}: {type(report).__name__}: {report}")
            return None
        if report is None:
            return None
        ledger = report.kept.ledger
        if wrong := check_ledger(ledger):
            self.fail("ledger does not add up", f"{what}: {wrong[0]}")
        lost = ledger.rows_lost
        if lost != report.kept.rows_lost:
            self.fail("counts", f"{what}: ledger {lost} lost, report {report.kept.rows_lost}")
        if report.kept.outputs:
            await self.judge_columns(what, report)
        elif report.kept.output is not None:
            await self.judge_output(what, report, nulls=policy == "null")
        return report

    def judge_nothing(self, what: str, report: rpq.Report) -> None:
        assert report.kept is not None and report.kept.ledger is not None
        if wrong := check_ledger(report.kept.ledger):
            self.fail("ledger does not add up", f"{what}: {wrong[0]}")
        if report.exit_code != 3 or report.num_rows or report.kept.num_rows:
            self.fail("counts", f"{what}: nothing, and exit {report.exit_code} with {report.num_rows} rows")
        if report.kept.rows_lost is not None and report.kept.rows_lost not in {o.count for o in self.originals}:
            self.fail("rows lost", f"{what}: nothing kept, {report.kept.rows_lost} lost of {self.rows}")

    async def judge_output(self, what: str, report: rpq.Report, *, nulls: bool) -> None:
        key = report.kept.output.removeprefix("memory:")
        table = await self.table_of(what, key)
        if table is None:
            return
        if len({table.num_rows, report.num_rows, report.kept.num_rows, report.kept.ledger.rows_kept}) > 1:
            self.fail("counts", f"{what}: {table.num_rows} in the output, {report.num_rows} in the report, "
                      f"{report.kept.ledger.rows_kept} in the ledger")  # fmt: skip
        winner, places, found = self.judge_table(what, table, nulls=nulls)
        self.judge_bounds(what, values_of(table), report, winner or self.originals[0])
        if what == "recover drop" and winner is not None:
            self.kept, self.rows = sum(winner.version in row for row in found.rows), winner.count
        if places is not None and winner is not None:
            lacking = sum(found.nulled)
            if lacking > report.kept.ledger.rows_nulled:
                kind = UNVERIFIABLE if self.unverifiable(winner) else "counts"
                self.fail(kind, f"{what}: {lacking} rows lack values, {report.kept.ledger.rows_nulled} nulled")
            self.judge_verdict(what, report, winner, winner.count - len(places), incomplete=lacking)
            self.judge_ledger(what, report, winner, set(places), places)
        elif winner is None and not table.num_rows and report.exit_code == 0:
            self.fail("verdict", f"{what}: {report.outcome}, and no rows of {self.rows}")

    def judge_bounds(self, what: str, values: dict[str, list[Any]], report: rpq.Report, winner: Original) -> None:
        """Whatever has no checksum may be wrong, but not beyond what a whole footer says of it.

        Where not one row has an id of the file, its blocks were written over by those of another, which was taken. Of
        rows whose number in the file nobody knows, neither is their row group's.
        """
        if winner.position.keys().isdisjoint(values.get("id", ())):
            return
        at = 0
        for fate in report.kept.ledger.rows:
            if not fate.kept:
                continue
            end = at + (fate.num_rows or 0)
            told = fate.first_row is not None and fate.row_group in winner.named_by_footers
            if told and self.case.versions == (OWN,):
                words = winner.beyond_bounds(fate.row_group, {name: v[at:end] for name, v in values.items()})
                if words is not None:
                    self.fail("values beyond the bounds", f"{what}: {words}")
                    return
            at = end

    def judge_verdict(self, what: str, report: rpq.Report, winner: Original, missing: int, *, incomplete: int) -> None:
        claims = report.exit_code == 0
        lost = report.kept.rows_lost
        if claims != (report.outcome in (rpq.Outcome.SOUND, rpq.Outcome.RECOVERED)):
            self.fail("verdict", f"{what}: {report.outcome}, exit {report.exit_code}")
        if (claims or lost == 0) and missing:
            self.fail("verdict", f"{what}: {report.outcome}, {lost} lost; {missing} of {winner.count} rows are missing")
            return
        if claims and incomplete:
            self.fail("verdict", f"{what}: {report.outcome}; {incomplete} rows lack values")
            return
        claimed = [o for o in self.meant(winner) if lost is None or lost == o.count - winner.count + missing]
        if lost is not None and not claimed:
            self.fail("rows lost", f"{what}: {lost} lost; {missing} of {winner.count} rows are missing")
        elif (claims or lost is not None) and not any(map(self.end_known, claimed)):
            self.fail(
                "end not proven", f"{what}: {report.outcome}, {lost} lost; {missing} of {winner.count} are missing"
            )

    def judge_ledger(
        self, what: str, report: rpq.Report, winner: Original, kept: set[int], places: list[int] | None
    ) -> None:
        """Hold the rows of the ledger against where they were."""
        if not self.counted(winner):
            return
        at = 0
        for fate in report.kept.ledger.rows:
            count, first = fate.num_rows, fate.first_row
            if count is None:
                continue
            here = range(first, first + count) if first is not None else range(0)
            if places is not None and fate.kept:
                true = places[at : at + count]
                at += count
                if first is not None and true != list(here):
                    self.fail(
                        "ledger first_row", f"{what}: rows {first} to {here.stop} are at {true[:1]} to {true[-1:]}"
                    )
                    return
            elif fate.kept != (not kept.isdisjoint(here)) and here:
                words = "kept" if fate.kept else "lost"
                self.fail("ledger first_row", f"{what}: {here.start} to {here.stop} are {words}, of {fate.row_group}")
                return
            if here and fate.row_group is not None and not self.case.exchanged:
                starts = winner.starts
                if (
                    fate.row_group >= len(starts) - 1
                    or not starts[fate.row_group] <= first < starts[fate.row_group + 1]
                ):
                    self.fail("ledger row group", f"{what}: row {first} in {fate.row_group}, which begin at {starts}")
                    return

    async def judge_columns(self, what: str, report: rpq.Report) -> None:
        """Each column in an output of its own, with the numbers of its rows."""
        tables = {}
        for name, url in report.kept.outputs.items():
            table = await self.table_of(f"{what} {name}", url.removeprefix("memory:"))
            if table is None:
                return  # which is told
            tables[name] = tuple(values_of(table).values())
        union = set().union(*(numbers for numbers, _ in tables.values()))
        if not len(union) == report.num_rows == report.kept.ledger.rows_kept:
            self.fail("counts", f"{what}: {len(union)} rows in all outputs, {report.num_rows} in the report, "
                      f"{report.kept.ledger.rows_kept} in the ledger")  # fmt: skip
        if not set(tables) <= set(self.originals[0].names):
            return
        for name, (numbers, _) in tables.items():
            if len(set(numbers)) != len(numbers):
                self.fail("row numbers", f"{what}: numbers come twice in {name}")
                return
        rows: dict[int, dict[str, Any]] = {number: {} for number in sorted(union)}
        for name, (numbers, values) in tables.items():
            for number, value in zip(numbers, values, strict=True):
                rows[number][name] = value
        counted = not any("numbers in `row`" in finding.message for finding in report.findings)
        found = [
            {o.version: at for o in self.originals if (at := o.place_of(row, number if counted else None)) is not None}
            for number, row in rows.items()
        ]
        wrong = [
            f"row {number}: {row}" if not at else "" for (number, row), at in zip(rows.items(), found, strict=True)
        ]
        known = dict(enumerate(self.originals[0].columns["id"])) if counted else {}
        ids = [row.get("id", known.get(number)) for number, row in rows.items()]
        winner, places = self.judge_rows(what, Matched(ids, found, [], wrong), counted=counted)
        if winner is None or places is None:
            return
        lacking = sum(len(tables[name][0]) < winner.count if name in tables else 1 for name in winner.names)
        self.judge_verdict(what, report, winner, winner.count - len(union), incomplete=lacking)
        if counted:
            self.judge_ledger(what, report, winner, union, None)

    async def table_of(self, what: str, key: str) -> pa.Table | None:
        """The rows of an output, as pyarrow and we read them alike."""
        self.outputs[key] = data = bytes((await self.store.read_tail(key, 1 << 40)).data)
        try:
            theirs = pq.read_table(io.BytesIO(data))
        except Exception as error:
            self.fail("pyarrow refuses the output", f"{what}: {error!r}")
            return None
        try:
            async with rpq.open((self.store, key)) as file:
                ours = pa.table(await file.read())
        except Exception as error:
            self.fail("we refuse the output", f"{what}: {error!r}")
            return theirs
        made_up = not set(theirs.column_names) & set(self.originals[0].names)
        if not made_up and (one := values_of(ours)) != values_of(theirs) and "nan" not in str(one):
            self.fail("readers differ", f"{what}: {key}")
        report = await self.timed(f"check of {key}", lambda: rpq.check((self.store, key)))
        if isinstance(report, rpq.Report):
            found = [finding for finding in report.findings if finding.damage not in NO_DAMAGE]
            if found:
                self.fail("output is damaged", f"{what}: {found[0].message}")
        else:
            self.fail("output is damaged", f"{what}: {report!r}")
        return theirs

    # -- reading and checking --------------------------------------------------------------------

    async def read(self, on_damage: str) -> None:
        """Rows of the damaged file itself."""
        lost: list[rpq.LostRegion] = []
        what = f"open {on_damage}"

        async def call() -> tuple[pa.Table, Any]:
            more: dict[str, Any] = {} if on_damage == "raise" else {"on_lost": lost.append}
            async with rpq.open((self.store, "damaged"), on_damage=on_damage, **more) as file:
                return pa.table(await file.read()), file.state

        answer = await self.timed(what, call)
        if answer is None or isinstance(answer, rpq.ResilientPQError):
            return
        table, state = answer
        winner, places, _ = self.judge_table(what, table, nulls=on_damage == "null")
        if places is None or winner is None:
            return
        ended = state in (None, rpq.FileState.COMPLETE)
        if not lost and (places != list(range(len(places))) or (ended and len(places) != winner.count)):
            self.fail("rows missing in silence", f"{what}: {len(places)} of {winner.count} rows, {state}")
        counts = [region.num_rows for region in lost]
        missing = {original.count - len(places) for original in self.meant(winner)}
        if ended and lost and None not in counts and sum(c or 0 for c in counts) not in missing:
            self.fail("rows lost", f"{what}: {counts} told, {winner.count - len(places)} missing")

    async def check(self, kept: rpq.Report | None) -> None:
        report = await self.timed("check", lambda: rpq.check((self.store, "damaged")))
        if report is None or isinstance(report, rpq.ResilientPQError):
            return
        rows = 0 if kept is None else kept.num_rows
        sound = report.outcome is rpq.Outcome.SOUND
        if report.num_rows != rows and not self.case.sibling:
            self.fail("check counts otherwise", f"check {report.num_rows}, recover drop {rows}")
        if sound and (kept is None or kept.outcome is not rpq.Outcome.SOUND):
            self.fail("check says sound", f"recover drop: {kept and kept.outcome}")
        if sound and self.all[OWN].count != rows and self.case.versions == (OWN,):
            self.fail("check says sound", f"{rows} of {self.rows} rows")

    async def run(self) -> None:
        """Do everything with the damaged file."""
        await self.store.put("damaged", self.case.data)
        await self.store.put("sibling", self.case.family.files[SIBLING].data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kept = await self.recover("drop")
            await self.recover(self.case.policy)
            await self.check(kept)
            await self.read("drop")
            await self.read("raise")
        if bytes((await self.store.read_tail("damaged", 1 << 40)).data) != self.case.data:
            self.fail("the source changed")


async def _run_without_threads(trial: Trial) -> None:
    asyncio.get_running_loop().set_default_executor(InlineExecutor(1))
    await trial.run()


def tried(case: Case) -> Trial:
    """What is wrong with what is done with a case."""
    trial = Trial(case)
    try:
        asyncio.run(_run_without_threads(trial))
    except Exception as error:  # of the oracle itself: a case that it cannot judge has not passed
        trial.fail("the oracle broke", repr(error))
    return trial


def failures_of(trial: Trial, *, timed: bool) -> list[Failure]:
    """Those that count; how long something takes says more of the machine, where others use it."""
    passed = {UNVERIFIABLE} if timed else {UNVERIFIABLE, "beyond its budget"}
    return [failure for failure in trial.failures if failure.kind not in passed]
