# Written by scripts/sync_stub.py; do not edit. Texts are the first lines of the docstrings.
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from datetime import timedelta
from resilient_pq.arrow.to_python import Inexact
from resilient_pq.arrow.types.field import Field
from resilient_pq.bulk.file_task import RunFile
from resilient_pq.bulk.many_files import RunProgress
from resilient_pq.compaction.compaction_run import Progress as compaction_run_Progress
from resilient_pq.dataset.file_listing import Source
from resilient_pq.dataset.folder_columns import FolderColumns
from resilient_pq.dataset.summary.write_summary import Progress as write_summary_Progress
from resilient_pq.encryption.keys import KeysArgument
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.format.file_metadata import OffsetIndex
from resilient_pq.io.protocols import ReadStore
from resilient_pq.io.protocols import WriteStore
from resilient_pq.io.resolve import Location
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.reader.decoder import RowGroupArrays
from resilient_pq.reader.healing import OnHealed
from resilient_pq.reader.read_options import OnLost
from resilient_pq.reader.read_plan import Filters
from resilient_pq.reader.read_plan import ReadQuery
from resilient_pq.reader.read_plan import ReadRequest
from resilient_pq.reader.read_plan import Strings
from resilient_pq.reader.streaming import Jobs
from resilient_pq.recovery.uploads.upload_completion import SuppliedMetadata
from resilient_pq.recovery.verification.findings import Progress
from resilient_pq.tables.file_table import TableSettings
from resilient_pq.writer.option_keywords import CreateKeywords
from resilient_pq.writer.option_keywords import ResumeKeywords
from resilient_pq.writer.option_keywords import StreamKeywords
from types import TracebackType
from typing import Any
from typing import Literal
from typing import Self
from typing import Unpack
import nanoarrow
import os
from resilient_pq.public_names import *
from resilient_pq.version import __version__ as __version__

class Batches(Iterator[Table]):
    """A stream of tables that blocks: an iterator, and an Arrow stream for whoever takes one."""
    @property
    def schema(self) -> nanoarrow.Schema:
        """The Arrow schema of the batches; one may have a wider form of a type, where its values need it."""
    def __next__(self) -> Table:
        """The next batch."""
    def __arrow_c_schema__(self) -> object:
        """The schema as a capsule of the Arrow C data interface."""
    def __arrow_c_stream__(self, requested_schema: object | None=None) -> object:
        """The batches that are left as a capsule of the Arrow C stream interface, read as they are consumed."""
    def close(self) -> None:
        """Read no more. A second call does nothing."""
    def __enter__(self) -> Self:
        """The stream itself."""
    def __exit__(self, *_: object) -> None:
        """Read no more."""

