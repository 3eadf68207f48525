"""The statistics in the header of a data page, as evidence for values that no checksum covers. Pure.

Neither the order of the column nor the writer need be known: bounds may be those of another order than the one in which
values contradict them, and bounds of strings may be cut. Only what none of these explains is a contradiction.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import FormatError
from resilient_pq.format import kernels
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.pages.chunk_decoder import decode_chunk
from resilient_pq.format.pages.page import Page
from resilient_pq.format.pages.row_selection import leaf_data
from resilient_pq.format.physical_values import ByteArrays, Values
from resilient_pq.format.quirks import NO_QUIRKS, Quirks
from resilient_pq.format.schema_tree import Leaf

_NUMBERS: Final = {Type.INT32: "<i4", Type.INT64: "<i8", Type.FLOAT: "<f4", Type.DOUBLE: "<f8"}
_LAST_CHARACTER: Final = 4  # Bytes in which an upper bound that was cut may be raised: a character of UTF-8
_LEAST_CUT: Final = 8  # Bytes of the shortest bounds that are cut
_HALF_FLOAT: Final = 2  # Bytes of a number of which either zero may stand for both


class _Fit(IntEnum):
    """How bounds fit values, the best last."""

    NONE = auto()
    WITHIN = auto()  # The bounds are those of more values than these
    UNKNOWN = auto()
    EXACT = auto()


def check_page_statistics(
    page: Page, leaf: Leaf, codec: int, dictionary: Page | None = None, quirks: Quirks = NO_QUIRKS
) -> bool:
    """Refuse a page whose values are not those of which the statistics in its header tell; whether these tell of any.

    Pages of columns with lists are not looked at: writers differ in what they count there. Beside a dictionary some
    write the bounds of the whole dictionary to each page.
    """
    header = page.data_header
    if header is None or header.statistics is None or leaf.max_repetition_level:
        return False
    pages = [page] if dictionary is None else [dictionary, page]
    values = leaf_data(decode_chunk(leaf, codec, pages, header.num_values, quirks)).values
    null_count = header.statistics.null_count
    if null_count is not None and null_count != header.num_values - len(values):
        raise FormatError(f"its header counts {null_count:,} nulls of {header.num_values - len(values):,}")
    stated = header.statistics
    low = stated.min if stated.min_value is None else stated.min_value
    high = stated.max if stated.max_value is None else stated.max_value
    if low is None or high is None or not len(values):
        return False
    fit = _fit(leaf, values, low, high)
    if fit is _Fit.NONE or (fit is _Fit.WITHIN and dictionary is None):
        raise FormatError("its values are not those of which the statistics in its header tell")
    return fit is _Fit.EXACT


def _fit(leaf: Leaf, values: Values, low: bytes, high: bytes) -> _Fit:
    """How bounds fit values."""
    if leaf.node.physical_type in _NUMBERS:
        assert isinstance(values, np.ndarray)
        return _fit_numbers(values.view(_NUMBERS[leaf.node.physical_type]), low, high)
    if isinstance(values, ByteArrays):
        return _fit_bytes(values, *kernels.byte_array_min_max(values.offsets, values.data), low, high)
    if leaf.node.physical_type is not Type.FIXED_LEN_BYTE_ARRAY or values.shape[1] in (0, _HALF_FLOAT):
        return _Fit.UNKNOWN
    rows = np.ascontiguousarray(values)
    offsets = np.arange(0, rows.size + 1, rows.shape[1])
    return _fit_bytes(ByteArrays(offsets, rows.reshape(-1)), *kernels.row_min_max(rows, False), low, high)


def _fit_numbers(values: NDArray[Any], low: bytes, high: bytes) -> _Fit:
    """How bounds fit numbers, signed or unsigned."""
    if not len(low) == len(high) == values.itemsize:
        return _Fit.UNKNOWN
    bounds = np.frombuffer(low + high, values.dtype)
    orders = [values.dtype.str, values.dtype.str.replace("i", "u")]
    if values.dtype.kind == "f":
        values, orders = values[~np.isnan(values)], orders[:1]
        if not len(values) or np.isnan(bounds).any():
            return _Fit.UNKNOWN
    fits = []
    for order in orders:
        least, greatest = values.view(order).min(), values.view(order).max()
        first, last = bounds.view(order)
        is_within = first <= least and greatest <= last
        fits.append(_Fit.EXACT if (first, last) == (least, greatest) else _Fit.WITHIN if is_within else _Fit.NONE)
    return max(fits)


def _fit_bytes(values: ByteArrays, smallest: int, largest: int, low: bytes, high: bytes) -> _Fit:
    """How bounds fit byte strings: they may be cut, or be among them where these are in another order."""
    first, last = values.value(smallest), values.value(largest)
    is_cut = len(low) >= _LEAST_CUT and first.startswith(low)
    is_raised = len(high) >= _LEAST_CUT and high > last and last.startswith(high[:-_LAST_CHARACTER])
    if (low == first or is_cut) and (high == last or is_raised):
        return _Fit.EXACT
    if low <= first and last <= high:
        return _Fit.WITHIN
    is_other_order = low > high or {low, high} <= {values.value(i) for i in range(len(values))}
    return _Fit.UNKNOWN if is_other_order else _Fit.NONE
