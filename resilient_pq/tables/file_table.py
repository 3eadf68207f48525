"""What a table of files is asked and told, whatever its format, and what a sink notes in it. Pure.

A sink numbers the files of each partition from 0, and publishes them in this order. So one number for each partition,
its *mark*, says which files of a sink are in the table: those below it. A commit adds files and raises their marks at
once; nothing else is needed to commit each file exactly once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.errors import FormatError, OptionError, StoreError, UnsupportedError, Where
from resilient_pq.io import LocalStore, ReadStore, RetryPolicy
from resilient_pq.io.s3.s3_options import s3fs_options
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.tables.partition_key import PartitionKey

#: How many files of a sink are in the table, by the folder of the partition.
Marks = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A published file, as a table is told of it."""

    location: str  # where readers of the table find it: `location_of`
    size: int  # its bytes
    contents: Contents  # its footer
    partition: str = ""  # the folder of its partition, ``day=1/country=FR``
    sequence: int = 0  # its number among the files of its partition by one sink, from 0


class _MayBeEncrypted(Protocol):
    """How files are written."""

    @property
    def encryption(self) -> object | None:
        """With which keys."""


class FileTable(Protocol):
    """A table as a thread works with it: every call may block, and may be made again after a `TransientError`."""

    #: What to call it in messages.
    name: str

    def load(self) -> bool:
        """Look at the newest version; False where there is no such table yet."""

    def create(self, ingest: Ingest, partition_by: Sequence[PartitionKey]) -> None:
        """Make it, for rows of a schema, unless somebody else just has, and look at it."""

    def fitted(self, ingest: Ingest, partition_by: Sequence[PartitionKey]) -> Ingest:
        """What takes rows for files of this table, with its field ids; an error where they do not fit it."""

    def committed(self, sink: str, partitions: Collection[str]) -> Marks:
        """The marks of a sink in some partitions, in the version that was looked at."""

    def commit(self, sink: str, files: Sequence[TableFile]) -> None:
        """Add files and raise their marks, unless there is a newer version: then a `TransientError`, and nothing."""

    def rewrite(self, removed: Sequence[str], added: Sequence[TableFile], commit_id: str) -> None:
        """Replace files (by location) with others of the same rows, once for each id; as `commit` otherwise."""


class TableSettings(Protocol):
    """What a user names a table with: `IcebergTable` or `DeltaTable`."""

    @property
    def keeps_keys(self) -> bool:
        """Whether files hold the columns that they are partitioned by, too."""

    @property
    def retry(self) -> RetryPolicy | None:
        """How long a commit is tried again; None is as long as requests of the data set are."""

    def connect(self, folder: str, storage_options: Mapping[str, Any] | None) -> FileTable:
        """The table, for files below a folder (`location_of`)."""


def check_table(table: object, options: _MayBeEncrypted) -> None:
    """Raise where files cannot be committed to what a caller names as their table; None names none."""
    if table is None:
        return
    if not hasattr(table, "connect"):
        raise OptionError(f"table is {table!r}", hint="it is an rpq.IcebergTable or an rpq.DeltaTable")
    if options.encryption is not None:
        raise OptionError(
            "encrypted files cannot be in a table: its readers have no keys for them",
            hint="leave out encryption=, or table=",
        )


def location_of(store: ReadStore, key: str) -> str:
    """The URL of a file as tables have it: the same for each way to write it."""
    address = store.address_of(key)
    return local_location(address) if isinstance(store, LocalStore) else str(address)


def local_location(path: str) -> str:
    """The URL of a local file as tables have it, without escapes."""
    real = os.path.realpath(path).replace(os.sep, "/")
    return f"file://{'' if real.startswith('/') else '/'}{real}"


def s3_options(storage_options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """What another library reaches S3 with, from the options of a store: its names by those of s3fs."""
    options = s3fs_options({name: value for name, value in storage_options.items() if name != "retry"})
    options |= {"region_name": (options.get("client_kwargs") or {}).get("region_name")}
    return {theirs: str(options[ours]) for ours, theirs in names.items() if options.get(ours)}


def read_marks(text: str | None, where: str) -> dict[str, int]:
    """The marks of a sink, from what `write_marks` wrote."""
    try:
        found = json.loads(text or "{}")
        if isinstance(found, dict) and all(isinstance(mark, int) for mark in found.values()):
            return found
    except ValueError:
        pass
    raise FormatError(
        f"the table says of a sink how many files it has committed, in a way that is not known: {text!r:.80}",
        where=Where(key=where),
        hint="it was changed by something else; a newer resilient_pq may understand it",
    )


def write_marks(marks: Marks) -> str:
    """Marks as a property of a table holds them."""
    return json.dumps(marks, separators=(",", ":"), sort_keys=True)


def sequences(files: Iterable[TableFile]) -> str:
    """The numbers of files by partition, as a commit tells of them."""
    found: dict[str, list[int]] = {}
    for file in files:
        found.setdefault(file.partition, []).append(file.sequence)
    return json.dumps(found, separators=(",", ":"))


def raised(marks: Marks, files: Iterable[TableFile]) -> dict[str, int]:
    """The marks when some files are in the table, too."""
    found = dict(marks)
    for file in files:
        found[file.partition] = max(found.get(file.partition, 0), file.sequence + 1)
    return found


def check_rewrite(table: str, removed: set[str], live: Mapping[str, bool]) -> None:
    """Raise where files cannot be replaced: some are in the table no more, or have rows that were deleted since."""
    gone = sorted(removed - set(live))
    if gone:
        raise StoreError(
            f"{len(gone):,} of the {len(removed):,} files that were rewritten are not in the table any more: {gone[0]}",
            where=Where(key=table),
            hint="somebody else has rewritten or deleted them; begin again",
        )
    deleted = sorted(name for name, has_deletes in live.items() if has_deletes)
    if deleted:
        raise UnsupportedError(
            f"the table has deleted rows of {deleted[0]}, which copying its row groups would bring back",
            where=Where(key=table),
            hint="rewrite it with an engine that applies deletes",
        )
