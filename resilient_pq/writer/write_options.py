"""What a caller can set when writing, checked once and passed down whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from resilient_pq.errors import OptionError, SchemaError
from resilient_pq.format.compression import codecs as compression
from resilient_pq.format.encodings import DICTIONARY_ENCODINGS, ENCODINGS
from resilient_pq.format.file_metadata import CompressionCodec, Encoding, Type
from resilient_pq.format.indexes.split_block_filter import FilterOptions
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.machine_limits import processors
from resilient_pq.parity.group_shape import ParityShare
from resilient_pq.units import MiB
from resilient_pq.writer.column_options import bloom_filters, check_names, column_metadata
from resilient_pq.writer.cut_policy import Cadence
from resilient_pq.writer.dictionary_use import KnownChoices
from resilient_pq.writer.option_checks import (
    OptionHelp,
    check_key_values,
    check_options,
    encryption_keys,
    file_path,
    of_column,
    one_of,
    option,
    parity_share,
    seconds,
    share,
    whole_number,
)

if TYPE_CHECKING:
    from resilient_pq.encryption.encryption import Encryption, EncryptionOfEach
    from resilient_pq.parity.inline_groups import InlineGroups

#: Threads that encode where nothing is said: each one more has a column chunk more in memory.
DEFAULT_THREADS: Final = min(processors(), 4)

#: The codec of columns for which nothing is said.
DEFAULT_CODEC: Final = "zstd"
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
        dictionary_bytes: Largest dictionary page before compression; 0 writes no dictionaries. A text column whose
            first row group has a dictionary keeps to dictionaries, and these may be larger.
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
        max_threads: Column chunks encoded at one time; None is the number of processors that this process may use,
            at most 4. More are encoded
            while those before them are written, also of the next row group, until a quarter of `row_group_bytes` waits.
            1 never encodes and writes at one time.
    """

    data_page_version: Literal["1.0", "2.0"] = option("1.0", one_of("1.0", "2.0"))
    level_encoding: Literal["RLE", "BIT_PACKED"] = option("RLE", one_of("RLE", "BIT_PACKED"))
    page_rows: int = option(131_072, whole_number)
    dictionary_bytes: int = option(MiB, partial(whole_number, least=0))
    statistics: bool = True
    bloom_filter_options: Mapping[str, bool | Mapping[str, float | None]] | Sequence[str] | None = None
    column_metadata: Mapping[str, Mapping[str, str]] | None = None
    sorting_columns: Sequence[Any] | None = None
    checkpoint_seconds: float | None = option(
        None,
        seconds,
        OptionHelp("SECONDS", "A row is followed by a stored checkpoint after this many seconds, at most."),
    )
    checkpoint_bytes: int | None = option(
        None, whole_number, OptionHelp("SIZE", "Also write a checkpoint after this many bytes.")
    )
    checkpoint_log: str | os.PathLike[str] | None = option(  # its default is None
        None,
        file_path,
        OptionHelp("FILE", "Write a line for each stored checkpoint, for `rpq uploads --log`.", flag="--log"),
    )
    part_bytes: int = option(5 * MiB, whole_number)
    max_part_bytes: int = option(64 * MiB, whole_number)
    equal_parts: bool = False
    max_bytes_in_flight: int = option(60 * MiB, whole_number)
    undecided_grace: float = option(60.0, partial(seconds, or_0=True))
    overwrite_partial: bool = option(False, help=OptionHelp("", "Replace the DST.partial of a writer that was killed."))
    permissions: int | None = None
    max_threads: int | None = option(None, whole_number)


