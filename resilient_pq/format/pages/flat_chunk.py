"""Chunks of one data page outside of lists, in few steps: most chunks of small row groups and of wide tables.

They have the bytes that `chunk_encoder` gives other chunks. What metadata say of them is kept in one compiled object,
which writes it in Thrift, instead of in a struct for everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.checksum import combine, crc32
from resilient_pq.format import kernels
from resilient_pq.format.compression import codecs
from resilient_pq.format.encodings import encode_values
from resilient_pq.format.file_metadata import CompressionCodec, Encoding, PageType
from resilient_pq.format.indexes.statistics import DictionaryBounds, Order, bounds_of, order_of, plain_bound
from resilient_pq.format.kernels.integers import varint_bytes
from resilient_pq.format.kernels.page_columns import OptionNumber
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.encoding_choice import Choice
from resilient_pq.format.pages.page_encoder import PageCut, v1_content
from resilient_pq.format.pages.page_sums import PageSums, needs_hashes
from resilient_pq.format.physical_values import ByteArrays, LeafData
from resilient_pq.format.resilience_records import MAX_DICTIONARY_COPY
from resilient_pq.format.schema_tree import Leaf, Schema

#: Of Thrift's compact protocol: a list, in the field behind the one before; binary elements; a list of 15 and more.
_NEXT_LIST: Final = b"\x19"
_BINARY, _LONG_LIST = 0x08, 0xF0

#: Rows of a chunk, at most.
MOST_ROWS: Final = 1024
_ORDERS: Final = {Order.SIGNED: 1, Order.UNSIGNED: 2, Order.FLOAT: 3, Order.BOOLEAN: 4, Order.BYTES: 5}
#: How the dictionaries of a chunk are chosen: the smallest encoding, and as of `dictionary_use` for text.
FREE, KEPT, NONE, FIRST = range(4)

#: The options that chunks of this module heed. Where another is not at its default, they are left to `chunk_encoder`.
_HEEDED: Final = {
    "codec",
    "level",
    "encoding",
    "dictionary",
    "new_readers",
    "page_bytes",
    "page_rows",
    "dictionary_bytes",
}
_UNHEEDED: Final = [option for option in fields(ChunkOptions) if option.name not in _HEEDED]
_UNHEEDED_DEFAULTS: Final = tuple(option.default for option in _UNHEEDED)
_unheeded = attrgetter(*[option.name for option in _UNHEEDED])


def is_flat(leaf: Leaf, options: ChunkOptions, cuts: Sequence[PageCut]) -> bool:
    """Whether `flat_chunk` makes such a chunk; uncommon options are left to `chunk_encoder`, as all is without it."""
    return (
        kernels.FlatChunk is not None
        and len(cuts) == 1
        and leaf.max_repetition_level == 0
        and leaf.max_definition_level <= 1
        and has_common_options(options)
    )


def has_common_options(options: ChunkOptions) -> bool:
    """Whether nothing uncommon is to be written with a chunk."""
    return _unheeded(options) == _UNHEEDED_DEFAULTS and not needs_hashes(options.codec)


def flat_chunk(leaf: Leaf, data: LeafData, chosen: Choice, cut: PageCut, options: ChunkOptions) -> Any:
    """The one data page of a chunk as a `kernels.FlatChunk`, behind its dictionary page if it has one."""
    chunk: Any = kernels.FlatChunk()
    built, values = chosen.dictionary, data.values
    chunk.buffers, chunk.header_crcs, crcs = [], [], []
    encodings = {int(chosen.encoding), *([int(Encoding.RLE)] if leaf.max_definition_level else ())}
    if built is not None:
        known = chosen.entries
        entries = encode_values(Encoding.PLAIN, leaf.node, built.values) if known is None else known.encoded
        chunk.dictionary_encoding = encoding = int(chosen.dictionary_encoding)
        encodings.add(encoding)
        about = int(PageType.DICTIONARY_PAGE), len(built.values), encoding
        crcs.append(_add_page(chunk, about, [entries], known and known.compressed, options))
        chunk.dictionary_header, body = chunk.buffers
        chunk.dictionary_size = chunk.size
        chunk.dictionary_copy = bytes(memoryview(body)) if len(body) <= MAX_DICTIONARY_COPY else None
    parts, packed = v1_content(leaf, data, chosen, cut, options)
    first = len(chunk.buffers)
    about = int(PageType.DATA_PAGE), cut.entry_end, int(chosen.encoding)
    crcs.append(_add_page(chunk, about, parts, packed, options))
    chunk.page_header = chunk.buffers[first]
    chunk.physical_type, chunk.codec = int(leaf.node.physical_type), int(options.codec)
    chunk.encoding, chunk.encodings = int(chosen.encoding), sorted(encodings)
    chunk.path = path_field(leaf.path)
    chunk.num_values, chunk.null_count = cut.entry_end, cut.entry_end - len(values)
    chunk.byte_array_bytes = values.num_bytes if isinstance(values, ByteArrays) else -1
    chunk.sums = PageSums(tuple(crcs), are_hashes=False).field
    _put_bounds(chunk, leaf, data, chosen)
    return chunk


def _add_page(
    chunk: Any, about: tuple[int, int, int], parts: Sequence[NDArray[np.uint8]], packed: Any, options: ChunkOptions
) -> int:
    """Put a page of a kind, with so many values in an encoding, behind the others, and give its CRC32."""
    kind, count, encoding = about
    size = stored_size = sum(map(len, parts))
    body: Sequence[Any] = parts
    if options.codec is not CompressionCodec.UNCOMPRESSED:
        body = codecs.compress_parts(options.codec, parts, options.level, packed)
        stored_size = sum(map(len, body))
    body_crc = 0
    for piece in body:
        body_crc = crc32(piece, body_crc)
    header = kernels.FlatChunk.header_of_page(kind, size, stored_size, body_crc, count, encoding)
    header_crc = crc32(header)
    crc = combine(header_crc, body_crc, stored_size)
    chunk.crc = combine(chunk.crc, crc, len(header) + stored_size)
    chunk.size += len(header) + stored_size
    chunk.uncompressed_size += len(header) + size
    chunk.buffers += [header, *body]
    chunk.header_crcs.append(header_crc)
    return crc


def _put_bounds(chunk: Any, leaf: Leaf, data: LeafData, chosen: Choice) -> None:
    node, built = leaf.node, chosen.dictionary
    by_entries = built is not None and not (isinstance(built.values, np.ndarray) and built.values.ndim == 1)
    if built is not None and by_entries:
        bounds = DictionaryBounds(node, built).of(0, len(data.values))
    else:
        bounds = bounds_of(node, data.values)
    chunk.nan_count = -1 if bounds.nan_count is None else bounds.nan_count
    if bounds.low is not None:
        chunk.low, chunk.low_is_exact = plain_bound(node, bounds.low, upper=False)
    if bounds.high is not None:
        chunk.high, chunk.high_is_exact = plain_bound(node, bounds.high, upper=True)
    of_values = chunk.low is not None and chunk.high is not None
    is_null = chunk.null_count == chunk.num_values
    chunk.has_column_index = order_of(node) is not Order.UNDEFINED and (of_values or is_null)


@lru_cache(maxsize=1 << 14)
def path_field(path: tuple[str, ...]) -> bytes:
    """`ColumnMetaData.path_in_schema`, behind a field whose number is one less."""
    names = [name.encode() for name in path]
    count = len(names)
    start = bytes([count << 4 | _BINARY]) if count < 15 else bytes([_LONG_LIST | _BINARY]) + varint_bytes(count)
    return _NEXT_LIST + start + b"".join([varint_bytes(len(name)) + name for name in names])


def flat_writer(schema: Schema, options: Sequence[ChunkOptions]) -> Any:
    """What makes such chunks of few flat rows in one compiled step; None where all are uncommon, or none is compiled.

    It goes from Arrow's buffers to the same bytes as all other ways do, and declines what it does not know.
    """
    if kernels.FlatWriter is None or not options:
        return None
    known = {which: _numbers(each) for which, each in {id(each): each for each in options}.items()}
    if len(known) > 1:
        return _flat_writer(schema, [known[id(each)] for each in options])
    (numbers,) = known.values()
    key = "flat writer", kernels.FlatWriter, numbers
    if key not in schema.made:  # many files have one schema, and all of their columns one form
        schema.made[key] = _flat_writer(schema, [numbers] * len(options))
    return schema.made[key]


def _flat_writer(schema: Schema, known: list[tuple[int, ...]]) -> Any:
    orders, paths = _flat_leaves(schema)
    numbers = np.empty((len(orders), OptionNumber.COUNT), np.int64)
    numbers[:, OptionNumber.ORDER] = orders
    numbers[:, OptionNumber.ORDER + 1 :] = known
    numbers[numbers[:, OptionNumber.ORDER + 1] < 0, OptionNumber.ORDER] = 0
    if not numbers[:, OptionNumber.ORDER].any():
        return None
    leaves = schema.leaves

    def bound(leaf: int, value: bytes, upper: bool) -> tuple[bytes | None, bool]:
        return plain_bound(leaves[leaf].node, value, upper=upper)

    compressing = codecs.compress, codecs.compress_parts, codecs.snappy_into
    return kernels.FlatWriter(numbers, paths, *compressing, crc32, combine, bound)


def _numbers(options: ChunkOptions) -> tuple[int, ...]:
    """The `OptionNumber`s behind the first; -1 where uncommon options are among them."""
    if not has_common_options(options) or options.encoding is not None or options.new_readers:
        return (-1,) * (OptionNumber.COUNT - OptionNumber.ORDER - 1)
    return options.codec, options.level, options.dictionary_bytes, options.page_bytes, options.page_rows


def _flat_leaves(schema: Schema) -> tuple[list[int], list[bytes]]:
    """How the values of each leaf compare, 0 where it is uncommon, and the bytes of its path."""
    if "flat" not in schema.made:
        orders = [
            0 if leaf.max_repetition_level or len(leaf.path) > 1 else _ORDERS.get(order_of(leaf.node), 0)
            for leaf in schema.leaves
        ]
        schema.made["flat"] = orders, [path_field(leaf.path) for leaf in schema.leaves]
    found: tuple[list[int], list[bytes]] = schema.made["flat"]
    return found
