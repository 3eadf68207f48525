"""Bloom filters: the vectors of parquet-testing, a filter in plain Python, filters of DuckDB, hostile bytes."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import xxhash
from corpus_of_others import of_corpus
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq import sync
from resilient_pq.errors import FormatError, ResilientPQError, SchemaError, UnsupportedError
from resilient_pq.format import compact_protocol
from resilient_pq.format.annotations import Empty
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.indexes.split_block_filter import (
    MAX_BYTES,
    BloomFilter,
    BloomFilterAlgorithm,
    BloomFilterCompression,
    BloomFilterHash,
    BloomFilterHeader,
    hashes_of,
    header_size,
)
from resilient_pq.format.physical_values import ByteArrays, Values
from resilient_pq.format.schema_tree import Primitive


def node(physical: Type, length: int | None = None) -> Primitive:
    return Primitive("c", Repetition.REQUIRED, physical, length)


STRINGS, LONGS = node(Type.BYTE_ARRAY), node(Type.INT64)


def byte_arrays(*values: bytes) -> ByteArrays:
    offsets = np.cumsum([3, *map(len, values)])
    return ByteArrays(offsets, np.frombuffer(b"..." + b"".join(values) + b"behind", np.uint8))


def corpus(name: str) -> Path:
    return of_corpus(f"parquet-testing/data/{name}")


# --- as the specification writes it, a bit at a time ----------------------------------------------------

SALTS = bytes.fromhex("47b6137b 44974d91 8824ad5b a2b7289d 705495c7 2df1424b 9efc4947 5c6bfb31")
SALT_WORDS = struct.unpack(">8I", SALTS)


def bits_of(value: bytes, blocks: int) -> set[int]:
    """The bits of a filter that stand for a value, counted from the first of the first block."""
    hash64 = xxhash.xxh64_intdigest(value, seed=0)
    block = ((hash64 >> 32) * blocks) >> 32
    bits = [(((hash64 & 0xFFFFFFFF) * salt) & 0xFFFFFFFF) >> 27 for salt in SALT_WORDS]
    return {256 * block + 32 * word + bit for word, bit in enumerate(bits)}


def set_bits(filtered: BloomFilter) -> set[int]:
    raw = np.frombuffer(filtered.blocks.astype("<u4").tobytes(), np.uint8)
    return set(np.flatnonzero(np.unpackbits(raw, bitorder="little")).tolist())


@settings(deadline=None, max_examples=60)
@given(values=st.lists(st.binary(max_size=20), max_size=20), blocks=st.sampled_from([1, 2, 3, 64]))
def test_it_has_the_bits_of_its_values(values: list[bytes], blocks: int) -> None:
    filtered = BloomFilter(np.zeros((blocks, 8), np.uint32))
    filtered.insert(STRINGS, byte_arrays(*values))
    assert set_bits(filtered) == set().union(*(bits_of(value, blocks) for value in values))
    assert filtered.may_contain(STRINGS, byte_arrays(*values)).all()
    others = [b"other %d" % number for number in range(50)]
    expected = [bits_of(other, blocks) <= set_bits(filtered) for other in others]
    assert filtered.may_contain(STRINGS, byte_arrays(*others)).tolist() == expected
    assert BloomFilter.from_bytes(filtered.to_bytes() + b"behind").blocks.tolist() == filtered.blocks.tolist()


@pytest.mark.parametrize(
    ("column", "values", "plain"),
    [
        (node(Type.INT32), np.array([-1, 7], np.int32), [struct.pack("<i", -1), struct.pack("<i", 7)]),
        (LONGS, np.array([-1, 2**40]), [struct.pack("<q", -1), struct.pack("<q", 2**40)]),
        (
            node(Type.FLOAT),
            np.array([-0.0, 1.5], np.float32),
            [struct.pack("<f", -0.0), struct.pack("<f", 1.5)],
        ),
        (node(Type.DOUBLE), np.array([0.0, 1e300]), [struct.pack("<d", 0), struct.pack("<d", 1e300)]),
        (
            node(Type.INT96),
            np.arange(24, dtype=np.uint8).reshape(2, 12),
            [bytes(range(12)), bytes(range(12, 24))],
        ),
        (
            node(Type.FIXED_LEN_BYTE_ARRAY, 3),
            np.arange(6, dtype=np.uint8).reshape(2, 3),
            [b"\0\1\2", b"\3\4\5"],
        ),
        (node(Type.FIXED_LEN_BYTE_ARRAY, 0), np.zeros((2, 0), np.uint8), [b"", b""]),
        (STRINGS, byte_arrays(b"", b"abc"), [b"", b"abc"]),
    ],
    ids=lambda case: case.physical_type.name if isinstance(case, Primitive) else "",
)
def test_values_are_hashed_as_plain_has_them(column: Primitive, values: Values, plain: list[bytes]) -> None:
    assert hashes_of(column, values).tolist() == [xxhash.xxh64_intdigest(value) for value in plain]


def test_booleans_have_no_filters() -> None:
    column, values = node(Type.BOOLEAN), np.array([True])
    filtered = BloomFilter.sized(1, 0.1)
    for call in (filtered.insert, filtered.may_contain):
        with pytest.raises(UnsupportedError, match="BOOLEAN"):
            call(column, values)


# --- sizes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("false_positives", [0.2, 0.05, 0.01, 0.001])
def test_as_few_others_pass_as_was_asked_for(false_positives: float) -> None:
    count = 5000
    filtered = BloomFilter.sized(count, false_positives)
    filtered.insert(LONGS, np.arange(count, dtype=np.int64))
    assert filtered.may_contain(LONGS, np.arange(count, dtype=np.int64)).all()
    passed = filtered.may_contain(LONGS, np.arange(10**9, 10**9 + 40_000)).mean()
    assert passed <= 1.25 * false_positives
    smaller = BloomFilter(np.zeros((len(filtered.blocks) // 4, 8), np.uint32))
    smaller.insert(LONGS, np.arange(count, dtype=np.int64))
    assert smaller.may_contain(LONGS, np.arange(10**9, 10**9 + 40_000)).mean() > false_positives


def test_sizes_are_powers_of_two_within_bounds() -> None:
    sizes = {BloomFilter.sized(count, 0.01).blocks.nbytes for count in (0, 1, 10, 1000, 12_345, 10**6)}
    assert min(sizes) == 32
    assert all(size & (size - 1) == 0 for size in sizes)
    assert BloomFilter.sized(10**10, 0.001).blocks.nbytes == 1 << 27
    for nonsense in (0.0, 1.0, -0.1, 2.0, float("nan")):
        with pytest.raises(SchemaError, match="false_positives"):
            BloomFilter.sized(10, nonsense)


# --- filters of others ----------------------------------------------------------------------------------


def test_the_vectors_of_parquet_testing() -> None:
    data = corpus("bloom_filter.xxhash.bin").read_bytes()
    filtered = BloomFilter.from_bytes(data)
    assert filtered.may_contain(STRINGS, byte_arrays(b"hello", b"parquet", b"bloom", b"filter")).all()
    assert not filtered.may_contain(STRINGS, byte_arrays(b"Hello", b"", b"parque", b"filters")).any()
    made = BloomFilter(np.zeros_like(filtered.blocks))
    made.insert(STRINGS, byte_arrays(b"hello", b"parquet", b"bloom", b"filter"))
    assert made.to_bytes() == data
    assert header_size(data) == (16, 1024)


def test_the_older_form_is_refused() -> None:
    with pytest.raises(FormatError):
        BloomFilter.from_bytes(corpus("bloom_filter.bin").read_bytes())


def test_filters_in_a_file_of_parquet_java() -> None:
    path = corpus("data_index_bloom_encoding_with_length.parquet")
    data = path.read_bytes()
    with sync.open(str(path)) as file:
        metadata = file.metadata.row_groups[0].columns[0].meta_data
        words = [word.encode() for word in file.read().to_pydict()["String"]]
    assert metadata is not None and metadata.bloom_filter_offset is not None
    at, length = metadata.bloom_filter_offset, metadata.bloom_filter_length
    assert header_size(data[at:])[0] + header_size(data[at:])[1] == length
    filtered = BloomFilter.from_bytes(data[at:])
    assert filtered.may_contain(STRINGS, byte_arrays(*words)).all()
    assert not filtered.may_contain(STRINGS, byte_arrays(b"not there", b"neither")).any()


def test_filters_of_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    select = "SELECT (range % 500) * 7 AS number, 'word ' || (range % 300) AS word FROM range(4000)"
    with duckdb.connect() as connection:
        connection.sql(f"COPY ({select}) TO '{path}' (FORMAT parquet)")
    data = path.read_bytes()
    with sync.open(str(path)) as file:
        chunks = [column.meta_data for column in file.metadata.row_groups[0].columns]
    values: list[tuple[Primitive, Any, Any]] = [
        (LONGS, np.arange(500) * 7, np.arange(10**6, 10**6 + 1000)),
        (
            STRINGS,
            *(byte_arrays(*(b"word %d" % n for n in numbers)) for numbers in (range(300), range(300, 1300))),
        ),
    ]
    for chunk, (column, inside, outside) in zip(chunks, values, strict=True):
        assert chunk is not None and chunk.bloom_filter_offset is not None
        filtered = BloomFilter.from_bytes(data[chunk.bloom_filter_offset :])
        assert filtered.may_contain(column, inside).all()
        assert filtered.may_contain(column, outside).mean() < 0.1


# --- hostile bytes --------------------------------------------------------------------------------------


def header(size: int, **other: Any) -> bytes:
    usual = {
        "algorithm": BloomFilterAlgorithm(BLOCK=Empty()),
        "hash": BloomFilterHash(XXHASH=Empty()),
        "compression": BloomFilterCompression(UNCOMPRESSED=Empty()),
    }
    return compact_protocol.encode(BloomFilterHeader(size, **{**usual, **other}))


@pytest.mark.parametrize("size", [-1, -32, 0, 1, 31, 33, 64, 2**31 - 32, 2**31 - 1, -(2**31)])
def test_no_size_is_believed(size: int) -> None:
    with pytest.raises(FormatError):
        BloomFilter.from_bytes(header(size) + bytes(63))


def test_a_filter_is_not_larger_than_allowed() -> None:
    never_touched = np.zeros(MAX_BYTES + 100, np.uint8)
    front = header(MAX_BYTES + 32)
    never_touched[: len(front)] = np.frombuffer(front, np.uint8)
    with pytest.raises(FormatError):
        BloomFilter.from_bytes(never_touched.data)


@pytest.mark.parametrize(
    "other",
    [
        {"algorithm": BloomFilterAlgorithm()},
        {"hash": BloomFilterHash()},
        {"compression": BloomFilterCompression()},
    ],
)
def test_kinds_of_the_future_are_told_apart_from_damage(other: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="unknown kind"):
        BloomFilter.from_bytes(header(32, **other) + bytes(32))


def test_damage_is_an_error_or_a_filter() -> None:
    filtered = BloomFilter.sized(10, 0.1)
    filtered.insert(LONGS, np.arange(10))
    data = filtered.to_bytes()
    for size in range(len(data)):
        with pytest.raises(FormatError):
            BloomFilter.from_bytes(data[:size])
    generator = random.Random(5)
    for at in range(header_size(data)[0]):
        for _ in range(20):
            changed = data[:at] + bytes([generator.randrange(256)]) + data[at + 1 :]
            try:
                found = BloomFilter.from_bytes(changed)
            except ResilientPQError:
                continue
            assert 0 < found.blocks.nbytes <= len(data)
