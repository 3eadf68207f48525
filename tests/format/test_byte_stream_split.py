"""BYTE_STREAM_SPLIT: the specification's example, every type and back, and pages of a wrong size."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError
from resilient_pq.format.encodings import byte_stream_split
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.physical_values import empty_fixed, fixed_width
from resilient_pq.format.schema_tree import Primitive

NODES = [
    Primitive("c", Repetition.REQUIRED, physical, length)
    for physical, length in [
        (Type.FLOAT, None),
        (Type.DOUBLE, None),
        (Type.INT32, None),
        (Type.INT64, None),
        *((Type.FIXED_LEN_BYTE_ARRAY, length) for length in (0, 1, 2, 16, 70)),
    ]
]
every_node = pytest.mark.parametrize("node", NODES, ids=lambda node: f"{node.physical_type.name}{node.type_length}")
FLOAT = NODES[0]


def values_of(node: Primitive, data: bytes) -> np.ndarray[Any, Any]:
    """Values of the column, made of as many bytes as there are."""
    width = fixed_width(node) or 0
    values = empty_fixed(node, len(data) // width if width else len(data))
    values.view(np.uint8).reshape(-1)[:] = np.frombuffer(data, np.uint8, values.nbytes)
    return values


def test_the_example_of_the_specification() -> None:
    values = np.frombuffer(bytes.fromhex("AABBCCDD 00112233 A3B4C5D6"), "<f4")
    encoded = byte_stream_split.encode(FLOAT, values).tobytes()
    assert encoded == bytes.fromhex("AA00A3 BB11B4 CC22C5 DD33D6")


@every_node
@settings(deadline=None, max_examples=50)
@given(data=st.binary(max_size=300))
def test_values_come_back(node: Primitive, data: bytes) -> None:
    values = values_of(node, data)
    width = fixed_width(node) or 0
    encoded = byte_stream_split.encode(node, values).tobytes()
    plain = values.tobytes()
    assert encoded == b"".join(plain[byte::width] for byte in range(width))
    out = empty_fixed(node, len(values))
    byte_stream_split.decode(node, memoryview(encoded), out)
    assert out.tobytes() == plain  # NaNs with all their bits


@every_node
def test_a_slice_is_written_and_filled(node: Primitive) -> None:
    values = values_of(node, bytes(range(256)) * 5)
    encoded = byte_stream_split.encode(node, values[1:-1]).tobytes()
    out = empty_fixed(node, len(values))
    byte_stream_split.decode(node, memoryview(encoded), out[1:-1])
    assert out[1:-1].tobytes() == values[1:-1].tobytes()
    assert not any(out[:1].tobytes() + out[-1:].tobytes())


def test_a_page_with_more_values_is_read_as_far_as_they_are_wanted() -> None:
    encoded = byte_stream_split.encode(FLOAT, np.arange(5, dtype=np.float32)).tobytes()
    out = np.empty(3, np.float32)
    byte_stream_split.decode(FLOAT, memoryview(encoded), out)
    assert out.tolist() == [0, 1, 2]


@every_node
def test_a_page_of_a_wrong_size_is_refused(node: Primitive) -> None:
    width = fixed_width(node) or 0
    out = empty_fixed(node, 9)
    for size in range(9 * width):
        with pytest.raises(EncodingError, match=f"take {9 * width} bytes"):
            byte_stream_split.decode(node, memoryview(bytes(size)), out)
    for more in range(1, width):
        with pytest.raises(EncodingError, match="no whole number"):
            byte_stream_split.decode(node, memoryview(bytes(9 * width + more)), out)


def test_nothing_is_nothing() -> None:
    for node in NODES:
        assert byte_stream_split.encode(node, empty_fixed(node, 0)).size == 0
        byte_stream_split.decode(node, memoryview(b""), empty_fixed(node, 0))


def test_numbers_are_little_endian_whatever_the_machine() -> None:
    node = Primitive("c", Repetition.REQUIRED, Type.INT64)
    out = empty_fixed(node, 1)
    byte_stream_split.decode(node, memoryview(struct.pack("<q", -2)), out)
    assert out.tolist() == [-2]
