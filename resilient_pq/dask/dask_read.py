"""`read`: footers are read once, where the graph is made, and every row group becomes a partition."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from typing import Any, Literal, get_args

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.dask.frames import (
    Backend,
    FrameTypes,
    Nulls,
    arrow_strings,
    index_of,
    is_unnamed,
    pandas_index,
    stored_dictionaries,
)
from resilient_pq.dask.serialized_row_group import SerializedFile, SerializedRowGroup, at_ordinal, with_errors_detached
from resilient_pq.dataset.dataset import Dataset
from resilient_pq.dataset.dataset_opening import open_many
from resilient_pq.dataset.folder_columns import FolderColumns, Narrowed
from resilient_pq.errors import ResilientPQError, SchemaError
from resilient_pq.io import RetryPolicy, resolve, with_retry
from resilient_pq.io.location import scrubbed
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.loop_portal import portal
from resilient_pq.reader.file import File
from resilient_pq.reader.read_options import ReadOptions, ReadSettings
from resilient_pq.reader.read_plan import Filters, plan_read

Urls = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def read(
    urls: Urls,
    columns: Sequence[str] | None = None,
    filters: Filters | None = None,
    *,
    index: str | Literal[False] | None = None,
    partitioning: object | None = None,
    dtype_backend: Backend | None = None,
    verify: bool = True,
    on_damage: Literal["raise", "null", "drop"] = "raise",
    options: ReadOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> dd.DataFrame:
    """Parquet files as a Dask DataFrame with a partition for every row group.

    Footers are read here, once; a worker asks for nothing but the bytes of its row group, of the very version of the
    object that was planned with. A row group that `filters` rule out by its statistics is no partition; in all others
    rows that do not meet them are left out by the workers. Where columns are chosen later, as in
    ``read(urls)["price"]``, only those are fetched.

    Args:
        urls: As of `resilient_pq.open_many`, but for pairs of a store and a key: a file, a list of files, a folder, its
            ``_metadata``, or a pattern. Files of this machine have to be there for the workers too, under the same
            path.
        columns: Names of columns, in the order wanted, or paths of fields inside of them; None for all.
        filters: As of `resilient_pq.File.read`; all are exact.
        index: The column that becomes the index. None is the one that pandas says was the index, if any; False is none.
            An index that had no name is left out then.
        partitioning: As of `resilient_pq.open_many`: "hive" makes columns of folders such as ``day=1``, behind those of
            the files. Files that `filters` rule out by them are not opened.
        dtype_backend: Types of the frames: "numpy_nullable", "pyarrow", or None for those of
            `dask.dataframe.read_parquet`. With None, an integer column that has nulls in any row group is floating
            point in all, or pandas' nullable integers where its values may be too large to be exact in that.
        verify: Compare every checksum that the files have.
        on_damage: As of `resilient_pq.open`: what becomes of rows of which a value is lost.
        options: How to read; budgets are those of each task.
        storage_options: Credentials, endpoint and so on, as fsspec and pandas take them; workers get them too.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s.

    Returns:
        The frame; its divisions are not known. Computing it raises what `resilient_pq.File.read` does, an
        ObjectChangedError among them when an object was replaced after this call.

    Raises:
        SchemaError: There is no such column, the files' schemas differ, `filters` have another form, or an argument is
            wrong.
        NotFoundError: A file is missing, the folder has none, or none matches the pattern.
        FormatError: The footer of a file is missing or damaged; it names the file.
        StoreError: A store could not say.
    """
    storage_options = with_retry(storage_options, retry)
    if dtype_backend is not None and dtype_backend not in get_args(Backend):
        raise SchemaError(f"dtype_backend is {dtype_backend!r}", hint=f"one of {', '.join(get_args(Backend))}, or None")
    how = ReadSettings.checked(verify=verify, on_damage=on_damage, on_lost=None, options=options)
    request = Request(columns, filters, index, partitioning, dtype_backend, how, storage_options)
    partitions, task = portal.run(_planned(_checked(urls), request))
    if not partitions:
        with dask.config.set({"dataframe.convert-string": False}):
            return dd.from_pandas(task.types.meta(), npartitions=1)
    # Frames have the types that they are to have; what Dask would make text of besides are lists and the like.
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(task, partitions, meta=task.types.meta(), label=task.__name__)


def _checked(urls: Urls) -> Urls:
    """Refuse stores, which live in one process."""
    named = [urls] if isinstance(urls, str | os.PathLike) else urls
    if not isinstance(named, Sequence) or not all(isinstance(url, str | os.PathLike) for url in named):
        raise SchemaError(
            f"urls is {scrubbed(repr(urls))}",
            hint="it is a URL, a path, or a list of them: other processes find files by those",
        )
    return urls


@dataclass(frozen=True, slots=True)
class Request:
    """What `read` was asked."""

    columns: Sequence[str] | None
    filters: Filters | None
    index: str | Literal[False] | None
    partitioning: object | None
    backend: Backend | None
    how: ReadSettings
    storage_options: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """What a worker does for a partition: called with the row group, it gives the frame."""

    types: FrameTypes  # how tables become frames
    #: For each column of the tables, what is asked for of the file: it, or fields inside of it.
    paths: Mapping[str, tuple[str, ...]]
    how: ReadSettings
    storage_options: Mapping[str, Any] | None = field(repr=False)

    @property
    def __name__(self) -> str:
        """What Dask calls its tasks."""
        return "read-resilient-pq"

    @with_errors_detached
    def __call__(self, row_group: SerializedRowGroup, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The rows of a row group."""
        types = self.types
        names = types.columns if columns is None else list(columns)
        schema = pa.schema([types.schema.field(name) for name in names])
        if types.index is not None:
            schema = schema.append(types.schema.field(types.index))
        table: pa.Table = portal.run(self._read(row_group, schema))
        return types.frame(table)

    async def _read(self, row_group: SerializedRowGroup, schema: pa.Schema) -> pa.Table:
        store, key = resolve(row_group.file.url, self.storage_options)
        wanted = [path for name in schema.names for path in self.paths.get(name, ())]
        async with store:
            try:
                file = row_group.opened(store, key, self.how)
                found = await file.read(columns=wanted, filters=row_group.file.filters)
            except ResilientPQError as error:
                raise at_ordinal(error, row_group.ordinal) from error.__cause__
        in_folders = row_group.file.in_folders
        columns = {name: pa.repeat(value[0], found.num_rows) for name, value in in_folders.items()}
        if wanted:
            table = pa.table(found)
            columns |= {name: table.column(name) for name in table.column_names}
        # The types that all files agree upon hold those of each.
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)


