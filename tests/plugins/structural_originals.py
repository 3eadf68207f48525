"""What a whole file had, and which of its rows an output has: the oracle's half that knows no recovery at all."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from page_layout import CHECKPOINT, FINAL, ROW_GROUP, thrift_value
from structural_damage import row_group_entries
from structural_files import File

#: Bytes behind the metadata of a footer.
TAIL = 8
#: Fields of FileMetaData: what comes up to the number of rows says where a file of others ends.
NUM_ROWS = 3


class Original:
    """A file before it was damaged, and what is left of it in the damaged bytes."""

    def __init__(self, file: File, data: bytes) -> None:
        self.file = file
        self.version = file.version
        self.names = file.table.column_names
        self.nullable = {name for name in self.names if file.table.schema.field(name).nullable}
        self.count = file.table.num_rows
        self.starts = [0, *accumulate(group.num_rows for group in file.layout.row_groups)]
        self._data = data

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """The values of each column."""
        return values_of(self.file.table)

    @cached_property
    def position(self) -> dict[Any, int]:
        """The place of each id."""
        return {value: i for i, value in enumerate(self.columns["id"])}

    def place_of(self, row: dict[str, Any], number: int | None) -> int | None:
        """The place of a row of which some values are left: its number, if that is known, else any that has them."""
        if number is not None:
            places = [number] if number < self.count else []
        elif "id" in row:
            places = [self.position[row["id"]]] if row["id"] in self.position else []
        else:
            places = list(range(self.count))
        columns = [(self.columns[name], value) for name, value in row.items()]
        return next((at for at in places if all(same(value, column[at]) for column, value in columns)), None)

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
    def told_by_footers(self) -> set[int]:
        """Row groups that a footer names which tells of the file that lies there: its last one, or one in its place.

        A checkpoint that lies elsewhere than it was written came there with the end of another version.
        """
        named: set[int] = set()
        for record in self.file.records(CHECKPOINT, FINAL):
            place = slice(record.place.start, record.place.stop)
            in_place = self._data[place] == self.file.data[place]
            if in_place or (record.kind == FINAL and self._there(record.place)):
                named |= set(range(record.num_row_groups))
        return named

    @cached_property
    def epoch(self) -> int:
        """The last epoch that a record says which is left: what was written in earlier ones is older."""
        places = [(r.epoch, range(r.place.start, r.place.start + 96)) for r in self.file.records()]
        return max((epoch for epoch, place in places if epoch and self._there(place)), default=0)

    @cached_property
    def named(self) -> set[int]:
        """Row groups of which a whole record tells all pages."""
        records = self.file.records(ROW_GROUP)
        return self.named_by_footers | {i for i, record in enumerate(records) if self._there(record.place)}

    @cached_property
    def summed(self) -> set[int]:
        """Row groups whose entry in the last footer lies there, and all before it: it has the checksums of chunks."""
        footer, same = self.file.layout.footer, len(self._data) == len(self.file.data)
        if not self.file.ours or not same or self._data[-TAIL:] != self.file.data[-TAIL:]:
            return set()
        entries = row_group_entries(self.file)
        wrong = next((at for at in footer if self._data[at] != self.file.data[at]), footer.stop)
        return {i for i, entry in enumerate(entries) if entry.stop <= wrong}

    @cached_property
    def end_known(self) -> bool:
        """Whether anything is left that says where it ends: a final record's header, or so much of its footer."""
        footer = self.file.layout.footer
        finals = self.file.records(FINAL)
        if self._there(footer) or any(self._there(range(f.place.start, f.place.start + 96)) for f in finals):
            return True
        if not finals and self._there(range(footer.start, self._behind_num_rows())):
            return True
        own = self.file.data[footer.start : footer.stop]
        undone = self._data.replace(b"\r\n", b"\n")  # what a transfer as text made of it
        for there in (self._data[footer.start : footer.stop], self._data[-len(footer) :], undone[-len(footer) :]):
            if sum(a == b for a, b in zip(own, there, strict=False)) > len(own) * 0.7:
                return True
        return False

    def _behind_num_rows(self) -> int:
        """Where the footer has told how many rows there are."""
        data, at, number = self.file.layout.data, self.file.layout.footer.start, 0
        while number < NUM_ROWS:
            head, at = data[at], at + 1
            number += head >> 4
            _, at = thrift_value(data, at, head & 15)
        return at

    @cached_property
    def _metadata(self) -> pq.FileMetaData:
        return pq.read_metadata(io.BytesIO(self.file.data))

    def beyond_bounds(self, group: int, values: dict[str, list[Any]]) -> str | None:
        """A number that is beyond what the footer says of its chunk, in words."""
        for number in range(self._metadata.num_columns):
            chunk = self._metadata.row_group(group).column(number)
            known = chunk.statistics
            if chunk.physical_type not in ("INT32", "INT64", "DOUBLE") or known is None or not known.has_min_max:
                continue
            for value in values.get(chunk.path_in_schema, ()):
                if value is not None and not known.min <= value <= known.max:
                    return f"{chunk.path_in_schema} is {value}, and {known.min} to {known.max} in row group {group}"
        return None

    def same_file_as(self, other: Original) -> bool:
        """Whether no file id tells one from the other."""
        return self.file.file_id == other.file.file_id != b""


