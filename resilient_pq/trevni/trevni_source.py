"""A Trevni object: its header and the tables of its blocks, and rows of it by byte ranges. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

import numpy as np

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.chunk_salvage import RowRun
from resilient_pq.damage.lost_region import Damage, LostRegion
from resilient_pq.damage.on_damage import OnDamage, RowChoice, choose_rows, rows_kept
from resilient_pq.errors import FormatError, SchemaError, TornFileError, UnsupportedError, Where, located
from resilient_pq.format.pages.open_chunk import concatenate
from resilient_pq.format.pages.row_selection import null_rows
from resilient_pq.format.physical_values import LeafData
from resilient_pq.format.schema_tree import Leaf, Schema, Selection
from resilient_pq.io import ObjectInfo, ObjectRange, ObjectTail, ReadStore, fetch_groups
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.read_options import ReadOptions
from resilient_pq.trevni.blocks import avro_schema, column_names, dremel, record_shape
from resilient_pq.trevni.blocks.column_reader import Loss, read_block
from resilient_pq.trevni.blocks.file_header import BlockTable, Header, NeedLongerPrefix, read_block_table, read_header
from resilient_pq.trevni.blocks.record_shape import Layout
from resilient_pq.trevni.blocks.row_windows import RowReader, Window, WindowRows, needed_columns, placed_rows
from resilient_pq.trevni.blocks.trevni_metadata import AVRO_SCHEMA
from resilient_pq.units import KiB, MiB

#: Rows of a window, at most, where the caller has no wish.
BATCH_ROWS: Final = 65_536
#: Bytes asked for from the end of an object when it is opened, and then from its beginning: a small file comes whole.
_OPENING_BYTES: Final = 64 * KiB
#: Bytes asked for of the table of a column's blocks at first: enough for 340 blocks.
_TABLE_BYTES: Final = 4 * KiB
#: Bytes of a header, or of a table, that are read at most.
_MOST_HEADER_BYTES: Final = 256 * MiB


@dataclass(frozen=True, slots=True)
class TrevniSource:
    """An open file: its header, the tables of its blocks or their errors, and its layout; `notes` cost no rows."""

    store: ReadStore
    tail: ObjectTail
    url: str
    header: Header
    tables: Mapping[int, BlockTable | FormatError]
    layout: Layout
    num_rows: int
    notes: tuple[str, ...]
    options: ReadOptions

    @property
    def info(self) -> ObjectInfo:
        """Which version of the object is read."""
        return self.tail.info

    async def read(self, start: int, end: int) -> memoryview:
        """Some bytes of it."""
        return memoryview(await self.store.read_range(self.info.key, start, end, pin=self.info))


def given_schema(schema: Schema | str | None) -> Schema | None:
    """The schema that a caller passes, as a Schema or as text."""
    if isinstance(schema, str):
        return Schema.parse(schema)
    if schema is not None and not isinstance(schema, Schema):
        raise SchemaError(f"schema is {schema!r}; it is a Schema, or the text of one")
    return schema


async def open_source(store: ReadStore, key: str, *, schema: Schema | None, options: ReadOptions) -> TrevniSource:
    """Read the header of a file and the tables of its blocks."""
    tail = await store.read_tail(key, _OPENING_BYTES)
    try:
        header = await _read_header(store, tail.info, memoryview(tail.data) if tail.offset == 0 else None)
    except FormatError:
        header = await _read_header(store, tail.info, None)  # a transfer can go wrong as well as a disk
    layout, note = _layout_of(header, schema)
    notes = [] if note is None else [note]
    tables = await _read_tables(store, tail, header, options)
    num_rows = _num_rows(header, tables, notes)
    notes += _unowned_bytes(tables, tail.info.size)
    for position, table in tables.items():
        if isinstance(table, BlockTable) and not table.column.max_repetition_level:
            tables[position] = _check_rows(table, num_rows)
    return TrevniSource(store, tail, store.url_of(key), header, tables, layout, num_rows, tuple(notes), options)


def _layout_of(header: Header, schema: Schema | None) -> tuple[Layout, str | None]:
    """The layout of a file, and why the Avro schema that it has was passed over, where it was."""
    columns = header.columns
    if any(column.has_levels for column in columns):
        mixed = next((column for column in columns if column.is_array or column.parent is not None), None)
        if mixed is not None:
            raise FormatError("the column has lengths, and others have levels", where=mixed.where)
        return dremel.layout_of(columns, schema), None
    if schema is not None:
        raise SchemaError(
            "a schema can be passed only for files whose columns have levels",
            hint="this one tells its schema itself",
        )
    note = None
    if AVRO_SCHEMA in header.metadata:
        try:
            return record_shape.layout_of(avro_schema.record_of(header.metadata[AVRO_SCHEMA], columns)), None
        except avro_schema.MismatchError as error:
            note = f"the Avro schema of the file was passed over, and the names of the columns taken: {error}"
    return record_shape.layout_of(column_names.record_of(columns)), note


async def _read_header(store: ReadStore, info: ObjectInfo, data: memoryview | None) -> Header:
    """Read the header, whose size is unknown; `data` may be the whole file."""
    data = memoryview(b"") if data is None else data
    if not data and info.size:
        data = memoryview(await store.read_range(info.key, 0, min(info.size, _OPENING_BYTES), pin=info))
    while isinstance(found := read_header(data, info.size), NeedLongerPrefix):
        if found.end > _MOST_HEADER_BYTES:
            raise UnsupportedError(f"the header has more than {_MOST_HEADER_BYTES:,} bytes")
        data = memoryview(b"".join([data, await store.read_range(info.key, len(data), found.end, pin=info)]))
    return found


async def _read_tables(
    store: ReadStore, tail: ObjectTail, header: Header, options: ReadOptions
) -> dict[int, BlockTable | FormatError]:
    """Read the table of each column's blocks, whose size is unknown, or its error."""
    tables: dict[int, BlockTable | FormatError] = {}
    size, starts = tail.info.size, header.starts
    ends = {position: start + _TABLE_BYTES for position, start in enumerate(starts)}
    again = set(ends)
    while ends:
        positions, following = list(ends), {}
        ranges = [ByteRange(min(starts[position], size), min(end, size)) for position, end in ends.items()]
        async with aclosing(_fetched(store, tail, ranges, options)) as arriving:
            async for index, data in arriving:
                position = positions[index]
                found = _table_in(data, ranges[index].start, header, position, size)
                if isinstance(found, NeedLongerPrefix):
                    following[position] = found.end
                elif isinstance(found, FormatError) and position in again:
                    again.discard(position)
                    following[position] = ends[position]
                else:
                    tables[position] = found
        ends = following
    return tables


