"""Tables as an Arrow C stream that makes them when they are asked for.

nanoarrow makes streams of arrays that are there already. Here two of the callbacks of such a stream are exchanged for
ours, so that the consumer pulls table after table (Arrow C stream interface,
https://arrow.apache.org/docs/format/CStreamInterface.html). Its release stays nanoarrow's: it may be called from any
thread, at any time, also while an exception is being raised, where no Python code may run.
"""

from __future__ import annotations

import ctypes
import errno
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from nanoarrow.c_array_stream import CArrayStream

from resilient_pq.arrow.buffers import make_array
from resilient_pq.arrow.c_arrays import CArrayStruct
from resilient_pq.arrow.table import Table
from resilient_pq.arrow.types.field import Field, with_wide_indices
from resilient_pq.errors import SchemaError


class _CStream(ctypes.Structure):
    """``struct ArrowArrayStream``."""

    _fields_ = (
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


_GetNext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_GetLastError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
_pointer_of.restype = ctypes.c_void_p

#: Streams that were handed out and are not released yet, by their private data.
_handed_out: Final[dict[int, _Exported]] = {}


class _Exported:
    """What stands behind a stream that was handed out."""

    def __init__(self, field: Field, tables: Iterator[Table]) -> None:
        self.asked = False  # whether anybody wanted more than the schema
        self.failed = 0  # the number of the error after which nothing comes any more
        self.message: Any = None  # its text, as C sees it
        self._field = field
        self._tables = tables
        self._capsule: object = None  # the chunks of the table at hand, those of them that were not taken yet

    def next_into(self, target: int) -> None:
        """Move the next array to where the consumer wants it, or what says that there is none."""
        while True:
            if self._capsule is None:
                table = next(self._tables, None)
                if table is None:
                    ctypes.memset(target, 0, ctypes.sizeof(CArrayStruct))
                    return
                self._capsule = checked(table, self._field).__arrow_c_stream__()
            chunks = _pointer_of(self._capsule, b"arrow_array_stream")
            status = _GetNext(_CStream.from_address(chunks).get_next)(chunks, target)
            if status:
                raise OSError(status, "an array could not be moved")
            if CArrayStruct.from_address(target).release:
                return
            self._capsule = None


def checked(table: Table, field: Field) -> Table:
    """The table in the type that the stream was declared to have, where that is possible."""
    found = Field.of(table)
    if found != field and len(found.children) == len(field.children):
        table = table.widened(field)
        found = Field.of(table)
    if len(found.children) != len(field.children):
        raise ValueError(f"a table of {len(found.children)} columns came in a stream of {len(field.children)}")
    for one, declared in zip(found.children, field.children, strict=True):
        if one != declared:
            raise SchemaError(
                f"the values of column {one.name!r} come as {one}, and a stream cannot change from {declared} to that",
                hint="coerce_int96_timestamp_unit in ReadOptions makes all of them one"
                if declared.kind == "ts"
                else "read it as tables: file.read() or file.batches()",
            )
    return table


def _next(stream: int, target: int) -> int:
    exported = _handed_out[_CStream.from_address(stream).private_data]
    exported.asked = True
    if not exported.failed:
        try:
            exported.next_into(target)
        except BaseException as error:
            # C has no exceptions: a number and a text have to do.
            text = f"{type(error).__name__}: {error}"
            exported.message = ctypes.create_string_buffer(text.encode("utf-8", "replace"))
            exported.failed = errno.EINVAL if isinstance(error, SchemaError) else errno.EIO
    return exported.failed


def _last_error(stream: int) -> int | None:
    message = _handed_out[_CStream.from_address(stream).private_data].message
    return None if message is None else ctypes.addressof(message)


#: The callbacks, which C may call in any thread: ctypes takes the GIL for them. They live as long as this module.
_GET_NEXT: Final = _GetNext(_next)
_GET_LAST_ERROR: Final = _GetLastError(_last_error)


def lazy_stream(field: Field, tables: Iterator[Table], ended: Callable[[], object]) -> object:
    """A capsule of the Arrow C stream interface that takes tables when their rows are asked for, with the GIL held.

    `ended` is called once, in any thread, when the stream is released, read to its end or not; never when nothing but
    its schema was asked of it. What asking `tables` raises comes out of the stream as an error with the same text.
    """
    # An array that is never given out: it is freed with the stream, which shows when the stream ends.
    life = np.zeros(1, np.uint8)
    field = with_wide_indices(field)
    witness = make_array(Field("", "C", False), 1, [life], None)
    capsule = CArrayStream.from_c_arrays([witness], field.to_c(), move=True, validate=False).__arrow_c_stream__()
    stream = _CStream.from_address(_pointer_of(capsule, b"arrow_array_stream"))
    key = stream.private_data
    _handed_out[key] = _Exported(field, tables)
    # What is left when the interpreter ends, ends with it.
    weakref.finalize(life, _end, key, ended).atexit = False
    stream.get_next = ctypes.cast(_GET_NEXT, ctypes.c_void_p).value
    stream.get_last_error = ctypes.cast(_GET_LAST_ERROR, ctypes.c_void_p).value
    return capsule


def _end(key: int, ended: Callable[[], object]) -> None:
    if _handed_out.pop(key).asked:
        ended()
