"""The requests and bytes that a read would cost, in words: `File.plan`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from resilient_pq.byte_ranges import ByteRange, union
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.io import FetchOptions, ObjectTail, merge_all
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.notebook_html import preformatted
from resilient_pq.reader.read_plan import ReadPlan

#: Row groups, columns of each, and requests that are shown; the others are counted.
_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """A request for bytes.

    Attributes:
        start: Absolute offset of the first byte.
        end: Absolute offset after the last.
        useful_bytes: Bytes of those that are wanted; the others lie between them.
        file: The data file that a summary names, relative to the summary's folder; None for the file itself.
    """

    start: int
    end: int
    useful_bytes: int
    file: str | None = None

    @property
    def num_bytes(self) -> int:
        """How many bytes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """What is read of a column chunk.

    Attributes:
        column: Path of the leaf column, with dots.
        num_bytes: Bytes that are wanted of it.
        num_pages: Data pages that are wanted; None where it is read whole.
        of_pages: Data pages that it has; None where it is read whole.
        shown: Whether the column was asked for; else only the filter needs it.
    """

    column: str
    num_bytes: int
    num_pages: int | None
    of_pages: int | None
    shown: bool = True


@dataclass(frozen=True, slots=True)
class PlannedRowGroup:
    """What is read of a row group.

    Attributes:
        ordinal: Of the row group.
        num_rows: Rows that are decoded; the filter is applied to those.
        of_rows: Rows that it has.
        left_out_by: What tells that none of its rows is wanted: "statistics", "bloom filter", "page index" or
            "limit"; None where it is read.
        chunks: What is read of it, column by column.
    """

    ordinal: int
    num_rows: int
    of_rows: int
    left_out_by: str | None = None
    chunks: tuple[PlannedChunk, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class PlannedRead:
    """What a read would ask of the store, and why; ``print`` shows it.

    Attributes:
        row_groups: Those asked for, in the order of their ordinals.
        requests: For their bytes, in one parallel wave; with a filter and a limit these are the most, as reading ends
            with the row group that has the last of the rows.
        bytes_at_hand: Bytes that are wanted and came when the file was opened: they cost no request.
    """

    row_groups: tuple[PlannedRowGroup, ...]
    requests: tuple[PlannedRequest, ...]
    bytes_at_hand: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of all requests."""
        return sum(request.num_bytes for request in self.requests)

    @property
    def useful_bytes(self) -> int:
        """Bytes of those that are wanted."""
        return sum(request.useful_bytes for request in self.requests)

    @property
    def num_rows(self) -> int:
        """Rows that are decoded, of which the filter may leave fewer."""
        return sum(group.num_rows for group in self.row_groups)

    @classmethod
    def of(cls, plan: ReadPlan, options: FetchOptions, tail: ObjectTail) -> PlannedRead:
        """Describe a plan.

        Args:
            plan: The plan.
            options: How ranges are merged into a wave.
            tail: What is at hand of the file.
        """
        shown = {leaf for column in plan.shown for leaf in column.leaves}
        groups = [PlannedRowGroup(left.ordinal, 0, left.num_rows, left_out_by=left.by) for left in plan.left_out]
        for group in plan.row_groups:
            chunks = tuple(_planned_chunk(chunk, shown=chunk.leaf in shown) for chunk in group.chunks)
            groups.append(PlannedRowGroup(group.ordinal, group.num_rows_read, group.num_rows, chunks=chunks))
        groups.sort(key=lambda group: group.ordinal)
        at_hand, wanted = _split_by_tail(plan, tail)
        return cls(tuple(groups), tuple(_merge_requests(wanted, options)), sum(each.size for each in union(at_hand)))

    def __repr__(self) -> str:
        """The same as `str` gives."""
        return f"<resilient_pq.PlannedRead: {self}>"

    def _repr_html_(self) -> str:
        """The same as `str` gives, for notebooks."""
        return preformatted(str(self))

    def __str__(self) -> str:
        """Requests and bytes, then row group by row group what is read of it, or why nothing is."""
        count, wanted = len(self.requests), self.useful_bytes
        lines = [
            f"{count:,} request{'' if count == 1 else 's'}, {self.num_bytes:,} bytes, {wanted:,} of them wanted,"
            f" for {self.num_rows:,} of {sum(group.of_rows for group in self.row_groups):,} rows"
        ]
        if self.bytes_at_hand:
            lines.append(f"{self.bytes_at_hand:,} more bytes that are wanted came with the footer")
        read = [group for group in self.row_groups if group.left_out_by is None]
        for by in dict.fromkeys(group.left_out_by for group in self.row_groups):
            out = [str(group.ordinal) for group in self.row_groups if by is not None and group.left_out_by == by]
            if out:
                lines.append(f"left out by {by}: row group{'' if len(out) == 1 else 's'} {_list_names(out)}")
        for group in read[:_MOST_SHOWN]:
            lines.append(f"row group {group.ordinal}: {group.num_rows:,} of {group.of_rows:,} rows")
            lines += [f"  {_describe_chunk(chunk)}" for chunk in group.chunks[:_MOST_SHOWN]]
            lines += _count_rest(len(group.chunks), "column")
        lines += _count_rest(len(read), "row group")
        for request in self.requests[:_MOST_SHOWN]:
            of = "" if request.file is None else f" of {request.file}"
            lines.append(f"request: bytes {request.start:,} to {request.end:,}{of}, {request.num_bytes:,}")
        lines += _count_rest(count, "request")
        return "\n".join(lines)


def _planned_chunk(chunk: ChunkRead, *, shown: bool) -> PlannedChunk:
    pages = chunk.pages
    if pages is None:
        return PlannedChunk(chunk.leaf.column_path, chunk.num_bytes, None, None, shown)
    return PlannedChunk(chunk.leaf.column_path, chunk.num_bytes, len(pages.pages), pages.num_pages, shown)


def _split_by_tail(plan: ReadPlan, tail: ObjectTail) -> tuple[list[ByteRange], list[tuple[str | None, ByteRange]]]:
    """The ranges that are at hand, and those to fetch, with the data file that each lies in."""
    at_hand, wanted = [], []
    for chunk in (chunk for group in plan.row_groups for chunk in group.chunks):
        for each in chunk.ranges:
            if chunk.file is None and tail.part(each.start, each.end) is not None:
                at_hand.append(each)
            else:
                wanted.append((chunk.file, each))
    return at_hand, wanted


def _merge_requests(wanted: list[tuple[str | None, ByteRange]], options: FetchOptions) -> Iterator[PlannedRequest]:
    wanted.sort(key=lambda one: (one[0] or "", one[1]))
    of_files = {file: [each for _, each in found] for file, found in groupby(wanted, key=lambda one: one[0])}
    for file, requests in zip(of_files, merge_all(list(of_files.values()), options), strict=True):
        for merged in requests:
            useful = union(piece for _, piece in merged.parts)
            size = sum(each.size for each in useful)
            yield PlannedRequest(merged.range.start, merged.range.end, size, file)


def _describe_chunk(chunk: PlannedChunk) -> str:
    pages = "" if chunk.num_pages is None else f"{chunk.num_pages:,} of {chunk.of_pages:,} pages, "
    return f"{chunk.column}: {pages}{chunk.num_bytes:,} bytes{'' if chunk.shown else ', for the filter'}"


def _list_names(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_SHOWN
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {rest:,} more" if rest > 0 else "")


def _count_rest(count: int, what: str) -> list[str]:
    rest = count - _MOST_SHOWN
    return [f"and {rest:,} more {what}{'' if rest == 1 else 's'}"] if rest > 0 else []
