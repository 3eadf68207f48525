"""Names of the files that one sink writes, and what each says of its place among them. Pure.

A file is ``{partition}/{name}-{sequence:08d}.parquet``, and its footers, checkpoints included, carry the key
``rpq.dataset`` with ``{first_row}:{sequence}:{name}``: the rows of its partition in the files before it, its number
among them from 0, and the name of the sink.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

from resilient_pq.errors import SchemaError
from resilient_pq.format.footer import DATASET_KEY
from resilient_pq.io.upload.epoch import named_by_epoch
from resilient_pq.lazy_dataclass import dataclass

#: Behind the name of a local file that is not complete.
_PARTIAL: Final = ".partial"
_PLACE: Final = re.compile(r"(\d{1,19}):(\d{1,19}):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where a file stands in a data set."""

    partition: str  # the folder of its partition below the data set, ``day=1/country=FR``; empty where there is none
    sequence: int  # its number among the files of its partition by one sink, from 0
    first_row: int  # rows of the partition by that sink that lie in files before it

    def keys(self, name: str) -> dict[str, str]:
        """The key-value metadata that say it."""
        return {DATASET_KEY: f"{self.first_row}:{self.sequence}:{name}"}

    @classmethod
    def of(cls, partition: str, name: str, key_value: Mapping[str, str | None]) -> Self | None:
        """What the key-value metadata of a file say; None where they say nothing, or speak of another sink."""
        found = _PLACE.fullmatch(key_value.get(DATASET_KEY) or "")
        if found is None or found[3] != name:
            return None
        return cls(partition, int(found[2]), int(found[1]))


def find_ended_files(files: Iterable[tuple[str, Mapping[str, str | None], int]]) -> set[str]:
    """The files that are known to hold all rows that they ever will, whatever their footers say of their state."""
    begins: set[tuple[str, str, int, int]] = set()
    ends: dict[str, tuple[str, str, int, int]] = {}
    for url, key_value, num_rows in files:
        found = _PLACE.fullmatch(key_value.get(DATASET_KEY) or "")
        if found is not None:
            folder = re.split(r"[^/\\]*\Z", url)[0]
            first_row, sequence = int(found[1]), int(found[2])
            begins.add((folder, found[3], sequence, first_row))
            ends[url] = (folder, found[3], sequence + 1, first_row + num_rows)
    return {url for url, end in ends.items() if end in begins}


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A name below the folder of a data set, understood."""

    relative: str  # the name, from the folder on, without what marks an unfinished file
    partition: str  # as of `FilePlace`
    sequence: int  # as of `FilePlace`
    partial: bool = False  # whether it is a local file that is not complete
    upload_id: str | None = None  # of an upload that is open


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of one sink."""

    name: str  # what its files are called
    keys: Sequence[str] = ()  # the columns of its partitions

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str) or not name or name[0] in "._" or set(name) & set("/\\\0"):
            raise SchemaError(
                f"name is {name!r}; it is the beginning of the names of files",
                hint="neither . nor _ come first, which hide a file from readers, and there are no slashes",
            )

    def relative(self, partition: str, sequence: int) -> str:
        """The name of a file, from the folder of the data set on."""
        return f"{partition}{'/' if partition else ''}{self.name}-{sequence:08d}.parquet"

    def of_epoch(self, relative: str) -> NamedFile | None:
        """The file that an epoch object below the folder is of; None where it is none, or of none of this sink's."""
        folder, slash, last = relative.rpartition("/")
        name = named_by_epoch(last)
        return None if name is None else self.understood(f"{folder}{slash}{name}")

    def understood(self, relative: str) -> NamedFile | None:
        """What a name below the folder is; None where it is none of this sink's."""
        *folders, last = relative.split("/")
        found = re.fullmatch(rf"{re.escape(self.name)}-(\d{{8,18}})\.parquet({re.escape(_PARTIAL)})?", last)
        if found is None or not all("=" in folder for folder in folders):
            return None
        keys = [folder.partition("=")[0] for folder in folders]
        if keys != list(self.keys):
            by = ", ".join(map(repr, keys)) or "nothing"
            raise SchemaError(
                f"there is a file of the name {self.name!r} that is partitioned by {by}: {relative}",
                hint="a data set has one partition_by; other files get another name=",
            )
        return NamedFile(
            relative.removesuffix(_PARTIAL), "/".join(folders), int(found[1]), partial=found[2] is not None
        )
