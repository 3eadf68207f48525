"""Streams of bytes that rows are read from: files, pipes and stdin."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import select
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any, Protocol, TypeVar

from isal import igzip

from resilient_pq.errors import FormatError, ResilientPQError, UnsupportedError, Where
from resilient_pq.io.os_errors import explained, from_os_error
from resilient_pq.io.resolve import refuse_mistyped


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


#: What stands for stdin or stdout in a command.
STDIN = "-"


class Stream(Protocol):
    """Bytes in order, such as a file or a pipe."""

    def readinto(self, buffer: Any, /) -> int | None:
        """Fill the buffer, or what can be filled of it; 0 at the end."""


class StoppableFile(io.FileIO):
    """A local file, pipe or terminal; a read that waits for bytes is ended by `stop`, from any thread."""

    def __init__(self, file: str | int) -> None:
        """Open a path, without waiting for the writer of a pipe, or take over a descriptor."""
        super().__init__(file, opener=_open_at_once)
        self._stopped = threading.Event()
        self._closing = threading.Lock()
        # Windows cannot wait for two things of which one is a file.
        self._wakes: int | None = None
        self._wake: int | None = None
        if os.name != "nt":
            self._wakes, self._wake = os.pipe()

    def readinto(self, buffer: Any, /) -> int:
        """Read what is there, at least one byte before the end; an OSError after `stop`."""
        self.wait()
        if self._stopped.is_set():
            # Not EINTR, after which a buffered reader asks again.
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
        return super().readinto(buffer) or 0

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until something can be read, or `stop` was called; False where neither is so after some seconds."""
        if self._wakes is None:
            return True
        return any(select.select([self.fileno(), self._wakes], [], [], seconds))

    def stop(self) -> None:
        """Read no more: a read that is under way raises `OSError`, and so does every later one."""
        self._stopped.set()
        with self._closing:
            if self._wake is not None:
                os.write(self._wake, b"!")

    def close(self) -> None:
        """Close the file, which nothing may be reading."""
        with self._closing:
            super().close()
            for end in (self._wakes, self._wake):
                if end is not None:
                    os.close(end)
            self._wakes = self._wake = None


def _open_at_once(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if os.name != "nt":
        os.set_blocking(descriptor, True)
    return descriptor


class InputStream(io.RawIOBase):
    """A stream, with bytes before it that were taken from it already; `num_bytes` counts the bytes read."""

    def __init__(self, stream: Stream, *, head: bytes = b"") -> None:
        """Read `head`, then `stream`, which is not closed."""
        super().__init__()
        self._stream = stream
        self._head = head
        self.num_bytes = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """Whether it is a file, with nothing before it."""
        return not self._head and isinstance(self._stream, io.FileIO) and self._stream.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go on at another place of the file."""
        if not self.seekable():
            raise io.UnsupportedOperation("this is a stream")
        assert isinstance(self._stream, io.FileIO)
        return self._stream.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int:
        """Read what is there, at least one byte before the end."""
        view = memoryview(buffer).cast("B")
        if self._head:
            count = min(len(view), len(self._head))
            view[:count], self._head = self._head[:count], self._head[count:]
        else:
            count = self._stream.readinto(view) or 0
        self.num_bytes += count
        return count

    def wait(self, seconds: float) -> bool:
        """Wait until something can be read, for so long at most; True, too, of what cannot be waited for so."""
        if self._head or not isinstance(self._stream, StoppableFile | InputStream):
            return True
        return self._stream.wait(seconds)


class Decompressed:
    """The bytes of a compressed stream."""

    def __init__(self, stream: InputStream, ending: str, name: str) -> None:
        """Decompress what the ending says, ``.gz`` or ``.zst``; errors name `name`."""
        self._name = name
        if ending == ".gz":
            self._plain: Any = igzip.IGzipFile(fileobj=stream, mode="rb")  # type: ignore[no-untyped-call]
        else:
            self._plain = import_pyarrow("lib", "a zstd stream").CompressedInputStream(stream, "zstd")

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer, or what can be filled of it; 0 at the end."""
        with parser_errors(self._name):
            piece = self._plain.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def take_bytes(stream: InputStream, size: int) -> bytes:
    """Read so many bytes and none behind them; fewer at the end."""
    pieces: list[bytes] = []
    while size and (piece := stream.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def open_stream(src: str) -> StoppableFile:
    """Open a local file, or stdin."""
    refuse_mistyped(src)
    with explained("cannot read", "stdin" if src == STDIN else src):
        if src != STDIN:
            return StoppableFile(src)
        if sys.stdin is None:  # its number may be that of another file now
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        # A copy of the descriptor: Python's own outlives us.
        return StoppableFile(os.dup(0))


Item = TypeVar("Item")


def _nothing() -> None:
    """Nothing to stop."""


async def in_background(
    items: Generator[Item, Any, Any], stop: Callable[[], None] = _nothing
) -> AsyncGenerator[Item, None]:
    """Iterate in a thread that has ended when this is closed; `stop` ends whatever the thread waits for."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[tuple[Item] | Exception | None] = asyncio.Queue()
    room = threading.Semaphore(1)
    stopped = threading.Event()
    ended = asyncio.Event()

    def hand_over(item: tuple[Item] | Exception | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(arrived.put_nowait, item)

    def read() -> None:
        try:
            with closing(items):
                for item in items:
                    hand_over((item,))
                    if stopped.is_set():
                        return
        except Exception as error:
            hand_over(error)
        else:
            hand_over(None)
        finally:
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=read, name="rpq-input").start()
    try:
        while (item := await arrived.get()) is not None:
            if isinstance(item, Exception):
                raise item
            room.release()
            yield item[0]
    finally:
        stopped.set()
        stop()
        room.release()
        await ended.wait()
