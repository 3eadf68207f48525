"""LZ4 in its three framings and LZO in two, against pyarrow, an assembler of LZO1X, and files of others."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_of_others import of_corpus
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq import sync
from resilient_pq.errors import EncodingError, SchemaError, UnsupportedError
from resilient_pq.format.compression import codecs
from resilient_pq.format.file_metadata import CompressionCodec

LZ4, LZO, GZIP = CompressionCodec.LZ4, CompressionCodec.LZO, CompressionCodec.GZIP

TEXT = b"".join(b"row %d of the table, " % (number // 3) for number in range(2000))


def decompressed(codec: CompressionCodec, data: bytes, size: int) -> bytes:
    return bytes(codecs.decompress(codec, memoryview(data), size))


def read(path: Path, codec: CompressionCodec) -> pa.Table:
    with sync.open(str(path)) as file:
        chunks = [column.meta_data for group in file.metadata.row_groups for column in group.columns]
        assert {chunk.codec for chunk in chunks if chunk is not None} == {codec}
        return pa.table(file.read())


# --- LZ4 ------------------------------------------------------------------------------------------------


def block(data: bytes) -> bytes:
    return bytes(pa.Codec("lz4_raw").compress(data))


def frame(data: bytes) -> bytes:
    return bytes(pa.Codec("lz4").compress(data))


def hadoop(parts: list[list[bytes]], compress: Callable[[bytes], bytes] = block) -> bytes:
    """Hadoop's frames: each part of the data is compressed in one block or several."""
    out = b""
    for blocks in parts:
        out += struct.pack(">I", sum(map(len, blocks)))
        for one in blocks:
            packed = compress(one)
            out += struct.pack(">I", len(packed)) + packed
    return out


@pytest.mark.parametrize("data", [b"a", b"abc" * 5, TEXT, random.Random(3).randbytes(5000)], ids=len)
def test_every_framing_of_lz4(data: bytes) -> None:
    third = len(data) // 3 or 1
    framings = [
        block(data),
        frame(data),
        hadoop([[data]]),
        hadoop([[data[:third]], [data[third:]]]) if len(data) > 1 else hadoop([[data]]),
        hadoop([[data[at : at + third] for at in range(0, len(data), third)]]),
        hadoop([[data], []]),  # an empty part says that the stream is at its end
    ]
    for framing in framings:
        assert decompressed(LZ4, framing, len(data)) == data


def test_blocks_by_hand() -> None:
    # The specification of LZ4: a token, literals, a distance; the end is literals alone.
    for by_hand, data in [
        (b"\x00", b""),
        (b"\x10a", b"a"),
        (b"\x44abcd\x04\x00\x50efghi", b"abcdabcdabcdefghi"),
        (b"\xf0\x05" + bytes(range(20)), bytes(range(20))),
    ]:
        assert decompressed(LZ4, by_hand, len(data)) == data
        assert decompressed(CompressionCodec.LZ4_RAW, by_hand, len(data)) == data


def test_blocks_that_look_like_something_else() -> None:
    # Whatever a bare block begins with: the magic of a frame, sizes of Hadoop's, a negative size.
    for first in (b"\x04\x22\x4d\x18", struct.pack(">II", 40, 12), b"\xff" * 8):
        data = first + random.Random(7).randbytes(40)
        for framing in (block(data), frame(data), hadoop([[data]])):
            assert decompressed(LZ4, framing, len(data)) == data