class Dataset:
    """Files of one schema that are open for reading together, in a fixed order; made by `open_many`."""
    files: tuple[File, ...]
    counters: FetchCounters
    folders: FolderColumns | None
    @property
    def urls(self) -> tuple[str, ...]:
        """What is being read, file by file."""
    @property
    def arrow_schema(self) -> Any:
        """The Arrow schema of all files, with ``__arrow_c_schema__``; key-value metadata are those of the first."""
    @property
    def num_rows(self) -> int:
        """Rows of all files, as their footers have them; where damaged ones are left out, fewer are read."""
    @property
    def num_row_groups(self) -> int:
        """Row groups of all files."""
    def read(self, columns: Sequence[str] | None=None, *, filters: Filters | None=None, limit: int | None=None, strings: Strings='stored') -> Table:
        """Read columns of all files as one table, in the order of the files."""
    def batches(self, batch_rows: int=65536, columns: Sequence[str] | None=None, *, filters: Filters | None=None, limit: int | None=None, strings: Strings='stored') -> Batches:
        """Rows of all files as one stream of tables, file by file in their order."""
    def records(self, columns: Sequence[str] | None=None, *, filters: Filters | None=None, limit: int | None=None, inexact: Inexact='raise') -> Generator[dict[str, Any], None, None]:
        """Rows of all files one by one, as dicts of Python values; otherwise as `File.records`."""
    def close(self) -> None:
        """Let go of all files, and of the connections of their stores."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def __arrow_c_schema__(self) -> object:
        """The Arrow schema of all columns as a capsule."""
    def __arrow_c_stream__(self, requested_schema: object | None=None) -> object:
        """All rows and columns as a capsule of the Arrow C stream interface, read as they are consumed."""

class DatasetWriter:
    """Writes the files of a data set from one stream of rows; made by `create_dataset` and by `resume_dataset`."""
    @property
    def num_rows(self) -> int:
        """Rows that `write` has taken, and those that were stored when the data set was resumed."""
    @property
    def num_rows_stored(self) -> int:
        """Rows that survive this process, of all partitions."""
    @property
    def num_rows_stored_by_partition(self) -> dict[str, int]:
        """The same of each partition, by its folder below the data set; always the first rows of each."""
    @property
    def files(self) -> tuple[DatasetFile, ...]:
        """The files that were published, in that order; first those that `resume_dataset` completed."""
    @property
    def files_not_committed(self) -> tuple[str, ...]:
        """The published files that are not known to be in the table yet; empty without a table."""
    @property
    def num_open_files(self) -> int:
        """Files that are being written."""
    @property
    def num_bytes_buffered(self) -> int:
        """About what the rows of all open row groups take in memory; between calls no more than `row_group_bytes`."""
    def checkpoint(self) -> DatasetCheckpoint:
        """Write a checkpoint to every open file, and make all rows as durable as the store can."""
    def close(self) -> None:
        """Publish all open files."""
    def abort(self) -> None:
        """End, and remove what is stored of the open files; those that were published stay."""
    url: str
    @property
    def closed(self) -> bool:
        """Whether the writer has ended, in whichever way."""
    def write(self, data: object) -> None:
        """Take rows; returns when they are accepted, waiting while too many bytes are on their way."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class File:
    """A Parquet file that is open for reading; made by `open`."""
    url: str
    info: ObjectInfo
    counters: FetchCounters
    objects: ChunkObjects
    @property
    def metadata(self) -> FileMetaData:
        """The footer's Thrift struct."""
    @property
    def place(self) -> tuple[ReadStore, str]:
        """Where it is: the store, and the key in it."""
    @property
    def schema(self) -> Schema:
        """The Parquet schema."""
    @property
    def arrow_schema(self) -> Any:
        """The Arrow schema, with ``__arrow_c_schema__``."""
    @property
    def num_rows(self) -> int:
        """Rows of the file, as its footer has them; where damaged ones are left out, fewer are read."""
    @property
    def num_row_groups(self) -> int:
        """Row groups of the file."""
    @property
    def data_files(self) -> tuple[str, ...]:
        """The files that a summary names, relative to its folder; none where all rows are in this file."""
    @property
    def state(self) -> FileState | None:
        """What a resilient file says of itself: complete, in-progress or salvaged; None for files of others."""
    @property
    def checkpoints(self) -> tuple[KnownCheckpoint, ...]:
        """The checkpoints of a resilient file, oldest first."""
    @property
    def healed(self) -> tuple[HealedChunk, ...]:
        """The column chunks that were damaged, and that were read with the parity beside the file, so far."""
    def read(self, columns: Sequence[str] | None=None, row_groups: Sequence[int] | None=None, *, filters: Filters | None=None, limit: int | None=None, strings: Strings='stored') -> Table:
        """Rows as a table."""
    def rows_of(self, query: ReadQuery) -> tuple[ReadRequest, list[RowGroupArrays]]:
        """What was asked for, and the rows of all row groups, or of so many that they have the rows wanted."""
    def batches(self, batch_rows: int=65536, columns: Sequence[str] | None=None, row_groups: Sequence[int] | None=None, *, filters: Filters | None=None, limit: int | None=None, strings: Strings='stored') -> Batches:
        """Rows as a stream of tables, in order."""
    def jobs(self, query: ReadQuery) -> tuple[Callable[[], Field], Jobs]:
        """A function that gives the struct of the rows, and the reads of a stream, of whole row groups, in order."""
    def records(self, columns: Sequence[str] | None=None, row_groups: Sequence[int] | None=None, *, filters: Filters | None=None, limit: int | None=None, inexact: Inexact='raise') -> Generator[dict[str, Any], None, None]:
        """Rows one by one, in order, as dicts of Python values: ``for row in file.records()``."""
    def plan(self, columns: Sequence[str] | None=None, row_groups: Sequence[int] | None=None, *, filters: Filters | None=None, limit: int | None=None, fetch_indexes: bool=True) -> PlannedRead:
        """What `read` would ask of the store, without reading any data; print it."""
    def close(self) -> None:
        """Let go of the store's connections, and of most of the memory kept for reading; nothing more can be read."""
    lost_at_opening: tuple[LostRegion, ...]
    @property
    def key_value_metadata(self) -> dict[str, str | None]:
        """Key-value metadata of the file."""
    @property
    def sorting_columns(self) -> tuple[SortingColumn, ...]:
        """The order in which the rows of every row group are, as far as the file says so; others do not check it."""
    def statistics(self, row_group: int, column: str | int) -> ColumnStatistics:
        """What the footer says of the values of a column chunk, as far as its writer can be trusted."""
    def column_metadata(self, row_group: int, column: str | int) -> dict[str, str | None]:
        """The key-value metadata of a column chunk, without what only this library reads (``rpq.*``)."""
    def column_index(self, row_group: int, column: str | int) -> DecodedColumnIndex | None:
        """What is known of each data page of a column chunk: bounds, null counts, histograms of levels."""
    def offset_index(self, row_group: int, column: str | int) -> OffsetIndex | None:
        """Where the data pages of a column chunk lie, and with which rows they begin."""
    def bloom_filter(self, row_group: int, column: str | int) -> ColumnBloomFilter | None:
        """The bloom filter of a column chunk, which tells values that are certainly not in it."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def __arrow_c_schema__(self) -> object:
        """The Arrow schema of all columns as a capsule."""
    def __arrow_c_stream__(self, requested_schema: object | None=None) -> object:
        """All rows and columns as a capsule of the Arrow C stream interface, read as they are consumed."""

class FileResults(Iterator[FileResult]):
    """What becomes of many files, each as soon as it is done: an iterator that blocks."""
    @property
    def verb(self) -> str:
        """What is done with the files."""
    @property
    def summary(self) -> RunSummary:
        """What was counted so far; all of it when the last result was given."""
    def __next__(self) -> FileResult:
        """The next file that is done."""
    def finish(self) -> RunSummary:
        """Do all files that are left, and give the summary of all."""
    def close(self) -> None:
        """Cancel what is under way. A second call does nothing."""
    def __enter__(self) -> Self:
        """Itself."""
    def __exit__(self, *_: object) -> None:
        """As `close`."""

class TrevniFile:
    """A Trevni file that is open for reading; made by `open_trevni`."""
    url: str
    @property
    def num_rows(self) -> int:
        """Number of rows."""
    @property
    def metadata(self) -> dict[str, bytes]:
        """The metadata of the file: ``avro.schema`` and others."""
    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd about the file, and costs no rows."""
    @property
    def schema(self) -> Schema:
        """Its records as a Parquet schema, which is what `convert` writes."""
    def read(self, columns: Sequence[str] | None=None, *, offset: int=0, limit: int | None=None) -> Table:
        """Rows as a table; the arguments and errors are those of `batches`."""
    def batches(self, batch_rows: int=..., columns: Sequence[str] | None=None, *, offset: int=0, limit: int | None=None) -> Batches:
        """Rows as a stream of tables, in order."""
    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def __arrow_c_schema__(self) -> object:
        """The Arrow schema of all columns as a capsule."""
    def __arrow_c_stream__(self, requested_schema: object | None=None) -> object:
        """All rows and columns as a capsule of the Arrow C stream interface, read as they are consumed."""

