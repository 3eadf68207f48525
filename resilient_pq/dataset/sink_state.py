"""What the writer of a data set keeps of its partitions and files, and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import field

from resilient_pq.dataset.naming import NamedFile
from resilient_pq.dataset.rolling import Roll
from resilient_pq.io import StoredState
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.tables.partition_key import PartitionKey
from resilient_pq.writer.dictionary_use import KnownChoices
from resilient_pq.writer.file_writer import Writer


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """A file that a `DatasetWriter` published.

    Attributes:
        url: The file.
        partition: The folder of its partition below the data set, ``day=1/country=FR``; empty where there is none.
        sequence: Its number among the files of the partition by this writer and those before it, from 0.
        first_row: Rows of the partition in the files before it.
        num_rows: Its rows.
        size: Its bytes.
    """

    url: str
    partition: str
    sequence: int
    first_row: int
    num_rows: int
    size: int


@dataclass(frozen=True, slots=True)
class DatasetCheckpoint:
    """What a checkpoint of a data set promises.

    Attributes:
        num_rows: Rows that the source gave before it, of all partitions.
        num_rows_by_partition: The same of each partition, by its folder below the data set, ``day=1/country=FR``; by
            the empty name where there are no partitions. JSON can hold it.
        state: "stored" when all of them survive the writer, "visible" when they are in published files, "accepted"
            where the store cannot promise anything before.
    """

    num_rows: int
    num_rows_by_partition: Mapping[str, int]
    state: StoredState


@dataclass(slots=True)
class Partition:
    """A partition as its sink knows it."""

    name: str  # the folder below the data set
    sequence: int = 0  # of the next file
    num_rows_before: int = 0  # rows in published files
    num_rows_known: int = 0  # rows that the source will give again, and that are stored already: they are passed over
    file: OpenFile | None = None  # the open file

    @property
    def open_file(self) -> OpenFile:
        """The open file, where there is one."""
        assert self.file is not None
        return self.file

    @property
    def num_rows(self) -> int:
        """Rows taken."""
        return self.num_rows_before + (self.file.writer.num_rows if self.file else 0)

    @property
    def num_rows_given(self) -> int:
        """Rows that the source has given: of those that are stored and come again, only the ones that have come."""
        return self.num_rows - self.num_rows_known

    @property
    def num_rows_stored(self) -> int:
        """Rows that survive this process."""
        return self.num_rows_before + (self.file.writer.num_rows_stored if self.file else 0)


@dataclass(slots=True)
class OpenFile:
    """A file that is being written."""

    writer: Writer  # writes it
    due: float | None  # when it is to be published though it is not full
    bytes_taken: int = 0  # bytes in memory of all its rows


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """How a data set is written."""

    partition_by: tuple[PartitionKey, ...]  # what names the partitions
    roll: Roll  # when a file is full
    max_open: int  # files that may be open at one time
    open_bytes: int  # bytes in memory that the rows of all open row groups may take together
    keep_keys: bool = False  # whether files have the columns of the partitions, too


@dataclass(slots=True)
class Begun:
    """What a sink goes on with."""

    partitions: dict[str, Partition] = field(default_factory=dict)  # what is known of each, by its name
    files: list[DatasetFile] = field(default_factory=list)  # those that were completed for it
    choices: KnownChoices = field(default_factory=KnownChoices)  # which text columns have dictionaries
    published: list[NamedFile] = field(default_factory=list)  # every file of the sink


def now() -> float:
    """Seconds by the event loop's clock, which never goes back."""
    return asyncio.get_running_loop().time()


async def sleep_until(when: float) -> None:
    """Wait until that clock says so."""
    await asyncio.sleep(max(0.0, when - now()))
