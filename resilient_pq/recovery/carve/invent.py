"""Columns for pages of which no schema is known: physical types, and names that are made up. Pure.

The pages tell widths and levels, and with them the physical types, but for two that are equally wide: there the
values look more like one than like the other. They tell neither names nor what values mean, and of nested columns
only lists. Which row groups the chunks of one type are of is guessed by what repeats.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from resilient_pq.format.encodings import DICTIONARY_ENCODINGS
from resilient_pq.format.metadata import Encoding, Type
from resilient_pq.format.page_search import FoundPage
from resilient_pq.format.schema import Schema
from resilient_pq.recovery.carve.layout import Layout, Span
from resilient_pq.recovery.carve.limits import Steps
from resilient_pq.recovery.carve.probe import Kind, Kinds, Probed, encoding_of, kinds_of
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
#: Chunks of one column are of much the same size in all row groups.
_ALIKE = 0.3
_FLOATING = {Type.INT32: Type.FLOAT, Type.INT64: Type.DOUBLE}


def schema_of(shapes: Sequence[Kind]) -> Schema:
    """A schema with a column of each kind, named c0, c1 and so on."""
    fields = []
    for ordinal, kind in enumerate(shapes):
        shape = _SHAPES[_LEVELS.index((kind.max_definition_level, kind.max_repetition_level))]
        fields.append(shape.format(type=_type_name(kind), name=f"c{ordinal}"))
    return Schema.parse("message schema {\n" + "\n".join(fields) + "\n}")


def _type_name(kind: Kind) -> str:
    if kind.physical_type is Type.FIXED_LEN_BYTE_ARRAY:
        return f"fixed_len_byte_array({kind.type_length})"
    return "binary" if kind.physical_type is Type.BYTE_ARRAY else kind.physical_type.name.lower()


def candidates(pages: Sequence[FoundPage]) -> Kinds:
    """The kinds of columns that pages may be of."""
    names = [*_TYPES, *(f"fixed_len_byte_array({width})" for width in _widths(pages))]
    fields = [
        shape.format(type=name, name=f"c{number}_{place}")
        for place, shape in enumerate(_SHAPES)
        for number, name in enumerate(names)
    ]
    return kinds_of(Schema.parse("message schema {\n" + "\n".join(fields) + "\n}").leaves)


def _widths(pages: Sequence[FoundPage]) -> list[int]:
    """Widths of values that are none of a number's, most of them seen."""
    seen: dict[int, int] = {}
    for page in pages:
        header = page.header
        detail = header.dictionary_page_header or header.data_page_header
        if detail is None or not detail.num_values or detail.encoding not in (
            Encoding.PLAIN,
            Encoding.PLAIN_DICTIONARY if header.dictionary_page_header else Encoding.PLAIN,
        ):
            continue
        width, rest = divmod(header.uncompressed_page_size, detail.num_values)
        if not rest and 0 < width <= 64 and width not in _TAKEN_WIDTHS:
            seen[width] = seen.get(width, 0) + 1
    return sorted(seen, key=lambda width: -seen[width])[:_MOST_WIDTHS]


def invent(pages: Sequence[Probed], kinds: Sequence[Kind], steps: Steps, max_columns: int) -> Schema | None:
    """Columns that the pages can be laid out in; None where there are none.

    Args:
        pages: The pages, of which the first begins a row group.
        kinds: The kinds of columns tried, the simplest first.
        steps: What it may cost.
        max_columns: Columns at most.

    Raises:
        FormatError: It cost more.
    """
    if not pages:
        return None
    chunks = _Chunks(pages, kinds, steps)
    best: list[_Chunk] = []
    for rows in chunks.row_counts(0):
        found = chunks.sequence(0, rows)
        if found and (not best or found[-1].end > best[-1].end):
            best = found
    if not best:
        return None
    rest = chunks.sequence(best[-1].end, None)
    count = _columns(best, len(rest))
    return schema_of([chunk.kind for chunk in best[: min(count, max_columns)]])


