"""What a writer is given, where it may still be changed by the caller: copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from resilient_pq.arrow.handed_over import taking


def owned(data: object) -> object:
    """What a caller may change in place, copied: rows wait for their row group, and loops reuse their arrays."""
    if isinstance(data, Mapping):
        return {name: _owned_values(values) for name, values in data.items()}
    return _owned_values(data)


def _owned_values(values: Any) -> Any:
    """Arrays of NumPy, what can only be had as one, and what pandas makes of them; Arrow's own arrays never change."""
    if isinstance(values, np.ndarray) or any(
        kind.__module__.partition(".")[0] == "pandas" for kind in type(values).__mro__
    ):
        return values.copy()
    is_arrow = hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")
    if is_arrow or not hasattr(values, "__array__"):
        return values
    with taking("values", values):
        return np.array(values)
