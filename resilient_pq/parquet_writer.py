"""`ParquetWriter` with the words of `pyarrow.parquet.ParquetWriter`: one changed import makes its files resilient."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from resilient_pq.errors import OptionError, UnsupportedError
from resilient_pq.io.file_object_store import in_filesystem
from resilient_pq.writer.write_options import WriteOptions

#: Rows of a row group where nothing is said, as in pyarrow.
_ROW_GROUP_ROWS: Final = 1 << 20
#: Options of pyarrow that ask for what these files have anyway, and the values that do.
_ALWAYS: Final[Mapping[str, tuple[object, ...]]] = {
    "version": ("2.4", "2.6"),
    "flavor": (None,),
    "use_deprecated_int96_timestamps": (None, False),
    "use_compliant_nested_type": (True,),
    "coerce_timestamps": (None,),
    "allow_truncated_timestamps": (False, True),
    "store_schema": (True,),
    "write_page_index": (True, False),
    "write_page_checksum": (True, False),
    "write_batch_size": (None,),
    "store_decimal_as_integer": (False,),
    "use_content_defined_chunking": (False,),
    "encryption_properties": (None,),
}


class ParquetWriter:
    """Writes a Parquet file as `pyarrow.parquet.ParquetWriter` does, so that a killed program keeps its rows.

    Rows of a local file are in ``NAME.partial`` when `write_table` returns, where a kill of this process leaves them.
    After a loss of power, and on S3, at most those of the last 30 seconds are missing (`max_unstored_seconds`). The
    file appears under its name when the writer is closed. `rpq recover NAME.partial NAME`, or `resume`, gets the rows
    of a writer that was killed, or that was left by an exception.

    Use it as ``with ParquetWriter("day.parquet", schema) as writer``.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        schema: object,
        filesystem: Any = None,
        *,
        compression: str | Mapping[str, str | None] | None = "snappy",
        compression_level: int | Mapping[str, int | None] | None = None,
        row_group_size: int | None = None,
        use_dictionary: bool | Sequence[str] = True,
        column_encoding: str | Mapping[str, str] | None = None,
        write_statistics: bool | Sequence[str] = True,
        data_page_size: int | None = None,
        data_page_version: str = "1.0",
        dictionary_pagesize_limit: int | None = None,
        max_rows_per_page: int | None = None,
        sorting_columns: Sequence[Any] | None = None,
        bloom_filter_options: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Begin the file.

        Args:
            where: A path or a URL.
            schema: A schema of pyarrow, or anything else with ``__arrow_c_schema__``.
            filesystem: A file system of fsspec or of pyarrow, in which `where` is a path then. Local files and those of
                s3fs keep the rows of a program that is killed; elsewhere the file is sent when it is closed.
            compression: "snappy", "zstd", "gzip", "brotli", "lz4" or "none"; or a dict of these by column, where the
                columns that are not in it are not compressed, as in pyarrow.
            compression_level: The codec's level; or a dict by column.
            row_group_size: Rows of a row group at most; `write_table` takes another for one table.
            use_dictionary: Whether dictionaries are written, or the columns for which they may be.
            column_encoding: One encoding for all columns, or a dict by column; with ``use_dictionary=False``.
            write_statistics: Whether bounds and null counts are written.
            data_page_size: Bytes of a data page, about.
            data_page_version: "1.0" or "2.0".
            dictionary_pagesize_limit: Bytes of the largest dictionary.
            max_rows_per_page: Rows of a data page at most.
            sorting_columns: The order of the rows, as in pyarrow.
            bloom_filter_options: Columns that get bloom filters, as in pyarrow.
            storage_options: Credentials, endpoint and so on, as fsspec and pandas take them.
            **options: Options of `create`, such as `max_unstored_seconds`, and options of pyarrow that ask for what
                these files have anyway.

        Raises:
            SchemaError: An option has a value that it cannot have.
            UnsupportedError: An option of pyarrow asks for something that is not written here.
            StoreError: The store refuses.
        """
        from resilient_pq import sync  # noqa: PLC0415 (which has this class)

        self.schema = schema
        self._row_group_size = _rows_of(row_group_size) or _ROW_GROUP_ROWS
        pages = {
            "dictionary_bytes": 0 if use_dictionary is False else dictionary_pagesize_limit,
            "page_rows": max_rows_per_page,
            "sorting_columns": sorting_columns,
            "bloom_filter_options": bloom_filter_options,
        }
        given = {name: value for name, value in pages.items() if value is not None}
        if isinstance(compression, Mapping):
            compression = {**dict.fromkeys(getattr(schema, "names", ()), "none"), **compression}
        settings = {
            "compression": compression,
            "compression_level": compression_level,
            "encodings": _encodings(schema, use_dictionary, column_encoding),
            "options": WriteOptions(data_page_version=data_page_version, statistics=bool(write_statistics), **given),  # type: ignore[arg-type]
            **({} if data_page_size is None else {"page_bytes": data_page_size}),
            **_own_options(options),
        }
        create: Any = sync.create
        place = where if filesystem is None else in_filesystem(filesystem, where)
        self._writer = create(place, schema, storage_options=storage_options, **settings)

    @property
    def is_open(self) -> bool:
        """Whether tables can be written."""
        return not self._writer.closed

    def write(self, table_or_batch: object, row_group_size: int | None = None) -> None:
        """Write rows, as `write_table`."""
        self.write_table(table_or_batch, row_group_size)

    def write_batch(self, batch: object, row_group_size: int | None = None) -> None:
        """Write a record batch, as `write_table`."""
        self.write_table(batch, row_group_size)

    def write_table(self, table: object, row_group_size: int | None = None) -> None:
        """Write the rows of a table as row groups of their own; returns when they are stored (see the class).

        Args:
            table: A table of pyarrow, or anything that `Writer.write` takes.
            row_group_size: Rows of a row group at most.

        Raises:
            SchemaError: The rows do not fit the schema; none of them is written.
            StoreError: The store refused; the writer has failed.
            WriterClosedError: The writer is closed.
        """
        most = _rows_of(row_group_size) or self._row_group_size
        num_rows: int | None = getattr(table, "num_rows", None)
        if num_rows is None or num_rows <= most:
            self._writer.write(table)
            self._end_row_group()
            return
        for start in range(0, num_rows, most):
            self._writer.write(table.slice(start, min(most, num_rows - start)))  # type: ignore[attr-defined]
            self._end_row_group()

    def _end_row_group(self) -> None:
        """End the row group; in a file that is full soon it takes further tables, for `max_unstored_seconds`."""
        if not self._writer.soon_full:
            self._writer.flush()

    def add_key_value_metadata(self, key_value_metadata: Mapping[str, str]) -> None:
        """Add key-value metadata to the footer; keys that are there are replaced."""
        self._writer.add_key_value_metadata(key_value_metadata)

    def close(self) -> None:
        """Complete the file, which appears under its name. A second call does nothing."""
        self._writer.close()

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Complete the file; after an exception keep its rows in ``NAME.partial``, or in the open upload."""
        self._writer.__exit__(kind, error, traceback)


def _rows_of(row_group_size: object) -> int | None:
    if row_group_size is None:
        return None
    if not isinstance(row_group_size, int) or row_group_size < 1:
        raise OptionError(f"row_group_size is {row_group_size!r}; it is a whole number, at least 1")
    return row_group_size


def _encodings(
    schema: object, use_dictionary: bool | Sequence[str], column_encoding: str | Mapping[str, str] | None
) -> str | Mapping[str, str]:
    """The encodings of the columns: those that are not among `use_dictionary` have none of a dictionary."""
    if column_encoding is not None:
        return column_encoding
    if isinstance(use_dictionary, bool):
        return "auto"
    names: Sequence[str] = getattr(schema, "names", ())
    return {name: "PLAIN" for name in names if name not in use_dictionary} or "auto"


def _own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `create` among these.

    Raises:
        UnsupportedError: One of the others asks for what is not written here.
    """
    for name in options.keys() & _ALWAYS.keys():
        if options[name] not in _ALWAYS[name]:
            known = " or ".join(map(repr, _ALWAYS[name]))
            raise UnsupportedError(f"{name} is {options[name]!r}; here it can only be {known}", hint="leave it out")
    return {name: value for name, value in options.items() if name not in _ALWAYS}