class Writer:
    """Writes one resilient Parquet file; made by `create` and by `resume`."""
    @property
    def schema(self) -> Schema | None:
        """The schema, None until it is known from the first batch."""
    @property
    def num_rows(self) -> int:
        """Rows that `write` has taken, and those that were in place when the file was resumed."""
    @property
    def num_rows_stored(self) -> int:
        """Rows that survive this process: those of the row groups that the store has for good."""
    @property
    def num_bytes(self) -> int:
        """Bytes of the file so far; rows of the open row group are not among them."""
    @property
    def num_bytes_buffered(self) -> int:
        """About what the rows of the open row group take in memory; `flush` lets them go."""
    @property
    def soon_full(self) -> bool:
        """Whether a quarter of the row groups is there that all readers take, or of the bytes of a footer."""
    @property
    def num_bytes_resent(self) -> int:
        """Bytes that durable checkpoints caused to be sent again to a store of parts, retries not counted."""
    @property
    def fencing(self) -> Fencing:
        """What keeps another writer of the file from being told that its rows are stored."""
    @property
    def last_checkpoint(self) -> Checkpoint:
        """The newest checkpoint that is stored, automatic ones included; until one is, the newest that was accepted."""
    def add_key_value_metadata(self, metadata: Mapping[str, str]) -> None:
        """Add key-value metadata to the final footer; keys that are there are replaced."""
    def flush(self) -> None:
        """Close the open row group before it is full, and give it to the store: its rows take no more memory."""
    def checkpoint(self) -> Checkpoint:
        """Close the row group, write a checkpoint, and make it as durable as the store can."""
    def close(self) -> None:
        """Write what is left and publish the object; nothing was visible under its name before."""
    def abort(self) -> None:
        """End without publishing anything, and remove what was stored."""
    url: str
    @property
    def closed(self) -> bool:
        """Whether the writer has ended, in whichever way."""
    def write(self, data: object) -> None:
        """Take rows; returns when they are accepted, waiting while too many bytes are on their way."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

def abort_upload(url: Location, *, upload_id: str | None=None, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None) -> str:
    """Drop an upload that was left open, and all its parts: what it holds is lost."""

def append(url: str | os.PathLike[str] | tuple[WriteStore, str], *, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, **options_given: Unpack[ResumeKeywords]) -> Writer:
    """Write rows behind the end of a complete Parquet file, of any writer."""

def check(url: Location, *, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, require_checksums: bool=False, deep: bool=False, keys: KeysArgument | None=None, aad_prefix: bytes | None=None, progress: Progress | None=None) -> Report:
    """Read an object and say what is wrong with it; nothing is written."""

def check_many(urls: Location | Sequence[Location], *, max_files: int=..., resume: str | os.PathLike[str] | None=None, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, require_checksums: bool=False, deep: bool=False, progress: RunProgress | None=None, run: RunFile=...) -> FileResults:
    """Check the files of a folder, as `check` does each; nothing is written."""

def compact(src: Source | Sequence[Source], dst: Location, *, target_bytes: int=..., copy_bytes: int=..., row_group_bytes: int=..., parity: float | str | None=None, table: TableSettings | None=None, remove_sources: bool=False, dry_run: bool=False, storage_options: Mapping[str, Any] | None=None, dst_storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, progress: compaction_run_Progress | None=None) -> Compaction:
    """Make few files of many. Large row groups are copied as bytes, small ones are decoded and written together."""

def complete_upload(url: Location, *, upload_id: str | None=None, overwrite: bool=False, gap_free: bool=False, metadata: SuppliedMetadata | None=None, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None) -> CompletedUpload:
    """Complete the upload that a writer left open."""

def convert(src: str | os.PathLike[str] | tuple[ReadStore, str], dst: str | os.PathLike[str] | tuple[WriteStore, str], *, columns: Sequence[str] | None=None, schema: Schema | str | None=None, on_damage: Literal['drop', 'null', 'raise']='drop', verify: bool=True, overwrite: bool=False, read_options: ReadOptions | None=None, storage_options: Mapping[str, Any] | None=None, dst_storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, progress: Progress | None=None, **options_given: Unpack[StreamKeywords]) -> Report:
    """Write the rows of a Trevni file, Parquet's ancestor, to a resilient Parquet file."""

