"""Thrift structs: read as Apache Thrift reads them, unknown fields that are skipped, hostile bytes that are refused."""

from __future__ import annotations

import random
import struct
from collections.abc import MutableSequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer
from varints import varint

from resilient_pq.errors import ThriftError
from resilient_pq.format import annotations, compact_protocol
from resilient_pq.format import file_metadata as pq
from resilient_pq.format.kernels import reference
from resilient_pq.format.resilience_records import ChunkCopies, RowGroupRecord

quick = settings(max_examples=60, deadline=None)


class _Spec(tuple[Any, ...]):
    """A struct's fields by number: Python would count negative ones from the end."""

    def __getitem__(self, number: Any) -> Any:
        if number < 0:
            raise IndexError
        return super().__getitem__(number)


class _Oracle(TCompactProtocol):  # type: ignore[misc]
    """Apache's pure-Python protocol, taught to build our structs, which have no `read`."""

    def readString(self) -> str:  # noqa: N802 (Thrift's name)
        return bytes(self.readBinary()).decode("utf-8", "replace")

    def readContainerList(self, spec: Any) -> Any:  # noqa: N802 (Thrift's name)
        wire_type, arguments, _ = spec
        found, length = self.readListBegin()
        if length and found != wire_type:
            raise TProtocolException(message="a list of other elements")
        values = [self.readFieldByTType(wire_type, arguments) for _ in range(length)]
        self.readListEnd()
        return values

    def readContainerStruct(self, spec: Any) -> Any:  # noqa: N802 (Thrift's name)
        return self.readStruct(spec[0], _Spec(spec[1]), True)


def _apache(cls: Any, data: bytes) -> Any:
    """What Apache's reader makes of a struct; None where it refuses it, or where the protocol does.

    It takes any header without a type for a struct's end; one with a number has no meaning.
    """
    try:
        reference.StructReader(annotations.Empty, []).decode(data, 0, compact_protocol.MAX_DEPTH)
    except ThriftError:
        return None
    try:
        return _Oracle(TMemoryBuffer(data)).readStruct(cls, _Spec(cls.thrift_spec), True)
    except (TypeError, ValueError, LookupError, EOFError, OverflowError, TProtocolException):
        return None


def _sound(value: Any) -> bool:
    """Whether what Apache's reader made has all required fields and no integer beyond its type's range."""
    limits = {TType.BYTE: 7, TType.I16: 15, TType.I32: 31, TType.I64: 63}
    for f in value.__dataclass_fields__.values():
        wire_type, arguments = compact_protocol._wire_type(f.metadata["type"])
        one = getattr(value, f.name)
        if one is None and f.metadata["required"]:
            return False
        several = [] if one is None else one if wire_type == TType.LIST else [one]
        bits = limits.get(arguments[0] if wire_type == TType.LIST else wire_type)
        for element in several:
            if bits is not None and not -(1 << bits) <= element < 1 << bits:
                return False
            if hasattr(element, "__dataclass_fields__") and not _sound(element):
                return False
    return True


def _readers(kernels: ModuleType) -> Any:
    """Reads structs of our classes by one of the implementations."""
    made: dict[type, Any] = {}

    def reader_of(cls: Any) -> Any:
        if cls not in made:
            fields = []
            for f in cls.__dataclass_fields__.values():
                wire_type, arguments = compact_protocol._wire_type(f.metadata["type"])
                one = compact_protocol._read_as(f, wire_type, arguments)
                inner = arguments[1] if wire_type == TType.LIST else arguments
                fields.append(one if one.nested is None else one._replace(nested=reader_of(inner[0])))
            made[cls] = kernels.StructReader(cls, fields)
        return made[cls]

    def decode(cls: Any, data: Any, start: int = 0) -> Any:
        return reader_of(cls).decode(data, start, compact_protocol.MAX_DEPTH)

    return decode


@pytest.fixture(scope="session", params=["reference", "native"])
def decode(request: pytest.FixtureRequest) -> Any:
    if request.param == "native":
        return _readers(pytest.importorskip("resilient_pq.format.kernels._native"))
    return _readers(reference)


@pytest.fixture(scope="session")
def outcome_of_both() -> Any:
    """The struct and its end, or the error's words: both implementations must come to the same."""
    both = [_readers(pytest.importorskip("resilient_pq.format.kernels._native")), _readers(reference)]

    def outcome(cls: Any, data: bytes) -> Any:
        found: list[Any] = []
        for one in both:
            try:
                value, end = one(cls, data)
            except ThriftError as error:
                found.append(error.message)
            else:  # what was opened is read later without an error
                found.append((repr(value), end, value))
        native, plain = found
        if isinstance(native, str):
            assert isinstance(plain, str), (native, plain)
            return None
        assert native[:2] == plain[:2]
        return native[2]

    return outcome


