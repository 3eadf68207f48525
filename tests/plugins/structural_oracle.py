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
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from page_layout import ANCHOR, CHECKPOINT, CHUNK, FINAL, ROW_GROUP
from structural_damage import Case
from structural_files import OWN, SIBLING, File

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


class Original:
    """A file before it was damaged, and what is left of it in the damaged bytes."""

    def __init__(self, file: File, data: bytes) -> None:
        self.file = file
        self.version = file.version
        self.names = file.table.column_names
        self.columns = {name: file.table.column(name).to_pylist() for name in self.names}
        self.nullable = {name for name in self.names if file.table.schema.field(name).nullable}
        self.count = file.table.num_rows
        self.position = {value: i for i, value in enumerate(self.columns["id"])}
        ends = list(accumulate(group.num_rows for group in file.layout.row_groups))
        self.starts = [0, *ends]
        self._data = data

    def row_group_of(self, position: int) -> int:
        return next(i for i, end in enumerate(self.starts[1:]) if position < end)

    def _there(self, place: range) -> bool:
        piece = self.file.data[place.start : place.stop]
        return piece in self._data or piece.replace(b"\n", b"\r\n") in self._data

    @cached_property
    def named_by_footers(self) -> set[int]:
        """Row groups that a whole footer or checkpoint of it names."""
        named: set[int] = set()
        if not self.file.ours:
            return set(range(len(self.starts) - 1)) if self._there(self.file.layout.footer) else named
        for record in self.file.records(CHECKPOINT, FINAL):
            if self._there(record.place):
                named |= set(range(record.num_row_groups))
        return named

    @cached_property
    def named(self) -> set[int]:
        """Row groups of which a whole record tells all pages."""
        records = self.file.records(ROW_GROUP)
        return self.named_by_footers | {i for i, record in enumerate(records) if self._there(record.place)}

    @cached_property
    def end_known(self) -> bool:
        """Whether there is anything left that says where it ends: a final record's header, or most of its footer."""
        footer = self.file.layout.footer
        finals = self.file.records(FINAL)
        if self._there(footer) or any(self._there(range(f.place.start, f.place.start + 96)) for f in finals):
            return True
        own = self.file.data[footer.start : footer.stop]
        for there in (self._data[footer.start : footer.stop], self._data[-len(footer) :]):
            if len(there) == len(own) and sum(a == b for a, b in zip(own, there, strict=True)) > len(own) * 0.7:
                return True
        return False


@dataclass(frozen=True)
class Matched:
    """Rows of an output: of each the versions that have it, and its place in them; and rows that lack values."""

    rows: list[dict[str, int]]
    nulled: list[bool]
    wrong: list[str]


