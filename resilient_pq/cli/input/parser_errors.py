"""Errors of the parsers of CSV, JSON lines and Arrow IPC, as errors of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from resilient_pq.errors import FormatError, ResilientPQError, UnsupportedError, Where
from resilient_pq.io.os_errors import from_os_error


def import_pyarrow(module: str, what: str) -> Any:
    """Import a module of pyarrow, an optional dependency, or say what cannot be read without it."""
    try:
        return import_module(f"pyarrow.{module}")
    except ImportError as error:
        raise UnsupportedError(
            f"{what} can only be read with pyarrow, which is not installed",
            hint="pip install 'resilient_pq[ingest]'",
        ) from error


@contextmanager
def parser_errors(name: str) -> Iterator[None]:
    """Turn errors of pyarrow and nanoarrow into errors of this package."""
    try:
        yield
    except ResilientPQError:
        raise
    except OSError as error:
        if error.errno is not None:
            raise from_os_error(error, "cannot read", name) from error
        raise _format_error(error, name) from error
    except (ValueError, RuntimeError, TypeError, KeyError, EOFError) as error:  # as pyarrow, nanoarrow and gzip have
        raise _format_error(error, name) from error


def _format_error(error: Exception, name: str) -> FormatError:
    message = str(error).strip().splitlines()
    return FormatError(message[0] if message else type(error).__name__, where=Where(key=name))
