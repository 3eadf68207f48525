"""What type checkers and editors know of resilient_pq.sync; made by scripts/sync_stub.py."""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Unpack

from resilient_pq.arrow.to_python import Inexact
from resilient_pq.blocking import BlockingFile, BlockingReader, BlockingWriter
from resilient_pq.blocking_streams import BlockingBatches, BlockingResults
from resilient_pq.bulk.file_task import RunFile
from resilient_pq.bulk.many_files import RunProgress
from resilient_pq.dataset.file_listing import Source
from resilient_pq.dataset.summary.write_summary import Progress as WriteSummaryProgress
from resilient_pq.format.file_metadata import FileMetaData, OffsetIndex
from resilient_pq.io import ReadStore, WriteStore
from resilient_pq.io.resolve import Location
from resilient_pq.public_names import AccessDeniedError as AccessDeniedError
from resilient_pq.public_names import AlreadyExistsError as AlreadyExistsError
from resilient_pq.public_names import BucketNotFoundError as BucketNotFoundError
from resilient_pq.public_names import Checkpoint as Checkpoint
from resilient_pq.public_names import ChecksumError as ChecksumError
from resilient_pq.public_names import CodecUnavailableError as CodecUnavailableError
from resilient_pq.public_names import ColumnBloomFilter as ColumnBloomFilter
from resilient_pq.public_names import ColumnStatistics as ColumnStatistics
from resilient_pq.public_names import CompletedBy as CompletedBy
from resilient_pq.public_names import CompletedUpload as CompletedUpload
from resilient_pq.public_names import CredentialsExpiredError as CredentialsExpiredError
from resilient_pq.public_names import CutTimestampWarning as CutTimestampWarning
from resilient_pq.public_names import Damage as Damage
from resilient_pq.public_names import DatasetCheckpoint as DatasetCheckpoint
from resilient_pq.public_names import DatasetFile as DatasetFile
from resilient_pq.public_names import DecodedColumnIndex as DecodedColumnIndex
from resilient_pq.public_names import EncodingError as EncodingError
from resilient_pq.public_names import Fencing as Fencing
from resilient_pq.public_names import FetchCounters as FetchCounters
from resilient_pq.public_names import FileClosedError as FileClosedError
from resilient_pq.public_names import FileEntry as FileEntry
from resilient_pq.public_names import FileError as FileError
from resilient_pq.public_names import FileFullError as FileFullError
from resilient_pq.public_names import FileResult as FileResult
from resilient_pq.public_names import FileState as FileState
from resilient_pq.public_names import Finding as Finding
from resilient_pq.public_names import FollowOptions as FollowOptions
from resilient_pq.public_names import FormatError as FormatError
from resilient_pq.public_names import HealedChunk as HealedChunk
from resilient_pq.public_names import HealedFileWarning as HealedFileWarning
from resilient_pq.public_names import IncompleteFileWarning as IncompleteFileWarning
from resilient_pq.public_names import Kept as Kept
from resilient_pq.public_names import KnownCheckpoint as KnownCheckpoint
from resilient_pq.public_names import LostRegion as LostRegion
from resilient_pq.public_names import NotFoundError as NotFoundError
from resilient_pq.public_names import NotParquetError as NotParquetError
from resilient_pq.public_names import NothingToRecoverError as NothingToRecoverError
from resilient_pq.public_names import ObjectChangedError as ObjectChangedError
from resilient_pq.public_names import ObjectInfo as ObjectInfo
from resilient_pq.public_names import OtherPolicy as OtherPolicy
from resilient_pq.public_names import OutOfMemoryError as OutOfMemoryError
from resilient_pq.public_names import Outcome as Outcome
from resilient_pq.public_names import ParquetWriter as ParquetWriter
from resilient_pq.public_names import PlannedChunk as PlannedChunk
from resilient_pq.public_names import PlannedRead as PlannedRead
from resilient_pq.public_names import PlannedRequest as PlannedRequest
from resilient_pq.public_names import PlannedRowGroup as PlannedRowGroup
from resilient_pq.public_names import PreconditionError as PreconditionError
from resilient_pq.public_names import Protection as Protection
from resilient_pq.public_names import RangeError as RangeError
from resilient_pq.public_names import ReadOptions as ReadOptions
from resilient_pq.public_names import Records as Records
from resilient_pq.public_names import RecoveryError as RecoveryError
from resilient_pq.public_names import Repair as Repair
from resilient_pq.public_names import RepairError as RepairError
from resilient_pq.public_names import Report as Report
from resilient_pq.public_names import ResilientPQError as ResilientPQError
from resilient_pq.public_names import ResumeInfo as ResumeInfo
from resilient_pq.public_names import RetryPolicy as RetryPolicy
from resilient_pq.public_names import RowsLostError as RowsLostError
from resilient_pq.public_names import RunSummary as RunSummary
from resilient_pq.public_names import Scan as Scan
from resilient_pq.public_names import Schema as Schema
from resilient_pq.public_names import SchemaError as SchemaError
from resilient_pq.public_names import SortingColumn as SortingColumn
from resilient_pq.public_names import SourceError as SourceError
from resilient_pq.public_names import StoreError as StoreError
from resilient_pq.public_names import StoredState as StoredState
from resilient_pq.public_names import Table as Table
from resilient_pq.public_names import ThriftError as ThriftError
from resilient_pq.public_names import ThrottledError as ThrottledError
from resilient_pq.public_names import TornFileError as TornFileError
from resilient_pq.public_names import TransientError as TransientError
from resilient_pq.public_names import UnsupportedError as UnsupportedError
from resilient_pq.public_names import Upload as Upload
from resilient_pq.public_names import Where as Where
from resilient_pq.public_names import WriteOptions as WriteOptions
from resilient_pq.public_names import WriterClosedError as WriterClosedError
from resilient_pq.public_names import WriterFailedError as WriterFailedError
from resilient_pq.public_names import WriterFencedError as WriterFencedError
from resilient_pq.public_names import WriterStateError as WriterStateError
from resilient_pq.public_names import WrittenMetadata as WrittenMetadata
from resilient_pq.public_names import scan as scan
from resilient_pq.public_names import schema_from_arrow as schema_from_arrow
from resilient_pq.public_names import schema_to_arrow as schema_to_arrow
from resilient_pq.reader.healing import OnHealed
from resilient_pq.reader.read_options import OnLost
from resilient_pq.reader.read_plan import Filters, Strings
from resilient_pq.recovery.uploads.upload_completion import SuppliedMetadata
from resilient_pq.recovery.verification.findings import Progress
from resilient_pq.version import __version__ as __version__
from resilient_pq.writer.write_options import CreateKeywords, ResumeKeywords, StreamKeywords

Batches = BlockingBatches
FileResults = BlockingResults

