"""Iterators of rows, cut into what a writer takes at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from resilient_pq.arrow.batch_sources import record_of
from resilient_pq.arrow.handed_over import taking
from resilient_pq.errors import SourceError

#: Records that are taken together.
_RECORDS: Final = 8192


def row_pieces(data: object) -> Iterator[object]:
    """What a writer takes at once: `data` itself, or what an iterator or a LazyFrame of Polars gives.

    An iterator gives batches or records. A dict of which every value is a list or an array is a batch of columns, as it
    is to `write`; any other dict, a dataclass and a named tuple are records, which are gathered.
    """
    source = _iterator_of(data)
    if source is None:
        yield data
        return
    records: list[object] = []
    while True:
        with taking("rows", data, SourceError):
            try:
                item = next(source)
            except StopIteration:
                break
        yield from _with(records, item)
    if records:
        yield records


async def row_pieces_async(data: object) -> AsyncGenerator[object, None]:
    """As `row_pieces`, also of asynchronous iterators."""
    if not isinstance(data, AsyncIterable) or _is_arrow(data):
        for piece in row_pieces(data):
            yield piece
        return
    records: list[object] = []
    iterator = aiter(data)
    while True:
        with taking("rows", data, SourceError):
            try:
                item = await anext(iterator)
            except StopAsyncIteration:
                break
        for piece in _with(records, item):
            yield piece
    if records:
        yield records


def _with(records: list[object], item: object) -> Iterator[object]:
    """What is to be written when an item follows records that wait."""
    if _is_record(item):
        records.append(item)
        if len(records) < _RECORDS:
            return
    if records:
        yield list(records)
        records.clear()
    if not _is_record(item):
        yield item


def gives_pieces(data: Any) -> bool:
    """Whether `data` gives what a writer takes piece by piece."""
    is_lazy = type(data).__module__.partition(".")[0] == "polars" and hasattr(data, "collect_batches")
    iterates = isinstance(data, AsyncIterable) or (isinstance(data, Iterable) and hasattr(data, "__next__"))
    return is_lazy or (iterates and not _is_arrow(data))


def _iterator_of(data: Any) -> Iterator[object] | None:
    """The iterator that is meant; None where `data` is taken at once."""
    if isinstance(data, AsyncIterable) or not gives_pieces(data):
        return None
    pieces: Iterator[object] = iter(data.collect_batches() if hasattr(data, "collect_batches") else data)
    return pieces


def _is_arrow(data: object) -> bool:
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def _is_record(item: object) -> bool:
    """Whether this is one row; a dict is one if it has a value that is no list and no array."""
    if isinstance(item, Mapping):
        return not item or not all(_is_column(value) for value in item.values())
    return record_of(item) is not None


def _is_column(value: object) -> bool:
    return isinstance(value, list | np.ndarray) or _is_arrow(value)
