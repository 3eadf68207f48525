"""One call of `write`: the folder, the names of its files, and what is done before and after all of them. A shell."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.bulk.name_pattern import is_data_file
from resilient_pq.dask.serialized_row_group import Location, location_of
from resilient_pq.dataset.summary.write_summary import WrittenMetadata, write_metadata
from resilient_pq.errors import AlreadyExistsError, FormatError, SchemaError, Where
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io import WRITING, LocalStore, WriteStore, resolve
from resilient_pq.io.partial_file import SUFFIX as PARTIAL
from resilient_pq.reader.data_file import COMMON_METADATA_NAME, METADATA_NAME, data_file
from resilient_pq.tables.committer import PublishedFile, commit_rewrite, fit_to_table
from resilient_pq.tables.file_table import TableSettings

#: Digits of the number of a partition, at least; as many as it takes for names to be in the order of partitions.
_DIGITS = 5


@dataclass(frozen=True, slots=True)
class WriteRun:
    """A folder, and the files that one call writes into it."""

    dst: Location  # the folder, as workers find it
    names: tuple[str, ...]  # of its files, in the order of the partitions
    number: str  # what no other run has; it is in every name
    storage_options: Mapping[str, Any] | None = field(repr=False)

    @classmethod
    def of(
        cls,
        num_partitions: int,
        dst: str | os.PathLike[str],
        name: str,
        storage_options: Mapping[str, Any] | None,
    ) -> Self:
        """A run that nobody has begun yet."""
        if not isinstance(dst, str | os.PathLike) or not os.fspath(dst):
            raise SchemaError(f"dst is {dst!r}", hint="it is the URL or the path of a folder")
        number = secrets.token_hex(4)
        digits = max(_DIGITS, len(str(num_partitions - 1)))
        names = tuple(f"{name}-{i:0{digits}}-{number}.parquet" for i in range(num_partitions))
        try:
            usable = "/" not in name and data_file(names[0]) == names[0] and is_data_file(names[0])
        except FormatError:
            usable = False
        if not usable:
            raise SchemaError(f"name is {name!r}, which no data file's name begins with", hint='such as name="part"')
        return cls(dst, names, number, storage_options)

    @property
    def stop(self) -> str:
        """The name of the event that ends the run."""
        return f"resilient-pq-stop-{self.number}"

    def _resolved(self) -> tuple[WriteStore, str]:
        """The store, and the key of the summary in it; of a folder itself there may be no key."""
        if not isinstance(self.dst, str):
            return resolve(Path(self.dst) / METADATA_NAME, self.storage_options, retry=WRITING)
        return resolve(f"{self.dst.rstrip('/') or self.dst}/{METADATA_NAME}", self.storage_options, retry=WRITING)

    async def prepare(self, *, overwrite: bool) -> tuple[tuple[Location, ...], list[str]]:
        """Make the folder; gives where workers put the files, and the names of those that are there already."""
        store, key = self._resolved()
        async with store:
            listed = await store.list_names(key.removesuffix(METADATA_NAME))
            old = [name for name in listed if is_data_file(name) or name in (METADATA_NAME, COMMON_METADATA_NAME)]
            if old and not overwrite:
                raise AlreadyExistsError(
                    f"there are Parquet files in the folder already: {', '.join(old[:3])}{', ...' * (len(old) > 3)}",
                    where=Where(key=store.url_of(key).removesuffix(METADATA_NAME)),
                    hint="overwrite=True replaces them when the new ones are complete",
                )
            await store.make_folder(store.beside(key, ""))
            return tuple(location_of(store, store.beside(key, name)) for name in self.names), old

    async def fit(self, table: TableSettings, ingest: Ingest) -> Schema:
        """The columns as files of a table have them; it is made where there is none."""
        store, key = self._resolved()
        async with store:
            folder = key.removesuffix(METADATA_NAME).removesuffix("/")
            return (await fit_to_table(table, store, folder, ingest, self.storage_options)).schema

    async def commit(self, table: TableSettings) -> None:
        """Add all files to a table at once."""
        store, key = self._resolved()
        async with store:
            folder = key.removesuffix(METADATA_NAME).removesuffix("/")
            files = [PublishedFile(store.beside(key, name)) for name in self.names]
            await commit_rewrite(
                table, store, (), files, self.number, folder=folder, storage_options=self.storage_options
            )

    async def complete(self, old: Sequence[str], *, with_summary: bool) -> WrittenMetadata | None:
        """Write the summary of the files, then remove those that were there before."""
        store, key = self._resolved()
        async with store:
            summary = None
            if with_summary:
                beside: Any = (store, key.removesuffix(METADATA_NAME).removesuffix("/"))
                summary = await write_metadata(beside, files=self.names, overwrite=bool(old))
            # One of old files is worth nothing without them, so it goes first.
            gone = sorted(set(old) - ({METADATA_NAME, COMMON_METADATA_NAME} if with_summary else set()))
            for name in sorted(gone, key=lambda name: name not in (METADATA_NAME, COMMON_METADATA_NAME)):
                await store.delete(store.beside(key, name))
        return summary

    async def undo(self) -> None:
        """Remove whatever this run has written: complete files, open uploads, and what is partial."""
        store, key = self._resolved()
        async with store:
            keys = [store.beside(key, name) for name in self.names]
            for mine in keys:
                await store.discard_unfinished(mine)
            listed = {store.beside(key, name) for name in await store.list_names(key.removesuffix(METADATA_NAME))}
            for mine in keys:
                if mine in listed:
                    await store.delete(mine)
                if isinstance(store, LocalStore):
                    await store.delete(f"{mine}{PARTIAL}")
