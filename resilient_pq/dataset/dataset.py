"""Many files of one schema, open for reading as if they were one. An async shell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Self

import nanoarrow

from resilient_pq.arrow.table import Table
from resilient_pq.arrow.to_python import Inexact
from resilient_pq.arrow.types.field import Field
from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY
from resilient_pq.dataset.agreement import common_schema, with_common_types
from resilient_pq.dataset.folder_columns import FolderColumns, JoinedColumns, Narrowed
from resilient_pq.dataset.rows_of_files import FileQuery, rows_of_files
from resilient_pq.errors import SchemaError, Where
from resilient_pq.io import FetchCounters, Stores
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.file import File
from resilient_pq.reader.read_options import ReadSettings
from resilient_pq.reader.read_plan import Filters, ReadQuery, Strings, in_form
from resilient_pq.reader.row_dicts import ROWS_AT_ONCE, Records
from resilient_pq.reader.streaming import Arriving, Batches, check_batch_rows
from resilient_pq.units import counted


class Dataset:
    """Files of one schema that are open for reading together, in a fixed order; made by `open_many`.

    Attributes:
        files: The files, in the order of their rows. A summary of a folder is one file.
        counters: Requests made and bytes moved so far, of all files together, their opening included.
        folders: The columns that are in the names of folders; None where those are names alone.
    """

    def __init__(
        self,
        files: Sequence[File],
        stores: Stores,
        how: ReadSettings,
        counters: FetchCounters,
        folders: FolderColumns | None = None,
    ) -> None:
        """Use `open_many` instead."""
        self.files: tuple[File, ...] = tuple(files)
        self.counters = counters
        self._stores = stores
        self._how = how
        self._field = schema_of(files)
        self.folders = folders
        self._whole = self._field
        if folders is not None:
            names = {child.name for child in self._field.children}
            if both := [name for name in folders.names if name in names]:
                raise SchemaError(
                    f"column {both[0]!r} is in the files, and in the names of their folders",
                    where=Where(column=both[0]),
                    hint="partitioning=None reads it from the files",
                )
            self._whole = self._field.with_children(*self._field.children, *folders.field.children)

    def __repr__(self) -> str:
        """How many files and rows."""
        return f"<resilient_pq.Dataset: {counted(len(self.files), 'file')}, {counted(self.num_rows, 'row')}>"

    @property
    def urls(self) -> tuple[str, ...]:
        """What is being read, file by file."""
        return tuple(file.url for file in self.files)

    @property
    def arrow_schema(self) -> Any:
        """The Arrow schema of all files, with ``__arrow_c_schema__``; key-value metadata are those of the first.

        Columns that are in the names of folders come last.
        """
        return nanoarrow.Schema(self._whole.to_c())

    @property
    def num_rows(self) -> int:
        """Rows of all files, as their footers have them; where damaged ones are left out, fewer are read."""
        return sum(file.num_rows for file in self.files)

    @property
    def num_row_groups(self) -> int:
        """Row groups of all files."""
        return sum(file.num_row_groups for file in self.files)

    async def read(
        self,
        columns: Sequence[str] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        strings: Strings = "stored",
    ) -> Table:
        """Read columns of all files as one table, in the order of the files.

        Args:
            columns: Names of columns, in the order wanted, or paths of fields inside of them, as in
                "Name.Language.Country"; None for all.
            filters: As of `File.read`.
            limit: As of `File.read`: the first rows of all files together.
            strings: As of `File.read`.

        Raises:
            SchemaError: There is no such column, or no such word for `strings`, or as of `File.read` for the others.
            FormatError: A file is damaged, and `open_many` was told to raise then; it names the file.
            ObjectChangedError: A file was replaced after it was opened.
            StoreError: A store could not give the bytes.
        """
        field, rows_of_files = self._rows(columns, filters, limit, strings)
        chunks, num_rows = [], 0
        async with aclosing(rows_of_files) as arriving:
            while limit is None or num_rows < limit:
                rows = await anext(arriving, None)
                if rows is None:
                    break
                self._how.tell(rows.lost)
                chunks.append(rows.arrays)
                num_rows += rows.num_rows
        num_arrays = sum(map(len, chunks))
        table = await off_loop(num_arrays, Table, field, chunks, num_rows)
        return table if limit is None else await off_loop(num_arrays, table.slice, 0, limit)

    def batches(
        self,
        batch_rows: int = 65_536,
        columns: Sequence[str] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        strings: Strings = "stored",
    ) -> Batches:
        """Rows of all files as one stream of tables, file by file in their order.

        What is read ahead goes on into the next files: all have one budget of bytes and of requests. Otherwise as
        `File.batches`.

        Args:
            batch_rows: Rows of a batch, at most; the last of each row group may have fewer.
            columns: As of `read`.
            filters: As of `read`.
            limit: As of `read`.
            strings: As of `File.read`.

        Returns:
            Tables of at most `batch_rows` rows, to be taken by ``async for``. Taking one raises what is listed
            below, but for SchemaError.

        Raises:
            SchemaError: As of `read`, or `batch_rows` is less than 1.
            FormatError: A file is damaged, and `open_many` was told to raise then; it names the file.
            ObjectChangedError: A file was replaced after it was opened.
            StoreError: A store could not give the bytes.
        """
        check_batch_rows(batch_rows)
        field, arriving = self._rows(columns, filters, limit, strings)
        return Batches.of(lambda: field, arriving, batch_rows, self._how.tell, limit=limit)

    def records(
        self,
        columns: Sequence[str] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        inexact: Inexact = "raise",
    ) -> Records:
        """Rows of all files one by one, as dicts of Python values; otherwise as `File.records`.

        Args:
            columns: As of `read`.
            filters: As of `read`.
            limit: As of `read`.
            inexact: What becomes of a time that Python's `datetime` cannot hold, as of `Table.to_pylist`.

        Raises:
            SchemaError: As of `read`; when a row is taken, a time cannot be held by `datetime`.
            FormatError: When a row is taken, as of `batches`.
            StoreError: Likewise.
        """
        return Records(self.batches(ROWS_AT_ONCE, columns, filters=filters, limit=limit), inexact)

    def _rows(
        self, columns: Sequence[str] | None, filters: Filters | None, limit: int | None, strings: Strings
    ) -> tuple[Field, Arriving]:
        """The struct that the rows of all files are, and these, planned file by file as reading goes on."""
        if self.folders is None:
            own, chosen = columns, None
            wishes: Sequence[Narrowed | None] = [Narrowed(filters)] * len(self.files)
        else:
            chosen = [child.name for child in self._whole.children] if columns is None else columns
            own = [name for name in chosen if name not in self.folders.names]
            wishes = self.folders.narrowed(filters)
        # What the first file would be asked for tells the types, wanted or not.
        asked = None if wishes[0] is None else wishes[0].filters
        first, _ = self.files[0].jobs(ReadQuery(own, None, asked, limit, strings))
        field = with_common_types(first(), in_form(self._field, strings))
        names = [child.name for child in self._field.children] if own is None else own
        together = None if self.folders is None or chosen is None else JoinedColumns(self.folders, field, chosen)

        def queries() -> Iterator[FileQuery]:
            for position, (file, wish) in enumerate(zip(self.files, wishes, strict=True)):
                if wish is not None:
                    # The order of the columns is the first file's.
                    schema = self.files[0].schema
                    same_order = own is None and (file.schema is schema or file.schema.names == schema.names)
                    query = ReadQuery(None if same_order else names, None, wish.filters, limit, strings)
                    join = None if together is None else partial(together.join, position)
                    yield FileQuery(file, query, join)

        rows = rows_of_files(queries(), self._how)
        return field if together is None else together.field, rows

    async def close(self) -> None:
        """Let go of all files, and of the connections of their stores."""
        for file in self.files:
            await file.close()
        await self._stores.close()

    async def __aenter__(self) -> Self:
        """The files themselves."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the files."""
        await self.close()


def schema_of(files: Sequence[File]) -> Field:
    """The Arrow schema of all files."""
    first = files[0]
    schema = Field.of(first.arrow_schema)
    seen = {_stored(first)}
    for file in files[1:]:
        stored = _stored(file)
        if stored not in seen or file.schema != first.schema:
            seen.add(stored)
            schema = common_schema(schema, Field.of(file.arrow_schema), first.url, file.url)
    return schema


def _stored(file: File) -> str | None:
    return file.contents.key_value.get(ARROW_SCHEMA_KEY)
