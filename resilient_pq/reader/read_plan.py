"""The plan of a read: the byte ranges to fetch, and the Arrow types that they become. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args, overload

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.assemble import Branch, branches_of, struct_projected
from resilient_pq.arrow.flat_columns import NO_COLUMNS, FlatColumns
from resilient_pq.arrow.types.arrow_schema import ColumnFields
from resilient_pq.arrow.types.field import Field, with_views, without_string_views
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, KeyMissingError, OptionError, SchemaError, Where, located
from resilient_pq.format import kernels
from resilient_pq.format.footer import CRC_KEY, key_values
from resilient_pq.format.indexes.row_ranges import Rows, count
from resilient_pq.format.kernels.page_columns import ChunkNumber
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.quirks import Quirks
from resilient_pq.format.schema_tree import Leaf, Schema, Selection
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import MAX_FILE_SIZE, Contents, chunk_range, row_group_sizes
from resilient_pq.reader.data_file import data_file

if TYPE_CHECKING:
    from resilient_pq.reader.filter.filters import Filter, Term

#: How strings come: as they were stored, as Arrow's string and binary, or as their views.
Strings: TypeAlias = Literal["stored", "plain", "view"]
#: Rows wanted: all terms of a list, or of one of several lists.
Filters: TypeAlias = Sequence[tuple[Any, ...]] | Sequence[Sequence[tuple[Any, ...]]]

#: How many choices of columns are kept of a schema, of those that were made first.
_MOST_KEPT: Final = 16


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """The query of a caller: the arguments of `File.read`.

    Raises:
        SchemaError: `limit` is no number of rows, or `strings` no layout of strings.
    """

    columns: Sequence[str] | None = None
    row_groups: Sequence[int] | None = None
    filters: Filters | None = None
    limit: int | None = None
    strings: Strings = "stored"

    def __post_init__(self) -> None:
        """Refuse arguments that are wrong for every file."""
        check_limit(self.limit)
        if self.strings not in get_args(Strings):
            words = " or ".join(map(repr, get_args(Strings)))
            raise OptionError(f"strings is {self.strings!r}, which is no layout of strings", hint=f"strings={words}")


class PlannedChunks(Sequence[tuple[ChunkRead, ...]]):
    """The chunks of a row group, for each top-level column those of its leaves, made when they are asked for.

    Attributes:
        numbers: A row of `ChunkNumber`s for each leaf of all columns, one after the other; None where there are none.
    """

    __slots__ = ("_contents", "_made", "_ordinal", "_selected", "numbers")

    def __init__(
        self, contents: Contents, ordinal: int, selected: Sequence[Selection], numbers: NDArray[np.int64] | None
    ) -> None:
        """Look at no chunk."""
        self._contents = contents
        self._ordinal = ordinal
        self._selected = selected
        self._made: dict[int, tuple[ChunkRead, ...]] = {}
        self.numbers = numbers

    @property
    def all_usual(self) -> NDArray[np.int64] | None:
        """The numbers, if they say it all of each chunk."""
        numbers = self.numbers
        return None if numbers is None or (numbers[:, ChunkNumber.SUM_KIND] < 0).any() else numbers

    def __len__(self) -> int:
        """Number of columns."""
        return len(self._selected)

    @overload
    def __getitem__(self, index: int) -> tuple[ChunkRead, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[ChunkRead, ...], ...]: ...
    def __getitem__(self, index: int | slice) -> tuple[ChunkRead, ...] | tuple[tuple[ChunkRead, ...], ...]:
        """The chunks of one column, or of some."""
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return tuple([self[position] for position in positions])
        made = self._made.get(positions)
        if made is None:
            leaves = self._selected[positions].leaves
            made = tuple([chunk_read(self._contents, self._ordinal, leaf) for leaf in leaves])
        # Two threads may both make them; what they are given is one and the same.
        return self._made.setdefault(positions, made)

    def __eq__(self, other: object) -> bool:
        """Whether they are the chunks of another sequence."""
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """That of their row group."""
        return hash(self._ordinal)


@dataclass(frozen=True, slots=True)
class RowGroupRead:
    """The chunks of one row group.

    Attributes:
        ordinal: Of the row group.
        num_rows: Its rows.
        columns: For each top-level column asked for, in order, the chunks of the leaves wanted of it.
        rows: The rows that are read; None for all.
    """

    ordinal: int
    num_rows: int
    columns: Sequence[tuple[ChunkRead, ...]]
    rows: Rows | None = None

    @property
    def num_rows_read(self) -> int:
        """How many rows are read."""
        return self.num_rows if self.rows is None else count(self.rows)

    @property
    def whole(self) -> RowGroupRead:
        """All rows of the same chunks."""
        if self.rows is None:
            return self
        columns = tuple(tuple(chunk.whole for chunk in chunks) for chunks in self.columns)
        return replace(self, columns=columns, rows=None)

    @property
    def numbers(self) -> NDArray[np.int64] | None:
        """The `ChunkNumber`s of all chunks where they say it all; None where a closer look is taken at one of them."""
        return self.columns.all_usual if isinstance(self.columns, PlannedChunks) else None

    @property
    def num_bytes(self) -> int:
        """Bytes of what is read of its chunks."""
        numbers = self.numbers
        if numbers is not None:
            return int((numbers[:, ChunkNumber.END] - numbers[:, ChunkNumber.START]).sum())
        return sum(chunk.num_bytes for chunk in self.chunks)

    @property
    def num_decoded(self) -> int:
        """The same, decompressed."""
        numbers = self.numbers
        if numbers is not None:
            return int(numbers[:, ChunkNumber.SIZE].clip(0).sum())
        return sum(chunk.num_decoded for chunk in self.chunks)

    @property
    def extent(self) -> tuple[str | None, ByteRange] | None:
        """The file that it lies in, and the bytes from its first chunk to its last; None without any."""
        numbers = self.numbers
        if numbers is not None and len(numbers):
            first, last = int(numbers[:, ChunkNumber.START].min()), int(numbers[:, ChunkNumber.END].max())
            return None, ByteRange(first, last)
        chunks = self.chunks
        if not chunks:
            return None
        start = min(chunk.ranges[0].start for chunk in chunks)
        return chunks[0].file, ByteRange(start, max(chunk.ranges[-1].end for chunk in chunks))

    @property
    def chunks(self) -> list[ChunkRead]:
        """All chunks, column by column."""
        return [chunk for column in self.columns for chunk in column]


@dataclass(frozen=True, slots=True)
class RowGroupLeftOut:
    """A row group that is not read, as it has no row that is wanted.

    Attributes:
        ordinal: Of the row group.
        num_rows: Its rows.
        by: What tells: "statistics", "bloom filter", "page index" or "limit".
    """

    ordinal: int
    num_rows: int
    by: str


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a read has to fetch.

    Attributes:
        columns: The top-level columns asked for, in the order asked for, each with the leaves wanted of it; behind
            them those that only the filter needs.
        num_shown: How many of the columns were asked for.
        row_groups: What to read of each row group that may have rows that are wanted.
        filter: Which rows are wanted; None for all.
        left_out: The row groups that were asked for and are not read.
    """

    columns: tuple[Selection, ...]
    num_shown: int
    row_groups: tuple[RowGroupRead, ...]
    filter: Filter | None = None
    left_out: tuple[RowGroupLeftOut, ...] = ()

    @property
    def shown(self) -> tuple[Selection, ...]:
        """The columns that were asked for."""
        return self.columns[: self.num_shown]

    @property
    def num_bytes(self) -> int:
        """Bytes of what is read of all chunks."""
        return sum(group.num_bytes for group in self.row_groups)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A plan, with the Arrow types and the parts of columns that its chunks become."""

    plan: ReadPlan
    field: Field
    branches: tuple[Branch, ...]
    flat: FlatColumns  # those of the columns that need no assembly

    @classmethod
    def of(cls, contents: Contents, plan: ReadPlan, strings: Strings, fields: ColumnFields) -> ReadRequest:
        """The request of a plan; the file's key-value metadata stay with its schema."""
        # Many files have one schema, and are asked for the same.
        made = contents.schema.made.setdefault("read", {})
        leaves = tuple([leaf.ordinal for column in plan.shown for leaf in column.leaves])
        key = fields.told, strings, plan.filter is None, leaves
        found = None if fields.told is None else made.get(key)
        if found is None:
            branches = branches_of(contents.schema, plan.shown)
            field = struct_projected(fields.struct([column.position for column in plan.shown]), branches)
            children = in_form(field, strings).children
            # With a filter, rows are chosen before arrays are made.
            flat = FlatColumns.of(branches, children) if plan.filter is None else NO_COLUMNS
            found = children, branches, flat
            if fields.told is not None and len(made) < _MOST_KEPT:
                made[key] = found
        children, branches, flat = found
        field = Field("", "+s", False, children, metadata=fields.metadata)
        return cls(plan, field, branches, flat)