@dataclass(frozen=True)
class Matched:
    """Rows of an output: of each the versions that have it, and its place in them; and rows that lack values."""

    ids: list[Any]
    rows: list[dict[str, int]]
    nulled: list[bool]
    wrong: list[str]


def values_of(table: pa.Table) -> dict[str, list[Any]]:
    """Values by column; where Python has none for them, what is there in words."""
    found: dict[str, list[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            found[name] = column.to_pylist()
        except UnicodeDecodeError:
            found[name] = column.cast(pa.binary()).to_pylist()
        except (OverflowError, ValueError) as error:
            found[name] = [f"{column.type}: {error}"] * table.num_rows
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, bytes) and isinstance(other, str):  # nothing told that it is text
        return one == other.encode()
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
    return Matched(table["id"], rows, nulled, wrong)


def alike(value: Any, was: Any, *, nulls: bool) -> bool:
    """Whether a value is the one that was, where nothing told that it is text or a float, or a list null or empty."""
    if nulls and value is None:
        return True
    if value == b"" and was == 0:
        return True  # four bytes of zero are both
    if isinstance(value, int) and isinstance(was, float):
        return value.to_bytes(8, "little", signed=True) == struct.pack("<d", was)
    if (isinstance(was, list) and value is None) or (isinstance(value, list) and was is None):
        return not value and not was
    return same(value, was)


def renamed(table: dict[str, list[Any]], originals: Sequence[Original], *, nulls: bool) -> dict[str, list[Any]] | None:
    """A table whose columns were made up, under the names that their values have; None if they have none.

    Values are given as they were, when they are alike.
    """
    for some in ([one] for one in originals), [list(originals)]:
        for chosen in some:
            given = _given(table, chosen, nulls=nulls)
            if given is not None:
                return given
    return None


def _given(table: dict[str, list[Any]], originals: list[Original], *, nulls: bool) -> dict[str, list[Any]] | None:
    for first, ids in table.items():
        owners = [next((o for o in originals if type(v) is int and v in o.position), None) for v in ids]
        if None in owners:
            continue
        places = [(o, o.position[v]) for o, v in zip(owners, ids, strict=True) if o is not None]
        given = {"id": ids}
        for name, values in table.items():
            for candidate in originals[0].names:
                if name == first or candidate in given:
                    continue
                was = [original.columns[candidate][at] for original, at in places]
                if all(alike(value, one, nulls=nulls) for value, one in zip(values, was, strict=True)):
                    nulled = zip(values, was, strict=True)
                    given[candidate] = [None if nulls and v is None else one for v, one in nulled]
                    break
        if len(given) == len(table):
            return given
    return None
