"""A Trevni object: its header and the tables of its blocks, and windows of its rows by byte ranges. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import FormatError, SchemaError, UnsupportedError
from resilient_pq.format.schema import Leaf, Schema
from resilient_pq.formats.trevni.blocks import unpack
from resilient_pq.formats.trevni.header import BlockTable, Header, NeedBytes, read_block_table, read_header
from resilient_pq.formats.trevni.layout import layout_of
from resilient_pq.formats.trevni.levels import read_block
from resilient_pq.formats.trevni.rows import RowReader, Window, WindowRows, needed_columns, placed_rows
from resilient_pq.formats.trevni.shape import Layout
from resilient_pq.io import (
    FetchCounters,
    FetchOptions,
    ObjectInfo,
    ObjectTail,
    Place,
    ReadStore,
    fetch_groups,
)
from resilient_pq.io.counters import counting
from resilient_pq.io.ranges import ByteRange
from resilient_pq.reader.options import ReadOptions
from resilient_pq.units import KiB, MiB

#: Bytes asked for from the end of an object when it is opened, and then from its beginning: a small file comes whole.
_OPENING_BYTES: Final = 64 * KiB
#: Bytes asked for of the table of a column's blocks at first: enough for 340 blocks.
_TABLE_BYTES: Final = 4 * KiB
#: Bytes of a header, or of a table, that are read at most.
_MOST_HEADER_BYTES: Final = 256 * MiB


@dataclass(frozen=True, slots=True)
class Source:
    """A file whose header is understood.

    Attributes:
        store: Where it is.
        tail: Which version of it is read, and its last bytes: what lies in them costs no request.
        url: What to call it.
        header: Its header.
        tables: By the position of each column the table of its blocks, or what is wrong with it.
        layout: Its records.
        num_rows: Its rows, as its columns have them.
        notes: What is odd about it and costs no rows.
        options: How it is read.
        counters: Added to.
    """

    store: ReadStore
    tail: ObjectTail
    url: str
    header: Header
    tables: Mapping[int, BlockTable | FormatError]
    layout: Layout
    num_rows: int
    notes: tuple[str, ...]
    options: ReadOptions
    counters: FetchCounters

    @property
    def info(self) -> ObjectInfo:
        """Which version of the object is read."""
        return self.tail.info


def given_schema(schema: Schema | str | None) -> Schema | None:
    """The schema that a caller passes.

    Raises:
        SchemaError: It is none.
    """
    if isinstance(schema, str):
        return Schema.parse(schema)
    if schema is not None and not isinstance(schema, Schema):
        raise SchemaError(f"schema is {schema!r}; it is a Schema, or the text of one")
    return schema


async def open_source(
    store: ReadStore,
    key: str,
    *,
    schema: Schema | None,
    options: ReadOptions,
    counters: FetchCounters,
) -> Source:
    """Read the header of a file and the tables of its blocks.

    Args:
        store: Where it is.
        key: The key in it.
        schema: Of its columns, where its levels do not tell.
        options: How it is read.
        counters: Added to.

    Raises:
        FormatError: It is no Trevni file, or its header is damaged.
        TornFileError: It ends within its header.
        SchemaError: Its levels do not tell its schema, or `schema` is not that of its columns.
        StoreError: The store could not give the bytes.
    """
    with counting(counters):
        tail = await store.read_tail(key, _OPENING_BYTES)
        beginning = _Beginning(store, tail.info, counters)
        try:
            header = await beginning.header(memoryview(tail.data) if tail.offset == 0 else None)
        except FormatError:
            header = await beginning.header(None)  # a transfer can go wrong as well as a disk
        found = layout_of(header, schema)
        notes = [] if found.note is None else [found.note]
        tables = await _Tables(store, tail, header, options.fetch, counters).read()
    num_rows = _num_rows(header, tables, notes)
    notes += _bytes_of_nobody(tables, tail.info.size)
    for position, table in tables.items():
        if isinstance(table, BlockTable) and not table.column.max_repetition_level:
            tables[position] = _checked(table, num_rows)
    url = store.url_of(key)
    return Source(store, tail, url, header, tables, found.layout, num_rows, tuple(notes), options, counters)


class _Beginning:
    """Reads a header, which does not say how long it is."""

    def __init__(self, store: ReadStore, info: ObjectInfo, counters: FetchCounters) -> None:
        self._store = store
        self._info = info
        self._counters = counters

    async def header(self, data: memoryview | None) -> Header:
        """The header; what is at hand of the file may be all of it."""
        size = self._info.size
        if data is None:
            data = await self._read(0, min(size, _OPENING_BYTES))
        while isinstance(found := read_header(data, size), NeedBytes):
            if found.end > _MOST_HEADER_BYTES:
                raise UnsupportedError(f"the header has more than {_MOST_HEADER_BYTES:,} bytes")
            data = memoryview(b"".join([data, await self._read(len(data), found.end)]))
        return found

    async def _read(self, start: int, end: int) -> memoryview:
        if start == end:
            return memoryview(b"")
        data = memoryview(await self._store.read_range(self._info.key, start, end, pin=self._info))
        self._counters.requests += 1
        self._counters.bytes += len(data)
        return data


class _Tables:
    """Reads the tables of all columns' blocks, which do not say how long they are."""

    def __init__(
        self, store: ReadStore, tail: ObjectTail, header: Header, options: FetchOptions, counters: FetchCounters
    ) -> None:
        self._store = store
        self._tail = tail
        self._header = header
        self._options = options
        self._counters = counters

    async def read(self) -> dict[int, BlockTable | FormatError]:
        """The table of each column, or what is wrong with it."""
        tables: dict[int, BlockTable | FormatError] = {}
        ends = {position: start + _TABLE_BYTES for position, start in enumerate(self._header.starts)}
        again = set(ends)
        while ends:
            more = {}
            for position, found in (await self._attempt(ends)).items():
                if isinstance(found, NeedBytes):
                    more[position] = found.end
                elif isinstance(found, FormatError) and position in again:
                    again.discard(position)
                    more[position] = ends[position]
                else:
                    tables[position] = found
            ends = more
        return tables

    async def _attempt(self, ends: Mapping[int, int]) -> dict[int, BlockTable | FormatError | NeedBytes]:
        """What the bytes of each column tell up to some offset."""
        size, starts = self._tail.info.size, self._header.starts
        found: dict[int, BlockTable | FormatError | NeedBytes] = {}
        places = {}
        for position, end in ends.items():
            if starts[position] >= size or end - starts[position] > _MOST_HEADER_BYTES:
                found[position] = self._parsed(memoryview(b""), size, position)
            else:
                places[position] = ByteRange(starts[position], min(end, size))
        positions = list(places)
        arriving = _fetched(self._store, self._tail, list(places.values()), self._options, self._counters)
        async with aclosing(arriving) as deliveries:
            async for index, data in deliveries:
                found[positions[index]] = self._parsed(data, starts[positions[index]], positions[index])
        return found

    def _parsed(self, data: memoryview, offset: int, position: int) -> BlockTable | FormatError | NeedBytes:
        try:
            return read_block_table(data, offset, self._header, position, self._tail.info.size)
        except FormatError as error:
            return error