def test_a_block_that_begins_like_a_size() -> None:
    # Fifteen literals, a match, 225 literals; but also the number 240, and 240 literals.
    literals = bytearray(range(1, 241))
    literals[11:15] = [1, 0, 0xF0, 210]
    two_ways = bytes([0xF0, 0, 0, 0, 0xF0, 0xE1]) + bytes(literals)
    data = bytes(pa.Codec("lz4_raw").decompress(two_ways, decompressed_size=244))
    for codec in (LZ4, CompressionCodec.LZ4_RAW):
        assert decompressed(codec, two_ways, 244) == data
        for other in (240, 243, 245):
            with pytest.raises(EncodingError):
                decompressed(codec, two_ways, other)
        with pytest.raises(EncodingError):
            decompressed(codec, struct.pack("<I", len(TEXT)) + block(TEXT), len(TEXT))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x00\x00",
        hadoop([[TEXT]])[:-1],
        hadoop([[TEXT]]) + b"\x00",
        hadoop([[TEXT]]) + hadoop([[b"x"]]),
        hadoop([[TEXT[:-1]]]),
        hadoop([[TEXT + b"x"]]),
        struct.pack(">I", len(TEXT)) + struct.pack(">I", 1) + b"\x00",  # a block of nothing, for ever
        struct.pack(">I", len(TEXT)) + struct.pack(">I", 0) * 1000,
        struct.pack(">II", 2**32 - 1, 2**32 - 1),
        frame(TEXT)[:-5],
        frame(TEXT) + b"x",
        frame(TEXT + b"x"),
        block(TEXT[:-1]),
        block(TEXT + b"x"),
        block(TEXT)[:-1],
    ],
)
def test_damaged_lz4_is_refused(data: bytes) -> None:
    with pytest.raises(EncodingError):
        decompressed(LZ4, data, len(TEXT))


@pytest.mark.parametrize("name", ["hadoop_lz4_compressed", "hadoop_lz4_compressed_larger", "non_hadoop_lz4_compressed"])
def test_lz4_files_of_others(name: str) -> None:
    path = of_corpus(f"parquet-testing/data/{name}.parquet")
    assert read(path, LZ4).to_pydict() == pq.read_table(path).to_pydict()


# --- LZO ------------------------------------------------------------------------------------------------


