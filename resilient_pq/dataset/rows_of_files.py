"""The rows of many files, one file after the other; small ones of this machine many to a hop. An async shell."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final

from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.dataset.files_together import rows_together
from resilient_pq.errors import ResilientPQError
from resilient_pq.io import FetchOptions
from resilient_pq.io.cancellation import in_one_hop
from resilient_pq.io.local_store import LocalStore
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.off_event_loop import ONE_HOP_BYTES
from resilient_pq.reader.decoder import RowGroupArrays
from resilient_pq.reader.file import File
from resilient_pq.reader.read_batches import ReadBatch
from resilient_pq.reader.read_options import ReadSettings
from resilient_pq.reader.read_plan import ReadQuery, RowGroupRead
from resilient_pq.reader.streaming import Arriving, BatchJob, Jobs, ReadRowGroups, read_ahead

#: Bytes of a value in memory, about.
_VALUE: Final = 8


@dataclass(frozen=True, slots=True)
class FileQuery:
    """What is asked of a file."""

    file: File
    query: ReadQuery
    join: Callable[[RowGroupArrays], RowGroupArrays] | None  # adds the columns of its folders

    @property
    def is_small(self) -> bool:
        """Whether it is about all rows of a small file of this machine."""
        store, _ = self.file.place
        whole = self.query.limit is None and self.query.filters is None
        return whole and self.file.info.size < ONE_HOP_BYTES and isinstance(store, LocalStore)

    async def rows(self) -> list[RowGroupArrays]:
        """The rows that are asked for, with the columns of its folders."""
        _, groups = await self.file.rows_of(self.query)
        return self.joined(groups)

    def joined(self, groups: list[RowGroupArrays]) -> list[RowGroupArrays]:
        """Row groups with the columns of its folders."""
        return groups if self.join is None else list(map(self.join, groups))


async def rows_of_files(asked: Iterable[FileQuery], how: ReadSettings) -> Arriving:
    """The rows of each row group of files, in their order, read ahead."""
    raises = how.on_damage is OnDamage.RAISE
    for is_small, run in groupby(asked, lambda one: raises and one.is_small):
        rows_of_run = partial(_many_to_a_hop, how.verify) if is_small else partial(_read_ahead, how.options.fetch)
        async with aclosing(rows_of_run(run)) as arriving:
            async for rows in arriving:
                yield rows


def _size(one: FileQuery) -> int:
    """Bytes of a file and of its rows in memory, about."""
    return one.file.info.size + _VALUE * one.file.num_rows * len(one.file.schema.columns)


async def _many_to_a_hop(verify: bool, asked: Iterator[FileQuery]) -> Arriving:
    """The rows of small files, of so many at one time that a hop to a thread is worth it."""

    waiting: deque[FileQuery] = deque()

    def take() -> bool:
        """Have files wait, as many as a hop is worth; False where there are no more."""
        num_bytes = sum(map(_size, waiting))
        while num_bytes < ONE_HOP_BYTES:
            one = next(asked, None)
            if one is None:
                return False
            waiting.append(one)
            num_bytes += _size(one)
        return True

    async def read_some() -> tuple[list[RowGroupArrays], FileQuery | None, bool]:
        more, found = take(), []
        together = rows_together([(one.file, one.query) for one in waiting], verify=verify)
        for rows in together:
            one = waiting.popleft()
            try:
                found += await one.rows() if rows is None else one.joined(rows)
            except ResilientPQError:  # the rows before it are given all the same, also those of its own file
                return found, one, False
        return found, None, not more

    async def hop() -> tuple[list[RowGroupArrays], FileQuery | None, bool]:
        return await in_one_hop(read_some())

    following: asyncio.Future[Any] | None = asyncio.ensure_future(hop())
    try:
        while following is not None:
            found, failed, ended = await following
            following = None if ended else asyncio.ensure_future(hop())
            for rows in found:
                yield rows
            if failed is not None:
                for ordinal in range(failed.file.num_row_groups):
                    alone = replace(failed, query=replace(failed.query, row_groups=[ordinal]))
                    for rows in await alone.rows():
                        yield rows
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def _read_ahead(fetch: FetchOptions, asked: Iterator[FileQuery]) -> Arriving:
    return read_ahead(_jobs(asked), fetch)


async def _jobs(asked: Iterator[FileQuery]) -> Jobs:
    """The reads of files, planned file by file as reading goes on."""
    for one in asked:
        try:
            _, following = one.file.jobs(one.query)
        except ResilientPQError as error:
            yield BatchJob(ReadBatch(()), partial(_fail, error))
        else:
            async with aclosing(following):
                async for job in following:
                    yield BatchJob(job.batch, job.read if one.join is None else partial(_joined, one.join, job.read))


async def _joined(
    join: Callable[[RowGroupArrays], RowGroupArrays], read: ReadRowGroups, groups: Sequence[RowGroupRead]
) -> list[RowGroupArrays]:
    return [join(rows) for rows in await read(groups)]


async def _fail(error: ResilientPQError, _: Sequence[RowGroupRead]) -> list[RowGroupArrays]:
    """Raise an error of a file when its rows are reached, and not before."""
    raise error
