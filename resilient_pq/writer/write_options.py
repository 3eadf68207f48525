"""What a caller can set when writing, checked once and passed down whole."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from resilient_pq.errors import SchemaError
from resilient_pq.format.compression import codecs as compression
from resilient_pq.format.encodings import DICTIONARY_ENCODINGS, ENCODINGS
from resilient_pq.format.file_metadata import CompressionCodec, Encoding, Type
from resilient_pq.format.indexes.split_block_filter import FilterOptions
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.units import MiB
from resilient_pq.writer.column_options import bloom_filters, check_key_values, check_names, column_metadata
from resilient_pq.writer.cut_policy import Cadence

#: Threads that encode where nothing is said: each one more has a column chunk more in memory.
MAX_DEFAULT_THREADS = 4

#: Seconds that a row may wait for being stored where nothing is said.
MAX_UNSTORED_SECONDS: Final = 30.0

#: What asks for the smallest encodings of those that only newer readers know, too.
_COMPACT: Final = "compact"

#: Encodings that can be asked for by name, with the physical types they may hold.
WRITABLE_ENCODINGS: dict[Encoding, frozenset[Type]] = {
    **dict.fromkeys(DICTIONARY_ENCODINGS, frozenset(Type) - {Type.BOOLEAN}),
    **{Encoding(encoding): known.types for encoding, known in ENCODINGS.items() if known.encode is not None},
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The less common settings of `create`.

    Attributes:
        data_page_version: "1.0" (the widest readable) or "2.0".
        level_encoding: Of definition and repetition levels: "RLE", or in data pages 1.0 the deprecated "BIT_PACKED"
            for readers that know nothing else. Arrow C++ reads its bits in the wrong order, and others not at all.
        page_rows: Rows after which a data page is cut, whatever its size.
        dictionary_bytes: Largest dictionary page before compression; 0 writes no dictionaries.
        statistics: Whether bounds, null counts and sizes are written to footer and page index.
        bloom_filter_options: Columns that get bloom filters: a list of their paths, or a dict as pyarrow takes it,
            with True or {"ndv": ..., "fpp": 0.05} for each. Without ndv, the number of distinct values to expect, a
            filter is sized by those that are in its chunk, about a byte for each.
        column_metadata: Key-value metadata of the chunks of a column, by its path.
        sorting_columns: The order in which the rows of each row group come: names, ("name", "descending"),
            ("name", "ascending", "at_start") for nulls first, or SortingColumn of ours or of pyarrow. Nothing is
            sorted by it. A row group whose rows come in another order is written all the same, with a warning in
            the log, and does not claim to be sorted.
        checkpoint_seconds: Seconds that a row waits for a stored checkpoint at most: as `max_unstored_seconds`, by a
            timer and whatever the row group has, but in a local file, too, a checkpoint is written each time, so that
            those who follow the file see its rows.
        checkpoint_bytes: Bytes of the file between automatic checkpoints, besides those of `checkpoint_every`. The open
            row group is closed for it when it has an eighth of `row_group_bytes`, else the checkpoint waits, as it
            does while `checkpoint_overhead` forbids it.
        checkpoint_log: A local file that gets a line for each checkpoint when it is on its way to an upload, and one
            when it is stored, noticed at the latest with the next write: what an upload that was left open holds
            cannot be read, but its log tells how many rows.
        part_bytes: Bytes of a part of an upload at first; doubled every 500 parts.
        max_part_bytes: Bytes that a part of an upload never exceeds. 64 MiB reach 0.5 TiB, 1 GiB reaches 5 TiB.
        equal_parts: Keep all parts of an upload equal, as R2 demands.
        max_bytes_in_flight: Bytes that may be on their way to the store at once; at least one part is.
        undecided_grace: Seconds after which a store is taken to have dropped a part that was sent whole and not
            answered. Until then no other bytes are sent in its place.
        overwrite_partial: Replace the NAME.partial that a crashed writer left, losing what is in it.
        permissions: Local files: what others than the owner may do with the file, at most, as `os.chmod` takes it;
            None for what the umask leaves.
        max_threads: Column chunks encoded at one time; None is the number of processors, at most 4. More are encoded
            while those before them are written, also of the next row group, until a quarter of `row_group_bytes` waits.
            1 never encodes and writes at one time.
    """

    data_page_version: Literal["1.0", "2.0"] = "1.0"
    level_encoding: Literal["RLE", "BIT_PACKED"] = "RLE"
    page_rows: int = 131_072
    dictionary_bytes: int = MiB
    statistics: bool = True
    bloom_filter_options: Mapping[str, bool | Mapping[str, float | None]] | Sequence[str] | None = None
    column_metadata: Mapping[str, Mapping[str, str]] | None = None
    sorting_columns: Sequence[Any] | None = None
    checkpoint_seconds: float | None = None
    checkpoint_bytes: int | None = None
    checkpoint_log: str | os.PathLike[str] | None = None
    part_bytes: int = 5 * MiB
    max_part_bytes: int = 64 * MiB
    equal_parts: bool = False
    max_bytes_in_flight: int = 60 * MiB
    undecided_grace: float = 60.0
    overwrite_partial: bool = False
    permissions: int | None = None
    max_threads: int | None = None