async def _fetched(
    store: ReadStore, tail: ObjectTail, ranges: Sequence[ByteRange], options: FetchOptions, counters: FetchCounters
) -> AsyncGenerator[tuple[int, memoryview], None]:
    """The bytes of ranges, each with its number, as they arrive; those at hand cost no request."""
    places = [Place(tail.info, wanted) for wanted in ranges]
    groups = fetch_groups(store, places, group_bytes=1, options=options, counters=counters, tail=tail)
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


def _bytes_of_nobody(tables: Mapping[int, BlockTable | FormatError], size: int) -> Iterator[str]:
    """Bytes that no column has, or several do: its writers leave none, so something is not as it was written."""
    known = sorted((table for table in tables.values() if isinstance(table, BlockTable)), key=lambda table: table.start)
    if len(known) < len(tables):
        return
    for table, end in zip(known, [*(after.start for after in known[1:]), size], strict=True):
        if table.end < end:
            yield f"{end - table.end:,} bytes behind the column {table.column.name!r} belong to none"
        elif table.end > end and end != size:
            yield f"{table.end - end:,} bytes of the column {table.column.name!r} belong to the next one, too"


def _checked(table: BlockTable, num_rows: int) -> BlockTable | FormatError:
    count = int(table.counts.sum())
    if count == num_rows:
        return table
    return FormatError(f"the blocks have {count:,} rows, and the file {num_rows:,}", where=table.column.where)