def in_form(field: Field, strings: Strings) -> Field:
    """A struct of columns with strings as they are wanted."""
    if strings == "stored":
        return field
    form = with_views if strings == "view" else without_string_views
    return field.with_children(*map(form, field.children))


def plan_read(
    contents: Contents, columns: Sequence[str] | None, row_groups: Sequence[int] | None, filters: Any = None
) -> ReadPlan:
    """The row groups and chunks to read; columns as of `Schema.select`, filters as of `filter_of`."""
    if isinstance(columns, str):
        raise SchemaError("columns is one string; it is a list of names", hint=f"columns=[{columns!r}]")
    selected = tuple(contents.schema.select(columns))
    wanted = row_groups_wanted(contents, row_groups)
    chosen = None
    left_out: list[RowGroupLeftOut] = []
    if filters is not None:
        from resilient_pq.reader.filter.filters import filter_of  # noqa: PLC0415 (most reads have no filter)

        chosen = filter_of(contents.schema, filters)
        known = {ordinal: chosen.may_hold(partial(term_may_hold, contents, ordinal)) for ordinal in set(wanted)}
        rows = contents.metadata.row_groups
        left_out = [RowGroupLeftOut(each, rows[each].num_rows, "statistics") for each in wanted if not known[each]]
        wanted = list(filter(known.__getitem__, wanted))
    num_shown = len(selected)
    if chosen is not None:
        selected += _hidden(contents.schema, selected, chosen)
    leaves = np.array([leaf.ordinal for column in selected for leaf in column.leaves], np.int64)
    numbers, sizes = numbers_of_chunks(contents, wanted, leaves), row_group_sizes(contents.metadata)
    groups = []
    for ordinal, of_it in zip(wanted, numbers, strict=True):
        groups.append(RowGroupRead(ordinal, sizes[ordinal][0], PlannedChunks(contents, ordinal, selected, of_it)))
    return ReadPlan(selected, num_shown, tuple(groups), chosen, tuple(left_out))


