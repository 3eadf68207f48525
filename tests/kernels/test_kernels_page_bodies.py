"""Pages that a batch compares and decompresses itself, against zlib and cramjam."""

from __future__ import annotations

import random
import zlib
from types import ModuleType
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nanoarrow.c_array import CArray
from nanoarrow.c_schema import CSchema

from resilient_pq.arrow.types.field import Field, shared_c
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import CompressionCodec, DataPageHeader, Encoding, PageHeader, PageType, Type
from resilient_pq.format.kernels.integers import varint_bytes
from resilient_pq.format.kernels.page_columns import ChunkField

#: A CRC32 is compared, or none is.
ALL, NONE = 0, 1 << 32
WIDTH_ONE: CSchema = shared_c(Field("", "w:1", False))


def decoded(
    native: ModuleType,
    body: bytes,
    size: int,
    *,
    codec: CompressionCodec = CompressionCodec.SNAPPY,
    crc: int | None = None,
    least: int = NONE,
) -> bytes | None:
    """The bytes that a chunk of one page of `size` bytes holds; None where the batch declines it."""
    data = DataPageHeader(size, Encoding.PLAIN, Encoding.RLE, Encoding.RLE)
    signed = None if crc is None else crc - (crc >> 31 << 32)
    header = PageHeader(PageType.DATA_PAGE, size, len(body), crc=signed, data_page_header=data)
    part = compact_protocol.encode(header) + body
    row = np.zeros((1, ChunkField.COUNT), np.int64)
    row[0, ChunkField.TYPE], row[0, ChunkField.WIDTH], row[0, ChunkField.CODEC] = Type.FIXED_LEN_BYTE_ARRAY, 1, codec
    row[0, ChunkField.NUM_VALUES] = row[0, ChunkField.NUM_ROWS] = row[0, ChunkField.SIZE] = size
    row[0, ChunkField.LEAST_CRC] = least
    # At the end of its memory, so that a sanitizer sees whoever reads on.
    batch = native.ChunkBatch([memoryview(bytearray(part))], row)
    assert batch.bodies() == []
    (made,) = batch.arrays()
    return None if made is None else b"".join(pa.array(CArray(made, made.address, WIDTH_ONE)).to_pylist())


def by_cramjam(body: bytes, size: int) -> bytes | None:
    out = np.zeros(size, np.uint8)
    try:
        filled = cramjam.snappy.decompress_raw_into(body, out)
    except cramjam.DecompressionError:
        return None
    return out.tobytes() if filled == size else None


def elements(rng: random.Random, target: int) -> tuple[bytes, bytes]:
    """Snappy data with elements of all forms, and what they stand for, of about `target` bytes."""
    packed, plain = bytearray(), bytearray()
    while len(plain) < target:
        kind = rng.randrange(4) if plain else 0
        if kind == 0:
            length = rng.choice([1, 2, 15, 16, 17, 59, 60, 61, 64, 255, 256, 257, rng.randrange(1, 3000)])
            data = rng.randbytes(length) if rng.random() < 0.7 else bytes(length)
            least = 0 if length <= 60 else ((length - 1).bit_length() + 7) // 8
            width = rng.choice([least, rng.randrange(max(least, 1), 5)])
            packed += bytes([(59 + width if width else length - 1) << 2])
            packed += (length - 1).to_bytes(4, "little")[:width] + data
            plain += data
            continue
        most = min(len(plain), {1: (1 << 11) - 1, 2: (1 << 16) - 1, 3: 1 << 20}[kind])
        distance = rng.choice([1, 2, 3, 5, 7, 8, 9, 15, 16, 17, most, rng.randrange(1, most + 1)])
        distance = min(distance, most)
        length = rng.randrange(4, 12) if kind == 1 else rng.choice([1, 8, 63, 64, rng.randrange(1, 65)])
        if kind == 1:
            packed += bytes([1 | length - 4 << 2 | distance >> 8 << 5, distance & 0xFF])
        else:
            packed += bytes([kind | length - 1 << 2]) + distance.to_bytes(2 if kind == 2 else 4, "little")
        for _ in range(length):
            plain.append(plain[-distance])
    return varint_bytes(len(plain)) + bytes(packed), bytes(plain)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), target=st.sampled_from([1, 20, 100, 500, 5000]))
