"""Tables of Apache Iceberg, through pyiceberg.

The marks of a sink are a property of the table, ``rpq.sink.{sink}``, which is set in the commit that adds the files: so
it survives the removal of old snapshots, which the summary of a snapshot does not. A commit asserts that the table's
newest snapshot is the one that was looked at. pyiceberg would repeat a commit after a conflict without asking for the
marks again, so it is told not to.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.arrow.types.arrow_schema import schema_to_arrow
from resilient_pq.errors import OptionError, SchemaError, UnsupportedError, Where
from resilient_pq.format import compact_protocol
from resilient_pq.format.footer import MAGIC, frame
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io import RetryPolicy
from resilient_pq.tables.committer import telling
from resilient_pq.tables.field_ids import with_field_ids
from resilient_pq.tables.file_table import (
    Marks,
    TableFile,
    check_rewrite,
    local_location,
    raised,
    read_marks,
    s3_options,
    sequences,
    write_marks,
)
from resilient_pq.tables.partition_key import PartitionKey, partition_text, words

_SINK = "rpq.sink"
_FILES = "rpq.files"
_COMMIT = "rpq.commit"
#: pyiceberg takes what follows for no part of the path.
_NOT_IN_LOCATIONS = frozenset("#?")
_NAME_MAPPING = "schema.name-mapping.default"
#: Of a commit after a conflict, by pyiceberg.
_NO_RETRIES = {"commit.retry.num-retries": "0"}
_OF_S3FS = {
    "key": "s3.access-key-id",
    "secret": "s3.secret-access-key",
    "token": "s3.session-token",
    "endpoint_url": "s3.endpoint",
    "region_name": "s3.region",
}


@dataclass(frozen=True)
class IcebergTable:
    """A table of Apache Iceberg that files are committed to: `create_dataset`, `resume_dataset`, `rpq.dask.write`.

    It is created, with its namespace, when it does not exist. Requires pyiceberg: ``resilient_pq[iceberg]``.

    Attributes:
        name: The table with its namespace: ``"web.events"``.
        catalog: The name of a catalog in the configuration of pyiceberg; or its properties, as
            ``pyiceberg.catalog.load_catalog`` takes them; or a local folder (a `Path`, or a text with a slash):
            the catalog is then a SQLite database in this folder, ``catalog.db``, and metadata of tables lie beside it.
        location: The folder of the table's metadata, where it is created; None leaves it to the catalog.
        properties: Properties of the table, where it is created.
        retry: How long a commit is tried again while the catalog does not answer; None is as long as requests of the
            data set are. Writing goes on meanwhile, and the time counts from the end of the data set on.
    """

    name: str
    catalog: str | os.PathLike[str] | Mapping[str, Any] = "default"
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    retry: RetryPolicy | None = None

    keeps_keys: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a name that no table has."""
        if not isinstance(self.name, str) or not all(self.name.split(".")) or "." not in self.name:
            raise OptionError(f"name is {self.name!r}; it is a namespace and a table", hint='such as "web.events"')

    def connect(self, folder: str, storage_options: Mapping[str, Any] | None) -> ConnectedTable:
        """The table as a thread works with it."""
        if "://" not in folder or set(folder) & _NOT_IN_LOCATIONS:
            raise OptionError(
                f"files in {folder} cannot be in a table: readers do not find them there",
                hint="write into a folder, or an object store, whose name has neither # nor ?",
            )
        return ConnectedTable(self, folder, storage_options or {})

    def _catalog_properties(self, folder: str, storage_options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The name of the catalog, and its properties."""
        given = self.catalog
        if isinstance(given, str) and "/" not in given and os.sep not in given:
            return given, {}
        if isinstance(given, Mapping):
            ours = s3_options(storage_options, _OF_S3FS) if folder.startswith("s3") else {}
            return str(given.get("name", "default")), {**ours, **given}
        from sqlalchemy import URL  # noqa: PLC0415

        path = Path(given).absolute()
        path.mkdir(parents=True, exist_ok=True)
        uri = URL.create("sqlite", database=str(path / "catalog.db")).render_as_string()
        database = {"type": "sql", "uri": uri, "warehouse": local_location(str(path))}
        return "default", {**(s3_options(storage_options, _OF_S3FS) if folder.startswith("s3") else {}), **database}


class ConnectedTable:
    """An Iceberg table, and the version of it that was looked at."""

    def __init__(self, settings: IcebergTable, folder: str, storage_options: Mapping[str, Any]) -> None:
        self.name = f"Iceberg table {settings.name}"
        self._settings = settings
        self._known = folder, storage_options
        self._connected: Any = None
        self._table: Any = None  # as it was when it was looked at

    @property
    def _catalog(self) -> Any:
        if self._connected is None:
            try:
                from pyiceberg.catalog import load_catalog  # noqa: PLC0415

                name, properties = self._settings._catalog_properties(*self._known)
            except ImportError as error:
                raise UnsupportedError(
                    "tables of Iceberg need pyiceberg", hint="pip install 'resilient_pq[iceberg]'"
                ) from error
            try:
                self._connected = load_catalog(name, **properties)
            except ValueError as error:  # of settings alone: nothing is asked yet
                raise OptionError(
                    f"the catalog {name!r} cannot be used: {error}",
                    hint="name one that pyiceberg's configuration has, give its properties, or a folder: ./tables",
                ) from error
        return self._connected

    def load(self) -> bool:
        """Look at the newest version; False where there is no such table yet."""
        with telling(self.name):
            catalog = self._catalog
            from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

            try:
                self._table = catalog.load_table(self._settings.name)
            except NoSuchTableError:
                return False
            return True

    def create(self, ingest: Ingest, partition_by: Sequence[PartitionKey]) -> None:
        """Make it, for rows of a schema, unless somebody else just has, and look at it."""
        with telling(self.name):
            from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError  # noqa: PLC0415
            from pyiceberg.partitioning import PartitionField, PartitionSpec  # noqa: PLC0415
            from pyiceberg.transforms import parse_transform  # noqa: PLC0415

            numbers = count(1)
            schema = self._iceberg_schema(with_field_ids(ingest.schema, lambda _: next(numbers)))
            fields = (
                PartitionField(
                    schema.find_field(key.column).field_id, 1000 + at, parse_transform(key.transform), key.name
                )
                for at, key in enumerate(partition_by)
            )
            namespace = self._settings.name.rpartition(".")[0]
            with suppress(NamespaceAlreadyExistsError):
                self._catalog.create_namespace(namespace)
            with suppress(TableAlreadyExistsError):
                self._catalog.create_table(
                    self._settings.name,
                    schema,
                    location=self._settings.location,
                    partition_spec=PartitionSpec(*fields),
                    properties=dict(self._settings.properties),
                )
        self.load()

    def fitted(self, ingest: Ingest, partition_by: Sequence[PartitionKey]) -> Ingest:
        """What takes rows for files of this table, with its field ids; an error where they do not fit it."""
        with telling(self.name):
            if self._keys != list(partition_by):
                raise SchemaError(
                    f"the table is partitioned by {words(self._keys)}, the data set by {words(partition_by)}",
                    where=Where(key=self.name),
                    hint="partition_by is the same for both",
                )
            return ingest.with_schema(self._checked(ingest.schema))

    def committed(self, sink: str, partitions: Collection[str]) -> Marks:
        """The marks of a sink in some partitions, in the version that was looked at."""
        return read_marks(self._table.properties.get(f"{_SINK}.{sink}"), self.name)

    def commit(self, sink: str, files: Sequence[TableFile]) -> None:
        """Add files and raise their marks, unless there is a newer version: then a `TransientError`, and nothing."""
        marks = write_marks(raised(self.committed(sink, ()), files))
        with self._committing({f"{_SINK}.{sink}": marks}) as transaction:
            update = transaction.update_snapshot({_SINK: sink, _FILES: sequences(files)})
            merging = self._table.properties.get("commit.manifest-merge.enabled", "").lower() == "true"
            with update.merge_append() if merging else update.fast_append() as producer:
                for file in files:
                    producer.append_data_file(self._data_file(file))

    def rewrite(self, removed: Sequence[str], added: Sequence[TableFile], commit_id: str) -> None:
        """Replace files (by location) with others of the same rows, once for each id; as `commit` otherwise."""
        if any(snapshot.summary and snapshot.summary.get(_COMMIT) == commit_id for snapshot in self._table.snapshots()):
            return
        wanted = set(removed)
        with telling(self.name):
            live = [task for task in self._table.scan().plan_files() if task.file.file_path in wanted]
        check_rewrite(self.name, wanted, {task.file.file_path: bool(task.delete_files) for task in live})
        with self._committing({}) as transaction:
            update = transaction.update_snapshot({_COMMIT: commit_id})
            with update.overwrite() if wanted else update.fast_append() as producer:
                for task in live:
                    producer.delete_data_file(task.file)
                for file in added:
                    producer.append_data_file(self._data_file(file))
            if wanted:
                transaction._updates = tuple(map(_as_replacement, transaction._updates))

    @contextmanager
    def _committing(self, properties: Mapping[str, str]) -> Iterator[Any]:
        """A transaction upon the version that was looked at, and no other."""
        table = self._table
        with telling(self.name):
            wanted = dict(properties)
            if table.name_mapping() is None:
                wanted[_NAME_MAPPING] = table.schema().name_mapping.model_dump_json()
            table.metadata = table.metadata.model_copy(update={"properties": {**table.properties, **_NO_RETRIES}})
            transaction = table.transaction()
            if wanted:
                transaction.set_properties(wanted)
            yield transaction
            self._table = transaction.commit_transaction()

    # -- schemas and files -----------------------------------------------------------------------

    def _checked(self, schema: Schema) -> Schema:
        """The columns with the ids of the table, which has all of them, of the same types or of larger ones."""
        table = self._table.schema()

        def id_of(path: tuple[str, ...]) -> int:
            name = ".".join(path)
            try:
                return int(table.find_field(name).field_id)
            except ValueError:
                raise self._unfit(name, "is not in the table", "add it to the table first, or leave it out") from None

        numbered = with_field_ids(schema, id_of)
        given = self._iceberg_schema(numbered)
        for number in given.field_ids:
            self._check_field(given.find_field(number), table.find_field(number), str(given.find_column_name(number)))
        for each in table.fields:
            if each.required and each.field_id not in given.field_ids:
                raise self._unfit(each.name, "is missing, and the table's is never null", "write it, too")
        return numbered

    def _check_field(self, ours: Any, theirs: Any, name: str) -> None:
        from pyiceberg.exceptions import ResolveError  # noqa: PLC0415
        from pyiceberg.schema import promote  # noqa: PLC0415

        if theirs.required and not ours.required:
            raise self._unfit(name, "may be null, and the table's may not", "give a schema that says so")
        if ours.field_type.is_primitive and ours.field_type != theirs.field_type:
            try:
                promote(ours.field_type, theirs.field_type)
            except ResolveError:
                kinds = f"is of the type {ours.field_type}, the table's {theirs.field_type}"
                raise self._unfit(name, kinds, "cast it before it is written") from None

    def _unfit(self, column: str, what: str, hint: str) -> SchemaError:
        return SchemaError(f"column {column!r} {what}", where=Where(key=self.name, column=column), hint=hint)

    def _iceberg_schema(self, schema: Schema) -> Any:
        """The columns in the types of Iceberg."""
        import pyarrow as pa  # noqa: PLC0415
        from pyiceberg.io.pyarrow import pyarrow_to_schema  # noqa: PLC0415

        version = self._settings.properties.get("format-version", 2)
        version = version if self._table is None else self._table.format_version
        try:
            return pyarrow_to_schema(pa.schema(schema_to_arrow(schema)), format_version=int(version))
        except Exception as error:  # of many kinds; nothing but types is looked at
            raise SchemaError(
                f"a column has a type that Iceberg does not have: {error}",
                where=Where(key=self.name),
                hint="cast it before it is written: times to microseconds, unsigned integers to larger signed ones",
            ) from error

    def _data_file(self, file: TableFile) -> Any:
        """A file as a manifest has it: its partition, its statistics."""
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415
        from pyiceberg.io.pyarrow import (  # noqa: PLC0415
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat  # noqa: PLC0415

        table, contents = self._table, file.contents
        numbered = self._checked(contents.schema)
        for leaf, ours in zip(numbered.leaves, contents.schema.leaves, strict=True):
            if ours.node.field_id not in (None, -1, leaf.node.field_id):
                raise self._unfit(leaf.column_path, "has the field id of another table", "commit it to that one")
        footer = MAGIC + frame(compact_protocol.encode(contents.metadata))
        statistics = data_file_statistics_from_parquet_metadata(
            pq.read_metadata(pa.BufferReader(footer)),
            compute_statistics_plan(table.schema(), table.properties),
            {leaf.column_path: leaf.node.field_id for leaf in numbered.leaves if leaf.node.field_id is not None},
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.location,
            file_format=FileFormat.PARQUET,
            partition=self._partition(file.partition),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    @property
    def _keys(self) -> list[PartitionKey]:
        """What the table is partitioned by."""
        schema = self._table.schema()
        return [
            PartitionKey(str(schema.find_column_name(each.source_id)), str(each.transform))
            for each in self._table.spec().fields
        ]

    def _partition(self, folder: str) -> Any:
        """The values of a partition, in the types of the table."""
        from pyiceberg.conversions import partition_to_py  # noqa: PLC0415
        from pyiceberg.typedef import Record  # noqa: PLC0415
        from pyiceberg.types import DateType  # noqa: PLC0415

        values: list[Any] = []
        for key in self._keys:
            kind, text = self._table.schema().find_type(key.column), partition_text(folder, key.name)
            if text is None:
                values.append(None)
            elif key.is_column and not isinstance(kind, DateType):
                values.append(partition_to_py(kind, text))
            else:
                values.append(key.value(text))
        return Record(*values)


def _as_replacement(update: Any) -> Any:
    """The same snapshot as one that changes no row, which readers of changes pass over; pyiceberg makes none."""
    from pyiceberg.table.snapshots import Operation, Summary  # noqa: PLC0415
    from pyiceberg.table.update import AddSnapshotUpdate  # noqa: PLC0415

    if not isinstance(update, AddSnapshotUpdate):
        return update
    told = update.snapshot.summary.additional_properties if update.snapshot.summary else {}
    summary = Summary(Operation.REPLACE, **told)
    return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"summary": summary}))
