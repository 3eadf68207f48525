"""`scan`: files that Polars and DuckDB read lazily, only the columns and row groups that a query needs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Self

from resilient_pq.arrow.c_stream import checked, lazy_stream
from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.field import Field, normalise, with_wide_indices
from resilient_pq.blocking_streams import BlockingBatches
from resilient_pq.dataset.dataset import Dataset
from resilient_pq.dataset.dataset_opening import open_many
from resilient_pq.dataset.file_listing import Source
from resilient_pq.engines.pushdown import Alternatives
from resilient_pq.errors import UnsupportedError
from resilient_pq.io import FetchCounters, RetryPolicy
from resilient_pq.io.location import scrubbed
from resilient_pq.io.resolve import Opening
from resilient_pq.loop_portal import portal
from resilient_pq.reader.read_options import OnLost, ReadOptions

if TYPE_CHECKING:
    import duckdb
    import polars

    from resilient_pq import Batches
    from resilient_pq.encryption.keys import KeysArgument

#: Rows of a batch where the engine does not say.
_BATCH_ROWS = 122_880


class Scan:
    """Parquet files that a query engine reads lazily; made by `scan`.

    The files are opened when something is first asked of them, and every later read is of the same versions.
    """

    def __init__(self, opening: Opening[Dataset], name: str) -> None:
        """Use `scan` instead."""
        self._opening = opening
        self._name = name
        self._opened: Dataset | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        """What is scanned."""
        return f"<resilient_pq.Scan: {self._name if self._opened is None else self._opened!r}>"

    @property
    def arrow_schema(self) -> Any:
        """The Arrow schema of all files, with ``__arrow_c_schema__``."""
        return self._dataset.arrow_schema

    @property
    def counters(self) -> FetchCounters:
        """Requests made and bytes moved so far, the opening included."""
        return self._dataset.counters

    def to_polars(self) -> polars.LazyFrame:
        """A Polars LazyFrame; collecting it reads the columns, row groups and pages that its query needs.

        Conditions of columns with numbers, text, times or nulls (``==``, ``<``, ``is_in``, ``is_between``,
        ``is_null``, ``&``, ``|``) choose row groups and pages, and `head` ends the reading early. Polars itself
        compares every row once more, by these and by all other conditions.

        Raises:
            UnsupportedError: Polars is not installed, or has no IO sources.
            ResilientPQError: As of `open_many`: the files are opened now.
        """
        source = _engine("polars_source", "polars")
        frame: polars.LazyFrame = source.lazy_frame(Field.of(self.arrow_schema), self._tables)
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """A DuckDB relation; a query on it reads the columns, row groups and pages that it needs.

        SQL finds the relation by the name of its variable: ``duckdb.sql("select sum(qty) from orders")``. With
        ``scan.to_duckdb(connection).create_view("orders")`` it has that name in the connection.

        Args:
            connection: Where the relation is to be known; None is DuckDB's default connection.

        Raises:
            UnsupportedError: DuckDB, or pyarrow, through which it asks for columns and rows, is not installed.
            ResilientPQError: As of `open_many`: the files are opened now.
        """
        source = _engine("duckdb_source", "duckdb and pyarrow")
        relation: duckdb.DuckDBPyRelation = source.relation(
            connection, normalise(Field.of(self.arrow_schema)).to_c(), self._stream
        )
        return relation

    def close(self) -> None:
        """Let go of the files; LazyFrames and relations of the scan cannot be read any more."""
        if self._opened is not None:
            portal.end(self._opened.close())

    def __enter__(self) -> Self:
        """The scan itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """As `close`."""
        self.close()

    @property
    def _dataset(self) -> Dataset:
        with self._lock:
            if self._opened is None:
                self._opened = portal.run(_open(self._opening))
                weakref.finalize(self, _close, self._opened).atexit = False
            return self._opened

    def _tables(
        self, columns: list[str] | None, filters: Alternatives | None, limit: int | None, batch_rows: int | None
    ) -> Iterator[Table]:
        batches = self._dataset.batches(
            batch_rows or _BATCH_ROWS, columns, filters=filters, limit=limit, strings="view"
        )
        declared = with_wide_indices(Field.of(batches))
        for table in BlockingBatches(batches):  # without `with`, which would wait where this ends as garbage
            yield checked(table, declared)

    def _stream(self, columns: list[str] | None, filters: Alternatives | None) -> Any:
        batches = self._dataset.batches(_BATCH_ROWS, columns, filters=filters, strings="plain")
        return _PlainStream(batches)


class _PlainStream:
    """Batches in plain types: DuckDB 2.0 fails at lists of dictionaries that are all empty."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        tables = BlockingBatches(self._batches)
        return lazy_stream(normalise(Field.of(self._batches)), tables, lambda: portal.end_later(self._batches.aclose()))


async def _open(opening: Opening[Dataset]) -> Dataset:
    return await opening


def _close(dataset: Dataset) -> None:
    portal.end_later(dataset.close())


def _engine(module: str, needs: str) -> Any:
    try:
        return import_module(f"resilient_pq.engines.{module}")
    except ImportError as error:
        hint = f"pip install --upgrade {needs.replace(' and', '')}"
        raise UnsupportedError(f"this needs {needs}: {error}", hint=hint) from error


def scan(
    urls: Source | Sequence[Source],
    *,
    verify: bool = True,
    on_damage: Literal["raise", "null", "drop"] = "raise",
    on_lost: OnLost | None = None,
    partitioning: object | None = None,
    options: ReadOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    keys: KeysArgument | None = None,
    aad_prefix: bytes | None = None,
    require_complete: bool | None = None,
) -> Scan:
    """Files to be read lazily by Polars or DuckDB, which fetch only what a query needs.

    ``rpq.scan("s3://bucket/events/").to_polars()`` is a LazyFrame, and ``.to_duckdb()`` a relation for SQL. Nothing is
    opened before that. The engines block while they read, in asynchronous programs too; Polars' ``collect_async``
    does not.

    Args:
        urls: As of `open_many`: a file, a folder, a pattern, or a list of files.
        verify: As of `open`.
        on_damage: As of `open_many`.
        on_lost: As of `open_many`; it is called for each query that meets the damage.
        partitioning: As of `open_many`.
        options: As of `open_many`.
        storage_options: As of `open_many`.
        retry: As of `open_many`.
        keys: As of `open_many`.
        aad_prefix: As of `open_many`.
        require_complete: As of `open_many`.

    Raises:
        SchemaError: An argument is wrong.
    """
    opening = open_many(
        urls,
        verify=verify,
        on_damage=on_damage,
        on_lost=on_lost,
        partitioning=partitioning,
        options=options,
        storage_options=storage_options,
        retry=retry,
        keys=keys,
        aad_prefix=aad_prefix,
        require_complete=require_complete,
    )
    return Scan(opening, scrubbed(urls if isinstance(urls, str) else repr(urls)))
