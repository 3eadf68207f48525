"""The module of each public name: `scripts/sync_stub.py` writes this out of what type checkers see."""

from __future__ import annotations

from typing import Final

_LINES: Final = """
arrow.int96 CutTimestampWarning
arrow.table Table
arrow.types.arrow_schema schema_from_arrow schema_to_arrow
bulk.file_result FileError FileResult
bulk.many_files FileResults check_many recover_many
bulk.run_summary FileEntry RunSummary
bulk.scrub scrub
bulk.scrub_report ScrubReport ScrubbedFile
compaction.compact compact
compaction.compaction_run Compaction
dataset.dataset Dataset
dataset.dataset_opening open_many
dataset.dataset_writer DatasetWriter
dataset.sink_creation create_dataset resume_dataset
dataset.sink_state DatasetCheckpoint DatasetFile
dataset.summary.write_summary WrittenMetadata write_metadata
encryption.encryption Encryption
encryption.key_tools KeyTools rotate_master_keys
engines.scan Scan scan
errors AccessDeniedError AlreadyExistsError AuthenticationError BucketNotFoundError ChecksumError CodecUnavailableError
errors CredentialsExpiredError EncodingError FileClosedError FileFullError FormatError KeyMissingError NotFoundError
errors NotParquetError NothingToRecoverError ObjectChangedError OptionError OutOfMemoryError PreconditionError
errors RangeError RecoveryError RepairError ResilientPQError RowsLostError SchemaError SourceError StoreError
errors ThriftError ThrottledError TornFileError TransientError UnsupportedError Where WriterClosedError
errors WriterFailedError WriterFencedError WriterStateError WrongKeyError
format.indexes.trusted_bounds ColumnStatistics DecodedColumnIndex
format.schema_tree Schema
format.sorting SortingColumn
io Fencing FetchCounters ObjectInfo RetryPolicy StoredState
one_read read
one_write write
parity.protect Protection protect
parity.repair Repair repair
parquet_writer ParquetWriter
reader.contents FileState KnownCheckpoint
reader.file File
reader.filter.bloom_filter ColumnBloomFilter
reader.healing HealedChunk HealedFileWarning
reader.opening IncompleteFileWarning open
reader.plan_display PlannedChunk PlannedRead PlannedRequest PlannedRowGroup
reader.read_options FollowOptions ReadOptions
reader.row_dicts Records
reader.streaming Batches
recovery.check check
recovery.recover recover
recovery.report Damage Finding Kept LostRegion OtherPolicy Outcome Report
recovery.resume.append_file append
recovery.resume.resume_file create_or_resume resume
recovery.seal seal
recovery.uploads.open_uploads ResumeInfo Upload abort_upload list_uploads resume_info
recovery.uploads.upload_completion CompletedBy CompletedUpload complete_upload
tables.delta_lake DeltaTable
tables.iceberg IcebergTable
trevni.convert_file convert
trevni.trevni_file TrevniFile open_trevni
writer.checkpoint_history Checkpoint
writer.creation create
writer.file_writer Writer
writer.write_options WriteOptions
"""
#: Within the package, by the names.
MODULES: Final = {name: line.split()[0] for line in _LINES.splitlines() for name in line.split()[1:]}
