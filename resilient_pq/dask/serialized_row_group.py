"""A row group on its way to another process: all that reading it takes, so that nobody asks for a footer twice.

What the row groups of a file share is one object, which they all name; what is sent with each of them is its own part
of the footer, without the columns that are not wanted, and the versions that its bytes are read from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from resilient_pq.errors import ResilientPQError
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.file_metadata import ColumnChunk, FileMetaData, RowGroup
from resilient_pq.format.footer import Footer, key_values
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io import FetchCounters, LocalStore, ObjectInfo, ObjectTail, ReadStore
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.data_file import data_file
from resilient_pq.reader.file import File
from resilient_pq.reader.read_options import ReadSettings
from resilient_pq.reader.read_plan import Filters

P = ParamSpec("P")
T = TypeVar("T")

#: A file as another process finds it: a URL, or the absolute path of one of this machine.
Location = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class SerializedFile:
    """What the row groups of a file have in common."""

    url: Location  # where it is
    info: ObjectInfo  # the version that was planned with; everything is read from that one
    metadata: bytes = field(repr=False)  # the file metadata without row groups, in Thrift's compact protocol
    data_end: int  # offset before which column chunks end
    filters: Filters | None = None  # which rows are wanted
    #: The columns that are in the names of its folders, each as an Arrow array of the one value.
    in_folders: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, file: File, filters: Filters | None, in_folders: Mapping[str, Any]) -> SerializedFile:
        """What is read of an open file, to be read elsewhere; the attributes say what."""
        own = file.metadata
        metadata = footer.serialize(
            own.schema,
            [],
            num_rows=0,
            column_orders=own.column_orders,
            key_value=key_values(own.key_value_metadata),
            created_by=own.created_by,
        )
        return cls(location_of(*file.place), file.info, metadata, file.contents.data_end, filters, in_folders)


@dataclass(frozen=True, slots=True)
class SerializedRowGroup:
    """One row group."""

    file: SerializedFile  # what it shares with the others of its file
    ordinal: int  # its number in the file
    row_group: bytes = field(repr=False)  # its part of the footer, in Thrift's compact protocol
    #: For a summary, the data files that it lies in and the versions that they are read from.
    data_files: tuple[tuple[str, ObjectInfo], ...] = ()

    @classmethod
    def of(cls, shipped: SerializedFile, file: File, ordinal: int, leaves: Collection[int]) -> SerializedRowGroup:
        """A row group of an open file, whose data files are pinned."""
        whole = file.metadata.row_groups[ordinal]
        # A footer has a chunk for each leaf; of those that nobody wants nothing is said.
        columns = [column if i in leaves else ColumnChunk() for i, column in enumerate(whole.columns)]
        names = dict.fromkeys(data_file(column.file_path or None) for column in columns)
        pinned = tuple((name, file.objects.data_files.pinned[name]) for name in names if name is not None)
        return cls(shipped, ordinal, compact_protocol.encode(replace(whole, columns=columns)), pinned)

    def opened(self, store: ReadStore, key: str, how: ReadSettings) -> File:
        """The file, as if it had this row group only; nothing is asked of the store."""
        contents = self._contents()
        info = replace(self.file.info, key=key)
        file = File(
            store,
            ObjectTail(info, info.size, b""),
            contents,
            how,
            counters=FetchCounters(),
            owns_store=False,
        )
        file.objects.data_files.keep_to(dict(self.data_files))
        return file

    def _contents(self) -> Contents:
        metadata, _ = compact_protocol.decode(FileMetaData, self.file.metadata)
        row_group, _ = compact_protocol.decode(RowGroup, self.row_group)
        metadata.row_groups, metadata.num_rows = [row_group], row_group.num_rows
        schema = Schema.from_elements(metadata.schema).without_empty_groups()
        # Whoever planned the reading compared the footer with its record.
        found = Footer(metadata, self.file.data_end, len(self.file.metadata), None)
        return Contents(found, schema, key_values(metadata.key_value_metadata), None, ())


def location_of(store: ReadStore, key: str) -> Location:
    """Where others find an object: paths are absolute, since others are in other folders."""
    if isinstance(store, LocalStore):
        return Path(os.path.abspath(store.url_of(key)))
    return store.address_of(key)


def at_ordinal(error: ResilientPQError, ordinal: int) -> ResilientPQError:
    """An error of a row group that was read as the only one of its file, under the number that it has there."""
    if error.where.row_group is not None:
        error.where = replace(error.where, row_group=ordinal)
    return error


def with_errors_detached(function: Callable[P, T]) -> Callable[P, T]:
    """A task of which an error of ours reaches the caller whole: Dask pickles all that one names, or none of it."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except ResilientPQError as error:
            detached = error.detached()
        raise detached  # not in the clause, as its context would be the error that it replaces

    return call
