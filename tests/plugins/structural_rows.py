"""A damaged file and what is wrong with the rows that came of it: each must be, value by value, a row of one whole file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from structural_cases import Case
from structural_files import INNER
from structural_originals import Matched, Original, matched, renamed, values_of

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore

#: What no one can tell from the bytes: reported, and no failure.
UNVERIFIABLE = "unverifiable values"
#: Seconds of CPU that anything may take, and what it may take more for each byte.
SECONDS, SECONDS_A_BYTE = 2.0, 2.0 / 100_000


@dataclass(frozen=True)
class Failure:
    """What is wrong: the kind for the table, the rest for people."""

    kind: str
    words: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}"


@dataclass
class RowsTrial:
    """A case, what was done with it, and what is wrong with that."""

    case: Case
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    kept: int = 0
    rows: int = 0
    refused: list[str] = field(default_factory=list)
    outputs: dict[str, bytes] = field(default_factory=dict)
    blurred: bool = False

    def __post_init__(self) -> None:
        files = self.case.family.files
        self.all = {version: Original(file, self.case.data) for version, file in files.items()}
        self.originals = [self.all[version] for version in self.case.versions]
        self.rows = self.originals[0].count
        self.alike: frozenset[str] = frozenset()
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

    def unverifiable(self, winner: Original | None, *positions: int | None) -> bool:
        """Whether nothing that is left can tell a wrong value in a row, which is at one of some places; none for any."""
        family = self.case.family
        if not family.ours:
            return self.case.exchanged or not family.checksummed or not self.counted(winner)
        if not self.case.exchanged or winner is None:
            return self.case.exchanged
        known = [position for position in positions if position is not None]
        groups = [winner.row_group_of(position) for position in known] or range(len(winner.starts) - 1)
        return not (winner.named | winner.summed).issuperset(groups)

    def end_known(self, winner: Original) -> bool:
        """Whether anything says where the file ends, be it of another version that has as many rows."""
        alike = (other for other in self.all.values() if other.same_file_as(winner) and other.count == winner.count)
        return winner.end_known or any(other.end_known for other in alike)

    def meant(self, winner: Original) -> list[Original]:
        """Whose rows the file may be said to have: another may have its id, all rows, or nothing that tells it apart."""
        soft = not self.case.family.ours and self.unverifiable(winner)
        return [o for o in self.originals if o is winner or soft or o.same_file_as(winner) or o.version in self.alike]

    def counted(self, winner: Original | None) -> bool:
        """Whether anything that is left can tell which rows of the file they are."""
        in_place = self.case.damage in ("cut", "written over", "footer bit", "footer entries", "no footer", "records")
        return winner is not None and (self.case.family.ours or bool(winner.named) or in_place)

    def mixed(self, row: dict[str, int], winner: Original) -> bool:
        """Whether a row of another version may stand beside the winner's: nothing whole contradicts it."""
        for original in self.originals:
            if original.version in row and original.same_file_as(winner):
                group = original.row_group_of(row[original.version])
                footers = [o.version for o in self.originals if group in o.named_by_footers]
                if not footers or original.version in footers:
                    return True
        return False

    def judge_rows(
        self, what: str, found: Matched, *, counted: bool = True
    ) -> tuple[Original | None, list[int] | None]:
        """Hold rows against the originals: the version that they are of, and their places in it if all are right."""
        winner = self.winner(found.rows)
        self.alike = frozenset.intersection(*map(frozenset, found.rows)) if found.rows else frozenset()
        places: list[int] = []
        last: int | None = None
        bad: list[tuple[str, str]] = []
        for number, row in enumerate(found.rows):
            if not row:
                # Its id may be what is of another row: the rows beside it tell where it is, too.
                at = None if winner is None else winner.position.get(found.ids[number])
                beside = last if at is not None else None
                last = max(last or 0, at or 0)
                kind = UNVERIFIABLE if self.unverifiable(winner, at, beside) else "wrong values"
                bad.append((kind, found.wrong[number]))
                continue
            assert winner is not None
            if winner.version in row:
                place = row[winner.version]
                group = winner.row_group_of(place)
                others = [o for o in self.originals if o is not winner and o.same_file_as(winner)]
                others = [o for o in others if o.epoch >= winner.epoch]
                naming = [o.version for o in others if group in o.told_by_footers]
                if group not in winner.named_by_footers and naming and not row.keys() & naming:
                    bad.append(("rows that the footer contradicts", f"row {number} of {winner.version}"))
            else:
                version, place = next(iter(row.items()))
                if self.mixed(row, winner):
                    self.blurred |= self.all[version].count != winner.count
                else:
                    soft = not self.case.family.ours and self.unverifiable(winner)
                    kind = UNVERIFIABLE if soft else "rows of another file"
                    bad.append((kind, f"row {number} is of {version}, others of {winner.version}"))
            places.append(last := place)
        soft = self.unverifiable(winner)
        if counted and not bad and len(set(places)) < len(places):
            times = len(places) - len(set(places))
            bad.append((UNVERIFIABLE if soft else "rows come twice", f"{times} of them"))
        if counted and not bad and places != sorted(places):
            at = next(i for i in range(len(places) - 1) if places[i] > places[i + 1])
            soft = soft or not self.counted(winner)
            bad.append((UNVERIFIABLE if soft else "order of rows", f"behind row {at}"))
        for kind, count in Counter(kind for kind, _ in bad).items():
            first = next(words for k, words in bad if k == kind)
            self.fail(kind, f"{what}: {count} of {len(found.rows)} rows; {first}")
        return winner, None if bad or self.blurred else places

    def judge_table(self, what: str, table: pa.Table, *, nulls: bool) -> tuple[Original | None, list[int] | None, Any]:
        values = values_of(table)
        names = set(self.originals[0].names)
        if set(values) != names:
            if not table.num_rows:
                return None, None, None
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
