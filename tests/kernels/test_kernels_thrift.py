"""Where Thrift structs end, against structs built byte by byte and Apache's own compact protocol."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer
from varints import varint

from resilient_pq.errors import ThriftError
from resilient_pq.format.kernels import reference

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
STOP = b"\x00"
Value = tuple[int, Any]  # type and content


class Nothing:
    """A struct of which all fields are unknown."""

    __slots__ = ()


def end_of(kernels: ModuleType, buffer: bytes, start: int, max_depth: int) -> int:
    _, end = kernels.StructReader(Nothing, []).decode(buffer, start, max_depth)
    return int(end)


def element(kind: int, content: Any) -> bytes:
    if kind in (TRUE, FALSE):
        return bytes([kind])
    if kind in (I8, DOUBLE, UUID):
        return bytes(content)
    if kind in (I16, I32, I64):
        return varint(content)
    if kind == BINARY:
        return varint(len(content)) + bytes(content)
    return struct(content) if kind == STRUCT else container(kind, content)


def container(kind: int, content: Any) -> bytes:
    if kind == MAP:
        key, value, pairs = content
        body = b"".join(element(key, a) + element(value, b) for a, b in pairs)
        return varint(len(pairs)) + (bytes([key << 4 | value]) + body if pairs else b"")
    inner, items = content
    short = len(items) < 15
    size = bytes([len(items) << 4 | inner]) if short else bytes([0xF0 | inner]) + varint(len(items))
    return size + b"".join(element(inner, item) for item in items)


def struct(fields: list[tuple[int, Value]]) -> bytes:
    """Fields as (difference to the last id, value); 0 stands for the long form."""
    out = b""
    for delta, (kind, content) in fields:
        out += bytes([delta << 4 | kind]) + (varint(77) if delta == 0 else b"")
        out += b"" if kind in (TRUE, FALSE) else element(kind, content)
    return out + STOP


SCALARS: dict[int, st.SearchStrategy[Any]] = {
    TRUE: st.none(),
    FALSE: st.none(),
    I8: st.binary(min_size=1, max_size=1),
    I16: st.integers(0, 2**16 - 1),
    I32: st.integers(0, 2**32 - 1),
    I64: st.integers(0, 2**64 - 1),
    DOUBLE: st.binary(min_size=8, max_size=8),
    BINARY: st.binary(max_size=20),
    UUID: st.binary(min_size=16, max_size=16),
}


def contents(kind: int, depth: int) -> st.SearchStrategy[Any]:
    if kind in SCALARS:
        return SCALARS[kind]
    if kind in (LIST, SET):
        return kinds(depth - 1).flatmap(
            lambda inner: st.tuples(st.just(inner), st.lists(contents(inner, depth - 1), max_size=17))
        )
    if kind == MAP:
        return st.tuples(kinds(depth - 1), kinds(depth - 1)).flatmap(
            lambda pair: st.tuples(
                st.just(pair[0]),
                st.just(pair[1]),
                st.lists(st.tuples(contents(pair[0], depth - 1), contents(pair[1], depth - 1)), max_size=4),
            )
        )
    return fields(depth - 1)


def kinds(depth: int) -> st.SearchStrategy[int]:
    return st.sampled_from([*SCALARS, LIST, SET, MAP, STRUCT] if depth > 0 else list(SCALARS))


def fields(depth: int) -> st.SearchStrategy[list[tuple[int, Value]]]:
    value = kinds(depth).flatmap(lambda kind: st.tuples(st.just(kind), contents(kind, depth)))
    return st.lists(st.tuples(st.integers(0, 15), value), max_size=4)


EVERYTHING = struct(
    [
        (1, (TRUE, None)),
        (15, (FALSE, None)),
        (0, (I64, 2**64 - 1)),
        (1, (DOUBLE, bytes(8))),
        (1, (UUID, bytes(16))),
        (1, (LIST, (TRUE, [None] * 20))),
        (1, (SET, (I8, [b"\xff"] * 3))),
        (1, (LIST, (STRUCT, [[], [(1, (BINARY, b"text"))]]))),
        (1, (MAP, (BINARY, FALSE, [(b"key", None)]))),
        (1, (MAP, (I32, I32, []))),
        (1, (STRUCT, [(1, (LIST, (I16, [])))])),
    ]
)


@settings(deadline=None, max_examples=150)
@given(written=fields(4).map(struct), before=st.binary(max_size=3), behind=st.binary(max_size=3))
@example(written=EVERYTHING, before=b"", behind=b"")
def test_finds_the_end(kernels: ModuleType, written: bytes, before: bytes, behind: bytes) -> None:
    assert end_of(kernels, before + written + behind, len(before), 16) == len(before) + len(written)


@settings(deadline=None, max_examples=60)
@given(written=fields(3).map(struct))
@example(written=EVERYTHING)
def test_every_cut_is_refused(kernels: ModuleType, written: bytes) -> None:
    for size in range(len(written)):
        with pytest.raises(ThriftError):
            end_of(kernels, written[:size], 0, 16)


def apache_end(data: bytes) -> int | None:
    """Where Apache's reader stops, or None where it refuses: it also decodes strings, and knows no UUID."""
    transport = TMemoryBuffer(data)
    try:
        TCompactProtocol(transport).skip(TType.STRUCT)
    except (EOFError, KeyError, ValueError, TypeError, AssertionError, TProtocolException):
        return None
    return int(transport.cstringio_buf.tell())