def create(url: str | os.PathLike[str] | tuple[WriteStore, str], schema: object | None=None, *, mode: Literal['w', 'x']='w', storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, **options_given: Unpack[CreateKeywords]) -> Writer:
    """Begin a resilient Parquet file."""

def create_dataset(dst: str | os.PathLike[str] | tuple[WriteStore, str], schema: object | None=None, *, partition_by: Sequence[str] | str | None=None, roll_rows: int | None=None, roll_bytes: int | None=None, roll_seconds: float | None=None, name: str='part', max_open: int=..., table: TableSettings | None=None, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, **options_given: Unpack[CreateKeywords]) -> DatasetWriter:
    """Begin to write a data set from one stream of rows: files in a folder, each published when it is full."""

def create_or_resume(url: str | os.PathLike[str] | tuple[WriteStore, str], schema: object | None=None, *, overwrite: bool=False, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, **options_given: Unpack[CreateKeywords]) -> Writer:
    """Begin a file, or go on with it where an earlier writer left it: one call for the first start and for every other."""

def list_uploads(url: Location, *, older_than: timedelta | None=None, log: str | os.PathLike[str] | None=None, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None) -> list[Upload]:
    """The uploads that were left open below a URL, oldest first."""

def open(url: str | os.PathLike[str] | tuple[ReadStore, str], *, verify: bool=True, on_damage: Literal['raise', 'null', 'drop']='raise', on_lost: OnLost | None=None, heal: bool=True, on_healed: OnHealed | None=None, options: ReadOptions | None=None, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, follow: bool | FollowOptions=False, keys: KeysArgument | None=None, aad_prefix: bytes | None=None, require_complete: bool | None=None) -> File:
    """Open a Parquet file, ours or anyone's, for reading columns by byte range."""