def numbers_of_chunks(
    contents: Contents, wanted: Sequence[int], leaves: NDArray[np.int64]
) -> Iterable[NDArray[np.int64] | None]:
    """The numbers of some chunks of each row group, as `PlannedChunks` has them."""
    row_groups = contents.metadata.row_groups
    if not isinstance(row_groups, kernels.KeptStructs) or Quirks.of(contents.metadata.created_by).uncounted_bytes:
        return [None] * len(wanted)
    spans, inner = row_groups.spans, row_groups.inner
    if spans is None or inner is None:  # somebody looked at a row group, and may have changed it
        found: list[NDArray[np.int64] | None] = []
        for ordinal in wanted:
            columns = row_groups[ordinal].columns
            place = columns.spans if isinstance(columns, kernels.KeptStructs) else None
            found.append(None if place is None else kernels.chunk_numbers(*place, leaves, contents.data_end))
        return found
    # All row groups have all leaves, as `Contents` sees to.
    if len(wanted) == 1:
        return [kernels.chunk_numbers(spans[0], inner.starts, leaves + inner.first[wanted[0]], contents.data_end)]
    chunks = np.frombuffer(inner.first, np.int64)[list(wanted)][:, None] + leaves
    numbers = kernels.chunk_numbers(spans[0], inner.starts, chunks.reshape(-1), contents.data_end)
    return numbers.reshape(*chunks.shape, ChunkNumber.COUNT)


