"""Which encoding the values of a column chunk get.

Whether a dictionary may pay is estimated by the distinct values of a small sample, before one is built; whether it
pays is decided by the sizes of all values, which are at hand then. What compression leaves of each candidate
is measured on a sample. Candidates are the encodings that every reader in use decodes rightly: PLAIN, a
dictionary, and DELTA_BINARY_PACKED where fastparquet does (data pages v1 of a column outside of lists, no nulls in
the chunk, differences of less than 32 bits; elsewhere it gives wrong values, errors or a crash). Where readers need
not be old ones, DELTA_BINARY_PACKED is a candidate for all integers, and for floating point under a codec it is
BYTE_STREAM_SPLIT, which fastparquet does not know, nor did Spark's vectorised reader before 2026 (SPARK-56894).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.format import kernels
from resilient_pq.format.compression import codecs
from resilient_pq.format.encodings import DICTIONARY_ENCODINGS, dictionary, encode_values, rle
from resilient_pq.format.encodings.dictionary import Dictionary
from resilient_pq.format.file_metadata import CompressionCodec, Encoding, Repetition, Type
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.physical_values import ByteArrays, LeafData, Values, fixed_width
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.format.side_by_side import SideBySide, one_by_one
from resilient_pq.lazy_dataclass import dataclass

#: A sample is this share of the values, within limits, in runs of neighbours: what makes small sizes small, for
#: differences and for compression, stands between neighbours.
_SAMPLE_SHARE: Final = 64
_SAMPLE_VALUES: Final = (1024, 8192)
_SAMPLE_BYTES: Final = 128 * 1024
_SAMPLE_RUNS: Final = 4
#: What a dictionary and its indices may take of what PLAIN takes: building it and looking up in it cost time.
_DICTIONARY_PAYS: Final = 0.9
#: Distinct values are estimated by this share of the values, within limits, in runs of neighbours: values that come
#: back soon are found within a run, others by the runs that they are common to. 4096 of a million values that are
#: as varied as the largest dictionary hold 64 pairs of equals, those of a more varied column fewer.
_DISTINCT_SHARE: Final = 32
_DISTINCT_VALUES: Final = (1024, 4096)
_DISTINCT_RUNS: Final = 32
#: Fewer values are looked at as quickly as a sample of them.
_DISTINCT_AT_LEAST: Final = 512
#: No more than this part of the values is looked at: one fourth.
_DISTINCT_MOST: Final = 4
#: A first chunk of fewer values may be one that was closed early, unlike those that follow.
_FEW_VALUES: Final = 1024
#: Chance may show half as many pairs of equals as there should be, and the estimate be twice as large.
_DISTINCT_DOUBT: Final = 2
#: Another encoding has to be this much smaller than a dictionary, which readers decode fastest and search in.
_BEATS_DICTIONARY: Final = 0.8
#: Compression leaves a fourth of a dictionary's entries, seldom less: where these alone would still be larger than all
#: values in DELTA_BINARY_PACKED, no dictionary is built.
_ENTRIES_SHRINK: Final = 4
#: DELTA_BINARY_PACKED has to be this much smaller than PLAIN, which costs nothing to decode.
_BEATS_PLAIN: Final = 0.95
#: Values that all increase, or all decrease, and take no more bytes than this in DELTA_BINARY_PACKED, and this part of
#: PLAIN, are compared with nothing else: no dictionary is smaller, and to compress PLAIN takes longest of all.
_CLEAR_DELTA: Final = 128
_CLEAR_DELTA_PART: Final = 32
#: Largest dictionary of a text column whose other chunks have dictionaries.
_LARGEST_DICTIONARY: Final = 1 << 30
#: Range of the differences between neighbours that fits into fewer than 32 bits, with room to spare.
_MAX_DELTA_RANGE: Final = 1 << 28


class CompressedValues(NamedTuple):
    """All values of a chunk, or all entries of its dictionary, where finding the smallest encoding needed all."""

    encoded: NDArray[np.uint8]
    compressed: Any  # those bytes compressed: they are not compressed again for their page


@dataclass(frozen=True, slots=True)
class Choice:
    """The encoding of a chunk's data pages."""

    encoding: Encoding
    dictionary: Dictionary | None = None  # the chunk's dictionary, where `encoding` is one of indices to it
    values: CompressedValues | None = None  # the values in `encoding`, where they are known
    entries: CompressedValues | None = None  # those of the dictionary

    @property
    def dictionary_encoding(self) -> Encoding:
        """The encoding that the dictionary page names: before RLE_DICTIONARY it had the data pages' name."""
        old = self.encoding is Encoding.PLAIN_DICTIONARY
        return Encoding.PLAIN_DICTIONARY if old else Encoding.PLAIN


