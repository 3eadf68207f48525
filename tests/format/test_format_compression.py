"""Codecs: there and back, between libraries, and compressed data that lie about their size or are damaged."""

from __future__ import annotations

import gzip
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import cramjam
import numpy as np
import pyarrow as pa
import pytest

from resilient_pq import memory_pool
from resilient_pq.errors import EncodingError, FormatError, SchemaError, UnsupportedError
from resilient_pq.format.compression import codecs, zstd
from resilient_pq.format.compression.codecs import check_level, codec_named, compress, decompress
from resilient_pq.format.file_metadata import CompressionCodec as Codec

WRITTEN = [Codec.SNAPPY, Codec.GZIP, Codec.BROTLI, Codec.ZSTD, Codec.LZ4_RAW]
CONTENTS = {
    "empty": b"",
    "one byte": b"x",
    "zeros": bytes(70_000),
    "text": b"some words, again and again, " * 400,
    "noise": random.Random(5).randbytes(50_000),
}
#: Libraries of zstd; some are not for every version of Python.
INSTALLED = [name for name in zstd.BINDINGS if find_spec(name.partition(".")[0]) and find_spec(name)]
PYARROW = {
    Codec.SNAPPY: "snappy",
    Codec.GZIP: "gzip",
    Codec.BROTLI: "brotli",
    Codec.ZSTD: "zstd",
    Codec.LZ4_RAW: "lz4_raw",
}


@pytest.fixture(params=INSTALLED)
def zstd_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The library that is used meanwhile."""
    known = zstd.bound(request.param)
    monkeypatch.setattr(codecs, "zstd", lambda: known)
    return str(request.param)


def _compressed(codec: Codec, content: bytes, level: int | None = None) -> bytes:
    return bytes(compress(codec, content, check_level(codec, level)))


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("codec", [*WRITTEN, Codec.UNCOMPRESSED], ids=lambda codec: codec.name)
def test_there_and_back(codec: Codec, name: str) -> None:
    content = CONTENTS[name]
    packed = _compressed(codec, content)
    assert bytes(decompress(codec, memoryview(packed), len(content))) == content
    assert len(packed) < len(content) or name != "zeros" or codec is Codec.UNCOMPRESSED


@pytest.mark.parametrize("codec", WRITTEN, ids=lambda codec: codec.name)
def test_pyarrow_unpacks_ours_and_we_unpack_pyarrows(codec: Codec) -> None:
    theirs = pa.Codec(PYARROW[codec])
    for content in CONTENTS.values():
        assert theirs.decompress(_compressed(codec, content), len(content)).to_pybytes() == content
        packed = theirs.compress(content).to_pybytes()
        assert bytes(decompress(codec, memoryview(packed), len(content))) == content


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.BROTLI, Codec.ZSTD], ids=lambda codec: codec.name)
def test_every_level(codec: Codec) -> None:
    levels = codecs.CODECS[codec].levels
    assert levels is not None
    content = CONTENTS["text"]
    for level in range(levels[0], levels[1] + 1):
        packed = _compressed(codec, content, level)
        assert bytes(decompress(codec, memoryview(packed), len(content))) == content
    for level in (levels[0] - 1, levels[1] + 1):
        with pytest.raises(SchemaError, match=f"compression_level {level} is out of range for {codec.name.lower()}"):
            check_level(codec, level)


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4_RAW], ids=lambda codec: codec.name)
def test_codecs_without_levels_take_none(codec: Codec) -> None:
    with pytest.raises(SchemaError, match="has no compression levels"):
        check_level(codec, 1)
    assert check_level(codec, None) == 0


def test_no_compression_has_no_level() -> None:
    assert check_level(Codec.UNCOMPRESSED, None) == 0


@pytest.mark.parametrize("codec", [*WRITTEN, Codec.UNCOMPRESSED], ids=lambda codec: codec.name)
@pytest.mark.parametrize("by", [-1, 1, 1000])
def test_another_size_than_announced(codec: Codec, by: int) -> None:
    content = CONTENTS["text"]
    with pytest.raises(EncodingError):
        decompress(codec, memoryview(_compressed(codec, content)), len(content) + by)


@pytest.mark.parametrize("codec", [*WRITTEN, Codec.UNCOMPRESSED], ids=lambda codec: codec.name)
def test_every_cut(codec: Codec) -> None:
    content = b"abcabcabcabc" + random.Random(1).randbytes(40)
    packed = _compressed(codec, content)
    for size in range(len(packed)):
        with pytest.raises(EncodingError):
            decompress(codec, memoryview(packed)[:size], len(content))


@pytest.mark.parametrize("codec", WRITTEN, ids=lambda codec: codec.name)
def test_damaged_data_are_some_bytes_or_an_encoding_error(codec: Codec) -> None:
    content = CONTENTS["text"]
    packed = _compressed(codec, content)
    rng = random.Random(7)
    for _ in range(300):
        damaged = bytearray(packed)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            found = decompress(codec, memoryview(damaged), len(content))
        except EncodingError:
            continue
        assert len(found) == len(content)


@pytest.mark.parametrize("codec", WRITTEN, ids=lambda codec: codec.name)
def test_garbage_is_an_encoding_error(codec: Codec) -> None:
    rng = random.Random(9)
    for size in (1, 2, 7, 100, 5000):
        with pytest.raises(EncodingError):
            decompress(codec, memoryview(rng.randbytes(size)), 100_000)


@pytest.mark.parametrize("codec", WRITTEN, ids=lambda codec: codec.name)
def test_a_bomb_is_not_unpacked_beyond_what_was_announced(codec: Codec) -> None:
    bomb = _compressed(codec, bytes(20 << 20))
    with pytest.raises(EncodingError):
        decompress(codec, memoryview(bomb), 1000)


@pytest.mark.parametrize("codec", WRITTEN, ids=lambda codec: codec.name)
def test_no_room_for_what_was_announced(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page says is to be had, but not by this process: the page is told, and the others may be read."""
    packed = memoryview(_compressed(codec, CONTENTS["text"]))

    def no_room(*_: object) -> None:
        raise MemoryError("not so much")

    monkeypatch.setattr(memory_pool, "empty", no_room)
    with pytest.raises(EncodingError, match=f"^{codec.name} data do not decompress: not so much") as caught:
        decompress(codec, packed, len(CONTENTS["text"]))
    assert isinstance(caught.value.__cause__, MemoryError)