def _table_in(
    data: memoryview, offset: int, header: Header, position: int, size: int
) -> BlockTable | FormatError | NeedLongerPrefix:
    if len(data) > _MOST_HEADER_BYTES:
        return FormatError(f"the table of blocks has more than {_MOST_HEADER_BYTES:,} bytes")
    try:
        return read_block_table(data, offset, header, position, size)
    except FormatError as error:
        return error


async def _fetched(
    store: ReadStore, tail: ObjectTail, ranges: Sequence[ByteRange], options: ReadOptions
) -> AsyncGenerator[tuple[int, memoryview], None]:
    """The bytes of ranges, each with its number, as they arrive; ranges in the tail cost no request."""
    places = [ObjectRange(tail.info, wanted) for wanted in ranges]
    groups = fetch_groups(store, places, group_bytes=1, options=options.fetch, tail=tail)
    async with aclosing(groups) as arriving:
        async for group in arriving:
            for delivery in group:
                yield delivery


def _num_rows(header: Header, tables: Mapping[int, BlockTable | FormatError], notes: list[str]) -> int:
    """The rows of a file: those of the header, but where all columns agree on others."""
    counts = {
        int(table.counts.sum())
        for table in tables.values()
        if isinstance(table, BlockTable) and not table.column.max_repetition_level
    }
    if len(counts) == 1 and header.num_rows not in counts:
        (agreed,) = counts
        notes.append(f"the header says that there are {header.num_rows:,} rows; its columns have {agreed:,} each")
        return agreed
    return header.num_rows


