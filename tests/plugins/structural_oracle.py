"""Holds what is done with a damaged file against the rows that its whole versions had; it knows no recovery.

Each row of an output must be, value by value, the row of that id of the one file that the output claims to be. The verdict,
the counts and the ledger must say what became of the rows of that file.
"""

from __future__ import annotations

import asyncio
import io
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from structural_cases import Case
from structural_files import INNER, OWN, SIBLING
from structural_originals import Matched, Original, matched, renamed, same, values_of

import resilient_pq as rpq
from resilient_pq.io.memory import MemoryStore

#: What no one can tell from the bytes: reported, and no failure.
UNVERIFIABLE = "unverifiable values"
#: Seconds of CPU that anything may take, and what it may take more for each byte.
SECONDS, SECONDS_A_BYTE = 2.0, 2.0 / 100_000
NO_DAMAGE = (rpq.Damage.UNFINISHED, rpq.Damage.UNVERIFIED)


@dataclass(frozen=True)
class Failure:
    """What is wrong: the kind for the table, the rest for people."""

    kind: str
    words: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}"


@dataclass
class Trial:
    """A case, what was done with it, and what is wrong with that."""

    case: Case
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    kept: int = 0
    rows: int = 0
    refused: list[str] = field(default_factory=list)
    outputs: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        files = self.case.family.files
        self.all = {version: Original(file, self.case.data) for version, file in files.items()}
        self.originals = [self.all[version] for version in self.case.versions]
        self.rows = self.originals[0].count
        self.store = MemoryStore()

    def fail(self, kind: str, words: object = "") -> None:
        self.failures.append(Failure(kind, str(words)[:400]))

    async def timed(self, what: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """What comes of a call: an error of ours is an answer, any other is a failure."""
        began = time.process_time()
        try:
            return await call()
        except rpq.ResilientPQError as error:
            return error
        except Exception as error:  # whatever it is, it is what is looked for
            self.fail("foreign exception", f"{what}: {error!r}")
            return None
        finally:
            taken = time.process_time() - began
            self.seconds += taken
            if taken > SECONDS + SECONDS_A_BYTE * len(self.case.data):
                self.fail("beyond its budget", f"{what}: {taken:.1f} s of CPU for {len(self.case.data)} bytes")

    # -- rows ------------------------------------------------------------------------------------

    def winner(self, rows: Iterable[dict[str, int]]) -> Original | None:
        """The version that an output is of: that of a whole footer, or of most rows."""
        counts = Counter(version for row in rows for version in row)
        by_name = {original.version: original for original in self.originals}
        return by_name[counts.most_common(1)[0][0]] if counts else None

    def unverifiable(self, winner: Original | None, position: int | None = None) -> bool:
        """Whether nothing that is left can tell a wrong value in a row."""
        family = self.case.family
        if not family.ours:
            return self.case.exchanged or not family.checksummed
        if not self.case.exchanged or winner is None:
            return self.case.exchanged
        groups = range(len(winner.starts) - 1) if position is None else [winner.row_group_of(position)]
        return not winner.named.issuperset(groups)

    def end_known(self, winner: Original) -> bool:
        """Whether anything says where the file ends, be it of another version that has as many rows."""
        alike = (other for other in self.all.values() if other.same_file_as(winner) and other.count == winner.count)
        return winner.end_known or any(other.end_known for other in alike)

    def mixed(self, row: dict[str, int], winner: Original) -> bool:
        """Whether a row of another version may stand beside the winner's: nothing whole contradicts it."""
        for original in self.originals:
            if original.version in row and original.same_file_as(winner):
                group = original.row_group_of(row[original.version])
                footers = [o.version for o in self.originals if group in o.named_by_footers]
                if not footers or original.version in footers:
                    return True
        return False

    def judge_rows(self, what: str, found: Matched) -> tuple[Original | None, list[int] | None]:
        """Hold rows against the originals: the version that they are of, and their places in it if all are right."""
        winner = self.winner(found.rows)
        places: list[int] = []
        bad: list[tuple[str, str]] = []
        for number, row in enumerate(found.rows):
            if not row:
                at = None if winner is None else winner.position.get(found.ids[number])
                kind = UNVERIFIABLE if self.unverifiable(winner, at) else "wrong values"
                bad.append((kind, found.wrong[number]))
                continue
            assert winner is not None
            if winner.version in row:
                place = row[winner.version]
                group = winner.row_group_of(place)
                others = [o for o in self.originals if o is not winner and o.same_file_as(winner)]
                naming = [o.version for o in others if group in o.named_by_footers]
                if group not in winner.named_by_footers and naming and not row.keys() & naming:
                    bad.append(("rows that the footer contradicts", f"row {number} of {winner.version}"))
            else:
                version, place = next(iter(row.items()))
                if not self.mixed(row, winner):
                    soft = not self.case.family.ours and self.unverifiable(winner)
                    kind = UNVERIFIABLE if soft else "rows of another file"
                    bad.append((kind, f"row {number} is of {version}, others of {winner.version}"))
            places.append(place)
        soft = self.unverifiable(winner)
        if not bad and len(set(places)) < len(places):
            times = len(places) - len(set(places))
            bad.append((UNVERIFIABLE if soft else "rows come twice", f"{times} of them"))
        if not bad and places != sorted(places):
            at = next(i for i in range(len(places) - 1) if places[i] > places[i + 1])
            bad.append((UNVERIFIABLE if soft else "order of rows", f"behind row {at}"))
        for kind, count in Counter(kind for kind, _ in bad).items():
            first = next(words for k, words in bad if k == kind)
            self.fail(kind, f"{what}: {count} of {len(found.rows)} rows; {first}")
        return winner, None if bad else places

    def judge_table(self, what: str, table: pa.Table, *, nulls: bool) -> tuple[Original | None, list[int] | None, Any]:
        values = values_of(table)
        names = set(self.originals[0].names)
        if set(values) != names and table.num_rows:
            if len(values) > len(names):
                self.fail("rows became columns", f"{what}: {len(values)} columns for {len(names)}")
                return None, None, None
            if INNER in self.all and set(values) == set(self.all[INNER].names):
                self.fail("the inner file was taken", what)
                return None, None, None
            given = None if set(values) & names else renamed(values, self.originals, nulls=nulls)
            if given is None:
                kind = UNVERIFIABLE if self.unverifiable(None) else "wrong values, columns made up"
                self.fail(kind, f"{what}: {table.column_names}")
                return None, None, None
            values = given
        found = matched(values, self.originals, nulls=nulls)
        return *self.judge_rows(what, found), found

    # -- recover ---------------------------------------------------------------------------------

    async def recover(self, policy: str) -> rpq.Report | None:
        case = self.case
        options: dict[str, Any] = {"schema_from": (self.store, "sibling")} if case.sibling else {}

        async def call() -> rpq.Report:
            return await rpq.recover((self.store, "damaged"), (self.store, f"{policy}.parquet"), on_damage=policy, **options)

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
        if wrong := ledger.check():
            self.fail("ledger does not add up", f"{what}: {wrong[0]}")
        lost = None if ledger.uncounted else ledger.rows_lost
        if lost != report.kept.rows_lost:
            self.fail("counts", f"{what}: ledger {lost} lost, report {report.kept.rows_lost}")
        if report.kept.outputs:
            await self.judge_columns(what, report)
        elif report.kept.output is not None:
            await self.judge_output(what, report, nulls=policy == "null")
        return report

    def judge_nothing(self, what: str, report: rpq.Report) -> None:
        assert report.kept is not None and report.kept.ledger is not None
        if wrong := report.kept.ledger.check():
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
        if what == "recover drop" and winner is not None:
            self.kept, self.rows = sum(winner.version in row for row in found.rows), winner.count
        if places is not None and winner is not None:
            lacking = sum(found.nulled)
            if lacking > report.kept.ledger.rows_nulled:
                self.fail("counts", f"{what}: {lacking} rows lack values, {report.kept.ledger.rows_nulled} nulled")
            self.judge_verdict(what, report, winner, winner.count - len(places), incomplete=lacking)
            self.judge_ledger(what, report, winner, set(places), places)
        elif winner is None and not table.num_rows and report.exit_code == 0 and self.rows:
            self.fail("verdict", f"{what}: {report.outcome}, and no rows of {self.rows}")

    def judge_verdict(
        self, what: str, report: rpq.Report, winner: Original, missing: int, *, incomplete: int
    ) -> None:
        claims = report.exit_code == 0
        lost = report.kept.rows_lost
        if claims != (report.outcome in (rpq.Outcome.SOUND, rpq.Outcome.RECOVERED)):
            self.fail("verdict", f"{what}: {report.outcome}, exit {report.exit_code}")
        if (claims or lost == 0) and missing:
            self.fail("verdict", f"{what}: {report.outcome}, {lost} lost; {missing} of {winner.count} rows are missing")
        elif claims and incomplete:
            self.fail("verdict", f"{what}: {report.outcome}; {incomplete} rows lack values")
        elif lost is not None and lost != missing:
            self.fail("rows lost", f"{what}: {lost} lost; {missing} of {winner.count} rows are missing")
        elif (claims or lost is not None) and not self.end_known(winner):
            self.fail("end not proven", f"{what}: {report.outcome}, {lost} lost; {missing} of {winner.count} are missing")

    def judge_ledger(
        self, what: str, report: rpq.Report, winner: Original, kept: set[int], places: list[int] | None
    ) -> None:
        """Hold the rows of the ledger against where they were."""
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
                    self.fail("ledger first_row", f"{what}: rows {first} to {here.stop} are at {true[:1]} to {true[-1:]}")
                    return
            elif fate.kept != (not kept.isdisjoint(here)) and here:
                words = "kept" if fate.kept else "lost"
                self.fail("ledger first_row", f"{what}: {here.start} to {here.stop} are {words}, of {fate.row_group}")
                return
            if here and fate.row_group is not None and not self.case.exchanged:
                starts = winner.starts
                if fate.row_group >= len(starts) - 1 or not starts[fate.row_group] <= first < starts[fate.row_group + 1]:
                    self.fail("ledger row group", f"{what}: row {first} in {fate.row_group}, which begin at {starts}")
                    return

    async def judge_columns(self, what: str, report: rpq.Report) -> None:
        """Each column in an output of its own, with the numbers of its rows."""
        tables = {}
        for name, url in report.kept.outputs.items():
            table = await self.table_of(f"{what} {name}", url.removeprefix("memory:"))
            if table is not None:
                tables[name] = tuple(values_of(table).values())
        union = set().union(*(numbers for numbers, _ in tables.values()))
        if not len(union) == report.num_rows == report.kept.ledger.rows_kept:
            self.fail("counts", f"{what}: {len(union)} rows in all outputs, {report.num_rows} in the report, "
                      f"{report.kept.ledger.rows_kept} in the ledger")  # fmt: skip
        if not set(tables) <= set(self.originals[0].names):
            return
        wrong = {}
        for original in self.originals:
            wrong[original.version] = [
                (f"{name}, row {number}: {value!r:.40}", number if number < original.count else None)
                for name, (numbers, values) in tables.items()
                for number, value in zip(numbers, values, strict=True)
                if number >= original.count or not same(original.columns[name][number], value)
            ]
        winner = min(self.originals, key=lambda original: len(wrong[original.version]))
        for name, (numbers, _) in tables.items():
            if len(set(numbers)) != len(numbers):
                self.fail("row numbers", f"{what}: numbers come twice in {name}")
        if bad := wrong[winner.version]:
            hard = [words for words, at in bad if not self.unverifiable(winner, at)]
            cells = sum(len(numbers) for numbers, _ in tables.values())
            words = f"{what}: {len(bad)} of {cells}; {(hard or bad[0])[0]}"
            self.fail("wrong values" if hard else UNVERIFIABLE, words)
            return
        lacking = sum(len(tables[name][0]) < winner.count if name in tables else 1 for name in winner.names)
        self.judge_verdict(what, report, winner, winner.count - len(union), incomplete=lacking)
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
        made_up = "id" not in theirs.column_names and "row" not in theirs.column_names
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
        if ended and lost and None not in counts and sum(c or 0 for c in counts) != winner.count - len(places):
            self.fail("rows lost", f"{what}: {counts} told, {winner.count - len(places)} missing")

    async def check(self, kept: rpq.Report | None) -> None:
        report = await self.timed("check", lambda: rpq.check((self.store, "damaged")))
        if report is None or isinstance(report, rpq.ResilientPQError):
            return
        rows = 0 if kept is None else kept.num_rows
        sound = report.outcome is rpq.Outcome.SOUND
        if report.num_rows != rows and not self.case.sibling:
            self.fail("check counts otherwise", f"check {report.num_rows}, recover drop {rows}")
        if sound and (kept is None or kept.outcome is not rpq.Outcome.SOUND or self.kept not in (rows, 0)):
            self.fail("check says sound", f"recover drop: {kept and kept.outcome}")
        if sound and kept is not None and self.rows not in (rows,) and self.case.versions == (OWN,):
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


def tried(case: Case) -> Trial:
    """What is wrong with what is done with a case."""
    trial = Trial(case)
    asyncio.run(trial.run())
    return trial


def failures_of(trial: Trial, *, timed: bool) -> list[Failure]:
    """Those that count; how long something takes says more of the machine, where others use it."""
    passed = {UNVERIFIABLE} if timed else {UNVERIFIABLE, "beyond its budget"}
    return [failure for failure in trial.failures if failure.kind not in passed]


