"""The boundary to other Arrow libraries: what they raise while they hand their data over becomes an error of ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from resilient_pq.errors import OutOfMemoryError, ResilientPQError, SchemaError, SourceError

#: What pyarrow puts behind the message of an error of Python code that it called, before a whole traceback.
_DETAIL = "Detail: Python exception: "


@contextmanager
def taking(what: str, maker: object, failure: type[ResilientPQError] = SchemaError) -> Iterator[None]:
    """Take `what` from an object of another library; whatever it raises but a lack of memory becomes a `failure`."""
    try:
        yield
    except ResilientPQError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(str(error)) from error
    except Exception as error:  # any library may be behind the interface, and any code behind the library
        name = f"{type(maker).__module__.partition('.')[0]}.{type(maker).__qualname__}"
        raise failure(
            f"{what} cannot be taken from an object of type {name}: {_said(error)}",
            hint="what was raised there is the cause of this error (__cause__)",
        ) from error


def _said(error: Exception) -> str:
    """The first line of what an error says; of one that comes from Python code, its type and message there."""
    text, _, traceback = str(error).partition(_DETAIL)
    raised = [line for line in traceback.splitlines()[1:] if line.strip() and not line.startswith(" ")]
    said = raised or text.strip().splitlines()
    return said[0] if said else type(error).__name__


def each_taken(arrays: Iterable[Any], maker: object) -> Iterator[Any]:
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