#: Values of each wire type, by the pair that declares it.
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    compact_protocol.BOOL: st.booleans(),
    compact_protocol.I8: st.integers(-(2**7), 2**7 - 1),
    compact_protocol.I16: st.integers(-(2**15), 2**15 - 1),
    compact_protocol.I32: st.integers(-(2**31), 2**31 - 1),
    compact_protocol.I64: st.integers(-(2**63), 2**63 - 1),
    compact_protocol.DOUBLE: st.floats(allow_nan=False),
    compact_protocol.BINARY: st.binary(max_size=12),
    compact_protocol.STRING: st.text(max_size=6),
}


def _values(declared: Any, depth: int) -> st.SearchStrategy[Any]:
    if isinstance(declared, type):
        return _structs(declared, depth)
    wire_type, arguments = declared
    if wire_type != TType.LIST:
        return _SCALARS[declared]
    element_type, element_arguments, _ = arguments
    element = element_arguments[0] if element_type == TType.STRUCT else (element_type, element_arguments)
    return st.lists(_values(element, depth), max_size=2 if depth else 17)


def _structs(cls: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Instances with any of the optional fields, down to four structs deep."""
    fields = {}
    for f in cls.__dataclass_fields__.values():
        declared = f.metadata["type"]
        if f.metadata["required"]:
            fields[f.name] = _values(declared, depth + 1)
        elif depth < 4 or not (isinstance(declared, type) or declared[0] == TType.LIST):
            fields[f.name] = st.none() | _values(declared, depth + 1)
        else:
            fields[f.name] = st.none()
    return st.builds(cls, **fields)


ROOTS = [
    pq.PageHeader,
    pq.ColumnIndex,
    pq.OffsetIndex,
    pq.ColumnChunk,
    pq.SchemaElement,
    pq.Statistics,
    pq.GeospatialStatistics,
    ChunkCopies,
]


@given(st.data())
@settings(quick, max_examples=75)
def test_structs_come_back_as_they_were(decode: Any, data: st.DataObject) -> None:
    value = data.draw(_structs(data.draw(st.sampled_from(ROOTS))))
    encoded = compact_protocol.encode(value)
    assert compact_protocol._encode_plain(value) == encoded
    decoded, end = decode(type(value), encoded)
    assert end == len(encoded) and decoded == _as_decoded(value)
    assert repr(decoded) == repr(_apache(type(value), encoded))


def _as_decoded(value: Any) -> Any:
    """A field with a default that is left out comes back as its default."""
    for name, f in value.__dataclass_fields__.items():
        found = getattr(value, name)
        if found is None:
            default = f.default
            if not f.metadata["required"] and default is not None:
                setattr(value, name, default)
        elif isinstance(found, MutableSequence):
            for inner in found:
                if hasattr(inner, "__dataclass_fields__"):
                    _as_decoded(inner)
        elif hasattr(found, "__dataclass_fields__"):
            _as_decoded(found)
    return value


def test_bytes_after_the_struct_are_left_alone() -> None:
    encoded = compact_protocol.encode(pq.PageLocation(1, 2, 3))
    value, end = compact_protocol.decode(pq.PageLocation, b"ab" + encoded + b"\xff\xff", 2)
    assert (value, end) == (pq.PageLocation(1, 2, 3), 2 + len(encoded))


def test_every_kind_of_buffer_is_taken() -> None:
    encoded = compact_protocol.encode(pq.KeyValue("k", "v"))
    for buffer in (encoded, bytearray(encoded), memoryview(encoded), memoryview(b"x" + encoded)[1:]):
        assert compact_protocol.decode(pq.KeyValue, buffer)[0] == pq.KeyValue("k", "v")


# --- unknown fields -----------------------------------------------------------------------------------------


def _write_unknown(protocol: TCompactProtocol, kind: int, number: int) -> None:
    """A field that no struct of ours has, of any type that Thrift has."""
    protocol.writeFieldBegin("unknown", kind, number)
    _write_value(protocol, kind)
    protocol.writeFieldEnd()


def _write_value(protocol: TCompactProtocol, kind: int, depth: int = 0) -> None:
    match kind:
        case TType.BOOL:
            protocol.writeBool(True)
        case TType.BYTE:
            protocol.writeByte(-5)
        case TType.I16 | TType.I32 | TType.I64:
            getattr(protocol, f"writeI{ {TType.I16: 16, TType.I32: 32, TType.I64: 64}[kind] }")(-12_345)
        case TType.DOUBLE:
            protocol.writeDouble(1.5)
        case TType.STRING:
            protocol.writeBinary(b"some bytes")
        case TType.STRUCT:
            protocol.writeStructBegin("inner")
            for number, inner in enumerate(_INNER if depth < 2 else [TType.I32], start=1):
                _write_unknown_at(protocol, inner, number * 20, depth + 1)
            protocol.writeFieldStop()
            protocol.writeStructEnd()
        case TType.LIST | TType.SET:
            name = "List" if kind == TType.LIST else "Set"
            inner = TType.STRUCT if depth < 2 else TType.STRING
            getattr(protocol, f"write{name}Begin")(inner, 17)
            for _ in range(17):
                _write_value(protocol, inner, depth + 2)
            getattr(protocol, f"write{name}End")()
        case TType.MAP:
            protocol.writeMapBegin(TType.STRING, TType.BOOL, 3)
            for _ in range(3):
                protocol.writeBinary(b"key")
                protocol.writeBool(False)
            protocol.writeMapEnd()


def _write_unknown_at(protocol: TCompactProtocol, kind: int, number: int, depth: int) -> None:
    protocol.writeFieldBegin("unknown", kind, number)
    _write_value(protocol, kind, depth)
    protocol.writeFieldEnd()


_INNER = [TType.BOOL, TType.BYTE, TType.I16, TType.I32, TType.I64, TType.DOUBLE, TType.STRING, TType.MAP]
_KINDS = [*_INNER, TType.LIST, TType.SET, TType.STRUCT]


@pytest.mark.parametrize("number", [4, 200, 32_767])
@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: TType._VALUES_TO_NAMES[kind])
def test_unknown_fields_of_every_type_are_skipped(decode: Any, kind: int, number: int) -> None:
    transport = TMemoryBuffer()
    protocol = TCompactProtocol(transport)
    protocol.writeStructBegin("PageLocation")
    for known, (wire, value) in {1: ("I64", 7), 2: ("I32", 8), 3: ("I64", 9)}.items():
        protocol.writeFieldBegin("known", TType.I64 if wire == "I64" else TType.I32, known)
        getattr(protocol, f"write{wire}")(value)
        protocol.writeFieldEnd()
    _write_unknown(protocol, kind, number)
    protocol.writeFieldStop()
    protocol.writeStructEnd()
    encoded = transport.getvalue()
    assert decode(pq.PageLocation, encoded + b"rest") == (pq.PageLocation(7, 8, 9), len(encoded))


def test_a_field_of_another_wire_type_counts_as_unknown() -> None:
    # Field 1 of KeyValue is a string; here it is an i64, and the key is missing then.
    with pytest.raises(ThriftError, match=r"lacks KeyValue\.key"):
        compact_protocol.decode(pq.KeyValue, bytes([0x16, 0x02, 0x18, 0x01, ord("v"), 0]))
    value, _ = compact_protocol.decode(pq.Statistics, bytes([0x16, 0x02, 0x26, 0x0E, 0]))
    assert value == pq.Statistics(null_count=7)


# --- required fields ----------------------------------------------------------------------------------------


def test_a_required_field_must_be_there() -> None:
    with pytest.raises(ThriftError, match=r"DataPageHeader\.encoding"):
        compact_protocol.decode(pq.DataPageHeader, bytes([0x15, 0x02, 0]))


def test_a_required_field_of_an_inner_struct_must_be_there() -> None:
    header = pq.PageHeader(0, 1, 1, data_page_header=pq.DataPageHeader(1, None, 3, 3))  # type: ignore[arg-type]
    with pytest.raises(ThriftError, match=r"page header is damaged: it lacks DataPageHeader\.encoding"):
        compact_protocol.decode(pq.PageHeader, compact_protocol.encode(header), what="page header")
    index = pq.OffsetIndex([pq.PageLocation(1, 2, 3), pq.PageLocation(1, 2, None)])  # type: ignore[arg-type]
    with pytest.raises(ThriftError, match=r"PageLocation\.first_row_index"):
        compact_protocol.decode(pq.OffsetIndex, compact_protocol.encode(index))


def test_every_required_field_of_every_root_is_missed() -> None:
    missed = 0
    roots: list[Any] = [*ROOTS, pq.FileMetaData, pq.RowGroup, RowGroupRecord]
    for root in roots:
        with_required = [f for f in root.__dataclass_fields__.values() if f.metadata["required"]]
        if with_required:
            missed += 1
            with pytest.raises(ThriftError, match=f"lacks {root.__name__}.{with_required[0].name}"):
                compact_protocol.decode(root, b"\0")
    assert missed >= 6


# --- hostile bytes ------------------------------------------------------------------------------------------


HOSTILE = {
    "empty": b"",
    "no stop": bytes([0x16, 0x02]),
    "a string that ends beyond the buffer": bytes([0x18]) + varint(100) + b"short",
    "a string of 4 GiB": bytes([0x18]) + varint(2**32 - 1),
    "a string of 16 EiB": bytes([0x18]) + varint(2**64 - 1),
    "a string of negative length": bytes([0x18]) + varint(2**32 - 5) + b"abcdefgh\0",
    "a list of 2 Gi structs": bytes([0x59, 0xFC]) + varint(2**31 - 1),
    "a list of 4 Gi bools": bytes([0x59, 0xF1]) + varint(2**32 - 1),
    "a map of 2 Gi entries": bytes([0x5B]) + varint(2**31 - 1) + b"\x88",
    "a varint without an end": bytes([0x16]) + b"\xff" * 40,
    "a varint of too many bytes": bytes([0x16]) + b"\x80" * 11 + b"\x01\0",
    "an unknown wire type": bytes([0x1F, 0, 0, 0]),
    "structs nested without an end": b"\x1c" * 100_000,
    "lists nested without an end": b"\x19" + b"\x19" * 100_000,
    "a double that is cut": bytes([0x17, 0, 0, 0]),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("root", [pq.FileMetaData, pq.PageHeader, pq.ColumnIndex, RowGroupRecord])
def test_hostile_bytes_are_a_thrift_error(root: type, name: str) -> None:
    with pytest.raises(ThriftError, match=root.__name__):
        compact_protocol.decode(root, HOSTILE[name])


def test_text_that_is_not_utf8_is_read(decode: Any) -> None:
    encoded = bytes([0x18, 0x02, 0xFF, 0xFE, 0x00])
    assert decode(pq.KeyValue, encoded)[0] == pq.KeyValue("\ufffd\ufffd")


def _footer() -> bytes:
    chunk = pq.ColumnChunk(
        meta_data=pq.ColumnMetaData(
            type=1, encodings=[0, 3], path_in_schema=["a", "b"], codec=6, num_values=5,
            statistics=pq.Statistics(null_count=1, min_value=b"a", max_value=b"z", is_min_value_exact=True),
            key_value_metadata=[pq.KeyValue("k", "v")],
        )
    )  # fmt: skip
    elements = [pq.SchemaElement(name="root", num_children=1), pq.SchemaElement(name="a", type=1)]
    other = pq.ColumnChunk(file_path="f", meta_data=pq.ColumnMetaData(type=2, encodings=[]))
    return compact_protocol.encode(
        pq.FileMetaData(1, elements, 5, [pq.RowGroup([chunk], 10, 5), pq.RowGroup([other, other])])
    )


@pytest.mark.parametrize("seed", range(4))
def test_any_changed_byte_is_a_value_or_a_thrift_error(seed: int) -> None:
    sound = _footer()
    rng = random.Random(seed)
    refused = 0
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << rng.randrange(8)
        try:
            compact_protocol.decode(pq.FileMetaData, bytes(damaged))
        except ThriftError:
            refused += 1
    assert refused > len(sound) // 4


def test_lists_of_other_elements_are_refused(decode: Any) -> None:
    # OffsetIndex.page_locations as a list of i32.
    with pytest.raises(ThriftError, match="elements of another type"):
        decode(pq.OffsetIndex, bytes([0x19, 0x25, 0x02, 0x04, 0x00]))
    # ColumnIndex.null_pages as an empty list of them.
    assert decode(pq.PageEncodingStats, b"\x15\0\x15\0\x15\0\x19\x05\0")[0] == pq.PageEncodingStats(0, 0, 0)


@pytest.mark.parametrize(
    ("cls", "kind", "bits"),
    [(annotations.IntType, 3, 8), (pq.RowGroup, 4, 16), (annotations.DecimalType, 5, 32), (pq.SizeStatistics, 6, 64)],
)
def test_integers_have_the_range_of_their_type(decode: Any, cls: Any, kind: int, bits: int) -> None:
    head = {pq.RowGroup: b"\x19\x0c\x64"}.get(cls, bytes([0x10 | kind]))
    for value in (-(1 << bits - 1), (1 << bits - 1) - 1):
        zigzag = value << 1 if value >= 0 else (-value << 1) - 1
        written = varint(zigzag) if kind != 3 else value.to_bytes(1, "little", signed=True)
        read = decode(cls, head + written + b"\0")[0]
        assert value in [getattr(read, name) for name in cls.__slots__]
    if kind != 3:
        with pytest.raises(ThriftError, match="beyond the range" if bits < 64 else "64 bits"):
            decode(cls, head + varint(1 << bits) + b"\0")


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.thorough)])
def test_every_changed_byte_is_met_as_apache_does(outcome_of_both: Any, step: int) -> None:
    """Both implementations and Apache's, on bytes of which one is another; only what all can read is read."""
    sound, refused = _footer(), 0
    assert outcome_of_both(pq.FileMetaData, sound) is not None
    for case in range(0, len(sound) * 255, step):
        damaged = bytearray(sound)
        damaged[case // 255] ^= case % 255 + 1
        ours, theirs = outcome_of_both(pq.FileMetaData, bytes(damaged)), _apache(pq.FileMetaData, bytes(damaged))
        refused += ours is None
        if ours is not None and theirs is not None:
            assert repr(ours) == repr(theirs), (case, damaged)
        elif theirs is not None:
            assert not _sound(theirs), (case, damaged)
    assert refused > len(sound) * 255 // step // 4


def test_every_cut_is_a_thrift_error() -> None:
    sound = _footer()
    for size in range(len(sound)):
        with pytest.raises(ThriftError):
            compact_protocol.decode(pq.FileMetaData, sound[:size])


@given(st.binary(max_size=200))
@settings(quick, max_examples=200)
def test_garbage_is_a_value_or_a_thrift_error(garbage: bytes) -> None:
    for root in (pq.PageHeader, pq.ColumnMetaData, RowGroupRecord):
        try:
            _, end = compact_protocol.decode(root, garbage)
        except ThriftError:
            continue
        assert 0 < end <= len(garbage)


def test_nesting_is_bounded_but_real_depth_is_not_refused() -> None:
    deep = b"\x1c" * (compact_protocol.MAX_DEPTH - 1) + b"\0" * compact_protocol.MAX_DEPTH
    assert compact_protocol.decode(pq.Statistics, deep)[1] == len(deep)
    deeper = b"\x1c" * (compact_protocol.MAX_DEPTH + 1) + b"\0" * (compact_protocol.MAX_DEPTH + 2)
    with pytest.raises(ThriftError):
        compact_protocol.decode(pq.Statistics, deeper)


@pytest.mark.parametrize("in_key", [False, True])
def test_maps_within_maps_are_bounded(in_key: bool, decode: Any) -> None:
    """A map of one entry, whose key or value is a map, and so on; bytes of other entries."""
    count = 100_000
    data = b"\xfb" + (b"\x01\xb3" if in_key else b"\x01\x3b\x00") * count + bytes(2 * count)
    with pytest.raises(ThriftError, match="too deep"):
        decode(pq.Statistics, data)


def test_doubles_are_little_endian() -> None:
    box = pq.BoundingBox(1.5, 2.5, -3.5, 4.5)
    assert struct.pack("<d", 1.5) in compact_protocol.encode(box)
    assert compact_protocol.decode(pq.BoundingBox, compact_protocol.encode(box))[0] == box


def test_none_is_left_out_and_defaults_are_written() -> None:
    assert compact_protocol.encode(pq.Statistics()) == b"\0"
    assert compact_protocol.decode(pq.Statistics, b"\0") == (pq.Statistics(), 1)
    assert compact_protocol.decode(pq.SchemaElement, b"\0")[0].name == ""


@pytest.mark.parametrize("false", [0, 2])
def test_lists_of_booleans_of_either_spelling(decode: Any, false: int) -> None:
    # The compact protocol has 1 and 2; some writers, as of cudf's column_index_thrift_bool_list.parquet, 1 and 0.
    index = pq.ColumnIndex([True, True, True, False], [b""] * 4, [b""] * 4)
    encoded = compact_protocol.encode(index)
    head = bytes([1 << 4 | 9, 4 << 4 | encoded[1] & 0x0F])
    assert encoded.startswith(head + b"\x01\x01\x01")
    edited = head + bytes([1, false, 1, false]) + encoded[len(head) + 4 :]
    assert decode(pq.ColumnIndex, edited)[0].null_pages == [True, False, True, False]
