"""The statistics, indexes and bloom filters of an open file. An async shell."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn, TypeVar

from resilient_pq.errors import FileClosedError, UnsupportedError, Where, located
from resilient_pq.format.footer import key_values
from resilient_pq.io import ObjectTail
from resilient_pq.io.cancellation import in_loop
from resilient_pq.notebook_html import preformatted
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.read_options import ReadSettings
from resilient_pq.reader.row_groups import RowGroupReader
from resilient_pq.units import counted

if TYPE_CHECKING:  # most reads need no index: what these are of is imported when it is asked for
    from resilient_pq.damage.lost_region import LostRegion
    from resilient_pq.format.file_metadata import OffsetIndex
    from resilient_pq.format.indexes.trusted_bounds import ColumnStatistics, DecodedColumnIndex
    from resilient_pq.format.sorting import SortingColumn
    from resilient_pq.reader.filter import index_ranges
    from resilient_pq.reader.filter.bloom_filter import ColumnBloomFilter
    from resilient_pq.reader.filter.index_reader import IndexReader

T = TypeVar("T")


class IndexedFile:
    """The statistics, indexes and bloom filters of a `File`, and its name for people.

    Attributes:
        lost_at_opening: What a file without a footer lost between and behind its row groups; else nothing.
    """

    lost_at_opening: tuple[LostRegion, ...] = ()
    _closed: bool = False
    url: str
    contents: Contents
    objects: ChunkObjects
    _tail: ObjectTail
    _how: ReadSettings
    _row_groups: RowGroupReader

    def __repr__(self) -> str:
        """Its name and size."""
        rows, groups = self.contents.num_rows, len(self.contents.metadata.row_groups)
        columns = counted(len(self.contents.schema.columns), "column")
        return f"<resilient_pq.File: {self.url}, {counted(rows, 'row')} in {counted(groups, 'row group')}, {columns}>"

    def __reduce__(self) -> NoReturn:
        """Refuse: its store belongs to an event loop."""
        hint = "pickle its URL, or the file that resilient_pq.sync.open gives"
        raise UnsupportedError("an asynchronous file cannot be pickled", where=Where(key=self.url), hint=hint)

    def _repr_html_(self) -> str:
        """Its name, size and schema, for notebooks."""
        return preformatted(f"{self!r}\n{self.contents.schema}")

    @property
    def key_value_metadata(self) -> dict[str, str | None]:
        """Key-value metadata of the file."""
        return dict(self.contents.key_value)

    @property
    def sorting_columns(self) -> tuple[SortingColumn, ...]:
        """The order in which the rows of every row group are, as far as the file says so; others do not check it."""
        from resilient_pq.reader.filter import index_ranges  # noqa: PLC0415

        return index_ranges.common_sorting_columns(self.contents)

    def statistics(self, row_group: int, column: str | int) -> ColumnStatistics:
        """What the footer says of the values of a column chunk, as far as its writer can be trusted.

        Args:
            row_group: Ordinal of the row group.
            column: Path of the leaf column, with dots, or its ordinal among the leaves.

        Raises:
            SchemaError: There is no such row group or column.
            FormatError: The footer says nothing of the chunk.
        """
        from resilient_pq.reader.filter import index_ranges  # noqa: PLC0415

        with located(Where(key=self.url)):
            return index_ranges.statistics_of_chunk(index_ranges.chunk_of(self.contents, row_group, column))

    def column_metadata(self, row_group: int, column: str | int) -> dict[str, str | None]:
        """The key-value metadata of a column chunk, without what only this library reads (``rpq.*``).

        Args:
            row_group: Ordinal of the row group.
            column: Path of the leaf column, with dots, or its ordinal among the leaves.

        Raises:
            SchemaError: There is no such row group or column.
            FormatError: The footer says nothing of the chunk.
        """
        from resilient_pq.reader.filter import index_ranges  # noqa: PLC0415

        with located(Where(key=self.url)):
            chunk = index_ranges.chunk_of(self.contents, row_group, column)
            pairs = key_values(chunk.metadata.key_value_metadata)
        return {key: value for key, value in pairs.items() if not key.startswith("rpq.")}

    async def column_index(self, row_group: int, column: str | int) -> DecodedColumnIndex | None:
        """What is known of each data page of a column chunk: bounds, null counts, histograms of levels.

        Args:
            row_group: Ordinal of the row group.
            column: Path of the leaf column, with dots, or its ordinal among the leaves.

        Returns:
            The index; None where the file has none.

        Raises:
            SchemaError: There is no such row group or column.
            FormatError: The index is damaged.
            StoreError: The store could not give the bytes.
        """
        from resilient_pq.reader.filter import index_ranges  # noqa: PLC0415

        return await self._index(row_group, column, index_ranges.column_index_place, index_ranges.decode_columns)

    async def offset_index(self, row_group: int, column: str | int) -> OffsetIndex | None:
        """Where the data pages of a column chunk lie, and with which rows they begin.

        Args:
            row_group: Ordinal of the row group.
            column: Path of the leaf column, with dots, or its ordinal among the leaves.

        Returns:
            The index, whose pages lie within the chunk, in the order of their rows; None where the file has none.

        Raises:
            SchemaError: There is no such row group or column.
            FormatError: The index is damaged.
            StoreError: The store could not give the bytes.
        """
        from resilient_pq.reader.filter import index_ranges  # noqa: PLC0415

        return await self._index(row_group, column, index_ranges.offset_index_place, index_ranges.decode_offsets)

    async def bloom_filter(self, row_group: int, column: str | int) -> ColumnBloomFilter | None:
        """The bloom filter of a column chunk, which tells values that are certainly not in it.

        Args:
            row_group: Ordinal of the row group.
            column: Path of the leaf column, with dots, or its ordinal among the leaves.

        Returns:
            The filter; None where the file has none.

        Raises:
            SchemaError: There is no such row group or column.
            FormatError: The filter is damaged.
            UnsupportedError: It is of a kind that this version does not know.
            StoreError: The store could not give the bytes.
        """
        from resilient_pq.reader.filter import index_ranges  # noqa: PLC0415
        from resilient_pq.reader.filter.bloom_filter import ColumnBloomFilter  # noqa: PLC0415

        found = await self._index(row_group, column, index_ranges.bloom_filter_place, index_ranges.decode_filter)
        if found is None:
            return None
        return ColumnBloomFilter(index_ranges.chunk_of(self.contents, row_group, column).leaf, found)

    def _check_open(self) -> None:
        if self._closed:
            raise FileClosedError("the file is closed", where=Where(key=self.url))

    async def _index(
        self,
        row_group: int,
        column: str | int,
        find: Callable[[index_ranges.IndexedChunk], index_ranges.IndexPlace | None],
        decode_bytes: Callable[[index_ranges.IndexPlace, memoryview], T],
    ) -> T | None:
        from resilient_pq.reader.filter import index_ranges  # noqa: PLC0415

        self._check_open()
        with located(Where(key=self.url)):
            place = find(index_ranges.chunk_of(self.contents, row_group, column))
            if place is None:
                return None
            await in_loop()
            return await self._indexes.read(place, decode_bytes)

    @cached_property
    def _indexes(self) -> IndexReader:
        from resilient_pq.reader.filter.index_reader import IndexReader  # noqa: PLC0415

        return IndexReader(
            self.objects,
            self._tail,
            verify=self._how.verify,
            wave_bytes=self._how.options.merge_gap,
            in_thread=self._row_groups.in_thread,
        )
