"""The data files of a summary, each pinned to the version that is there when it is first wanted. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import FormatError, NotFoundError, ObjectChangedError, Where
from resilient_pq.io import FetchCounters, ObjectInfo, ObjectRange, ReadStore, counting
from resilient_pq.io.cancellation import all_or_none
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.data_file import writing_again


class PinnedFiles:
    """The data files that a summary names, in the same store.

    Pinning one costs one request (HEAD) for its size and version; those for several files are sent side by side.
    """

    def __init__(
        self, store: ReadStore, key: str, contents: Contents, counters: FetchCounters, requests: asyncio.Semaphore
    ) -> None:
        """Pin nothing yet; `key` is that of the summary, and `requests` limits those under way."""
        self.pinned: dict[str, ObjectInfo] = {}  # The versions of the files that were pinned so far
        self._store = store
        self._key = key
        self._contents = contents
        self._counters = counters
        self._requests = requests
        self._pinning = asyncio.Lock()

    def url_of(self, file: str) -> str:
        """The URL or path of a data file."""
        return self._store.url_of(self._store.beside(self._key, file))

    def keep_to(self, pinned: Mapping[str, ObjectInfo]) -> None:
        """Pin data files to versions that are known from before, without a request."""
        self.pinned |= pinned

    async def pin(self, files: Iterable[str]) -> None:
        """Ask for the size and version of data files that are not pinned yet."""
        async with self._pinning:
            await all_or_none(map(self._pin, [file for file in dict.fromkeys(files) if file not in self.pinned]))

    async def _pin(self, file: str) -> None:
        key = self._store.beside(self._key, file)
        where = Where(key=self._store.url_of(key))
        command = " ".join(writing_again(self._store.url_of(self._key)))
        again = f"if it is meant to be so, write the summary again: {command}"
        try:
            async with self._requests:
                self._counters.requests += 1
                with counting(self._counters):
                    info = await self._store.head(key)
        except NotFoundError as error:
            raise NotFoundError("a data file that the summary names is not there", where=where, hint=again) from error
        stated = self._contents.file_sizes.get(file, info.size)
        if stated != info.size:
            raise ObjectChangedError(
                f"the data file was replaced after the summary was written: it has {info.size:,} bytes instead of"
                f" {stated:,}",
                where=where,
                hint=again,
            )
        self.pinned[file] = info

    def place_in(self, file: str, wanted: ByteRange, slack: int) -> ObjectRange:
        """Bytes of a pinned file; the last `slack` of them may be missing there."""
        info = self.pinned[file]
        end = wanted.end - slack
        if end > info.size:
            raise FormatError(
                f"bytes {wanted.start:,} to {end:,} are said to lie in a data file that has {info.size:,} bytes",
                where=Where(key=self.url_of(file)),
            )
        return ObjectRange(info, ByteRange(wanted.start, min(wanted.end, info.size)))
