"""Rows one by one, as dicts of Python values. An async shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, Final, Self, TypeAlias

from resilient_pq.arrow.table import Table
from resilient_pq.arrow.to_python import Inexact
from resilient_pq.reader.streaming import Batches

Row: TypeAlias = dict[str, Any]
#: Rows that become dicts at one time.
ROWS_AT_ONCE: Final = 4096


class Records(AsyncIterator[Row]):
    """A stream of rows; ``async for`` takes them, and leaving it early cancels what is read ahead.

    That happens as with `Batches`: when the stream is let go of, or there and then.

    Attributes:
        batches: What the rows are taken from, some at a time.
        inexact: What becomes of a time that Python's `datetime` cannot hold, as of `Table.to_pylist`.
    """

    def __init__(self, batches: Batches, inexact: Inexact) -> None:
        """Take over a stream; `File.records` is the way to get one."""
        self.batches = batches
        self.inexact = inexact
        self._rows: Iterator[Row] = iter(())
        self._batch: Table | None = None  # taken, but its rows are not made yet

    async def __anext__(self) -> Row:
        """The next row."""
        while (row := next(self._rows, None)) is None:
            if self._batch is None:
                self._batch = await anext(self.batches)
            # It is kept until its rows are there: who waits may be cancelled, and come again.
            made = await asyncio.to_thread(partial(self._batch.to_pylist, inexact=self.inexact))
            self._rows, self._batch = iter(made), None
        return row

    async def aclose(self) -> None:
        """Read no more. A second call does nothing."""
        self._rows, self._batch = iter(()), None
        await self.batches.aclose()

    async def __aenter__(self) -> Self:
        """The stream itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Read no more."""
        await self.aclose()
