"""The boundary to other Arrow libraries: what they raise becomes an error of ours, what may change is copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from types import TracebackType
from typing import Any, Final

import numpy as np

from resilient_pq.errors import OutOfMemoryError, ResilientPQError, SchemaError, SourceError
from resilient_pq.off_event_loop import ONE_HOP_BYTES

#: What pyarrow puts behind the message of an error of Python code that it called, before a whole traceback.
_DETAIL = "Detail: Python exception: "
#: About what a value takes that is an object of Python, or may be one.
_VALUE_BYTES: Final = 16


class taking:  # noqa: N801 (a context manager, used as a function is)
    """Take `what` from an object of another library; whatever it raises but a lack of memory becomes a `failure`."""

    __slots__ = ("_failure", "_maker", "_what")

    def __init__(self, what: str, maker: object, failure: type[ResilientPQError] = SchemaError) -> None:
        self._what, self._maker, self._failure = what, maker, failure

    def __enter__(self) -> None:
        """Nothing to do yet."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, ResilientPQError):
            return
        if isinstance(error, MemoryError):
            raise OutOfMemoryError(str(error)) from error
        # Any library may be behind the interface, and any code behind the library.
        name = f"{type(self._maker).__module__.partition('.')[0]}.{type(self._maker).__qualname__}"
        raise self._failure(
            f"{self._what} cannot be taken from an object of type {name}: {_said(error)}",
            hint="what was raised there is the cause of this error (__cause__)",
        ) from error


def _said(error: Exception) -> str:
    """The first line of what an error says; of one that comes from Python code, its type and message there."""
    text, _, traceback = str(error).partition(_DETAIL)
    raised = [line for line in traceback.splitlines()[1:] if line.strip() and not line.startswith(" ")]
    said = raised or text.strip().splitlines()
    return said[0] if said else type(error).__name__


def take_arrays(arrays: Iterable[Any], maker: object) -> Iterator[Any]:
    """The arrays of a stream, each made by its library only when it is taken; a SourceError where it fails."""
    with taking("rows", maker):
        remaining = iter(arrays)
    while True:
        with taking("rows", maker, SourceError):
            try:
                array = next(remaining)
            except StopIteration:
                return
        yield array


def num_bytes_at_hand(data: Any) -> int | None:
    """About how many bytes rows take that are in memory; None where they may come over time, or cannot be counted."""
    if isinstance(data, Mapping):
        sizes = [num_bytes_at_hand(values) for values in data.values()]
        return None if None in sizes else sum(size or 0 for size in sizes)
    if isinstance(data, list | tuple | range):
        return _VALUE_BYTES * len(data) * (len(data[0]) if len(data) and isinstance(data[0], Sized) else 1)
    if hasattr(data, "estimated_size"):  # of Polars
        return int(data.estimated_size())
    if hasattr(data, "memory_usage"):  # of pandas
        return int(data.size) * _VALUE_BYTES
    if hasattr(data, "get_total_buffer_size"):
        return _num_bytes_of_pyarrow(data)
    size = getattr(data, "nbytes", None)
    return size if isinstance(size, int) else None


def _num_bytes_of_pyarrow(data: Any) -> int:
    """About its `nbytes`, which take microseconds for each chunk: asked for only where less does not tell enough."""
    slots = data.num_rows * data.num_columns if hasattr(data, "num_columns") else 0
    if slots >= ONE_HOP_BYTES:
        return int(slots)
    size = data.get_total_buffer_size()
    # Large buffers may hold more than these rows.
    return int(size if size < ONE_HOP_BYTES else data.nbytes)


def copy_mutable(data: object) -> object:
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