class Dataset(BlockingReader):
    """Files of one schema that are open for reading together, in a fixed order; made by `open_many`.

    Attributes:
        files: The files, in the order of their rows. A summary of a folder is one file.
        counters: Requests made and bytes moved so far, of all files together, their opening included.
        folders: The columns that are in the names of folders; None where those are names alone.
    """

    counters: FetchCounters
    @property
    def arrow_schema(self) -> Any:
        """The Arrow schema of all files, with ``__arrow_c_schema__``; key-value metadata are those of the first.

        Columns that are in the names of folders come last.
        """
    def batches(
        self,
        batch_rows: int = 65_536,
        columns: Sequence[str] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        strings: Strings = "plain",
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
            Tables of at most `batch_rows` rows, to be taken by ``for``. Taking one raises what is listed
            below, but for SchemaError.

        Raises:
            SchemaError: As of `read`, or `batch_rows` is less than 1.
            FormatError: A file is damaged, and `open_many` was told to raise then; it names the file.
            ObjectChangedError: A file was replaced after it was opened.
            StoreError: A store could not give the bytes.
        """
    def close(self) -> None:
        """Let go of all files, and of the connections of their stores."""
    @property
    def num_row_groups(self) -> int:
        """Row groups of all files."""
    @property
    def num_rows(self) -> int:
        """Rows of all files, as their footers have them; where damaged ones are left out, fewer are read."""
    def read(
        self,
        columns: Sequence[str] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        strings: Strings = "plain",
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
    def records(
        self,
        columns: Sequence[str] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        inexact: Inexact = "raise",
    ) -> Generator[dict[str, Any]]:
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
    @property
    def urls(self) -> tuple[str, ...]:
        """What is being read, file by file."""

class DatasetWriter(BlockingWriter):
    """Writes the files of a data set from one stream of rows; made by `create_dataset` and by `resume_dataset`.

    Attributes:
        url: The folder of the data set.
    """

    url: str
    def abort(self) -> None:
        """End, and remove what is stored of the open files; those that were published stay.

        Raises:
            StoreError: The store refused for one of them; the others were removed.
        """
    def checkpoint(self) -> DatasetCheckpoint:
        """Write a checkpoint to every open file, and make all rows as durable as the store can.

        Returns:
            The rows before it, by partition. Its state is "stored" or "visible" when they survive this process; a
            store that cannot promise that yet says "accepted".

        Raises:
            StoreError: The store refused; the writer has failed.
            WriterFencedError: Another sink has taken over; this one has failed.
            WriterClosedError: The writer has ended.
            WriterFailedError: An earlier call failed.
        """
    def close(self) -> None:
        """Publish all open files.

        A writer that has failed publishes none of them, and ends here as it would at the end of ``with``.

        Raises:
            StoreError: The store refused; files that are in `files` were published.
            WriterFailedError: An earlier call failed; what is stored was kept or removed, as `on_error` says.
        """
    @property
    def closed(self) -> bool:
        """Whether the writer has ended, in whichever way."""
    @property
    def files(self) -> tuple[DatasetFile, ...]:
        """The files that were published, in that order; first those that `resume_dataset` completed."""
    @property
    def num_bytes_buffered(self) -> int:
        """About what the rows of all open row groups take in memory; between calls no more than `row_group_bytes`."""
    @property
    def num_open_files(self) -> int:
        """Files that are being written."""
    @property
    def num_rows(self) -> int:
        """Rows that `write` has taken, and those that were stored when the data set was resumed."""
    @property
    def num_rows_stored(self) -> int:
        """Rows that survive this process, of all partitions."""
    @property
    def num_rows_stored_by_partition(self) -> dict[str, int]:
        """The same of each partition, by its folder below the data set; always the first rows of each."""

class File(BlockingFile):
    """A Parquet file that is open for reading; made by `open`.

    Attributes:
        url: What is being read, as it may be shown: a URL without a user, and with a hash in the place of its query.
        info: Size and version of the object; every read is pinned to them.
        counters: Requests made and bytes moved so far, the opening included.
        objects: What the chunks lie in: the file itself, and the data files that a summary names.
    """

    lost_at_opening: tuple[LostRegion, ...]
    url: str
    info: ObjectInfo
    counters: FetchCounters
    @property
    def arrow_schema(self) -> Any:
        """The Arrow schema, with ``__arrow_c_schema__``."""
    def batches(
        self,
        batch_rows: int = 65_536,
        columns: Sequence[str] | None = None,
        row_groups: Sequence[int] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        strings: Strings = "plain",
    ) -> Batches:
        """Rows as a stream of tables, in order.

        While a row group is being handed out, those behind it are fetched and decoded: the next one in any case, and
        as many as stay within the `memory_budget` of `ReadOptions` together, in bytes requested and in rows that
        wait. Leaving the loop early cancels that; ``with file.batches() as batches`` has it happen there and
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
            Tables of at most `batch_rows` rows, to be taken by ``for``. Taking one raises what is listed
            below, but for SchemaError.

        Raises:
            SchemaError: As of `read`, or `batch_rows` is less than 1.
            FormatError: The file is damaged, and `open` was told to raise then; a `ChecksumError` names the page.
            ObjectChangedError: The object was replaced after it was opened.
            StoreError: The store could not give the bytes.
        """
    def bloom_filter(self, row_group: int, column: str | int) -> ColumnBloomFilter | None:
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
    @property
    def checkpoints(self) -> tuple[KnownCheckpoint, ...]:
        """The checkpoints of a resilient file, oldest first."""
    def close(self) -> None:
        """Let go of the store's connections, and of most of the memory that is kept for what is read next.

        What is known of the file stays; nothing more can be read. A second call does nothing.
        """
    def column_index(self, row_group: int, column: str | int) -> DecodedColumnIndex | None:
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
    def column_metadata(self, row_group: int, column: str | int) -> dict[str, str | None]:
        """The key-value metadata of a column chunk, without what only this library reads (``rpq.*``).

        Args:
            row_group: Ordinal of the row group.
            column: Path of the leaf column, with dots, or its ordinal among the leaves.

        Raises:
            SchemaError: There is no such row group or column.
            FormatError: The footer says nothing of the chunk.
        """
    @property
    def data_files(self) -> tuple[str, ...]:
        """The files that a summary names, relative to its folder; none where all rows are in this file."""
    @property
    def healed(self) -> tuple[HealedChunk, ...]:
        """The column chunks that were damaged, and that were read with the parity beside the file, so far."""
    @property
    def key_value_metadata(self) -> dict[str, str | None]:
        """Key-value metadata of the file."""
    @property
    def metadata(self) -> FileMetaData:
        """The footer's Thrift struct."""
    @property
    def num_row_groups(self) -> int:
        """Row groups of the file."""
    @property
    def num_rows(self) -> int:
        """Rows of the file, as its footer has them; where damaged ones are left out, fewer are read."""
    def offset_index(self, row_group: int, column: str | int) -> OffsetIndex | None:
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
    def plan(
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
    def read(
        self,
        columns: Sequence[str] | None = None,
        row_groups: Sequence[int] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        strings: Strings = "plain",
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
            strings: How text and binary columns come, wherever they are nested. ``plain``: as Arrow's string and
                binary, each column of a row group back to back in one buffer. ``view``: as string_view and
                binary_view, whose values of more than 12 bytes stay in the decompressed pages and are not copied:
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
    def records(
        self,
        columns: Sequence[str] | None = None,
        row_groups: Sequence[int] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        inexact: Inexact = "raise",
    ) -> Generator[dict[str, Any]]:
        """Rows one by one, in order, as dicts of Python values: ``for row in file.records()``.

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
    @property
    def schema(self) -> Schema:
        """The Parquet schema."""
    @property
    def sorting_columns(self) -> tuple[SortingColumn, ...]:
        """The order in which the rows of every row group are, as far as the file says so; others do not check it."""
    @property
    def state(self) -> FileState | None:
        """What a resilient file says of itself: complete, in-progress or salvaged; None for files of others."""
    def statistics(self, row_group: int, column: str | int) -> ColumnStatistics:
        """What the footer says of the values of a column chunk, as far as its writer can be trusted.

        Args:
            row_group: Ordinal of the row group.
            column: Path of the leaf column, with dots, or its ordinal among the leaves.

        Raises:
            SchemaError: There is no such row group or column.
            FormatError: The footer says nothing of the chunk.
        """

class TrevniFile(BlockingReader):
    """A Trevni file that is open for reading; made by `open_trevni`.

    Attributes:
        url: What is read.
    """

    url: str
    def batches(
        self,
        batch_rows: int = ...,
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
    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
    @property
    def metadata(self) -> dict[str, bytes]:
        """The metadata of the file: ``avro.schema`` and others."""
    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd about the file, and costs no rows."""
    @property
    def num_rows(self) -> int:
        """Number of rows."""
    def read(self, columns: Sequence[str] | None = None, *, offset: int = 0, limit: int | None = None) -> Table:
        """Rows as a table; the arguments and errors are those of `batches`."""
    @property
    def schema(self) -> Schema:
        """Its records as a Parquet schema, which is what `convert` writes."""

class Writer(BlockingWriter):
    """Writes one resilient Parquet file; made by `create` and by `resume`.

    Attributes:
        url: What is being written.
    """

    url: str
    def abort(self) -> None:
        """End without publishing anything, and remove what was stored."""
    def add_key_value_metadata(self, metadata: Mapping[str, str]) -> None:
        """Add key-value metadata to the final footer; keys that are there are replaced.

        Raises:
            SchemaError: A key or a value is no text, or the key is the writer's own.
            WriterClosedError: The writer has ended.
        """
    def checkpoint(self) -> Checkpoint:
        """Close the row group, write a checkpoint, and make it as durable as the store can.

        Returns:
            The checkpoint. Its state is "stored" when the rows before it survive this process; a store that
            cannot promise that yet says "accepted".

        Raises:
            StoreError: The store refused; the writer has failed.
            WriterClosedError: The writer has ended.
            WriterFailedError: An earlier call failed.
        """
    def close(self) -> None:
        """Write what is left and publish the object; nothing was visible under its name before.

        A writer that has failed publishes nothing, and ends here as it would at the end of ``with``.

        Raises:
            SchemaError: Nothing was written and no schema was given.
            StoreError: The store refused; nothing was published.
            WriterFailedError: An earlier call failed; nothing is published, and what is stored was kept or removed, as
                `on_error` says.
        """
    @property
    def closed(self) -> bool:
        """Whether the writer has ended, in whichever way."""
    @property
    def fencing(self) -> Fencing:
        """What keeps another writer of the file from being told that its rows are stored.

        "lock" for a local file, "lease" on S3. "advisory" where the store heeds no conditions of PUTs, which is known
        when the first part is sent, and logged; "none" where `create` was told so, or where the store keeps nothing of
        what is unfinished.
        """
    def flush(self) -> None:
        """Close the open row group before it is full, and give it to the store: its rows take no more memory.

        No checkpoint is written for it; many small row groups cost every reader more than they free.

        Raises:
            StoreError: The store refused; the writer has failed.
            WriterClosedError: The writer has ended.
            WriterFailedError: An earlier call failed.
        """
    @property
    def last_checkpoint(self) -> Checkpoint:
        """The newest checkpoint that is stored, automatic ones included; until one is, the newest that was accepted.

        Its state and its ordinal never go back while the writer lives. Ordinal 0 before the first.
        """
    @property
    def num_bytes(self) -> int:
        """Bytes of the file so far; rows of the open row group are not among them."""
    @property
    def num_bytes_buffered(self) -> int:
        """About what the rows of the open row group take in memory; `flush` lets them go."""
    @property
    def num_bytes_resent(self) -> int:
        """Bytes that durable checkpoints caused to be sent again to a store of parts, retries not counted."""
    @property
    def num_rows(self) -> int:
        """Rows that `write` has taken, and those that were in place when the file was resumed."""
    @property
    def num_rows_stored(self) -> int:
        """Rows that survive this process: those of the row groups that the store has for good."""
    @property
    def schema(self) -> Schema | None:
        """The schema, None until it is known from the first batch."""

def abort_upload(
    url: Location,
    *,
    upload_id: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> str:
    """Drop an upload that was left open, and all its parts: what it holds is lost.

    Args:
        url: The object that was being written.
        upload_id: Which upload; may be left out when there is one only.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Returns:
        The id of the upload that was dropped.

    Raises:
        NotFoundError: No such upload is open for this object.
        RecoveryError: Several uploads are open and none was named.
        UnsupportedError: The store has no uploads.
        StoreError: The store refused.
    """

def check(
    url: Location,
    *,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    require_checksums: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Read an object and say what is wrong with it; nothing is written.

    Of a summary the chunks and indexes that it names are read, in the files that they lie in; of what else stands
    in those files, their own check tells.

    Args:
        url: A URL, a path, or a pair of a store and a key in it.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        require_checksums: Count pages without a checksum as damage: a file that has such pages is not "sound".
        progress: Called now and then with the bytes examined and the bytes there are.

    Returns:
        The report: its outcome is "sound", "incomplete", "damaged", or "nothing" when no row can be had. Pages without
        a checksum are only decoded: how many these are stands beside it, and a changed value in them is not seen.

    Raises:
        UnsupportedError: The file is whole, but this version cannot read it.
        StoreError: The object is not there, or the store could not give its bytes.
    """

def check_many(
    urls: Location | Sequence[Location],
    *,
    max_files: int = ...,
    resume: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    require_checksums: bool = False,
    progress: RunProgress | None = None,
    run: RunFile = ...,
) -> FileResults:
    """Check the files of a folder, as `check` does each; nothing is written.

    Args:
        urls: A folder or a prefix, which means its ``*.parquet`` files at any depth and the ``*.parquet.partial`` of
            dead writers; a pattern such as ``s3://bucket/events/**/*.parquet``; a file; or a list of such, in which a
            prefix ends with a slash. What several of a list mean is looked at once. Below folders names that begin with
            ``.`` or ``_`` are passed over.
        max_files: Files that are looked at at one time; fewer of large ones, so that memory stays bounded.
        resume: A journal. What it says is done and unchanged is not done again; it is made where it is missing. Errors
            are tried again.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        require_checksums: Count pages without a checksum as damage, as `check` does.
        progress: Called after each file with what was counted so far.
        run: How one file is done, see `resilient_pq.bulk.many_files`.

    Returns:
        An iterator of a `FileResult` for each file, in the order in which they are done, and its
        `FileResults.summary`. Errors that concern a file are in its result. To be used with ``with`` where it
        may be left early.

    Raises:
        SchemaError: `urls` names nothing, or `max_files` is below 1.
        NotFoundError: When the first result is asked for: there is no such file in the folder.
        RecoveryError: The same; the journal is of another run.
        StoreError: A store could not list.
    """

def complete_upload(
    url: Location,
    *,
    upload_id: str | None = None,
    overwrite: bool = False,
    gap_free: bool = False,
    metadata: SuppliedMetadata | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> CompletedUpload:
    """Complete the upload that a writer left open.

    An upload of ours becomes a Parquet file with every row that was stored. Of any other, which the sizes of its parts
    tell, all parts up to the first that is missing are taken, and `recover` is the next thing to do; or `metadata`
    tell what lies in them, and it becomes a Parquet file at once. Parts that are not taken are gone then.

    Args:
        url: The object that was being written.
        upload_id: Which upload, when several are open for this object.
        overwrite: Replace the object that is at `url`; that very version, where the store can tell.
        gap_free: Take all parts up to the first that is missing, for an upload known to be another's, although the
            sizes of its parts might be ours.
        metadata: Of the file that was being written, or of the same file written once more: the bytes, path or URL of
            a file whose footer counts, such as one of `pyarrow.parquet.write_metadata`, or pyarrow's FileMetaData
            itself. A footer of the row groups that lie in the gap-free parts is sent behind them as one more part; a
            part of that number is replaced, if it is too small to stand before another.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        NotFoundError: No such upload is open for this object.
        AlreadyExistsError: There is an object at `url`, and `overwrite` is False; or one came meanwhile.
        NothingToRecoverError: There is no part 1, or no row group of `metadata` lies in the parts.
        RecoveryError: Several uploads are open and none was named; or the parts changed meanwhile, since the writer
            is alive; or `metadata` are not of such a file.
        FormatError: `metadata` are damaged.
        WriterFencedError: Somebody else resumes or completes it at this moment.
        UnsupportedError: The store has no uploads, or `metadata` speak of encrypted columns.
        StoreError: The store refused.
    """

def convert(
    src: str | os.PathLike[str] | tuple[ReadStore, str],
    dst: str | os.PathLike[str] | tuple[WriteStore, str],
    *,
    columns: Sequence[str] | None = None,
    schema: Schema | str | None = None,
    on_damage: Literal["drop", "null", "raise"] = "drop",
    verify: bool = True,
    overwrite: bool = False,
    read_options: ReadOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Progress | None = None,
    **options_given: Unpack[StreamKeywords],
) -> Report:
    """Write the rows of a Trevni file, Parquet's ancestor, to a resilient Parquet file.

    Rows are streamed: blocks are read by byte range, a batch of rows at a time, and what is on its way is bounded by
    `ReadOptions.memory_budget` and the row group, or by one block of each column where these are larger. The schema is
    the one that the file has in its metadata, or what the names and levels of its columns tell; its own metadata go
    into the footer's, under their own keys. Where the file has no checksums nothing tells changed values from others.

    Args:
        src: The Trevni file: a URL, a path, or a pair of a store and a key in it. It is only read.
        dst: Where the Parquet file goes.
        columns: Names of the top-level columns wanted, in their order; None is all.
        schema: A Parquet schema, or its text, of the same columns in the same order, for files with definition and
            repetition levels whose nesting these leave open.
        on_damage: What is done with rows of which a value is lost, in a block that is damaged or cut off: "drop" leaves
            them out, in every column; "null" makes columns that may be null null in them; "raise" writes nothing.
        verify: Compare every checksum that the file has.
        overwrite: Replace an object that is at `dst`.
        compression: "zstd", "snappy", "gzip", "brotli", "lz4_raw" or "none".
        compression_level: The codec's level; None is its default (zstd 3, gzip 2, brotli 4).
        row_group_rows: Rows after which a row group is closed; None leaves it to `row_group_bytes`.
        row_group_bytes: Bytes in memory after which a row group is closed.
        checkpoint_every: Row groups between automatic checkpoints, at least, though a complete row group does not wait
            for more than a minute; None for none.
        checkpoint_overhead: Share of the bytes written that automatic checkpoints may take.
        max_unstored_seconds: Seconds after which a row that was taken is stored, so that it survives a kill of this
            process, and on local disks a loss of power; None for no such bound. A timer sees to it when nothing more is
            written. Where rows come slowly this makes small row groups, and on S3 sends the last part again and
            writes a checkpoint each time, whatever `checkpoint_overhead` says. Rows are late where the store does not
            answer, which the log tells, and are stored at the end only where a store takes whole objects alone.
        options: The less common settings.
        read_options: How to read.
        storage_options: Credentials, endpoint and so on for `src`, as fsspec and pandas take them.
        dst_storage_options: The same for `dst`; None means those of `src`.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s for
            reading, and 120 s for writing.
        progress: Called now and then with the rows that are done and those that there are.

    Returns:
        The report: its outcome is "sound" (all rows are there), "recovered" (all rows, though something is odd), or
        "partial" (rows or values are lost).

    Raises:
        NothingToRecoverError: Not one row can be kept; nothing was written.
        RowsLostError: Rows or values are lost, and `on_damage` is "raise"; nothing was written.
        RecoveryError: `src` and `dst` are the same object.
        AlreadyExistsError: There is an object at `dst`, and `overwrite` is False.
        SchemaError: There is no such column or `on_damage`; `schema` is not that of the file, or it needs one.
        FormatError: `src` is no Trevni file.
        StoreError: A store refused; nothing was published.
    """

def create(
    url: str | os.PathLike[str] | tuple[WriteStore, str],
    schema: object | None = None,
    *,
    mode: Literal["w", "x"] = "w",
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[CreateKeywords],
) -> Writer:
    """Begin a resilient Parquet file.

    Use it as ``with rpq.create(url) as writer``. The object appears under its name when the block ends
    without an exception, and not before.

    Args:
        url: A URL ("s3://bucket/key", any fsspec URL), a path, or a pair of a store and a key in it.
        schema: Anything with ``__arrow_c_schema__``, or a `Schema`: of `Schema.parse`, or of another file. A
            `Schema` is written as it is, with its repeated fields, its annotations and its carriers of decimals;
            a record that leaves a repeated field out has no elements of it. None takes the schema from the first
            batch.
        mode: "w" replaces an object of this name when the file is complete, "x" fails if there is one.
        compression: "zstd", "snappy", "gzip", "brotli", "lz4_raw" or "none".
        compression_level: The codec's level; None is its default (zstd 3, gzip 2, brotli 4).
        encodings: "auto", for the smallest of those that every reader decodes, where a text column has dictionaries in
            all row groups or in none, as its first values suggest: fastparquet reads nulls where a file has both;
            "compact", for the smallest of each row group of those that other readers of recent years decode, which
            floating point gains most by; one encoding for all columns
            ("PLAIN", "RLE_DICTIONARY"), or a dict by column.
        row_group_rows: Rows after which a row group is closed; None leaves it to `row_group_bytes`.
        row_group_bytes: Bytes in memory after which a row group is closed.
        page_bytes: Bytes after which a data page is cut at the next row: of dictionary indices, else of values as
            PLAIN has them, both before compression.
        checkpoint_every: Row groups between automatic checkpoints, at least, though a complete row group does not wait
            for more than a minute; None for none.
        checkpoint_overhead: Share of the bytes written that automatic checkpoints may take.
        max_unstored_seconds: Seconds after which a row that was taken is stored, so that it survives a kill of this
            process, and on local disks a loss of power; None for no such bound. A timer sees to it when nothing more is
            written. Where rows come slowly this makes small row groups, and on S3 sends the last part again and
            writes a checkpoint each time, whatever `checkpoint_overhead` says. Rows are late where the store does not
            answer, which the log tells, and are stored at the end only where a store takes whole objects alone.
        on_error: What becomes of stored rows after an exception: "keep" them for a recovery, or "abort".
        metadata: Key-value metadata for the footer.
        fencing: What keeps another writer from being told that its rows of this file are stored, on S3: "lease", an
            epoch object ``_NAME.rpq-epoch`` beside the object while an upload is open; or "none": then two who go on
            with the file at one time may both be told so, a writer that was taken for dead may be told so of rows that
            are lost, and a file smaller than a part cannot be resumed twice without a word. `Writer.fencing` says what
            the store can keep of it.
        options: The less common settings.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range.
        StoreError: On entering: the store refuses.
    """

def create_dataset(
    dst: str | os.PathLike[str] | tuple[WriteStore, str],
    schema: object | None = None,
    *,
    partition_by: Sequence[str] | str | None = None,
    roll_rows: int | None = None,
    roll_bytes: int | None = None,
    roll_seconds: float | None = None,
    name: str = "part",
    max_open: int = ...,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[CreateKeywords],
) -> DatasetWriter:
    """Begin to write a data set from one stream of rows: files in a folder, each published when it is full.

    Use it as ``with rpq.create_dataset(folder, roll_rows=1_000_000) as writer``. Files are called
    ``{column=value/...}{name}-{sequence:08d}.parquet``; each appears under its name when it is complete, and nothing is
    ever replaced. A partition has one open file at a time, so what is stored of it is always its first rows.

    Args:
        dst: The folder: a URL, a path, or a pair of a store and a key in it. Local folders are made.
        schema: As of `create`, with the columns of `partition_by`; None takes it from the first batch.
        partition_by: Columns whose values become folders, as Hive, Arrow, Spark, DuckDB and Polars read them, in this
            order: integers, texts, dates or booleans. They are not in the files.
        roll_rows: Rows of a file, exactly.
        roll_bytes: Bytes of a file, about: how well rows compress is told from those before them.
        roll_seconds: Seconds after the first row of a file was written; a timer sees to it when nothing more is.
        name: What the files are called. Of several writers to one data set each has its own.
        max_open: Files that may be open at one time. Where rows come for one partition more, the file that was
            written least recently is completed early: too few make many small files. Memory is bounded by
            `row_group_bytes`, which the open row groups of all share (the largest is closed when it is used up), and on
            S3 by three parts of each open file.
        compression: "zstd", "snappy", "gzip", "brotli", "lz4_raw" or "none".
        compression_level: The codec's level; None is its default (zstd 3, gzip 2, brotli 4).
        encodings: "auto", for the smallest of those that every reader decodes, where a text column has dictionaries in
            all row groups or in none, as its first values suggest: fastparquet reads nulls where a file has both;
            "compact", for the smallest of each row group of those that other readers of recent years decode, which
            floating point gains most by; one encoding for all columns
            ("PLAIN", "RLE_DICTIONARY"), or a dict by column.
        row_group_rows: Rows after which a row group is closed; None leaves it to `row_group_bytes`.
        page_bytes: Bytes after which a data page is cut at the next row: of dictionary indices, else of values as
            PLAIN has them, both before compression.
        checkpoint_every: Row groups between automatic checkpoints, at least, though a complete row group does not wait
            for more than a minute; None for none.
        checkpoint_overhead: Share of the bytes written that automatic checkpoints may take.
        row_group_bytes: Bytes in memory after which a row group is closed, and that all open ones share.
        max_unstored_seconds: Seconds after which a row that was taken is stored, in each open file; None for no such
            bound.
        on_error: What becomes of the stored rows of open files after an exception: "keep" them for `resume_dataset`,
            or "abort". Published files stay in any case.
        metadata: Key-value metadata for the footer of each file.
        fencing: "lease" or "none", as of `create`, for each file; with "none" a small one is a single request on S3,
            and nine otherwise.
        options: The less common settings. `checkpoint_log` and `overwrite_partial` are of single files;
            `max_bytes_in_flight` is shared by the open files where there are partitions.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range; or on entering, a column of `partition_by` is none that can be.
        AlreadyExistsError: On entering: there are files of this name.
        StoreError: On entering: the store refuses.
    """

def create_or_resume(
    url: str | os.PathLike[str] | tuple[WriteStore, str],
    schema: object | None = None,
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[CreateKeywords],
) -> Writer:
    """Begin a file, or go on with it where an earlier writer left it: one call for the first start and for every other.

    Use it as ``with rpq.create_or_resume(url) as writer``. The first ``writer.num_rows_stored`` rows are in the
    file already, none of a new one: the source goes on with the row after them. However often it is killed and called
    again, each row that was ever said to be stored is in the file once.

    Of several programs that call it for one file the newest wins: it takes the file over, and the others raise
    `WriterFencedError`. A program that is restarted after that error takes the file back, so two of them would do so
    without end: a supervisor restarts a program after every other failure, and ends it after this one.

    Args:
        url: As of `create`.
        schema: As of `create`, for a new file; one that is gone on with keeps its own.
        overwrite: Replace another object of this name, complete or not ours: when the new file is complete, or at once
            where an upload has to be completed to be gone on with. Locally it also replaces a ``NAME.partial`` in which
            nothing is whole.
        compression: "zstd", "snappy", "gzip", "brotli", "lz4_raw" or "none".
        compression_level: The codec's level; None is its default (zstd 3, gzip 2, brotli 4).
        encodings: "auto", for the smallest of those that every reader decodes, where a text column has dictionaries in
            all row groups or in none, as its first values suggest: fastparquet reads nulls where a file has both;
            "compact", for the smallest of each row group of those that other readers of recent years decode, which
            floating point gains most by; one encoding for all columns
            ("PLAIN", "RLE_DICTIONARY"), or a dict by column.
        row_group_rows: Rows after which a row group is closed; None leaves it to `row_group_bytes`.
        row_group_bytes: Bytes in memory after which a row group is closed.
        page_bytes: Bytes after which a data page is cut at the next row: of dictionary indices, else of values as
            PLAIN has them, both before compression.
        checkpoint_every: Row groups between automatic checkpoints, at least, though a complete row group does not wait
            for more than a minute; None for none.
        checkpoint_overhead: Share of the bytes written that automatic checkpoints may take.
        max_unstored_seconds: Seconds after which a row that was taken is stored, so that it survives a kill of this
            process, and on local disks a loss of power; None for no such bound. A timer sees to it when nothing more is
            written. Where rows come slowly this makes small row groups, and on S3 sends the last part again and
            writes a checkpoint each time, whatever `checkpoint_overhead` says. Rows are late where the store does not
            answer, which the log tells, and are stored at the end only where a store takes whole objects alone.
        on_error: What becomes of stored rows after an exception: "keep" them for a recovery, or "abort".
        fencing: What keeps another writer from being told that its rows of this file are stored, on S3: "lease", an
            epoch object ``_NAME.rpq-epoch`` beside the object while an upload is open; or "none": then two who go on
            with the file at one time may both be told so, a writer that was taken for dead may be told so of rows that
            are lost, and a file smaller than a part cannot be resumed twice without a word. `Writer.fencing` says what
            the store can keep of it.
        options: The less common settings.
        metadata: Key-value metadata for the footer of a new file.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range, or names a column that the file does not have.
        AlreadyExistsError: On entering, as all that follow: a complete file has this name, or another object, and
            `overwrite` is False; or a living writer holds the local file.
        WriterFencedError: Somebody else begins or resumes the file at this moment; also raised by every later call of
            a writer whose file somebody else has gone on with, or has completed.
        ObjectChangedError: Somebody else has written the object meanwhile, without the lease.
        RecoveryError: What was left is damaged; or, of writers without a lease, several uploads are open.
        StoreError: The store refuses.
    """

def list_uploads(
    url: Location,
    *,
    older_than: timedelta | None = None,
    log: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> list[Upload]:
    """The uploads that were left open below a URL, oldest first.

    Args:
        url: "s3://bucket", "s3://bucket/prefix", or a pair of a store and a prefix: everything counts whose name
            begins with it, as with S3 itself.
        older_than: Only those that were begun so long ago, or longer, by the clocks of the store and of this machine;
            those whose age the store does not tell are left out.
        log: The log that the writer kept of its checkpoints (`WriteOptions.checkpoint_log`), for `Upload.num_rows`.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.

    Raises:
        UnsupportedError: The store has no uploads.
        NotFoundError: There is no such bucket, or no such log.
        FormatError: `log` is no log.
        StoreError: The store refused.
    """

def open(
    url: str | os.PathLike[str] | tuple[ReadStore, str],
    *,
    verify: bool = True,
    on_damage: Literal["raise", "null", "drop"] = "raise",
    on_lost: OnLost | None = None,
    heal: bool = True,
    on_healed: OnHealed | None = None,
    options: ReadOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    follow: bool | FollowOptions = False,
) -> File:
    """Open a Parquet file, ours or anyone's, for reading columns by byte range.

    A summary of a folder (``_metadata``) reads as one file with the rows of all files that it names; they are
    found by its place. Values that stand only in the names of folders (``day=1/``) are no columns of it.

    Use it as ``with rpq.open(url) as file``.

    Args:
        url: A URL ("s3://bucket/key", any fsspec URL), a path, or a pair of a store and a key in it.
        verify: Compare every checksum that the file has.
        on_damage: What is done with rows of which a value is lost, because its page is damaged and nothing else has
            its bytes. "raise" raises the error. "drop" leaves them out, in all columns that are read: other
            `columns=` may give other rows. "null" gives null, so that the columns that may be null keep one row for
            each row of the file; rows are left out where a required column, or one that is a list by repetition
            alone, has lost its value. What is whole costs nothing more than with "raise". With "drop" and "null" a
            file whose footer is missing or damaged is searched for its row groups, and those of which all columns are
            there are read; an IncompleteFileWarning says how many rows these have.
        on_lost: Called with each `LostRegion` when rows are left out or become null, before these rows are given: by
            `File.batches` before the first batch of their row group, by `File.read` when all is read; row group by
            row group, in the order of the bytes. What is read twice is told twice. What a torn file lost between and
            behind its row groups is told once, when it is opened. It is called in the event loop
            (in `resilient_pq.sync` in a thread of ours), so it must not block, and what it raises ends the reading.
        heal: Rebuild damaged bytes from the sidecar beside the file, where `protect` made one. Nothing is read of it
            before something is damaged twice; the first time is told with a `HealedFileWarning`.
        on_healed: Called with each `HealedChunk`, in the event loop as `on_lost`.
        options: How to read.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        follow: For a local file that a writer of ours is writing, under the name that it will have: `File.batches`
            gives the rows of each checkpoint as it appears, and ends when the file is complete. `FollowOptions` say
            how often to look. When the writer ends without completing the file, that is a TornFileError, after the
            rows of its last checkpoint. All else of the file is as of the newest checkpoint that was found. A
            complete file is read as ever.

    Raises:
        SchemaError: `options` are none, `on_lost` cannot be called, or there is no such `on_damage`.
        NotFoundError: On entering: no such object.
        NotParquetError: On entering: the object is no Parquet file.
        TornFileError: On entering: its footer is missing or cut short, and `on_damage` is "raise", or the file does not
            name its columns elsewhere; `recover` may help.
        UnsupportedError: On entering: `follow`, and the store shows no object before it is complete.
        FormatError: On entering: its footer is damaged; `recover` may help.
    """

def open_many(
    urls: Source | Sequence[Source],
    *,
    verify: bool = True,
    on_damage: Literal["raise", "null", "drop"] = "raise",
    on_lost: OnLost | None = None,
    partitioning: object | None = None,
    filters: Filters | None = None,
    options: ReadOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> Dataset:
    """Open several Parquet files of one schema, to be read as one.

    Their footers are read side by side. Rows come in the order of the files: as listed, or by name where they are found
    by a pattern or in a folder. Use it as ``with rpq.open_many(urls) as dataset``.

    Values that stand only in the names of folders (``day=1/``) are columns where `partitioning` says so.

    Args:
        urls: One of these. A list of files, each a URL, a path, or a pair of a store and a key in it. A pattern such as
            "s3://bucket/2026/*.parquet", in which ``*`` and ``?`` stand for characters of one part of a name, ``[...]``
            for one of some, and ``**`` for any number of folders. A folder, with every ``*.parquet`` file below it at
            any depth; where it has a summary, ``_metadata``, that says which row groups there are, and no other footer
            is read. In patterns and folders, files and folders whose names begin with ``_`` or ``.`` are passed over.
        verify: As of `open`.
        on_damage: As of `open`. With "drop" and "null" a file of which nothing can be read is left out, too, with an
            IncompleteFileWarning, unless it is the only one.
        on_lost: As of `open`; the `where` of a region names its file.
        partitioning: "hive" takes the names of folders such as ``day=1/country=FR`` for columns, which come behind
            those of the files; integers where all values are, else text. An Arrow schema of these columns says their
            types instead. Folders of `urls` itself do not count. None takes them for names alone.
        filters: With `partitioning`, as of `Dataset.read`: files are left out, and not opened, whose folders say that
            no row of theirs is wanted. To choose rows, tell `read` too.
        options: How to read; `memory_budget`, `max_requests` and `max_threads` hold for all files together.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them; for all files.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.

    Raises:
        SchemaError: An argument is wrong. On entering: the schemas of two files differ; it names both, and the column.
        NotFoundError: On entering: a file is missing, the folder has none, or none matches the pattern.
        FormatError: On entering: the footer of a file is missing or damaged; it names the file.
        UnsupportedError: On entering: a store cannot list what is in a folder.

    Warns:
        IncompleteFileWarning: A file is a checkpoint of a writer that never finished, or what a recovery could keep
            of one.
    """

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
) -> TrevniFile:
    """Open a Trevni file, Parquet's ancestor, of Avro's dialect or of the draft that Impala followed.

    Use it as ``with rpq.open_trevni(url) as file``. The records have the schema that the file has in its metadata
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

def protect(
    src: Location | list[Location],
    dst: Location | None = None,
    *,
    parity: float | str = "5%",
    checksums_only: bool = False,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Protection:
    """Write a sidecar from which damaged bytes of a file can be rebuilt; the file itself is only read.

    Any file can be protected, of whatever writer and format. `repair` rebuilds it.

    Args:
        src: A URL, a path, or a pair of a store and a key in it. A list of files in one folder gets one sidecar: from
            it also a missing file is rebuilt when it has at most `Protection.burst_bytes`.
        dst: The sidecar; None is ``NAME.rpqparity`` beside the file, or ``_folder.rpqparity`` beside files.
        parity: Bytes of parity for each byte: 0.05 or "5%". Small files get more.
        checksums_only: Checksums of blocks of 4 KiB without parity: damage is found, and not repaired.
        overwrite: Replace a sidecar that is there.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        progress: Called now and then with the bytes read and the bytes there are.

    Raises:
        SchemaError: `parity` is out of range, or there is no file to protect.
        AlreadyExistsError: The sidecar exists.
        ObjectChangedError: A file was replaced meanwhile.
        StoreError: A file is not there, or the store could not give or take bytes.
    """

def read(
    url: str | os.PathLike[str] | tuple[ReadStore, str],
    columns: Sequence[str] | None = None,
    *,
    filters: Filters | None = None,
    limit: int | None = None,
    strings: Strings = "plain",
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options: Any,
) -> Table:
    """Rows of a Parquet file as a table, which every Arrow library takes: ``pandas.DataFrame(table.to_pydict())``.

    Args:
        url: A URL, a path, or a pair of a store and a key in it.
        columns: As of `File.read`, like `filters`, `limit` and `strings`.
        filters: Which rows.
        limit: Rows at most.
        strings: How text and binary columns come.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        **options: Further arguments of `open`, such as ``on_damage="drop"``.

    Raises:
        NotFoundError: No such object.
        FormatError: The file is damaged; `recover` may help.
        SchemaError: There is no such column, or an argument has a value that it cannot have.
        StoreError: The store could not give the bytes.
    """

def recover(
    src: Location | Sequence[Location],
    dst: Location,
    *,
    on_damage: Literal["drop", "null", "columns", "raise"] = "drop",
    schema: object | None = None,
    schema_from: Location | None = None,
    repair_bits: bool = False,
    keep_unplaced: bool = False,
    file_id: str | None = None,
    verify: bool = False,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Progress | None = None,
) -> Report:
    """Write the rows of a damaged file that are whole to a new object.

    Row groups that are whole are copied as bytes, never decoded and encoded again. Of the others the pages that are
    whole are kept. A sound file is copied as it is.

    Args:
        src: The damaged object: a URL, a path, or a pair of a store and a key in it. It is only read. A list of
            copies of one file (replicas, versions of an object) takes each page from whichever has it whole.
        dst: Where the output goes; never the source itself.
        on_damage: What is done with rows of which a value is lost. "drop" leaves them out, in every column. "null"
            makes columns that may be null null in them. "columns" writes an output for each column, with the rows
            that it has left and their numbers: day.NAME.parquet for a `dst` of day.parquet. "raise" refuses to
            write anything.
        schema: The columns, for a file whose footer is gone and that has no records: a Parquet schema or its text, an
            Arrow schema, or Arrow data. Where neither this nor `schema_from` is given, columns of the physical types
            are made up, with a warning.
        schema_from: Another file of the same columns, of which the footer is read.
        repair_bits: Turn single bits back where that makes the CRC32 of a page hold, and the page decodes, counts and
            statistics agree. Rarely, other damage looks like a single bit: for a page of a MiB once in 512 times.
        keep_unplaced: Keep pages also where only their own CRC32 holds and nothing proves their place: neither the
            checksum of the chunk, nor a copy of the header, nor an index. They may be of another column, of another row
            group or of an older version of the file; the ledger marks them as "unplaced".
        file_id: 32 hexadecimal digits: which file is meant where records of several were found, as one within a column
            of another; a finding names them. None for the one that the anchor names, else for the outermost.
        verify: Whether also those bytes are read and compared that a store could copy by itself: the beginning of a
            file that is torn, when the output goes to the same store. All others always are.
        overwrite: Replace an object that is at `dst`.
        storage_options: Credentials, endpoint and so on for `src`, as fsspec and pandas take them.
        dst_storage_options: The same for `dst`; None means those of `src`.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s for
            reading, and 120 s for writing.
        progress: Called now and then with the bytes examined and the bytes there are.

    Returns:
        The report: its outcome is "sound", "recovered" (all rows are kept, and nothing can have followed) or "partial".

    Raises:
        NothingToRecoverError: Not one row can be kept; nothing was written. Its report names the schema when the
            anchor is whole.
        RecoveryError: `src` and `dst` are the same object, `src` is a summary of other files, or copies are not of
            one file.
        RowsLostError: Rows or values are lost, and `on_damage` is "raise"; nothing was written.
        AlreadyExistsError: There is an object at `dst`, and `overwrite` is False.
        SchemaError: There is no such `on_damage`, or `file_id` is none.
        StoreError: A store refused; nothing was published.
    """

def recover_many(
    src: Location | Sequence[Location],
    dst: Location,
    *,
    only_damaged: bool = False,
    on_damage: Literal["drop", "null", "columns", "raise"] = "drop",
    schema: object | None = None,
    schema_from: Location | None = None,
    repair_bits: bool = False,
    keep_unplaced: bool = False,
    verify: bool = False,
    overwrite: bool = False,
    max_files: int = ...,
    resume: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: RunProgress | None = None,
    run: RunFile = ...,
) -> FileResults:
    """Recover the files of a folder into another one, as `recover` does each; the tree of folders stays.

    Sound files are copied as they are, by the store itself where it can. A file that does not tell its schema gets that
    of a file listed near it, of its own folder first, if its pages fit; `Report.schema_from` says of which.

    Args:
        src: As `urls` of `check_many`, but a list is one of files, whose outputs lie side by side. Of a pattern the
            folder before its first ``*`` is the top of the tree.
        dst: The folder of the outputs. Neither `src` itself, nor below it; nor above it, but for one file and for
            a pattern without folders in it.
        only_damaged: Write nothing of sound files.
        on_damage: As of `recover`.
        schema: As of `recover`, for all files that do not tell theirs; others near them are not asked then.
        schema_from: The same.
        repair_bits: As of `recover`.
        keep_unplaced: As of `recover`.
        verify: As of `recover`.
        overwrite: Replace outputs that are there.
        max_files: Files under way at one time; fewer of large ones, so that memory stays bounded.
        resume: A journal, as of `check_many`. Outputs that it tells of are no obstacle.
        storage_options: Credentials, endpoint and so on for `src`.
        dst_storage_options: The same for `dst`; None means those of `src`.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.
        progress: Called after each file with what was counted so far.
        run: How one file is done, see `resilient_pq.bulk.many_files`.

    Returns:
        As of `check_many`. The output of ``NAME.parquet.partial`` is ``NAME.parquet``; where both are there, and in a
        list where two files have one name, only one is done and the other is an error.

    Raises:
        SchemaError: `src` names nothing, `max_files` is below 1, or there is no such `on_damage`.
        RecoveryError: `dst` is `src`, or below or above it; when the first result is asked for, the journal is of
            another run.
        NotFoundError: When the first result is asked for: there is no such file in the folder.
        StoreError: A store could not list.
    """

def repair(
    src: Location,
    dst: Location | None = None,
    *,
    sidecar: Location | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Repair:
    """Write a protected file anew, bit for bit as it was when its sidecar was made.

    Nothing is written unless every byte is proven: by the checksum of its block, of its group, and of the whole file.

    Args:
        src: The damaged file, which may also be missing: a URL, a path, or a pair of a store and a key in it.
        dst: Where the whole file is written; None with `in_place`.
        sidecar: The sidecar that `protect` made; None is ``NAME.rpqparity`` beside `src`, or ``_folder.rpqparity``.
        in_place: Write the rebuilt blocks into the damaged file, which has to be a local one whose bytes lie in their
            places. Where this is interrupted, the next repair carries on.
        overwrite: Replace what is at `dst`.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.
        progress: Called now and then with the bytes written and the bytes there are.

    Raises:
        RepairError: More is lost than the parity can rebuild; the message says how much. Or the bytes of a file that is
            to be repaired in place are elsewhere in it.
        SchemaError: Neither `dst` nor `in_place` is given, or both.
        NotFoundError: There is no sidecar.
        FormatError: The sidecar is damaged beyond use.
        AlreadyExistsError: `dst` exists.
        StoreError: The store could not give or take bytes.
    """

def resume(
    url: str | os.PathLike[str] | tuple[WriteStore, str],
    *,
    upload_id: str | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[ResumeKeywords],
) -> Writer:
    """Go on with a file that its writer left unfinished.

    Use it as ``with rpq.resume(url) as writer``. The first ``writer.num_rows_stored`` rows are in the file
    already: the source goes on with the row after them. Schema, key-value metadata and file id stay what they are;
    how the rest is encoded is for the caller to say anew.

    A local file goes on in its ``NAME.partial``, which is locked first; what is torn at its end is cut off. On S3 the
    upload that was left open is completed up to its newest checkpoint, so that an unfinished object stands under the
    name and the first writer can do nothing more; a new upload begins with a copy of it, made by the store, and
    replaces that object, and no other, when the file is complete.

    Args:
        url: What was given to `create`: a URL, a path, or a pair of a store and a key in it.
        upload_id: Which upload to go on with, where several are open for this object.
        overwrite: Replace another file that has the name already: at once where an upload has to be completed to be
            gone on with, else when the file is complete.
        compression: "zstd", "snappy", "gzip", "brotli", "lz4_raw" or "none".
        compression_level: The codec's level; None is its default (zstd 3, gzip 2, brotli 4).
        encodings: "auto", for the smallest of those that every reader decodes, where a text column has dictionaries in
            all row groups or in none, as its first values suggest: fastparquet reads nulls where a file has both;
            "compact", for the smallest of each row group of those that other readers of recent years decode, which
            floating point gains most by; one encoding for all columns
            ("PLAIN", "RLE_DICTIONARY"), or a dict by column.
        row_group_rows: Rows after which a row group is closed; None leaves it to `row_group_bytes`.
        row_group_bytes: Bytes in memory after which a row group is closed.
        page_bytes: Bytes after which a data page is cut at the next row: of dictionary indices, else of values as
            PLAIN has them, both before compression.
        checkpoint_every: Row groups between automatic checkpoints, at least, though a complete row group does not wait
            for more than a minute; None for none.
        checkpoint_overhead: Share of the bytes written that automatic checkpoints may take.
        max_unstored_seconds: Seconds after which a row that was taken is stored, so that it survives a kill of this
            process, and on local disks a loss of power; None for no such bound. A timer sees to it when nothing more is
            written. Where rows come slowly this makes small row groups, and on S3 sends the last part again and
            writes a checkpoint each time, whatever `checkpoint_overhead` says. Rows are late where the store does not
            answer, which the log tells, and are stored at the end only where a store takes whole objects alone.
        on_error: What becomes of stored rows after an exception: "keep" them, or "abort", which removes a local
            ``NAME.partial`` with what was in it before.
        fencing: As of `create`. With "lease" the writer before is told of nothing more that it is stored, and of
            several who resume at one moment one does.
        options: The less common settings; `overwrite_partial` means nothing here.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range, or names a column that the file does not have.
        NotFoundError: On entering, as all that follow: nothing was left unfinished under this name.
        AlreadyExistsError: A living writer holds the file, or another one has its name and `overwrite` is False.
        RecoveryError: What was left holds nothing to go on with, ended already, or is damaged; or several uploads are
            open and none was named.
        WriterFencedError: Somebody else resumed the file at this moment.
        UnsupportedError: The store keeps nothing of what is unfinished.
        StoreError: The store refuses.
    """

def resume_dataset(
    dst: str | os.PathLike[str] | tuple[WriteStore, str],
    schema: object | None = None,
    *,
    replay_from: Mapping[str, int] | DatasetCheckpoint | None = None,
    partition_by: Sequence[str] | str | None = None,
    roll_rows: int | None = None,
    roll_bytes: int | None = None,
    roll_seconds: float | None = None,
    name: str = "part",
    max_open: int = ...,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[CreateKeywords],
) -> DatasetWriter:
    """Go on with a data set whose writer crashed, or ended.

    Each file that was left open becomes a finished one with every row that was stored, without a copy: a local
    ``NAME.partial`` is cut behind its last whole record and gets its footer; on S3 the upload is completed up to its
    newest checkpoint, so that the object's `state` stays "in-progress" though nothing more will come. A file of which
    nothing was stored is removed. New rows go to new files. Where there is nothing yet, this begins as
    `create_dataset`.

    ``writer.num_rows_stored_by_partition`` says how many rows of each partition are stored, always its first ones.

    Args:
        dst: As of `create_dataset`, like all that follows but for `replay_from`.
        schema: Of the rows that come.
        replay_from: For a source that begins again at an earlier place than what is stored: the rows of each partition
            before that place, as a checkpoint told them; those of ``{}`` are all. The rows that come first and are
            stored already are passed over then. They have to be the same, in the same order within each partition.
            None passes nothing over.
        partition_by: As the first writer was given it.
        roll_rows: Rows of a file.
        roll_bytes: Bytes of a file, about.
        roll_seconds: Seconds after the first row of a file was written.
        name: As the first writer was given it: only its files are looked at.
        max_open: Files that may be open at one time.
        compression: "zstd", "snappy", "gzip", "brotli", "lz4_raw" or "none".
        compression_level: The codec's level; None is its default (zstd 3, gzip 2, brotli 4).
        encodings: "auto", for the smallest of those that every reader decodes, where a text column has dictionaries in
            all row groups or in none, as its first values suggest: fastparquet reads nulls where a file has both;
            "compact", for the smallest of each row group of those that other readers of recent years decode, which
            floating point gains most by; one encoding for all columns
            ("PLAIN", "RLE_DICTIONARY"), or a dict by column.
        row_group_rows: Rows after which a row group is closed; None leaves it to `row_group_bytes`.
        page_bytes: Bytes after which a data page is cut at the next row: of dictionary indices, else of values as
            PLAIN has them, both before compression.
        checkpoint_every: Row groups between automatic checkpoints, at least, though a complete row group does not wait
            for more than a minute; None for none.
        checkpoint_overhead: Share of the bytes written that automatic checkpoints may take.
        max_unstored_seconds: Seconds after which a row that was taken is stored, so that it survives a kill of this
            process, and on local disks a loss of power; None for no such bound. A timer sees to it when nothing more is
            written. Where rows come slowly this makes small row groups, and on S3 sends the last part again and
            writes a checkpoint each time, whatever `checkpoint_overhead` says. Rows are late where the store does not
            answer, which the log tells, and are stored at the end only where a store takes whole objects alone.
        on_error: What becomes of stored rows after an exception: "keep" them for a recovery, or "abort".
        fencing: What keeps another writer from being told that its rows of this file are stored, on S3: "lease", an
            epoch object ``_NAME.rpq-epoch`` beside the object while an upload is open; or "none": then two who go on
            with the file at one time may both be told so, a writer that was taken for dead may be told so of rows that
            are lost, and a file smaller than a part cannot be resumed twice without a word. `Writer.fencing` says what
            the store can keep of it.
        options: The less common settings.
        row_group_bytes: Bytes in memory after which a row group is closed, and that all open ones share.
        metadata: Key-value metadata for the footer of each new file.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Raises:
        SchemaError: A setting is out of range; or on entering, there is a file of this name and of other partitions.
        AlreadyExistsError: On entering, as all that follow: a living writer holds a file. On S3 that cannot be seen:
            its upload is taken from it, and it fails with WriterFencedError.
        RecoveryError: Two writers of this name have written; a file is damaged; the newest file of a partition is not
            as its writer left it; or `replay_from` lies behind what is stored, so that rows would be missing.
        UnsupportedError: The store cannot list what is in a folder.
        StoreError: The store refuses.
    """

def resume_info(
    url: Location,
    *,
    upload_id: str | None = None,
    log: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> ResumeInfo:
    """What is there of an object whose writer did not finish: its open uploads, and the object itself.

    Nothing is changed, and of the object only the footer is read.

    Args:
        url: The object that was being written.
        upload_id: The upload to look at; all that are open for this object otherwise.
        log: The log that the writer kept of its checkpoints (`WriteOptions.checkpoint_log`), for `Upload.num_rows`.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.

    Raises:
        NotFoundError: The upload that was named is not open for this object, or there is no such log.
        FormatError: `log` is no log.
        UnsupportedError: The store has no uploads.
        StoreError: The store refused.
    """

def write(
    url: str | os.PathLike[str] | tuple[WriteStore, str],
    data: object,
    schema: object | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    **options_given: Unpack[CreateKeywords],
) -> Writer:
    """Write data as one resilient Parquet file, which appears under its name when it is complete.

    Args:
        url: A URL, a path, or a pair of a store and a key in it; a file that is there is replaced.
        data: What `Writer.write` takes: a table or a stream of any Arrow library, a pandas or Polars frame, a dict of
            arrays, a list of dicts.
        schema: As of `create`.
        compression: "zstd", "snappy", "gzip", "brotli", "lz4_raw" or "none".
        compression_level: The codec's level; None is its default (zstd 3, gzip 2, brotli 4).
        encodings: "auto", for the smallest of those that every reader decodes, where a text column has dictionaries in
            all row groups or in none, as its first values suggest: fastparquet reads nulls where a file has both;
            "compact", for the smallest of each row group of those that other readers of recent years decode, which
            floating point gains most by; one encoding for all columns
            ("PLAIN", "RLE_DICTIONARY"), or a dict by column.
        row_group_rows: Rows after which a row group is closed; None leaves it to `row_group_bytes`.
        row_group_bytes: Bytes in memory after which a row group is closed.
        page_bytes: Bytes after which a data page is cut at the next row: of dictionary indices, else of values as
            PLAIN has them, both before compression.
        checkpoint_every: Row groups between automatic checkpoints, at least, though a complete row group does not wait
            for more than a minute; None for none.
        checkpoint_overhead: Share of the bytes written that automatic checkpoints may take.
        max_unstored_seconds: Seconds after which a row that was taken is stored, so that it survives a kill of this
            process, and on local disks a loss of power; None for no such bound. A timer sees to it when nothing more is
            written. Where rows come slowly this makes small row groups, and on S3 sends the last part again and
            writes a checkpoint each time, whatever `checkpoint_overhead` says. Rows are late where the store does not
            answer, which the log tells, and are stored at the end only where a store takes whole objects alone.
        on_error: What becomes of stored rows after an exception: "keep" them for a recovery, or "abort".
        metadata: Key-value metadata for the footer.
        fencing: What keeps another writer from being told that its rows of this file are stored, on S3: "lease", an
            epoch object ``_NAME.rpq-epoch`` beside the object while an upload is open; or "none": then two who go on
            with the file at one time may both be told so, a writer that was taken for dead may be told so of rows that
            are lost, and a file smaller than a part cannot be resumed twice without a word. `Writer.fencing` says what
            the store can keep of it.
        options: The less common settings.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.

    Returns:
        The closed writer, which knows the number of rows and bytes.

    Raises:
        SchemaError: The data do not fit the schema, or a setting is out of range.
        StoreError: The store refused; nothing was published.
    """

def write_metadata(
    root_path: str | os.PathLike[str] | tuple[WriteStore, str],
    *,
    files: Sequence[str] | None = None,
    common_metadata: bool = True,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: WriteSummaryProgress | None = None,
) -> WrittenMetadata:
    """Write the summary of a folder, ``_metadata``: a footer with the row groups of all its files.

    Only footers are read. `open` reads the summary as one file; pyarrow, fastparquet and dask find in it what
    they would else read file by file. Write it again when a file was added, replaced or removed.

    Args:
        root_path: The folder: a URL, a path, or a pair of a store and a key in it.
        files: Names of files relative to the folder, with slashes, in the order their rows are to have. None means
            every ``*.parquet`` file below it, at any depth, by name; those and folders whose names begin with ``_``
            or ``.`` are passed over.
        common_metadata: Write ``_common_metadata`` too, which has the schema and no row groups.
        overwrite: Replace summaries that are there.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.
        progress: Called now and then with the files read and the files there are.

    Returns:
        What was written.

    Raises:
        SchemaError: The schemas of two files differ; it names the first column that does. Or `files` names none.
        NotFoundError: There is no file below the folder, or one of `files` is not there.
        AlreadyExistsError: There is a summary, and `overwrite` is False.
        FormatError: The footer of a file is missing or damaged.
        UnsupportedError: A file is encrypted, or the store cannot list what is in a folder.
        StoreError: The store refused; a summary that was there before still is.

    Warns:
        IncompleteFileWarning: A file is a checkpoint of a writer that never finished, or what a recovery could keep
            of one; the summary then says so of itself.
    """
