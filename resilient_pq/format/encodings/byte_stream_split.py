"""BYTE_STREAM_SPLIT: the first bytes of all values, then the second ones, and so on (parquet-format, Encodings.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq import memory_pool
from resilient_pq.errors import EncodingError
from resilient_pq.format import kernels
from resilient_pq.format.physical_values import Values, fixed_width
from resilient_pq.format.schema_tree import Primitive


def encode(node: Primitive, values: Values) -> NDArray[np.uint8]:
    """The bytes of `values`: FLOAT, DOUBLE, INT32, INT64 or FIXED_LEN_BYTE_ARRAY."""
    assert isinstance(values, np.ndarray)
    rows = _rows(node, np.ascontiguousarray(values))
    streams = memory_pool.empty(rows.shape[::-1], np.uint8)
    kernels.split_streams(rows, streams)
    return streams.reshape(-1)


def decode(node: Primitive, data: memoryview, out: NDArray[Any]) -> None:
    """Fill `out` with values; a page that holds more of them is read as far as they are wanted."""
    width = fixed_width(node) or 0
    if len(data) < out.nbytes:
        raise EncodingError(f"BYTE_STREAM_SPLIT values take {out.nbytes} bytes, but the page has {len(data)}")
    if not out.nbytes:
        return
    # Where a stream begins follows from the size of the page: there is no padding.
    if len(data) % width:
        raise EncodingError(f"{len(data)} bytes are no whole number of streams for values of {width}")
    kernels.join_streams(np.frombuffer(data, np.uint8).reshape(width, -1), _rows(node, out))


def _rows(node: Primitive, values: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of each value in a row, in the same memory."""
    return values.view(np.uint8).reshape(len(values), fixed_width(node) or 0)
