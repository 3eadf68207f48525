"""What makes schemas of many columns at once refuses what is not there."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

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
    assert made == [SchemaElement(name="a", type=1), SchemaElement(name="b", type=1)]
