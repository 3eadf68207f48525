"""Records: their layout byte by byte, checked with `struct` alone, and that no changed bit is accepted."""

from __future__ import annotations

import struct
import zlib

import pytest
import xxhash

from resilient_pq.errors import FormatError, ThriftError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import OffsetIndex, PageLocation, RowGroup
from resilient_pq.format.resilience_records import (
    FOOTER_KINDS,
    ChunkCopies,
    ChunkPlace,
    RecordChain,
    RecordHeader,
    RecordKind,
    RowGroupRecord,
    parse_header,
    payload_sums,
)

FILE_ID = bytes(range(100, 116))

#: The table of docs/format.md: name, offset, size, little endian.
TABLE = [
    ("magic", 0, 8), ("version", 8, 1), ("kind", 9, 1), ("header length", 10, 2), ("epoch", 12, 4),
    ("file id", 16, 16), ("offset", 32, 8), ("previous", 40, 8), ("newest footer", 48, 8), ("rows", 56, 8),
    ("row groups", 64, 4), ("number", 68, 4), ("payload length", 72, 8), ("xxh3", 80, 8), ("payload crc", 88, 4),
    ("header crc", 92, 4),
]  # fmt: skip


def _header(payload: bytes = b"payload") -> RecordHeader:
    payload_hash, payload_crc = payload_sums(payload)
    return RecordHeader(
        kind=2, epoch=0x01020304, file_id=FILE_ID, offset=0x1122334455667788, previous=0x2122334455667788,
        newest_footer=0x3122334455667788, num_rows=0x4122334455667788, num_row_groups=0x51525354,
        number=0x61626364, payload_size=len(payload), payload_hash=payload_hash, payload_crc=payload_crc,
    )  # fmt: skip


def _field(raw: bytes, name: str) -> bytes:
    for known, at, size in TABLE:
        if known == name:
            return raw[at : at + size]
    raise KeyError(name)


def test_the_table_covers_the_header_without_gaps() -> None:
    ends = [at + size for _, at, size in TABLE]
    assert [at for _, at, _ in TABLE] == [0, *ends[:-1]] and ends[-1] == 96


def test_every_field_is_where_the_table_says() -> None:
    raw = _header().pack()
    assert len(raw) == 96
    expected = {
        "magic": bytes.fromhex("d75250510d0a1a0a"),
        "version": b"\x01",
        "kind": b"\x02",
        "header length": struct.pack("<H", 96),
        "epoch": struct.pack("<I", 0x01020304),
        "file id": FILE_ID,
        "offset": struct.pack("<Q", 0x1122334455667788),
        "previous": struct.pack("<Q", 0x2122334455667788),
        "newest footer": struct.pack("<Q", 0x3122334455667788),
        "rows": struct.pack("<Q", 0x4122334455667788),
        "row groups": struct.pack("<I", 0x51525354),
        "number": struct.pack("<I", 0x61626364),
        "payload length": struct.pack("<Q", 7),
        "xxh3": struct.pack("<Q", xxhash.xxh3_64_intdigest(b"payload")),
        "payload crc": struct.pack("<I", zlib.crc32(b"payload")),
        "header crc": struct.pack("<I", zlib.crc32(raw[:92])),
    }
    assert {name: _field(raw, name) for name, _, _ in TABLE} == expected


def test_packed_and_parsed_again() -> None:
    header = _header()
    assert parse_header(header.pack()) == header
    assert parse_header(header.pack() + b"what follows") == header
    assert parse_header(memoryview(b"x" + header.pack())[1:]) == header
    assert header.payload_offset == header.offset + 96
    assert header.end == header.offset + 96 + 7


def test_every_flipped_bit_of_a_header_is_refused() -> None:
    raw = _header().pack()
    for bit in range(8 * len(raw)):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        assert parse_header(damaged) is None, bit


def test_every_cut_of_a_header_is_refused() -> None:
    raw = _header().pack()
    for size in range(96):
        assert parse_header(raw[:size]) is None


@pytest.mark.parametrize(("at", "value"), [(8, 2), (8, 0), (10, 97), (11, 1), (0, 0xD6)])
def test_another_version_length_or_magic_is_refused_even_with_a_right_crc(at: int, value: int) -> None:
    raw = bytearray(_header().pack())
    raw[at] = value
    raw[92:] = struct.pack("<I", zlib.crc32(raw[:92]))
    assert parse_header(raw) is None


def test_an_unknown_kind_is_left_to_the_caller() -> None:
    raw = bytearray(_header().pack())
    raw[9] = 77
    raw[92:] = struct.pack("<I", zlib.crc32(raw[:92]))
    header = parse_header(raw)
    assert header is not None and header.kind == 77 and header.kind not in FOOTER_KINDS