@dataclass(frozen=True, slots=True)
class EncoderOptions:
    """Everything that decides the bytes of a file.

    Attributes:
        compression: "none", "snappy", "gzip", "brotli", "lz4_raw" or "zstd".
        compression_level: The codec's level; None is its default.
        encodings: "auto" for the smallest that every reader decodes, "compact" for the smallest that those of recent
            years decode, the name of an encoding for all columns, or names by column path.
        row_group_rows: Rows after which a row group is closed; None for no such limit.
        row_group_bytes: Bytes in memory after which a row group is closed.
        page_bytes: Bytes after which a data page is cut at the next row: of dictionary indices, else of values as
            PLAIN has them.
        checkpoint_every: Row groups between automatic checkpoints, at least, though a complete row group does not wait
            for more than a minute; None for none.
        checkpoint_overhead: Share of the bytes written that automatic checkpoints may take.
        metadata: Key-value metadata of the caller.
        write: The less common settings.
        own_metadata: Further key-value metadata, of ours: what a file is part of.
        max_unstored_seconds: Seconds that a row that was taken may wait for being stored; None for no such bound.
    """

    compression: str | None = "zstd"
    compression_level: int | None = None
    encodings: str | Mapping[str, str] = "auto"
    row_group_rows: int | None = None
    row_group_bytes: int = 64 * MiB
    page_bytes: int = MiB
    checkpoint_every: int | None = 8
    checkpoint_overhead: float = 0.02
    metadata: Mapping[str, str] | None = None
    write: WriteOptions = field(default_factory=WriteOptions)
    own_metadata: Mapping[str, str] | None = None
    max_unstored_seconds: float | None = None

    def __post_init__(self) -> None:
        """Refuse what can never work, before anything is written."""
        compression.check_level(self.codec, self.compression_level)
        _check_count("row_group_bytes", self.row_group_bytes)
        _check_count("page_bytes", self.page_bytes)
        _check_count("page_rows", self.write.page_rows)
        _check_count("dictionary_bytes", self.write.dictionary_bytes, least=0)
        self._check_cadence()
        if not _number(self.write.undecided_grace) >= 0:
            raise SchemaError(
                f"undecided_grace is {self.write.undecided_grace!r}; it is a number of seconds, not below 0"
            )
        for name in ("part_bytes", "max_part_bytes", "max_bytes_in_flight"):
            _check_count(name, getattr(self.write, name))
        if not isinstance(self.write.checkpoint_log, str | os.PathLike | None):
            raise SchemaError(f"checkpoint_log is {self.write.checkpoint_log!r}; it is the path of a file")
        if self.write.max_threads is not None:
            _check_count("max_threads", self.write.max_threads)
        if not self.checkpoint_overhead >= 0:  # NaN is not either
            raise SchemaError(f"checkpoint_overhead is {self.checkpoint_overhead}; it is a share, 0.02 for 2 %")
        if self.page_bytes > 1 << 30:
            raise SchemaError("page_bytes is more than 1 GiB; a page's size is a signed 32-bit number")
        if self.write.data_page_version not in ("1.0", "2.0"):
            raise SchemaError(f"data_page_version is {self.write.data_page_version!r}; it is '1.0' or '2.0'")
        if self.write.level_encoding not in ("RLE", "BIT_PACKED"):
            raise SchemaError(f"level_encoding is {self.write.level_encoding!r}; it is 'RLE' or 'BIT_PACKED'")
        if self.write.level_encoding == "BIT_PACKED" and self.write.data_page_version != "1.0":
            raise SchemaError("data pages 2.0 have no BIT_PACKED levels", hint='data_page_version="1.0"')
        if self.metadata is not None:
            check_key_values("metadata", self.metadata)

    def _check_cadence(self) -> None:
        for name, value in (
            ("row_group_rows", self.row_group_rows),
            ("checkpoint_every", self.checkpoint_every),
            ("checkpoint_bytes", self.write.checkpoint_bytes),
        ):
            if value is not None:
                _check_count(name, value)
        for name, seconds in (
            ("max_unstored_seconds", self.max_unstored_seconds),
            ("checkpoint_seconds", self.write.checkpoint_seconds),
        ):
            if seconds is not None and not 0 < _number(seconds) < math.inf:
                raise SchemaError(f"{name} is {seconds!r}; it is a number of seconds above 0")

    @property
    def cadence(self) -> Cadence:
        """How often automatic checkpoints are wanted."""
        return Cadence(
            self.checkpoint_every,
            self.write.checkpoint_bytes,
            self.checkpoint_overhead,
        )

    @property
    def max_unstored(self) -> float | None:
        """Seconds that a row may wait for being stored, or for a checkpoint; None for no such bound."""
        bounds = (self.max_unstored_seconds, self.write.checkpoint_seconds)
        return min((bound for bound in bounds if bound is not None), default=None)

    @property
    def codec(self) -> CompressionCodec:
        """The codec that `compression` names."""
        return compression.codec_named(self.compression)

    def chunk_options(self, schema: Schema) -> list[ChunkOptions]:
        """How the chunks of each leaf column are written."""
        if not isinstance(self.encodings, str):
            check_names(schema, "encodings", self.encodings)
        filters: Sequence[FilterOptions | None] = [None] * len(schema.leaves)
        if self.write.bloom_filter_options is not None:
            filters = bloom_filters(schema, self.write.bloom_filter_options)
        key_values: Sequence[tuple[tuple[str, str], ...]] = [()] * len(schema.leaves)
        if self.write.column_metadata is not None:
            key_values = column_metadata(schema, self.write.column_metadata)
        return [
            self._chunk_options(leaf, bloom_filter, key_value)
            for leaf, bloom_filter, key_value in zip(schema.leaves, filters, key_values, strict=True)
        ]

    def _chunk_options(
        self, leaf: Leaf, bloom_filter: FilterOptions | None, key_value: tuple[tuple[str, str], ...]
    ) -> ChunkOptions:
        if isinstance(self.encodings, str):
            name = self.encodings
        else:
            name = self.encodings.get(leaf.column_path, self.encodings.get(leaf.path[0], "auto"))
        return ChunkOptions(
            codec=self.codec,
            level=compression.check_level(self.codec, self.compression_level),
            encoding=_encoding_named(name, leaf),
            new_readers=name.lower() == _COMPACT,
            level_encoding=Encoding[self.write.level_encoding],
            page_bytes=self.page_bytes,
            page_rows=self.write.page_rows,
            dictionary_bytes=self.write.dictionary_bytes,
            version=1 if self.write.data_page_version == "1.0" else 2,
            statistics=self.write.statistics,
            bloom_filter=bloom_filter,
            key_value=key_value,
        )


def _number(value: object) -> float:
    """The value, or NaN, which no comparison lets pass."""
    return value if isinstance(value, int | float) else math.nan


def _check_count(name: str, value: object, *, least: int = 1) -> None:
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise SchemaError(f"{name} is {value!r}; it is a whole number") from None
    if count < least:
        raise SchemaError(f"{name} is {count}; it must be at least {least}")


def _encoding_named(name: str, leaf: Leaf) -> Encoding | None:
    if name.lower() in ("auto", _COMPACT):
        return None
    encoding = Encoding.__members__.get(name.upper())
    if encoding not in WRITABLE_ENCODINGS:
        names = ", ".join(known.name for known in WRITABLE_ENCODINGS)
        raise SchemaError(
            f"column {leaf.column_path!r}: unknown encoding {name!r}",
            hint=f"one of: auto, {_COMPACT}, {names}",
        )
    if leaf.node.physical_type not in WRITABLE_ENCODINGS[encoding]:
        raise SchemaError(
            f"column {leaf.column_path!r}: {encoding.name} cannot hold {leaf.node.physical_type.name} values"
        )
    return encoding
