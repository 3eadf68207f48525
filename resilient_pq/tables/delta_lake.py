"""Tables of Delta Lake, through deltalake.

The mark of a sink in a partition is the version of an application transaction (``txn``), which is set by the commit
that adds the files, and which deltalake refuses to set when another commit has set it since the table was looked at.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import unquote

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.arrow.types.arrow_schema import schema_to_arrow
from resilient_pq.errors import OptionError, SchemaError, UnsupportedError, Where
from resilient_pq.format import logical
from resilient_pq.format.indexes.trusted_bounds import ColumnStatistics, chunk_statistics
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io import RetryPolicy
from resilient_pq.reader.contents import Contents
from resilient_pq.tables.committer import telling
from resilient_pq.tables.file_table import (
    Marks,
    TableFile,
    check_rewrite,
    local_location,
    raised,
    s3_options,
    sequences,
)
from resilient_pq.tables.partition_key import PartitionKey, partition_text, words

_OF_S3FS = {
    "key": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
}


@dataclass(frozen=True)
class DeltaTable:
    """A table of Delta Lake that files are committed to: `create_dataset`, `resume_dataset`, `rpq.dask.write`.

    It is created when it does not exist. Requires deltalake: ``resilient_pq[delta]``.

    Attributes:
        url: The folder of the table; None is the folder of the data set. The data set is the table's folder, or below
            it.
        storage_options: As deltalake takes them; None makes them of those of the data set.
        configuration: The configuration of the table, where it is created, such as ``{"delta.appendOnly": "true"}``.
        retry: As of `IcebergTable`.
    """

    url: str | os.PathLike[str] | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    configuration: Mapping[str, str] = field(default_factory=dict)
    retry: RetryPolicy | None = None

    keeps_keys: ClassVar[bool] = False

    def connect(self, folder: str, storage_options: Mapping[str, Any] | None) -> ConnectedDelta:
        """The table as a thread works with it."""
        url = folder if self.url is None else os.fspath(self.url)
        root = url if "://" in url else local_location(url)
        root = root.replace("s3a://", "s3://", 1).rstrip("/")
        if not f"{folder}/".startswith(f"{root}/"):
            raise OptionError(
                f"the data set {folder} is not within the table's folder {root}",
                hint="a Delta table has its files in its folder, or below it",
            )
        options = self.storage_options
        if options is None and root.startswith("s3://"):
            options = s3_options(storage_options or {}, _OF_S3FS)
            if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
                options["AWS_ALLOW_HTTP"] = "true"
        return ConnectedDelta(self, root, dict(options or {}))


class ConnectedDelta:
    """A Delta table, and the version of it that was looked at."""

    def __init__(self, settings: DeltaTable, root: str, options: dict[str, str]) -> None:
        self.name = f"Delta table {root}"
        self._settings = settings
        self._root = root
        self._uri = root.removeprefix("file://")
        self._options = options
        self._table: Any = None  # as it was when it was looked at

    def load(self) -> bool:
        """Look at the newest version; False where there is no such table yet."""
        try:
            import deltalake  # noqa: PLC0415
        except ImportError as error:
            raise UnsupportedError(
                "tables of Delta need deltalake", hint="pip install 'resilient_pq[delta]'"
            ) from error
        with telling(self.name):
            if self._table is not None:
                self._table.update_incremental()
            elif deltalake.DeltaTable.is_deltatable(self._uri, self._options):
                self._table = deltalake.DeltaTable(self._uri, storage_options=self._options)
            return self._table is not None

    def create(self, ingest: Ingest, partition_by: Sequence[PartitionKey]) -> None:
        """Make it, for rows of a schema, unless somebody else just has, and look at it."""
        import deltalake  # noqa: PLC0415

        missing = [key for key in partition_by if key.is_column and key.name not in ingest.schema.names]
        if missing:
            raise SchemaError(
                f"the type of {missing[0].name!r} is not known, which is in the names of folders alone",
                where=Where(key=self.name),
                hint="give schema=, with the columns of partition_by",
            )
        derived = [deltalake.Field(key.name, _type_of(key)) for key in partition_by if not key.is_column]
        schema = deltalake.Schema([*self._delta_schema(ingest.schema).fields, *derived])
        with telling(self.name):
            deltalake.DeltaTable.create(
                self._uri,
                schema,
                mode="ignore",
                partition_by=[key.name for key in partition_by],
                configuration=dict(self._settings.configuration),
                storage_options=self._options,
            )
        self.load()

    def fitted(self, ingest: Ingest, partition_by: Sequence[PartitionKey]) -> Ingest:
        """What takes rows for files of this table; an error where they do not fit it."""
        with telling(self.name):
            metadata = self._table.metadata()
            if metadata.partition_columns != [key.name for key in partition_by]:
                theirs = ", ".join(metadata.partition_columns) or "nothing"
                raise SchemaError(
                    f"the table is partitioned by {theirs}, the data set by {words(partition_by)}",
                    where=Where(key=self.name),
                    hint="partition_by is the same for both",
                )
            for name, value in metadata.configuration.items():
                if name.startswith("delta.constraints.") or (name == "delta.columnMapping.mode" and value != "none"):
                    raise UnsupportedError(
                        f"the table has {name} = {value!r}, which is not kept here", where=Where(key=self.name)
                    )
            self._check(ingest.schema, but=metadata.partition_columns)
        return ingest

    def committed(self, sink: str, partitions: Collection[str]) -> Marks:
        """The marks of a sink in some partitions, in the version that was looked at."""
        marks = {each: self._transaction(self._application(sink, each)) for each in partitions}
        return {partition: mark for partition, mark in marks.items() if mark is not None}

    def commit(self, sink: str, files: Sequence[TableFile]) -> None:
        """Add files and raise their marks, unless there is a newer version: then a `TransientError`, and nothing."""
        from deltalake.transaction import Transaction  # noqa: PLC0415

        marks = raised({}, files)
        transactions = [Transaction(self._application(sink, each), mark) for each, mark in marks.items()]
        partitions = self._table.metadata().partition_columns
        for file in files:
            self._check(file.contents.schema, but=partitions)
        self._commit(
            [self._add(file) for file in files], transactions, {"rpq.sink": sink, "rpq.files": sequences(files)}
        )

    def rewrite(self, removed: Sequence[str], added: Sequence[TableFile], commit_id: str) -> None:
        """Replace files (by location) with others of the same rows, once for each id; as `commit` otherwise."""
        import pyarrow as pa  # noqa: PLC0415
        from deltalake.transaction import RemoveAction, Transaction  # noqa: PLC0415

        application = f"rpq/commit/{commit_id}"
        if self._transaction(application) is not None:
            return
        wanted = {self._relative(location) for location in removed}
        with telling(self.name):
            live = {unquote(path.as_py()) for path in pa.table(self._table.get_add_actions())["path"]}
            deleted = pa.table(self._table.deletion_vectors()) if wanted else None
            names = [] if deleted is None else [unquote(str(each)) for each in deleted["filepath"].to_pylist()]
        have_deletes = {path: any(name.endswith(path) for name in names) for path in wanted & live}
        check_rewrite(self.name, wanted, have_deletes)
        keys = self._table.metadata().partition_columns
        now = int(time.time() * 1000)
        remove = [
            RemoveAction(path, False, now, None, _values(path.rpartition("/")[0], keys)) for path in sorted(wanted)
        ]
        add = [self._add(file, data_change=not wanted) for file in added]
        self._commit([*remove, *add], [Transaction(application, 1)], {"rpq.commit": commit_id})

    def _transaction(self, application: str) -> int | None:
        """The version that an application has, for which the log is read."""
        with telling(self.name):
            version: int | None = self._table.transaction_version(application)
        return version

    def _commit(self, actions: Sequence[Any], transactions: Sequence[Any], told: Mapping[str, str]) -> None:
        from deltalake.transaction import CommitProperties  # noqa: PLC0415

        table = self._table
        with telling(self.name):
            table.create_write_transaction(
                list(actions),
                "append",
                table.schema(),
                table.metadata().partition_columns,
                commit_properties=CommitProperties(app_transactions=list(transactions), custom_metadata=dict(told)),
            )

    # -- schemas and files -----------------------------------------------------------------------

    def _relative(self, location: str) -> str:
        return location.removeprefix(f"{self._root}/")

    def _application(self, sink: str, partition: str) -> str:
        """Names a sink in a partition in a way that stays when the table is moved."""
        return f"rpq/{self._relative(sink)}{'/' if partition else ''}{partition}"

    def _add(self, file: TableFile, *, data_change: bool = True) -> Any:
        from deltalake.transaction import AddAction  # noqa: PLC0415

        keys = self._table.metadata().partition_columns
        return AddAction(
            self._relative(file.location),
            file.size,
            _values(file.partition, keys),
            int(time.time() * 1000),
            data_change,
            statistics_json(file.contents),
        )

    def _check(self, schema: Schema, *, but: Collection[str] = ()) -> None:
        """Raise where the columns are not those of the table, but for some that may be missing."""
        theirs = {each.name: each for each in self._table.schema().fields}
        ours = {each.name: each for each in self._delta_schema(schema).fields}
        for name, each in ours.items():
            if name not in theirs:
                raise self._unfit(name, "is not in the table", "add it to the table first, or leave it out")
            if each.type != theirs[name].type:
                ours, its = (getattr(kind, "type", kind) for kind in (each.type, theirs[name].type))
                raise self._unfit(name, f"is of the type {ours}, the table's {its}", "cast it")
            if each.nullable and not theirs[name].nullable:
                raise self._unfit(name, "may be null, and the table's may not", "give a schema that says so")
        for name, each in theirs.items():
            if name not in ours and name not in but and not each.nullable:
                raise self._unfit(name, "is missing, and the table's is never null", "write it, too")

    def _unfit(self, column: str, what: str, hint: str) -> SchemaError:
        return SchemaError(f"column {column!r} {what}", where=Where(key=self.name, column=column), hint=hint)

    def _delta_schema(self, schema: Schema) -> Any:
        """The columns in the types of Delta, which has no unsigned integers, and no times finer than microseconds."""
        import deltalake  # noqa: PLC0415
        import pyarrow as pa  # noqa: PLC0415

        for leaf in schema.leaves:
            kind = leaf.node.logical
            unsigned = isinstance(kind, logical.Integer) and not kind.signed
            fine = isinstance(kind, logical.Timestamp) and kind.unit is logical.TimeUnit.NANOS
            if unsigned or fine or kind == logical.UNKNOWN:
                raise self._unfit(leaf.column_path, f"is of the type {kind}, which Delta does not have", "cast it")
        try:
            return deltalake.Schema.from_arrow(pa.schema(schema_to_arrow(schema)))
        except Exception as error:  # of no kind of its own; nothing but types is looked at
            raise SchemaError(
                f"a column has a type that Delta does not have: {str(error).splitlines()[0]}",
                where=Where(key=self.name),
                hint="cast it before it is written",
            ) from error


def _values(folder: str, keys: Sequence[str]) -> dict[str, str | None]:
    """The values of the columns of the partitions, as text."""
    return {key: partition_text(folder, key) for key in keys}


def _type_of(key: PartitionKey) -> Any:
    """The type of the column that a transform becomes: Delta has no transforms."""
    from deltalake.schema import PrimitiveType  # noqa: PLC0415

    return PrimitiveType("integer" if key.num_buckets else "date" if key.transform == "day" else "string")


def statistics_json(contents: Contents) -> str:
    """The rows of a file, and of its columns the bounds and the nulls, as far as all row groups tell them."""
    found: dict[str, Any] = {"numRecords": contents.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for leaf in contents.schema.leaves:
        chunks = [group.columns[leaf.ordinal].meta_data for group in contents.metadata.row_groups]
        if leaf.max_repetition_level or None in chunks:
            continue
        parts = [chunk_statistics(contents.metadata, leaf, chunk) for chunk in chunks if chunk is not None]
        low, high = _bounds(parts)
        for name, value in (("minValues", low), ("maxValues", high), ("nullCount", _null_count(parts))):
            if value is not None:
                _put(found[name], leaf.path, value)
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _null_count(parts: Sequence[ColumnStatistics]) -> int | None:
    counts = [part.null_count for part in parts if part.null_count is not None]
    return sum(counts) if len(counts) == len(parts) else None


def _bounds(parts: Sequence[ColumnStatistics]) -> tuple[Any, Any]:
    valued = [part for part in parts if not part.all_null]
    if not valued or any(part.low is None or part.high is None for part in valued):
        return None, None
    lowest, highest = min(valued, key=lambda part: part.low), max(valued, key=lambda part: part.high)
    return _in_json(lowest.min), _in_json(highest.max)


def _in_json(value: Any) -> Any:
    """A bound as JSON has it; None for what readers of Delta do not compare, or not exactly."""
    match value:
        case bool():
            return None
        case int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case decimal.Decimal():
            return float(value) if decimal.Decimal(repr(float(value))) == value else None
        case dt.datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            return f"{text}Z" if value.tzinfo is not None else text
        case dt.date():
            return value.isoformat()
    return None


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
