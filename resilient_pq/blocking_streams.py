"""The streams of `resilient_pq.sync`: batches, rows, and what becomes of many files, for callers that block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from resilient_pq.loop_portal import portal as _loop

if TYPE_CHECKING:
    import nanoarrow

    from resilient_pq import Batches, FileResult, FileResults, Records, RunSummary, Table


def _iterate(source: Batches | FileResults) -> Iterator[Any]:
    """Leaving the loop early closes the asynchronous iterator, too."""

    async def following() -> Any:
        return await anext(source, None)

    try:
        while (item := _loop.run(following())) is not None:
            yield item
    finally:
        _loop.end_later(source.aclose())  # the generator may end as garbage


class BlockingBatches(Iterator["Table"]):
    """A stream of tables that blocks: an iterator, and an Arrow stream for whoever takes one.

    Leaving a loop early has what is read ahead cancelled once the stream is let go of, which waits for nothing; `close`
    and ``with`` wait until it is. It is for one thread at a time.
    """

    def __init__(self, batches: Batches) -> None:
        """Take over a stream; `File.batches` is the way to get one."""
        self._batches = batches
        self._tables: Iterator[Table] = _iterate(batches)

    @property
    def schema(self) -> nanoarrow.Schema:
        """The Arrow schema of the batches; one may have a wider form of a type, where its values need it."""
        return self._batches.schema

    def __next__(self) -> Table:
        """The next batch.

        Raises:
            UnsupportedError: There were more, but the stream was closed, or waiting for one was interrupted.
        """
        for batch in self._tables:
            return batch
        self._batches.refuse_stopped()
        raise StopIteration

    def __arrow_c_schema__(self) -> object:
        """The schema as a capsule of the Arrow C data interface."""
        return self._batches.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The batches that are left as a capsule of the Arrow C stream interface, read as they are consumed.

        Whoever takes it takes the batches from this iterator; when it is released after it was asked for one, nothing
        more is read.

        Args:
            requested_schema: Passed over, as the interface allows: the columns come as they are.
        """
        from resilient_pq.arrow.c_stream import lazy_stream  # noqa: PLC0415 (there, as they have one)
        from resilient_pq.arrow.types.field import Field  # noqa: PLC0415

        return lazy_stream(Field.of(self), self, lambda: _loop.end_later(self._batches.aclose()))

    def close(self) -> None:
        """Read no more. A second call does nothing."""
        _loop.end(self._batches.aclose())

    def __enter__(self) -> Self:
        """The stream itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Read no more."""
        self.close()


class BlockingResults(Iterator["FileResult"]):
    """What becomes of many files, each as soon as it is done: an iterator that blocks.

    Leaving a loop early has the files that are under way cancelled once it is let go of, which waits for nothing;
    `close` and ``with`` wait until they are.
    """

    def __init__(self, results: FileResults) -> None:
        """Take over what is under way; `check_many` and `recover_many` are the ways to get one."""
        self._results = results
        self._each: Iterator[FileResult] = _iterate(results)

    @property
    def verb(self) -> str:
        """What is done with the files."""
        return self._results.verb

    @property
    def summary(self) -> RunSummary:
        """What was counted so far; all of it when the last result was given."""
        return self._results.summary

    def __next__(self) -> FileResult:
        """The next file that is done."""
        return next(self._each)

    def finish(self) -> RunSummary:
        """Do all files that are left, and give the summary of all."""
        for _ in self:
            pass
        return self.summary

    def close(self) -> None:
        """Cancel what is under way. A second call does nothing."""
        _loop.end(self._results.aclose())

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """As `close`."""
        self.close()


def dicts(records: Records) -> Iterator[dict[str, Any]]:
    """Many rows for each turn of the loop, which takes longer than making a row."""
    for batch in BlockingBatches(records.batches):  # without `with`, which would wait where this ends as garbage
        yield from batch.to_pylist(inexact=records.inexact)