def values_of(table: pa.Table) -> dict[str, list[Any]]:
    """Values by column; where Python has none for them, what is there in words."""
    found: dict[str, list[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            found[name] = column.to_pylist()
        except (OverflowError, ValueError) as error:
            found[name] = [f"{column.type}: {error}"] * table.num_rows
    return found


def same(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)  # noqa: PLR0124 (NaN)


def matched(table: dict[str, list[Any]], originals: Sequence[Original], *, nulls: bool) -> Matched:
    """The versions that have each row of a table of their columns."""
    names = list(table)
    rows: list[dict[str, int]] = []
    nulled, wrong = [], []
    expected = {o.version: [o.columns[name] for name in names] for o in originals}
    for number, values in enumerate(zip(*table.values(), strict=True)):
        found: dict[str, int] = {}
        lacking, reason = False, ""
        for original in originals:
            at = original.position.get(table["id"][number])
            if at is None:
                continue
            differ = [
                (name, value, column[at])
                for name, value, column in zip(names, values, expected[original.version], strict=True)
                if not same(value, column[at])
            ]
            if all(nulls and value is None and name in original.nullable for name, value, _ in differ):
                found[original.version] = at
                lacking = bool(differ)
            else:
                reason = reason or f"row {number}, {original.version} id {table['id'][number]}: " + ", ".join(
                    f"{name} is {value!r:.40}, was {was!r:.40}" for name, value, was in differ
                )
        rows.append(found)
        nulled.append(lacking)
        wrong.append("" if found else reason or f"row {number}: no such id {table['id'][number]!r:.40}")
    return Matched(rows, nulled, wrong)


def alike(value: Any, was: Any, *, nulls: bool) -> bool:
    """Whether a value is the one that was, where nothing told that it is text, or whether a list is null or empty."""
    if isinstance(value, bytes) and isinstance(was, str):
        return value == was.encode()
    if isinstance(was, list) and value is None or isinstance(value, list) and was is None:
        return not value and not was
    return same(value, was) or (nulls and value is None)


def renamed(table: dict[str, list[Any]], originals: Sequence[Original], *, nulls: bool) -> dict[str, list[Any]] | None:
    """A table whose columns were made up, under the names that their values have; None if they have none.

    Values are given as they were, when they are alike.
    """
    for original in originals:
        for first, ids in table.items():
            if not all(type(value) is int and value in original.position for value in ids):
                continue
            places = [original.position[value] for value in ids]
            given = {"id": ids}
            for name, values in table.items():
                for candidate, column in original.columns.items():
                    pairs = zip(values, places, strict=True)
                    if name == first or candidate in given:
                        continue
                    if all(alike(value, column[at], nulls=nulls) for value, at in pairs):
                        pairs = zip(values, places, strict=True)
                        given[candidate] = [column[at] for value, at in pairs]
                        break
            if len(given) == len(table):
                return given
    return None


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
        self.originals = [Original(files[version], self.case.data) for version in self.case.versions]
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

    def unverifiable(self, winner: Original | None) -> bool:
        """Whether nothing that is left could tell a wrong value."""
        family = self.case.family
        if not family.ours:
            return self.case.exchanged or not family.checksummed
        row_groups = 0 if winner is None else len(winner.starts) - 1
        return self.case.exchanged and (winner is None or len(winner.named) < row_groups)

    def mixed(self, row: dict[str, int], winner: Original) -> bool:
        """Whether a row of another version may stand beside the winner's: nothing whole contradicts it."""
        for original in self.originals:
            if original.version in row and original.file.file_id == winner.file.file_id != b"":
                group = original.row_group_of(row[original.version])
                footers = [o.version for o in self.originals if group in o.named_by_footers]
                if not footers or original.version in footers:
                    return True
        return False

    def judge_rows(self, what: str, found: Matched) -> tuple[Original | None, list[int] | None]:
        """Hold rows against the originals: the version that they are of, and their places in it if all are right."""
        winner = self.winner(found.rows)
        soft = self.unverifiable(winner)
        places: list[int] = []
        bad: list[tuple[str, str]] = []
        for number, row in enumerate(found.rows):
            if not row:
                bad.append((UNVERIFIABLE if soft else "wrong values", found.wrong[number]))
                continue
            assert winner is not None
            if winner.version in row:
                place = row[winner.version]
                group, others = winner.row_group_of(place), [o for o in self.originals if o is not winner]
                same_id = [o for o in others if o.file.file_id == winner.file.file_id != b""]
                if group not in winner.named_by_footers and any(group in o.named_by_footers for o in same_id):
                    bad.append(("rows that the footer contradicts", f"row {number} of {winner.version}"))
            else:
                version, place = next(iter(row.items()))
                if not self.mixed(row, winner):
                    kind = UNVERIFIABLE if soft and not self.case.family.ours else "rows of another file"
                    bad.append((kind, f"row {number} is of {version}, others of {winner.version}"))
            places.append(place)
        for kind, count in Counter(kind for kind, _ in bad).items():
            first = next(words for k, words in bad if k == kind)
            self.fail(kind, f"{what}: {count} of {len(found.rows)} rows; {first}")
        if bad:
            return winner, None
        if len(set(places)) < len(places):
            self.fail(UNVERIFIABLE if soft else "rows come twice", f"{what}: {len(places) - len(set(places))} of them")
            return winner, None
        if places != sorted(places):
            self.fail("order of rows", f"{what}: {next(i for i in range(len(places) - 1) if places[i] > places[i + 1])}")
        return winner, places

    def judge_table(self, what: str, table: pa.Table, *, nulls: bool) -> tuple[Original | None, list[int] | None, Any]:
        values = values_of(table)
        names = set(self.originals[0].names)
        if set(values) != names and table.num_rows:
            if len(values) > len(names):
                self.fail("rows became columns", f"{what}: {len(values)} columns for {len(names)}")
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
        if not len({table.num_rows, report.num_rows, report.kept.num_rows, report.kept.ledger.rows_kept}) == 1:
            self.fail("counts", f"{what}: {table.num_rows} in the output, {report.num_rows} in the report, "
                      f"{report.kept.ledger.rows_kept} in the ledger")  # fmt: skip
        winner, places, found = self.judge_table(what, table, nulls=nulls)
        if what == "recover drop" and places is not None:
            self.kept = len(places)
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
        elif (claims or lost is not None) and not winner.end_known:
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
            if here and fate.row_group is not None:
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
                f"{name}, row {number}: {value!r:.40}"
                for name, (numbers, values) in tables.items()
                for number, value in zip(numbers, values, strict=True)
                if number >= original.count or not same(original.columns[name][number], value)
            ]
        winner = min(self.originals, key=lambda original: len(wrong[original.version]))
        for name, (numbers, _) in tables.items():
            if len(set(numbers)) != len(numbers):
                self.fail("row numbers", f"{what}: numbers come twice in {name}")
        if bad := wrong[winner.version]:
            cells = sum(len(numbers) for numbers, _ in tables.values())
            soft = self.unverifiable(winner)
            self.fail(UNVERIFIABLE if soft else "wrong values", f"{what}: {len(bad)} of {cells}; {bad[0]}")
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
        if (one := values_of(ours)) != values_of(theirs) and "nan" not in str(one):
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
        if report.num_rows != rows and not (self.case.sibling and not report.num_rows):
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


__all__ = ["ANCHOR", "CHUNK", "UNVERIFIABLE", "Failure", "Trial", "failures_of", "tried"]