@settings(deadline=None, max_examples=300)
@given(data=st.one_of(st.binary(max_size=40), st.lists(st.integers(0, 0x1F), max_size=40).map(bytes)))
def test_garbage_is_met_in_agreement(native: ModuleType, outcome: Any, data: bytes) -> None:
    end = outcome(lambda: end_of(native, data, 0, 30))
    assert end == outcome(lambda: end_of(reference, data, 0, 30))
    if isinstance(end, int):
        assert apache_end(data) in (end, None)


def test_damage_is_met_in_agreement(native: ModuleType, outcome: Any) -> None:
    answers = []
    for at in range(len(EVERYTHING)):
        for flip in range(1, 256):
            data = EVERYTHING[:at] + bytes([EVERYTHING[at] ^ flip]) + EVERYTHING[at + 1 :]
            answers.append(outcome(lambda data=data: end_of(native, data, 0, 8)))
            assert answers[-1] == outcome(lambda data=data: end_of(reference, data, 0, 8))
    assert {ThriftError, len(EVERYTHING)} < set(answers)


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"\x1e\x00\x00",  # type 14
        b"\x1f\x00\x00",
        b"\x10\x00",  # a stop byte is all zeros
        b"\x19\x10\x00\x00",  # a list of nothing that has an element
        b"\x19\x1e\x00\x00",
        b"\x1b\x01\x0e\x00\x00\x00",
        b"\x15" + b"\x80" * 10 + b"\x00\x00",  # eleven bytes
        b"\x15" + b"\xff" * 9 + b"\x02\x00",  # 65 bits
        b"\x05" + b"\xff" * 12,  # a field id without end
        b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + bytes(50),  # a string of 2**64 - 1 bytes
        b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(50),  # and of 2**63 - 1
        b"\x19\xf1\xff\xff\xff\xff\x7f" + bytes(50),  # a list
        b"\x19\xf3\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + bytes(50),
        b"\x1b\xff\xff\xff\xff\x7f\x33" + bytes(50),  # a map
        b"\x1b\x32\x33" + bytes(50),  # 50 pairs of two bytes in 51
    ],
)
def test_lengths_and_types_are_not_believed(kernels: ModuleType, written: bytes) -> None:
    with pytest.raises(ThriftError):
        end_of(kernels, written, 0, 16)


def nested(opening: bytes, times: int, closing: bytes) -> bytes:
    return opening * times + closing * times


@pytest.mark.parametrize(
    ("opening", "closing"),
    [(b"\x1c", b"\x00"), (b"\x19\x19", b""), (b"\x1b\x01\x3b\x01", b""), (b"\x19\x1c", b"\x00")],
)
def test_a_deep_struct_does_not_end_the_process(kernels: ModuleType, opening: bytes, closing: bytes) -> None:
    for times in (1000, 1_000_000):
        with pytest.raises(ThriftError):
            end_of(kernels, nested(opening, times, closing), 0, 128)


def test_the_depth_counts_structs_and_containers(kernels: ModuleType) -> None:
    within_each_other = nested(b"\x1c", 127, STOP) + STOP
    assert end_of(kernels, within_each_other, 0, 128) == len(within_each_other)
    with pytest.raises(ThriftError, match="too deep"):
        end_of(kernels, within_each_other, 0, 127)
    list_of_structs = struct([(1, (LIST, (STRUCT, [[]])))])
    assert end_of(kernels, list_of_structs, 0, 3) == len(list_of_structs)
    with pytest.raises(ThriftError, match="too deep"):
        end_of(kernels, list_of_structs, 0, 2)
    assert end_of(kernels, struct([(1, (I32, 1))]), 0, 1) == 3


def test_the_start_must_lie_in_the_buffer(kernels: ModuleType) -> None:
    assert end_of(kernels, b"\x55\x00", 1, 1) == 2
    for start in (-1, 2, 3, 2**40):
        with pytest.raises(ThriftError):
            end_of(kernels, b"\x55\x00", start, 1)


@pytest.mark.parametrize("max_depth", [0, -1, 129, 2**40])
def test_a_depth_that_could_not_be_kept_is_the_callers_mistake(kernels: ModuleType, max_depth: int) -> None:
    with pytest.raises(ValueError, match="max_depth") as raised:
        end_of(kernels, b"\x00", 0, max_depth)
    assert not isinstance(raised.value, ThriftError)