_DEFAULTS: Final = WriteOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderOptions:
    """The keyword arguments of `create` and of its like that say how files are written, checked.

    The texts of the attributes are those of the arguments: `takes_options` puts them into the docstrings.

    Attributes:
        compression: "zstd", "snappy", "gzip", "brotli", "lz4_raw" or "none"; or a dict of these by column, where the
            columns that are not in it get zstd.
        compression_level: The codec's level; None is its default (zstd 3, gzip 2, brotli 4); or a dict by column.
        encodings: "auto", for the smallest of those that every reader decodes, where a text column has dictionaries in
            all row groups or in none, as its first values suggest: fastparquet reads nulls where a file has both;
            "compact", for the smallest of each row group of those that other readers of recent years decode, which
            floating point gains most by; one encoding for all columns
            ("PLAIN", "RLE_DICTIONARY"), or a dict by column.
        row_group_rows: Rows after which a row group is closed; None leaves it to `row_group_bytes`.
        row_group_bytes: Bytes in memory after which a row group is closed.
        page_bytes: Bytes after which a data page is cut at the next row: of dictionary indices, else of values as
            PLAIN has them, both before compression.
        checkpoint_every: Row groups between automatic checkpoints, at least, though a complete row group does not wait
            for more than a minute; None for none.
        checkpoint_overhead: Share of the bytes written that automatic checkpoints may take.
        encryption: With which keys the file is encrypted (`Encryption`); None leaves it in the clear.
        parity: Bytes of parity inside the file for each byte, at most half: 0.05 or "5%". So many damaged bytes in a
            row, and scattered damage, are rebuilt by reads, `recover` and `repair`; None for none, or, when a file is
            resumed, as before.
        max_unstored_seconds: Seconds after which a row is stored at most, so that it survives a kill of this process
            and, on local disks, a loss of power; None for no limit. A timer stores rows when nothing more is written.
            Slow streams get small row groups by it; on S3 it sends the last part again and writes a checkpoint each
            time, whatever `checkpoint_overhead` says. Stores that only take whole objects store rows at the end.
        on_error: What becomes of stored rows after an exception: "keep" them for a recovery, or "abort".
        metadata: Key-value metadata for the footer.
        fencing: How two writers of one file are kept apart on S3. "lease": an epoch object ``_NAME.rpq-epoch`` lies
            beside the object while an upload is open. "none": two writers that resume the file at one time may both be
            told that their rows are stored, and only those of one are. `Writer.fencing` says what the store can do.
        options: The less common settings.
        own_metadata: Further key-value metadata, of ours: what a file is part of.
        known_choices: What was chosen for text columns, shared by the files of a data set.
    """

    compression: str | Mapping[str, str | None] | None = option(
        DEFAULT_CODEC,
        help=OptionHelp(
            "CODEC", "zstd, snappy, gzip, brotli, lz4_raw or none; or COLUMN=CODEC,... with zstd for other columns."
        ),
    )
    compression_level: int | Mapping[str, int | None] | None = option(
        None, help=OptionHelp("LEVEL", "The codec's level; or COLUMN=LEVEL,... for some columns.")
    )
    encodings: str | Mapping[str, str] = "auto"
    row_group_rows: int | None = option(None, whole_number, OptionHelp("ROWS", "Rows of a row group, at most."))
    row_group_bytes: int = option(
        64 * MiB, whole_number, OptionHelp("SIZE", "Bytes of a row group in memory, at most.")
    )
    page_bytes: int = option(
        1 * MiB,
        whole_number,
        OptionHelp("SIZE", "Bytes of a page before compression: of values, or of dictionary indices."),
    )
    checkpoint_every: int | None = option(
        8, whole_number, OptionHelp("N", "Write a checkpoint after this many row groups, or more; 0 for none.")
    )
    checkpoint_overhead: float = option(
        0.02, share, OptionHelp("SHARE", "Checkpoints take at most this share of the bytes of the file.")
    )
    encryption: Encryption | EncryptionOfEach | None = option(None, encryption_keys)  # its default is None
    parity: float | str | None = option(
        None,
        parity_share,
        OptionHelp("SHARE", "Bytes of parity inside the file for each byte: 5% or 0.05."),
    )
    max_unstored_seconds: float | None = option(
        30.0,
        seconds,
        OptionHelp("SECONDS", "A row is stored after this many seconds, at most; 0 for no limit."),
    )
    on_error: Literal["keep", "abort"] = option("keep", one_of("keep", "abort"))
    metadata: Mapping[str, str] | None = option(None, check_key_values)
    fencing: Literal["lease", "none"] = option("lease", one_of("lease", "none"))
    options: WriteOptions | None = None
    own_metadata: Mapping[str, str] | None = None
    known_choices: KnownChoices | None = None

    def __post_init__(self) -> None:
        """Refuse what can never work, before anything is written."""
        if not isinstance(self.options, WriteOptions | None):
            raise OptionError(f"options is {self.options!r}; it takes WriteOptions")
        codecs = self.compression if isinstance(self.compression, Mapping) else ()
        levels = self.compression_level if isinstance(self.compression_level, Mapping) else ()
        for name in {"", *codecs, *levels}:
            self._compression_of(name, name.partition(".")[0])
        check_options(self)
        check_options(self.write)
        if self.page_bytes > 1 << 30:
            raise OptionError("page_bytes is more than 1 GiB; a page's size is a signed 32-bit number")
        if self.write.level_encoding == "BIT_PACKED" and self.write.data_page_version != "1.0":
            raise OptionError("data pages 2.0 have no BIT_PACKED levels", hint='data_page_version="1.0"')

    @property
    def write(self) -> WriteOptions:
        """The less common settings, or their defaults."""
        return _DEFAULTS if self.options is None else self.options

    @property
    def parity_share(self) -> ParityShare | None:
        """The share of parity that `parity` names; None for none."""
        return None if self.parity is None else ParityShare.parse(self.parity)

    def parity_groups(self) -> InlineGroups | None:
        """What takes the bytes of a new file to make their parity; None where it has none."""
        if self.parity_share is None:
            return None
        from resilient_pq.parity.inline_groups import InlineGroups  # noqa: PLC0415 (few files have parity)

        return InlineGroups(self.parity_share)

    @property
    def cadence(self) -> Cadence:
        """How often automatic checkpoints are wanted."""
        return Cadence(self.checkpoint_every, self.write.checkpoint_bytes, self.checkpoint_overhead)

    @property
    def max_unstored(self) -> float | None:
        """Seconds that a row may wait for being stored, or for a checkpoint; None for no such bound."""
        bounds = (self.max_unstored_seconds, self.write.checkpoint_seconds)
        return min((bound for bound in bounds if bound is not None), default=None)

    @property
    def name_columns(self) -> bool:
        """Whether some of the settings are of single columns."""
        settings = (self.compression, self.compression_level, self.encodings, self.write.column_metadata)
        return any(isinstance(each, Mapping) for each in settings) or bool(self.write.bloom_filter_options)

    def _compression_of(self, *names: str) -> tuple[CompressionCodec, int]:
        """The codec and its level for a column that goes by these names."""
        codec = compression.codec_named(of_column(self.compression, names, DEFAULT_CODEC))
        return codec, compression.check_level(codec, of_column(self.compression_level, names, None))

    def chunk_options(self, schema: Schema) -> list[ChunkOptions]:
        """How the chunks of each leaf column are written."""
        for setting in ("compression", "compression_level", "encodings"):
            if isinstance(given := getattr(self, setting), Mapping):
                check_names(schema, setting, given)
        if self.encryption is not None:
            self.encryption.check_names(schema)
        filters: Sequence[FilterOptions | None] = [None] * len(schema.leaves)
        if self.write.bloom_filter_options is not None:
            filters = bloom_filters(schema, self.write.bloom_filter_options)
        key_values: Sequence[tuple[tuple[str, str], ...]] = [()] * len(schema.leaves)
        if self.write.column_metadata is not None:
            key_values = column_metadata(schema, self.write.column_metadata)
        if self.name_columns:
            return [self._chunk_options(*each) for each in zip(schema.leaves, filters, key_values, strict=True)]
        if isinstance(self.encodings, str) and self.encodings.lower() in ("auto", _COMPACT) and schema.leaves:
            return [self._chunk_options(schema.leaves[0])] * len(schema.leaves)
        first = {leaf.node.physical_type: leaf for leaf in reversed(schema.leaves)}.values()
        known = {leaf.node.physical_type: self._chunk_options(leaf) for leaf in sorted(first, key=lambda x: x.ordinal)}
        return [known[leaf.node.physical_type] for leaf in schema.leaves]

    def _chunk_options(
        self, leaf: Leaf, bloom_filter: FilterOptions | None = None, key_value: tuple[tuple[str, str], ...] = ()
    ) -> ChunkOptions:
        names = (leaf.column_path, leaf.path[0])
        codec, level = self._compression_of(*names)
        name = of_column(self.encodings, names, "auto")
        return ChunkOptions(
            codec=codec,
            level=level,
            encoding=_encoding_named(name, leaf),
            new_readers=name.lower() == _COMPACT,
            level_encoding=Encoding[self.write.level_encoding],
            page_bytes=self.page_bytes,
            page_rows=self.write.page_rows,
            sealed=self.encryption is not None,
            dictionary_bytes=self.write.dictionary_bytes,
            version=1 if self.write.data_page_version == "1.0" else 2,
            statistics=self.write.statistics,
            bloom_filter=bloom_filter,
            key_value=key_value,
        )


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
