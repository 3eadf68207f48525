"""Encodings of values: one file each, `encode` and `decode` side by side, and one table of them all, `ENCODINGS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import UnsupportedError
from resilient_pq.format.encodings import alp, byte_stream_split, delta, plain, rle
from resilient_pq.format.file_metadata import Encoding, Type
from resilient_pq.format.physical_values import Values
from resilient_pq.format.schema_tree import Primitive
from resilient_pq.lazy_dataclass import dataclass


class Strings(Protocol):
    """Byte arrays of a page whose lengths are known, waiting for the room to be copied to."""

    def copy_to(self, out: NDArray[np.uint8]) -> None:
        """Copy the values back to back into `out`, whose size is the sum of their lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueEncoding:
    """How one encoding turns values into bytes and back."""

    types: frozenset[Type]  # the physical types it may hold
    #: Node and values to bytes; None where it is only read.
    encode: Callable[[Primitive, Values], NDArray[np.uint8]] | None = None
    #: Node and bytes into an array that is filled whole; None where it holds nothing but BYTE_ARRAY.
    decode: Callable[[Primitive, memoryview, NDArray[Any]], None] | None = None
    #: Bytes into an array of lengths; returns the total of bytes, and what copies them. None where it holds no
    #: BYTE_ARRAY.
    decode_byte_arrays: Callable[[memoryview, NDArray[np.int32]], tuple[int, Strings]] | None = None


ENCODINGS: dict[int, ValueEncoding] = {
    Encoding.PLAIN: ValueEncoding(
        types=frozenset(Type), encode=plain.encode, decode=plain.decode, decode_byte_arrays=plain.decode_byte_arrays
    ),
    Encoding.RLE: ValueEncoding(types=frozenset({Type.BOOLEAN}), encode=rle.encode, decode=rle.decode),
    Encoding.DELTA_BINARY_PACKED: ValueEncoding(
        types=frozenset({Type.INT32, Type.INT64}), encode=delta.encode_binary, decode=delta.decode_binary
    ),
    Encoding.DELTA_LENGTH_BYTE_ARRAY: ValueEncoding(
        types=frozenset({Type.BYTE_ARRAY}), encode=delta.encode_lengths, decode_byte_arrays=delta.decode_lengths
    ),
    Encoding.DELTA_BYTE_ARRAY: ValueEncoding(
        types=frozenset({Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY}),
        encode=delta.encode_prefixes,
        decode=delta.decode_fixed_prefixes,
        decode_byte_arrays=delta.decode_prefixes,
    ),
    Encoding.BYTE_STREAM_SPLIT: ValueEncoding(
        types=frozenset({Type.FLOAT, Type.DOUBLE, Type.INT32, Type.INT64, Type.FIXED_LEN_BYTE_ARRAY}),
        encode=byte_stream_split.encode,
        decode=byte_stream_split.decode,
    ),
    Encoding.ALP: ValueEncoding(types=frozenset({Type.FLOAT, Type.DOUBLE}), decode=alp.decode),
}

#: Encodings whose pages hold indices to the chunk's dictionary page.
DICTIONARY_ENCODINGS = (Encoding.RLE_DICTIONARY, Encoding.PLAIN_DICTIONARY)
#: Encodings of levels, which no values have but those of booleans.
LEVEL_ENCODINGS = (Encoding.RLE, Encoding.BIT_PACKED)


def encode_values(encoding: Encoding, node: Primitive, values: Values) -> NDArray[np.uint8]:
    """The values of a data page."""
    encode = encoding_for(encoding, node.physical_type).encode
    if encode is None:
        raise UnsupportedError(f"the encoding {encoding.name} is only read")
    return encode(node, values)


def encoding_for(encoding: int, physical_type: Type) -> ValueEncoding:
    """The row of the table for a page's values."""
    known = ENCODINGS.get(encoding)
    if known is None or physical_type not in known.types:
        name = Encoding(encoding).name if encoding in Encoding.__members__.values() else str(encoding)
        raise UnsupportedError(f"the encoding {name} of {physical_type.name} values is not supported")
    return known