Choose = Callable[[Leaf, LeafData, ChunkOptions, SideBySide], Choice]


def choose(leaf: Leaf, data: LeafData, options: ChunkOptions, side_by_side: SideBySide = one_by_one) -> Choice:
    """The encoding that was asked for, or the smallest that every reader decodes.

    A dictionary that was asked for and would take more than `ChunkOptions.dictionary_bytes` gives way to PLAIN, but
    not one that other chunks of the column have, too.
    """
    wanted = options.encoding
    if data.entries is not None and (begun := _choose_begun(leaf, data, data.entries, options)) is not None:
        return begun
    if options.dictionary is not None:
        return _choose_kept(leaf, data.values, options, side_by_side)
    if wanted is None:
        return _choose_smallest(leaf, data, options, side_by_side)
    if wanted not in DICTIONARY_ENCODINGS:
        return Choice(wanted)
    built = None
    if _may_be_dictionary(leaf, data.values, options):
        built = dictionary.build(leaf.node, data.values, options.dictionary_bytes, side_by_side)
    return Choice(Encoding.PLAIN) if built is None else Choice(wanted, built)


def choose_first(leaf: Leaf, data: LeafData, options: ChunkOptions, side_by_side: SideBySide = one_by_one) -> Choice:
    """The encoding of the first chunk of a text column, which all others follow: few values say little about them."""
    values = data.values
    if data.entries is None and len(values) < _FEW_VALUES and _may_be_dictionary(leaf, values, options):
        starts = np.arange(len(values), dtype=np.int64)
        assert isinstance(values, ByteArrays)
        found = kernels.distinct_in_runs_byte_arrays(values.offsets, values.data, starts, 1)
        _, in_one, in_two, in_any, num_bytes = found
        # As many as there are to be drawn from, at least, by Chao's bound.
        varied = in_any + in_one * (in_one - 1) / (2 * (in_two + 1))
        if varied * (num_bytes / in_any + 4) <= options.dictionary_bytes:
            return _choose_kept(leaf, values, replace(options, dictionary=True), side_by_side)
    return choose(leaf, data, options, side_by_side)


