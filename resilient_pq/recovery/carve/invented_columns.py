"""Columns for pages without a schema: physical types, and invented names. Pure.

Pages show widths and levels, and so physical types, except for two of the same width, which values resemble more or
less. They show neither names nor meanings, and of nested columns only lists. Columns are counted by what repeats.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain

from resilient_pq.damage.page_search import FoundPage
from resilient_pq.errors import FormatError
from resilient_pq.format.file_metadata import Encoding, Repetition, Type
from resilient_pq.format.schema_tree import Group, Node, Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.carve.column_cuts import (
    ColumnCount,
    CutChunk,
    CutChunks,
    Run,
    count_columns,
    group_by_places,
    rank,
    usual_kinds,
)
from resilient_pq.recovery.carve.page_layout import Places
from resilient_pq.recovery.carve.page_probe import ColumnKind, Kinds, ProbedPage, kinds_of
from resilient_pq.recovery.evidence.search_budget import SearchBudget
from resilient_pq.recovery.report import Damage, Finding

_TYPES = ("binary", "int64", "int32", "double", "float", "int96", "boolean")
#: Columns that a page is tried as, the simplest first: a page of one may by chance be one of the others.
_SHAPES = (
    "required {type} {name};",
    "optional {type} {name};",
    "repeated {type} {name};",
    "optional group {name} (LIST) {{ repeated group list {{ required {type} element; }} }}",
    "optional group {name} (LIST) {{ repeated group list {{ optional {type} element; }} }}",
)
_LEVELS = ((0, 0), (1, 0), (1, 1), (2, 1), (3, 1))
#: Widths that are those of other types.
_TAKEN_WIDTHS = (4, 8, 12)
_MOST_WIDTHS = 8
_FLOATING = {Type.INT32: Type.FLOAT, Type.INT64: Type.DOUBLE}


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """The path and physical type that the record of a row group has for a column."""

    path: tuple[str, ...]
    physical_type: Type


def _schema_of(columns: Sequence[Sequence[CutChunk]], named: Sequence[NamedColumn]) -> Schema:
    """A schema of columns with some chunks each, named c0, c1 and so on where no record names them."""
    fields: list[Node] = []
    for ordinal, chunks in enumerate(columns):
        kind = _choose_kind(chunks, named[ordinal].physical_type if named else None)
        shape = _SHAPES[_LEVELS.index((kind.max_definition_level, kind.max_repetition_level))]
        parsed = Schema.parse(f"message schema {{ {shape.format(type=_type_name(kind), name=f'c{ordinal}')} }}")
        (field,) = parsed.root.children
        fields.append(replace(field, name=named[ordinal].path[0]) if named else field)
    return Schema(Group("schema", Repetition.REQUIRED, tuple(fields)))


def _type_name(kind: ColumnKind) -> str:
    if kind.physical_type is Type.FIXED_LEN_BYTE_ARRAY:
        return f"fixed_len_byte_array({kind.type_length})"
    return "binary" if kind.physical_type is Type.BYTE_ARRAY else kind.physical_type.name.lower()


def candidate_kinds(pages: Sequence[FoundPage]) -> Kinds:
    """The kinds of columns that pages may be of."""
    names = [*_TYPES, *(f"fixed_len_byte_array({width})" for width in _widths(pages))]
    fields = [
        shape.format(type=name, name=f"c{number}_{place}")
        for place, shape in enumerate(_SHAPES)
        for number, name in enumerate(names)
    ]
    return kinds_of(Schema.parse("message schema {\n" + "\n".join(fields) + "\n}").leaves)


def _widths(pages: Sequence[FoundPage]) -> list[int]:
    """Widths that most PLAIN pages have, except those of numbers."""
    seen: dict[int, int] = {}
    for page in pages:
        header = page.header
        detail = header.dictionary_page_header or header.data_page_header
        if (
            detail is None
            or not detail.num_values
            or detail.encoding
            not in (Encoding.PLAIN, Encoding.PLAIN_DICTIONARY if header.dictionary_page_header else Encoding.PLAIN)
        ):
            continue
        width, rest = divmod(header.uncompressed_page_size, detail.num_values)
        if not rest and 0 < width <= 64 and width not in _TAKEN_WIDTHS:
            seen[width] = seen.get(width, 0) + 1
    return sorted(seen, key=lambda width: -seen[width])[:_MOST_WIDTHS]


@dataclass(frozen=True, slots=True)
class InventedColumns:
    """Columns that are made up."""

    schema: Schema  # The columns
    row_counts: frozenset[int]  # Rows that its row groups have
    from_start: bool  # Whether they were taken from the first page on, so that the first column is the first there is
    # Offset behind the pages whose columns are known, where those that follow may be of further columns
    end: int | None = None
    named: bool = False  # Whether names and physical types are those of a record


def invent_columns(
    pages: Sequence[ProbedPage],
    kinds: Sequence[ColumnKind],
    steps: SearchBudget,
    max_columns: int,
    places: Places,
    named: Sequence[NamedColumn] = (),
    *,
    begins: bool = True,
    borders: Collection[int] = (),
) -> InventedColumns | None:
    """The columns that pages can be laid out in; None where there are none, or it is not clear which.

    `borders` are the indexes of all pages that begin a chunk, where records tell.
    """
    chunks = CutChunks(pages, kinds, steps, borders)
    start = next((at for at in range(len(pages)) if chunks.may_begin(at)), None)
    if start is None:
        return None
    widest, reaching = _widest(chunks, start, steps)
    if not widest:
        return None
    best = [chunks.of(run) for run in widest]
    recorded = [places.get(page.page.offset) for page in pages]
    counts = frozenset(run[0].rows for run in best)
    if columns := group_by_places(list(chain(*best)), recorded):
        return _invented(columns, max_columns, counts, named)
    begins = begins and start == 0
    if not begins and len(best) > 1 and len(best[0]) == 1:
        best = best[1:]  # it may be the end of a chunk
        counts = frozenset(run[0].rows for run in best)
    counted = _count_by_repetition(chunks, start, best, reaching, steps, begins=begins)
    if counted is None:
        return None
    cut = list(chain(*best))
    end = pages[cut[counted.num_known - 1].end - 1].page.end if counted.num_known < len(cut) else None
    invented = _invented(counted.columns(cut), max_columns, counts, named)
    return replace(invented, from_start=begins, end=end)


def _invented(
    columns: Sequence[Sequence[CutChunk]], max_columns: int, row_counts: frozenset[int], named: Sequence[NamedColumn]
) -> InventedColumns:
    if not _fit(columns, named):
        named = ()
    return InventedColumns(_schema_of(columns[:max_columns], named), row_counts, True, None, bool(named))


def _count_by_repetition(
    chunks: CutChunks,
    start: int,
    runs: Sequence[Sequence[CutChunk]],
    reaching: Sequence[int],
    steps: SearchBudget,
    *,
    begins: bool,
) -> ColumnCount | None:
    """The number of columns by what repeats; None where pages can be laid out well in another way, too."""
    counted = count_columns(runs, begins=begins)
    if counted is None:
        return None
    if _is_one_type(list(chain(*runs))):
        return None if any(map(chunks.may_be_columns, chain(*runs))) else counted
    rivals = (rows for rows in reaching if rows != runs[0][0].rows)
    return None if any(_is_good(chunks, start, rows, steps, begins=begins) for rows in rivals) else counted


def _widest(chunks: CutChunks, start: int, steps: SearchBudget) -> tuple[list[Run], list[int]]:
    """The runs with the most pages, and the rows of the first chunk in each way that reaches the last page."""
    widest: list[Run] = []
    reaching: list[int] = []
    try:
        for rows in chunks.row_counts(start):
            found = chunks.runs(start, rows)
            if found and (not widest or rank(found) > rank(widest)):
                widest = found
            if found and chunks.reach(found):
                reaching.append(rows)
    except FormatError:  # the best way so far is as good as any
        if not steps.ended:
            raise
    return widest, reaching


def _is_one_type(chunks: Sequence[CutChunk]) -> bool:
    """Whether all chunks may be of one column, where several ways are expected and reported."""
    return bool(set.intersection(*(set(chunk.kinds) for chunk in chunks)))


def _is_good(chunks: CutChunks, start: int, rows: int, steps: SearchBudget, *, begins: bool) -> bool:
    """Whether pages can be laid out in chunks of so many rows, so that what seemed to be chunks may be pages."""
    try:
        runs = chunks.runs(start, rows)
    except FormatError:
        if not steps.ended:
            raise
        return False
    counted = count_columns([chunks.of(run) for run in runs], begins=begins)
    return counted is not None and chunks.are_even(runs)


def describe_columns(invented: InventedColumns) -> list[Finding]:
    """The findings for invented columns."""
    leaves = invented.schema.leaves
    columns = ", ".join(f"{leaf.path[0]} {leaf.node.physical_type.name}" for leaf in leaves[:20])
    more = len(leaves) - 20
    how = "the names of the columns are made up, their types guessed by what pages look like, and "
    if invented.named:
        how = "names and physical types of the columns are those of a record, what values mean is not told, and "
    messages = [
        f"no schema is known: {how}where a row group ends by what repeats: {columns}"
        + (f" and {more} more" if more > 0 else "")
        + "; the schema of a file of the same make tells more: --schema-from FILE"
    ]
    if not invented.from_start:
        messages.append(
            "pages at the beginning cannot be read, so where row groups end tells with which column one begins: there "
            "may be more columns before them; the schema of a file of the same make would tell (--schema-from)"
        )
    return [Finding(Damage.UNVERIFIED, message, costs_rows=False) for message in messages]


def _fit(columns: Sequence[Sequence[CutChunk]], named: Sequence[NamedColumn]) -> bool:
    """Whether columns can be the named ones, of which only the first name in each path is used."""
    if len(columns) != len(named) or len({column.path[0] for column in named}) < len(named):
        return False
    return all(
        any(
            kind.physical_type is column.physical_type and bool(kind.max_repetition_level) == (len(column.path) > 1)
            for kind in usual_kinds(chunks)
        )
        for chunks, column in zip(columns, named, strict=True)
    )


def _choose_kind(chunks: Sequence[CutChunk], wanted: Type | None) -> ColumnKind:
    """The kind of a column by those of its chunks that agree, and by its type where a record has it."""
    possible = usual_kinds(chunks)
    if wanted is not None:
        return next(kind for kind in possible if kind.physical_type is wanted)
    kind = possible[0]
    zeros = kind._replace(physical_type=Type.INT32)
    if kind.physical_type is Type.BYTE_ARRAY and zeros in possible and any(chunk.has_values for chunk in chunks):
        kind = zeros  # empty strings take as many bytes, all of them zero
    floating = _FLOATING.get(kind.physical_type)
    if floating is None or not any(other.physical_type is floating for other in possible):
        return kind
    looks, looked_at = (sum(values) for values in zip(*(chunk.floating for chunk in chunks), strict=True))
    return kind._replace(physical_type=floating) if 2 * looks > looked_at else kind
