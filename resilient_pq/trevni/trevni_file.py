"""Reading Trevni files, Parquet's ancestor, as Arrow tables. An async shell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, Literal, Self

from resilient_pq.arrow.assemble import branches_of, struct_projected, to_arrow
from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.arrow_schema import ColumnFields
from resilient_pq.arrow.types.field import Field
from resilient_pq.errors import SchemaError, Where, located
from resilient_pq.format.pages.row_selection import leaf_column
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io import ReadStore, RetryPolicy, place_of, with_retry
from resilient_pq.io.resolve import Opening
from resilient_pq.reader.read_options import OnLost, ReadOptions, ReadSettings
from resilient_pq.reader.read_plan import check_limit
from resilient_pq.reader.streaming import Batches, check_batch_rows
from resilient_pq.trevni.blocks.trevni_metadata import text_metadata
from resilient_pq.trevni.trevni_source import BATCH_ROWS, KeptRows, RowStream, TrevniSource, given_schema, open_source


class TrevniFile:
    """A Trevni file that is open for reading; made by `open_trevni`.

    Attributes:
        url: What is read.
    """

    def __init__(self, source: TrevniSource, how: ReadSettings, held: AsyncExitStack) -> None:
        """Use `open_trevni` instead."""
        self.url: str = source.url
        self._source = source
        self._how = how
        self._held = held

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._source.num_rows

    @property
    def metadata(self) -> dict[str, bytes]:
        """The metadata of the file: ``avro.schema`` and others."""
        return dict(self._source.header.metadata)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd about the file, and costs no rows."""
        return self._source.notes

    @property
    def schema(self) -> Schema:
        """Its records as a Parquet schema, which is what `convert` writes."""
        return self._source.layout.schema

    def __repr__(self) -> str:
        """The file, its rows and columns."""
        columns = len(self._source.header.columns)
        return f"<resilient_pq.TrevniFile {self.url}: {self.num_rows:,} rows, {columns:,} columns>"

    async def read(self, columns: Sequence[str] | None = None, *, offset: int = 0, limit: int | None = None) -> Table:
        """Rows as a table; the arguments and errors are those of `batches`."""
        field, arriving = self._arriving(BATCH_ROWS, columns, offset, limit)
        chunks, num_rows = [], 0
        async with aclosing(arriving):
            async for arrays, count in arriving:
                chunks.append(arrays)
                num_rows += count
        return Table(field, chunks, num_rows)

    def batches(
        self,
        batch_rows: int = BATCH_ROWS,
        columns: Sequence[str] | None = None,
        *,
        offset: int = 0,
        limit: int | None = None,
    ) -> Batches:
        """Rows as a stream of tables, in order.

        Blocks are fetched by byte range as their rows come.

        Args:
            batch_rows: Rows of a batch, at most. There are fewer where their blocks exceed the `memory_budget` of
                `ReadOptions`, and where a block is damaged.
            columns: Names of columns of `schema`, in the order wanted, or paths of fields inside of them; see
                `Schema.select`. None for all.
            offset: The first row wanted; the blocks of those before are read, too.
            limit: How many rows of the file are wanted, at most, those that are damaged among them.

        Raises:
            SchemaError: There is no such column, or a number that is none.
            FormatError: On taking a batch: the file is damaged, and `open_trevni` was told to raise then.
            ObjectChangedError: On taking a batch: the object was replaced after it was opened.
            StoreError: On taking a batch: the store could not give the bytes.
        """
        check_batch_rows(batch_rows)
        field, arriving = self._arriving(batch_rows, columns, offset, limit)

        async def tables() -> AsyncGenerator[Table, None]:
            async with aclosing(arriving):
                async for arrays, num_rows in arriving:
                    yield Table(field, [arrays], num_rows)

        return Batches(lambda: field, tables())

    def _arriving(
        self, most_rows: int, columns: Sequence[str] | None, offset: int, limit: int | None
    ) -> tuple[Field, AsyncGenerator[tuple[list[Any], int], None]]:
        """The struct that rows are, and its arrays and how many rows these have, window by window."""
        check_limit(limit)
        if not isinstance(offset, int) or offset < 0:
            raise SchemaError(f"offset is {offset!r}; it is the number of a row, 0 or more")
        schema, how = self.schema, self._how
        with located(Where(key=self.url)):
            selected = tuple(schema.select(columns))
            branches = branches_of(schema, selected)
            unit = how.options.coerce_int96_timestamp_unit or "ns"
            fields = ColumnFields(schema, text_metadata(self.metadata), int96_unit=unit)
            field = struct_projected(fields.struct([column.position for column in selected]), branches)
        stream = RowStream(self._source, selected, how.on_damage, how.verify, keep_empty=True)
        windows = stream.windows(start=offset, stop=None if limit is None else offset + limit, most_rows=most_rows)

        def arrays_of(rows: KeptRows) -> list[Any]:
            arrays = []
            for child, column, branch in zip(field.children, selected, branches, strict=True):
                leaves = [leaf_column(leaf, rows.leaves[leaf.ordinal]) for leaf in column.leaves]
                arrays.append(to_arrow(child, branch, leaves))
            return arrays

        async def arriving() -> AsyncGenerator[tuple[list[Any], int], None]:
            async with aclosing(windows):
                async for rows in windows:
                    if rows.num_rows:
                        yield await asyncio.to_thread(arrays_of, rows), rows.num_rows
            if how.on_lost is not None:
                for region in stream.regions():
                    how.on_lost(region)

        return field, arriving()

    async def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        await self._held.aclose()

    async def __aenter__(self) -> Self:
        """The file itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()


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
        async with AsyncExitStack() as stack:
            store, key = await stack.enter_async_context(place_of(url, storage_options))
            with located(Where(key=store.url_of(key))):
                source = await open_source(store, key, schema=given, options=how.options)
            return TrevniFile(source, how, stack.pop_all())

    return Opening(opening)