async def _planned(urls: Urls, request: Request) -> tuple[list[SerializedRowGroup], ReadPartition]:
    """The partitions, and what is done for each."""
    opening = open_many(
        urls,
        verify=request.how.verify,
        partitioning=request.partitioning,
        filters=None if request.partitioning is None else request.filters,
        options=request.how.options,
        storage_options=request.storage_options,
    )
    async with opening as dataset:
        task = _task(dataset, request)
        partitions, nulls = await _partitions(dataset, task, request.filters)
    return partitions, replace(task, types=nulls.applied())


def _task(dataset: Dataset, request: Request) -> ReadPartition:
    """What is asked for, in the terms of the files; nulls are not looked at yet."""
    whole = pa.schema(dataset.arrow_schema)
    index, index_name = index_of(whole, request.index)
    columns = request.columns
    if columns is None:
        unnamed = {name for name in pandas_index(whole) if is_unnamed(name) and name != index}
        columns = [name for name in whole.names if name not in unnamed] if unnamed else None
    elif index is not None and index not in columns:
        columns = [*columns, index]
    schema = pa.schema(dataset.batches(columns=columns, filters=request.filters).schema).remove_metadata()
    if len(set(schema.names)) < len(schema.names):
        raise SchemaError("two columns have one name", hint="choose one with columns=")
    dictionaries = stored_dictionaries(dataset.files[0].contents.key_value) if request.backend is None else frozenset()
    types = FrameTypes(
        schema, index, index_name, categories=dictionaries & {*schema.names}, backend=request.backend,
        arrow_strings=arrow_strings(),
    )  # fmt: skip
    in_folders = {} if dataset.folders is None else dict.fromkeys(dataset.folders.names)
    own = None if columns is None else [name for name in columns if name not in in_folders]
    return ReadPartition(types, _paths(dataset.files[0], own), request.how, request.storage_options)


def _paths(file: File, columns: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """For each top-level column of the files, what is asked for of it."""
    if columns is None:
        return {name: (name,) for name in file.schema.names}
    found: dict[str, tuple[str, ...]] = {}
    for path in columns:
        (selection,) = file.schema.select([path])
        name = selection.node.name
        found[name] = (*found.get(name, ()), path)
    return found


async def _partitions(
    dataset: Dataset, task: ReadPartition, filters: Filters | None
) -> tuple[list[SerializedRowGroup], Nulls]:
    """A partition for each row group that may have rows that are wanted."""
    nulls = Nulls(task.types, damage_is_null=task.how.on_damage is OnDamage.NULL)
    partitions: list[SerializedRowGroup] = []
    paths = list(chain.from_iterable(task.paths.values()))
    folders = dataset.folders
    wishes: Sequence[Narrowed | None] = [Narrowed(filters)] * len(dataset.files)
    if folders is not None:
        wishes = folders.narrowed(filters)
    for position, (file, wish) in enumerate(zip(dataset.files, wishes, strict=True)):
        if wish is None:
            continue
        plan = plan_read(file.contents, paths, None, wish.filters)
        leaves = {leaf.ordinal for column in plan.columns for leaf in column.leaves}
        await file.objects.pin(chunk.file for group in plan.row_groups for chunk in group.chunks)
        in_folders = {} if folders is None else _in_folders(folders, position)
        nulls.see_folders(in_folders)
        shipped = SerializedFile.of(file, wish.filters, in_folders)
        for group in plan.row_groups:
            partitions.append(SerializedRowGroup.of(shipped, file, group.ordinal, leaves))
            nulls.see(file, group.ordinal)
    return partitions, nulls


def _in_folders(folders: FolderColumns, position: int) -> dict[str, pa.Array]:
    """The values that the folders of a file name."""
    return {name: pa.array(folders.array(column, position, 1)) for column, name in enumerate(folders.names)}
