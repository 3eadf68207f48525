"""Reading Trevni files, Parquet's ancestor, as Arrow tables. An async shell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self

import numpy as np

from resilient_pq.arrow.assemble import Branch, branches_of, struct_projected, to_arrow
from resilient_pq.arrow.field import Field
from resilient_pq.arrow.schema import ColumnFields
from resilient_pq.arrow.table import Table
from resilient_pq.errors import FormatError, SchemaError, Where, located
from resilient_pq.format.row_selection import leaf_column
from resilient_pq.format.schema import Schema, Selection
from resilient_pq.format.values import ByteArrays
from resilient_pq.formats.left import KeptRows, Losses, kept_rows
from resilient_pq.formats.text_metadata import text_metadata
from resilient_pq.formats.trevni.header import BlockTable
from resilient_pq.formats.trevni.metadata import ValueType
from resilient_pq.formats.trevni.rows import RowReader, WindowRows
from resilient_pq.formats.trevni.values import Position, read_values
from resilient_pq.formats.trevni_source import Source, given_schema, open_source, windows
from resilient_pq.io import FetchCounters, ObjectInfo, ReadStore, RetryPolicy, resolve, with_retry
from resilient_pq.io.resolve import imported
from resilient_pq.reader.on_damage import OnDamage
from resilient_pq.reader.opening import Opening
from resilient_pq.reader.options import OnLost, ReadOptions, ReadSettings
from resilient_pq.reader.plan import check_limit
from resilient_pq.reader.streaming import Batches, check_batch_rows

#: Rows of a window, at most, where the caller has no wish.
BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class TrevniBlock:
    """One block of a column.

    Attributes:
        first_row: The first of its rows.
        num_rows: How many it has.
        offset: Where it begins in the file.
        size: Bytes before compression.
        stored_size: Bytes in the file, without the checksum.
        first_value: Its first value, where the file says it outside of the block, else None.
    """

    first_row: int
    num_rows: int
    offset: int
    size: int
    stored_size: int
    first_value: int | float | bool | bytes | str | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    """What is read, and the Arrow types that it becomes."""

    selected: tuple[Selection, ...]
    branches: tuple[Branch, ...]
    field: Field

    @classmethod
    def of(cls, source: Source, columns: Sequence[str] | None, options: ReadOptions) -> _Request:
        """What the names of columns select."""
        schema = source.layout.schema
        selected = tuple(schema.select(columns))
        branches = branches_of(schema, selected)
        unit = options.coerce_int96_timestamp_unit or "ns"
        key_value = text_metadata(source.header.metadata)
        whole = ColumnFields(schema, key_value, int96_unit=unit).struct(
            [column.position for column in selected]
        )
        return cls(selected, branches, struct_projected(whole, branches))

    def arrays(self, rows: KeptRows) -> list[Any]:
        """The columns of some rows as Arrow arrays."""
        arrays = []
        for field, column, branch in zip(self.field.children, self.selected, self.branches, strict=True):
            leaves = [leaf_column(leaf, rows.leaves[leaf.ordinal]) for leaf in column.leaves]
            arrays.append(to_arrow(field, branch, leaves))
        return arrays


class TrevniFile:
    """A Trevni file that is open for reading; made by `open_trevni`.

    Attributes:
        url: What is read.
    """

    def __init__(self, source: Source, how: ReadSettings, *, owns_store: bool) -> None:
        """Use `open_trevni` instead."""
        self.url = source.url
        self._source = source
        self._how = how
        self._owns_store = owns_store
        self._unverified: dict[str, int] = {}

    # --- what it is -----------------------------------------------------------------------------------------------

    @property
    def info(self) -> ObjectInfo:
        """The version of the object that is read, and its size."""
        return self._source.info

    @property
    def version(self) -> int:
        """The fourth byte of the file: 0, 1 or 2."""
        return int(self._source.header.version)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._source.num_rows

    @property
    def metadata(self) -> dict[str, bytes]:
        """The metadata of the file: ``avro.schema`` and others."""
        return dict(self._source.header.metadata)

    @property
    def column_names(self) -> list[str]:
        """Names of Trevni's columns, of which a nested record has several; `schema` has the records themselves."""
        return [column.name for column in self._source.header.columns]

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd about the file, and costs no rows."""
        return self._source.notes

    @property
    def unverified(self) -> dict[str, int]:
        """By the name of a column how many of its blocks were read whose checksum says nothing.

        Avro's writer sums up no bytes where blocks are not compressed, and stores the 0 that comes of it. Columns
        without checksums are not among these.
        """
        return dict(self._unverified)

    @property
    def schema(self) -> Schema:
        """Its records as a Parquet schema, which is what `convert` writes."""
        return self._source.layout.schema

    @property
    def arrow_schema(self) -> Any:
        """The Arrow schema of its records, with ``__arrow_c_schema__``."""
        return self._request(None).field.to_c()

    @property
    def counters(self) -> FetchCounters:
        """What reading cost so far."""
        return self._source.counters

    def __repr__(self) -> str:
        """The file, its rows and columns."""
        columns = len(self.column_names)
        return f"<resilient_pq.TrevniFile {self.url}: {self.num_rows:,} rows, {columns:,} columns>"

    def blocks(self, column: str) -> list[TrevniBlock]:
        """The blocks of one of `column_names`, in order.

        Of a column with repetition levels what counts as its rows are entries.

        Raises:
            SchemaError: There is no such column.
            FormatError: The table of its blocks is damaged.
        """
        table = self._table(column)
        first_rows = [0, *table.counts.cumsum().tolist()]
        values = [_first_value(table, value) for value in table.first_values] or [None] * len(table)
        described = zip(
            first_rows, table.counts.tolist(), table.offsets.tolist(), table.sizes.tolist(),
            table.stored_sizes.tolist(), values, strict=False,
        )  # fmt: skip
        return [TrevniBlock(*each) for each in described]

    def first_row_of(self, column: str, value: int | float | bytes | str) -> int:
        """The row to begin with to find a value of a sorted column: the first of the last block that begins before it.

        No block is read for it. The column has to say the first values of its blocks (``trevni.values``); then all
        rows before have lesser values.

        Args:
            column: One of `column_names`.
            value: Of the column's type: text for strings.

        Raises:
            SchemaError: There is no such column, or it does not say first values.
            FormatError: The table of its blocks is damaged.
        """
        blocks = self.blocks(column)
        if not self._table(column).column.has_first_values:
            raise SchemaError(f"the column {column!r} does not say the first values of its blocks")
        row = 0
        for block in blocks:
            if block.first_value is None or not block.first_value < value:  # type: ignore[operator]
                break
            row = block.first_row
        return row

    def _table(self, name: str) -> BlockTable:
        names = self.column_names
        if name not in names:
            raise SchemaError(f"there is no column {name!r}", hint=f"columns: {', '.join(names)}")
        table = self._source.tables[names.index(name)]
        if isinstance(table, FormatError):
            raise table.at(Where(key=self.url))
        return table

    # --- rows -----------------------------------------------------------------------------------------------------

    async def read(
        self, columns: Sequence[str] | None = None, *, offset: int = 0, limit: int | None = None
    ) -> Table:
        """Rows as a table.

        Args:
            columns: As of `batches`.
            offset: As of `batches`.
            limit: As of `batches`.

        Raises:
            SchemaError: As of `batches`.
            FormatError: The file is damaged, and `open_trevni` was told to raise then.
            ObjectChangedError: The object was replaced after it was opened.
            StoreError: The store could not give the bytes.
        """
        request = self._request(columns)
        chunks, num_rows = [], 0
        async with aclosing(self._kept(request, BATCH_ROWS, offset, limit)) as kept:
            async for rows in kept:
                chunks.append(await asyncio.to_thread(request.arrays, rows))
                num_rows += rows.num_rows
        return Table(request.field, chunks, num_rows)

    def batches(
        self,
        batch_rows: int = BATCH_ROWS,
        columns: Sequence[str] | None = None,
        *,
        offset: int = 0,
        limit: int | None = None,
    ) -> Batches:
        """Rows as a stream of tables, in order.

        Blocks are fetched by byte range as their rows come; those that end before the first row wanted are not.

        Args:
            batch_rows: Rows of a batch, at most. There are fewer where their blocks exceed the `memory_budget` of
                `ReadOptions`, and where a block is damaged.
            columns: Names of columns of `schema`, in the order wanted, or paths of fields inside of them; see
                `Schema.select`. None for all.
            offset: The first row wanted.
            limit: How many rows of the file are wanted, at most, those that are damaged among them.

        Raises:
            SchemaError: There is no such column, or a number that is none.
            FormatError: On taking a batch: the file is damaged, and `open_trevni` was told to raise then.
            ObjectChangedError: On taking a batch: the object was replaced after it was opened.
            StoreError: On taking a batch: the store could not give the bytes.
        """
        check_batch_rows(batch_rows)
        request = self._request(columns)
        return Batches(request.field, self._tables(request, self._kept(request, batch_rows, offset, limit)))

    def _request(self, columns: Sequence[str] | None) -> _Request:
        with located(Where(key=self.url)):
            return _Request.of(self._source, columns, self._how.options)

    async def _tables(
        self, request: _Request, kept: AsyncGenerator[KeptRows, None]
    ) -> AsyncGenerator[Table, None]:
        async with aclosing(kept):
            async for rows in kept:
                arrays = await asyncio.to_thread(request.arrays, rows)
                yield Table(request.field, [arrays], rows.num_rows)

    def _kept(
        self, request: _Request, batch_rows: int, offset: int, limit: int | None
    ) -> AsyncGenerator[KeptRows, None]:
        """The rows that are kept, window by window."""
        check_limit(limit)
        if not isinstance(offset, int) or offset < 0:
            raise SchemaError(f"offset is {offset!r}; it is the number of a row, 0 or more")
        losses = Losses(self.url)
        readers: list[RowReader] = []
        arriving = windows(
            self._source,
            [leaf for column in request.selected for leaf in column.leaves],
            start=offset,
            stop=None if limit is None else offset + limit,
            most_rows=batch_rows,
            verify=self._how.verify,
            begun=readers.append,
        )

        async def kept() -> AsyncGenerator[KeptRows, None]:
            with located(Where(key=self.url)):
                async with aclosing(arriving):
                    async for rows in arriving:
                        self._raise_if_asked(rows)
                        left = kept_rows(request.selected, rows, self._how.on_damage, losses, keep_empty=True)
                        if left is not None:
                            yield left
                for name, blocks in readers[0].unverified.items():
                    self._unverified[name] = self._unverified.get(name, 0) + blocks
                if self._how.on_lost is not None:
                    for region in losses.regions(readers[0].losses):
                        self._how.on_lost(region)

        return kept()

    def _raise_if_asked(self, rows: WindowRows) -> None:
        if rows.losses and self._how.on_damage is OnDamage.RAISE:
            raise next(iter(rows.losses.values())).error

    # --- ending ---------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._owns_store:
            self._owns_store = False
            await self._source.store.close()

    async def __aenter__(self) -> Self:
        """The file itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()


