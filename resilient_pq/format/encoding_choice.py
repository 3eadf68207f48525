"""Which encoding the values of a column chunk get.

A dictionary is decided by the sizes of all values, which are at hand. What compression leaves of each candidate
is measured on a sample. Candidates are the encodings that every reader in use decodes rightly: PLAIN, a
dictionary, and DELTA_BINARY_PACKED where fastparquet does (data pages v1 of a column outside of lists, no nulls in
the chunk, differences of less than 32 bits; elsewhere it gives wrong values, errors or a crash).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.format import compression
from resilient_pq.format.chunk_options import ChunkOptions
from resilient_pq.format.encodings import DICTIONARY_ENCODINGS, dictionary, encode_values, rle
from resilient_pq.format.encodings.dictionary import Dictionary
from resilient_pq.format.metadata import CompressionCodec, Encoding, Type
from resilient_pq.format.schema import Leaf
from resilient_pq.format.values import ByteArrays, LeafData, Values, fixed_width

#: A sample is this share of the values, within limits, in runs of neighbours: what makes small sizes small, for
#: differences and for compression, stands between neighbours.
_SAMPLE_SHARE: Final = 16
_SAMPLE_VALUES: Final = (512, 16_384)
_SAMPLE_BYTES: Final = 256 * 1024
_SAMPLE_RUNS: Final = 4
#: Another encoding has to be this much smaller than a dictionary, which readers decode fastest and search in.
_BEATS_DICTIONARY: Final = 0.8
#: DELTA_BINARY_PACKED has to be this much smaller than PLAIN, which costs nothing to decode.
_BEATS_PLAIN: Final = 0.95
#: Range of the differences between neighbours that fits into fewer than 32 bits, with room to spare.
_MAX_DELTA_RANGE: Final = 1 << 28


@dataclass(frozen=True, slots=True)
class Choice:
    """The encoding of a chunk's data pages.

    Attributes:
        encoding: Of the values.
        dictionary: The chunk's dictionary, where `encoding` is one of indices to it.
    """

    encoding: Encoding
    dictionary: Dictionary | None = None

    @property
    def dictionary_encoding(self) -> Encoding:
        """The encoding that the dictionary page names: before RLE_DICTIONARY it had the data pages' name."""
        old = self.encoding is Encoding.PLAIN_DICTIONARY
        return Encoding.PLAIN_DICTIONARY if old else Encoding.PLAIN


def choose(leaf: Leaf, data: LeafData, options: ChunkOptions) -> Choice:
    """The encoding that was asked for, or the smallest that every reader decodes.

    A dictionary that was asked for and would take more than `ChunkOptions.dictionary_bytes` gives way to PLAIN.
    """
    wanted, values = options.encoding, data.values
    if wanted is not None and wanted not in DICTIONARY_ENCODINGS:
        return Choice(wanted)
    built = _build_dictionary(leaf, values, options)
    if wanted is not None:
        return Choice(Encoding.PLAIN) if built is None else Choice(wanted, built)
    return _smallest(leaf, data, built, options)


def plain_bytes(leaf: Leaf, values: Values) -> int:
    """Bytes of values in PLAIN encoding."""
    if isinstance(values, ByteArrays):
        return values.num_bytes + 4 * len(values)
    width = fixed_width(leaf.node)
    return (len(values) + 7) // 8 if width is None else width * len(values)


def _build_dictionary(leaf: Leaf, values: Values, options: ChunkOptions) -> Dictionary | None:
    """A dictionary where it pays, or where it was asked for and is not too large."""
    if not options.dictionary_bytes or not len(values) or leaf.node.physical_type is Type.BOOLEAN:
        return None
    all_bytes = plain_bytes(leaf, values)
    asked_for = options.encoding is not None
    limit = options.dictionary_bytes if asked_for else min(options.dictionary_bytes, all_bytes)
    built = dictionary.build(leaf.node, values, limit)
    if built is None or asked_for:
        return built
    pays = plain_bytes(leaf, built.values) + _index_bytes(built) < all_bytes
    return built if pays else None