def test_elements_of_all_forms(native: ModuleType, seed: int, target: int) -> None:
    packed, plain = elements(random.Random(seed), target)
    assert by_cramjam(packed, len(plain)) == plain
    assert decoded(native, packed, len(plain)) == plain


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), target=st.sampled_from([1, 20, 100, 500]))
def test_damaged_elements_agree(native: ModuleType, seed: int, target: int) -> None:
    rng = random.Random(seed)
    packed, plain = elements(rng, target)
    for _ in range(20):
        changed = bytearray(packed)
        for _ in range(rng.choice([0, 1, 1, 3])):
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, 0xF0, 0xFC, rng.randrange(256)])
        if rng.random() < 0.3:
            del changed[rng.randrange(len(changed)) :]
        size = max(1, len(plain) + rng.choice([0, 0, 0, 1, -1, 16]))
        assert decoded(native, bytes(changed), size) == by_cramjam(bytes(changed), size)


@pytest.mark.parametrize("length", [(1 << 32) - 1, (1 << 31) - 1, 1 << 31, 200])
def test_a_literal_longer_than_the_data(native: ModuleType, length: int) -> None:
    body = varint_bytes(100) + bytes([63 << 2]) + length.to_bytes(4, "little") + bytes(100)
    assert decoded(native, body, 100) is None


def test_what_cramjam_makes_is_read(native: ModuleType) -> None:
    rng = np.random.default_rng(1)
    for size in (1, 59, 60, 61, 1000, 70_000, 200_000):
        for top in (1, 2, 7, 256):
            plain = rng.integers(0, top, size, np.uint8).tobytes()
            assert decoded(native, bytes(cramjam.snappy.compress_raw(plain)), size) == plain


@pytest.mark.parametrize("codec", [CompressionCodec.UNCOMPRESSED, CompressionCodec.SNAPPY])
def test_sums_of_all_sizes_are_those_of_zlib(native: ModuleType, codec: CompressionCodec) -> None:
    rng = np.random.default_rng(2)
    for size in (*range(1, 300), 4096, 65_535, 65_552, 200_001):
        plain = rng.bytes(size)
        body = plain if codec is CompressionCodec.UNCOMPRESSED else bytes(cramjam.snappy.compress_raw(plain))
        given_sum = zlib.crc32(body)
        assert decoded(native, body, size, codec=codec, crc=given_sum, least=ALL) == plain, size
        bit = 1 << int(rng.integers(32))
        assert decoded(native, body, size, codec=codec, crc=given_sum ^ bit, least=ALL) is None
        assert decoded(native, body, size, codec=codec, crc=given_sum ^ bit) == plain


def test_larger_chunks_and_other_codecs_are_left_to_the_caller(native: ModuleType) -> None:
    for codec, size in ((CompressionCodec.SNAPPY, 1 << 20), (CompressionCodec.ZSTD, 100)):
        body = bytes(cramjam.snappy.compress_raw(bytes(size)))
        assert [found[0] for found in bodies_of(native, codec, body, size)] == [0]


def bodies_of(native: ModuleType, codec: CompressionCodec, body: bytes, size: int) -> list[Any]:
    data = DataPageHeader(size, Encoding.PLAIN, Encoding.RLE, Encoding.RLE)
    part = compact_protocol.encode(PageHeader(PageType.DATA_PAGE, size, len(body), data_page_header=data)) + body
    row = np.array([[Type.FIXED_LEN_BYTE_ARRAY, 1, 0, codec, size, size, size, NONE, 0, 0]], np.int64)
    found: list[Any] = native.ChunkBatch([memoryview(part)], row).bodies()
    return found
