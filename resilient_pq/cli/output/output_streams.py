"""stdout and stderr, which may be closed, full, or gone while they are written to."""

from __future__ import annotations

import io
import os
import sys
from typing import IO, TYPE_CHECKING, Any, cast

from resilient_pq.errors import StoreError, Where

if TYPE_CHECKING:
    from rich.console import Console


class OutputClosedError(Exception):
    """Nobody reads our stdout any more."""


def hold_numbers() -> None:
    """Occupy the descriptors of closed standard streams, so that no file gets one of them and their output."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def write_text(text: str) -> None:
    """Write text to stdout as UTF-8; an OutputClosedError if nobody reads it, a StoreError if it cannot be written."""
    if sys.stdout is not None and not hasattr(sys.stdout, "buffer"):
        sys.stdout.write(text)
        return
    # A path that is not UTF-8 has surrogates, which become what JSON, too, writes for them.
    write_bytes(text.encode("utf-8", "backslashreplace"))


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout; errors as of `write_text`."""
    if sys.stdout is None:
        raise StoreError("cannot write: it is closed", where=Where(key="stdout"))
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        raise cannot_write(error) from error


class ByteOutput:
    """stdout as a file that takes bytes."""

    def write(self, data: bytes) -> int:
        """Write all of them."""
        write_bytes(data)
        return len(data)


def cannot_write(error: OSError) -> OutputClosedError | StoreError:
    """The error of stdout as an error of this package; later output is discarded."""
    _to_nowhere(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return OutputClosedError()
    from resilient_pq.io.os_errors import from_os_error  # noqa: PLC0415 (so that help needs no store)

    return from_os_error(error, "cannot write", "stdout", hint="what it leads to is full, or gone")


def write_note(text: str) -> None:
    """Write text to stderr; an error of it cannot be reported anywhere."""
    if sys.stderr is not None:
        _write_or_not(sys.stderr, text)


def _write_or_not(stream: IO[str], text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        _to_nowhere(stream)


def _to_nowhere(stream: IO[str]) -> None:
    """Discard the buffers of a stream, so that they do not fail again when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def console(stream: IO[str] | None, *, stderr: bool = False) -> Console:
    """Lays text out for a stream, as wide and as coloured as that is."""
    from rich.console import Console  # noqa: PLC0415 (so that help needs no colours)

    # Rich takes FORCE_COLOR for a terminal; colours are then wanted, but still nothing that moves.
    file = _Shape(stream) if stream is not None else io.StringIO()
    return Console(
        file=cast("IO[str]", file), stderr=stderr, soft_wrap=True, highlight=False, markup=False, emoji=False
    )


class _Shape:
    """A stream as rich may see it. It writes bars to stderr; other text is ours to write, who know the errors."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        if text:
            _write_or_not(self._stream, text)

    def flush(self) -> None:
        """It is already."""


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether something may move there."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