def _index_bytes(built: Dictionary) -> int:
    return len(built.indices) * rle.bit_width(len(built.values) - 1) // 8


def _smallest(leaf: Leaf, data: LeafData, built: Dictionary | None, options: ChunkOptions) -> Choice:
    can_delta = _may_be_delta(leaf, data, options)
    if built is None and not can_delta:
        return Choice(Encoding.PLAIN)
    if not can_delta and options.codec is CompressionCodec.UNCOMPRESSED:
        return Choice(Encoding.RLE_DICTIONARY, built)  # it is smaller than PLAIN, or it would not have been built
    sample = _sample(leaf, data.values)
    encoding, size = Encoding.PLAIN, _estimate(Encoding.PLAIN, leaf, data.values, sample, options)
    if can_delta:
        delta = _estimate(Encoding.DELTA_BINARY_PACKED, leaf, data.values, sample, options)
        if delta < _BEATS_PLAIN * size:
            encoding, size = Encoding.DELTA_BINARY_PACKED, delta
    if built is not None and size > _BEATS_DICTIONARY * _dictionary_estimate(leaf, built, sample, options):
        return Choice(Encoding.RLE_DICTIONARY, built)
    return Choice(encoding)


def _estimate(
    encoding: Encoding, leaf: Leaf, values: Values, sample: Sequence[slice], options: ChunkOptions
) -> float:
    """Bytes of all values in an encoding after compression."""
    pieces = [encode_values(encoding, leaf.node, values[run]) for run in sample]
    return _compressed(pieces, options) * len(values) / _num_values(sample)


def _dictionary_estimate(
    leaf: Leaf, built: Dictionary, sample: Sequence[slice], options: ChunkOptions
) -> float:
    """Bytes of the dictionary page and of all indices after compression."""
    pieces = [dictionary.encode_indices(built.indices[run], len(built.values)) for run in sample]
    indices = _compressed(pieces, options) * len(built.indices) / _num_values(sample)
    return indices + _estimate(
        Encoding.PLAIN, leaf, built.values, _sample(leaf, built.values), options
    )


def _compressed(pieces: Sequence[NDArray[np.uint8]], options: ChunkOptions) -> int:
    return sum(len(compression.compress(options.codec, piece, options.level)) for piece in pieces)


def _may_be_delta(leaf: Leaf, data: LeafData, options: ChunkOptions) -> bool:
    """Whether every reader decodes DELTA_BINARY_PACKED values of the chunk."""
    values = data.values
    if leaf.node.physical_type not in (Type.INT32, Type.INT64) or options.version != 1:
        return False
    if leaf.max_repetition_level or len(values) != data.num_rows or len(values) < 2:
        return False
    assert isinstance(values, np.ndarray)
    if int(values.max()) - int(values.min()) >= 1 << (8 * values.itemsize - 1):
        return False  # differences would wrap around
    steps = np.diff(values)
    return int(steps.max()) - int(steps.min()) < _MAX_DELTA_RANGE


def _sample(leaf: Leaf, values: Values) -> list[slice]:
    """Runs of neighbours, spread evenly over the values."""
    least, most = _SAMPLE_VALUES
    count = len(values)
    width = max(1, plain_bytes(leaf, values) // count)
    wanted = min(count, max(count // _SAMPLE_SHARE, least), most, max(_SAMPLE_RUNS, _SAMPLE_BYTES // width))
    if wanted == count:
        return [slice(0, count)]
    run = -(-wanted // _SAMPLE_RUNS)
    return [
        slice(start, start + run)
        for start in (position * (count - run) // (_SAMPLE_RUNS - 1) for position in range(_SAMPLE_RUNS))
    ]


def _num_values(sample: Sequence[slice]) -> int:
    return sum(run.stop - run.start for run in sample)