def test_every_flipped_bit_of_a_payload_is_found() -> None:
    payload = b"the payload of a record"
    header = _header(payload)
    assert header.holds(payload) and header.holds(memoryview(payload))
    for bit in range(8 * len(payload)):
        damaged = bytearray(payload)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not header.holds(bytes(damaged))
    assert not header.holds(payload[:-1]) and not header.holds(payload + b"\0")


@pytest.mark.parametrize("which", ["hash", "crc", "size"])
def test_crc_hash_and_size_must_all_hold(which: str) -> None:
    payload = b"payload"
    payload_hash, payload_crc = payload_sums(payload)
    size = len(payload)
    header = RecordHeader(
        2, 0, FILE_ID, 4, 0, 4, 0, 0, 0,
        size + (which == "size"), payload_hash ^ (which == "hash"), payload_crc ^ (which == "crc"),
    )  # fmt: skip
    assert not header.holds(payload)


def test_sums_are_those_of_zlib_and_xxhash() -> None:
    assert payload_sums(b"") == (xxhash.xxh3_64_intdigest(b""), 0)
    assert payload_sums(b"abc") == (xxhash.xxh3_64_intdigest(b"abc"), zlib.crc32(b"abc"))


def test_a_chain_numbers_and_links_its_records() -> None:
    chain = RecordChain(FILE_ID, epoch=3)
    steps = [
        (RecordKind.ANCHOR, 4, b"anchor", 0, 0),
        (RecordKind.CHUNK, 200, b"chunk", 0, 0),
        (RecordKind.ROW_GROUP, 500, b"row group", 10, 1),
        (RecordKind.CHECKPOINT, 800, b"checkpoint", 10, 1),
        (RecordKind.FINAL, 1200, b"final", 10, 1),
    ]
    headers = []
    for kind, offset, payload, rows, groups in steps:
        record = chain.record(kind, offset, payload, num_rows=rows, num_row_groups=groups)
        header = parse_header(record)
        assert header is not None and record[96:] == payload and header.holds(payload)
        assert (header.kind, header.offset, header.num_rows, header.num_row_groups) == (
            kind, offset, rows, groups,
        )  # fmt: skip
        headers.append(header)
    assert [header.number for header in headers] == [0, 1, 2, 3, 4]
    assert [header.previous for header in headers] == [0, 4, 200, 500, 800]
    # "At or before it": an anchor and a checkpoint name themselves; the final record names the newest of them.
    assert [header.newest_footer for header in headers] == [4, 4, 4, 800, 800]
    assert {header.epoch for header in headers} == {3} and {header.file_id for header in headers} == {FILE_ID}


def test_chunk_place() -> None:
    place = ChunkPlace(row_group=1, column=2, first_row=2**40, codec=6)
    assert place.pack() == struct.pack("<IIQII", 1, 2, 2**40, 6, 0)
    assert ChunkPlace.unpack(place.pack()) == place
    for size in (0, 23, 25):
        with pytest.raises(FormatError, match=f"{size} bytes instead of 24"):
            ChunkPlace.unpack(bytes(size))


def test_row_group_record_keeps_all_its_copies() -> None:
    copies = ChunkCopies(
        offset_index=OffsetIndex([PageLocation(4, 10, 0), PageLocation(14, 10, 5)]),
        page_headers=b"two headers",
        crc32=-5,
        dictionary_page=PageLocation(4, 9, 0),
        dictionary_copy=b"\xff" * 65_536,
        header_crcs=[-1, 2**31 - 1],
    )
    record = RowGroupRecord(RowGroup([], 10, 3, ordinal=32_766), [copies, ChunkCopies()])
    decoded, end = compact_protocol.decode(RowGroupRecord, compact_protocol.encode(record))
    assert decoded == record and end == len(compact_protocol.encode(record))
    with pytest.raises(ThriftError, match="RowGroupRecord"):
        compact_protocol.decode(RowGroupRecord, compact_protocol.encode(record)[:-1])


def test_what_has_no_copies_is_written_as_zeros() -> None:
    """Those of columns that are encrypted with a key of their own have no sum of their chunk."""
    assert compact_protocol.encode(ChunkCopies()).hex() == "2800150000"


def test_a_negative_codec_of_a_hostile_file_is_packed() -> None:
    packed = ChunkPlace(1, 2, 3, -5).pack()
    assert struct.unpack("<IIQII", packed) == (1, 2, 3, 2**32 - 5, 0)
