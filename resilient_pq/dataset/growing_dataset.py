"""A data set that is read while it is written: rows of new files, and of checkpoints in open ones. An async shell."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from resilient_pq.bulk.name_pattern import PARTIAL_SUFFIX, is_data_file
from resilient_pq.bulk.run_listing import scope_of
from resilient_pq.bulk.scope import Scope
from resilient_pq.dataset.dataset import Dataset
from resilient_pq.dataset.file_listing import Source
from resilient_pq.errors import NotFoundError, ObjectChangedError, SchemaError, UnsupportedError
from resilient_pq.io import FetchCounters, GrowingStore, Stores
from resilient_pq.reader.decoder import RowGroupArrays
from resilient_pq.reader.file import File
from resilient_pq.reader.growing_file import GrowingFile, Watch, note_ordinals, row_groups_before
from resilient_pq.reader.opening import open_file
from resilient_pq.reader.read_options import FollowOptions, ReadSettings
from resilient_pq.reader.read_plan import Filters, ReadQuery, Strings
from resilient_pq.reader.streaming import Batches, check_batch_rows, read_ahead


class GrowingDataset(Dataset):
    """A `Dataset` to which files are still added; only `batches` goes on to what comes."""

    def __init__(self, folder: _Folder, files: Mapping[str, File], stores: Stores, how: ReadSettings) -> None:
        """Use `open_many` instead."""
        super().__init__(list(files.values()), stores, how, folder.counters)
        self._folder = folder
        self._given = dict(zip(files, row_groups_before(self.files, folder.follow.last_rows), strict=True))

    def batches(
        self,
        batch_rows: int = 65_536,
        columns: Sequence[str] | None = None,
        *,
        filters: Filters | None = None,
        limit: int | None = None,
        strings: Strings = "stored",
    ) -> Batches:
        """Rows as of `Dataset.batches`, and then those that become stored, file by file."""
        check_batch_rows(batch_rows)
        field, _ = self._rows(columns, filters, limit, strings)
        names = [child.name for child in self._field.children] if columns is None else columns
        query = ReadQuery(names, None, filters, None, strings)
        return Batches.of(lambda: field, self._follow(query), batch_rows, self._how.tell, limit=limit)

    async def _follow(self, query: ReadQuery) -> AsyncGenerator[RowGroupArrays, None]:
        """The rows of all row groups, each once: files by their names, as they are found to have more."""
        folder, idle = self._folder, 0.0
        given = dict(self._given)
        while True:
            news = False
            for name, file in (await folder.look()).items():
                async with aclosing(self._rows_from(file, given.get(name, 0), query)) as rows_of_file:
                    async for rows, end in rows_of_file:
                        news, given[name] = True, end
                        if rows is not None:
                            yield rows
            idle = 0.0 if news else idle + folder.follow.poll_seconds
            if folder.follow.idle_seconds is not None and idle >= folder.follow.idle_seconds:
                return
            await folder.follow.wait(folder.follow.poll_seconds)

    async def _rows_from(
        self, file: File, first: int, query: ReadQuery
    ) -> AsyncGenerator[tuple[RowGroupArrays | None, int], None]:
        """The rows of each row group from one on, with the ordinal of the next; at last that of the end."""
        if first >= file.num_row_groups:
            return
        _, jobs = file.jobs(replace(query, row_groups=range(first, file.num_row_groups)))
        order: deque[int] = deque()
        try:
            async with aclosing(read_ahead(note_ordinals(jobs, order), self._how.options.fetch)) as arriving:
                async for rows in arriving:
                    yield rows, order.popleft() + 1
            yield None, file.num_row_groups  # filters may have left out the last ones
        except (NotFoundError, ObjectChangedError):
            # It may have got its name meanwhile, or a writer that took it over may have cut off its end.
            if not isinstance(file, GrowingFile) or not await file.has_moved():
                raise


class _Folder:
    """Files of a folder as they are found again and again."""

    def __init__(self, scope: Scope, how: ReadSettings, follow: FollowOptions) -> None:
        self._scope, self._how = scope, how
        self.follow = follow
        self.counters = FetchCounters()
        self._files: dict[str, File] = {}

    async def first(self) -> dict[str, File]:
        """The files, as soon as there is one with a schema."""
        while not (files := await self.look()):
            await self.follow.wait(self.follow.poll_seconds)
        return files

    async def look(self) -> dict[str, File]:
        """The files that are there now, by the names that they will have, each as of its newest checkpoint."""
        names: set[str] = set()
        async with aclosing(self._scope.pages()) as pages:
            async for page in pages:
                names |= {found.name.removesuffix(PARTIAL_SUFFIX) for found in page if found.error is None}
        for name in sorted(filter(self._counts, names)):
            known = self._files.get(name)
            if known is None:
                if (opened := await self._open(name)) is not None:
                    self._files[name] = opened
            elif isinstance(known, GrowingFile):
                with suppress(NotFoundError):  # its writer gave it up: what was stored of it has been given
                    await known.refresh()
        return {name: self._files[name] for name in sorted(self._files)}

    def _counts(self, name: str) -> bool:
        return self._scope.counts(name) if self._scope.pattern is not None else is_data_file(name)

    async def _open(self, name: str) -> File | None:
        store, key = self._scope.place(name)
        try:
            if not isinstance(store, GrowingStore):
                return await open_file(store, key, self._how, counters=self.counters, owns_store=False)
            watch = Watch(store, key, self._how, self.follow)
            return await GrowingFile.now(watch, self._how)
        except NotFoundError:
            return None  # it was removed, or an upload of it was aborted


async def open_growing(
    urls: Source | Sequence[Source],
    storage_options: Mapping[str, Any] | None,
    how: ReadSettings,
    follow: FollowOptions,
) -> GrowingDataset:
    """The files of a folder or a pattern, and what comes."""
    stores = Stores(storage_options)
    try:
        scope = scope_of(urls, stores)
        if scope is None:
            raise SchemaError("follow takes a folder or a pattern, not a list of files")
        if not scope.store.capabilities.list_names:
            raise UnsupportedError(f"{scope.store.name} cannot list what is in a folder, so that it cannot be followed")
        folder = _Folder(scope, how, follow)
        return GrowingDataset(folder, await folder.first(), stores, how)
    except BaseException:
        await stores.close()
        raise