def open_many(urls: Source | Sequence[Source], *, verify: bool=True, on_damage: Literal['raise', 'null', 'drop']='raise', on_lost: OnLost | None=None, partitioning: object | None=None, filters: Filters | None=None, follow: bool | FollowOptions=False, options: ReadOptions | None=None, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, keys: KeysArgument | None=None, aad_prefix: bytes | None=None, require_complete: bool | None=None) -> Dataset:
    """Open several Parquet files of one schema, to be read as one."""

def open_trevni(url: str | os.PathLike[str] | tuple[ReadStore, str], *, schema: Schema | str | None=None, verify: bool=True, on_damage: Literal['raise', 'null', 'drop']='raise', on_lost: OnLost | None=None, options: ReadOptions | None=None, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None) -> TrevniFile:
    """Open a Trevni file, Parquet's ancestor, of Avro's dialect or of the draft that Impala followed."""

def protect(src: Location | list[Location], dst: Location | None=None, *, parity: float | str='5%', checksums_only: bool=False, overwrite: bool=False, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, progress: Callable[[int, int], None] | None=None) -> Protection:
    """Write a sidecar from which damaged bytes of a file can be rebuilt; the file itself is only read."""

def read(url: str | os.PathLike[str] | tuple[ReadStore, str], columns: Sequence[str] | None=None, *, filters: Filters | None=None, limit: int | None=None, strings: Strings='stored', filesystem: Any=None, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, **options: Any) -> Table:
    """Rows of a Parquet file as a table, which every Arrow library takes: ``pandas.DataFrame(table.to_pydict())``."""

