"""Footers: serialised by hand as Thrift would, found at the end of a file, and told from damaged ones."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import with_flips
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import (
    ChecksumError,
    FormatError,
    KeyMissingError,
    NotParquetError,
    ResilientPQError,
    ThriftError,
    TornFileError,
    Where,
)
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.annotations import Empty
from resilient_pq.format.file_metadata import (
    ColumnChunk,
    ColumnMetaData,
    ColumnOrder,
    EncryptionAlgorithm,
    FileMetaData,
    KeyValue,
    RowGroup,
    SchemaElement,
)
from resilient_pq.format.footer import ChunkSums, Footer, NeedBytes, read_footer
from resilient_pq.format.resilience_records import RecordChain, RecordKind

ELEMENTS = [SchemaElement(name="schema", num_children=1), SchemaElement(type=1, name="a", repetition_type=0)]


def _group(ordinal: int, columns: int = 1) -> RowGroup:
    chunk = ColumnChunk(meta_data=ColumnMetaData(type=1, encodings=[0], path_in_schema=["a"], num_values=3))
    return RowGroup([chunk] * columns, 10, 3, ordinal=ordinal % 32_767)


def _serialize(count: int, key_value: dict[str, str | None], num_leaves: int = 1) -> bytes:
    return footer.serialize(
        ELEMENTS, [compact_protocol.encode(_group(i)) for i in range(count)], num_rows=3 * count,
        column_orders=[ColumnOrder(TYPE_ORDER=Empty())] * num_leaves, key_value=key_value, created_by="a test",
    )  # fmt: skip


# --- writing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 14, 15, 16, 127, 128, 300, 16_383, 16_384])
@pytest.mark.parametrize("num_leaves", [0, 1, 20])
@pytest.mark.parametrize("key_value", [{}, {"k": "v"}, {"": "", "none": None, "long": "x" * 300}], ids=len)
def test_serialised_as_thrift_would(count: int, num_leaves: int, key_value: dict[str, str | None]) -> None:
    if count > 1000 and (num_leaves, len(key_value)) != (1, 1):
        count = 17  # the long lists need not be tried with everything
    whole = FileMetaData(
        1, ELEMENTS, 3 * count, [_group(i) for i in range(count)],
        [KeyValue(key, value) for key, value in key_value.items()], "a test",
        [ColumnOrder(TYPE_ORDER=Empty())] * num_leaves,
    )  # fmt: skip
    assert _serialize(count, key_value, num_leaves) == compact_protocol.encode(whole)


def test_what_is_none_is_left_out() -> None:
    encoded = footer.serialize(ELEMENTS, [], num_rows=0, column_orders=None, key_value={"k": "v"}, created_by=None)
    assert encoded == compact_protocol.encode(FileMetaData(1, ELEMENTS, 0, [], [KeyValue("k", "v")]))


def test_the_frame_is_length_and_magic() -> None:
    assert footer.frame(b"metadata") == b"metadata" + b"\x08\0\0\0" + b"PAR1"


def test_pyarrow_reads_what_was_serialised() -> None:
    framed = footer.frame(_serialize(40, {"who": "we"}))
    metadata = pq.read_metadata(io.BytesIO(b"PAR1" + framed))
    assert metadata.num_row_groups == 40 and metadata.num_rows == 120
    assert metadata.created_by == "a test" and metadata.metadata == {b"who": b"we"}


# --- reading ------------------------------------------------------------------------------------------------


def _file(kind: RecordKind | None = RecordKind.FINAL, data: bytes = b"d" * 500, count: int = 2) -> bytes:
    """A file that ends in a footer, with the record header before it that vouches for it unless `kind` is None."""
    framed = footer.frame(_serialize(count, {}))
    body = b"PAR1" + data
    if kind is None:
        return body + framed
    chain = RecordChain(bytes(16))
    return body + chain.record(kind, len(body), framed, num_rows=6, num_row_groups=2)


def _read(data: bytes, offset: int = 0) -> Footer | NeedBytes:
    return read_footer(memoryview(data)[offset:], offset)


@pytest.mark.parametrize("kind", [RecordKind.ANCHOR, RecordKind.CHECKPOINT, RecordKind.FINAL])
def test_a_record_vouches_for_the_footer(kind: RecordKind) -> None:
    data = _file(kind)
    found = _read(data)
    assert isinstance(found, Footer) and found.record is not None
    assert found.record.kind == kind and found.record.offset == 504
    assert (found.start, found.start + found.length) == (504 + 96, len(data) - 8)
    assert found.metadata.num_rows == 6 and len(found.metadata.row_groups) == 2


def test_a_footer_of_others_has_no_record() -> None:
    for data in (_file(None), _file(RecordKind.CHUNK)):  # a chunk record does not vouch for a footer
        found = _read(data)
        assert isinstance(found, Footer) and found.record is None


def test_a_record_that_was_copied_from_elsewhere_does_not_vouch() -> None:
    data = _file()
    moved = data[:4] + b"more" + data[4:]
    found = _read(moved)
    assert isinstance(found, Footer) and found.record is None


def test_every_flipped_bit_of_a_vouched_footer_is_found() -> None:
    data = _file()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for bit in range(8 * start, 8 * (len(data) - 8)):
        with pytest.raises(ChecksumError) as caught:
            _read(with_flips(data, bit))
        assert caught.value.where.offset == start
    # A changed length or magic leads elsewhere: to nothing that parses, or to nothing that a record vouches for.
    for bit in range(8 * (len(data) - 8), 8 * len(data)):
        try:
            found = _read(with_flips(data, bit))
        except FormatError:
            continue
        assert isinstance(found, Footer) and found.record is None


def test_a_damaged_record_header_leaves_the_footer_unvouched() -> None:
    data = bytearray(_file())
    data[504 + 40] ^= 1
    found = _read(bytes(data))
    assert isinstance(found, Footer) and found.record is None and found.metadata.num_rows == 6


def test_more_bytes_are_asked_for_exactly() -> None:
    data = _file()
    start = 504 + 96
    for offset in range(505, len(data) - 8):
        assert _read(data, offset) == NeedBytes(504), offset
    assert isinstance(_read(data, 504), Footer)
    short = _file(None, data=b"")
    assert _read(short, len(short) - 8) == NeedBytes(0)
    assert isinstance(_read(short, 0), Footer)
    assert start == _read(data, 504).start


def test_nearness_of_the_beginning_does_not_ask_for_bytes_that_are_not_there() -> None:
    """A small file of others whose footer begins less than a record's header from its first byte."""
    out = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array([], pa.int8())}), out)
    data = out.getvalue()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert start < 96
    need = _read(data, start)
    assert isinstance(need, Footer) or need == NeedBytes(0)
    assert isinstance(_read(data, 0), Footer)


