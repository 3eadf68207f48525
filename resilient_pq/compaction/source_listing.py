"""Which files are compacted: found, told apart by their names and versions, and removed. An async shell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.arrow.types.field import Field
from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY, encode_arrow_schema
from resilient_pq.bulk.name_pattern import is_data_file
from resilient_pq.bulk.run_listing import scope_of
from resilient_pq.bulk.scope import Place, Scope, shown_place
from resilient_pq.compaction.compaction_plan import SourceGroup, SourceVersion
from resilient_pq.dataset.dataset import schema_of
from resilient_pq.dataset.dataset_opening import not_ended, open_files
from resilient_pq.dataset.file_listing import Source, find_files
from resilient_pq.dataset.summary.summary_footer import SharedKeys, one_maker
from resilient_pq.errors import NotFoundError, RecoveryError, UnsupportedError, Where, located
from resilient_pq.format.file_metadata import ColumnOrder, FileMetaData
from resilient_pq.format.quirks import NO_QUIRKS, Quirks
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.format.sorting import sorting_columns_of
from resilient_pq.io import FetchCounters, LocalStore, Stores, WriteStore
from resilient_pq.io.location import fingerprint
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.group_shape import ParityShare
from resilient_pq.parity.sidecar import sidecar_key
from resilient_pq.reader.data_file import METADATA_NAME
from resilient_pq.reader.file import File
from resilient_pq.reader.opening import warn_of_incomplete
from resilient_pq.reader.read_options import ReadSettings
from resilient_pq.reader.read_plan import chunk_read
from resilient_pq.recovery.resume.resume_layout import parity_share_of


class SourceListing:
    """The files that a caller means, listed again and again."""

    def __init__(
        self, src: Source | Sequence[Source], stores: Stores, output: Scope, *, remove: bool, in_table: bool
    ) -> None:
        self._src, self._stores, self._output = src, stores, output
        self._remove, self._in_table = remove, in_table
        self._scope = scope_of(src, stores)
        self._list_id = ""  # known when it was listed

    @property
    def id(self) -> str:
        """The hash of what the caller means."""
        if self._scope is None:
            return self._list_id
        return fingerprint(_address((self._scope.store, self._scope.folder)) + (self._scope.pattern or ""))

    async def listed(self) -> dict[str, tuple[Place, str]]:
        """The sources by the hash of their names, each with its name below the folder."""
        scope = self._scope
        if scope is None:
            return await self._of_list()
        names = await scope.names()
        if self._remove and METADATA_NAME in names:
            raise RecoveryError(
                "the folder has a summary, which names files that would be removed",
                where=Where(key=shown_place(scope.place(METADATA_NAME))),
                hint="remove the summary first, and write one of the outputs: rpq metadata",
            )
        wanted = [(scope.place(name), name) for name in names if scope.pattern is not None or is_data_file(name)]
        return {identity_of(place): (place, name) for place, name in wanted}

    async def _of_list(self) -> dict[str, tuple[Place, str]]:
        places = await find_files(self._src, self._stores)
        inside = [
            place for place in places if _address(place).startswith(_address((self._output.store, self._output.folder)))
        ]
        if inside and not self._in_table:
            raise RecoveryError(
                "the outputs would lie in the folder of a source, whose readers would see rows twice",
                where=Where(key=shown_place(inside[0])),
                hint="name a folder outside of it",
            )
        found = {identity_of(place): (place, place[1]) for place in places}
        self._list_id = fingerprint("\n".join(sorted(found)))
        return found

    def nothing_found(self) -> NotFoundError:
        """What to raise where there is no file."""
        return (
            NotFoundError("no file was given") if self._scope is None else self._scope.nothing_found(any_listed=False)
        )


async def has_changed(place: Place, known: SourceVersion) -> bool:
    """Whether a source is another version by now."""
    try:
        return (await place[0].head(place[1])).etag != known.etag
    except NotFoundError:
        return False  # another process has removed it meanwhile


async def remove(place: Place, known: SourceVersion) -> bool:
    """Remove a source, and parity beside it, unless it was replaced meanwhile."""
    store, key = place
    assert isinstance(store, WriteStore)  # it could list, and gave its bytes
    if await has_changed(place, known):
        return False
    await store.delete(key)
    await store.delete(sidecar_key(store, key))
    return True


def identity_of(place: Place) -> str:
    """The hash of a name that no other object has."""
    return fingerprint(_address(place))


def _address(place: Place) -> str:
    """A name that no other object has, whatever links lead to it."""
    store, key = place
    address = store.address_of(key)
    if not isinstance(store, LocalStore):
        return address
    return os.path.join(os.path.realpath(address), "") if key.endswith("/") else os.path.realpath(address)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """An open source; its leaves in the order of the output, or None where its values are converted."""

    file: File
    partition: str
    leaves: tuple[Leaf, ...] | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all outputs are like."""

    ingest: Ingest
    keys: dict[str, str | None]
    created_by: str | None
    column_orders: list[ColumnOrder] | None
    parity: ParityShare | None

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.ingest.schema

    def made_like(self, metadata: FileMetaData) -> FileMetaData:
        """Metadata of a source that tell of the maker of all."""
        return replace(metadata, created_by=self.created_by, column_orders=self.column_orders)


