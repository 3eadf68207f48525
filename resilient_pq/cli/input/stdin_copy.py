"""A file that comes on stdin, as an object of that name: Parquet is read from its end, so it is stored first."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Generator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from resilient_pq.cli.input.input_stream import STDIN, InputStream, in_background, open_stream
from resilient_pq.errors import NotFoundError, ResilientPQError, Where
from resilient_pq.io import Capabilities, LocalStore, ObjectInfo
from resilient_pq.io.resolve import Location
from resilient_pq.io.substitute_store import SubstituteStore
from resilient_pq.units import MiB

_NAME = "stdin"


class _CopyOfStdin(SubstituteStore):
    """One object, with the bytes of a temporary file."""

    def __init__(self, copy: ObjectInfo) -> None:
        super().__init__(LocalStore(), replace(copy, key=_NAME), copy.size)
        self._copy = copy

    @property
    def capabilities(self) -> Capabilities:
        """There is no folder to list."""
        return Capabilities()

    def url_of(self, key: str) -> str:
        """What messages call it."""
        return key

    async def head(self, key: str) -> ObjectInfo:
        """The object; there is nothing beside it."""
        if key != _NAME:
            raise NotFoundError("there is nothing beside stdin", where=Where(key=key))
        return self._info

    async def _read(self, key: str, start: int, end: int) -> memoryview:
        return memoryview(await self._store.read_range(self._copy.key, start, end, pin=self._copy))


@asynccontextmanager
async def stdin_as_file(src: str) -> AsyncIterator[Any]:
    """A source by its name; of ``-`` the object that is on stdin."""
    if src != STDIN:
        yield src
        return
    with tempfile.NamedTemporaryFile(prefix="rpq-stdin-", suffix=".parquet") as copy:
        file = open_stream(STDIN)

        def copied() -> Generator[int, None, None]:
            with file:
                stream = InputStream(file)
                while piece := stream.read(MiB):
                    yield copy.write(piece)
            copy.flush()

        async with aclosing(in_background(copied(), file.stop)) as pieces:
            async for _ in pieces:
                pass
        place: Location = _CopyOfStdin(await LocalStore().head(copy.name)), _NAME
        try:
            yield place
        except ResilientPQError as error:
            # Commands are to be run with the same pipe.
            error.hint = error.hint and error.hint.replace(f" {_NAME} ", f" {STDIN} ")
            raise