def test_gzip_members_follow_one_another() -> None:
    packed = gzip.compress(b"first, ") + gzip.compress(b"") + gzip.compress(b"second")
    assert bytes(decompress(Codec.GZIP, memoryview(packed), 13)) == b"first, second"
    with pytest.raises(EncodingError):
        decompress(Codec.GZIP, memoryview(packed + b"rest"), 13)


@pytest.mark.parametrize("flag", [0x20, 0x40, 0x80])
def test_gzip_flags_that_must_be_zero_are_refused(flag: int) -> None:
    """RFC 1952, section 2.3.1.2; other readers refuse such a page as well."""
    packed = bytearray(gzip.compress(b"content of a page"))
    packed[3] |= flag
    with pytest.raises(EncodingError, match="flags"):
        decompress(Codec.GZIP, packed, 17)


def test_a_gzip_checksum_is_compared() -> None:
    packed = bytearray(gzip.compress(b"content of a page"))
    packed[-6] ^= 1
    with pytest.raises(EncodingError, match="GZIP data do not decompress"):
        decompress(Codec.GZIP, memoryview(packed), 17)


@pytest.mark.parametrize("codec", WRITTEN, ids=lambda codec: codec.name)
def test_some_writers_leave_out_the_empty_frame(codec: Codec) -> None:
    assert len(decompress(codec, memoryview(b""), 0)) == 0


@pytest.mark.parametrize("codec", WRITTEN, ids=lambda codec: codec.name)
def test_several_parts_at_once(codec: Codec) -> None:
    for contents in ([], [b"x" * 300], [*CONTENTS.values()], [CONTENTS["text"]] * 3, [CONTENTS["zeros"]] * 2):
        packed = [_compressed(codec, content) for content in contents]
        out = np.empty(sum(map(len, contents)), np.uint8)
        codecs.decompress_parts(codec, list(map(memoryview, packed)), list(map(len, contents)), out)
        assert out.tobytes() == b"".join(contents)


@pytest.mark.parametrize("codec", WRITTEN, ids=lambda codec: codec.name)
def test_parts_that_share_their_room_otherwise(codec: Codec) -> None:
    """All together they have the right size; one alone has not, and what another holds must not make up for it."""
    first, second = (memoryview(_compressed(codec, CONTENTS["text"][:size])) for size in (3000, 2000))
    out = np.empty(5000, np.uint8)
    with pytest.raises(EncodingError):
        codecs.decompress_parts(codec, [first, second], [2000, 3000], out)
    codecs.decompress_parts(codec, [first, second], [3000, 2000], out)
    for cut in (1, 5, len(first) // 2):
        with pytest.raises(EncodingError):
            codecs.decompress_parts(codec, [first[:-cut], second], [3000, 2000], out)
        with pytest.raises(EncodingError):
            codecs.decompress_parts(codec, [first, second[:-cut]], [3000, 2000], out)


def test_the_first_library_that_is_installed_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zstd, "BINDINGS", {"resilient_pq_none": None, **zstd.BINDINGS})
    zstd.zstd.cache_clear()
    assert type(zstd.zstd()) in zstd.BINDINGS.values()
    monkeypatch.setattr(zstd, "BINDINGS", {"resilient_pq_none": None})
    zstd.zstd.cache_clear()
    with pytest.raises(ImportError, match="pip install zstandard"):
        zstd.zstd()
    zstd.zstd.cache_clear()