def row_groups_wanted(contents: Contents, row_groups: Sequence[int] | None) -> Sequence[int]:
    """The ordinals of the row groups asked for, all for None."""
    num_row_groups = len(contents.metadata.row_groups)
    if isinstance(row_groups, int):
        raise SchemaError("row_groups is one number; it is a list of them", hint=f"row_groups=[{row_groups}]")
    wanted = range(num_row_groups) if row_groups is None else list(row_groups)
    for ordinal in wanted:
        if not 0 <= ordinal < num_row_groups:
            raise SchemaError(f"there is no row group {ordinal}", hint=f"the file has {num_row_groups}")
    return wanted


def _hidden(schema: Schema, selected: Sequence[Selection], chosen: Filter) -> tuple[Selection, ...]:
    """The leaves that the filter needs besides those selected, by top-level column."""
    shown = {leaf for column in selected for leaf in column.leaves}
    wanted = {leaf for leaf in chosen.leaves if leaf not in shown}
    below = [(column, tuple(leaf for leaf in column.leaves if leaf in wanted)) for column in schema.columns]
    return tuple(replace(column, leaves=leaves) for column, leaves in below if leaves)


def term_may_hold(contents: Contents, ordinal: int, term: Term) -> bool:
    """Whether a row group may have rows in which a term holds, by the statistics in the footer."""
    group = contents.metadata.row_groups[ordinal]
    metadata = group.columns[term.leaf.ordinal].meta_data
    if metadata is None or metadata.num_values != group.num_rows:
        return True  # the leaf is in no list, so each row has a value or a null: the footer is damaged
    from resilient_pq.format.indexes.trusted_bounds import chunk_statistics  # noqa: PLC0415 (most reads have no filter)

    return term.condition.may_hold(chunk_statistics(contents.metadata, term.leaf, metadata))


def next_wave(groups: Sequence[RowGroupRead], num_rows: int) -> int:
    """How many row groups, one at least, to read at one time to have so many rows of them."""
    found = 0
    for number, group in enumerate(groups, 1):
        found += group.num_rows_read
        if found >= num_rows:
            return number
    return len(groups)


def chunk_read(contents: Contents, ordinal: int, leaf: Leaf, *, cut_at: int | None = None) -> ChunkRead:
    """One chunk of a row group; it must end with the data, or is cut at `cut_at`."""
    row_group = contents.metadata.row_groups[ordinal]
    column = row_group.columns[leaf.ordinal]
    metadata = column.meta_data
    with located(Where(row_group=ordinal, column=leaf.column_path)):
        encrypted = column.crypto_metadata is not None or column.encrypted_column_metadata is not None
        # Where a file does not say how, nothing in it is encrypted, and its footer is damaged (Encryption.md).
        if encrypted and contents.metadata.encryption_algorithm is not None:
            hint = f'give it in keys= (rpq: --keys FILE) as "{leaf.column_path}", or leave the column out'
            raise KeyMissingError(f"the column {leaf.column_path} is encrypted, and its key is missing", hint=hint)
        if metadata is None:
            raise FormatError("the column chunk has no metadata")
        # Only the chunks of a summary name a file, and some writers leave an empty name.
        file = data_file(column.file_path) if column.file_path else None
        if metadata.type != leaf.node.physical_type:
            raise FormatError(f"the chunk has physical type {metadata.type}, the schema {leaf.node.physical_type.name}")
        data_end = contents.data_end_in(file)
        if cut_at is None:
            start, end = chunk_range(metadata, data_end)
        else:
            start, end = chunk_range(metadata, MAX_FILE_SIZE)
            if start >= cut_at:
                raise FormatError(f"a column chunk is said to begin at {start:,}, behind the end of the file")
            end = min(end, cut_at)
    quirks = Quirks.of(contents.metadata.created_by)
    # Sizes that this library wrote are right, whatever the maker's name: a recovery does not change that.
    laid_by_us = CRC_KEY in key_values(metadata.key_value_metadata)
    slack = 0 if laid_by_us else max(min(quirks.uncounted_bytes, data_end - end), 0)
    return ChunkRead(ordinal, leaf, metadata, ByteRange(start, end + slack), row_group.num_rows, slack, quirks, file)


def check_limit(limit: object) -> None:
    """Refuse what is no number of rows, with a SchemaError."""
    if limit is not None and (not isinstance(limit, Integral) or isinstance(limit, bool) or limit < 0):
        raise OptionError(f"limit is {limit!r}; it is a number of rows, 0 or more, or None")
