"""The encoding a column chunk gets: what is asked for, else the smallest that every reader decodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from resilient_pq.format.file_metadata import CompressionCodec, Encoding, Type
from resilient_pq.format.pages.chunk_encoder import encode_chunk
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.encoding_choice import choose
from resilient_pq.format.physical_values import ByteArrays, LeafData

Make = Callable[..., Any]
RANDOM = np.random.default_rng(7)
CODECS = [CompressionCodec.UNCOMPRESSED, CompressionCodec.SNAPPY, CompressionCodec.ZSTD]
N = 20_000

#: Columns of integers, and the encoding that is the smallest for them with each codec.
STEADY = np.arange(N) * 1_000_003
JITTER = 1_700_000_000_000_000 + np.cumsum(RANDOM.integers(0, 1 << 20, N))
RANDOM_WIDE = RANDOM.integers(-(1 << 62), 1 << 62, N)
FEW = RANDOM.integers(0, 7, N) * 1_000_000_007


def _size(leaf: Any, data: LeafData, encoding: Encoding | None, codec: CompressionCodec) -> int:
    return encode_chunk(leaf, [data], ChunkOptions(codec=codec, encoding=encoding)).size


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (STEADY, Encoding.DELTA_BINARY_PACKED),
        (JITTER, Encoding.DELTA_BINARY_PACKED),
        (RANDOM_WIDE, Encoding.PLAIN),
        (FEW, Encoding.RLE_DICTIONARY),
    ],
    ids=["steady", "jitter", "random", "few"],
)
def test_the_smallest_is_chosen(leaf_of: Make, values: Any, expected: Encoding, codec: CompressionCodec) -> None:
    leaf = leaf_of(Type.INT64, optional=False)
    data = LeafData(N, None, None, values)
    assert choose(leaf, data, ChunkOptions(codec=codec)).encoding is expected
    sizes = {
        encoding: _size(leaf, data, encoding, codec)
        for encoding in (Encoding.PLAIN, Encoding.DELTA_BINARY_PACKED, Encoding.RLE_DICTIONARY)
    }
    if expected is Encoding.PLAIN:
        del sizes[Encoding.DELTA_BINARY_PACKED]  # smaller by a hair, and not read by all
    assert _size(leaf, data, None, codec) == min(sizes.values())


def test_what_the_chosen_encoding_needs_is_there(leaf_of: Make) -> None:
    leaf = leaf_of(Type.INT64, optional=False)
    chosen = choose(leaf, LeafData(N, None, None, FEW), ChunkOptions())
    assert chosen.dictionary is not None and len(chosen.dictionary.values) == 7
    assert np.array_equal(np.asarray(chosen.dictionary.values)[chosen.dictionary.indices], FEW)
    assert choose(leaf, LeafData(N, None, None, STEADY), ChunkOptions()).dictionary is None


def test_no_deltas_where_a_reader_fails_on_them(leaf_of: Make, flat: Make, lists: Make) -> None:
    """fastparquet: right values only of v1 pages without nulls and lists, with differences below 32 bits."""
    steady = list(range(0, 60_000, 3))

    def chosen(leaf: Any, data: LeafData, **options: Any) -> Encoding:
        return choose(leaf, data, ChunkOptions(**options)).encoding

    for kind in (Type.INT32, Type.INT64):
        optional, required = leaf_of(kind), leaf_of(kind, optional=False)
        assert chosen(optional, flat(optional, steady)) is Encoding.DELTA_BINARY_PACKED
        assert chosen(required, flat(required, steady)) is Encoding.DELTA_BINARY_PACKED
        assert chosen(required, flat(required, steady), version=2) is Encoding.PLAIN
        assert chosen(optional, flat(optional, [None, *steady])) is Encoding.PLAIN
        nested = leaf_of(kind, lists=1)
        assert chosen(nested, lists(nested, [[value] for value in steady])) is Encoding.PLAIN
    wide = leaf_of(Type.INT64, optional=False)
    jumps = np.cumsum(RANDOM.integers(0, 1 << 33, N))
    assert chosen(wide, LeafData(N, None, None, jumps)) is Encoding.PLAIN
    around = np.tile(np.array([-(1 << 63), (1 << 63) - 1]), N // 2)
    assert chosen(wide, LeafData(N, None, None, around), dictionary_bytes=0) is Encoding.PLAIN


def test_encodings_that_not_all_read_are_never_chosen(leaf_of: Make, flat: Make) -> None:
    floats = leaf_of(Type.DOUBLE)
    assert choose(floats, flat(floats, np.linspace(1, 2, N)), ChunkOptions()).encoding is Encoding.PLAIN
    flags = leaf_of(Type.BOOLEAN)
    assert choose(flags, flat(flags, [True] * N), ChunkOptions()).encoding is Encoding.PLAIN
    strings = leaf_of(Type.BYTE_ARRAY)
    names = [b"/var/log/%08d" % i for i in range(N)]
    assert choose(strings, flat(strings, names), ChunkOptions()).encoding is Encoding.PLAIN


@pytest.mark.parametrize("encoding", [Encoding.PLAIN, Encoding.DELTA_BINARY_PACKED, Encoding.BYTE_STREAM_SPLIT])
def test_what_is_asked_for_is_taken(leaf_of: Make, encoding: Encoding) -> None:
    leaf = leaf_of(Type.INT64, optional=False)
    for values in (STEADY, RANDOM_WIDE, FEW):
        chosen = choose(leaf, LeafData(N, None, None, values), ChunkOptions(encoding=encoding))
        assert chosen.encoding is encoding and chosen.dictionary is None


def test_a_dictionary_that_was_asked_for_and_is_too_large(leaf_of: Make) -> None:
    leaf = leaf_of(Type.INT64, optional=False)
    data = LeafData(N, None, None, STEADY)
    for encoding in (Encoding.RLE_DICTIONARY, Encoding.PLAIN_DICTIONARY):
        assert choose(leaf, data, ChunkOptions(encoding=encoding)).encoding is encoding
        small = ChunkOptions(encoding=encoding, dictionary_bytes=1000)
        assert choose(leaf, data, small).encoding is Encoding.PLAIN


@pytest.mark.parametrize("count", [0, 1, 2, 3, 511, 512, 513, 2049])
def test_small_chunks(leaf_of: Make, flat: Make, decoded: Make, rows_of: Make, count: int) -> None:
    leaf = leaf_of(Type.INT64)
    rows = list(range(count))
    chunk = encode_chunk(leaf, [flat(leaf, rows)], ChunkOptions())
    assert rows_of(decoded(leaf, chunk, num_rows=count)) == rows
    nulls = [None] * count
    chunk = encode_chunk(leaf, [flat(leaf, nulls)], ChunkOptions())
    assert rows_of(decoded(leaf, chunk, num_rows=count)) == nulls


def _shapes(count: int) -> dict[str, Any]:
    """Columns of int64 that a sample may take for something else."""
    random = np.random.default_rng(count)
    wide = random.integers(0, 1 << 62, count)
    blocks = np.arange(count) // 96
    return {
        "few": random.integers(0, 300, count) << 40,
        "all": wide,
        "as many as a dictionary holds": random.integers(0, min(count // 2, 131_072), count) << 40,
        "half of it constant": np.where(np.arange(count) < count // 2, 7, wide),
        "every other constant": np.where(np.arange(count) % 2, 7, wide),
        "stripes": np.where(np.arange(count) // 5000 % 2, 7, wide),
        "stripes in step with the sample": np.where(np.arange(count) % (count // 32) < 900, wide, 7),
        "sorted in pairs": np.sort(wide).repeat(2)[:count],
        "sorted in runs": np.arange(count) // 10 * (1 << 40),
        "own values in each block": (blocks * 8 + random.integers(0, 8, count)) << 40,
        "tails": np.floor(random.pareto(0.6, count)).clip(0, 1 << 50).astype(np.int64) << 10,
    }


@pytest.mark.parametrize("count", [9000, 60_000, pytest.param(700_000, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", [Type.INT64, Type.BYTE_ARRAY])
@pytest.mark.parametrize(("codec", "most"), [(CompressionCodec.UNCOMPRESSED, 7 / 6), (CompressionCodec.SNAPPY, 4 / 3)])
def test_the_sample_decides_like_all_values(
    leaf_of: Make, count: int, kind: Type, codec: CompressionCodec, most: float
) -> None:
    """A chunk is at most a sixth larger than the smaller of PLAIN and a dictionary, whatever the sample met.

    With a codec it is a third: there a dictionary gives way only to what is smaller by a fifth.
    """
    leaf = leaf_of(kind, optional=False)
    for name, numbers in _shapes(count).items():
        values: Any = np.ascontiguousarray(numbers)
        if kind is Type.BYTE_ARRAY:
            values = ByteArrays(np.arange(0, 8 * count + 1, 8), values.view(np.uint8))
        data = LeafData(count, None, None, values)
        sizes = {
            encoding: encode_chunk(leaf, [data], ChunkOptions(codec=codec, encoding=encoding, version=2)).size
            for encoding in (None, Encoding.PLAIN, Encoding.RLE_DICTIONARY)
        }
        smallest = min(sizes[Encoding.PLAIN], sizes[Encoding.RLE_DICTIONARY])
        assert sizes[None] <= most * smallest, (name, sizes)


def test_what_is_too_varied_for_a_dictionary_is_not_numbered(leaf_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    leaf = leaf_of(Type.INT64, optional=False)
    built: list[int] = []

    def build(node: Any, values: Any, limit: int, side_by_side: Any) -> None:
        built.append(len(values))

    monkeypatch.setattr("resilient_pq.format.pages.encoding_choice.dictionary.build", build)
    shapes = _shapes(400_000)
    for name in ("all", "sorted in pairs", "half of it constant", "every other constant"):
        assert choose(leaf, LeafData(400_000, None, None, shapes[name]), ChunkOptions(version=2)).dictionary is None
    assert not built
    for name in ("few", "sorted in runs", "own values in each block", "as many as a dictionary holds"):
        choose(leaf, LeafData(400_000, None, None, shapes[name]), ChunkOptions(version=2))
    assert len(built) == 4


# --- for newer readers ----------------------------------------------------------------------------------------------

SENSOR = 20 + np.sin(np.arange(N) / 500) + RANDOM.normal(0, 0.01, N)


@pytest.mark.parametrize("physical", [Type.FLOAT, Type.DOUBLE], ids=lambda physical: physical.name)
def test_floats_are_split_into_streams_for_newer_readers_where_that_is_smaller(leaf_of: Make, physical: Type) -> None:
    leaf = leaf_of(physical, optional=False)
    data = LeafData(N, None, None, SENSOR.astype(np.float32 if physical is Type.FLOAT else np.float64))
    for codec in (CompressionCodec.SNAPPY, CompressionCodec.ZSTD):
        options = ChunkOptions(codec=codec, new_readers=True)
        assert choose(leaf, data, options).encoding is Encoding.BYTE_STREAM_SPLIT
        assert encode_chunk(leaf, [data], options).size < 0.95 * _size(leaf, data, None, codec)
    plain = ChunkOptions(codec=CompressionCodec.UNCOMPRESSED, new_readers=True)
    assert choose(leaf, data, plain).encoding is Encoding.PLAIN  # nothing would be smaller


def test_floats_that_come_back_get_a_dictionary_for_newer_readers_too(leaf_of: Make) -> None:
    leaf = leaf_of(Type.DOUBLE, optional=False)
    prices = LeafData(N, None, None, RANDOM.integers(100, 400, N) / 100)
    assert choose(leaf, prices, ChunkOptions(new_readers=True)).encoding is Encoding.RLE_DICTIONARY


def test_floats_in_which_nothing_is_alike_stay_plain_for_newer_readers_too(leaf_of: Make) -> None:
    leaf = leaf_of(Type.DOUBLE, optional=False)
    noise = LeafData(N, None, None, RANDOM.integers(0, 1 << 62, N).view(np.float64))
    assert choose(leaf, noise, ChunkOptions(new_readers=True)).encoding is Encoding.PLAIN
    assert choose(leaf, LeafData(0, None, None, np.empty(0)), ChunkOptions(new_readers=True)).encoding is Encoding.PLAIN


def test_newer_readers_get_deltas_of_all_integers(leaf_of: Make, flat: Make) -> None:
    leaf = leaf_of(Type.INT64)
    for rows in ([*JITTER.tolist(), None], np.cumsum(RANDOM.integers(0, 1 << 33, N)).tolist()):
        data = flat(leaf, rows)
        assert choose(leaf, data, ChunkOptions()).encoding is not Encoding.DELTA_BINARY_PACKED
        for version in (1, 2):
            options = ChunkOptions(version=version, new_readers=True)
            assert choose(leaf, data, options).encoding is Encoding.DELTA_BINARY_PACKED