def test_zstd_frames_of_every_library_are_read_by_the_others(zstd_library: str) -> None:
    for content in CONTENTS.values():
        silent = cramjam.zstd.Compressor()  # its frames do not say how much they hold
        silent.compress(content)
        frames = [bytes(silent.finish()), pa.Codec("zstd").compress(content).to_pybytes()]
        frames += [bytes(zstd.bound(name).compress(content, 3)) for name in INSTALLED]
        for frame in frames:
            parts, sizes = [memoryview(frame)] * 2, [len(content)] * 2
            out = np.empty(sum(sizes), np.uint8)
            codecs.decompress_parts(Codec.ZSTD, parts, sizes, out)
            assert out.tobytes() == content * 2
            # A page may hold several frames.
            assert bytes(decompress(Codec.ZSTD, memoryview(frame * 2), 2 * len(content))) == content * 2


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("size", [zstd._LARGE - 1, zstd._LARGE, (1 << 20) + 77])
def test_large_pages_as_zstd_frames(zstd_library: str, size: int, level: int) -> None:
    """Also those that do not shrink at all; each says how much it holds, and others may be put before its blocks."""
    rng = np.random.default_rng(size)
    for content in (rng.bytes(size), bytes(size), (rng.bytes(997) * (size // 900))[:size]):
        packed = codecs.compress(Codec.ZSTD, np.frombuffer(content, np.uint8), level)
        assert pa.Codec("zstd").decompress(packed, size).to_pybytes() == content
        assert memoryview(packed).nbytes <= size + 100
        parts = codecs.compress_parts(Codec.ZSTD, [b"front", content], level, packed)
        assert len(parts) == 2, "the front is put before what is compressed already"
        whole = b"".join(map(bytes, parts))
        assert bytes(cramjam.zstd.decompress(whole)) == b"front" + content
        assert bytes(decompress(Codec.ZSTD, memoryview(whole), size + 5)) == b"front" + content


def test_what_is_no_frame_is_refused_by_every_library(zstd_library: str) -> None:
    content = CONTENTS["text"]
    packed = _compressed(Codec.ZSTD, content)
    wrong = [packed[:size] for size in range(len(packed))] + [packed + b"rest", packed + packed, b"x" * 100]
    for data in wrong:
        with pytest.raises(EncodingError):
            decompress(Codec.ZSTD, memoryview(data), len(content))
    for size in (1, len(content) - 1, len(content) + 1, 1 << 20):
        with pytest.raises(EncodingError):
            decompress(Codec.ZSTD, memoryview(packed), size)
    assert bytes(decompress(Codec.ZSTD, memoryview(packed), len(content))) == content, "it goes on after an error"


def test_zstd_contexts_are_not_shared_by_threads(zstd_library: str) -> None:
    contents = [random.Random(seed).randbytes(3000) * 9 for seed in range(4)]

    def there_and_back(content: bytes) -> int:
        for level in (1, 3, 5) * 20:
            packed = memoryview(bytes(codecs.compress(Codec.ZSTD, content, level)))
            assert bytes(decompress(Codec.ZSTD, packed, len(content))) == content
        return len(content)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(there_and_back, contents)) == [27_000] * 4


@pytest.mark.parametrize("level", [1, 3, 19])
@pytest.mark.parametrize("before", [1, 6, 60])
def test_zstd_frames_of_content_that_is_put_together(level: int, before: int) -> None:
    """Whatever its size, and with a window of its own or not; another library is the witness."""
    rng = random.Random(before)
    for size in (
        0,
        1,
        195,
        196,
        249,
        250,
        255,
        256,
        65_731,
        65_732,
        65_791,
        65_792,
        200_000,
        *([1_500_000] if level < 19 else []),
    ):
        front, rest = rng.randbytes(before), bytes(rng.choices(b"abcd", k=size))
        parts = [np.frombuffer(front, np.uint8), np.frombuffer(rest, np.uint8)]
        packed = b"".join(codecs.compress_parts(Codec.ZSTD, parts, level))
        known = codecs.compress(Codec.ZSTD, parts[1], level)
        assert b"".join(codecs.compress_parts(Codec.ZSTD, parts, level, known)) == packed
        assert pa.Codec("zstd").decompress(packed, before + size).to_pybytes() == front + rest
        assert bytes(cramjam.zstd.decompress(packed * 2)) == (front + rest) * 2, "its end is where it says"


@pytest.mark.parametrize("flag", [0x04, 0x01, 0x08, 0x10])
def test_a_zstd_frame_with_more_in_its_header_is_left_as_it_is(flag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checksum would not be that of all; then all are compressed together."""
    data = np.frombuffer(CONTENTS["text"], np.uint8)
    frame = bytearray(_compressed(Codec.ZSTD, CONTENTS["text"]))
    frame[4] |= flag
    assert zstd.frame_front(memoryview(frame), b"1", len(data) + 1) is None
    assert zstd.frame_front(memoryview(b"\x27" + frame[1:]), b"1", len(data) + 1) is None
    monkeypatch.setattr(codecs, "frame_front", lambda *_: None)
    packed = b"".join(codecs.compress_parts(Codec.ZSTD, [data[:7], data], 3))
    assert pa.Codec("zstd").decompress(packed, len(data) + 7).to_pybytes() == CONTENTS["text"][:7] + CONTENTS["text"]


def test_names() -> None:
    assert [codec_named(name) for name in ("zstd", "ZSTD", "snappy", "gzip", "brotli")] == [
        Codec.ZSTD, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP, Codec.BROTLI,
    ]  # fmt: skip
    assert codec_named("lz4") is codec_named("lz4_raw") is Codec.LZ4_RAW
    assert codec_named(None) is codec_named("none") is codec_named("uncompressed") is Codec.UNCOMPRESSED
    for name in ("zip", "", "lzo", "zstd "):
        if name == "":
            assert codec_named(name) is Codec.UNCOMPRESSED
            continue
        with pytest.raises(SchemaError, match=f"compression {name!r}") as caught:
            codec_named(name)
        assert caught.value.hint == "one of: none, snappy, gzip, brotli, zstd, lz4_raw"


def test_a_codec_of_the_future_is_named() -> None:
    with pytest.raises(UnsupportedError, match="unknown compression codec 99"):
        decompress(99, memoryview(b"x"), 1)


def test_errors_are_format_errors() -> None:
    with pytest.raises(FormatError, match="an uncompressed page has 2 bytes instead of 3"):
        decompress(Codec.UNCOMPRESSED, memoryview(b"ab"), 3)


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.ZSTD, Codec.LZ4_RAW])
def test_a_page_that_became_small_holds_no_more_room_than_it_needs(codec: Codec) -> None:
    """Many of them wait to be sent at one time."""
    data = np.zeros(1 << 20, np.uint8)
    level = check_level(codec, None)
    compressed = compress(codec, data, level)
    assert len(compressed) < 100_000
    if isinstance(compressed, bytes):
        assert sys.getsizeof(compressed) < 100_000
        return
    behind = memory_pool.empty((1 << 19,), np.uint8)
    assert behind.ctypes.data < compressed.ctypes.data + 100_000


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.ZSTD, Codec.LZ4_RAW])
@pytest.mark.parametrize("size", [0, 1, 127, 128, 255, 65_535, 131_072, 262_145, 1_048_577])
def test_there_is_room_for_what_does_not_compress(codec: Codec, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    compressed = compress(codec, data, check_level(codec, None))
    assert bytes(decompress(codec, memoryview(compressed), size)) == data.tobytes()


@pytest.mark.parametrize("codec", WRITTEN, ids=lambda codec: codec.name)
@pytest.mark.parametrize("front", [0, 1, 5, 59, 60, 61, 300])
@pytest.mark.parametrize("name", CONTENTS)
def test_parts_are_compressed_as_if_they_were_one(codec: Codec, front: int, name: str) -> None:
    """What is short stands before the rest without being copied together with it: another library is the witness."""
    levels = np.arange(front).astype(np.uint8)
    parts = [levels[: front // 2], levels[front // 2 :], np.frombuffer(CONTENTS[name], np.uint8)]
    for pieces in (parts, parts[1:], parts[2:]):
        whole = b"".join(piece.tobytes() for piece in pieces)
        packed = b"".join(codecs.compress_parts(codec, pieces, check_level(codec, None)))
        assert bytes(decompress(codec, memoryview(packed), len(whole))) == whole
        assert pa.Codec(PYARROW[codec]).decompress(packed, len(whole)).to_pybytes() == whole
        assert len(packed) <= len(_compressed(codec, whole)) + 62


@pytest.mark.parametrize("size", [127 - 5, 127, 128, 16_383 - 5, 16_384, 2_097_151 - 5, 2_097_152])
def test_the_length_of_all_may_have_a_byte_more_than_that_of_the_rest(size: int) -> None:
    parts = [np.array([3, 0, 0, 0, 1], np.uint8), np.zeros(size, np.uint8)]
    packed = b"".join(codecs.compress_parts(Codec.SNAPPY, parts, 0))
    whole = b"".join(part.tobytes() for part in parts)
    assert pa.Codec("snappy").decompress(packed, len(whole)).to_pybytes() == whole