def _first_value(table: BlockTable, stored: bytes) -> Any:
    kind = table.column.type
    if kind is ValueType.NULL:
        return None
    values, _ = read_values(kind, np.frombuffer(stored, np.uint8), Position(), 1)
    if isinstance(values, ByteArrays):
        return values.value(0).decode("utf-8", "replace") if kind is ValueType.STRING else values.value(0)
    return values[0].tobytes() if kind is ValueType.TIMESTAMP else values[0].item()


def open_trevni(
    url: str | os.PathLike[str] | tuple[ReadStore, str],
    *,
    schema: Schema | str | None = None,
    verify: bool = True,
    on_damage: Literal["raise", "null", "drop"] = "raise",
    on_lost: OnLost | None = None,
    options: ReadOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> Opening[TrevniFile]:
    """Open a Trevni file, Parquet's ancestor, of Avro's dialect or of the draft that Impala followed.

    Use it as ``async with rpq.open_trevni(url) as file``. The records have the schema that the file has in its metadata
    (``avro.schema``), or what the names and levels of its columns tell. `convert` makes a Parquet file of it.

    Where a file has no checksums, as is the default of both its writers, nothing tells changed values from others. Its
    header and the tables of its blocks have none in any case.

    Args:
        url: A URL ("s3://bucket/key", any fsspec URL), a path, or a pair of a store and a key in it.
        schema: A Parquet schema, or its text, of the same columns in the same order, for files with definition and
            repetition levels whose nesting these leave open.
        verify: Compare every checksum that the file has.
        on_damage: What is done with rows of which a value is lost: "raise" raises the error, "drop" leaves them out,
            and "null" gives null where that is possible, as of `open`.
        on_lost: Called with each `LostRegion` when the last row is read: a block, or a column whose table of blocks is
            damaged.
        options: How to read.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.

    Raises:
        SchemaError: `schema` is none; or on entering: it is not that of the file, or the file needs one.
        NotFoundError: On entering: no such object.
        FormatError: On entering: the object is no Trevni file, or its header is damaged.
        TornFileError: On entering: it ends within its header.
    """
    storage_options = with_retry(storage_options, retry)
    how = ReadSettings.checked(verify=verify, on_damage=on_damage, on_lost=on_lost, options=options)
    given = given_schema(schema)

    async def opening() -> TrevniFile:
        await imported(url)
        store, key = url if isinstance(url, tuple) else resolve(url, storage_options)
        owns_store = not isinstance(url, tuple)
        try:
            with located(Where(key=store.url_of(key))):
                source = await open_source(
                    store, key, schema=given, options=how.options, counters=FetchCounters()
                )
        except BaseException:
            if owns_store:
                await store.close()
            raise
        return TrevniFile(source, how, owns_store=owns_store)

    return Opening(opening)