async def open_sources(places: Sequence[Place], names: Sequence[str]) -> tuple[list[SourceFile], Agreement]:
    """Open files, and find what their outputs are like."""
    counters = FetchCounters()
    how = ReadSettings.checked(verify=True, on_damage="raise", on_lost=None, options=None)
    files, _ = await open_files(places, how, counters)
    for file in files:
        if file.data_files:
            raise UnsupportedError("the file is a summary: its rows lie in other files", where=Where(key=file.url))
    for file in not_ended(files):
        warn_of_incomplete(file, stacklevel=2)
    agreed = _agree(files)
    sources = [
        SourceFile(file, partition_of(name), _leaves_of(file, agreed)) for file, name in zip(files, names, strict=True)
    ]
    return sources, agreed


def partition_of(name: str) -> str:
    """The folders in a name that stand for values of columns."""
    return "/".join(folder for folder in name.replace("\\", "/").split("/")[:-1] if "=" in folder)


def _agree(files: Sequence[File]) -> Agreement:
    first = files[0]
    field = schema_of(files)
    model = next((file for file in files if Field.of(file.arrow_schema) == field), None)
    ingest = Ingest(model.schema, field) if model is not None else Ingest.from_schema(field)
    keys = SharedKeys(ingest.schema, first.contents.key_value)
    created_by, orders = first.metadata.created_by, first.metadata.column_orders
    for file in files[1:]:
        keys.add(file.contents.key_value)
        created_by = one_maker(created_by, file.metadata.created_by)
        orders = orders if orders == file.metadata.column_orders else None
    kept = keys.result()
    if any(file.schema != ingest.schema for file in files):
        kept[ARROW_SCHEMA_KEY] = encode_arrow_schema(field)
    shares = [share for share in map(parity_share_of, (file.contents for file in files)) if share is not None]
    return Agreement(ingest, kept, created_by, orders, max(shares, key=lambda share: share.share, default=None))


def _leaves_of(file: File, agreed: Agreement) -> tuple[Leaf, ...] | None:
    """The leaves of a file in the order of the output, where its chunks can stand there as they are."""
    quirks = Quirks.of(file.metadata.created_by)
    if quirks != Quirks.of(agreed.created_by) and replace(quirks, row_aligned=False) != NO_QUIRKS:
        return None
    if file.schema.root.children == agreed.schema.root.children:
        return file.schema.leaves
    columns = {column.node: column.leaves for column in file.schema.columns}
    wanted = [column.node for column in agreed.schema.columns]
    if len(columns) != len(wanted) or any(node not in columns for node in wanted):
        return None
    return tuple(leaf for node in wanted for leaf in columns[node])


def facts_of(sources: Sequence[SourceFile], positions: Sequence[int]) -> Iterator[SourceGroup]:
    """What the footers of some sources say of their row groups."""
    for position in positions:
        file, leaves = sources[position].file, sources[position].leaves
        for ordinal, group in enumerate(file.metadata.row_groups):
            with located(Where(key=file.url)):
                chunks = [chunk_read(file.contents, ordinal, leaf) for leaf in leaves or file.schema.leaves]
            yield SourceGroup(
                position,
                ordinal,
                group.num_rows,
                tuple(chunk.range.size for chunk in chunks),
                sum(max(chunk.metadata.total_uncompressed_size, 0) for chunk in chunks),
                leaves is not None,
                sorting_columns_of(file.schema, group),
            )