def recover(src: Location | Sequence[Location], dst: Location, *, on_damage: Literal['drop', 'null', 'columns', 'raise']='drop', schema: object | None=None, schema_from: Location | None=None, repair_bits: bool=False, keep_unplaced: bool=False, file_id: str | None=None, verify: bool=False, overwrite: bool=False, keys: KeysArgument | None=None, aad_prefix: bytes | None=None, storage_options: Mapping[str, Any] | None=None, dst_storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, progress: Progress | None=None) -> Report:
    """Write the rows of a damaged file that are whole to a new object."""

def recover_many(src: Location | Sequence[Location], dst: Location, *, only_damaged: bool=False, on_damage: Literal['drop', 'null', 'columns', 'raise']='drop', schema: object | None=None, schema_from: Location | None=None, repair_bits: bool=False, keep_unplaced: bool=False, verify: bool=False, overwrite: bool=False, max_files: int=..., resume: str | os.PathLike[str] | None=None, storage_options: Mapping[str, Any] | None=None, dst_storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, progress: RunProgress | None=None, run: RunFile=...) -> FileResults:
    """Recover the files of a folder into another one, as `recover` does each; the tree of folders stays."""

def repair(src: Location, dst: Location | None=None, *, sidecar: Location | None=None, in_place: bool=False, overwrite: bool=False, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, progress: Callable[[int, int], None] | None=None) -> Repair:
    """Write a protected file anew, bit for bit as it was written, or as it was when its sidecar was made."""

def resume(url: str | os.PathLike[str] | tuple[WriteStore, str], *, upload_id: str | None=None, overwrite: bool=False, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, **options_given: Unpack[ResumeKeywords]) -> Writer:
    """Go on with a file that its writer left unfinished."""

def resume_dataset(dst: str | os.PathLike[str] | tuple[WriteStore, str], schema: object | None=None, *, replay_from: Mapping[str, int] | DatasetCheckpoint | None=None, partition_by: Sequence[str] | str | None=None, roll_rows: int | None=None, roll_bytes: int | None=None, roll_seconds: float | None=None, name: str='part', max_open: int=..., table: TableSettings | None=None, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, **options_given: Unpack[CreateKeywords]) -> DatasetWriter:
    """Go on with a data set whose writer crashed, or ended."""

def resume_info(url: Location, *, upload_id: str | None=None, log: str | os.PathLike[str] | None=None, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None) -> ResumeInfo:
    """What is there of an object whose writer did not finish: its open uploads, and the object itself."""

def rotate_master_keys(url: Location, tools: KeyTools, *, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None) -> int:
    """Wrap the keys of a file anew, with the present versions of their master keys; the file itself is not changed."""

def scrub(urls: Location | Sequence[Location], state: str | os.PathLike[str], *, every: timedelta=..., budget: int | None=None, heal: bool=False, replica: Location | None=None, stop_after: timedelta | None=None, max_files: int=..., storage_options: Mapping[str, Any] | None=None, replica_storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, progress: Callable[[ScrubReport], None] | None=None, run: RunFile | None=None) -> ScrubReport:
    """Prove that the bytes of many objects are as they were, those first that were proven longest ago."""

def seal(src: Location, dst: Location, *, overwrite: bool=False, storage_options: Mapping[str, Any] | None=None, dst_storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, progress: Progress | None=None) -> Report:
    """Write a copy of a sound file of any writer that has a checksum on every page, and the records of our files."""

def write(url: str | os.PathLike[str] | tuple[WriteStore, str], data: object, schema: object | None=None, *, filesystem: Any=None, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, **options_given: Unpack[CreateKeywords]) -> Writer:
    """Write data as one resilient Parquet file, which appears under its name when it is complete."""

def write_metadata(root_path: str | os.PathLike[str] | tuple[WriteStore, str], *, files: Sequence[str] | None=None, common_metadata: bool=True, overwrite: bool=False, storage_options: Mapping[str, Any] | None=None, retry: RetryPolicy | None=None, progress: write_summary_Progress | None=None) -> WrittenMetadata:
    """Write the summary of a folder, ``_metadata``: a footer with the row groups of all its files."""