async def windows(
    source: Source,
    leaves: Sequence[Leaf],
    *,
    start: int = 0,
    stop: int | None = None,
    most_rows: int,
    verify: bool,
    begun: Callable[[RowReader], None],
) -> AsyncGenerator[WindowRows, None]:
    """The rows of some leaves, window by window.

    A block that is bad is read once more before that is believed.

    Args:
        source: The file.
        leaves: Those wanted.
        start: The first row wanted.
        stop: The row after the last wanted; None is the end.
        most_rows: Rows of a window, at most.
        verify: Whether checksums are compared.
        begun: Called with what reads them, before the first window.
    """
    positions = needed_columns(source.layout.sources[leaf.ordinal] for leaf in leaves)
    tables = {position: source.tables[position] for position in positions}
    first_rows = {}
    for position in positions:
        table = tables[position]
        if isinstance(table, BlockTable) and table.column.max_repetition_level:
            placed = await _placed(source, table, verify=verify)
            if isinstance(placed, FormatError):
                tables[position] = placed
            else:
                first_rows[position] = placed
    reader = RowReader(
        source.header,
        tables,
        source.layout,
        leaves,
        size=source.info.size,
        num_rows=source.num_rows,
        first_rows=first_rows,
        start=start,
        stop=stop,
        verify=verify,
    )
    begun(reader)
    most_bytes = source.options.memory_budget
    while (window := await asyncio.to_thread(reader.next_window, most_rows, most_bytes)) is not None:
        await _supply(source, reader, window)
        rows = await asyncio.to_thread(reader.take, window)
        if rows is not None:
            yield rows


async def _supply(source: Source, reader: RowReader, window: Window) -> None:
    """Fetch the blocks of a window."""
    ranges = [ByteRange(wanted.start, wanted.end) for wanted in window.blocks]
    arriving = _fetched(source.store, source.tail, ranges, source.options.fetch, source.counters)
    async with aclosing(arriving) as deliveries:
        async for index, data in deliveries:
            wanted = window.blocks[index]
            # What is kept of a block may be a view of it: what came in one request is not all to be kept with it.
            error = await asyncio.to_thread(reader.supply, wanted, memoryview(bytes(data)))
            if error is not None:
                again = await _read(source, ranges[index])
                error = reader.supply(wanted, again)
            if error is not None:
                reader.give_up(wanted, error)


async def _read(source: Source, place: ByteRange) -> memoryview:
    data = await source.store.read_range(source.info.key, place.start, place.end, pin=source.info)
    source.counters.requests += 1
    source.counters.bytes += len(data)
    return memoryview(data)


async def _placed(source: Source, table: BlockTable, *, verify: bool) -> NDArray[np.int64] | FormatError:
    """The first rows of the blocks of a column with repetition levels: all of them are read for it."""
    counts: list[int | None] = []
    for block in range(len(table)):
        start, end = table.span(block)
        counts.append(None)
        if end > source.info.size:
            continue
        for _ in range(2):  # what is bad is read once more
            data = await _read(source, ByteRange(start, end))
            try:
                whole = unpack(table, block, data, verify=verify)
                counts[block] = read_block(table.column, whole.data, int(table.counts[block])).num_rows
                break
            except FormatError:
                continue
    try:
        return placed_rows(counts, source.num_rows)
    except FormatError as error:
        return error