class Assembler:
    """Writes LZO1X instructions, and what they stand for."""

    def __init__(self) -> None:
        self.code = bytearray()
        self.data = bytearray()
        self.literals_before = 0  # 4 for more than three

    def _extended(self, head: int, number: int, bits: int) -> None:
        """A number of at least 1 in so many bits, or in as many bytes behind them as it takes."""
        if number < 1 << bits:
            self.code.append(head | number)
            return
        number -= (1 << bits) - 1
        self.code.append(head)
        self.code += bytes((number - 1) // 255)
        self.code.append((number - 1) % 255 + 1)

    def first(self, literals: bytes) -> None:
        self.code.append(17 + len(literals))
        self.code += literals
        self.data += literals
        self.literals_before = min(len(literals), 4)

    def run(self, literals: bytes) -> None:
        assert self.literals_before == 0 and len(literals) >= 4
        self._extended(0, len(literals) - 3, 4)
        self.code += literals
        self.data += literals
        self.literals_before = 4

    def match(self, kind: str, distance: int, length: int, literals: bytes) -> None:
        """Copy what came out `distance` bytes ago, a byte at a time, and up to three literals behind it."""
        few = len(literals)
        if kind == "near":  # two bytes behind one to three literals, three behind more
            low = distance - (2049 if self.literals_before == 4 else 1)
            self.code += bytes([(low & 3) << 2 | few, low >> 2])
        elif kind == "short":
            head = 64 | (length - 3) << 5 if length < 5 else 128 | (length - 5) << 5
            self.code += bytes([head | (distance - 1 & 7) << 2 | few, distance - 1 >> 3])
        elif kind == "long":
            self._extended(32, length - 2, 5)
            self.code += struct.pack("<H", distance - 1 << 2 | few)
        else:
            far = distance - 16384
            self._extended(16 | (far >> 14) << 3, length - 2, 3)
            self.code += struct.pack("<H", (far & 16383) << 2 | few)
        for _ in range(length):
            self.data.append(self.data[-distance])
        self.code += literals
        self.data += literals
        self.literals_before = few

    def end(self) -> bytes:
        return bytes(self.code) + b"\x11\x00\x00"


KINDS = {  # the distances of each, and the lengths that it can say
    "near after few": (1, 1024, [2]),
    "near after many": (2049, 3072, [3]),
    "short": (1, 2048, [3, 4, 5, 6, 7, 8]),
    "long": (1, 16384, [3, 4, 32, 33, 34, 35, 288, 289, 600]),
    "far": (16385, 49151, [3, 4, 9, 10, 11, 264, 265, 600]),
}


@st.composite
def lzo_streams(draw: st.DrawFn) -> Assembler:
    assembler = Assembler()
    literals = random.Random(draw(st.integers(0, 99))).randbytes
    size = draw(st.sampled_from([1, 3, 4, 18, 19, 238, 3000, 40_000, 60_000]))
    if size <= 238 and (size < 4 or draw(st.booleans())):
        assembler.first(literals(size))
    else:
        assembler.run(literals(size))
    for _ in range(draw(st.integers(0, 25))):
        known = len(assembler.data)
        possible = ["run"] if assembler.literals_before == 0 else []
        for name, (nearest, *_) in KINDS.items():
            suits = {"near after few": {1, 2, 3}, "near after many": {4}}.get(name, {0, 1, 2, 3, 4})
            if known >= nearest and assembler.literals_before in suits:
                possible.append(name)
        kind = draw(st.sampled_from(possible))
        if kind == "run":
            assembler.run(literals(draw(st.sampled_from([4, 5, 17, 18, 19, 272, 273, 274, 600]))))
            continue
        nearest, farthest, lengths = KINDS[kind]
        farthest = min(farthest, known)
        distance = draw(st.one_of(st.integers(nearest, farthest), st.sampled_from([nearest, farthest])))
        following = literals(draw(st.integers(0, 3)))
        assembler.match(kind.split()[0], distance, draw(st.sampled_from(lengths)), following)
    return assembler


@settings(deadline=None, max_examples=80)
@given(assembler=lzo_streams())
def test_every_instruction_of_lzo(assembler: Assembler) -> None:
    data, stream = bytes(assembler.data), assembler.end()
    assert decompressed(LZO, stream, len(data)) == data
    assert decompressed(LZO, hadoop([[data]], lambda _: stream), len(data)) == data


def test_several_blocks_of_lzo() -> None:
    def compressed(data: bytes) -> bytes:
        assembler = Assembler()
        assembler.run(data)
        return assembler.end()

    parts = [[TEXT[:1000], TEXT[1000:5000]], [TEXT[5000:5004]], [TEXT[5004:]]]
    assert decompressed(LZO, hadoop(parts, compressed), len(TEXT)) == TEXT


def test_an_empty_stream_of_lzo() -> None:
    assert decompressed(LZO, b"\x11\x00\x00", 0) == b""
    assert decompressed(LZO, b"", 0) == b""


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"\x11\x00\x00",  # the end at once
        b"\x15abcd",  # no end
        b"\x15abcd\x11\x00",
        b"\x15abcd\x11\x00\x00x",
        b"\x15abc",
        b"\x16abcde\x11\x00\x00",  # a byte too many
        b"\x14abc\x11\x00\x00",  # one too few
        b"\x00" * 100,  # a length without end
        b"\x40\x00\x11\x00\x00",  # a match before there is anything
        b"\x12a\x4c\x00\x11\x00\x00",  # from before the beginning
        b"\x12a\x20\x00\x00\xff\x00\x00\x11\x00\x00",  # longer than the page
        b"\x12a\x3f\xfc\xff\x11\x00\x00",
        b"\x12a\x18\x00\x00\x11\x00\x00",
    ],
)
def test_damaged_lzo_is_refused(stream: bytes) -> None:
    for data in (stream, hadoop([[b"abcd"]], lambda _: stream)):
        with pytest.raises(EncodingError):
            decompressed(LZO, data, 4)


def test_lzo_of_lengths_without_end_takes_no_memory() -> None:
    hostile = b"\x12a" + (b"\x20" + bytes(60_000) + b"\x01\x00\x00")  # a match of 15 MB
    tracemalloc.start()
    try:
        with pytest.raises(EncodingError):
            decompressed(LZO, hostile, 1000)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_an_lzo_file_of_others() -> None:
    folder = "drill/exec/java-exec/src/test/resources"
    path = of_corpus(f"{folder}/supplier_lzo.parquet")
    found = read(path, LZO)
    assert found.num_rows == 100
    assert found["s_name"][99].as_py() == "Supplier#000000100"
    assert found["s_acctbal"][0].as_py() == 5755.94
    # pyarrow knows no LZO, but the same table as LZ4.
    assert found.to_pydict() == pq.read_table(of_corpus(f"{folder}/supplier_lz4.parquet")).to_pydict()


