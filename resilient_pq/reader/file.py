"""An open Parquet file, which plans reads, fetches their bytes and decodes them. An async shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Self

import nanoarrow

from resilient_pq import memory_pool
from resilient_pq.arrow.table import Table
from resilient_pq.arrow.to_python import Inexact
from resilient_pq.arrow.types.arrow_schema import ColumnFields
from resilient_pq.arrow.types.field import Field
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.errors import Where, located
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io import FetchCounters, ObjectInfo, ObjectTail, ReadStore
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.reader.contents import Contents, FileState, KnownCheckpoint
from resilient_pq.reader.decoder import RowGroupArrays
from resilient_pq.reader.filter.indexed_file import IndexedFile
from resilient_pq.reader.read_batches import cut_into_batches
from resilient_pq.reader.read_options import ReadLimits, ReadSettings
from resilient_pq.reader.read_plan import (
    Filters,
    ReadPlan,
    ReadQuery,
    ReadRequest,
    RowGroupRead,
    Strings,
    next_wave,
    plan_read,
    row_groups_wanted,
)
from resilient_pq.reader.row_dicts import ROWS_AT_ONCE, Records
from resilient_pq.reader.row_groups import RowGroupReader
from resilient_pq.reader.streaming import Arriving, Batches, BatchJob, Jobs, check_batch_rows, read_ahead
from resilient_pq.units import MiB

if TYPE_CHECKING:
    from resilient_pq.reader.healing import HealedChunk
    from resilient_pq.reader.plan_display import PlannedRead

#: Bytes of free memory that are kept when a file is closed: enough to read the next small file.
_KEPT_WHEN_CLOSED: Final = 16 * MiB


class File(IndexedFile):
    """A Parquet file that is open for reading; made by `open`.

    Attributes:
        url: What is being read, as it may be shown: a URL without a user, and with a hash in the place of its query.
        info: Size and version of the object; every read is pinned to them.
        counters: Requests made and bytes moved so far, the opening included.
        objects: What the chunks lie in: the file itself, and the data files that a summary names.
    """

    def __init__(
        self,
        store: ReadStore,
        tail: ObjectTail,
        contents: Contents,
        how: ReadSettings,
        *,
        counters: FetchCounters,
        owns_store: bool,
        limits: ReadLimits | None = None,
    ) -> None:
        """Use `open` instead."""
        self.url: str = store.url_of(tail.info.key)
        self.info: ObjectInfo = tail.info
        self.counters: FetchCounters = counters
        self.contents = contents
        limits = limits or ReadLimits.of(how.options)
        tail = limits.tails.keep(tail)
        self._tail = tail
        self.objects: ChunkObjects = ChunkObjects(
            store,
            tail.info,
            contents,
            options=how.options.fetch,
            counters=counters,
            requests=limits.requests,
            tail=tail,
        )
        self._store = store
        self._how = how
        self._options = how.options
        self._owns_store = owns_store
        self._row_groups = RowGroupReader(self.objects, how, limits)

    # -- facts about the file -------------------------------------------------------------------

    @property
    def metadata(self) -> FileMetaData:
        """The footer's Thrift struct."""
        return self.contents.metadata

    @property
    def place(self) -> tuple[ReadStore, str]:
        """Where it is: the store, and the key in it."""
        return self._store, self.info.key

    @property
    def schema(self) -> Schema:
        """The Parquet schema."""
        return self.contents.schema

    @cached_property
    def arrow_schema(self) -> Any:
        """The Arrow schema, with ``__arrow_c_schema__``."""
        with located(Where(key=self.url)):
            return nanoarrow.Schema(self._fields.struct().to_c())

    @property
    def num_rows(self) -> int:
        """Rows of the file, as its footer has them; where damaged ones are left out, fewer are read."""
        return self.contents.num_rows

    @property
    def num_row_groups(self) -> int:
        """Row groups of the file."""
        return len(self.contents.metadata.row_groups)

    @property
    def data_files(self) -> tuple[str, ...]:
        """The files that a summary names, relative to its folder; none where all rows are in this file."""
        return self.contents.data_files

    @property
    def state(self) -> FileState | None:
        """What a resilient file says of itself: complete, in-progress or salvaged; None for files of others."""
        return self.contents.state

    @property
    def checkpoints(self) -> tuple[KnownCheckpoint, ...]:
        """The checkpoints of a resilient file, oldest first."""
        return self.contents.checkpoints

    @property
    def healed(self) -> tuple[HealedChunk, ...]:
        """The column chunks that were damaged, and that were read with the parity beside the file, so far."""
        healer = self.objects.healer
        return () if healer is None else tuple(healer.healed)

    # -- reading ---------------------------------------------------------------------------------

    async def read(
        self,
        columns: Sequence[str] | None = None,
        row_groups: Sequence[int] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        strings: Strings = "stored",
    ) -> Table:
        """Rows as a table.

        All ranges are fetched in one parallel wave and decoded while they arrive; with a `limit`, in as many waves as
        it takes to find so many rows.

        Args:
            columns: Names of columns, in the order wanted, or paths of fields inside of them, as in
                "Name.Language.Country"; see `Schema.select`. None for all.
            row_groups: Ordinals of row groups, in the order wanted; None for all.
            filters: Which rows: a list of tuples ``(column, operator, value)``, all of which have to hold, or a list
                of such lists, one of which has to. Operators are ``=``, ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``,
                ``in`` and ``not in`` with a list of values, ``is null`` and ``is not null`` with none. A column is a
                leaf outside of lists and maps, by its path with dots, and need not be among `columns`. Row groups and
                pages that cannot have such rows, by statistics, bloom filters and page indexes, are not read; damage
                in those only means that more is read. A null meets no comparison, ``!=`` and ``not in`` neither.
                Values are of the column's own kind (text as str, times as datetime, with a time zone exactly where the
                column is in UTC); numbers are compared exactly, but for columns of floating point they are rounded to
                the column's type.
            limit: Rows at most, the first of those that the filters leave; None for all.
            strings: How text and binary columns come, wherever they are nested; dictionaries stay as they are.
                ``stored``: as views where the writer had views, else plain. ``plain``: as Arrow's string and binary,
                each column of a row group back to back in one buffer. ``view``: as string_view and binary_view, whose
                values of more than 12 bytes stay in the decompressed pages and are not copied:
                faster, most of all where values are long. The pages live as long as any view into them, also
                where a slice or a filter has left little of their values.

        Raises:
            SchemaError: There is no such column or row group, no such word for `strings`, `limit` is no number of rows,
                or `filters` have another form or a value of another kind than their column.
            FormatError: The file is damaged, and `open` was told to raise then; a `ChecksumError` names the page.
            FileClosedError: The file was closed.
            ObjectChangedError: The object was replaced after it was opened.
            NotFoundError: A data file that a summary names is not there.
            StoreError: The store could not give the bytes.
        """
        with located(Where(key=self.url)):
            request, groups = await self.rows_of(ReadQuery(columns, row_groups, filters, limit, strings))
            self._how.tell([region for group in groups for region in group.lost])
            chunks = [group.arrays for group in groups]
            num_arrays = len(chunks) * len(request.field.children)
            table = await off_loop(num_arrays, Table, request.field, chunks, sum([group.num_rows for group in groups]))
            return table if limit is None else await off_loop(num_arrays, table.slice, 0, limit)

    async def rows_of(self, query: ReadQuery) -> tuple[ReadRequest, list[RowGroupArrays]]:
        """What was asked for, and the rows of all row groups, or of so many that they have the rows wanted."""
        if self._closed:
            self._check_open()
        with located(Where(key=self.url)):
            request = await off_loop(self.contents.num_chunks, self._request, query)
            plan = await self._narrowed(request.plan, query.limit)
            found: list[RowGroupArrays] = []
            waiting, limit = plan.row_groups, query.limit
            wanted = limit
            while waiting and (limit is None or sum(group.num_rows for group in found) < limit):
                count = len(waiting) if wanted is None else next_wave(waiting, wanted)
                found += await self._row_groups.read(request, waiting[:count])
                waiting = waiting[count:]
                # The filter leaves few rows of many: look for the rest in twice as many each time.
                wanted = None if wanted is None else 2 * wanted
            return request, found

    def batches(
        self,
        batch_rows: int = 65_536,
        columns: Sequence[str] | None = None,
        row_groups: Sequence[int] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        strings: Strings = "stored",
    ) -> Batches:
        """Rows as a stream of tables, in order.

        While a row group is being handed out, those behind it are fetched and decoded: the next one in any case, and
        as many as stay within the `memory_budget` of `ReadOptions` together, in bytes requested and in rows that
        wait. Leaving the loop early cancels that; ``async with file.batches() as batches`` has it happen there and
        then. What a row group fails with is raised when all rows before it were given, and only then.

        Args:
            batch_rows: Rows of a batch, at most; the last of each row group may have fewer.
            columns: Names of columns, in the order wanted, or paths of fields inside of them, as in
                "Name.Language.Country"; see `Schema.select`. None for all.
            row_groups: Ordinals of row groups, in the order wanted; None for all.
            filters: As of `read`; a row group without such rows gives no batch.
            limit: As of `read`; what lies behind the last of these rows is not read.
            strings: As of `read`. With ``view`` a batch that is kept keeps pages of its whole row group.

        Returns:
            Tables of at most `batch_rows` rows, to be taken by ``async for``. Taking one raises what is listed
            below, but for SchemaError.

        Raises:
            SchemaError: As of `read`, or `batch_rows` is less than 1.
            FormatError: The file is damaged, and `open` was told to raise then; a `ChecksumError` names the page.
            ObjectChangedError: The object was replaced after it was opened.
            StoreError: The store could not give the bytes.
        """
        check_batch_rows(batch_rows)
        with located(Where(key=self.url)):
            query = ReadQuery(columns, row_groups, filters, limit, strings)
        field, arriving = self._arriving(query)
        return Batches.of(field, arriving, batch_rows, self._how.tell, limit=limit)

    def _arriving(self, query: ReadQuery) -> tuple[Callable[[], Field], Arriving]:
        """A function that gives the struct of the rows, and the rows of each row group, read ahead."""
        field, jobs = self.jobs(query)
        return field, read_ahead(jobs, self._options.fetch)

    def jobs(self, query: ReadQuery) -> tuple[Callable[[], Field], Jobs]:
        """A function that gives the struct of the rows, and the reads of a stream, of whole row groups, in order."""
        self._check_open()
        with located(Where(key=self.url)):
            wanted = row_groups_wanted(self.contents, query.row_groups)
            # The query is checked now; types and byte ranges are looked up when rows are read.
            shown = plan_read(self.contents, query.columns, [], query.filters)
        request = cache(partial(ReadRequest.of, self.contents, shown, query.strings, self._fields))
        fetch = self._options.fetch

        async def read(groups: Sequence[RowGroupRead]) -> list[RowGroupArrays]:
            with located(Where(key=self.url)):
                return await self._row_groups.read(request(), groups)

        def field() -> Field:
            with located(Where(key=self.url)):
                return request().field

        async def jobs() -> Jobs:
            await off_loop(len(shown.columns), field)
            with located(Where(key=self.url)):
                plan = await off_loop(
                    self.contents.num_chunks, plan_read, self.contents, query.columns, wanted, query.filters
                )
                plan = await self._narrowed(plan, query.limit)
                cut = cut_into_batches(plan.row_groups, gap=fetch.merge.always_gap, budget=fetch.memory_budget)
                # Each looks up where all chunks of its row groups lie.
                while (batch := await off_loop(self.contents.num_chunks, next, cut, None)) is not None:
                    yield BatchJob(batch, read)

        return field, jobs()

    def records(
        self,
        columns: Sequence[str] | None = None,
        row_groups: Sequence[int] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        inexact: Inexact = "raise",
    ) -> Records:
        """Rows one by one, in order, as dicts of Python values: ``async for row in file.records()``.

        They are read as by `batches`, and leaving the loop early ends that as there.

        Args:
            columns: As of `read`.
            row_groups: As of `read`.
            filters: As of `read`.
            limit: As of `read`.
            inexact: What becomes of a time that Python's `datetime` cannot hold, as of `Table.to_pylist`.

        Raises:
            SchemaError: As of `read`; when a row is taken, a time cannot be held by `datetime`, or two columns have the
                same name.
            FormatError: When a row is taken, as of `batches`.
            StoreError: Likewise.
        """
        return Records(self.batches(ROWS_AT_ONCE, columns, row_groups, filters=filters, limit=limit), inexact)

    async def plan(
        self,
        columns: Sequence[str] | None = None,
        row_groups: Sequence[int] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        fetch_indexes: bool = True,
    ) -> PlannedRead:
        """What `read` would ask of the store, without reading any data; print it.

        Args:
            columns: As of `read`.
            row_groups: As of `read`.
            filters: As of `read`.
            limit: As of `read`.
            fetch_indexes: Whether page indexes and bloom filters are fetched as `read` would do it, where opening the
                file has not brought them already. Without, there are no requests, and more may seem to be needed.

        Raises:
            SchemaError: As of `read`.
            FormatError: A column chunk is not where it can be.
            StoreError: The store could not give the indexes.
        """
        from resilient_pq.reader.plan_display import PlannedRead  # noqa: PLC0415 (most reads are not displayed)

        with located(Where(key=self.url)):
            query = ReadQuery(columns, row_groups, filters, limit)
            num_chunks = self.contents.num_chunks
            plan = await off_loop(num_chunks, plan_read, self.contents, query.columns, query.row_groups, query.filters)
            plan = await self._narrowed(plan, limit, fetch_indexes=fetch_indexes)
            return await off_loop(num_chunks, PlannedRead.of, plan, self.objects.options, self._tail)

    def _request(self, query: ReadQuery) -> ReadRequest:
        plan = plan_read(self.contents, query.columns, query.row_groups, query.filters)
        return ReadRequest.of(self.contents, plan, query.strings, self._fields)

    async def _narrowed(self, plan: ReadPlan, limit: int | None, *, fetch_indexes: bool = True) -> ReadPlan:
        """The plan without the rows that indexes and the limit rule out."""
        # Where damage may cost rows, the row groups that a limit takes cannot be counted.
        known = limit if self._how.on_damage is OnDamage.RAISE or not limit else None
        if plan.filter is None and known is None:
            return plan
        return await self._indexes.narrow(self.contents, plan, known, fetch=fetch_indexes)

    @cached_property
    def _fields(self) -> ColumnFields:
        unit = self._options.coerce_int96_timestamp_unit or "ns"
        restore = self._options.restore_types
        return ColumnFields(self.schema, self.contents.key_value, int96_unit=unit, restore_types=restore)

    # -- ending ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let go of the store's connections, and of most of the memory kept for reading; nothing more can be read."""
        self._closed = True
        memory_pool.give_back(keep=_KEPT_WHEN_CLOSED)
        if self._owns_store:
            await self._store.close()

    async def __aenter__(self) -> Self:
        """The file itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the file."""
        await self.close()