NOT_FOOTERS: dict[str, tuple[bytes, type[ResilientPQError], str]] = {
    "empty": (b"", NotParquetError, "the object is empty"),
    "text": (b"year,month\n2013,1\n", NotParquetError, "no Parquet magic at the beginning"),
    "only the magic": (b"PAR1", TornFileError, "4 bytes are too few"),
    "magic twice": (b"PAR1PAR1", TornFileError, "8 bytes are too few"),
    "cut in the data": (b"PAR1" + b"d" * 100, TornFileError, "no Parquet magic at the end"),
    "longer than the file": (b"PAR1" + b"\xff\xff\xff\x7fPAR1", TornFileError, "2,147,483,647 bytes"),
    "length of 4 GiB": (b"PAR1" + b"d" * 50 + b"\xff\xff\xff\xffPAR1", TornFileError, "4,294,967,295 bytes"),
    "into the magic": (b"PAR1" + b"\x01\0\0\0PAR1", TornFileError, "says it has 1 bytes"),
    "length 0": (b"PAR1" + b"\0\0\0\0PAR1", ThriftError, "footer is damaged"),
    "garbage": (b"PAR1" + b"\xff" * 40 + b"\x28\0\0\0PAR1", ThriftError, "footer is damaged"),
    "encrypted": (b"PARE" + b"d" * 40 + b"\x28\0\0\0PARE", KeyMissingError, "encrypted"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_FOOTERS)
def test_what_is_no_footer(name: str) -> None:
    data, kind, message = NOT_FOOTERS[name]
    with pytest.raises(kind, match=message) as caught:
        _read(data)
    assert caught.value.where.offset is not None or kind is ThriftError


def test_a_plaintext_footer_of_an_encrypted_file_is_read() -> None:
    # Its signature, 28 bytes, counts to its length.
    metadata = FileMetaData(1, ELEMENTS, 0, [], encryption_algorithm=EncryptionAlgorithm())
    found = _read(b"PAR1" + footer.frame(compact_protocol.encode(metadata) + bytes(28)))
    assert isinstance(found, footer.Footer)
    assert found.metadata == metadata


def test_the_length_of_a_tail() -> None:
    assert footer.metadata_length(b"xxxx\x05\0\0\0PAR1", Where()) == 5
    for tail in (b"", b"PAR1", b"\x05\0\0\0PAR2"):
        with pytest.raises(TornFileError):
            footer.metadata_length(tail, Where())


_LEAST = compact_protocol.encode(
    FileMetaData(version=1, schema=[SchemaElement(name="schema", num_children=0)], num_rows=0, row_groups=[])
)


def _kind_of(found: Footer | NeedBytes, offset: int) -> str:
    if isinstance(found, NeedBytes):
        assert 0 <= found.start < offset
        return "need"
    assert found.record is None
    return "footer"


@pytest.mark.parametrize(
    ("garbage", "length", "at_start", "kind"),
    [(b"", 80, False, "need"), (_LEAST, len(_LEAST), True, "footer"), (_LEAST, len(_LEAST), False, "need")],
)
def test_there_are_tails_of_each_kind(garbage: bytes, length: int, at_start: bool, kind: str) -> None:
    head, offset = (b"PAR1", 0) if at_start else (b"", 1000)
    tail = head + garbage + length.to_bytes(4, "little") + b"PAR1"
    assert _kind_of(read_footer(memoryview(tail), offset), offset) == kind


@given(st.binary(max_size=60), st.integers(0, 80), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_tail_is_a_footer_a_need_or_one_of_our_errors(garbage: bytes, length: int, at_start: bool) -> None:
    tail = garbage + length.to_bytes(4, "little") + b"PAR1"
    if at_start:
        tail, offset = b"PAR1" + tail, 0
    else:
        offset = 1000
    try:
        found = read_footer(memoryview(tail), offset)
    except ResilientPQError:
        return
    _kind_of(found, offset)


def test_every_cut_of_a_real_file_is_one_of_our_errors() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": ["PAR1", None, "x"] * 30}), out)
    data = out.getvalue()
    for size in range(len(data)):
        with pytest.raises((NotParquetError, TornFileError, ThriftError)):
            _read(data[:size])


# --- keys ---------------------------------------------------------------------------------------------------


def test_the_last_of_two_equal_keys_counts() -> None:
    pairs = [KeyValue("a", "1"), KeyValue("b", None), KeyValue("a", "2")]
    assert footer.key_values(pairs) == {"a": "2", "b": None}
    assert footer.key_values(None) == {}


_SUMS = st.builds(ChunkSums, *[st.none() | st.integers(0, 2**32 - 1)] * 4, xxh3=st.none() | st.integers(0, 2**64 - 1))


@given(_SUMS)
@settings(deadline=None)
def test_sums_survive_their_text(sums: ChunkSums) -> None:
    metadata = ColumnMetaData(1, [0], key_value_metadata=[KeyValue("other", "x"), *sums.pairs])
    assert ChunkSums.of(metadata) == sums


def test_sums_as_the_format_draws_them() -> None:
    assert str(ChunkSums(1, None, 0xDEADBEEF, None)) == "00000001:-:deadbeef:-"
    assert ChunkSums.of(ColumnMetaData(1, [0])) is None
    assert ChunkSums.of(ColumnMetaData(1, [0], key_value_metadata=[KeyValue("k", "v")])) is None


MALFORMED = [
    "", "-", "-:-:-", "-:-:-:-:-", "1:-:-:-", "0000000g:-:-:-", "000000001:-:-:-", "-1234567:-:-:-",
    "+1234567:-:-:-", " 1234567:-:-:-", "0x123456:-:-:-", "1_234_56:-:-:-",
]  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_sums_are_refused(text: str) -> None:
    metadata: Any = ColumnMetaData(1, [0], key_value_metadata=[KeyValue("rpq.crc32", text)])
    with pytest.raises(FormatError, match="malformed"):
        ChunkSums.of(metadata)


@pytest.mark.parametrize("text", ["", "-", "0" * 15, "0" * 17, "0" * 15 + "g", "-" + "0" * 15, "0x" + "0" * 14])
def test_a_malformed_hash_is_refused(text: str) -> None:
    metadata: Any = ColumnMetaData(1, [0], key_value_metadata=[KeyValue("rpq.xxh3", text)])
    with pytest.raises(FormatError, match="malformed"):
        ChunkSums.of(metadata)


# --- summaries ------------------------------------------------------------------------------------------------


def sealed_summary() -> bytes:
    element = SchemaElement(name="schema", num_children=0)
    metadata = footer.serialize(
        [element], [], num_rows=0, column_orders=None, key_value={"rpq.format": "1"}, created_by="somebody"
    )
    return footer.sealed(metadata, bytes(range(16)), num_rows=0, num_row_groups=0)


def test_a_seal_vouches_for_what_stands_before_it() -> None:
    data = sealed_summary()
    found = footer.read_footer(memoryview(data), 0)
    assert isinstance(found, Footer)
    assert found.record is not None and found.record.file_id == bytes(range(16))
    assert (found.record.kind, found.record.end - found.record.payload_size) == (RecordKind.SEAL, len(data) - 8)
    assert (found.start, found.length, found.trailing) == (4, len(data) - 12, 0)
    assert found.metadata.created_by == "somebody"


def test_a_seal_at_another_place_vouches_for_nothing() -> None:
    """Copied together with the metadata to where they do not belong."""
    moved = b"PAR1" + bytes(7) + sealed_summary()[4:]
    found = footer.read_footer(memoryview(moved), 0)
    assert isinstance(found, Footer) and found.record is None and found.trailing == 96


def test_every_byte_of_a_sealed_footer_counts() -> None:
    data = sealed_summary()
    seal = len(data) - 8 - 96
    for at in range(4, len(data)):
        changed = memoryview(data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :])
        if at < seal:
            with pytest.raises(ChecksumError):
                footer.read_footer(changed, 0)
        elif at < len(data) - 8:
            found = footer.read_footer(changed, 0)
            assert isinstance(found, Footer) and (found.record, found.trailing) == (None, 96)
        else:
            with pytest.raises(FormatError):
                footer.read_footer(changed, 0)
