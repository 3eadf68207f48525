"""The bloom filter of a column chunk, for Python values. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.batch_sources import arrays_of
from resilient_pq.arrow.buffers import BufferPart
from resilient_pq.arrow.to_python import python_values
from resilient_pq.errors import Where, located
from resilient_pq.format.indexes.split_block_filter import BloomFilter
from resilient_pq.format.scalars import from_python, to_plain
from resilient_pq.format.schema_tree import Leaf


class ColumnBloomFilter:
    """Tells which values are certainly not in a column chunk; made by `File.bloom_filter`.

    Attributes:
        column: Path of the column.
        num_bytes: Size of its bits.
    """

    def __init__(self, leaf: Leaf, bits: BloomFilter) -> None:
        """Use `File.bloom_filter` instead."""
        self.column = leaf.column_path
        self.num_bytes = bits.blocks.nbytes
        self._leaf = leaf
        self._bits = bits

    def may_contain(self, values: Any) -> Any:
        """Whether the chunk may contain a value; False is certain, True is not.

        True is also the answer for what a filter cannot tell: nulls, NaN and NaT, INT96, and DECIMAL in byte arrays
        of any length. Zero stands for both zeros of floating point, and a number that the column's type cannot hold
        is in no chunk, except that numbers are rounded to FLOAT and FLOAT16.

        Args:
            values: A value as tables give it (str, bytes, int, float, date, datetime, time, Decimal), or several:
                a list, tuple or set of them, a NumPy array, or an Arrow array.

        Returns:
            A bool for one value; for several, a NumPy array of bool, one for each.

        Raises:
            SchemaError: A value is of another kind than the column's.
        """
        found = several(values)
        if found is None:
            return bool(self._may_contain([values])[0])
        return self._may_contain(found)

    def _may_contain(self, values: Sequence[Any]) -> NDArray[np.bool_]:
        found = np.zeros(len(values), np.bool_)
        plain: list[bytes] = []
        owners: list[int] = []
        with located(Where(column=self.column)):
            for at, value in enumerate(values):
                node = self._leaf.node
                stored = None if _is_null(value) else to_plain(node, from_python(node, value))
                if stored is None:
                    found[at] = True
                    continue
                plain += stored
                owners += [at] * len(stored)
        np.logical_or.at(found, owners, self._bits.may_contain_plain(plain))
        return found


def _is_null(value: Any) -> bool:
    """Whether a value is None, or the NaN or NaT that NumPy and pandas have in place of it, whatever the column."""
    if value is None:
        return True
    has_none = isinstance(value, float | dt.datetime | np.floating | np.datetime64 | np.timedelta64)
    return has_none and bool(value != value)  # noqa: PLR0124 (no other value differs from itself)


def several(values: Any) -> Sequence[Any] | None:
    """The values of a list, tuple, set, NumPy array or Arrow array; None for a single value."""
    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        field, arrays = arrays_of(values)
        parts = [BufferPart.of(array, field) for array in arrays]
        return [value for part in parts for value in python_values(part, "values", "numpy")]
    if isinstance(values, np.ndarray):
        return [*values] if values.ndim else None
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | bytearray | memoryview):
        return list(values)
    return None