# --- both -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [LZ4, LZO], ids=lambda codec: codec.name)
@settings(deadline=None, max_examples=300)
@given(data=st.binary(max_size=80), size=st.integers(0, 300))
def test_garbage_is_refused_or_fills_the_page(codec: CompressionCodec, data: bytes, size: int) -> None:
    with suppress(EncodingError):
        assert len(decompressed(codec, data, size)) == size


def test_damage_anywhere() -> None:
    assembler = Assembler()
    assembler.run(b"a row of letters, and another row of letters")
    assembler.match("long", 27, 20, b"xyz")
    assembler.match("near", 20, 2, b"")
    assembler.match("short", 3, 8, b"!")
    data = bytes(assembler.data)
    for codec, encoded in (
        (LZO, assembler.end()),
        (LZO, hadoop([[data]], lambda _: assembler.end())),
        (LZ4, block(data)),
        (LZ4, frame(data)),
        (LZ4, hadoop([[data[:50], data[50:]]])),
    ):
        assert decompressed(codec, encoded, len(data)) == data
        for size in range(len(encoded)):
            with pytest.raises(EncodingError):
                decompressed(codec, encoded[:size], len(data))
        for at in range(len(encoded)):
            for flip in (0x01, 0x10, 0x80, 0xFF):
                changed = encoded[:at] + bytes([encoded[at] ^ flip]) + encoded[at + 1 :]
                try:
                    assert len(decompressed(codec, changed, len(data))) == len(data)
                except EncodingError:
                    continue


@pytest.mark.parametrize("name", ["lzo", "LZO"])
def test_they_are_only_read(name: str) -> None:
    with pytest.raises(SchemaError, match="files are not written with compression") as caught:
        codecs.codec_named(name)
    assert caught.value.hint is not None and "lzo" not in caught.value.hint
    for codec in (LZ4, LZO):
        with pytest.raises(UnsupportedError, match=f"{codec.name} is only read"):
            codecs.compress(codec, b"abc", 0)
        with pytest.raises(SchemaError, match="no compression levels"):
            codecs.check_level(codec, 1)
    assert codecs.codec_named("lz4") is CompressionCodec.LZ4_RAW  # never the old one


# --- gzip -----------------------------------------------------------------------------------------------


def gzip(data: bytes) -> bytes:
    return bytes(pa.Codec("gzip").compress(data))


@pytest.mark.parametrize("size", [1, 1000, 30_000])
def test_several_gzip_members(size: int) -> None:
    noise = random.Random(1).randbytes(50_000)
    for data in (TEXT, noise, TEXT + noise):
        members = [gzip(data[at : at + size]) for at in range(0, min(len(data), 200 * size), size)]
        whole = data[: 200 * size]
        joined = b"".join([gzip(b""), *members, gzip(b"")])
        assert decompressed(GZIP, joined, len(whole)) == whole
        for damaged in (joined[:-1], joined[: len(joined) // 2], joined + b"\x1f"):
            with pytest.raises(EncodingError):
                decompressed(GZIP, damaged, len(whole))
        for other in (len(whole) - 1, len(whole) + 1):
            with pytest.raises(EncodingError):
                decompressed(GZIP, joined, other)


def test_damaged_gzip_is_refused() -> None:
    encoded = gzip(TEXT)
    for at in range(0, len(encoded), 7):
        changed = encoded[:at] + bytes([encoded[at] ^ 0xFF]) + encoded[at + 1 :]
        with suppress(EncodingError):  # some bytes of the header mean nothing
            assert decompressed(GZIP, changed, len(TEXT)) == TEXT
    with pytest.raises(EncodingError):
        decompressed(GZIP, b"\x00" + encoded[1:], len(TEXT))


def test_a_file_of_several_gzip_members() -> None:
    path = of_corpus("parquet-testing/data/concatenated_gzip_members.parquet")
    found = read(path, GZIP)
    assert found.num_rows == 513
    assert found.to_pydict() == pq.read_table(path).to_pydict()


def test_what_is_decompressed_is_of_bytes() -> None:
    out = codecs.decompress(LZO, memoryview(b"\x15abcd\x11\x00\x00"), 4)
    assert np.frombuffer(out, np.uint8).tolist() == [97, 98, 99, 100]