def _unowned_bytes(tables: Mapping[int, BlockTable | FormatError], size: int) -> Iterator[str]:
    """Bytes of no column, or of several: writers leave none, so the file changed."""
    known = sorted((table for table in tables.values() if isinstance(table, BlockTable)), key=lambda table: table.start)
    if len(known) < len(tables):
        return
    for table, end in zip(known, [*(after.start for after in known[1:]), size], strict=True):
        if table.end < end:
            yield f"{end - table.end:,} bytes behind the column {table.column.name!r} belong to none"
        elif table.end > end and end != size:
            yield f"{table.end - end:,} bytes of the column {table.column.name!r} belong to the next one, too"


def _check_rows(table: BlockTable, num_rows: int) -> BlockTable | FormatError:
    count = int(table.counts.sum())
    if count == num_rows:
        return table
    return FormatError(f"the blocks have {count:,} rows, and the file {num_rows:,}", where=table.column.where)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows that are kept of a window, by the ordinal of each leaf, and the row of the file behind the window."""

    end: int
    num_rows: int
    leaves: Mapping[int, LeafData]


@dataclass(slots=True)
class RowStream:
    """The rows of some columns that are kept, and what is lost of them, counted: every row once."""

    source: TrevniSource
    selected: Sequence[Selection]
    on_damage: OnDamage
    verify: bool
    keep_empty: bool  # as of `choose_rows`
    _reader: RowReader | None = None

    @property
    def leaves(self) -> list[Leaf]:
        """The leaves of the columns wanted, in their order."""
        return [leaf for column in self.selected for leaf in column.leaves]

    @property
    def num_lost(self) -> int:
        """Rows that were left out."""
        return sum(loss.num_rows for loss in self._losses)

    @property
    def num_nulled(self) -> int:
        """Values that became null."""
        return sum(loss.num_nulled for loss in self._losses)

    @property
    def unverified(self) -> Mapping[str, int]:
        """By the name of a column the number of its blocks whose checksum is that of no bytes."""
        return {} if self._reader is None else self._reader.unverified

    @property
    def _losses(self) -> Sequence[Loss]:
        return () if self._reader is None else self._reader.losses

    def regions(self) -> tuple[LostRegion, ...]:
        """The bytes that were lost, in their order, and what that cost."""
        found = [
            LostRegion(
                loss.start,
                loss.end,
                loss.num_rows,
                Damage.TORN if isinstance(loss.error, TornFileError) else Damage.CORRUPT,
                loss.error.message,
                Where(key=self.source.url, column=loss.column, page=loss.block, offset=loss.start),
                loss.num_nulled,
            )
            for loss in self._losses
        ]
        return tuple(sorted(found, key=lambda region: (region.start, region.end)))

    async def windows(
        self, *, start: int = 0, stop: int | None = None, most_rows: int = BATCH_ROWS
    ) -> AsyncGenerator[KeptRows, None]:
        """The rows that are kept from `start` up to `stop`, window by window; a block that is bad is read once more."""
        source = self.source
        with located(Where(key=source.url)):
            reader = self._reader = await self._row_reader(start, stop)
            most_bytes = source.options.memory_budget
            while True:
                wished = most_rows if reader.row >= start else max(most_rows, BATCH_ROWS)
                window = await asyncio.to_thread(reader.next_window, wished, most_bytes)
                if window is None:
                    return
                await self._supply(reader, window)
                rows = await asyncio.to_thread(reader.take, window)
                if rows is not None:
                    yield self._kept(rows)

    async def _row_reader(self, start: int, stop: int | None) -> RowReader:
        source = self.source
        stop = source.num_rows if stop is None else min(stop, source.num_rows)
        stop = stop if start < stop else 0  # nothing is read for no rows
        positions = needed_columns(source.layout.sources[leaf.ordinal] for leaf in self.leaves)
        tables = {position: source.tables[position] for position in positions}
        first_rows = {}
        for position, table in tables.items():
            if isinstance(table, BlockTable) and table.column.max_repetition_level:
                counts = await self._rows_of_blocks(table)
                try:
                    first_rows[position] = placed_rows(counts, source.num_rows)
                except FormatError as error:
                    tables[position] = error
        return RowReader(
            source.header,
            tables,
            source.layout,
            self.leaves,
            size=source.info.size,
            num_rows=source.num_rows,
            first_rows=first_rows,
            start=start,
            stop=stop,
            verify=self.verify,
        )

    async def _rows_of_blocks(self, table: BlockTable) -> list[int | None]:
        """The rows of the blocks of a column with repetition levels, all of which are read for it; None of bad ones."""
        counts: list[int | None] = []
        for block in range(len(table)):
            start, end = table.span(block)
            counts.append(None)
            for _ in range(2 if end <= self.source.info.size else 0):
                data = await self.source.read(start, end)
                try:
                    whole, _ = table.unpack(block, data, verify=self.verify)
                    counts[block] = read_block(table.column, whole, int(table.counts[block])).num_rows
                    break
                except FormatError:
                    continue
        return counts

    async def _supply(self, reader: RowReader, window: Window) -> None:
        """Fetch the blocks of a window."""
        source = self.source
        ranges = [ByteRange(wanted.start, wanted.end) for wanted in window.blocks]
        async with aclosing(_fetched(source.store, source.tail, ranges, source.options)) as deliveries:
            async for index, data in deliveries:
                wanted = window.blocks[index]
                # What is kept of a block may be a view of it: what came in one request is not all to be kept with it.
                error = await asyncio.to_thread(reader.supply, wanted, memoryview(bytes(data)))
                if error is not None:
                    error = reader.supply(wanted, await source.read(wanted.start, wanted.end))
                if error is not None:
                    reader.give_up(wanted, error)

    def _kept(self, rows: WindowRows) -> KeptRows:
        """The rows of a window that are kept; a leaf is there in all of them, or in none."""
        end = rows.first_row + rows.num_rows
        if not rows.losses:
            return KeptRows(end, rows.num_rows, {at: data for at, data in rows.leaves.items() if data is not None})
        if self.on_damage is OnDamage.RAISE:
            raise next(iter(rows.losses.values())).error
        present = dict.fromkeys(rows.losses, np.zeros(rows.num_rows, np.bool_))
        choice = choose_rows(self.selected, present, rows.num_rows, self.on_damage, keep_empty=self.keep_empty)
        self._count(rows, choice)
        kept = {}
        for leaf in self.leaves:
            data = rows.leaves[leaf.ordinal]
            pieces = rows_kept(leaf, () if data is None else (RowRun(0, data),), choice)
            kept[leaf.ordinal] = concatenate(leaf, pieces or [null_rows(leaf, 0)])
        return KeptRows(end, choice.num_rows, kept)

    def _count(self, rows: WindowRows, choice: RowChoice) -> None:
        """Count what a window lost, its rows with the first column that lost them."""
        dropped = rows.num_rows - choice.num_rows
        for ordinal, loss in sorted(rows.losses.items()):
            loss.num_rows += dropped
            dropped = 0
            nulled = choice.nulled.get(ordinal)
            if nulled is not None:
                loss.num_nulled += int(np.count_nonzero(nulled))
