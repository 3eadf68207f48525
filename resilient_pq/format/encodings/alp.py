"""ALP: floats as decimal integers, bit-packed, with exceptions (parquet-format, AlpEncoding.md). Preview, read only."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import EncodingError, UnsupportedError
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.schema_tree import Primitive
from resilient_pq.lazy_dataclass import dataclass

_HEADER = struct.Struct("<BBBi")  # mode, integer encoding, log2 of the vector size, number of values
_VECTOR = struct.Struct("<BBH")  # exponent, factor, number of exceptions
_OFFSET_SIZE = 4
_POSITION_SIZE = 2


@dataclass(frozen=True, slots=True)
class _Kind:
    """What differs between FLOAT and DOUBLE."""

    real: np.dtype[Any]
    unsigned: np.dtype[Any]  # of the same size
    max_exponent: int  # the largest power of ten
    #: 10 to the power of 0 and up, and the same below 0. NumPy reads the decimal literals with correct rounding,
    #: as the specification demands; computing them would not do.
    powers: tuple[tuple[Any, ...], tuple[Any, ...]]

    @classmethod
    def of(cls, real: type[np.floating[Any]], max_exponent: int) -> _Kind:
        size = np.dtype(real).itemsize
        up, down = (tuple(real(f"1e{sign}{n}") for n in range(max_exponent + 1)) for sign in ("", "-"))
        return cls(np.dtype(f"<f{size}"), np.dtype(f"<u{size}"), max_exponent, (up, down))

    @property
    def size(self) -> int:
        """Bytes of a value."""
        return self.real.itemsize


_FLOAT = _Kind.of(np.float32, 10)
_DOUBLE = _Kind.of(np.float64, 18)


def decode(node: Primitive, data: memoryview, out: NDArray[Any]) -> None:
    """Fill `out` with FLOAT or DOUBLE values."""
    kind = _FLOAT if node.physical_type is Type.FLOAT else _DOUBLE
    if len(data) < _HEADER.size:
        raise EncodingError("an ALP page ends before its header does")
    mode, integer_encoding, log2_size, count = _HEADER.unpack_from(data)
    if mode or integer_encoding:
        raise UnsupportedError(f"ALP mode {mode} with integer encoding {integer_encoding} is not supported")
    if not 3 <= log2_size <= 15:
        raise EncodingError(f"ALP vectors of 2**{log2_size} values: the exponent must be 3 to 15")
    if count != len(out):
        raise EncodingError(f"{count} values are encoded where {len(out)} are expected")
    body = data[_HEADER.size :]
    num_vectors = -(-count >> log2_size)
    if len(body) < num_vectors * _OFFSET_SIZE:
        raise EncodingError("an ALP page ends before its vectors begin")
    for vector, offset in enumerate(np.frombuffer(body, "<u4", num_vectors).tolist()):
        if not num_vectors * _OFFSET_SIZE <= offset <= len(body):
            raise EncodingError("an ALP vector lies outside of its page")
        _decode_vector(kind, body[offset:], out[vector << log2_size : (vector + 1) << log2_size])


def _decode_vector(kind: _Kind, data: memoryview, out: NDArray[Any]) -> None:
    start = _VECTOR.size + kind.size + 1  # of the packed integers, behind the frame of reference and a width
    if len(data) < start:
        raise EncodingError("an ALP vector is cut short")
    exponent, factor, num_exceptions = _VECTOR.unpack_from(data)
    width = data[start - 1]
    if not factor <= exponent <= kind.max_exponent or width > 8 * kind.size or num_exceptions > len(out):
        raise EncodingError("the header of an ALP vector is damaged")
    end = start + (len(out) * width + 7) // 8
    if len(data) < end + num_exceptions * (_POSITION_SIZE + kind.size):
        raise EncodingError("an ALP vector is cut short")
    (frame,) = np.frombuffer(data, kind.unsigned, 1, _VECTOR.size)
    integers = _unpack(data[start:end], width, len(out)).astype(kind.unsigned)
    integers += frame  # wraps around
    up, down = kind.powers
    # Two multiplications in the type of the values, as the specification demands: one would round differently.
    out[:] = integers.view(f"<i{kind.size}").astype(kind.real) * up[factor] * down[exponent]
    positions = np.frombuffer(data, "<u2", num_exceptions, end)
    if positions.max(initial=0) >= len(out):
        raise EncodingError("an ALP exception lies outside of its vector")
    # As integers: a NaN keeps its bits.
    exceptions = np.frombuffer(data, kind.unsigned, num_exceptions, end + num_exceptions * _POSITION_SIZE)
    out.view(kind.unsigned)[positions] = exceptions


def _unpack(data: memoryview, width: int, count: int) -> NDArray[np.uint64]:
    """`count` numbers of `width` bits each, least significant bit first."""
    bits = np.zeros((count, 64), np.uint8)
    packed = np.frombuffer(data, np.uint8)
    bits[:, :width] = np.unpackbits(packed, count=count * width, bitorder="little").reshape(count, width)
    return np.packbits(bits, axis=1, bitorder="little").view("<u8").reshape(count)
