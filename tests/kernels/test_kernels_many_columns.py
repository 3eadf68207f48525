"""What makes schemas of many columns at once refuses what is not there."""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest

from resilient_pq.arrow.types.ipc_schema import SchemaMessage
from resilient_pq.errors import ThriftError
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import SchemaElement


def test_kernels_refuse_what_is_not_there(native: ModuleType) -> None:
    if not hasattr(native, "alike_elements"):
        pytest.skip("it is no kernel of this module")
    element = compact_protocol.encode(SchemaElement(name="a", type=1, repetition_type=1))
    names, numbers, firsts = native.alike_elements(2 * element, np.arange(3) * len(element))
    assert (names, numbers, firsts) == (["a", "a"], [0, 0], [0])
    for starts in ([0, 99], [-1, 2], [5, 2], [0, len(element) - 1]):
        with pytest.raises(ThriftError):
            native.alike_elements(element, np.array(starts))
    assert native.alike_fields(b"", 0, ["a"]) == [-1]
    assert native.alike_fields(bytes(range(200)), 1 << 62, ["a", "\ud800"]) == [-1, -1]
    with pytest.raises(ValueError, match="not all slots"):
        native.instances(SchemaElement, 2, {"name": "a"})
    values: dict[str, Any] = dict.fromkeys(SchemaElement.__slots__)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="2 values of name"):
        native.instances(SchemaElement, 2, {**values, "name": ["a"]})
    with pytest.raises((ValueError, AttributeError)):
        native.instances(SchemaElement, 2, {**values, "__init__": 1})
    made = native.instances(SchemaElement, 2, {**values, "name": ["a", "b"], "type": 1})
    for record in (b"", bytes(119), bytes(121)):
        with pytest.raises(ValueError, match="120 bytes"):
            native.records_like(record, [native.FlatChunk()], 0, crc32, crc32)
    for other in (None, 1):
        with pytest.raises(TypeError):
            native.records_like(bytes(120), [other], 0, crc32, crc32)
    assert made == [SchemaElement(name="a", type=1), SchemaElement(name="b", type=1)]


def test_damaged_fields_and_elements_are_read_within_their_buffers(native: ModuleType) -> None:
    if not hasattr(native, "alike_elements"):
        pytest.skip("it is no kernel of this module")
    names = [f"c{i}" for i in range(40)]
    types = [pa.float64(), pa.timestamp("us", "UTC"), pa.decimal128(9, 2), pa.time64("us"), pa.binary(3), pa.int8()]
    fields = [pa.field(name, types[i % 6], nullable=i % 4 > 0) for i, name in enumerate(names)]
    message = SchemaMessage(pa.schema(fields).serialize().to_pybytes())
    data, vector = message.listed
    assert len(set(native.alike_fields(data, vector, names))) == 9
    elements = [
        compact_protocol.encode(SchemaElement(name=name, type=1, repetition_type=i % 2)) for i, name in enumerate(names)
    ]
    starts = np.cumsum([0, *map(len, elements)])
    rng = np.random.default_rng(5)
    for _ in range(300):
        damaged = bytearray(data)
        for at in rng.integers(0, len(data), int(rng.choice([1, 3, 50]))):
            damaged[at] = int(rng.choice([0, 1, 127, 255]))
        cut = bytes(damaged[: int(rng.choice([len(data), int(rng.integers(len(data)))]))])
        assert set(native.alike_fields(cut, vector, names)) <= {-1, *range(40)}
        flipped = bytearray(b"".join(elements))
        flipped[int(rng.integers(len(flipped)))] ^= 1 << int(rng.integers(8))
        with suppress(ThriftError):
            native.alike_elements(bytes(flipped), starts)
