"""Parquet files that survive the crash of their writer, the loss of their tail and the rot of their bytes.

The names here are asynchronous; `resilient_pq.sync` has the same names, blocking::

    import resilient_pq as rpq

    async with rpq.create("s3://bucket/day.parquet") as writer:
        await writer.write(batch)
        await writer.checkpoint()

    async with rpq.open("s3://bucket/day.parquet") as file:
        table = await file.read(columns=["ts", "user"])

    report = await rpq.check("s3://bucket/day.parquet")
    report = await rpq.recover("s3://bucket/torn.parquet", "s3://bucket/saved.parquet")
"""

from __future__ import annotations

from resilient_pq.arrow.int96 import CutTimestampWarning
from resilient_pq.arrow.schema import schema_from_arrow, schema_to_arrow
from resilient_pq.arrow.table import Table
from resilient_pq.dataset.dataset import Dataset, open_many
from resilient_pq.dataset.sink import DatasetCheckpoint, DatasetFile, DatasetWriter
from resilient_pq.dataset.sink_creation import create_dataset, resume_dataset
from resilient_pq.dataset.write import WrittenMetadata, write_metadata
from resilient_pq.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    BucketNotFoundError,
    ChecksumError,
    CodecUnavailableError,
    CredentialsExpiredError,
    EncodingError,
    FileFullError,
    FormatError,
    NotFoundError,
    NothingToRecoverError,
    NotParquetError,
    ObjectChangedError,
    OutOfMemoryError,
    PreconditionError,
    RangeError,
    RecoveryError,
    ResilientPQError,
    RowsLostError,
    SchemaError,
    SourceError,
    StoreError,
    ThriftError,
    ThrottledError,
    TornFileError,
    TransientError,
    UnsupportedError,
    Where,
    WriterClosedError,
    WriterFailedError,
    WriterFencedError,
    WriterStateError,
)
from resilient_pq.folder.many import FileResults, check_many, recover_many
from resilient_pq.folder.result import FileError, FileResult
from resilient_pq.folder.summary import FileEntry, RunSummary
from resilient_pq.format.bounds import ColumnStatistics, DecodedColumnIndex
from resilient_pq.format.schema import Schema
from resilient_pq.format.sorting import SortingColumn
from resilient_pq.formats.convert import convert
from resilient_pq.formats.trevni_file import TrevniFile, open_trevni
from resilient_pq.io import Fencing, FetchCounters, ObjectInfo, RetryPolicy, StoredState
from resilient_pq.reader.bloom_filter import ColumnBloomFilter
from resilient_pq.reader.contents import FileState, KnownCheckpoint
from resilient_pq.reader.file import File
from resilient_pq.reader.growing import FollowOptions
from resilient_pq.reader.opening import IncompleteFileWarning, open
from resilient_pq.reader.options import ReadOptions
from resilient_pq.reader.planned import PlannedChunk, PlannedRead, PlannedRequest, PlannedRowGroup
from resilient_pq.reader.records import Records
from resilient_pq.reader.streaming import Batches
from resilient_pq.recovery.check import check
from resilient_pq.recovery.report import Damage, Finding, Kept, LostRegion, Outcome, Report
from resilient_pq.recovery.resume import create_or_resume, resume
from resilient_pq.recovery.salvage import recover
from resilient_pq.recovery.upload_completion import CompletedBy, CompletedUpload, complete_upload
from resilient_pq.recovery.uploads import ResumeInfo, Upload, abort_upload, list_uploads, resume_info
from resilient_pq.version import __version__
from resilient_pq.writer.creation import create
from resilient_pq.writer.options import WriteOptions
from resilient_pq.writer.stream import Checkpoint, Writer

__all__ = [
    "AccessDeniedError",
    "AlreadyExistsError",
    "Batches",
    "BucketNotFoundError",
    "Checkpoint",
    "ChecksumError",
    "CodecUnavailableError",
    "ColumnBloomFilter",
    "ColumnStatistics",
    "CompletedBy",
    "CompletedUpload",
    "CredentialsExpiredError",
    "CutTimestampWarning",
    "Damage",
    "Dataset",
    "DatasetCheckpoint",
    "DatasetFile",
    "DatasetWriter",
    "DecodedColumnIndex",
    "EncodingError",
    "Fencing",
    "FetchCounters",
    "File",
    "FileEntry",
    "FileError",
    "FileFullError",
    "FileResult",
    "FileResults",
    "FileState",
    "Finding",
    "FollowOptions",
    "FormatError",
    "IncompleteFileWarning",
    "Kept",
    "KnownCheckpoint",
    "LostRegion",
    "NotFoundError",
    "NotParquetError",
    "NothingToRecoverError",
    "ObjectChangedError",
    "ObjectInfo",
    "OutOfMemoryError",
    "Outcome",
    "PlannedChunk",
    "PlannedRead",
    "PlannedRequest",
    "PlannedRowGroup",
    "PreconditionError",
    "RangeError",
    "ReadOptions",
    "Records",
    "RecoveryError",
    "Report",
    "ResilientPQError",
    "ResumeInfo",
    "RetryPolicy",
    "RowsLostError",
    "RunSummary",
    "Schema",
    "SchemaError",
    "SortingColumn",
    "SourceError",
    "StoreError",
    "StoredState",
    "Table",
    "ThriftError",
    "ThrottledError",
    "TornFileError",
    "TransientError",
    "TrevniFile",
    "UnsupportedError",
    "Upload",
    "Where",
    "WriteOptions",
    "Writer",
    "WriterClosedError",
    "WriterFailedError",
    "WriterFencedError",
    "WriterStateError",
    "WrittenMetadata",
    "__version__",
    "abort_upload",
    "check",
    "check_many",
    "complete_upload",
    "convert",
    "create",
    "create_dataset",
    "create_or_resume",
    "list_uploads",
    "open",
    "open_many",
    "open_trevni",
    "recover",
    "recover_many",
    "resume",
    "resume_dataset",
    "resume_info",
    "schema_from_arrow",
    "schema_to_arrow",
    "write_metadata",
]