def finding(schema: Schema) -> Finding:
    """What a user has to know of invented columns."""
    columns = ", ".join(f"{leaf.path[0]} {leaf.node.physical_type.name}" for leaf in schema.leaves[:20])
    more = len(schema.leaves) - 20
    return Finding(
        Damage.UNVERIFIED,
        "no schema is known: the names of the columns are made up, their types guessed by what pages look like, and "
        f"where a row group ends by what repeats: {columns}" + (f" and {more} more" if more > 0 else ""),
        costs_rows=False,
    )


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk, and what tells it from those of other columns."""

    kind: Kind
    start: int
    end: int
    has_dictionary: bool
    size: int

    def is_like(self, other: _Chunk, *, closely: bool) -> bool:
        if (self.kind, self.has_dictionary) != (other.kind, other.has_dictionary):
            return False
        return not closely or abs(self.size - other.size) <= _ALIKE * max(self.size, other.size)


class _Chunks:
    """Pages cut into chunks of equally many rows, whatever their columns."""

    def __init__(self, pages: Sequence[Probed], kinds: Sequence[Kind], steps: Steps) -> None:
        self._pages = pages
        self._layout = Layout(pages, kinds, (), (), steps)

    def row_counts(self, start: int) -> list[int]:
        """Rows that the chunk that begins with a page may have."""
        counts: dict[int, None] = {}
        for leaf in range(len(self._layout.columns)):
            counts.update(dict.fromkeys(self._layout.row_counts(start, len(self._pages), leaf)))
        return list(counts)

    def sequence(self, start: int, num_rows: int | None) -> list[_Chunk]:
        """Chunks of as many rows, one after the other; as many as the first has where that is None."""
        if num_rows is None:
            found = [self.sequence(start, rows) for rows in self.row_counts(start)] if start < len(self._pages) else []
            return max(found, key=len, default=[])
        chunks: list[_Chunk] = []
        at = start
        while at < len(self._pages) and (span := self._span(at, num_rows)) is not None:
            chunks.append(self._chunk(span))
            at = span.end
        return chunks

    def _span(self, at: int, num_rows: int) -> Span | None:
        end = len(self._pages)
        for leaf in range(len(self._layout.columns)):
            span = self._layout.chunk(at, end, leaf, num_rows)
            if span is not None and span.whole:
                return span
        return None

    def _chunk(self, span: Span) -> _Chunk:
        pages = self._pages[span.start : span.end]
        kind = self._layout.columns[span.leaf]
        floating = _FLOATING.get(kind.physical_type)
        votes = [page.looks_floating for page in pages if page.looks_floating is not None]
        if floating is not None and _holds_both(pages) and 2 * sum(votes) > len(votes):
            kind = kind._replace(physical_type=floating)
        encodings = {encoding for page in pages if (encoding := encoding_of(page.page.header)) is not None}
        has_dictionary = any(encoding in DICTIONARY_ENCODINGS for encoding in encodings)
        size = pages[-1].page.end - pages[0].page.offset
        return _Chunk(kind, span.start, span.end, has_dictionary, size)


def _holds_both(pages: Collection[Probed]) -> bool:
    """Whether the encodings of a chunk allow integers and floating-point numbers alike."""
    return all(
        any(kind.physical_type in _FLOATING for kind in page.rows)
        and any(kind.physical_type in _FLOATING.values() for kind in page.rows)
        for page in pages
    )


def _columns(chunks: Sequence[_Chunk], in_last: int) -> int:
    """How many columns there are: the shortest run of chunks that repeats itself, the last row group included.

    Args:
        chunks: The chunks of row groups that have equally many rows.
        in_last: Chunks of the last row group, which may have fewer; 0 where it has as many.
    """
    count = len(chunks)
    possible = [n for n in range(1, count + 1) if count % n == 0 and (not in_last or n == in_last)]
    for closely in (True, False):
        for period in possible:
            if period < count and not closely and len({chunk.kind for chunk in chunks[:period]}) == 1:
                continue  # columns of one type, or one column: sizes alone could have told
            if all(one.is_like(other, closely=closely) for one, other in zip(chunks, chunks[period:], strict=False)):
                return period
    return count
