"""The encoder: batches in, bytes of a resilient file out, in the order in which they are to be stored.

Sans-io: it knows no store and no clock. The caller takes rows with `take`, writes what the other methods
give, and decides when to do either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from resilient_pq.arrow.batch_ingest import Batch
from resilient_pq.errors import EncodingError, SchemaError, UnsupportedError, Where, located
from resilient_pq.format.pages import chunk_encoder
from resilient_pq.format.pages.chunk_encoder import EncodedChunk
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.encoding_choice import Choose, choose
from resilient_pq.format.pages.flat_chunk import FIRST, KEPT, MOST_ROWS, NONE
from resilient_pq.format.pages.open_chunk import OpenChunk
from resilient_pq.format.pages.thread_count import WRITING, pieces_of_work
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.format.side_by_side import SideBySide
from resilient_pq.format.sorting import is_sorted
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.writer import cut_policy
from resilient_pq.writer.column_options import WrittenColumns
from resilient_pq.writer.cut_policy import WriteProgress
from resilient_pq.writer.dictionary_use import DictionaryUse
from resilient_pq.writer.file_layout import Buffers, FileLayout
from resilient_pq.writer.write_options import EncoderOptions

if TYPE_CHECKING:
    from resilient_pq.writer.file_sealing import FileSealing

encode_chunk: Final = partial(chunk_encoder.encode_chunk, flat=True)

#: Rows wait where they are when they are at least this part of a row group: one eighth.
_LARGE: Final = 8
#: Bytes in memory of the chunks that are made in one compiled step, about.
_TOGETHER: Final = 1 << 18


class FlatRows(NamedTuple):
    """Few rows of one batch, which are a row group: its number in the file, and among those that are written now."""

    batch: Batch
    start: int
    num_rows: int
    ordinal: int
    number: int


@dataclass(slots=True)
class ClosedRowGroup:
    """A row group that is full, and not yet in the file."""

    ordinal: int  # its number in the file, from 0
    num_rows: int
    num_chunks: int  # its column chunks
    #: What encodes its column chunks, some at a time, and the bytes of rows that are free then; to be taken out,
    #: as nothing else holds the rows. The calls are begun in their order, in any threads, and are given what
    #: may make some of their own side by side; what they return goes to `FileLayout.chunk` in their order, and
    #: then `FileEncoder.end_row_group` completes the row group.
    calls: deque[tuple[Callable[[SideBySide], list[EncodedChunk]], int]]
    max_threads: int  # in how many threads they are made sooner than in fewer, at most
    in_order: bool  # whether its rows are in the order that was declared: a file claims nothing untrue


class FileEncoder:
    """Encodes one file.

    Attributes:
        layout: Where the bytes go.
        num_rows_taken: Rows taken, whether encoded or not.
    """

    def __init__(self, layout: FileLayout, options: EncoderOptions) -> None:
        """Prepare to encode."""
        schema = layout.schema
        if (options.encryption is None) != (layout.sealing is None):
            where = "in the clear" if layout.sealing is None else "encrypted"
            raise UnsupportedError(f"the file is {where}, and cannot be gone on with otherwise")
        self.layout = layout
        self.num_rows_taken = layout.num_rows
        self._options, self._cadence = options, options.cadence
        columns = WrittenColumns.of(schema, options)
        self._chunk_options, self._sorting, self._flat = columns.chunks, columns.sorting, columns.flat
        known = options.known_choices
        self._dictionaries = [
            DictionaryUse(stored, None if known is None else known.of(schema.leaves[at].column_path)) if keep else None
            for at, (keep, stored) in enumerate(zip(columns.keep_dictionaries, layout.stored_dictionaries, strict=True))
        ]
        self._whole: tuple[Batch, int, int] | None = None  # the open row group, while that is rows of one batch
        self._open: list[OpenChunk] = []
        self._open_rows = self._open_bytes = 0
        self._no_more_fit = False
        self._num_stored = self._num_closed = len(layout.row_groups)
        self._since_checkpoint = layout.num_row_groups_since_checkpoint

    def take(self, batch: Batch, start: int) -> int:
        """Take rows of `batch` from `start` on into the open row group, as many as fit; returns how many."""
        rest = batch.num_rows - start
        count = cut_policy.rows_that_fit(
            rest,
            batch.num_bytes * rest // batch.num_rows,
            open_rows=self._open_rows,
            open_bytes=self._open_bytes,
            max_rows=self._options.row_group_rows,
            max_bytes=self._options.row_group_bytes,
        )
        if count:
            if not self.num_rows_taken and count < rest and any(self._dictionaries):
                for use, rows in zip(self._dictionaries, batch.columns, strict=True):
                    if use is not None:
                        use.expect(rows, batch.num_rows)
            num_bytes = batch.num_bytes * count // batch.num_rows
            is_first = not self._open_rows
            self._open_rows += count
            self._open_bytes += num_bytes
            self.num_rows_taken += count
            if is_first and batch.flat is not None and self._flat is not None:
                self._whole = batch, start, count
            else:
                self._gather_whole()
                self._gather(batch, start, count, num_bytes)
        self._no_more_fit = count < rest
        return count

    def _gather_whole(self) -> None:
        """Put the rows of one batch into chunks: others follow, or they are too many to be written as they are."""
        if self._whole is not None:
            (batch, start, count), self._whole = self._whole, None
            self._gather(batch, start, count, batch.num_bytes * count // batch.num_rows)

    def _gather(self, batch: Batch, start: int, count: int, num_bytes: int) -> None:
        self._open = self._open or [OpenChunk(leaf) for leaf in self.layout.schema.leaves]
        share, large = self._share_filled(), num_bytes * _LARGE >= self._options.row_group_bytes
        try:
            for chunk, rows in zip(self._open, batch.columns, strict=True):
                chunk.add(rows.slice(start, start + count), share, large=large)
        except SchemaError as error:
            raise _changed(error, self._num_closed) from error

    def _share_filled(self) -> float:
        """Which part of the open row group is full, by the limit that it will reach first."""
        rows = self._options.row_group_rows
        shares = self._open_bytes / self._options.row_group_bytes, self._open_rows / rows if rows else 0.0
        return min(max(shares), 1.0)

    def row_group_due(self, seconds_since: float) -> bool:
        """Whether the open row group has reached its limit in rows or bytes, or a checkpoint wants it closed."""
        limit = self._options.row_group_rows
        return self._open_rows > 0 and (
            self._no_more_fit
            or self._open_bytes >= self._options.row_group_bytes
            or (limit is not None and self._open_rows >= limit)
            or (
                self._cadence.num_bytes is not None
                and cut_policy.row_group_due(
                    self._progress(seconds_since), self._cadence, row_group_bytes=self._options.row_group_bytes
                )
            )
        )

    def checkpoint_due(self, seconds_since: float) -> bool:
        """Whether an automatic checkpoint should be written now, `seconds_since` seconds after the last one."""
        return self._since_checkpoint > 0 and cut_policy.checkpoint_due(self._progress(seconds_since), self._cadence)

    def commit_due(self, seconds_since: float, *, cost: int, resent: int, seconds_since_commit: float) -> bool:
        """Whether an automatic checkpoint that is due is worth sending `cost` bytes once more than needed."""
        return cut_policy.enough_bytes(self._progress(seconds_since), self._cadence) or cut_policy.commit_due(
            cost,
            resent,
            self.layout.offset,
            self._options.checkpoint_overhead,
            seconds_since=seconds_since_commit,
        )

    @property
    def has_open_rows(self) -> bool:
        """Whether rows have been taken that are in no row group yet."""
        return self._open_rows > 0

    @property
    def num_open_rows(self) -> int:
        """How many those are."""
        return self._open_rows

    @property
    def open_bytes(self) -> int:
        """About what those rows take in memory."""
        return self._open_bytes

    @property
    def full(self) -> bool:
        """Whether the file should be completed before more rows are taken."""
        bounded = self._options.own_metadata is not None or self.layout.sealing is not None
        return cut_policy.file_full(self._num_closed, self.layout.serialized_bytes, another_follows=bounded)

    @property
    def soon_full(self) -> bool:
        """Whether four times the row groups that there are would be too many."""
        return cut_policy.soon_full(self._num_closed, self.layout.serialized_bytes)

    def close_row_group(self) -> ClosedRowGroup:
        """Close the open row group; rows may be taken into the next one before this one is laid out."""
        closed = self._flat_row_group() or self._row_group()
        self._num_closed += 1
        self._open, self._whole = [], None
        self._open_rows = self._open_bytes = 0
        self._no_more_fit = False
        return closed

    def _flat_row_group(self) -> ClosedRowGroup | None:
        """The open row group, where few rows of one batch are all of it."""
        if self._whole is None or self._open_rows > MOST_ROWS:
            return None
        (batch, start, count), count_leaves = self._whole, len(self.layout.schema.leaves)
        size = self._open_bytes // count_leaves
        together = max(_TOGETHER // (size + 1), 1)
        rows = FlatRows(batch, start, count, self._num_closed, self._num_closed - self._num_stored)
        return ClosedRowGroup(
            ordinal=self._num_closed,
            num_rows=count,
            num_chunks=count_leaves,
            calls=deque(
                (partial(self._encode_flat, rows, first, min(first + together, count_leaves)), size * together)
                for first in range(0, count_leaves, together)
            ),
            max_threads=WRITING.threads_worth((), [(size, options.codec) for options in self._chunk_options]),
            in_order=True,
        )

    def _encode_flat(self, rows: FlatRows, first: int, last: int, side_by_side: SideBySide) -> list[EncodedChunk]:
        """Some chunks of a row group, in one compiled step but for those that are uncommon."""
        uses = [(at, use) for at, use in enumerate(self._dictionaries[first:last], first) if use is not None]
        choices, declined = bytearray(len(self._dictionaries)), set()
        for at, use in uses:
            known = use.known(rows.number)
            choices[at] = FIRST if known is None else KEPT if known else NONE
            if known is None and use.looks_ahead:
                declined.add(at)
        writer: Any = self._flat
        made = writer.chunks(rows.batch.flat, rows.start, rows.num_rows, first, last, bytes(choices))
        for at, use in uses:
            if choices[at] == FIRST and at not in declined and not use.settled_by(made[at - first]):
                declined.add(at)
        declined |= {at for at, chunk in enumerate(made, first) if chunk is None}
        for at in declined:
            made[at - first] = self._encode_declined(rows, at, side_by_side)
        for _, use in uses:
            use.end(rows.number)
        found: list[EncodedChunk] = made
        return found

    def _encode_declined(self, rows: FlatRows, at: int, side_by_side: SideBySide) -> EncodedChunk:
        leaf = self.layout.schema.leaves[at]
        chunk = OpenChunk(leaf)
        chunk.add(rows.batch.column(at).slice(rows.start, rows.start + rows.num_rows), 1.0)
        pieces = [(leaf, chunk, self._chunk_options[at], self._dictionaries[at])]
        return _encode(pieces, None, rows.ordinal, rows.number, rows.num_rows, side_by_side)[0]

    def _row_group(self) -> ClosedRowGroup:
        self._gather_whole()
        leaves, rows = self.layout.schema.leaves, self._open
        in_order = True
        if self._sorting:
            try:
                in_order = is_sorted([(leaf, rows[leaf.ordinal].rows(), column) for leaf, column in self._sorting])
            except SchemaError as error:
                raise _changed(error, self._num_closed) from error
        sizes = [chunk.num_bytes for chunk in rows]
        codecs = (options.codec for options in self._chunk_options)
        chunks = list(zip(leaves, rows, self._chunk_options, self._dictionaries, strict=True))
        number = self._num_closed - self._num_stored
        return ClosedRowGroup(
            ordinal=self._num_closed,
            num_rows=self._open_rows,
            num_chunks=len(leaves),
            calls=deque(
                (
                    partial(
                        _encode,
                        chunks[piece.start : piece.stop],
                        self.layout.sealing,
                        self._num_closed,
                        number,
                        self._open_rows,
                    ),
                    sum(sizes[piece.start : piece.stop]),
                )
                for piece in pieces_of_work(sizes)
            ),
            max_threads=WRITING.threads_worth(zip(sizes, codecs, strict=True)),
            in_order=in_order,
        )

    def end_row_group(self, closed: ClosedRowGroup) -> Buffers:
        """Complete a row group of which all chunks have been laid out: gives what stands behind them."""
        self._since_checkpoint += 1
        sorted_as = [column.to_thrift(leaf) for leaf, column in self._sorting] if closed.in_order else []
        return self.layout.end_row_group(closed.num_rows, sorting_columns=sorted_as or None)

    @property
    def may_look_ahead(self) -> bool:
        """Whether rows of the next row group may be taken before a closed one is laid out.

        Not where its bytes decide when the next one is closed: a file is the same however many threads write it.
        """
        return self._cadence.num_bytes is None and self.layout.serialized_bytes < cut_policy.MAX_FOOTER_BYTES // 2

    def _progress(self, seconds_since: float) -> WriteProgress:
        return WriteProgress(
            row_groups_since=self._since_checkpoint,
            bytes_written=self.layout.offset,
            checkpoint_bytes=self.layout.checkpoint_bytes,
            next_checkpoint_bytes=self.layout.next_checkpoint_bytes,
            bytes_since=self.layout.offset - self.layout.checkpoint_end,
            seconds_since=seconds_since,
            open_bytes=self._open_bytes,
        )

    @property
    def changed_since_checkpoint(self) -> bool:
        """Whether a row group has been closed since the last checkpoint."""
        return self._since_checkpoint > 0

    def checkpoint(self) -> Buffers:
        """A checkpoint of all complete row groups; cut here, the file is an ordinary Parquet file."""
        self._since_checkpoint = 0
        return self.layout.checkpoint()


def _encode(
    chunks: Sequence[tuple[Leaf, OpenChunk, ChunkOptions, DictionaryUse | None]],
    sealing: FileSealing | None,
    row_group: int,
    number: int,
    num_rows: int,
    side_by_side: SideBySide,
) -> list[EncodedChunk]:
    encoded = []
    for leaf, chunk, options, dictionaries in chunks:
        with nullcontext(choose) if dictionaries is None else dictionaries.turn(number) as choice:
            encoded.append(_encode_one(leaf, chunk, options, row_group, num_rows, side_by_side, choice))
        if sealing is not None:
            encoded[-1] = sealing.chunk(encoded[-1], row_group, leaf.ordinal)
    return encoded


def _encode_one(
    leaf: Leaf,
    chunk: OpenChunk,
    options: ChunkOptions,
    row_group: int,
    num_rows: int,
    side_by_side: SideBySide,
    choice: Choose,
) -> EncodedChunk:
    with located(Where(row_group=row_group, column=leaf.column_path)):
        try:
            rows = chunk.rows()
        except SchemaError as error:
            raise _changed(error, row_group) from error
        if rows.num_rows != num_rows:
            raise EncodingError(f"{num_rows:,} rows were taken, and {rows.num_rows:,} are there")
        return encode_chunk(leaf, [rows], options, side_by_side, choice)


def _changed(error: SchemaError, row_group: int) -> EncodingError:
    """What has become of rows that fitted when they were taken, and that the row group cannot do without."""
    where = replace(error.where, row_group=row_group)
    return EncodingError(f"the rows have changed since they were written: {error.message}", where=where)