def _choose_begun(leaf: Leaf, data: LeafData, entries: Values, options: ChunkOptions) -> Choice | None:
    """A dictionary that begins with some values, where none was ruled out, and it takes at most half of the values."""
    wanted = options.encoding
    if options.dictionary is False or not options.dictionary_bytes or wanted not in (None, *DICTIONARY_ENCODINGS):
        return None
    worth = max(options.dictionary_bytes, plain_bytes(leaf, data.values) // 2)
    limit = _LARGEST_DICTIONARY if options.dictionary else min(worth, _LARGEST_DICTIONARY)
    built = dictionary.build_on(leaf.node, entries, data.values, limit)
    return None if built is None else Choice(wanted or Encoding.RLE_DICTIONARY, built)


def _choose_kept(leaf: Leaf, values: Values, options: ChunkOptions, side_by_side: SideBySide) -> Choice:
    built = None
    if options.dictionary and len(values):
        built = dictionary.build(leaf.node, values, _LARGEST_DICTIONARY, side_by_side)
    if built is None:
        return Choice(Encoding.PLAIN)
    return Choice(options.encoding or Encoding.RLE_DICTIONARY, built)


def plain_bytes(leaf: Leaf, values: Values) -> int:
    """Bytes of values in PLAIN encoding."""
    if isinstance(values, ByteArrays):
        return values.num_bytes + 4 * len(values)
    width = fixed_width(leaf.node)
    return (len(values) + 7) // 8 if width is None else width * len(values)


def _may_be_dictionary(leaf: Leaf, values: Values, options: ChunkOptions) -> bool:
    return bool(options.dictionary_bytes and len(values)) and leaf.node.physical_type is not Type.BOOLEAN


def _dictionary_that_pays(
    leaf: Leaf, values: Values, options: ChunkOptions, most: float, side_by_side: SideBySide
) -> Dictionary | None:
    """A dictionary, where it takes less than the values and its entries no more than `most` bytes."""
    if not _may_be_dictionary(leaf, values, options):
        return None
    worth = int(_DICTIONARY_PAYS * plain_bytes(leaf, values))
    limit = int(min(options.dictionary_bytes, worth - _index_bytes(len(values), 2), most))
    if limit <= 0 or _too_varied(leaf, values, worth, limit):
        return None
    built = dictionary.build(leaf.node, values, limit, side_by_side)
    if built is None:
        return None
    size = plain_bytes(leaf, built.values) + _index_bytes(len(values), len(built.values))
    return built if size <= worth else None


def _index_bytes(num_values: int, num_entries: int) -> int:
    """Bytes of bit-packed indices to a dictionary."""
    return num_values * rle.bit_width(num_entries - 1) // 8


def _too_varied(leaf: Leaf, values: Values, worth: int, limit: int) -> bool:
    """Whether a sample says that a dictionary takes more than `limit`, or with its indices more than `worth` bytes."""
    count = len(values)
    if count < _DISTINCT_AT_LEAST or fixed_width(leaf.node) == 0:
        return False
    least, most = _DISTINCT_VALUES
    run = min(max(count // _DISTINCT_SHARE, least), most, count // _DISTINCT_MOST) // _DISTINCT_RUNS
    # Half of the runs are enough where no value comes back in them, as in most columns that are varied.
    for starts in _spread_runs(count, run):
        entries, num_bytes, all_once = _expected_entries(values, starts, run)
        too_large = num_bytes > limit or num_bytes + _index_bytes(count, entries) > worth
        if all_once and too_large:
            break
    return too_large


def _expected_entries(values: Values, starts: NDArray[np.int64], run: int) -> tuple[int, int, bool]:
    """How many entries a dictionary may have, its bytes, and whether no value of the sample comes back in it."""
    if isinstance(values, ByteArrays):
        found = kernels.distinct_in_runs_byte_arrays(values.offsets, values.data, starts, run)
    else:
        found = kernels.distinct_in_runs(values, starts, run)
    in_runs, in_one, in_two, in_any, num_bytes = found
    # Chao's lower bound of how many there are to be drawn from, by how many were drawn once and twice; a value that
    # comes again and again within a run counts as drawn once, as of so many draws only some are independent.
    varied = in_any + in_one * (in_one - 1) / (2 * (in_two + 1)) / _DISTINCT_DOUBT
    draws = len(values) * in_runs / (run * len(starts))
    entries = int(draws * varied / (draws + varied))  # no more than so many draws give on average
    entry_bytes = num_bytes / in_any + (4 if isinstance(values, ByteArrays) else 0)
    return entries, int(entries * entry_bytes), in_one == run * len(starts)


@lru_cache(maxsize=16)
def _spread_runs(count: int, run: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where runs begin that lie all over `count` values, one anywhere in each of equally long parts: half, and all."""
    share = count // _DISTINCT_RUNS
    part = np.arange(_DISTINCT_RUNS, dtype=np.int64)
    # Multiples of the golden section: always the same, and in step with no period of the values.
    starts = part * share + (part * 0x9E3779B9 % (1 << 32)) * (share - run) // (1 << 32)
    half = starts[::2].copy()
    starts.setflags(write=False)
    half.setflags(write=False)
    return half, starts


def _choose_smallest(leaf: Leaf, data: LeafData, options: ChunkOptions, side_by_side: SideBySide) -> Choice:
    """The smallest of PLAIN, a dictionary, and one other encoding, where there is another candidate."""
    values, other = data.values, _other_candidate(leaf, data, options)
    if other is None:
        return _choose_plain_or_dictionary(leaf, values, options, side_by_side)
    sample = _sample(leaf, values)
    must_be_narrow = other is Encoding.DELTA_BINARY_PACKED and not options.new_readers
    if must_be_narrow and not all(_narrow_steps(values[run]) for run in sample):
        return _choose_plain_or_dictionary(leaf, values, options, side_by_side)
    smallest, of_other = _estimate(other, leaf, values, sample, options)
    if _is_clear(other, values, of_other):
        return Choice(other, values=of_other)
    plain, of_plain = _estimate(Encoding.PLAIN, leaf, values, sample, options)
    built = _dictionary_that_pays(leaf, values, options, _ENTRIES_SHRINK * smallest, side_by_side)
    limit, by_dictionary = math.inf, None
    if built is not None:
        size, by_dictionary = _dictionary_estimate(leaf, built, sample, options)
        limit = _BEATS_DICTIONARY * size
    if smallest < _BEATS_PLAIN * plain and smallest <= limit:
        # All steps are looked at only where it would be chosen.
        if must_be_narrow and len(sample) > 1 and not _narrow_steps(values):
            return _choose_plain_or_dictionary(leaf, values, options, side_by_side)
        return Choice(other, values=of_other)
    return Choice(Encoding.PLAIN, values=of_plain) if by_dictionary is None or plain <= limit else by_dictionary


def _choose_plain_or_dictionary(leaf: Leaf, values: Values, options: ChunkOptions, side_by_side: SideBySide) -> Choice:
    built = _dictionary_that_pays(leaf, values, options, math.inf, side_by_side)
    if built is None:
        return Choice(Encoding.PLAIN)
    if options.codec is not CompressionCodec.UNCOMPRESSED:
        sample = _sample(leaf, values)
        size, by_dictionary = _dictionary_estimate(leaf, built, sample, options)
        plain, of_plain = _estimate(Encoding.PLAIN, leaf, values, sample, options)
        return Choice(Encoding.PLAIN, values=of_plain) if plain <= _BEATS_DICTIONARY * size else by_dictionary
    return Choice(Encoding.RLE_DICTIONARY, built)


def _estimate(
    encoding: Encoding, leaf: Leaf, values: Values, sample: Sequence[slice], options: ChunkOptions
) -> tuple[float, CompressedValues | None]:
    """Bytes of all values in an encoding after compression, and these themselves where the sample is all."""
    return _compressed(
        [encode_values(encoding, leaf.node, values[run]) for run in sample], len(values), sample, options
    )


def _dictionary_estimate(
    leaf: Leaf, built: Dictionary, sample: Sequence[slice], options: ChunkOptions
) -> tuple[float, Choice]:
    """Bytes of the dictionary page and of all indices after compression, and the choice of it."""
    pieces = [dictionary.encode_indices(built.indices[run], len(built.values)) for run in sample]
    indices, of_indices = _compressed(pieces, len(built.indices), sample, options)
    entries, of_entries = _estimate(Encoding.PLAIN, leaf, built.values, _sample(leaf, built.values), options)
    return indices + entries, Choice(Encoding.RLE_DICTIONARY, built, of_indices, of_entries)


def _compressed(
    pieces: Sequence[NDArray[np.uint8]], count: int, sample: Sequence[slice], options: ChunkOptions
) -> tuple[float, CompressedValues | None]:
    """Bytes that `count` values take whose sample is encoded in pieces, and these themselves where the sample is all.

    The pieces are compressed as one: the codec's own setting up takes longer than a short piece.
    """
    whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    compressed = codecs.compress(options.codec, whole, options.level)
    num_values = _num_values(sample)
    known = CompressedValues(whole, compressed) if len(sample) == 1 and num_values == count else None
    return len(compressed) * count / num_values, known


def _other_candidate(leaf: Leaf, data: LeafData, options: ChunkOptions) -> Encoding | None:
    """What may be smaller than PLAIN besides a dictionary, of what the readers that files are for decode."""
    physical = leaf.node.physical_type
    if not options.new_readers:
        integers = physical in (Type.INT32, Type.INT64)
        return Encoding.DELTA_BINARY_PACKED if integers and _all_decode_delta(leaf, data, options) else None
    if leaf.max_definition_level and leaf.node.repetition is Repetition.REQUIRED:
        return None  # Polars fails on pages without values of required leaves in groups that are null (2.1.0)
    if physical in (Type.INT32, Type.INT64) and len(data.values) >= 2:
        return Encoding.DELTA_BINARY_PACKED
    if physical in (Type.FLOAT, Type.DOUBLE) and len(data.values):
        return None if options.codec is CompressionCodec.UNCOMPRESSED else Encoding.BYTE_STREAM_SPLIT
    return None


def _all_decode_delta(leaf: Leaf, data: LeafData, options: ChunkOptions) -> bool:
    """Whether every reader decodes DELTA_BINARY_PACKED values of such a chunk where their steps are narrow."""
    if options.version != 1:
        return False
    return not leaf.max_repetition_level and len(data.values) == data.num_rows and data.num_rows >= 2


def _narrow_steps(values: Values) -> bool:
    """Whether the differences between neighbours are less than 32 bits wide."""
    assert isinstance(values, np.ndarray)
    if len(values) < 2:
        return True
    low, high, _ = kernels.number_min_max(values)
    if high - low >= 1 << (8 * values.itemsize - 1):
        return False  # differences would wrap around
    steps = np.subtract(values[1:], values[:-1], out=memory_pool.empty((len(values) - 1,), values.dtype))
    low, high, _ = kernels.number_min_max(steps)
    return bool(high - low < _MAX_DELTA_RANGE)


def _is_clear(other: Encoding, values: Values, known: CompressedValues | None) -> bool:
    """Whether integers, all of which are known in DELTA_BINARY_PACKED, are a sequence."""
    assert isinstance(values, np.ndarray)
    if other is not Encoding.DELTA_BINARY_PACKED or known is None:
        return False
    size = len(known.compressed)
    if size > _CLEAR_DELTA or _CLEAR_DELTA_PART * size > values.nbytes:
        return False
    return bool(np.all(values[1:] > values[:-1]) or np.all(values[1:] < values[:-1]))


def _sample(leaf: Leaf, values: Values) -> list[slice]:
    """Runs of neighbours, spread evenly over the values; a single one of few values, or of none."""
    least, most = _SAMPLE_VALUES
    count = len(values)
    width = max(1, plain_bytes(leaf, values) // max(count, 1))
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
